package smartswap

import (
	"fmt"
	"slices"

	"smartswap/profilers"
)

// Editor changes what the planner proposes. It gets all candidates, in the order
// of the plan, with the stages that the shipped simulation has worked out for
// them as if all were chosen, and the profile they come from, which it must not
// change. It returns the ones to swap; it may change OutStage, InAt, Free and
// InFree to other stages of the profile.
//
// What it returns is checked as the shipped code does: a swap that would return
// in the stage it leaves in is dropped; memory that would be released in the
// stage of its own copy is released one stage later.
type Editor func(profile *profilers.Observation, candidates []Candidate) []Candidate

// edited is a planner that leaves the choice to e.
func edited(e Editor) func(Input, *Options) (*Schedule, error) {
	return func(in Input, o *Options) (*Schedule, error) {
		in.complete(o)
		everything := *o
		everything.Planner, everything.RejectUseless = PlanStages, false
		g, m, s, err := survey(in, &everything)
		if err != nil {
			return nil, err
		}
		s.options = o
		candidates := append(g.candidates(in.Profile, o), g.states(in.States, o)...)
		g.rank(candidates, &m, in.Weight)
		p := pool{grid: g, memory: &m, options: &everything, duration: in.Duration, borders: in.Borders,
			rate: min(in.Out, in.In), states: candidates}
		all := p.attempt(nil)
		slices.SortStableFunc(all.chosen, inOrder)
		proposed := make([]Candidate, len(all.chosen))
		for i, c := range all.chosen {
			c.name(g.stages)
			proposed[i] = *c
		}
		s.Swaps, err = g.lint(e(in.Profile, proposed))
		s.Reached = all.short == 0
		return s, err
	}
}

// lint checks swaps that were edited.
func (g *grid) lint(swaps []Candidate) ([]Candidate, error) {
	var kept []Candidate
	for _, c := range swaps {
		for _, x := range []struct {
			stage profilers.Stage
			index *int32
		}{{c.OutStage, &c.out}, {c.InAt, &c.inAt}, {c.Free, &c.free}, {c.InFree, &c.inFree}} {
			i := slices.Index(g.stages, x.stage)
			if i < 0 {
				return nil, fmt.Errorf("smartswap: an edited plan names stage %v, which the profile has not", x.stage)
			}
			*x.index = int32(i)
		}
		if c.inAt <= c.out {
			continue
		}
		last := int32(len(g.stages)) - 1
		if c.free <= c.out {
			c.free = min(c.out+1, last)
		}
		if c.inFree <= c.inAt {
			c.inFree = min(c.inAt+1, last)
		}
		c.name(g.stages)
		kept = append(kept, c)
	}
	return kept, nil
}
