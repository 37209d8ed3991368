package history

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"smartswap/eager/alloc"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// device passes the events of its streams when the test says so.
type device struct{ recorded, passed []int }

func (d *device) Record(s alloc.Stream) alloc.Event {
	d.recorded[s]++
	return alloc.Event(int(s) + len(d.recorded)*d.recorded[s])
}

func (d *device) Done(e alloc.Event) bool {
	s, n := int(e)%len(d.recorded), int(e)/len(d.recorded)
	return n <= d.passed[s]
}

// drawOptions are any that need no limit of memory.
func drawOptions(t *rapid.T) alloc.Options {
	o := alloc.DefaultOptions()
	o.Dialect = rapid.SampledFrom([]string{alloc.DialectPyTorch, alloc.DialectTorchNPU}).Draw(t, "dialect")
	o.EventPolicy = rapid.SampledFrom([]string{alloc.EventQuery, alloc.EventQueryLazy}).Draw(t, "events")
	o.RoundupPower2Divisions = rapid.SampledFrom([]alloc.Divisions{"", "", "4", "1:2,8:8,>:1"}).Draw(t, "divisions")
	if rapid.Bool().Draw(t, "expandable") {
		o.ExpandableSegments = true
	} else {
		o.MaxSplitSizeMB = rapid.SampledFrom([]int64{0, 0, 20, 30}).Draw(t, "max split")
	}
	return o
}

// run makes a random history on streams 0 and 1 and says how many frees waited.
func run(t *rapid.T, a alloc.Allocator, d *device) (waited int) {
	pools := []alloc.PoolID{alloc.DefaultPool, alloc.DefaultPool, alloc.DefaultPool}
	if rapid.Bool().Draw(t, "private pool") {
		pools[0] = a.(alloc.PrivatePools).NewPool(false)
	}
	type held struct {
		b      alloc.Block
		shared bool
	}
	var live []held
	size := rapid.OneOf(rapid.Int64Range(1, 3000), rapid.Int64Range(1, 2<<20), rapid.Int64Range(1<<20, 45<<20))
	for range rapid.IntRange(20, 150).Draw(t, "steps") {
		switch k := rapid.IntRange(0, 9).Draw(t, "step"); {
		case k < 4 || len(live) == 0:
			s := alloc.Stream(rapid.IntRange(0, 1).Draw(t, "stream"))
			p := rapid.SampledFrom(pools).Draw(t, "pool")
			b, err := a.(alloc.PrivatePools).MallocIn(p, sim.Bytes(size.Draw(t, "size")), s)
			if err != nil {
				t.Fatal(err)
			}
			live = append(live, held{b: b})
		case k < 7:
			i := rapid.IntRange(0, len(live)-1).Draw(t, "victim")
			if live[i].shared {
				waited++
			}
			a.Free(live[i].b)
			live = append(live[:i], live[i+1:]...)
		case k < 8:
			i := rapid.IntRange(0, len(live)-1).Draw(t, "shared")
			a.RecordStream(live[i].b, 2)
			live[i].shared = true
		case k < 9:
			d.passed[2] = min(d.passed[2]+rapid.IntRange(0, 3).Draw(t, "passed"), d.recorded[2])
		default:
			if rapid.IntRange(0, 4).Draw(t, "empty") == 0 {
				a.(alloc.Reclaimer).EmptyCache()
			}
		}
	}
	return waited
}

