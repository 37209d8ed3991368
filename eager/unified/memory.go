package unified

import (
	"errors"
	"fmt"

	"smartswap/eager/stream"
	"smartswap/policies"
	"smartswap/sim"
)

// Memory is unified memory for one device: a stream.Residency. A storage has
// addresses of its own: one with the same number and size in the next iteration
// finds what is left of its pages there, as with an allocator that hands out
// the same addresses again.
type Memory struct {
	opt    Options
	paging policies.Paging
	driver *driver
	eng    *sim.Engine
	dev    *stream.Device
	self   sim.HandlerID
	failed func(error)
	size   func(storage int32) sim.Bytes

	hints [][]hint // by operator of an iteration
	// Those of operators below hinted have been followed in iteration hinting.
	hinted  int32
	hinting int
	queues  [stream.Count]queue // issued
	wait    sim.Time            // of the running kernel, while it is the only one
	kernel  kernel              // scratch memory of Begin
	checks  func(format string, args ...any)

	// Once kernels of several streams run: see claim.go.
	shared      bool
	claims      [stream.Count]claim
	line        []stream.ID // claims that wait for room, in order
	later       []deferred
	reached     []stream.Point // by driver's number: the last kernel, of those begun, with the storage
	outstanding stream.Outstanding
	waking      bool // an event goes on with the batches

	// What Lookahead goes by: the operands of each kernel of the iteration
	// before, and of this one.
	learned, learning [][]int32
	iteration         int
	early             []note // of operators of the next iteration
}

// note is what an operator touched.
type note struct {
	iteration int
	index     int32
	ids       []int32
}

// use is an issued kernel with copies of what its Use points to.
type use struct {
	stream.Use
	operands []operand
	dead     []death
}

// death is a stream.Death with the driver's number.
type death struct {
	id int32
	at stream.Point
}

// queue are the kernels issued on a stream that have not begun: those from next
// on.
type queue struct {
	uses []use
	next int
}

// add appends a use, with the slices of an older one.
func (q *queue) add() *use {
	if q.next > 0 && q.next == len(q.uses) {
		q.uses, q.next = q.uses[:0], 0
	}
	if len(q.uses) < cap(q.uses) {
		q.uses = q.uses[:len(q.uses)+1]
	} else {
		q.uses = append(q.uses, use{})
	}
	return &q.uses[len(q.uses)-1]
}

// take is the oldest use, and removes it.
func (q *queue) take() *use {
	q.next++
	return &q.uses[q.next-1]
}

// Failure is how a run on unified memory ends that cannot go on.
type Failure struct {
	Iteration int
	Index     int32     // operator of the iteration
	Need      sim.Bytes // its operands
	Capacity  sim.Bytes // of the device
	Full      bool      // nothing can leave the device: host and SSD are full
}

// Error is one line.
func (f *Failure) Error() string {
	if f.Full {
		return fmt.Sprintf("unified memory: iteration %d, operator %d: nothing can leave the device, host and SSD are full", f.Iteration, f.Index)
	}
	return fmt.Sprintf("unified memory: iteration %d, operator %d: its operands have %d bytes, the device %d", f.Iteration, f.Index, f.Need, f.Capacity)
}

// New makes the memory of dev and gives it to it. size is that of a storage of
// the nominal program, for plans; 0 = there is none. residents are the sizes of
// the storages that exist from the start, numbered from 0: they lie in the
// lowest tier, as after loading a checkpoint. failed is told once, when a
// kernel can never run: a *Failure. checks, if there is one, is told of broken
// invariants, which are then looked for at every kernel.
func New(opt Options, paging policies.Paging, eng *sim.Engine, dev *stream.Device, residents []sim.Bytes, size func(int32) sim.Bytes, failed func(error), checks func(string, ...any)) (*Memory, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("unified memory: %w", err)
	}
	if opt.TicksPerSecond != int64(sim.Second) {
		return nil, fmt.Errorf("unified memory: %d ticks per second: a run has picoseconds", opt.TicksPerSecond)
	}
	m := &Memory{opt: opt, paging: paging, driver: newDriver(opt, paging), eng: eng, dev: dev, size: size, failed: failed, checks: checks}
	for i, b := range residents {
		m.driver.own(number(int32(i)), m.pages(b))
	}
	m.self = eng.Register(m)
	dev.SetResidency(m)
	return m, nil
}

// firstStorage is the driver's number of storage 0. Those before are workspaces,
// one for each stream.
const firstStorage = int32(stream.Count)

// number is the driver's for a storage.
func number(storage int32) int32 { return firstStorage + storage }

