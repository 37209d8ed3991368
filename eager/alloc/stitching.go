package alloc

import (
	"slices"

	"smartswap/sim"
)

// stitching is the allocator of SmartSwap. Its small pool is the framework's.
// The memory of its large pool comes in chunks, of which any set can be mapped
// into one range of addresses: a large request that no free block can serve
// gets a stitched block over several free ones. (The design is GMLake's,
// ASPLOS 2024; the rules are those of MindSpeed's code.)
//
// The blocks of segments are primitive here. A stitched block is a second name
// for the memory of its parts, which are whole primitive blocks. When it is
// freed, its parts are free again and so is it, mapping and all, for the next
// request of exactly its size; when a part is used otherwise, it is fragmented
// until that part is free again.
type stitching struct {
	caching
	parts  [][]Block // by stitched block: primitive blocks in the order of its range
	over   [][]Block // by primitive block: stitched blocks over it
	busy   []int32   // by stitched block, itself not active: parts in use
	mapped sim.Bytes // of all stitched blocks
	most   sim.Bytes // mapped beyond this makes the idle ones go ("autoGC")
	pieces []Block   // scratch
}

const (
	chunk      = 2 * sim.MiB    // of physical memory
	stitchFrom = 16 * sim.MiB   // smaller requests are not stitched ("fragLimit")
	mostMapped = 3000 * sim.GiB // "autoGC"
)

func newStitching(r rules, env Env) *stitching {
	c := &stitching{caching: *newCaching(r, env), most: mostMapped}
	c.complete, c.as, c.stitches = c.completeFree, c, c
	return c
}

// isStitched tells whether b is a stitched block.
func (c *stitching) isStitched(b Block) bool { return int(b) < len(c.parts) && len(c.parts[b]) > 0 }

// find implements provider: a stitched block of exactly the size, or the best
// fit, or free pieces stitched at once ("defragLevel" 0).
func (c *stitching) find(p PoolID, rounded sim.Bytes, s Stream) Block {
	if rounded < stitchFrom {
		return c.activate(c.caching.find(p, rounded, s))
	}
	if f := c.exact(p, rounded, s); f != NoBlock {
		shelfOf(&c.pools[p].fused, s).remove(c.blocks, f)
		c.pools[p].searches++
		for _, b := range c.parts[f] {
			c.lend(b, f)
		}
		return f
	}
	if b := c.activate(c.caching.find(p, rounded, s)); b != NoBlock {
		return b
	}
	return c.stitch(p, rounded, s)
}

// exact is the free stitched block of that size at the lowest address.
func (c *stitching) exact(p PoolID, rounded sim.Bytes, s Stream) Block {
	f := shelfOf(&c.pools[p].fused, s).atLeast(c.blocks, rounded)
	if f != NoBlock && c.blocks[f].size != rounded {
		return NoBlock
	}
	return f
}

// fits implements provider.
func (c *stitching) fits(p PoolID, rounded sim.Bytes, s Stream) bool {
	if c.bestFit(c.pools[p].shelf(s), rounded) != NoBlock {
		return true
	}
	if rounded < stitchFrom {
		return c.hasRoom(c.segment(rounded))
	}
	sum := c.sum(p, rounded, s)
	return sum >= rounded || c.exact(p, rounded, s) != NoBlock || c.hasRoom(c.shortfall(rounded, sum))
}

// fresh implements provider. A new segment for a request that can be stitched
// is only as large as what the free blocks lack, and stitched with all of them.
// A new segment for a small part of it is handed out whole, unless splitFresh.
// If nothing fits, what a full release made free may be stitched.
func (c *stitching) fresh(p PoolID, rounded sim.Bytes, s Stream) Block {
	if rounded <= smallLimit {
		return c.caching.fresh(p, rounded, s)
	}
	sum := sim.Bytes(0)
	if rounded >= stitchFrom {
		sum = c.sum(p, rounded, s)
	}
	if sum >= rounded {
		return c.stitch(p, rounded, s)
	}
	size := c.shortfall(rounded, sum)
	if !c.hasRoom(size) {
		return NoBlock
	}
	if size < rounded {
		list := c.pieces[:0]
		for b := c.walk(p, NoBlock, rounded, s); b != NoBlock; b = c.walk(p, b, rounded, s) {
			list = append(list, b)
		}
		b := c.newSegment(p, size, s)
		c.shelve(b)
		return c.assemble(p, append(list, b), rounded, s)
	}
	b := c.newSegment(p, size, s)
	if c.splitFresh {
		b = c.carve(b, rounded)
	}
	return b
}

