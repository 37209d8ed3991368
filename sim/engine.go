package sim

import (
	"fmt"
	"math"
	"math/bits"
)

// Priority orders events of one instant: lower fires first. The constants are
// the only values in use; each says why it stands where it does.
type Priority uint8

// Priorities, first to last at one instant.
const (
	// PrioFinish: a device activity ends. First, so that whatever else
	// happens at this instant finds the engine free and its event complete.
	PrioFinish Priority = iota
	// PrioDevice: streams and engines look for their next work, after every
	// activity that ends now has ended.
	PrioDevice
	// PrioLaunch: a launching thread hands work to the device, before the
	// dispatching thread adds more behind it.
	PrioLaunch
	// PrioHost: a dispatching thread takes its next step; it sees the device
	// as it is after all of the above.
	PrioHost
	// PrioObserve: observers look; they change nothing.
	PrioObserve

	numPriorities
)

// Handler receives the events it was scheduled for.
type Handler interface {
	// Handle is called at the event's time. Stamp is what At returned for
	// it: an activity that has been re-timed compares it with the stamp of
	// its latest event and ignores the others.
	Handle(arg uint32, stamp Stamp)
}

// HandlerID is a registered handler.
type HandlerID uint32

// Stamp is an event's sequence number, unique in a run; 0 is never used.
type Stamp uint64

// Limits end a run that would not end by itself. A zero field is no limit.
type Limits struct {
	Events uint64 // events handled since the engine was made
	Time   Time   // the last instant at which an event may fire
}

// LimitError is what Run and Step return instead of an event beyond the
// limits. It can be lifted: with wider limits the run goes on where it ended.
type LimitError struct {
	Now     Time   // the clock, still at the last event handled
	Events  uint64 // events handled
	Next    Time   // when the refused event is due
	Pending int    // events waiting, the refused one included
	Limits  Limits
}

// Error names the limit that was reached, and how far the run came.
func (l *LimitError) Error() string {
	limit := fmt.Sprintf("event limit %d", l.Limits.Events)
	if l.Next > lastInstant(l.Limits) {
		limit = "time limit " + lastInstant(l.Limits).String()
	}
	return fmt.Sprintf("sim: %s reached at %v after %d events; the next of %d pending is due at %v",
		limit, l.Now, l.Events, l.Pending, l.Next)
}

// lastInstant is the last instant at which l lets an event fire. Forever is
// not an instant, so a run that gets there has run out of time.
func lastInstant(l Limits) Time {
	if l.Time == 0 {
		return Forever - 1
	}
	return min(l.Time, Forever-1)
}

// Engine is the event loop of one run: a clock and the events still to come,
// fired in the order (time, priority, sequence). The sequence number counts
// calls of At and After, so events of one instant and priority fire first in,
// first out. Make one with NewEngine; it is for one goroutine.
type Engine struct {
	now      Time
	stamp    Stamp // of the event scheduled last
	handlers []Handler

	// Every event later than now is in future. An event for now is in lane
	// number priority, which spares it the heap, unless it was scheduled
	// before the clock came here.
	future heap
	lane   [numPriorities]fifo
	busy   uint8 // bit p: lane[p] is not empty

	stopped bool
	err     error // first failure

	events    uint64
	limits    Limits
	lastEvent uint64 // limits as the event loop compares them
	lastTime  Time
	hashing   bool
	hash      uint64
}

// NewEngine returns an engine at time 0 with nothing to do and no limits.
func NewEngine() *Engine {
	e := &Engine{}
	e.SetLimits(Limits{})
	return e
}

// Register makes h known to the engine; events name it by the number returned.
func (e *Engine) Register(h Handler) HandlerID {
	e.handlers = append(e.handlers, h)
	return HandlerID(len(e.handlers) - 1)
}

// Now is the time of the event being handled, or of the last one.
func (e *Engine) Now() Time { return e.now }

// Events counts the events handled so far.
func (e *Engine) Events() uint64 { return e.events }

// Pending counts the events still to come.
func (e *Engine) Pending() int {
	n := len(e.future)
	for p := range e.lane {
		n += e.lane[p].len()
	}
	return n
}

// Next is when the next event is due; false if none is left.
func (e *Engine) Next() (Time, bool) {
	ev, _ := e.peek()
	if ev == nil {
		return 0, false
	}
	return ev.time, true
}

