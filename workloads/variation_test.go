package workloads_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/workloadstest"
)

// frequent makes the process of that name for a job of c so that it acts within
// a few iterations.
func frequent(c workloads.Config, name string) workloads.Process {
	lengths := workloads.Lengths{Sigma: workloads.LengthSigma, Seed: 3}
	switch name {
	case "overflow":
		return workloads.OverflowSkip{Burst: 1, Probability: 0.3, Seed: 3}
	case "validation":
		return workloads.Validation{Every: 2, Batches: 2}
	case "save":
		return workloads.CheckpointSave{Every: 2, Pause: sim.Second}
	case "extras":
		return workloads.Extras{LogEvery: 2, AverageEvery: 3}
	case "rerun":
		return workloads.Rerun{Probability: 0.4, Seed: 3}
	case "ramp":
		step := 1
		if c.VPP > 1 {
			step = c.PP
		}
		return workloads.BatchRamp{From: step, Step: step, Every: 1}
	case "tail":
		return workloads.UnevenTail{Sequences: 1, Every: 2}
	case "lengths":
		return workloads.VariableLength{Lengths: lengths}
	case "padding":
		return workloads.DynamicPadding{Lengths: lengths, Multiple: 8}
	case "packing":
		return workloads.PackedSegments{Lengths: lengths}
	case "context":
		return workloads.ContextSwitch{At: 2, Before: 16}
	case "experts":
		return workloads.ExpertImbalance{Start: 2, End: 0.5, Tau: 2, Seed: 3}
	case "depth":
		return workloads.StochasticDepth{Probability: 0.9, Seed: 3}
	case "exit":
		return workloads.EarlyExit{Probability: 0.5, Seed: 3}
	case "lora":
		return workloads.LoRA{Rank: 4, At: 1, Until: 3}
	case "recompute":
		return workloads.RecomputeToggle{At: 1, Before: workloads.Recompute{Kind: workloads.FullUniform}}
	}
	panic("no such process: " + name)
}

// mixture is tiny with experts.
func mixture() workloads.Model {
	m := tiny(workloads.Llama)
	m.Name, m.Experts, m.TopK = "tiny-moe", 4, 2
	return m
}

// fitting is a job in which the process of that name can work.
func fitting(name string) workloads.Config {
	c := workloads.Config{Model: tiny(workloads.Llama), MicroBatch: 2, GlobalBatch: 8}
	if name == "experts" {
		c.Model = mixture()
	}
	return c
}

// Every process alone keeps what workloads promise, in jobs of every kind that
// it can be part of, and makes iterations differ.
func TestProcessesConform(t *testing.T) {
	for _, name := range workloads.ProcessNames() {
		t.Run(name, func(t *testing.T) {
			base := fitting(name)
			plain, differs := program(t, makeWorkload(t, base), 0, 0), false
			varied := with(t, base, frequent(base, name))
			for i := range 6 {
				p := program(t, varied, 0, i)
				differs = differs || p.Ops != plain.Ops || !reflect.DeepEqual(p.Kernels, plain.Kernels)
			}
			if !differs {
				t.Error("no iteration differs from a job without the process")
			}
			made := 0
			for _, change := range []func(c *workloads.Config){
				func(c *workloads.Config) {},
				func(c *workloads.Config) { c.TP, c.DP, c.SequenceParallel, c.Unfold = 2, 2, true, true },
				func(c *workloads.Config) { c.PP, c.VPP, c.SaveRule = 2, 2, workloads.Eager },
				func(c *workloads.Config) { c.PP, c.Recompute.Kind = 4, workloads.ActivationFunction },
				func(c *workloads.Config) { c.DP, c.ZeRO, c.Recompute.Kind = 2, 3, workloads.FullUniform },
				func(c *workloads.Config) {
					c.DP, c.ZeRO, c.Unfold, c.Recompute = 2, 3, true, workloads.Recompute{Kind: workloads.FullUniform, N: 2}
				},
				func(c *workloads.Config) {
					c.Attention, c.Recompute.Kind = workloads.Unfused, workloads.Selective
					if c.Model.Experts == 0 {
						c.Model = tiny(workloads.GPT)
					}
				},
			} {
				c := fitting(name)
				change(&c)
				c.Processes = []workloads.Process{frequent(c, name)}
				if err := c.Check(); err != nil {
					if name != "lora" {
						t.Error(err)
					}
					continue
				}
				made++
				workloadstest.Conformance(t, 5, func() workloads.Workload { return makeWorkload(t, c) })
			}
			if made < 5 {
				t.Errorf("only %d jobs can have the process", made)
			}
		})
	}
}

