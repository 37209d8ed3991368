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

var operations = flag.Int("ops", 70_000, "operations of TestAgainstModel on each allocator; 1000000 is a thorough run")

// source chooses: from rapid, which shrinks what fails, or from a generator,
// which is faster.
type source interface{ below(n int) int }

type drawn struct{ t *rapid.T }

func (d drawn) below(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "choice") }

type generated struct{ r *rand.Rand }

func (g generated) below(n int) int { return g.r.IntN(n) }

func pick[T any](s source, from ...T) T { return from[s.below(len(from))] }

// allocators have a state machine each. The dialect of those that name none is
// random.
var allocators = []struct {
	name             string
	backend, dialect string
	expandable       bool
}{
	{"pytorch", BackendCaching, DialectPyTorch, false},
	{"pytorch with expandable segments", BackendCaching, DialectPyTorch, true},
	{"torch_npu", BackendCaching, DialectTorchNPU, false},
	{"torch_npu with expandable segments", BackendCaching, DialectTorchNPU, true},
	{"stitching", BackendStitching, "", false},
	{"bytes", BackendBytes, "", false},
}

// randomOptions are valid options of an allocator with the divisions spelt out
// for the model, and a capacity, 0 for unbounded.
func randomOptions(s source, which int) (o Options, divs [16]int64, capacity sim.Bytes) {
	kind := allocators[which]
	o = DefaultOptions()
	o.Backend, o.Dialect, o.ExpandableSegments = kind.backend, kind.dialect, kind.expandable
	if o.Dialect == "" {
		o.Dialect = pick(s, DialectPyTorch, DialectTorchNPU)
	}
	capacity = pick(s, 0, 60*sim.MiB, 150*sim.MiB-1, 400*sim.MiB)
	o.PerProcessMemoryFraction = pick(s, 0, 0.7, 1)
	if o.Backend == BackendBytes {
		capacity /= 4
		return o, divs, capacity
	}
	o.EventPolicy = pick(s, EventQuery, EventQueryLazy, EventWaitAtReuse)
	o.Drain = pick(s, DrainLate, DrainEarly)
	o.LargeSegmentSizeMB = pick[int64](s, 20, 20, 11, 14)
	if o.Backend == BackendStitching {
		o.LargeSegmentSizeMB = pick[int64](s, 20, 14)
		o.FreshSegmentSplit = s.below(2) == 0
	}
	npu := o.Dialect == DialectTorchNPU
	if npu && o.ExpandableSegments {
		o.LargeSegmentSizeMB = pick[int64](s, 20, 12)
		o.SegmentSizeMB = pick[int64](s, 2, 4)
		o.BaseAddrAlignedKB = pick[int64](s, 16, 0, 1, 64)
	} else {
		o.MaxSplitSizeMB = pick[int64](s, 0, 0, 20, 40)
		if o.MaxSplitSizeMB > 0 {
			o.MaxNonSplitRoundingMB = pick[int64](s, 20, 30)
		}
		if o.PerProcessMemoryFraction > 0 {
			o.GarbageCollectionThreshold = pick(s, 0, 0.3, 0.8)
		}
		o.ThrowOnNPUMallocOOM = npu && o.Backend == BackendCaching && s.below(4) == 0
	}
	if o.Backend == BackendStitching {
		return o, divs, capacity
	}
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
	malloc(pool PoolID, n int64, s Stream) (*modelBlock, *OOM)
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
	of        *modelBlock
}

// holder is a device whose run holds memory for copies under way, and frees the
// oldest when it is asked to.
type holder struct {
	*fakeEnv
	drain func() bool
}

func (h holder) Drain() bool { return h.drain() }

// bites count what makes a run worth something.
type bites struct{ ooms, reuses, pages, stitches, waits, drains, erased int }

