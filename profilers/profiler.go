package profilers

import (
	"strings"

	"smartswap/sim"
)

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
	BorderTimes                      // Borders
)

// fieldNames in bit order.
var fieldNames = [...]string{"iteration-time", "op-names", "op-records", "tensor-args",
	"memory-stats", "swap-records", "op-times", "call-stacks", "border-times"}

// Has tells whether all fields of want are in f.
func (f Fields) Has(want Fields) bool { return f&want == want }

// String lists the fields, joined with "+"; "nothing" for none.
func (f Fields) String() string {
	var names []string
	for i, name := range fieldNames {
		if f.Has(1 << i) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, "+")
}

// Costs is the host time of recording.
type Costs struct {
	PerOp        sim.Time // hook entry and exit, per operator
	PerTensor    sim.Time // per tensor argument
	PerStats     sim.Time // reading the allocator's counters, per operator
	PerRecord    sim.Time // converting one tensor record at the end of the iteration
	PerIteration sim.Time
	PerBorder    sim.Time // recording a device event at a stage border
}

// Op is the cost of recording one operator with the given number of tensor
// arguments, as far as f asks for it.
func (c Costs) Op(f Fields, tensors int) sim.Time {
	var t sim.Time
	if f != 0 {
		t = c.PerOp
	}
	if f.Has(TensorArgs) {
		t += sim.Time(tensors) * c.PerTensor
	}
	if f.Has(MemoryStats) {
		t += c.PerStats
	}
	return t
}

// End is the cost at the end of an iteration in which records tensor records
// were made.
func (c Costs) End(records int) sim.Time {
	return c.PerIteration + sim.Time(records)*c.PerRecord
}

// Profiler says what is recorded and what that costs. It holds no state: a
// Recorder does.
type Profiler interface {
	Fields() Fields
	Costs() Costs
}
