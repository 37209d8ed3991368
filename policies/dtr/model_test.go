package dtr_test

import (
	"math"
	"math/big"
	"slices"

	fdtr "smartswap/formats/dtr"
	"smartswap/sim"
)

// model is a naive simulation of DTR's own simulator, as the reference data
// describe it, in our own words: no device, no streams, no events; lists that are
// searched from front to back; recursion. Times are in ns.
type model struct {
	budget    sim.Bytes // 0 = none
	limit     int64     // of the time of recomputations; 0 = none
	heuristic string
	eager     bool // storages without references leave at once
	// compat is the original's simulator: of equals the last wins, the search
	// stops at 0, and operators count as soon as they are met. Without it: the
	// first wins, nothing stops, only what has run counts.
	compat bool
	// framework is where a framework differs from the original: constants are
	// there before everything else, and results find memory one after the other,
	// so that the peak may be between them.
	framework bool

	names    map[string]*mTensor
	order    []string // names, as they were first given
	storages []*mStorage
	pool     []*mStorage
	memory   sim.Bytes
	peak     sim.Bytes
	clock    int64
	result   string // "" while it runs

	remat     int64
	rematOps  int64
	evictions []int // numbers of storages
	marks     int
	scores    int64
}

type mStorage struct {
	id       int // of those that operators make, from 0; -1 = a constant
	bytes    sim.Bytes
	refs     int
	locks    int
	pinned   bool
	resident bool
	access   int64
	cost     int64
	makers   []*mOp
	tensors  []*mTensor
	mark     int
	sums     [2]int64 // cached: backward, forward
	known    [2]bool
	class    *mClass
}

type mClass struct {
	up  *mClass
	sum int64
}

type mTensor struct {
	storage  *mStorage
	maker    *mOp
	defined  bool
	children []*mTensor
}

type mOp struct {
	time    int64
	args    []*mTensor
	results []*mTensor
	own     []bool
}

// play runs a log.
func (m *model) play(log []*fdtr.Instr) {
	m.names, m.clock = map[string]*mTensor{}, 1
	if m.framework {
		for _, i := range log {
			if i.Kind == fdtr.Constant {
				m.memory += i.Bytes
			}
		}
		m.peak = m.memory
	}
	for _, i := range log {
		if m.result == "" {
			m.take(i)
		}
	}
	m.finish()
}

func (m *model) storage(bytes sim.Bytes, constant bool) *mStorage {
	s := &mStorage{id: -1, bytes: bytes}
	if !constant {
		s.id = len(m.storages)
		m.storages = append(m.storages, s)
	}
	return s
}

func (m *model) take(i *fdtr.Instr) {
	switch i.Kind {
	case fdtr.Constant:
		t := &mTensor{storage: m.storage(i.Bytes, true)}
		t.maker = &mOp{results: []*mTensor{t}, own: []bool{true}}
		if m.compat || m.framework {
			m.learn(t.maker)
		}
		if !m.framework {
			m.perform(t.maker, false)
		}
		t.defined, t.storage.resident, t.storage.pinned = true, true, true
		m.unpool(t.storage)
		m.bind(i.Name, t)
	case fdtr.Call, fdtr.Mutate:
		op := &mOp{time: int64(i.Time / sim.Nanosecond)}
		for _, a := range i.Args {
			op.args = append(op.args, m.names[a])
		}
		var names []string
		for _, r := range i.Results {
			names = append(names, r.Name)
			s := (*mStorage)(nil)
			if r.Alias == fdtr.Own {
				s = m.storage(r.Bytes, false)
			} else {
				s = op.args[r.Alias].storage
			}
			op.results = append(op.results, &mTensor{storage: s})
			op.own = append(op.own, r.Alias == fdtr.Own)
		}
		for _, k := range i.Mutated {
			names = append(names, i.Args[k])
			op.results = append(op.results, &mTensor{storage: m.storage(op.args[k].storage.bytes, false)})
			op.own = append(op.own, true)
		}
		for _, t := range op.results {
			t.maker = op
		}
		if m.compat {
			m.learn(op)
		}
		m.perform(op, false)
		if m.result != "" {
			return
		}
		for k, name := range names {
			m.bind(name, op.results[k])
		}
	case fdtr.Copy, fdtr.CopyFrom:
		m.bind(i.Dst, m.names[i.Src])
	case fdtr.Release:
		if t := m.names[i.Name]; t != nil {
			delete(m.names, i.Name)
			m.release(t)
		}
	}
}

