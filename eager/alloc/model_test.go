package alloc

import (
	"cmp"
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
	searches [4]int64        // by pool
	whole    bool            // of the private pools: blocks are not split
	closed   bool
	stats    Stats
	costs    Costs
	drain    func() bool

	// Stitching only: ranges that each hold one stitched block.
	fused []*modelSegment
	most  int64 // bytes of them
}

type modelSegment struct {
	addr   uint64
	stream Stream
	pool   PoolID
	blocks []*modelBlock // of a region: what is mapped

	// Of a region.
	page, size int64
	mapped     map[int64]bool // by page
}

type modelBlock struct {
	addr      uint64
	size, req int64
	state     State
	uses      []bool
	events    int
	born      int64
	chunks    []uint64 // of a stitched block: addresses of its memory
}

type modelEvent struct {
	stream Stream
	event  Event
	block  *modelBlock
}

const modelStreams = 3

func newModel(o Options, divs [16]int64, capacity int64, env *fakeEnv, drain func() bool) *model {
	if capacity == 0 {
		capacity = 1 << 60
		o.PerProcessMemoryFraction = 0
	}
	return &model{o: o, divs: divs, capacity: capacity, env: env, drain: drain, nextAddr: 2 << 20, most: 3000 << 30}
}

func (m *model) limit() int64 {
	if m.o.PerProcessMemoryFraction == 0 {
		return 0
	}
	return int64(m.o.PerProcessMemoryFraction * float64(m.capacity))
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
	if m.stitches() && n > 1<<20 {
		return m.pages(n, 2<<20) * 2 << 20
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
			m.count(&s, b)
			if b.state == Inactive {
				if len(g.blocks) > 1 && g.page == 0 && !(m.stitches() && g.pool%2 == 1) {
					s.InactiveSplit.Current += b.size
					s.InactiveSplits.Current++
				}
			}
		}
		s.Reserved.Current += total
		if g.page > 0 {
			continue
		}
		s.Segments.Current++
		if total >= m.maxSplit() {
			s.OversizeSegments.Current++
		}
	}
	for _, g := range m.fused {
		m.count(&s, g.blocks[0])
	}
	now, then := statsOf(&s), statsOf(&m.stats)
	for i := range now {
		then[i].Current = now[i].Current
		then[i].Peak = max(then[i].Peak, now[i].Current)
	}
}

// count adds a block to the statistics of active ones.
func (m *model) count(s *Stats, b *modelBlock) {
	if b.state != Allocated && b.state != Pending {
		return
	}
	s.Active.Current += b.size
	s.ActiveBlocks.Current++
	s.Requested.Current += b.req
	if b.state == Pending {
		s.Pending.Current += b.size
		return
	}
	s.Allocations.Current++
	if b.size >= m.maxSplit() {
		s.OversizeAllocations.Current++
	}
	if m.stitches() {
		s.Allocated.Current += m.round(b.req)
	} else {
		s.Allocated.Current += b.size
	}
}

func statsOf(s *Stats) []*Stat {
	return []*Stat{&s.Allocated, &s.Active, &s.Requested, &s.Reserved, &s.InactiveSplit, &s.Segments,
		&s.Allocations, &s.ActiveBlocks, &s.InactiveSplits, &s.Pending, &s.OversizeAllocations, &s.OversizeSegments}
}

