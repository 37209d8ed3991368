package workloads_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/workloadstest"
)

func model(t interface{ Fatal(...any) }, name string) workloads.Model {
	m, err := workloads.LookupModel(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// cut shortens a model to n layers.
func cut(m workloads.Model, n int) workloads.Model {
	m.Layers = n
	return m
}

// tiny is a model of both styles that generates fast.
func tiny(style workloads.Style) workloads.Model {
	return workloads.Model{Name: "tiny", Style: style, Layers: 4, Hidden: 64, FFN: 128, Heads: 8, KVHeads: 4, HeadDim: 8, Vocab: 1001, Seq: 64}
}

func makeWorkload(t testing.TB, c workloads.Config) workloads.Workload {
	t.Helper()
	w, err := workloads.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func program(t testing.TB, w workloads.Workload, r, i int) *workloads.Program {
	t.Helper()
	p, err := w.Program(r, i)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Published counts: the "total size" of each model's safetensors index over two
// bytes (Hugging Face), and table 2.1 of arXiv 2005.14165 for the nominal sizes
// of GPT-3.
func TestParams(t *testing.T) {
	exact := map[string]int64{
		"llama2-7b": 6_738_415_616, "llama2-13b": 13_015_864_320, "llama2-70b": 68_976_648_192,
		"llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496,
		"qwen2.5-7b": 7_615_616_512, "qwen2.5-14b": 14_770_033_664, "qwen2.5-72b": 72_706_203_648,
		"qwen3-0.6b": 596_049_920, "mixtral-8x7b": 46_702_792_704,
	}
	nominal := map[string]float64{
		"gpt3-125m": 125e6, "gpt3-350m": 350e6, "gpt3-760m": 760e6, "gpt3-1.3b": 1.3e9, "gpt3-2.7b": 2.7e9,
		"gpt3-6.7b": 6.7e9, "gpt3-13b": 13e9, "gpt3-175b": 175e9, "megatron-22b": 22e9, "megatron-530b": 530e9, "megatron-1t": 1.008e12,
		// Sizes of mosaicml/llm-foundry scripts/train/benchmarking, whose names round.
		"mpt-1b": 1.31e9, "mpt-3b": 2.65e9, "mpt-7b": 6.65e9, "mpt-13b": 12.85e9, "mpt-30b": 29.96e9,
	}
	for _, name := range workloads.Models() {
		got := model(t, name).Params()
		if want, ok := exact[name]; ok && got != want {
			t.Errorf("%s has %d parameters, want %d", name, got, want)
		}
		if want, ok := nominal[name]; ok && math.Abs(float64(got)/want-1) > 0.03 {
			t.Errorf("%s has %d parameters, want about %g", name, got, want)
		}
		if exact[name] == 0 && nominal[name] == 0 {
			t.Errorf("%s has no published count here", name)
		}
	}
}

func TestLookupModelSuggests(t *testing.T) {
	_, err := workloads.LookupModel("lama2-7b")
	if err == nil || !strings.Contains(err.Error(), `"llama2-7b"`) || !strings.Contains(err.Error(), "gpt3-175b") {
		t.Errorf("error %v must name the nearest model and all of them", err)
	}
}

// Residents to the byte, from the parameter count P, for one rank that holds
// everything: 2P parameters, 4P gradients, 12P optimizer.
func TestResidentsAlone(t *testing.T) {
	for _, name := range []string{"llama2-7b", "qwen3-0.6b", "gpt3-2.7b"} {
		m := model(t, name)
		p := sim.Bytes(m.Params())
		totals := workloads.Totals(makeWorkload(t, workloads.Config{Model: m}).Ranks()[0].Residents)
		want := map[workloads.Class]sim.Bytes{workloads.Parameter: 2 * p, workloads.Gradient: 4 * p, workloads.Optimizer: 12 * p, workloads.CommBuffer: 0}
		for class, bytes := range want {
			if totals[class] != bytes {
				t.Errorf("%s: class %d has %d bytes, want %d", name, class, totals[class], bytes)
			}
		}
	}
}

// Layouts of Llama-2 7B, by hand. Per layer and tensor-parallel rank: 4h²+3hf
// over t in matrices, 2h in norms; vocabulary tables Vh/t; final norm h.
func TestResidentsByLayout(t *testing.T) {
	m := model(t, "llama2-7b")
	const h, f, v = 4096, 11008, 32000
	layer := func(tp int) sim.Bytes { return sim.Bytes((4*h*h+3*h*f)/tp + 2*h) }
	for _, c := range []struct {
		tp, pp, dp, zero     int
		rank                 int
		params, grads, optim sim.Bytes // parameters held
	}{
		{tp: 2, pp: 1, dp: 1, params: 32*layer(2) + v*h + h},
		{tp: 1, pp: 2, dp: 1, rank: 0, params: 16*layer(1) + v*h},
		{tp: 1, pp: 2, dp: 1, rank: 1, params: 16*layer(1) + v*h + h},
		{tp: 2, pp: 1, dp: 4, params: 32*layer(2) + v*h + h, optim: (32*layer(2) + v*h + h) / 4},
		{tp: 1, pp: 1, dp: 8, zero: 3, params: (32*layer(1) + 2*v*h + h) / 8, grads: (32*layer(1) + 2*v*h + h) / 8, optim: (32*layer(1) + 2*v*h + h) / 8},
	} {
		if c.grads == 0 {
			c.grads = c.params
		}
		if c.optim == 0 {
			c.optim = c.params
		}
		w := makeWorkload(t, workloads.Config{Model: m, TP: c.tp, PP: c.pp, DP: c.dp, ZeRO: c.zero, SequenceParallel: true})
		totals := workloads.Totals(w.Ranks()[c.rank].Residents)
		if got := totals[workloads.Parameter]; got != 2*c.params {
			t.Errorf("%s: %d bytes of parameters, want %d", w.Name(), got, 2*c.params)
		}
		if got := totals[workloads.Gradient]; got != 4*c.grads {
			t.Errorf("%s: %d bytes of gradients, want %d", w.Name(), got, 4*c.grads)
		}
		if got := totals[workloads.Optimizer]; got != 12*c.optim {
			t.Errorf("%s: %d bytes of optimizer, want %d", w.Name(), got, 12*c.optim)
		}
		buffer := sim.Bytes(0)
		if c.tp > 1 {
			buffer = 2 * 4096 * h
		}
		if got := totals[workloads.CommBuffer]; got != buffer {
			t.Errorf("%s: %d bytes of communication buffers, want %d", w.Name(), got, buffer)
		}
	}
}

// live walks a program to the end of the first forward pass and returns the
// storages that are alive then; at every step it tells see.
func live(p *workloads.Program, see func(alive map[workloads.StorageID]int)) map[workloads.StorageID]int {
	refs := make(map[workloads.StorageID]int)
	for _, in := range p.Instrs {
		switch in.Kind {
		case workloads.Op:
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if int32(a.Storage) >= p.Residents && refs[a.Storage] == 0 {
					refs[a.Storage] = 1
				}
			}
			if see != nil {
				see(refs)
			}
		case workloads.Ref:
			refs[workloads.StorageID(in.A)]++
		case workloads.Drop:
			s := workloads.StorageID(in.A)
			if refs[s]--; refs[s] == 0 {
				delete(refs, s)
			}
		case workloads.Mark:
			if in.Mark == workloads.MarkForwardEnd {
				return refs
			}
		}
	}
	return nil
}

// savedPerLayer is what the second layer of the first stage holds for backward.
// A layer's input belongs to the layer before, so that every layer counts one.
func savedPerLayer(t testing.TB, c workloads.Config) sim.Bytes {
	p := program(t, makeWorkload(t, c), 0, 0)
	total := sim.Bytes(0)
	for s := range live(p, nil) {
		if p.Storages[s].Layer == 2 {
			total += p.Storages[s].Bytes
		}
	}
	return total
}

// Published formulas of what a layer keeps, within 2 %. What they leave out is
// small and stays in: softmax and norm statistics (4 bytes per token and head,
// 4 to 8 per token and norm).
func TestSavedMinimal(t *testing.T) {
	const gpt = "gpt3-6.7b"
	full := workloads.Recompute{Kind: workloads.FullUniform}
	sel := workloads.Recompute{Kind: workloads.Selective}
	for _, c := range []struct {
		name      string
		model     string
		seq       int
		tp        int
		sp        bool
		attention workloads.AttentionKind
		recompute workloads.Recompute
		perToken  func(m workloads.Model, s float64) float64 // bytes per token
	}{
		{name: "34sbh", model: gpt, perToken: func(m workloads.Model, s float64) float64 { return 34 * float64(m.Hidden) }},
		{name: "34sbh+5as²b", model: gpt, attention: workloads.Unfused,
			perToken: func(m workloads.Model, s float64) float64 { return 34*float64(m.Hidden) + 5*float64(m.Heads)*s }},
		{name: "34sbh selective", model: gpt, attention: workloads.Unfused, recompute: sel,
			perToken: func(m workloads.Model, s float64) float64 { return 34 * float64(m.Hidden) }},
		{name: "34sbh/t", model: gpt, tp: 4, sp: true, perToken: func(m workloads.Model, s float64) float64 { return 34 * float64(m.Hidden) / 4 }},
		{name: "34sbh/t selective", model: gpt, tp: 8, sp: true, attention: workloads.Unfused, recompute: sel,
			perToken: func(m workloads.Model, s float64) float64 { return 34 * float64(m.Hidden) / 8 }},
		{name: "sbh(10+24/t)", model: gpt, tp: 4, perToken: func(m workloads.Model, s float64) float64 { return (10 + 24./4) * float64(m.Hidden) }},
		{name: "2sbh full", model: gpt, recompute: full, perToken: func(m workloads.Model, s float64) float64 { return 2 * float64(m.Hidden) }},
		{name: "2sbh full llama", model: "llama2-7b", seq: 8192, recompute: full, perToken: func(m workloads.Model, s float64) float64 { return 2 * float64(m.Hidden) }},
		{name: "12h+4kv+8f", model: "llama2-7b", perToken: gated},
		{name: "12h+4kv+8f", model: "llama3-8b", perToken: gated},
		{name: "12h+4kv+8f", model: "qwen2.5-72b", seq: 4096, perToken: gated},
		{name: "12h+4kv+4f", model: "llama2-7b", recompute: workloads.Recompute{Kind: workloads.ActivationFunction},
			perToken: func(m workloads.Model, s float64) float64 { return gated(m, s) - 4*float64(m.FFN) }},
	} {
		m := model(t, c.model)
		seq := m.Seq
		if c.seq > 0 {
			seq = c.seq
		}
		got := float64(savedPerLayer(t, workloads.Config{Model: cut(m, 3), Seq: seq, TP: c.tp, SequenceParallel: c.sp, Attention: c.attention, Recompute: c.recompute})) / float64(seq)
		want := c.perToken(m, float64(seq))
		t.Logf("%-20s %-12s %9.1f bytes per token, published %9.1f (%+.2f %%)", c.name, c.model, got, want, 100*(got/want-1))
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s of %s: %g bytes per token, want %g within 2 %%", c.name, c.model, got, want)
		}
	}
}

func gated(m workloads.Model, _ float64) float64 {
	return float64(12*m.Hidden + 4*m.KVHeads*m.HeadDim + 8*m.FFN)
}

// The measured layer of Qwen3-0.6B at 4,096 tokens: 635 tensors that outlive
// 50 ms make 5,879.9 MiB for 14 layers x 2 micro-batches, about 210 MiB each
// (Ascend/msinsight test/st/level2). The sum includes what belongs to no layer.
func TestSavedEager(t *testing.T) {
	got := float64(savedPerLayer(t, workloads.Config{Model: cut(model(t, "qwen3-0.6b"), 3), SaveRule: workloads.Eager})) / float64(sim.MiB)
	t.Logf("%.2f MiB per layer and micro-batch", got)
	const measured = 5879.9 / 28
	if math.Abs(got/measured-1) > 0.05 {
		t.Errorf("%.2f MiB per layer, measured %.2f, want within 5 %%", got, measured)
	}
}

// The job of that profile as a whole: pipeline 2, data parallel 2, two
// micro-batches, first stage. Before and after the step 4,304.957 MiB are
// allocated, at the peak 10,282.749 (memory_record.csv). Nothing was fitted to
// either number.
func TestMeasuredJob(t *testing.T) {
	w := makeWorkload(t, workloads.Config{Model: model(t, "qwen3-0.6b"), PP: 2, DP: 2, GlobalBatch: 4, SaveRule: workloads.Eager})
	p := program(t, w, 0, 0)
	residents := sim.Bytes(0)
	for _, s := range w.Ranks()[0].Residents {
		residents += s.Bytes
	}
	for _, c := range []struct {
		what          string
		got, measured float64
	}{
		{"residents", float64(residents), 4304.957},
		{"peak", float64(workloads.PeakLive(p, 512)), 10282.749},
	} {
		got := c.got / float64(sim.MiB)
		t.Logf("%s: %.1f MiB, measured %.1f (%+.2f %%)", c.what, got, c.measured, 100*(got/c.measured-1))
		if math.Abs(got/c.measured-1) > 0.01 {
			t.Errorf("%s of %.1f MiB, measured %.1f, want within 1 %%", c.what, got, c.measured)
		}
	}
}

// The multiset of one layer's saved tensors is what the profile lists: two
// hidden states and two norm outputs of 8 MiB, the fused projection 32, queries
// before and after rotation 16, keys and values 8, the result 16, gate and up 48,
// their product 24, statistics and tables below 5.
func TestSavedEagerTensors(t *testing.T) {
	p := program(t, makeWorkload(t, workloads.Config{Model: cut(model(t, "qwen3-0.6b"), 3), SaveRule: workloads.Eager}), 0, 0)
	var sizes []int
	for s := range live(p, nil) {
		if mib := int(p.Storages[s].Bytes / sim.MiB); p.Storages[s].Layer == 2 && mib >= 5 {
			sizes = append(sizes, mib)
		}
	}
	slices.Sort(sizes)
	if want := []int{8, 8, 8, 8, 8, 8, 16, 16, 16, 24, 32, 48}; !slices.Equal(sizes, want) {
		t.Errorf("saved tensors of %v MiB, want %v", sizes, want)
	}
}

// Logits: 2 bytes and 4 bytes per vocabulary entry and token live at once while
// they are cast, 4 after the forward pass.
func TestLogits(t *testing.T) {
	m := cut(model(t, "llama3-8b"), 1)
	const seq, tp = 1024, 2
	p := program(t, makeWorkload(t, workloads.Config{Model: m, Seq: seq, TP: tp}), 0, 0)
	logits := func(refs map[workloads.StorageID]int) (total sim.Bytes) {
		for s := range refs {
			if p.Storages[s].Class == workloads.Logits {
				total += p.Storages[s].Bytes
			}
		}
		return total
	}
	peak := sim.Bytes(0)
	end := live(p, func(refs map[workloads.StorageID]int) { peak = max(peak, logits(refs)) })
	entries := sim.Bytes(seq) * sim.Bytes(m.Vocab) / tp
	if peak != 6*entries || logits(end) != 4*entries {
		t.Errorf("logits peak at %d bytes and leave %d, want %d and %d", peak, logits(end), 6*entries, 4*entries)
	}
}

// 6 flops per matrix parameter and token, plus attention: 3.5 times its causal
// forward of 2sh, because the fused backward computes the scores again.
func TestFlops(t *testing.T) {
	for _, name := range []string{"llama2-7b", "llama3-8b", "gpt3-13b", "qwen2.5-7b"} {
		m := model(t, name)
		c := workloads.Config{Model: m, Seq: 2048, GlobalBatch: 2}
		once, again := workloadstest.Flops(program(t, makeWorkload(t, c), 0, 0))
		tokens := 2 * 2048.
		width := float64(m.Heads * m.HeadDim)
		want := 6*float64(m.Params()-lookedUp(m))*tokens + 3.5*2*tokens*2048*width*float64(m.Layers)
		if r := float64(once)/want - 1; math.Abs(r) > 0.01 {
			t.Errorf("%s: %g flops, want %g within 1 %%", name, float64(once), want)
		}
		if again != 0 {
			t.Errorf("%s: %d flops recomputed without recomputation", name, again)
		}
		// Full recomputation adds exactly the layers' forward.
		c.Recompute = workloads.Recompute{Kind: workloads.FullUniform, N: m.Layers / 4}
		full, again := workloadstest.Flops(program(t, makeWorkload(t, c), 0, 0))
		layers := 2*float64(m.Params()-lookedUp(m))*tokens - 2*float64(m.Vocab)*float64(m.Hidden)*tokens + 2*tokens*2048*width*float64(m.Layers)
		if full != once || math.Abs(float64(again)/layers-1) > 0.01 {
			t.Errorf("%s: full recomputation runs %d flops once and %g again, want %d and %g", name, full, float64(again), once, layers)
		}
	}
}

// lookedUp is the number of parameters that are looked up, not multiplied with.
func lookedUp(m workloads.Model) int64 {
	n := int64(m.Vocab) * int64(m.Hidden)
	if m.Tied {
		n = 0 // the table is also the head
	}
	if m.Style == workloads.GPT {
		n += int64(m.Seq) * int64(m.Hidden)
	}
	return n
}

// Work is conserved: over all devices a layout does the flops of one device,
// but for the padding of the vocabulary.
func TestLayoutsShareFlops(t *testing.T) {
	m := model(t, "llama2-7b")
	alone, _ := workloadstest.Flops(program(t, makeWorkload(t, workloads.Config{Model: m, GlobalBatch: 8}), 0, 0))
	for _, l := range [][4]int{{2, 1, 4, 1}, {4, 2, 1, 1}, {1, 4, 2, 1}, {8, 1, 1, 1}, {2, 4, 1, 2}, {1, 2, 1, 16}} {
		w := makeWorkload(t, workloads.Config{Model: m, GlobalBatch: 8, TP: l[0], PP: l[1], DP: l[2], VPP: l[3], SequenceParallel: true})
		sum := int64(0)
		for r, rank := range w.Ranks() {
			flops, _ := workloadstest.Flops(program(t, w, r, 0))
			sum += flops * int64(len(rank.Devices))
		}
		if sum != alone {
			t.Errorf("%s: %d flops over all devices, alone %d", w.Name(), sum, alone)
		}
	}
}

// A layer and micro-batch is about 40 operators; published frameworks dispatch
// 35 to 60.
func TestOperatorsPerLayer(t *testing.T) {
	m := model(t, "llama2-7b")
	ops := func(layers, batch int) int {
		return int(program(t, makeWorkload(t, workloads.Config{Model: cut(m, layers), GlobalBatch: batch}), 0, 0).Ops)
	}
	perLayer := (ops(3, 2) - ops(3, 1)) - (ops(2, 2) - ops(2, 1))
	if perLayer < 25 || perLayer > 45 {
		t.Errorf("%d operators per layer and micro-batch, want about 40", perLayer)
	}
}

// Recomputation runs operators again, marked as such, and keeps their multiset
// of forward names.
func TestRecomputedOperators(t *testing.T) {
	m := tiny(workloads.Llama)
	count := func(r workloads.Recompute, a workloads.AttentionKind) int {
		p := program(t, makeWorkload(t, workloads.Config{Model: m, Recompute: r, Attention: a}), 0, 0)
		n := 0
		for _, in := range p.Instrs {
			if in.Kind == workloads.Op && in.Flags&workloads.Recomputed != 0 {
				n++
			}
		}
		return n
	}
	layer := count(workloads.Recompute{Kind: workloads.FullBlock, N: 1}, workloads.Fused)
	// Layers that are computed again as a whole keep their activation then.
	if got := count(workloads.Recompute{Kind: workloads.FullBlock, N: 1, Activation: true}, workloads.Fused); got != layer+3*2 {
		t.Errorf("%d operators recomputed of one layer and three activations, want %d", got, layer+3*2)
	}
	for _, c := range []struct {
		kind workloads.RecomputeKind
		n    int
		att  workloads.AttentionKind
		want int
	}{
		{workloads.NoRecompute, 0, workloads.Fused, 0},
		{workloads.FullBlock, 3, workloads.Fused, 3 * layer},
		{workloads.FullUniform, 1, workloads.Fused, 4 * layer},
		{workloads.FullUniform, 3, workloads.Fused, 4 * layer},
		{workloads.Selective, 0, workloads.Unfused, 4 * 3},        // two products and a softmax per layer
		{workloads.Selective, 0, workloads.Fused, 4},              // one kernel per layer
		{workloads.ActivationFunction, 0, workloads.Fused, 4 * 2}, // activation and product
	} {
		if got := count(workloads.Recompute{Kind: c.kind, N: c.n}, c.att); got != c.want {
			t.Errorf("%s %d %s: %d operators recomputed, want %d", c.kind, c.n, c.att, got, c.want)
		}
	}
}

// Peaks fall with every step of recomputation.
func TestRecomputeSavesMemory(t *testing.T) {
	m := cut(model(t, "llama2-7b"), 8)
	var peaks []sim.Bytes
	for _, r := range []workloads.Recompute{{}, {Kind: workloads.ActivationFunction}, {Kind: workloads.FullBlock, N: 4}, {Kind: workloads.FullBlock, N: 8}} {
		p := program(t, makeWorkload(t, workloads.Config{Model: m, Recompute: r}), 0, 0)
		peaks = append(peaks, workloads.PeakLive(p, 1))
	}
	for i := 1; i < len(peaks); i++ {
		if peaks[i] >= peaks[i-1] {
			t.Errorf("peaks %v do not fall", peaks)
		}
	}
}

// A stage never holds more than stages-stage micro-batches of a plain pipeline,
// and holds that many if there are enough. Of an interleaved one it holds chunks
// of 2(stages-1-stage) + (chunks-1)stages + 1 micro-batches: on the first stage
// that is 1 + (p-1)/(pv) times the memory (Korthikanti et al., arXiv 2205.05198
// section 4.2.3).
func TestPipelineInFlight(t *testing.T) {
	for _, c := range []struct{ stages, chunks int }{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {2, 2}, {2, 4}, {4, 2}, {4, 3}, {8, 2}} {
		m := tiny(workloads.Llama)
		m.Layers = c.stages * c.chunks
		for _, micros := range []int{1, 2, 3, 4, 5, 8, 16} {
			if c.chunks > 1 && micros%c.stages != 0 {
				continue
			}
			w := makeWorkload(t, workloads.Config{Model: m, PP: c.stages, VPP: c.chunks, GlobalBatch: micros})
			for r := range w.Ranks() {
				most := inFlight(t, program(t, w, r, 0), c.chunks)
				want := c.stages - r
				if c.chunks > 1 {
					want = 2*(c.stages-1-r) + (c.chunks-1)*c.stages + 1
				}
				if want = min(want, micros*c.chunks); most != want {
					t.Errorf("%d stages of %d chunks, %d micro-batches: stage %d holds %d, want %d", c.stages, c.chunks, micros, r, most, want)
				}
				if p, v := c.stages, c.chunks; r == 0 && v > 1 && micros >= 2*p && most != p*v+p-1 {
					t.Errorf("%d stages of %d chunks: the first stage holds %d chunks, want pv(1 + (p-1)/(pv)) = %d", p, v, most, p*v+p-1)
				}
			}
		}
	}
}

// inFlight is the largest number of chunks of micro-batches that a program
// holds, and checks the numbers of its marks.
func inFlight(t *testing.T, p *workloads.Program, chunks int) (most int) {
	now, backward := 0, 0
	forward := make([]int, chunks)
	for _, in := range p.Instrs {
		if in.Kind != workloads.Mark {
			continue
		}
		switch in.Mark {
		case workloads.MarkForwardBegin:
			if forward[in.B]++; int(in.A) != forward[in.B] {
				t.Errorf("forward %d of chunk %d is micro-batch %d", forward[in.B], in.B, in.A)
			}
			now++
			most = max(most, now)
		case workloads.MarkBackwardBegin:
			if backward++; int(in.A) != backward {
				t.Errorf("backward %d is numbered %d", backward, in.A)
			}
		case workloads.MarkBackwardEnd:
			now--
		}
	}
	if now != 0 {
		t.Errorf("%d chunks are left", now)
	}
	return most
}

// With transfers that cost nothing, a forward of 1 and a backward of 2 per layer,
// 1F1B takes (m + (p-1)/v) times 3 times the layers of a stage: a bubble of
// (p-1)/(mv), and the order of transfers adds nothing.
func TestPipelineBubble(t *testing.T) {
	cost := func(k *workloads.Kernel) int64 {
		switch {
		case k.Kind == hw.Modelled && k.Family == hw.Attention:
			return 1
		case k.Kind == hw.Modelled && k.Family == hw.AttentionGrad:
			return 2
		}
		return 0
	}
	for _, c := range []struct{ stages, chunks, layers int }{{1, 1, 8}, {2, 1, 8}, {4, 1, 8}, {8, 1, 8}, {2, 2, 8}, {2, 4, 8}, {4, 2, 16}, {8, 2, 16}, {3, 4, 12}} {
		m := tiny(workloads.Llama)
		m.Layers = c.layers
		for micros := 1; micros <= 16; micros++ {
			if c.chunks > 1 && micros%c.stages != 0 {
				continue
			}
			w := makeWorkload(t, workloads.Config{Model: m, PP: c.stages, VPP: c.chunks, GlobalBatch: micros})
			got, err := workloadstest.Play(w, 0, cost)
			if err != nil {
				t.Fatalf("%d stages of %d chunks, %d micro-batches: %v", c.stages, c.chunks, micros, err)
			}
			perChunk := m.Layers / (c.stages * c.chunks)
			if want := int64(3 * perChunk * (micros*c.chunks + c.stages - 1)); got != want {
				t.Errorf("%d stages of %d chunks, %d micro-batches: %d, want %d", c.stages, c.chunks, micros, got, want)
			}
		}
	}
}

// Where forward and backward take other times than on the schedule's clock, the
// order of transfers costs little: within 2 % of the closed form.
func TestPipelineBubbleReal(t *testing.T) {
	for _, backward := range []int64{12, 17, 23, 30} { // for a forward of 10
		cost := func(k *workloads.Kernel) int64 {
			switch {
			case k.Kind == hw.Modelled && k.Family == hw.Attention:
				return 10
			case k.Kind == hw.Modelled && k.Family == hw.AttentionGrad:
				return backward
			}
			return 0
		}
		for _, c := range []struct{ stages, chunks int }{{4, 1}, {8, 1}, {2, 2}, {4, 2}, {4, 4}, {8, 2}} {
			m := tiny(workloads.Llama)
			m.Layers = c.stages * c.chunks
			micros := 4 * c.stages
			got, err := workloadstest.Play(makeWorkload(t, workloads.Config{Model: m, PP: c.stages, VPP: c.chunks, GlobalBatch: micros}), 0, cost)
			if err != nil {
				t.Fatal(err)
			}
			want := float64((10 + backward) * int64(micros*c.chunks+c.stages-1))
			if r := float64(got)/want - 1; r < 0 || r > 0.02 {
				t.Errorf("backward %d, %d stages of %d chunks: %d, want %g", backward, c.stages, c.chunks, got, want)
			}
		}
	}
}

// Chunks share the layers out: every layer is on one stage, stage s has those of
// places s, s+p, … of a pipeline pv long, and a stage's layers of full-block
// recomputation count through its chunks.
func TestChunks(t *testing.T) {
	m := tiny(workloads.Llama)
	m.Layers = 12
	w := makeWorkload(t, workloads.Config{Model: m, PP: 2, VPP: 3, GlobalBatch: 2, Recompute: workloads.Recompute{Kind: workloads.FullBlock, N: 3}})
	for r, want := range [][]int32{{1, 2, 5, 6, 9, 10}, {3, 4, 7, 8, 11, 12}} {
		p := program(t, w, r, 0)
		var all, again []int32
		for _, in := range p.Instrs {
			if in.Kind != workloads.Op || p.Names.String(in.Name) != "npu::npu_fusion_attention" {
				continue
			}
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if l := p.Storages[a.Storage].Layer; a.Mode == workloads.Write {
					all = append(all, l)
					if in.Flags&workloads.Recomputed != 0 {
						again = append(again, l)
					}
				}
			}
		}
		slices.Sort(all)
		slices.Sort(again)
		if got := slices.Compact(all); !slices.Equal(got, want) {
			t.Errorf("stage %d has layers %v, want %v", r, got, want)
		}
		if got := slices.Compact(again); !slices.Equal(got, want[:3]) {
			t.Errorf("stage %d computes layers %v again, want %v", r, got, want[:3])
		}
	}
	if name := w.Name(); !strings.Contains(name, "pp2dp1v3") {
		t.Errorf("name %s does not tell the chunks", name)
	}
}

// Interleaving costs the first stage its share of memory: activations of
// 1 + (p-1)/(pv) times those of the plain pipeline, within what belongs to no
// layer.
func TestInterleavedMemory(t *testing.T) {
	m := cut(model(t, "llama2-7b"), 16)
	activations := func(v int) float64 {
		w := makeWorkload(t, workloads.Config{Model: m, PP: 4, VPP: v, GlobalBatch: 16})
		residents := sim.Bytes(0)
		for _, s := range w.Ranks()[0].Residents {
			residents += s.Bytes
		}
		return float64(workloads.PeakLive(program(t, w, 0, 0), 1) - residents)
	}
	plain := activations(1)
	for v, want := range map[int]float64{2: 1 + 3./8, 4: 1 + 3./16} {
		if got := activations(v) / plain; math.Abs(got/want-1) > 0.03 {
			t.Errorf("%d chunks take %.3f times the memory of one, want %.3f", v, got, want)
		}
	}
}

func TestVariation(t *testing.T) {
	c := workloads.Config{Model: tiny(workloads.Llama), DP: 2, Processes: []workloads.Process{
		workloads.OverflowSkip{Burst: 2, Probability: 0.25, Seed: 7}, workloads.Validation{Every: 4, Batches: 3}}}
	w := makeWorkload(t, c)
	plain := program(t, w, 0, 0)
	counts := make(map[string]int)
	for i := range 400 {
		p := program(t, w, 0, i)
		counts[p.Kind]++
		if i < 2 && p.Kind != "skip" {
			t.Errorf("iteration %d of the burst is %q", i, p.Kind)
		}
		if validates := strings.Contains(p.Kind, "validate"); validates != (i%4 == 3) {
			t.Errorf("iteration %d is %q", i, p.Kind)
		}
		if q := program(t, makeWorkload(t, c), 0, i); q.Kind != p.Kind {
			t.Errorf("iteration %d is %q once and %q another time", i, p.Kind, q.Kind)
		}
		if i > 60 {
			continue
		}
		validation, adam := 0, 0
		for _, in := range p.Instrs {
			switch {
			case in.Kind == workloads.Mark && in.Mark == workloads.MarkValidationBegin:
				validation++
			case in.Kind == workloads.Op && strings.Contains(w.Names().String(in.Name), "adam"):
				adam++
			}
		}
		if skips := strings.Contains(p.Kind, "skip"); skips != (adam == 0) {
			t.Errorf("iteration %d is %q with %d optimizer operators", i, p.Kind, adam)
		}
		if want := map[bool]int{true: 3}[i%4 == 3]; validation != want {
			t.Errorf("iteration %d validates %d times, want %d", i, validation, want)
		}
	}
	if plain.Kind != "skip" || len(counts) != 4 {
		t.Errorf("kinds %v, want all four", counts)
	}
	// 398 draws at 0.25: 99.5 expected, standard deviation 8.6.
	if skips := counts["skip"] + counts["skip+validate"]; skips < 66 || skips > 136 {
		t.Errorf("%d of 400 iterations skip, want about 100", skips)
	}
}

func TestImpossible(t *testing.T) {
	llama := tiny(workloads.Llama)
	one := func(p workloads.Process) workloads.Config {
		return workloads.Config{Model: llama, Processes: []workloads.Process{p}}
	}
	for _, c := range []struct {
		name string
		c    workloads.Config
		want string
	}{
		{"devices", workloads.Config{Model: llama, TP: 2, Devices: 8}, "the number of devices, 8"},
		{"heads", workloads.Config{Model: llama, TP: 8}, "tp 8: must divide the 4 key-value heads"},
		{"ffn", workloads.Config{Model: func() workloads.Model { m := llama; m.FFN = 129; return m }(), TP: 2}, "feed-forward width 129"},
		{"layers", workloads.Config{Model: llama, PP: 3}, "pp 3: must divide the 4 layers"},
		{"chunks", workloads.Config{Model: llama, PP: 2, VPP: 3}, "pp 2 x vpp 3: must divide the 4 layers"},
		{"chunks alone", workloads.Config{Model: llama, VPP: 2}, "vpp 2: must be 1 with pp 1"},
		{"chunk groups", workloads.Config{Model: llama, PP: 2, VPP: 2, GlobalBatch: 3}, "global_batch 3: gives 3 micro-batches, with vpp 2 they must be a multiple of pp 2"},
		{"groups across chunks", workloads.Config{Model: llama, PP: 2, VPP: 2, GlobalBatch: 2, Recompute: workloads.Recompute{Kind: workloads.FullUniform, N: 2}}, "n 2: must be from 1 to"},
		{"top k", workloads.Config{Model: func() workloads.Model { m := llama; m.Experts, m.TopK = 4, 5; return m }()}, "experts 4, top_k 5"},
		{"gpt experts", workloads.Config{Model: func() workloads.Model { m := tiny(workloads.GPT); m.Experts, m.TopK = 4, 1; return m }()}, "experts are for Llama-style"},
		{"batch", workloads.Config{Model: llama, DP: 2, MicroBatch: 2, GlobalBatch: 6}, "multiple of micro_batch x dp = 4"},
		{"sequence", workloads.Config{Model: llama, TP: 4, Seq: 62, SequenceParallel: true}, "must divide seq 62"},
		{"framework", workloads.Config{Model: llama, Framework: "megatron"}, `framework "megatron": must be one of megatron-core, megatron-2021, megatron-2022`},
		{"framework of a llama", workloads.Config{Model: llama, Framework: workloads.Megatron2021}, "must be megatron-core for tiny, which is not a GPT with biases"},
		{"framework of a bare gpt", workloads.Config{Model: func() workloads.Model { m := tiny(workloads.GPT); m.Bare = true; return m }(), Framework: workloads.Megatron2021}, "must be megatron-core for tiny"},
		{"framework with sequence parallelism", workloads.Config{Model: tiny(workloads.GPT), TP: 2, SequenceParallel: true, Framework: workloads.Megatron2021}, "must be megatron-2022 or megatron-core with sequence parallelism"},
		{"replicated shards", workloads.Config{Model: llama, DP: 2, ZeRO: 3, Replicated: true}, "zero 3: must be 1 where states are replicated"},
		{"bare llama", workloads.Config{Model: func() workloads.Model { m := llama; m.Bare = true; return m }()}, "bare is for GPT-style"},
		{"positions", workloads.Config{Model: tiny(workloads.GPT), Seq: 65}, "64 learned positions"},
		{"negative", workloads.Config{Model: llama, TP: -1}, "tp -1: must be from 1"},
		{"absurd", workloads.Config{Model: llama, MicroBatch: 1 << 40}, "micro_batch 1099511627776: must be from 1 to"},
		{"absurd product", workloads.Config{Model: llama, MicroBatch: 1 << 20, Seq: 1 << 20}, "too many tokens"},
		{"absurd batch", workloads.Config{Model: llama, GlobalBatch: 1 << 24}, "micro-batches of 4 layers"},
		{"zero 2", workloads.Config{Model: llama, ZeRO: 2}, "zero 2: must be 1 or 3"},
		{"zero 3 alone", workloads.Config{Model: llama, ZeRO: 3}, "dp 1: must be at least 2"},
		{"zero 3 pipeline", workloads.Config{Model: llama, ZeRO: 3, PP: 2, DP: 2}, "pp 2: must be 1 with zero 3"},
		{"save rule", workloads.Config{Model: llama, SaveRule: "lazy"}, `save_rule "lazy": must be one of minimal, eager`},
		{"attention", workloads.Config{Model: llama, Attention: "flash"}, `attention "flash"`},
		{"recompute", workloads.Config{Model: llama, Recompute: workloads.Recompute{Kind: "all"}}, `recompute "all"`},
		{"block", workloads.Config{Model: llama, PP: 2, Recompute: workloads.Recompute{Kind: workloads.FullBlock, N: 3}}, "from 1 to the 2 layers"},
		{"block 0", workloads.Config{Model: llama, Recompute: workloads.Recompute{Kind: workloads.FullBlock}}, "from 1 to the 4 layers"},
		{"activation", workloads.Config{Model: llama, Recompute: workloads.Recompute{Kind: workloads.FullUniform, Activation: true}}, "only full-block can have it"},
		{"n without use", workloads.Config{Model: llama, Recompute: workloads.Recompute{Kind: workloads.Selective, N: 3}}, "n 3: must be 0"},
		{"model", workloads.Config{}, `layers 0: must be from 1`},
		{"probability", workloads.Config{Model: llama, Processes: []workloads.Process{workloads.OverflowSkip{Probability: math.NaN()}}}, "from 0 to 1"},
		{"burst", workloads.Config{Model: llama, Processes: []workloads.Process{workloads.OverflowSkip{Burst: -1}}}, "must not be negative"},
		{"every", workloads.Config{Model: llama, Processes: []workloads.Process{workloads.Validation{Batches: 1}}}, "validation.every 0"},
		{"batches", workloads.Config{Model: llama, Processes: []workloads.Process{workloads.Validation{Every: 1, Batches: 1 << 30}}}, "validation.batches"},
		{"pause", one(workloads.CheckpointSave{Every: 1}), "save.pause 0 ps"},
		{"log", one(workloads.Extras{LogEvery: -1}), "extras.log_every -1: must be at least 0"},
		{"average", one(workloads.Extras{AverageEvery: -1}), "extras.average_every -1"},
		{"rerun", one(workloads.Rerun{Probability: -1}), "rerun.probability -1: must be from 0 to 1"},
		{"ramp", one(workloads.BatchRamp{From: 2, Step: 1, Every: 1}), "ramp.from 2: must be from 1 to the 1 micro-batches"},
		{"ramp step", one(workloads.BatchRamp{From: 1, Every: 1}), "ramp.step 0"},
		{"ramp groups", workloads.Config{Model: llama, PP: 2, VPP: 2, GlobalBatch: 4, Processes: []workloads.Process{workloads.BatchRamp{From: 2, Step: 1, Every: 1}}}, "must be multiples of pp 2"},
		{"tail", one(workloads.UnevenTail{Sequences: 1, Every: 1}), "tail.sequences 1: must be at least 1 and less than micro_batch 1"},
		{"lengths", one(workloads.VariableLength{Lengths: workloads.Lengths{Median: 65}}), "lengths.median 65: must be from 1 to seq 64"},
		{"padding", one(workloads.DynamicPadding{Multiple: 65}), "padding.multiple 65: must be from 1 to seq 64"},
		{"packing", one(workloads.PackedSegments{Lengths: workloads.Lengths{Sigma: math.Inf(1)}}), "packing.sigma +Inf: must be from 0 to 4"},
		{"context", one(workloads.ContextSwitch{Before: 24}), "context.before 24: must divide seq 64"},
		{"experts", one(workloads.ExpertImbalance{Tau: 1}), "tiny has no experts"},
		{"depth", one(workloads.StochasticDepth{Probability: 2}), "depth.probability 2"},
		{"exit", one(workloads.EarlyExit{After: 5}), "exit.after 5: must be from 1 to the 4 layers"},
		{"lora", one(workloads.LoRA{}), "lora.rank 0: must be from 1 to 1024"},
		{"lora until", one(workloads.LoRA{Rank: 1, At: 5, Until: 5}), "lora.until 5: must be after lora.at 5"},
		{"lora twice", workloads.Config{Model: llama, Processes: []workloads.Process{workloads.LoRA{Rank: 1}, workloads.LoRA{Rank: 1}}}, "given 2 times"},
		{"lora zero", workloads.Config{Model: llama, DP: 2, ZeRO: 3, Processes: []workloads.Process{workloads.LoRA{Rank: 1}}}, "zero 3: must be 1 with lora"},
		{"recompute before", one(workloads.RecomputeToggle{Before: workloads.Recompute{Kind: workloads.FullBlock, N: 5}}), "n 5: must be from 1 to"},
	} {
		w, err := workloads.New(c.c)
		if err == nil {
			t.Errorf("%s: %s was made", c.name, w.Name())
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q must say %q in one line", c.name, err, c.want)
		}
		if check := c.c.Check(); check == nil || check.Error() != err.Error() {
			t.Errorf("%s: Check says %v, New says %v", c.name, check, err)
		}
	}
}

// randomConfig draws configurations that may or may not be possible.
func randomConfig(t *rapid.T) workloads.Config {
	m := tiny(rapid.SampledFrom([]workloads.Style{workloads.Llama, workloads.GPT}).Draw(t, "style"))
	pp := rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "pp")
	vpp := 1
	if pp > 1 {
		vpp = rapid.IntRange(1, 3).Draw(t, "vpp")
	}
	m.Layers = pp * vpp * rapid.IntRange(1, 3).Draw(t, "layers of a chunk")
	m.Tied = rapid.Bool().Draw(t, "tied")
	if m.Style == workloads.Llama {
		m.QKNorm = rapid.Bool().Draw(t, "qk norm")
		m.QKVBias = rapid.Bool().Draw(t, "qkv bias")
		if m.Experts = rapid.SampledFrom([]int{0, 0, 4}).Draw(t, "experts"); m.Experts > 0 {
			m.TopK = rapid.IntRange(1, 4).Draw(t, "top k")
		}
	}
	m.KVHeads = rapid.SampledFrom([]int{4, 8}).Draw(t, "kv heads")
	c := workloads.Config{
		Model: m, MicroBatch: rapid.IntRange(1, 2).Draw(t, "micro-batch"),
		TP: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "tp"), PP: pp, VPP: vpp, DP: rapid.IntRange(1, 3).Draw(t, "dp"),
		SequenceParallel: rapid.Bool().Draw(t, "sp"), ZeRO: rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "zero"),
		SaveRule:  rapid.SampledFrom([]workloads.SaveRule{workloads.Minimal, workloads.Eager}).Draw(t, "rule"),
		Attention: rapid.SampledFrom([]workloads.AttentionKind{workloads.Fused, workloads.Unfused}).Draw(t, "attention"),
		Unfold:    rapid.Bool().Draw(t, "unfold"),
		Recompute: rapid.SampledFrom([]workloads.Recompute{{}, {Kind: workloads.Selective}, {Kind: workloads.ActivationFunction},
			{Kind: workloads.FullUniform, N: 1}, {Kind: workloads.FullUniform, N: 2}, {Kind: workloads.FullBlock, N: 1}, {Kind: workloads.FullBlock, N: 2, Activation: true}}).Draw(t, "recompute"),
	}
	micros := rapid.IntRange(1, 5).Draw(t, "micro-batches")
	if vpp > 1 {
		micros = pp * min(micros, 3)
	}
	c.GlobalBatch = c.MicroBatch * c.DP * micros
	if c.ZeRO == 1 {
		c.Replicated = rapid.Bool().Draw(t, "replicated")
	}
	if m.Style == workloads.GPT {
		switch rapid.IntRange(0, 3).Draw(t, "kind of gpt") {
		case 1:
			c.Model.Bare = true
		case 2:
			c.Framework, c.SequenceParallel, c.ZeRO = workloads.Megatron2021, false, 1
		case 3:
			c.Framework, c.ZeRO = workloads.Megatron2022, 1
		}
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(workloads.ProcessNames()), 0, 6, rapid.ID[string]).Draw(t, "processes") {
		c.Processes = append(c.Processes, frequent(c, name))
	}
	return c
}

