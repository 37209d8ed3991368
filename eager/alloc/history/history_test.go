package history

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"smartswap/eager/alloc"
	"smartswap/formats/formatstest"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// root is the module's folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

func read(t *testing.T, path string) *snapshot.Snapshot {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var in io.Reader = bufio.NewReader(f)
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			t.Fatal(err)
		}
	}
	s, err := snapshot.Read(in, path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// replay does all the steps on device 0 with what the file tells.
func replay(t *testing.T, s *snapshot.Snapshot) (*History, *Result) {
	t.Helper()
	setup, _ := Infer(s)
	h, err := Rebuild(s, 0, setup.Options)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Replay(h, setup, 10)
	if err != nil {
		t.Fatal(err)
	}
	return h, r
}

// Recorded histories of real jobs: the model asks the driver for the same
// segments in the same order, hands out every block at the recorded address,
// and ends with the recorded blocks.
func TestRecordedJobs(t *testing.T) {
	dir := formatstest.Shared(t, "memory-snapshot")
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected []struct {
		File              string
		Device            int
		Allocator         string
		Actions           map[string]int
		InitialReserved   sim.Bytes `json:"initial_reserved_bytes"`
		SegmentAllocs     int       `json:"segment_allocs"`
		SegmentAllocBytes sim.Bytes `json:"segment_alloc_bytes"`
		SegmentFrees      int       `json:"segment_frees"`
		PeakReserved      sim.Bytes `json:"peak_reserved_bytes"`
		PeakLive          int64     `json:"peak_live_block_bytes"`
		Final             sim.Bytes `json:"final_reserved_bytes"`
		Maps              int       `json:"segment_maps"`
		MapBytes          sim.Bytes `json:"segment_map_bytes"`
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	if len(expected) < 16 {
		t.Fatalf("%d snapshots", len(expected))
	}
	for _, want := range expected {
		t.Run(want.File, func(t *testing.T) {
			s := read(t, filepath.Join(dir, filepath.FromSlash(want.File)))
			h, r := replay(t, s)
			if r.First != nil {
				t.Errorf("first difference: %v", r.First)
			}
			if h.Guessed > 0 {
				t.Errorf("%d sizes guessed", h.Guessed)
			}
			if r.Allocs != want.Actions["alloc"] || r.Frees != want.Actions["free_requested"] {
				t.Errorf("%d allocations, %d frees; want %v", r.Allocs, r.Frees, want.Actions)
			}
			for name, d := range map[string]Driver{"recorded": r.Recorded, "model": r.Model} {
				got := []sim.Bytes{d.Start, sim.Bytes(d.Allocs), d.AllocBytes, sim.Bytes(d.Frees), d.Peak}
				exp := []sim.Bytes{want.InitialReserved, sim.Bytes(want.SegmentAllocs), want.SegmentAllocBytes, sim.Bytes(want.SegmentFrees), want.PeakReserved}
				if want.Allocator == "expandable" {
					got = []sim.Bytes{d.Final, sim.Bytes(d.Maps), d.MapBytes}
					exp = []sim.Bytes{want.Final, sim.Bytes(want.Maps), want.MapBytes}
				}
				if diff := cmp.Diff(exp, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			if want.PeakLive > 0 && r.Stats.Active.Peak != want.PeakLive {
				t.Errorf("peak of active blocks %d, want %d", r.Stats.Active.Peak, want.PeakLive)
			}
			if len(r.Samples) != 10 || r.Samples[9].Reserved != r.Model.Final {
				t.Errorf("%d samples, the last with %v", len(r.Samples), r.Samples[len(r.Samples)-1].Reserved)
			}
		})
	}
}

// The pad of torch_npu shows in what it asks the driver for: without it the
// model goes another way, and says where.
func TestWrongDialectDiffers(t *testing.T) {
	s := read(t, formatstest.Shared(t, "memory-snapshot", "msinsight", "snapshot_1768383987920985470.pkl"))
	o := alloc.DefaultOptions()
	h, err := Rebuild(s, 0, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Replay(h, Setup{Options: o}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r.First == nil || r.Model.Allocs != 71 || r.Model.AllocBytes != 520_093_696 {
		t.Errorf("%v, %d segments of %d bytes; want a difference, 71 of 520093696", r.First, r.Model.Allocs, r.Model.AllocBytes)
	}
}

const base = 0x7f0000000000

// The state at the start of the record in formats/snapshot/testdata/generate.py.
func TestRebuildMidRun(t *testing.T) {
	s := read(t, filepath.Join(root(t), "formats", "snapshot", "testdata", "midrun.pickle"))
	h, r := replay(t, s)
	const small, other = base + 0x10000000, base + 0x20000000
	want := []alloc.SegmentInfo{
		{Addr: base, Size: 20 * sim.MiB, Large: true, Blocks: []alloc.BlockInfo{
			{Addr: base, Size: 6 * sim.MiB, Requested: 5 * sim.MiB, State: alloc.Allocated},
			{Addr: base + 6<<20, Size: 14 * sim.MiB, Requested: 13*sim.MiB + 1, State: alloc.Allocated},
		}},
		{Addr: small, Size: 2 * sim.MiB, Blocks: []alloc.BlockInfo{{Addr: small, Size: 2 * sim.MiB, State: alloc.Inactive}}},
		{Addr: other, Size: 32 * sim.MiB, Large: true, Blocks: []alloc.BlockInfo{{Addr: other, Size: 32 * sim.MiB, State: alloc.Inactive}}},
	}
	if diff := cmp.Diff(want, h.Start); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.First != nil || r.Model.Frees != 2 || r.Model.Start != 54*sim.MiB || r.Model.Final != 20*sim.MiB {
		t.Errorf("%v %+v", r.First, r.Model)
	}
}

// Frees that wait, a request that takes a whole segment, two streams.
func TestReplayClassic(t *testing.T) {
	h, r := replay(t, read(t, filepath.Join(root(t), "formats", "snapshot", "testdata", "classic.p4.pickle.gz")))
	if r.First != nil || len(h.Start) != 0 || r.Streams != 2 || r.OOMs != 1 || r.Model.Peak != 34*sim.MiB {
		t.Errorf("%v %+v", r.First, r)
	}
	if got := r.Stats.Active.Current - r.Stats.Allocated.Current; got != int64(5*sim.MiB) {
		t.Errorf("%d bytes pending, want 5 MiB", got)
	}
}

// one is a snapshot of one 2 MiB segment with one block, and its history.
func one() *snapshot.Snapshot {
	return &snapshot.Snapshot{
		Segments: []snapshot.Segment{{Address: base, Size: 2 * sim.MiB, Blocks: []snapshot.Block{
			{Address: base, Size: 512, Requested: 400, State: snapshot.Allocated},
			{Address: base + 512, Size: 2*sim.MiB - 512},
		}}},
		Traces: [][]snapshot.Event{{
			{Action: snapshot.SegmentAlloc, Addr: base, Size: 2 * sim.MiB},
			{Action: snapshot.Alloc, Addr: base, Size: 400},
		}},
	}
}

func TestContradictions(t *testing.T) {
	large := func(s *snapshot.Snapshot, addr uint64) {
		s.Segments = append(s.Segments, snapshot.Segment{Address: addr, Size: 20 * sim.MiB, Large: true, Blocks: []snapshot.Block{{Address: addr, Size: 20 * sim.MiB}}})
	}
	for _, c := range []struct {
		name   string
		change func(s *snapshot.Snapshot)
		want   string
	}{
		{"empty", func(s *snapshot.Snapshot) { *s = snapshot.Snapshot{} }, "no segments and no events"},
		{"overlap", func(s *snapshot.Snapshot) { large(s, base-1) }, "segment at address 139637976727551: it overlaps the segment at address 139637976727552"},
		{"block lost", func(s *snapshot.Snapshot) { s.Segments[0].Blocks[0].State = snapshot.Inactive },
			"event 1 (alloc of 400 bytes at address 139637976727552): the block is neither given up later nor there at the end"},
		{"segment lost", func(s *snapshot.Snapshot) { s.Traces[0][0].Size = 4 * sim.MiB },
			"event 0 (segment_alloc of 4194304 bytes at address 139637976727552): the segment is neither given back later nor there at the end"},
		{"free of a living block", func(s *snapshot.Snapshot) { s.Traces[0][1].Action = snapshot.FreeCompleted },
			"event 1 (free_completed of 400 bytes at address 139637976727552): the block is in use afterwards (400 requested bytes) without having been allocated"},
		{"free of nothing", func(s *snapshot.Snapshot) {
			s.Traces[0][1] = snapshot.Event{Action: snapshot.FreeRequested, Addr: 7, Size: 400}
		}, "event 1 (free_requested of 400 bytes at address 7): the free is neither completed later nor pending at the end"},
		{"segment freed under another", func(s *snapshot.Snapshot) {
			s.Traces[0] = []snapshot.Event{{Action: snapshot.SegmentFree, Addr: base + 1<<20, Size: 2 * sim.MiB}}
		}, "event 0 (segment_free of 2097152 bytes at address 139637977776128): it overlaps the segment at address 139637976727552"},
		{"map of what is not there", func(s *snapshot.Snapshot) {
			s.Traces[0][0].Action, s.Traces[0][0].Size = snapshot.SegmentMap, 4*sim.MiB
		},
			"event 0 (segment_map of 4194304 bytes at address 139637976727552): the range is neither unmapped later nor there at the end"},
		{"outside", func(s *snapshot.Snapshot) {
			s.Traces[0] = []snapshot.Event{{Action: snapshot.FreeCompleted, Addr: base + 1<<40, Size: 1}}
		}, "the block at address 140737488355328 lies outside of all segments"},
		{"before all", func(s *snapshot.Snapshot) {
			s.Traces[0] = []snapshot.Event{{Action: snapshot.FreeCompleted, Addr: 1, Size: 1}}
		}, "the block at address 1 overlaps the one before it or lies outside of all segments"},
		{"inside another", func(s *snapshot.Snapshot) {
			s.Segments[0].Blocks[0].Size, s.Segments[0].Blocks[0].Requested = 1024, 1024
			s.Traces[0] = []snapshot.Event{{Action: snapshot.FreeCompleted, Addr: base + 512, Size: 1}}
		}, "the block at address 139637976727552 has 1024 bytes for a request of 1024, but only 512 up to the next; the options may be others"},
	} {
		s := one()
		c.change(s)
		if _, err := Rebuild(s, 0, alloc.DefaultOptions()); err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
	}
}

// A record that an allocator of these rules would not leave: the first event
// that shows it is named.
func TestDifferences(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *snapshot.Snapshot)
		want   string // "" = none
	}{
		{"none", func(*snapshot.Snapshot) {}, ""},
		{"segment of another size", func(s *snapshot.Snapshot) {
			s.Traces[0][0].Size, s.Segments[0].Size, s.Segments[0].Blocks[1].Size = 4*sim.MiB, 4*sim.MiB, 4*sim.MiB-512
		}, "event 1, alloc of 400 bytes on stream 0: recorded segment_alloc of 4194304 bytes at 139637976727552 on stream 0, model segment_alloc of 2097152 bytes at 139637976727552 on stream 0"},
		{"block not at the front", func(s *snapshot.Snapshot) {
			s.Traces[0][1].Addr += 512
			b := s.Segments[0].Blocks
			b[0].State, b[1] = snapshot.Inactive, snapshot.Block{Address: base + 512, Size: 512, Requested: 400, State: snapshot.Allocated}
			s.Segments[0].Blocks = append(b, snapshot.Block{Address: base + 1024, Size: 2*sim.MiB - 1024})
		}, "event 1, alloc of 400 bytes on stream 0: recorded a block at 139637976728064, model at 139637976727552, of 512 bytes"},
		{"no segment for a request", func(s *snapshot.Snapshot) { s.Traces[0][1].Stream = 5 },
			"event 1, alloc of 400 bytes on stream 1: recorded segment_alloc of 2097152 bytes at 139637976727552 on stream 0, model segment_alloc of 2097152 bytes at 139637976727552 on stream 1"},
		{"cache emptied by half", func(s *snapshot.Snapshot) {
			for _, addr := range []uint64{base + 1<<30, base + 2<<30} {
				s.Segments = append(s.Segments, snapshot.Segment{Address: addr, Size: 20 * sim.MiB, Large: true, Blocks: []snapshot.Block{{Address: addr, Size: 20 * sim.MiB}}})
			}
			s.Traces[0] = append(s.Traces[0], snapshot.Event{Action: snapshot.SegmentFree, Addr: base + 3<<30, Size: 20 * sim.MiB})
		}, "event 2, at the end: recorded segment_free of 20971520 bytes at 139641197953024 on stream 0, model segment_free of 20971520 bytes at 139639050469376 on stream 0"},
		{"block of another size", func(s *snapshot.Snapshot) {
			s.Segments[0].Blocks[0].Size, s.Segments[0].Blocks[1].Address, s.Segments[0].Blocks[1].Size = 1024, base+1024, 2*sim.MiB-1024
		}, "event 1, at the end: recorded a block at 139637976727552 of 1024 bytes, model of 512"},
	} {
		s := one()
		c.change(s)
		_, r := replay(t, s)
		got := ""
		if r.First != nil {
			got = r.First.String()
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// A device that was full: the request that made the allocator empty its cache
// replays without the capacity being known, and so does the one that failed
// (golden case G11 of the allocator's rules).
func TestRetry(t *testing.T) {
	d := &device{recorded: make([]int, 1), passed: make([]int, 1)}
	o := alloc.DefaultOptions()
	a, err := alloc.New(o, 100*sim.MiB, d)
	if err != nil {
		t.Fatal(err)
	}
	rec := Record(a.(alloc.Inspector), 0, 0, nil)
	x, err := a.Malloc(40*sim.MiB, 0)
	for _, size := range []sim.Bytes{40, 50} {
		if err != nil {
			t.Fatal(err)
		}
		if size == 50 {
			a.Free(x)
		}
		_, err = a.Malloc(size*sim.MiB, 0)
	}
	if _, oom := a.Malloc(20*sim.MiB, 0); err != nil || oom == nil {
		t.Fatal(err, oom)
	}
	s := &snapshot.Snapshot{}
	rec.AddTo(s)
	_, r := replay(t, s)
	if r.First != nil || r.OOMs != 1 || r.Model.Allocs != 3 || r.Model.Frees != 1 || r.Model.Final != 90*sim.MiB {
		t.Errorf("%v, %d out of memory, %+v", r.First, r.OOMs, r.Model)
	}
}

// A stitched block that is active at the end is known by its own address, which
// the frames of its parts tell; of one that was there before the record begins,
// nothing tells the parts.
func TestStitchedBlocks(t *testing.T) {
	for _, limit := range []int{0, 3} {
		setup := Setup{Options: alloc.SmartSwapOptions(), Own: true}
		a, err := alloc.New(setup.Options, 0, &device{recorded: make([]int, 1), passed: make([]int, 1)})
		if err != nil {
			t.Fatal(err)
		}
		rec := Record(a.(alloc.Inspector), 0, limit, nil)
		malloc := func(size sim.Bytes) alloc.Block {
			b, err := a.Malloc(size, 0)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		x, y := malloc(64*sim.MiB), malloc(64*sim.MiB)
		a.Free(x)
		a.Free(y)
		first := malloc(128 * sim.MiB)
		malloc(160 * sim.MiB) // the rest of both, and what is short
		a.Free(first)
		malloc(128 * sim.MiB) // the first one's mapping again
		s := &snapshot.Snapshot{}
		rec.AddTo(s)
		parts := map[string]sim.Bytes{}
		for _, g := range s.Segments {
			for _, b := range g.Blocks {
				if len(b.Frames) == 1 && b.Frames[0].File == partFile {
					parts[b.Frames[0].Name] += b.Requested
				}
			}
		}
		if len(parts) != 2 || parts[strconv.FormatUint(s.Traces[0][len(s.Traces[0])-1].Addr, 10)] != 128*sim.MiB {
			t.Errorf("parts %v of the last block, %+v", parts, s.Traces[0])
		}
		h, err := Rebuild(s, 0, setup.Options)
		if limit > 0 {
			if err == nil || !strings.Contains(err.Error(), "was stitched before the record begins, of what is not told") {
				t.Errorf("limit %d: %v", limit, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r, err := Replay(h, setup, 0); err != nil || r.First != nil {
			t.Errorf("%v, %v", r, err)
		}
	}

	s := one()
	s.Segments[0].Blocks[0].Frames = []snapshot.Frame{{Name: "somewhere", File: partFile}}
	if _, err := Rebuild(s, 0, alloc.SmartSwapOptions()); err == nil || !strings.Contains(err.Error(), `part of the stitched block at "somewhere": want an address`) {
		t.Error(err)
	}
}

// A request that fails because there is no memory reserves no addresses either:
// a record that lost its beginning would not tell where they are. (The one here
// grows a range before, which must not be taken for the place of the next.)
func TestFailedRequestReservesNoAddresses(t *testing.T) {
	setup := Setup{Options: alloc.DefaultOptions(), Capacity: 100 * sim.MiB, Own: true}
	setup.Options.ExpandableSegments = true
	a, err := alloc.New(setup.Options, setup.Capacity, &device{recorded: make([]int, 2), passed: make([]int, 2)})
	if err != nil {
		t.Fatal(err)
	}
	rec := Record(a.(alloc.Inspector), 0, 13, nil)
	malloc := func(size sim.Bytes, s alloc.Stream) alloc.Block {
		b, err := a.Malloc(size, s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	keep := malloc(20*sim.MiB, 0)
	x := malloc(20*sim.MiB, 0)
	y := malloc(20*sim.MiB, 0)
	if _, err := a.Malloc(60*sim.MiB, 1); err == nil {
		t.Fatal("60 MiB fit into 40")
	}
	a.Free(x)
	a.Free(y)
	a.(alloc.Reclaimer).EmptyCache()
	malloc(60*sim.MiB, 1)
	a.Free(keep)

	s := &snapshot.Snapshot{Settings: Settings(setup)}
	rec.AddTo(s)
	h, err := Rebuild(s, 0, setup.Options)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Start) == 0 || h.Events[0].Action != snapshot.SegmentMap {
		t.Fatalf("the record begins with %v; want one that lost its beginning", h.Events[0])
	}
	r, err := Replay(h, setup, 0)
	if err != nil || r.First != nil || r.OOMs != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

// A record of the bytes allocator is for viewers: it has every block, but none
// of 0 bytes, and nothing to replay, with its beginning or without.
func TestBytesAreNotReplayed(t *testing.T) {
	for _, limit := range []int{0, 1} {
		setup := Setup{Options: alloc.DefaultOptions(), Own: true}
		setup.Options.Backend, setup.Options.Exact = alloc.BackendBytes, true
		a, err := alloc.New(setup.Options, 0, &device{recorded: make([]int, 1), passed: make([]int, 1)})
		if err != nil {
			t.Fatal(err)
		}
		rec := Record(a.(alloc.Inspector), 0, limit, nil)
		for _, size := range []sim.Bytes{7, 0, 9, 0} {
			b, err := a.Malloc(size, 0)
			if err != nil {
				t.Fatal(err)
			}
			if size != 9 {
				a.Free(b)
			}
		}
		a.Malloc(0, 0)
		s := &snapshot.Snapshot{Settings: Settings(setup)}
		rec.AddTo(s)
		var got []string
		for _, e := range s.Traces[0] {
			got = append(got, fmt.Sprintf("%v %d", e.Action, e.Size))
		}
		want := []string{"alloc 7", "free_requested 7", "free_completed 7", "alloc 9"}
		if limit > 0 {
			want = want[len(want)-limit:]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if len(s.Segments) != 1 || s.Segments[0].Size != 9 {
			t.Errorf("%+v, want one of 9 bytes", s.Segments)
		}
		_, err = Rebuild(s, 0, setup.Options)
		if want := `backend = "bytes" has no segments to replay; allowed: "caching" "stitching"`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A record of the model's own that lost its beginning still tells where ranges
// of addresses begin, even if their first pages are not mapped; and a range that
// grew, and was given up, for the same request is not the place of the new one.
func TestRangesOfAddresses(t *testing.T) {
	setup := Setup{Options: alloc.DefaultOptions(), Capacity: 200 * sim.MiB, Own: true}
	setup.Options.ExpandableSegments = true
	a, err := alloc.New(setup.Options, setup.Capacity, &device{recorded: make([]int, 2), passed: make([]int, 2)})
	if err != nil {
		t.Fatal(err)
	}
	rec := Record(a.(alloc.Inspector), 0, 11, nil)
	malloc := func(pages sim.Bytes, s alloc.Stream) alloc.Block {
		b, err := a.Malloc(pages*20*sim.MiB, s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	empty := a.(alloc.Reclaimer).EmptyCache

	// A range of twelve pages has the third and the eighth in use, a second one
	// of the same stream the second free. Five more do not fit in the first.
	var first []alloc.Block
	for range 9 {
		first = append(first, malloc(1, 0))
	}
	for i, b := range first {
		if i != 2 && i != 7 {
			a.Free(b)
		}
	}
	empty()
	a.Free(malloc(5, 0))
	c, d := malloc(1, 0), malloc(1, 0)
	a.Free(c)
	empty()
	a.Free(d)
	// With what another stream caches, they do not fit in the second either.
	a.Free(malloc(5, 1))
	malloc(5, 0)

	s := &snapshot.Snapshot{Settings: Settings(setup)}
	rec.AddTo(s)
	var got []string
	for _, e := range s.Traces[0] {
		if driverAction(e.Action) && e.Stream == 0 {
			begin, _ := rangeIn(e.Frames)
			got = append(got, fmt.Sprintf("%v of %d at %d", e.Action, e.Size>>20, (e.Addr-begin)>>20))
		}
	}
	if diff := cmp.Diff([]string{"segment_map of 20 at 0", "segment_unmap of 40 at 0", "segment_map of 100 at 0"}, got); diff != "" {
		t.Error(diff)
	}
	h, err := Rebuild(s, 0, setup.Options)
	if err != nil {
		t.Fatal(err)
	}
	begins := 0
	for _, g := range h.Start {
		if g.Size == 0 {
			begins++
		}
	}
	if begins != 2 {
		t.Errorf("%d ranges that begin before what is mapped, want 2: %+v", begins, h.Start)
	}
	if r, err := Replay(h, setup, 0); err != nil || r.First != nil || r.Model.Allocs != 0 || r.Model.Maps != 2 {
		t.Errorf("%v, %+v", err, r)
	}
}

// A record of the model's own that lost its beginning starts after its first
// request, whose segment may be lost, even if nothing else made room: a new
// segment serves what a cached one that is oversize does not.
func TestSegmentOfTheFirstRequestLost(t *testing.T) {
	setup := Setup{Options: alloc.DefaultOptions(), Own: true}
	setup.Options.MaxSplitSizeMB = 20
	a, err := alloc.New(setup.Options, 0, &device{recorded: make([]int, 1), passed: make([]int, 1)})
	if err != nil {
		t.Fatal(err)
	}
	rec := Record(a.(alloc.Inspector), 0, 3, nil)
	b, err := a.Malloc(2*sim.MiB, 0) // in a segment of 20
	if err != nil {
		t.Fatal(err)
	}
	a.Free(b)
	s := &snapshot.Snapshot{Settings: Settings(setup)}
	rec.AddTo(s)
	if got := s.Traces[0][0].Action; got != snapshot.Alloc {
		t.Fatalf("the record begins with %v", got)
	}
	h, err := Rebuild(s, 0, setup.Options)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Replay(h, setup, 0); err != nil || r.First != nil || r.Frees != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}
