package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"smartswap/eager/alloc"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// Result compares a record with what the model did with its requests.
type Result struct {
	Allocs, Frees, OOMs int   // requests in the record
	Streams, Pools      int   // that they use
	StartUS             int64 // time of the first event; 0 = not told
	Recorded, Model     Driver
	// Stats are the model's at the end; peaks are those since the start. Costs
	// are what it did since then; polls for events are not meant.
	Stats   alloc.Stats
	Costs   alloc.Costs
	Samples []Sample
	First   *Difference // nil if the model did what was recorded
}

// Driver sums up requests to the driver.
type Driver struct {
	Allocs, Frees, Maps, Unmaps  int
	AllocBytes, FreeBytes        sim.Bytes // by Allocs and Frees
	MapBytes, UnmapBytes         sim.Bytes
	Start, Peak, Final, reserved sim.Bytes // reserved bytes
}

// count adds one event.
func (d *Driver) count(a snapshot.Action, size sim.Bytes) {
	switch a {
	case snapshot.SegmentAlloc:
		d.Allocs++
		d.AllocBytes += size
		d.reserved += size
	case snapshot.SegmentMap:
		d.Maps++
		d.MapBytes += size
		d.reserved += size
	case snapshot.SegmentFree:
		d.Frees++
		d.FreeBytes += size
		d.reserved -= size
	case snapshot.SegmentUnmap:
		d.Unmaps++
		d.UnmapBytes += size
		d.reserved -= size
	}
	d.Peak, d.Final = max(d.Peak, d.reserved), d.reserved
}

// Sample is the model's state after an event.
type Sample struct {
	Event                                           int // index in the file's trace
	TimeUS                                          int64
	Reserved, Allocated, Active, Requested, Largest sim.Bytes // Largest inactive block of any pool and stream
}

// Difference is the first event at which the model does something else than the
// record. What comes after it is still replayed, but proves little.
type Difference struct {
	Event           int // index in the file's trace
	What            string
	Recorded, Model string
}

// String is the difference in one line.
func (d *Difference) String() string {
	return fmt.Sprintf("event %d, %s: recorded %s, model %s", d.Event, d.What, d.Recorded, d.Model)
}

// Replay hands the requests of h to an allocator of that set-up and compares
// what it asks of the driver, and which blocks it hands out, with the record.
// Frees that wait for other streams are completed when the record says so.
// samples is the number of samples to take, at equal numbers of events. An error
// means that the model cannot follow at all: options or backend without
// segments, a state it does not accept, or sums beyond its bounds. O(n log n),
// and linear in the number of frees that wait at each completion.
//
// New segments get the recorded addresses, but those of a record of the model's
// own that begins with the run, which its own arithmetic must arrive at.
//
// The files of frameworks do not tell the device's capacity, so the model never
// runs out of memory: segments that were given back are taken for an emptied
// cache. A record of a garbage collection, which gives only some back, therefore
// differs. With the model's own records it makes room when the recorded one did,
// and fails where that failed. What no history tells are the mappings that the
// stitching allocator gives up when the program empties its cache.
func Replay(h *History, setup Setup, samples int) (*Result, error) {
	o := setup.Options
	o.EventPolicy = alloc.EventQuery // when frees are over is in the record
	p := &replayer{h: h, r: &Result{}, own: setup.Own, options: o, blocks: make(map[uint64]held), pending: make(map[uint64]held), waits: make(map[uint64]uint64)}
	pools := 1
	for _, e := range h.Events {
		p.waiting, pools = max(p.waiting, e.Stream+1), max(pools, e.Pool+1)
	}
	for _, g := range h.Start {
		p.waiting, pools = max(p.waiting, g.Stream+1), max(pools, int(g.Pool)+1)
	}
	p.r.Streams, p.r.Pools = int(p.waiting), pools
	if len(h.Events) > 0 {
		p.r.StartUS = h.Events[0].TimeUS
	}
	a, err := alloc.New(o, setup.Capacity, p)
	if err != nil {
		return nil, err
	}
	m, ok := a.(model)
	if !ok {
		return nil, noSegments(o)
	}
	p.m = m
	p.pools = append(p.pools, alloc.DefaultPool)
	for range pools - 1 {
		p.pools = append(p.pools, m.NewPool(false))
	}
	if err := p.restore(); err != nil {
		return nil, fmt.Errorf("the state at the start: %w", err)
	}
	m.Observe(p.observe)
	p.pendingAtStart()
	for i := range h.Events {
		if err := p.step(i); err != nil {
			return nil, err
		}
		if samples > 0 && ((i+1)*samples/len(h.Events) > i*samples/len(h.Events)) {
			p.sample(&h.Events[i])
		}
	}
	p.catchUp()
	p.compareDriver(len(h.Events))
	p.compareFinal()
	p.r.Stats, p.r.Costs = m.Stats(), m.TakeCosts()
	return p.r, nil
}

