package eager

import (
	"fmt"

	"smartswap/eager/alloc"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// HostCause says what the dispatching thread waited for.
type HostCause uint8

// Causes of host waiting.
const (
	QueueFull  HostCause = iota // the launch queue or the task queue
	SyncPoint                   // the program's own synchronisation
	EvictWait                   // a synchronous eviction
	DriverSync                  // the allocator returning memory to the driver
	HostMemory                  // host buffers of copies under way, when the pool is exhausted
	NumHostCauses
)

// Name is the cause's name in reports.
func (c HostCause) Name() string {
	return [...]string{"queue_full", "sync_point", "evict_wait", "driver_sync", "host_memory"}[c]
}

// HostLane is what a dispatching thread has done.
type HostLane struct {
	Busy sim.Time
	Wait [NumHostCauses]sim.Time
	Done sim.Time // time after the end of its last iteration
}

// Replays are what a policy with a lineage has discarded and operators that ran
// again to make it.
type Replays struct {
	Discards int64     // storages whose memory was given up without a copy
	Forced   int64     // of them, because an allocation failed
	Bytes    sim.Bytes // requested sizes of all of them
	Ops      int64     // operators that ran again
	Time     sim.Time  // their time on the device alone
}

func (r *Replays) add(o *Replays) {
	r.Discards += o.Discards
	r.Forced += o.Forced
	r.Bytes += o.Bytes
	r.Ops += o.Ops
	r.Time += o.Time
}

// Iteration is one iteration of the whole job.
type Iteration struct {
	Index int
	Kind  string   // the program's kind on rank 0
	End   sim.Time // last compute stream to pass the iteration's end
	Span  sim.Time // since the end of the one before; for the first, since 0

	// Summed over simulated ranks.
	Evictions         int64 // swap-outs and discards that a failed allocation forced
	Faults            int64 // demand swap-ins; with unified memory, kernels that missed pages
	OutBytes, InBytes sim.Bytes
	OutByType         [profilers.NumTensorTypes]sim.Bytes // of OutBytes; not known for unified memory
	SSDOut, SSDIn     sim.Bytes                           // of OutBytes, InBytes: to and from the SSD
	PlannedOuts       int64
	Replays           Replays
}

// RankReport is what one simulated rank did.
type RankReport struct {
	Rank    int
	Devices []int
	// Peaks over the whole run and over the steady window.
	Memory, Steady alloc.Stats
	HostPeak       sim.Bytes
	// Driver is the dispatching thread's time in the driver for memory, over
	// the whole run: segments, mappings (DriverTime), and page-locking host
	// buffers. What it waits because of them is Host.Wait[DriverSync].
	Driver sim.Time
	// Lanes over the steady window, by stream.
	Lanes [stream.Count]stream.Lane
	// Window is the length of the steady window on this rank.
	Window sim.Time
	Host   HostLane
	Swap   swap.Stats
	// Replays over the whole run, the unfinished iteration included.
	Replays Replays
	// Ops counts dispatched program operators, Recomputed those of them
	// that recomputation repeats.
	Ops, Recomputed int64
	// Sequence is a hash of the names of program operators in order,
	// recomputed ones left out (invariant 12).
	Sequence uint64
	// Notes is the policy's diary, if it keeps one.
	Notes []policies.Note
	// Live is what was left at the end of the last iteration, beyond the
	// residents.
	Live int
}

// Holder is one of the largest storages at an out-of-memory.
type Holder struct {
	Name  string
	Bytes sim.Bytes
}

// OutOfMemory is how a run ended that did not fit.
type OutOfMemory struct {
	Rank, Iteration int
	Op              string
	Cause           *alloc.OOM
	// Limit is set when the policy's own limit of recomputation ended the run
	// (policies.Lineage): what ran again, and what was allowed. Cause then tells
	// only the capacity.
	Limit *RematLimit
	Top   []Holder
	// Refused counts evictions refused in this run because the pinned host
	// pool was exhausted; HostUsed of HostCapacity bytes are in use.
	Refused                int64
	HostUsed, HostCapacity sim.Bytes
	// Paged is why memory that is made resident at the kernel gave up; Cause
	// then has its sizes. nil for memory of the framework's allocator.
	Paged error
}

// RematLimit is a limit of recomputation that was passed.
type RematLimit struct{ Time, Allowed sim.Time }

// Error is one line.
func (o *OutOfMemory) Error() string {
	if o.Paged != nil {
		return fmt.Sprintf("rank %d, iteration %d, %s: %v", o.Rank, o.Iteration, o.Op, o.Paged)
	}
	if o.Limit != nil {
		return fmt.Sprintf("rank %d, iteration %d, %s: operators that ran again took %v, more than the %v that the policy allows", o.Rank, o.Iteration, o.Op, o.Limit.Time, o.Limit.Allowed)
	}
	s := fmt.Sprintf("rank %d, iteration %d, %s: %v", o.Rank, o.Iteration, o.Op, o.Cause)
	if o.Refused > 0 {
		s += fmt.Sprintf("; %d evictions refused by the host pool, %d of %d bytes in use", o.Refused, o.HostUsed, o.HostCapacity)
	}
	return s
}

// Report is the outcome of a run.
type Report struct {
	Iterations []Iteration // complete ones
	Ranks      []RankReport
	OOM        *OutOfMemory // nil: it fits
	// Steady is the mean iteration time of the steady window; 0 when the
	// run did not get there.
	Steady      sim.Time
	Makespan    sim.Time
	Events      uint64
	Fingerprint uint64
	Ops         int64 // program operators, all ranks and iterations
	// Violations are broken invariants, at most 20; only with Checks.
	Violations []string
}

// Peak is the largest of a statistic over the ranks.
func (r *Report) Peak(f func(*RankReport) int64) int64 {
	var p int64
	for i := range r.Ranks {
		p = max(p, f(&r.Ranks[i]))
	}
	return p
}