func (m *model) bind(name string, t *mTensor) {
	old := m.names[name]
	m.names[name] = t
	if !slices.Contains(m.order, name) {
		m.order = append(m.order, name)
	}
	t.storage.refs++
	if old != nil {
		m.release(old)
	}
}

// learn makes an operator count.
func (m *model) learn(op *mOp) {
	for _, t := range op.results {
		t.storage.tensors = append(t.storage.tensors, t)
		for _, a := range op.args {
			a.children = append(a.children, t)
		}
		if !slices.Contains(t.storage.makers, op) {
			t.storage.makers = append(t.storage.makers, op)
			t.storage.cost += op.time
		}
	}
}

func (m *model) release(t *mTensor) {
	s := t.storage
	s.refs--
	m.dead(s)
}

func (m *model) dead(s *mStorage) {
	if m.eager && s.refs == 0 && s.locks == 0 && s.resident && !s.pinned {
		m.evict(s)
	}
}

func (m *model) lock(s *mStorage) {
	s.locks++
	if s.locks == 1 {
		m.unpool(s)
	}
}

func (m *model) unpool(s *mStorage) {
	if i := slices.Index(m.pool, s); i >= 0 {
		m.pool = slices.Delete(m.pool, i, i+1)
	}
}

func (m *model) unlock(s *mStorage) {
	s.locks--
	if s.locks == 0 && !s.pinned && s.resident {
		m.pool = append(m.pool, s)
	}
}

func (m *model) perform(op *mOp, again bool) {
	for _, a := range op.args {
		a.storage.access = m.clock
	}
	locked := make([]bool, len(op.args))
	for k, a := range op.args {
		if a.defined {
			m.lock(a.storage)
			locked[k] = true
		}
	}
	for k, a := range op.args {
		if locked[k] {
			continue
		}
		if !a.defined {
			m.perform(a.maker, true)
			if m.result != "" {
				return
			}
		}
		m.lock(a.storage)
	}
	var need sim.Bytes
	for k, t := range op.results {
		if op.own[k] {
			need += t.storage.bytes
		}
	}
	if m.framework {
		for k, t := range op.results {
			if op.own[k] {
				if !m.room(t.storage.bytes) {
					return
				}
				m.memory += t.storage.bytes
				m.peak = max(m.peak, m.memory)
			}
		}
	} else {
		if !m.room(need) {
			return
		}
		m.memory += need
		m.peak = max(m.peak, m.memory)
	}
	m.clock += op.time
	if !again && !m.compat {
		m.learn(op)
	}
	if again {
		m.remat += op.time
		m.rematOps++
	}
	for k, t := range op.results {
		s := t.storage
		t.defined = true
		if !again {
			s.access = m.clock
		}
		if op.own[k] {
			if s.resident {
				m.memory -= s.bytes
			} else {
				s.resident = true
				m.back(s)
				if s.locks == 0 && !s.pinned {
					m.pool = append(m.pool, s)
				}
			}
		}
	}
	if m.limit > 0 && m.remat > m.limit {
		m.result = "fail-remat-limit"
		return
	}
	for _, a := range op.args {
		m.unlock(a.storage)
	}
}

func (m *model) room(need sim.Bytes) bool {
	for m.budget > 0 && m.memory+need > m.budget {
		s := m.worst()
		if s == nil {
			m.result = "fail-oom"
			return false
		}
		m.evictions = append(m.evictions, s.id)
		m.evict(s)
	}
	return true
}

func (m *model) evict(s *mStorage) {
	m.unpool(s)
	s.resident = false
	m.memory -= s.bytes
	for _, t := range s.tensors {
		t.defined = false
	}
	m.changed(s)
	if m.heuristic == "DTR-EqClass" {
		s.class = &mClass{sum: s.cost}
		for _, n := range append(m.neighbours(s, true), m.neighbours(s, false)...) {
			if !n.resident && n.class != nil {
				a, b := s.class.root(), n.class.root()
				if a != b {
					b.sum += a.sum
					a.up = b
				}
			}
		}
	}
}

// changed forgets sums that s was, or will be, part of.
func (m *model) changed(s *mStorage) {
	s.known = [2]bool{}
	m.flood(s, true)
	m.flood(s, false)
}

