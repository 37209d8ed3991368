package g10

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"

	"smartswap/policies"
	"smartswap/sim"
)

// Move is a planned round trip.
type Move struct {
	Period
	Tier policies.TierID
	// Written is the kernel in which the way out ends, Latest the last one at
	// which the way in may begin, Read the one at which it does, after it was
	// pulled forward. All count on after the last kernel if the period is
	// looped.
	Written, Latest, Read int32
}

// Schedule is a plan.
type Schedule struct {
	Kernels int32
	Moves   []Move // in the order in which they were chosen
	// Allocs are planned allocations of locals, with the kernel that asks for
	// it; Frees the kernel before which the memory of the same locals goes:
	// Kernels stands for the first of the next iteration.
	Allocs, Frees []At
	// Estimate is the device memory at each kernel under the plan, as the
	// planner reckons.
	Estimate []sim.Bytes
	Met      bool // the estimate is below the line everywhere
	Periods  int  // inactive periods found
}

// At is something that concerns a tensor at a kernel.
type At struct{ Tensor, Kernel int32 }

// Plan plans one iteration. Errors are about the machine, or a program without
// kernels. It is deterministic and takes O(P log P log N + (T + M) N log N) for
// N kernels, T tensors, P periods and M moves, as long as benefits are seldom
// out of date: each time one is, it is computed again.
func Plan(p *policies.Nominal, m Machine) (*Schedule, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	if err := checkNominal(p); err != nil {
		return nil, err
	}
	pl := &planner{p: p, m: m, clock: newClock(p), s: &Schedule{Kernels: int32(len(p.Kernels))}}
	pl.estimate()
	pl.choose()
	pl.lastPass()
	pl.pullForward()
	pl.s.Estimate, pl.s.Met = pl.est.bytes, pl.est.met()
	return pl.s, nil
}

// checkNominal refuses programs that cannot be planned for.
func checkNominal(p *policies.Nominal) error {
	if p == nil || len(p.Kernels) == 0 {
		return fmt.Errorf("g10: the nominal program has no kernels")
	}
	for k := range p.Kernels {
		for _, t := range slices.Concat(p.Kernels[k].In, p.Kernels[k].Out) {
			if t < 0 || int(t) >= len(p.Tensors) {
				return fmt.Errorf("g10: kernel %d names tensor %d; there are %d", k, t, len(p.Tensors))
			}
		}
	}
	return nil
}

type planner struct {
	p     *policies.Nominal
	m     Machine
	clock clock
	est   *estimate
	first *policies.NominalTensor // local that lives; nil if there is none
	c     channels
	s     *Schedule
	rest  []*candidate // not chosen, for the last pass
}

// estimate subtracts local tensors outside their lives, in their order, until
// the line is met; these also get a planned allocation and free.
func (pl *planner) estimate() {
	p, n := pl.p, len(pl.p.Kernels)
	pl.est = newEstimate(p, pl.m.GPU, pl.m.line())
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if t.Global || t.Birth >= t.Death {
			continue
		}
		if pl.first == nil {
			pl.first = t
			if pl.m.KeepFirst {
				continue
			}
		}
		if pl.est.met() {
			break
		}
		need := sim.Time(mulDiv(uint64(pl.m.Alloc), uint64(t.Bytes), uint64(sim.MiB)))
		at := t.Birth
		for at > 0 && pl.clock[t.Birth]-pl.clock[at] < need {
			at--
		}
		pl.s.Allocs = append(pl.s.Allocs, At{int32(i), at})
		pl.s.Frees = append(pl.s.Frees, At{int32(i), t.Death})
		pl.est.add(0, int(at), -t.Bytes)
		pl.est.add(int(t.Death), n, -t.Bytes)
	}
}

// choose takes periods, best first, until the line is met.
func (pl *planner) choose() {
	all := periods(pl.p, pl.clock)
	pl.s.Periods = len(all)
	pl.channels()
	r := make(ranking, 0, len(all))
	for i, period := range all {
		if period.To-period.From == 1 {
			continue
		}
		c := &candidate{Period: period, number: i}
		c.lo, c.hi = pl.core(&period)
		c.weight = product(pl.p.Tensors[period.Tensor].Bytes, period.Length)
		c.benefit = pl.benefit(c)
		r = append(r, c)
	}
	heap.Init(&r)
	for len(r) > 0 && !pl.est.met() {
		c := r[0]
		if now := pl.benefit(c); now != c.benefit {
			c.benefit = now
			heap.Fix(&r, 0)
			continue
		}
		heap.Pop(&r)
		if pl.est.aboveCount.between(int(c.From), int(c.To)) == 0 {
			continue
		}
		if !pl.take(c) {
			pl.rest = append(pl.rest, c)
		}
	}
	for len(r) > 0 {
		pl.rest = append(pl.rest, heap.Pop(&r).(*candidate))
	}
}