// shortfall is the size of a new segment for a request when free blocks of the
// given sum can be stitched to it. (At exactly 16 MiB SmartSwap does not count
// them.)
func (c *stitching) shortfall(rounded, sum sim.Bytes) sim.Bytes {
	if rounded > stitchFrom && sum > 0 {
		return rounded - sum
	}
	return c.segment(rounded)
}

// walk goes over the free blocks of p and s that may become parts of a stitched
// block of the given size, from the largest down. Oversize blocks are kept
// (assumed), and so is what could serve the request alone.
func (c *stitching) walk(p PoolID, after Block, rounded sim.Bytes, s Stream) Block {
	l := c.pools[p].shelf(s)
	b := l.last(c.blocks)
	if after != NoBlock {
		b = l.before(c.blocks, after)
	}
	for b != NoBlock && c.blocks[b].size >= min(rounded, c.maxSplit) {
		b = l.before(c.blocks, b)
	}
	return b
}

// sum of the blocks that walk goes over.
func (c *stitching) sum(p PoolID, rounded sim.Bytes, s Stream) (sum sim.Bytes) {
	for b := c.walk(p, NoBlock, rounded, s); b != NoBlock; b = c.walk(p, b, rounded, s) {
		sum += c.blocks[b].size
	}
	return sum
}

// stitch makes a block of free ones, from the largest down; the one that would
// complete it is replaced by the smallest that does, and cut to what is needed.
func (c *stitching) stitch(p PoolID, rounded sim.Bytes, s Stream) Block {
	list, need := c.pieces[:0], rounded
	for b := c.walk(p, NoBlock, rounded, s); b != NoBlock; b = c.walk(p, b, rounded, s) {
		if c.blocks[b].size < need {
			list = append(list, b)
			need -= c.blocks[b].size
			continue
		}
		last := c.pools[p].shelf(s).atLeast(c.blocks, need)
		if c.blocks[last].size > need {
			c.unshelve(last)
			c.shelve(c.divide(last, need))
			c.shelve(last)
		}
		return c.assemble(p, append(list, last), rounded, s)
	}
	return NoBlock
}

// assemble maps free blocks of the size's sum into one range, an active block.
func (c *stitching) assemble(p PoolID, list []Block, size sim.Bytes, s Stream) Block {
	c.pieces = list
	f := c.take()
	n := &c.blocks[f]
	n.addr, n.size, n.stream, n.pool = c.place(size), size, s, p
	c.extend(f)
	c.parts[f] = append(c.parts[f][:0], list...)
	c.costs.Maps += int(size / chunk)
	c.mapped += size
	for _, b := range list {
		c.extend(b)
		c.over[b] = append(c.over[b], f)
		c.blocks[b].stitched++
		c.lend(b, f)
	}
	if c.mapped > c.most {
		c.unstitchIdle()
	}
	return f
}

// extend makes the tables reach b.
func (c *stitching) extend(b Block) {
	for int(b) >= len(c.parts) {
		c.parts, c.over, c.busy = append(c.parts, nil), append(c.over, nil), append(c.busy, 0)
	}
}

// activate notes that b, a primitive block taken out of its list, is in use.
func (c *stitching) activate(b Block) Block {
	if b != NoBlock && c.blocks[b].stitched > 0 {
		c.use(b, NoBlock)
	}
	return b
}

// use makes the stitched blocks over b, all but f, fragmented.
func (c *stitching) use(b, f Block) {
	for _, g := range c.over[b] {
		if g == f {
			continue
		}
		if c.busy[g]++; c.busy[g] == 1 {
			c.fused(g).remove(c.blocks, g)
			c.blocks[g].state = fragmented
		}
	}
}

// unuse is the reverse of use.
func (c *stitching) unuse(b, f Block) {
	for _, g := range c.over[b] {
		if g == f {
			continue
		}
		if c.busy[g]--; c.busy[g] == 0 {
			c.blocks[g].state = Inactive
			c.fused(g).insert(c.blocks, g)
		}
	}
}

// fused is the list of free stitched blocks that f belongs in.
func (c *stitching) fused(f Block) *shelf {
	n := &c.blocks[f]
	return shelfOf(&c.pools[n.pool].fused, n.stream)
}

// lend gives the free block b to f, of which it is a part.
func (c *stitching) lend(b, f Block) {
	c.unshelve(b)
	c.blocks[b].state = lent
	c.use(b, f)
}

