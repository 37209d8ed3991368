package published

import (
	"fmt"
	"io"

	"smartswap/workloads"
)

// vtrainVocab is the padded vocabulary of the jobs: not in the table; that of
// Megatron-LM's GPT.
const vtrainVocab = 51200

// VTrain reads the measured iteration times of vTrain
// (VIA-Research/vTrain, Megatron-DeepSpeed on one server): one job per row, in the
// order of the table, called by its line. What the table does not have is what
// its origin says of all rows: GPT with full recomputation layer by layer, 1F1B,
// gradients all-reduced at the end; and what Megatron-LM did then: no sequence
// parallelism, attention unfused.
func VTrain(in io.Reader, file string) ([]Job, error) {
	const (
		devices = "# GPUs"
		global  = "global batch"
		micro   = "micro batch"
		hidden  = "hidden size"
		heads   = "attention heads"
		layers  = "# layers"
		seq     = "sequence length"
		tp      = "tensor parallelism"
		dp      = "data parallelism"
		pp      = "pipeline parallelism"
		took    = "iteration time (ms)"
	)
	s, err := readSheet(in, file, []string{devices, global, micro, hidden, heads, layers, seq, tp, dp, pp, took})
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for i := range s.rows {
		r := &row{sheet: s, i: i}
		h, a := int(r.whole(hidden, 1, maxWidth)), int(r.whole(heads, 1, maxDegree))
		j := Job{
			ID: fmt.Sprintf("line %d", s.lines[i]), Devices: r.whole(devices, 1, maxDegree),
			Seq: r.whole(seq, 1, maxSeq), MicroBatch: r.whole(micro, 1, maxBatch), GlobalBatch: r.whole(global, 1, maxBatch),
			TP: r.whole(tp, 1, maxDegree), PP: r.whole(pp, 1, maxDegree), DP: r.whole(dp, 1, maxDegree), VPP: 1,
			Framework: string(workloads.Megatron2021), Attention: string(workloads.Unfused), Recompute: "full",
			Numbers: []Number{{Metric: StepTime, Value: r.positive(took)}},
		}
		if h%a != 0 {
			r.fail(heads, "a divisor of the hidden size %d", h)
		}
		if j.TP*j.PP*j.DP != j.Devices {
			r.fail(devices, "the product of %s, %s and %s, %d", tp, dp, pp, j.TP*j.PP*j.DP)
		}
		l := int(r.whole(layers, 1, maxDegree))
		if r.err != nil {
			return nil, r.err
		}
		j.Model = workloads.Model{
			Name: fmt.Sprintf("gpt-%dx%d", l, h), Style: workloads.GPT, Tied: true,
			Layers: l, Hidden: h, FFN: 4 * h, Heads: a, KVHeads: a, HeadDim: h / a, Vocab: vtrainVocab, Seq: int(j.Seq),
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}
