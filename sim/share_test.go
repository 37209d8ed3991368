package sim

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// end is the end of a flow.
type end struct {
	At  Time
	Arg uint32
}

// rig is an engine with a Share that records ends.
type rig struct {
	*Share
	e    *Engine
	done HandlerID
	ends []end
}

func newRig(capacities ...Rate) *rig {
	e := NewEngine()
	r := &rig{Share: NewShare(e), e: e}
	r.done = e.Register(handlerFunc(func(arg uint32, _ Stamp) { r.ends = append(r.ends, end{e.Now(), arg}) }))
	for i, c := range capacities {
		r.Resource(fmt.Sprint("r", i), c)
	}
	return r
}

// flow starts a flow; its arg is n.
func (r *rig) flow(n uint32, w Work, cap Rate, weight int32, path ...Use) FlowID {
	return r.Start(FlowSpec{Path: path, Cap: cap, Weight: weight, Work: w, Done: r.done, Arg: n})
}

// at calls f at time t, after what ends there.
func (r *rig) at(t Time, f func()) {
	r.e.At(t, PrioHost, r.e.Register(handlerFunc(func(uint32, Stamp) { f() })), 0)
}

func on(r ResourceID) Use { return Use{Resource: r} }

// GB per second per byte: at 1 GB/s a byte takes a nanosecond.
const gb = Rate(1e9)

