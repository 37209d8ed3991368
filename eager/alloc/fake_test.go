package alloc

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"smartswap/sim"
)

// fakeEnv is a device whose streams pass their events when the test says so.
type fakeEnv struct {
	events   []mark
	recorded []int // events per stream
	passed   []int // of those, done
}

type mark struct {
	stream Stream
	nth    int // counted from 1
}

func newFakeEnv(streams int) *fakeEnv {
	return &fakeEnv{recorded: make([]int, streams), passed: make([]int, streams)}
}

func (e *fakeEnv) Record(s Stream) Event {
	e.recorded[s]++
	e.events = append(e.events, mark{s, e.recorded[s]})
	return Event(len(e.events) - 1)
}

func (e *fakeEnv) Done(ev Event) bool {
	m := e.events[ev]
	return m.nth <= e.passed[m.stream]
}

// Wait makes the device pass what a stream waits for: nothing that is enqueued
// on it from now on can run before.
func (e *fakeEnv) Wait(_ Stream, ev Event) {
	m := e.events[ev]
	e.passed[m.stream] = max(e.passed[m.stream], m.nth)
}

// pass completes the next n events of s.
func (e *fakeEnv) pass(s Stream, n int) { e.passed[s] = min(e.passed[s]+n, e.recorded[s]) }

// passAll completes everything recorded so far.
func (e *fakeEnv) passAll() { copy(e.passed, e.recorded) }

// options is the default with changes.
func options(change ...func(*Options)) Options {
	o := DefaultOptions()
	for _, f := range change {
		f(&o)
	}
	return o
}

func npu(o *Options)                    { o.Dialect = DialectTorchNPU }
func expandable(o *Options)             { o.ExpandableSegments = true }
func stitched(o *Options)               { o.Backend, o.Dialect = BackendStitching, DialectTorchNPU }
func splitFresh(o *Options)             { o.FreshSegmentSplit = true }
func early(o *Options)                  { o.Drain = DrainEarly }
func waits(o *Options)                  { o.EventPolicy = EventWaitAtReuse }
func refuse(o *Options)                 { o.ThrowOnNPUMallocOOM = true }
func page1g(o *Options)                 { o.PageSize = PageSize1G }
func align(kb int64) func(*Options)     { return func(o *Options) { o.BaseAddrAlignedKB = kb } }
func smallPage(mb int64) func(*Options) { return func(o *Options) { o.SegmentSizeMB = mb } }
func lazy(o *Options)                   { o.EventPolicy = EventQueryLazy }

func maxSplit(mb int64) func(*Options)     { return func(o *Options) { o.MaxSplitSizeMB = mb } }
func nonSplit(mb int64) func(*Options)     { return func(o *Options) { o.MaxNonSplitRoundingMB = mb } }
func divisions(d Divisions) func(*Options) { return func(o *Options) { o.RoundupPower2Divisions = d } }
func fraction(f float64) func(*Options)    { return func(o *Options) { o.PerProcessMemoryFraction = f } }
func collectAt(t float64) func(*Options) {
	return func(o *Options) { o.GarbageCollectionThreshold = t }
}
func largeSegment(mb int64) func(*Options) { return func(o *Options) { o.LargeSegmentSizeMB = mb } }
func backendBytes(o *Options)              { o.Backend = BackendBytes }
func mustNew(t rapid.TB, o Options, capacity sim.Bytes, env Env) inspectable {
	t.Helper()
	a, err := New(o, capacity, env)
	if err != nil {
		t.Fatal(err)
	}
	return a.(inspectable)
}

// mustMalloc fails the test if the allocator does.
func mustMalloc(t rapid.TB, a Allocator, size sim.Bytes, s Stream) Block {
	t.Helper()
	b, err := a.Malloc(size, s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// layout draws the segments: L or s for the pool (s1L: of stream 1; eL:
// expandable), then the blocks, A allocated, P pending, . inactive. The parts
// of a stitched block appear in their segments.
func layout(a Inspector) string {
	var segs []string
	for _, g := range a.Segments() {
		pool := "s"
		if g.Large {
			pool = "L"
		}
		if g.Expandable {
			pool = "e" + pool
		}
		if g.Stream != 0 {
			pool = fmt.Sprintf("s%d%s", g.Stream, pool)
		}
		var blocks []string
		for _, b := range g.Blocks {
			blocks = append(blocks, map[State]string{Allocated: "A", Pending: "P", Inactive: "."}[b.State]+short(b.Size))
		}
		segs = append(segs, pool+"["+strings.Join(blocks, " ")+"]")
	}
	return strings.Join(segs, " ")
}

// short writes whole MiB with an M, all else in bytes.
func short(n sim.Bytes) string {
	if n%sim.MiB == 0 {
		return fmt.Sprintf("%dM", n/sim.MiB)
	}
	return fmt.Sprint(int64(n))
}

// history collects an allocator's trace as words.
func history(a Inspector) *[]string {
	var h []string
	a.Observe(func(t Trace) { h = append(h, fmt.Sprintf("%s %s", t.Action, short(t.Size))) })
	return &h
}
