package smartswap

import (
	"math/bits"

	"smartswap/sim"
)

// stageTimes is the planner's idea of when things happen. It knows no operator
// times: the iteration's duration is spread evenly, operator i of n ending at
// (i+1)/n of it.
type stageTimes struct {
	start, end []sim.Time // by stage
	left       []sim.Time // what copies may still take of the stage; negative = debt

	sums  []sim.Time // see backlog; up to date before fresh
	fresh int32
}

// newStageTimes spreads duration over the operators of g. A stage starts when
// its first operator ends; with all set, when the operator before it ends.
func newStageTimes(g *grid, duration sim.Time, all bool) *stageTimes {
	n := len(g.of)
	ends := func(op int32) sim.Time { return mulDiv(uint64(op+1), uint64(duration), uint64(n)) }
	t := &stageTimes{sums: make([]sim.Time, len(g.stages))}
	for s := range g.stages {
		begin := g.first[s]
		if all {
			begin--
		}
		start, end := ends(begin), ends(g.last[s])
		t.start = append(t.start, start)
		t.end = append(t.end, end)
		t.left = append(t.left, end-start)
	}
	return t
}

// transfer is the time of a copy at a believed bandwidth in MiB/s, rounded up.
func transfer(b sim.Bytes, mibPerSecond int64) sim.Time {
	perSecond := uint64(mibPerSecond) * uint64(sim.MiB)
	t := mulDiv(uint64(b), uint64(sim.Second), perSecond)
	if t < sim.Forever && mulDiv(uint64(t), perSecond, uint64(sim.Second)) < sim.Time(b) {
		t++
	}
	return t
}

// mulDiv is a*b/c rounded down, or sim.Forever where that does not fit.
func mulDiv(a, b, c uint64) sim.Time {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return sim.Forever
	}
	q, _ := bits.Div64(hi, lo, c)
	return sim.Time(min(q, uint64(sim.Forever)))
}

// take books d of a stage's time.
func (t *stageTimes) take(stage int32, d sim.Time) {
	t.left[stage] -= d
	t.fresh = min(t.fresh, stage)
}

// backlog is the time left in a stage after the copies of all stages up to it:
// debt is carried forward, slack is not. Sums are kept until a booking changes
// them.
func (t *stageTimes) backlog(stage int32) sim.Time {
	for ; t.fresh <= stage; t.fresh++ {
		var debt sim.Time
		if t.fresh > 0 {
			debt = min(0, t.sums[t.fresh-1])
		}
		t.sums[t.fresh] = debt + t.left[t.fresh]
	}
	return t.sums[stage]
}
