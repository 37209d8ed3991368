package direct

import (
	"fmt"
	"math/bits"
	"slices"

	"smartswap/eager/stream"
	"smartswap/policies"
	"smartswap/sim"
)

// Memory is device memory run by a planner. Make one with New and give it to
// stream.Device.SetResidency. It is for one device and one goroutine.
type Memory struct {
	eng    *sim.Engine
	dev    Device
	o      Options
	self   sim.HandlerID
	failed func(*NoRoom)
	moves  stream.Moves // told to those who watch

	loss    int32
	reserve sim.Bytes // the largest working set of a kernel, without scratch
	scratch sim.Bytes // the largest scratch of a kernel
	aside   span      // where it is
	uses    [][]int32 // Ahead: of each tensor the kernels that use it
	plan    *plan
	next    *plan // from the next iteration on

	free    ranges
	used    sim.Bytes
	tensors []tensor
	globals []int32
	queues  [tiers][directions]queue
	held    [tiers]sim.Bytes

	issued  [stream.Count]issued
	claims  [stream.Count]claim
	line    []stream.ID // those that wait for operands, in the order of their begin
	started bool        // globals are placed
	ahead   int         // Ahead: how many of plan.order are done with
	waiting []int32
	stats   Stats

	// Where the compute stream is: the iteration, the hints that have been
	// followed in it, and whether the backward pass has begun.
	iteration int
	hinted    int32
	backward  bool

	shared      bool // there are kernels that communicate
	outstanding stream.Outstanding
	later       []deferred
}

// Device is what the memory needs of a stream.Device.
type Device interface {
	Run(stream.ID)
	Complete(s stream.ID, wait sim.Time)
}

// claim is the kernel of a stream that has begun.
type claim struct {
	use
	phase phase
	began sim.Time
	held  sim.Time  // all operands were there
	lacks sim.Bytes // in one range, which are not free; 0 = none
}

// deferred is what a kernel of the compute stream brought about for a tensor
// that communication before a point still uses.
type deferred struct {
	before stream.Point
	id     int32
	to     policies.TierID // it leaves
	dies   bool            // or it dies
}

type phase uint8

const (
	idle    phase = iota
	getting       // it waits for its operands
	computing
)

// tensor is a storage of the program.
type tensor struct {
	bytes sim.Bytes
	at    span
	place place
	tier  policies.TierID // where its content is or goes, if not on the device
	// The write of a wanted tensor does not free its memory. A dead one frees
	// it when its transfer has ended.
	wanted, dead bool
	// reached is the last kernel, of those begun, with it.
	reached stream.Point
}

// place is where a tensor's content is.
type place uint8

const (
	nowhere place = iota // no content, no memory
	here                 // on the device
	leaving              // on the device, in a queue out
	away                 // on a tier
	coming               // on a tier, with device memory, in a queue in
	scratch              // scratch memory
)

// queue carries one tensor at a time, first come first served.
type queue struct {
	list []int32 // storages; the first is on its way if busy
	busy bool
}

// use is a copy of a stream.Use.
type use struct {
	stream.Point
	communicates bool
	span         sim.Time
	operands     []stream.Operand
	dead         []stream.Death
}

// issued are the kernels issued on a stream and not begun: those from first on.
type issued struct {
	uses  []use
	first int
}

// plan is a policies.Plan as the memory works with it.
type plan struct {
	hints [][]policies.Action // by kernel
	moved map[int32]bool      // tensors that it evicts
	order []need
}

// need is an evicted tensor and the first backward kernel that uses it.
type need struct{ tensor, kernel int32 }

// NoRoom is how a run ends that needs more memory than there is.
type NoRoom struct {
	Kernel         int32
	Need, Largest  sim.Bytes // bytes asked for in one range, and the largest free one
	Used, Capacity sim.Bytes
}

// Error says what was missing.
func (e *NoRoom) Error() string {
	return fmt.Sprintf("direct: kernel %d needs %d bytes in one range; the largest free one has %d, %d of %d are in use and nothing is on its way out",
		e.Kernel, e.Need, e.Largest, e.Used, e.Capacity)
}

// Stats are sums since the start.
type Stats struct {
	Bytes     [tiers][directions]sim.Bytes // of transfers that ended
	Transfers [tiers][directions]int64
	Stall     sim.Time         // kernels waited for memory or content
	Fetches   int64            // transfers in that a kernel had to ask for
	Withdrawn int64            // transfers out given up because the tensor was needed again
	Used      sim.Bytes        // memory in use now
	Peak      sim.Bytes        // of memory in use
	Held      [tiers]sim.Bytes // on each tier now, with what is on its way there
	PeakHeld  [tiers]sim.Bytes
	NoRoom    *NoRoom // nil: none
}

