package smartswap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/profilers/layered"
	"smartswap/sim"
)

// attention plans an iteration of package layered with the options of
// FaithfulV2, changed by change.
func attention(t *testing.T, c layered.Config, change func(*Options)) *Schedule {
	t.Helper()
	o := FaithfulV2()
	if change != nil {
		change(&o)
	}
	s, err := Generate(Input{Profile: c.Observation(), Duration: c.Duration}, &o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The golden vectors are results of the planner shipped in July 2026.
var four = layered.Config{Layers: 4, MicroBatches: 1, Duration: 43 * sim.Millisecond, Base: 10 * sim.GiB}

func TestGoldenAttention(t *testing.T) {
	s := attention(t, four, nil)
	for _, pass := range s.Plan(nil).Passes {
		if !slices.Equal(pass.Bounds, []int32{5, 10, 15}) {
			t.Errorf("boundaries %v of pass %v, want [5 10 15]", pass.Bounds, pass.Pass)
		}
	}
	var layers []string
	for i := range s.grid.of[1:21] {
		layers = append(layers, s.Stages[s.grid.of[1+i]].String())
	}
	if got, want := strings.Join(layers, " "), strings.Join(slices.Concat(
		slices.Repeat([]string{"F1.1"}, 5), slices.Repeat([]string{"F1.2"}, 5),
		slices.Repeat([]string{"F1.3"}, 5), slices.Repeat([]string{"F1.4"}, 5)), " "); got != want {
		t.Errorf("stages %s", got)
	}
	var got []string
	for i := range s.Swaps {
		c := &s.Swaps[i]
		got = append(got, fmt.Sprintf("%s %d %v %v %v %v", four.Label(c.Tensor), c.OutOp, c.OutStage, c.InAt, c.Free, c.InFree))
	}
	want := []string{
		"nrm1 2 F1.1 B1.3 F1.3 O0.0", "qkv1 3 F1.1 B1.3 F1.3 O0.0", "mlp1 5 F1.1 B1.3 F1.3 O0.0", "att1 5 F1.1 B1.3 F1.3 O0.0",
		"nrm2 7 F1.2 B1.2 F1.4 B1.4", "qkv2 8 F1.2 B1.2 F1.4 B1.4", "mlp2 10 F1.2 B1.2 F1.4 B1.4", "att2 10 F1.2 B1.2 F1.4 B1.4",
		"nrm3 12 F1.3 B1.1 B1.1 B1.3", "qkv3 13 F1.3 B1.1 B1.1 B1.3", "mlp3 15 F1.3 B1.1 B1.1 B1.3", "att3 15 F1.3 B1.1 B1.1 B1.3",
	}
	if diff := cmp.Diff(want, got); diff != "" || mib(s.Bytes()) != 936 {
		t.Errorf("%v MiB; -want +got:\n%s", mib(s.Bytes()), diff)
	}
}

func TestGoldenAttentionVariants(t *testing.T) {
	two, twelveLayers := four, four
	two.MicroBatches, twelveLayers.Layers = 2, 12
	for name, c := range map[string]struct {
		config layered.Config
		bucket sim.Bytes
		swaps  int
		mib    float64
	}{
		"bucket of 200 MiB":  {four, 200 * sim.MiB, 9, 546},
		"no bucket":          {four, 0, 0, 0},
		"two micro-batches":  {two, -1, 24, 1872},
		"twelve layers":      {twelveLayers, -1, 44, 3608},
		"more than there is": {four, sim.GiB, 12, 936},
	} {
		s := attention(t, c.config, func(o *Options) { o.Bucket = c.bucket })
		if len(s.Swaps) != c.swaps || mib(s.Bytes()) != c.mib {
			t.Errorf("%s: %d swaps of %v MiB, want %d of %v", name, len(s.Swaps), mib(s.Bytes()), c.swaps, c.mib)
		}
		if name == "two micro-batches" && s.Swaps[0].InFree.String() != "F2.1" {
			t.Errorf("the first layer's tensors are released in %v, want F2.1", s.Swaps[0].InFree)
		}
		for i := range s.Swaps {
			if label := c.config.Label(s.Swaps[i].Tensor); name == "bucket of 200 MiB" && strings.HasPrefix(label, "mlp") {
				t.Errorf("%s fits into the bucket", label)
			}
		}
	}
}

// TestAttentionQuirk: shipped, the first operator of each later layer runs as
// part of the layer before.
func TestAttentionQuirk(t *testing.T) {
	exact := attention(t, four, func(o *Options) { o.ExactBounds = true }).Plan(nil)
	if got := exact.Bounds(profilers.Stage{Phase: profilers.Forward, MicroBatch: 1}); !slices.Equal(got, []int32{4, 9, 14}) {
		t.Errorf("exact boundaries %v", got)
	}
	shipped := attention(t, four, nil).Plan(nil)
	if a, b := layerOf(exact.Passes[0].Bounds, 5), layerOf(shipped.Passes[0].Bounds, 5); a != 2 || b != 1 {
		t.Errorf("operator 5 is in layers %d exactly and %d as shipped, want 2 and 1", a, b)
	}
	if err := shipped.Validate(); err != nil {
		t.Error(err)
	}
}

// TestAttentionStates: optimizer states leave only where that is asked for.
func TestAttentionStates(t *testing.T) {
	obs := four.Observation()
	for i := range 2 { // of the last operator
		obs.Tensors = append(obs.Tensors, profilers.TensorRec{Tensor: profilers.Tensor(900 + i), Bytes: sim.Bytes(10+i) * sim.MiB, Type: profilers.OptimState})
	}
	obs.Ops[len(obs.Ops)-1].Hi = int32(len(obs.Tensors))
	for mode, want := range map[string]int{OptimizerOff: 0, OptimizerPlan: 2, OptimizerWhole: 3} {
		o := FaithfulV2()
		o.Optimizer = mode
		s, err := Generate(Input{Profile: obs, Duration: four.Duration, States: []sim.Bytes{5, 6, 7}}, &o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range s.Swaps {
			if c := &s.Swaps[i]; c.Optimizer {
				got = append(got, fmt.Sprintf("%v %v %v %v", c.OutStage, c.Free, c.InAt, c.InFree))
			}
		}
		if !slices.Equal(got, slices.Repeat([]string{"F1.1 F1.1 O0.0 O0.0"}, want)) {
			t.Errorf("%s: %q, want %d", mode, got, want)
		}
	}
}

// TestWithoutAttention: no pattern, one layer, nothing to swap.
func TestWithoutAttention(t *testing.T) {
	obs := four.Observation()
	obs.Names = slices.Clone(obs.Names)
	for i := range obs.Names {
		obs.Names[i] = strings.ReplaceAll(obs.Names[i], "attention", "mixer")
	}
	o := FaithfulV2()
	s, err := Generate(Input{Profile: obs, Duration: four.Duration}, &o)
	if err != nil || len(s.Swaps) != 0 || len(s.Stages) != 4 {
		t.Errorf("%v, %d swaps, stages %v", err, len(s.Swaps), s.Stages)
	}
}

// tryAll finds repeats as the description says: all lengths from the greatest,
// all windows.
func tryAll(sequence []int32, times int, marked func(int32) bool) []int32 {
	if times <= 0 {
		return nil
	}
	for length := len(sequence) / times; length > 0; length-- {
		for i := 0; i+length <= len(sequence); i++ {
			run := sequence[i : i+length]
			if !slices.ContainsFunc(run, marked) {
				continue
			}
			var starts []int32
			for k := 0; k+length <= len(sequence); k++ {
				if slices.Equal(sequence[k:k+length], run) {
					starts = append(starts, int32(k))
				}
			}
			if len(starts) == times {
				return starts
			}
		}
	}
	return nil
}

func TestRepeats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sequence := rapid.SliceOfN(rapid.Int32Range(0, 3), 0, 24).Draw(t, "sequence")
		if rapid.Bool().Draw(t, "layers") { // a pattern with something around it
			layer := rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 5).Draw(t, "layer")
			sequence = slices.Concat(sequence[:len(sequence)/2], slices.Repeat(layer, rapid.IntRange(1, 5).Draw(t, "times")), sequence[len(sequence)/2:])
		}
		times := rapid.IntRange(0, 6).Draw(t, "times")
		marked := func(name int32) bool { return name == 0 }
		got, want := repeats(sequence, times, marked), tryAll(sequence, times, marked)
		if !slices.Equal(got, want) {
			t.Fatalf("%v %d times: at %v, want %v", sequence, times, got, want)
		}
	})
}

