package smartswap

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/profilers/layered"
	"smartswap/sim"
)

func TestLogicalLayers(t *testing.T) {
	for model, want := range map[int]int{-1: 0, 0: 0, 1: 11, 4: 12, 5: 15, 8: 16, 10: 20, 11: 11, 12: 12, 32: 32} {
		if got := logicalLayers(model); got != want {
			t.Errorf("a model of %d layers has %d logical layers, want %d", model, got, want)
		}
	}
}

func TestBoundaries(t *testing.T) {
	for _, c := range []struct {
		n, k int
		want []int32
	}{
		{60, 12, []int32{5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55}},
		{20, 12, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{4, 12, []int32{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}, // fewer operators than layers
		{4, 0, []int32{0, 1, 2}},                          // one each
		{1, 0, nil},
		{0, 0, nil},
	} {
		if got := boundaries(c.n, c.k); !slices.Equal(got, c.want) {
			t.Errorf("%d operators in %d layers: boundaries %v, want %v", c.n, c.k, got, c.want)
		}
	}
}

func TestLayerOf(t *testing.T) {
	bounds := boundaries(60, 12)
	for pos, want := range map[int32]int32{0: 1, 5: 1, 6: 2, 10: 2, 11: 3, 55: 11, 56: 12, 59: 12, 1000: 12} {
		if got := layerOf(bounds, pos); got != want {
			t.Errorf("operator %d is in layer %d, want %d", pos, got, want)
		}
	}
	if got := layerOf(nil, 3); got != 1 {
		t.Errorf("without boundaries operator 3 is in layer %d, want 1", got)
	}
}

// TestStageTable holds the grid of the golden iteration against its table.
func TestStageTable(t *testing.T) {
	g, err := newGrid(twelve.Observation(), 12)
	if err != nil {
		t.Fatal(err)
	}
	times := newStageTimes(g, twelve.Duration, nil, false)
	type line struct {
		First, Last   int32
		Start, Budget sim.Time
	}
	want := map[string]line{
		"I0.0":  {0, 0, 1, 0},
		"F1.1":  {1, 6, 2, 5},
		"F1.2":  {7, 11, 8, 4},
		"F1.12": {57, 60, 58, 3},
		"B1.1":  {61, 66, 62, 5},
		"B1.12": {117, 120, 118, 3},
		"O0.0":  {121, 122, 122, 1},
	}
	for i, s := range g.stages {
		w, ok := want[s.String()]
		if !ok {
			continue
		}
		delete(want, s.String())
		w.Start *= sim.Millisecond
		w.Budget *= sim.Millisecond
		if got := (line{g.first[i], g.last[i], times.start[i], times.left[i]}); got != w {
			t.Errorf("%v: %+v, want %+v", s, got, w)
		}
	}
	if len(want) > 0 {
		t.Errorf("stages %v are missing", want)
	}
	all := newStageTimes(g, twelve.Duration, nil, true)
	var sum sim.Time
	for _, left := range all.left {
		sum += left
	}
	if sum != twelve.Duration {
		t.Errorf("counting all operators, the stages have %d ps of %d", sum, twelve.Duration)
	}
}

func TestAStageThatComesTwice(t *testing.T) {
	obs := twelve.Observation()
	obs.Ops[60].Stage = profilers.Stage{Phase: profilers.Init}
	if _, err := newGrid(obs, 12); err == nil {
		t.Error("the initial stage comes again at operator 60 and nobody minds")
	}
}

func TestPeaks(t *testing.T) {
	for _, c := range []struct {
		order string // phases by operator
		want  []peak
	}{
		{"", nil},
		{"IO", nil},
		{"IFFBBO", []peak{{1, 4}}},
		{"FFBFBFBB", []peak{{0, 2}, {3, 4}, {5, 7}}}, // a pipeline
		{"FFOFB", []peak{{0, 1}, {3, 4}}},            // validation first
		{"BBFB", []peak{{0, 1}, {2, 3}}},
	} {
		var obs profilers.Observation
		counts := map[rune]int32{}
		last := rune(0)
		for i, r := range c.order {
			if r != last {
				counts[r]++
			}
			last = r
			s := profilers.Stage{Phase: map[rune]profilers.Phase{'I': profilers.Init, 'F': profilers.Forward, 'B': profilers.Backward, 'O': profilers.Optim}[r]}
			if r == 'F' || r == 'B' {
				s.MicroBatch = counts[r]
			}
			obs.Ops = append(obs.Ops, profilers.OpRec{ID: int64(i), Stage: s})
		}
		g, err := newGrid(&obs, 1)
		if err != nil {
			t.Fatalf("%s: %v", c.order, err)
		}
		if got := g.peaks(); !slices.Equal(got, c.want) {
			t.Errorf("%s: peaks %v, want %v", c.order, got, c.want)
		}
	}
}

func TestTargets(t *testing.T) {
	obs := twelve.Observation()
	g, err := newGrid(obs, 12)
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]float64{Reduction: 14201 - 3072, Absolute: 40960, Fit: 14201} {
		o := Default()
		o.Target = mode
		if m := g.measure(obs, &o, false, o.Redundant); mib(m.target) != want {
			t.Errorf("%s: target %v MiB, want %v", mode, mib(m.target), want)
		}
	}
	// Planned swaps and no evictions: the measured peak is good enough.
	o := FaithfulV1()
	obs.Swaps = []profilers.SwapRec{{OpID: 5, Out: true, Bytes: 1}, {OpID: 90, Bytes: 1}}
	if m := g.measure(obs, &o, false, 0); mib(m.target) != 14201 {
		t.Errorf("after planned swaps the target is %v MiB, want the measured peak", mib(m.target))
	}
	// An optimizer operator above the target ends the list.
	obs.Swaps = nil
	obs.Ops[121].Active = 20 * sim.GiB
	if m := g.measure(obs, &o, false, 0); m.ops[len(m.ops)-1] > 120 {
		t.Errorf("operator %d of the optimizer is to be reduced", m.ops[len(m.ops)-1])
	}
}

// TestNeeds compares the tree with a slice.
func TestNeeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		naive := rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 20), func(n int) sim.Bytes { return sim.Bytes(n) }), 1, 20).Draw(t, "needs")
		tree := newNeeds(slices.Clone(naive))
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			lo := rapid.Int32Range(0, int32(len(naive))).Draw(t, "lo")
			hi := rapid.Int32Range(0, int32(len(naive))).Draw(t, "hi")
			b := sim.Bytes(rapid.IntRange(0, 9).Draw(t, "bytes"))
			tree.reduce(lo, hi, b)
			for i := lo; i < hi; i++ {
				naive[i] -= b
			}
			most := slices.Max(naive)
			at, need := tree.greatest()
			if most <= 0 {
				if need > 0 {
					t.Fatalf("need %d is left, naive says %d", need, most)
				}
				return // padding may win among what is done
			}
			if need != most || int(at) != slices.Index(naive, most) {
				t.Fatalf("greatest need %d at %d, want %d at %d", need, at, most, slices.Index(naive, most))
			}
		}
	})
}