// New returns the memory of a device that runs program p. failed is called at
// most once, from an event, when a kernel cannot ever run; the memory then does
// nothing more.
func New(eng *sim.Engine, dev Device, o Options, p *policies.Nominal, failed func(*NoRoom)) (*Memory, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m := &Memory{eng: eng, dev: dev, o: o, failed: failed, loss: p.Loss, plan: &plan{}, iteration: -1}
	m.free = ranges{{0, max(o.Addresses, o.Capacity)}}
	m.tensors = make([]tensor, len(p.Tensors))
	m.uses = make([][]int32, len(p.Tensors))
	for i := range p.Tensors {
		m.tensors[i].bytes = p.Tensors[i].Bytes
		if p.Tensors[i].Global {
			m.globals = append(m.globals, int32(i))
		}
	}
	for _, id := range o.Scratch {
		if id < 0 || int(id) >= len(p.Tensors) || p.Tensors[id].Global {
			return nil, fmt.Errorf("direct: tensor %d is said to be scratch memory: must be a local of the program", id)
		}
		m.tensors[id].place = scratch
	}
	for k := range p.Kernels {
		var set, extra sim.Bytes
		for _, args := range [][]int32{p.Kernels[k].In, p.Kernels[k].Out} {
			for _, t := range args {
				if u := m.uses[t]; len(u) == 0 || u[len(u)-1] != int32(k) {
					m.uses[t] = append(u, int32(k))
					if m.tensors[t].place == scratch {
						extra += p.Tensors[t].Bytes
					} else {
						set += p.Tensors[t].Bytes
					}
				}
			}
		}
		m.reserve, m.scratch = max(m.reserve, set), max(m.scratch, extra)
	}
	m.self = eng.Register(m)
	return m, nil
}

// Arm gives the plan that is followed from the next first kernel of an
// iteration on: its hints to evict, and unless Options.Ahead those to prefetch.
// Hints to allocate and to free are not needed: that is done when a kernel
// begins.
func (m *Memory) Arm(p *policies.Plan) error {
	next := &plan{moved: map[int32]bool{}}
	if p != nil {
		for i, h := range p.Hints {
			if h.What.Kind != policies.ByStatic || h.Start.Kind != policies.AtOp || h.Start.N < 0 {
				return fmt.Errorf("direct: hint %d is not an action on a tensor of the program at one of its operators", i)
			}
			if h.Kind == policies.Evict {
				if int(h.To) >= tiers || m.o.Tiers[h.To].Out == 0 {
					return fmt.Errorf("direct: hint %d evicts to tier %d, which is not there", i, h.To)
				}
				next.moved[h.What.Static] = true
			}
			for int(h.Start.N) >= len(next.hints) {
				next.hints = append(next.hints, nil)
			}
			next.hints[h.Start.N] = append(next.hints[h.Start.N], h)
		}
		if m.o.Ahead {
			next.order = m.needs(next)
		}
	}
	m.next = next
	return nil
}

// needs lists the evicted tensors in the order in which backward kernels use
// them; those of one kernel by number.
func (m *Memory) needs(p *plan) []need {
	var list []need
	for t, kernels := range m.uses {
		if !p.moved[int32(t)] {
			continue
		}
		if i, _ := slices.BinarySearch(kernels, m.loss+1); i < len(kernels) {
			list = append(list, need{int32(t), kernels[i]})
		}
	}
	slices.SortStableFunc(list, func(a, b need) int { return int(a.kernel - b.kernel) })
	return list
}

// Stats are the sums up to now.
func (m *Memory) Stats() Stats {
	s := m.stats
	s.Used, s.Held = m.used, m.held
	return s
}

// Share tells, before any of them is issued, that there will be kernels that
// communicate.
func (m *Memory) Share() { m.shared = true }

// Issued notes a kernel.
func (m *Memory) Issued(u *stream.Use) {
	q := &m.issued[u.On]
	if q.first > 64 && 2*q.first > len(q.uses) {
		q.uses = slices.Delete(q.uses, 0, q.first)
		q.first = 0
	}
	m.outstanding.Issued(u)
	q.uses = append(q.uses, use{u.Point(), u.Communicates, u.Span, slices.Clone(u.Operands), slices.Clone(u.Dead)})
}

