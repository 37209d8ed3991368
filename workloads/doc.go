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
//	program.go   Program, Instr, Storage, Kernel: the instruction stream
//	builder.go   Builder: how a generator writes a Program
//	workload.go  Workload, Rank, Layout
package workloads