// Every case ends at the picosecond that pencil and paper give.
func TestClosedForms(t *testing.T) {
	const free = 1000 * gb // a cap that never binds
	for _, c := range []struct {
		name       string
		capacities []Rate
		do         func(r *rig)
		want       []end
	}{
		{"alone at its cap", []Rate{10 * gb}, func(r *rig) {
			r.flow(1, BytesWork(8000), 8*gb, 0, on(0))
		}, []end{{1000 * Nanosecond, 1}}},
		{"alone on a link", []Rate{10 * gb}, func(r *rig) {
			r.flow(1, BytesWork(8000), free, 0, on(0))
		}, []end{{800 * Nanosecond, 1}}},
		{"no path: at its cap", nil, func(r *rig) {
			r.flow(1, BytesWork(8000), 4*gb, 0)
		}, []end{{2000 * Nanosecond, 1}}},
		{"an end between picoseconds is the next one", nil, func(r *rig) {
			r.flow(1, BytesWork(1), 3*gb, 0) // 333.3 ps
		}, []end{{334, 1}}},
		{"no work ends at once", []Rate{gb}, func(r *rig) {
			r.flow(1, BytesWork(0), free, 0, on(0))
		}, []end{{0, 1}}},
		{"a span at a rate takes the span", []Rate{1_600_000_000_001}, func(r *rig) {
			r.flow(1, SpanWork(239_000_000_017, 1_234_567_890_123), 1_234_567_890_123, 0, on(0))
		}, []end{{239_000_000_017, 1}}},
		{"two alike share equally", []Rate{10 * gb}, func(r *rig) {
			r.flow(1, BytesWork(1000), free, 0, on(0))
			r.flow(2, BytesWork(1000), free, 0, on(0))
		}, []end{{200 * Nanosecond, 1}, {200 * Nanosecond, 2}}},
		// 2 moves 1000 bytes by 200 ns, then its other 1000 at 10 GB/s.
		{"the longer gets all when the shorter ends", []Rate{10 * gb}, func(r *rig) {
			r.flow(1, BytesWork(1000), free, 0, on(0))
			r.flow(2, BytesWork(2000), free, 0, on(0))
		}, []end{{200 * Nanosecond, 1}, {300 * Nanosecond, 2}}},
		// 1 moves 500 bytes alone, then 500 at half rate.
		{"an arrival in the middle", []Rate{10 * gb}, func(r *rig) {
			r.flow(1, BytesWork(1000), free, 0, on(0))
			r.at(50*Nanosecond, func() { r.flow(2, BytesWork(1000), free, 0, on(0)) })
		}, []end{{150 * Nanosecond, 1}, {200 * Nanosecond, 2}}},
		{"weights 1:2", []Rate{9 * gb}, func(r *rig) {
			r.flow(1, BytesWork(3000), free, 1, on(0))
			r.flow(2, BytesWork(6000), free, 2, on(0))
		}, []end{{1000 * Nanosecond, 1}, {1000 * Nanosecond, 2}}},
		{"what a cap leaves goes to the other", []Rate{10 * gb}, func(r *rig) {
			r.flow(1, BytesWork(2000), 2*gb, 0, on(0))
			r.flow(2, BytesWork(8000), free, 0, on(0))
		}, []end{{1000 * Nanosecond, 1}, {1000 * Nanosecond, 2}}},
		{"three caps, one binds", []Rate{12 * gb}, func(r *rig) {
			r.flow(1, BytesWork(2000), 2*gb, 0, on(0))
			r.flow(2, BytesWork(5000), 20*gb, 0, on(0))
			r.flow(3, BytesWork(5000), 6*gb, 0, on(0))
		}, []end{{1000 * Nanosecond, 1}, {1000 * Nanosecond, 2}, {1000 * Nanosecond, 3}}},
		// Both directions together at most 45: 28 alone, 22.5 each together.
		{"a pair of directions with a cap on the sum", []Rate{28 * gb, 28 * gb, 45 * gb}, func(r *rig) {
			r.flow(1, BytesWork(22500), free, 0, on(0), on(2))
			r.flow(2, BytesWork(22500+28000), free, 0, on(1), on(2))
		}, []end{{1000 * Nanosecond, 1}, {2000 * Nanosecond, 2}}},
		{"an uplink shared by four", []Rate{24 * gb, 25 * gb, 25 * gb, 25 * gb, 25 * gb}, func(r *rig) {
			for i := range uint32(4) {
				r.flow(i, BytesWork(6000), free, 0, on(ResourceID(1+i)), on(0))
			}
		}, []end{{1000 * Nanosecond, 0}, {1000 * Nanosecond, 1}, {1000 * Nanosecond, 2}, {1000 * Nanosecond, 3}}},
		{"one for four on the uplink", []Rate{24 * gb, 25 * gb}, func(r *rig) {
			r.flow(0, BytesWork(6000), free, 0, on(1), Use{0, 4})
		}, []end{{1000 * Nanosecond, 0}}},
		{"uses of one resource add up", []Rate{24 * gb}, func(r *rig) {
			r.flow(0, BytesWork(6000), free, 0, Use{0, 1}, Use{0, 3})
		}, []end{{1000 * Nanosecond, 0}}},
		{"one for three beside one", []Rate{24 * gb}, func(r *rig) {
			r.flow(0, BytesWork(6000), free, 0, Use{0, 3})
			r.flow(1, BytesWork(6000), free, 0, on(0))
		}, []end{{1000 * Nanosecond, 0}, {1000 * Nanosecond, 1}}},
		// A kernel that draws 900 of 1000 and a copy of 100 fit.
		{"kernel and copy fit in memory bandwidth", []Rate{1000 * gb, 100 * gb}, func(r *rig) {
			r.flow(1, SpanWork(Microsecond, 900*gb), 900*gb, 0, on(0))
			r.flow(2, BytesWork(100_000), free, 0, on(1), on(0))
		}, []end{{Microsecond, 1}, {Microsecond, 2}}},
		// The copy keeps its 100, the kernel 900 of 1000: 9/10 of its
		// progress for 1 us, then full speed for the last tenth.
		{"a kernel slowed by a copy", []Rate{1000 * gb, 100 * gb}, func(r *rig) {
			r.flow(1, SpanWork(Microsecond, 1000*gb), 1000*gb, 0, on(0))
			r.flow(2, BytesWork(100_000), free, 0, on(1), on(0))
		}, []end{{Microsecond, 2}, {Microsecond + 100*Nanosecond, 1}}},
		// The textbook line: a long flow over two links, a short on each;
		// link 0 holds the long one to 5, so that link 1 has 15 left.
		{"a line of two links", []Rate{10 * gb, 20 * gb}, func(r *rig) {
			r.flow(1, BytesWork(5000), free, 0, on(0), on(1))
			r.flow(2, BytesWork(5000), free, 0, on(0))
			r.flow(3, BytesWork(15000), free, 0, on(1))
		}, []end{{Microsecond, 1}, {Microsecond, 2}, {Microsecond, 3}}},
		{"a cap lowered in the middle", []Rate{10 * gb}, func(r *rig) {
			id := r.flow(1, BytesWork(10000), 10*gb, 0, on(0))
			r.at(500*Nanosecond, func() { r.SetCap(id, 5*gb) })
		}, []end{{1500 * Nanosecond, 1}}},
		{"a cap raised again before it mattered", []Rate{10 * gb}, func(r *rig) {
			id := r.flow(1, BytesWork(10000), 3*gb, 0, on(0)) // 3333.3 ns
			r.at(77, func() { r.SetCap(id, 5*gb); r.SetCap(id, 3*gb) })
		}, []end{{3_333_334, 1}}},
		{"a capacity lowered in the middle", []Rate{10 * gb}, func(r *rig) {
			r.flow(1, BytesWork(10000), free, 0, on(0))
			r.at(500*Nanosecond, func() { r.SetCapacity(0, 2*gb) })
		}, []end{{3000 * Nanosecond, 1}}},
		{"a capacity raised in the middle", []Rate{10 * gb}, func(r *rig) {
			r.flow(1, BytesWork(10000), 12*gb, 0, on(0))
			r.at(400*Nanosecond, func() { r.SetCapacity(0, 20*gb) })
		}, []end{{900 * Nanosecond, 1}}},
		{"a path changed in the middle", []Rate{10 * gb, 5 * gb}, func(r *rig) {
			id := r.flow(1, BytesWork(10000), free, 0, on(0))
			r.at(500*Nanosecond, func() { r.SetPath(id, []Use{on(1)}) })
		}, []end{{1500 * Nanosecond, 1}}},
		{"one is cancelled", []Rate{10 * gb}, func(r *rig) {
			r.flow(1, BytesWork(10000), free, 0, on(0))
			id := r.flow(2, BytesWork(10000), free, 0, on(0))
			r.at(Microsecond, func() { r.Cancel(id) })
		}, []end{{1500 * Nanosecond, 1}}},
		// A third of 10 GB/s is not whole: 3 x 3,333,333,333 B/s, and the
		// end is rounded once.
		{"rates are rounded down", []Rate{10 * gb}, func(r *rig) {
			for i := range uint32(3) {
				r.flow(i, SpanWork(12345, 3_333_333_333), free, 0, on(0))
			}
		}, []end{{12345, 0}, {12345, 1}, {12345, 2}}},
		{"no flow stands still", []Rate{2}, func(r *rig) {
			for i := range uint32(4) {
				r.flow(i, BytesWork(1), free, 0, on(0)) // half a byte per second each
			}
		}, []end{{Second, 0}, {Second, 1}, {Second, 2}, {Second, 3}}},
		{"the widest numbers", nil, func(r *rig) {
			r.flow(1, SpanWork(Forever-1, math.MaxInt64), math.MaxInt64, 0)
		}, []end{{Forever - 1, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(c.capacities...)
			c.do(r)
			if err := r.e.Run(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, r.ends); diff != "" {
				t.Errorf("ends (-want +got):\n%s", diff)
			}
			for i := range c.capacities {
				id := ResourceID(i)
				if r.Load(id) != 0 || r.Flows(id) != 0 {
					t.Errorf("%s: load %v of %d flows is left", r.Name(id), r.Load(id), r.Flows(id))
				}
			}
		})
	}
}

// Flows that end at one instant end in the order in which their ends were
// scheduled; a flow re-timed to the instant at which it ends anyway keeps its
// place.
func TestEndsTie(t *testing.T) {
	r := newRig()
	late := r.flow(1, BytesWork(20), gb, 0)
	same := r.flow(2, BytesWork(10), gb, 0)
	r.flow(3, BytesWork(10), gb, 0)
	r.at(0, func() { r.SetCap(late, 2*gb) })
	r.at(5*Nanosecond, func() { r.SetCap(same, gb) })
	if err := r.e.Run(); err != nil {
		t.Fatal(err)
	}
	want := []end{{10 * Nanosecond, 2}, {10 * Nanosecond, 3}, {10 * Nanosecond, 1}}
	if diff := cmp.Diff(want, r.ends); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
}

// Two resources fill up at the same level and rounding favours the second; it
// is the one of higher number, whatever order a path names them in.
func TestRatesDoNotDependOnPathOrder(t *testing.T) {
	for _, path := range [][]Use{{on(0), on(1)}, {on(1), on(0)}} {
		r := newRig(11, 11)
		var got []Rate
		for i := range uint32(3) {
			r.flow(i, BytesWork(1), 100, 0, path...)
		}
		for i, one := range []FlowID{r.flow(3, BytesWork(1), 100, 0, on(0)), r.flow(4, BytesWork(1), 100, 0, on(1))} {
			got = append(got, r.Rate(one), r.Load(ResourceID(i)))
		}
		// 11/4 is 2 for the three and the one on 0; 11 - 3x2 is left on 1.
		if want := []Rate{2, 8, 5, 11}; !slices.Equal(got, want) {
			t.Errorf("path %v: rates and loads %v, want %v", path, got, want)
		}
	}
}

// When a flow's handler is called the flow is gone, the others have what it
// held, and its number is free.
func TestDoneSeesTheFlowGone(t *testing.T) {
	r := newRig(10 * gb)
	var other, next FlowID
	var called bool
	done := r.e.Register(handlerFunc(func(uint32, Stamp) {
		called = true
		if r.Flows(0) != 1 || r.Rate(other) != 10*gb || r.Load(0) != 10*gb {
			t.Errorf("%d flows, the other at %v, load %v", r.Flows(0), r.Rate(other), r.Load(0))
		}
		next = r.flow(9, BytesWork(1000), 10*gb, 0, on(0))
	}))
	first := r.Start(FlowSpec{Path: []Use{on(0)}, Cap: 10 * gb, Work: BytesWork(1000), Done: done})
	other = r.flow(2, BytesWork(2000), 10*gb, 0, on(0))
	if err := r.e.Run(); err != nil {
		t.Fatal(err)
	}
	if !called || next != first {
		t.Errorf("called %v, new flow is %d, want the number %d again", called, next, first)
	}
	want := []end{{400 * Nanosecond, 2}, {400 * Nanosecond, 9}}
	slices.SortFunc(r.ends, func(a, b end) int { return int(a.Arg) - int(b.Arg) })
	if diff := cmp.Diff(want, r.ends); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
}

func TestShareMisuse(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(r *rig)
		want string
	}{
		{"capacity", func(r *rig) { r.Resource("link", 0) }, "sim: capacity of link is 0 B/s, want more than 0"},
		{"new capacity", func(r *rig) { r.SetCapacity(0, -3) }, "sim: capacity of r0 is -3 B/s, want more than 0"},
		{"cap", func(r *rig) { r.flow(1, BytesWork(1), 0, 0, on(0)) }, "sim: cap of a flow is 0 B/s, want more than 0"},
		{"new cap", func(r *rig) { r.SetCap(r.flow(1, BytesWork(1), 1, 0), -1) }, "sim: cap of a flow is -1 B/s, want more than 0"},
		{"resource", func(r *rig) { r.flow(1, BytesWork(1), 1, 0, on(1)) }, "sim: flow over resource 1, want 0 to 0"},
		{"handler", func(r *rig) { r.Start(FlowSpec{Cap: 1, Done: 99}) }, "sim: flow for handler 99, which is not registered (there are 2)"},
		{"cancelled twice", func(r *rig) { id := r.flow(1, BytesWork(1), 1, 0); r.Cancel(id); r.Cancel(id) }, "sim: flow 0 is not in progress"},
		{"cap of none", func(r *rig) { r.SetCap(0, 1) }, "sim: flow 0 is not in progress"},
		{"path of none", func(r *rig) { r.SetPath(-1, nil) }, "sim: flow -1 is not in progress"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(gb)
			c.do(r)
			if err := r.e.Run(); err == nil || err.Error() != c.want {
				t.Errorf("Run = %v, want %s", err, c.want)
			}
		})
	}
}