// Any two processes work together in either order, on replicas that draw their
// own sizes and must meet in every collective all the same.
func TestProcessesCompose(t *testing.T) {
	for _, first := range workloads.ProcessNames() {
		for _, second := range workloads.ProcessNames() {
			if first == second {
				continue
			}
			m := mixture()
			m.Layers, m.Experts, m.TopK = 2, 2, 1
			c := workloads.Config{Model: m, MicroBatch: 2, GlobalBatch: 8, DP: 2, Unfold: true, ZeRO: 3}
			if first == "lora" || second == "lora" {
				c.ZeRO = 1
			}
			w := with(t, c, frequent(c, first), frequent(c, second))
			for i := range 3 {
				if _, err := workloadstest.Play(w, i, perFlop); err != nil {
					t.Errorf("%s, %s, iteration %d: %v", first, second, i, err)
				}
			}
		}
	}
}

// count is how many operators of p have the name.
func count(p *workloads.Program, name string) (n int) {
	for _, in := range p.Instrs {
		if in.Kind == workloads.Op && p.Names.String(in.Name) == name {
			n++
		}
	}
	return n
}

// marks is how many phases of a kind p has.
func marks(p *workloads.Program, kind workloads.MarkKind) (n int) {
	for _, in := range p.Instrs {
		if in.Kind == workloads.Mark && in.Mark == kind {
			n++
		}
	}
	return n
}

// family adds up the flops of a family.
func family(p *workloads.Program, f hw.Family) (flops int64) {
	for _, in := range p.Instrs {
		if in.Kind == workloads.Op && in.Kernel >= 0 && p.Kernels[in.Kernel].Kind == hw.Modelled && p.Kernels[in.Kernel].Family == f {
			flops += p.Kernels[in.Kernel].Flops
		}
	}
	return flops
}

// with is a workload of c with the given processes.
func with(t testing.TB, c workloads.Config, processes ...workloads.Process) workloads.Workload {
	t.Helper()
	c.Processes = processes
	return makeWorkload(t, c)
}

// tokensIn is what the workload says about an iteration.
func tokensIn(t testing.TB, w workloads.Workload, i int) int64 {
	t.Helper()
	n, err := w.(workloads.TokenCounter).TokensIn(i)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCheckpointSave(t *testing.T) {
	const pause = 3 * sim.Second
	c := workloads.Config{Model: tiny(workloads.Llama), PP: 2}
	w := with(t, c, workloads.CheckpointSave{Every: 2, Pause: pause})
	for r, rank := range w.Ranks() {
		states := 0
		for _, s := range rank.Residents {
			if s.Class == workloads.Parameter || s.Class == workloads.Optimizer {
				states++
			}
		}
		if n := count(program(t, w, r, 0), "aten::_to_copy"); n != 0 {
			t.Errorf("rank %d saves %d tensors in iteration 0", r, n)
		}
		p := program(t, w, r, 1)
		total, host := sim.Time(0), 0
		for _, in := range p.Instrs {
			if in.Kind == workloads.Op && in.Kernel < 0 {
				host++
				total += in.Host
			}
		}
		if host != states || total > pause+sim.Time(states) || total < pause-sim.Time(states) {
			t.Errorf("rank %d: %d operators take %d ps, want %d and %d", r, host, total, states, pause)
		}
		if p.Kind != "save" {
			t.Errorf("kind %q", p.Kind)
		}
	}
}

func TestExtras(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.Llama), DP: 2}
	w := with(t, c, workloads.Extras{LogEvery: 2, AverageEvery: 3})
	tensors := count(program(t, w, 0, 0), "npu::npu_apply_adam_w")
	for i := range 6 {
		p := program(t, w, 0, i)
		log, average := (i+1)%2 == 0, (i+1)%3 == 0
		if n := count(p, "aten::count_nonzero"); log && n != tensors || !log && n != 0 {
			t.Errorf("iteration %d counts zeros of %d gradients of %d", i, n, tensors)
		}
		if n := count(p, "aten::lerp_"); average && n != tensors || !average && n != 0 {
			t.Errorf("iteration %d averages %d parameters of %d", i, n, tensors)
		}
	}
	// A skipped step has nothing to follow.
	skipped := workloads.OverflowSkip{Probability: 1}
	both := with(t, c, skipped, workloads.Extras{LogEvery: 2, AverageEvery: 3})
	if program(t, both, 0, 0) != program(t, both, 0, 5) {
		t.Error("extras change an iteration without a step")
	}
	// Averaging costs 4 bytes per parameter, shared out like the other states.
	averaging := workloads.Totals(w.Ranks()[0].Residents)[workloads.Optimizer]
	without := workloads.Totals(makeWorkload(t, c).Ranks()[0].Residents)[workloads.Optimizer]
	if 3*averaging != 4*without {
		t.Errorf("states take %d bytes with averages, %d without, want a third more", averaging, without)
	}
}

