package alloc

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/sim"
)

// A state that one allocator was in is the same in another, and what follows
// is, too.
func TestRestore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawn{t}
		o := pick(s, options(), options(npu), options(expandable), options(npu, expandable), options(maxSplit(20)))
		a, b := mustNew(t, o, sim.GiB, newFakeEnv(1)).(*caching), mustNew(t, o, sim.GiB, newFakeEnv(1)).(*caching)
		var live []Block
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch n := s.below(10); {
			case n < 6:
				if x, err := a.Malloc(randomSize(s), Stream(s.below(2))); err == nil {
					live = append(live, x)
				}
			case n < 9 && len(live) > 0:
				i := s.below(len(live))
				a.Free(live[i])
				live = slices.Delete(live, i, i+1)
			case n == 9:
				a.EmptyCache()
			}
		}
		want := a.Segments()
		if err := b.Restore(want); err != nil {
			t.Fatal(err)
		}
		verify(t, b)
		if got := b.Segments(); !sameSegments(got, want) {
			t.Fatalf("-restored +original: %s", cmp.Diff(got, want))
		}
		sa, sb := a.Stats(), b.Stats()
		for i, x := range statsOf(&sb) {
			if y := statsOf(&sa)[i]; x.Current != y.Current || x.Peak != x.Current {
				t.Fatalf("statistic %d: restored %+v, original %+v", i, *x, *y)
			}
		}
		if k := b.TakeCosts(); k != (Costs{}) {
			t.Fatalf("restoring cost %+v", k)
		}
		if o.ExpandableSegments {
			return // the addresses reserved beyond what is mapped may differ
		}
		b.PlaceNext(a.next)
		for range 20 {
			size, on := randomSize(s), Stream(s.below(2))
			x, errA := a.Malloc(size, on)
			y, errB := b.Malloc(size, on)
			if (errA == nil) != (errB == nil) {
				t.Fatalf("malloc %d on %d: original %v, restored %v", size, on, errA, errB)
			}
			if errA != nil {
				continue
			}
			addrA, sizeA := a.Range(x)
			addrB, sizeB := b.Range(y)
			if addrA != addrB || sizeA != sizeB {
				t.Fatalf("malloc %d on %d: original at %d (%d bytes), restored at %d (%d bytes)", size, on, addrA, sizeA, addrB, sizeB)
			}
		}
	})
}

// An expandable segment grows at its own end, also when its first pages are
// known to be unmapped.
func TestRestoreRange(t *testing.T) {
	const base = 1 << 40
	a := mustNew(t, options(expandable), sim.GiB, newFakeEnv(1)).(*caching)
	err := a.Restore([]SegmentInfo{
		{Addr: base, Expandable: true, Large: true},
		{Addr: base + uint64(40*sim.MiB), Size: 20 * sim.MiB, Expandable: true, Large: true, Blocks: []BlockInfo{
			{Addr: base + uint64(40*sim.MiB), Size: 15 * sim.MiB, Requested: 15 * sim.MiB, State: Allocated},
			{Addr: base + uint64(55*sim.MiB), Size: 5 * sim.MiB, State: Inactive},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, a)
	for _, c := range []struct{ size, at sim.Bytes }{{50, 55}, {35, 0}} {
		x := mustMalloc(t, a, c.size*sim.MiB, 0)
		if addr, _ := a.Range(x); addr != base+uint64(c.at*sim.MiB) {
			t.Errorf("%d MiB at %d, want %d MiB behind the begin", c.size, addr, c.at)
		}
	}
	verify(t, a)
}

func TestRestoreRefuses(t *testing.T) {
	full := func(addr uint64, size sim.Bytes) []BlockInfo {
		return []BlockInfo{{Addr: addr, Size: size, Requested: size, State: Allocated}}
	}
	good := SegmentInfo{Addr: 2 << 20, Size: 2 * sim.MiB, Blocks: full(2<<20, 2*sim.MiB)}
	with := func(f func(*SegmentInfo)) SegmentInfo {
		g := good
		f(&g)
		return g
	}
	for _, c := range []struct {
		segs []SegmentInfo
		want string
	}{
		{[]SegmentInfo{good, good}, "next segment begins"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Stream = -1 })}, "stream -1"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Size = 0 })}, "0 bytes"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Pool = 1 })}, "pool 1"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Pool = 2 })}, "pool 2"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Size = 200 * sim.MiB })}, "do not fit"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Blocks = nil })}, "no blocks"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Blocks = full(2<<20, sim.MiB) })}, "end 1048576 bytes before"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Blocks = full(2<<20, 3*sim.MiB) })}, "of up to 2097152"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Blocks = full(3<<20, sim.MiB) })}, "expected: one at 2097152"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Blocks = append(full(2<<20, 2*sim.MiB), full(4<<20, 512)...) })}, "go on behind"},
		{[]SegmentInfo{with(func(g *SegmentInfo) {
			g.Blocks = []BlockInfo{{Addr: 2 << 20, Size: sim.MiB, State: Inactive}, {Addr: 3 << 20, Size: sim.MiB, State: Inactive}}
		})}, "both inactive"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Blocks = []BlockInfo{{Addr: 2 << 20, Size: 2 * sim.MiB, State: Pending}} })}, "active_pending_free"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Blocks[0].Requested = 3 * sim.MiB })}, "were requested"},
		{[]SegmentInfo{with(func(g *SegmentInfo) { g.Large, g.Expandable = true, true })}, "whole pages of 20971520"},
	} {
		good.Blocks = full(2<<20, 2*sim.MiB)
		a := mustNew(t, options(expandable), 100*sim.MiB, newFakeEnv(1)).(*caching)
		if err := a.Restore(c.segs); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "segment at address ") {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestBlockSizes(t *testing.T) {
	for _, c := range []struct {
		options     Options
		size        sim.Bytes
		least, most sim.Bytes
	}{
		{options(), 1, 512, 512},
		{options(), 2 * sim.MiB, 2 * sim.MiB, 3 * sim.MiB},
		{options(npu), 2 * sim.MiB, 2*sim.MiB + 512, 3*sim.MiB + 512},
		{options(expandable), 2 * sim.MiB, 2 * sim.MiB, 2 * sim.MiB},
		{options(maxSplit(20)), 20 * sim.MiB, 20 * sim.MiB, anySize},
		{options(stitched), 2 * sim.MiB, 4 * sim.MiB, 20 * sim.MiB},
		{options(stitched), 20 * sim.MiB, 22 * sim.MiB, 22 * sim.MiB},
	} {
		least, most, err := c.options.BlockSizes(c.size)
		if err != nil || least != c.least || most != c.most {
			t.Errorf("%s, %d bytes: %d to %d (%v), want %d to %d", c.options.Backend, c.size, least, most, err, c.least, c.most)
		}
	}
	for _, size := range []sim.Bytes{0, maxRequest + 1} {
		if _, _, err := options().BlockSizes(size); err == nil {
			t.Errorf("accepted %d bytes", size)
		}
	}
}
