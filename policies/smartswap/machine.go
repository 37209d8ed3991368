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
// code that touches every record a few times. Planning blocks the host. Arming a
// plan that is there already hands its swaps over; fitting one to another
// sequence compares names.
const (
	planFixed     = 1 * sim.Millisecond
	planPerOp     = 2 * sim.Microsecond
	planPerTensor = 1 * sim.Microsecond
	armFixed      = 100 * sim.Microsecond
	armPerSwap    = 2 * sim.Microsecond
	patchPerOp    = 100 * sim.Nanosecond
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
	states  stateOrder

	memory   memory
	ran      *sequence // the last iteration; nil before the first
	expected *sequence // whose plan is armed
	waiting  int       // iterations in a row that ended in warm-up without any plan
	armed    *policies.Plan
	level    policies.Level
	log      []Decision
	started  bool
}

// Decision is an entry of the machine's log: what it did at the end of an
// iteration in which it changed phase, noticed a change or armed a plan.
type Decision struct {
	Iteration int
	Phase     Phase            // after the iteration
	Changed   bool             // the sequence is not that of the iteration before
	Expected  bool             // the sequence is the one whose plan was armed
	Change    profilers.Change // against the sequence expected
	Planned   bool
	Patched   bool // the plan of another sequence was fitted
	Recalled  bool // a plan made before was armed again
	Swaps     int  // of the plan that was planned, patched or recalled
	Bytes     sim.Bytes
	Target    sim.Bytes // of the plan, if planned
	Peak      sim.Bytes
	Reached   bool
	Err       error // why no plan could be made or armed
}

// New makes the policy for one rank of one run.
func New(o Options) *Policy {
	p := &Policy{options: o, planner: Generate, level: policies.Full, memory: memory{limit: max(1, o.Remember)}}
	p.expected = newSequence(&p.options)
	p.memory.add(p.expected, nil)
	return p
}

// Edit lets e change what the planner proposes, see Editor. Call it before the
// run.
func (p *Policy) Edit(e Editor) { p.planner = edited(e) }

// Log lists the decisions so far.
func (p *Policy) Log() []Decision { return p.log }

// Phase is the phase of the sequence that is expected next.
func (p *Policy) Phase() Phase { return p.expected.phase }

// Notes implements policies.Reporter.
func (p *Policy) Notes() []policies.Note {
	var notes []policies.Note
	for i := range p.log {
		notes = append(notes, p.log[i].notes()...)
	}
	return notes
}

// notes says the same as d, one event per note: "changed", "planned",
// "patched", "recalled", "failed", or else "phase".
func (d *Decision) notes() []policies.Note {
	n := policies.Note{Iteration: d.Iteration, Phase: d.Phase.String()}
	var notes []policies.Note
	if d.Changed {
		c := n
		c.Event, c.Length, c.Cosine, c.Passes = policies.NoteChanged, d.Change.Length, d.Change.Cosine, d.Change.Passes
		notes = append(notes, c)
	}
	plan := n
	plan.Swaps, plan.Bytes = d.Swaps, d.Bytes
	switch {
	case d.Err != nil:
		plan.Event, plan.Error = "failed", d.Err.Error()
	case d.Planned:
		plan.Event = "planned"
	case d.Patched:
		plan.Event = "patched"
	case d.Recalled:
		plan.Event = "recalled"
	case !d.Changed:
		plan.Event = "phase"
	default:
		return notes
	}
	return append(notes, plan)
}

// Needs is the detailed profile and three events. The times of stage borders are
// welcome but not needed.
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
		p.states.begin(rt.OptimizerStates())
		if p.options.SeedGuard {
			p.guard.touch(rt.OptimizerStates())
		}
	}
	switch ev.Kind {
	case policies.AfterOp:
		p.guard.touch(ev.Op.Args)
		if ev.Op.Stage.Phase == profilers.Optim {
			p.states.used(ev.Op.Args)
		}
	case policies.Pressure:
		p.guard.makeRoom(ev.Need, rt)
	case policies.IterationEnd:
		p.guard.prune(rt)
		p.states.end()
		p.step(ev, rt)
	}
}

