package profilers

import "smartswap/sim"

// Fields is a set of things that can be recorded.
type Fields uint16

// Recordable fields.
const (
	IterationTime Fields = 1 << iota // Observation.Duration
	OpNames                          // Sequence
	OpRecords                        // Ops with stage
	TensorArgs                       // Tensors
	MemoryStats                      // allocator counters of OpRec
	SwapRecords                      // Swaps
	OpTimes                          // Begin and Span of OpRec
	CallStacks                       // Python stacks: nobody here reads them, they cost
)

// Costs is the host time of recording.
type Costs struct {
	PerOp        sim.Time // hook entry and exit, per operator
	PerTensor    sim.Time // per tensor argument
	PerStats     sim.Time // reading the allocator's counters, per operator
	PerRecord    sim.Time // converting one tensor record at the end of the iteration
	PerIteration sim.Time
}

// Profiler says what is recorded and what that costs. It holds no state: a
// Recorder does.
type Profiler interface {
	Fields() Fields
	Costs() Costs
}
