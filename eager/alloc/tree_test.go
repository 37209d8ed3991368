package alloc

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"smartswap/sim"
)

// Twenty blocks of one size: address decides, in whatever order they come.
func TestTreeTies(t *testing.T) {
	at := make([]block, 20)
	for i := range at {
		at[i] = block{addr: uint64(i+1) * 512, size: 512}
	}
	for seed := range uint64(20) {
		tr := tree{root: NoBlock, found: NoBlock}
		order := rand.New(rand.NewPCG(1, seed)).Perm(len(at))
		for n, i := range order {
			tr.insert(at, Block(i))
			if got := len(walk(t, at, tr.root)); got != n+1 {
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
			walk(t, at, tr.root)
		}
		if tr.root != NoBlock || tr.last(at) != NoBlock || tr.atLeast(at, 0) != NoBlock {
			t.Fatal("an empty tree has blocks")
		}
	}
}

// The tree against a sorted slice.
func TestTreeAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := make([]block, rapid.IntRange(1, 40).Draw(t, "blocks"))
		for i := range at {
			size := sim.Bytes(rapid.IntRange(1, 6).Draw(t, "size"))
			at[i] = block{addr: uint64(i) * 512, size: size}
		}
		tr := tree{root: NoBlock, found: NoBlock}
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
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			b := Block(rapid.IntRange(0, len(at)-1).Draw(t, "block"))
			i, present := slices.BinarySearchFunc(in, b, cmp)
			if present {
				tr.remove(at, b)
				in = slices.Delete(in, i, i+1)
			} else {
				tr.insert(at, b)
				in = slices.Insert(in, i, b)
			}
			if got := walk(t, at, tr.root); !slices.Equal(got, in) {
				t.Fatalf("tree holds %v, want %v", got, in)
			}
			after, last := NoBlock, NoBlock
			if j := slices.IndexFunc(in, func(x Block) bool { return cmp(x, b) > 0 }); j >= 0 {
				after = in[j]
			}
			if len(in) > 0 {
				last = in[len(in)-1]
			}
			if tr.after(at, b) != after || tr.last(at) != last {
				t.Fatalf("after %d comes %d, want %d; last is %d, want %d", b, tr.after(at, b), after, tr.last(at), last)
			}
			want := sim.Bytes(rapid.IntRange(0, 7).Draw(t, "want"))
			fit := NoBlock
			if j := slices.IndexFunc(in, func(x Block) bool { return at[x].size >= want }); j >= 0 {
				fit = in[j]
			}
			if got := tr.atLeast(at, want); got != fit {
				t.Fatalf("best fit for %d is %d, want %d", want, got, fit)
			}
		}
	})
}

// A treap of addresses in even strides, as segments have them, stays shallow.
func TestTreeDepth(t *testing.T) {
	for _, stride := range []uint64{512, 2 << 20, 20 << 20, 1 << 30, 1 << 40} {
		const n = 4096
		at := make([]block, n)
		tr := tree{root: NoBlock, found: NoBlock}
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