// numberOn is the driver's number for an operand of a kernel of stream s.
func numberOn(s stream.ID, storage int32) int32 {
	if storage == stream.Scratch {
		return int32(s)
	}
	return number(storage)
}

// Arm replaces the plan: its hints are queued when their kernels begin, in
// every iteration that follows. nil disarms.
func (m *Memory) Arm(p *policies.Plan) error {
	m.hints = nil
	if p == nil {
		return nil
	}
	if len(p.Swaps) > 0 {
		return errors.New("unified memory: a plan with swaps: want hints")
	}
	for i := range p.Hints {
		a := &p.Hints[i]
		if a.What.Kind != policies.ByStatic || a.What.Static < 0 || a.Start.Kind != policies.AtOp || a.Start.N < 0 {
			return fmt.Errorf("unified memory: hint %d: want a tensor by its static id, at an operator", i)
		}
		h := hint{id: number(a.What.Static), pages: m.pages(m.size(a.What.Static))}
		if h.pages == 0 {
			return fmt.Errorf("unified memory: hint %d: the nominal program has no tensor %d", i, a.What.Static)
		}
		switch a.Kind {
		case policies.Evict:
			h.kind, h.to = leave, host
			if a.To == policies.SSDTier {
				h.to = ssd
			}
			if h.to == ssd && m.opt.SSDRate == 0 || a.To > policies.SSDTier {
				return fmt.Errorf("unified memory: hint %d: there is no tier %d", i, a.To)
			}
		case policies.Prefetch:
			h.kind = arrive
		case policies.Discard:
			h.kind = vanish
		default:
			return fmt.Errorf("unified memory: hint %d: want an Evict, Prefetch or Discard", i)
		}
		for int(a.Start.N) >= len(m.hints) {
			m.hints = append(m.hints, nil)
		}
		m.hints[a.Start.N] = append(m.hints[a.Start.N], h)
	}
	return nil
}

// Issued implements stream.Residency.
func (m *Memory) Issued(u *stream.Use) {
	q := m.queues[u.On].add()
	all := append(q.Operands[:0], u.Operands...)
	m.outstanding.Issued(u)
	q.Use = *u
	q.Operands, q.Dead = all, nil
	q.operands, q.dead = q.operands[:0], q.dead[:0]
	for _, o := range u.Operands {
		q.operands = m.operand(q.operands, u.On, &o)
	}
	for _, d := range u.Dead {
		q.dead = append(q.dead, death{numberOn(u.On, d.Storage), d.At})
	}
}

// Earlier implements stream.Residency.
func (m *Memory) Earlier(u *stream.Use, f func(stream.Event)) { m.outstanding.Earlier(u, f) }

// pages is how many a storage has.
func (m *Memory) pages(size sim.Bytes) int32 { return int32((size + m.opt.Page - 1) / m.opt.Page) }

// operand appends o, unless the storage is there already.
func (m *Memory) operand(list []operand, s stream.ID, o *stream.Operand) []operand {
	id := numberOn(s, o.Storage)
	for i := range list {
		if list[i].id == id {
			list[i].read = list[i].read || o.Read
			list[i].write = list[i].write || o.Write
			return list
		}
	}
	return append(list, operand{id: id, pages: m.pages(o.Bytes), read: o.Read, write: o.Write})
}

// Begin implements stream.Residency: as long as kernels come from one stream
// alone, the driver works out when the kernel ends.
func (m *Memory) Begin(s stream.ID) stream.Start {
	u := m.queues[s].take()
	if m.shared {
		return m.claim(s, u)
	}
	k := m.turn(u)
	for _, d := range u.dead {
		k.dead = append(k.dead, d.id)
	}
	now := m.eng.Now()
	end, err := m.driver.run(int64(now), k)
	if err != nil {
		m.fail(u, err)
		return stream.Waits
	}
	if m.checks != nil {
		m.check(u)
	}
	m.wait = sim.Time(end) - now - u.Span
	if sim.Time(end) == now {
		return stream.Ended
	}
	m.eng.At(sim.Time(end), sim.PrioFinish, m.self, argEnd)
	return stream.Waits
}

// turn is a kernel of the compute stream as the driver takes it, without what
// has died. Hints, predictions and the age of what was learned go by that
// stream: hints of operators that are no kernels of it come with the next one
// that is.
func (m *Memory) turn(u *use) *kernel {
	k := &m.kernel
	*k = kernel{operands: u.operands, dead: k.dead[:0], hints: k.hints[:0], ahead: k.ahead[:0], spare: k.spare[:0], span: int64(u.Span), times: Profiled{u.Span, u.Inputs, u.All}}
	if u.Iteration != m.hinting {
		if m.shared && int(m.hinted) < len(m.hints) { // the last operators communicate
			m.follow(k, int32(len(m.hints))-1)
		}
		m.hinting, m.hinted = u.Iteration, 0
	}
	m.follow(k, u.Index)
	if m.paging.Lookahead > 0 {
		m.learn(u)
		k.ahead = append(k.ahead, m.expected(u.Index+m.paging.Lookahead)...)
		for i := range m.paging.Lookahead {
			k.spare = append(k.spare, m.expected(u.Index+i)...)
		}
	}
	return k
}

