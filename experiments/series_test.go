package experiments

import (
	"math"
	"slices"
	"testing"

	"smartswap/sim"
	"smartswap/workloads"
)

// run makes an outcome from iteration times in ms; changes are iterations whose
// sequence is new.
func runOf(changes []int, ms ...int64) *Outcome {
	o := &Outcome{}
	for i, t := range ms {
		o.Iterations = append(o.Iterations, IterationOutcome{Span: sim.Time(t) * sim.Millisecond, Sequence: SequenceOutcome{Changed: slices.Contains(changes, i)}})
	}
	return o
}

func TestAdapt(t *testing.T) {
	ideal := runOf(nil, 100, 100, 100, 100, 100, 100, 100, 100)
	for _, c := range []struct {
		name           string
		run            *Outcome
		warmup         int
		undisturbed    float64
		lost, recovery float64
		late           float64
	}{
		{"nothing lost", runOf([]int{3}, 120, 120, 120, 120, 120, 120, 120, 120), 1, 1.2, 0, 0, 0},
		{"two slow iterations after a change", runOf([]int{3}, 120, 120, 120, 220, 170, 120, 120, 120), 1, 1.2, 1.5, 2, 0},
		{"lost before the window", runOf([]int{3}, 900, 120, 120, 220, 120, 120, 120, 120), 1, 1.2, 1, 1, 0},
		{"never again", runOf([]int{6}, 100, 100, 100, 100, 100, 100, 200, 200), 0, 1, 2, 2, 1},
		{"the next change overtakes", runOf([]int{2, 4}, 100, 100, 200, 200, 200, 100, 100, 100), 0, 1, 1.5, 1.5, 0.5},
		{"just recovered", runOf([]int{2}, 100, 100, 104, 104, 100, 100, 100, 100), 0, 1, 0.08, 0, 0},
	} {
		a, ok := adapt([]*Outcome{c.run}, []*Outcome{ideal}, c.warmup, c.undisturbed, func(int, int) float64 { return c.undisturbed })
		near := func(x, y float64) bool { return math.Abs(x-y) < 1e-9 }
		if !ok || !near(a.Lost.Mean, c.lost) || !near(a.Recovery.Mean, c.recovery) || !near(a.Late.Mean, c.late) || a.Lost.Half != 0 {
			t.Errorf("%s: %+v, want lost %g, recovery %g, late %g", c.name, a, c.lost, c.recovery, c.late)
		}
	}
	one := func(int, int) float64 { return 1 }
	if _, ok := adapt([]*Outcome{runOf(nil, 1, 1)}, []*Outcome{ideal}, 0, 1, one); ok {
		t.Error("nothing to adapt to without a change")
	}
	if _, ok := adapt([]*Outcome{runOf([]int{0}, 1, 1)}, []*Outcome{ideal}, 1, 1, one); ok {
		t.Error("a change before the window counts")
	}
}

// Each iteration is held against its own regime.
func TestAdaptToRegimes(t *testing.T) {
	ideal := runOf(nil, 100, 100, 100, 100)
	run := runOf([]int{2}, 120, 120, 150, 140)
	settled := func(_, i int) float64 { return []float64{1.2, 1.2, 1.4, 1.4}[i] }
	if a, ok := adapt([]*Outcome{run}, []*Outcome{ideal}, 0, 1.2, settled); !ok || math.Abs(a.Lost.Mean-0.1) > 1e-9 || a.Recovery.Mean != 1 {
		t.Errorf("%+v; the first iteration of the new regime loses 0.1, then it is as slow as it must be", a)
	}
}

