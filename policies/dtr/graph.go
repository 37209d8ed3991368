package dtr

import (
	"smartswap/policies"
	"smartswap/sim"
)

// storage is what the policy knows about a storage that an operator made.
type storage struct {
	handle   policies.Handle
	bytes    sim.Bytes
	cost     sim.Time
	access   sim.Time
	resident bool
	// known tells that sum holds the cost of the evicted neighbourhood, by
	// direction.
	known [2]bool
	sum   [2]sim.Time
	// settled tells of a storage that is not resident, by direction: nothing
	// that reaches it in that direction knows its sum.
	settled [2]bool
	next    [2][]int32 // neighbours by direction, with repetitions
	class   int32      // number in classes, if it is evicted; -1 = none
	mark    uint32
}

// Directions.
const (
	backward = iota // towards what a storage was computed from
	forward         // towards what was computed from it
)

// graph of storages by number.
type graph struct {
	storages []storage
	classes  bool // union-find classes are kept
	sums     bool // sums of neighbourhoods are asked for
	unions   []union
	mark     uint32
	stack    []int32
}

// union is an element of union-find: the root of a tree holds the sum. It may be
// less than the cost of what is evicted, negative even: storages take their whole
// cost away when they come back, that of views made meanwhile included.
type union struct {
	up  int32 // -1 = root
	sum sim.Time
}

func (g *graph) reset() { g.storages, g.unions = g.storages[:0], g.unions[:0] }

// add makes a storage that is not in memory yet.
func (g *graph) add(h policies.Handle, bytes sim.Bytes) int32 {
	g.storages = append(g.storages, storage{handle: h, bytes: bytes, class: -1})
	return int32(len(g.storages) - 1)
}

// operator makes results, views included, the children of inputs, and more
// expensive by cost.
func (g *graph) operator(cost sim.Time, inputs, results []int32) {
	for k, r := range results {
		for _, i := range inputs {
			if i != r {
				g.storages[r].next[backward] = append(g.storages[r].next[backward], i)
				g.storages[i].next[forward] = append(g.storages[i].next[forward], r)
			}
		}
		g.unsettle(r, forward)
		for _, i := range inputs {
			g.unsettle(i, backward)
		}
		counted := false
		for _, before := range results[:k] {
			counted = counted || before == r
		}
		if !counted {
			g.storages[r].cost += cost
		}
	}
}

// gone tells that a storage is in memory no more, back that it is again.
func (g *graph) gone(id int32) {
	s := &g.storages[id]
	s.resident = false
	g.changed(id)
	if !g.classes {
		return
	}
	s.class = int32(len(g.unions))
	g.unions = append(g.unions, union{-1, s.cost})
	for way := range s.next {
		for _, n := range s.next[way] {
			if c := g.storages[n].class; c >= 0 {
				g.unite(s.class, c)
			}
		}
	}
}

func (g *graph) back(id int32) {
	s := &g.storages[id]
	s.resident = true
	g.changed(id)
	if s.class >= 0 {
		g.unions[g.root(s.class)].sum -= s.cost
		s.class = -1
	}
}

// changed forgets the sums that a storage that left or came back is part of: its
// own, those of what it is computed from, and those of what is computed from it,
// as far as evicted storages lead. It turns back where nothing behind knows a
// sum, so that long chains of what is gone are not followed at every change.
func (g *graph) changed(id int32) {
	if !g.sums {
		return
	}
	s := &g.storages[id]
	s.known, s.settled = [2]bool{}, [2]bool{true, true}
	for way := range s.next {
		g.walk(id, 1-way, func(n *storage) bool {
			n.known[way] = false
			turn := n.settled[way]
			n.settled[way] = true
			return turn
		})
	}
}

// unsettle tells that a new edge leads to id in a direction, and from there on.
func (g *graph) unsettle(id int32, way int) {
	if s := &g.storages[id]; g.sums && !s.resident {
		s.settled[way] = false
		g.walk(id, way, func(n *storage) bool { n.settled[way] = false; return false })
	}
}

// walk visits once what is reached from id, itself excepted, in a direction
// through storages that are not resident, and for which visit does not tell to
// turn back.
func (g *graph) walk(id int32, way int, visit func(*storage) (turn bool)) {
	g.mark++
	g.storages[id].mark = g.mark
	g.stack = append(g.stack[:0], id)
	for len(g.stack) > 0 {
		at := g.stack[len(g.stack)-1]
		g.stack = g.stack[:len(g.stack)-1]
		for _, i := range g.storages[at].next[way] {
			n := &g.storages[i]
			if n.mark == g.mark {
				continue
			}
			n.mark = g.mark
			if turn := visit(n); !turn && !n.resident {
				g.stack = append(g.stack, i)
			}
		}
	}
}

// around is the cost of the evicted storages that a resident one reaches in a
// direction. A sum is kept until one of them, or one beside them, changes.
func (g *graph) around(id int32, way int) sim.Time {
	s := &g.storages[id]
	if !s.known[way] {
		var sum sim.Time
		g.walk(id, way, func(n *storage) bool {
			if !n.resident {
				sum += n.cost
				n.settled[way] = false
			}
			return false
		})
		s.sum[way], s.known[way] = sum, true
	}
	return s.sum[way]
}

// near is the sum over the distinct classes of evicted neighbours.
func (g *graph) near(id int32) sim.Time {
	s := &g.storages[id]
	g.stack = g.stack[:0]
	var sum sim.Time
	for way := range s.next {
		for _, n := range s.next[way] {
			c := g.storages[n].class
			if c < 0 {
				continue
			}
			c = g.root(c)
			seen := false
			for _, before := range g.stack {
				seen = seen || before == c
			}
			if !seen {
				g.stack = append(g.stack, c)
				sum += g.unions[c].sum
			}
		}
	}
	return sum
}

func (g *graph) unite(a, b int32) {
	if a, b = g.root(a), g.root(b); a != b {
		g.unions[b].sum += g.unions[a].sum
		g.unions[a].up = b
	}
}

// root finds a class's root and shortens the way to it.
func (g *graph) root(c int32) int32 {
	for g.unions[c].up >= 0 {
		if up := g.unions[g.unions[c].up].up; up >= 0 {
			g.unions[c].up = up
		}
		c = g.unions[c].up
	}
	return c
}
