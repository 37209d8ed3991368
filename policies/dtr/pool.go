package dtr

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"smartswap/sim"
)

// pool is the list of candidates: storages that an operator made, that are in
// memory, and that nothing is known to keep there. Each is in one of five states.
//
//	out      it is not in memory
//	waiting  it is in the list
//	passed   it is in the list, where it was, and has refused to leave during the
//	         present request: it cannot be made again, has no references, and what
//	         runs again, or would have to, may read it. Until the next request it
//	         is passed over.
//	held     it is in memory and not in the list: an operator that is being
//	         dispatched has locked it
//	barred   it is in memory and not in the list: it has references, and nothing
//	         can make its content again
//
// What changes the state:
//
//	admit    any -> waiting, last: an operator has made it, again or for the first
//	         time, or has written it anew
//	put      waiting or held -> waiting, last: an operator that used it has run.
//	         What is barred stays so: reading changes nothing about it.
//	unlock   held -> waiting, last: an operator of the program has been issued, and
//	         with it all those that ran again for it: nobody holds a lock
//	free     barred -> waiting, last: the program has given its last reference back
//	request  passed -> waiting: between two allocations that fail what was missing
//	         may have come back, or nobody may need it any more
//	pass, hold, bar, remove  it has refused, for one of these reasons, or is gone
//
// So what could leave is out of sight at most until the operator at hand, or the
// request, is over, and then only if it has refused during it. A request ends:
// each turn of it takes one storage out of those that wait (it is discarded,
// passed, held or barred), and within a request nothing comes to them. With n
// candidates it has at most n turns, of at most n scores each. Discards of the
// same request make nobody who has refused willing: they add to what has to be
// made again.
type pool struct {
	list   []int32  // -1 = gap
	at     []int32  // by storage: position + 1; 0 = out, or heldAt or barredAt
	passed []uint32 // by storage: the request that it refused, from 1; 0 = none
	locked []int32  // have been held since the last unlock
	asked  uint32   // requests before the present one
	gaps   int
}

// Values of pool.at beside positions.
const (
	barredAt = -1
	heldAt   = -2
)

func (l *pool) reset() {
	l.list, l.at, l.passed, l.locked, l.gaps, l.asked = l.list[:0], l.at[:0], l.passed[:0], l.locked[:0], 0, 0
}

// request begins one: what was passed over is asked again.
func (l *pool) request() { l.asked++ }

// admit makes id, which is in memory, the last of the pool.
func (l *pool) admit(id int32) {
	l.remove(id)
	for int(id) >= len(l.at) {
		l.at, l.passed = append(l.at, 0), append(l.passed, 0)
	}
	if l.gaps > 64 && 2*l.gaps > len(l.list) {
		l.close()
	}
	l.list = append(l.list, id)
	l.at[id] = int32(len(l.list))
}

// put makes id, which is in memory, the last of the pool unless it is barred.
func (l *pool) put(id int32) {
	if !l.barred(id) {
		l.admit(id)
	}
}

// free makes id the last of the pool if it was barred.
func (l *pool) free(id int32) {
	if l.barred(id) {
		l.admit(id)
	}
}

func (l *pool) barred(id int32) bool { return int(id) < len(l.at) && l.at[id] == barredAt }

// hold takes id out until it is admitted or put, or unlock.
func (l *pool) hold(id int32) {
	l.remove(id)
	l.at[id] = heldAt
	l.locked = append(l.locked, id)
}

func (l *pool) held(id int32) bool { return int(id) < len(l.at) && l.at[id] == heldAt }

// unlock makes what is held the last of the pool, in the order in which it was
// found to be.
func (l *pool) unlock() {
	for _, id := range l.locked {
		if l.held(id) {
			l.admit(id)
		}
	}
	l.locked = l.locked[:0]
}

// pass leaves id where it is and out of consideration until the next request.
func (l *pool) pass(id int32) { l.passed[id] = l.asked + 1 }

// waits tells whether id, an element of the list, may be chosen.
func (l *pool) waits(id int32) bool { return id >= 0 && l.passed[id] != l.asked+1 }

// bar takes id out until it is admitted or free.
func (l *pool) bar(id int32) {
	l.remove(id)
	l.at[id] = barredAt
}

func (l *pool) remove(id int32) {
	if int(id) >= len(l.at) {
		return
	}
	if l.at[id] > 0 {
		l.list[l.at[id]-1] = -1
		l.gaps++
	}
	l.at[id] = 0
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

// worst is the waiting candidate with the smallest score, of those that are looked
// at, -1 if none waits, and how many they were.
func (p *Policy) worst(iteration int) (best int32, looked int) {
	list := p.pool.list
	if p.options.SampleTensors || p.options.IgnoreSmallTensors {
		list = p.some(iteration)
	}
	best = -1
	var least score
	for _, id := range list {
		if !p.pool.waits(id) {
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

// some are the candidates to look at, in the order of the pool; none only if none
// waits.
func (p *Policy) some(iteration int) []int32 {
	small := sim.Bytes(0)
	if p.options.IgnoreSmallTensors && p.made > 0 {
		hundred := sim.Bytes(100 * p.made)
		small = (p.bytes + hundred - 1) / hundred // sizes are whole: below the hundredth, below its ceiling
	}
	list := p.considered[:0]
	for _, id := range p.pool.list {
		if p.pool.waits(id) && p.graph.storages[id].bytes >= small {
			list = append(list, id)
		}
	}
	if len(list) == 0 && small > 0 {
		for _, id := range p.pool.list {
			if p.pool.waits(id) {
				list = append(list, id)
			}
		}
	}
	p.considered = list
	if !p.options.SampleTensors {
		return list
	}
	n := int(math.Ceil(math.Sqrt(float64(len(list)))))
	for i := range n { // the first n of a shuffle
		// Times a number below 2^32 a random one of 64 bits leaves no bias to speak of.
		k, _ := bits.Mul64(p.luck.Uint64(0, iteration, p.draws), uint64(len(list)-i))
		p.draws++
		j := i + int(k)
		list[i], list[j] = list[j], list[i]
	}
	slices.SortFunc(list[:n], func(a, b int32) int { return cmp.Compare(p.pool.at[a], p.pool.at[b]) })
	return list[:n]
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