func TestRerun(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.Llama), GlobalBatch: 3}
	once, twice := program(t, makeWorkload(t, c), 0, 0), program(t, with(t, c, workloads.Rerun{Probability: 1}), 0, 0)
	if f, b := marks(twice, workloads.MarkForwardBegin), marks(twice, workloads.MarkBackwardBegin); f != 6 || b != 6 {
		t.Errorf("%d forward and %d backward passes, want 6", f, b)
	}
	if a, b := count(once, "npu::npu_apply_adam_w"), count(twice, "npu::npu_apply_adam_w"); a != b {
		t.Errorf("%d steps of tensors, once %d", b, a)
	}
	if a, b := family(once, hw.MatMul), family(twice, hw.MatMul); b != 2*a {
		t.Errorf("%d flops, once %d", b, a)
	}
}

func TestBatchRamp(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.Llama), DP: 2, GlobalBatch: 16}
	w := with(t, c, workloads.BatchRamp{From: 2, Step: 4, Every: 3})
	for i, want := range []int{2, 2, 2, 6, 6, 6, 8, 8, 8, 8} {
		if got := marks(program(t, w, 0, i), workloads.MarkForwardBegin); got != want {
			t.Errorf("iteration %d has %d micro-batches, want %d", i, got, want)
		}
		if got := tokensIn(t, w, i); got != int64(want*2*c.Model.Seq) {
			t.Errorf("iteration %d trains on %d tokens, want %d", i, got, want*2*c.Model.Seq)
		}
	}
	if program(t, w, 0, 9) != program(t, w, 0, 1000) {
		t.Error("iterations at full batch are different programs")
	}
}

func TestUnevenTail(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.Llama), MicroBatch: 11, GlobalBatch: 55}
	w := with(t, c, workloads.UnevenTail{Sequences: 4, Every: 2})
	for i, rows := range []int64{55, 48} {
		if got := tokensIn(t, w, i); got != rows*int64(c.Model.Seq) {
			t.Errorf("iteration %d trains on %d tokens, want %d rows of %d", i, got, rows, c.Model.Seq)
		}
	}
	full, less := family(program(t, w, 0, 0), hw.Attention), family(program(t, w, 0, 1), hw.Attention)
	if less*55 != full*48 {
		t.Errorf("attention of 48 rows takes %d flops, of 55 %d", less, full)
	}
}

