package published

import (
	"io"
	"strings"

	"smartswap/workloads"
)

// Steps reads our table of published step times (results/reference/step-times.csv):
// one job per row, complete in itself, of those whose id begins with prefix.
func Steps(in io.Reader, file, prefix string) ([]Job, error) {
	s, err := readSheet(in, file, []string{
		"id", "source", "device", "node", "devices", "model", "style", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq",
		"micro_batch", "global_batch", "tp", "pp", "dp", "vpp", "zero", "sequence_parallel", "framework", "attention", "recompute",
		"metric", "value", "unit", "note",
	})
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for i := range s.rows {
		r := &row{sheet: s, i: i}
		j := r.step()
		if r.err != nil {
			return nil, r.err
		}
		if strings.HasPrefix(j.ID, prefix) {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

func (r *row) step() Job {
	if r.text("id") == "" {
		r.fail("id", "a name")
	}
	heads := int(r.whole("heads", 1, maxDegree))
	j := Job{
		ID: r.text("id"), Source: r.text("source"), Note: r.text("note"),
		Node: r.text("node"), Devices: r.whole("devices", 1, maxDegree),
		Model: workloads.Model{
			Name: r.text("model"), Layers: int(r.whole("layers", 1, maxDegree)), Hidden: int(r.whole("hidden", 1, maxWidth)), FFN: int(r.whole("ffn", 1, maxWidth)),
			Heads: heads, KVHeads: int(r.whole("kv_heads", 1, maxDegree)), Vocab: int(r.whole("vocab", 1, 1<<22)),
		},
		Seq: r.whole("seq", 1, maxSeq), MicroBatch: r.whole("micro_batch", 1, maxBatch), GlobalBatch: r.whole("global_batch", 1, maxBatch),
		TP: r.whole("tp", 1, maxDegree), PP: r.whole("pp", 1, maxDegree), DP: r.whole("dp", 1, maxDegree), VPP: r.whole("vpp", 1, maxDegree),
		ZeRO: r.whole("zero", 0, 3), SequenceParallel: r.choice("sequence_parallel", "yes", "no") == "yes",
		Framework: r.choice("framework", string(workloads.MegatronCore), string(workloads.Megatron2021), string(workloads.Megatron2022)),
		Attention: r.choice("attention", string(workloads.Fused), string(workloads.Unfused)),
		Recompute: r.text("recompute"),
	}
	if j.ZeRO == 2 {
		r.fail("zero", "0, 1 or 3")
	}
	m := &j.Model
	m.Seq, m.HeadDim = int(j.Seq), m.Hidden/heads
	if m.Hidden%heads != 0 {
		r.fail("heads", "a divisor of hidden, %d", m.Hidden)
	}
	switch r.choice("style", "gpt", "mpt", "llama") {
	case "gpt":
		m.Style, m.Tied = workloads.GPT, true
	case "mpt":
		m.Style, m.Tied, m.Bare = workloads.GPT, true, true
	}
	if j.TP*j.PP*j.DP != j.Devices {
		r.fail("devices", "the product of tp, pp and dp, %d", j.TP*j.PP*j.DP)
	}
	n := Number{Value: r.positive("value")}
	switch metric := r.choice("metric", "iteration_time", "tokens_per_second_per_device", "MFU"); metric {
	case "iteration_time":
		n.Metric = StepTime
		if r.choice("unit", "ms", "s") == "s" {
			n.Value *= 1000
		}
	case "MFU":
		n.Metric = ModelShare
		r.choice("unit", "%")
	default:
		n.Metric = TokenRate
		r.choice("unit", "tokens/s")
	}
	j.Numbers = []Number{n}
	return j
}
