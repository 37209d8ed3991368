package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"smartswap/eager/alloc"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// History is the record of one device, from the state that it begins in.
type History struct {
	// Start is the state before the first event: segments by address, blocks
	// allocated or inactive; a segment's Pool is a number as in Event. An
	// expandable one of 0 bytes says where a range of addresses begins. A block that is given up later, of which the
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

// Event is an event of a record. Streams and pools are numbered as they come
// up, pool 0 being the default one. Which pool an event is about shows only by
// the final segment at its address; without one it counts for the default pool.
type Event struct {
	Index  int // in the file's trace
	Action snapshot.Action
	Addr   uint64
	Size   sim.Bytes
	Stream alloc.Stream
	Pool   int
	TimeUS int64
	Making bool // as in alloc.Trace; only the model's own records tell
}

// Rebuild finds the state in which the record of a device begins: it takes the
// final segments and undoes the events, last first. o is the configuration of
// the allocator. A record that contradicts itself or the final segments is an
// error, one line with the index of the event; so is a device without segments
// and events, and so are options of an allocator without segments. O(n log n).
//
// One of the model's own whose beginning is lost starts after the first request
// in it, of which the part before may be lost, too.
func Rebuild(s *snapshot.Snapshot, device int, o alloc.Options) (*History, error) {
	if o.Backend == alloc.BackendBytes {
		return nil, noSegments(o)
	}
	h := &History{}
	var ranges []uint64
	for i := range s.Segments {
		if g := s.Segments[i]; g.Device == device {
			h.Final = append(h.Final, g)
			if begin, ok := rangeIn(g.Frames); ok {
				ranges = append(ranges, begin)
			}
		}
	}
	names := newNames(s, device)
	own := slices.ContainsFunc(s.Settings, func(x snapshot.Setting) bool { return strings.HasPrefix(x.Key, ownGroup+".") })
	if device < len(s.Traces) {
		for i, e := range s.Traces[device] {
			if begin, ok := rangeIn(e.Frames); ok {
				ranges = append(ranges, begin)
			}
			if e.Action < snapshot.Dump { // what follows changes no memory
				inside := len(e.Frames) > 0 && e.Frames[0] == making
				own = own || inside
				h.Events = append(h.Events, Event{i, e.Action, e.Addr, e.Size, names.stream(e.Stream), names.pool(e.Addr), e.TimeUS, inside})
			}
		}
	}
	if len(h.Final) == 0 && len(h.Events) == 0 {
		return nil, errors.New("no segments and no events")
	}
	slices.Sort(ranges)
	ranges = slices.Compact(ranges)
	if err := h.undo(0, names, ranges, o); err != nil {
		return nil, err
	}
	if !own || len(h.Start) == 0 {
		return h, nil
	}
	first := slices.IndexFunc(h.Events, func(e Event) bool { return e.Action == snapshot.Alloc || e.Action == snapshot.OOM }) + 1
	if err := h.undo(first, names, ranges, o); err != nil {
		return nil, err
	}
	h.Events = h.Events[first:]
	return h, nil
}

// undo sets the start to the state before the event of that index.
func (h *History) undo(from int, names *names, ranges []uint64, o alloc.Options) error {
	u := undoer{names: names, options: o, ranges: ranges, live: make(map[uint64]block), lowest: make(map[class]uint64), begun: make(map[uint64]bool), past: newTimeline(h.Events)}
	for i, e := range h.Events {
		if e.Action == snapshot.SegmentMap {
			e.Index = i
			u.maps = append(u.maps, e)
		}
	}
	for _, g := range h.Final {
		if err := u.final(g); err != nil {
			return err
		}
	}
	for i := len(h.Events) - 1; i >= from; i-- {
		e := h.Events[i]
		if err := u.undo(i, e); err != nil {
			return fmt.Errorf("event %d (%v of %d bytes at address %d): %w", e.Index, e.Action, e.Size, e.Addr, err)
		}
	}
	var err error
	h.Start, h.Guessed, err = u.start()
	return err
}

// undoer is the state of a device while it goes back in time.
type undoer struct {
	names   *names
	options alloc.Options
	past    timeline
	maps    []Event // those of SegmentMap, with Index counting h.Events
	spans   []span  // by address
	live    map[uint64]block
	lowest  map[class]uint64 // where ranges of expandable segments that are there now will be mapped
	ranges  []uint64         // where ranges of addresses begin, sorted, if the record tells; else none
	begun   map[uint64]bool  // those of which begin has told
}

// span is a segment, or a mapped range of an expandable one.
type span struct {
	addr       uint64
	size       sim.Bytes
	stream     alloc.Stream
	pool       int
	large      bool
	expandable bool
}

// class tells which spans share one range of addresses: the mapped ones of a
// pool and stream.
type class struct {
	stream alloc.Stream
	pool   int
	large  bool
}

func (s span) class() class { return class{s.stream, s.pool, s.large} }

func (s span) end() uint64 { return s.addr + uint64(s.size) }

// block is an active block.
type block struct {
	requested sim.Bytes
	size      sim.Bytes // 0: unknown, the record only has the end of its life
	freed     int       // index of the event that ended it, if size is unknown
}

// final adds a segment of the end and its active blocks.
func (u *undoer) final(g snapshot.Segment) error {
	err := u.insert(span{g.Address, g.Size, u.names.stream(g.Stream), u.names.pool(g.Address), g.Large, g.Expandable})
	if err != nil {
		return fmt.Errorf("segment at address %d: %w", g.Address, err)
	}
	for _, b := range g.Blocks {
		switch {
		case b.State == snapshot.Inactive:
		case len(b.Frames) > 0 && b.Frames[0].File == partFile:
			whole, err := strconv.ParseUint(b.Frames[0].Name, 10, 64)
			if err != nil {
				return fmt.Errorf("block at address %d: part of the stitched block at %q: want an address", b.Address, b.Frames[0].Name)
			}
			f := u.live[whole]
			u.live[whole] = block{requested: f.requested + b.Requested, size: f.size + b.Size}
		default:
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
		return u.insert(span{e.Addr, e.Size, e.Stream, e.Pool, e.Size > smallSegment, false})
	case snapshot.SegmentMap:
		return u.shrink(e)
	case snapshot.SegmentUnmap:
		return u.grow(i, e)
	}
	return nil
}

// The sizes by which the pool of memory that is given back shows: events do not
// tell it. (PyTorch's kSmallSize, kSmallBuffer and kLargeBuffer.)
const (
	smallRequest = sim.MiB
	smallSegment = 2 * sim.MiB
	largePage    = 20 * sim.MiB
)

// shrink takes a range out of the spans that hold it. There is one, unless grow
// took parts of it for another pool.
func (u *undoer) shrink(e Event) error {
	j := u.at(e.Addr)
	k, end := j, e.Addr+uint64(e.Size)
	for k+1 < len(u.spans) && u.spans[k].end() < end && u.spans[k].end() == u.spans[k+1].addr {
		k++
	}
	if e.Size <= 0 || end < e.Addr || j == len(u.spans) || u.spans[j].addr > e.Addr || u.spans[k].end() < end {
		return fmt.Errorf("the range is neither unmapped later nor there at the end")
	}
	left, right := u.spans[j], u.spans[k]
	left.size = sim.Bytes(e.Addr - left.addr)
	right.size = sim.Bytes(right.end() - end)
	right.addr = end
	rest := make([]span, 0, 2)
	for _, s := range []span{left, right} {
		if s.size > 0 {
			rest = append(rest, s)
		}
	}
	u.spans = slices.Replace(u.spans, j, k+1, rest...)

	// If others of the class are there, this is their range of addresses,
	// which then begins here or before.
	c := left.class()
	if slices.ContainsFunc(u.spans, func(s span) bool { return s.expandable && s.class() == c }) {
		low, known := u.lowest[c]
		if !known || e.Addr < low {
			u.lowest[c] = e.Addr
		}
	} else {
		delete(u.lowest, c)
	}
	return nil
}

// grow adds a range. Its pool shows by what lay in it before, or in what was
// mapped together with it, or by what it touches, or else by its size.
func (u *undoer) grow(i int, e Event) error {
	s := span{addr: e.Addr, size: e.Size, stream: e.Stream, pool: e.Pool, expandable: true}
	touches := func(o span) bool {
		return o.expandable && o.stream == s.stream && o.pool == s.pool && (o.end() == s.addr || s.end() == o.addr)
	}
	size, found := u.past.lastIn(s.addr, s.end(), i)
	for k := len(u.maps) - 1; k >= 0 && !found; k-- {
		m := &u.maps[k]
		if end := m.Addr + uint64(m.Size); m.Index < i && m.Stream == s.stream && m.Addr < s.end() && s.addr < end {
			size, found = u.past.lastIn(m.Addr, end, i)
		}
	}
	at := u.at(e.Addr)
	switch {
	case found:
		least, _, err := u.options.BlockSizes(max(size, 1))
		if err != nil {
			return err
		}
		s.large = least > smallRequest
	case at < len(u.spans) && touches(u.spans[at]):
		s.large = u.spans[at].large
	case at > 0 && touches(u.spans[at-1]):
		s.large = u.spans[at-1].large
	default:
		s.large = e.Size%largePage == 0
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
		if _, begins := slices.BinarySearch(u.ranges, r.addr); begins {
			continue
		}
		if l.expandable && r.expandable && l.class() == r.class() && l.end() == r.addr {
			l.size += r.size
			u.spans = slices.Delete(u.spans, k, k+1)
		}
	}
	return nil
}

// start lists the segments when all events are undone.
func (u *undoer) start() (list []alloc.SegmentInfo, guessed int, err error) {
	addrs := make([]uint64, 0, len(u.live))
	for addr := range u.live {
		addrs = append(addrs, addr)
	}
	slices.Sort(addrs)
	if u.options.Backend == alloc.BackendStitching {
		for _, addr := range addrs {
			if i := u.at(addr); i == len(u.spans) || u.spans[i].addr > addr {
				return nil, 0, fmt.Errorf("the block at address %d was stitched before the record begins, of what is not told", addr)
			}
		}
	}
	for _, s := range u.spans {
		g := alloc.SegmentInfo{Addr: s.addr, Size: s.size, Stream: s.stream, Pool: alloc.PoolID(s.pool), Large: s.large, Expandable: s.expandable}
		if low, ok := u.begin(s); ok && low < s.addr {
			list = append(list, alloc.SegmentInfo{Addr: low, Stream: g.Stream, Pool: g.Pool, Large: g.Large, Expandable: true})
		}
		n := sort.Search(len(addrs), func(i int) bool { return addrs[i] >= s.end() })
		open, err := u.fill(&g, s, addrs[:n])
		if err != nil {
			return nil, 0, err
		}
		guessed += open
		addrs = addrs[n:]
		list = append(list, g)
	}
	if len(addrs) > 0 {
		return nil, 0, fmt.Errorf("the block at address %d lies outside of all segments", addrs[0])
	}
	slices.SortFunc(list, func(a, b alloc.SegmentInfo) int { return cmp.Compare(a.Addr, b.Addr) })
	return list, guessed, nil
}

// begin is where the range of addresses begins that s is the first mapped part
// of, as far as the record tells. It tells so once for each range, of spans in
// the order of their addresses.
func (u *undoer) begin(s span) (addr uint64, ok bool) {
	if !s.expandable {
		return 0, false
	}
	if len(u.ranges) > 0 {
		n := sort.Search(len(u.ranges), func(i int) bool { return u.ranges[i] > s.addr })
		if n == 0 || u.begun[u.ranges[n-1]] {
			return 0, false
		}
		u.begun[u.ranges[n-1]] = true
		return u.ranges[n-1], true
	}
	addr, ok = u.lowest[s.class()]
	delete(u.lowest, s.class()) // the first of the class only
	return addr, ok
}

// fill lists the blocks of s in g: the active ones at addrs, and between them
// inactive ones. guessed counts those of which the size is open.
func (u *undoer) fill(g *alloc.SegmentInfo, s span, addrs []uint64) (guessed int, err error) {
	at := s.addr
	inactive := func(end uint64) {
		if end > at {
			g.Blocks = append(g.Blocks, alloc.BlockInfo{Addr: at, Size: sim.Bytes(end - at), State: alloc.Inactive})
		}
	}
	for i, addr := range addrs {
		if addr < at {
			return 0, fmt.Errorf("the block at address %d overlaps the one before it or lies outside of all segments", addr)
		}
		inactive(addr)
		limit := s.end()
		if i+1 < len(addrs) {
			limit = addrs[i+1]
		}
		b := u.live[addr]
		if b.size == 0 {
			open := false
			if b.size, open, err = u.sizeOf(addr, b, limit, s); err != nil {
				return 0, err
			}
			if open {
				guessed++
			}
		}
		if addr+uint64(b.size) > limit || b.requested > b.size {
			return 0, fmt.Errorf("the block at address %d has %d bytes for a request of %d, but only %d up to the next; the options may be others", addr, b.size, b.requested, limit-addr)
		}
		g.Blocks = append(g.Blocks, alloc.BlockInfo{Addr: addr, Size: b.size, Requested: b.requested, State: alloc.Allocated})
		at = addr + uint64(b.size)
	}
	inactive(s.end())
	return guessed, nil
}

// sizeOf is the size of a block of which only the request is known. It ends
// where another begins while it lives: at limit, or where an allocation in its
// lifetime was put. Between its rounded request and there is either a rest that
// was too small to be split off or an inactive block, and those are larger than
// any such rest. open: a rest is possible, but nothing shows it.
func (u *undoer) sizeOf(addr uint64, b block, limit uint64, s span) (size sim.Bytes, open bool, err error) {
	least, most, err := u.options.BlockSizes(max(b.requested, 1))
	if err != nil {
		return 0, false, err
	}
	if s.expandable {
		most = least
	}
	if next, found := u.past.firstAfter(addr, min(limit, addr+uint64(min(most, s.size))+1), b.freed); found {
		limit = next
	}
	space := sim.Bytes(limit - addr)
	if space <= most {
		return max(space, least), false, nil
	}
	return least, most > least, nil
}

// timeline has the requests of a record by address, then by time.
type timeline []request

type request struct {
	addr  uint64
	index int
	alloc bool // else the end of a free
	size  sim.Bytes
}

func newTimeline(events []Event) timeline {
	var t timeline
	for i, e := range events {
		if e.Action == snapshot.Alloc || e.Action == snapshot.FreeCompleted {
			t = append(t, request{e.Addr, i, e.Action == snapshot.Alloc, e.Size})
		}
	}
	slices.SortFunc(t, func(a, b request) int { return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.index, b.index)) })
	return t
}