// The matrix products of a variable-length iteration are those of its tokens, and
// attention that of its squared lengths, drawn here a second time.
func TestVariableLength(t *testing.T) {
	m := tiny(workloads.Llama)
	m.Seq = 4096
	c := workloads.Config{Model: m, MicroBatch: 2, GlobalBatch: 32}
	l := workloads.Lengths{Median: 512, Sigma: workloads.LengthSigma, Seed: 9}
	w := with(t, c, workloads.VariableLength{Lengths: l})
	stream := sim.NewStream(9, "lengths")
	plain := program(t, makeWorkload(t, c), 0, 0)
	var all []int
	for i := range 20 {
		p := program(t, w, 0, i)
		tokens, pairs := 0, 0
		for micro := range 16 {
			for k := range 2 {
				n := int(math.Round(512 * math.Exp(l.Sigma*stream.Normal(0, i, int64(micro)<<32|int64(k)))))
				n = min(max(n, 1), 4096)
				tokens += n
				pairs += n * n
				all = append(all, n)
			}
		}
		if got := tokensIn(t, w, i); got != int64(tokens) {
			t.Errorf("iteration %d: %d tokens, want %d", i, got, tokens)
		}
		if got, want := family(p, hw.MatMul), family(plain, hw.MatMul)/(32*4096)*int64(tokens); got != want {
			t.Errorf("iteration %d: products of %d flops, want %d", i, got, want)
		}
		if got, want := family(p, hw.Attention), family(plain, hw.Attention)/(32*4096*4096)*int64(pairs); got != want {
			t.Errorf("iteration %d: attention of %d flops, want %d", i, got, want)
		}
		if p.Ops != plain.Ops {
			t.Errorf("iteration %d has %d operators, want %d", i, p.Ops, plain.Ops)
		}
		if workloads.PeakLive(p, 1) > workloads.PeakLive(plain, 1) {
			t.Errorf("iteration %d needs more memory than full sequences", i)
		}
	}
	// The median is the one asked for, the 99th percentile eight times as long.
	slices.Sort(all)
	if median := all[len(all)/2]; median < 450 || median > 580 {
		t.Errorf("median of %d lengths is %d, want about 512", len(all), median)
	}
	if p99 := all[len(all)*99/100]; p99 < 2800 {
		t.Errorf("99th percentile of %d lengths is %d, want about 4,096", len(all), p99)
	}
}

// Replicas draw their own lengths unless they are folded; the members of a
// tensor-parallel group share theirs.
func TestReplicasDraw(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.Llama), TP: 2, DP: 2, Unfold: true}
	w := with(t, c, workloads.VariableLength{Lengths: workloads.Lengths{Sigma: 1}})
	var flops [4]int64
	for r := range flops {
		flops[r] = family(program(t, w, r, 0), hw.MatMul)
	}
	if flops[0] != flops[1] || flops[2] != flops[3] || flops[0] == flops[2] {
		t.Errorf("flops of (replica, shard) 00 01 10 11: %v", flops)
	}
	total := family(program(t, makeWorkload(t, c), 0, 0), hw.MatMul) / int64(c.Model.Seq)
	if got := tokensIn(t, w, 0); got != (flops[0]+flops[2])/total {
		t.Errorf("%d tokens, want %d", got, (flops[0]+flops[2])/total)
	}
}

func TestDynamicPadding(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.Llama), MicroBatch: 4, GlobalBatch: 64}
	w := with(t, c, workloads.DynamicPadding{Lengths: workloads.Lengths{Sigma: 1, Seed: 2}, Multiple: 8})
	seen := make(map[int32]bool)
	for i := range 5 {
		for _, s := range program(t, w, 0, i).Storages {
			if s.Class != workloads.Logits || s.DType != workloads.FP32 {
				continue
			}
			tokens := s.Shape[0]
			if tokens%(4*8) != 0 || tokens > int32(4*c.Model.Seq) {
				t.Errorf("iteration %d: %d tokens in four rows padded to eights of at most %d", i, tokens, c.Model.Seq)
			}
			seen[tokens] = true
		}
	}
	if len(seen) < 4 {
		t.Errorf("only %d different sizes", len(seen))
	}
}

