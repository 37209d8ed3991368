// Package stream is the device side of one rank: in-order streams, events
// between them, and rendezvous between ranks.
//
// # Model
//
// A stream runs its commands one after the other. A command starts when it is
// at the head of its stream, every event it waits for is complete, and, for a
// copy, when the DMA engine of its direction reaches it; engines take copies
// in the order in which they became ready, across streams, so that a copy that
// still waits for an event never holds the engine.
//
// An event is a position in a stream: it is complete when the stream has
// retired that many commands. Recording one therefore costs the device
// nothing and needs no object. The host numbers commands when it issues them;
// they may reach the device later, through a launch queue.
//
// # Accounting
//
// At every instant a stream is busy, waiting for a named cause, or empty. The
// three are recorded where they happen, never as a remainder, and must add up
// to the clock (invariant 9).
package stream

import (
	"smartswap/hw"
	"smartswap/sim"
)

// ID is a stream of a rank.
type ID uint8

// Streams.
const (
	Compute ID = iota
	Comm       // collectives
	Peer       // transfers between pipeline stages
	Out        // swap-outs; with one swap stream, both directions
	In         // swap-ins
	Count
)

// Name is the stream's name in reports and timelines.
func (s ID) Name() string { return [...]string{"compute", "comm", "peer", "d2h", "h2d"}[s] }

// Event is a point in a stream as issued by the host. The zero Event is
// always complete.
type Event int64

const idBits = 3

func event(s ID, seq int64) Event { return Event(seq<<idBits | int64(s)) }

// Stream is the stream that e is a point of.
func (e Event) Stream() ID { return ID(e & (1<<idBits - 1)) }

func (e Event) seq() int64 { return int64(e >> idBits) }

// Cause says why a stream did not run a kernel or copy.
type Cause uint8

// Causes of waiting. Empty is a stream without commands: the host has not
// come that far (for the compute stream: the job is host-bound), or there is
// nothing to do.
const (
	Empty      Cause = iota
	SwapIn           // a planned swap-in has not arrived
	Fault            // a demand fault is being served
	Freed            // memory is reused before its swap-out has ended (release wait)
	Collective       // a collective has not finished
	Pipeline         // a neighbouring stage has not sent or received
	Rendezvous       // other members have not reached a collective or transfer
	Engine           // the DMA engine serves another stream
	Order            // ordering of copies after compute or other copies
	NumCauses
)

// Name is the cause's name in reports.
func (c Cause) Name() string {
	return [...]string{"empty", "swap_in", "fault", "release", "collective", "pipeline", "rendezvous", "engine", "order"}[c]
}

// Kind of a command.
type Kind uint8

// Commands.
const (
	Kernel  Kind = iota // runs for Timing.Span, drawing HBM at Timing.Demand
	Copy                // host copy over a DMA engine
	WaitFor             // the stream waits for event Wait
	Meet                // collective or transfer: all members of Group, then Timing.Span
	Solo                // a collective whose members are all folded into this rank
	Marker              // takes no time; tells the watcher
)

// Command is one entry of a stream.
type Command struct {
	Kind     Kind
	Cause    Cause
	Family   hw.Family
	Dir      hw.Direction
	Pageable bool
	Weight   int32 // Copy: share of bandwidth relative to others; 0 = 1
	Wait     Event
	Timing   hw.Timing
	Bytes    sim.Bytes
	Group    int32 // Meet
	Again    int64 // Meet: which of the program's operators runs another time, from 1, the same for all members; 0 = it does not
	Tag      int32 // for the watcher
}

// Watcher observes a device. It must not change anything.
type Watcher interface {
	// Started and Retired are called at the device times of every command
	// except waits.
	Started(d *Device, s ID, c *Command)
	Retired(d *Device, s ID, c *Command)
}

// Lane is what a stream has done up to now.
type Lane struct {
	Busy sim.Time
	Wait [NumCauses]sim.Time
	Runs int64 // kernels, copies, collectives retired
}

// Total is busy plus all waits.
func (l Lane) Total() sim.Time {
	t := l.Busy
	for _, w := range l.Wait {
		t += w
	}
	return t
}

// Sub is l minus an earlier reading.
func (l Lane) Sub(o Lane) Lane {
	l.Busy -= o.Busy
	l.Runs -= o.Runs
	for i := range l.Wait {
		l.Wait[i] -= o.Wait[i]
	}
	return l
}

// fifo is one stream.
type fifo struct {
	ring []Command // power of two
	head int64     // commands retired
	tail int64     // commands that reached the device
	// issued counts commands that the host has numbered, >= tail.
	issued int64

	running bool
	cause   Cause // while not running
	since   sim.Time
	lane    Lane
	flow    sim.FlowID // running kernel
	flowing bool       // flow has not ended
	slow    bool       // running kernel is slowed beside a collective
	waiters []waiter
}

