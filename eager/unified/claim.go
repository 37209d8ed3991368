package unified

import (
	"slices"

	"smartswap/eager/stream"
	"smartswap/sim"
)

// claim is a kernel between its begin and its end on a device that several
// streams run kernels on.
type claim struct {
	use    use
	kernel kernel
	state  state
	fault  sim.Time // that its faults take
	told   bool     // that its pages have come
	begun  sim.Time // it came to the head of its stream
	held   sim.Time // it got its room
	ran    sim.Time // its own time had passed
}

type state uint8

const (
	absent  state = iota
	queued        // waits for room
	coming        // has room; its pages are on their way, or their faults take time
	ready         // its pages are there
	passing       // coming, and its own time has passed
)

// deferred is what a kernel of the compute stream brought about for a storage
// that communication before a point still uses.
type deferred struct {
	before stream.Point
	id     int32
	dies   bool // else hint
	hint   hint
}

// Arguments of the memory's own events; those of a stream are added to it.
const (
	argEnd   uint32 = iota << 8 // of the only kernel
	argBatch                    // go on with the batches
	argThere                    // the last page of a kernel has come
	argRun                      // a kernel runs
	argDone                     // a kernel ends
)

// Share tells, before any of them is issued, that kernels of several streams
// will come.
func (m *Memory) Share() { m.shared = true }

// claim begins a kernel beside those of other streams.
func (m *Memory) claim(s stream.ID, u *use) stream.Start {
	now := m.eng.Now()
	d := m.driver
	c := &m.claims[s]
	operands, all := append(c.use.operands[:0], u.operands...), append(c.use.Operands[:0], u.Operands...)
	*c = claim{use: *u, begun: now}
	c.use.operands, c.use.Operands, c.use.dead = operands, all, nil
	c.kernel = kernel{operands: operands, span: int64(u.Span), times: Profiled{u.Span, u.Inputs, u.All}}
	var pages int64
	for i := range operands {
		pages += int64(operands[i].pages)
	}
	if room := d.book.room[device]; d.homeless || pages > room {
		m.fail(u, &stuckError{pages: pages, room: room, full: d.homeless})
		return stream.Waits
	}
	for i := range operands {
		m.cancel(operands[i].id, u.Point())
	}
	if u.Communicates {
		d.advance(int64(now))
		if m.paging.Lookahead > 0 {
			m.learn(u)
		}
	} else {
		k := m.turn(u)
		for _, x := range u.dead {
			switch {
			case m.last(x.id).Iteration > x.at.Iteration: // it is another one by now
			case m.busy(x.id, x.at):
				m.later = append(m.later, deferred{before: x.at, id: x.id, dies: true})
			default:
				k.dead = append(k.dead, x.id)
			}
		}
		d.turn(int64(now), k)
	}
	m.reach(&c.use)
	c.state = queued
	m.line = append(m.line, s)
	if m.admit(s) {
		return stream.Runs
	}
	return stream.Waits
}

// admit gives room to the kernels that wait for it, first come first served: one
// whose operands do not fit beside what is held waits for an end, and all behind
// it. It tells whether the kernel of stream begins, in whose begin this is, may
// run at once; it is none of the streams otherwise.
func (m *Memory) admit(begins stream.ID) (runs bool) {
	now := m.eng.Now()
	for len(m.line) > 0 && m.driver.fits(&m.claims[m.line[0]].kernel) {
		s := m.line[0]
		m.line = m.line[:copy(m.line, m.line[1:])]
		c := &m.claims[s]
		c.held, c.state = now, coming
		c.fault = sim.Time(m.driver.hold(s, &c.kernel))
		start := now
		if m.driver.holds[s].missing == 0 {
			start = m.there(s)
		} else if c.use.Communicates {
			continue
		}
		if s == begins && start == now {
			runs = true
		} else {
			m.eng.At(start, sim.PrioDevice, m.self, argRun|uint32(s))
		}
	}
	m.proceed()
	return runs
}

// there tells that all pages of a kernel have come, and returns when it may
// start if it waits for that.
func (m *Memory) there(s stream.ID) sim.Time {
	c := &m.claims[s]
	c.told = true
	m.driver.use(&c.kernel)
	if m.checks != nil {
		m.check(&c.use)
	}
	now := m.eng.Now()
	if c.state == passing {
		m.eng.At(max(now, c.ran+c.fault), sim.PrioFinish, m.self, argDone|uint32(s))
		return now
	}
	c.state = ready
	if c.use.Communicates {
		return max(now, c.held+c.fault)
	}
	return now
}

// Ran implements stream.Residency.
func (m *Memory) Ran(s stream.ID) (wait sim.Time, ended bool) {
	c := &m.claims[s]
	c.ran = m.eng.Now()
	switch {
	case c.use.Communicates:
		m.end(s)
		return 0, true
	case c.state == coming:
		c.state = passing
		return 0, false
	case c.fault > 0:
		m.eng.At(c.ran+c.fault, sim.PrioFinish, m.self, argDone|uint32(s))
		return 0, false
	}
	return m.end(s), true
}

