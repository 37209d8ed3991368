package smartswap

import "slices"

// repeats finds the longest run of names that occurs exactly times times in
// sequence, overlaps counted, and contains a name that marked accepts; no run
// is longer than len(sequence)/times. It returns where its occurrences begin, in
// order; of several such runs the one that comes first. Nil if there is none.
//
// The occurrences of a run are neighbours in the suffix array, so every choice
// of `times` neighbouring suffixes is looked at once: what they all share may be
// the run, unless one suffix more shares it too. O(n log n), where trying all
// lengths in turn, as the shipped code does, is O(n^2).
func repeats(sequence []int32, times int, marked func(name int32) bool) []int32 {
	n := len(sequence)
	if times <= 0 || times > n {
		return nil
	}
	order := suffixes(sequence)
	shared := sharedPrefixes(sequence, order)
	// next is the first marked position from i on.
	next := make([]int, n+1)
	next[n] = n
	for i := n - 1; i >= 0; i-- {
		if next[i] = next[i+1]; marked(sequence[i]) {
			next[i] = i
		}
	}
	length, first, found := 0, 0, -1
	inside := window{values: shared}
	for lo := 0; lo+times <= n; lo++ {
		hi := lo + times // suffixes lo..hi-1
		at := int(order[lo])
		run := n - at
		if times > 1 {
			run = int(inside.least(lo+1, hi))
		}
		run = min(run, n/times)
		if run <= int(shared[lo]) || hi < n && run <= int(shared[hi]) || run < length {
			continue // one more suffix begins like this, or a longer run is known
		}
		if next[at]-at >= run {
			continue
		}
		start := int(slices.Min(order[lo:hi]))
		if run > length || start < first {
			length, first, found = run, start, lo
		}
	}
	if found < 0 {
		return nil
	}
	starts := slices.Clone(order[found : found+times])
	slices.Sort(starts)
	return starts
}

// suffixes lists where the suffixes of a sequence begin, in their order
// (Manber and Myers 1993: sorting by prefixes of doubled length, here by
// counting). O(n log n).
func suffixes(sequence []int32) []int32 {
	n := len(sequence)
	order, rank := make([]int32, n), make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(sequence[a]) - int(sequence[b]) })
	classes := int32(0)
	for i, s := range order {
		if i > 0 && sequence[s] != sequence[order[i-1]] {
			classes++
		}
		rank[s] = classes
	}
	bySecond, nextRank, starts := make([]int32, n), make([]int32, n), make([]int32, n+1)
	for k := 1; int(classes) < n-1; k *= 2 {
		// By the second half: what has none comes first.
		bySecond = bySecond[:0]
		for i := n - k; i < n; i++ {
			if i >= 0 {
				bySecond = append(bySecond, int32(i))
			}
		}
		for _, s := range order {
			if int(s) >= k {
				bySecond = append(bySecond, s-int32(k))
			}
		}
		// By the first half, keeping that order.
		clear(starts)
		for _, r := range rank {
			starts[r+1]++
		}
		for i := range n {
			starts[i+1] += starts[i]
		}
		for _, s := range bySecond {
			order[starts[rank[s]]] = s
			starts[rank[s]]++
		}
		second := func(s int32) int32 {
			if int(s)+k < n {
				return rank[int(s)+k]
			}
			return -1
		}
		classes = 0
		for i, s := range order {
			if i > 0 {
				if p := order[i-1]; rank[p] != rank[s] || second(p) != second(s) {
					classes++
				}
			}
			nextRank[s] = classes
		}
		rank, nextRank = nextRank, rank
	}
	return order
}

// sharedPrefixes is how many names each suffix shares with the one before it in
// order; 0 for the first (Kasai et al. 2001). O(n).
func sharedPrefixes(sequence, order []int32) []int32 {
	n := len(sequence)
	shared, place := make([]int32, n), make([]int32, n)
	for i, s := range order {
		place[s] = int32(i)
	}
	h := 0
	for s := range n {
		if place[s] == 0 {
			h = 0
			continue
		}
		p := int(order[place[s]-1])
		for s+h < n && p+h < n && sequence[s+h] == sequence[p+h] {
			h++
		}
		shared[place[s]] = int32(h)
		h = max(0, h-1)
	}
	return shared
}

// window answers least(lo, hi) for windows that only move forward, in O(1)
// amortised: it keeps the places that may still be the least, in order.
type window struct {
	values []int32
	places []int
	seen   int
}

// least is the least of values[lo:hi], hi > lo.
func (w *window) least(lo, hi int) int32 {
	for w.seen = max(w.seen, lo); w.seen < hi; w.seen++ {
		for n := len(w.places); n > 0 && w.values[w.places[n-1]] >= w.values[w.seen]; n-- {
			w.places = w.places[:n-1]
		}
		w.places = append(w.places, w.seen)
	}
	for w.places[0] < lo {
		w.places = w.places[1:]
	}
	return w.values[w.places[0]]
}
