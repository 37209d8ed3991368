package alloc

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"smartswap/sim"
)

var operations = flag.Int("ops", 150_000, "operations of TestAgainstModel; 1000000 is a thorough run")

// source chooses: from rapid, which shrinks what fails, or from a generator,
// which is faster.
type source interface{ below(n int) int }

type drawn struct{ t *rapid.T }

func (d drawn) below(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "choice") }

type generated struct{ r *rand.Rand }

func (g generated) below(n int) int { return g.r.IntN(n) }

func pick[T any](s source, from ...T) T { return from[s.below(len(from))] }

// randomOptions are valid options with the divisions spelt out for the model,
// and a capacity, 0 for unbounded.
func randomOptions(s source) (o Options, divs [16]int64, capacity sim.Bytes) {
	o = DefaultOptions()
	o.Dialect = pick(s, DialectPyTorch, DialectTorchNPU)
	capacity = pick(s, 0, 60*sim.MiB, 150*sim.MiB-1, 400*sim.MiB)
	o.MemoryFraction = pick(s, 0, 0.7, 1)
	if s.below(4) == 0 {
		o.Backend = BackendBytes
		capacity /= 4
		return o, divs, capacity
	}
	o.EventPolicy = pick(s, EventQuery, EventQueryLazy)
	o.MaxSplitSizeMB = pick[int64](s, 0, 0, 20, 40)
	if o.MaxSplitSizeMB > 0 {
		o.MaxNonSplitRoundingMB = pick[int64](s, 20, 30)
	}
	if o.MemoryFraction > 0 {
		o.GarbageCollectionThreshold = pick(s, 0, 0.3, 0.8)
	}
	o.LargeSegmentSizeMB = pick[int64](s, 20, 20, 11, 14)
	switch s.below(4) {
	case 0:
		o.RoundupPower2Divisions = "4"
		for i := range divs {
			divs[i] = 4
		}
	case 1:
		o.RoundupPower2Divisions = "[2:8, 4:2, 16:1, >:2]"
		divs = [16]int64{8, 8, 2, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}
	}
	return o, divs, capacity
}

func randomSize(s source) sim.Bytes {
	near := sim.Bytes(s.below(5)-2) * pick[sim.Bytes](s, 1, 32, 512)
	switch s.below(8) {
	case 0, 1:
		return sim.Bytes(1 + s.below(4096))
	case 2:
		return 512*sim.Bytes(1+s.below(4)) + max(near, -511)
	case 3:
		return sim.MiB + near
	case 4:
		return 10*sim.MiB + near
	case 5:
		return sim.MiB/2*sim.Bytes(1+s.below(20)) + near
	case 6:
		return pick[sim.Bytes](s, 16, 20, 22, 31, 40, 41)*sim.MiB + near
	}
	return sim.MiB + sim.Bytes(s.below(12<<20))
}

// twin is what the two models have in common.
type twin interface {
	malloc(n int64, s Stream) (*modelBlock, *OOM)
	free(b *modelBlock)
	record(b *modelBlock, s Stream)
	erase(b *modelBlock, used, waiting Stream)
	empty()
	segments() []SegmentInfo
	report() (*Stats, *Costs)
}

func (m *model) report() (*Stats, *Costs) { return &m.stats, &m.costs }

// held is a freed range and what the device must pass before its reuse.
type held struct {
	addr, end uint64
	marks     []mark
}

