package g10

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"smartswap/policies"
	"smartswap/sim"
)

const (
	ms = sim.Millisecond
	kb = sim.Bytes(1000)
)

// kernel of d milliseconds.
func kernel(d int, in, out []int32) policies.NominalKernel {
	return policies.NominalKernel{Span: sim.Time(d) * ms, In: in, Out: out}
}

// program fills in the lives of the locals.
func program(kernels []policies.NominalKernel, globals, locals []sim.Bytes) *policies.Nominal {
	p := &policies.Nominal{Kernels: kernels, Loss: -1}
	for _, b := range globals {
		p.Tensors = append(p.Tensors, policies.NominalTensor{Bytes: b, Global: true})
	}
	for i, b := range locals {
		t := policies.NominalTensor{Bytes: b, Birth: -1}
		id := int32(len(globals) + i)
		for k := range kernels {
			if slices.Contains(kernels[k].In, id) || slices.Contains(kernels[k].Out, id) {
				if t.Birth < 0 {
					t.Birth = int32(k)
				}
				t.Death = int32(k) + 1
			}
		}
		p.Tensors = append(p.Tensors, t)
	}
	return p
}

func ids(n ...int32) []int32 { return n }

// machine moves 1,000 bytes in a millisecond to each tier: a link of 2 MB/s of
// which the SSD takes half. There are no latencies.
func machine(gpu, host sim.Bytes) Machine {
	return Machine{GPU: gpu, Host: host, Link: 2_000_000, SSD: 1_000_000, Delta: 0.5, Line: 1}
}

// chain is a program of one global (tensor 0) used by kernels 2 and 5, and a
// local (1) made by kernel 0 and read by kernel 7; each of the 9 kernels takes
// 2 ms, and kernel k makes local 2+k, which nobody reads.
func chain() *policies.Nominal {
	var kernels []policies.NominalKernel
	locals := []sim.Bytes{2 * kb}
	for k := range 9 {
		var in []int32
		out := ids(int32(2 + k))
		switch k {
		case 0:
			out = ids(1, 2)
		case 2, 5:
			in = ids(0)
		case 7:
			in = ids(1)
		}
		kernels = append(kernels, kernel(2, in, out))
		locals = append(locals, 100)
	}
	return program(kernels, []sim.Bytes{kb}, locals)
}

