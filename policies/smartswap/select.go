package smartswap

import "smartswap/sim"

// Fate of a candidate during selection.
type fate uint8

const (
	open     fate = iota
	late          // its copies do not fit their stages: only to be taken with a delay
	selected      //
	excluded      // known to be useless
)

// selector chooses candidates until no operator is above the target.
type selector struct {
	grid    *grid
	memory  *demand
	options *Options
	rate    int64 // of the link, MiB/s
	times   *stageTimes
	all     []Candidate // best first
	fates   []fate
	needs   *needs
	chosen  []int32 // in the order of choice
	rounds  int
}

// run chooses. It reports whether the target is reached.
//
// Round by round, the operator with the greatest need decides. The candidates
// that cover it are tried best first, and those whose copies fit into the time
// left of their stages are taken until the need is met. If none fits, the best
// is taken all the same, and its way back moves to an earlier stage that has
// room for it.
//
// Time left only ever falls, so a candidate found late stays late and is tried
// once. All rounds together are O(n log n) and one walk over the stages for
// each delayed candidate.
func (s *selector) run() bool {
	fitting := newStab(len(s.memory.ops), s.all, func(i int32) bool { return s.fates[i] != open })
	covering := newStab(len(s.memory.ops), s.all, func(i int32) bool { return s.fates[i] >= selected })
	for ; ; s.rounds++ {
		if len(s.memory.ops) == 0 {
			return true
		}
		at, need := s.needs.greatest()
		if need <= 0 {
			return true
		}
		round := len(s.chosen)
		for need > 0 {
			i := fitting.best(at)
			if i < 0 {
				break
			}
			if s.delays(&s.all[i]) {
				s.fates[i] = late
				continue
			}
			s.choose(i)
			need -= s.all[i].Bytes
			if s.options.Recheck {
				s.book(&s.all[i])
			}
		}
		if len(s.chosen) == round {
			i := covering.best(at)
			if i < 0 {
				return false
			}
			s.choose(i)
			s.all[i].Delayed = true
			s.book(&s.all[i])
		} else if !s.options.Recheck {
			for _, i := range s.chosen[round:] {
				s.book(&s.all[i])
			}
		}
		for _, i := range s.chosen[round:] {
			s.relieve(&s.all[i])
		}
	}
}

// force chooses candidate i before any round.
func (s *selector) force(i int32) {
	s.choose(i)
	s.book(&s.all[i])
	s.relieve(&s.all[i])
}

func (s *selector) choose(i int32) {
	s.fates[i] = selected
	s.chosen = append(s.chosen, i)
}

// delays tells whether one of c's copies does not fit: out in the stage of its
// last use, in in the stage before its next use.
func (s *selector) delays(c *Candidate) bool {
	t := s.transfer(c)
	return s.times.left[c.out] < t || s.times.left[c.in-1] < t
}

// book takes the time of c's copies from their stages and settles where it
// comes back: one stage early; if delayed, in the latest stage before that
// which has room after all the backlog, if there is one.
func (s *selector) book(c *Candidate) {
	t := s.transfer(c)
	s.times.take(c.out, t)
	if c.chunked {
		return // moves inside the optimizer phase, which the grid does not time
	}
	c.inAt = c.in - 1
	if c.Delayed {
		for stage := c.in - 1; stage > c.out; stage-- {
			if s.times.backlog(stage) > t {
				c.inAt = stage
				break
			}
		}
	}
	s.times.take(c.inAt, t)
}

// relieve reduces the needs that c covers, now that it is known where it comes
// back.
func (s *selector) relieve(c *Candidate) {
	s.grid.cover(c, s.memory)
	s.needs.reduce(c.start, c.end, c.Bytes)
}

func (s *selector) transfer(c *Candidate) sim.Time { return transfer(c.Bytes, s.rate) }