// What the model leaves as history, the model replays: through a file, from the
// first event or from any later one.
func TestOwnHistory(t *testing.T) {
	var cases, waits, truncated, guesses int
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		d := &device{recorded: make([]int, 3), passed: make([]int, 3)}
		a, err := alloc.New(o, 0, d)
		if err != nil {
			t.Fatal(err)
		}
		limit := rapid.SampledFrom([]int{0, 20, 40, 60}).Draw(t, "limit")
		rec := Record(a.(alloc.Inspector), 0, limit, nil)
		waited := run(t, a, d)

		s := &snapshot.Snapshot{}
		rec.AddTo(s)
		var file bytes.Buffer
		if err := snapshot.Write(&file, s); err != nil {
			t.Fatal(err)
		}
		if s, err = snapshot.Read(&file, "written"); err != nil {
			t.Fatal(err)
		}
		h, err := Rebuild(s, 0, o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Replay(h, Setup{Options: o}, 3)
		if err != nil {
			t.Fatal(err)
		}
		cases++
		if o.MaxSplitSizeMB > 0 && h.Events[0].Action == snapshot.Alloc {
			return // its segment may have come before it: fresh ones serve what cached ones do not
		}
		if h.Guessed > 0 { // the record leaves a size open: any may follow
			guesses++
			return
		}
		if r.First != nil {
			t.Fatal(r.First)
		}
		if waited > 0 {
			waits++
		}
		if len(h.Start) > 0 {
			truncated++
			return
		}
		want, got := a.Stats(), r.Stats
		for name, x := range map[string][2]alloc.Stat{
			"reserved": {want.Reserved, got.Reserved}, "allocated": {want.Allocated, got.Allocated}, "segments": {want.Segments, got.Segments},
		} {
			if x[0].Peak != x[1].Peak || x[0].Current != x[1].Current {
				t.Fatalf("%s: %+v, replayed %+v", name, x[0], x[1])
			}
		}
	})
	if waits*10 < cases || truncated*20 < cases || guesses*2 > cases {
		t.Errorf("%d cases: %d with frees that waited, %d from the middle, %d with guesses", cases, waits, truncated, guesses)
	}
}

// holding is a device that also holds memory, which it frees when asked to.
type holding struct {
	*device
	a    alloc.Allocator
	held []alloc.Block
	n    int // blocks to free at a time
}

func (h *holding) Wait(s alloc.Stream, e alloc.Event) {
	d := h.device
	d.passed[int(e)%len(d.recorded)] = max(d.passed[int(e)%len(d.recorded)], int(e)/len(d.recorded))
}

func (h *holding) Drain() bool {
	n := min(h.n, len(h.held))
	for _, b := range h.held[:n] {
		h.a.Free(b)
	}
	h.held = h.held[n:]
	return n > 0
}