// runTwins drives an allocator and its model with the same operations and
// compares everything that both tell.
func runTwins(t rapid.TB, s source, steps int) (ooms, reuses int) {
	o, divs, capacity := randomOptions(s)
	env, menv := newFakeEnv(modelStreams), newFakeEnv(modelStreams)
	made, err := New(o, capacity, env)
	if err != nil {
		t.Fatal(err)
	}
	a := made.(inspectable)
	var m twin = newModel(o, divs, int64(capacity), menv)
	if o.Backend == BackendBytes {
		m = &bytesModel{model: newModel(o, divs, int64(capacity), menv)}
	}
	type pair struct {
		b    Block
		m    *modelBlock
		own  Stream
		uses []bool
	}
	var live []pair
	var danger []held
	seen := map[uint64]bool{}

	for step := range steps {
		op := s.below(20)
		if len(live) > 40 {
			op = 10 // grow no further
		}
		var fresh *pair
		switch {
		case op < 9 || len(live) == 0:
			size, on := randomSize(s), Stream(s.below(modelStreams))
			foreseen := settled(a)
			fits := a.Fits(size, on)
			before := a.Stats()
			b, err := a.Malloc(size, on)
			if after := a.Stats(); foreseen {
				easy := err == nil && after.Retries == before.Retries && after.DriverFrees == before.DriverFrees
				if fits != easy {
					t.Fatalf("step %d: malloc %d on %d: Fits says %v, Malloc found %v", step, size, on, fits, easy)
				}
			}
			mb, moom := m.malloc(int64(size), on)
			var oom *OOM
			if errors.As(err, &oom) {
				ooms++
			} else if err != nil {
				t.Fatal(err)
			}
			if (oom == nil) != (moom == nil) || oom != nil && *oom != *moom {
				t.Fatalf("step %d: malloc %d on %d, -model +allocator: %s", step, size, on, cmp.Diff(moom, oom))
			}
			if oom == nil {
				live = append(live, pair{b, mb, on, make([]bool, modelStreams)})
				fresh = &live[len(live)-1]
				addr, n := a.Range(b)
				if addr != mb.addr || n != sim.Bytes(mb.size) {
					t.Fatalf("step %d: malloc %d on %d at %d (%d bytes), model %d (%d bytes)", step, size, on, addr, n, mb.addr, mb.size)
				}
				if seen[addr] {
					reuses++
				}
				seen[addr] = true
			}
		case op < 14:
			i := s.below(len(live))
			p := live[i]
			live = slices.Delete(live, i, i+1)
			addr, n := a.Range(p.b)
			h := held{addr: addr, end: addr + uint64(n)}
			a.Free(p.b)
			m.free(p.m)
			for on, used := range p.uses {
				if used {
					h.marks = append(h.marks, mark{Stream(on), env.recorded[on]})
				}
			}
			if h.marks != nil {
				danger = append(danger, h)
			}
		case op < 17:
			p, on := live[s.below(len(live))], Stream(s.below(modelStreams))
			a.RecordStream(p.b, on)
			m.record(p.m, on)
			if on != p.own || o.Dialect == DialectTorchNPU {
				p.uses[on] = true
			}
		case op < 18:
			p, used, waiting := live[s.below(len(live))], Stream(s.below(modelStreams)), Stream(s.below(modelStreams))
			a.EraseStream(p.b, used, waiting)
			m.erase(p.m, used, waiting)
			if waiting == p.own {
				p.uses[used] = false
			}
		default:
			switch on, n := Stream(s.below(modelStreams)), s.below(4); {
			case s.below(40) == 0:
				a.EmptyCache()
				m.empty()
			case s.below(40) == 0:
				a.ResetPeaks()
				ms, _ := m.report()
				for _, x := range statsOf(ms) {
					x.Peak = x.Current
				}
			default:
				env.pass(on, n)
				menv.pass(on, n)
			}
		}

		costs := a.TakeCosts()
		mstats, mcosts := m.report()
		if costs != *mcosts {
			t.Fatalf("step %d: costs %+v, model %+v", step, costs, *mcosts)
		}
		*mcosts = Costs{}
		if costs.Sync || costs.DeviceSync {
			env.passAll()
			menv.passAll()
		}
		danger = slices.DeleteFunc(danger, func(h held) bool {
			return !slices.ContainsFunc(h.marks, func(k mark) bool { return k.nth > env.passed[k.stream] })
		})
		if fresh != nil {
			addr, n := a.Range(fresh.b)
			for _, h := range danger {
				if addr < h.end && h.addr < addr+uint64(n) {
					t.Fatalf("step %d: handed out [%d, +%d) while a stream may still touch it", step, addr, n)
				}
			}
		}
		stats := a.Stats()
		got, want := statsOf(&stats), statsOf(mstats)
		for i := range got {
			if got[i].Current != want[i].Current || got[i].Peak != want[i].Peak {
				t.Fatalf("step %d: statistic %d is %+v, model %+v", step, i, *got[i], *want[i])
			}
		}
		if x, y := &stats, mstats; x.Retries != y.Retries || x.OOMs != y.OOMs || x.Syncs != y.Syncs || x.DriverAllocs != y.DriverAllocs || x.DriverFrees != y.DriverFrees {
			t.Fatalf("step %d: counters %+v, model %+v", step, x, y)
		}
		if step%16 == 0 || step == steps-1 {
			verify(t, a)
			if x, y := m.segments(), a.Segments(); !sameSegments(x, y) {
				t.Fatalf("step %d: segments, -model +allocator: %s", step, cmp.Diff(x, y, cmpopts.IgnoreFields(BlockInfo{}, "Block")))
			}
		}
	}

	for _, p := range live {
		a.Free(p.b)
	}
	env.passAll()
	a.EmptyCache()
	verify(t, a)
	if s := a.Stats(); s.Reserved.Current != 0 || s.Active.Current != 0 || s.Segments.Current != 0 || s.InactiveSplits.Current != 0 {
		t.Fatalf("everything freed: %+v", s)
	}
	return ooms, reuses
}

// Random programs, options and streams, small enough to shrink.
func TestAgainstModelShrinking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runTwins(t, drawn{t}, rapid.IntRange(1, 400).Draw(t, "steps"))
	})
}

