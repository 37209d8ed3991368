package smartswap

import (
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// Phase of the stage machine.
type Phase uint8

// Phases.
const (
	WarmUp    Phase = iota // the full profiler watches, only the guard acts
	Searching              // plans are made, run, and made again
	Stable                 // one plan runs
)

// String is the phase's name.
func (p Phase) String() string { return [...]string{"warm-up", "searching", "stable"}[p] }

// The host time of making a plan. Assumed: the shipped planner is interpreted
// code that touches every record a few times. Planning blocks the host.
const (
	planFixed     = 1 * sim.Millisecond
	planPerOp     = 2 * sim.Microsecond
	planPerTensor = 1 * sim.Microsecond
)

// Registration registers the policy.
func Registration() policies.Registration {
	return policies.Registration{
		Name:  "smartswap",
		About: "plans swaps from one profiled iteration, recognises tensors by their history, plans again when the sequence changes",
		New: func(p policies.Params) (policies.Policy, error) {
			o, err := ReadOptions(p)
			if err != nil {
				return nil, err
			}
			return New(o), nil
		},
	}
}

// Policy is the stage machine around the planner: it decides when to profile,
// when to plan, and how long a plan lasts. Make one with New.
type Policy struct {
	options Options
	planner func(Input, *Options) (*Schedule, error) // seam for other planners
	guard   guard

	phase   Phase
	count   int                    // counts iterations towards WarmUp and StableStep
	oom     bool                   // evictions since the last plan was armed
	last    *profilers.Observation // of the previous iteration in warm-up
	search  search
	log     []Decision
	started bool
}

// search is what the machine knows about the present sequence.
type search struct {
	profile   *profilers.Observation // what all plans are made from; nil = none yet
	oom       bool                   // evictions while it was taken
	fastest   sim.Time               // iteration time that the planner believes
	redundant sim.Bytes
	weight    float64

	running  *policies.Plan // armed for the iteration in progress
	believed sim.Time       // iteration time that running was made for
	plans    int            // made so far
	best     *policies.Plan // of the fastest iteration so far
	bestTime sim.Time
	accepted int // evictions in the iteration of best
}

// Decision is an entry of the machine's log: what it did at the end of an
// iteration in which it changed phase or made a plan.
type Decision struct {
	Iteration int
	Phase     Phase // after the iteration
	Changed   bool  // the sequence changed
	Planned   bool
	Swaps     int // of the plan, if planned
	Bytes     sim.Bytes
	Target    sim.Bytes
	Peak      sim.Bytes
	Reached   bool
	Err       error // why no plan could be made
}

// New makes the policy for one rank of one run.
func New(o Options) *Policy {
	p := &Policy{options: o, planner: Generate}
	p.forget()
	return p
}

// Log lists the decisions so far.
func (p *Policy) Log() []Decision { return p.log }

// Phase is the present phase.
func (p *Policy) Phase() Phase { return p.phase }

// Needs is the detailed profile and three events.
func (p *Policy) Needs() policies.Needs {
	return policies.Needs{
		Fields: profilers.IterationTime | profilers.OpNames | profilers.OpRecords | profilers.TensorArgs |
			profilers.MemoryStats | profilers.SwapRecords,
		Events: policies.Set(policies.AfterOp, policies.Pressure, policies.IterationEnd),
		Grade:  policies.Observed,
	}
}

// Handle feeds the guard and, at the end of an iteration, the machine.
func (p *Policy) Handle(ev *policies.Event, rt policies.Runtime) {
	if !p.started {
		p.started = true
		if p.options.SeedGuard {
			p.guard.touch(rt.OptimizerStates())
		}
	}
	switch ev.Kind {
	case policies.AfterOp:
		p.guard.touch(ev.Op.Args)
	case policies.Pressure:
		p.guard.makeRoom(ev.Need, rt)
	case policies.IterationEnd:
		p.guard.prune(rt)
		p.step(ev, rt)
	}
}

// step runs the machine once, at the end of an iteration.
//
//	warm-up    similar iterations are counted; WarmUp of them start the search
//	searching  a plan is made from the kept profile after each iteration; a
//	           changed sequence leads back to warm-up, StableStep iterations
//	           end it (see Options.KeepBest)
//	stable     a changed sequence leads back to warm-up, evictions to the
//	           search (see Options.Watch)
func (p *Policy) step(ev *policies.Event, rt policies.Runtime) {
	obs, evictions := ev.Observation, ev.Evictions
	if obs == nil && !p.options.Watch {
		evictions = 0 // shipped: evictions are noticed by the profiler alone
	}
	if obs == nil && p.phase != Stable {
		rt.Observe(policies.Full) // nothing was seen: nothing to decide
		return
	}
	p.oom = p.oom || evictions > 0 || obs != nil && obs.OOM
	entry := Decision{Iteration: ev.Iteration}
	before := p.phase

	switch p.phase {
	case WarmUp:
		if p.options.SteadyWarmUp && p.changed(p.last, obs) {
			entry.Changed = true
			p.count = 0
			p.oom = evictions > 0 || obs.OOM
		}
		p.last = obs
		if p.count++; p.count >= p.options.WarmUp {
			p.phase = Searching
		}
	case Searching:
		p.count++
		p.judge(obs, evictions)
		switch entry.Changed = p.changed(p.search.profile, obs); {
		case entry.Changed:
			p.forget()
		case p.count >= p.options.StableStep && p.satisfied(obs, evictions):
			p.phase = Stable
		}
	case Stable:
		entry.Changed = p.changed(p.search.profile, obs)
		switch short := evictions > 2*p.search.accepted; {
		case entry.Changed:
			p.forget()
		case short && obs != nil && p.search.plans < p.options.SearchLimit:
			p.phase = Searching // the plan is not as good as it was found to be
			p.search.bestTime, p.search.accepted = obs.Duration, evictions
		}
	}

	switch p.phase {
	case WarmUp:
		rt.Observe(policies.Full)
		if before != WarmUp {
			p.arm(nil, rt)
		}
	case Searching:
		rt.Observe(policies.Full)
		p.plan(obs, rt, &entry)
	case Stable:
		if before != Stable {
			level := policies.Off
			if p.options.Watch {
				level = policies.Light
			}
			rt.Observe(level)
			if p.options.KeepBest {
				p.search.running = p.search.best
			}
			p.arm(p.search.running, rt)
		} else if !p.options.SeedGuard {
			p.guard.used.Clear() // shipped: the plan is armed again
		}
	}
	if entry.Planned || entry.Changed || entry.Err != nil || p.phase != before {
		entry.Phase = p.phase
		p.log = append(p.log, entry)
	}
}

// changed tells whether the sequence of obs differs from that of reference; it
// does not when either is missing.
func (p *Policy) changed(reference, obs *profilers.Observation) bool {
	if reference == nil || obs == nil {
		return false
	}
	return p.options.detector().Compare(reference.Sequence, obs.Sequence).Changed
}

// judge keeps the plan that ran in the iteration just finished if none was
// faster.
func (p *Policy) judge(obs *profilers.Observation, evictions int) {
	s := &p.search
	if s.plans == 1 || obs.Duration < s.bestTime {
		s.best, s.bestTime, s.accepted = s.running, obs.Duration, evictions
	}
}

// satisfied tells whether the search may end: without KeepBest always; else at
// its limit, or when an iteration needed no evictions and, with Refine, was not
// faster by more than 2 % (assumed) than its plan was made for.
func (p *Policy) satisfied(obs *profilers.Observation, evictions int) bool {
	if !p.options.KeepBest || p.search.plans >= p.options.SearchLimit {
		return true
	}
	faster := p.options.Refine && p.search.running != nil && obs.Duration < p.search.believed-p.search.believed/50
	return evictions == 0 && !faster
}

// forget starts over for a new sequence.
func (p *Policy) forget() {
	p.phase, p.count, p.oom, p.last = WarmUp, 0, false, nil
	p.search = search{
		fastest:   sim.Forever,
		redundant: p.options.Redundant,
		weight:    p.options.SizeWeight,
	}
}

// plan makes a plan for the next iteration and arms it. The first profile of a
// sequence is kept: later iterations only adjust what the planner believes.
func (p *Policy) plan(obs *profilers.Observation, rt policies.Runtime, entry *Decision) {
	s := &p.search
	scaled := sim.FromSeconds(obs.Duration.Seconds() * p.options.DurationFactor)
	if p.options.DurationFactor == 1 {
		scaled = obs.Duration
	}
	s.fastest = min(s.fastest, scaled)
	switch {
	case s.profile == nil:
		s.profile, s.oom = obs, p.oom
	case p.oom:
		// Where a profile without evictions asks for nothing, later
		// evictions must.
		s.oom = s.oom || p.options.Target == Fit
		s.redundant += p.options.RedundantStep
	default:
		s.weight += p.options.WeightStep
	}
	rt.Charge(planFixed + sim.Time(len(s.profile.Ops))*planPerOp + sim.Time(len(s.profile.Tensors))*planPerTensor)

	var states []State
	var sizes []sim.Bytes
	for _, h := range rt.OptimizerStates() {
		if t, ok := rt.Tensor(h); ok && t.Type != profilers.SharedMemory {
			states = append(states, State{h, t.Bytes})
			sizes = append(sizes, t.Bytes)
		}
	}
	in := Input{
		Profile: s.profile, OOM: s.oom, Duration: s.fastest, States: sizes,
		Redundant: s.redundant, Weight: s.weight,
	}
	if p.options.MeasureLink {
		in.Out, in.In = measured(rt.Moved(true)), measured(rt.Moved(false))
	}
	schedule, err := p.planner(in, &p.options)
	s.believed = s.fastest
	s.plans++
	entry.Planned, entry.Err = err == nil, err
	s.running = nil
	if err == nil {
		entry.Swaps, entry.Bytes = len(schedule.Swaps), schedule.Bytes()
		entry.Target, entry.Peak, entry.Reached = schedule.Target, schedule.Peak, schedule.Reached
		if len(schedule.Swaps) > 0 {
			s.running = schedule.Plan(states)
		}
	}
	p.arm(s.running, rt)
}

// measured is a rate in MiB/s, 0 if there is nothing to tell it from.
func measured(moved sim.Bytes, in sim.Time) int64 {
	if moved < sim.MiB || in <= 0 {
		return 0
	}
	return max(1, int64(mulDiv(uint64(moved/sim.MiB), uint64(sim.Second), uint64(in))))
}

// arm hands a plan to the runtime; a plan that it rejects is a plan less.
func (p *Policy) arm(plan *policies.Plan, rt policies.Runtime) {
	if err := rt.Arm(plan); err != nil {
		p.log = append(p.log, Decision{Phase: p.phase, Err: err})
		_ = rt.Arm(nil)
	}
	p.oom = false
	if !p.options.SeedGuard {
		p.guard.used.Clear()
	}
}