// TestEdited: the editor sees all candidates with their stages; what it returns
// is checked.
func TestEdited(t *testing.T) {
	o := FaithfulV1()
	var seen int
	obs := twelve.Observation()
	in := Input{Profile: obs, Duration: twelve.Duration, Weight: o.SizeWeight}
	stage := func(phase profilers.Phase, layer int32) profilers.Stage {
		return profilers.Stage{Phase: phase, MicroBatch: 1, Layer: layer}
	}
	s, err := edited(func(_ *profilers.Observation, all []Candidate) []Candidate {
		seen = len(all)
		all[0].InAt = all[0].OutStage                           // dropped
		all[1].Free = all[1].OutStage                           // one later
		all[2].InAt, all[2].InFree = stage(3, 5), stage(3, 5)   // one later
		all[3].OutStage, all[3].InAt = stage(3, 5), stage(2, 3) // dropped
		return all[:4]
	})(in, &o)
	if err != nil {
		t.Fatal(err)
	}
	if seen != 48 || len(s.Swaps) != 2 {
		t.Fatalf("the editor saw %d candidates and left %d swaps, want 48 and 2", seen, len(s.Swaps))
	}
	if c := s.Swaps[0]; c.free != c.out+1 {
		t.Errorf("out at %v, released at %v", c.OutStage, c.Free)
	}
	if c := s.Swaps[1]; c.InAt != stage(3, 5) || c.InFree != stage(3, 6) {
		t.Errorf("in at %v, released at %v", c.InAt, c.InFree)
	}
	_, err = edited(func(_ *profilers.Observation, all []Candidate) []Candidate {
		all[0].InAt.Layer = 99
		return all
	})(in, &o)
	if err == nil || !strings.Contains(err.Error(), "B1.99") {
		t.Errorf("a stage that does not exist: %v", err)
	}
	p, rt := New(Default()), &stub{}
	p.Edit(func(_ *profilers.Observation, all []Candidate) []Candidate { return all[:1] })
	run(p, rt, []iteration{evicting, evicting})
	if rt.armed == nil || len(rt.armed.Swaps) != 1 {
		t.Errorf("armed %+v", rt.armed)
	}
}