// A record of the model's own tells all that the replay needs to fail where it
// failed, wait where it waited and make room as it did, whatever the allocator.
func TestOwnRecords(t *testing.T) {
	var cases, ooms, waits, drains, stitches, releases, truncated int
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		want := Setup{Own: true, Capacity: rapid.SampledFrom([]sim.Bytes{0, 150 * sim.MiB, 300 * sim.MiB}).Draw(t, "capacity")}
		if rapid.IntRange(0, 2).Draw(t, "stitching") == 0 {
			o = alloc.SmartSwapOptions()
			o.FreshSegmentSplit = rapid.Bool().Draw(t, "split")
		}
		o.EventPolicy = rapid.SampledFrom([]string{alloc.EventQuery, alloc.EventQueryLazy, alloc.EventWaitAtReuse}).Draw(t, "events")
		o.Drain = rapid.SampledFrom([]string{alloc.DrainLate, alloc.DrainEarly}).Draw(t, "drain")
		want.Options = o
		env := &holding{device: &device{recorded: make([]int, 3), passed: make([]int, 3)}, n: rapid.IntRange(1, 2).Draw(t, "drained")}
		a, err := alloc.New(o, want.Capacity, env)
		if err != nil {
			t.Fatal(err)
		}
		env.a = a
		limit := rapid.SampledFrom([]int{0, 40, 60}).Draw(t, "limit")
		if o.Backend == alloc.BackendStitching {
			limit = 0 // a record does not tell mappings
		}
		rec := Record(a.(alloc.Inspector), 0, limit, nil)
		var live []alloc.Block
		for range rapid.IntRange(20, 150).Draw(t, "steps") {
			i := 0
			if len(live) > 0 {
				i = rapid.IntRange(0, len(live)-1).Draw(t, "block")
			}
			switch k := rapid.IntRange(0, 12).Draw(t, "step"); {
			case k < 6 || len(live) == 0:
				size := sim.Bytes(rapid.OneOf(rapid.Int64Range(1, 1<<20), rapid.Int64Range(1<<20, 45<<20), rapid.Int64Range(16<<20, 90<<20)).Draw(t, "size"))
				b, err := a.Malloc(size, alloc.Stream(rapid.IntRange(0, 1).Draw(t, "stream")))
				if err == nil {
					live = append(live, b)
				}
			case k < 9:
				a.Free(live[i])
				live = append(live[:i], live[i+1:]...)
			case k < 10:
				env.held = append(env.held, live[i])
				live = append(live[:i], live[i+1:]...)
			case k < 11:
				a.RecordStream(live[i], 2)
			case k < 12:
				env.passed[2] = min(env.passed[2]+rapid.IntRange(0, 3).Draw(t, "passed"), env.recorded[2])
			default:
				// The stitching allocator gives mappings up of which no
				// history tells.
				if o.Backend == alloc.BackendCaching && rapid.IntRange(0, 4).Draw(t, "empty") == 0 {
					a.(alloc.Reclaimer).EmptyCache()
				}
			}
		}
		s := &snapshot.Snapshot{Settings: Settings(want)}
		rec.AddTo(s)
		var file bytes.Buffer
		if err := snapshot.Write(&file, s); err != nil {
			t.Fatal(err)
		}
		if s, err = snapshot.Read(&file, "written"); err != nil {
			t.Fatal(err)
		}
		setup, notes := Infer(s)
		if setup != want || notes != nil {
			t.Fatalf("%+v, want %+v; %v", setup, want, notes)
		}
		h, err := Rebuild(s, 0, setup.Options)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Replay(h, setup, 3)
		if err != nil {
			t.Fatal(err)
		}
		cases++
		if h.Guessed > 0 {
			return // the record leaves a size open: any may follow
		}
		if r.First != nil {
			t.Fatal(r.First)
		}
		if len(h.Start) > 0 {
			truncated++
			return
		}
		if x, y := a.Stats(), r.Stats; x.Reserved != y.Reserved || x.Active != y.Active || x.Requested != y.Requested || x.Segments != y.Segments {
			t.Fatalf("%+v, replayed %+v", x, y)
		}
		seen := map[string]bool{}
		for _, e := range h.Events {
			seen[e.Action.String()] = true
			if e.Making {
				seen["making "+e.Action.String()] = true
			}
		}
		for _, g := range a.(alloc.Inspector).Segments() {
			for _, b := range g.Blocks {
				seen["stitched"] = seen["stitched"] || b.Whole != 0
			}
		}
		count := func(n *int, what string) {
			if seen[what] {
				*n++
			}
		}
		count(&ooms, "oom")
		count(&drains, "making free_requested")
		count(&stitches, "stitched")
		if seen["making segment_free"] || seen["making segment_unmap"] {
			releases++
		}
		count(&waits, "making free_completed")
	})
	if ooms*50 < cases || drains*50 < cases || stitches*50 < cases || releases*50 < cases || waits*50 < cases || truncated*50 < cases {
		t.Errorf("%d cases: %d out of memory, %d with drained, %d with stitched blocks, %d that release, %d that wait, %d from the middle", cases, ooms, drains, stitches, releases, waits, truncated)
	}
}

// A history that keeps the last events only has those, oldest first.
func TestRecorderLimit(t *testing.T) {
	for limit := range 12 {
		d := &device{recorded: make([]int, 1), passed: make([]int, 1)}
		a, err := alloc.New(alloc.DefaultOptions(), 0, d)
		if err != nil {
			t.Fatal(err)
		}
		now := int64(0)
		rec := Record(a.(alloc.Inspector), 2, limit, func() (int64, []snapshot.Frame) { now++; return now, nil })
		for range 3 {
			b, err := a.Malloc(100, 0)
			if err != nil {
				t.Fatal(err)
			}
			a.Free(b)
		}
		s := &snapshot.Snapshot{}
		rec.AddTo(s)
		const events = 10 // one segment; alloc, free_requested and free_completed three times
		kept := events
		if limit > 0 {
			kept = min(limit, events)
		}
		if len(s.Traces) != 3 || len(s.Traces[2]) != kept {
			t.Fatalf("limit %d: %d devices, %d events", limit, len(s.Traces), len(s.Traces[2]))
		}
		for i, e := range s.Traces[2] {
			if e.TimeUS != int64(events-kept+i+1) {
				t.Errorf("limit %d: event %d is of time %d", limit, i, e.TimeUS)
			}
		}
	}
}

