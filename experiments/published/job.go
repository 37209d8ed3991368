package published

import (
	"smartswap/workloads"
)

// Job is a training job as a list describes it.
type Job struct {
	ID     string
	Source string // where its numbers stand
	Note   string

	// Node is a node of the catalogue, "" = the one that the experiment names;
	// Devices how many of its devices run, which may be more than a server has.
	Node    string
	Devices int64

	Model                        workloads.Model
	Seq, MicroBatch, GlobalBatch int64
	TP, PP, DP, VPP              int64
	ZeRO                         int64 // 0 = states whole on every replica
	SequenceParallel             bool
	Framework, Attention         string // as workloads.Config has them
	Recompute                    string // as experiment files have it

	// Trace is the path of a file that holds the job in place of Node to
	// Recompute.
	Trace string

	Numbers []Number
}

// Number is one measured number of a job.
type Number struct {
	Metric Metric
	Rank   int // simulated rank, of metrics of one rank
	Where  string
	Value  float64
}

// Metric is what a number measures, with its unit.
type Metric string

// Metrics.
const (
	StepTime   Metric = "iteration_time_ms"
	TokenRate  Metric = "tokens_per_s_per_device"
	ModelShare Metric = "mfu_percent"         // of the peak, by ModelFlops
	Forward    Metric = "forward_compute_ms"  // of a rank, kernels of all forward passes
	Backward   Metric = "backward_compute_ms" // likewise, recomputation included
	Allocated  Metric = "peak_allocated_bytes"
)

// Better tells whether larger values of the metric are better: shorter times.
func (m Metric) Better() bool { return m == TokenRate || m == ModelShare }

// ModelFlops is the number of floating-point operations of one step of a GPT
// without recomputation, as published model-flops utilisations count them
// (Korthikanti et al., arXiv 2205.05198 appendix A: 72 B s l h^2 (1 + s/6h + V/12hl)).
func (j *Job) ModelFlops() float64 {
	b, s, l, h, v := float64(j.GlobalBatch), float64(j.Seq), float64(j.Model.Layers), float64(j.Model.Hidden), float64(j.Model.Vocab)
	return 72 * b * s * l * h * h * (1 + s/(6*h) + v/(12*h*l))
}

// Simulated is the value of a metric of the whole job at a step time in ms; peak
// is the device's nominal rate in flop/s.
func (j *Job) Simulated(m Metric, ms, peak float64) float64 {
	switch m {
	case TokenRate:
		return float64(j.GlobalBatch*j.Seq) / float64(j.Devices) / (ms / 1000)
	case ModelShare:
		return 100 * j.ModelFlops() / (ms / 1000) / (peak * float64(j.Devices))
	}
	return ms
}
