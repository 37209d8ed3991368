package alloc

import "smartswap/sim"

// appendWhole appends the inactive blocks of p that are whole segments from
// the driver, by (stream, size, address).
func (c *caching) appendWhole(list []Block, p *pool) []Block {
	for s := range p.free {
		l := p.free[s]
		for b := l.first(); b != NoBlock; b = l.after(c.blocks, b) {
			if n := &c.blocks[b]; !n.split() && n.region == 0 {
				list = append(list, b)
			}
		}
	}
	return list
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
	if !c.collects {
		return
	}
	p := &c.pools[DefaultPool|1]
	for excess > 0 {
		list := c.appendWhole(nil, p)
		if len(list) == 0 {
			return
		}
		c.recover()
		age := func(b Block) int64 { return p.searches - c.blocks[b].born }
		var sum int64
		for _, b := range list {
			sum += age(b)
		}
		for _, b := range list {
			if age(b)*int64(len(list)) >= sum { // age >= mean, without the division
				excess -= c.blocks[b].size
				c.dropSegment(b)
			}
		}
	}
}

// releaseOversize gives just enough oversize blocks of s back to make room for
// the request: one that is large enough, or else the largest ones. It tells
// whether they sum to enough; if not they are gone all the same
// ("release_available_cached_blocks"). Oversize blocks are whole segments,
// except in expandable segments, which stay.
func (c *caching) releaseOversize(p PoolID, rounded sim.Bytes, s Stream) bool {
	if c.maxSplit == anySize {
		return false
	}
	c.recover()
	l := c.pools[p].shelf(s)
	need := max(rounded, c.maxSplit)
	var list []Block // oversize, from the largest down
	enough := NoBlock
	for b := l.last(c.blocks); b != NoBlock && c.blocks[b].size >= c.maxSplit; b = l.before(c.blocks, b) {
		if n := &c.blocks[b]; n.region == 0 && !n.split() {
			list = append(list, b)
			if n.size >= need {
				enough = b
			}
		}
	}
	if enough != NoBlock {
		c.dropSegment(enough)
		return true
	}
	for _, b := range list {
		if need <= 0 {
			break
		}
		need -= c.blocks[b].size
		c.dropSegment(b)
	}
	return need <= 0
}

// releaseCached implements provider ("release_cached_blocks").
func (c *caching) releaseCached() {
	c.recover()
	c.synchronize()
	c.releaseWhole()
}

// releaseWhole gives every whole segment of all streams back, and the whole
// pages in inactive blocks of expandable ones. Private pools stay until they
// are closed.
func (c *caching) releaseWhole() {
	for i := range len(c.pools) {
		// Large before small, as the framework does.
		if p := &c.pools[i^1]; !p.private || p.closed {
			for _, b := range c.appendWhole(nil, p) {
				c.dropSegment(b)
			}
			c.shrink(p)
		}
	}
}