// step runs the machine once, at the end of an iteration. Each sequence is in a
// phase of its own; there is only one unless Options.Remember.
//
//	warm-up    iterations are counted; WarmUp of them start the search
//	searching  a plan is made from the kept profile after each iteration;
//	           StableStep iterations end it (see Options.KeepBest)
//	stable     evictions lead back to warm-up, or to the search (see
//	           Options.Watch and Resume)
//
// An iteration that ran under the plan of another sequence, because it was not
// expected, teaches nothing about its own plan.
func (p *Policy) step(ev *policies.Event, rt policies.Runtime) {
	obs, evictions := ev.Observation, ev.Evictions
	if obs == nil && !p.options.Watch {
		evictions = 0 // shipped: evictions are noticed by the profiler alone
	}
	if obs == nil && p.expected.phase != Stable {
		p.observe(policies.Full, rt) // nothing was seen: nothing to decide
		return
	}
	entry := Decision{Iteration: ev.Iteration}
	expected, before := p.expected, p.Phase()
	s := p.recognise(obs, &entry)
	switch own := s == expected; {
	case s.phase == WarmUp && before == WarmUp:
		p.warm(s, obs, evictions)
	case own:
		p.advance(s, obs, evictions)
	}
	if s.phase == Searching && (s == expected || s.plans == 0) {
		p.plan(s, obs, rt, &entry)
	}
	p.memory.saw(p.ran, s)
	p.ran, p.expected = s, s
	if p.options.Predict && p.options.Remember > 0 {
		p.expected = p.memory.next(s, expected)
	}
	p.prepare(rt, &entry)
	if entry.Planned || entry.Patched || entry.Recalled || entry.Changed || entry.Err != nil || p.Phase() != before {
		entry.Phase = p.Phase()
		p.log = append(p.log, entry)
	}
}

// recognise finds out which sequence an iteration ran: mostly the one expected,
// else one that is remembered, else a new one.
func (p *Policy) recognise(obs *profilers.Observation, entry *Decision) *sequence {
	s, d := p.expected, p.options.detector()
	entry.Change = d.Between(s.reference, obs)
	if entry.Change.Changed {
		s = p.memory.find(func(s *sequence) bool { return !d.Between(s.reference, obs).Changed }, p.expected)
		if s == nil {
			s = newSequence(&p.options)
			s.novel = true
			if p.options.Patch && p.options.Remember > 0 {
				s.inherit(p.expected)
			}
			if p.options.SteadyWarmUp || s.base != nil {
				s.reference = obs
			}
			p.memory.add(s, p.expected)
		}
	}
	entry.Expected = s == p.expected
	entry.Changed = p.ran != nil && s != p.ran
	return s
}

// patience is how many times Options.WarmUp iterations may pass without two
// that are alike before a plan is made all the same; assumed. Only where
// sequences are remembered.
const patience = 3

// warm counts an iteration without any plan.
func (p *Policy) warm(s *sequence, obs *profilers.Observation, evictions int) {
	s.oom = s.oom || evictions > 0 || obs.OOM
	if p.options.SteadyWarmUp {
		s.reference = obs
	}
	s.count++
	p.waiting++
	if s.count >= p.options.WarmUp || p.options.Remember > 0 && p.waiting >= patience*p.options.WarmUp {
		s.phase = Searching
	}
}

// advance judges an iteration that ran under the plan of its sequence.
func (p *Policy) advance(s *sequence, obs *profilers.Observation, evictions int) {
	o := &p.options
	s.oom = s.oom || evictions > 0 || obs != nil && obs.OOM
	switch s.phase {
	case Searching:
		s.count++
		s.judge(obs, evictions)
		if s.count >= o.StableStep && s.satisfied(obs, evictions, o) {
			s.phase = Stable
			if o.KeepBest {
				s.running = s.best
			}
		}
	case Stable:
		switch {
		case !o.Watch || evictions == 0:
		case !o.Resume:
			s.restart(o)
		case evictions <= 2*s.accepted:
		case s.profile == nil: // an inherited plan that does not do
			s.restart(o)
			s.count = o.WarmUp - 1
		case s.plans < o.SearchLimit && obs != nil: // not as good as it was found to be
			s.phase = Searching
			s.bestTime, s.accepted = obs.Duration, evictions
		}
	}
}