// Packing changes the work of attention and nothing else.
func TestPackedSegments(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.GPT), MicroBatch: 2, GlobalBatch: 8}
	plain := program(t, makeWorkload(t, c), 0, 0)
	w := with(t, c, workloads.PackedSegments{Lengths: workloads.Lengths{Sigma: 1, Seed: 2}})
	for i := range 5 {
		p := program(t, w, 0, i)
		if !slices.Equal(p.Storages, plain.Storages) || !slices.Equal(p.Args, plain.Args) {
			t.Errorf("iteration %d has other tensors", i)
		}
		if family(p, hw.MatMul) != family(plain, hw.MatMul) {
			t.Errorf("iteration %d has other matrix products", i)
		}
		if got, most := family(p, hw.Attention), family(plain, hw.Attention); got >= most || got <= most/int64(c.Model.Seq) {
			t.Errorf("iteration %d: attention of %d flops, whole sequences %d", i, got, most)
		}
	}
	// Documents longer than a sequence fill it: nothing changes.
	w = with(t, c, workloads.PackedSegments{Lengths: workloads.Lengths{Median: c.Model.Seq}})
	if got := family(program(t, w, 0, 0), hw.Attention); got != family(plain, hw.Attention) {
		t.Errorf("whole documents take %d flops of attention, want %d", got, family(plain, hw.Attention))
	}
}

func TestContextSwitch(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.Llama), GlobalBatch: 2}
	w := with(t, c, workloads.ContextSwitch{At: 3, Before: 16})
	if n := marks(program(t, w, 0, 2), workloads.MarkForwardBegin); n != 8 {
		t.Errorf("%d micro-batches before the switch, want 8", n)
	}
	if n := marks(program(t, w, 0, 3), workloads.MarkForwardBegin); n != 2 {
		t.Errorf("%d micro-batches after the switch, want 2", n)
	}
	if tokensIn(t, w, 2) != w.Tokens() || tokensIn(t, w, 3) != w.Tokens() {
		t.Errorf("%d and %d tokens, want %d", tokensIn(t, w, 2), tokensIn(t, w, 3), w.Tokens())
	}
	if a, b := family(program(t, w, 0, 2), hw.Attention), family(program(t, w, 0, 3), hw.Attention); 4*a != b {
		t.Errorf("attention of %d flops before, %d after, want a quarter", a, b)
	}
}

// Matrix products over experts are those of topK dense parts and a router,
// however uneven the routing is.
func TestExperts(t *testing.T) {
	m := mixture()
	m.Vocab = 1000 // a multiple of the degree
	dense := m
	dense.Experts, dense.TopK, dense.FFN = 0, 0, m.FFN*m.TopK
	router := 6 * int64(m.Layers*m.Seq*m.Experts*m.Hidden)
	want := family(program(t, makeWorkload(t, workloads.Config{Model: dense}), 0, 0), hw.MatMul) + router
	for _, p := range [][]workloads.Process{nil, {workloads.ExpertImbalance{Start: 3, End: 3, Tau: 1}}} {
		for _, rule := range []workloads.SaveRule{workloads.Minimal, workloads.Eager} {
			w := with(t, workloads.Config{Model: m, SaveRule: rule}, p...)
			for i := range 3 {
				if got := family(program(t, w, 0, i), hw.MatMul); got != want {
					t.Errorf("%s, iteration %d: %d flops, want %d", rule, i, got, want)
				}
			}
		}
	}
	// Tensor parallelism splits experts; every member has the router whole.
	half := family(program(t, makeWorkload(t, workloads.Config{Model: m, TP: 2}), 0, 0), hw.MatMul)
	if half != (want-router)/2+router {
		t.Errorf("half of the experts is %d flops, want %d", half, (want-router)/2+router)
	}
}

