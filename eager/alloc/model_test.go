package alloc

import (
	"math"
	"slices"

	"smartswap/sim"
)

// model is the caching allocator again, as plainly as possible: segments are
// slices of blocks, every search looks at all of them, statistics are counted
// from the blocks after each change. It shares nothing with the allocator but
// the types that both report in.
type model struct {
	o        Options
	divs     [16]int64
	capacity int64
	env      *fakeEnv
	segs     []*modelSegment
	waiting  []modelEvent
	nextAddr uint64
	done     []*modelSegment // last segments that had a block become inactive
	searches [2]int64        // small, large
	stats    Stats
	costs    Costs
}

type modelSegment struct {
	addr   uint64
	stream Stream
	large  bool
	blocks []*modelBlock
}

type modelBlock struct {
	addr      uint64
	size, req int64
	state     State
	uses      []bool
	events    int
	born      int64
}

type modelEvent struct {
	stream Stream
	event  Event
	block  *modelBlock
}

const modelStreams = 3

func newModel(o Options, divs [16]int64, capacity int64, env *fakeEnv) *model {
	if capacity == 0 {
		capacity = 1 << 60
		o.MemoryFraction = 0
	}
	return &model{o: o, divs: divs, capacity: capacity, env: env, nextAddr: 2 << 20}
}

func (m *model) limit() int64 {
	if m.o.MemoryFraction == 0 {
		return 0
	}
	return int64(m.o.MemoryFraction * float64(m.capacity))
}

func (m *model) npu() bool { return m.o.Dialect == "torch_npu" }

func (m *model) round(n int64) int64 {
	if m.npu() {
		n += 32
	}
	interval, p := 0, int64(1)
	for p*2 <= n {
		p *= 2
		if p > 1<<20 && interval < 15 {
			interval++
		}
	}
	d := m.divs[interval]
	if d < 2 || n <= 512*d {
		for p = 512; p < n; p += 512 * max(1, (n-p)/512) {
		}
		return p
	}
	for step := p / d; p < n; p += step {
	}
	return p
}

func (m *model) segmentSize(r int64) int64 {
	if r <= 1<<20 {
		return 2 << 20
	}
	if r < 10<<20 {
		return m.o.LargeSegmentSizeMB << 20
	}
	return (r + 2<<20 - 1) / (2 << 20) * (2 << 20)
}

func (m *model) maxSplit() int64 {
	if m.o.MaxSplitSizeMB == 0 {
		return math.MaxInt64
	}
	return m.o.MaxSplitSizeMB << 20
}

// observe counts everything from the blocks and lifts the peaks.
func (m *model) observe() {
	var s Stats
	for _, g := range m.segs {
		total := int64(0)
		for _, b := range g.blocks {
			total += b.size
			switch b.state {
			case Allocated:
				s.Allocated.Current += b.size
				s.Allocations.Current++
				if b.size >= m.maxSplit() {
					s.OversizeAllocations.Current++
				}
				fallthrough
			case Pending:
				s.Active.Current += b.size
				s.ActiveBlocks.Current++
				s.Requested.Current += b.req
			case Inactive:
				if len(g.blocks) > 1 {
					s.InactiveSplit.Current += b.size
					s.InactiveSplits.Current++
				}
			}
		}
		s.Reserved.Current += total
		s.Segments.Current++
		if total >= m.maxSplit() {
			s.OversizeSegments.Current++
		}
	}
	now, then := statsOf(&s), statsOf(&m.stats)
	for i := range now {
		then[i].Current = now[i].Current
		then[i].Peak = max(then[i].Peak, now[i].Current)
	}
}

func statsOf(s *Stats) []*Stat {
	return []*Stat{&s.Allocated, &s.Active, &s.Requested, &s.Reserved, &s.InactiveSplit, &s.Segments,
		&s.Allocations, &s.ActiveBlocks, &s.InactiveSplits, &s.OversizeAllocations, &s.OversizeSegments}
}

// each lists the inactive blocks of a pool and stream by (size, address).
func (m *model) each(large bool, s Stream) (list []*modelBlock) {
	for _, g := range m.segs {
		if g.large != large || g.stream != s {
			continue
		}
		for _, b := range g.blocks {
			if b.state == Inactive {
				list = append(list, b)
			}
		}
	}
	slices.SortFunc(list, func(a, b *modelBlock) int {
		if a.size != b.size {
			return int(a.size - b.size)
		}
		return int(a.addr) - int(b.addr)
	})
	return list
}

