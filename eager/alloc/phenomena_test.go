package alloc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"smartswap/sim"
)

// What users of these allocators report, each as small as it can be shown.

// mallocs allocates n blocks of a size on stream 0.
func mallocs(t testing.TB, a Allocator, n int, size sim.Bytes) (list []Block) {
	t.Helper()
	for range n {
		list = append(list, mustMalloc(t, a, size, 0))
	}
	return list
}

func free(a Allocator, list []Block) {
	for _, b := range list {
		a.Free(b)
	}
}

// The order of sizes decides what is reserved: small segments serve no large
// requests, large ones serve small requests. Pages and stitching do not care.
func TestOrderOfSizes(t *testing.T) {
	for _, c := range []struct {
		name               string
		options            Options
		smallFirst, lFirst int64 // MiB
	}{
		{"classic", options(), 256, 128},
		{"expandable", options(expandable), 140, 140},
		{"stitching", options(stitched), 144, 144},
		{"bytes", options(backendBytes), 128, 128},
	} {
		for i, sizes := range [][2]sim.Bytes{{16, 32}, {32, 16}} {
			a := mustNew(t, c.options, 0, newFakeEnv(1))
			for _, size := range sizes {
				free(a, mallocs(t, a, int(128/size), size*sim.MiB))
			}
			want := []int64{c.smallFirst, c.lFirst}[i]
			if got := a.Stats().Reserved.Peak >> 20; got != want {
				t.Errorf("%s, %v MiB: %d MiB reserved, want %d", c.name, sizes, got, want)
			}
		}
	}
}

