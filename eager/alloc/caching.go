package alloc

import "smartswap/sim"

// caching is the framework's caching allocator. Blocks come from segments of
// the driver and go back to free lists, never to the driver unless memory
// runs out. A block belongs to the stream it was first allocated on: within a
// stream work is in order, so reuse needs no wait.
type caching struct {
	core
	as       provider   // the allocator itself, or the one that is built on it
	stitches *stitching // the one that is built on it, if any
	pools    []pool     // by PoolID
	next     uint64     // address of the next segment
	regions  []region
}

// provider is what differs between the caching allocator and one built on it;
// the order of attempts in Malloc does not.
type provider interface {
	// find takes a block for the request out of the free lists of p.
	find(p PoolID, rounded sim.Bytes, s Stream) Block
	// fresh asks the driver for new memory.
	fresh(p PoolID, rounded sim.Bytes, s Stream) Block
	// fits tells whether find or fresh would succeed.
	fits(p PoolID, rounded sim.Bytes, s Stream) bool
	// releaseCached waits for all deferred frees and gives back all memory
	// that can be.
	releaseCached()
}

// pool keeps the inactive blocks of small or large requests apart, so that
// small ones do not pin large segments.
type pool struct {
	free     []*shelf  // by stream
	fused    []*shelf  // by stream: stitched blocks that are free
	unmapped [][]Block // by stream: what expandable segments can still map, by address
	searches int64     // the clock of garbage collection
	private  bool
	closed   bool // private, and its memory may go
	whole    bool // blocks are not split
}

// shelf is the free list of s.
func (p *pool) shelf(s Stream) *shelf { return shelfOf(&p.free, s) }

// shelfOf is the one of s among those of all streams.
func shelfOf(shelves *[]*shelf, s Stream) *shelf {
	for int(s) >= len(*shelves) {
		*shelves = append(*shelves, new(shelf))
	}
	return (*shelves)[s]
}

func newCaching(r rules, env Env) *caching {
	c := &caching{core: newCore(r, env), pools: make([]pool, 2), next: firstAddr}
	c.complete, c.as = c.completeFree, c
	return c
}

// poolFor is the half of a pair of pools that serves a rounded request.
func poolFor(pair PoolID, rounded sim.Bytes) PoolID {
	if rounded > smallLimit {
		return pair | 1
	}
	return pair
}

// Malloc implements Allocator: O(log free blocks) when the cache serves it.
func (c *caching) Malloc(size sim.Bytes, s Stream) (Block, error) {
	return c.MallocIn(DefaultPool, size, s)
}

// MallocIn implements PrivatePools.
func (c *caching) MallocIn(pair PoolID, size sim.Bytes, s Stream) (Block, error) {
	if err := c.admit(size); err != nil {
		return NoBlock, err
	}
	if !c.lazy || c.outstanding > lazyEvents {
		c.reap()
	}
	rounded := c.round(size)
	p := poolFor(pair, rounded)
	b := c.as.find(p, rounded, s)
	if b == NoBlock && c.lazy {
		c.reap()
		b = c.as.find(p, rounded, s)
	}
	for b == NoBlock && c.overtake(s) {
		b = c.as.find(p, rounded, s)
	}
	if b == NoBlock {
		peak := c.stats.Reserved.Peak
		c.making = true
		b = c.obtain(p, rounded, s)
		if c.making = false; c.stats.Reserved.Peak > peak {
			c.stats.LargestFree = c.largestFree()
		}
	}
	if b == NoBlock {
		oom := c.fail(size, rounded, c.segment(rounded), c.largest(p, s), s)
		for other := range Stream(len(c.pools[p].free)) {
			if n := c.largest(p, other); other != s && n > oom.OtherFree {
				oom.OtherFree, oom.OtherStream = n, other
			}
		}
		return NoBlock, oom
	}
	return c.hand(b, size), nil
}

