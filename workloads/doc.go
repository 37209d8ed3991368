// Package workloads makes the operator streams that a run executes: what a
// training framework dispatches, in host order, with the storages it touches.
//
// A Workload describes a whole job: its ranks, what stays resident across
// iterations, and a Program per rank and iteration. A Program is flat and
// immutable: instructions, their arguments, storages and distinct kernels lie
// in slices, so that an iteration of 100,000 operators is a few allocations
// and may be shared by every iteration that repeats it.
//
// The workload knows the truth (lifetimes, future, identities). Policies never
// see these types: they live below this package and are told what their grade
// of truth allows.
//
// # Where to start reading
//
//	program.go    Program, Instr, Storage, Kernel: the instruction stream
//	builder.go    Builder: how a generator writes a Program
//	validate.go   Validate: what makes a Program well formed
//	workload.go   Workload, Rank
//	bound.go      PeakLive, Total: cheap bounds of a run
//
// The generator of decoder transformers, from the outside in:
//
//	model.go      Model and the table of known ones
//	config.go     Config: layout, save rule, recomputation, and what is possible
//	decoder.go    New: the job, its ranks and its programs
//	stage.go      what is resident on a pipeline stage
//	variation.go  Process: what makes iterations differ
//	generate.go   one iteration: micro-batches, blocks, recomputation
//	schedule.go   the 1F1B order of a stage
//	head.go layer.go attention.go  operators forward and backward, and what they keep
//	parallel.go   collectives and transfers
//	optimizer.go  after the last backward
//	work.go       kernels from shapes
//
// workloadstest checks what every Workload promises.
package workloads
