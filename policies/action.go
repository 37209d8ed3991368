package policies

import (
	"smartswap/profilers"
	"smartswap/sim"
)

// Kind of an action.
type Kind uint8

// Kinds.
const (
	Evict         Kind = iota // device copy goes; content is copied to To first unless a clean copy is there
	Prefetch                  // a device copy is made, asynchronously
	Release                   // memory held for a copy is given back, the compute stream waiting for the copy
	Discard                   // device copy goes without a copy anywhere; the runtime makes the content again when an operator needs it (Needs.Lineage)
	Rematerialize             // discarded content is made again before the next operator runs, without anybody waiting for it
)

// TriggerKind says when something happens.
type TriggerKind uint8

// Triggers.
const (
	Now        TriggerKind = iota // for Do: at once; in a plan: when the selector matches
	AtStage                       // when the run reaches Stage
	AtUse                         // at the N-th use of the selected storage
	AtOp                          // at operator N of the iteration
	OnPressure                    // when an allocation fails
)

// Trigger is a point in the program.
type Trigger struct {
	Kind  TriggerKind
	Stage profilers.Stage
	N     int32
}

// SelectorKind says how a storage is found.
type SelectorKind uint8

// Selectors.
const (
	ByHandle  SelectorKind = iota // a live handle
	ByFeature                     // the storage whose recent history matches, in the given stage
	ByStatic                      // static id; grades static and future only
)

// Selector finds a storage.
type Selector struct {
	Kind    SelectorKind
	Handle  Handle
	Feature Feature
	Stage   profilers.Stage // ByFeature: match only in this stage
	Static  int32

	// How an executor that is told to match otherwise than by feature finds
	// it, for comparison: the operator of the observed iteration, from 0, and
	// the argument position of its last use; the id it was first seen under.
	Op, Arg int32
	Tensor  profilers.Tensor
}

// Range is a part of a storage; the zero Range is all of it.
type Range struct{ Lo, Hi sim.Bytes }

// TierID names a memory tier; 0 is host memory.
type TierID uint8

// Action is one thing to do.
type Action struct {
	Kind Kind
	What Selector
	Part Range
	To   TierID
	// Start says when it begins, Release when the memory it holds beyond
	// its copy is given back: for Evict the device block, for Prefetch the
	// guard that keeps the storage from being freed under the copy.
	Start, Release Trigger
	// Wait makes the host wait until the copy has ended (Do only).
	Wait bool
}

// Swap is one planned round trip: out when the selector matches, back at a
// stage. A Plan keeps both halves together because the way back concerns
// whatever storage matched on the way out.
type Swap struct {
	Out, In Action
	Bytes   sim.Bytes // as planned, for reports
	// Bound optimizer states are selected by handle and swapped out at
	// Out.Start rather than on a match.
	Optimizer bool
	// Chunked states come back inside the optimizer phase, see Plan.Chunks.
	Chunked bool
}

// Plan is an armed policy.
type Plan struct {
	Swaps []Swap
	// Bounds are the logical-layer boundaries of each phase as operator
	// positions inside the phase (0-based, inclusive): operator k is in
	// layer i+1 for the smallest i with k <= Bounds[i], else in the last.
	ForwardBounds, BackwardBounds []int32
	// Passes are the boundaries of single passes, where they differ from
	// those of their phase.
	Passes []PassBounds
	// Window is how many pending swaps, in the order of the plan, a tensor is
	// compared with; 0 = all.
	Window int
	// Vocabulary maps run-wide name ids to feature indices; see Feature.
	Vocabulary Vocabulary
	Iteration  int // whose observation it was made from
	// Hints are actions on tensors of the nominal program (ByStatic), each at
	// an operator (AtOp), in the order in which the runtime takes them. With
	// unified memory Evict, Prefetch (of a tensor without content: allocate)
	// and Discard (free) are queued when their kernel begins.
	Hints []Action
	// Chunks is the number of pieces in which Chunked states move through the
	// device, one after the other, inside the optimizer phase: the first two
	// come in at their stage, each other one when the one before the last has
	// been updated and leaves. 0 or 1 = all come in at their stage.
	Chunks int
}

// PassBounds are the layer boundaries of one pass, a stage without layer.
type PassBounds struct {
	Pass   profilers.Stage
	Bounds []int32
}

// Bounds are the layer boundaries of the pass that s belongs to.
func (p *Plan) Bounds(s profilers.Stage) []int32 {
	s.Layer = 0
	for i := range p.Passes {
		if p.Passes[i].Pass == s {
			return p.Passes[i].Bounds
		}
	}
	switch s.Phase {
	case profilers.Forward:
		return p.ForwardBounds
	case profilers.Backward:
		return p.BackwardBounds
	}
	return nil
}

// TotalBytes is what one iteration of the plan moves out.
func (p *Plan) TotalBytes() sim.Bytes {
	var n sim.Bytes
	for i := range p.Swaps {
		n += p.Swaps[i].Bytes
	}
	return n
}