// Earlier implements stream.Residency.
func (m *Memory) Earlier(u *stream.Use, f func(stream.Event)) { m.outstanding.Earlier(u, f) }

// Begin starts on the oldest kernel issued on a stream. Without communication
// the memory runs it, and knows when a run has no room.
func (m *Memory) Begin(s stream.ID) stream.Start {
	q := &m.issued[s]
	c := &m.claims[s]
	*c = claim{use: q.uses[q.first], began: m.eng.Now(), phase: getting}
	q.uses[q.first] = use{}
	q.first++
	if !m.started && !m.start() {
		return stream.Waits
	}
	for _, o := range c.operands {
		m.keep(o.Storage, c.Point)
	}
	if !c.communicates {
		m.turn(&c.use)
	}
	for i := range c.operands {
		m.reach(c, &c.operands[i])
	}
	m.line = append(m.line, s)
	switch {
	case !m.serve(s):
		return stream.Waits
	case m.shared:
		return stream.Runs
	case c.span > 0:
		m.compute()
		return stream.Waits
	}
	c.phase = idle
	return stream.Ended
}

// reach notes that a kernel has begun with an operand. What communication of a
// later iteration begins with has died before.
func (m *Memory) reach(c *claim, o *stream.Operand) {
	t := m.tensor(o.Storage, o.Bytes)
	if c.communicates && !o.Resident && t.reached.Iteration < c.Iteration && t.place != nowhere && !t.dead {
		m.die(o.Storage)
	}
	if t.reached.Before(c.Point) {
		t.reached = c.Point
	}
}

// keep forgets that a tensor is to leave when communication has ended, as hints
// of operators before one have it: it is needed again.
func (m *Memory) keep(id int32, one stream.Point) {
	m.later = slices.DeleteFunc(m.later, func(l deferred) bool { return !l.dies && l.id == id && !one.Before(l.before) })
}

// turn follows what a kernel of the compute stream brings about. The plan goes
// by that stream: hints of operators that are no kernels of it come with the
// next one that is.
func (m *Memory) turn(u *use) {
	for _, x := range u.dead {
		switch {
		case m.tensor(x.Storage, 0).reached.Iteration > x.At.Iteration: // it is another one by now
		case m.outstanding.Busy(x.Storage, x.At):
			m.later = append(m.later, deferred{before: x.At, id: x.Storage, dies: true})
		default:
			m.die(x.Storage)
		}
	}
	if u.Iteration != m.iteration {
		if m.shared { // the last operators communicate
			m.follow(int32(len(m.plan.hints)) - 1)
		}
		if m.next != nil {
			m.plan, m.next = m.next, nil
		}
		m.iteration, m.hinted, m.backward, m.ahead = u.Iteration, 0, false, 0
	}
	m.follow(u.Index)
	if m.o.Ahead && u.Index > m.loss+1 {
		m.lookAhead()
	}
	m.pump()
}

// serve gives operands to the kernels that wait for them, in the order of their
// begin. One that communicates takes memory for all it misses or for nothing,
// and none that an earlier kernel lacks; while it waits, compute goes on. serve
// tells whether the kernel of stream begins, in whose begin this is, may run.
func (m *Memory) serve(begins stream.ID) (runs bool) {
	keep, short := m.line[:0], false
	for _, s := range m.line {
		c := &m.claims[s]
		if m.stats.NoRoom != nil || c.communicates && short || !m.acquire(s) {
			short = short || c.lacks > 0
			keep = append(keep, s)
			continue
		}
		c.phase, c.held = computing, m.eng.Now()
		switch {
		case s == begins:
			runs = true
		case m.shared:
			m.eng.At(c.held, sim.PrioDevice, m.self, argRun+uint32(s))
		default:
			m.compute()
		}
	}
	m.line = keep
	return runs
}

// Ran ends a kernel whose own time has passed.
func (m *Memory) Ran(s stream.ID) (wait sim.Time, ended bool) {
	c := &m.claims[s]
	c.phase = idle
	m.outstanding.Ended(s)
	if !c.communicates {
		wait = c.held - c.began
		m.stats.Stall += wait
	}
	later := m.later
	m.later = m.later[:0]
	for _, l := range later {
		switch {
		case m.outstanding.Busy(l.id, l.before):
			m.later = append(m.later, l)
		case l.dies:
			m.die(l.id)
		case m.tensors[l.id].place == here && !m.operand(l.id):
			m.evict(l.id, l.to)
		}
	}
	m.serve(stream.Count)
	m.pump()
	return wait, true
}