type waiter struct {
	seq    int64
	stream ID // of the same device, when handler is 0
	host   bool
	h      sim.HandlerID
	arg    uint32
}

func (f *fifo) at(i int64) *Command { return &f.ring[i&int64(len(f.ring)-1)] }

func (f *fifo) push(c Command) {
	if int(f.tail-f.head) == len(f.ring) {
		grown := make([]Command, max(64, 2*len(f.ring)))
		for i := f.head; i < f.tail; i++ {
			grown[i&int64(len(grown)-1)] = *f.at(i)
		}
		f.ring = grown
	}
	*f.at(f.tail) = c
	f.tail++
}

// settle books the time since the last change of state.
func (f *fifo) settle(now sim.Time) {
	if f.running {
		f.lane.Busy += now - f.since
	} else {
		f.lane.Wait[f.cause] += now - f.since
	}
	f.since = now
}

// Device is the device side of one rank.
type Device struct {
	// Rank is the rank's index in the job.
	Rank int

	eng     *sim.Engine
	share   *sim.Share
	machine *hw.Machine
	fabric  *Fabric
	slot    int
	hbm     []sim.Use
	beside  [hw.NumFamilies]float64
	slows   bool // some beside factor is not 1
	watch   Watcher
	self    sim.HandlerID
	streams [Count]fifo
	comms   int // collectives running
	last    sim.Time
	moved   [hw.NumDirections]Moved

	residency Residency // nil: operands are where the host put them
}

// Moved sums finished copies: bytes, and the time that DMA engines took.
type Moved struct {
	Bytes sim.Bytes
	Time  sim.Time
}

// Arguments of a device's own events.
const (
	argFinish uint32 = iota << 8
	argWake
)

// New returns an idle device for a slot of machine.
func New(eng *sim.Engine, share *sim.Share, machine *hw.Machine, fabric *Fabric, beside [hw.NumFamilies]float64, rank, slot int, w Watcher) *Device {
	d := &Device{Rank: rank, eng: eng, share: share, machine: machine, fabric: fabric, slot: slot, watch: w, beside: beside}
	if machine != nil {
		d.hbm = machine.HBM(slot)
	}
	for _, b := range beside {
		d.slows = d.slows || b > 1
	}
	d.self = eng.Register(d)
	return d
}

// Issue numbers the next command of s and returns the event of its end. Each
// issued command must be enqueued, in the order of its stream.
func (d *Device) Issue(s ID) Event {
	f := &d.streams[s]
	f.issued++
	return event(s, f.issued)
}

// End is the event of everything issued on s so far.
func (d *Device) End(s ID) Event { return event(s, d.streams[s].issued) }

// Next is the event that Issue returns next.
func (d *Device) Next(s ID) Event { return event(s, d.streams[s].issued+1) }

// Done tells whether e is complete.
func (d *Device) Done(e Event) bool { return d.streams[e.Stream()].head >= e.seq() }

// Outstanding is how many commands of s are on the device and not retired.
func (d *Device) Outstanding(s ID) int { return int(d.streams[s].tail - d.streams[s].head) }

// Moved is what copies of a direction have done so far.
func (d *Device) Moved(dir hw.Direction) Moved { return d.moved[dir] }

// Last is when the device last retired a command. The engine's clock may stand
// later: events that a change of bandwidth has overtaken still pass.
func (d *Device) Last() sim.Time { return d.last }

// Await calls handler h with arg once e is complete, as a host event; at once
// (an event of this instant) if it already is.
func (d *Device) Await(e Event, h sim.HandlerID, arg uint32) {
	if d.Done(e) {
		d.eng.At(d.eng.Now(), sim.PrioHost, h, arg)
		return
	}
	f := &d.streams[e.Stream()]
	f.waiters = append(f.waiters, waiter{seq: e.seq(), host: true, h: h, arg: arg})
}

// AwaitSlot calls h once fewer commands than now are outstanding on s.
func (d *Device) AwaitSlot(s ID, h sim.HandlerID, arg uint32) {
	f := &d.streams[s]
	f.waiters = append(f.waiters, waiter{seq: f.head + 1, host: true, h: h, arg: arg})
}

// Enqueue puts c on stream s.
func (d *Device) Enqueue(s ID, c Command) {
	f := &d.streams[s]
	f.push(c)
	if !f.running && f.tail-f.head == 1 {
		d.advance(s)
	}
}

// Lane is the accounting of s up to now.
func (d *Device) Lane(s ID) Lane {
	f := &d.streams[s]
	f.settle(d.eng.Now())
	return f.lane
}

