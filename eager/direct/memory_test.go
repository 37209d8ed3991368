package direct

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/eager/stream"
	"smartswap/policies"
	"smartswap/policies/flashneuron"
	"smartswap/sim"
)

// TestRanges plays random requests against a map of single addresses.
func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 40
		r := ranges{{0, size}}
		var taken [size]bool
		fits := func(at, n int) bool {
			for i := at; i < at+n; i++ {
				if i < 0 || i >= size || taken[i] {
					return false
				}
			}
			return true
		}
		var owned []span
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(owned) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(owned)-1).Draw(t, "which")
				r.give(owned[i])
				for a := owned[i].lo; a < owned[i].hi; a++ {
					taken[a] = false
				}
				owned = slices.Delete(owned, i, i+1)
			} else {
				n := rapid.IntRange(0, 15).Draw(t, "bytes")
				want, found := 0, false
				take := r.takeLow
				if rapid.Bool().Draw(t, "high") {
					take = r.takeHigh
					for want = size - n; want >= 0 && !fits(want, n); want-- {
					}
					found = want >= 0
				} else {
					for want < size && !fits(want, n) {
						want++
					}
					found = want < size
				}
				s, ok := take(sim.Bytes(n))
				if n > 0 && (ok != found || ok && (s.lo != sim.Bytes(want) || s.hi != sim.Bytes(want+n))) {
					t.Fatalf("%d bytes: %v %v, want %d %v; free %v", n, s, ok, want, found, r)
				}
				if ok {
					owned = append(owned, s)
					for a := s.lo; a < s.hi; a++ {
						taken[a] = true
					}
				}
			}
			var largest, total, run sim.Bytes
			for _, x := range taken {
				if run++; x {
					run = 0
				} else {
					total++
				}
				largest = max(largest, run)
			}
			if r.largest() != largest || r.total() != total {
				t.Fatalf("largest %d, total %d, want %d, %d: %v", r.largest(), r.total(), largest, total, r)
			}
			for i := 1; i < len(r); i++ {
				if r[i-1].hi >= r[i].lo || r[i].lo >= r[i].hi {
					t.Fatalf("free %v", r)
				}
			}
		}
	})
}

// fast moves a byte in a picosecond.
const fast = sim.Rate(sim.Second)

// kernel of d ps.
func kernel(d sim.Time, in, out []int32) policies.NominalKernel {
	return policies.NominalKernel{Span: d, In: in, Out: out}
}

func ids(n ...int32) []int32 { return n }

// program of kernels over globals and locals; the forward pass ends with loss.
func program(loss int32, kernels []policies.NominalKernel, globals, locals []sim.Bytes) *policies.Nominal {
	p := &policies.Nominal{Kernels: kernels, Loss: loss}
	for _, b := range globals {
		p.Tensors = append(p.Tensors, policies.NominalTensor{Bytes: b, Global: true})
	}
	for _, b := range locals {
		p.Tensors = append(p.Tensors, policies.NominalTensor{Bytes: b, Birth: -1})
	}
	for k := range kernels {
		for _, id := range operandsOf(&kernels[k]) {
			if t := &p.Tensors[id]; !t.Global {
				if t.Birth < 0 {
					t.Birth = int32(k)
				}
				t.Death = int32(k) + 1
			}
		}
	}
	return p
}

// hint at a kernel.
func hint(kind policies.Kind, tensor, k int32, to policies.TierID) policies.Action {
	return policies.Action{
		Kind: kind, To: to, What: policies.Selector{Kind: policies.ByStatic, Static: tensor},
		Start: policies.Trigger{Kind: policies.AtOp, N: k},
	}
}

func evict(tensor, k int32) policies.Action {
	return hint(policies.Evict, tensor, k, policies.SSDTier)
}

func prefetch(tensor, k int32) policies.Action {
	return hint(policies.Prefetch, tensor, k, policies.SSDTier)
}

