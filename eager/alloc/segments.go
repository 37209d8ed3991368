package alloc

import "smartswap/sim"

// Memory of fixed size and address comes from and goes to the driver through
// the two functions below and nowhere else; expandable.go has the other kind.
//
// Addresses stand in for the driver's: they count up in steps of 2 MiB from
// firstAddr and are never used again, so an address names one segment of a
// device for the whole run and does not depend on what was released before.

// firstAddr keeps the null pointer out of the address space.
const firstAddr = uint64(segmentStep)

// place is a range of addresses that nothing else had or will have.
func (c *caching) place(size sim.Bytes) uint64 {
	addr := c.next
	c.next += uint64(roundUp(size, segmentStep))
	return addr
}

// hasRoom tells whether the device and the limit allow a new segment.
func (c *caching) hasRoom(size sim.Bytes) bool {
	return sim.Bytes(c.stats.Reserved.Current)+size <= c.room
}

// newSegment asks the driver for a segment, for which there is room, and
// returns it as one block in no free list.
func (c *caching) newSegment(p PoolID, size sim.Bytes, s Stream) Block {
	b := c.take()
	n := &c.blocks[b]
	n.addr, n.size = c.place(size), size
	n.stream, n.pool, n.state = s, p, Inactive
	for _, t := range c.tallies(p) {
		t.segment(1, int64(size), size >= c.maxSplit)
		t.DriverAllocs++
	}
	c.costs.DriverBytes += size
	if n.large() && c.chunked {
		c.costs.Maps += int(size / chunk)
	} else {
		c.costs.DriverAllocs++
	}
	c.note(SegmentAlloc, n.addr, size, s)
	return b
}

// dropSegment gives b, an inactive block that is a whole segment, back to the
// driver ("release_block").
func (c *caching) dropSegment(b Block) {
	if c.blocks[b].stitched > 0 {
		c.stitches.forget(b)
	}
	c.unshelve(b)
	n := &c.blocks[b]
	for _, t := range c.tallies(n.pool) {
		t.segment(-1, int64(n.size), n.size >= c.maxSplit)
		t.DriverFrees++
	}
	if n.large() && c.chunked {
		c.costs.Unmaps += int(n.size / chunk)
		c.costs.DeviceSync = true
	} else {
		c.costs.DriverFrees++
	}
	c.note(SegmentFree, n.addr, n.size, n.stream)
	c.drop(b)
}