// TestStab compares with looking at all candidates.
func TestStab(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 17).Draw(t, "operators")
		candidates := make([]Candidate, rapid.IntRange(0, 20).Draw(t, "candidates"))
		for i := range candidates {
			a, b := rapid.Int32Range(0, int32(n)).Draw(t, "start"), rapid.Int32Range(0, int32(n)).Draw(t, "end")
			candidates[i].start, candidates[i].end = min(a, b), max(a, b)
		}
		gone := make([]bool, len(candidates))
		index := newStab(n, candidates, func(i int32) bool { return gone[i] })
		for range 30 {
			if len(candidates) > 0 && rapid.Bool().Draw(t, "drop") {
				gone[rapid.IntRange(0, len(candidates)-1).Draw(t, "which")] = true
			}
			at := rapid.Int32Range(0, int32(n-1)).Draw(t, "at")
			want := slices.IndexFunc(candidates, func(c Candidate) bool { return c.start <= at && at < c.end })
			for want >= 0 && gone[want] {
				next := slices.IndexFunc(candidates[want+1:], func(c Candidate) bool { return c.start <= at && at < c.end })
				if next < 0 {
					want = -1
				} else {
					want += 1 + next
				}
			}
			if got := index.best(at); int(got) != want {
				t.Fatalf("best at %d is %d, want %d", at, got, want)
			}
		}
	})
}

// use is one argument of an operator.
type use struct {
	op   int
	name int32
	arg  int
}