// The same in long runs. The share of runs with out-of-memory and of requests
// served by memory used before must be high, or the test proves little.
func TestAgainstModel(t *testing.T) {
	const steps = 1500
	ooms, reuses := 0, 0
	for i := 0; i*steps < *operations; i++ {
		o, r := runTwins(t, generated{rand.New(rand.NewPCG(7, uint64(i)))}, steps)
		ooms += o
		reuses += r
	}
	if ooms*50 < *operations || reuses*20 < *operations {
		t.Errorf("of %d operations %d ran out of memory and %d reused an address: too few", *operations, ooms, reuses)
	}
}

// settled tells whether Fits foresees all that Malloc will do.
func settled(a inspectable) bool {
	switch c := a.(type) {
	case *caching:
		return c.outstanding == 0 && !c.collects
	case *bytesOnly:
		return c.outstanding == 0
	}
	return false
}

// sameSegments compares all but the ids of blocks, which the model has not.
func sameSegments(x, y []SegmentInfo) bool {
	return slices.EqualFunc(x, y, func(a, b SegmentInfo) bool {
		return a.Addr == b.Addr && a.Size == b.Size && a.Stream == b.Stream && a.Large == b.Large &&
			slices.EqualFunc(a.Blocks, b.Blocks, func(a, b BlockInfo) bool {
				a.Block, b.Block = 0, 0
				return a == b
			})
	})
}

// bytesModel is the bytes allocator as a list of ranges.
type bytesModel struct {
	*model
	idle []*modelSegment // in the order of their frees
}

func (m *bytesModel) limitNow() int64 {
	if l := m.limit(); l > 0 {
		return l
	}
	return m.capacity
}

func (m *bytesModel) malloc(n int64, s Stream) (*modelBlock, *OOM) {
	m.poll()
	m.retire()
	r := m.round(n)
	if m.stats.Active.Current+r > m.limitNow() && len(m.waiting) > 0 {
		m.empty()
		m.stats.Retries++
	}
	if left := m.limitNow() - m.stats.Active.Current; left < r {
		m.stats.OOMs++
		return nil, &OOM{
			Requested: sim.Bytes(n), Rounded: sim.Bytes(r), Segment: sim.Bytes(r),
			Allocated: sim.Bytes(m.stats.Allocated.Current), Active: sim.Bytes(m.stats.Active.Current),
			Reserved: sim.Bytes(m.stats.Active.Current), Capacity: sim.Bytes(m.capacity), Limit: sim.Bytes(m.limit()),
			LargestFree: sim.Bytes(left), Retries: m.stats.Retries,
		}
	}
	g := &modelSegment{m.nextAddr, s, r > 1<<20, []*modelBlock{{addr: m.nextAddr, size: r}}}
	if i := lastIndex(m.idle, func(x *modelSegment) bool { return x.stream == s && x.blocks[0].size == r }); i >= 0 {
		g.addr = m.idle[i].addr
		g.blocks[0].addr = g.addr
		m.idle = slices.Delete(m.idle, i, i+1)
	} else {
		m.nextAddr += uint64(r)
	}
	b := g.blocks[0]
	b.state, b.req, b.uses = Allocated, n, make([]bool, modelStreams)
	m.segs = append(m.segs, g)
	m.observe()
	return b, nil
}

func lastIndex(list []*modelSegment, is func(*modelSegment) bool) int {
	for i, g := range slices.Backward(list) {
		if is(g) {
			return i
		}
	}
	return -1
}

// retire moves ranges that became inactive to the idle ones. Several at once
// do so in the order in which their events were found done.
func (m *bytesModel) retire() {
	for _, g := range m.done {
		m.idle = append(m.idle, g)
		m.segs = slices.DeleteFunc(m.segs, func(x *modelSegment) bool { return x == g })
	}
	m.done = nil
	m.observe()
}

func (m *bytesModel) free(b *modelBlock) {
	m.model.free(b)
	m.retire()
}

func (m *bytesModel) empty() {
	m.stats.Syncs++
	if len(m.waiting) > 0 {
		m.costs.Sync = true
	}
	for len(m.waiting) > 0 {
		first := slices.MinFunc(m.waiting, func(a, b modelEvent) int { return int(a.stream - b.stream) })
		m.endEvent(slices.IndexFunc(m.waiting, func(e modelEvent) bool { return e.event == first.event }))
	}
	m.retire()
}

func (m *bytesModel) segments() []SegmentInfo {
	list := m.model.segments()
	slices.SortFunc(list, func(a, b SegmentInfo) int { return int(a.Addr) - int(b.Addr) })
	return list
}

func (m *bytesModel) report() (*Stats, *Costs) {
	// What is reserved is what is active, and there are no segments.
	s := &m.stats
	s.Reserved, s.Segments = s.Active, Stat{}
	s.InactiveSplit, s.InactiveSplits = Stat{}, Stat{}
	return s, &m.costs
}