// Even routing gives every expert the same rows; uneven routing changes sizes in
// every layer and lets operators of idle experts vanish.
func TestExpertImbalance(t *testing.T) {
	m := mixture()
	even := program(t, makeWorkload(t, workloads.Config{Model: m}), 0, 0)
	w := with(t, workloads.Config{Model: m}, workloads.ExpertImbalance{Start: 4, End: 4, Tau: 1})
	rows := func(p *workloads.Program) (list []int32) {
		for _, s := range p.Storages {
			if p.Names.String(s.Label) == "layer.up" {
				list = append(list, s.Shape[0])
			}
		}
		return list
	}
	for _, n := range rows(even) {
		if n != int32(m.Seq*m.TopK/m.Experts) {
			t.Errorf("an expert has %d rows of %d", n, m.Seq*m.TopK)
		}
	}
	fewer := false
	for i := range 8 {
		p := program(t, w, 0, i)
		sum := int32(0)
		for _, n := range rows(p) {
			sum += n
			if n > int32(m.Seq) {
				t.Errorf("an expert has %d rows of %d tokens", n, m.Seq)
			}
		}
		if want := int32(m.Layers * m.Seq * m.TopK); sum != want {
			t.Errorf("iteration %d: %d rows, want %d", i, sum, want)
		}
		if slices.Equal(rows(p), rows(even)) {
			t.Errorf("iteration %d routes evenly", i)
		}
		fewer = fewer || p.Ops < even.Ops
	}
	if !fewer {
		t.Error("no expert is ever idle")
	}
	settled := with(t, workloads.Config{Model: m}, workloads.ExpertImbalance{Start: 1, Tau: 1})
	if p := program(t, settled, 0, 10000); !slices.Equal(rows(p), rows(even)) {
		t.Error("routing has not settled after 10,000 iterations")
	}
}

// layers lists the layers whose attention runs in the first forward pass.
func layers(p *workloads.Program) (list []int32) {
	for _, in := range p.Instrs {
		switch {
		case in.Kind == workloads.Op && p.Names.String(in.Name) == "npu::npu_fusion_attention":
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if a.Mode == workloads.Write {
					list = append(list, p.Storages[a.Storage].Layer)
					break
				}
			}
		case in.Kind == workloads.Mark && in.Mark == workloads.MarkForwardEnd:
			return list
		}
	}
	return list
}

func TestStochasticDepth(t *testing.T) {
	m := tiny(workloads.Llama)
	m.Layers = 8
	w := with(t, workloads.Config{Model: m}, workloads.StochasticDepth{Probability: 0.8, Seed: 5})
	var runs [9]int
	const iterations = 400
	for i := range iterations {
		for _, l := range layers(program(t, w, 0, i)) {
			runs[l]++
		}
	}
	for l := 1; l <= 8; l++ { // within four standard deviations
		p := 1 - 0.8*float64(l)/8
		if dev := math.Abs(float64(runs[l]) - p*iterations); dev > 4*math.Sqrt(p*(1-p)*iterations) {
			t.Errorf("layer %d runs %d times of %d, want about %g", l, runs[l], iterations, p*iterations)
		}
	}
	none := with(t, workloads.Config{Model: m, PP: 4, VPP: 2, GlobalBatch: 4}, workloads.StochasticDepth{Probability: 1})
	if _, err := workloadstest.Play(none, 0, perFlop); err != nil {
		t.Error(err)
	}
}

func TestEarlyExit(t *testing.T) {
	for after, want := range map[int]int{0: 2, 1: 1, 3: 3} {
		w := with(t, workloads.Config{Model: tiny(workloads.Llama)}, workloads.EarlyExit{After: after, Probability: 1})
		got := layers(program(t, w, 0, 0))
		if len(got) != want || int(got[len(got)-1]) != want {
			t.Errorf("exit after %d: layers %v run, want the first %d", after, got, want)
		}
	}
	w := with(t, workloads.Config{Model: tiny(workloads.Llama), GlobalBatch: 200}, workloads.EarlyExit{Probability: 0.5})
	n := count(program(t, w, 0, 0), "npu::npu_fusion_attention") // 4 or 2 layers each
	if n < 2*200+2*70 || n > 2*200+2*130 {
		t.Errorf("%d layers run for 200 micro-batches, want about 600", n)
	}
}