// Stuck is what kernels wait for for ever if nothing happens any more: a
// *NoRoom, nil if it is not for memory.
func (m *Memory) Stuck() error {
	for _, s := range m.line {
		if c := &m.claims[s]; c.lacks > 0 {
			return m.noRoom(c.Index, c.lacks)
		}
	}
	return nil
}

// start sets scratch memory aside and places the globals.
func (m *Memory) start() bool {
	m.started = true
	if m.scratch > m.o.Capacity {
		m.fail(m.scratch)
		return false
	}
	m.aside, _ = m.free.takeLow(m.scratch)
	m.used = m.scratch
	m.stats.Peak = m.scratch
	for _, id := range m.globals {
		if !m.put(id, false) {
			m.fail(m.tensors[id].bytes)
			return false
		}
		m.tensors[id].place = here
	}
	return true
}

// follow queues what the plan says up to operator k of the iteration. What
// communication up to an operator still uses leaves when that has ended. What
// communication behind it has already does not leave: it is another tensor by
// then if the iteration has ended.
func (m *Memory) follow(k int32) {
	for ; m.hinted <= k && int(m.hinted) < len(m.plan.hints); m.hinted++ {
		for _, h := range m.plan.hints[m.hinted] {
			id := h.What.Static
			if id < 0 || int(id) >= len(m.tensors) {
				continue
			}
			t := &m.tensors[id]
			at := stream.Point{Iteration: m.iteration, Index: m.hinted}
			behind := stream.Point{Iteration: m.iteration, Index: m.hinted + 1}
			if h.Kind == policies.Prefetch {
				m.keep(id, behind)
			}
			prefetch := h.Kind == policies.Prefetch && !m.o.Ahead && !m.o.Tiers[t.tier].Demand
			switch {
			case h.Kind == policies.Evict && at.Before(t.reached):
			case h.Kind == policies.Evict && m.outstanding.Busy(id, behind):
				m.later = append(m.later, deferred{before: behind, id: id, to: h.To})
			case h.Kind == policies.Evict && t.place == here && !m.operand(id):
				m.evict(id, h.To)
			case prefetch && t.place == leaving && !t.dead:
				m.withdraw(id)
			case prefetch && t.place == away && !slices.Contains(m.waiting, id):
				m.waiting = append(m.waiting, id)
			}
		}
	}
}

// operand tells whether a kernel that has begun uses a tensor.
func (m *Memory) operand(id int32) bool {
	for s := range m.claims {
		if c := &m.claims[s]; c.phase != idle && slices.ContainsFunc(c.operands, func(o stream.Operand) bool { return o.Storage == id }) {
			return true
		}
	}
	return false
}

// evict queues a tensor for a tier. A host that is full sends it to the SSD;
// where there is none, it stays.
func (m *Memory) evict(id int32, to policies.TierID) {
	t := &m.tensors[id]
	if !m.fits(to, t.bytes) {
		if to = policies.SSDTier; m.o.Tiers[to].Out == 0 || !m.fits(to, t.bytes) {
			return
		}
	}
	t.place, t.tier = leaving, to
	m.held[to] += t.bytes
	m.stats.PeakHeld[to] = max(m.stats.PeakHeld[to], m.held[to])
	m.push(to, Out, id)
}

// fits tells whether a tier has room for n more bytes.
func (m *Memory) fits(to policies.TierID, n sim.Bytes) bool {
	limit := m.o.Tiers[to].Bytes
	return limit == 0 || m.held[to]+n <= limit
}

// withdraw keeps a tensor that was to leave. A write that has begun goes on,
// but does not free the memory.
func (m *Memory) withdraw(id int32) {
	t := &m.tensors[id]
	if t.wanted {
		return
	}
	m.stats.Withdrawn++
	if m.unqueue(t.tier, Out, id) {
		m.held[t.tier] -= t.bytes
		t.place = here
		return
	}
	t.wanted = true
}

// lookAhead queues reads in the order of need as long as there is room.
func (m *Memory) lookAhead() {
	for ; m.ahead < len(m.plan.order); m.ahead++ {
		n := m.plan.order[m.ahead]
		t := &m.tensors[n.tensor]
		if t.place != away || n.kernel < m.claims[stream.Compute].Index {
			continue
		}
		if !m.prefetch(n.tensor) {
			return
		}
	}
}

