// Package trace turns files that other programs wrote into workloads. Open
// tells the format by the content and converts it to the native form
// (formats/native), so that whatever can be opened can be run, exported and
// replayed. What had to be skipped, repaired or inferred on the way is in the
// Report: a reader never guesses in silence.
//
// # Where to start reading
//
//	trace.go     Open, Options, Report, how a format is told; Export
//	write.go     Write: a program in the formats of other programs
//	other.go     files that are no workload but known by sight
//
// Formats that tell which operator uses which tensor:
//
//	g10.go       kernel times and networks of the G10 simulator
//	dtr.go       operator logs of DTR
//	et.go        ExecutionTraces of PyTorch, alone or paired with a Kineto trace
//	script.go    what dtr.go and et.go write: a program before storages are numbered
//
// Formats that tell when kernels ran and memory was allocated:
//
//	ascend.go    profiles of torch_npu
//	kineto.go    Chrome traces of Kineto and its kin
//	timeline.go  both become a program here: one order, inferred uses
//	reconcile.go lost releases, found by the allocator's own totals
//	streams.go   when the recorded device was idle
//
// And graphs without memory:
//
//	chakra.go    Chakra
package trace
