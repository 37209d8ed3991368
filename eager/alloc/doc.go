// Package alloc has the framework's device memory allocators and the pinned
// host pool. They are pure: simulated time comes in through Env, the host time
// of what they did goes out as Costs, and nothing here knows of streams beyond
// their numbers.
//
// An allocator acts in host order. Whether the device is really done with a
// block that it hands out again is what its rules are for, and what the
// observers in eager/check test from outside.
//
// # Invariant
//
// The blocks of a segment tile it; no two neighbours are both inactive; every
// inactive block is in exactly one free tree, that of its pool and stream.
// Allocated <= Active <= Reserved <= capacity.
//
// # Where to start reading
//
//	options.go   what a configuration may say, and how a request is rounded
//	caching.go   Malloc of the caching allocator: search, split, fall back
//	core.go      what every allocator shares: Free, deferred frees, counters
//	segments.go  memory from the driver: the place for another kind of segment
//	reclaim.go   garbage collection, oversize release, full release
//	tree.go      the free lists: a treap in (size, address) order
//	bytes.go     the allocator without fragmentation
//	pinned.go    page-locked host buffers
//
// The rules are those of PyTorch's c10/cuda/CUDACachingAllocator.cpp (2.6) and
// of its descendant in Ascend's torch_npu, NPUCachingAllocator.cpp, without
// virtual-memory segments and graph pools. Names in quotes in the comments are
// the functions and statistics of those files.
package alloc

import (
	"fmt"

	"smartswap/sim"
)

// Stream numbers a device stream of one rank; 0 is the compute stream. Streams
// are counted from 0 without large gaps: tables are indexed by them.
type Stream int32

// Block identifies an allocation; ids are reused after Free.
type Block int32

// NoBlock is no allocation.
const NoBlock Block = -1

// Event is a token for a point in a stream, made by Env.Record.
type Event int64

// Env is what an allocator may ask of the run. Neither method may call the
// allocator back.
type Env interface {
	// Record marks the current end of what is enqueued on s.
	Record(s Stream) Event
	// Done tells whether the device has passed e, at the present host time.
	// Events of one stream become done in the order of their records.
	Done(e Event) bool
}

// Costs counts what calls since the last TakeCosts did, for the host lane to
// charge. Sync: the host must wait until every event the allocator had
// outstanding is done (the allocator already acts as if it had waited).
type Costs struct {
	Polls, Records            int
	DriverAllocs, DriverFrees int       // successful calls; a driver's free may itself synchronise
	DriverBytes               sim.Bytes // by DriverAllocs
	Sync                      bool
	// DeviceSync: the host must wait until the device is idle, which covers
	// Sync. The recovery steps of torch_npu do that.
	DeviceSync bool
}

// Allocator manages one device's memory.
type Allocator interface {
	// Malloc allocates size > 0 bytes for use on stream s, or fails with an
	// *OOM and no change that matters: caches may have been given back.
	Malloc(size sim.Bytes, s Stream) (Block, error)
	// Free gives b back in host order. Freeing what is not allocated panics.
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

// Reclaimer is the part of a framework's allocator that a program or its
// communication library calls now and then. What New returns implements it.
type Reclaimer interface {
	// EmptyCache waits for all deferred frees, then gives every segment
	// that holds no active block back to the driver.
	EmptyCache()
	// EraseStream takes back RecordStream(b, used), before b is freed, if
	// waiting is the stream b was allocated on: that stream has just been
	// made to wait for used, so plain stream order protects the reuse.
	// (torch_npu does so after a collective: MULTI_STREAM_MEMORY_REUSE=1.)
	EraseStream(b Block, used, waiting Stream)
}

// OOM reports a failed allocation. All sizes in bytes.
type OOM struct {
	Requested, Rounded, Segment           sim.Bytes
	Allocated, Active, Reserved, Capacity sim.Bytes
	Limit                                 sim.Bytes // what memory_fraction allows to reserve; 0 = no limit set
	LargestFree                           sim.Bytes // largest inactive block of the requesting stream's pool
	Retries                               int64
}

// Free is what the device has left outside the reservation.
func (e *OOM) Free() sim.Bytes { return e.Capacity - e.Reserved }

// Error is one line with every figure.
func (e *OOM) Error() string {
	limit := ""
	if e.Limit > 0 {
		limit = fmt.Sprintf(" (limit %d)", e.Limit)
	}
	return fmt.Sprintf("out of memory: requested %d bytes (block %d, segment %d), free %d of capacity %d%s; allocated %d, active %d, reserved %d, largest free block %d, retries %d",
		e.Requested, e.Rounded, e.Segment, e.Free(), e.Capacity, limit, e.Allocated, e.Active, e.Reserved, e.LargestFree, e.Retries)
}

// Torch is the report as a user of PyTorch would know it: what was tried is
// the segment that the driver was asked for, sizes have two decimals.
func (e *OOM) Torch() string {
	if e.Requested > maxRequest {
		return "out of memory: tried to allocate more than 1EB"
	}
	limit := ""
	if e.Limit > 0 {
		limit = fmt.Sprintf(" %s may be reserved.", formatSize(e.Limit))
	}
	return fmt.Sprintf("out of memory: Tried to allocate %s. The device has %s, %s of it free.%s Allocated: %s. Reserved but not allocated: %s.",
		formatSize(e.Segment), formatSize(e.Capacity), formatSize(e.Free()), limit,
		formatSize(e.Allocated), formatSize(e.Reserved-e.Allocated))
}

// formatSize prints a size in the unit that PyTorch's "format_size" would
// choose: a unit serves up to and including one of the next.
func formatSize(n sim.Bytes) string {
	switch {
	case n <= sim.KiB:
		return fmt.Sprintf("%d bytes", n)
	case n <= sim.MiB:
		return fmt.Sprintf("%.2f KiB", float64(n)/float64(sim.KiB))
	case n <= sim.GiB:
		return fmt.Sprintf("%.2f MiB", float64(n)/float64(sim.MiB))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/float64(sim.GiB))
}
