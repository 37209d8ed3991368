// Package eager runs a job as an eager-mode framework does: host threads
// dispatch operators one by one, devices execute them behind, memory is
// allocated and freed in host order, and a policy moves tensors meanwhile.
//
// # Three timelines
//
// The dispatching thread walks the program. For each operator it makes sure
// that the arguments are on the device, allocates outputs, pays the host time
// of the dispatch and issues the kernel. On Ascend a second thread takes the
// issued commands from a task queue and launches them. The device executes
// streams in order (package stream). Nothing ties the three together but
// queues, events and memory.
//
// # One operator
//
//	begin     poll holds; BeforeOp event
//	args      in order: a tensor on the host is swapped in now (demand fault),
//	          one under way is waited for on the device, an output is allocated
//	scratch   workspace
//	pay       dispatch + everything charged since the last payment
//	launch    the kernel is issued; versions of written storages advance
//	post      record; AfterOp event; match swap-outs
//	matched   matched tensors leave; stage tasks; releases; the clock advances
//	due       planned swap-ins find memory
//
// Host time is charged while a step acts and paid as one span before the
// commands of the step reach the launch queue. The cost of what follows the
// kernel is paid with the next operator. A step that has to wait (for a queue,
// for a synchronous eviction, for host memory) is taken up again where it
// stopped.
//
// # When memory is short
//
// In this order, until the allocation succeeds: memory held for swap-outs under
// way is given back, oldest first, the compute stream waiting for each; the
// allocator grows, or returns its cache to the driver and tries again; the
// policy makes room (Pressure); a swap-in that nobody has used yet is taken
// back; the host waits for buffers of copies under way. Then the run ends with
// an OutOfMemory report.
//
// # What was discarded
//
// For a policy that asks for it (policies.Lineage) the rank keeps the lineage of
// its storages, package remat. An operator that needs content that is nowhere is
// suspended, the operator that made it is dispatched another time, its inputs
// first, and so on; frames of suspended operators are a stack. What runs again
// costs host time and device time like any operator, locks what it uses, and may
// make the policy discard something else. It gives nothing a new version, and is
// no operator of the program: neither the profiler nor the hash of the sequence
// sees it. Before an operator overwrites what discarded content would have to be
// made from, that content is made. Collectives of ranks that are alike run again
// if the policy wants it (policies.Lineage): on the stream of communication, behind
// all that compute has been given, compute waiting for them, together with the
// other ranks, which come to the same point by themselves; transfers between
// stages never do. An operator without device work takes its
// arguments one by one, all others lock what is there before they make the rest.
//
// # Memory that is made resident at the kernel
//
// A policy may need another kind of device memory than the allocator's: unified
// memory (package unified). The allocator then only hands out addresses, nothing
// is short at dispatch, and the device asks a stream.Residency for the operands
// when a kernel is at the head of its stream. Such memory moves by its own rules
// and by the hints of a plan.
//
// Communication (a collective, a transfer, a kernel on one of their streams) is
// a kernel like others to it, but for this: it starts when all its operands are
// on the device, and they stay until it ends, as buffers that are registered
// with a communication library do. It waits for events, and takes the time, that
// it does in the framework's memory. It takes nothing before all members of a
// meeting have come, and members begin together, so that ranks cannot hold what
// others wait for. What the host does when a tensor dies, and what a plan says
// at an operator, comes with the compute stream, but not before communication
// has ended that was issued earlier and uses the tensor. Links and SSDs are the
// device's own, with an equal share of an uplink that several use.
//
// A planner is shown the program in the order of dispatch with communication in
// it; its time counts as far as compute waits for it: see newNominal.
//
// # Where to start reading
//
//	config.go   Config: everything a run depends on
//	job.go      Run: from Config to Report
//	rank.go     the dispatching thread
//	launch.go   the launching thread and its queues
//	memory.go   allocation, pressure, out of memory
//	lineage.go  operators that run again
//	paged.go    memory that is made resident at the kernel
//	runtime.go  what a policy can do (policies.Runtime)
//	report.go   what a run tells
//	observe.go  Observer: who watches a run, and what they see
package eager
