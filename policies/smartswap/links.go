package smartswap

import (
	"cmp"
	"slices"
	"sort"

	"smartswap/sim"
)

// The planner of our own: instead of asking whether a copy fits into one stage,
// it books copies on the two directions of the link over as many stages as they
// take, and counts as relieved what lies between the end of the way out and the
// start of the way back. It differs from the shipped selection in four points.
//
//   - A way out may last through many stages; the memory counts as free when it
//     has ended. Shipped: it must fit the stage of the last use, and memory
//     counts as free from the next stage on.
//   - A way back starts as late as its bookings allow. Shipped: one stage
//     before the use, or, delayed, in any earlier stage with room.
//   - The directions have a ledger each. Shipped: one for both.
//   - Among candidates that relieve the operator in question, those come first
//     that relieve most operators, per byte: what is used first in forward and
//     last in backward, and optimizer states. Shipped: a score of coverage and
//     size.
//
// Like the shipped planner it knows nothing but the operator count and the
// duration of an iteration.
type linkPlanner struct {
	grid            *grid
	options         *Options
	memory          *demand
	all             []Candidate // best first
	fates           []fate
	needs           *needs
	out, in         *ledger
	outRate, inRate int64 // MiB/s
	rounds          int
	chosen          []int32
}

// planLinks chooses from candidates, best first.
func planLinks(g *grid, m *demand, o *Options, in Input, candidates []Candidate) attempt {
	for i := range candidates {
		g.cover(&candidates[i], m)
	}
	slices.SortStableFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(b.end-b.start, a.end-a.start),
			cmp.Compare(b.Bytes, a.Bytes),
			cmp.Compare(a.OutOp, b.OutOp),
			cmp.Compare(a.Tensor, b.Tensor),
		)
	})
	times := newStageTimes(g, in.Duration, in.Borders, true)
	p := &linkPlanner{
		grid: g, options: o, memory: m, outRate: in.Out, inRate: in.In, all: candidates, fates: make([]fate, len(candidates)),
		needs: newNeeds(m.need), out: newLedger(times.left), in: newLedger(times.left),
	}
	p.run()
	_, short := p.needs.greatest()
	a := attempt{short: max(0, short), rounds: p.rounds}
	for _, i := range p.chosen {
		a.chosen = append(a.chosen, &p.all[i])
	}
	return a
}

// run relieves the operator with the greatest need, candidate by candidate,
// until there is none or nobody can. First come swaps that hide behind
// compute; where these do not suffice, swaps for whose way out compute will
// have to wait.
func (p *linkPlanner) run() {
	hidden := newStab(len(p.memory.ops), p.all, func(i int32) bool { return p.fates[i] != open })
	forced := newStab(len(p.memory.ops), p.all, func(i int32) bool { return p.fates[i] >= selected })
	for len(p.memory.ops) > 0 {
		at, need := p.needs.greatest()
		if need <= 0 {
			return
		}
		p.rounds++
		i := hidden.best(at)
		if i >= 0 && !p.hide(i, at) {
			p.fates[i] = late
			continue
		}
		if i < 0 {
			if i = forced.best(at); i < 0 {
				return
			}
			if !p.force(i, at) {
				p.fates[i] = excluded
				continue
			}
		}
		p.fates[i] = selected
		p.chosen = append(p.chosen, i)
		c := &p.all[i]
		p.needs.reduce(c.start, c.end, c.Bytes)
	}
}

// hide books both ways of candidate i if that relieves operator at. The
// ledgers only ever fill up, so a candidate that fails would fail again.
func (p *linkPlanner) hide(i, at int32) bool {
	c := &p.all[i]
	t, u := transfer(c.Bytes, p.outRate), transfer(c.Bytes, p.inRate)
	gone, ok := p.out.forward(c.out, t)
	if !ok {
		return false
	}
	back, ok := c.in, true
	if !c.chunked { // chunks move inside the optimizer phase
		back, ok = p.in.backward(c.in-1, u)
	}
	tried := *c
	if !ok || !tried.place(p, gone+1, back) || at < tried.start || at >= tried.end {
		return false
	}
	p.out.bookForward(c.out, t)
	if !c.chunked {
		p.in.bookBackward(c.in-1, u)
	}
	*c = tried
	return true
}

