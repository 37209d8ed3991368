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
//	cache.go      which programs are kept
//	stage.go      what is resident on a pipeline stage
//	variation.go  Variant, Process: what makes iterations differ
//	generate.go   one iteration: micro-batches, chunks, blocks, recomputation
//	schedule.go   the order of a stage under 1F1B, plain and interleaved
//	head.go layer.go attention.go  operators forward and backward, and what they keep
//	experts.go    the feed-forward part of a mixture of experts
//	adapter.go    low-rank adapters
//	parallel.go   collectives and transfers
//	optimizer.go  after the last backward
//	framework.go  what an older framework does differently
//	work.go       kernels from shapes
//
// profiled.go makes pipelines of operators whose times were measured.
//
// # Variation
//
// A Process changes the Variant of an iteration; a Config lists as many as it
// wants, ProcessByName makes one from a configuration file. By what they change:
//
//	variation_batch.go  how much is trained on, and of which shape: BatchRamp,
//	                    UnevenTail, VariableLength, DynamicPadding,
//	                    PackedSegments, ContextSwitch
//	variation_model.go  what is computed: ExpertImbalance, StochasticDepth,
//	                    EarlyExit, LoRA, RecomputeToggle
//	variation_step.go   what goes around it: OverflowSkip, Validation,
//	                    CheckpointSave, Extras, Rerun
//
// Their order matters where two change the same thing: packing fills the
// sequences that a context switch before it has left, for example.
//
// workloadstest checks what every Workload promises.
package workloads
