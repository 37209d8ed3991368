package alloc

import "smartswap/sim"

// caching is the framework's caching allocator. Blocks come from segments of
// the driver and go back to free lists, never to the driver unless memory
// runs out. A block belongs to the stream it was first allocated on: within a
// stream work is in order, so reuse needs no wait.
type caching struct {
	core
	pools [2]pool // small, large
	next  uint64  // address of the next segment
}

// pool keeps the inactive blocks of small or large requests apart, so that
// small ones do not pin large segments.
type pool struct {
	free     []tree // by stream
	searches int64  // the clock of garbage collection
}

// tree is the free list of s.
func (p *pool) tree(s Stream) *tree {
	for int(s) >= len(p.free) {
		p.free = append(p.free, tree{NoBlock})
	}
	return &p.free[s]
}

func newCaching(r rules, env Env) *caching {
	c := &caching{core: newCore(r, env), next: firstAddr}
	c.complete = c.completeFree
	return c
}

// pool for a rounded request.
func (c *caching) pool(rounded sim.Bytes) *pool {
	return c.poolOf(rounded > smallLimit)
}

func (c *caching) poolOf(large bool) *pool {
	if large {
		return &c.pools[1]
	}
	return &c.pools[0]
}

// Malloc implements Allocator: O(log free blocks) when the cache serves it.
func (c *caching) Malloc(size sim.Bytes, s Stream) (Block, error) {
	if err := c.admit(size); err != nil {
		return NoBlock, err
	}
	if !c.lazy || c.outstanding > lazyEvents {
		c.reap()
	}
	rounded := c.round(size)
	b := c.find(rounded, s)
	if b == NoBlock && c.lazy {
		c.reap()
		b = c.find(rounded, s)
	}
	if b == NoBlock {
		b = c.obtain(rounded, s)
	}
	if b == NoBlock {
		return NoBlock, c.fail(size, rounded, c.segment(rounded), c.largest(rounded, s), s)
	}
	c.carve(b, rounded)
	return c.hand(b, size), nil
}

// find takes the best fit out of its free list ("get_free_block").
func (c *caching) find(rounded sim.Bytes, s Stream) Block {
	p := c.pool(rounded)
	p.searches++
	b := c.bestFit(rounded, s)
	if b != NoBlock {
		p.tree(s).remove(c.blocks, b)
	}
	return b
}

// bestFit is the smallest block that the request fits in, at the lowest
// address. Only that one candidate counts: an oversize block is kept for
// oversize requests, and not wasted on one much smaller.
func (c *caching) bestFit(rounded sim.Bytes, s Stream) Block {
	b := c.pool(rounded).tree(s).atLeast(c.blocks, rounded)
	if b == NoBlock {
		return NoBlock
	}
	if size := c.blocks[b].size; size >= c.maxSplit && (rounded < c.maxSplit || size >= rounded+c.nonSplit) {
		return NoBlock
	}
	return b
}

// obtain gets a new segment, giving back ever more cached memory until it
// fits.
func (c *caching) obtain(rounded sim.Bytes, s Stream) Block {
	c.collect()
	b := c.newSegment(rounded, s)
	if b == NoBlock && c.releaseOversize(rounded, s) {
		b = c.newSegment(rounded, s)
	}
	if b == NoBlock {
		c.releaseCached()
		c.stats.Retries++
		b = c.newSegment(rounded, s)
	}
	return b
}

// carve cuts b, free but in no list, down to the request if the rest is worth
// keeping ("should_split"): the request takes the front, the rest becomes an
// inactive block behind it.
func (c *caching) carve(b Block, rounded sim.Bytes) {
	n := &c.blocks[b]
	wasSplit := n.split()
	rest := n.size - rounded
	keep := rest >= quantum
	if n.large {
		keep = rounded < c.maxSplit && rest > smallLimit
	}
	if !keep {
		if wasSplit {
			c.stats.InactiveSplit.add(-int64(n.size))
			c.stats.InactiveSplits.add(-1)
		}
		return
	}
	r := c.take()
	n = &c.blocks[b] // take may have moved it
	tail := &c.blocks[r]
	tail.addr, tail.size = n.addr+uint64(rounded), rest
	tail.stream, tail.large, tail.state = n.stream, n.large, Inactive
	tail.prev, tail.next = b, n.next
	if n.next != NoBlock {
		c.blocks[n.next].prev = r
	}
	n.size, n.next = rounded, r
	c.shelve(r)
	if wasSplit {
		c.stats.InactiveSplit.add(-int64(rounded))
	} else {
		c.stats.InactiveSplit.add(int64(rest))
		c.stats.InactiveSplits.add(1)
	}
}

// shelve puts an inactive block into its free list.
func (c *caching) shelve(b Block) {
	n := &c.blocks[b]
	p := c.poolOf(n.large)
	n.born = p.searches
	p.tree(n.stream).insert(c.blocks, b)
}

// unshelve takes an inactive block out of its free list.
func (c *caching) unshelve(b Block) {
	n := &c.blocks[b]
	c.poolOf(n.large).tree(n.stream).remove(c.blocks, b)
}

// completeFree merges b with its inactive neighbours and shelves the union,
// which goes by the id of its front block ("free_block").
func (c *caching) completeFree(b Block) {
	n := &c.blocks[b]
	c.deactivate(n)
	bytes, count := int64(0), int64(0) // change of inactive_split
	if p := n.prev; p != NoBlock && c.blocks[p].state == Inactive {
		bytes -= int64(c.blocks[p].size)
		count--
		c.unshelve(p)
		c.absorb(p, b)
		b, n = p, &c.blocks[p]
	}
	if q := n.next; q != NoBlock && c.blocks[q].state == Inactive {
		bytes -= int64(c.blocks[q].size)
		count--
		c.unshelve(q)
		c.absorb(b, q)
	}
	if n.split() {
		bytes += int64(n.size)
		count++
	}
	c.shelve(b)
	c.stats.InactiveSplit.add(bytes)
	c.stats.InactiveSplits.add(count)
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
func (c *caching) EmptyCache() { c.releaseCached() }

// largest is the largest inactive block of the pool and stream, 0 if none.
func (c *caching) largest(rounded sim.Bytes, s Stream) sim.Bytes {
	b := c.pool(rounded).tree(s).last(c.blocks)
	if b == NoBlock {
		return 0
	}
	return c.blocks[b].size
}

// LargestFree implements Inspector.
func (c *caching) LargestFree(size sim.Bytes, s Stream) sim.Bytes {
	return c.largest(c.round(size), s)
}

// Usable implements Inspector.
func (c *caching) Usable(size sim.Bytes, s Stream) sim.Bytes {
	rounded := c.round(size)
	t := c.pool(rounded).tree(s)
	var sum sim.Bytes
	for b := t.atLeast(c.blocks, rounded); b != NoBlock; b = t.after(c.blocks, b) {
		sum += c.blocks[b].size
	}
	return sum
}
