package dtr

import (
	"math"
	"math/big"
)

// pool is the list of candidates in the order in which they came in last. What
// leaves is a gap until the list is closed up.
type pool struct {
	list []int32 // -1 = gap
	at   []int32 // by storage: position + 1; 0 = not in the pool
	gaps int
}

func (l *pool) reset() { l.list, l.at, l.gaps = l.list[:0], l.at[:0], 0 }

// put makes id the last of the pool.
func (l *pool) put(id int32) {
	l.remove(id)
	for int(id) >= len(l.at) {
		l.at = append(l.at, 0)
	}
	if l.gaps > 64 && 2*l.gaps > len(l.list) {
		l.close()
	}
	l.list = append(l.list, id)
	l.at[id] = int32(len(l.list))
}

func (l *pool) remove(id int32) {
	if int(id) < len(l.at) && l.at[id] > 0 {
		l.list[l.at[id]-1] = -1
		l.at[id] = 0
		l.gaps++
	}
}

func (l *pool) close() {
	keep := l.list[:0]
	for _, id := range l.list {
		if id >= 0 {
			keep = append(keep, id)
			l.at[id] = int32(len(keep))
		}
	}
	l.list, l.gaps = keep, 0
}

// score is over / (bytes x stale), a double. It is infinite where nothing would
// be won.
type score struct {
	over         int64
	bytes, stale int64
	near         float64 // within a few units in the last place
}

func newScore(over, bytes, stale int64) score {
	s := score{over, bytes, stale, math.Inf(1)}
	if d := float64(bytes) * float64(stale); d > 0 {
		s.near = float64(over) / d
	}
	return s
}

// exactly is the double next to the quotient of the integers.
func (s score) exactly() float64 {
	if s.bytes == 0 || s.stale == 0 {
		return math.Inf(1)
	}
	below := new(big.Float).SetInt(new(big.Int).Mul(big.NewInt(s.bytes), big.NewInt(s.stale)))
	q, _ := new(big.Float).SetPrec(53).Quo(new(big.Float).SetInt64(s.over), below).Float64()
	return q
}

// compare is negative if s is the smaller one. Only where the quick quotients
// cannot tell are the exact ones made.
func (s *score) compare(o *score) int {
	doubt := 1e-14 * math.Abs(o.near) // negative scores are possible, see union
	switch {
	case s.near < o.near-doubt:
		return -1
	case s.near > o.near+doubt:
		return 1
	case s.over == o.over && s.bytes == o.bytes && s.stale == o.stale:
		return 0
	}
	a, b := s.exactly(), o.exactly()
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// worst is the candidate with the smallest score, -1 if there is none, and how
// many were looked at.
func (p *Policy) worst() (best int32, looked int) {
	best = -1
	var least score
	for _, id := range p.pool.list {
		if id < 0 {
			continue
		}
		looked++
		s := p.score(id)
		if best >= 0 {
			if c := s.compare(&least); c > 0 || c == 0 && !p.options.LastOfEquals {
				continue
			}
		}
		best, least = id, s
		if p.options.ZeroStops && s.near == 0 {
			break
		}
	}
	return best, looked
}

func (p *Policy) score(id int32) score {
	s := &p.graph.storages[id]
	bytes, stale := int64(s.bytes), int64(p.clock-s.access)
	switch p.options.Heuristic {
	case "dtr":
		return newScore(int64(s.cost+p.graph.around(id, backward)+p.graph.around(id, forward)), bytes, stale)
	case "eqclass":
		return newScore(int64(s.cost+p.graph.near(id)), bytes, stale)
	case "local":
		return newScore(int64(s.cost), bytes, stale)
	case "msps":
		return newScore(int64(s.cost+p.graph.around(id, backward)), bytes, 1)
	case "lru":
		return newScore(int64(s.access), 1, 1)
	}
	return newScore(1, bytes, 1) // size
}
