package direct

import (
	"slices"

	"smartswap/sim"
)

// span is a range of addresses.
type span struct{ lo, hi sim.Bytes }

// ranges are the free addresses, ascending; no two touch.
type ranges []span

// takeLow takes n bytes from the low end of the first free range that has them.
func (r *ranges) takeLow(n sim.Bytes) (span, bool) {
	for i := range *r {
		if f := &(*r)[i]; f.hi-f.lo >= n {
			s := span{f.lo, f.lo + n}
			f.lo += n
			r.drop(i)
			return s, true
		}
	}
	return span{}, false
}

// takeHigh takes n bytes from the high end of the last free range that has
// them.
func (r *ranges) takeHigh(n sim.Bytes) (span, bool) {
	for i := len(*r) - 1; i >= 0; i-- {
		if f := &(*r)[i]; f.hi-f.lo >= n {
			s := span{f.hi - n, f.hi}
			f.hi -= n
			r.drop(i)
			return s, true
		}
	}
	return span{}, false
}

// drop removes range i if nothing is left of it.
func (r *ranges) drop(i int) {
	if (*r)[i].lo == (*r)[i].hi {
		*r = slices.Delete(*r, i, i+1)
	}
}

// give returns s, which must not be free.
func (r *ranges) give(s span) {
	if s.lo == s.hi {
		return
	}
	i, _ := slices.BinarySearchFunc(*r, s.lo, func(f span, lo sim.Bytes) int { return int(min(1, max(-1, f.lo-lo))) })
	before := i > 0 && (*r)[i-1].hi == s.lo
	after := i < len(*r) && (*r)[i].lo == s.hi
	switch {
	case before && after:
		(*r)[i-1].hi = (*r)[i].hi
		*r = slices.Delete(*r, i, i+1)
	case before:
		(*r)[i-1].hi = s.hi
	case after:
		(*r)[i].lo = s.lo
	default:
		*r = slices.Insert(*r, i, s)
	}
}

// largest is the size of the largest free range.
func (r ranges) largest() (n sim.Bytes) {
	for _, f := range r {
		n = max(n, f.hi-f.lo)
	}
	return n
}

// total is the sum of the free ranges.
func (r ranges) total() (n sim.Bytes) {
	for _, f := range r {
		n += f.hi - f.lo
	}
	return n
}