// block makes s wait for cause.
func (f *fifo) block(now sim.Time, cause Cause) {
	f.settle(now)
	f.running, f.cause = false, cause
}

// advance starts what can start at the head of s.
func (d *Device) advance(s ID) {
	f := &d.streams[s]
	now := d.eng.Now()
	for f.head < f.tail {
		c := f.at(f.head)
		switch c.Kind {
		case WaitFor:
			if !d.Done(c.Wait) {
				f.block(now, c.Cause)
				t := &d.streams[c.Wait.Stream()]
				t.waiters = append(t.waiters, waiter{seq: c.Wait.seq(), stream: s})
				return
			}
			d.retire(s)
		case Marker:
			d.started(s, c)
			d.retired(s, c)
			d.retire(s)
		case Kernel:
			if s == Compute || d.residency == nil {
				d.begin(s, c) // waiting for memory is part of it
			} else {
				f.block(now, Fault)
			}
			if d.residency != nil {
				switch d.residency.Begin(s) {
				case Ended:
					d.end(s)
					continue
				case Waits:
					return
				}
				if s != Compute {
					d.begin(s, c)
				}
			}
			if d.start(s, c) {
				continue
			}
			return
		case Copy:
			f.block(now, Engine)
			d.machine.Submit(d.slot, hw.Copy{Direction: c.Dir, Bytes: c.Bytes, Pageable: c.Pageable, Weight: c.Weight, Done: d.self, Arg: argFinish | uint32(s)})
			return
		case Solo:
			if d.residency != nil {
				f.block(now, Fault)
				if d.residency.Begin(s) == Waits {
					return
				}
			}
			d.solo(s, c)
			return
		case Meet:
			f.block(now, Rendezvous)
			d.fabric.arrive(d, s, c)
			return
		}
	}
	f.block(now, Empty)
}

// start starts the kernel at the head of s, and tells whether it has ended at
// once.
func (d *Device) start(s ID, c *Command) bool {
	if c.Timing.Span <= 0 {
		return d.ran(s)
	}
	f := &d.streams[s]
	spec := sim.FlowSpec{Path: d.hbm, Cap: c.Timing.Demand, Work: sim.SpanWork(c.Timing.Span, c.Timing.Demand), Done: d.self, Arg: argFinish | uint32(s)}
	if d.slows && d.comms > 0 {
		spec.Cap = d.slowed(c)
		f.slow = true
	}
	f.flow, f.flowing = d.share.Start(spec), true
	return false
}

// solo starts a collective without other members.
func (d *Device) solo(s ID, c *Command) {
	d.begin(s, c)
	d.collective(+1)
	d.eng.After(c.Timing.Span, sim.PrioFinish, d.self, argFinish|uint32(s))
}

// ran ends the kernel or collective at the head of s, whose own time has
// passed, and tells whether it has ended: it may wait for memory yet.
func (d *Device) ran(s ID) bool {
	if d.residency != nil {
		wait, ended := d.residency.Ran(s)
		if !ended {
			return false
		}
		d.stood(s, wait)
	}
	d.end(s)
	return true
}

func (d *Device) started(s ID, c *Command) {
	if d.watch != nil {
		d.watch.Started(d, s, c)
	}
}

func (d *Device) retired(s ID, c *Command) {
	if d.watch != nil {
		d.watch.Retired(d, s, c)
	}
}

// begin marks s busy with c.
func (d *Device) begin(s ID, c *Command) {
	f := &d.streams[s]
	f.settle(d.eng.Now())
	f.running = true
	d.started(s, c)
}

// end retires the running command of s.
func (d *Device) end(s ID) {
	f := &d.streams[s]
	f.settle(d.eng.Now())
	f.running, f.slow, f.cause = false, false, Empty
	f.lane.Runs++
	d.retired(s, f.at(f.head))
	d.retire(s)
}

// retire removes the head of s and wakes whoever waited for it. Woken streams
// look again after everything that ends at this instant has ended.
func (d *Device) retire(s ID) {
	f := &d.streams[s]
	f.head++
	d.last = d.eng.Now()
	if len(f.waiters) == 0 {
		return
	}
	keep := f.waiters[:0]
	now := d.eng.Now()
	for _, w := range f.waiters {
		switch {
		case w.seq > f.head:
			keep = append(keep, w)
		case w.host:
			d.eng.At(now, sim.PrioHost, w.h, w.arg)
		default:
			d.eng.At(now, sim.PrioDevice, d.self, argWake|uint32(w.stream))
		}
	}
	f.waiters = keep
}

// CopyStarted tells that a DMA engine has taken a copy of this device; the
// machine's OnStart observer forwards it here.
func (d *Device) CopyStarted(c hw.Copy) {
	s := ID(c.Arg & 0xff)
	d.begin(s, d.streams[s].at(d.streams[s].head))
}

