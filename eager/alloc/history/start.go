package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"smartswap/eager/alloc"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// History is the record of one device, from the state that it begins in.
type History struct {
	// Start is the state before the first event: segments by address, blocks
	// allocated or inactive. A block that is given up later, of which the
	// record tells only the request, has the size that fits best; Guessed
	// counts those of which the record leaves open whether a rest too small
	// to be split off belongs to them.
	Start   []alloc.SegmentInfo
	Guessed int
	// Events are those of the record that concern memory, oldest first.
	Events []Event
	// Final is the state at the end, in the order of the file.
	Final []snapshot.Segment
}

// Event is an event of a record. Its stream is a number that stands for the
// handle of the stream and, as graphs keep pools of their own that share no
// blocks with others, for the pool.
type Event struct {
	Index  int // in the file's trace
	Action snapshot.Action
	Addr   uint64
	Size   sim.Bytes
	Stream alloc.Stream
	TimeUS int64
}

// Rebuild finds the state in which the record of a device begins: it takes the
// final segments and undoes the events, last first. o is the configuration of
// the allocator. A record that contradicts itself or the final segments is an
// error, one line with the index of the event; so is a device without segments
// and events. O(n log n).
func Rebuild(s *snapshot.Snapshot, device int, o alloc.Options) (*History, error) {
	u := undoer{streams: newStreams(s, device), live: make(map[uint64]block)}
	h := &History{}
	for i := range s.Segments {
		if g := s.Segments[i]; g.Device == device {
			h.Final = append(h.Final, g)
		}
	}
	for _, g := range h.Final {
		if err := u.final(g); err != nil {
			return nil, err
		}
	}
	if device < len(s.Traces) {
		for i, e := range s.Traces[device] {
			if e.Action < snapshot.Dump { // what follows changes no memory
				h.Events = append(h.Events, Event{i, e.Action, e.Addr, e.Size, u.streams.of(e.Stream, e.Addr), e.TimeUS})
			}
		}
	}
	if len(h.Final) == 0 && len(h.Events) == 0 {
		return nil, fmt.Errorf("device %d has no segments and no events", device)
	}
	for i, e := range slices.Backward(h.Events) {
		if err := u.undo(i, e); err != nil {
			return nil, fmt.Errorf("event %d (%v of %d bytes at address %d): %w", e.Index, e.Action, e.Size, e.Addr, err)
		}
	}
	var err error
	h.Start, h.Guessed, err = u.start(h.Events, o)
	return h, err
}

// undoer is the state of a device while it goes back in time.
type undoer struct {
	streams *streams
	spans   []span // by address
	live    map[uint64]block
}

// span is a segment, or a mapped range of an expandable one.
type span struct {
	addr       uint64
	size       sim.Bytes
	stream     alloc.Stream
	large      bool
	expandable bool
}

func (s span) end() uint64 { return s.addr + uint64(s.size) }

// block is an active block.
type block struct {
	requested sim.Bytes
	size      sim.Bytes // 0: unknown, the record only has the end of its life
	freed     int       // index of the event that ended it, if size is unknown
}

// final adds a segment of the end and its active blocks.
func (u *undoer) final(g snapshot.Segment) error {
	err := u.insert(span{g.Address, g.Size, u.streams.of(g.Stream, g.Address), g.Large, g.Expandable})
	if err != nil {
		return fmt.Errorf("segment at address %d: %w", g.Address, err)
	}
	for _, b := range g.Blocks {
		if b.State != snapshot.Inactive {
			u.live[b.Address] = block{requested: b.Requested, size: b.Size}
		}
	}
	return nil
}

// at is the index of the first span that ends after addr.
func (u *undoer) at(addr uint64) int {
	return sort.Search(len(u.spans), func(i int) bool { return u.spans[i].end() > addr })
}

// insert adds a span that must not overlap another.
func (u *undoer) insert(s span) error {
	if s.size <= 0 || s.end() < s.addr {
		return fmt.Errorf("%d bytes", s.size)
	}
	i := u.at(s.addr)
	if i < len(u.spans) && u.spans[i].addr < s.end() {
		return fmt.Errorf("it overlaps the segment at address %d", u.spans[i].addr)
	}
	u.spans = slices.Insert(u.spans, i, s)
	return nil
}