// each lists the inactive blocks of a pool and stream by (size, address).
func (m *model) each(p PoolID, s Stream) (list []*modelBlock) {
	for _, g := range m.segs {
		if g.pool != p || g.stream != s {
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
	for _, g := range slices.Concat(m.segs, m.fused) {
		if i := slices.Index(g.blocks, b); i >= 0 {
			return g, i
		}
	}
	panic("block in no segment")
}

func (m *model) isWhole(b *modelBlock) bool {
	g, _ := m.home(b)
	return g.page == 0 && len(g.blocks) == 1
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
	if g.page > 0 {
		m.retile(g)
		m.observe()
		return
	}
	if b.chunks != nil {
		for _, x := range m.primitives(b) {
			x.state, x.born = Inactive, m.searches[1]
		}
		m.observe()
		return
	}
	if i+1 < len(g.blocks) && m.mergeable(b, g.blocks[i+1]) {
		b.size += g.blocks[i+1].size
		g.blocks = slices.Delete(g.blocks, i+1, i+2)
	}
	if i > 0 && m.mergeable(b, g.blocks[i-1]) {
		b.addr = g.blocks[i-1].addr
		b.size += g.blocks[i-1].size
		g.blocks = slices.Delete(g.blocks, i-1, i)
	}
	b.born = m.searches[g.pool]
	m.observe()
}

func (m *model) poolOf(pair PoolID, r int64) PoolID {
	if r > 1<<20 {
		return pair + 1
	}
	return pair
}

func (m *model) search(p PoolID, r int64, s Stream) *modelBlock {
	m.searches[p]++
	stitch := m.stitches() && r >= 16<<20
	if stitch {
		if b := m.reusable(r, s); b != nil {
			return b
		}
	}
	b := m.bestFit(p, r, s)
	if b == nil && stitch {
		b = m.stitch(r, s)
	}
	return b
}

func (m *model) bestFit(p PoolID, r int64, s Stream) *modelBlock {
	list := m.each(p, s)
	list = slices.DeleteFunc(list, func(b *modelBlock) bool { return b.size < r })
	if len(list) == 0 {
		return nil
	}
	i := 0
	if m.o.ExpandableSegments {
		for i+1 < len(list) && m.extent(list[i+1]) < m.extent(list[i]) {
			i++
		}
	}
	b := list[i]
	oversize := b.size >= m.maxSplit()
	if oversize && (r < m.maxSplit() || b.size-r >= m.o.MaxNonSplitRoundingMB<<20) {
		return nil
	}
	return b
}

// extent is a free block and what is not mapped yet right behind it.
func (m *model) extent(b *modelBlock) int64 {
	g, _ := m.home(b)
	end := int64(b.addr-g.addr) + b.size
	if g.page == 0 || end%g.page != 0 || g.mapped[end/g.page] {
		return b.size
	}
	stop := g.size // or the next mapped page
	for p := range g.mapped {
		if p*g.page > end {
			stop = min(stop, p*g.page)
		}
	}
	return b.size + stop - end
}

// retile derives the free blocks of a region from its pages and active blocks.
func (m *model) retile(g *modelSegment) {
	active := slices.DeleteFunc(g.blocks, func(b *modelBlock) bool { return b.state == Inactive })
	slices.SortFunc(active, func(a, b *modelBlock) int { return int(a.addr) - int(b.addr) })
	g.blocks = nil
	last := int64(-1)
	for p := range g.mapped {
		last = max(last, p)
	}
	at, end := g.addr, g.addr+uint64((last+1)*g.page)
	for at < end {
		if len(active) > 0 && active[0].addr == at {
			g.blocks = append(g.blocks, active[0])
			at += uint64(active[0].size)
			active = active[1:]
			continue
		}
		// Up to the next active block or the end of what is mapped.
		stop := at
		for stop < end && g.mapped[int64(stop-g.addr)/g.page] {
			stop += uint64(g.page) - (stop-g.addr)%uint64(g.page)
		}
		if len(active) > 0 {
			stop = min(stop, active[0].addr)
		}
		if stop > at {
			g.blocks = append(g.blocks, &modelBlock{addr: at, size: int64(stop - at), state: Inactive})
			at = stop
			continue
		}
		at += uint64(g.page)
	}
}

// freeRun is how many bytes from at on are not in use, mapped or not.
func (m *model) freeRun(g *modelSegment, at uint64) int64 {
	end := g.addr + uint64(g.size)
	for _, b := range g.blocks {
		if b.state != Inactive && b.addr >= at {
			end = min(end, b.addr)
		}
	}
	return int64(end - at)
}

func (m *model) pages(n, page int64) int64 { return (n + page - 1) / page }

func (m *model) expand(p PoolID, r int64, s Stream) *modelBlock {
	m.observe()
	if m.limit() > 0 && m.segmentSize(r) > m.limit()-m.stats.Reserved.Current {
		return nil
	}
	page := int64(2 << 20)
	if p%2 == 1 {
		page = 20 << 20
	}
	if m.npu() {
		page = m.o.SegmentSizeMB << 20
		if p%2 == 1 {
			page = m.o.LargeSegmentSizeMB << 20
		}
	}
	var g *modelSegment
	var start uint64
	for _, x := range m.segs { // in the order of their addresses
		if g != nil || x.page == 0 || x.pool != p || x.stream != s {
			continue
		}
		for i := int64(0); i < x.size/page && g == nil; i++ {
			if x.mapped[i] || i > 0 && !x.mapped[i-1] {
				continue // not the first page of what is unmapped
			}
			at := x.addr + uint64(i*page)
			for _, b := range x.blocks {
				if b.state == Inactive && b.addr+uint64(b.size) == at {
					at = b.addr
					break
				}
			}
			if m.freeRun(x, at) >= r {
				g, start = x, at
			}
		}
	}
	if g == nil {
		if m.pages(r, page)*page > m.capacity-m.stats.Reserved.Current {
			return nil
		}
		size := min(m.capacity/8*9+m.capacity%8, 1<<50)
		size = m.pages(size, page) * page
		g = &modelSegment{addr: m.nextAddr, stream: s, pool: p, page: page, size: size, mapped: map[int64]bool{}}
		start = g.addr
		m.segs = append(m.segs, g)
		m.nextAddr += uint64(size)
	}
	for {
		// What is mapped at the place, and then the pages behind it.
		have := int64(0)
		for _, b := range g.blocks {
			if b.addr == start {
				have = b.size
			}
		}
		if have >= r {
			break
		}
		first := (int64(start-g.addr) + have) / page
		n := int64(0)
		for n*page < r-have && (first+n)*page < g.size && !g.mapped[first+n] {
			n++
		}
		if n == 0 || n*page > m.capacity-m.stats.Reserved.Current {
			return nil
		}
		for i := range n {
			g.mapped[first+i] = true
		}
		m.retile(g)
		m.observe()
		m.stats.DriverAllocs++
		m.costs.Maps += int(n)
		m.costs.DriverBytes += sim.Bytes(n * page)
	}
	for _, b := range g.blocks {
		if b.addr == start {
			return b
		}
	}
	return nil
}

func (m *model) fresh(p PoolID, r int64, s Stream) *modelBlock {
	if m.o.ExpandableSegments {
		return m.expand(p, r, s)
	}
	size := m.segmentSize(r)
	var with []*modelBlock
	if m.stitches() && r >= 16<<20 {
		free := int64(0)
		with = m.candidates(r, s)
		for _, b := range with {
			free += b.size
		}
		if free >= r {
			return m.stitch(r, s)
		}
		if free == 0 || r == 16<<20 {
			with = nil
		} else {
			size = r - free
		}
	}
	m.observe()
	if reserved := m.stats.Reserved.Current; size > m.capacity-reserved || m.limit() > 0 && size > m.limit()-reserved {
		return nil
	}
	b := &modelBlock{addr: m.nextAddr, size: size, state: Inactive}
	m.segs = append(m.segs, &modelSegment{addr: m.nextAddr, stream: s, pool: p, blocks: []*modelBlock{b}})
	for end := m.nextAddr + uint64(size); m.nextAddr < end; {
		m.nextAddr += 2 << 20
	}
	m.stats.DriverAllocs++
	m.costs.DriverBytes += sim.Bytes(size)
	if m.stitches() && p == 1 {
		m.costs.Maps += int(size >> 21)
	} else {
		m.costs.DriverAllocs++
	}
	if with != nil {
		return m.fuse(append(with, b), s)
	}
	return b
}

func (m *model) stitches() bool { return m.o.Backend == "stitching" }

// primitives are the blocks that a stitched block is made of.
func (m *model) primitives(f *modelBlock) (list []*modelBlock) {
	for _, g := range m.segs {
		for _, b := range g.blocks {
			if slices.Contains(f.chunks, b.addr) {
				list = append(list, b)
			}
		}
	}
	return list
}

// covered tells whether a stitched block lies over b; the first chunk decides.
func (m *model) covered(b *modelBlock) bool {
	return slices.ContainsFunc(m.fused, func(g *modelSegment) bool { return slices.Contains(g.blocks[0].chunks, b.addr) })
}

func (m *model) mergeable(b, neighbour *modelBlock) bool {
	return neighbour.state == Inactive && !m.covered(b) && !m.covered(neighbour)
}

// reusable is the free stitched block of exactly that size.
func (m *model) reusable(r int64, s Stream) *modelBlock {
	for _, g := range m.fused { // in the order of their addresses
		f := g.blocks[0]
		used := slices.ContainsFunc(m.primitives(f), func(b *modelBlock) bool { return b.state != Inactive })
		if f.state == Inactive && g.stream == s && f.size == r && !used {
			return f
		}
	}
	return nil
}

// candidates may become part of a stitched block, largest first.
func (m *model) candidates(r int64, s Stream) []*modelBlock {
	list := slices.DeleteFunc(m.each(1, s), func(b *modelBlock) bool { return b.size >= r || b.size >= m.maxSplit() })
	slices.Reverse(list)
	return list
}

func (m *model) stitch(r int64, s Stream) *modelBlock {
	list := m.candidates(r, s)
	sum := int64(0)
	for i, b := range list {
		if sum += b.size; sum < r {
			continue
		}
		need := r - (sum - b.size)
		last := i
		for last+1 < len(list) && list[last+1].size >= need {
			last++
		}
		b = list[last]
		if b.size > need {
			g, at := m.home(b)
			rest := &modelBlock{addr: b.addr + uint64(need), size: b.size - need, state: Inactive, born: m.searches[1]}
			b.size = need
			g.blocks = slices.Insert(g.blocks, at+1, rest)
		}
		return m.fuse(append(list[:i:i], b), s)
	}
	return nil
}

func (m *model) fuse(list []*modelBlock, s Stream) *modelBlock {
	f := &modelBlock{addr: m.nextAddr}
	for _, b := range list {
		for at := int64(0); at < b.size; at += 2 << 20 {
			f.chunks = append(f.chunks, b.addr+uint64(at))
			f.size += 2 << 20
			m.nextAddr += 2 << 20
			m.costs.Maps++
		}
	}
	m.fused = append(m.fused, &modelSegment{addr: f.addr, stream: s, pool: 1, blocks: []*modelBlock{f}})
	for _, b := range list {
		b.state = lent
	}
	total := int64(0)
	for _, g := range m.fused {
		total += g.blocks[0].size
	}
	if total > m.most {
		f.state = Allocated
		m.unfuse(func(*modelBlock) bool { return true })
	}
	return f
}

// unfuse drops stitched blocks that are not active, and merges what was apart
// because of them.
func (m *model) unfuse(drop func(*modelBlock) bool) {
	m.fused = slices.DeleteFunc(m.fused, func(g *modelSegment) bool {
		f := g.blocks[0]
		if f.state != Inactive || !drop(f) {
			return false
		}
		m.costs.Unmaps += len(f.chunks)
		m.costs.DeviceSync = true
		return true
	})
	for _, g := range m.segs {
		for i := 1; g.pool == 1 && i < len(g.blocks); {
			a, b := g.blocks[i-1], g.blocks[i]
			if a.state == Inactive && m.mergeable(a, b) {
				a.size += b.size
				a.born = m.searches[1]
				g.blocks = slices.Delete(g.blocks, i, i+1)
			} else {
				i++
			}
		}
	}
}

func (m *model) release(b *modelBlock) {
	g, _ := m.home(b)
	if m.stitches() {
		m.unfuse(func(f *modelBlock) bool { return slices.Contains(f.chunks, b.addr) })
	}
	m.segs = slices.DeleteFunc(m.segs, func(x *modelSegment) bool { return x == g })
	m.stats.DriverFrees++
	if m.stitches() && g.pool == 1 {
		m.costs.Unmaps += int(b.size >> 21)
		m.costs.DeviceSync = true
	} else {
		m.costs.DriverFrees++
	}
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
			for _, b := range m.each(1, s) {
				if m.isWhole(b) {
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

func (m *model) oversize(p PoolID, r int64, s Stream) bool {
	if m.o.MaxSplitSizeMB == 0 {
		return false
	}
	if m.npu() {
		m.costs.DeviceSync = true
	}
	key := max(r, m.maxSplit())
	list := slices.DeleteFunc(m.each(p, s), func(b *modelBlock) bool { return !m.isWhole(b) })
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
			i := slices.IndexFunc(m.waiting, func(e modelEvent) bool {
				if g, _ := m.home(e.block); m.o.EventPolicy == "wait-at-reuse" {
					return g.stream == s
				}
				return e.stream == s
			})
			if i < 0 {
				break
			}
			m.endEvent(i)
		}
	}
	if m.stitches() {
		m.unfuse(func(*modelBlock) bool { return true })
	}
	for _, g := range slices.Clone(m.segs) {
		if g.pool > 1 && !m.closed {
			continue
		}
		if g.page > 0 {
			m.shrink(g)
			continue
		}
		if len(g.blocks) == 1 && g.blocks[0].state == Inactive {
			m.release(g.blocks[0])
		}
	}
}

func (m *model) shrink(g *modelSegment) {
	before := len(g.mapped)
	for _, b := range g.blocks {
		if b.state != Inactive {
			continue
		}
		from := m.pages(int64(b.addr-g.addr), g.page)
		to := (int64(b.addr-g.addr) + b.size) / g.page
		if from < to {
			m.stats.DriverFrees++
			m.costs.DeviceSync = true
		}
		for p := from; p < to; p++ {
			m.costs.Unmaps++
			delete(g.mapped, p)
		}
	}
	m.retile(g)
	if before > 0 && len(g.mapped) == 0 {
		m.segs = slices.DeleteFunc(m.segs, func(x *modelSegment) bool { return x == g })
	}
	m.observe()
}

// overtake ends the oldest free of a block of s that waits.
func (m *model) overtake(s Stream) bool {
	for i, e := range m.waiting {
		if g, _ := m.home(e.block); g.stream != s {
			continue
		}
		for e.block.events > 0 {
			m.costs.Waits++
			m.env.Wait(s, m.waiting[i].event)
			m.endEvent(i)
		}
		return true
	}
	return false
}

// drained frees what is held until the request is served.
func (m *model) drained(p PoolID, r int64, s Stream) *modelBlock {
	for m.drain() {
		if b := m.search(p, r, s); b != nil {
			return b
		}
	}
	return nil
}

func (m *model) malloc(pair PoolID, n int64, s Stream) (*modelBlock, *OOM) {
	lazy, waits := m.o.EventPolicy == "query-lazy", m.o.EventPolicy == "wait-at-reuse"
	if !waits && (!lazy || len(m.waiting) > 512) {
		m.poll()
	}
	r := m.round(n)
	p := m.poolOf(pair, r)
	b := m.search(p, r, s)
	if b == nil && lazy {
		m.poll()
		b = m.search(p, r, s)
	}
	cached := true // not from the driver
	for b == nil && waits && m.overtake(s) {
		b = m.search(p, r, s)
	}
	if b == nil && m.o.Drain == "early" {
		b = m.drained(p, r, s)
	}
	rejected := false
	if b == nil {
		cached = false
		m.gc()
		m.observe()
		if left := min(m.capacity, cmp.Or(m.limit(), m.capacity)) - m.stats.Reserved.Current; m.o.ThrowOnNPUMallocOOM && m.segmentSize(r) > left {
			rejected = true
			m.stats.Rejections++
		} else {
			b = m.fresh(p, r, s)
		}
	}
	if b == nil && !rejected {
		if m.o.Drain == "late" {
			b = m.drained(p, r, s)
			cached = b != nil
		}
		if b == nil && m.oversize(p, r, s) {
			b = m.fresh(p, r, s)
		}
		if b == nil {
			m.empty()
			m.stats.Retries++
			b = m.fresh(p, r, s)
		}
	}
	if b == nil {
		m.stats.OOMs++
		largest := int64(0)
		for _, f := range m.each(p, s) {
			largest = f.size
		}
		var theirs int64
		var who Stream
		for _, other := range []Stream{2, 1, 0} {
			for _, f := range m.each(p, other) {
				if other != s && f.size >= theirs {
					theirs, who = f.size, other
				}
			}
		}
		return nil, &OOM{
			OtherFree: sim.Bytes(theirs), OtherStream: who,
			Requested: sim.Bytes(n), Rounded: sim.Bytes(r), Segment: sim.Bytes(m.segmentSize(r)),
			Allocated: sim.Bytes(m.stats.Allocated.Current), Active: sim.Bytes(m.stats.Active.Current),
			Reserved: sim.Bytes(m.stats.Reserved.Current), Capacity: sim.Bytes(m.capacity), Limit: sim.Bytes(m.limit()),
			LargestFree: sim.Bytes(largest), Retries: m.stats.Retries,
		}
	}
	if b.chunks != nil {
		for _, x := range m.primitives(b) {
			x.state = lent
		}
		b.state, b.req, b.uses = Allocated, n, make([]bool, modelStreams)
		m.observe()
		return b, nil
	}
	g, i := m.home(b)
	whole := p > 1 && m.whole
	if g.page > 0 {
		addr, size := b.addr, b.size
		if front := m.misaligned(addr); m.npu() && r >= 2<<20 && front > 0 && size >= front+r {
			addr, size = addr+uint64(front), size-front
		}
		if !whole {
			size = r
		}
		b = &modelBlock{addr: addr, size: size, state: Allocated}
		g.blocks = append(g.blocks, b)
		m.retile(g)
		b.req, b.uses = n, make([]bool, modelStreams)
		m.observe()
		return b, nil
	}
	split := b.size-r >= 512
	if p%2 == 1 {
		split = b.size-r > 1<<20 && r < m.maxSplit()
		if m.stitches() && !m.o.FreshSegmentSplit && !cached {
			split = false
		}
	}
	if split && !whole {
		tail := &modelBlock{addr: b.addr + uint64(r), size: b.size - r, state: Inactive, born: m.searches[p]}
		b.size = r
		g.blocks = slices.Insert(g.blocks, i+1, tail)
	}
	b.state, b.req, b.uses = Allocated, n, make([]bool, modelStreams)
	m.observe()
	return b, nil
}

// misaligned is how far addr is from the next aligned address.
func (m *model) misaligned(addr uint64) int64 {
	n := int64(0)
	for m.o.BaseAddrAlignedKB > 0 && (addr+uint64(n))%uint64(m.o.BaseAddrAlignedKB<<10) != 0 {
		n += 512
	}
	return n
}

func (m *model) record(b *modelBlock, s Stream) {
	if g, _ := m.home(b); g.stream != s || m.npu() {
		b.uses[s] = true
	}
}

func (m *model) erase(b *modelBlock, used, waiting Stream) {
	if g, _ := m.home(b); g.stream != waiting {
		return
	}
	b.uses[used] = false
	i := slices.IndexFunc(m.waiting, func(e modelEvent) bool { return e.block == b && e.stream == used })
	if i >= 0 {
		m.endEvent(i)
	}
}

func (m *model) free(b *modelBlock) {
	for s, used := range b.uses {
		if used {
			b.events++
			m.costs.Records++
			m.waiting = append(m.waiting, modelEvent{Stream(s), m.env.Record(Stream(s)), b})
		}
	}
	if b.events == 0 {
		m.inactivate(b)
		return
	}
	b.state = Pending
	m.observe()
}

func (m *model) segments() (list []SegmentInfo) {
	for _, g := range m.segs {
		at := uint64(0)
		for _, b := range g.blocks {
			if at != b.addr || at == 0 {
				list = append(list, SegmentInfo{Addr: b.addr, Stream: g.stream, Large: g.pool%2 == 1, Expandable: g.page > 0, Pool: g.pool / 2 * 2})
			}
			info := &list[len(list)-1]
			info.Size += sim.Bytes(b.size)
			state, req, whole := b.state, b.req, uint64(0)
			for _, f := range m.fused {
				if f := f.blocks[0]; state == lent && f.state != Inactive && slices.Contains(f.chunks, b.addr) {
					state, whole = f.state, f.addr
					req = min(max(0, f.req-int64(slices.Index(f.chunks, b.addr))<<21), b.size)
				}
			}
			info.Blocks = append(info.Blocks, BlockInfo{0, b.addr, sim.Bytes(b.size), sim.Bytes(req), state, whole})
			at = b.addr + uint64(b.size)
		}
	}
	return list
}