func (m *model) flood(s *mStorage, forward bool) {
	way := 1
	if forward {
		way = 0
	}
	m.marks++
	mark := m.marks
	s.mark = mark
	stack := []*mStorage{s}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, n := range m.neighbours(at, forward) {
			if n.mark == mark {
				continue
			}
			n.mark = mark
			n.known[way] = false
			if !n.resident {
				stack = append(stack, n)
			}
		}
	}
}

func (m *model) back(s *mStorage) {
	m.changed(s)
	if s.class != nil {
		s.class.root().sum -= s.cost
		s.class = nil
	}
}

func (c *mClass) root() *mClass {
	for c.up != nil {
		c = c.up
	}
	return c
}

// neighbours of s through all its tensors.
func (m *model) neighbours(s *mStorage, forward bool) []*mStorage {
	var list []*mStorage
	add := func(n *mStorage) {
		if n != s && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	for _, t := range s.tensors {
		if forward {
			for _, c := range t.children {
				add(c.storage)
			}
		} else {
			for _, a := range t.maker.args {
				add(a.storage)
			}
		}
	}
	return list
}

// reach sums the costs of evicted storages that s reaches.
func (m *model) reach(s *mStorage, forward bool) int64 {
	m.marks++
	mark := m.marks
	s.mark = mark
	sum := int64(0)
	stack := []*mStorage{s}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		visit := func(n *mStorage) {
			if n.mark != mark && !n.resident && !n.pinned {
				n.mark = mark
				sum += n.cost
				stack = append(stack, n)
			}
		}
		for _, t := range at.tensors {
			if forward {
				for _, c := range t.children {
					visit(c.storage)
				}
			} else {
				for _, a := range t.maker.args {
					visit(a.storage)
				}
			}
		}
	}
	return sum
}

func (m *model) cached(s *mStorage, way int) int64 {
	if !m.compat || !s.known[way] {
		s.sums[way], s.known[way] = m.reach(s, way == 1), true
	}
	return s.sums[way]
}

// score is c / d exactly.
func (m *model) score(s *mStorage) (c int64, a, b int64) {
	stale := m.clock - s.access
	switch m.heuristic {
	case "DTR":
		return s.cost + m.cached(s, 0) + m.cached(s, 1), int64(s.bytes), stale
	case "DTR-EqClass":
		c = s.cost
		var seen []*mClass
		for _, n := range append(m.neighbours(s, true), m.neighbours(s, false)...) {
			if n.class != nil {
				if r := n.class.root(); !slices.Contains(seen, r) {
					seen = append(seen, r)
					c += r.sum
				}
			}
		}
		return c, int64(s.bytes), stale
	case "DTR-Local":
		return s.cost, int64(s.bytes), stale
	case "MSPS":
		return s.cost + m.cached(s, 0), int64(s.bytes), 1
	case "LRU":
		return s.access, 1, 1
	case "Size":
		return 1, int64(s.bytes), 1
	}
	panic("no heuristic " + m.heuristic)
}

// worst scans the pool from front to back.
func (m *model) worst() *mStorage {
	var best *mStorage
	var bestScore float64
	var bc, ba, bb int64
	for _, s := range m.pool {
		m.scores++
		c, a, b := m.score(s)
		score := math.Inf(1)
		if a > 0 && b > 0 {
			score = float64(c) / (float64(a) * float64(b))
		}
		if best != nil && score > bestScore*(1-1e-14) && score < bestScore*(1+1e-14) {
			// Too near for doubles that were rounded thrice.
			score, bestScore = exact(c, a, b), exact(bc, ba, bb)
		}
		if best == nil || score < bestScore || score == bestScore && m.compat {
			best, bestScore, bc, ba, bb = s, score, c, a, b
			if score == 0 && m.compat {
				break
			}
		}
	}
	return best
}

// exact is the double nearest to c / (a b).
func exact(c, a, b int64) float64 {
	d := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	f, _ := new(big.Rat).SetFrac(big.NewInt(c), d).Float64()
	return f
}

// finish makes the outputs: what still has a name, names in the order in which
// they were first given.
func (m *model) finish() {
	for _, name := range m.order {
		t := m.names[name]
		if t == nil {
			continue
		}
		if m.result != "" {
			return
		}
		if !t.defined {
			m.perform(t.maker, true)
		}
		t.storage.pinned = true
		m.unpool(t.storage)
	}
	if m.result == "" {
		m.result = "ok"
	}
}
