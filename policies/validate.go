package policies

import (
	"fmt"

	"smartswap/profilers"
)

// Validate tells what is wrong with p on its own: kinds and triggers that do
// not fit, stages that its boundaries do not have, a way back that does not
// come after the way out. Stages of different micro-batches are not compared:
// their order belongs to the pipeline schedule. A nil plan is valid.
func (p *Plan) Validate() error {
	if p == nil {
		return nil
	}
	all := [][]int32{p.ForwardBounds, p.BackwardBounds}
	for _, pass := range p.Passes {
		all = append(all, pass.Bounds)
	}
	for _, bounds := range all {
		for i, b := range bounds {
			if b < 0 || i > 0 && b < bounds[i-1] {
				return fmt.Errorf("policies: plan: layer boundary %d is %d: boundaries are not negative and do not fall", i, b)
			}
		}
	}
	if p.Window < 0 {
		return fmt.Errorf("policies: plan: window = %d: must not be negative", p.Window)
	}
	if p.Chunks < 0 {
		return fmt.Errorf("policies: plan: chunks = %d: must not be negative", p.Chunks)
	}
	for i := range p.Swaps {
		if err := p.validateSwap(&p.Swaps[i]); err != nil {
			return fmt.Errorf("policies: plan: swap %d: %w", i, err)
		}
	}
	return nil
}

func (p *Plan) validateSwap(s *Swap) error {
	switch {
	case s.Out.Kind != Evict || s.In.Kind != Prefetch:
		return fmt.Errorf("kinds %d and %d: a swap is an Evict and a Prefetch", s.Out.Kind, s.In.Kind)
	case s.Bytes <= 0:
		return fmt.Errorf("%d bytes: must be positive", s.Bytes)
	case s.In.Start.Kind != AtStage:
		return fmt.Errorf("way in starts on trigger %d: must be a stage", s.In.Start.Kind)
	}
	out := s.Out.What.Stage
	switch {
	case s.Chunked && !s.Optimizer:
		return fmt.Errorf("only optimizer states move in chunks")
	case s.Optimizer && (s.Out.What.Kind != ByHandle || s.Out.Start.Kind != AtStage):
		return fmt.Errorf("an optimizer state is selected by handle and leaves at a stage")
	case s.Optimizer:
		out = s.Out.Start.Stage
	case s.Out.What.Kind != ByFeature || s.Out.Start.Kind != Now:
		return fmt.Errorf("a tensor is selected by feature and leaves when it matches")
	}
	stages := []profilers.Stage{out, s.In.Start.Stage}
	for _, r := range []Trigger{s.Out.Release, s.In.Release} {
		if r.Kind == AtStage {
			stages = append(stages, r.Stage)
		}
	}
	for _, stage := range stages {
		if err := p.validateStage(stage); err != nil {
			return err
		}
	}
	if before(s.In.Start.Stage, out) {
		return fmt.Errorf("out at %v but in at %v", out, s.In.Start.Stage)
	}
	if r := s.Out.Release; r.Kind == AtStage && before(r.Stage, out) {
		return fmt.Errorf("out at %v but released at %v", out, r.Stage)
	}
	if r := s.In.Release; r.Kind == AtStage && before(r.Stage, s.In.Start.Stage) {
		return fmt.Errorf("in at %v but released at %v", s.In.Start.Stage, r.Stage)
	}
	return nil
}

// validateStage tells whether a run under p can reach s.
func (p *Plan) validateStage(s profilers.Stage) error {
	switch s.Phase {
	case profilers.Init, profilers.Optim:
		if s.MicroBatch != 0 || s.Layer != 0 {
			return fmt.Errorf("stage %v: this phase has no micro-batches and layers", s)
		}
		return nil
	case profilers.Forward, profilers.Backward:
	default:
		return fmt.Errorf("stage %v: no such phase", s)
	}
	layers := len(p.Bounds(s)) + 1
	if s.MicroBatch < 1 || s.Layer < 1 || int(s.Layer) > layers {
		return fmt.Errorf("stage %v: micro-batches and layers count from 1, layers to %d", s, layers)
	}
	return nil
}

// before tells whether a certainly comes before b in an iteration.
func before(a, b profilers.Stage) bool {
	if a == b {
		return false
	}
	grid := func(s profilers.Stage) bool { return s.Phase == profilers.Forward || s.Phase == profilers.Backward }
	if !grid(a) || !grid(b) {
		return a.Phase < b.Phase
	}
	if a.MicroBatch != b.MicroBatch || a.Model != b.Model {
		return false
	}
	if a.Phase != b.Phase {
		return a.Phase < b.Phase
	}
	return a.Layer < b.Layer
}
