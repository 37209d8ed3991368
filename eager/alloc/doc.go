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
// The blocks of a segment tile it; no two neighbours are both inactive, unless
// a stitched block lies over one of them; every inactive block is in exactly
// one free list, that of its pool and stream.
// Allocated <= Active <= Reserved <= capacity.
//
// # When a free ends
//
// A block that another stream uses is not free when its program says so. The
// ways out that systems have, and who pays:
//
//	query          event_policy: an event for each stream at the free, asked for
//	               in each Malloc; the host
//	query-lazy     event_policy: asked for on a miss only; the host, rarely
//	wait-at-reuse  event_policy: the stream that needs the block waits for the
//	               event; the device
//	erase          EraseStream, by who made the block's own stream wait before
//	               (torch_npu after a collective); nobody
//	stage-release  a Drainer holds the block until a point in the program, or
//	               until Malloc asks (eager/swap, release "custom"); the device
//	keep-alive     no RecordStream: the program frees after the wait; nobody, but
//	               the block lives longer
//
// # Where to start reading
//
//	options.go     what a configuration may say
//	rules.go       the same as numbers: how a request is rounded, what is split
//	caching.go     Malloc: search, fall back step by step, split and merge
//	core.go        what every allocator shares: Free, deferred frees, counters
//	segments.go    memory from the driver in segments of fixed size
//	expandable.go  memory from the driver page by page
//	stitching.go   SmartSwap's large pool: free pieces mapped into one range
//	reclaim.go     garbage collection, oversize release, full release
//	private.go     pools that a program keeps for itself
//	shelf.go       the free lists, in (size, address) order: bins of sizes
//	tree.go        blocks, and the treap of a bin
//	bytes.go       the allocator without fragmentation
//	restore.go     going on from a recorded state
//	pinned.go      page-locked host buffers
//
// The rules are those of PyTorch's c10/cuda/CUDACachingAllocator.cpp (2.6), of
// its descendant in Ascend's torch_npu, NPUCachingAllocator.cpp, and of the
// pluggable allocator that SmartSwap brings along in MindSpeed
// (ops/csrc/pluggable_allocator/smart_swap). Names in quotes in the comments
// are the functions and statistics of those files.
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
// allocator back. What else a run can do it tells by being a Waiter or a
// Drainer too.
type Env interface {
	// Record marks the current end of what is enqueued on s.
	Record(s Stream) Event
	// Done tells whether the device has passed e, at the present host time.
	// Events of one stream become done in the order of their records.
	Done(e Event) bool
}

// Waiter is an Env that can order streams, which event_policy "wait-at-reuse"
// needs.
type Waiter interface {
	// Wait makes s wait on the device for e; the host does not wait. It may
	// not call the allocator back.
	Wait(s Stream, e Event)
}

// Drainer is an Env that knows of memory that is only held until copies end.
type Drainer interface {
	// Drain frees some of it, now, by calls of Free, having seen to it that
	// the streams of the freed blocks wait for the copies. It tells whether
	// it freed anything, and is called again, in the same Malloc, as long as
	// it did and the request cannot be served. Options.Drain says when. The
	// only methods of the allocator that it may call are RecordStream,
	// EraseStream, Free, Range and those that change nothing.
	Drain() bool
}

// Costs counts what calls since the last TakeCosts did, for the host lane to
// charge. Sync: the host must wait until every event the allocator had
// outstanding is done (the allocator already acts as if it had waited).
type Costs struct {
	Polls, Records, Waits     int // events asked for, made, waited for on the device
	DriverAllocs, DriverFrees int // successful calls; a driver's free may itself synchronise
	// Maps and Unmaps count handles of physical memory, the pages of
	// expandable segments and the chunks of stitching, each mapped into or
	// taken out of a range of addresses. Such a call costs about the same
	// for a page of any size.
	Maps, Unmaps int
	DriverBytes  sim.Bytes // physical memory by DriverAllocs and by Maps that brought new memory
	Sync         bool
	// DeviceSync: the host must wait until the device is idle, which covers
	// Sync. The recovery steps of torch_npu do that, and every unmapping, as
	// the driver does not wait for what still uses the range (PyTorch waits
	// for the segment's stream alone).
	DeviceSync bool
}

// Allocator manages one device's memory.
type Allocator interface {
	// Malloc allocates size > 0 bytes (or, with Options.Exact, 0) for use on stream s, or fails with an
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
	// EraseStream takes back RecordStream(b, used) if waiting is the stream
	// b was allocated on: that stream has just been made to wait for used,
	// so plain stream order protects the reuse. If b is freed already, its
	// events of that stream count as done, which may complete the free; the
	// caller must know that b's id is not in use again. (torch_npu does so
	// after a collective: MULTI_STREAM_MEMORY_REUSE=1.)
	EraseStream(b Block, used, waiting Stream)
}

// OOM reports a failed allocation. All sizes in bytes.
type OOM struct {
	Requested, Rounded, Segment           sim.Bytes
	Allocated, Active, Reserved, Capacity sim.Bytes
	Limit                                 sim.Bytes // what per_process_memory_fraction allows to reserve; 0 = no limit set
	LargestFree                           sim.Bytes // largest inactive block of the requesting stream's pool
	OtherFree                             sim.Bytes // the same of any other stream, whose blocks do not serve,
	OtherStream                           Stream    // and that stream, if there is such a block
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
	other := ""
	if e.OtherFree > e.LargestFree {
		other = fmt.Sprintf(" (stream %d has one of %d)", e.OtherStream, e.OtherFree)
	}
	return fmt.Sprintf("out of memory: requested %d bytes (block %d, segment %d), free %d of capacity %d%s; allocated %d, active %d, reserved %d, largest free block %d%s, retries %d",
		e.Requested, e.Rounded, e.Segment, e.Free(), e.Capacity, limit, e.Allocated, e.Active, e.Reserved, e.LargestFree, other, e.Retries)
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