// obtain makes room for a request that the cache cannot serve: new memory, or
// what is held for others, or cached memory given back, ever more of it, until
// the request fits.
func (c *caching) obtain(p PoolID, rounded sim.Bytes, s Stream) Block {
	if c.drainEarly {
		if b := c.drained(p, rounded, s); b != NoBlock {
			return b
		}
	}
	c.collect()
	if c.refuse && !c.as.fits(p, rounded, s) {
		c.stats.Rejections++
		return NoBlock
	}
	b := c.as.fresh(p, rounded, s)
	if b == NoBlock {
		b = c.drained(p, rounded, s)
	}
	if b == NoBlock && c.releaseOversize(p, rounded, s) {
		b = c.as.fresh(p, rounded, s)
	}
	if b == NoBlock {
		c.as.releaseCached()
		c.stats.Retries++
		b = c.as.fresh(p, rounded, s)
	}
	return b
}

// drained has held memory freed until the request can be served.
func (c *caching) drained(p PoolID, rounded sim.Bytes, s Stream) Block {
	for c.drain() {
		if b := c.as.find(p, rounded, s); b != NoBlock {
			return b
		}
	}
	return NoBlock
}

// find implements provider: the best fit, cut to size ("get_free_block").
func (c *caching) find(p PoolID, rounded sim.Bytes, s Stream) Block {
	q := &c.pools[p]
	q.searches++
	l := q.shelf(s)
	b := c.bestFit(l, rounded)
	if b == NoBlock {
		return NoBlock
	}
	l.remove(c.blocks, b)
	return c.carve(b, rounded)
}

// bestFit is the smallest block of l that the request fits in, at the lowest
// address. Only that one candidate counts: an oversize block is kept for
// oversize requests, and not wasted on one much smaller.
func (c *caching) bestFit(l *shelf, rounded sim.Bytes) Block {
	b := l.atLeast(c.blocks, rounded)
	if b != NoBlock && c.blocks[b].region != 0 {
		b = c.bestRegion(l, b)
	}
	if b == NoBlock {
		return NoBlock
	}
	if size := c.blocks[b].size; size >= c.maxSplit && (rounded < c.maxSplit || size >= rounded+c.nonSplit) {
		return NoBlock
	}
	return b
}

// fits implements provider.
func (c *caching) fits(p PoolID, rounded sim.Bytes, s Stream) bool {
	if c.bestFit(c.pools[p].shelf(s), rounded) != NoBlock {
		return true
	}
	if c.expandable {
		return c.canGrow(p, rounded, s)
	}
	return c.hasRoom(c.segment(rounded))
}

// fresh implements provider ("alloc_block").
func (c *caching) fresh(p PoolID, rounded sim.Bytes, s Stream) Block {
	b := NoBlock
	if c.expandable {
		b = c.grow(p, rounded, s)
	} else if size := c.segment(rounded); c.hasRoom(size) {
		b = c.newSegment(p, size, s)
	}
	if b == NoBlock {
		return NoBlock
	}
	return c.carve(b, rounded)
}

// carve cuts b, free but in no list, down to the request if the rest is worth
// keeping ("should_split"): the request takes the front, the rest becomes an
// inactive block behind it. It returns the block for the request.
func (c *caching) carve(b Block, rounded sim.Bytes) Block {
	if c.align > 0 {
		b = c.alignFront(b, rounded)
	}
	n := &c.blocks[b]
	wasSplit := n.split()
	rest := n.size - rounded
	keep := rest >= quantum
	if n.large() && !c.expandable {
		keep = rounded < c.maxSplit && rest >= c.largeRest
	}
	if !keep || c.pools[n.pool].whole {
		if wasSplit {
			c.countSplit(n, -1, -int64(n.size))
		}
		return b
	}
	c.shelve(c.divide(b, rounded))
	if n = &c.blocks[b]; wasSplit {
		c.countSplit(n, 0, -int64(rounded))
	} else {
		c.countSplit(n, 1, int64(rest))
	}
	return b
}

// countSplit changes inactive_split, which counts neither expandable segments
// nor SmartSwap's large pool.
func (c *caching) countSplit(n *block, blocks, bytes int64) {
	if bytes == 0 || n.region != 0 || n.large() && c.chunked {
		return
	}
	for _, t := range c.tallies(n.pool) {
		t.InactiveSplit.add(bytes)
		t.InactiveSplits.add(blocks)
	}
}