// pump queues the reads that the plan has asked for, first come first served,
// as memory becomes free.
func (m *Memory) pump() {
	for len(m.waiting) > 0 {
		id := m.waiting[0]
		if m.tensors[id].place == away && !m.prefetch(id) {
			return
		}
		m.waiting = m.waiting[1:]
	}
}

// prefetch queues the read of a tensor if there is room for it beside the
// largest working set of a kernel.
func (m *Memory) prefetch(id int32) bool {
	room := min(m.free.largest(), m.o.Capacity-m.used) - m.reserve
	if room < m.tensors[id].bytes || !m.put(id, m.plan.moved[id]) {
		return false
	}
	m.fetch(id)
	return true
}

// put finds memory for a tensor.
func (m *Memory) put(id int32, moved bool) bool {
	t := &m.tensors[id]
	if m.used+t.bytes > m.o.Capacity {
		return false
	}
	take := m.free.takeLow
	if moved && m.o.HighEnd {
		take = m.free.takeHigh
	}
	at, ok := take(t.bytes)
	if !ok {
		return false
	}
	t.at = at
	m.used += t.bytes
	m.stats.Peak = max(m.stats.Peak, m.used)
	return true
}

// remove gives a tensor's memory back.
func (m *Memory) remove(t *tensor) {
	m.free.give(t.at)
	m.used -= t.bytes
	t.at = span{}
}

// fetch queues the read of a tensor that has memory.
func (m *Memory) fetch(id int32) {
	t := &m.tensors[id]
	t.place = coming
	m.push(t.tier, In, id)
}

// die ends the life of a tensor.
func (m *Memory) die(id int32) {
	t := m.tensor(id, 0)
	switch t.place {
	case scratch:
		return
	case here:
		m.remove(t)
	case away:
		m.held[t.tier] -= t.bytes
	case leaving, coming:
		d := Out
		if t.place == coming {
			d = In
		}
		if !m.unqueue(t.tier, d, id) {
			t.dead = true // its transfer is on its way
			return
		}
		m.held[t.tier] -= t.bytes
		m.remove(t)
	}
	t.place = nowhere
}

// tensor is the state of a storage of n bytes. A program that is not the
// nominal one may have storages that nobody has seen.
func (m *Memory) tensor(id int32, n sim.Bytes) *tensor {
	for int(id) >= len(m.tensors) {
		m.tensors = append(m.tensors, tensor{})
	}
	t := &m.tensors[id]
	if t.place == nowhere && n > 0 {
		t.bytes = n
	}
	return t
}

// acquire gets the operands of the kernel of a stream: true if all are on the
// device.
func (m *Memory) acquire(s stream.ID) bool {
	c := &m.claims[s]
	c.lacks = 0
	if !c.communicates && m.o.Drain && c.Index > m.loss && !m.backward {
		if m.shared || c.Index == m.loss+1 {
			for i := range m.queues {
				if len(m.queues[i][Out].list) > 0 {
					return false
				}
			}
		}
		m.backward = true
	}
	if c.communicates && !m.room(c) {
		return false
	}
	ready := true
	for _, o := range c.operands {
		t := m.tensor(o.Storage, o.Bytes)
		if t.dead {
			ready = false // that of the iteration before, whose transfer has not ended
			continue
		}
		switch t.place {
		case nowhere, away:
			if !m.put(o.Storage, m.plan.moved[o.Storage]) {
				if c.lacks = t.bytes; !m.shared && !m.hope() {
					m.fail(t.bytes)
				}
				return false
			}
			if t.place == nowhere {
				t.place = here
				continue
			}
			m.stats.Fetches++
			m.fetch(o.Storage)
			ready = false
		case leaving:
			m.withdraw(o.Storage)
		case coming:
			ready = false
		}
	}
	return ready
}

// room tells whether there is memory for everything that a kernel misses.
func (m *Memory) room(c *claim) bool {
	var got []int32
	stats := m.stats.Peak
	for _, o := range c.operands {
		t := m.tensor(o.Storage, o.Bytes)
		if t.dead || t.place != nowhere && t.place != away || slices.Contains(got, o.Storage) {
			continue
		}
		if !m.put(o.Storage, m.plan.moved[o.Storage]) {
			c.lacks = t.bytes
			break
		}
		got = append(got, o.Storage)
	}
	for _, id := range got {
		m.remove(&m.tensors[id])
	}
	m.stats.Peak = stats
	return c.lacks == 0
}