// A free block of another stream does not serve, and the report names it.
func TestOtherStreamsBlock(t *testing.T) {
	a := mustNew(t, options(), 100*sim.MiB, newFakeEnv(2))
	keep := mustMalloc(t, a, 5*sim.MiB, 1)
	big := mustMalloc(t, a, 15*sim.MiB, 1)
	mustMalloc(t, a, 80*sim.MiB, 0)
	a.Free(big)
	_, err := a.Malloc(12*sim.MiB, 0)
	var oom *OOM
	if !errors.As(err, &oom) {
		t.Fatal(err)
	}
	if got, want := *oom, (OOM{
		Requested: 12 * sim.MiB, Rounded: 12 * sim.MiB, Segment: 12 * sim.MiB, Allocated: 85 * sim.MiB, Active: 85 * sim.MiB,
		Reserved: 100 * sim.MiB, Capacity: 100 * sim.MiB, OtherFree: 15 * sim.MiB, OtherStream: 1, Retries: 1,
	}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !strings.Contains(oom.Error(), "largest free block 0 (stream 1 has one of 15728640)") || !strings.Contains(oom.Torch(), "Reserved but not allocated: 15.00 MiB") {
		t.Error(oom.Error(), oom.Torch())
	}
	if got := a.LargestFree(12*sim.MiB, 1); got != 15*sim.MiB {
		t.Errorf("largest free block of stream 1: %d", got)
	}
	a.Free(keep)
}

// More than half of the memory is idle, and nothing fits, because every segment
// is held by a live block. In an expandable segment the rest of the device's
// memory joins the free end.
func TestIdleMemoryThatDoesNotServe(t *testing.T) {
	for _, c := range []struct {
		options Options
		fits    bool
	}{{options(), false}, {options(npu), false}, {options(expandable), true}, {options(expandable, npu), true}, {options(stitched, splitFresh), true}} {
		a := mustNew(t, c.options, 160*sim.MiB, newFakeEnv(1))
		list := mallocs(t, a, 16, 8*sim.MiB-32)
		for i, b := range list {
			if i%2 == 0 {
				a.Free(b)
			}
		}
		s := a.Stats()
		idle := 160 - s.Allocated.Current>>20
		_, err := a.Malloc(16*sim.MiB-32, 0)
		if (err == nil) != c.fits || idle < 80 && !c.fits {
			t.Errorf("%s %s expandable %v: %d of 160 MiB idle, 16 MiB more: %v", c.options.Backend, c.options.Dialect, c.options.ExpandableSegments, idle, err)
		}
	}
}

// Sequences of varying length leave segments behind that fit no later request.
// Pages serve any of them, stitched pieces only those of 16 MiB and more.
func TestVaryingLengths(t *testing.T) {
	external := func(o Options) float64 {
		a := mustNew(t, o, 0, newFakeEnv(1))
		r := rand.New(rand.NewPCG(3, 5))
		for range 200 {
			length := sim.Bytes(512 + r.IntN(3584))
			var live []Block
			for layer := range 24 {
				live = append(live, mustMalloc(t, a, length*sim.Bytes(8192+1024*(layer%3)), 0))
			}
			free(a, live)
		}
		s := a.Stats()
		return 1 - float64(s.Active.Peak)/float64(s.Reserved.Peak)
	}
	classic, pages, stitching := external(options()), external(options(expandable)), external(options(stitched))
	if classic < 0.5 || pages > 0.02 || stitching < 0.1 || stitching > 0.4 {
		t.Errorf("reserved beyond the peak of active: classic %.3f, expandable %.3f, stitching %.3f; want above 0.5, below 0.02, between", classic, pages, stitching)
	}
}

// record_stream holds a block until the device has caught up, a host that is
// lag iterations ahead so many of them; a stream that is made to wait holds none.
func TestRecordStreamRaisesThePeak(t *testing.T) {
	const size = 64 * sim.MiB
	for lag := range 5 {
		for _, join := range []bool{false, true} {
			env := newFakeEnv(2)
			a := mustNew(t, options(), 0, env)
			for i := range 20 {
				env.passed[1] = max(0, i-lag)
				b := mustMalloc(t, a, size, 0)
				if !join {
					a.RecordStream(b, 1)
				}
				a.Free(b)
			}
			want := size
			if !join {
				want += sim.Bytes(lag) * size
			}
			if got := sim.Bytes(a.Stats().Active.Peak); got != want {
				t.Errorf("lag %d, join %v: peak %d, want %d", lag, join, got, want)
			}
		}
	}
}

// The same lag when reuse waits on the device instead: no block is held, no
// event is asked for, and each reuse costs a wait.
func TestWaitAtReuse(t *testing.T) {
	env := newFakeEnv(2)
	a := mustNew(t, options(waits), 0, env)
	for range 20 {
		b := mustMalloc(t, a, 64*sim.MiB, 0)
		a.RecordStream(b, 1)
		a.Free(b)
	}
	k := a.TakeCosts()
	if got := a.Stats().Reserved.Peak >> 20; got != 64 || k.Polls != 0 || k.Waits != 19 || k.Records != 20 {
		t.Errorf("reserved %d MiB, %+v; want 64, 19 waits, 20 records, no polls", got, k)
	}
}

// 24 host buffers of 2.0832 GiB book 96 GiB rounded to powers of two, and 50
// as they are, or with a threshold below them.
func TestPinnedBooking(t *testing.T) {
	const size = sim.Bytes(2236827992) // 2.0832 GiB
	for _, c := range []struct {
		options PinnedOptions
		want    float64
	}{
		{PinnedOptions{Rounding: RoundPow2, Reuse: BuffersReuse}, 96},
		{PinnedOptions{Rounding: RoundExact, Reuse: BuffersReuse}, 50},
		{PinnedOptions{Rounding: RoundPow2, Reuse: BuffersReuse, MaxRoundThresholdMB: 1024}, 50},
	} {
		p, err := NewPinned(c.options, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 24 {
			if _, _, err := p.Alloc(size); err != nil {
				t.Fatal(err)
			}
		}
		if got := float64(p.Stats().Pinned.Current) / float64(sim.GiB); got < c.want-0.01 || got > c.want {
			t.Errorf("%+v: %.3f GiB, want %.0f", c.options, got, c.want)
		}
	}
}

// Page-locking 155 buffers at 3 ms each costs 465 ms in every iteration, unless
// they are kept: then it is paid once.
func TestPinningOnTheFly(t *testing.T) {
	const pin = 3 * sim.Millisecond
	for _, c := range []struct {
		reuse         string
		first, second sim.Time
	}{{BuffersFresh, 465 * sim.Millisecond, 465 * sim.Millisecond}, {BuffersReuse, 465 * sim.Millisecond, 0}} {
		p, err := NewPinned(PinnedOptions{Rounding: RoundExact, Reuse: c.reuse}, 0)
		if err != nil {
			t.Fatal(err)
		}
		iteration := func() (cost sim.Time) {
			var live []Buffer
			for i := range 155 {
				b, pinned, err := p.Alloc(sim.Bytes(i%5+1) * sim.MiB)
				if err != nil {
					t.Fatal(err)
				}
				if pinned > 0 {
					cost += pin
				}
				live = append(live, b)
			}
			for _, b := range live {
				p.Free(b)
			}
			return cost
		}
		if first, second := iteration(), iteration(); first != c.first || second != c.second {
			t.Errorf("%s: %v, then %v; want %v, then %v", c.reuse, first, second, c.first, c.second)
		}
	}
}

// Swapping lowers what is allocated; what is reserved hardly, as long as the
// pool grows before memory that is only held for copies is freed.
func TestDrainingBeforeGrowing(t *testing.T) {
	peak := func(o Options) (allocated, reserved int64) {
		var a Allocator
		var held []Block
		a = mustNew(t, o, 1*sim.GiB, holder{newFakeEnv(1), func() bool {
			if len(held) == 0 {
				return false
			}
			a.Free(held[0])
			held = held[1:]
			return true
		}})
		// Each layer's activation is swapped out while the next ones run; its
		// memory is held until the copy, far behind, ends.
		for range 12 {
			held = append(held, mustMalloc(t, a, 100*sim.MiB, 0))
		}
		s := a.Stats()
		return s.Allocated.Peak >> 20, s.Reserved.Peak >> 20
	}
	for _, c := range []struct {
		name                string
		options             Options
		allocated, reserved int64
	}{
		{"stitching", options(stitched), 1020, 1020},
		{"stitching", options(stitched, early), 102, 102},
		{"caching", options(), 1000, 1000},
		{"caching", options(early), 100, 100},
	} {
		t.Run(fmt.Sprintf("%s %s", c.name, c.options.Drain), func(t *testing.T) {
			if allocated, reserved := peak(c.options); allocated != c.allocated || reserved != c.reserved {
				t.Errorf("allocated %d MiB, reserved %d MiB; want %d, %d", allocated, reserved, c.allocated, c.reserved)
			}
		})
	}
}

// The history tells what happened while room was made for a request: frees of a
// Drainer, frees that were waited for, and segments given back; not what
// happened before.
func TestMaking(t *testing.T) {
	env := newFakeEnv(2)
	var held []Block
	var a inspectable
	a = mustNew(t, options(), 100*sim.MiB, holder{env, func() bool {
		if len(held) == 0 {
			return false
		}
		a.Free(held[0])
		held = held[1:]
		return true
	}})
	var got []string
	a.Observe(func(e Trace) {
		mark := ""
		if e.Making {
			mark = "*"
		}
		got = append(got, mark+e.Action.String())
	})
	x := mustMalloc(t, a, 40*sim.MiB, 0)
	held = append(held, mustMalloc(t, a, 40*sim.MiB, 0))
	a.RecordStream(x, 1)
	a.Free(x)
	mustMalloc(t, a, 90*sim.MiB, 0) // the Drainer's 40 MiB are too small, the deferred ones not over
	if _, err := a.Malloc(20*sim.MiB, 0); err == nil {
		t.Fatal("fits")
	}
	a.EmptyCache()
	want := "*segment_alloc alloc *segment_alloc alloc free_requested *free_requested free_completed *free_completed *segment_free *segment_free *segment_alloc alloc oom"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got\n%s, want\n%s", s, want)
	}
}