// noSegments refuses an allocator of which there is nothing to rebuild or replay.
func noSegments(o alloc.Options) error {
	return fmt.Errorf("backend = %q has no segments to replay; allowed: %q %q", o.Backend, alloc.BackendCaching, alloc.BackendStitching)
}

// model is what the replay needs of an allocator.
type model interface {
	alloc.Allocator
	alloc.Reclaimer
	alloc.Inspector
	alloc.Restorer
	alloc.PrivatePools
}

// driverAction tells whether an event is one between allocator and driver.
func driverAction(a snapshot.Action) bool {
	switch a {
	case snapshot.SegmentAlloc, snapshot.SegmentFree, snapshot.SegmentMap, snapshot.SegmentUnmap:
		return true
	}
	return false
}

// replayer drives the model. It is also the model's Env: a block whose free is
// completed later waits for a stream on which nothing is ever over, until the
// record completes it.
type replayer struct {
	h       *History
	r       *Result
	m       model
	own     bool
	options alloc.Options
	pools   []alloc.PoolID  // the model's, by the record's number
	blocks  map[uint64]held // allocated ones, by recorded address

	waiting alloc.Stream      // the stream to wait for
	pending map[uint64]held   // freed blocks that wait, by recorded address
	waits   map[uint64]uint64 // recorded address of those, by the model's

	// inside are the events while room was made for the next request, all but
	// those of the driver: the model has them come about.
	inside []int

	expected []Event // of record and model between two requests
	got      []Event
}

// held is a block of the model.
type held struct {
	block  alloc.Block
	stream alloc.Stream
}

// Record implements alloc.Env.
func (p *replayer) Record(alloc.Stream) alloc.Event { return 0 }

// Done implements alloc.Env.
func (p *replayer) Done(alloc.Event) bool { return false }

// Drain implements alloc.Drainer: the frees of the recorded one, of which the
// last made the request fit or none did.
func (p *replayer) Drain() bool {
	last := -1
	for k, i := range p.inside {
		if e := &p.h.Events[i]; e.Action == snapshot.FreeRequested || !e.Making {
			last = k
		}
	}
	if last < 0 {
		return false
	}
	drained := p.inside[:last+1]
	p.inside = p.inside[last+1:]
	p.follow(drained)
	return true
}

// follow replays frees and their completions.
func (p *replayer) follow(events []int) {
	for _, i := range events {
		if p.h.Events[i].Action == snapshot.FreeRequested {
			p.free(i)
		} else {
			p.complete(i)
		}
	}
}

// observe is the model's observer.
func (p *replayer) observe(t alloc.Trace) {
	act := actionOf(t.Action)
	if driverAction(act) {
		p.got = append(p.got, Event{Action: act, Addr: t.Addr, Size: t.Size, Stream: t.Stream})
		p.r.Model.count(act, t.Size)
	}
	if addr, ok := p.waits[t.Addr]; ok && act == snapshot.FreeCompleted {
		delete(p.waits, t.Addr)
		delete(p.pending, addr)
	}
}

// restore puts the model into the state at the start.
func (p *replayer) restore() error {
	start := slices.Clone(p.h.Start)
	for i := range start {
		start[i].Pool = p.pools[start[i].Pool]
	}
	if err := p.m.Restore(start); err != nil {
		return err
	}
	for _, g := range p.m.Segments() {
		for _, b := range g.Blocks {
			if b.State == alloc.Allocated {
				p.blocks[b.Addr] = held{b.Block, g.Stream}
			}
		}
	}
	for _, d := range []*Driver{&p.r.Recorded, &p.r.Model} {
		d.Start = sim.Bytes(p.m.Stats().Reserved.Current)
		d.reserved, d.Peak, d.Final = d.Start, d.Start, d.Start
	}
	return nil
}

