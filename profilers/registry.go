package profilers

import (
	"fmt"
	"strings"

	"smartswap/internal/nearest"
	"smartswap/sim"
)

// Spec is a Profiler as plain data: what it records and what that costs.
type Spec struct {
	Records Fields
	Prices  Costs
}

// Fields of a Spec.
func (s Spec) Fields() Fields { return s.Records }

// Costs of a Spec.
func (s Spec) Costs() Costs { return s.Prices }

// Registration is one line of the registry.
type Registration struct {
	Name, About string
	Profiler    Profiler
}

// All lists the registered profilers, cheapest first. A new profiler is a line
// here.
func All() []Registration {
	return []Registration{
		{"none", "records nothing and costs nothing", Spec{}},
		{"lightweight", "operator names as integers: enough to notice that the sequence changed", lightweight},
		{"access-times", "when each operator accessed which tensors, on the device; no names, no allocator counters", accessTimes},
		{"detailed", "operators, argument tensors, stages, allocator counters, swaps; no operator times", detailed},
		{"stage-events", "detailed, and the device times of stage borders", stageEvents},
		{"pytorch", "everything a framework profiler records: times, shapes, memory, Python stacks", pytorch},
	}
}

// The host costs below are assumed: no measurement of these hooks on the host
// of an Ascend node is published. What they stand for is named line by line,
// and an experiment can sweep them. They were not derived from the overheads
// that the paper reports (0.9 % lightweight, up to 219 % for the framework's
// profiler); those are for comparison.
var (
	// One integer appended per operator, one comparison per iteration.
	lightweight = Spec{
		Records: IterationTime | OpNames,
		Prices: Costs{
			PerOp:        100 * sim.Nanosecond, // assumed: a call and an append
			PerIteration: 50 * sim.Microsecond, // assumed: two dot products over some 10,000 integers
		},
	}

	// The hooks of the shipped system: begin, one call per tensor, post, end;
	// the records become interpreter objects when the iteration ends.
	detailed = Spec{
		Records: IterationTime | OpNames | OpRecords | TensorArgs | MemoryStats | SwapRecords,
		Prices: Costs{
			PerOp:        1500 * sim.Nanosecond, // assumed: four hook calls, two queue polls
			PerTensor:    300 * sim.Nanosecond,  // assumed: two map look-ups, one record
			PerStats:     500 * sim.Nanosecond,  // assumed: copy of the counters under the allocator's lock
			PerRecord:    800 * sim.Nanosecond,  // assumed: one interpreter object
			PerIteration: 200 * sim.Microsecond, // assumed: building the lists around them
		},
	}

	// What Capuchin logs in its measured execution (ASPLOS 2020): tensor, number
	// and time of each access, and the operator. Its runtime does so in native
	// code, so records need no conversion; times on the device need an event
	// per operator.
	accessTimes = Spec{
		Records: IterationTime | OpRecords | TensorArgs | SwapRecords | OpTimes,
		Prices: Costs{
			PerOp:        2 * sim.Microsecond,   // assumed: one event recorded, one read
			PerTensor:    200 * sim.Nanosecond,  // assumed: one append
			PerRecord:    50 * sim.Nanosecond,   // assumed: sorted into access lists
			PerIteration: 100 * sim.Microsecond, // assumed: lists of the last iteration given up
		},
	}

	// A few device events in addition to the detailed profile: two borders per
	// micro-batch, and those of the logical layers while a plan is armed.
	stageEvents = Spec{
		Records: detailed.Records | BorderTimes,
		Prices: Costs{
			PerOp: detailed.Prices.PerOp, PerTensor: detailed.Prices.PerTensor, PerStats: detailed.Prices.PerStats,
			PerRecord: detailed.Prices.PerRecord, PerIteration: detailed.Prices.PerIteration,
			PerBorder: 2 * sim.Microsecond, // assumed: one event recorded, one read
		},
	}

	// A framework profiler with shapes, memory and stacks switched on.
	pytorch = Spec{
		Records: detailed.Records | OpTimes | CallStacks,
		Prices: Costs{
			PerOp:        20 * sim.Microsecond, // assumed: two callbacks, device activity record, stack walk
			PerTensor:    1 * sim.Microsecond,  // assumed: shape and type copied
			PerStats:     1 * sim.Microsecond,  // assumed: one memory event per allocation
			PerRecord:    2 * sim.Microsecond,  // assumed: event tree and correlation
			PerIteration: 5 * sim.Millisecond,  // assumed: flushing the device's activity buffers
		},
	}
)

// RegisteredNames lists the names of All in its order.
func RegisteredNames() []string {
	var names []string
	for _, r := range All() {
		names = append(names, r.Name)
	}
	return names
}

// Lookup finds a profiler by name. The error names the nearest and all valid
// names.
func Lookup(name string) (Profiler, error) {
	for _, r := range All() {
		if r.Name == name {
			return r.Profiler, nil
		}
	}
	names := RegisteredNames()
	return nil, fmt.Errorf("profilers: no profiler %q; nearest is %q, valid are %s",
		name, nearest.Name(name, names), strings.Join(names, ", "))
}
