package smartswap

import (
	"cmp"
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

	// Out and In are the believed rates of the link in MiB/s; 0 stands for
	// Options.Bandwidth. The stage planner, which has one ledger for both
	// ways, takes the slower.
	Out, In int64

	// Borders are device times of stage borders in an iteration of the same
	// length; without them, or without Options.Borders, operators count as
	// equally long.
	Borders []profilers.Border

	// Chunked has the mode OptimizerAuto move states in chunks.
	Chunked bool
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

// retries bounds how often a schedule is made again around useless swaps.
const retries = 3

// Generate is the goal-driven planner: cut the profile into logical layers,
// find where memory is above the target, and choose tensors to swap under an
// estimate of the time that each stage has for copies. It is a pure function.
// It fails on a profile in which a stage comes twice.
func Generate(in Input, o *Options) (*Schedule, error) {
	if o.Optimizer == OptimizerAuto {
		settled := *o
		settled.Optimizer = OptimizerWhole
		if in.Chunked {
			settled.Optimizer = OptimizerChunks
		}
		o = &settled
	}
	if o.Planner == PlanAttention {
		return planAttention(in, o)
	}
	g, m, s, err := survey(in, o)
	if err != nil || len(m.ops) == 0 {
		return s, err
	}
	obs := in.Profile
	in.complete(o)
	candidates := g.candidates(obs, o)
	var best attempt
	if o.Planner == PlanLinks {
		best = planLinks(g, &m, o, in, append(candidates, g.states(in.States, o)...))
	} else {
		g.rank(candidates, &m, in.Weight)
		pool := pool{grid: g, memory: &m, options: o, duration: in.Duration, borders: in.Borders, rate: min(in.Out, in.In),
			ranked: candidates, states: g.states(in.States, o)}
		best = pool.attempt(nil)
		if o.RejectUseless {
			best = pool.improve(best)
		}
	}
	slices.SortStableFunc(best.chosen, inOrder)
	for _, c := range best.chosen {
		c.name(g.stages)
		s.Swaps = append(s.Swaps, *c)
	}
	s.Rounds, s.Reached = best.rounds, best.short == 0
	return s, nil
}

// survey cuts the profile into stages and finds out how much has to go; the
// schedule has everything but swaps.
func survey(in Input, o *Options) (*grid, demand, *Schedule, error) {
	g, err := newGrid(in.Profile, cmp.Or(o.Layers, in.Profile.Layers, o.UnknownLayers))
	if err != nil {
		return nil, demand{}, nil, err
	}
	m := g.measure(in.Profile, o, in.OOM, in.Redundant)
	return g, m, &Schedule{
		Peak: m.peak, Target: m.target, Reductions: len(m.ops), Reached: true,
		Stages: g.stages, profile: in.Profile, grid: g, options: o,
	}, nil
}

// complete puts what the planner believes in place of what it does not know or
// must not use.
func (in *Input) complete(o *Options) {
	in.Out, in.In = cmp.Or(in.Out, o.Bandwidth), cmp.Or(in.In, o.Bandwidth)
	if !o.Borders {
		in.Borders = nil
	}
}

// pool is what a schedule can be made from.
type pool struct {
	grid     *grid
	memory   *demand
	options  *Options
	duration sim.Time
	borders  []profilers.Border
	rate     int64       // of the link, MiB/s
	ranked   []Candidate // best first
	states   []Candidate // to be chosen whatever comes
}

// attempt is one way to choose from a pool.
type attempt struct {
	chosen []*Candidate
	short  sim.Bytes // greatest need left; 0 = target reached
	rounds int
}

// attempt chooses without the tensors in without.
func (p *pool) attempt(without map[profilers.Tensor]bool) attempt {
	all := slices.Concat(p.ranked, p.states)
	s := &selector{
		grid: p.grid, memory: p.memory, options: p.options, rate: p.rate,
		times: newStageTimes(p.grid, p.duration, p.borders, p.options.CountAllOps),
		all:   all, fates: make([]fate, len(all)), needs: newNeeds(p.memory.need),
	}
	for i := range all {
		if without[all[i].Tensor] {
			s.fates[i] = excluded
		}
	}
	for i := len(p.ranked); i < len(all); i++ {
		s.force(int32(i))
	}
	s.run()
	_, short := s.needs.greatest()
	a := attempt{short: max(0, short), rounds: s.rounds}
	for _, i := range s.chosen {
		a.chosen = append(a.chosen, &all[i])
	}
	p.grid.release(a.chosen, s.times, p.options, p.rate)
	return a
}

// improve plans around useless swaps, as long as that does not miss the target
// by more. Swaps that stay although they are useless by the planner's account
// are what the target asks for and the link does not give: they are released
// in the last stage before they come back, where the device will have to wait.
func (p *pool) improve(best attempt) attempt {
	without := make(map[profilers.Tensor]bool)
	for range retries {
		found := len(without)
		for _, c := range best.chosen {
			if _, state := c.state(); c.useless() && !state {
				without[c.Tensor] = true
			}
		}
		if len(without) == found {
			break
		}
		next := p.attempt(without)
		if next.short > best.short {
			break
		}
		best = next
	}
	best.chosen = slices.DeleteFunc(best.chosen, func(c *Candidate) bool { return c.inAt-c.out < 2 })
	for _, c := range best.chosen {
		if c.useless() {
			c.free = c.inAt - 1
		}
	}
	return best
}

// useless tells whether the device block is released only when the tensor is
// on its way back.
func (c *Candidate) useless() bool { return c.free >= c.inAt }

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
// history. Optimizer states are bound to live ones: those that the planner was
// told of to themselves, those of the profile to ones of the same size, in
// order: all of them leave and return at the same stages, so equal sizes are as
// good as equal states. States that find no partner are left out.
func (s *Schedule) Plan(states []State) *policies.Plan {
	o := s.options
	p := &policies.Plan{
		ForwardBounds: s.grid.forward, BackwardBounds: s.grid.backward, Passes: s.passes(),
		Vocabulary: vocabulary(s.profile),
		Iteration:  s.profile.Iteration,
		Window:     o.Window,
	}
	p.Vocabulary.Narrow, p.Vocabulary.Sized = o.NarrowTags, o.Sized
	if o.Optimizer == OptimizerChunks {
		p.Chunks = o.Chunks
	}
	chosen := make([]*Candidate, len(s.Swaps))
	for i := range s.Swaps {
		chosen[i] = &s.Swaps[i]
	}
	past := histories(s.profile, p.Vocabulary, chosen, o.WholeHistory)
	bySize := make(map[sim.Bytes][]policies.Handle)
	for _, st := range states {
		bySize[st.Bytes] = append(bySize[st.Bytes], st.Handle)
	}
	at := func(s profilers.Stage) policies.Trigger {
		return policies.Trigger{Kind: policies.AtStage, Stage: s}
	}
	for i, c := range chosen {
		h := &past[i]
		what := policies.Selector{
			Kind: policies.ByFeature, Feature: h.feature, Stage: c.OutStage,
			Op: h.op, Arg: h.arg, Tensor: h.first,
		}
		start := policies.Trigger{Kind: policies.Now}
		if c.Optimizer {
			handle, ok := bind(c, states, bySize)
			if !ok {
				continue
			}
			what = policies.Selector{Kind: policies.ByHandle, Handle: handle}
			start = at(c.OutStage)
		}
		p.Swaps = append(p.Swaps, policies.Swap{
			Out:   policies.Action{Kind: policies.Evict, What: what, Start: start, Release: at(c.Free)},
			In:    policies.Action{Kind: policies.Prefetch, What: what, Start: at(c.InAt), Release: at(c.InFree)},
			Bytes: c.Bytes, Optimizer: c.Optimizer, Chunked: c.chunked,
		})
	}
	return p
}

// bind finds the live state that an optimizer candidate stands for.
func bind(c *Candidate, states []State, bySize map[sim.Bytes][]policies.Handle) (policies.Handle, bool) {
	if i, ok := c.state(); ok {
		if i >= len(states) {
			return 0, false
		}
		return states[i].Handle, true
	}
	free := bySize[c.Bytes]
	if len(free) == 0 {
		return 0, false
	}
	bySize[c.Bytes] = free[1:]
	return free[0], true
}

// passes are the boundaries of single passes as the executor gets them.
func (s *Schedule) passes() []policies.PassBounds {
	if s.options.Planner != PlanAttention || s.options.ExactBounds {
		return s.grid.passes
	}
	var shipped []policies.PassBounds
	for _, p := range s.grid.passes {
		counts := slices.Clone(p.Bounds)
		for i := range counts {
			counts[i]++ // operators so far, where the last of them is meant
		}
		shipped = append(shipped, policies.PassBounds{Pass: p.Pass, Bounds: counts})
	}
	return shipped
}