// channels opens the ledgers.
func (pl *planner) channels() {
	pl.c = channels{linkOut: newLedger(pl.p, pl.m.Link), linkIn: newLedger(pl.p, pl.m.Link)}
	if pl.m.SSD > 0 {
		pl.c.ssdOut, pl.c.ssdIn = newLedger(pl.p, pl.m.SSD), newLedger(pl.p, pl.m.SSD)
	}
	pl.c.host = slices.Repeat([]sim.Bytes{pl.m.Host}, len(pl.p.Kernels))
}

// core is the part of a period that counts for its benefit: all of a looped
// one; of others the kernels between half written out and half read back.
func (pl *planner) core(x *Period) (lo, hi int) {
	lo, hi = int(x.From), int(x.To)
	if x.Looped {
		return lo, hi
	}
	half := way(pl.p.Tensors[x.Tensor].Bytes, pl.m.slowest()) / 2
	for lo < hi && pl.clock[lo]-pl.clock[x.From] < half {
		lo++
	}
	for hi > lo && pl.clock[x.To]-pl.clock[hi] < half {
		hi--
	}
	return lo, hi
}

// benefit is size x time over the line inside the core.
func (pl *planner) benefit(c *candidate) wide {
	return product(pl.p.Tensors[c.Tensor].Bytes, sim.Time(pl.est.overTime.between(c.lo, c.hi)))
}

// take plans the move of a period, if it is long enough and the channels have
// room.
func (pl *planner) take(c *candidate) bool {
	to, ok := pl.where(c)
	return ok && pl.move(c, to)
}

// where decides the tier; false = the period is too short for any.
func (pl *planner) where(c *candidate) (policies.TierID, bool) {
	m, size := &pl.m, pl.p.Tensors[c.Tensor].Bytes
	long := func(latency sim.Time, r sim.Rate) bool {
		one := latency + way(size, r)
		return c.Length > 2*one+sim.Time(m.Delta*float64(one))
	}
	host := func() bool { return m.Host > 0 && pl.c.fits(size, int(c.From), int(c.To)) }
	switch {
	case m.SSD > 0 && long(m.SSDLatency+m.SystemLatency, m.SSD):
		if pl.busy(c, size) && host() {
			return policies.HostTier, true
		}
		return policies.SSDTier, true
	case long(m.SystemLatency, m.Link) && host():
		return policies.HostTier, true
	}
	return 0, false
}

// busy tells whether the SSD takes nothing more between the start of the period
// and the kernel in which a write that has it alone would end; that kernel
// counts for looped periods only.
func (pl *planner) busy(c *candidate, size sim.Bytes) bool {
	n := int32(len(pl.p.Kernels))
	end := pl.clock[c.From] + way(size, pl.m.SSD)
	for k := c.From; k < c.To && (pl.clock[k+1] <= end || c.Looped && pl.clock[k] < end); k++ {
		if free(pl.c.ssdOut, pl.c.linkOut, int(k%n)) > 0 {
			return false
		}
	}
	return true
}

// move books the two ways of a period and lowers the estimate between them. One
// that is not looped moves when the channels have room, and must lower the
// estimate where it is at or above the line. A looped one goes by plain times and
// takes what the channels have left. A read from the SSD waits for a free link, but
// takes nothing of it from others.
func (pl *planner) move(c *candidate, to policies.TierID) bool {
	size := pl.p.Tensors[c.Tensor].Bytes
	mv := Move{Period: c.Period, Tier: to}
	out, in := ledger(nil), ledger(nil)
	if to == policies.SSDTier {
		out, in = pl.c.ssdOut, pl.c.ssdIn
	}
	lo, hi := int(c.From), int(c.To)
	written, wrote := pl.c.try(out, pl.c.linkOut, size, lo, 1, lo, hi)
	writes := slices.Clone(pl.c.booking)
	begins, reads := pl.c.try(in, pl.c.linkIn, size, hi-1, -1, lo, hi)
	if c.Looped {
		if !pl.plain(&mv, size) {
			return false
		}
	} else {
		if !wrote || !reads || begins <= written || pl.est.aboveCount.between(written+1, begins) == 0 {
			return false
		}
		mv.Written, mv.Read = int32(written), int32(begins)
	}
	pl.c.linkOut.book(writes)
	if to == policies.SSDTier {
		out.book(writes)
		in.book(pl.c.booking)
	} else {
		pl.c.linkIn.book(pl.c.booking)
		for k := lo; k < hi; k++ {
			pl.c.host[k%len(pl.c.host)] -= size
		}
	}
	pl.accept(mv)
	return true
}

