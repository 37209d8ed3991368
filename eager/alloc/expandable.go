package alloc

import (
	"cmp"
	"slices"

	"smartswap/sim"
)

// An expandable segment is a range of addresses, wider than the device's
// memory, of which pages are mapped when they are needed: one for each pool and
// stream, and a further one where the first has no room left. Any mapped bytes
// of it serve any later request once neighbours are free; what cannot be helped
// are live blocks in between, and the line between small and large.
//
// Its blocks tile the range like those of any segment. Those in state unmapped
// have no memory behind them and span whole pages.

// region is an expandable segment ("ExpandableSegment").
type region struct {
	start uint64
	size  sim.Bytes // 0: the slot is vacant
	page  sim.Bytes
}

// maxRegion bounds a region where the device's memory does not (assumed: more
// than any run maps).
const maxRegion = sim.Bytes(1) << 50

// regionSize leaves room beyond the device's memory, for the case that pages
// in the middle are unmapped to be used at the end.
func (r *rules) regionSize(page sim.Bytes) sim.Bytes {
	size := min(r.capacity+r.capacity/8, maxRegion)
	return (size + page - 1) / page * page
}

// bestRegion goes on from b, the best fit and part of a region, to the block
// to take. What may still be mapped behind a block counts as its own, so that
// a block in the middle is preferred to the one at the growing end. If regions
// are switched off meanwhile, none of their blocks is taken.
func (c *caching) bestRegion(l *shelf, b Block) Block {
	if !c.expandable {
		for b != NoBlock && c.blocks[b].region != 0 {
			b = l.after(c.blocks, b)
		}
		return b
	}
	for c.blocks[b].region != 0 {
		next := l.after(c.blocks, b)
		if next == NoBlock || c.reach(next) >= c.reach(b) {
			break
		}
		b = next
	}
	return b
}

// reach is the size that b could grow to.
func (c *caching) reach(b Block) sim.Bytes {
	n := &c.blocks[b]
	if n.next != NoBlock && c.blocks[n.next].state == unmapped {
		return n.size + c.blocks[n.next].size
	}
	return n.size
}

// overLimit applies the limit as frameworks do: to the segment that would be
// asked for without pages, not to what is mapped.
func (c *caching) overLimit(rounded sim.Bytes) bool {
	return c.limit > 0 && sim.Bytes(c.stats.Reserved.Current)+c.segment(rounded) > c.limit
}

// grow maps pages until they hold the request, and returns them as one block
// in no list, or NoBlock ("try_allocate_expandable_block"). Pages that were
// mapped before the memory ran out stay. A range of addresses is reserved only
// when there is memory to map to it: PyTorch reserves one first and keeps it, at
// an address that the history does not tell until something is mapped there.
func (c *caching) grow(p PoolID, rounded sim.Bytes, s Stream) Block {
	if c.overLimit(rounded) || rounded > c.regionSize(c.page[p&1]) {
		return NoBlock
	}
	b := c.findPlace(p, rounded, s)
	if b == NoBlock {
		page := c.page[p&1]
		if (rounded+page-1)/page*page > c.capacity-sim.Bytes(c.stats.Reserved.Current) {
			return NoBlock
		}
		b = c.newRegion(p, s)
	}
	if n := &c.blocks[b]; n.state == unmapped {
		if b = c.mapPages(b, min(n.size, rounded)); b == NoBlock {
			return NoBlock
		}
	}
	for c.blocks[b].size < rounded {
		n := &c.blocks[b]
		if b = c.mapPages(n.next, min(c.blocks[n.next].size, rounded-n.size)); b == NoBlock {
			return NoBlock
		}
	}
	c.unshelve(b)
	return b
}

// canGrow tells whether grow would succeed.
func (c *caching) canGrow(p PoolID, rounded sim.Bytes, s Stream) bool {
	page, need := c.page[p&1], rounded
	if c.overLimit(rounded) || rounded > c.regionSize(page) {
		return false
	}
	left := c.capacity - sim.Bytes(c.stats.Reserved.Current)
	b := c.findPlace(p, rounded, s)
	if b == NoBlock {
		return (rounded+page-1)/page*page <= left
	}
	for ; need > 0; b = c.blocks[b].next {
		n := &c.blocks[b]
		if n.state == unmapped {
			left -= (min(n.size, need) + page - 1) / page * page
		}
		need -= n.size
	}
	return left >= 0
}

// findPlace is the first block of the lowest place in the regions of a pool and
// stream where free and unmapped blocks add up to the request
// ("find_expandable_block").
func (c *caching) findPlace(p PoolID, rounded sim.Bytes, s Stream) Block {
	for _, b := range *c.unmappedOf(p, s) {
		if prev := c.blocks[b].prev; prev != NoBlock && c.blocks[prev].state == Inactive {
			b = prev
		}
		var sum sim.Bytes
		for q := b; q != NoBlock && sum < rounded; q = c.blocks[q].next {
			n := &c.blocks[q]
			if n.state != Inactive && n.state != unmapped {
				break
			}
			sum += n.size
		}
		if sum >= rounded {
			return b
		}
	}
	return NoBlock
}

// newRegion reserves addresses and returns them as one unmapped block.
func (c *caching) newRegion(p PoolID, s Stream) Block {
	page := c.page[p&1]
	size := c.regionSize(page)
	return c.addRegion(region{start: c.place(size), size: size, page: page}, p, s)
}

