package alloc

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"smartswap/sim"
)

// Twenty blocks of one size: address decides, and between two of one address the
// id, in whatever order they come.
func TestTreeTies(t *testing.T) {
	at := make([]block, 20)
	for i := range at {
		at[i] = block{id: Block(i), addr: uint64(i/2+1) * 512, size: 512}
	}
	for seed := range uint64(20) {
		tr := tree{NoBlock, NoBlock}
		order := rand.New(rand.NewPCG(1, seed)).Perm(len(at))
		for n, i := range order {
			tr.insert(at, Block(i))
			if got := len(walkTree(t, at, &tr)); got != n+1 {
				t.Fatalf("%d blocks after %d insertions", got, n+1)
			}
		}
		for i := range at {
			if got := tr.atLeast(at, 512); got != Block(i) {
				t.Fatalf("first of equal blocks is %d, want %d", got, i)
			}
			if got := tr.atLeast(at, 513); got != NoBlock {
				t.Fatalf("block %d for more than any has", got)
			}
			if got := tr.last(at); got != 19 {
				t.Fatalf("last block is %d, want 19", got)
			}
			tr.remove(at, Block(i))
			walkTree(t, at, &tr)
		}
		if tr.root != NoBlock || tr.least != NoBlock || tr.last(at) != NoBlock || tr.atLeast(at, 0) != NoBlock {
			t.Fatal("an empty tree has blocks")
		}
	}
}

// The shelf against a sorted slice: a few sizes, of a bin or of different ones.
func TestShelfAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(1, 40), rapid.Int64Range(16, 20), rapid.Int64Range(1<<20-2, 1<<20+2), rapid.Int64Range(1, 1<<60),
			rapid.Map(rapid.IntRange(0, 60), func(log int) int64 { return 1 << log }),
		), 1, 6).Draw(t, "sizes")
		at := make([]block, rapid.IntRange(1, 40).Draw(t, "blocks"))
		for i := range at {
			at[i] = block{id: Block(i), addr: uint64(i) * 512, size: sim.Bytes(rapid.SampledFrom(sizes).Draw(t, "size"))}
		}
		var l shelf
		var in []Block
		cmp := func(a, b Block) int {
			if at[a].less(&at[b]) {
				return -1
			}
			if at[b].less(&at[a]) {
				return 1
			}
			return 0
		}
		find := func(from int, holds func(x Block) bool) Block {
			if j := slices.IndexFunc(in[from:], holds); j >= 0 {
				return in[from+j]
			}
			return NoBlock
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			b := Block(rapid.IntRange(0, len(at)-1).Draw(t, "block"))
			i, present := slices.BinarySearchFunc(in, b, cmp)
			if present {
				l.remove(at, b)
				in = slices.Delete(in, i, i+1)
			} else {
				l.insert(at, b)
				in = slices.Insert(in, i, b)
			}
			if got := walk(t, at, &l); !slices.Equal(got, in) {
				t.Fatalf("shelf holds %v, want %v", got, in)
			}
			before, last := NoBlock, NoBlock
			if i > 0 {
				before = in[i-1]
			}
			if len(in) > 0 {
				last = in[len(in)-1]
			}
			after := find(0, func(x Block) bool { return cmp(x, b) > 0 })
			if l.after(at, b) != after || l.before(at, b) != before || l.first() != find(0, func(Block) bool { return true }) || l.last(at) != last {
				t.Fatalf("after %d comes %d, want %d; before it %d, want %d; first %d, last %d of %v", b, l.after(at, b), after, l.before(at, b), before, l.first(), l.last(at), in)
			}
			want := sim.Bytes(rapid.OneOf(rapid.Int64Range(1, 1<<60), rapid.Map(rapid.SampledFrom(sizes), func(n int64) int64 { return max(1, n+1-n%3) })).Draw(t, "want"))
			if got, fit := l.atLeast(at, want), find(0, func(x Block) bool { return at[x].size >= want }); got != fit {
				t.Fatalf("best fit for %d is %d, want %d", want, got, fit)
			}
		}
	})
}

// Bins are in the order of sizes, sixteen to an octave, and the largest size
// has one.
func TestBins(t *testing.T) {
	last := 0
	for log := range 61 {
		size := sim.Bytes(1) << log
		if i := binOf(size); i != log*16 {
			t.Fatalf("bin %d of 2^%d, want %d", i, log, log*16)
		}
		for k := range sim.Bytes(16) {
			i := binOf(size + size*k/16)
			if i < last || log >= 4 && i != log*16+int(k) {
				t.Fatalf("bin %d of 2^%d and %d sixteenths, after bin %d", i, log, k, last)
			}
			last = i
			if log == 60 {
				break
			}
		}
		if below := binOf(max(1, size-1)); below > log*16 || log > 4 && below != log*16-1 {
			t.Fatalf("bin %d just below 2^%d", below, log)
		}
	}
	if last >= numBins {
		t.Fatalf("bin %d of %d", last, numBins)
	}
}

// A treap of addresses in even strides, as segments have them, stays shallow.
func TestTreeDepth(t *testing.T) {
	for _, stride := range []uint64{512, 2 << 20, 20 << 20, 1 << 30, 1 << 40} {
		const n = 4096
		at := make([]block, n)
		tr := tree{NoBlock, NoBlock}
		for i := range at {
			at[i] = block{addr: firstAddr + uint64(i)*stride, size: 512}
			tr.insert(at, Block(i))
		}
		var depth func(b Block) int
		depth = func(b Block) int {
			if b == NoBlock {
				return 0
			}
			return 1 + max(depth(at[b].left), depth(at[b].right))
		}
		// Random treaps of 4096 nodes have an expected height of about 30
		// (4.3 ln n - 1.95 ln ln n, Reed 2003).
		if got := depth(tr.root); got > 40 {
			t.Errorf("stride %d: depth %d of %d blocks", stride, got, n)
		}
	}
}