// hope tells whether a transfer is under way that frees memory.
func (m *Memory) hope() bool {
	for i := range m.queues {
		for d := range m.queues[i] {
			for _, id := range m.queues[i][d].list {
				if t := &m.tensors[id]; t.dead || t.place == leaving && !t.wanted {
					return true
				}
			}
		}
	}
	return false
}

// fail ends the run.
func (m *Memory) fail(need sim.Bytes) {
	c := &m.claims[stream.Compute]
	m.stats.NoRoom = m.noRoom(c.Index, need)
	c.phase = idle
	m.failed(m.stats.NoRoom)
}

func (m *Memory) noRoom(kernel int32, need sim.Bytes) *NoRoom {
	return &NoRoom{Kernel: kernel, Need: need, Largest: m.free.largest(), Used: m.used, Capacity: m.o.Capacity}
}

// compute runs the kernel of the compute stream, the only one.
func (m *Memory) compute() {
	c := &m.claims[stream.Compute]
	c.held = m.eng.Now()
	m.stats.Stall += c.held - c.began
	m.eng.After(c.span, sim.PrioFinish, m.self, argKernel)
}

// Arguments of the memory's own events: the end of the only kernel, or of the
// first transfer of a queue; or a kernel runs.
const (
	argKernel uint32 = 0
	argQueue  uint32 = 1                                   // + tier * directions + direction
	argRun    uint32 = argQueue + tiers*uint32(directions) // + stream, which runs its kernel
)

// push queues a transfer.
func (m *Memory) push(tier policies.TierID, d Direction, id int32) {
	q := &m.queues[tier][d]
	q.list = append(q.list, id)
	m.send(tier, d)
}

// send starts the first transfer of a queue, if none is on its way.
func (m *Memory) send(tier policies.TierID, d Direction) {
	q := &m.queues[tier][d]
	if q.busy || len(q.list) == 0 {
		return
	}
	q.busy = true
	m.eng.After(duration(m.tensors[q.list[0]].bytes, m.rate(tier, d)), sim.PrioFinish, m.self, argQueue+uint32(tier)*uint32(directions)+uint32(d))
}

// unqueue removes a transfer that has not begun.
func (m *Memory) unqueue(tier policies.TierID, d Direction, id int32) bool {
	q := &m.queues[tier][d]
	i := slices.Index(q.list, id)
	if i < 0 || i == 0 && q.busy {
		return false
	}
	q.list = slices.Delete(q.list, i, i+1)
	return true
}

// Handle serves the memory's own events.
func (m *Memory) Handle(arg uint32, _ sim.Stamp) {
	if m.stats.NoRoom != nil {
		return
	}
	switch {
	case arg == argKernel:
		c := &m.claims[stream.Compute]
		c.phase = idle
		m.dev.Complete(stream.Compute, c.held-c.began)
		return
	case arg >= argRun:
		m.dev.Run(stream.ID(arg - argRun))
		return
	}
	tier, d := policies.TierID((arg-argQueue)/uint32(directions)), Direction((arg-argQueue)%uint32(directions))
	m.arrive(tier, d)
	m.send(tier, d)
	m.serve(stream.Count)
	if m.stats.NoRoom == nil {
		m.pump()
	}
}

// arrive ends the first transfer of a queue.
func (m *Memory) arrive(tier policies.TierID, d Direction) {
	q := &m.queues[tier][d]
	t := &m.tensors[q.list[0]]
	q.list, q.busy = slices.Delete(q.list, 0, 1), false
	m.stats.Bytes[tier][d] += t.bytes
	m.stats.Transfers[tier][d]++
	m.moved(tier, d, t.bytes)
	switch {
	case t.dead:
		m.held[tier] -= t.bytes
		m.remove(t)
		t.place, t.dead, t.wanted = nowhere, false, false
	case d == Out && !t.wanted:
		m.remove(t)
		t.place = away
	default: // back, or kept
		m.held[tier] -= t.bytes
		t.place, t.wanted = here, false
	}
}

// duration of moving n bytes, rounded up to a picosecond.
func duration(n sim.Bytes, r sim.Rate) sim.Time {
	hi, lo := bits.Mul64(uint64(n), uint64(sim.Second))
	lo, carry := bits.Add64(lo, uint64(r-1), 0)
	if hi += carry; hi >= uint64(r) {
		return sim.Forever
	}
	q, _ := bits.Div64(hi, lo, uint64(r))
	return sim.Time(min(q, uint64(sim.Forever)))
}