func TestPeriods(t *testing.T) {
	p := chain()
	want := []Period{
		{Tensor: 0, From: 3, To: 5, Length: 4 * ms},
		{Tensor: 0, From: 6, To: 11, Looped: true, Length: 10 * ms},
		{Tensor: 1, From: 1, To: 7, Length: 12 * ms},
	}
	if got := periods(p, newClock(p)); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// One use: all other kernels, looped. None: no period. First and last kernel: no
	// gap between iterations.
	q := program([]policies.NominalKernel{kernel(1, ids(2), nil), kernel(2, ids(0), nil), kernel(3, ids(2), ids(2))}, []sim.Bytes{1, 1, 1}, nil)
	want = []Period{
		{Tensor: 0, From: 2, To: 4, Looped: true, Length: 4 * ms},
		{Tensor: 2, From: 1, To: 2, Length: 2 * ms},
	}
	if got := periods(q, newClock(q)); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestEstimate: locals leave the estimate in their order until the line is met.
func TestEstimate(t *testing.T) {
	// Three locals of 10 in the kernels 0-1, 2-3, 3; a global of 5.
	p := program([]policies.NominalKernel{
		kernel(4, nil, ids(1)), kernel(4, ids(1), nil), kernel(4, nil, ids(2)), kernel(4, ids(2), ids(3)),
	}, []sim.Bytes{5}, []sim.Bytes{10, 10, 10})
	for _, c := range []struct {
		name          string
		m             Machine
		estimate      []sim.Bytes
		allocs, frees []At
	}{
		{"everything fits", Machine{GPU: 36, Host: 1, Link: 1, Line: 1}, []sim.Bytes{35, 35, 35, 35}, nil, nil},
		{"at the line is not below it", Machine{GPU: 35, Host: 1, Link: 1, Line: 1}, []sim.Bytes{25, 25, 25, 25},
			[]At{{1, 0}, {2, 2}}, []At{{1, 2}, {2, 4}}},
		{"all are needed", Machine{GPU: 20, Host: 1, Link: 1, Line: 1}, []sim.Bytes{15, 15, 15, 25},
			[]At{{1, 0}, {2, 2}, {3, 3}}, []At{{1, 2}, {2, 4}, {3, 4}}},
		{"the first stays in", Machine{GPU: 20, Host: 1, Link: 1, Line: 1, KeepFirst: true}, []sim.Bytes{15, 15, 25, 35},
			[]At{{2, 2}, {3, 3}}, []At{{2, 4}, {3, 4}}},
		// 10 bytes take 5 ms to allocate, a kernel 4 ms: two kernels ahead.
		{"allocated ahead", Machine{GPU: 20, Host: 1, Link: 1, Line: 1, Alloc: 5 * ms * sim.Time(sim.MiB) / 10}, []sim.Bytes{25, 35, 25, 25},
			[]At{{1, 0}, {2, 0}, {3, 1}}, []At{{1, 2}, {2, 4}, {3, 4}}},
	} {
		pl := &planner{p: p, m: c.m, clock: newClock(p), s: &Schedule{}}
		pl.estimate()
		if !slices.Equal(pl.est.bytes, c.estimate) || !slices.Equal(pl.s.Allocs, c.allocs) || !slices.Equal(pl.s.Frees, c.frees) {
			t.Errorf("%s: %v, allocated %v, freed %v\nwant %v, %v, %v", c.name, pl.est.bytes, pl.s.Allocs, pl.s.Frees, c.estimate, c.allocs, c.frees)
		}
		if pl.first != &p.Tensors[1] {
			t.Errorf("%s: the first local is %v", c.name, pl.first)
		}
	}
}

// TestBenefit: for a period that is not looped the ends do not count.
func TestBenefit(t *testing.T) {
	p := chain()
	pl := &planner{p: p, m: machine(2*kb, 0), clock: newClock(p), s: &Schedule{}}
	pl.estimate() // 3.9 kb, but 1.9 kb in kernel 8
	for _, c := range []struct {
		period Period
		lo, hi int
		over   sim.Time
	}{
		// 2 kb take 2 ms to the SSD; half of it is 1 ms: one kernel at each end.
		{Period{Tensor: 1, From: 1, To: 7}, 2, 6, 8 * ms},
		// 1 kb: half a millisecond, which is a whole kernel too.
		{Period{Tensor: 0, From: 3, To: 5}, 4, 4, 0},
		{Period{Tensor: 0, From: 6, To: 11, Looped: true}, 6, 11, 8 * ms}, // kernel 8 is not over
	} {
		x := candidate{Period: c.period}
		x.lo, x.hi = pl.core(&c.period)
		if want := product(p.Tensors[c.period.Tensor].Bytes, c.over); x.lo != c.lo || x.hi != c.hi || pl.benefit(&x) != want {
			t.Errorf("%+v: kernels %d to %d, benefit %v; want %d to %d, %v", c.period, x.lo, x.hi, pl.benefit(&x), c.lo, c.hi, want)
		}
	}
}

// TestWhere decides tiers at their thresholds.
func TestWhere(t *testing.T) {
	p := chain()
	base := machine(2*kb, 10*kb)
	base.SSDLatency, base.SystemLatency = ms/2, ms/4
	// One way of 1 kb: 0.75 + 1 ms to the SSD, 0.25 + 0.5 ms to the host; the
	// period must be longer than 2.5 of it: 4.375 ms and 1.875 ms.
	for _, c := range []struct {
		name   string
		length sim.Time
		change func(*planner)
		to     policies.TierID
		ok     bool
	}{
		{"just long enough for the SSD", 4375*ms/1000 + 1, nil, policies.SSDTier, true},
		{"just too short for it", 4375 * ms / 1000, nil, policies.HostTier, true},
		{"just long enough for the host", 1875*ms/1000 + 1, nil, policies.HostTier, true},
		{"too short for both", 1875 * ms / 1000, nil, 0, false},
		{"no host", 4 * ms, func(pl *planner) { pl.m.Host = 0 }, 0, false},
		{"no SSD", 9 * ms, func(pl *planner) { pl.m.SSD = 0 }, policies.HostTier, true},
		{"host full at one kernel", 4 * ms, func(pl *planner) { pl.c.host[4] = kb - 1 }, 0, false},
		{"host has just room", 4 * ms, func(pl *planner) { pl.c.host[4] = kb }, policies.HostTier, true},
		// The write of 1 kb ends inside kernel 3, which does not count, so
		// there is no kernel that could be free.
		{"a write within one kernel", 9 * ms, nil, policies.HostTier, true},
		{"the same without room in the host", 9 * ms, func(pl *planner) { pl.c.host[3] = 0 }, policies.SSDTier, true},
	} {
		pl := &planner{p: p, m: base, clock: newClock(p), s: &Schedule{}}
		pl.channels()
		x := &candidate{Period: Period{Tensor: 0, From: 3, To: 5, Length: c.length}}
		if strings.Contains(c.name, "SSD") && c.change == nil {
			x.Looped = true // the kernel in which its write would end counts, and is free
		}
		if c.change != nil {
			c.change(pl)
		}
		if to, ok := pl.where(x); to != c.to && ok || ok != c.ok {
			t.Errorf("%s: tier %d %v, want %d %v", c.name, to, ok, c.to, c.ok)
		}
	}
	// A write of 2 kb from kernel 1 on lasts 2 ms: kernel 1 and no more.
	pl := &planner{p: p, m: base, clock: newClock(p), s: &Schedule{}}
	pl.channels()
	x := &candidate{Period: Period{Tensor: 1, From: 1, To: 7, Length: 12 * ms}}
	if to, _ := pl.where(x); to != policies.SSDTier {
		t.Error("an idle SSD was taken for booked out")
	}
	pl.c.ssdOut[1] = 0
	if to, _ := pl.where(x); to != policies.HostTier {
		t.Error("the SSD is booked out, but the host was not taken")
	}
	pl.c.host[6] = 0
	if to, _ := pl.where(x); to != policies.SSDTier {
		t.Error("the host has no room, but the SSD was not taken")
	}
	pl.c.ssdOut[1], pl.c.linkOut[1], pl.c.host[6] = 1, 0, 10*kb
	if to, _ := pl.where(x); to != policies.HostTier {
		t.Error("a link that is booked out leaves nothing to the SSD")
	}
	// A looped period of 1 kb: half of kernel 6.
	looped := &candidate{Period: Period{Tensor: 0, From: 6, To: 11, Looped: true, Length: 10 * ms}}
	if to, _ := pl.where(looped); to != policies.SSDTier {
		t.Error("an idle SSD was taken for booked out by a looped period")
	}
	pl.c.ssdOut[6] = 0
	if to, _ := pl.where(looped); to != policies.HostTier {
		t.Error("the SSD is booked out for a looped period, but the host was not taken")
	}
}

// TestBooking: writes go forward, reads backward; the SSD's writes come out of the
// link, its reads only wait for it.
func TestBooking(t *testing.T) {
	p := chain()
	pl := &planner{p: p, m: machine(2*kb, 10*kb), clock: newClock(p), s: &Schedule{}, est: newEstimate(chain(), kb, kb)} // 3.9 kb at all kernels
	pl.channels()
	before := slices.Clone(pl.est.bytes)
	pl.c.linkOut[1] = 500 // of 4,000: the SSD gets no more
	// 2 kb to the SSD, which moves 2 kb in a kernel: 500 in kernel 1, 1,500 in
	// kernel 2; back 2,000 in kernel 6.
	if !pl.move(&candidate{Period: Period{Tensor: 1, From: 1, To: 7}}, policies.SSDTier) {
		t.Fatal("refused")
	}
	if m := pl.s.Moves[0]; m.Written != 2 || m.Read != 6 {
		t.Errorf("written in %d, read from %d, want 2 and 6", m.Written, m.Read)
	}
	if pl.c.linkOut[1] != 0 || pl.c.ssdOut[1] != 1500 || pl.c.ssdOut[2] != 500 || pl.c.linkOut[2] != 2500 || pl.c.ssdIn[6] != 0 || pl.c.linkIn[6] != 4000 {
		t.Errorf("ledgers out %v %v, in %v %v", pl.c.ssdOut, pl.c.linkOut, pl.c.ssdIn, pl.c.linkIn)
	}
	for k := range before {
		want := before[k]
		if k > 2 && k < 6 {
			want -= 2 * kb
		}
		if pl.est.bytes[k] != want {
			t.Errorf("kernel %d: estimate %d, want %d", k, pl.est.bytes[k], want)
		}
	}
	// The same once more: 500 in kernel 2, 1,500 in kernel 3; back 2,000 in
	// kernel 5, since 6 is full.
	if !pl.move(&candidate{Period: Period{Tensor: 1, From: 1, To: 7}}, policies.SSDTier) {
		t.Fatal("refused")
	}
	if m := pl.s.Moves[1]; m.Written != 2 && m.Written != 3 || m.Read != 5 {
		t.Errorf("written in %d, read from %d", m.Written, m.Read)
	}
	// A refusal leaves nothing behind: the read would begin in the kernel
	// in which the write ends.
	ledgers := []ledger{pl.c.ssdOut, pl.c.ssdIn, pl.c.linkOut, pl.c.linkIn}
	var saved []ledger
	for _, l := range ledgers {
		saved = append(saved, slices.Clone(l))
	}
	if pl.move(&candidate{Period: Period{Tensor: 1, From: 3, To: 5}}, policies.SSDTier) {
		t.Error("accepted a read that does not begin after the write ended")
	}
	if !reflect.DeepEqual(ledgers, saved) || len(pl.s.Moves) != 2 {
		t.Error("a refused move left something booked")
	}
	// Only where memory is short in between: kernel 5.
	idle := &planner{p: p, m: machine(2*kb, 10*kb), clock: newClock(p), s: &Schedule{}, est: newEstimate(p, 2*kb, 2*kb)}
	idle.channels()
	for k := range idle.est.bytes {
		idle.est.set(k, 2*kb-1)
	}
	wide := &candidate{Period: Period{Tensor: 0, From: 3, To: 7}}
	idle.est.set(3, 9*kb) // written here
	idle.est.set(6, 9*kb) // read here
	for _, to := range []policies.TierID{policies.SSDTier, policies.HostTier} {
		idle.est.set(5, 2*kb-1)
		if idle.move(wide, to) || idle.c.host[4] != 10*kb {
			t.Errorf("accepted a move to tier %d that helps nowhere", to)
		}
		if idle.est.set(5, 2*kb); !idle.move(wide, to) {
			t.Errorf("refused a move to tier %d that helps in kernel 5", to)
		}
	}
	// The host holds the tensor from the start of the period to the next use.
	if !pl.move(&candidate{Period: Period{Tensor: 0, From: 3, To: 7}}, policies.HostTier) {
		t.Fatal("refused")
	}
	if want := []sim.Bytes{10 * kb, 10 * kb, 10 * kb, 9 * kb, 9 * kb, 9 * kb, 9 * kb, 10 * kb, 10 * kb}; !slices.Equal(pl.c.host, want) {
		t.Errorf("host has %v free, want %v", pl.c.host, want)
	}
}

// TestLooped: looped periods go by plain times, and take what channels have left.
func TestLooped(t *testing.T) {
	p := chain()
	m := machine(2*kb, 10*kb)
	m.SystemLatency = ms / 2
	pl := &planner{p: p, m: m, clock: newClock(p), s: &Schedule{}, est: newEstimate(p, 2*kb, 2*kb)}
	pl.channels()
	before := slices.Clone(pl.est.bytes)
	for k := range pl.c.linkOut {
		pl.c.linkOut[k], pl.c.linkIn[k] = 0, 0
	}
	pl.c.linkOut[6], pl.c.linkOut[0], pl.c.linkOut[2] = 300, 200, 4000
	pl.c.linkIn[8], pl.c.linkIn[0] = 4000, 400
	// One way of 1 kb to the host: 1 ms, inside kernel 6. Back 1.5 ms before kernel 2
	// of the next iteration: kernel 1, counted as 10. The tensor is away in
	// 7, 8 and 0.
	if !pl.move(&candidate{Period: Period{Tensor: 0, From: 6, To: 11, Looped: true}}, policies.HostTier) {
		t.Fatal("refused")
	}
	if mv := pl.s.Moves[0]; mv.Written != 6 || mv.Read != 10 {
		t.Errorf("written in %d, read from %d, want 6 and 10", mv.Written, mv.Read)
	}
	for k := range before {
		want := before[k]
		if k == 7 || k == 8 || k == 0 {
			want -= kb
		}
		if pl.est.bytes[k] != want {
			t.Errorf("kernel %d: estimate %d, want %d", k, pl.est.bytes[k], want)
		}
	}
	// 500 of 1,000 bytes find room on their way out in the kernels of the period, 6
	// to 1; all do on their way in, last kernel first.
	if want := (ledger{0, 0, 4000, 0, 0, 0, 0, 0, 0}); !slices.Equal(pl.c.linkOut, want) {
		t.Errorf("link out %v, want %v", pl.c.linkOut, want)
	}
	if want := (ledger{0, 0, 0, 0, 0, 0, 0, 0, 3400}); !slices.Equal(pl.c.linkIn, want) {
		t.Errorf("link in %v, want %v", pl.c.linkIn, want)
	}
	pl.s.Kernels = 9
	h := pl.s.MoveHints()
	if len(h) != 2 || h[0].Kind != policies.Prefetch || h[0].Start.N != 1 || h[1].Kind != policies.Evict || h[1].Start.N != 6 {
		t.Errorf("hints %+v", h)
	}
	// Too short for both ways, though the threshold was met.
	ssd := slices.Clone(pl.c.ssdOut)
	if pl.move(&candidate{Period: Period{Tensor: 1, From: 3, To: 5, Looped: true}}, policies.SSDTier) {
		t.Error("accepted a looped period without room for both ways")
	}
	if !slices.Equal(ssd, pl.c.ssdOut) {
		t.Error("a refused looped period left something booked")
	}
}

// TestFreesWrap: what dies with the last kernel is freed before the first of the
// next iteration, and before that one allocates.
func TestFreesWrap(t *testing.T) {
	s := &Schedule{Kernels: 4, Allocs: []At{{1, 0}, {2, 2}}, Frees: []At{{1, 2}, {2, 4}}}
	type hint struct {
		kind           policies.Kind
		tensor, kernel int32
	}
	var got []hint
	for _, a := range s.Hints() {
		got = append(got, hint{a.Kind, a.What.Static, a.Start.N})
	}
	want := []hint{{policies.Discard, 2, 0}, {policies.Prefetch, 1, 0}, {policies.Discard, 1, 2}, {policies.Prefetch, 2, 2}}
	if !slices.Equal(got, want) {
		t.Errorf("hints %v, want %v", got, want)
	}
	if len(s.MoveHints()) != 0 {
		t.Errorf("hints about moves alone %v, want none", s.MoveHints())
	}
}

// TestPullForward: reads move up to the line, and not before the write ended. With
// the quirk the room that a kernel needs is not that of the read, of 10 bytes, but
// that of the first local, of 5.
func TestPullForward(t *testing.T) {
	p := chain()
	set := func(bytes ...sim.Bytes) *estimate {
		e := newEstimate(p, 100, 100)
		for k, b := range bytes {
			e.set(k, b)
		}
		return e
	}
	p.Tensors[1].Bytes = 10
	for _, c := range []struct {
		name  string
		est   *estimate
		quirk bool
		want  int32
	}{
		{"up to the write", set(0, 0, 0, 0, 0, 0, 0, 0, 0), false, 3},
		{"up to a full kernel", set(0, 0, 0, 0, 90, 0, 0, 0, 0), false, 5},
		{"just below the line", set(0, 0, 0, 0, 89, 0, 0, 0, 0), false, 3},
		{"not at all", set(0, 0, 0, 0, 0, 95, 0, 0, 0), false, 6},
		{"room for the first local", set(0, 0, 0, 0, 0, 94, 0, 0, 0), true, 3},
		{"no room for the first local", set(0, 0, 0, 0, 95, 94, 0, 0, 0), true, 5},
	} {
		pl := &planner{p: p, m: Machine{KeepFirst: c.quirk}, first: &policies.NominalTensor{Bytes: 5}, est: c.est, s: &Schedule{Moves: []Move{{Period: Period{Tensor: 1, From: 1, To: 7}, Written: 2, Read: 6, Latest: 6}}}}
		before := slices.Clone(c.est.bytes)
		pl.pullForward()
		if got := pl.s.Moves[0].Read; got != c.want {
			t.Errorf("%s: read from %d, want %d", c.name, got, c.want)
		}
		for k := range before {
			want := before[k]
			if int32(k) >= c.want && k < 6 {
				want += 10
			}
			if c.est.bytes[k] != want {
				t.Errorf("%s: kernel %d: estimate %d, want %d", c.name, k, c.est.bytes[k], want)
			}
		}
	}
}

// TestPullForwardOrder: of two reads at one kernel the tensor that is used first
// comes forward first, whichever was chosen first.
func TestPullForwardOrder(t *testing.T) {
	p := chain()
	p.Tensors[1].Bytes, p.Tensors[2].Bytes = 10, 10
	for _, first := range []int{0, 1} {
		moves := []Move{
			{Period: Period{Tensor: 1, From: 1, To: 8}, Written: 2, Read: 6, Latest: 6},
			{Period: Period{Tensor: 2, From: 1, To: 7}, Written: 2, Read: 6, Latest: 6},
		}
		moves[0], moves[1] = moves[first], moves[1-first]
		est := newEstimate(p, 15, 15)
		for k := range est.bytes {
			est.set(k, 0)
		}
		pl := &planner{p: p, est: est, s: &Schedule{Moves: moves}}
		pl.pullForward()
		for _, m := range pl.s.Moves {
			if want := map[int32]int32{1: 6, 2: 3}[m.Tensor]; m.Read != want {
				t.Errorf("tensor %d is read at %d, want %d", m.Tensor, m.Read, want)
			}
		}
	}
}

// TestLastPass evicts what lowers the fullest kernel, largest size x length first
// and of equals in order, nothing looped, and stops.
func TestLastPass(t *testing.T) {
	p := chain()
	m := machine(1000, 0)
	m.LastPass = 0.5
	pl := &planner{p: p, m: m, clock: newClock(p), s: &Schedule{}, est: newEstimate(p, m.GPU, m.line())}
	for k := range pl.est.bytes {
		pl.est.set(k, 500)
	}
	pl.est.set(4, 900)
	for i, c := range []struct {
		tensor, from, to int32
		size             sim.Bytes
		looped           bool
	}{
		{2, 1, 8, 100, false}, // the third: then the kernel has 400
		{3, 2, 7, 200, false}, // the first
		{4, 5, 8, 300, false}, // does not cover the kernel
		{0, 3, 12, 500, true},
		{5, 4, 8, 250, false}, // leaves while it runs
		{6, 1, 8, 50, false},  // one too many
		{7, 2, 7, 200, false}, // the second: then it has 500, which is not below half the line
	} {
		p.Tensors[c.tensor].Bytes = c.size
		x := Period{Tensor: c.tensor, From: c.from, To: c.to, Looped: c.looped, Length: 2 * ms * sim.Time(c.to-c.from)}
		pl.rest = append(pl.rest, &candidate{Period: x, number: i, weight: product(c.size, x.Length)})
	}
	pl.lastPass()
	var moved []int32
	for _, mv := range pl.s.Moves {
		moved = append(moved, mv.Tensor)
		if mv.Tier != policies.SSDTier || mv.Written != mv.From || mv.Read != mv.To-1 || mv.Latest != mv.Read {
			t.Errorf("move %+v", mv)
		}
	}
	if !slices.Equal(moved, ids(3, 7, 2)) {
		t.Errorf("moved %v, want [3 7 2]", moved)
	}
	if want := []sim.Bytes{500, 500, 400, 0, 400, 0, 400, 500, 500}; !slices.Equal(pl.est.bytes, want) {
		t.Errorf("estimate %v, want %v", pl.est.bytes, want)
	}
}

// TestOneKernel: the last pass takes no period of one kernel either.
func TestOneKernel(t *testing.T) {
	p := program([]policies.NominalKernel{kernel(1, nil, ids(0)), kernel(1, nil, ids(1)), kernel(1, ids(0), nil)}, nil, []sim.Bytes{90, 20})
	s, err := Plan(p, Machine{GPU: 100, SSD: 1000, Link: 2000, Line: 1, LastPass: 0.5})
	if err != nil || len(s.Moves) != 0 {
		t.Errorf("moved %+v, %v", s.Moves, err)
	}
}

// TestDropped: periods of one kernel, and those with nothing at or above the
// line, are not taken even if nothing else is left.
func TestDropped(t *testing.T) {
	// Tensor 0 spans one kernel at which memory is short, tensor 1 two at which it is not.
	p := program([]policies.NominalKernel{
		kernel(90, nil, ids(0)), kernel(90, nil, ids(2)), kernel(90, ids(0), ids(1)), kernel(90, nil, nil), kernel(90, nil, nil), kernel(90, ids(1), nil),
	}, nil, []sim.Bytes{10, 10, 95})
	s, err := Plan(p, Machine{GPU: 100, Host: 1000, Link: 1_000_000, Line: 1})
	if err != nil || len(s.Moves) != 0 || s.Met {
		t.Errorf("moved %+v, met %v, %v", s.Moves, s.Met, err)
	}
}

func TestErrors(t *testing.T) {
	good := machine(kb, kb)
	for _, c := range []struct {
		name   string
		change func(*Machine)
		say    string
	}{
		{"no memory", func(m *Machine) { m.GPU = 0 }, "GPU"},
		{"host", func(m *Machine) { m.Host = -1 }, "Host"},
		{"no link", func(m *Machine) { m.Link = 0 }, "Link"},
		{"ssd", func(m *Machine) { m.SSD = -1 }, "SSD"},
		{"no tier", func(m *Machine) { m.Host, m.SSD = 0, 0 }, "at least one tier"},
		{"latency", func(m *Machine) { m.SSDLatency = -1 }, "SSDLatency"},
		{"latency", func(m *Machine) { m.SystemLatency = -1 }, "SystemLatency"},
		{"alloc", func(m *Machine) { m.Alloc = -1 }, "Alloc"},
		{"delta", func(m *Machine) { m.Delta = 11 }, "Delta"},
		{"line", func(m *Machine) { m.Line = 0 }, "Line"},
		{"last pass", func(m *Machine) { m.LastPass = -1 }, "LastPass"},
		{"last pass without SSD", func(m *Machine) { m.LastPass, m.SSD = 1, 0 }, "LastPass"},
	} {
		m := good
		c.change(&m)
		if _, err := Plan(chain(), m); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want an error about %q", c.name, err, c.say)
		}
	}
	if _, err := Plan(chain(), good); err != nil {
		t.Error(err)
	}
	if _, err := Plan(nil, good); err == nil {
		t.Error("planned without a program")
	}
	if _, err := Plan(&policies.Nominal{Kernels: []policies.NominalKernel{{In: ids(3)}}}, good); err == nil {
		t.Error("planned for a tensor that does not exist")
	}
}