// At schedules an event: h is called with arg at time t. The stamp returned
// identifies it. O(log n), and O(1) for t = Now; nothing is allocated beyond
// the growth of the queue.
//
// A time before Now, a priority that is not one of the constants and a handler
// that is not registered are mistakes in the caller: the event is dropped, and
// the run ends with an error that says so.
func (e *Engine) At(t Time, p Priority, h HandlerID, arg uint32) Stamp {
	e.stamp++
	ev := event{time: t, key: uint64(p)<<seqBits | uint64(e.stamp), handler: uint32(h), arg: arg}
	switch {
	case t < e.now || p >= numPriorities || int(h) >= len(e.handlers):
		e.Fail(e.misuse(t, p, h))
	case t == e.now:
		e.lane[p].push(ev)
		e.busy |= 1 << p
	default:
		e.future.push(ev)
	}
	return e.stamp
}

// After schedules like At, d after Now; a sum beyond the range is Forever.
func (e *Engine) After(d Time, p Priority, h HandlerID, arg uint32) Stamp {
	t := e.now + d
	if d > 0 && t < e.now {
		t = Forever
	}
	return e.At(t, p, h, arg)
}

// misuse says what is wrong with an event that At refuses.
func (e *Engine) misuse(t Time, p Priority, h HandlerID) error {
	switch {
	case int(h) >= len(e.handlers):
		return fmt.Errorf("sim: event at %v for handler %d, which is not registered (there are %d)", t, h, len(e.handlers))
	case p >= numPriorities:
		return fmt.Errorf("sim: event at %v for %T with priority %d, want at most %d", t, e.handlers[h], p, numPriorities-1)
	}
	return fmt.Errorf("sim: event at %v for %T lies before the clock at %v", t, e.handlers[h], e.now)
}

// Run handles events until none is left or Stop is called, and returns nil; or
// until Fail is called, and returns that error; or until the next event would
// exceed a limit, and returns a *LimitError. It may be called again.
//
// The clock then stands at the last event, even if that was the outdated event
// of a re-timed activity: take a makespan from completions, not from Now.
func (e *Engine) Run() error {
	for !e.stopped {
		more, err := e.Step()
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	e.stopped = false
	return nil
}

// Step handles the next event. It reports whether there was one; its errors
// are those of Run.
func (e *Engine) Step() (bool, error) {
	if e.err != nil {
		return false, e.err
	}
	ev, fromLane := e.peek()
	if ev == nil {
		return false, nil
	}
	if ev.time > e.lastTime || e.events >= e.lastEvent {
		return false, &LimitError{e.now, e.events, ev.time, e.Pending(), e.limits}
	}
	next := *ev
	if fromLane {
		p := next.key >> seqBits
		if e.lane[p].pop(); e.lane[p].len() == 0 {
			e.busy &^= 1 << p
		}
	} else {
		e.future.pop()
	}
	e.now = next.time
	e.events++
	if e.hashing {
		e.hash = fold(e.hash, next)
	}
	e.handlers[next.handler].Handle(next.arg, Stamp(next.key&seqMask))
	return e.err == nil, e.err
}

// peek returns the next event, nil if there is none, and whether it is in a
// lane or in the heap. What is in a lane is due now, as nothing in the heap is
// earlier; but the heap may hold events of this instant scheduled before the
// clock reached it, and they mix with the lanes by priority and sequence.
func (e *Engine) peek() (ev *event, fromLane bool) {
	if len(e.future) > 0 {
		ev = &e.future[0]
	}
	if e.busy != 0 {
		first := e.lane[bits.TrailingZeros8(e.busy)].front()
		if ev == nil || first.before(ev) {
			return first, true
		}
	}
	return ev, false
}

// Stop makes Run return nil after the event being handled; called between
// runs, it makes the next Run return at once.
func (e *Engine) Stop() { e.stopped = true }

// Fail ends the run with err, for good: the first error given is the one that
// Run and Step return from now on.
func (e *Engine) Fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// SetLimits replaces the limits.
func (e *Engine) SetLimits(l Limits) {
	e.limits = l
	e.lastTime = lastInstant(l)
	e.lastEvent = l.Events
	if l.Events == 0 {
		e.lastEvent = math.MaxUint64
	}
}

// EnableFingerprint makes the engine hash every event from now on.
func (e *Engine) EnableFingerprint() { e.hashing = true }

// Fingerprint is a hash of the time, priority, handler and argument of every
// event handled since EnableFingerprint, in order: two runs with equal
// fingerprints had, for all practical purposes, the same history.
func (e *Engine) Fingerprint() uint64 { return e.hash }

// fold adds an event to a fingerprint. Each step is a bijection of h, so that
// no difference is lost before the final count.
func fold(h uint64, ev event) uint64 {
	h = mix(h ^ uint64(ev.time))
	return mix(h ^ ev.key>>seqBits<<seqBits ^ uint64(ev.handler)<<32 ^ uint64(ev.arg))
}