// prepare sets up the next iteration for the sequence expected.
func (p *Policy) prepare(rt policies.Runtime, entry *Decision) {
	e := p.expected
	if e.running == nil && e.base != nil {
		p.patch(e, rt, entry)
	}
	level := policies.Full
	if e.phase == Stable {
		level = policies.Off
		if p.options.Watch {
			level = policies.Light
		}
	}
	p.observe(level, rt)
	if e.running == p.armed {
		if e.running != nil && !p.options.SeedGuard {
			p.guard.used.Clear() // shipped: the plan is armed again
		}
		return
	}
	if e.running != nil && !entry.Planned && !entry.Patched {
		entry.Recalled = true
		entry.Swaps, entry.Bytes = len(e.running.Swaps), e.running.TotalBytes()
	}
	if !entry.Planned && e.running != nil {
		rt.Charge(armFixed + sim.Time(len(e.running.Swaps))*armPerSwap)
	}
	if err := rt.Arm(e.running); err != nil { // a plan that is rejected is a plan less
		entry.Err = err
		e.running, e.best = nil, nil
		_ = rt.Arm(nil)
	}
	p.armed = e.running
	if !p.options.SeedGuard {
		p.guard.used.Clear()
	}
}

// observe sets the level of profiling if it changes.
func (p *Policy) observe(l policies.Level, rt policies.Runtime) {
	if p.level != l {
		p.level = l
		rt.Observe(l)
	}
}

// plan makes a plan for the next iteration of s. The first profile of a sequence
// is kept: later iterations only adjust what the planner believes.
func (p *Policy) plan(s *sequence, obs *profilers.Observation, rt policies.Runtime, entry *Decision) {
	scaled := obs.Duration
	if f := p.options.DurationFactor; f != 1 {
		scaled = sim.FromSeconds(obs.Duration.Seconds() * f)
	}
	s.fastest = min(s.fastest, scaled)
	switch {
	case s.profile == nil:
		s.profile, s.reference, s.short = obs, obs, s.oom
	case s.oom:
		// Where a profile without evictions asks for nothing, later
		// evictions must.
		s.short = s.short || p.options.Target == Fit
		s.redundant += p.options.RedundantStep
	default:
		s.weight += p.options.WeightStep
	}
	s.oom = false
	if usable(obs.Borders, len(s.profile.Ops)) {
		s.borders = faster(s.borders, obs.Borders)
	}
	rt.Charge(planFixed + sim.Time(len(s.profile.Ops))*planPerOp + sim.Time(len(s.profile.Tensors))*planPerTensor)

	states, sizes := p.states.live(rt)
	in := Input{
		Profile: s.profile, OOM: s.short, Duration: s.fastest, States: sizes,
		Redundant: s.redundant, Weight: s.weight, Borders: s.borders,
		Chunked: s.plans%2 == 1,
	}
	if p.options.MeasureLink {
		in.Out, in.In = measured(rt.Moved(true)), measured(rt.Moved(false))
	}
	schedule, err := p.planner(in, &p.options)
	s.believed = s.fastest
	s.plans++
	p.waiting = 0
	entry.Planned, entry.Err = err == nil, err
	s.running = nil
	if err == nil {
		entry.Swaps, entry.Bytes = len(schedule.Swaps), schedule.Bytes()
		entry.Target, entry.Peak, entry.Reached = schedule.Target, schedule.Peak, schedule.Reached
		if len(schedule.Swaps) > 0 {
			s.running = schedule.Plan(states)
		}
	}
}

// patch fits the plan that s has inherited to it. A plan that fits too little is
// given up for one of its own.
func (p *Policy) patch(s *sequence, rt policies.Runtime, entry *Decision) {
	rt.Charge(planFixed + sim.Time(len(s.reference.Sequence))*patchPerOp)
	plan, ok := fit(s.base.plan, s.base.reference, s.reference)
	s.base = nil
	if !ok {
		s.phase = WarmUp
		return
	}
	s.running = plan
	entry.Patched = true
	entry.Swaps, entry.Bytes = len(plan.Swaps), plan.TotalBytes()
}

// measured is a rate in MiB/s, 0 if there is nothing to tell it from.
func measured(moved sim.Bytes, in sim.Time) int64 {
	if moved < sim.MiB || in <= 0 {
		return 0
	}
	return max(1, int64(mulDiv(uint64(moved/sim.MiB), uint64(sim.Second), uint64(in))))
}