// A warm Share allocates nothing, contended or not.
func TestShareNoAllocation(t *testing.T) {
	r := newRig(10*gb, 10*gb)
	paths := [][]Use{{on(0)}, {on(1)}, {on(0), on(1)}}
	run := func() {
		r.ends = r.ends[:0]
		for i := range uint32(12) {
			r.flow(i, BytesWork(Bytes(100*i)), gb+Rate(i)*gb/4, 0, paths[i%3]...)
		}
		if err := r.e.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if allocs := testing.AllocsPerRun(10, run); allocs != 0 {
		t.Errorf("%v allocations per run, want 0", allocs)
	}
}

// A change re-times only the flows that it concerns.
func TestOnlyTheConnectedAreRetimed(t *testing.T) {
	r := newRig(10*gb, 10*gb, 100*gb)
	r.flow(1, BytesWork(1000), 10*gb, 0, on(0), on(2))
	r.flow(2, BytesWork(1000), 10*gb, 0, on(1), on(2)) // both fit on 2
	if n := r.e.Pending(); n != 2 {
		t.Fatalf("%d events for two flows at their caps", n)
	}
	r.flow(3, BytesWork(1000), 10*gb, 0, on(1)) // slows 2, not 1
	if n := r.e.Pending(); n != 4 {
		t.Errorf("%d events, want 4: one for the new flow, one for the flow it slows", n)
	}
}

// The naive reference: it knows all flows, solves everything from the start at
// every change by raising the level in rationals, and keeps work in big
// integers.

type naiveShare struct {
	capacity []int64
	flows    map[uint32]*naiveFlow
	now      Time
	ends     []end
}

type naiveFlow struct {
	path   map[int]int64 // times by resource
	cap    int64
	weight int64
	work   *big.Int
	rate   int64
}

// solve sets all rates.
func (n *naiveShare) solve() {
	waiting := map[uint32]*naiveFlow{}
	for arg, f := range n.flows {
		waiting[arg] = f
	}
	left := slices.Clone(n.capacity)
	serve := func(arg uint32, rate int64) {
		f := n.flows[arg]
		f.rate = rate
		for r, times := range f.path {
			left[r] = max(0, left[r]-rate*times)
		}
		delete(waiting, arg)
	}
	for len(waiting) > 0 {
		var lowest *big.Rat
		full := -1
		for r := range n.capacity {
			var weight int64
			for _, f := range waiting {
				weight += f.weight * f.path[r]
			}
			if weight == 0 {
				continue
			}
			if level := big.NewRat(left[r], weight); lowest == nil || level.Cmp(lowest) < 0 {
				lowest, full = level, r
			}
		}
		var capped []uint32
		for arg, f := range waiting {
			if lowest == nil || big.NewRat(f.cap, f.weight).Cmp(lowest) <= 0 {
				capped = append(capped, arg)
			}
		}
		for _, arg := range capped {
			serve(arg, n.flows[arg].cap)
		}
		if len(capped) > 0 {
			continue
		}
		for arg, f := range n.flows {
			if waiting[arg] != nil && f.path[full] > 0 {
				share := new(big.Rat).Mul(lowest, big.NewRat(f.weight, 1))
				floor := new(big.Int).Quo(share.Num(), share.Denom())
				serve(arg, max(1, floor.Int64()))
			}
		}
	}
}

// advance lets time pass until t, ending flows on the way, those at t included.
func (n *naiveShare) advance(t Time) {
	for {
		next := t
		for _, f := range n.flows {
			// Time to the end, rounded up.
			span := new(big.Int).Add(f.work, big.NewInt(f.rate-1))
			span.Div(span, big.NewInt(f.rate))
			if span.Cmp(big.NewInt(int64(t-n.now))) <= 0 {
				next = min(next, n.now+Time(span.Int64()))
			}
		}
		ended := false
		for arg, f := range n.flows {
			f.work.Sub(f.work, new(big.Int).Mul(big.NewInt(f.rate), big.NewInt(int64(next-n.now))))
			if f.work.Sign() <= 0 {
				n.ends = append(n.ends, end{next, arg})
				delete(n.flows, arg)
				ended = true
			}
		}
		n.now = next
		if !ended {
			return
		}
		n.solve()
	}
}

func naivePath(uses []Use) map[int]int64 {
	path := map[int]int64{}
	for _, u := range uses {
		path[int(u.Resource)] += int64(max(1, u.Times))
	}
	return path
}

// checkShares asserts, without the help of any reference, that the rates are
// feasible and max-min fair up to rounding.
func checkShares(t *rapid.T, s *Share) {
	for i := range s.resources {
		r := &s.resources[i]
		var load, each Rate
		for _, id := range r.users {
			times := Rate(s.linkTo(id, ResourceID(i)).Times)
			load += s.Rate(id) * times
			each += times
		}
		if load != r.load {
			t.Fatalf("%s: load %d, its flows add up to %d", r.name, r.load, load)
		}
		if load > r.capacity+each {
			t.Fatalf("%s: load %d exceeds %d", r.name, load, r.capacity)
		}
		if load > r.capacity && !slices.ContainsFunc(r.users, func(id FlowID) bool { return s.Rate(id) == 1 }) {
			t.Fatalf("%s: load %d exceeds %d and no flow is at the minimum", r.name, load, r.capacity)
		}
	}
	for id := range s.flows {
		f := &s.flows[id]
		if !f.live {
			continue
		}
		if f.rate < 1 || f.rate > f.cap {
			t.Fatalf("flow %d has rate %d, want 1 to %d", id, f.rate, f.cap)
		}
		// It is at its cap, or some resource on its path is used up, less
		// rounding, on which nobody has more for its weight, plus rounding.
		bottleneck := f.rate == f.cap
		for _, u := range f.path {
			r := &s.resources[u.Resource]
			var rounding Rate
			highest := true
			for _, other := range r.users {
				o := &s.flows[other]
				rounding += Rate(s.linkTo(other, u.Resource).Times)
				if o.rate > 1 && (o.rate-1)*Rate(f.weight) > (f.rate+1)*Rate(o.weight) {
					highest = false
				}
			}
			bottleneck = bottleneck || highest && r.capacity-r.load < rounding
		}
		if !bottleneck {
			t.Fatalf("flow %d at rate %d of %d has no bottleneck", id, f.rate, f.cap)
		}
	}
}

// Random arrivals, departures and changes: rates and ends are exactly those of
// the naive reference, rates are fair, and each flow moves exactly its work.
func TestShareAgainstModel(t *testing.T) {
	var contended, ended int
	rapid.Check(t, func(t *rapid.T) {
		scale := rapid.SampledFrom([]Rate{1, 1, gb}).Draw(t, "scale")
		rate := rapid.Custom(func(t *rapid.T) Rate { return scale * Rate(rapid.IntRange(1, 40).Draw(t, "rate")) })
		capacities := rapid.SliceOfN(rate, 1, 5).Draw(t, "capacities")
		path := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Use {
			return Use{ResourceID(rapid.IntRange(0, len(capacities)-1).Draw(t, "resource")), int32(rapid.IntRange(0, 3).Draw(t, "times"))}
		}), 0, 4)

		r := newRig(capacities...)
		model := &naiveShare{flows: map[uint32]*naiveFlow{}}
		for _, c := range capacities {
			model.capacity = append(model.capacity, int64(c))
		}

		// What each flow, by arg, has moved; live flows in order of arrival.
		type progress struct {
			id          FlowID
			work, moved *big.Int
			last        Rate
		}
		flows := map[uint32]*progress{}
		var live []uint32
		var before Time
		account := func() {
			for _, arg := range live {
				p := flows[arg]
				p.moved.Add(p.moved, new(big.Int).Mul(big.NewInt(int64(p.last)), big.NewInt(int64(r.e.Now()-before))))
			}
			before = r.e.Now()
		}
		compare := func() {
			checkShares(t, r.Share)
			for _, arg := range live {
				p := flows[arg]
				p.last = r.Rate(p.id)
				if want := model.flows[arg]; want != nil && p.last != Rate(want.rate) {
					t.Fatalf("at %v: flow %d has rate %d, want %d", r.e.Now(), arg, p.last, want.rate)
				}
				if p.last < r.flows[p.id].cap {
					contended++
				}
			}
		}
		r.e.handlers[r.done] = handlerFunc(func(arg uint32, _ Stamp) {
			account()
			p := flows[arg]
			// Done to the last byte now, and not a picosecond earlier.
			early := new(big.Int).Sub(p.moved, big.NewInt(int64(p.last)))
			if p.moved.Cmp(p.work) < 0 || p.work.Sign() > 0 && early.Cmp(p.work) >= 0 {
				t.Fatalf("flow %d ends at %v having moved %v of %v at %d", arg, r.e.Now(), p.moved, p.work, p.last)
			}
			r.ends = append(r.ends, end{r.e.Now(), arg})
			live = slices.DeleteFunc(live, func(a uint32) bool { return a == arg })
			ended++
			// The model may be behind within this instant: rates are
			// compared after the next operation.
			for _, arg := range live {
				flows[arg].last = r.Rate(flows[arg].id)
			}
			checkShares(t, r.Share)
		})

		unit := Second / Time(scale) // in which a byte takes 1/rate
		var next uint32
		step := func() {
			account()
			model.advance(r.e.Now())
			pick := func() (uint32, bool) {
				if len(live) == 0 {
					return 0, false
				}
				return live[rapid.IntRange(0, len(live)-1).Draw(t, "which")], true
			}
			switch rapid.SampledFrom([]string{"start", "start", "start", "start", "cap", "path", "cancel", "capacity"}).Draw(t, "operation") {
			case "start":
				uses, cap, weight := path.Draw(t, "path"), rate.Draw(t, "cap"), rapid.IntRange(0, 3).Draw(t, "weight")
				bytes := Bytes(rapid.IntRange(0, 200).Draw(t, "bytes"))
				id := r.flow(next, BytesWork(bytes), cap, int32(weight), uses...)
				work := new(big.Int).Mul(big.NewInt(int64(bytes)), big.NewInt(int64(Second)))
				flows[next] = &progress{id: id, work: work, moved: new(big.Int)}
				model.flows[next] = &naiveFlow{naivePath(uses), int64(cap), int64(max(1, weight)), new(big.Int).Set(work), 0}
				live = append(live, next)
				next++
			case "cap":
				if arg, ok := pick(); ok {
					c := rate.Draw(t, "cap")
					r.SetCap(flows[arg].id, c)
					model.flows[arg].cap = int64(c)
				}
			case "path":
				if arg, ok := pick(); ok {
					uses := path.Draw(t, "path")
					r.SetPath(flows[arg].id, uses)
					model.flows[arg].path = naivePath(uses)
				}
			case "cancel":
				if arg, ok := pick(); ok {
					r.Cancel(flows[arg].id)
					delete(model.flows, arg)
					live = slices.DeleteFunc(live, func(a uint32) bool { return a == arg })
				}
			case "capacity":
				i, c := rapid.IntRange(0, len(capacities)-1).Draw(t, "resource"), rate.Draw(t, "capacity")
				r.SetCapacity(ResourceID(i), c)
				model.capacity[i] = int64(c)
			}
			model.solve()
			compare()
		}
		at := Time(0)
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			at += unit * Time(rapid.IntRange(0, 20).Draw(t, "pause")) / Time(rapid.IntRange(1, 3).Draw(t, "part"))
			r.at(at, step)
		}
		if err := r.e.Run(); err != nil {
			t.Fatal(err)
		}
		model.advance(Forever - 1)
		byTime := func(a, b end) int {
			if a.At != b.At {
				if a.At < b.At {
					return -1
				}
				return 1
			}
			return int(a.Arg) - int(b.Arg)
		}
		slices.SortFunc(model.ends, byTime)
		slices.SortFunc(r.ends, byTime)
		if diff := cmp.Diff(model.ends, r.ends); diff != "" {
			t.Fatalf("ends (-want +got):\n%s", diff)
		}
	})
	if contended == 0 || ended == 0 {
		t.Errorf("no case bites: %d flows below their caps, %d ended", contended, ended)
	}
}