// runTwins drives one of the allocators and its model with the same operations
// and compares everything that both tell.
func runTwins(t rapid.TB, s source, which, steps int) (bit bites) {
	o, divs, capacity := randomOptions(s, which)
	type pair struct {
		b    Block
		m    *modelBlock
		own  Stream
		uses []bool
	}
	var live, freed, heldA, heldM []pair
	var danger []held
	seen := map[uint64]bool{}
	var peak, largest int64                   // of reserved, and what was free then
	var handed, handedBytes, askedBytes int64 // blocks so far, their bytes, and what was requested

	env, menv := newFakeEnv(modelStreams), newFakeEnv(modelStreams)
	var a inspectable
	var m twin
	// free frees a block of the allocator, and notes what may still touch it.
	free := func(p pair) {
		h := held{of: p.m}
		for on, used := range p.uses {
			if used {
				h.marks = append(h.marks, mark{Stream(on), env.recorded[on] + 1})
			}
		}
		a.Pieces(p.b, func(addr uint64, n sim.Bytes) {
			if h.addr, h.end = addr, addr+uint64(n); h.marks != nil {
				danger = append(danger, h)
			}
		})
		a.Free(p.b)
		freed = append(freed[max(0, len(freed)-3):], p)
	}
	drain := func() bool {
		if len(heldA) == 0 {
			return false
		}
		bit.drains++
		free(heldA[0])
		heldA = heldA[1:]
		return true
	}
	mdrain := func() bool {
		if len(heldM) == 0 {
			return false
		}
		m.free(heldM[0].m)
		heldM = heldM[1:]
		return true
	}
	made, err := New(o, capacity, holder{env, drain})
	if err != nil {
		t.Fatal(err)
	}
	a = made.(inspectable)
	private := PoolID(0)
	switch o.Backend {
	case BackendBytes:
		m = &bytesModel{model: newModel(o, divs, int64(capacity), menv, mdrain)}
	case BackendStitching:
		x := newModel(o, divs, int64(capacity), menv, mdrain)
		x.most = pick[int64](s, x.most, 200<<20)
		a.(*stitching).most = sim.Bytes(x.most)
		m = x
	case BackendCaching:
		x := newModel(o, divs, int64(capacity), menv, mdrain)
		x.whole = s.below(2) == 0
		private = a.(PrivatePools).NewPool(x.whole)
		m = x
	}

	for step := range steps {
		op := s.below(20)
		if len(live) > 40 {
			op = 10 // grow no further
		}
		var fresh *pair
		switch {
		case op < 9 || len(live) == 0:
			size, on := randomSize(s), Stream(s.below(modelStreams))
			pool := DefaultPool
			if s.below(8) == 0 {
				pool = private
			}
			foreseen := settled(a) && len(heldA) == 0 && pool == DefaultPool
			fits := a.Fits(size, on)
			before := a.Stats()
			var b Block
			if pool == DefaultPool {
				b, err = a.Malloc(size, on)
			} else {
				b, err = a.(PrivatePools).MallocIn(pool, size, on)
			}
			if after := a.Stats(); foreseen {
				easy := err == nil && after.Retries == before.Retries && after.DriverFrees == before.DriverFrees
				if fits != easy {
					t.Fatalf("step %d: malloc %d on %d: Fits says %v, Malloc found %v", step, size, on, fits, easy)
				}
			}
			mb, moom := m.malloc(pool, int64(size), on)
			var oom *OOM
			if errors.As(err, &oom) {
				bit.ooms++
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
					bit.reuses++
				}
				seen[addr] = true
				handed, handedBytes, askedBytes = handed+1, handedBytes+mb.size, askedBytes+int64(size)
			}
		case op < 14:
			i := s.below(len(live))
			p := live[i]
			live = slices.Delete(live, i, i+1)
			if s.below(5) == 0 {
				heldA, heldM = append(heldA, p), append(heldM, p)
				break
			}
			free(p)
			m.free(p.m)
		case op < 17:
			p, on := live[s.below(len(live))], Stream(s.below(modelStreams))
			a.RecordStream(p.b, on)
			m.record(p.m, on)
			if on != p.own || o.Dialect == DialectTorchNPU {
				p.uses[on] = true
			}
		case op < 18:
			used, waiting := Stream(s.below(modelStreams)), Stream(s.below(modelStreams))
			p := live[s.below(len(live))]
			if len(freed) > 0 && s.below(2) == 0 {
				if p = freed[s.below(len(freed))]; p.m.state != Pending {
					break // its id may be in use again
				}
			}
			a.EraseStream(p.b, used, waiting)
			m.erase(p.m, used, waiting)
			if waiting == p.own {
				bit.erased++
				p.uses[used] = false
				// Stream order protects the reuse from now on.
				danger = slices.DeleteFunc(danger, func(h held) bool { return h.of == p.m })
			}
		default:
			switch on, n := Stream(s.below(modelStreams)), s.below(4); {
			case s.below(40) == 0:
				if private > 0 && s.below(3) == 0 {
					a.(PrivatePools).ClosePool(private)
					m.(*model).closed, private = true, 0
				}
				a.EmptyCache()
				m.empty()
			case s.below(40) == 0:
				a.ResetPeaks()
				ms, _ := m.report()
				for _, x := range statsOf(ms) {
					x.Peak = x.Current
				}
				largest = largestIn(m.segments())
			default:
				env.pass(on, n)
				menv.pass(on, n)
			}
		}

		costs := a.TakeCosts()
		bit.waits += costs.Waits
		if o.Backend == BackendStitching {
			bit.stitches += costs.Maps
		} else {
			bit.pages += costs.Maps
		}
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
			a.Pieces(fresh.b, func(addr uint64, n sim.Bytes) {
				for _, h := range danger {
					if addr < h.end && h.addr < addr+uint64(n) {
						t.Fatalf("step %d: handed out [%d, +%d) while a stream may still touch it", step, addr, n)
					}
				}
			})
		}
		stats := a.Stats()
		if stats.Reserved.Peak > peak {
			largest = largestIn(m.segments())
		}
		peak = stats.Reserved.Peak
		if o.Backend != BackendBytes && stats.LargestFree != largest {
			t.Fatalf("step %d: largest free block at the peak of %d reserved is %d, model %d", step, peak, stats.LargestFree, largest)
		}
		got, want := statsOf(&stats), statsOf(mstats)
		for i := range got {
			if got[i].Current != want[i].Current || got[i].Peak != want[i].Peak {
				t.Fatalf("step %d: statistic %d is %+v, model %+v; %+v", step, i, *got[i], *want[i], o)
			}
		}
		if got, want := [...]int64{stats.Allocations.Up(), stats.ActiveBlocks.Up(), stats.Active.Up(), stats.Requested.Up()}, [...]int64{handed, handed, handedBytes, askedBytes}; got != want {
			t.Fatalf("step %d: since the start %v blocks, active blocks, bytes, requested bytes; want %v", step, got, want)
		}
		if x, y := &stats, mstats; x.Retries != y.Retries || x.OOMs != y.OOMs || x.Syncs != y.Syncs || x.DriverAllocs != y.DriverAllocs || x.DriverFrees != y.DriverFrees || x.Rejections != y.Rejections {
			t.Fatalf("step %d: counters %+v, model %+v", step, x, y)
		}
		if step%16 == 0 || step == steps-1 {
			verify(t, a)
			if x, y := m.segments(), a.Segments(); !sameSegments(x, y) {
				t.Fatalf("step %d: segments, -model +allocator: %s", step, cmp.Diff(x, y, cmpopts.IgnoreFields(BlockInfo{}, "Block")))
			}
		}
	}

	for _, p := range slices.Concat(live, heldA) {
		a.Free(p.b)
	}
	env.passAll()
	if private > 0 {
		a.(PrivatePools).ClosePool(private)
	}
	a.EmptyCache()
	verify(t, a)
	if s := a.Stats(); s.Reserved.Current != 0 || s.Active.Current != 0 || s.Segments.Current != 0 || s.Requested.Current != 0 || s.InactiveSplits.Current != 0 {
		t.Fatalf("everything freed: %+v", s)
	}
	return bit
}