// TestClosedForms compares runs with times worked out by hand.
func TestClosedForms(t *testing.T) {
	ssd := func(o Options) Options {
		o.Tiers[policies.SSDTier] = Tier{Out: fast, In: fast}
		return o
	}
	both := func(o Options) Options {
		o = ssd(o)
		o.Tiers[policies.HostTier] = Tier{Out: 2 * fast, In: 2 * fast, Bytes: 30}
		return o
	}
	demand := func(o Options) Options {
		o.Tiers[policies.HostTier].Demand = true
		return o
	}
	// gap makes tensor 0 (30 bytes) in kernel 0, does something else for 100 ps in
	// each of three kernels and reads it in kernel 4.
	gap := program(-1, []policies.NominalKernel{
		kernel(10, nil, ids(0)), kernel(100, nil, ids(1)), kernel(100, nil, ids(2)), kernel(100, nil, ids(3)), kernel(10, ids(0), nil),
	}, nil, []sim.Bytes{30, 20, 20, 20})
	cases := []struct {
		name   string
		o      Options
		p      *policies.Nominal
		hints  []policies.Action
		ends   []sim.Time // of kernels
		noRoom *NoRoom
		stats  func(Stats) bool
	}{
		{name: "everything fits", o: Options{Capacity: 50}, p: gap, ends: []sim.Time{10, 110, 210, 310, 320},
			stats: func(s Stats) bool { return s.Peak == 50 && s.Stall == 0 && s.Transfers == [2][2]int64{} }},
		{name: "one byte short", o: Options{Capacity: 49}, p: gap, ends: []sim.Time{10},
			noRoom: &NoRoom{Kernel: 1, Need: 20, Largest: 19, Used: 30, Capacity: 49}},
		{name: "globals do not fit", o: Options{Capacity: 9}, p: program(-1, []policies.NominalKernel{kernel(1, ids(0), nil)}, []sim.Bytes{6, 4}, nil),
			noRoom: &NoRoom{Kernel: 0, Need: 4, Largest: 3, Used: 6, Capacity: 9}},
		// The write takes 30 ps from 10 on; 20 ps of it are hidden by nothing,
		// since kernel 1 has to wait for the memory. The fetch takes 30 more.
		{name: "a kernel waits for a write, then for a fetch", o: ssd(Options{Capacity: 49}), p: gap, hints: []policies.Action{evict(0, 1)},
			ends: []sim.Time{10, 140, 240, 340, 380},
			stats: func(s Stats) bool {
				return s.Stall == 60 && s.Fetches == 1 && s.Bytes[policies.SSDTier] == [2]sim.Bytes{30, 30} && s.Peak == 30
			}},
		{name: "a hidden write", o: ssd(Options{Capacity: 50}), p: gap, hints: []policies.Action{evict(0, 1)}, ends: []sim.Time{10, 110, 210, 310, 350},
			stats: func(s Stats) bool { return s.Stall == 30 }},
		{name: "a hidden prefetch", o: ssd(Options{Capacity: 80}), p: gap, hints: []policies.Action{evict(0, 1), prefetch(0, 3)}, ends: []sim.Time{10, 110, 210, 310, 320},
			stats: func(s Stats) bool { return s.Stall == 0 && s.Fetches == 0 }},
		// The host takes 15 ps each way; only a tensor on the SSD is prefetched.
		{name: "on demand from the host", o: demand(both(Options{Capacity: 80})), p: gap, hints: []policies.Action{hint(policies.Evict, 0, 1, policies.HostTier), prefetch(0, 3)},
			ends:  []sim.Time{10, 110, 210, 310, 335},
			stats: func(s Stats) bool { return s.Stall == 15 && s.Fetches == 1 }},
		{name: "on demand from the host, prefetched from the SSD", o: demand(both(Options{Capacity: 80})), p: gap, hints: []policies.Action{evict(0, 1), prefetch(0, 3)},
			ends:  []sim.Time{10, 110, 210, 310, 320},
			stats: func(s Stats) bool { return s.Stall == 0 && s.Fetches == 0 }},
		// 30 beside the largest working set, 30, and the 20 of kernel 2 that die
		// when kernel 3 begins.
		{name: "a prefetch leaves room for the largest kernel", o: ssd(Options{Capacity: 59}), p: gap, hints: []policies.Action{evict(0, 1), prefetch(0, 3)}, ends: []sim.Time{10, 110, 210, 310, 350},
			stats: func(s Stats) bool { return s.Fetches == 1 }},
		{name: "a prefetch before its write has begun withdraws it", o: ssd(Options{Capacity: 90}), p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0, 1)), kernel(5, nil, nil), kernel(100, nil, nil), kernel(10, ids(0, 1), nil)}, nil, []sim.Bytes{30, 40}),
			hints: []policies.Action{evict(1, 1), evict(0, 1), prefetch(0, 2)}, ends: []sim.Time{10, 15, 115, 165},
			stats: func(s Stats) bool {
				return s.Withdrawn == 1 && s.Bytes[policies.SSDTier] == [2]sim.Bytes{40, 40} && s.Stall == 40
			}},
		{name: "a write that has begun goes on and frees nothing", o: ssd(Options{Capacity: 90}), p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0, 1)), kernel(5, nil, nil), kernel(100, ids(0), nil), kernel(10, ids(0, 1), nil)}, nil, []sim.Bytes{30, 40}),
			hints: []policies.Action{evict(0, 1), evict(1, 1)}, ends: []sim.Time{10, 15, 115, 165},
			stats: func(s Stats) bool {
				return s.Withdrawn == 1 && s.Bytes[policies.SSDTier] == [2]sim.Bytes{70, 40} && s.Stall == 40
			}},
		{name: "a tensor that died keeps its memory until its write has ended", o: ssd(Options{Capacity: 100}), p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0)), kernel(5, nil, nil), kernel(5, ids(0), nil), kernel(10, nil, ids(1))}, nil, []sim.Bytes{50, 60}),
			hints: []policies.Action{evict(0, 1)}, ends: []sim.Time{10, 15, 20, 70}},
		{name: "writes come one after the other", o: ssd(Options{Capacity: 100}), p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0, 1)), kernel(10, nil, ids(2)), kernel(10, ids(0, 1), nil)}, nil, []sim.Bytes{50, 50, 80}),
			hints: []policies.Action{evict(0, 1), evict(1, 1)}, ends: []sim.Time{10, 120, 230}},
		{name: "the host is its own queue, and the SSD takes what it has no room for", o: both(Options{Capacity: 100}), p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0, 1)), kernel(10, nil, ids(2)), kernel(10, ids(0, 1), nil)}, nil, []sim.Bytes{30, 50, 80}),
			hints: []policies.Action{hint(policies.Evict, 0, 1, policies.HostTier), hint(policies.Evict, 1, 1, policies.HostTier)}, ends: []sim.Time{10, 70, 130},
			stats: func(s Stats) bool {
				return s.Bytes[policies.HostTier] == [2]sim.Bytes{30, 30} && s.Bytes[policies.SSDTier] == [2]sim.Bytes{50, 50}
			}},
		{name: "the backward pass waits for the writes", o: ssd(Options{Capacity: 100, Drain: true}), p: program(0, []policies.NominalKernel{
			kernel(10, nil, ids(0)), kernel(10, nil, ids(1)), kernel(10, nil, nil)}, nil, []sim.Bytes{50, 10}),
			hints: []policies.Action{evict(0, 1)}, ends: []sim.Time{10, 20, 30},
			stats: func(s Stats) bool { return s.Transfers == [2][2]int64{} }}, // dead before kernel 1
		{name: "the backward pass waits for the writes of what it needs", o: ssd(Options{Capacity: 100, Drain: true}), p: program(1, []policies.NominalKernel{
			kernel(10, nil, ids(0)), kernel(10, nil, nil), kernel(10, nil, nil), kernel(10, ids(0), nil)}, nil, []sim.Bytes{50}),
			hints: []policies.Action{evict(0, 1)}, ends: []sim.Time{10, 20, 70, 130}},
		// After kernel 2, the first of the backward pass, tensor 0 comes back as there is room
		// for it and a working set of 50.
		{name: "ahead", o: ssd(Options{Capacity: 100, Drain: true, Ahead: true, HighEnd: true}), p: program(1, []policies.NominalKernel{
			kernel(10, nil, ids(0)), kernel(60, nil, nil), kernel(10, nil, nil), kernel(40, nil, nil), kernel(10, ids(0), nil)}, nil, []sim.Bytes{50}),
			hints: []policies.Action{evict(0, 1), prefetch(0, 1)}, ends: []sim.Time{10, 70, 80, 120, 140},
			stats: func(s Stats) bool { return s.Fetches == 0 && s.Stall == 10 }},
		{name: "ahead without room", o: ssd(Options{Capacity: 99, Drain: true, Ahead: true, HighEnd: true}), p: program(1, []policies.NominalKernel{
			kernel(10, nil, ids(0)), kernel(60, nil, nil), kernel(10, nil, nil), kernel(40, nil, nil), kernel(10, ids(0), nil)}, nil, []sim.Bytes{50}),
			hints: []policies.Action{evict(0, 1)}, ends: []sim.Time{10, 70, 80, 120, 180},
			stats: func(s Stats) bool { return s.Fetches == 1 && s.Stall == 50 }},
		{name: "kernels without time", o: Options{Capacity: 50}, p: program(-1, []policies.NominalKernel{kernel(0, nil, ids(0)), kernel(0, ids(0), nil), kernel(7, nil, nil)}, nil, []sim.Bytes{50}),
			ends: []sim.Time{0, 0, 7}},
		{name: "fragments", o: ssd(Options{Capacity: 100}), p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0, 1, 2)), kernel(10, ids(0), nil), kernel(10, nil, ids(3)), kernel(1, ids(1, 2), nil)}, nil, []sim.Bytes{40, 30, 20, 45}),
			ends: []sim.Time{10, 20}, noRoom: &NoRoom{Kernel: 2, Need: 45, Largest: 40, Used: 50, Capacity: 100}},
		{name: "no fragments among more addresses", o: ssd(Options{Capacity: 100, Addresses: 400}), p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0, 1, 2)), kernel(10, ids(0), nil), kernel(10, nil, ids(3)), kernel(1, ids(1, 2), nil)}, nil, []sim.Bytes{40, 30, 20, 45}),
			ends: []sim.Time{10, 20, 30, 31}},
		// Kernels 0 and 1 have 30 and 20 bytes of scratch: 30 are set aside, and 69 remain.
		{name: "scratch memory is shared", o: Options{Capacity: 99, Scratch: ids(1, 2)}, p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0, 1)), kernel(10, ids(0), ids(2))}, nil, []sim.Bytes{69, 30, 20}), ends: []sim.Time{10, 20},
			stats: func(s Stats) bool { return s.Peak == 99 }},
		{name: "scratch memory is set aside", o: Options{Capacity: 98, Scratch: ids(1, 2)}, p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0, 1)), kernel(10, ids(0), ids(2))}, nil, []sim.Bytes{69, 30, 20}),
			noRoom: &NoRoom{Kernel: 0, Need: 69, Largest: 68, Used: 30, Capacity: 98}},
		{name: "more scratch memory than there is", o: Options{Capacity: 29, Scratch: ids(0)}, p: program(-1, []policies.NominalKernel{kernel(10, nil, ids(0))}, nil, []sim.Bytes{30}),
			noRoom: &NoRoom{Kernel: 0, Need: 30, Largest: 29, Used: 0, Capacity: 29}},
		{name: "moved tensors at the high end", o: ssd(Options{Capacity: 100, HighEnd: true}), p: program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0, 1)), kernel(100, ids(0), nil), kernel(10, nil, ids(2)), kernel(1, ids(1), nil)}, nil, []sim.Bytes{30, 30, 70}),
			hints: []policies.Action{evict(0, 3)}, ends: []sim.Time{10, 110, 120, 121}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.o, c.p, &policies.Plan{Hints: c.hints})
			r.run(t, 1)
			if !slices.Equal(r.ends, c.ends) {
				t.Errorf("kernels end at %v, want %v", r.ends, c.ends)
			}
			switch {
			case (r.noRoom == nil) != (c.noRoom == nil), r.noRoom != nil && *r.noRoom != *c.noRoom:
				t.Errorf("no room: %+v, want %+v", r.noRoom, c.noRoom)
			case r.noRoom != nil && !strings.Contains(r.noRoom.Error(), "nothing is on its way out"):
				t.Errorf("it says %q", r.noRoom)
			}
			if s := r.mem.Stats(); c.stats != nil && !c.stats(s) {
				t.Errorf("stats %+v", s)
			}
			if s, lane := r.mem.Stats(), r.dev.Lane(stream.Compute); r.noRoom == nil && (lane.Wait[stream.Fault] != s.Stall || lane.Busy != ideal(c.p)) {
				t.Errorf("the lane has %v busy and %v waiting, stalls are %v", lane.Busy, lane.Wait[stream.Fault], s.Stall)
			}
		})
	}
}