// from is where the requests at addr begin.
func (t timeline) from(addr uint64) timeline {
	return t[sort.Search(len(t), func(i int) bool { return t[i].addr >= addr }):]
}

// firstAfter is the lowest address behind addr, below end, at which something
// was allocated before event i.
func (t timeline) firstAfter(addr, end uint64, i int) (next uint64, found bool) {
	for _, x := range t.from(addr + 1) {
		if x.addr >= end {
			break
		}
		if x.alloc && x.index < i {
			return x.addr, true
		}
	}
	return 0, false
}

// lastIn is the size of the last request before event i at an address from
// start up to end.
func (t timeline) lastIn(start, end uint64, i int) (size sim.Bytes, found bool) {
	last := -1
	for _, x := range t.from(start) {
		if x.addr >= end {
			break
		}
		if x.index < i && x.index > last {
			last, size, found = x.index, x.size, true
		}
	}
	return size, found
}

// names numbers the streams and pools of a device.
type names struct {
	streams  map[int64]alloc.Stream // by handle
	pools    map[[2]int64]int
	segments []snapshot.Segment // of private pools, by address
}

func newNames(s *snapshot.Snapshot, device int) *names {
	n := &names{streams: make(map[int64]alloc.Stream), pools: map[[2]int64]int{{}: 0}}
	for _, g := range s.Segments {
		if g.Device == device && g.Pool != [2]int64{} {
			n.segments = append(n.segments, g)
		}
	}
	slices.SortFunc(n.segments, func(a, b snapshot.Segment) int { return cmp.Compare(a.Address, b.Address) })
	return n
}

func (n *names) stream(handle int64) alloc.Stream {
	s, ok := n.streams[handle]
	if !ok {
		s = alloc.Stream(len(n.streams))
		n.streams[handle] = s
	}
	return s
}

// pool is the number of the pool of what lies at addr.
func (n *names) pool(addr uint64) int {
	i := sort.Search(len(n.segments), func(i int) bool { return n.segments[i].Address > addr })
	if i == 0 || addr-n.segments[i-1].Address >= uint64(n.segments[i-1].Size) {
		return 0
	}
	id := n.segments[i-1].Pool
	p, ok := n.pools[id]
	if !ok {
		p = len(n.pools)
		n.pools[id] = p
	}
	return p
}