// divide cuts b, which is in no list, at an offset. It returns the back part,
// in the same state and in no list either.
func (c *caching) divide(b Block, at sim.Bytes) Block {
	r := c.take()
	n, back := &c.blocks[b], &c.blocks[r] // take may have moved them
	back.addr, back.size = n.addr+uint64(at), n.size-at
	back.stream, back.pool, back.region, back.state = n.stream, n.pool, n.region, n.state
	back.prev, back.next = b, n.next
	if n.next != NoBlock {
		c.blocks[n.next].prev = r
	}
	n.size, n.next = at, r
	if n.stitched > 0 {
		c.stitches.cut(b)
	}
	return r
}

// shelve puts an inactive block into its free list.
func (c *caching) shelve(b Block) {
	n := &c.blocks[b]
	p := &c.pools[n.pool]
	n.born = p.searches
	p.shelf(n.stream).insert(c.blocks, b)
}

// unshelve takes an inactive block out of its free list.
func (c *caching) unshelve(b Block) {
	n := &c.blocks[b]
	c.pools[n.pool].shelf(n.stream).remove(c.blocks, b)
}

// completeFree makes b inactive ("free_block").
func (c *caching) completeFree(b Block) {
	c.deactivate(&c.blocks[b])
	c.join(b)
}

// join merges b, inactive but in no list, with its inactive neighbours and
// shelves the union, which goes by the id of its front block.
func (c *caching) join(b Block) Block {
	n := &c.blocks[b]
	blocks, bytes := int64(0), int64(0) // change of inactive_split
	if p := n.prev; c.joinable(n, p) {
		bytes -= int64(c.blocks[p].size)
		blocks--
		c.unshelve(p)
		c.absorb(p, b)
		b, n = p, &c.blocks[p]
	}
	if q := n.next; c.joinable(n, q) {
		bytes -= int64(c.blocks[q].size)
		blocks--
		c.unshelve(q)
		c.absorb(b, q)
	}
	if n.split() {
		bytes += int64(n.size)
		blocks++
	}
	c.shelve(b)
	c.countSplit(n, blocks, bytes)
	return b
}

// joinable tells whether n, inactive, merges with its neighbour b. Under a
// stitched block nothing merges: the pieces are what it is made of.
func (c *caching) joinable(n *block, b Block) bool {
	return b != NoBlock && c.blocks[b].state == Inactive && c.blocks[b].stitched == 0 && n.stitched == 0
}

// absorb joins b and its next neighbour q into b.
func (c *caching) absorb(b, q Block) {
	n, m := &c.blocks[b], &c.blocks[q]
	n.size += m.size
	n.next = m.next
	if m.next != NoBlock {
		c.blocks[m.next].prev = b
	}
	c.drop(q)
}

// EmptyCache implements Reclaimer.
func (c *caching) EmptyCache() { c.as.releaseCached() }

// largest is the largest inactive block of the pool and stream, 0 if none.
func (c *caching) largest(p PoolID, s Stream) sim.Bytes {
	b := c.pools[p].shelf(s).last(c.blocks)
	if b == NoBlock {
		return 0
	}
	return c.blocks[b].size
}

// largestFree is the largest inactive block of all.
func (c *caching) largestFree() (largest int64) {
	for i := range c.pools {
		for s := range c.pools[i].free {
			largest = max(largest, int64(c.largest(PoolID(i), Stream(s))))
		}
	}
	return largest
}

// ResetPeaks implements Allocator.
func (c *caching) ResetPeaks() {
	c.core.ResetPeaks()
	c.stats.LargestFree = c.largestFree()
}

// LargestFree implements Inspector.
func (c *caching) LargestFree(size sim.Bytes, s Stream) sim.Bytes {
	return c.largest(poolFor(DefaultPool, c.round(size)), s)
}

// Usable implements Inspector.
func (c *caching) Usable(size sim.Bytes, s Stream) sim.Bytes {
	rounded := c.round(size)
	l := c.pools[poolFor(DefaultPool, rounded)].shelf(s)
	var sum sim.Bytes
	for b := l.atLeast(c.blocks, rounded); b != NoBlock; b = l.after(c.blocks, b) {
		sum += c.blocks[b].size
	}
	return sum
}
