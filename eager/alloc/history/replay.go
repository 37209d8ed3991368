package history

import (
	"cmp"
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
	// Stats are the model's at the end; peaks are those since the start.
	Stats   alloc.Stats
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

// Replay hands the requests of h to an allocator with options o and compares
// what it asks of the driver, and which blocks it hands out, with the record.
// New segments get the recorded addresses; frees that wait for other streams
// are completed when the record says so. samples is the number of samples to
// take, at equal numbers of events. An error means that the model cannot follow
// at all: options or backend without segments, a state it does not accept, or
// sums beyond its bounds. O(n log n).
//
// The file does not tell the device's capacity, so the model never runs out of
// memory: segments that were given back are taken for an emptied cache. A record
// of a garbage collection, which gives only some back, therefore differs.
func Replay(h *History, o alloc.Options, samples int) (*Result, error) {
	o.EventPolicy = alloc.EventQuery // when frees are over is in the record
	p := &replayer{h: h, r: &Result{}, blocks: make(map[uint64]alloc.Block), pending: make(map[uint64]alloc.Stream)}
	pools := 1
	for _, e := range h.Events {
		p.streams, pools = max(p.streams, e.Stream+1), max(pools, e.Pool+1)
	}
	for _, g := range h.Start {
		p.streams, pools = max(p.streams, g.Stream+1), max(pools, int(g.Pool)+1)
	}
	p.r.Streams, p.r.Pools = int(p.streams), pools
	if len(h.Events) > 0 {
		p.r.StartUS = h.Events[0].TimeUS
	}
	a, err := alloc.New(o, 0, p)
	if err != nil {
		return nil, err
	}
	m, ok := a.(model)
	if !ok {
		return nil, fmt.Errorf("backend = %q cannot take over a recorded state; allowed: %q", o.Backend, alloc.BackendCaching)
	}
	p.m = m
	p.pools = append(p.pools, alloc.DefaultPool)
	for range pools - 1 {
		p.pools = append(p.pools, m.NewPool(false))
	}
	if err := p.restore(); err != nil {
		return nil, fmt.Errorf("the state at the start: %w", err)
	}
	m.Observe(func(t alloc.Trace) {
		if act := actionOf(t.Action); driverAction(act) {
			p.got = append(p.got, Event{Action: act, Addr: t.Addr, Size: t.Size, Stream: t.Stream})
			p.r.Model.count(act, t.Size)
		}
	})
	for i := range h.Events {
		if err := p.step(i); err != nil {
			return nil, err
		}
		if samples > 0 && ((i+1)*samples/len(h.Events) > i*samples/len(h.Events)) {
			p.sample(&h.Events[i])
		}
	}
	p.compareDriver(len(h.Events))
	p.compareFinal()
	p.r.Stats = m.Stats()
	return p.r, nil
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
// completed later waits for a stream of its own, on which nothing else is, until
// the record completes it.
type replayer struct {
	h      *History
	r      *Result
	m      model
	pools  []alloc.PoolID         // the model's, by the record's number
	blocks map[uint64]alloc.Block // active ones, by recorded address

	pending map[uint64]alloc.Stream // freed blocks that wait, by recorded address
	streams alloc.Stream            // streams so far: recorded ones, then those to wait for
	done    []bool                  // by stream: what waits for it may go
	idle    []alloc.Stream          // to wait for that nobody uses
	retired []alloc.Stream          // done, but perhaps not yet noticed

	expected []Event // of record and model between two requests
	got      []Event
}

// Record implements alloc.Env: an event is the stream that it is on.
func (p *replayer) Record(s alloc.Stream) alloc.Event { return alloc.Event(s) }

// Done implements alloc.Env.
func (p *replayer) Done(e alloc.Event) bool { return p.done[e] }

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
				p.blocks[b.Addr] = b.Block
			}
		}
	}
	for _, d := range []*Driver{&p.r.Recorded, &p.r.Model} {
		d.Start = sim.Bytes(p.m.Stats().Reserved.Current)
		d.reserved, d.Peak, d.Final = d.Start, d.Start, d.Start
	}
	return nil
}

// step replays event i.
func (p *replayer) step(i int) error {
	e := &p.h.Events[i]
	switch e.Action {
	case snapshot.SegmentAlloc, snapshot.SegmentMap:
		p.expect(e)
	case snapshot.SegmentFree, snapshot.SegmentUnmap:
		if i == 0 || p.h.Events[i-1].Action != e.Action { // the first of a run
			p.compareDriver(i)
			p.m.EmptyCache()
			p.settle()
		}
		p.expect(e)
	case snapshot.OOM:
		p.r.OOMs++
	case snapshot.Alloc:
		p.r.Allocs++
		return p.alloc(i)
	case snapshot.FreeRequested:
		p.r.Frees++
		p.free(i)
	case snapshot.FreeCompleted:
		if s, waits := p.pending[e.Addr]; waits {
			delete(p.pending, e.Addr)
			p.done[s] = true
			p.retired = append(p.retired, s)
		} else if b, active := p.blocks[e.Addr]; active { // its request was lost
			delete(p.blocks, e.Addr)
			p.m.Free(b)
		}
	}
	return nil
}

// expect notes an event that the model should show too.
func (p *replayer) expect(e *Event) {
	p.r.Recorded.count(e.Action, e.Size)
	p.expected = append(p.expected, *e)
}

// alloc replays an allocation. What the driver had to do for it comes before it
// in the record.
func (p *replayer) alloc(i int) error {
	e := &p.h.Events[i]
	for _, x := range p.expected {
		if x.Action == snapshot.SegmentAlloc || x.Action == snapshot.SegmentMap {
			p.m.PlaceNext(x.Addr)
			break
		}
	}
	b, err := p.m.MallocIn(p.pools[e.Pool], max(e.Size, 1), e.Stream)
	if err != nil {
		return fmt.Errorf("event %d: %w", e.Index, err)
	}
	p.settle()
	p.compareDriver(i)
	if addr, size := p.m.Range(b); addr != e.Addr {
		p.differ(i, fmt.Sprintf("a block at %d", e.Addr), fmt.Sprintf("at %d, of %d bytes", addr, size))
	}
	if old, active := p.blocks[e.Addr]; active { // only after a difference
		p.m.Free(old)
	}
	p.blocks[e.Addr] = b
	return nil
}

// free replays the request of a free.
func (p *replayer) free(i int) {
	e := &p.h.Events[i]
	b, ok := p.blocks[e.Addr]
	if !ok {
		return // requested twice
	}
	delete(p.blocks, e.Addr)
	if next := i + 1; next == len(p.h.Events) || p.h.Events[next].Action != snapshot.FreeCompleted || p.h.Events[next].Addr != e.Addr {
		s := p.waitStream()
		p.pending[e.Addr] = s
		p.m.RecordStream(b, s)
	}
	p.m.Free(b)
}

// waitStream is a stream that nothing waits for.
func (p *replayer) waitStream() alloc.Stream {
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.done[s] = false
		return s
	}
	s := p.streams
	p.streams++
	for len(p.done) < int(p.streams) {
		p.done = append(p.done, false)
	}
	return s
}

// settle is called when the model has noticed all completed frees.
func (p *replayer) settle() {
	p.idle = append(p.idle, p.retired...)
	p.retired = p.retired[:0]
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
