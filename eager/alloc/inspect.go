package alloc

import (
	"cmp"
	"slices"

	"smartswap/sim"
)

// State of a block.
type State uint8

// States: a block is active while Allocated or Pending.
const (
	vacant     State = iota // an id without a block
	Allocated               // handed out
	Pending                 // freed, waits for events of other streams
	Inactive                // free for its stream
	unmapped                // of an expandable segment: no memory behind it
	lent                    // part of an active stitched block
	fragmented              // a stitched block of which some part is in use
)

// String is the state's name in PyTorch's memory snapshots.
func (s State) String() string {
	return [...]string{"vacant", "active_allocated", "active_pending_free", "inactive", "unmapped", "lent", "fragmented"}[s]
}

// BlockInfo describes one block of a snapshot. The parts of a stitched block
// are listed where their memory is, each with the stitched block's id and
// state; the request counts from the first part on.
type BlockInfo struct {
	Block           Block
	Addr            uint64
	Size, Requested sim.Bytes // Requested is 0 when inactive
	State           State
	Whole           uint64 // of a part: where the stitched block's own range begins; else 0
}

// SegmentInfo describes one segment: what the driver gave in one piece, or, of
// an expandable segment, one contiguous mapped range. Its blocks, in address
// order, tile it.
type SegmentInfo struct {
	Addr       uint64
	Size       sim.Bytes
	Stream     Stream
	Large      bool
	Expandable bool
	Pool       PoolID
	Blocks     []BlockInfo
}

// Action is what a Trace tells.
type Action uint8

// Actions, with the meaning of the size that comes with them.
const (
	Alloc         Action = iota // requested bytes
	FreeRequested               // requested bytes
	FreeCompleted               // requested bytes
	SegmentAlloc                // segment bytes
	SegmentFree                 // segment bytes
	OutOfMemory                 // rounded bytes; the address is the device's free bytes
	SegmentMap                  // mapped bytes
	SegmentUnmap                // unmapped bytes
)

// String is the action's name in PyTorch's memory history.
func (a Action) String() string {
	return [...]string{"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom", "segment_map", "segment_unmap"}[a]
}

// Trace is one entry of the allocator's history.
type Trace struct {
	Action Action
	Addr   uint64
	Size   sim.Bytes
	Stream Stream
	// Making: done to make room for a request that no free block served, the
	// next Alloc or OutOfMemory: a segment that comes or goes, a free by a
	// Drainer, the completion of a free that had to be waited for.
	Making bool
	// Range is where the range of addresses begins of which pages are mapped or
	// unmapped; 0 for other actions.
	Range uint64
}

// Inspector looks into an allocator without changing it. What New returns
// implements it.
type Inspector interface {
	// Segments lists segments and their blocks in address order, in
	// O(n log n) of the blocks. The bytes allocator, which asks no driver,
	// lists each active block as a segment of its own.
	Segments() []SegmentInfo
	// LargestFree is the largest inactive block that a request of size
	// bytes on s is allowed to look at: same pool, same stream.
	LargestFree(size sim.Bytes, s Stream) sim.Bytes
	// Usable is the sum of the inactive blocks of that pool and stream that
	// are large enough for the request: the rest of Reserved - Active is,
	// for it, fragmentation.
	Usable(size sim.Bytes, s Stream) sim.Bytes
	// Pieces calls f for each range of addresses that the memory of b is
	// known by, in the order of b's own range. They are those of Segments:
	// for a stitched block its parts, for any other its own range.
	Pieces(b Block, f func(addr uint64, size sim.Bytes))
	// PoolStats are the statistics of small or large requests alone
	// ("small_pool", "large_pool"): those of blocks and segments, and the
	// driver's calls.
	PoolStats(large bool) Stats
	// Observe calls f at each entry of the history from now on; nil stops.
	Observe(f func(Trace))
}

// All allocators are all of these.
var (
	_ inspectable = (*caching)(nil)
	_ inspectable = (*stitching)(nil)
	_ inspectable = (*bytesOnly)(nil)
)

type inspectable interface {
	Allocator
	Reclaimer
	Inspector
	Fitter
}

// Observe implements Inspector.
func (c *core) Observe(f func(Trace)) { c.trace = f }

// note tells the observer, if there is one.
func (c *core) note(a Action, addr uint64, size sim.Bytes, s Stream) {
	if c.trace != nil {
		c.trace(Trace{Action: a, Addr: addr, Size: size, Stream: s, Making: c.making && (a != FreeCompleted || c.waiting)})
	}
}

// notePages is note for pages of the range of addresses that begins at start.
func (c *core) notePages(a Action, addr uint64, size sim.Bytes, s Stream, start uint64) {
	if c.trace != nil {
		c.trace(Trace{Action: a, Addr: addr, Size: size, Stream: s, Making: c.making, Range: start})
	}
}

// Pieces implements Inspector.
func (c *core) Pieces(b Block, f func(addr uint64, size sim.Bytes)) {
	n := c.allocated(b)
	f(n.addr, n.size)
}

// Segments implements Inspector: a segment is known by its first block, the
// one without a neighbour before it, and may have several mapped ranges.
func (c *core) Segments() []SegmentInfo {
	var list []SegmentInfo
	for id := range c.blocks {
		if n := &c.blocks[id]; n.state == vacant || n.prev != NoBlock {
			continue
		}
		open := false // the last entry of list goes on
		for b := Block(id); b != NoBlock; b = c.blocks[b].next {
			n := &c.blocks[b]
			if n.state == unmapped {
				open = false
				continue
			}
			if !open {
				list = append(list, SegmentInfo{
					Addr: n.addr, Stream: n.stream, Large: n.large(), Expandable: n.region != 0, Pool: n.pool &^ 1,
				})
				open = true
			}
			seg := &list[len(list)-1]
			seg.Size += n.size
			seg.Blocks = append(seg.Blocks, BlockInfo{Block: b, Addr: n.addr, Size: n.size, Requested: n.requested, State: n.state})
		}
	}
	slices.SortFunc(list, func(a, b SegmentInfo) int { return cmp.Compare(a.Addr, b.Addr) })
	return list
}
