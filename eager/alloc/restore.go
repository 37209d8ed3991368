package alloc

import (
	"fmt"
	"math"

	"smartswap/sim"
)

// Restorer lets a recorded history go on in the model: it takes over a state
// that another allocator was in, and addresses that another driver gave.
// Framework allocators implement it, "bytes", which has no segments, does not.
type Restorer interface {
	// Restore puts an allocator that nobody has used yet into the state that
	// segs describe; Segments then tells the ids of the blocks. Peaks begin
	// at this state, costs do not count it.
	//
	// The blocks of a segment tile it, no two neighbours are inactive, none
	// is Pending (free it to make it so), and segments do not overlap: the
	// error says which one breaks a rule. After an error the allocator is of
	// no use.
	Restore(segs []SegmentInfo) error
	// PlaceNext sets the address of the next segment from the driver. The
	// caller sees to it that it overlaps no other.
	PlaceNext(addr uint64)
}

var _ Restorer = (*caching)(nil)

// Restore implements Restorer.
func (c *caching) Restore(segs []SegmentInfo) error {
	end := c.next
	for i := range segs {
		g := &segs[i]
		if err := c.restoreSegment(g); err != nil {
			return fmt.Errorf("segment at address %d: %w", g.Addr, err)
		}
		end = max(end, roundUpAddr(g.Addr+uint64(g.Size)))
	}
	c.next = end
	c.stats.resetPeaks()
	return nil
}

// roundUpAddr is the next address at which a segment may begin.
func roundUpAddr(addr uint64) uint64 {
	const step = uint64(segmentStep)
	return (addr + step - 1) / step * step
}

func (c *caching) restoreSegment(g *SegmentInfo) error {
	switch {
	case g.Stream < 0 || g.Size <= 0 || g.Addr > math.MaxInt64-uint64(unbounded):
		return fmt.Errorf("stream %d, %d bytes; allowed: streams from 0, sizes above 0, addresses that leave room", g.Stream, g.Size)
	case g.Size > c.room-sim.Bytes(c.stats.Reserved.Current):
		return fmt.Errorf("%d bytes do not fit in the device's %d", g.Size, c.room)
	}
	c.stats.Reserved.add(int64(g.Size))
	c.stats.Segments.add(1)
	if g.Size >= c.maxSplit {
		c.stats.OversizeSegments.add(1)
	}
	at, last := g.Addr, NoBlock
	for _, info := range g.Blocks {
		inactive := info.State == Inactive
		switch {
		case info.Addr != at || info.Size <= 0 || info.Size > g.Size:
			return fmt.Errorf("block at address %d of %d bytes; expected: one at %d", info.Addr, info.Size, at)
		case !inactive && info.State != Allocated:
			return fmt.Errorf("block at address %d is %v; allowed: %v %v", info.Addr, info.State, Allocated, Inactive)
		case inactive && last != NoBlock && c.blocks[last].state == Inactive:
			return fmt.Errorf("block at address %d and the one before it are both inactive", info.Addr)
		case info.Requested < 0 || info.Requested > info.Size:
			return fmt.Errorf("block at address %d has %d bytes, of which %d were requested", info.Addr, info.Size, info.Requested)
		}
		b := c.take()
		n := &c.blocks[b]
		n.addr, n.size, n.stream, n.large, n.state = at, info.Size, g.Stream, g.Large, Inactive
		if last != NoBlock {
			n.prev, c.blocks[last].next = last, b
		}
		at, last = at+uint64(info.Size), b
		if inactive {
			c.shelve(b)
			if len(g.Blocks) > 1 {
				c.stats.InactiveSplit.add(int64(info.Size))
				c.stats.InactiveSplits.add(1)
			}
			continue
		}
		c.hand(b, info.Requested)
	}
	if at != g.Addr+uint64(g.Size) {
		return fmt.Errorf("its blocks sum to %d bytes; expected: %d", at-g.Addr, g.Size)
	}
	return nil
}

// PlaceNext implements Restorer.
func (c *caching) PlaceNext(addr uint64) { c.next = addr }

// BlockSizes are the smallest and the largest block that a request of size > 0
// bytes may occupy: the request rounded, and that with a rest too small to be
// split off.
func (o Options) BlockSizes(size sim.Bytes) (least, most sim.Bytes, err error) {
	r, err := o.rules()
	if err != nil {
		return 0, 0, err
	}
	if size <= 0 || size > maxRequest {
		return 0, 0, fmt.Errorf("request of %d bytes: must be 1 to %d", size, sim.Bytes(maxRequest))
	}
	least = r.round(size)
	switch {
	case least <= smallLimit:
		return least, least, nil // rests of a quantum are split off
	case least >= r.maxSplit:
		return least, anySize, nil
	}
	return least, least + smallLimit, nil
}