func (c *caching) addRegion(r region, p PoolID, s Stream) Block {
	i := slices.IndexFunc(c.regions, func(r region) bool { return r.size == 0 })
	if i < 0 {
		i = len(c.regions)
		c.regions = append(c.regions, region{})
	}
	c.regions[i] = r
	b := c.take()
	n := &c.blocks[b]
	n.addr, n.size, n.pool, n.stream, n.region = r.start, r.size, p, s, int32(i+1)
	c.park(b)
	return b
}

// unmappedOf lists the unmapped blocks of a pool and stream, by address.
func (c *caching) unmappedOf(p PoolID, s Stream) *[]Block {
	list := &c.pools[p].unmapped
	for int(s) >= len(*list) {
		*list = append(*list, nil)
	}
	return &(*list)[s]
}

// park makes b, in no list, an unmapped block.
func (c *caching) park(b Block) {
	n := &c.blocks[b]
	n.state = unmapped
	list, i := c.parked(b)
	*list = slices.Insert(*list, i, b)
}

// unpark takes an unmapped block out of the list.
func (c *caching) unpark(b Block) {
	list, i := c.parked(b)
	for (*list)[i] != b { // see less
		i++
	}
	*list = slices.Delete(*list, i, i+1)
}

// parked is the place of b in the list of its pool and stream, the first of its
// address.
func (c *caching) parked(b Block) (*[]Block, int) {
	n := &c.blocks[b]
	list := c.unmappedOf(n.pool, n.stream)
	i, _ := slices.BinarySearchFunc(*list, n.addr, func(x Block, addr uint64) int { return cmp.Compare(c.blocks[x].addr, addr) })
	return list, i
}

// mapPages puts memory behind the front of b, an unmapped block: whole pages,
// size bytes at least. It returns the block, merged and shelved, that they are
// part of, or NoBlock if the device has not that many pages ("map_block").
func (c *caching) mapPages(b Block, size sim.Bytes) Block {
	n := &c.blocks[b]
	page, start := c.regions[n.region-1].page, c.regions[n.region-1].start
	pages := (size + page - 1) / page
	size = pages * page
	if sim.Bytes(c.stats.Reserved.Current)+size > c.capacity {
		return NoBlock
	}
	c.unpark(b)
	if size < n.size {
		c.park(c.divide(b, size))
		n = &c.blocks[b]
	}
	n.state = Inactive
	addr, s, p := n.addr, n.stream, n.pool
	for _, t := range c.tallies(p) {
		t.Reserved.add(int64(size))
		t.DriverAllocs++
	}
	c.costs.Maps += int(pages)
	c.costs.DriverBytes += size
	b = c.join(b)
	c.notePages(SegmentMap, addr, size, s, start)
	return b
}

// shrink unmaps the whole pages inside every inactive block of p's regions, and
// gives up regions with nothing mapped.
func (c *caching) shrink(p *pool) {
	var list []Block
	for s := range p.free {
		l := p.free[s]
		for b := l.first(); b != NoBlock; b = l.after(c.blocks, b) {
			if c.blocks[b].region != 0 {
				list = append(list, b)
			}
		}
	}
	for _, b := range list {
		c.unmap(b)
	}
}

// unmap takes the memory from behind the whole pages inside b, an inactive
// block; edges stay as small free blocks ("unmap_block").
func (c *caching) unmap(b Block) {
	n := &c.blocks[b]
	r := &c.regions[n.region-1]
	offset := sim.Bytes(n.addr - r.start)
	from, to := (offset+r.page-1)/r.page*r.page, (offset+n.size)/r.page*r.page
	if from >= to {
		return
	}
	c.unshelve(b)
	if front := from - offset; front > 0 {
		rest := c.divide(b, front)
		c.shelve(b)
		b = rest
	}
	if size := to - from; size < c.blocks[b].size {
		c.shelve(c.divide(b, size))
	}
	n = &c.blocks[b]
	for _, t := range c.tallies(n.pool) {
		t.Reserved.add(-int64(n.size))
		t.DriverFrees++
	}
	c.costs.Unmaps += int(n.size / r.page)
	c.costs.DeviceSync = true
	c.notePages(SegmentUnmap, n.addr, n.size, n.stream, r.start)

	if p := n.prev; p != NoBlock && c.blocks[p].state == unmapped {
		c.unpark(p)
		c.absorb(p, b)
		b = p
	}
	if q := c.blocks[b].next; q != NoBlock && c.blocks[q].state == unmapped {
		c.unpark(q)
		c.absorb(b, q)
	}
	if c.blocks[b].split() {
		c.park(b)
		return
	}
	r.size = 0 // nothing is mapped any more
	c.drop(b)
}

// alignFront cuts a misaligned front off b, in no list, where the request fits
// behind it, and returns the back. torch_npu does so in expandable segments.
func (c *caching) alignFront(b Block, rounded sim.Bytes) Block {
	n := &c.blocks[b]
	if n.region == 0 || rounded < alignedFrom {
		return b
	}
	front := roundUp(sim.Bytes(n.addr), c.align) - sim.Bytes(n.addr)
	if front == 0 || n.size < front+rounded {
		return b
	}
	back := c.divide(b, front)
	c.shelve(b)
	return back
}
