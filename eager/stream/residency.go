package stream

import "smartswap/sim"

// Residency is device memory in which the operands of a kernel are made
// resident when it comes to run, rather than when the host dispatches it:
// unified memory, or a planner's own runtime. A device that has one runs the
// kernels of all its streams, collectives and transfers included, through it.
type Residency interface {
	// Issued tells of a kernel before its command is enqueued, in program
	// order. u is valid during the call only.
	Issued(u *Use)
	// Earlier calls f with the ends of kernels that one that is about to be
	// issued must wait for: see Outstanding.Earlier.
	Earlier(u *Use, f func(end Event))
	// Begin tells that the oldest kernel issued on s and not yet begun is at
	// the head of s, with every event it waits for complete; a collective or
	// transfer, that all its members have come so far. Those of one meeting
	// begin on all its devices before any other does.
	Begin(s ID) Start
	// Ran tells that the own time of the kernel of s has passed, after Runs or
	// Device.Run. It has ended unless ended is false; then the memory calls
	// Device.Complete at its end. Of the time since Begin a kernel of the
	// compute stream stood still for wait.
	Ran(s ID) (wait sim.Time, ended bool)
}

// Start is what becomes of a kernel that begins.
type Start uint8

// Starts.
const (
	// Runs: the device runs it now.
	Runs Start = iota
	// Waits: from an event of its own the memory calls Device.Run when it may
	// run, or, for a kernel of the compute stream, Device.Complete at its end.
	Waits
	// Ended: it has ended at once. Kernels of the compute stream only.
	Ended
)

// Use is a kernel and what it touches.
type Use struct {
	On  ID
	End Event // of the kernel
	// Communicates: a collective or transfer, or a kernel of another stream
	// than compute. It starts when all operands are resident, and they stay
	// while it runs.
	Communicates bool
	Iteration    int
	Index        int32    // operator of the iteration, from 0
	Span         sim.Time // with everything resident
	// Inputs and All are the span measured with faulting inputs, and with
	// faulting inputs and outputs; 0 = not known.
	Inputs, All sim.Time
	Operands    []Operand
	// Dead are the storages whose last reference went since the kernel of the
	// compute stream before was issued: their memory may go once that one has
	// ended, and all communication that uses them. They are no concern of what
	// communicates, which may be ahead: a local that a kernel of a later iteration
	// begins with is another one, and the one before has died, whether this has
	// been told yet or not.
	Dead []Death
}

// Death is the end of a storage.
type Death struct {
	Storage int32
	At      Point // first operator behind it
}

// Point is the operator of u.
func (u *Use) Point() Point { return Point{u.Iteration, u.Index} }

// Scratch is the number of a kernel's workspace among its operands.
const Scratch = -1

// Ledger sums what a residency has done. Host and SSD are the tiers 0 and 1.
type Ledger struct {
	In, Out [2]sim.Bytes // moved to and from the device, by tier
	Mapped  sim.Bytes    // got memory on the device without content
	Dropped sim.Bytes    // of storages without references, forgotten to make room
	Faults  int64        // kernels that missed something when they began
	Missed  sim.Bytes    // what they missed
	// What is on the device and on the tiers.
	Device sim.Bytes
	Tiers  [2]sim.Bytes
	// Peaks of these since the last ResetPeaks.
	PeakDevice sim.Bytes
	Peak       [2]sim.Bytes
}

// Operand is a storage of a kernel. Storage is its number in the program of the
// iteration; residents have the same in all of them.
type Operand struct {
	Storage     int32
	Bytes       sim.Bytes
	Read, Write bool
	Resident    bool // lives across iterations
}

// SetResidency gives the device a residency; nil takes it away. It must be
// called before the first command.
func (d *Device) SetResidency(m Residency) { d.residency = m }

// Run starts the kernel of s that Residency.Begin was told of. It must be
// called from an event.
func (d *Device) Run(s ID) {
	f := &d.streams[s]
	c := f.at(f.head)
	switch c.Kind {
	case Meet:
		d.fabric.ready(d, s)
	case Solo:
		d.solo(s, c)
	default:
		if s != Compute {
			d.begin(s, c)
		}
		if d.start(s, c) {
			d.advance(s)
		}
	}
}

// Complete ends the kernel of s that Residency.Begin was called for: of the time
// since then it waited for memory for wait, and computed for the rest.
func (d *Device) Complete(s ID, wait sim.Time) {
	d.stood(s, wait)
	d.end(s)
	d.advance(s)
}

// stood books the part of a running kernel's time that it waited for memory.
func (d *Device) stood(s ID, wait sim.Time) {
	f := &d.streams[s]
	f.lane.Wait[Fault] += wait
	f.lane.Busy -= wait
}
