// Package alloc has the framework's device memory allocators and the pinned
// host pool. They are pure: simulated time comes in through Env, the host time
// of what they did goes out as Costs, and nothing here knows of streams beyond
// their numbers.
//
// An allocator acts in host order. Whether the device is really done with a
// block that it hands out again is what its rules are for, and what the
// observers in eager/check test from outside.
package alloc

import (
	"fmt"

	"smartswap/sim"
)

// Stream numbers a device stream of one rank; 0 is the compute stream.
type Stream int32

// Block identifies an allocation; ids are reused after Free.
type Block int32

// NoBlock is no allocation.
const NoBlock Block = -1

// Event is a token for a point in a stream, made by Env.Record.
type Event int64

// Env is what an allocator may ask of the run.
type Env interface {
	// Record marks the current end of what is enqueued on s.
	Record(s Stream) Event
	// Done tells whether the device has passed e, at the present host time.
	Done(e Event) bool
}

// Costs counts what calls since the last TakeCosts did, for the host lane to
// charge. Sync: the host must wait until every event the allocator had
// outstanding is done (the allocator already acts as if it had waited).
type Costs struct {
	Polls, Records            int
	DriverAllocs, DriverFrees int
	DriverBytes               sim.Bytes
	Sync                      bool
}

// Stat is one statistic: its present value and its peak.
type Stat struct{ Current, Peak int64 }

// Stats are the counters under their PyTorch names (torch.cuda.memory_stats).
type Stats struct {
	Allocated, Active, Requested, Reserved, InactiveSplit Stat // bytes
	Segments                                              Stat
	Retries, OOMs, Syncs, DriverAllocs, DriverFrees       int64
}

// Allocator manages one device's memory.
type Allocator interface {
	// Malloc allocates size > 0 bytes for use on stream s, or fails with an
	// *OOM and no change that matters.
	Malloc(size sim.Bytes, s Stream) (Block, error)
	// Free gives b back in host order.
	Free(b Block)
	// RecordStream tells that s uses b, so that Free defers reuse until s
	// has passed what is enqueued on it at that time.
	RecordStream(b Block, s Stream)
	// Range is the address range that b occupies, rounded size included.
	Range(b Block) (addr uint64, size sim.Bytes)
	Stats() Stats
	// TakeCosts returns and clears the accumulated costs.
	TakeCosts() Costs
	// ResetPeaks starts a new window for the peaks.
	ResetPeaks()
}

// OOM reports a failed allocation. All sizes in bytes.
type OOM struct {
	Requested, Rounded, Segment           sim.Bytes
	Allocated, Active, Reserved, Capacity sim.Bytes
	LargestFree                           sim.Bytes // largest inactive block of the requesting stream's pool
	Retries                               int64
}

// Free is what the device has left outside the reservation.
func (e *OOM) Free() sim.Bytes { return e.Capacity - e.Reserved }

// Error is one line with every figure.
func (e *OOM) Error() string {
	return fmt.Sprintf("out of memory: requested %d bytes (block %d, segment %d), free %d of capacity %d; allocated %d, active %d, reserved %d, largest free block %d, retries %d",
		e.Requested, e.Rounded, e.Segment, e.Free(), e.Capacity, e.Allocated, e.Active, e.Reserved, e.LargestFree, e.Retries)
}
