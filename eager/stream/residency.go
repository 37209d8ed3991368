package stream

import "smartswap/sim"

// Residency is device memory in which the operands of a kernel are made
// resident when it comes to run, rather than when the host dispatches it:
// unified memory, or a planner's own runtime. A device that has one runs the
// kernels of its compute stream through it.
type Residency interface {
	// Issued tells of a kernel before its command is enqueued, in program
	// order. u is valid during the call only.
	Issued(u *Use)
	// Begin tells that the oldest kernel issued and not yet begun is at the
	// head of the compute stream. It is true if the kernel has ended at once;
	// otherwise the memory calls Device.Complete at its end, from an event.
	Begin() (ended bool)
}

// Use is a kernel and what it touches.
type Use struct {
	Iteration int
	Index     int32    // operator of the iteration, from 0
	Span      sim.Time // with everything resident
	// Inputs and All are the span measured with faulting inputs, and with
	// faulting inputs and outputs; 0 = not known.
	Inputs, All sim.Time
	Operands    []Operand
	// Dead are the storages whose last reference went since the kernel before
	// was issued: its memory may go once that one has ended.
	Dead []int32
}

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

// Complete ends the kernel that Residency.Begin was called for: of the time
// since then it waited for memory for wait, and computed for the rest.
func (d *Device) Complete(wait sim.Time) {
	f := &d.streams[Compute]
	f.lane.Wait[Fault] += wait
	f.lane.Busy -= wait
	d.end(Compute)
	d.advance(Compute)
}
