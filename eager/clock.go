package eager

import (
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/workloads"
)

// clock knows the current stage of a rank, from the phase borders that module
// hooks see and from counting operators inside a phase.
//
// Forward and backward passes are counted in the order in which they run, so
// that with first-in-first-out schedules the numbers are micro-batches. The
// logical layer follows the operator count: after operator k of a phase
// (counted from 1) the layer is i+1 for the smallest i with k <= bounds[i],
// one more than there are bounds beyond the last.
//
// With virtual pipeline stages each model chunk has its own count, so that the
// forward and the backward pass of a micro-batch through a chunk have the same
// number.
type clock struct {
	stage     profilers.Stage
	index     int32 // of the stage in the armed plan, -1 = not named there
	k         int32 // operators since the phase began
	forwards  passes
	backwards passes
	plan      *policies.Plan
	bounds    []int32
}

func newClock(p *policies.Plan) clock {
	return clock{stage: profilers.Stage{Phase: profilers.Init}, index: -1, plan: p}
}

// mark enters or leaves a phase of a model chunk and tells whether it is left.
// A phase that is left goes on as the current stage until the next one begins.
func (c *clock) mark(m workloads.MarkKind, chunk int32) (end bool) {
	switch m {
	case workloads.MarkForwardBegin, workloads.MarkValidationBegin:
		c.enter(profilers.Stage{Phase: profilers.Forward, MicroBatch: c.forwards.next(chunk), Layer: 1, Model: chunk})
	case workloads.MarkBackwardBegin:
		c.enter(profilers.Stage{Phase: profilers.Backward, MicroBatch: c.backwards.next(chunk), Layer: 1, Model: chunk})
	case workloads.MarkOptimizerBegin:
		c.enter(profilers.Stage{Phase: profilers.Optim})
	case workloads.MarkIterationBegin:
		c.enter(profilers.Stage{Phase: profilers.Init})
	default:
		return true
	}
	return false
}

// passes counts the passes through each chunk; there are few chunks.
type passes []struct{ chunk, n int32 }

// next adds a pass through a chunk and returns its number, from 1.
func (p *passes) next(chunk int32) int32 {
	for i := range *p {
		if c := &(*p)[i]; c.chunk == chunk {
			c.n++
			return c.n
		}
	}
	*p = append(*p, struct{ chunk, n int32 }{chunk, 1})
	return 1
}

func (c *clock) enter(s profilers.Stage) {
	c.stage, c.k, c.bounds = s, 0, nil
	if c.plan != nil {
		c.bounds = c.plan.Bounds(s)
	}
}

// pass is the current stage without its layer.
func (c *clock) pass() profilers.Stage {
	s := c.stage
	s.Layer = 0
	return s
}

// step counts an operator and tells whether the stage changed.
func (c *clock) step() bool {
	c.k++
	i := int(c.stage.Layer) - 1
	if i < 0 || i >= len(c.bounds) || c.k <= c.bounds[i] {
		return false
	}
	for i < len(c.bounds) && c.k > c.bounds[i] {
		i++
	}
	c.stage.Layer = int32(i + 1)
	return true
}
