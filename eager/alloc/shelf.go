package alloc

import (
	"math/bits"

	"smartswap/sim"
)

// shelf is a free list: the inactive blocks of one pool and stream in (size,
// address) order. Programs ask for few distinct sizes, again and again, so the
// sizes are divided into bins, sixteen to an octave, each with a tree of its
// own: most trees have the blocks of one size, and the trees that the steady
// work of a program touches are shallow. A bit per bin tells which are not
// empty, so that the next one is found without looking at those between. (The
// two-level index is that of TLSF, Masmano and others, ECRTS 2004; within a bin
// the order is exact.) The zero value is an empty shelf.
type shelf struct {
	full  [numBins / 64]uint64
	trees [numBins]tree // those of bins that are not full are undefined
}

const (
	binsLog = 4                        // log2 of the bins of an octave
	numBins = (61<<binsLog + 63) &^ 63 // sizes are at most unbounded, 2^60
)

// binOf is the bin of a size > 0: its highest bit and the binsLog bits after
// it. (Where there are fewer, those that follow are zeros.)
func binOf(size sim.Bytes) int {
	log := bits.Len64(uint64(size)) - 1
	return log<<binsLog + int(uint64(size)<<binsLog>>log)&(1<<binsLog-1)
}

// has tells whether bin i has blocks.
func (l *shelf) has(i int) bool { return l.full[i>>6]>>(i&63)&1 != 0 }

// insert adds b in O(log n).
func (l *shelf) insert(at []block, b Block) {
	i := binOf(at[b].size)
	t := &l.trees[i]
	if !l.has(i) {
		l.full[i>>6] |= 1 << (i & 63)
		*t = tree{NoBlock, NoBlock}
	}
	t.insert(at, b)
}

// remove takes b, which is in the shelf, out in O(log n).
func (l *shelf) remove(at []block, b Block) {
	i := binOf(at[b].size)
	t := &l.trees[i]
	if t.remove(at, b); t.root == NoBlock {
		l.full[i>>6] &^= 1 << (i & 63)
	}
}

// atLeast is the first block of size > 0 or more: best fit, lowest address.
func (l *shelf) atLeast(at []block, size sim.Bytes) Block {
	i := binOf(size)
	if l.has(i) {
		if b := l.trees[i].atLeast(at, size); b != NoBlock {
			return b
		}
	}
	return l.firstFrom(i + 1)
}

// first is the smallest block.
func (l *shelf) first() Block { return l.firstFrom(0) }

// firstFrom is the smallest block of the bins from i on.
func (l *shelf) firstFrom(i int) Block {
	for w := i >> 6; w < len(l.full); w++ {
		set := l.full[w]
		if w == i>>6 {
			set &= ^uint64(0) << (i & 63)
		}
		if set != 0 {
			return l.trees[w<<6+bits.TrailingZeros64(set)].least
		}
	}
	return NoBlock
}

// last is the largest block.
func (l *shelf) last(at []block) Block { return l.lastBefore(at, numBins) }

// lastBefore is the largest block of the bins before i.
func (l *shelf) lastBefore(at []block, i int) Block {
	for w := (i - 1) >> 6; w >= 0; w-- {
		set := l.full[w]
		if end := i - w<<6; end < 64 {
			set &= 1<<end - 1
		}
		if set != 0 {
			return l.trees[w<<6+bits.Len64(set)-1].last(at)
		}
	}
	return NoBlock
}

// after is the block that follows b, in the shelf or not, in the order.
func (l *shelf) after(at []block, b Block) Block {
	i := binOf(at[b].size)
	if l.has(i) {
		if next := l.trees[i].after(at, b); next != NoBlock {
			return next
		}
	}
	return l.firstFrom(i + 1)
}

// before is the block that b, in the shelf or not, follows in the order.
func (l *shelf) before(at []block, b Block) Block {
	i := binOf(at[b].size)
	if l.has(i) {
		if prev := l.trees[i].before(at, b); prev != NoBlock {
			return prev
		}
	}
	return l.lastBefore(at, i)
}
