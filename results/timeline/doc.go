// Package timeline keeps what happened in a run and writes it for the tools in
// which people look at real jobs:
//
//	WriteTrace     Chrome trace JSON: Perfetto, chrome://tracing, MindStudio Insight
//	WriteSamples   memory_record.csv, and
//	WriteTensors   operator_memory.csv: MindStudio Insight, which wants both
//	Snapshot       PyTorch memory snapshot: pytorch.org/memory_viz
//	Curve          levels of memory and copies over time, for a figure
//
// A Recorder is an eager.Observer. It keeps the last iterations of a run, so
// that neither it nor the files grow with the run's length: a viewer gives up
// long before a simulation does.
//
// # Lanes
//
// In a trace each simulated rank is a process. Its lanes are the host's
// dispatching thread, on which slices of operators and waits nest in slices of
// phases and these in slices of iterations; the launching thread, if there is
// one; and the streams of the device. Categories and arguments are those of
// Kineto, so that tools made for its traces find kernels, copies, launches and
// allocations: "correlation" ties a kernel to its launch, "External id" to its
// operator. An operator that runs again has its own name and "External id" there,
// and "replay for", the number of the program's operator that needs what it makes.
//
// Memory that is not the allocator's, paged or run by a planner, has slices of
// moves on the lanes of copies, one for each stretch of time without a pause
// between the ends of two kernels, without arrows, as a move is of many tensors.
// It has no allocations: kernels say how long they waited for it and what moved
// since the one before, counters what is resident. It has no memory tables and no
// snapshot either.
//
// # Where to start reading
//
//	recorder.go  Recorder: from observations to spans, lives and levels
//	trace.go     WriteTrace
//	memory.go    WriteSamples, WriteTensors, Snapshot
//	curve.go     Curve
package timeline