// end lets go of what a kernel held, and does what waited for that. It returns
// for how long a kernel of the compute stream stood still.
func (m *Memory) end(s stream.ID) (wait sim.Time) {
	c, d, now := &m.claims[s], m.driver, m.eng.Now()
	d.advance(int64(now))
	if m.checks != nil {
		m.check(&c.use)
	}
	d.release(s, &c.kernel)
	c.state = absent
	m.outstanding.Ended(s)
	if c.use.Communicates {
		d.die(int32(s)) // its workspace
	} else {
		wait = now - c.begun - (c.ran - c.held)
		d.counts.stalled += int64(wait)
	}
	later := m.later
	m.later = m.later[:0]
	for _, l := range later {
		switch {
		case m.busy(l.id, l.before):
			m.later = append(m.later, l)
		case d.book.at(l.id).held != 0: // by that kernel itself
		case l.dies:
			d.die(l.id)
		default:
			d.hint(&l.hint)
		}
	}
	m.admit(stream.Count)
	return wait
}

// Handle serves the memory's own events.
func (m *Memory) Handle(arg uint32, _ sim.Stamp) {
	s := stream.ID(arg & 0xff)
	switch arg &^ 0xff {
	case argEnd:
		m.dev.Complete(stream.Compute, m.wait)
	case argBatch:
		m.waking = false
		m.move()
	case argThere:
		if start := m.there(s); m.claims[s].use.Communicates {
			m.eng.At(start, sim.PrioDevice, m.self, argRun|uint32(s))
		}
	case argRun:
		m.dev.Run(s)
	case argDone:
		m.dev.Complete(s, m.end(s))
	}
}

// arrivals sees to it that kernels go on whose last page has come in the batches
// that have run.
func (m *Memory) arrivals() {
	for s := range m.claims {
		c, h := &m.claims[s], &m.driver.holds[s]
		if (c.state == coming || c.state == passing) && !c.told && h.missing == 0 {
			c.told = true
			m.eng.At(max(m.eng.Now(), sim.Time(h.arrived)), sim.PrioFinish, m.self, argThere|uint32(s))
		}
	}
}

// proceed sees to it that batches go on while a kernel waits for pages.
func (m *Memory) proceed() {
	m.arrivals()
	if m.driver.hungry() && !m.waking {
		m.waking = true
		m.eng.At(max(m.eng.Now(), sim.Time(m.driver.tick)), sim.PrioHost, m.self, argBatch)
	}
}

// move runs batches up to the next event, before which nothing else can ask for
// pages, or until the last page of a kernel has come. If nothing can move, the
// next kernel that begins or ends takes it up again.
func (m *Memory) move() {
	d := m.driver
	for d.hungry() {
		most := int64(1) << 40
		if next, ok := m.eng.Next(); ok {
			if int64(next) < d.tick {
				m.proceed()
				return
			}
			most = (int64(next)-d.tick)/d.limits.ticks + 1
		}
		done := d.batches(most)
		if done == 0 {
			return
		}
		d.tick += done * d.limits.ticks
		m.arrivals()
	}
}

// busy tells whether communication that comes before a point still uses a storage.
func (m *Memory) busy(id int32, before stream.Point) bool {
	return id >= firstStorage && m.outstanding.Busy(id-firstStorage, before)
}

// reach notes that a kernel has begun with its operands. What communication of a
// later iteration begins with has died before.
func (m *Memory) reach(u *use) {
	at := u.Point()
	for i := range u.Operands {
		o := &u.Operands[i]
		id := numberOn(u.On, o.Storage)
		if u.Communicates && !o.Resident && m.last(id).Iteration < at.Iteration {
			m.driver.die(id)
		}
		for int(id) >= len(m.reached) {
			m.reached = append(m.reached, stream.Point{})
		}
		if m.reached[id].Before(at) {
			m.reached[id] = at
		}
	}
}

// last is the last kernel, of those begun, with a storage.
func (m *Memory) last(id int32) stream.Point {
	if int(id) < len(m.reached) {
		return m.reached[id]
	}
	return stream.Point{}
}

// due tells whether h, a hint of operator hinted of iteration hinting, is to be
// followed now, and sees to it otherwise. It is void if communication behind the
// operator has the storage already, which is another one by then if the iteration
// has ended. What communication up to the operator still uses does not leave
// before that has ended.
func (m *Memory) due(h *hint) bool {
	at := stream.Point{Iteration: m.hinting, Index: m.hinted}
	behind := stream.Point{Iteration: m.hinting, Index: m.hinted + 1}
	m.cancel(h.id, behind)
	switch {
	case at.Before(m.last(h.id)):
		return false
	case !m.busy(h.id, behind):
		return true
	case h.kind != arrive:
		m.later = append(m.later, deferred{before: behind, id: h.id, hint: *h})
		return false
	}
	return m.driver.book.at(h.id).pages == h.pages
}

// cancel forgets the hints of operators before one that were put off for a
// storage: it has been asked for again.
func (m *Memory) cancel(id int32, one stream.Point) {
	m.later = slices.DeleteFunc(m.later, func(l deferred) bool { return !l.dies && l.id == id && !one.Before(l.before) })
}

// Stuck is what a run waits for for ever in which nothing happens any more: a
// *Failure, nil if it is not for memory.
func (m *Memory) Stuck() error {
	for s := range m.claims {
		if c := &m.claims[s]; c.state != absent && m.driver.holds[s].missing > 0 {
			return &Failure{Iteration: c.use.Iteration, Index: c.use.Index, Capacity: m.opt.Device, Full: true}
		}
	}
	return nil
}
