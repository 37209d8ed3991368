package smartswap

import (
	"math/bits"
	"sort"

	"smartswap/profilers"
	"smartswap/sim"
)

// stageTimes is the planner's idea of when things happen. It knows no operator
// times, only how long the iteration took and perhaps when stages began.
type stageTimes struct {
	start, end []sim.Time // by stage
	left       []sim.Time // what copies may still take of the stage; negative = debt

	sums  []sim.Time // see backlog; up to date before fresh
	fresh int32
}

// newStageTimes spreads duration over the operators of g, see operatorEnds. A
// stage starts when its first operator ends; with all set, when the operator
// before it ends.
func newStageTimes(g *grid, duration sim.Time, borders []profilers.Border, all bool) *stageTimes {
	ends := operatorEnds(len(g.of), duration, borders)
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

// operatorEnds is when each of n operators ends, -1 being the time before the
// first, in an iteration of that duration. Without borders operator i ends at
// (i+1)/n of it (shipped). With borders of an iteration of n operators, operators
// between two of them share the time between them, scaled to the duration.
func operatorEnds(n int, duration sim.Time, borders []profilers.Border) func(op int32) sim.Time {
	if !usable(borders, n) {
		return func(op int32) sim.Time { return mulDiv(uint64(op+1), uint64(duration), uint64(n)) }
	}
	total := borders[len(borders)-1].At
	return func(op int32) sim.Time {
		begun := op + 1 // operators that have begun by then
		k := sort.Search(len(borders), func(i int) bool { return borders[i].Op > begun })
		if k == len(borders) {
			return duration
		}
		a, b := borders[k-1], borders[k]
		at := a.At + mulDiv(uint64(begun-a.Op), uint64(b.At-a.At), uint64(b.Op-a.Op))
		return mulDiv(uint64(at), uint64(duration), uint64(total))
	}
}

// usable tells whether borders span an iteration of n operators.
func usable(borders []profilers.Border, n int) bool {
	last := len(borders) - 1
	return last > 0 && borders[0].Op == 0 && int(borders[last].Op) == n && borders[last].At > 0
}

// faster joins the borders of two iterations of the same length: what lies
// between two borders took as long as in the iteration where it went faster.
// What one iteration waited for, such as a copy that the planner had misplaced,
// must not become time that the next plan counts on.
func faster(a, b []profilers.Border) []profilers.Border {
	if len(a) == 0 {
		return b
	}
	list := []profilers.Border{{}}
	var at sim.Time
	for i, k := 1, 1; i < len(a) && k < len(b); {
		from, to := list[len(list)-1].Op, min(a[i].Op, b[k].Op)
		part := func(x, y profilers.Border) sim.Time {
			return mulDiv(uint64(y.At-x.At), uint64(to-from), uint64(y.Op-x.Op))
		}
		at += min(part(a[i-1], a[i]), part(b[k-1], b[k]))
		list = append(list, profilers.Border{Op: to, At: at})
		if a[i].Op == to {
			i++
		}
		if b[k].Op == to {
			k++
		}
	}
	return list
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
