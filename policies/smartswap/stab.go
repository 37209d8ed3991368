package smartswap

// stab answers "which is the best candidate that covers this operator" for
// candidates that only ever drop out. Candidates are numbered best first and
// cover an interval each; every interval is cut into O(log n) nodes of a tree,
// whose lists are in order because they were filled in order. A query looks at
// the heads of the lists above one leaf; dropping out is lazy, so all queries
// together cost O((candidates + queries) log n).
type stab struct {
	leaves int
	lists  [][]int32
	out    func(candidate int32) bool
}

// newStab indexes candidates over n operators. out tells whether a candidate
// has dropped out; once true it must stay true.
func newStab(n int, candidates []Candidate, out func(int32) bool) *stab {
	s := &stab{leaves: 1, out: out}
	for s.leaves < n {
		s.leaves *= 2
	}
	s.lists = make([][]int32, 2*s.leaves)
	for i := range candidates {
		lo, hi := int(candidates[i].start)+s.leaves, int(candidates[i].end)+s.leaves
		for ; lo < hi; lo, hi = lo/2, hi/2 {
			if lo%2 == 1 {
				s.lists[lo] = append(s.lists[lo], int32(i))
				lo++
			}
			if hi%2 == 1 {
				hi--
				s.lists[hi] = append(s.lists[hi], int32(i))
			}
		}
	}
	return s
}

// best is the best candidate left that covers operator at, or -1.
func (s *stab) best(at int32) int32 {
	best := int32(-1)
	for node := int(at) + s.leaves; node > 0; node /= 2 {
		list := s.lists[node]
		for len(list) > 0 && s.out(list[0]) {
			list = list[1:]
		}
		s.lists[node] = list
		if len(list) > 0 && (best < 0 || list[0] < best) {
			best = list[0]
		}
	}
	return best
}
