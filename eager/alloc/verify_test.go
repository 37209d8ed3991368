package alloc

import (
	"slices"

	"pgregory.net/rapid"
)

// innards are the parts of an allocator that verify looks into.
func innards(a inspectable) (c *core, l *caching, x *stitching) {
	switch a := a.(type) {
	case *bytesOnly:
		return &a.core, nil, nil
	case *caching:
		return &a.core, a, nil
	case *stitching:
		return &a.core, &a.caching, a
	}
	return nil, nil, nil
}

// verify walks the invariants of the package's comment, and counts the present
// statistics anew from the blocks, for all requests and by pool.
func verify(t rapid.TB, a inspectable) {
	t.Helper()
	c, l, x := innards(a)
	var want [3]Stats // all, small, large
	end := uint64(0)
	free := map[Block]bool{}
	owners := map[Block]bool{}
	for _, g := range a.Segments() {
		if g.Addr < end || g.Addr == 0 {
			t.Fatalf("segment at %d overlaps the one before, which ends at %d", g.Addr, end)
		}
		if x != nil && g.Large && g.Size%chunk != 0 {
			t.Fatalf("segment at %d of %d bytes is not whole chunks", g.Addr, g.Size)
		}
		pools := []*Stats{&want[0], &want[1]}
		if g.Large {
			pools[1] = &want[2]
		}
		at, last := g.Addr, NoBlock
		for _, b := range g.Blocks {
			if b.Addr != at || b.Size <= 0 || b.Size%512 != 0 && len(g.Blocks) > 1 {
				t.Fatalf("block %+v: want it at %d, a multiple of 512 bytes", b, at)
			}
			if b.Requested > b.Size || b.Requested < 0 || b.Requested > 0 && b.State == Inactive || b.Requested == 0 && b.State != Inactive && x == nil {
				t.Fatalf("block %+v: requested bytes", b)
			}
			parts := int64(1)
			if x != nil && x.isStitched(b.Block) {
				if owners[b.Block] {
					parts = 0 // one block, counted with its first part
				}
				owners[b.Block] = true
			}
			for _, s := range pools {
				s.Reserved.Current += int64(b.Size)
				if b.State == Inactive {
					if len(g.Blocks) > 1 && !g.Expandable && (x == nil || !g.Large) {
						s.InactiveSplit.Current += int64(b.Size)
						s.InactiveSplits.Current++
					}
					continue
				}
				s.Active.Current += int64(b.Size)
				s.ActiveBlocks.Current += parts
				s.Requested.Current += int64(b.Requested)
				if b.State == Allocated {
					s.Allocated.Current += int64(b.Size)
					s.Allocations.Current += parts
				} else {
					s.Pending.Current += int64(b.Size)
				}
			}
			if b.State == Inactive {
				if last != NoBlock && c.blocks[last].stitched == 0 && c.blocks[b.Block].stitched == 0 {
					t.Fatalf("block %+v and the one before are both inactive", b)
				}
				free[b.Block] = true
				last = b.Block
			} else {
				last = NoBlock
			}
			at += uint64(b.Size)
		}
		if end = g.Addr + uint64(g.Size); at != end {
			t.Fatalf("blocks of segment %d end at %d, want %d", g.Addr, at, end)
		}
		for _, s := range pools {
			if l != nil && !g.Expandable {
				s.Segments.Current++
			}
		}
	}
	if c.chunked {
		// What a new segment has in excess is active but not allocated; see
		// counted. The stitching model checks that.
		for i := range want {
			want[i].Allocated.Current = 0
		}
	}
	got := [3]Stats{a.Stats(), a.PoolStats(false), a.PoolStats(true)}
	for i := range got {
		for j, x := range statsOf(&got[i]) {
			w := statsOf(&want[i])[j].Current
			if oversize := j >= 10; !oversize && x.Current != w && !(c.chunked && j == 0) {
				t.Fatalf("statistic %d of pool %d is %d, from the blocks %d", j, i, x.Current, w)
			}
			if x.Up() < 0 || x.Peak < x.Current || x.Current < 0 {
				t.Fatalf("statistic %d of pool %d: %+v", j, i, *x)
			}
			if i == 0 && (x.Current != statsOf(&got[1])[j].Current+statsOf(&got[2])[j].Current || x.Down != statsOf(&got[1])[j].Down+statsOf(&got[2])[j].Down) {
				t.Fatalf("statistic %d is %+v, which is not the sum of the pools", j, *x)
			}
		}
	}
	room := c.room
	if c.expandable {
		room = c.capacity
	}
	s := got[0]
	if s.Allocated.Current > s.Active.Current || s.Active.Current > s.Reserved.Current || s.Reserved.Current > int64(room) || s.Requested.Current > s.Active.Current {
		t.Fatalf("requested %d, allocated %d, active %d, reserved %d, room %d", s.Requested.Current, s.Allocated.Current, s.Active.Current, s.Reserved.Current, room)
	}
	if l != nil {
		verifyTrees(t, l, free)
		verifyRegions(t, l)
	}
	if x != nil {
		verifyStitched(t, x)
	}
}

// verifyTrees checks that each inactive block is in the tree of its pool and
// stream, and nothing else is, in order and under the heap rule.
func verifyTrees(t rapid.TB, c *caching, free map[Block]bool) {
	t.Helper()
	found := 0
	for id, p := range c.pools {
		for s := range p.free {
			for _, b := range walk(t, c.blocks, p.free[s]) {
				n := &c.blocks[b]
				if !free[b] || n.pool != PoolID(id) || n.stream != Stream(s) {
					t.Fatalf("block %d (%+v) in the tree of stream %d", b, *n, s)
				}
				found++
			}
		}
	}
	if found != len(free) {
		t.Fatalf("%d blocks in the trees, %d are inactive", found, len(free))
	}
}

