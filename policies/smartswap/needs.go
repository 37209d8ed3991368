package smartswap

import "smartswap/sim"

// needs holds the bytes still to be reduced at each operator above the target,
// as a tree of maxima: reducing a range and finding the greatest need are
// O(log n).
type needs struct {
	leaves int
	most   []sim.Bytes // greatest need below node i, changes of its ancestors not included
	change []sim.Bytes // applies to all below node i
}

// newNeeds starts from the needs of a profile.
func newNeeds(need []sim.Bytes) *needs {
	n := &needs{leaves: 1}
	for n.leaves < len(need) {
		n.leaves *= 2
	}
	n.most = make([]sim.Bytes, 2*n.leaves)
	n.change = make([]sim.Bytes, 2*n.leaves)
	copy(n.most[n.leaves:], need)
	for i := n.leaves - 1; i > 0; i-- {
		n.most[i] = max(n.most[2*i], n.most[2*i+1])
	}
	return n
}

// greatest is the place of the greatest need, the first of equals, and the
// need itself; nothing is left to reduce if that is not positive.
func (n *needs) greatest() (int32, sim.Bytes) {
	i := 1
	for i < n.leaves {
		if i *= 2; n.most[i] < n.most[i+1] {
			i++
		}
	}
	return int32(i - n.leaves), n.most[1]
}

// reduce takes b from all needs in start..end-1.
func (n *needs) reduce(start, end int32, b sim.Bytes) {
	if start < end {
		n.reduceBelow(1, 0, int32(n.leaves), start, end, b)
	}
}

func (n *needs) reduceBelow(node int, lo, hi, start, end int32, b sim.Bytes) {
	if end <= lo || hi <= start {
		return
	}
	if start <= lo && hi <= end {
		n.most[node] -= b
		n.change[node] -= b
		return
	}
	mid := (lo + hi) / 2
	n.reduceBelow(2*node, lo, mid, start, end, b)
	n.reduceBelow(2*node+1, mid, hi, start, end, b)
	n.most[node] = max(n.most[2*node], n.most[2*node+1]) + n.change[node]
}
