package alloc

import (
	"cmp"
	"fmt"
	"math"
	"slices"

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
	// is Pending (free it to make it so), segments do not overlap, and an
	// expandable one consists of whole pages: the error says which one breaks
	// a rule. Expandable segments of one pool and stream become parts of one
	// range of addresses that begins with the first; one of 0 bytes and no
	// blocks says that the range begins earlier. After an error the allocator
	// is of no use.
	Restore(segs []SegmentInfo) error
	// PlaceNext sets the address of the next segment from the driver, or of
	// the next range for expandable ones. The caller sees to it that it
	// overlaps no other.
	PlaceNext(addr uint64)
}

var _ Restorer = (*caching)(nil)

// Restore implements Restorer.
func (c *caching) Restore(segs []SegmentInfo) error {
	list := slices.Clone(segs)
	slices.SortFunc(list, func(a, b SegmentInfo) int { return cmp.Compare(a.Addr, b.Addr) })
	trace := c.trace
	c.trace = nil
	defer func() { c.trace = trace }()
	next := c.next
	for i := range list {
		if err := c.restoreSegment(list[i:]); err != nil {
			return fmt.Errorf("segment at address %d: %w", list[i].Addr, err)
		}
		next = max(next, c.next)
	}
	c.next = next
	c.costs = Costs{}
	for _, t := range []*Stats{&c.stats, &c.byPool[0], &c.byPool[1]} {
		t.DriverAllocs = 0
		t.resetPeaks()
	}
	c.stats.LargestFree = c.largestFree()
	return nil
}

// restoreSegment takes the first of the segments over, which are in address
// order.
func (c *caching) restoreSegment(list []SegmentInfo) error {
	g := list[0]
	room := c.room
	if g.Expandable {
		room = c.capacity // the limit does not apply to pages
	}
	start := g.Expandable && g.Size == 0 && len(g.Blocks) == 0
	switch end := g.Addr + uint64(g.Size); {
	case g.Stream < 0 || g.Size <= 0 && !start || g.Addr > math.MaxInt64-2*uint64(unbounded):
		return fmt.Errorf("stream %d, %d bytes; allowed: streams from 0, sizes above 0, addresses that leave room", g.Stream, g.Size)
	case g.Pool < 0 || g.Pool&1 != 0 || int(g.Pool) >= len(c.pools):
		return fmt.Errorf("pool %d; allowed: %d, or one of NewPool", g.Pool, DefaultPool)
	case g.Size > room-sim.Bytes(c.stats.Reserved.Current):
		return fmt.Errorf("%d bytes do not fit in the device's %d", g.Size, room)
	case len(list) > 1 && end > list[1].Addr:
		return fmt.Errorf("%d bytes; the next segment begins before they end, at %d", g.Size, list[1].Addr)
	}
	b := NoBlock
	if start {
		c.regionAt(list)
		return nil
	}
	if g.Expandable {
		var err error
		if b, err = c.restorePages(list); err != nil {
			return err
		}
	} else {
		c.next = g.Addr
		b = c.newSegment(poolOf(g), g.Size, g.Stream)
		c.next = uint64(roundUp(sim.Bytes(c.next), segmentStep))
	}
	return c.restoreBlocks(b, g.Blocks)
}

// poolOf is the pool that g's blocks are in.
func poolOf(g SegmentInfo) PoolID {
	if g.Large {
		return g.Pool | 1
	}
	return g.Pool
}

// regionAt returns the unmapped end of the region that the first segment is
// part of, which it may begin.
func (c *caching) regionAt(list []SegmentInfo) Block {
	g := list[0]
	p := poolOf(g)
	if tails := *c.unmappedOf(p, g.Stream); len(tails) > 0 {
		rest := tails[len(tails)-1] // what is unmapped behind the last range
		if g.Addr+uint64(max(g.Size, 1)) <= c.blocks[rest].addr+uint64(c.blocks[rest].size) {
			return rest
		}
	}
	page := c.page[p&1]
	size := c.regionSize(page)
	for _, o := range list[1:] {
		if !o.Expandable || o.Stream != g.Stream || poolOf(o) != p {
			size = min(size, sim.Bytes(o.Addr-g.Addr))
			break
		}
	}
	size = max(size/page*page, g.Size, page)
	c.next = max(c.next, g.Addr+uint64(size))
	return c.addRegion(region{start: g.Addr, size: size, page: page}, p, g.Stream)
}

// restorePages maps the range of the first segment and returns it as one block
// in no list.
func (c *caching) restorePages(list []SegmentInfo) (Block, error) {
	g := list[0]
	page := c.page[poolOf(g)&1]
	rest := c.regionAt(list)
	n := &c.blocks[rest]
	front := sim.Bytes(g.Addr - n.addr)
	if g.Addr < n.addr || front%page != 0 || g.Size%page != 0 {
		return NoBlock, fmt.Errorf("%d bytes, %d behind what is mapped before; allowed: whole pages of %d", g.Size, front, page)
	}
	if front == 0 && n.prev != NoBlock {
		return NoBlock, fmt.Errorf("it touches the one before it, of the same pool and stream; allowed: one segment for both")
	}
	if front > 0 {
		c.unpark(rest)
		back := c.divide(rest, front)
		c.park(rest)
		c.park(back)
		rest = back
	}
	b := c.mapPages(rest, g.Size)
	c.unshelve(b)
	return b, nil
}

// restoreBlocks cuts b, in no list, into the given blocks, which tile it.
func (c *caching) restoreBlocks(b Block, list []BlockInfo) error {
	last := Allocated
	for i, info := range list {
		n := &c.blocks[b]
		inactive := info.State == Inactive
		switch {
		case info.Addr != n.addr || info.Size <= 0 || info.Size > n.size:
			return fmt.Errorf("block at address %d of %d bytes; expected: one at %d of up to %d", info.Addr, info.Size, n.addr, n.size)
		case !inactive && info.State != Allocated:
			return fmt.Errorf("block at address %d is %v; allowed: %v %v", info.Addr, info.State, Allocated, Inactive)
		case inactive && last == Inactive:
			return fmt.Errorf("block at address %d and the one before it are both inactive", info.Addr)
		case info.Requested < 0 || info.Requested > info.Size:
			return fmt.Errorf("block at address %d has %d bytes, of which %d were requested", info.Addr, info.Size, info.Requested)
		case i == len(list)-1 && info.Size < n.size:
			return fmt.Errorf("its blocks end %d bytes before it does", n.size-info.Size)
		case i < len(list)-1 && info.Size == n.size:
			return fmt.Errorf("its blocks go on behind its end, at %d", list[i+1].Addr)
		}
		rest := NoBlock
		if info.Size < n.size {
			rest = c.divide(b, info.Size)
		}
		if last = info.State; !inactive {
			c.hand(b, info.Requested)
		} else {
			c.shelve(b)
			if n := &c.blocks[b]; n.split() {
				c.countSplit(n, 1, int64(n.size))
			}
		}
		b = rest
	}
	if b != NoBlock {
		return fmt.Errorf("it has no blocks")
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
	case least <= smallLimit || r.expandable:
		return least, least, nil // rests of a quantum are split off
	case least >= r.maxSplit:
		return least, anySize, nil
	case !r.splitFresh && least < largeRequest:
		return least, max(least, r.largeSegment), nil
	}
	return least, least + r.largeRest - r.largeQuantum, nil
}
