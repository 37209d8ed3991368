package policies

import "smartswap/sim"

// Nominal is the program of one iteration as a compile-time planner
// sees it: what the workload would run if nothing varied. It is granted with
// grade Static and is read-only.
//
// Kernels are numbered from 0 in the order of dispatch, tensors as the program
// numbers its storages; an Action of a plan names them in Trigger.N (AtOp) and
// Selector.Static (ByStatic).
type Nominal struct {
	Kernels []NominalKernel
	Tensors []NominalTensor
	// Loss is the last kernel of the forward pass; -1 if the program has no
	// such border.
	Loss int32
}

// NominalKernel is one operator, of any stream.
type NominalKernel struct {
	// Span is what it adds to the nominal time of the compute stream: the time
	// of a kernel of that stream; of communication, which runs beside it, only
	// what the stream waits for it.
	Span    sim.Time
	In, Out []int32 // tensors read, tensors written; one updated in place is in both
}

// NominalTensor is one storage.
type NominalTensor struct {
	Bytes sim.Bytes
	// Global tensors live across iterations: parameters, optimizer states.
	Global bool
	// Birth is the first kernel that touches a local tensor, Death the first
	// one after its life, which may be len(Kernels). Both are 0 for globals.
	Birth, Death int32
}

// MemoryKind is the kind of device memory that a policy works with.
type MemoryKind uint8

// Kinds of device memory.
const (
	// Framework memory comes from the framework's allocator; tensors move as
	// wholes, by actions.
	Framework MemoryKind = iota
	// Unified memory is paged: allocation always succeeds, a kernel that
	// touches pages which are elsewhere faults (CUDA unified memory).
	Unified
	// Direct memory is managed by a planner's own runtime: it places tensors,
	// and moves those of its plan to a tier and back (FlashNeuron).
	Direct
)

// String is the kind's name in options and tables.
func (k MemoryKind) String() string { return [...]string{"framework", "unified", "direct"}[k] }

// Tiers below device memory.
const (
	HostTier TierID = iota
	SSDTier
)

// Paging is how the driver of unified memory works for a policy.
type Paging struct {
	// Lookahead asks, at each kernel, for the tensors of the one that comes so
	// many kernels later, as learned in the iteration before; 0 = none.
	Lookahead int32
	// Spare protects the tensors of the next Lookahead kernels from making
	// room for a prefetch; one that finds no other victim waits.
	Spare bool
	// Oldest takes the page that came to the device first; otherwise it is the
	// one used least recently.
	Oldest bool
	// DropDead forgets the pages of tensors that nobody references any more;
	// otherwise the driver does not know and moves them like live ones.
	DropDead bool
}

// Placing is how a planner's own runtime works for a policy.
type Placing uint8

// Ways to run direct memory.
const (
	// ByPlan follows the plan's hints, out and back; addresses are four times
	// the memory, so that ranges of them never run out (G10 over GPUDirect
	// Storage).
	ByPlan Placing = iota
	// ByNeed follows its hints out, and fetches back in the order of need, in
	// as many addresses as there is memory (FlashNeuron).
	ByNeed
)

// Placer is a policy that says how direct memory works. A policy that needs
// direct memory and is no Placer gets ByPlan.
type Placer interface{ Placing() Placing }

// Pager is a policy that says how the driver of unified memory works. A policy
// that needs unified memory and is no Pager gets the zero Paging.
type Pager interface{ Paging() Paging }