// completeFree makes b inactive, with the parts that it has.
func (c *stitching) completeFree(b Block) {
	if !c.isStitched(b) {
		if c.blocks[b].stitched > 0 {
			c.unuse(b, NoBlock)
		}
		c.caching.completeFree(b)
		return
	}
	c.deactivate(&c.blocks[b])
	for _, p := range c.parts[b] {
		c.blocks[p].state = Inactive
		c.shelve(p)
		c.unuse(p, b)
	}
	c.fused(b).insert(c.blocks, b)
}

// cut notes that b was divided: what lies over it lies over its back, too.
func (c *stitching) cut(b Block) {
	back := c.blocks[b].next
	c.extend(back)
	c.over[back] = append(c.over[back][:0], c.over[b]...)
	c.blocks[back].stitched = c.blocks[b].stitched
	for _, f := range c.over[b] {
		c.parts[f] = slices.Insert(c.parts[f], slices.Index(c.parts[f], b)+1, back)
	}
}

// forget gives up what lies over b, whose segment goes back to the driver.
func (c *stitching) forget(b Block) {
	for len(c.over[b]) > 0 {
		c.unstitch(c.over[b][0])
	}
}

// unstitch gives up f, which is not active. Parts merge with their neighbours
// now that nothing lies over them (assumed: without it, segments that were cut
// for f would never be whole again).
func (c *stitching) unstitch(f Block) {
	n := &c.blocks[f]
	if n.state == Inactive {
		c.fused(f).remove(c.blocks, f)
	}
	c.mapped -= n.size
	c.costs.Unmaps += int(n.size / chunk)
	c.costs.DeviceSync = true
	list := append(c.pieces[:0], c.parts[f]...)
	c.parts[f], c.busy[f] = c.parts[f][:0], 0
	c.drop(f)
	for _, b := range list {
		c.over[b] = slices.DeleteFunc(c.over[b], func(g Block) bool { return g == f })
		c.blocks[b].stitched--
	}
	for _, b := range list {
		// A neighbour may have been such a part itself, and not be merged
		// yet with those beyond it.
		for n := &c.blocks[b]; n.state == Inactive && (c.joinable(n, n.prev) || c.joinable(n, n.next)); n = &c.blocks[b] {
			c.unshelve(b)
			b = c.join(b)
		}
	}
	c.pieces = list
}

// unstitchIdle gives up every stitched block that is not active.
func (c *stitching) unstitchIdle() {
	for f := range c.parts {
		if s := c.blocks[f].state; c.isStitched(Block(f)) && (s == Inactive || s == fragmented) {
			c.unstitch(Block(f))
		}
	}
}

// releaseCached implements provider.
func (c *stitching) releaseCached() {
	c.recover()
	c.synchronize()
	c.unstitchIdle()
	c.releaseWhole()
}

// Usable implements Inspector: pieces count where they can be stitched.
func (c *stitching) Usable(size sim.Bytes, s Stream) sim.Bytes {
	usable := c.caching.Usable(size, s)
	if rounded := c.round(size); rounded >= stitchFrom {
		if sum := c.sum(DefaultPool|1, rounded, s); usable+sum >= rounded {
			usable += sum
		}
	}
	return usable
}

// Pieces implements Inspector.
func (c *stitching) Pieces(b Block, f func(addr uint64, size sim.Bytes)) {
	if !c.isStitched(b) {
		c.caching.Pieces(b, f)
		return
	}
	c.allocated(b)
	for _, p := range c.parts[b] {
		f(c.blocks[p].addr, c.blocks[p].size)
	}
}

// Segments implements Inspector.
func (c *stitching) Segments() []SegmentInfo {
	owner := make(map[Block]BlockInfo) // of lent blocks
	for f := range c.parts {
		n := &c.blocks[f]
		if !c.isStitched(Block(f)) || n.state != Allocated && n.state != Pending {
			continue
		}
		left := n.requested
		for _, p := range c.parts[f] {
			m := &c.blocks[p]
			owner[p] = BlockInfo{Block(f), m.addr, m.size, min(left, m.size), n.state, n.addr}
			left -= min(left, m.size)
		}
	}
	list := c.caching.Segments()
	list = slices.DeleteFunc(list, func(g SegmentInfo) bool { return c.isStitched(g.Blocks[0].Block) })
	for _, g := range list {
		for i, b := range g.Blocks {
			if b.State == lent {
				g.Blocks[i] = owner[b.Block]
			}
		}
	}
	return list
}
