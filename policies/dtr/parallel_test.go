package dtr_test

import (
	"testing"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/policies/dtr"
	"smartswap/sim"
	"smartswap/workloads"
)

// TestSequenceParallel: with sequence parallelism most activations are computed
// from gathered buffers. A job that dtr cannot run in half of the memory that it
// takes beyond what stays, it can if collectives run again; every kernel
// finds what it should, and ranks that are simulated one by one do what the one
// does that stands for them.
func TestSequenceParallel(t *testing.T) {
	model := workloads.Model{Name: "small", Style: workloads.Llama, Layers: 4, Hidden: 256, FFN: 512, Heads: 8, KVHeads: 8, HeadDim: 32, Vocab: 1000, Seq: 2048}
	node, err := hw.Load("910b2-8")
	if err != nil {
		t.Fatal(err)
	}
	run := func(unfold bool, hbm sim.Bytes, o *dtr.Options) *eager.Report {
		w, err := workloads.New(workloads.Config{Model: model, TP: 2, PP: 2, DP: 2, GlobalBatch: 8, SequenceParallel: true, Unfold: unfold})
		if err != nil {
			t.Fatal(err)
		}
		cfg := eagertest.Config(node, w)
		cfg.Iterations, cfg.HBM = 2, hbm
		if o != nil {
			cfg.NewPolicy = func() (policies.Policy, error) { return dtr.New(*o), nil }
		}
		r, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Violations {
			t.Error(v)
		}
		return r
	}
	ideal := run(false, 0, nil)
	var stays, peak sim.Bytes
	w, err := workloads.New(workloads.Config{Model: model, TP: 2, PP: 2, DP: 2, GlobalBatch: 8, SequenceParallel: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range w.Ranks() {
		var here sim.Bytes
		for _, s := range r.Residents {
			here += (s.Bytes + 511) &^ 511
		}
		stays, peak = max(stays, here), max(peak, sim.Bytes(ideal.Ranks[i].Memory.Allocated.Peak))
	}
	hbm := stays + (peak-stays)/2
	o := dtr.Options{Heuristic: "dtr", Release: "eager", Duplicates: "apart"}
	if r := run(false, hbm, &o); r.OOM == nil {
		t.Errorf("it fits without collectives: %+v", r.Ranks[0].Replays)
	}
	o.Communication = true
	folded, apart := run(false, hbm, &o), run(true, hbm, &o)
	if folded.OOM != nil || folded.Ranks[0].Replays.Ops == 0 {
		t.Fatalf("%v, %+v", folded.OOM, folded.Ranks[0].Replays)
	}
	t.Logf("%v of %v; %v, ideal %v; %+v", hbm, peak, folded.Makespan, ideal.Makespan, folded.Ranks[0].Replays)
	if folded.Makespan <= ideal.Makespan || apart.Makespan != folded.Makespan || apart.Ranks[0].Replays != folded.Ranks[0].Replays || len(apart.Ranks) != 4*len(folded.Ranks) {
		t.Errorf("%d ranks %v, %+v; folded %v, %+v; ideal %v", len(apart.Ranks), apart.Makespan, apart.Ranks[0].Replays, folded.Makespan, folded.Ranks[0].Replays, ideal.Makespan)
	}
}