// A regime is a job that comes up often; what happens once belongs to the
// regime before.
func TestRegimes(t *testing.T) {
	var list []IterationOutcome
	add := func(n int, job uint64) {
		for range n {
			list = append(list, IterationOutcome{Sequence: SequenceOutcome{Program: job}})
		}
	}
	add(2, 9) // never a regime
	add(regimeSize, 1)
	add(1, 8)
	add(regimeSize-1, 2) // becomes one by the last iteration
	add(1, 7)
	add(1, 2)
	add(1, 1)
	got := regimes(list)
	at := regimeSize + 3 // first of job 2
	for _, c := range []struct{ i, want int }{
		{0, -1}, {1, -1}, {2, 2}, {at - 2, 2}, {at - 1, 2}, {at, at}, {at + regimeSize - 2, at}, {at + regimeSize - 1, at}, {at + regimeSize, at}, {at + regimeSize + 1, 2},
	} {
		if got[c.i] != c.want {
			t.Errorf("iteration %d: regime of %d, want %d", c.i, got[c.i], c.want)
		}
	}
}

// The interval is Student's.
func TestEstimate(t *testing.T) {
	e := estimate([]float64{1, 2, 3})
	if e.Mean != 2 || math.Abs(e.Half-4.302652729911275/math.Sqrt(3)) > 1e-9 {
		t.Errorf("%+v", e)
	}
	if e := estimate([]float64{7}); e.Mean != 7 || e.Half != 0 {
		t.Errorf("of one value: %+v", e)
	}
}

// Sequences of real programs: skipping drops the optimizer, lengths change
// sizes and no operator.
func TestSequences(t *testing.T) {
	compare := func(v ...Variation) []SequenceOutcome {
		p := job(1, 1024*16, Layout{1, 1, 8}, "none")
		p.Variation = v
		s := NewSimulator()
		node, err := s.node(p.Node)
		if err != nil {
			t.Fatal(err)
		}
		w, err := s.workload(p, node)
		if err != nil {
			t.Fatal(err)
		}
		list, err := sequences(w, 4)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	skip := compare(Variation{"overflow", map[string]any{"burst": int64(2), "probability": 0.0}})
	for i, want := range []bool{false, false, true, false} {
		if skip[i].Changed != want {
			t.Errorf("iteration %d: changed %v", i, skip[i].Changed)
		}
	}
	if s := skip[2]; s.Operators <= skip[1].Operators || s.Length <= 0 || s.ZeroPad >= 1 || s.Truncate < s.ZeroPad {
		t.Errorf("the optimizer comes back: %+v after %+v", s, skip[1])
	}
	if s := skip[3]; s.Length != 0 || s.ZeroPad != 1 || s.Operators != skip[2].Operators {
		t.Errorf("nothing changes: %+v", s)
	}
	for i, s := range compare(Variation{"lengths", map[string]any{}}) {
		if s.Changed || math.Abs(s.ZeroPad-1) > 1e-12 {
			t.Errorf("lengths, iteration %d: %+v", i, s)
		}
	}
}

// Neighbours have different names exactly where the sequence changes.
func TestSequenceKinds(t *testing.T) {
	kinds := sequenceKinds(runOf([]int{1, 3}, 1, 1, 1, 1).Iterations)
	if kinds[0] == kinds[1] || kinds[1] != kinds[2] || kinds[2] == kinds[3] {
		t.Errorf("%q", kinds)
	}
}

// Tokens are those of the counted iterations.
func TestTokensVary(t *testing.T) {
	p := job(1, 1024*32, Layout{1, 1, 8}, "none")
	p.Variation = []Variation{{"ramp", map[string]any{"from": int64(1), "step": int64(1), "every": int64(2)}}}
	s := NewSimulator()
	node, err := s.node(p.Node)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.workload(p, node)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := w.(workloads.TokenCounter); !ok {
		t.Fatal("the decoder does not count")
	}
	for _, c := range []struct{ from, until, want int }{{0, 2, 8}, {0, 4, 12}, {2, 4, 16}, {6, 8, 32}} {
		if got, err := tokens(w, c.from, c.until); err != nil || got != int64(c.want)*1024 {
			t.Errorf("iterations %d to %d: %d tokens, want %d, %v", c.from, c.until, got, c.want*1024, err)
		}
	}
}
