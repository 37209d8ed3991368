package unified

import (
	"slices"
	"testing"

	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
)

// rig is a device on unified memory that kernels are put on by hand.
type rig struct {
	t     *testing.T
	eng   *sim.Engine
	dev   *stream.Device
	mem   *Memory
	spans [stream.Count][]span // that have ended
	begun [stream.Count]sim.Time
	fault error
	later []func()
	self  sim.HandlerID
	kind  stream.Kind // of what is put
}

type span struct{ start, end sim.Time }

// newRig has pages of 4 KiB that come one in a batch of 1 us: 4.096 GB/s. The
// residents' pages are on an SSD as fast as the link, unless place puts them
// elsewhere; nothing leaves for the host.
func newRig(t *testing.T, devicePages int, paging policies.Paging, residents ...int32) *rig {
	r := &rig{t: t, eng: sim.NewEngine()}
	var beside [hw.NumFamilies]float64
	for f := range beside {
		beside[f] = 2
	}
	r.dev = stream.New(r.eng, sim.NewShare(r.eng), nil, stream.NewFabric(r.eng), beside, 0, 0, r)
	o := Defaults()
	o.Device, o.Host, o.Batch = sim.Bytes(devicePages)*o.Page, 0, 1
	o.Link, o.SSDRate, o.Map = 4_096_000_000, 4_096_000_000, 1<<50
	o.Fault, o.SSDRead = 0, 0
	var sizes []sim.Bytes
	for _, pages := range residents {
		sizes = append(sizes, sim.Bytes(pages)*o.Page)
	}
	var err error
	size := func(id int32) sim.Bytes { return sizes[id] }
	r.mem, err = New(o, paging, r.eng, r.dev, sizes, size, func(err error) { r.fault = err; r.eng.Stop() }, t.Errorf)
	if err != nil {
		t.Fatal(err)
	}
	r.mem.Share()
	r.self = r.eng.Register(r)
	return r
}

// place moves all pages of a storage to the device.
func (r *rig) place(ids ...int32) {
	b := r.mem.driver.book
	for _, id := range ids {
		for i := b.storages[number(id)].first; i != none; i = b.storages[number(id)].first {
			if b.run(i).place == device {
				break
			}
			b.move(i, b.run(i).len(), device, aged)
		}
	}
}

// at has f called at a time.
func (r *rig) at(t sim.Time, f func()) {
	r.later = append(r.later, f)
	r.eng.At(t, sim.PrioHost, r.self, uint32(len(r.later)-1))
}

func (r *rig) Handle(arg uint32, _ sim.Stamp) { r.later[arg]() }

func (r *rig) Started(_ *stream.Device, s stream.ID, _ *stream.Command) { r.begun[s] = r.eng.Now() }

func (r *rig) Retired(_ *stream.Device, s stream.ID, _ *stream.Command) {
	r.spans[s] = append(r.spans[s], span{r.begun[s], r.eng.Now()})
}

// put issues a kernel on a stream that updates residents.
func (r *rig) put(s stream.ID, iteration int, index int32, t sim.Time, ids ...int32) {
	u := &stream.Use{On: s, End: r.dev.Next(s), Communicates: s != stream.Compute, Iteration: iteration, Index: index, Span: t}
	for _, id := range ids {
		u.Operands = append(u.Operands, stream.Operand{Storage: id, Bytes: r.mem.size(id), Read: true, Write: true, Resident: true})
	}
	r.mem.Issued(u)
	r.dev.Issue(s)
	r.dev.Enqueue(s, stream.Command{Kind: r.kind, Timing: hw.Timing{Span: t, Demand: sim.GBps(1)}})
}