// accept adds a move, whose ways are placed, and lowers the estimate.
func (pl *planner) accept(mv Move) {
	mv.Latest = mv.Read
	pl.est.add(int(mv.Written)+1, int(mv.Read), -pl.p.Tensors[mv.Tensor].Bytes)
	pl.s.Moves = append(pl.s.Moves, mv)
}

// plain places the ways of a period by plain times, whatever else moves: out at
// its start, in (1 + delta) ways before its end. False if that leaves nothing in
// between.
func (pl *planner) plain(mv *Move, size sim.Bytes) bool {
	one := pl.m.SystemLatency + way(size, pl.m.Link)
	if mv.Tier == policies.SSDTier {
		one = pl.m.SSDLatency + pl.m.SystemLatency + way(size, pl.m.SSD)
	}
	written := mv.From
	for pl.clock[written+1]-pl.clock[mv.From] < one {
		if written++; written >= mv.To-1 {
			return false
		}
	}
	ahead := one + sim.Time(pl.m.Delta*float64(one))
	read := mv.To - 1
	for pl.clock[mv.To]-pl.clock[read] < ahead {
		if read--; read <= written {
			return false
		}
	}
	mv.Written, mv.Read = written, read
	return read > written
}

// lastPass evicts to the SSD what covers the fullest kernel, largest size x
// length first, until that kernel is low enough. Channels are not asked: ways go by
// plain times.
func (pl *planner) lastPass() {
	if pl.m.LastPass == 0 {
		return
	}
	full := pl.est.fullest()
	target := sim.Bytes(pl.m.LastPass * float64(pl.m.line()))
	slices.SortStableFunc(pl.rest, func(a, b *candidate) int {
		return cmp.Or(b.weight.compare(a.weight), cmp.Compare(a.number, b.number))
	})
	for _, c := range pl.rest {
		if pl.est.bytes[full] < target {
			return
		}
		mv := Move{Period: c.Period, Tier: policies.SSDTier}
		if !c.Looped && pl.plain(&mv, pl.p.Tensors[c.Tensor].Bytes) && int(mv.Written) < full && full < int(mv.Read) {
			pl.accept(mv)
		}
	}
}

// pullForward moves reads to earlier kernels, as long as the kernel before has
// room below the line and the write has ended; the first to be read first, of
// equal ones the one used first.
func (pl *planner) pullForward() {
	order := make([]*Move, 0, len(pl.s.Moves))
	for i := range pl.s.Moves {
		if !pl.s.Moves[i].Looped {
			order = append(order, &pl.s.Moves[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *Move) int { return cmp.Or(cmp.Compare(a.Read, b.Read), cmp.Compare(a.To, b.To)) })
	for _, mv := range order {
		size := pl.p.Tensors[mv.Tensor].Bytes
		room := size
		if pl.m.KeepFirst && pl.first != nil {
			room = pl.first.Bytes
		}
		for mv.Read-1 > mv.Written && pl.est.bytes[mv.Read-1]+room < pl.est.line {
			mv.Read--
			pl.est.set(int(mv.Read), pl.est.bytes[mv.Read]+size)
		}
	}
}

// Hints are the actions of a schedule, by operator; at one operator frees come
// first, then evictions, prefetches and allocations.
func (s *Schedule) Hints() []policies.Action { return s.hints(true) }

// MoveHints are the evictions and prefetches among Hints.
func (s *Schedule) MoveHints() []policies.Action { return s.hints(false) }

func (s *Schedule) hints(memory bool) []policies.Action {
	type hint struct {
		kernel int32
		order  int
		a      policies.Action
	}
	var list []hint
	add := func(order int, kind policies.Kind, tensor, kernel int32, to policies.TierID) {
		kernel %= s.Kernels
		list = append(list, hint{kernel, order, policies.Action{
			Kind: kind, To: to,
			What:  policies.Selector{Kind: policies.ByStatic, Static: tensor},
			Start: policies.Trigger{Kind: policies.AtOp, N: kernel},
		}})
	}
	for _, f := range s.Frees {
		if memory {
			add(0, policies.Discard, f.Tensor, f.Kernel, 0)
		}
	}
	for _, m := range s.Moves {
		add(1, policies.Evict, m.Tensor, m.From, m.Tier)
	}
	for _, m := range s.Moves {
		add(2, policies.Prefetch, m.Tensor, m.Read, m.Tier)
	}
	for _, a := range s.Allocs {
		if memory {
			add(3, policies.Prefetch, a.Tensor, a.Kernel, 0)
		}
	}
	slices.SortStableFunc(list, func(a, b hint) int {
		return cmp.Or(cmp.Compare(a.kernel, b.kernel), cmp.Compare(a.order, b.order))
	})
	out := make([]policies.Action, len(list))
	for i := range list {
		out[i] = list[i].a
	}
	return out
}