// replicasDiffer tells whether a process of c gives replicas different sizes, so
// that folding them is a simplification.
func replicasDiffer(c workloads.Config) bool {
	return slices.ContainsFunc(c.Processes, func(p workloads.Process) bool {
		switch p.(type) {
		case workloads.VariableLength, workloads.DynamicPadding, workloads.PackedSegments, workloads.ExpertImbalance:
			return c.DP > 1
		}
		return false
	})
}

func TestRandomConfigs(t *testing.T) {
	made, tried := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		c := randomConfig(rt)
		tried++
		w, err := workloads.New(c)
		if err != nil {
			if c.Check() == nil {
				rt.Fatalf("Check passes, New says %v", err)
			}
			return
		}
		made++
		fold := c
		fold.Unfold = !c.Unfold
		other, err := workloads.New(fold)
		if err != nil {
			rt.Fatal(err)
		}
		for i := range 3 {
			folded, err := workloadstest.Play(w, i, perFlop)
			if err != nil {
				rt.Fatalf("%s, iteration %d: %v", w.Name(), i, err)
			}
			if unfolded, err := workloadstest.Play(other, i, perFlop); err != nil || unfolded != folded && !replicasDiffer(c) {
				rt.Fatalf("%s, iteration %d: takes %d, folded the other way %d (%v)", w.Name(), i, folded, unfolded, err)
			}
			for r := range w.Ranks() {
				p, err := w.Program(r, i) // validates
				if err != nil {
					rt.Fatal(err)
				}
				if err := workloadstest.Races(p); err != nil {
					rt.Fatalf("%s, rank %d, iteration %d: %v", w.Name(), r, i, err)
				}
			}
		}
	})
	if made*2 < tried {
		t.Errorf("only %d of %d configurations are possible: the test hardly tests", made, tried)
	}
}

