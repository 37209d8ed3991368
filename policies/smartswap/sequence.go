package smartswap

import (
	"slices"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// sequence is what the machine knows about one operator sequence.
type sequence struct {
	phase     Phase
	count     int                    // iterations towards WarmUp and StableStep
	oom       bool                   // evictions since it was planned for
	reference *profilers.Observation // what iterations are compared with; nil = takes all

	profile   *profilers.Observation // what all plans are made from; nil = none yet
	short     bool                   // evictions while it was taken
	borders   []profilers.Border     // at the fastest so far, see Input
	fastest   sim.Time               // iteration time that the planner believes
	redundant sim.Bytes
	weight    float64

	running  *policies.Plan // what its next iteration runs; nil = none
	believed sim.Time       // iteration time that running was made for
	plans    int            // made so far
	best     *policies.Plan // of the fastest iteration so far
	bestTime sim.Time
	accepted int // evictions in the iteration of best

	base      *inherited // a plan to be fitted before it runs
	novel     bool       // nothing has followed it yet
	followers []follower // what has followed it, latest first
}

// inherited is the plan of another sequence.
type inherited struct {
	plan      *policies.Plan
	reference *profilers.Observation
}

func newSequence(o *Options) *sequence {
	s := &sequence{}
	s.restart(o)
	return s
}

// restart forgets everything but the sequence itself and what follows it.
func (s *sequence) restart(o *Options) {
	*s = sequence{
		reference: s.reference, novel: s.novel, followers: s.followers,
		fastest: sim.Forever, redundant: o.Redundant, weight: o.SizeWeight,
	}
}

// inherit makes s start with the plan of another sequence, if that has one.
func (s *sequence) inherit(from *sequence) {
	plan := from.running
	if from.phase == Searching && from.best != nil {
		plan = from.best
	}
	if plan == nil || from.reference == nil {
		return
	}
	s.base = &inherited{plan, from.reference}
	s.phase, s.accepted = Stable, from.accepted
}

// judge keeps the plan that ran in the iteration just finished if none was
// faster.
func (s *sequence) judge(obs *profilers.Observation, evictions int) {
	if s.plans == 1 || obs.Duration < s.bestTime {
		s.best, s.bestTime, s.accepted = s.running, obs.Duration, evictions
	}
}

// satisfied tells whether the search may end: without KeepBest always; else at
// its limit, or when an iteration needed no evictions and, with Refine, was not
// faster by more than 2 % (assumed) than its plan was made for. Where whole
// states and chunks are tried by turns, each has two: the first plan starts from
// what evictions have left behind.
func (s *sequence) satisfied(obs *profilers.Observation, evictions int, o *Options) bool {
	if !o.KeepBest || s.plans >= o.SearchLimit {
		return true
	}
	if o.Optimizer == OptimizerAuto && s.plans < 4 && movesStates(s.running) {
		return false
	}
	faster := o.Refine && s.running != nil && obs.Duration < s.believed-s.believed/50
	return evictions == 0 && !faster
}

// movesStates tells whether a plan moves optimizer states.
func movesStates(p *policies.Plan) bool {
	return p != nil && slices.ContainsFunc(p.Swaps, func(s policies.Swap) bool { return s.Optimizer })
}

// follower is a sequence that has followed another, and how often: a weight
// that fades by a quarter with each other follower (assumed), so that a habit
// outlives exceptions and a new habit wins after a few.
type follower struct {
	s      *sequence
	weight int32
}

const followed = 64 // what one time adds

// follow notes that next came after s.
func (s *sequence) follow(next *sequence) {
	for i := range s.followers {
		s.followers[i].weight -= s.followers[i].weight / 4
	}
	i := slices.IndexFunc(s.followers, func(f follower) bool { return f.s == next })
	f := follower{s: next}
	if i >= 0 {
		f = s.followers[i]
		s.followers = slices.Delete(s.followers, i, i+1)
	}
	f.weight += followed
	s.followers = slices.Insert(s.followers, 0, f)
}

// likely is what most likely comes after s: of equals, what came last; nil if
// nothing has come yet.
func (s *sequence) likely() *sequence {
	var best follower
	for _, f := range s.followers {
		if f.weight > best.weight {
			best = f
		}
	}
	return best.s
}

// memory keeps the sequences that a run has shown, the latest ones if there are
// more than limit.
type memory struct {
	limit         int
	list          []*sequence // least recently seen first
	stays, leaves int         // how often a new sequence was followed by itself, or not
}

// find is the latest sequence but one that passes, nil if there is none.
func (m *memory) find(passes func(*sequence) bool, except *sequence) *sequence {
	for i := len(m.list) - 1; i >= 0; i-- {
		if s := m.list[i]; s != except && passes(s) {
			return s
		}
	}
	return nil
}

// add makes room for s, if need be at the cost of the one seen longest ago, but
// not of keep as long as another will do.
func (m *memory) add(s, keep *sequence) {
	for len(m.list) >= m.limit {
		i := 0
		if m.list[i] == keep && len(m.list) > 1 {
			i = 1
		}
		gone := m.list[i]
		m.list = slices.Delete(m.list, i, i+1)
		for _, other := range m.list {
			other.followers = slices.DeleteFunc(other.followers, func(f follower) bool { return f.s == gone })
		}
	}
	m.list = append(m.list, s)
}

// saw notes that s ran after previous, nil for the first iteration.
func (m *memory) saw(previous, s *sequence) {
	if i := slices.Index(m.list, s); i >= 0 {
		m.list = append(slices.Delete(m.list, i, i+1), s)
	}
	if previous == nil {
		return
	}
	if previous.novel {
		previous.novel = false
		if s == previous {
			m.stays++
		} else {
			m.leaves++
		}
	}
	if slices.Contains(m.list, previous) {
		previous.follow(s)
	}
}

// next is the sequence to expect after s: what has mostly followed it. If
// nothing has, s is new and expected to stay, unless most new ones did not:
// then what was expected before, if that has a plan.
func (m *memory) next(s, before *sequence) *sequence {
	if f := s.likely(); f != nil {
		return f
	}
	if m.leaves > m.stays && before.running != nil && slices.Contains(m.list, before) {
		return before
	}
	return s
}