func (r *rig) run() {
	r.t.Helper()
	if err := r.eng.Run(); err != nil {
		r.t.Fatal(err)
	}
	if r.fault != nil {
		r.t.Fatal(r.fault)
	}
	if err := r.mem.Stuck(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.mem.driver.book.check(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.mem.driver.check(); err != nil || r.mem.driver.holding != 0 {
		r.t.Fatal(err, r.mem.driver.holding)
	}
}

const us = sim.Microsecond

func (r *rig) want(s stream.ID, want ...span) {
	r.t.Helper()
	if !slices.Equal(r.spans[s], want) {
		r.t.Errorf("%s: %v, want %v", s.Name(), r.spans[s], want)
	}
}

// Communication that comes while compute waits for pages finds memory as it is
// then: what is there is held, and another page leaves.
func TestBesideAFault(t *testing.T) {
	r := newRig(t, 30, policies.Paging{Oldest: true}, 10, 10, 20)
	r.place(0, 1)
	r.put(stream.Compute, 0, 0, us, 2) // ten pages into free memory, ten for pages of 0, the oldest
	r.at(5*us+us/2, func() { r.put(stream.Comm, 0, 1, 100*us, 0) })
	r.run()
	r.want(stream.Comm, span{5*us + us/2, 105*us + us/2})
	r.want(stream.Compute, span{0, 21 * us}) // faults add to it
	if n := at(r.mem.driver, number(0)); n[device] != 10 {
		t.Errorf("storage 0 is at %v", n)
	}
	if n := at(r.mem.driver, number(1)); n[ssd] != 10 {
		t.Errorf("storage 1 is at %v", n)
	}
}

// Batches are run up to the next event at most: two pages of 0 have left by then,
// and come back behind the eight that compute still waits for.
func TestInTheMiddleOfAFault(t *testing.T) {
	r := newRig(t, 30, policies.Paging{Oldest: true}, 10, 10, 20)
	r.place(0, 1)
	r.put(stream.Compute, 0, 0, us, 2)
	r.at(12*us+us/2, func() { r.put(stream.Comm, 0, 1, 100*us, 0) })
	r.run()
	r.want(stream.Comm, span{22 * us, 122 * us})
	r.want(stream.Compute, span{0, 21 * us})
}

// A workspace of communication is its own, and of no use once that has ended.
func TestCommunicationWorkspace(t *testing.T) {
	r := newRig(t, 20, policies.Paging{DropDead: true}, 16)
	use := func(s stream.ID, t sim.Time) {
		r.mem.Issued(&stream.Use{On: s, End: r.dev.Next(s), Communicates: s != stream.Compute, Span: t, Operands: []stream.Operand{{Storage: stream.Scratch, Bytes: 5 * 4096, Write: true}}})
		r.dev.Issue(s)
		r.dev.Enqueue(s, stream.Command{Kind: stream.Kernel, Timing: hw.Timing{Span: t, Demand: 1}})
	}
	use(stream.Comm, 100*us)
	use(stream.Compute, 50*us)
	r.at(60*us, func() {
		if n := r.mem.driver.book.used[device]; n != 10 {
			t.Errorf("%d pages in use, want two workspaces of five", n)
		}
	})
	r.at(200*us, func() { r.put(stream.Compute, 0, 1, us, 0) }) // six have to go; nobody has said that compute's is dead
	r.run()
	if c := r.mem.driver.counts; c.out[ssd] != 1 || c.dropped != 5 {
		t.Errorf("%d pages left, %d were dropped", c.out[ssd], c.dropped)
	}
}

// What communication misses comes before it starts, after what others have asked
// for before it; it takes its time then. Its faults are not its time.
func TestCommunicationFaults(t *testing.T) {
	r := newRig(t, 40, policies.Paging{}, 10, 10, 5)
	r.put(stream.Compute, 0, 0, 100*us, 0)
	r.put(stream.Comm, 0, 1, 50*us, 1)
	r.put(stream.Peer, 0, 2, 50*us, 2)
	r.run()
	r.want(stream.Compute, span{0, 110 * us}) // faults add to it
	r.want(stream.Comm, span{20 * us, 70 * us})
	r.want(stream.Peer, span{25 * us, 75 * us})
	if l := r.dev.Lane(stream.Compute); l.Busy != 100*us || l.Wait[stream.Fault] != 10*us {
		t.Errorf("compute: %+v", l)
	}
	if l := r.dev.Lane(stream.Comm); l.Busy != 50*us || l.Wait[stream.Fault] != 20*us {
		t.Errorf("communication: %+v", l)
	}
}

// First come first served: what would fit waits behind what does not.
func TestLine(t *testing.T) {
	r := newRig(t, 20, policies.Paging{}, 10, 15, 5)
	r.place(0)
	r.put(stream.Compute, 0, 0, 100*us, 0)
	r.put(stream.Comm, 0, 1, 10*us, 1) // 25 pages
	r.put(stream.Peer, 0, 2, 10*us, 2) // 15, but later
	r.run()
	r.want(stream.Compute, span{0, 100 * us})
	r.want(stream.Comm, span{115 * us, 125 * us}) // ten of the fifteen find free memory, five make others leave
	r.want(stream.Peer, span{120 * us, 130 * us})
}

// The last page: two kernels on one storage share it, and need room for it once.
func TestSharedOperand(t *testing.T) {
	r := newRig(t, 10, policies.Paging{}, 10)
	r.put(stream.Compute, 0, 0, 20*us, 0)
	r.at(5*us, func() { r.put(stream.Comm, 0, 1, 20*us, 0) })
	r.run()
	r.want(stream.Compute, span{0, 30 * us})
	r.want(stream.Comm, span{10 * us, 30 * us})
	if in := r.mem.driver.counts.in[ssd]; in != 10 {
		t.Errorf("%d pages came, want 10", in)
	}
}

// hints arms evictions of storage 0 at kernels.
func (r *rig) hints(kernels ...int32) {
	var p policies.Plan
	for _, k := range kernels {
		p.Hints = append(p.Hints, policies.Action{Kind: policies.Evict, To: policies.SSDTier, What: policies.Selector{Kind: policies.ByStatic}, Start: policies.Trigger{Kind: policies.AtOp, N: k}})
	}
	if err := r.mem.Arm(&p); err != nil {
		r.t.Fatal(err)
	}
}

// An operand that is leaving: what has gone comes back, the rest stays.
func TestOperandOnItsWayOut(t *testing.T) {
	r := newRig(t, 20, policies.Paging{}, 10)
	r.place(0)
	r.hints(0)
	r.put(stream.Compute, 0, 0, 100*us)
	r.at(4*us+us/2, func() { r.put(stream.Comm, 0, 1, 10*us, 0) }) // batches of 1, 2, 3 and 4 us have taken four pages
	r.run()
	r.want(stream.Comm, span{8*us + us/2, 18*us + us/2})
	if c := r.mem.driver.counts; c.out[ssd] != 4 || c.in[ssd] != 4 {
		t.Errorf("%d pages left, %d came back, want 4", c.out[ssd], c.in[ssd])
	}
}

// A planned eviction that has been put off is void if a later kernel has the
// storage, or the kernel that it came with still has.
func TestVoidEviction(t *testing.T) {
	for name, ids := range map[string][2][]int32{"no longer": {{0}, nil}, "the next one": {nil, {0}}} {
		r := newRig(t, 20, policies.Paging{}, 10)
		r.place(0)
		r.hints(1)
		r.put(stream.Comm, 0, 0, 50*us, 0)
		r.put(stream.Compute, 0, 1, 20*us, ids[0]...)
		r.put(stream.Compute, 0, 2, 100*us, ids[1]...)
		r.run()
		if c := r.mem.driver.counts; (c.out[ssd] != 0) != (name == "no longer") {
			t.Errorf("%s: %d pages left", name, c.out[ssd])
		}
	}
	// It is fetched again before communication ends.
	for _, fetch := range []bool{false, true} {
		r := newRig(t, 20, policies.Paging{}, 10)
		r.place(0)
		r.hints(1)
		if fetch {
			r.mem.hints = append(r.mem.hints, []hint{{id: number(0), pages: 10, kind: arrive}})
		}
		r.put(stream.Comm, 0, 0, 50*us, 0)
		r.put(stream.Compute, 0, 1, 20*us)
		r.put(stream.Compute, 0, 2, 100*us)
		r.run()
		if c := r.mem.driver.counts; (c.out[ssd] == 0) != fetch {
			t.Errorf("fetched %v: %d pages left", fetch, c.out[ssd])
		}
	}
	// The kernel still has it when communication ends.
	r := newRig(t, 20, policies.Paging{}, 10)
	r.place(0)
	r.hints(1)
	r.put(stream.Comm, 0, 0, 50*us, 0)
	r.put(stream.Compute, 0, 1, 100*us, 0)
	r.run()
	if c := r.mem.driver.counts; c.out[ssd] != 0 {
		t.Errorf("%d pages left", c.out[ssd])
	}
}

// What communication touches is learned for its place in its iteration, whether
// it is ahead of compute or behind.
func TestLearnsBesideCompute(t *testing.T) {
	r := newRig(t, 40, policies.Paging{Lookahead: 1}, 1, 1, 1, 1)
	r.place(0, 1, 2, 3)
	r.put(stream.Compute, 0, 0, 100*us, 0)
	r.put(stream.Comm, 0, 1, 10*us, 1)
	r.put(stream.Comm, 1, 1, 10*us, 2) // while compute is in iteration 0
	r.put(stream.Comm, 1, 2, 300*us)
	r.put(stream.Compute, 1, 0, 10*us, 0)
	r.put(stream.Comm, 1, 3, 10*us, 3) // when compute is in iteration 2
	r.put(stream.Compute, 2, 0, 10*us, 0)
	r.run()
	want := [][]int32{{number(0)}, {number(2)}, nil, {number(3)}}
	if !slices.EqualFunc(r.mem.learned, want, slices.Equal[[]int32]) {
		t.Errorf("learned in iteration 1: %v, want %v", r.mem.learned, want)
	}
}

// A kernel of the compute stream is slowed beside a collective while it runs, and
// while it only waits for pages nothing else is in its place.
func TestSlowBesideCollective(t *testing.T) {
	r := newRig(t, 40, policies.Paging{}, 20)
	solo := func() { r.kind = stream.Solo; r.put(stream.Peer, 0, 2, 3*us); r.kind = stream.Kernel }
	r.put(stream.Compute, 0, 0, us, 0) // until 21 us
	r.at(2*us, func() { r.put(stream.Comm, 0, 1, 10*us) })
	r.at(4*us, solo)
	r.at(30*us, func() { r.put(stream.Compute, 0, 3, 10*us, 0) })
	r.at(31*us, solo)
	r.run()
	r.want(stream.Compute, span{0, 21 * us}, span{30 * us, 41*us + us/2}) // three microseconds count half
	r.want(stream.Comm, span{2 * us, 12 * us})
	r.want(stream.Peer, span{4 * us, 7 * us}, span{31 * us, 34 * us})
}

// Hints of the last operators of an iteration, which communicate, come with the
// first kernel of the next.
func TestHintsBehindCompute(t *testing.T) {
	r := newRig(t, 20, policies.Paging{}, 10)
	r.place(0)
	r.hints(1)
	r.put(stream.Compute, 0, 0, 10*us)
	r.put(stream.Comm, 0, 1, 10*us)
	r.put(stream.Compute, 1, 0, 100*us)
	r.put(stream.Compute, 2, 0, 100*us)
	r.run()
	if c := r.mem.driver.counts; c.out[ssd] != 10 {
		t.Errorf("%d pages left", c.out[ssd])
	}
}

// A plan that is armed in the middle of an iteration is followed from the next
// kernel on: what it has for operators before is past.
func TestArmedLate(t *testing.T) {
	for _, shared := range []bool{true, false} {
		r := newRig(t, 40, policies.Paging{}, 10, 10)
		r.mem.shared = shared
		r.place(0, 1)
		r.put(stream.Compute, 0, 0, 10*us)
		r.put(stream.Compute, 0, 1, 10*us)
		r.put(stream.Compute, 0, 2, 100*us)
		evict := func(id, op int32) policies.Action {
			return policies.Action{Kind: policies.Evict, What: policies.Selector{Kind: policies.ByStatic, Static: id}, To: policies.SSDTier, Start: policies.Trigger{Kind: policies.AtOp, N: op}}
		}
		r.at(15*us, func() {
			if err := r.mem.Arm(&policies.Plan{Hints: []policies.Action{evict(0, 1), evict(1, 2)}}); err != nil {
				t.Fatal(err)
			}
		})
		r.put(stream.Compute, 0, 3, 10*us)
		r.run()
		if a, b := at(r.mem.driver, number(0)), at(r.mem.driver, number(1)); a[device] != 10 || b[ssd] != 10 {
			t.Errorf("shared %v: %v and %v, want the first on the device, the second on the SSD", shared, a, b)
		}
	}
}
