package sim

import (
	"math"
	"math/bits"
)

// Work is what a flow has to move, as rate x time in 128 bits, so that
// re-timing loses nothing. The unit is 1 B/s for 1 ps, or 10^-12 byte.
type Work struct{ todo wide }

// BytesWork is the work of moving b bytes: at a constant rate it takes
// b*10^12/rate picoseconds, rounded up. Less than 0 is 0.
func BytesWork(b Bytes) Work { return Work{product(int64(b), int64(Second))} }

// SpanWork is the work that takes exactly d at rate r. Less than 0 is 0.
func SpanWork(d Time, r Rate) Work { return Work{product(int64(d), int64(r))} }

// wide is an unsigned 128-bit integer.
type wide struct{ hi, lo uint64 }

// product is a*b, 0 if either is negative.
func product(a, b int64) wide {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	return wide{hi, lo}
}

// plus is a+b. The largest product is below 2^126, and no sum here comes near
// four of those.
func (a wide) plus(b wide) wide {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return wide{hi, lo}
}

// minus is a-b, 0 if b is larger.
func (a wide) minus(b wide) wide {
	if a.less(b) {
		return wide{}
	}
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return wide{hi, lo}
}

func (a wide) less(b wide) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// over is a/d rounded down, d > 0; math.MaxInt64 if the quotient is larger.
func (a wide) over(d int64) int64 {
	if a.hi >= uint64(d) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(a.hi, a.lo, uint64(d))
	return int64(min(q, math.MaxInt64))
}

// overUp is a/d rounded up, with the same limits.
func (a wide) overUp(d int64) int64 {
	return a.plus(wide{0, uint64(d) - 1}).over(d)
}