// pendingAtStart frees the blocks that were given up before the record begins:
// the first that it tells of them is that their free is complete.
func (p *replayer) pendingAtStart() {
	told := make(map[uint64]bool)
	for i := range p.h.Events {
		e := &p.h.Events[i]
		if _, ok := p.blocks[e.Addr]; !ok || told[e.Addr] || driverAction(e.Action) {
			continue
		}
		told[e.Addr] = true
		if e.Action == snapshot.FreeCompleted {
			p.giveUp(e.Addr, true)
		}
	}
}

// step replays event i.
func (p *replayer) step(i int) error {
	e := &p.h.Events[i]
	switch e.Action {
	case snapshot.SegmentAlloc, snapshot.SegmentMap:
		p.expect(e)
	case snapshot.SegmentFree, snapshot.SegmentUnmap:
		if !p.making(e) && (i == 0 || p.h.Events[i-1].Action != e.Action) { // the first of a run
			p.compareDriver(i)
			p.m.EmptyCache()
		}
		p.expect(e)
	case snapshot.OOM:
		p.r.OOMs++
		if p.own {
			return p.fail(i)
		}
	case snapshot.Alloc:
		p.r.Allocs++
		return p.alloc(i)
	case snapshot.FreeRequested:
		p.r.Frees++
		if p.making(e) {
			p.inside = append(p.inside, i)
		} else {
			p.free(i)
		}
	case snapshot.FreeCompleted:
		if p.making(e) || len(p.inside) > 0 { // what is drained may be free at once
			p.inside = append(p.inside, i)
		} else {
			p.complete(i)
		}
	}
	return nil
}

// making tells whether e came about while room was made. A file without a
// capacity leaves the model no way to get there by itself.
func (p *replayer) making(e *Event) bool { return p.own && e.Making }

// expect notes an event that the model should show too.
func (p *replayer) expect(e *Event) {
	p.r.Recorded.count(e.Action, e.Size)
	p.expected = append(p.expected, *e)
}

// malloc replays a request of size bytes, the one that event i tells of. What
// the driver had to do for it comes before it in the record.
func (p *replayer) malloc(i int, size sim.Bytes) (alloc.Block, error) {
	e := &p.h.Events[i]
	if !p.own || len(p.h.Start) > 0 {
		if p.options.Backend == alloc.BackendStitching {
			p.m.PlaceNext(e.Addr)
		}
		for _, x := range slices.Backward(p.expected) { // a range may have grown, and been given up, before
			if x.Action == snapshot.SegmentAlloc || x.Action == snapshot.SegmentMap {
				p.m.PlaceNext(x.Addr)
				break
			}
		}
	}
	b, err := p.m.MallocIn(p.pools[e.Pool], max(size, 1), e.Stream)
	var oom *alloc.OOM
	if err != nil && !errors.As(err, &oom) {
		return b, fmt.Errorf("event %d: %w", e.Index, err)
	}
	p.catchUp()
	p.compareDriver(i)
	return b, nil
}

// catchUp replays what the record did while it made room and the model, going
// another way, did not.
func (p *replayer) catchUp() {
	rest := p.inside
	p.inside = nil
	p.follow(rest)
}

// alloc replays an allocation.
func (p *replayer) alloc(i int) error {
	e := &p.h.Events[i]
	b, err := p.malloc(i, e.Size)
	if err != nil {
		return err
	}
	if b == alloc.NoBlock {
		p.differ(i, fmt.Sprintf("a block at %d", e.Addr), "out of memory")
		return nil
	}
	if addr, size := p.m.Range(b); addr != e.Addr {
		p.differ(i, fmt.Sprintf("a block at %d", e.Addr), fmt.Sprintf("at %d, of %d bytes", addr, size))
	}
	if old, active := p.blocks[e.Addr]; active { // only after a difference
		p.m.Free(old.block)
	}
	p.blocks[e.Addr] = held{b, e.Stream}
	return nil
}

// fail replays a request that failed, of which the record tells the rounded size.
func (p *replayer) fail(i int) error {
	e := &p.h.Events[i]
	size := e.Size
	if least, _, err := p.options.BlockSizes(max(size, 1)); err != nil || least != size {
		size -= npuPad
	}
	b, err := p.malloc(i, size)
	if err == nil && b != alloc.NoBlock {
		addr, _ := p.m.Range(b)
		p.differ(i, "out of memory", fmt.Sprintf("a block at %d", addr))
		p.m.Free(b)
	}
	return err
}

// npuPad is what torch_npu adds to a request before it rounds.
const npuPad = 32

