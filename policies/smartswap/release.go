package smartswap

import (
	"cmp"
	"slices"
	"sort"

	"smartswap/sim"
)

// release settles the stages in which the memory held for copies is given
// back, by playing the chosen copies through: one stream for both directions,
// which starts a stage's copies when the stage starts, or later by the debt of
// the stages before. Memory is released a fixed number of stages after the one
// in which the copy ends.
func (g *grid) release(chosen []*Candidate, t *stageTimes, o *Options, rate int64) {
	type copyOf struct {
		c   *Candidate
		out bool
	}
	work := make([][]copyOf, len(g.stages))
	for _, c := range chosen {
		work[c.out] = append(work[c.out], copyOf{c, true})
		work[c.inAt] = append(work[c.inAt], copyOf{c, false})
	}
	n := int32(len(g.stages))
	// after is the stage delay stages behind the one in which clock falls.
	after := func(clock sim.Time, delay int, otherwise int32) int32 {
		x := int32(sort.Search(len(t.end), func(s int) bool { return clock < t.end[s] }))
		if x < n-int32(delay) {
			return x + int32(delay)
		}
		return otherwise
	}
	for stage := range n {
		clock := t.start[stage]
		if stage > 0 {
			clock -= min(0, t.backlog(stage-1))
		}
		slices.SortStableFunc(work[stage], func(a, b copyOf) int { return inOrder(a.c, b.c) })
		for _, w := range work[stage] {
			clock += transfer(w.c.Bytes, rate)
			if w.out {
				w.c.free = after(clock, o.FreeDelay, w.c.inAt)
			} else {
				w.c.inFree = after(clock, o.InFreeDelay, min(w.c.inAt+1, n-1))
			}
		}
	}
}

// inOrder is the order of a plan: by operator of swap-out, larger first. Optimizer
// states that move in chunks come last of their operator and keep the order in
// which the optimizer uses them.
func inOrder(a, b *Candidate) int {
	if c := cmp.Or(cmp.Compare(a.OutOp, b.OutOp), compareBool(a.chunked, b.chunked)); c != 0 {
		return c
	}
	if a.chunked {
		return cmp.Compare(a.Tensor, b.Tensor)
	}
	return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Tensor, b.Tensor))
}

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
