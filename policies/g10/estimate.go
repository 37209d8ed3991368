package g10

import (
	"smartswap/policies"
	"smartswap/sim"
)

// estimate is the device memory that each kernel is believed to find in use.
type estimate struct {
	bytes []sim.Bytes
	line  sim.Bytes
	over  []bool // above the size of the device, for benefits
	gpu   sim.Bytes
	// overTime sums the time of the kernels in over; overCount counts them.
	overTime, aboveCount tree
	time                 []sim.Time
	above                int // kernels at or above line
}

// newEstimate starts with all tensors at every kernel.
func newEstimate(p *policies.Nominal, gpu, line sim.Bytes) *estimate {
	n := len(p.Kernels)
	e := &estimate{
		bytes: make([]sim.Bytes, n), over: make([]bool, n), line: line, gpu: gpu,
		overTime: make(tree, n+1), aboveCount: make(tree, n+1), time: make([]sim.Time, n),
	}
	var sum sim.Bytes
	for i := range p.Tensors {
		sum += p.Tensors[i].Bytes
	}
	for k := range n {
		e.time[k] = p.Kernels[k].Span
		e.set(k, sum)
	}
	return e
}

// set gives kernel k the estimate b.
func (e *estimate) set(k int, b sim.Bytes) {
	if was, is := e.bytes[k] >= e.line, b >= e.line; was != is {
		sign := int64(1)
		if was {
			sign = -1
		}
		e.above += int(sign)
		e.aboveCount.add(k, sign)
	}
	e.bytes[k] = b
	if over := b > e.gpu; over != e.over[k] {
		sign := int64(1)
		if !over {
			sign = -1
		}
		e.over[k] = over
		e.overTime.add(k, sign*int64(e.time[k]))
	}
}

// add adds b to the kernels lo to hi-1; kernels count on after the last.
func (e *estimate) add(lo, hi int, b sim.Bytes) {
	for k := lo; k < hi; k++ {
		e.set(k%len(e.bytes), e.bytes[k%len(e.bytes)]+b)
	}
}

// met tells whether every kernel is below the line.
func (e *estimate) met() bool { return e.above == 0 }

// fullest is the first kernel with the largest estimate.
func (e *estimate) fullest() int {
	best := 0
	for k, b := range e.bytes {
		if b > e.bytes[best] {
			best = k
		}
	}
	return best
}

// tree sums values over prefixes of kernels (a binary indexed tree).
type tree []int64

func (t tree) add(k int, v int64) {
	for k++; k < len(t); k += k & -k {
		t[k] += v
	}
}

// upTo is the sum of the kernels before k.
func (t tree) upTo(k int) (sum int64) {
	for ; k > 0; k -= k & -k {
		sum += t[k]
	}
	return sum
}

// between is the sum of the kernels lo to hi-1, counting on after the last for
// less than one iteration.
func (t tree) between(lo, hi int) int64 {
	n := len(t) - 1
	if lo >= hi {
		return 0
	}
	sum := int64(0)
	for hi > n {
		if lo >= n {
			lo, hi = lo-n, hi-n
			continue
		}
		sum += t.upTo(hi - n)
		hi = n
	}
	return sum + t.upTo(hi) - t.upTo(lo)
}