func TestWide(t *testing.T) {
	value := func(w wide) *big.Int {
		x := new(big.Int).SetUint64(w.hi)
		return x.Lsh(x, 64).Or(x, new(big.Int).SetUint64(w.lo))
	}
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Int64Range(0, math.MaxInt64), rapid.Int64Range(0, 3), rapid.Int64Range(math.MaxInt64-3, math.MaxInt64))
		a, b, c, d := number.Draw(t, "a"), number.Draw(t, "b"), number.Draw(t, "c"), max(1, number.Draw(t, "d"))
		x, y := product(a, b), product(c, d)
		X := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		Y := new(big.Int).Mul(big.NewInt(c), big.NewInt(d))
		if got := value(x.plus(y)); got.Cmp(new(big.Int).Add(X, Y)) != 0 {
			t.Fatalf("%v + %v = %v", X, Y, got)
		}
		if x.less(y) != (X.Cmp(Y) < 0) {
			t.Fatalf("%v < %v = %v", X, Y, x.less(y))
		}
		difference := new(big.Int).Sub(X, Y)
		if difference.Sign() < 0 {
			difference.SetInt64(0)
		}
		if got := value(x.minus(y)); got.Cmp(difference) != 0 {
			t.Fatalf("%v - %v = %v", X, Y, got)
		}
		limit := func(q *big.Int) int64 {
			if !q.IsInt64() {
				return math.MaxInt64
			}
			return q.Int64()
		}
		q, rest := new(big.Int).QuoRem(X, big.NewInt(d), new(big.Int))
		if got := x.over(d); got != limit(q) {
			t.Fatalf("%v / %d = %d, want %v", X, d, got, q)
		}
		if rest.Sign() > 0 {
			q.Add(q, big.NewInt(1))
		}
		if got := x.overUp(d); got != limit(q) {
			t.Fatalf("%v / %d rounded up = %d, want %v", X, d, got, q)
		}
	})
	if BytesWork(-1) != BytesWork(0) || SpanWork(-1, 5) != BytesWork(0) || SpanWork(5, -1) != BytesWork(0) {
		t.Error("negative work is not none")
	}
}