// home is the segment of b and b's place in it.
func (m *model) home(b *modelBlock) (*modelSegment, int) {
	for _, g := range m.segs {
		if i := slices.Index(g.blocks, b); i >= 0 {
			return g, i
		}
	}
	panic("block in no segment")
}

func (m *model) whole(b *modelBlock) bool {
	g, _ := m.home(b)
	return len(g.blocks) == 1
}

func (m *model) poll() {
	for s := range Stream(modelStreams) {
		for {
			i := slices.IndexFunc(m.waiting, func(e modelEvent) bool { return e.stream == s })
			if i < 0 {
				break
			}
			m.costs.Polls++
			if !m.env.Done(m.waiting[i].event) {
				break
			}
			m.endEvent(i)
		}
	}
}

func (m *model) endEvent(i int) {
	b := m.waiting[i].block
	m.waiting = slices.Delete(m.waiting, i, i+1)
	b.events--
	if b.events == 0 {
		m.inactivate(b)
	}
}

func (m *model) inactivate(b *modelBlock) {
	g, i := m.home(b)
	b.state, b.req = Inactive, 0
	m.done = append(m.done, g)
	if i+1 < len(g.blocks) && g.blocks[i+1].state == Inactive {
		b.size += g.blocks[i+1].size
		g.blocks = slices.Delete(g.blocks, i+1, i+2)
	}
	if i > 0 && g.blocks[i-1].state == Inactive {
		b.addr = g.blocks[i-1].addr
		b.size += g.blocks[i-1].size
		g.blocks = slices.Delete(g.blocks, i-1, i)
	}
	b.born = m.searches[index(g.large)]
	m.observe()
}

func index(large bool) int {
	if large {
		return 1
	}
	return 0
}

func (m *model) search(r int64, s Stream) *modelBlock {
	large := r > 1<<20
	m.searches[index(large)]++
	for _, b := range m.each(large, s) {
		if b.size < r {
			continue
		}
		oversize := b.size >= m.maxSplit()
		if oversize && r < m.maxSplit() {
			return nil
		}
		if oversize && b.size-r >= m.o.MaxNonSplitRoundingMB<<20 {
			return nil
		}
		return b
	}
	return nil
}

func (m *model) fresh(r int64, s Stream) *modelBlock {
	size := m.segmentSize(r)
	m.observe()
	if reserved := m.stats.Reserved.Current; size > m.capacity-reserved || m.limit() > 0 && size > m.limit()-reserved {
		return nil
	}
	b := &modelBlock{addr: m.nextAddr, size: size, state: Inactive}
	m.segs = append(m.segs, &modelSegment{m.nextAddr, s, r > 1<<20, []*modelBlock{b}})
	for end := m.nextAddr + uint64(size); m.nextAddr < end; {
		m.nextAddr += 2 << 20
	}
	m.stats.DriverAllocs++
	m.costs.DriverAllocs++
	m.costs.DriverBytes += sim.Bytes(size)
	return b
}

func (m *model) release(b *modelBlock) {
	g, _ := m.home(b)
	m.segs = slices.DeleteFunc(m.segs, func(x *modelSegment) bool { return x == g })
	m.stats.DriverFrees++
	m.costs.DriverFrees++
	m.observe()
}

func (m *model) gc() {
	t := m.o.GarbageCollectionThreshold
	if t == 0 || m.limit() == 0 {
		return
	}
	target := m.stats.Reserved.Current - int64(t*float64(m.limit()))
	if target <= 0 {
		return
	}
	synced := false
	for freed := int64(0); freed < target; {
		var candidates []*modelBlock
		sum := 0.0
		for s := range Stream(modelStreams) {
			for _, b := range m.each(true, s) {
				if m.whole(b) {
					candidates = append(candidates, b)
					sum += float64(m.searches[1] - b.born)
				}
			}
		}
		if len(candidates) == 0 {
			return
		}
		if !synced && m.npu() {
			m.costs.DeviceSync = true
		}
		synced = true
		for _, b := range candidates {
			if float64(m.searches[1]-b.born) >= sum/float64(len(candidates)) {
				freed += b.size
				m.release(b)
			}
		}
	}
}