// perFlop prices kernels unevenly, so that a wrong order shows.
func perFlop(k *workloads.Kernel) int64 { return 1 + k.Flops>>10 + int64(k.Size)>>8 }

func TestConformance(t *testing.T) {
	for _, c := range []workloads.Config{
		{Model: tiny(workloads.Llama)},
		{Model: tiny(workloads.GPT), TP: 4, SequenceParallel: true, DP: 2, Unfold: true},
		{Model: tiny(workloads.Llama), PP: 4, DP: 2, GlobalBatch: 12},
		{Model: tiny(workloads.Llama), DP: 4, ZeRO: 3, GlobalBatch: 8, Recompute: workloads.Recompute{Kind: workloads.FullUniform, N: 2}},
		{Model: tiny(workloads.GPT), TP: 2, PP: 2, DP: 2, GlobalBatch: 8, Attention: workloads.Unfused, Framework: workloads.Megatron2021, Replicated: true, Recompute: workloads.Recompute{Kind: workloads.FullUniform}},
		{Model: tiny(workloads.GPT), TP: 2, PP: 2, SequenceParallel: true, GlobalBatch: 4, Attention: workloads.Unfused, Framework: workloads.Megatron2022, Recompute: workloads.Recompute{Kind: workloads.Selective}},
	} {
		c.Processes = []workloads.Process{workloads.OverflowSkip{Burst: 1}, workloads.Validation{Every: 2, Batches: 1}}
		w := makeWorkload(t, c)
		t.Run(w.Name(), func(t *testing.T) {
			workloadstest.Conformance(t, 4, func() workloads.Workload { return makeWorkload(t, c) })
		})
		if w.Tokens() <= 0 {
			t.Errorf("%s trains on %d tokens", w.Name(), w.Tokens())
		}
	}
}