// free replays the request of a free.
func (p *replayer) free(i int) {
	e := &p.h.Events[i]
	atOnce := false
	if i+1 < len(p.h.Events) {
		next := &p.h.Events[i+1]
		atOnce = next.Action == snapshot.FreeCompleted && next.Addr == e.Addr && !p.making(next)
	}
	p.giveUp(e.Addr, !atOnce)
}

// giveUp frees the block of a recorded address, which then may wait. There is
// none if it was given up twice.
func (p *replayer) giveUp(addr uint64, wait bool) {
	b, ok := p.blocks[addr]
	if !ok {
		return
	}
	delete(p.blocks, addr)
	if wait {
		at, _ := p.m.Range(b.block)
		p.pending[addr], p.waits[at] = b, addr
		p.m.RecordStream(b.block, p.waiting)
	}
	p.m.Free(b.block)
}

// complete ends a free that waits. One that nobody has requested is both.
func (p *replayer) complete(i int) {
	addr := p.h.Events[i].Addr
	if b, ok := p.pending[addr]; ok {
		p.m.EraseStream(b.block, p.waiting, b.stream)
	} else {
		p.giveUp(addr, false)
	}
}

// compareDriver compares what record and model asked of the driver since the
// last comparison, up to event i. The order counts where segments come; a
// release of the cache gives a set of segments back.
func (p *replayer) compareDriver(i int) {
	expected, got := p.expected, p.got
	p.expected, p.got = p.expected[:0], p.got[:0]
	if p.r.First != nil {
		return
	}
	sortReleases(expected)
	sortReleases(got)
	for k := range max(len(expected), len(got)) {
		recorded, model := "nothing", "nothing"
		if k < len(expected) {
			recorded = driverText(expected[k])
		}
		if k < len(got) {
			model = driverText(got[k])
		}
		if recorded != model {
			p.differ(i, recorded, model)
			return
		}
	}
}

// compareFinal compares the blocks at the end with the file's.
func (p *replayer) compareFinal() {
	if p.r.First != nil {
		return
	}
	sizes := make(map[uint64]sim.Bytes)
	for _, g := range p.m.Segments() {
		for _, b := range g.Blocks {
			sizes[b.Addr] = b.Size
		}
	}
	for _, g := range p.h.Final {
		for _, b := range g.Blocks {
			if b.State != snapshot.Inactive && sizes[b.Address] != b.Size {
				p.differ(len(p.h.Events), fmt.Sprintf("a block at %d of %d bytes", b.Address, b.Size), fmt.Sprintf("of %d", sizes[b.Address]))
				return
			}
		}
	}
}

// differ notes a difference if it is the first.
func (p *replayer) differ(i int, recorded, model string) {
	if p.r.First != nil {
		return
	}
	d := &Difference{What: "at the end", Recorded: recorded, Model: model}
	if i < len(p.h.Events) {
		e := &p.h.Events[i]
		d.Event, d.What = e.Index, fmt.Sprintf("%v of %d bytes on stream %d", e.Action, e.Size, e.Stream)
	} else if n := len(p.h.Events); n > 0 {
		d.Event = p.h.Events[n-1].Index
	}
	p.r.First = d
}

// sortReleases orders each run of releases by address: in which order a cache
// is emptied depends on pointers.
func sortReleases(events []Event) {
	for i := 0; i < len(events); {
		j := i + 1
		if a := events[i].Action; a == snapshot.SegmentFree || a == snapshot.SegmentUnmap {
			for j < len(events) && events[j].Action == a {
				j++
			}
			slices.SortFunc(events[i:j], func(a, b Event) int { return cmp.Compare(a.Addr, b.Addr) })
		}
		i = j
	}
}

func driverText(e Event) string {
	return fmt.Sprintf("%v of %d bytes at %d on stream %d", e.Action, e.Size, e.Addr, e.Stream)
}

// sample keeps the model's state after e.
func (p *replayer) sample(e *Event) {
	s := p.m.Stats()
	x := Sample{
		Event: e.Index, TimeUS: e.TimeUS,
		Reserved: sim.Bytes(s.Reserved.Current), Allocated: sim.Bytes(s.Allocated.Current),
		Active: sim.Bytes(s.Active.Current), Requested: sim.Bytes(s.Requested.Current),
	}
	for stream := range alloc.Stream(p.r.Streams) {
		for _, size := range []sim.Bytes{1, largePage} { // one of each pool
			x.Largest = max(x.Largest, p.m.LargestFree(size, stream))
		}
	}
	p.r.Samples = append(p.r.Samples, x)
}