func (m *model) oversize(r int64, s Stream) bool {
	if m.o.MaxSplitSizeMB == 0 {
		return false
	}
	if m.npu() {
		m.costs.DeviceSync = true
	}
	key := max(r, m.maxSplit())
	list := m.each(r > 1<<20, s)
	for _, b := range list {
		if b.size >= key {
			m.release(b)
			return true
		}
	}
	sum := int64(0)
	for _, b := range slices.Backward(list) {
		if b.size < m.maxSplit() || sum >= key {
			break
		}
		sum += b.size
		m.release(b)
	}
	return sum >= key
}

func (m *model) empty() {
	if m.npu() {
		m.costs.DeviceSync = true
	}
	m.stats.Syncs++
	if len(m.waiting) > 0 {
		m.costs.Sync = true
	}
	for s := range Stream(modelStreams) {
		for {
			i := slices.IndexFunc(m.waiting, func(e modelEvent) bool { return e.stream == s })
			if i < 0 {
				break
			}
			m.endEvent(i)
		}
	}
	for _, g := range slices.Clone(m.segs) {
		if len(g.blocks) == 1 && g.blocks[0].state == Inactive {
			m.release(g.blocks[0])
		}
	}
}

func (m *model) malloc(n int64, s Stream) (*modelBlock, *OOM) {
	lazy := m.o.EventPolicy == "query-lazy"
	if !lazy || len(m.waiting) > 512 {
		m.poll()
	}
	r := m.round(n)
	b := m.search(r, s)
	if b == nil && lazy {
		m.poll()
		b = m.search(r, s)
	}
	if b == nil {
		m.gc()
		b = m.fresh(r, s)
	}
	if b == nil && m.oversize(r, s) {
		b = m.fresh(r, s)
	}
	if b == nil {
		m.empty()
		m.stats.Retries++
		b = m.fresh(r, s)
	}
	if b == nil {
		m.stats.OOMs++
		largest := int64(0)
		for _, f := range m.each(r > 1<<20, s) {
			largest = f.size
		}
		return nil, &OOM{
			Requested: sim.Bytes(n), Rounded: sim.Bytes(r), Segment: sim.Bytes(m.segmentSize(r)),
			Allocated: sim.Bytes(m.stats.Allocated.Current), Active: sim.Bytes(m.stats.Active.Current),
			Reserved: sim.Bytes(m.stats.Reserved.Current), Capacity: sim.Bytes(m.capacity), Limit: sim.Bytes(m.limit()),
			LargestFree: sim.Bytes(largest), Retries: m.stats.Retries,
		}
	}
	g, i := m.home(b)
	split := b.size-r >= 512
	if g.large {
		split = b.size-r > 1<<20 && r < m.maxSplit()
	}
	if split {
		tail := &modelBlock{addr: b.addr + uint64(r), size: b.size - r, state: Inactive, born: m.searches[index(g.large)]}
		b.size = r
		g.blocks = slices.Insert(g.blocks, i+1, tail)
	}
	b.state, b.req, b.uses = Allocated, n, make([]bool, modelStreams)
	m.observe()
	return b, nil
}

func (m *model) record(b *modelBlock, s Stream) {
	if g, _ := m.home(b); g.stream != s || m.npu() {
		b.uses[s] = true
	}
}

func (m *model) erase(b *modelBlock, used, waiting Stream) {
	if g, _ := m.home(b); g.stream == waiting {
		b.uses[used] = false
	}
}

func (m *model) free(b *modelBlock) {
	b.state = Pending
	m.observe()
	for s, used := range b.uses {
		if used {
			b.events++
			m.costs.Records++
			m.waiting = append(m.waiting, modelEvent{Stream(s), m.env.Record(Stream(s)), b})
		}
	}
	if b.events == 0 {
		m.inactivate(b)
	}
}

func (m *model) segments() (list []SegmentInfo) {
	for _, g := range m.segs {
		info := SegmentInfo{Addr: g.addr, Stream: g.stream, Large: g.large}
		for _, b := range g.blocks {
			info.Size += sim.Bytes(b.size)
			info.Blocks = append(info.Blocks, BlockInfo{0, b.addr, sim.Bytes(b.size), sim.Bytes(b.req), b.state})
		}
		list = append(list, info)
	}
	return list
}
