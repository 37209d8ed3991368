package smartswap

import (
	"slices"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// Input is what a plan is made from. Everything in it was observed.
type Input struct {
	Profile  *profilers.Observation
	OOM      bool        // evictions happened while the profile was taken
	Duration sim.Time    // of an iteration, as the planner is to believe
	States   []sim.Bytes // sizes of the live optimizer states, in allocation order

	// Redundant and Weight are Options.Redundant and Options.SizeWeight as
	// the search has adjusted them.
	Redundant sim.Bytes
	Weight    float64
}

// Schedule is a planner's result: what to swap, and how it came about.
type Schedule struct {
	Swaps        []Candidate // by operator of swap-out, larger first
	Peak, Target sim.Bytes   // theoretical peak; what is aimed at
	Reductions   int         // operators above the target
	Rounds       int
	Reached      bool // the target, by the planner's own account
	Stages       []profilers.Stage

	profile *profilers.Observation
	grid    *grid
	options *Options
}

// Bytes is what the schedule moves out per iteration.
func (s *Schedule) Bytes() sim.Bytes {
	var n sim.Bytes
	for i := range s.Swaps {
		n += s.Swaps[i].Bytes
	}
	return n
}

// maxRetries bounds how often a schedule is made again around swaps that turn
// out to be useless; whatever is useless after that is dropped.
const maxRetries = 4

// Generate is the goal-driven planner: cut the profile into logical layers,
// find where memory is above the target, and choose tensors to swap under an
// estimate of the time that each stage has for copies. It is a pure function.
// It fails on a profile in which a stage comes twice.
func Generate(in Input, o *Options) (*Schedule, error) {
	obs := in.Profile
	layers := o.Layers
	if layers == 0 {
		layers = obs.Layers
	}
	if layers == 0 {
		layers = o.UnknownLayers
	}
	g, err := newGrid(obs, layers)
	if err != nil {
		return nil, err
	}
	m := g.demand(obs, o, in.OOM, in.Redundant)
	s := &Schedule{
		Peak: m.peak, Target: m.target, Reductions: len(m.ops), Reached: true,
		Stages: g.stages, profile: obs, grid: g, options: o,
	}
	if len(m.ops) == 0 {
		return s, nil
	}
	states := g.states(in.States, o)
	ranked := g.candidates(obs, o)
	g.rank(ranked, &m, in.Weight)
	useless := make(map[profilers.Tensor]bool)
	for retry := 0; ; retry++ {
		sel := &selector{
			grid: g, memory: &m, options: o,
			times: newStageTimes(g, in.Duration, o.CountAllOps),
			all:   slices.Concat(ranked, states),
			fates: make([]fate, len(ranked)+len(states)),
			needs: newNeeds(m.need),
		}
		for i := range sel.all {
			if useless[sel.all[i].Tensor] {
				sel.fates[i] = excluded
			}
		}
		for i := range states {
			sel.force(int32(len(ranked) + i))
		}
		s.Reached = sel.run()
		s.Rounds = sel.rounds
		chosen := make([]*Candidate, len(sel.chosen))
		for i, k := range sel.chosen {
			chosen[i] = &sel.all[k]
		}
		g.release(chosen, sel.times, o)
		slices.SortStableFunc(chosen, inOrder)
		found := len(useless)
		s.Swaps = s.Swaps[:0]
		for _, c := range chosen {
			if o.RejectUseless && c.free >= c.inAt && c.Tensor >= 0 {
				useless[c.Tensor] = true
				continue
			}
			c.name(g.stages)
			s.Swaps = append(s.Swaps, *c)
		}
		if len(useless) == found {
			return s, nil
		}
		if retry == maxRetries {
			s.Reached = false
			return s, nil
		}
	}
}

// name fills in the stages that selection worked out as indices.
func (c *Candidate) name(stages []profilers.Stage) {
	c.OutStage, c.InStage, c.InAt = stages[c.out], stages[c.in], stages[c.inAt]
	c.Free, c.InFree = stages[c.free], stages[c.inFree]
}

// State is a live optimizer state.
type State struct {
	Handle policies.Handle
	Bytes  sim.Bytes
}

// Plan makes the schedule executable. Activations are described by their
// history; optimizer states are bound to live ones of the same size, in order:
// all of them leave and return at the same stages, so equal sizes are as good
// as equal states. States that find no partner are left out.
func (s *Schedule) Plan(states []State) *policies.Plan {
	p := &policies.Plan{
		ForwardBounds: s.grid.forward, BackwardBounds: s.grid.backward,
		Vocabulary: vocabulary(s.profile),
		Iteration:  s.profile.Iteration,
	}
	if s.options.Optimizer == OptimizerChunks {
		p.Chunks = s.options.Chunks
	}
	chosen := make([]*Candidate, len(s.Swaps))
	for i := range s.Swaps {
		chosen[i] = &s.Swaps[i]
	}
	history := features(s.profile, p.Vocabulary, chosen, s.options.WholeHistory)
	bySize := make(map[sim.Bytes][]policies.Handle)
	for _, st := range states {
		bySize[st.Bytes] = append(bySize[st.Bytes], st.Handle)
	}
	at := func(s profilers.Stage) policies.Trigger {
		return policies.Trigger{Kind: policies.AtStage, Stage: s}
	}
	for i, c := range chosen {
		what := policies.Selector{Kind: policies.ByFeature, Feature: history[i], Stage: c.OutStage}
		start := policies.Trigger{Kind: policies.Now}
		if c.Optimizer {
			free := bySize[c.Bytes]
			if len(free) == 0 {
				continue
			}
			what = policies.Selector{Kind: policies.ByHandle, Handle: free[0]}
			bySize[c.Bytes] = free[1:]
			start = at(c.OutStage)
		}
		p.Swaps = append(p.Swaps, policies.Swap{
			Out:   policies.Action{Kind: policies.Evict, What: what, Start: start, Release: at(c.Free)},
			In:    policies.Action{Kind: policies.Prefetch, What: what, Start: at(c.InAt), Release: at(c.InFree)},
			Bytes: c.Bytes, Optimizer: c.Optimizer,
		})
	}
	return p
}