// force takes candidate i although its way out will not have ended when
// operator at needs the memory: compute waits there. It tells whether there is
// anything to gain.
func (p *linkPlanner) force(i, at int32) bool {
	c := &p.all[i]
	c.Delayed = true
	gone := max(c.out+1, p.grid.of[p.memory.ops[at]])
	if c.chunked {
		return c.place(p, gone, c.in)
	}
	u := transfer(c.Bytes, p.inRate)
	back, ok := p.in.backward(c.in-1, u)
	if ok && back-int32(p.options.InAhead) > gone {
		p.in.bookBackward(c.in-1, u)
	} else {
		back = c.in
	}
	return c.place(p, gone, back)
}

// place settles the stages of a swap whose memory is free from stage gone on
// and whose way back begins in stage back, and what that relieves. It tells
// whether anything is free in between.
//
// Estimates need margins: the way back begins InAhead stages early, and what
// was freed is released FreeDelay stages late. If its memory is needed before,
// it is given back before, whatever the plan says.
func (c *Candidate) place(p *linkPlanner, gone, back int32) bool {
	back -= int32(p.options.InAhead) // of chunks, the first two come then
	if gone >= back {
		return false
	}
	c.inAt, c.inFree = back, c.in
	c.free = min(gone+int32(p.options.FreeDelay), back-1)
	first := func(stage int32) int32 {
		i := sort.Search(len(p.memory.ops), func(i int) bool { return p.memory.ops[i] >= p.grid.first[stage] })
		return int32(i)
	}
	c.start, c.end = first(gone), first(back)
	return true
}

// ledger holds the time that one direction of the link has left in each stage.
// Stages without time are skipped by pointers that are shortened on the way,
// so that bookings cost O(stages touched), nearly.
type ledger struct {
	left       []sim.Time
	next, prev []int32 // a stage with time left at or after, at or before; n and -1 are none
}

func newLedger(left []sim.Time) *ledger {
	l := &ledger{left: slices.Clone(left)}
	for i := range int32(len(left)) {
		l.next, l.prev = append(l.next, i), append(l.prev, i)
	}
	return l
}

// ahead is the first stage from s on with time left, len(left) if there is
// none; behind the last one up to s, or -1.
func (l *ledger) ahead(s int32) int32 {
	n := int32(len(l.left))
	for s < n && l.left[s] <= 0 {
		if l.next[s] == s {
			l.next[s] = s + 1
		}
		if t := l.next[s]; t < n {
			l.next[s] = l.next[t]
			if l.next[s] == t && l.left[t] <= 0 {
				l.next[s] = t + 1
			}
		}
		s = l.next[s]
	}
	return s
}

func (l *ledger) behind(s int32) int32 {
	for s >= 0 && l.left[s] <= 0 {
		if l.prev[s] == s {
			l.prev[s] = s - 1
		}
		if t := l.prev[s]; t >= 0 {
			l.prev[s] = l.prev[t]
			if l.prev[s] == t && l.left[t] <= 0 {
				l.prev[s] = t - 1
			}
		}
		s = l.prev[s]
	}
	return s
}

// forward is the stage in which t of copying ends if it begins in stage s;
// false if the iteration has not that much left.
func (l *ledger) forward(s int32, t sim.Time) (int32, bool) {
	for s = l.ahead(s); int(s) < len(l.left); s = l.ahead(s + 1) {
		if t -= l.left[s]; t <= 0 {
			return s, true
		}
	}
	return 0, false
}

// bookForward takes t from stage s on.
func (l *ledger) bookForward(s int32, t sim.Time) {
	for s = l.ahead(s); int(s) < len(l.left) && t > 0; s = l.ahead(s) {
		d := min(t, l.left[s])
		l.left[s] -= d
		t -= d
	}
}

// backward is the stage in which t of copying must begin to end with stage s.
func (l *ledger) backward(s int32, t sim.Time) (int32, bool) {
	for s = l.behind(s); s >= 0; s = l.behind(s - 1) {
		if t -= l.left[s]; t <= 0 {
			return s, true
		}
	}
	return 0, false
}

// bookBackward takes t up to stage s.
func (l *ledger) bookBackward(s int32, t sim.Time) {
	for s = l.behind(s); s >= 0 && t > 0; s = l.behind(s) {
		d := min(t, l.left[s])
		l.left[s] -= d
		t -= d
	}
}
