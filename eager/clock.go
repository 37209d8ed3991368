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
type clock struct {
	stage     profilers.Stage
	index     int32 // of the stage in the armed plan, -1 = not named there
	k         int32 // operators since the phase began
	forwards  int32
	backwards int32
	plan      *policies.Plan
	bounds    []int32
}

func newClock(p *policies.Plan) clock {
	return clock{stage: profilers.Stage{Phase: profilers.Init}, index: -1, plan: p}
}

// mark enters or leaves a phase and tells whether it is left. A phase that is
// left goes on as the current stage until the next one begins.
func (c *clock) mark(m workloads.MarkKind) (end bool) {
	switch m {
	case workloads.MarkForwardBegin, workloads.MarkValidationBegin:
		c.forwards++
		c.enter(profilers.Stage{Phase: profilers.Forward, MicroBatch: c.forwards, Layer: 1})
	case workloads.MarkBackwardBegin:
		c.backwards++
		c.enter(profilers.Stage{Phase: profilers.Backward, MicroBatch: c.backwards, Layer: 1})
	case workloads.MarkOptimizerBegin:
		c.enter(profilers.Stage{Phase: profilers.Optim})
	case workloads.MarkIterationBegin:
		c.enter(profilers.Stage{Phase: profilers.Init})
	default:
		return true
	}
	return false
}

func (c *clock) enter(s profilers.Stage) {
	c.stage, c.k, c.bounds = s, 0, nil
	if c.plan == nil {
		return
	}
	switch s.Phase {
	case profilers.Forward:
		c.bounds = c.plan.ForwardBounds
	case profilers.Backward:
		c.bounds = c.plan.BackwardBounds
	}
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
