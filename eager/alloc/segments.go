package alloc

import "smartswap/sim"

// Memory comes from and goes to the driver through the two functions below and
// nowhere else. Their segments have a fixed size and address; segments that
// grow by mapping pages, or are stitched from chunks, would be other bodies
// for the same two.
//
// Addresses stand in for the driver's: they count up in steps of 2 MiB from
// firstAddr and are never used again, so an address names one segment of a
// device for the whole run and does not depend on what was released before.

// firstAddr keeps the null pointer out of the address space.
const firstAddr = uint64(segmentStep)

// newSegment asks the driver for the segment of a rounded request and returns
// it as one block in no free list, or NoBlock if the device has no room for it
// ("alloc_block").
func (c *caching) newSegment(rounded sim.Bytes, s Stream) Block {
	size := c.segment(rounded)
	if sim.Bytes(c.stats.Reserved.Current)+size > c.room {
		return NoBlock
	}
	b := c.take()
	n := &c.blocks[b]
	n.addr, n.size = c.next, size
	n.stream, n.large, n.state = s, rounded > smallLimit, Inactive
	c.next += uint64(roundUp(size, segmentStep))

	c.stats.Reserved.add(int64(size))
	c.stats.Segments.add(1)
	if size >= c.maxSplit {
		c.stats.OversizeSegments.add(1)
	}
	c.stats.DriverAllocs++
	c.costs.DriverAllocs++
	c.costs.DriverBytes += size
	c.note(SegmentAlloc, n.addr, size, s)
	return b
}

// dropSegment gives b, an inactive block that is a whole segment, back to the
// driver ("release_block").
func (c *caching) dropSegment(b Block) {
	c.unshelve(b)
	n := &c.blocks[b]
	c.stats.Reserved.add(-int64(n.size))
	c.stats.Segments.add(-1)
	if n.size >= c.maxSplit {
		c.stats.OversizeSegments.add(-1)
	}
	c.stats.DriverFrees++
	c.costs.DriverFrees++
	c.note(SegmentFree, n.addr, n.size, n.stream)
	c.drop(b)
}