// While adapters train, no other parameter gets a gradient or a step, and what
// only weight gradients need is not kept.
func TestLoRA(t *testing.T) {
	const rank = 4
	for _, style := range []workloads.Style{workloads.Llama, workloads.GPT} {
		m := tiny(style)
		c := workloads.Config{Model: m}
		w := with(t, c, workloads.LoRA{Rank: rank, At: 2, Until: 4})
		plain := makeWorkload(t, c)
		whole, frozen := program(t, w, 0, 0), program(t, w, 0, 2)
		if program(t, w, 0, 4) != whole || program(t, w, 0, 3) != frozen {
			t.Error("the stage does not last from iteration 2 to 4")
		}
		if a, b := whole.Ops, program(t, plain, 0, 0).Ops; a != b {
			t.Errorf("%d operators before the switch, without adapters %d", a, b)
		}
		// A: r(h + 2kv + q) for the fused projection's two halves, and 2hr.
		q, kv := m.Heads*m.HeadDim, m.KVHeads*m.HeadDim
		params := sim.Bytes(m.Layers * rank * (m.Hidden + q + 2*kv + q + m.Hidden))
		extra := workloads.Totals(w.Ranks()[0].Residents)[workloads.Optimizer] - workloads.Totals(plain.Ranks()[0].Residents)[workloads.Optimizer]
		if extra != 12*params {
			t.Errorf("adapters' states take %d bytes, want %d", extra, 12*params)
		}
		if n := count(frozen, "npu::npu_apply_adam_w"); n != 4*m.Layers {
			t.Errorf("%d tensors are stepped, want four per layer", n)
		}
		if n := count(frozen, "npu::npu_matmul_add_fp32"); n != 4*m.Layers {
			t.Errorf("%d weight gradients, want four per layer", n)
		}
		if a, b := workloads.PeakLive(frozen, 1), workloads.PeakLive(whole, 1); a >= b {
			t.Errorf("adapters need %d bytes, whole training %d", a, b)
		}
		// A third of the work is weight gradients; adapters add little.
		adapters := 6 * int64(params) * int64(m.Seq)
		head := 6 * int64(m.Vocab) * int64(m.Hidden) * int64(m.Seq)
		if got, want := family(frozen, hw.MatMul), (family(whole, hw.MatMul)-head)*2/3+head*2/3+adapters; got != want {
			t.Errorf("products of %d flops, want %d", got, want)
		}
	}
}

func TestRecomputeToggle(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.Llama), PP: 2, VPP: 2, GlobalBatch: 2}
	toggle := workloads.RecomputeToggle{At: 2, Before: workloads.Recompute{Kind: workloads.FullBlock, N: 2}}
	w := with(t, c, toggle)
	c.Recompute = toggle.Before
	always := makeWorkload(t, c)
	for i, want := range []workloads.Workload{always, always, nil} {
		_, again := workloadstest.Flops(program(t, w, 0, i))
		wanted := int64(0)
		if want != nil {
			_, wanted = workloadstest.Flops(program(t, want, 0, i))
		}
		if again != wanted || want != nil && wanted == 0 {
			t.Errorf("iteration %d computes %d flops again, want %d", i, again, wanted)
		}
	}
}

func TestLayerSet(t *testing.T) {
	var s workloads.LayerSet
	a := s.Add(3)
	b := a.Add(64).Add(200)
	for l := range 300 {
		if got, want := b.Has(l), l == 3 || l == 64 || l == 200; got != want {
			t.Errorf("layer %d is in: %t", l, got)
		}
	}
	if s.Has(0) || a.Has(64) || a.Has(-1) || a.Add(-1).Has(-1) {
		t.Error("Add changes its receiver")
	}
}

// breaks is a process that breaks a rule of variants.
type breaks func(v *workloads.Variant)

func (b breaks) Apply(_, _ int, v *workloads.Variant) { b(v) }
func (breaks) Check(workloads.Config) error           { return nil }

