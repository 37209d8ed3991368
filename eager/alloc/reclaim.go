package alloc

import (
	"iter"

	"smartswap/sim"
)

// whole visits the inactive blocks of p that are whole segments, by (stream,
// size, address). The one in hand may be dropped.
func (c *caching) whole(p *pool) iter.Seq[Block] {
	return func(yield func(Block) bool) {
		for s := range p.free {
			t := &p.free[s]
			for b, next := t.atLeast(c.blocks, 0), NoBlock; b != NoBlock; b = next {
				next = t.after(c.blocks, b)
				if !c.blocks[b].split() && !yield(b) {
					return
				}
			}
		}
	}
}

// recover is what a step that gives memory back does first in torch_npu.
func (c *caching) recover() {
	c.costs.DeviceSync = c.costs.DeviceSync || c.syncRecovery
}

// collect gives old segments of the large pool back when more than the
// threshold is reserved ("garbage_collect_cached_blocks"). The age of a block
// is the number of searches since it became inactive; each pass drops all that
// are at least as old as the mean of those left, and goes to its end even if
// less would do.
func (c *caching) collect() {
	excess := sim.Bytes(c.stats.Reserved.Current) - c.collectAbove
	if !c.collects || excess <= 0 {
		return
	}
	p := &c.pools[1]
	age := func(b Block) int64 { return p.searches - c.blocks[b].born }
	var ages, count int64
	for b := range c.whole(p) {
		ages += age(b)
		count++
	}
	if count == 0 {
		return
	}
	c.recover()
	for freed := true; freed && excess > 0 && count > 0; {
		freed = false
		meanOf, mean := count, ages // age >= mean/meanOf, without the division
		for b := range c.whole(p) {
			if age(b)*meanOf < mean {
				continue
			}
			freed = true
			excess -= c.blocks[b].size
			ages -= age(b)
			count--
			c.dropSegment(b)
		}
	}
}

// releaseOversize gives just enough oversize blocks of s back to make room for
// the request: one that is large enough, or else the largest ones. It tells
// whether they sum to enough; if not they are gone all the same
// ("release_available_cached_blocks"). Oversize blocks are whole segments.
func (c *caching) releaseOversize(rounded sim.Bytes, s Stream) bool {
	if c.maxSplit == anySize {
		return false
	}
	c.recover()
	t := c.pool(rounded).tree(s)
	need := max(rounded, c.maxSplit)
	if b := t.atLeast(c.blocks, need); b != NoBlock {
		c.dropSegment(b)
		return true
	}
	for need > 0 {
		b := t.last(c.blocks)
		if b == NoBlock || c.blocks[b].size < c.maxSplit {
			return false
		}
		need -= c.blocks[b].size
		c.dropSegment(b)
	}
	return true
}

// releaseCached waits for all deferred frees and gives every whole segment of
// all streams back ("release_cached_blocks").
func (c *caching) releaseCached() {
	c.recover()
	c.synchronize()
	for _, large := range []bool{true, false} {
		for b := range c.whole(c.poolOf(large)) {
			c.dropSegment(b)
		}
	}
}
