package policies

import (
	"smartswap/profilers"
	"smartswap/sim"
)

// Grade says how much of the truth a policy is granted.
type Grade uint8

// Grades of truth.
const (
	Observed Grade = iota // what the profiler recorded and the events tell
	Static                // the nominal program without variation: compile-time planners
	Future                // the program that will really run: the oracle only
)

// String is the grade's name in tables.
func (g Grade) String() string { return [...]string{"observed", "static", "future"}[g] }

// EventKind is a kind of event that a policy can subscribe to.
type EventKind uint8

// Events.
const (
	IterationEnd EventKind = iota // Event.Observation is set if this iteration was profiled
	MarkEvent                     // a phase border
	BeforeOp                      // after the arguments are known, before anything is allocated
	AfterOp                       // after the kernel is enqueued
	SaveEvent                     // autograd keeps a tensor
	UnpackEvent                   // backward asks for it again
	Miss                          // an operator needs a tensor that is not on the device
	Pressure                      // an allocation failed; the policy may make room
	Released                      // the program has given a tensor's last reference back; with Needs.Lineage only
	NumEvents
)

// Events is a set of event kinds.
type Events uint16

// Set makes a set.
func Set(kinds ...EventKind) Events {
	var s Events
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has tells whether k is in s.
func (s Events) Has(k EventKind) bool { return s&(1<<k) != 0 }

// Needs is what a policy requires. A run that cannot grant it is refused
// before time 0.
type Needs struct {
	Fields  profilers.Fields // of the detailed profile
	Events  Events
	Grade   Grade
	Memory  MemoryKind
	Lineage Lineage
}

// Lineage is what a policy wants of the runtime's record of which operator made
// which tensor. With Keep, content may be discarded (Discard): when an operator
// needs it, the operators that made it run again, their inputs first. Tensors
// without references stay known until the iteration ends, since they may have
// to be made on the way; they keep their memory until they are discarded, by
// the policy, or at once by the runtime if the policy does not want to hear of
// it (Released).
type Lineage struct {
	Keep bool
	// Overwrite lets an operator that runs again write results that are still
	// there where they are. Without it they are made a second time beside the
	// first and dropped, as a framework does whose operators allocate what they
	// return.
	Overwrite bool
	// Communication lets collectives run again too, where all their members are
	// alike: ranks of one stage, which run the same program and so discard the
	// same. Those that are not folded into one meet again for it; a run in which
	// they do not meet for the same operator ends with an error. A buffer that a
	// collective fills again is a new tensor each time, the one before losing its
	// references: what was computed from it can be made again.
	Communication bool
	// Limit ends the run, as if memory had run out, when the operators that run
	// again in an iteration take longer than Limit times all kernels of its
	// program on the compute stream; 0 = never.
	Limit float64
}

// Handle names a live storage of the run. Handles are not reused; they mean
// nothing in another iteration unless the storage is still alive then.
type Handle int64

// TensorInfo is what the runtime knows about a live storage without looking at
// the workload.
type TensorInfo struct {
	Handle    Handle
	Bytes     sim.Bytes // requested size
	Block     sim.Bytes // device bytes it occupies; 0 when not on the device
	Type      profilers.TensorType
	OnDevice  bool // has a device copy that is complete or arriving
	OnHost    bool // has a valid host copy of the current version
	InUse     bool // argument of the operator being dispatched
	Evictable bool // may be evicted now: on the device, not in use, no copy under way, not shared memory
	// Discardable: may be discarded now: on the device, not in use, and either
	// without references, or to be made again, with no copy under way, and not
	// shared memory. Discard still refuses a tensor without references that cannot
	// be made again while one that is not there has to be made from it.
	Discardable bool
}

// OpView is the operator of a BeforeOp or AfterOp event. It is valid during
// the call only.
type OpView struct {
	Index int64 // operators so far in this run
	Name  int32 // run-wide name id, first-seen order
	Stage profilers.Stage
	Args  []Handle // inputs first, duplicates kept

	// With Needs.Lineage only.
	Roles []Role   // of Args, one by one
	Cost  sim.Time // device time of the operator, as the runtime measures it
	Again bool     // the operator runs another time, to make what was discarded
}

// Role is what an argument is to an operator.
type Role uint8

// Roles.
const (
	Input   Role = iota
	Output       // its content is made by the operator
	Changed      // read and changed in place
	View         // a new view of a storage that is an input too
)

// Mark is a phase border as module hooks see it.
type Mark struct {
	Stage profilers.Stage // the stage that begins (or, for an end, ends)
	End   bool
}

// Event is what happened. Which fields are set depends on Kind.
type Event struct {
	Kind        EventKind
	Iteration   int
	Op          OpView
	Mark        Mark
	Tensor      Handle    // SaveEvent, UnpackEvent, Miss, Released
	Need        sim.Bytes // Pressure: rounded size of the request that failed
	Attempt     int       // Pressure: how often this request has failed, from 1
	Observation *profilers.Observation
	Evictions   int // IterationEnd: swaps and discards that a failed allocation forced
	OOM         bool
}

// Policy decides what leaves the device and when it comes back.
type Policy interface {
	// Needs is constant.
	Needs() Needs
	// Handle is called for every subscribed event, on the dispatching
	// thread, in program order. On Pressure, returning without having freed
	// anything means giving up: the run ends with an out-of-memory report.
	Handle(ev *Event, rt Runtime)
}

// Level is how much the profiler records from the next iteration on. A run
// starts at Full if the policy's Needs name profile fields, else at Off.
type Level uint8

// Levels.
const (
	Off   Level = iota // hooks are not installed
	Light              // the lightweight profiler: operator names
	Full               // the strategy's profiler
)

// Runtime is the running job as a policy may touch it.
type Runtime interface {
	// Now is the host clock.
	Now() sim.Time
	// Do carries out an action on a live handle (Selector.Handle) at once.
	// It returns what came of it; a refused action changed nothing.
	Do(a Action) Outcome
	// Arm replaces the plan for all iterations that follow; nil disarms.
	Arm(p *Plan) error
	// Observe sets the profiling level from the next iteration on.
	Observe(l Level)
	// Charge adds planning cost to the host lane: blocking, by model.
	Charge(cost sim.Time)
	// Tensor looks a handle up; false when the storage is gone.
	Tensor(h Handle) (TensorInfo, bool)
	// Nominal is the nominal program; nil unless the policy needs, and so was
	// granted, grade Static.
	Nominal() *Nominal
	// OptimizerStates lists the live optimizer storages in allocation order.
	OptimizerStates() []Handle
	// Moved is what the runtime's own events around copies have measured of
	// one direction of the host link: bytes and the time the engine took for
	// them, over all finished copies; zero before the first.
	Moved(out bool) (sim.Bytes, sim.Time)
	// Capacity is the allocator's limit, Reserved and Allocated its state.
	Capacity() sim.Bytes
	Reserved() sim.Bytes
	Allocated() sim.Bytes
}

// Outcome of an action.
type Outcome uint8

// Outcomes.
const (
	Done    Outcome = iota // memory is free, or the copy is enqueued
	Refused                // not possible now: in use, in flight, not there, shared memory
	NoHost                 // the host pool is exhausted
	NoRoom                 // no device memory for a swap-in
)
