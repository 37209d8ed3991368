package alloc

import "smartswap/sim"

// bytesOnly is the allocator without fragmentation: a request fits if the sum
// of the active blocks does. It asks no driver and caches nothing, so what it
// reserves is what is active. Deferred frees work as in the caching allocator.
//
// Its addresses are real all the same, for the checks that watch memory: a
// free range serves the next request of the same size and stream, the last
// freed first; otherwise the address is new. Ranges never overlap.
type bytesOnly struct {
	core
	idle map[sizeClass]Block // last freed, the others behind it linked by next
	next uint64              // address of the next new range
}

type sizeClass struct {
	stream Stream
	size   sim.Bytes
}

func newBytes(r rules, env Env) *bytesOnly {
	c := &bytesOnly{core: newCore(r, env), idle: make(map[sizeClass]Block), next: firstAddr}
	c.complete = c.completeFree
	return c
}

// Malloc implements Allocator in constant time.
func (c *bytesOnly) Malloc(size sim.Bytes, s Stream) (Block, error) {
	if err := c.admit(size); err != nil {
		return NoBlock, err
	}
	c.reap()
	rounded := c.round(size)
	for c.left() < rounded && c.drain() {
		c.reap()
	}
	if c.left() < rounded && c.outstanding > 0 {
		// Only what waits for events can make room.
		c.synchronize()
		c.stats.Retries++
	}
	if c.left() < rounded {
		return NoBlock, c.fail(size, rounded, rounded, c.left(), s)
	}
	b := c.take(s, rounded)
	for _, t := range c.tallies(c.blocks[b].pool) {
		t.Reserved.add(int64(rounded))
	}
	return c.hand(b, size), nil
}

// left is what may still become active.
func (c *bytesOnly) left() sim.Bytes { return c.room - sim.Bytes(c.stats.Active.Current) }

// take is an idle range of exactly that size, or a new one.
func (c *bytesOnly) take(s Stream, size sim.Bytes) Block {
	class := sizeClass{s, size}
	if b, ok := c.idle[class]; ok && b != NoBlock {
		c.idle[class] = c.blocks[b].next
		c.blocks[b].next = NoBlock
		return b
	}
	b := c.core.take()
	n := &c.blocks[b]
	n.addr, n.size, n.stream, n.pool = c.next, size, s, poolFor(DefaultPool, size)
	c.next += uint64(size)
	return b
}

// completeFree keeps b's range for its next use.
func (c *bytesOnly) completeFree(b Block) {
	n := &c.blocks[b]
	c.deactivate(n)
	n.state = vacant // no memory is behind it
	for _, t := range c.tallies(n.pool) {
		t.Reserved.add(-int64(n.size))
	}
	class := sizeClass{n.stream, n.size}
	if head, ok := c.idle[class]; ok {
		n.next = head
	}
	c.idle[class] = b
}

// EmptyCache implements Reclaimer: there is no cache, but PyTorch's waits.
func (c *bytesOnly) EmptyCache() { c.synchronize() }

// LargestFree implements Inspector: all that is left is one piece.
func (c *bytesOnly) LargestFree(sim.Bytes, Stream) sim.Bytes { return c.left() }

// Usable implements Inspector: nothing inactive is held.
func (c *bytesOnly) Usable(sim.Bytes, Stream) sim.Bytes { return 0 }