// TestOperatorEnds: with borders a stage has its own time, whatever its share of the
// operators.
func TestOperatorEnds(t *testing.T) {
	borders := []profilers.Border{{Op: 0, At: 0}, {Op: 2, At: 10}, {Op: 6, At: 110}}
	ends := operatorEnds(6, 220, borders) // twice as long as what was measured
	for op, want := range map[int32]sim.Time{-1: 0, 0: 10, 1: 20, 2: 70, 3: 120, 5: 220} {
		if got := ends(op); got != want {
			t.Errorf("operator %d ends at %d, want %d", op, got, want)
		}
	}
	for name, b := range map[string][]profilers.Border{
		"none": nil, "another length": borders[:2], "no time": {{Op: 0}, {Op: 6}}, "a late start": borders[1:],
	} {
		if got := operatorEnds(6, 600, b)(2); got != 300 {
			t.Errorf("%s: operator 2 ends at %d, want half-way", name, got)
		}
	}
}

func TestFaster(t *testing.T) {
	a := []profilers.Border{{Op: 0, At: 0}, {Op: 4, At: 40}, {Op: 8, At: 120}}
	b := []profilers.Border{{Op: 0, At: 0}, {Op: 2, At: 30}, {Op: 8, At: 90}}
	want := []profilers.Border{{Op: 0, At: 0}, {Op: 2, At: 20}, {Op: 4, At: 40}, {Op: 8, At: 80}}
	if got := faster(a, b); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := faster(nil, b); !slices.Equal(got, b) {
		t.Errorf("%v, want the only ones there are", got)
	}
}

// TestChunksOfAModel: each chunk of a virtual pipeline is cut on its own.
func TestChunksOfAModel(t *testing.T) {
	obs := &profilers.Observation{}
	add := func(phase profilers.Phase, mb, model int32, n int) {
		for range n {
			obs.Ops = append(obs.Ops, profilers.OpRec{Stage: profilers.Stage{Phase: phase, MicroBatch: mb, Model: model, Layer: 1}})
		}
	}
	for mb := int32(1); mb <= 2; mb++ {
		add(profilers.Forward, mb, 0, 22)
		add(profilers.Forward, mb, 1, 44)
	}
	g, err := newGrid(obs, 11)
	if err != nil {
		t.Fatal(err)
	}
	p := policies.Plan{ForwardBounds: g.forward, Passes: g.passes}
	for model, first := range []int32{2, 4} {
		for mb := range int32(2) {
			b := p.Bounds(profilers.Stage{Phase: profilers.Forward, MicroBatch: mb + 1, Model: int32(model)})
			if len(b) != 10 || b[0] != first {
				t.Errorf("chunk %d: boundaries %v, want 10 from %d", model, b, first)
			}
		}
	}
}