// verifyRegions checks that unmapped blocks are listed, whole pages, and not
// beside each other.
func verifyRegions(t rapid.TB, c *caching) {
	t.Helper()
	used := map[int32]bool{0: true}
	for b := range c.blocks {
		if n := &c.blocks[b]; n.state != vacant {
			used[n.region] = true
		}
	}
	for i, r := range c.regions {
		if r.size != 0 != used[int32(i+1)] {
			t.Fatalf("region %d %+v has blocks: %v", i, r, used[int32(i+1)])
		}
	}
	listed := 0
	for id, p := range c.pools {
		for s, list := range p.unmapped {
			for i, b := range list {
				n := &c.blocks[b]
				r := c.regions[n.region-1]
				if n.state != unmapped || n.pool != PoolID(id) || n.stream != Stream(s) || i > 0 && c.blocks[list[i-1]].addr >= n.addr {
					t.Fatalf("block %d (%+v) among the unmapped of stream %d", b, *n, s)
				}
				if (n.addr-r.start)%uint64(r.page) != 0 || n.size%r.page != 0 {
					t.Fatalf("unmapped block %d (%+v) is not whole pages of %d", b, *n, r.page)
				}
				if n.next != NoBlock && c.blocks[n.next].state == unmapped {
					t.Fatalf("blocks %d and %d are both unmapped", b, n.next)
				}
				listed++
			}
		}
	}
	for b := range c.blocks {
		if c.blocks[b].state == unmapped {
			listed--
		}
	}
	if listed != 0 {
		t.Fatalf("%d more unmapped blocks in the lists than there are", listed)
	}
}

// verifyStitched checks stitched blocks against their parts.
func verifyStitched(t rapid.TB, c *stitching) {
	t.Helper()
	listed := map[Block]bool{}
	for id, p := range c.pools {
		for s := range p.fused {
			for _, f := range walk(t, c.blocks, p.fused[s]) {
				if n := &c.blocks[f]; !c.isStitched(f) || n.state != Inactive || n.pool != PoolID(id) || n.stream != Stream(s) {
					t.Fatalf("block %d (%+v) among the free stitched ones", f, *n)
				}
				listed[f] = true
			}
		}
	}
	mapped := int64(0)
	for id := range c.parts {
		f := Block(id)
		if !c.isStitched(f) {
			continue
		}
		n := &c.blocks[f]
		mapped += int64(n.size)
		sum, used := int64(0), 0
		for _, p := range c.parts[f] {
			m := &c.blocks[p]
			sum += int64(m.size)
			if m.state != Inactive {
				used++
			}
			if m.state == vacant || m.stream != n.stream || m.pool != n.pool || !slices.Contains(c.over[p], f) || int(m.stitched) != len(c.over[p]) {
				t.Fatalf("stitched block %d (%+v): part %d (%+v), under %v", f, *n, p, *m, c.over[p])
			}
			if active := n.state == Allocated || n.state == Pending; active && m.state != lent {
				t.Fatalf("stitched block %d (%+v) is active, its part %d (%+v) is not lent", f, *n, p, *m)
			}
		}
		if sum != int64(n.size) {
			t.Fatalf("stitched block %d of %d bytes has parts of %d", f, n.size, sum)
		}
		switch n.state {
		case Allocated, Pending:
		case Inactive:
			if used > 0 || !listed[f] {
				t.Fatalf("stitched block %d is free with %d parts in use, listed %v", f, used, listed[f])
			}
		case fragmented:
			if used == 0 || listed[f] || int(c.busy[f]) != used {
				t.Fatalf("stitched block %d is fragmented with %d parts in use (%d counted), listed %v", f, used, c.busy[f], listed[f])
			}
		default:
			t.Fatalf("stitched block %d is %v", f, n.state)
		}
	}
	if mapped != int64(c.mapped) {
		t.Fatalf("%d bytes mapped, the stitched blocks sum to %d", c.mapped, mapped)
	}
}

// walk lists a shelf in order.
func walk(t rapid.TB, at []block, l *shelf) (list []Block) {
	t.Helper()
	for i := range l.trees {
		if !l.has(i) {
			continue
		}
		in := walkTree(t, at, &l.trees[i])
		if len(in) == 0 {
			t.Fatalf("bin %d is full without blocks", i)
		}
		for _, b := range in {
			if binOf(at[b].size) != i {
				t.Fatalf("block %d of %d bytes is in bin %d", b, at[b].size, i)
			}
		}
		list = append(list, in...)
	}
	return list
}

// walkTree lists a tree in order.
func walkTree(t rapid.TB, at []block, tr *tree) []Block {
	t.Helper()
	list := walkNodes(t, at, tr.root)
	if len(list) > 0 && list[0] != tr.least || len(list) == 0 && tr.least != NoBlock {
		t.Fatalf("least block is %d of %v", tr.least, list)
	}
	return list
}

// walkNodes lists the nodes below b and b in order.
func walkNodes(t rapid.TB, at []block, b Block) []Block {
	t.Helper()
	if b == NoBlock {
		return nil
	}
	n := &at[b]
	for _, child := range []Block{n.left, n.right} {
		if child != NoBlock && at[child].priority > n.priority {
			t.Fatalf("block %d has a lower priority than its child %d", b, child)
		}
	}
	left, right := walkNodes(t, at, n.left), walkNodes(t, at, n.right)
	if l := len(left); l > 0 && !at[left[l-1]].less(n) || len(right) > 0 && !n.less(&at[right[0]]) {
		t.Fatalf("block %d is out of order", b)
	}
	return append(append(left, b), right...)
}