// Random programs, options and streams, small enough to shrink.
func TestAgainstModelShrinking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		which := rapid.IntRange(0, len(allocators)-1).Draw(t, "allocator")
		runTwins(t, drawn{t}, which, rapid.IntRange(1, 400).Draw(t, "steps"))
	})
}

// The same in long runs, so many operations on each allocator. They must run
// out of memory, reuse what was freed, map pages, stitch and so on often enough,
// or the test proves little.
func TestAgainstModel(t *testing.T) {
	const steps = 1500
	for which, kind := range allocators {
		t.Run(kind.name, func(t *testing.T) {
			var sum bites
			done := 0
			for i := uint64(0); done < *operations; i++ {
				n := min(steps, *operations-done)
				b := runTwins(t, generated{rand.New(rand.NewPCG(7+uint64(which), i))}, which, n)
				done += n
				sum.ooms += b.ooms
				sum.reuses += b.reuses
				sum.pages += b.pages
				sum.stitches += b.stitches
				sum.waits += b.waits
				sum.drains += b.drains
				sum.erased += b.erased
			}
			t.Logf("in %d operations: %+v", done, sum)
			want := []int{sum.ooms, sum.reuses, sum.drains, sum.erased}
			if kind.expandable {
				want = append(want, sum.pages)
			}
			if kind.backend == BackendStitching {
				want = append(want, sum.stitches)
			}
			if kind.backend != BackendBytes {
				want = append(want, sum.waits)
			}
			for _, n := range want {
				if n*200 < done {
					t.Errorf("too few of one kind in %d operations: %+v", done, sum)
				}
			}
		})
	}
}

// settled tells whether Fits foresees all that Malloc will do.
func settled(a inspectable) bool {
	c, _, _ := innards(a)
	return c.outstanding == 0 && !c.collects
}

// largestIn is the largest inactive block.
func largestIn(list []SegmentInfo) (largest int64) {
	for _, g := range list {
		for _, b := range g.Blocks {
			if b.State == Inactive {
				largest = max(largest, int64(b.Size))
			}
		}
	}
	return largest
}

// sameSegments compares all but the ids of blocks, which the model has not.
func sameSegments(x, y []SegmentInfo) bool {
	return slices.EqualFunc(x, y, func(a, b SegmentInfo) bool {
		return a.Addr == b.Addr && a.Size == b.Size && a.Stream == b.Stream && a.Large == b.Large && a.Expandable == b.Expandable && a.Pool == b.Pool &&
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

func (m *bytesModel) malloc(_ PoolID, n int64, s Stream) (*modelBlock, *OOM) {
	m.poll()
	m.retire()
	r := m.round(n)
	for m.stats.Active.Current+r > m.limitNow() && m.drain() {
		m.poll()
		m.retire()
	}
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
	g := &modelSegment{addr: m.nextAddr, stream: s, pool: m.poolOf(0, r), blocks: []*modelBlock{{addr: m.nextAddr, size: r}}}
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

func (m *bytesModel) erase(b *modelBlock, used, waiting Stream) {
	m.model.erase(b, used, waiting)
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