// Handle serves the device's own events.
func (d *Device) Handle(arg uint32, _ sim.Stamp) {
	s := ID(arg & 0xff)
	switch arg &^ 0xff {
	case argFinish:
		f := &d.streams[s]
		f.flowing = false
		switch f.at(f.head).Kind {
		case Solo, Meet:
			d.collective(-1)
		case Copy:
			m := &d.moved[f.at(f.head).Dir]
			m.Bytes += f.at(f.head).Bytes
			m.Time += d.eng.Now() - f.since
			d.end(s)
			d.advance(s)
			return
		}
		if d.ran(s) {
			d.advance(s)
		}
	case argWake:
		if f := &d.streams[s]; !f.running && f.head < f.tail && f.at(f.head).Kind == WaitFor {
			d.advance(s)
		}
	}
}

// collective counts running collectives and slows or restores the kernel on
// the compute stream.
func (d *Device) collective(n int) {
	d.comms += n
	if !d.slows {
		return
	}
	f := &d.streams[Compute]
	if !f.running || !f.flowing || f.at(f.head).Kind != Kernel || f.slow == (d.comms > 0) {
		return
	}
	c := f.at(f.head)
	f.slow = d.comms > 0
	if f.slow {
		d.share.SetCap(f.flow, d.slowed(c))
	} else {
		d.share.SetCap(f.flow, c.Timing.Demand)
	}
}

func (d *Device) slowed(c *Command) sim.Rate {
	return max(1, sim.Rate(float64(c.Timing.Demand)/d.beside[c.Family]))
}

// Fabric brings the members of collectives and transfers together.
type Fabric struct {
	// Mismatch, if not nil, hears of ranks that meet for different operators
	// (Command.Again).
	Mismatch func(a, b int)

	eng    *sim.Engine
	groups []group
}

type group struct {
	members int
	here    []member
	ready   int      // of them, when all are here: with their operands resident
	span    sim.Time // then
}

type member struct {
	d *Device
	s ID
}

// NewFabric returns a fabric without groups.
func NewFabric(eng *sim.Engine) *Fabric { return &Fabric{eng: eng} }

// Group adds a group of n members and returns its number for Command.Group.
// Members meet once per use; the n-th use of each member meets the n-th of the
// others, because streams are in order.
func (f *Fabric) Group(n int) int32 {
	f.groups = append(f.groups, group{members: n})
	return int32(len(f.groups) - 1)
}

// arrive adds a member; the last one starts the operation for all. Where
// operands are made resident first, all members begin with that now, and it
// starts when the last one has done so: nothing is held for members that have
// not come.
func (f *Fabric) arrive(d *Device, s ID, c *Command) {
	g := &f.groups[c.Group]
	if len(g.here) > 0 && f.Mismatch != nil {
		first := g.here[0]
		if q := &first.d.streams[first.s]; q.at(q.head).Again != c.Again {
			f.Mismatch(first.d.Rank, d.Rank)
		}
	}
	g.here = append(g.here, member{d, s})
	if len(g.here) < g.members {
		return
	}
	g.ready, g.span = 0, c.Timing.Span
	for _, m := range g.here {
		if m.d.residency != nil {
			m.d.streams[m.s].block(f.eng.Now(), Fault)
			if m.d.residency.Begin(m.s) == Waits {
				continue
			}
			m.d.streams[m.s].block(f.eng.Now(), Rendezvous)
		}
		g.ready++
	}
	f.start(g)
}

// ready tells that a member has its operands.
func (f *Fabric) ready(d *Device, s ID) {
	t := &d.streams[s]
	g := &f.groups[t.at(t.head).Group]
	t.block(f.eng.Now(), Rendezvous)
	g.ready++
	f.start(g)
}

// start starts the operation of a group once all are ready.
func (f *Fabric) start(g *group) {
	if g.ready < g.members {
		return
	}
	for _, m := range g.here {
		head := m.d.streams[m.s].at(m.d.streams[m.s].head)
		m.d.begin(m.s, head)
		m.d.collective(+1)
		f.eng.After(g.span, sim.PrioFinish, m.d.self, argFinish|uint32(m.s))
	}
	g.here, g.ready = g.here[:0], 0
}

// Waiting describes the first unfinished meeting, for diagnostics of a run
// that cannot go on; "" if there is none.
func (f *Fabric) Waiting() (group, arrived, members int, ok bool) {
	for i := range f.groups {
		if g := &f.groups[i]; len(g.here) > 0 && len(g.here) < g.members {
			return i, len(g.here), g.members, true
		}
	}
	return 0, 0, 0, false
}