func TestVariantRules(t *testing.T) {
	for name, b := range map[string]breaks{
		"no micro-batches": func(v *workloads.Variant) { v.Micros = nil },
		"too long":         func(v *workloads.Variant) { v.Micros[0].Seq++ },
		"too many rows":    func(v *workloads.Variant) { v.Micros[1].Sequences++ },
		"empty":            func(v *workloads.Variant) { v.Micros[0].Seq = 0 },
		"negative pairs":   func(v *workloads.Variant) { v.Micros[0].Pairs = -1 },
		"odd number":       func(v *workloads.Variant) { v.Micros = v.Micros[:1] },
		"no runs":          func(v *workloads.Variant) { v.Runs = 0 },
		"negative pause":   func(v *workloads.Variant) { v.Save = -1 },
		"no adapters":      func(v *workloads.Variant) { v.Adapters = true },
		"no averages":      func(v *workloads.Variant) { v.Average = true },
		"recompute":        func(v *workloads.Variant) { v.Recompute.N = 7 },
	} {
		w := with(t, workloads.Config{Model: tiny(workloads.Llama), PP: 2, VPP: 2, GlobalBatch: 2}, b)
		if _, err := w.Program(0, 5); err == nil || !strings.HasPrefix(err.Error(), "iteration 5: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestProcessByName(t *testing.T) {
	for _, name := range workloads.ProcessNames() {
		p, err := workloads.ProcessByName(name, map[string]any{"seed": int64(4)})
		if err != nil {
			t.Fatal(err)
		}
		c := workloads.Config{Model: model(t, "llama2-7b"), Seq: 2 * workloads.ContextBefore, MicroBatch: 2, GlobalBatch: 2, Processes: []workloads.Process{p}}
		if name == "experts" {
			c.Model = model(t, "mixtral-8x7b")
		}
		if err := c.Check(); err != nil {
			t.Errorf("%s by default: %v", name, err)
		}
		if _, err := workloads.ProcessByName(name, map[string]any{"sead": 4}); err == nil || !strings.Contains(err.Error(), "nearest is seed") {
			t.Errorf("%s with a misspelt option: %v", name, err)
		}
	}
	for _, c := range []struct {
		name    string
		options map[string]any
		want    workloads.Process
	}{
		{"overflow", nil, workloads.OverflowSkip{Probability: 0.002, Burst: 17}},
		{"overflow", map[string]any{"probability": 0.5, "burst": int64(0), "seed": 7}, workloads.OverflowSkip{Probability: 0.5, Seed: 7}},
		{"validation", map[string]any{"every": 4}, workloads.Validation{Every: 4, Batches: 10}},
		{"save", map[string]any{"pause_s": 0.25}, workloads.CheckpointSave{Every: 250, Pause: sim.Second / 4}},
		{"lengths", map[string]any{"median": 100}, workloads.VariableLength{Lengths: workloads.Lengths{Median: 100, Sigma: 0.894}}},
		{"padding", map[string]any{"sigma": 1, "multiple": 64}, workloads.DynamicPadding{Lengths: workloads.Lengths{Sigma: 1}, Multiple: 64}},
		{"recompute", map[string]any{"before": "full-block", "n": 3}, workloads.RecomputeToggle{At: 10, Before: workloads.Recompute{Kind: workloads.FullBlock, N: 3}}},
		{"lora", map[string]any{"until": 300}, workloads.LoRA{Rank: 8, At: 100, Until: 300}},
	} {
		if got, err := workloads.ProcessByName(c.name, c.options); err != nil || got != c.want {
			t.Errorf("%s %v: %+v, %v, want %+v", c.name, c.options, got, err, c.want)
		}
	}
	for _, c := range []struct {
		name    string
		options map[string]any
		want    string
	}{
		{"overfow", nil, `did you mean "overflow"? known: overflow, validation`},
		{"rerun", map[string]any{"probability": 2}, `variation "rerun": option probability = 2: must be a number from 0 to 1`},
		{"recompute", map[string]any{"before": "all"}, "must be one of none, selective"},
		{"save", map[string]any{"pause_s": 0}, "must be a number from 1e-06 to 86400"},
	} {
		if _, err := workloads.ProcessByName(c.name, c.options); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %v: error %v, want %q in one line", c.name, c.options, err, c.want)
		}
	}
}