// ZeRO-3 never holds more than two whole layers besides the vocabulary tables.
func TestZeRO3Window(t *testing.T) {
	m := tiny(workloads.Llama)
	m.Layers = 8
	for _, r := range []workloads.Recompute{{}, {Kind: workloads.FullUniform, N: 1}} {
		p := program(t, makeWorkload(t, workloads.Config{Model: m, DP: 4, ZeRO: 3, GlobalBatch: 8, Recompute: r}), 0, 0)
		refs := make(map[int32]int)
		for _, in := range p.Instrs {
			whole := func(s int32) bool {
				st := p.Storages[s]
				return s >= p.Residents && st.Class == workloads.Parameter && st.Layer >= 1 && st.Layer <= 8
			}
			switch in.Kind {
			case workloads.Op:
				for _, a := range p.Args[in.ArgLo:in.ArgHi] {
					if s := int32(a.Storage); whole(s) {
						refs[s] = 1
					}
				}
			case workloads.Drop:
				delete(refs, in.A)
			}
			if len(refs) > 2 {
				t.Fatalf("%v: %d layers are whole at once", r, len(refs))
			}
		}
	}
}

func ExampleNew() {
	m, err := workloads.LookupModel("llama2-7b")
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := workloads.New(workloads.Config{Model: m, Seq: 4096, GlobalBatch: 8, TP: 2, DP: 4, SequenceParallel: true, SaveRule: workloads.Eager})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := w.Program(0, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(w.Name())
	fmt.Printf("%d rank stands for %d devices\n", len(w.Ranks()), len(w.Ranks()[0].Devices))
	fmt.Printf("%d operators, %d distinct kernels, %.1f GiB at the peak\n", p.Ops, len(p.Kernels), float64(workloads.PeakLive(p, 512))/float64(sim.GiB))
	// Output:
	// llama2-7b/s4096/b1g8/tp2pp1dp4sp/eager/fused
	// 1 rank stands for 8 devices
	// 2995 operators, 52 distinct kernels, 38.3 GiB at the peak
}