// undo takes one event back; i is its index in the history.
func (u *undoer) undo(i int, e Event) error {
	b, isLive := u.live[e.Addr]
	switch e.Action {
	case snapshot.Alloc:
		if !isLive {
			return fmt.Errorf("the block is neither given up later nor there at the end")
		}
		delete(u.live, e.Addr)
	case snapshot.FreeRequested:
		if !isLive {
			return fmt.Errorf("the free is neither completed later nor pending at the end")
		}
	case snapshot.FreeCompleted:
		if isLive {
			return fmt.Errorf("the block is in use afterwards (%d requested bytes) without having been allocated", b.requested)
		}
		u.live[e.Addr] = block{requested: e.Size, freed: i}
	case snapshot.SegmentAlloc:
		j := u.at(e.Addr)
		if j == len(u.spans) || u.spans[j].addr != e.Addr || u.spans[j].size != e.Size {
			return fmt.Errorf("the segment is neither given back later nor there at the end")
		}
		u.spans = slices.Delete(u.spans, j, j+1)
	case snapshot.SegmentFree:
		return u.insert(span{e.Addr, e.Size, e.Stream, e.Size > smallSegment, false})
	case snapshot.SegmentMap:
		return u.shrink(e)
	case snapshot.SegmentUnmap:
		return u.grow(e)
	}
	return nil
}

// The sizes by which the pool of memory that is given back shows: events do not
// tell it. (PyTorch's kSmallBuffer and kLargeBuffer.)
const (
	smallSegment = 2 * sim.MiB
	largePage    = 20 * sim.MiB
)

// shrink takes a range out of the span that holds it.
func (u *undoer) shrink(e Event) error {
	j := u.at(e.Addr)
	if j == len(u.spans) || u.spans[j].addr > e.Addr || u.spans[j].end() < e.Addr+uint64(e.Size) {
		return fmt.Errorf("the range is neither unmapped later nor there at the end")
	}
	left, right := u.spans[j], u.spans[j]
	left.size = sim.Bytes(e.Addr - left.addr)
	right.size = sim.Bytes(right.end() - e.Addr - uint64(e.Size))
	right.addr = e.Addr + uint64(e.Size)
	rest := make([]span, 0, 2)
	for _, s := range []span{left, right} {
		if s.size > 0 {
			rest = append(rest, s)
		}
	}
	u.spans = slices.Replace(u.spans, j, j+1, rest...)
	return nil
}

// grow adds a range. It belongs to the pool of the nearest range of its stream,
// for a pool and stream share one stretch of addresses.
func (u *undoer) grow(e Event) error {
	s := span{addr: e.Addr, size: e.Size, stream: e.Stream, large: e.Size%largePage == 0, expandable: true}
	nearest := ^uint64(0)
	for _, o := range u.spans {
		gap := max(o.addr, e.Addr) - min(o.end(), s.end())
		if o.expandable && o.stream == s.stream && gap < nearest {
			nearest, s.large = gap, o.large
		}
	}
	if err := u.insert(s); err != nil {
		return err
	}
	j := u.at(e.Addr)
	for _, k := range []int{j + 1, j} { // join with the right, then with the left neighbour
		if k < 1 || k >= len(u.spans) {
			continue
		}
		l, r := &u.spans[k-1], u.spans[k]
		if l.expandable && r.expandable && l.stream == r.stream && l.large == r.large && l.end() == r.addr {
			l.size += r.size
			u.spans = slices.Delete(u.spans, k, k+1)
		}
	}
	return nil
}

