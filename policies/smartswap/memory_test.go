package smartswap

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// events are the notes of a run as "iteration event".
func events(p *Policy) string {
	var all []string
	for _, n := range p.Notes() {
		all = append(all, n.Event)
	}
	return strings.Join(all, " ")
}

// other is an iteration of the sequence with six layers.
var other = iteration{layers: 6}

// TestASequenceThatReturns goes on where it was.
func TestASequenceThatReturns(t *testing.T) {
	o := Default()
	o.Predict, o.Patch = false, false
	p, rt := New(o), &stub{}
	check(t, run(p, rt, []iteration{evicting, evicting, {}, {}, other, {}}),
		"warm-up full", "searching full armed", "stable light armed", "stable light armed", "warm-up full", "stable light armed")
	if got, want := events(p), "planned phase changed changed recalled"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	if alarms := policies.Alarms(p.Notes()); !slices.Equal(alarms, []int{4, 5}) {
		t.Errorf("alarms at %v, want 4 and 5", alarms)
	}
}

// TestAnExceptionIsExpectedToPass: what follows it is known from the first time.
func TestAnExceptionIsExpectedToPass(t *testing.T) {
	o := Default()
	o.Patch = false
	p, rt := New(o), &stub{}
	got := run(p, rt, []iteration{evicting, evicting, {}, {}, {}, {}, other, {}, {}, {}, {}, {}, other, {}})
	check(t, got[5:8], "stable light armed", "warm-up full", "stable light armed")
	for i, state := range got[8:] {
		if state != "stable light armed" {
			t.Errorf("iteration %d ends in %q", i+8, state)
		}
	}
	for _, d := range p.Log() {
		if d.Iteration == 12 && d.Expected {
			t.Error("the exception was expected")
		}
		if d.Iteration == 13 && !d.Expected {
			t.Error("what follows the exception was not")
		}
	}
}

// TestTwoThatAlternate are each planned for, and each runs under its own plan.
func TestTwoThatAlternate(t *testing.T) {
	o := Default()
	o.Patch = false
	short := iteration{layers: 6, evictions: 3}
	script := slices.Repeat([]iteration{evicting, short}, 2)
	script = append(script, slices.Repeat([]iteration{{}, other}, 6)...)
	p, rt := New(o), &stub{}
	got := run(p, rt, script)
	check(t, got[len(got)-4:], slices.Repeat([]string{"stable light armed"}, 4)...)
	if len(p.memory.list) != 2 || p.memory.list[0].best == p.memory.list[1].best {
		t.Errorf("%d sequences remembered", len(p.memory.list))
	}
	last := p.Log()[len(p.Log())-1]
	if !last.Changed || !last.Expected || !last.Recalled {
		t.Errorf("the last alternation: %+v", last)
	}
	o.Remember = 0 // never two alike in a row
	if got := run(New(o), &stub{}, script); slices.ContainsFunc(got, func(s string) bool { return s != "warm-up full" }) {
		t.Errorf("without memory: %q", got)
	}
}

// TestPatience: sequences that never repeat are planned for all the same.
func TestPatience(t *testing.T) {
	o := Default()
	var script []iteration
	for i := range 8 {
		script = append(script, iteration{layers: 5 + i, evictions: 3})
	}
	p := New(o)
	got := run(p, &stub{}, script)
	if at := slices.Index(got, "searching full armed"); at != patience*o.WarmUp-1 {
		t.Errorf("planned after %d iterations, want %d: %q", at+1, patience*o.WarmUp, got)
	}
}

// TestMemoryIsBounded: the oldest sequence goes, with what followed it.
func TestMemoryIsBounded(t *testing.T) {
	o := Default()
	o.Remember = 3
	p := New(o)
	for i := range 20 {
		run(p, &stub{}, []iteration{{layers: 3 + i%7}})
		if len(p.memory.list) > 3 {
			t.Fatalf("%d sequences", len(p.memory.list))
		}
		for _, s := range p.memory.list {
			for _, f := range s.followers {
				if !slices.Contains(p.memory.list, f.s) {
					t.Fatal("a forgotten sequence is remembered as a follower")
				}
			}
		}
		if !slices.Contains(p.memory.list, p.expected) {
			t.Fatal("the sequence expected is forgotten")
		}
	}
}

// TestLikely: a habit outlives exceptions, and a new habit wins after a few.
func TestLikely(t *testing.T) {
	a, b := &sequence{}, &sequence{}
	for range 10 {
		a.follow(a)
	}
	a.follow(b)
	if a.likely() != a {
		t.Error("one exception breaks a habit")
	}
	a.follow(b)
	a.follow(b)
	if a.likely() != b {
		t.Error("three in a row do not make a new habit")
	}
	if b.likely() != nil {
		t.Error("nothing has followed b")
	}
}