// TestWorkspaces: the tail that nobody reads, of tensors of one kernel.
func TestWorkspaces(t *testing.T) {
	out := func(more ...int32) []policies.NominalKernel {
		return []policies.NominalKernel{kernel(1, nil, ids(0, 1, 2, 3)), kernel(1, ids(1), more)}
	}
	for _, c := range []struct {
		name string
		p    *policies.Nominal
		want []int32
	}{
		{"after the last that is read", program(-1, out(), nil, []sim.Bytes{1, 1, 1, 1}), ids(2, 3)},
		{"written twice", program(-1, out(2), nil, []sim.Bytes{1, 1, 1, 1}), ids(3)},
		{"a global", program(-1, out(), []sim.Bytes{1, 1, 1}, []sim.Bytes{1}), ids(3)},
		{"nothing but", program(-1, []policies.NominalKernel{kernel(1, nil, ids(0))}, nil, []sim.Bytes{1}), ids(0)},
		{"no tensors", &policies.Nominal{}, nil},
	} {
		if got := Workspaces(c.p); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	p := program(-1, out(), []sim.Bytes{1}, []sim.Bytes{1, 1, 1})
	for _, id := range []int32{-1, 0, 4} {
		if _, err := New(sim.NewEngine(), nil, Options{Capacity: 9, Scratch: ids(id)}, p, nil); err == nil {
			t.Errorf("took tensor %d for scratch memory", id)
		}
	}
}

// TestEnds: what the plan moves lies at the high end, all else at the low end.
func TestEnds(t *testing.T) {
	p := program(-1, []policies.NominalKernel{kernel(10, nil, ids(1, 2, 3)), kernel(10, ids(1, 2, 3), nil)}, []sim.Bytes{5}, []sim.Bytes{10, 20, 30})
	o := Options{Capacity: 100, HighEnd: true}
	o.Tiers[policies.SSDTier] = Tier{Out: fast, In: fast}
	r := newRig(t, o, p, &policies.Plan{Hints: []policies.Action{evict(2, 5)}})
	r.enqueue(1)
	for id, want := range []span{{0, 5}, {5, 15}, {80, 100}, {15, 45}} {
		if got := r.mem.tensors[id].at; got != want {
			t.Errorf("tensor %d is at %v, want %v", id, got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	p := program(-1, []policies.NominalKernel{kernel(1, nil, ids(0))}, nil, []sim.Bytes{1})
	for _, c := range []struct {
		name string
		o    Options
		say  string
	}{
		{"no memory", Options{}, "capacity"},
		{"few addresses", Options{Capacity: 2, Addresses: 1}, "addresses"},
		{"one way", Options{Capacity: 1, Tiers: [tiers]Tier{{Out: 1}}}, "host rates"},
		{"negative", Options{Capacity: 1, Tiers: [tiers]Tier{{}, {Out: 1, In: -1}}}, "ssd rates"},
		{"negative bytes", Options{Capacity: 1, Tiers: [tiers]Tier{{Out: 1, In: 1, Bytes: -1}}}, "host bytes"},
	} {
		if _, err := New(sim.NewEngine(), nil, c.o, p, nil); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want an error about %q", c.name, err, c.say)
		}
	}
	m, err := New(sim.NewEngine(), nil, Options{Capacity: 1}, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []policies.Action{evict(0, 0), hint(policies.Evict, 0, 0, 7), evict(0, -1), {Kind: policies.Evict}} {
		if err := m.Arm(&policies.Plan{Hints: []policies.Action{h}}); err == nil {
			t.Errorf("took %+v", h)
		}
	}
	if err := m.Arm(nil); err != nil {
		t.Error(err)
	}
}

// TestUnknownStorages: a program that is not the nominal one runs, and hints
// for what it does not have are passed over.
func TestUnknownStorages(t *testing.T) {
	p := program(-1, []policies.NominalKernel{kernel(10, nil, ids(0))}, nil, []sim.Bytes{10})
	o := Options{Capacity: 100}
	o.Tiers[policies.SSDTier] = Tier{Out: fast, In: fast}
	r := newRig(t, o, p, &policies.Plan{Hints: []policies.Action{evict(40, 0), evict(0, 1)}})
	r.p = program(-1, []policies.NominalKernel{kernel(10, nil, ids(0, 5)), kernel(10, ids(5), ids(3)), kernel(10, ids(0), nil)}, nil, []sim.Bytes{20, 1, 1, 30, 1, 40})
	// The write of tensor 0 has begun when kernel 2 needs it: nobody waits.
	if ends := r.run(t, 2); len(ends) != 2 || ends[0] != 30 || ends[1] != 60 {
		t.Errorf("iterations end at %v, want 30 and 60", ends)
	}
	if err := r.mem.Check(); err != nil {
		t.Error(err)
	}
}

// TestNextIteration: a tensor made anew waits for a transfer of its
// predecessor, here the write of 50 ps that begins at 5 ps.
func TestNextIteration(t *testing.T) {
	p := program(-1, []policies.NominalKernel{kernel(5, nil, ids(0)), kernel(5, nil, nil), kernel(5, ids(0), nil)}, nil, []sim.Bytes{50})
	o := Options{Capacity: 200}
	o.Tiers[policies.SSDTier] = Tier{Out: fast, In: fast}
	r := newRig(t, o, p, &policies.Plan{Hints: []policies.Action{evict(0, 1)}})
	if ends := r.run(t, 2); !slices.Equal(ends, []sim.Time{15, 70}) {
		t.Errorf("iterations end at %v, want 15 and 70", ends)
	}
}

// drawNet is a random net with a forward pass, a loss without operands and a
// backward pass that reads what the forward pass left.
func drawNet(t *rapid.T) *policies.Nominal {
	n := rapid.IntRange(1, 8).Draw(t, "layers")
	size := func() sim.Bytes { return sim.Bytes(rapid.IntRange(1, 1_000_000).Draw(t, "bytes")) }
	span := func() sim.Time { return sim.Time(rapid.IntRange(0, 1_500_000).Draw(t, "ps")) }
	kernels := make([]policies.NominalKernel, 2*n+1)
	for k := range kernels {
		kernels[k].Span = span()
	}
	kernels[n].Span++
	var globals, locals []sim.Bytes
	for range rapid.IntRange(0, 3).Draw(t, "globals") {
		id := int32(len(globals))
		globals = append(globals, size()/4+1)
		for k := range kernels {
			if k != n && rapid.IntRange(0, 3).Draw(t, "global used") == 0 {
				kernels[k].In = append(kernels[k].In, id)
			}
		}
	}
	for range rapid.IntRange(1, 14).Draw(t, "locals") {
		id := int32(len(globals) + len(locals))
		locals = append(locals, size())
		birth := rapid.IntRange(0, 2*n).Draw(t, "birth")
		if birth == n {
			birth = 0
		}
		kernels[birth].Out = append(kernels[birth].Out, id)
		for k := birth + 1; k < len(kernels); k++ {
			if k != n && rapid.IntRange(0, n).Draw(t, "used") == 0 {
				kernels[k].In = append(kernels[k].In, id)
			}
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "workspaces") {
		k := rapid.IntRange(0, 2*n).Draw(t, "kernel")
		if k != n {
			kernels[k].Out = append(kernels[k].Out, int32(len(globals)+len(locals)))
			locals = append(locals, size()/2+1)
		}
	}
	return program(int32(n), kernels, globals, locals)
}

// stepping runs n iterations and checks the memory after every event.
func stepping(t *rapid.T, r *rig) {
	for {
		more, err := r.eng.Step()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.mem.Check(); err != nil {
			t.Fatal(err)
		}
		if r.mem.claims[stream.Compute].phase == computing {
			for _, o := range r.mem.claims[stream.Compute].operands {
				if p := r.mem.tensors[o.Storage].place; p != here && p != leaving && p != scratch {
					t.Fatalf("kernel %d computes while tensor %d is at place %d", r.mem.claims[stream.Compute].Index, o.Storage, p)
				}
			}
		}
		if !more {
			return
		}
	}
}

// naiveNeuron is FlashNeuron's memory written down again, without events: one
// kernel after the other, with the times at which each transfer will end.
func naiveNeuron(p *policies.Nominal, capacity sim.Bytes, plan []flashneuron.Leave) (ends []sim.Time, failed bool) {
	type block struct {
		id     int32
		lo, hi sim.Bytes
	}
	var blocks []block // ascending
	gaps := func() (list [][2]sim.Bytes) {
		at := sim.Bytes(0)
		for _, b := range blocks {
			list = append(list, [2]sim.Bytes{at, b.lo})
			at = b.hi
		}
		return append(list, [2]sim.Bytes{at, capacity})
	}
	largest := func() (n sim.Bytes) {
		for _, g := range gaps() {
			n = max(n, g[1]-g[0])
		}
		return n
	}
	moved := map[int32]bool{}
	leaves := map[int32][]int32{} // by the kernel before
	for _, l := range plan {
		moved[l.Tensor] = true
		leaves[l.Kernel-1] = append(leaves[l.Kernel-1], l.Tensor)
	}
	put := func(id int32) bool {
		n, list := p.Tensors[id].Bytes, gaps()
		if moved[id] {
			slices.Reverse(list)
		}
		for _, g := range list {
			if g[1]-g[0] < n {
				continue
			}
			b := block{id, g[0], g[0] + n}
			if moved[id] {
				b = block{id, g[1] - n, g[1]}
			}
			blocks = append(blocks, b)
			slices.SortFunc(blocks, func(a, b block) int { return int(a.lo - b.lo) })
			return true
		}
		return false
	}
	drop := func(id int32) {
		blocks = slices.DeleteFunc(blocks, func(b block) bool { return b.id == id })
	}
	there := func(id int32) bool {
		return slices.ContainsFunc(blocks, func(b block) bool { return b.id == id })
	}
	spaces := Workspaces(p)
	own := func(k int) []int32 { // operands with memory of their own
		return slices.DeleteFunc(operandsOf(&p.Kernels[k]), func(id int32) bool { return slices.Contains(spaces, id) })
	}
	var reserve, aside sim.Bytes
	for k := range p.Kernels {
		var set, all sim.Bytes
		for _, id := range operandsOf(&p.Kernels[k]) {
			all += p.Tensors[id].Bytes
		}
		for _, id := range own(k) {
			set += p.Tensors[id].Bytes
		}
		reserve, aside = max(reserve, set), max(aside, all-set)
	}
	if capacity -= aside; capacity < 0 {
		return nil, true
	}
	for id := range p.Tensors {
		if p.Tensors[id].Global && !put(int32(id)) {
			return nil, true
		}
	}
	type write struct {
		id  int32
		end sim.Time
	}
	var writes []write
	var now, writer, reader sim.Time
	arrival := map[int32]sim.Time{}
	settle := func() {
		for len(writes) > 0 && writes[0].end <= now {
			drop(writes[0].id)
			writes = writes[1:]
		}
	}
	last := lastUses(p)
	for k := range p.Kernels {
		kernel, backward := &p.Kernels[k], int32(k) > p.Loss
		settle()
		if int32(k) == p.Loss+1 && len(writes) > 0 {
			now = writes[len(writes)-1].end
			settle()
		}
		ready := now
		for _, id := range own(k) {
			if p.Tensors[id].Global {
				continue
			}
			if !there(id) {
				for !put(id) {
					if len(writes) == 0 {
						return ends, true
					}
					now = max(now, writes[0].end)
					settle()
				}
				if p.Tensors[id].Birth < int32(k) {
					reader = max(reader, now) + sim.Time(p.Tensors[id].Bytes)
					arrival[id] = reader
				}
			}
			ready = max(ready, arrival[id])
		}
		now = max(now, ready) + kernel.Span
		ends = append(ends, now)
		settle()
		for _, id := range operandsOf(kernel) {
			if !p.Tensors[id].Global && last[id] == int32(k) {
				drop(id)
			}
		}
		for _, id := range leaves[int32(k)] {
			writer = max(writer, now) + sim.Time(p.Tensors[id].Bytes)
			writes = append(writes, write{id, writer})
		}
		if !backward {
			continue
		}
	ahead:
		for j := k + 1; j < len(p.Kernels); j++ {
			for _, id := range own(j) {
				if !moved[id] || there(id) {
					continue
				}
				if largest()-reserve < p.Tensors[id].Bytes || !put(id) {
					break ahead
				}
				reader = max(reader, now) + sim.Time(p.Tensors[id].Bytes)
				arrival[id] = reader
			}
		}
	}
	return ends, false
}

// TestAgainstNaive: FlashNeuron's memory, event by event, against the same
// written down as a loop; and each iteration is like the first.
func TestAgainstNaive(t *testing.T) {
	ran, failed, moved := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawNet(t)
		var total sim.Bytes
		for _, x := range p.Tensors {
			total += x.Bytes
		}
		// From what a choice cannot do without to what needs none.
		least := -flashneuron.Select(p, 0).Budget
		capacity := least + max(0, total-least)*sim.Bytes(rapid.IntRange(-5, 80).Draw(t, "capacity %"))/100
		c := flashneuron.Select(p, capacity)
		r := newRigT(t, FlashNeuron(capacity, fast, p), p, &policies.Plan{Hints: c.Hints()})
		r.enqueue(2)
		stepping(t, r)
		want, fails := naiveNeuron(p, capacity, c.Offloaded)
		if (r.noRoom != nil) != fails {
			t.Fatalf("no room: %v, want %v", r.noRoom, fails)
		}
		n := len(p.Kernels)
		if !slices.Equal(r.ends[:min(n, len(r.ends))], want) {
			t.Fatalf("kernels end at %v, want %v", r.ends, want)
		}
		if fails {
			failed++
			return
		}
		for k := range n {
			if r.ends[n+k] != r.ends[n-1]+r.ends[k] {
				t.Fatalf("kernel %d of the second iteration ends at %v, want %v after %v", k, r.ends[n+k], r.ends[k], r.ends[n-1])
			}
		}
		ran++
		if len(c.Offloaded) > 0 {
			moved++
		}
	})
	t.Logf("%d ran, %d with moves, %d found no room", ran, moved, failed)
	if ran == 0 || failed == 0 || moved == 0 {
		t.Errorf("%d programs ran, %d of them with moves, %d found no room: the test sees too little", ran, moved, failed)
	}
}

// TestInvariants runs random hints, whatever they do, over several iterations.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawNet(t)
		var total sim.Bytes
		for _, x := range p.Tensors {
			total += x.Bytes
		}
		o := Options{
			Capacity: max(1, total*sim.Bytes(rapid.IntRange(40, 120).Draw(t, "capacity %"))/100),
			HighEnd:  rapid.Bool().Draw(t, "high end"), Drain: rapid.Bool().Draw(t, "drain"), Ahead: rapid.Bool().Draw(t, "ahead"),
		}
		o.Addresses = o.Capacity * sim.Bytes(rapid.SampledFrom([]int{0, 1, 4}).Draw(t, "addresses"))
		o.Tiers[policies.SSDTier] = Tier{Out: fast / 2, In: fast}
		o.Tiers[policies.HostTier] = Tier{Out: 2 * fast, In: fast, Bytes: total/3 + 1}
		var plan policies.Plan
		for range rapid.IntRange(0, 20).Draw(t, "hints") {
			kind := rapid.SampledFrom([]policies.Kind{policies.Evict, policies.Prefetch, policies.Discard}).Draw(t, "kind")
			plan.Hints = append(plan.Hints, hint(kind, int32(rapid.IntRange(0, len(p.Tensors)-1).Draw(t, "tensor")),
				int32(rapid.IntRange(0, len(p.Kernels)-1).Draw(t, "kernel")), policies.TierID(rapid.IntRange(0, 1).Draw(t, "tier"))))
		}
		r := newRigT(t, o, p, &plan)
		r.enqueue(3)
		stepping(t, r)
		s := r.mem.Stats()
		if r.noRoom == nil {
			if len(r.ends) != 3*len(p.Kernels) {
				t.Fatalf("%d kernels ended, want %d: the run hangs", len(r.ends), 3*len(p.Kernels))
			}
			if got := r.ends[len(r.ends)-1]; got != 3*ideal(p)+s.Stall {
				t.Fatalf("ended at %v, want %v of kernels and %v of stalls", got, 3*ideal(p), s.Stall)
			}
		}
		for tier := range tiers {
			if s.Bytes[tier][In] > s.Bytes[tier][Out] {
				t.Fatalf("tier %d: %v came back of %v", tier, s.Bytes[tier][In], s.Bytes[tier][Out])
			}
			if b := s.Bytes[tier][Out]; duration(b, o.Tiers[tier].Out) > r.eng.Now() {
				t.Fatalf("tier %d: %v written in %v: more than one at a time", tier, b, r.eng.Now())
			}
		}
	})
}