// TestFeatures compares the replay of all candidates at once with replaying
// each on its own.
func TestFeatures(t *testing.T) {
	obs := twelve.Observation()
	s := generate(t, FaithfulV1(), 1536*sim.MiB)
	p := s.Plan(nil)
	if len(p.Swaps) != len(s.Swaps) {
		t.Fatalf("%d swaps planned, %d scheduled", len(p.Swaps), len(s.Swaps))
	}
	for i := range s.Swaps {
		c := &s.Swaps[i]
		var uses []use
		for k := range obs.Ops {
			for arg, a := range obs.Args(&obs.Ops[k]) {
				if a.Tensor == c.Tensor && k <= int(c.OutOp) {
					uses = append(uses, use{k, obs.Ops[k].Name, arg})
				}
			}
		}
		want := p.Vocabulary.Begin(0, c.Bytes, [4]int32{})
		for _, u := range uses {
			want.Use(p.Vocabulary, u.name, u.arg)
		}
		what := p.Swaps[i].Out.What
		if what.Feature != want || want.Uses == 0 {
			t.Errorf("%s: feature %+v, want %+v", twelve.Label(c.Tensor), what.Feature, want)
		}
		if last := uses[len(uses)-1]; int(what.Op) != last.op || int(what.Arg) != last.arg || what.Tensor != c.Tensor {
			t.Errorf("%s: last used at %d.%d as %d, want %+v", twelve.Label(c.Tensor), what.Op, what.Arg, what.Tensor, last)
		}
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

// TestFeatureOfAnEvictedTensor: the shipped replay sees only the uses under
// the first id, so no later iteration without evictions can match.
func TestFeatureOfAnEvictedTensor(t *testing.T) {
	obs := twelve.Observation()
	tensor := twelve.Tensor(1, 3, layered.Attention)
	for i := range obs.Ops {
		args := obs.Args(&obs.Ops[i])
		for k := range args {
			if args[k].Tensor == tensor && i >= 14 { // evicted before its second use
				args[k].Orig = 999
			}
		}
	}
	chosen := []*Candidate{{Tensor: tensor, OutOp: 15}}
	v := vocabulary(obs)
	whole, first := histories(obs, v, chosen, true)[0].feature, histories(obs, v, chosen, false)[0].feature
	if whole.Uses != 3 || first.Uses != 1 {
		t.Errorf("%d uses under all ids and %d under the first, want 3 and 1", whole.Uses, first.Uses)
	}
}

func TestVocabulary(t *testing.T) {
	obs := &profilers.Observation{Names: make([]string, 100)}
	add := func(name int32, times int) {
		for range times {
			obs.Ops = append(obs.Ops, profilers.OpRec{Name: name})
		}
	}
	add(90, 3)
	add(4, 2)
	add(2, 2) // as often as 4 and met before it by the run
	for name := int32(10); name < 80; name++ {
		add(name, 1)
	}
	got := vocabulary(obs).Index
	if got[90] != 1 || got[2] != 2 || got[4] != 3 || got[10] != 4 || got[70] != 64 || got[71] != 0 || got[99] != 0 {
		t.Errorf("ranks %v", got)
	}
}

// TestPresets: each is what its name says where they differ most, and reads back
// as itself.
func TestPresets(t *testing.T) {
	type traits struct {
		planner    string
		stableStep int
		watches    bool
		remembers  bool
	}
	want := map[string]traits{
		"default":     {PlanLinks, 3, true, true},
		"paper":       {PlanStages, 3, true, false},
		"faithful-v2": {PlanAttention, 3, false, false},
		"faithful-v1": {PlanStages, 10, false, false},
	}
	for _, p := range Presets() {
		o, err := ReadOptions(policies.Params{"preset": p.Name})
		if err != nil || o != p.Options() {
			t.Errorf("%s: %+v, %v", p.Name, o, err)
		}
		if got := (traits{o.Planner, o.StableStep, o.Watch, o.Remember > 0}); got != want[p.Name] {
			t.Errorf("%s: %+v, want %+v", p.Name, got, want[p.Name])
		}
	}
	if len(Presets()) != len(want) {
		t.Errorf("%d presets, want %d", len(Presets()), len(want))
	}
}

// TestPaperStartsOver: evictions in the stable state, or another sequence, lead
// back to warm-up.
func TestPaperStartsOver(t *testing.T) {
	check(t, run(New(Paper()), &stub{}, []iteration{{}, {}, {}, {}, {evictions: 1}, {}, {}, {layers: 6}, {}, {}}),
		"warm-up full", "searching full armed", "stable light armed", "stable light armed",
		"warm-up full", "warm-up full", "searching full armed", "warm-up full", "warm-up full", "searching full armed")
}

func TestOptions(t *testing.T) {
	if o, err := ReadOptions(nil); err != nil || o != Default() {
		t.Errorf("%+v, %v", o, err)
	}
	o, err := ReadOptions(policies.Params{"preset": "faithful-v1", "chunks": int64(4)})
	want := FaithfulV1()
	want.Chunks = 4
	if diff := cmp.Diff(want, o); diff != "" || err != nil {
		t.Errorf("%v -want +got:\n%s", err, diff)
	}
	for _, p := range []policies.Params{
		{"preset": "faithful"}, {"bandwidth": int64(1)}, {"warm_up": int64(3)}, {"optimizer": "all"}, {"min_cosine": 1.5},
	} {
		if _, err := ReadOptions(p); err == nil {
			t.Errorf("%v passes", p)
		}
	}
}