func TestInfer(t *testing.T) {
	npu := []snapshot.Frame{{Name: "f", File: "model.py"}, {Name: "g", File: "/site-packages/torch_npu/utils.py"}}
	for _, c := range []struct {
		name     string
		settings []snapshot.Setting
		frames   []snapshot.Frame
		change   func(o *alloc.Options)
		notes    string
	}{
		{"nothing", nil, nil, func(*alloc.Options) {}, "[]"},
		{"defaults", []snapshot.Setting{{Key: "max_split_size", Value: "-1"}, {Key: "garbage_collection_threshold", Value: "0"}, {Key: "roundup_power2_divisions.1", Value: "0"}}, nil,
			func(*alloc.Options) {}, "[]"},
		{"npu", nil, npu, func(o *alloc.Options) { o.Dialect = alloc.DialectTorchNPU }, `[dialect = "torch_npu": call stacks name torch_npu]`},
		{"split", []snapshot.Setting{{Key: "max_split_size", Value: "209715200"}}, nil, func(o *alloc.Options) { o.MaxSplitSizeMB = 200 }, "[]"},
		{"collection", []snapshot.Setting{{Key: "garbage_collection_threshold", Value: "0.8"}}, nil, func(*alloc.Options) {},
			"[garbage_collection_threshold = 0.8 is left out: the limit that it is a share of is not in the file]"},
		{"expandable", []snapshot.Setting{{Key: "expandable_segments", Value: "true"}}, nil, func(o *alloc.Options) { o.ExpandableSegments = true }, "[]"},
		{"divisions", []snapshot.Setting{{Key: "roundup_power2_divisions.1", Value: "0"}, {Key: "roundup_power2_divisions.2", Value: "4"}, {Key: "roundup_power2_divisions.4", Value: "8"}}, nil,
			func(o *alloc.Options) { o.RoundupPower2Divisions = "1:0,2:4,4:8" }, "[]"},
		{"divisions from the smallest", []snapshot.Setting{{Key: "roundup_power2_divisions.1", Value: "4"}}, nil,
			func(o *alloc.Options) { o.RoundupPower2Divisions = "1:4" }, "[]"},
	} {
		want := alloc.DefaultOptions()
		c.change(&want)
		got, notes := Infer(&snapshot.Snapshot{Settings: c.settings, Traces: [][]snapshot.Event{{{Frames: c.frames}}}})
		if got != (Setup{Options: want}) || fmt.Sprint(notes) != c.notes {
			t.Errorf("%s: %+v %v", c.name, got, notes)
		}
		if err := got.Options.Validate(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// What blocks and segments look like tells where settings do not.
func TestInferFromContents(t *testing.T) {
	block := func(size, requested sim.Bytes) snapshot.Block {
		return snapshot.Block{Size: size, Requested: requested, State: snapshot.Allocated}
	}
	segment := func(large, expandable bool, blocks ...snapshot.Block) *snapshot.Snapshot {
		return &snapshot.Snapshot{Segments: []snapshot.Segment{{Large: large, Expandable: expandable, Blocks: blocks}}}
	}
	for _, c := range []struct {
		name            string
		s               *snapshot.Snapshot
		npu, expandable bool
	}{
		{"plain", segment(false, false, block(1024, 1024)), false, false},
		{"one more each time", segment(false, false, block(1536, 1024), block(512, 100), block(1024, 512)), true, false},
		{"one more once", segment(false, false, block(1536, 1024), block(512, 512)), false, false},
		{"no whole blocks", segment(false, false, block(1024, 1000)), false, false},
		{"a rest may be part", segment(true, false, block(2<<20+512, 2<<20)), false, false},
		{"no rests", segment(true, true, block(2<<20+512, 2<<20)), true, true},
		{"a map", &snapshot.Snapshot{Traces: [][]snapshot.Event{{{Action: snapshot.SegmentMap}}}}, false, true},
	} {
		setup, _ := Infer(c.s)
		o := setup.Options
		if (o.Dialect == alloc.DialectTorchNPU) != c.npu || o.ExpandableSegments != c.expandable {
			t.Errorf("%s: %s, expandable %t", c.name, o.Dialect, o.ExpandableSegments)
		}
	}
}

// A record of which some events are wrong or lost is refused, or replayed with a
// difference, or hides it; it never ends in a panic.
func TestDamagedHistory(t *testing.T) {
	var refused, differs, cases int
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		d := &device{recorded: make([]int, 3), passed: make([]int, 3)}
		a, err := alloc.New(o, 0, d)
		if err != nil {
			t.Fatal(err)
		}
		rec := Record(a.(alloc.Inspector), 0, 0, nil)
		run(t, a, d)
		s := &snapshot.Snapshot{}
		rec.AddTo(s)
		for range rapid.IntRange(1, 3).Draw(t, "damages") {
			trace := s.Traces[0]
			i, j := rapid.IntRange(0, len(trace)-1).Draw(t, "event"), rapid.IntRange(0, len(trace)-1).Draw(t, "other")
			switch rapid.IntRange(0, 6).Draw(t, "damage") {
			case 0:
				s.Traces[0] = append(trace[:i:i], trace[i+1:]...)
				if len(s.Traces[0]) == 0 {
					return
				}
			case 1:
				trace[i].Addr = trace[j].Addr
			case 2:
				trace[i].Size = trace[j].Size
			case 3:
				trace[i].Action = trace[j].Action
			case 4:
				trace[i], trace[j] = trace[j], trace[i]
			case 5:
				trace[i].Stream++
			default:
				trace[i].Size = rapid.SampledFrom([]sim.Bytes{0, 1, 1 << 50}).Draw(t, "size")
			}
		}
		cases++
		h, err := Rebuild(s, 0, o)
		if err != nil {
			refused++
			return
		}
		r, err := Replay(h, Setup{Options: o}, 3)
		if err != nil {
			refused++
		} else if r.First != nil {
			differs++
		}
	})
	if refused*5 < cases || differs*20 < cases {
		t.Errorf("%d cases: %d refused, %d with a difference", cases, refused, differs)
	}
}

// BenchmarkReplay rebuilds and replays a record of 150,000 events, half of which
// came after its begin was lost. It reports ns per event.
func BenchmarkReplay(b *testing.B) {
	d := &device{recorded: make([]int, 1), passed: make([]int, 1)}
	o := alloc.DefaultOptions()
	a, err := alloc.New(o, 0, d)
	if err != nil {
		b.Fatal(err)
	}
	const events = 150_000
	rec := Record(a.(alloc.Inspector), 0, events, nil)
	var live []alloc.Block
	for i := range events {
		size := sim.Bytes(1+i*7919%4096) * sim.KiB
		blk, err := a.Malloc(size, 0)
		if err != nil {
			b.Fatal(err)
		}
		if live = append(live, blk); len(live) > 2000 {
			k := i * 31 % len(live)
			a.Free(live[k])
			live[k] = live[len(live)-1]
			live = live[:len(live)-1]
		}
	}
	s := &snapshot.Snapshot{}
	rec.AddTo(s)
	for b.Loop() {
		h, err := Rebuild(s, 0, o)
		if err != nil {
			b.Fatal(err)
		}
		r, err := Replay(h, Setup{Options: o}, 10)
		if err != nil {
			b.Fatal(err)
		}
		if h.Guessed == 0 && r.First != nil {
			b.Fatal(r.First)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
}