// follow gives kernel k of the compute stream the hints up to operator index of
// iteration hinting.
func (m *Memory) follow(k *kernel, index int32) {
	for ; m.hinted <= index; m.hinted++ {
		if int(m.hinted) >= len(m.hints) {
			continue
		}
		for _, h := range m.hints[m.hinted] {
			if !m.shared || m.due(&h) {
				k.hints = append(k.hints, h)
			}
		}
	}
}

func (m *Memory) fail(u *use, err error) {
	f := &Failure{Iteration: u.Iteration, Index: u.Index, Capacity: m.opt.Device}
	var stuck *stuckError
	if errors.As(err, &stuck) {
		f.Need, f.Full = sim.Bytes(stuck.pages)*m.opt.Page, stuck.full
	}
	m.failed(f)
}

// learn notes the operands of a kernel for the next iteration. Communication
// may be ahead of the compute stream, whose iteration counts, or behind.
func (m *Memory) learn(u *use) {
	if !u.Communicates && u.Iteration != m.iteration {
		m.iteration = u.Iteration
		m.learned, m.learning = m.learning, m.learned[:0]
		keep := m.early[:0]
		for _, n := range m.early {
			if n.iteration == m.iteration {
				m.learning = learned(m.learning, n.index, n.ids)
			} else {
				keep = append(keep, n)
			}
		}
		m.early = keep
	}
	var ids []int32
	for i := range u.operands {
		ids = append(ids, u.operands[i].id)
	}
	switch {
	case u.Iteration == m.iteration:
		m.learning = learned(m.learning, u.Index, ids)
	case u.Iteration > m.iteration:
		m.early = append(m.early, note{u.Iteration, u.Index, ids})
	case u.Iteration == m.iteration-1:
		m.learned = learned(m.learned, u.Index, ids)
	}
}

// learned is list with what operator i touched.
func learned(list [][]int32, i int32, ids []int32) [][]int32 {
	for int(i) >= len(list) {
		list = append(list, nil)
	}
	list[i] = ids
	return list
}

// expected is what the kernel at place i of this iteration, or behind its end
// in the next one, will touch if it is like the one before.
func (m *Memory) expected(i int32) []int32 {
	n := int32(len(m.learned))
	switch {
	case i < n:
		return m.learned[i]
	case n > 0 && i-n < int32(len(m.learning)):
		return m.learning[i-n]
	}
	return nil
}

// check looks for broken invariants when a kernel has what it needs and, on a
// device that communicates, when it ends.
func (m *Memory) check(u *use) {
	d := m.driver
	if err := d.book.check(); err != nil {
		m.checks("unified memory: iteration %d, operator %d: %v (2)", u.Iteration, u.Index, err)
	}
	if err := d.check(); err != nil {
		m.checks("unified memory: iteration %d, operator %d: %v (4)", u.Iteration, u.Index, err)
	}
	if d.stale != none {
		m.checks("unified memory: iteration %d, operator %d reads storage %d, whose content is not there (4)", u.Iteration, u.Index, d.stale-firstStorage)
	}
	if d.counts.longest > d.limits.in {
		m.checks("unified memory: %d pages in a batch of %d (7)", d.counts.longest, d.limits.in)
	}
}

// Ledger is what has happened up to the last kernel that has begun.
func (m *Memory) Ledger() stream.Ledger {
	c, page := &m.driver.counts, m.opt.Page
	bytes := func(pages int64) sim.Bytes { return sim.Bytes(pages) * page }
	l := stream.Ledger{
		Mapped: bytes(c.mapped), Dropped: bytes(c.dropped), Faults: c.faulted,
		Missed: bytes(c.faults[nowhere] + c.faults[host] + c.faults[ssd]),
		Device: bytes(m.driver.book.used[device]), PeakDevice: bytes(c.peak[device]),
	}
	for i, p := range [2]place{host, ssd} {
		l.In[i], l.Out[i], l.Peak[i] = bytes(c.in[p]), bytes(c.out[p]), bytes(c.peak[p])
		l.Tiers[i] = bytes(m.driver.book.used[p])
	}
	return l
}

// ResetPeaks starts the peaks anew.
func (m *Memory) ResetPeaks() { m.driver.counts.peak = m.driver.book.used }