// start lists the segments when all events are undone.
func (u *undoer) start(events []Event, o alloc.Options) (list []alloc.SegmentInfo, guessed int, err error) {
	addrs := make([]uint64, 0, len(u.live))
	for addr := range u.live {
		addrs = append(addrs, addr)
	}
	slices.Sort(addrs)
	born := births(events)
	for _, s := range u.spans {
		g := alloc.SegmentInfo{Addr: s.addr, Size: s.size, Stream: s.stream, Large: s.large}
		at := s.addr
		inactive := func(end uint64) {
			if end > at {
				g.Blocks = append(g.Blocks, alloc.BlockInfo{Addr: at, Size: sim.Bytes(end - at), State: alloc.Inactive})
			}
		}
		for ; len(addrs) > 0 && addrs[0] < s.end(); addrs = addrs[1:] {
			addr := addrs[0]
			if addr < at {
				return nil, 0, fmt.Errorf("the block at address %d overlaps the one before it or lies outside of all segments", addr)
			}
			inactive(addr)
			b := u.live[addr]
			limit := s.end()
			if len(addrs) > 1 {
				limit = min(limit, addrs[1])
			}
			if b.size == 0 {
				open := false
				if b.size, open, err = sizeOf(addr, b, limit, born, s, o); err != nil {
					return nil, 0, err
				}
				if open {
					guessed++
				}
			}
			if addr+uint64(b.size) > limit || b.requested > b.size {
				return nil, 0, fmt.Errorf("the block at address %d has %d bytes for a request of %d, but only %d up to the next; the options may be others", addr, b.size, b.requested, limit-addr)
			}
			g.Blocks = append(g.Blocks, alloc.BlockInfo{Addr: addr, Size: b.size, Requested: b.requested, State: alloc.Allocated})
			at = addr + uint64(b.size)
		}
		inactive(s.end())
		list = append(list, g)
	}
	if len(addrs) > 0 {
		return nil, 0, fmt.Errorf("the block at address %d lies outside of all segments", addrs[0])
	}
	return list, guessed, nil
}

// birth is the first allocation at an address.
type birth struct {
	addr  uint64
	index int
}

// births lists the first allocation at each address, by address.
func births(events []Event) []birth {
	var list []birth
	for i, e := range events {
		if e.Action == snapshot.Alloc {
			list = append(list, birth{e.Addr, i})
		}
	}
	slices.SortFunc(list, func(a, b birth) int {
		return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.index, b.index))
	})
	return slices.CompactFunc(list, func(a, b birth) bool { return a.addr == b.addr })
}

// sizeOf is the size of a block of which only the request is known. It ends
// where another begins while it lives: at limit, or where an allocation in its
// lifetime was put. Between its rounded request and there is either a rest that
// was too small to be split off or an inactive block, and those are larger than
// any such rest. open: a rest is possible, but nothing shows it.
func sizeOf(addr uint64, b block, limit uint64, born []birth, s span, o alloc.Options) (size sim.Bytes, open bool, err error) {
	least, most, err := o.BlockSizes(max(b.requested, 1))
	if err != nil {
		return 0, false, err
	}
	if s.expandable {
		most = least
	}
	first := sort.Search(len(born), func(i int) bool { return born[i].addr > addr })
	for _, x := range born[first:] {
		if x.addr >= limit {
			break
		}
		if x.index < b.freed {
			limit = x.addr
			break
		}
	}
	space := sim.Bytes(limit - addr)
	if space <= most {
		return max(space, least), false, nil
	}
	return least, most > least, nil
}

// streams numbers the streams of a device.
type streams struct {
	number map[streamKey]alloc.Stream
	pools  []snapshot.Segment // those of private pools, by address
}

type streamKey struct {
	handle int64
	pool   [2]int64
}

func newStreams(s *snapshot.Snapshot, device int) *streams {
	t := &streams{number: make(map[streamKey]alloc.Stream)}
	for _, g := range s.Segments {
		if g.Device == device && g.Pool != [2]int64{} {
			t.pools = append(t.pools, g)
		}
	}
	slices.SortFunc(t.pools, func(a, b snapshot.Segment) int { return cmp.Compare(a.Address, b.Address) })
	return t
}

// of is the number of a stream, as seen from what lies at addr.
func (t *streams) of(handle int64, addr uint64) alloc.Stream {
	key := streamKey{handle: handle}
	i := sort.Search(len(t.pools), func(i int) bool { return t.pools[i].Address > addr })
	if i > 0 && addr-t.pools[i-1].Address < uint64(t.pools[i-1].Size) {
		key.pool = t.pools[i-1].Pool
	}
	n, ok := t.number[key]
	if !ok {
		n = alloc.Stream(len(t.number))
		t.number[key] = n
	}
	return n
}
