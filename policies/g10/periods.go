package g10

import (
	"cmp"
	"math/bits"

	"smartswap/policies"
	"smartswap/sim"
)

// Period is a maximal run of kernels between two uses of a tensor.
type Period struct {
	Tensor int32
	// From is its first kernel and To the next use. The period of a global
	// that wraps into the next iteration is Looped: its kernels count on after
	// the last, so that To is that of the next iteration.
	From, To int32
	Looped   bool
	Length   sim.Time // sum of its kernels' nominal times
}

// clock has the times at which kernels begin, over two iterations.
type clock []sim.Time

func newClock(p *policies.Nominal) clock {
	n := len(p.Kernels)
	c := make(clock, 2*n+1)
	for k := range 2 * n {
		c[k+1] = c[k] + p.Kernels[k%n].Span
	}
	return c
}

// periods lists the inactive periods, by tensor and by kernel. A global that no
// kernel touches has none.
func periods(p *policies.Nominal, c clock) []Period {
	n := int32(len(p.Kernels))
	first, last := make([]int32, len(p.Tensors)), make([]int32, len(p.Tensors))
	for i := range last {
		first[i], last[i] = -1, -1
	}
	byTensor := make([][]Period, len(p.Tensors))
	add := func(t, from, to int32, looped bool) {
		if from < to {
			byTensor[t] = append(byTensor[t], Period{t, from, to, looped, c[to] - c[from]})
		}
	}
	for k := range n {
		for _, args := range [][]int32{p.Kernels[k].In, p.Kernels[k].Out} {
			for _, t := range args {
				if last[t] < 0 {
					first[t] = k
				} else {
					add(t, last[t]+1, k, false)
				}
				last[t] = k
			}
		}
	}
	var all []Period
	for t := range byTensor {
		if p.Tensors[t].Global && last[t] >= 0 {
			add(int32(t), last[t]+1, first[t]+n, true)
		}
		all = append(all, byTensor[t]...)
	}
	return all
}

// wide is an unsigned product of 128 bits.
type wide struct{ hi, lo uint64 }

func product(b sim.Bytes, t sim.Time) (w wide) {
	w.hi, w.lo = bits.Mul64(uint64(b), uint64(t))
	return w
}

func (a wide) compare(b wide) int {
	return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo))
}

// candidate is a period with its rank.
type candidate struct {
	Period
	lo, hi  int  // the kernels that count for the benefit
	benefit wide // size x time over the line, as of when it was last computed
	weight  wide // size x length
	number  int  // in the list of periods
}

// less orders candidates, best first: by benefit, then size x length, then in
// the order of the list.
func (a *candidate) less(b *candidate) bool {
	return cmp.Or(b.benefit.compare(a.benefit), b.weight.compare(a.weight), cmp.Compare(a.number, b.number)) < 0
}

// ranking is a heap of candidates. Estimates only fall while periods are
// chosen, so a benefit computed earlier is never too small: the first whose
// benefit, computed again, is what it was is the best of all.
type ranking []*candidate

func (r ranking) Len() int           { return len(r) }
func (r ranking) Less(i, j int) bool { return r[i].less(r[j]) }
func (r ranking) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *ranking) Push(x any)        { *r = append(*r, x.(*candidate)) }

// Pop removes the last element.
func (r *ranking) Pop() any {
	old := *r
	x := old[len(old)-1]
	*r = old[:len(old)-1]
	return x
}