// TestInheritedPlanThatDoesNotDo: evictions lead to a profile and a plan of its
// own, after one more iteration.
func TestInheritedPlanThatDoesNotDo(t *testing.T) {
	p, rt := New(Default()), &stub{}
	short := iteration{layers: 11, evictions: 3}
	got := run(p, rt, []iteration{evicting, evicting, {}, {layers: 11}, short, short, {layers: 11}})
	check(t, got[3:], "stable light armed", "warm-up full", "searching full armed", "stable light armed")
	if got, want := events(p), "planned phase changed patched phase planned phase"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestFit holds fitted borders against operators: what was the first operator of
// a layer still is, as far as it is there.
func TestFit(t *testing.T) {
	o := Default()
	o.Target = Reduction
	s := generate(t, o, 1536*sim.MiB)
	plan, old := s.Plan(nil), twelve.Observation()
	forward := profilers.Stage{Phase: profilers.Forward, MicroBatch: 1}
	backward := profilers.Stage{Phase: profilers.Backward, MicroBatch: 1}

	// Three operators are inserted into the third logical layer.
	inserted := twelve.Observation()
	at := int(inserted.Passes[1].Lo) + 12
	inserted.Sequence = slices.Insert(slices.Clone(inserted.Sequence), at, 11, 11, 11)
	inserted.Passes[1].Hash++
	for i := 2; i < len(inserted.Passes); i++ {
		inserted.Passes[i].Lo += 3
	}
	fitted, ok := fit(plan, old, inserted)
	if !ok {
		t.Fatal("three operators more are too many")
	}
	want := slices.Clone(plan.ForwardBounds)
	for i := 2; i < len(want); i++ {
		want[i] += 3
	}
	if got := fitted.Bounds(forward); !slices.Equal(got, want) {
		t.Errorf("forward borders %v, want %v", got, want)
	}
	if got := fitted.Bounds(backward); !slices.Equal(got, plan.BackwardBounds) {
		t.Errorf("backward borders %v, want them as they were", got)
	}
	if len(fitted.Swaps) != len(plan.Swaps) {
		t.Errorf("%d swaps of %d", len(fitted.Swaps), len(plan.Swaps))
	}

	// A second micro-batch gets the swaps of the first.
	more := twelve
	more.MicroBatches = 2
	fitted, ok = fit(plan, old, more.Observation())
	if !ok || len(fitted.Swaps) != 2*len(plan.Swaps) {
		t.Fatalf("%v, %d swaps, want twice %d", ok, len(fitted.Swaps), len(plan.Swaps))
	}
	if err := fitted.Validate(); err != nil {
		t.Error(err)
	}
	for i := range plan.Swaps {
		a, b := fitted.Swaps[i], fitted.Swaps[len(plan.Swaps)+i]
		b.Out.What.Stage.MicroBatch--
		if a.Out.What != b.Out.What {
			t.Errorf("swap %d: %+v and %+v", i, a.Out.What, b.Out.What)
		}
	}
	// And loses them again.
	if back, ok := fit(fitted, more.Observation(), old); !ok || len(back.Swaps) != len(plan.Swaps) {
		t.Errorf("%v, %d swaps, want %d", ok, len(back.Swaps), len(plan.Swaps))
	}
	// Another program altogether has no use for the plan.
	foreign := twelve.Observation()
	for i := range foreign.Sequence {
		foreign.Sequence[i] += 100
	}
	for i := range foreign.Passes {
		foreign.Passes[i].Hash++
	}
	if _, ok := fit(plan, old, foreign); ok {
		t.Error("a plan for another program fits")
	}
}

// lcs is the length of a longest common subsequence, by the book.
func lcs(a, b []int32) int {
	best := make([][]int, len(a)+1)
	for i := range best {
		best[i] = make([]int, len(b)+1)
	}
	for i := range a {
		for j := range b {
			best[i+1][j+1] = max(best[i][j+1], best[i+1][j])
			if a[i] == b[j] {
				best[i+1][j+1] = best[i][j] + 1
			}
		}
	}
	return best[len(a)][len(b)]
}

func TestAlign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 3), 0, 16)
		a, b := ids.Draw(t, "a"), ids.Draw(t, "b")
		to := align(a, b)
		kept, last := 0, int32(-1)
		for i, j := range to {
			if j < 0 {
				continue
			}
			if j <= last || a[i] != b[j] {
				t.Fatalf("%v to %v: %v", a, b, to)
			}
			last = j
			kept++
		}
		if want := lcs(a, b); kept != want {
			t.Fatalf("%v to %v: %v keeps %d, want %d", a, b, to, kept, want)
		}
	})
	// Too many edits: the ends are found all the same.
	a, b := make([]int32, 2000), make([]int32, 2000)
	for i := 1; i < 1999; i++ {
		a[i], b[i] = 1, 2
	}
	if to := align(a, b); to[0] != 0 || to[1999] != 1999 || to[1000] != -1 {
		t.Errorf("ends at %d and %d, middle at %d", to[0], to[1999], to[1000])
	}
}

func TestStateOrder(t *testing.T) {
	var s stateOrder
	s.begin([]policies.Handle{1, 2, 3, 4})
	s.used([]policies.Handle{3, 9})
	s.used([]policies.Handle{3, 1})
	if got := s.order[:2]; !slices.Equal(got, []policies.Handle{3, 1}) {
		t.Errorf("order %v, want 3, 1 first", s.order)
	}
	s.end()
	s.used([]policies.Handle{4})
	s.used([]policies.Handle{2})
	if got := s.order[:2]; !slices.Equal(got, []policies.Handle{4, 2}) || len(s.order) != 4 {
		t.Errorf("order %v, want 4, 2 first", s.order)
	}
}
