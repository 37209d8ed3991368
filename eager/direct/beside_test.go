package direct

import (
	"slices"
	"testing"

	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
)

// lanes is a rig that kernels of several streams are put on by hand, and what
// ran when.
type lanes struct {
	*rig
	t     *testing.T
	begun [stream.Count]sim.Time
	ran   [stream.Count][]times
	later []func()
	self  sim.HandlerID
	now   int // iteration that is put
}

type times struct{ start, end sim.Time }

func newLanes(t *testing.T, o Options, p *policies.Nominal, plan *policies.Plan) *lanes {
	l := &lanes{rig: &rig{eng: sim.NewEngine(), p: p}, t: t}
	var beside [hw.NumFamilies]float64
	l.dev = stream.New(l.eng, sim.NewShare(l.eng), nil, stream.NewFabric(l.eng), beside, 0, 0, l)
	var err error
	if l.mem, err = New(l.eng, l.dev, o, p, func(n *NoRoom) { l.noRoom = n }); err != nil {
		t.Fatal(err)
	}
	if err := l.mem.Arm(plan); err != nil {
		t.Fatal(err)
	}
	l.mem.Share()
	l.dev.SetResidency(l.mem)
	l.self = l.eng.Register(l)
	return l
}

func (l *lanes) Started(_ *stream.Device, s stream.ID, _ *stream.Command) { l.begun[s] = l.eng.Now() }

func (l *lanes) Retired(_ *stream.Device, s stream.ID, _ *stream.Command) {
	l.ran[s] = append(l.ran[s], times{l.begun[s], l.eng.Now()})
}

func (l *lanes) Handle(arg uint32, _ sim.Stamp) { l.later[arg]() }

func (l *lanes) at(t sim.Time, f func()) {
	l.later = append(l.later, f)
	l.eng.At(t, sim.PrioHost, l.self, uint32(len(l.later)-1))
}

// put issues kernel k of the nominal program on a stream.
func (l *lanes) put(s stream.ID, k int32, dead ...int32) {
	n := &l.p.Kernels[k]
	u := &stream.Use{On: s, End: l.dev.Next(s), Communicates: s != stream.Compute, Iteration: l.now, Index: k, Span: n.Span}
	for _, id := range dead {
		u.Dead = append(u.Dead, stream.Death{Storage: id, At: u.Point()})
	}
	for _, id := range operandsOf(n) {
		x := &l.p.Tensors[id]
		u.Operands = append(u.Operands, stream.Operand{Storage: id, Bytes: x.Bytes, Resident: x.Global, Read: slices.Contains(n.In, id), Write: slices.Contains(n.Out, id)})
	}
	l.mem.Issued(u)
	l.dev.Issue(s)
	l.dev.Enqueue(s, stream.Command{Kind: stream.Kernel, Timing: hw.Timing{Span: n.Span, Demand: sim.GBps(1)}})
}

// run plays everything, with the rules checked after every event; it returns what
// is missing in the end.
func (l *lanes) run() error {
	l.t.Helper()
	for {
		more, err := l.eng.Step()
		if err == nil {
			err = l.mem.Check()
		}
		if err != nil {
			l.t.Fatal(err)
		}
		if !more {
			return l.mem.Stuck()
		}
	}
}

func (l *lanes) want(s stream.ID, want ...times) {
	l.t.Helper()
	if !slices.Equal(l.ran[s], want) {
		l.t.Errorf("%s: %v, want %v", s.Name(), l.ran[s], want)
	}
}

func withSSD(o Options) Options {
	o.Tiers[policies.SSDTier] = Tier{Out: fast, In: fast}
	return o
}

// Communication takes memory for all it misses or for nothing: compute goes on
// beside it.
func TestAllOrNothing(t *testing.T) {
	p := program(-1, []policies.NominalKernel{
		kernel(100, nil, ids(0)), kernel(50, nil, ids(1, 2)), kernel(100, nil, ids(3)), kernel(100, nil, nil),
	}, nil, []sim.Bytes{20, 15, 15, 20})
	l := newLanes(t, Options{Capacity: 45}, p, nil)
	l.put(stream.Compute, 0)
	l.at(10, func() {
		l.put(stream.Comm, 1) // one of its two tensors would fit
		l.put(stream.Compute, 2)
		l.put(stream.Compute, 3, 0, 3)
	})
	if err := l.run(); err != nil {
		t.Fatal(err)
	}
	l.want(stream.Compute, times{0, 100}, times{100, 200}, times{200, 300})
	l.want(stream.Comm, times{200, 250})

	// Nothing makes room: that is known when nothing happens any more.
	l = newLanes(t, Options{Capacity: 45}, p, nil)
	l.put(stream.Compute, 0)
	l.put(stream.Comm, 1)
	if n, ok := l.run().(*NoRoom); !ok || *n != (NoRoom{Kernel: 1, Need: 15, Largest: 25, Used: 20, Capacity: 45}) {
		t.Errorf("%+v", n)
	}
}

// Communication does not take what an earlier kernel is short of.
func TestShortOfMemory(t *testing.T) {
	p := program(-1, []policies.NominalKernel{
		kernel(10, nil, ids(0)), kernel(100, nil, ids(1)), kernel(50, nil, ids(2)), kernel(10, nil, nil),
	}, nil, []sim.Bytes{30, 45, 10})
	l := newLanes(t, withSSD(Options{Capacity: 50}), p, &policies.Plan{Hints: []policies.Action{evict(0, 1)}})
	l.put(stream.Compute, 0)
	l.put(stream.Compute, 1) // from 40 on, when 0 has been written
	l.at(15, func() { l.put(stream.Comm, 2) })
	l.put(stream.Compute, 3, 1)
	if err := l.run(); err != nil {
		t.Fatal(err)
	}
	l.want(stream.Compute, times{0, 10}, times{10, 140}, times{140, 150})
	l.want(stream.Comm, times{140, 190})
}

// Hints and the begin of the backward pass are the compute stream's, whichever
// stream the operators are on that they are put at.
func TestCommunicationAtTheTurn(t *testing.T) {
	p := program(0, []policies.NominalKernel{
		kernel(10, nil, ids(0)), kernel(50, nil, nil), kernel(100, nil, nil),
	}, nil, []sim.Bytes{30})
	l := newLanes(t, withSSD(Options{Capacity: 50, Drain: true}), p, &policies.Plan{Hints: []policies.Action{evict(0, 1)}})
	l.put(stream.Compute, 0)
	l.put(stream.Comm, 1)
	l.put(stream.Compute, 2)
	if err := l.run(); err != nil {
		t.Fatal(err)
	}
	l.want(stream.Compute, times{0, 10}, times{10, 140}) // the write ends at 40
	l.want(stream.Comm, times{0, 50})
}

// An operand that is on its way out stays, one that is away is fetched first.
func TestOperandOnItsWayOut(t *testing.T) {
	for at, want := range map[sim.Time]times{20: {20, 70}, 50: {80, 130}} {
		p := program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0)), kernel(200, nil, nil), kernel(50, ids(0), nil),
		}, nil, []sim.Bytes{30})
		l := newLanes(t, withSSD(Options{Capacity: 50}), p, &policies.Plan{Hints: []policies.Action{evict(0, 1)}})
		l.put(stream.Compute, 0)
		l.put(stream.Compute, 1)
		l.at(at, func() { l.put(stream.Comm, 2) })
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		l.want(stream.Comm, want)
		if l.mem.tensors[0].place != here {
			t.Errorf("at %d: the tensor is at place %d", at, l.mem.tensors[0].place)
		}
	}
}

// An eviction that waits for communication is void if a later kernel has the
// tensor, it is fetched again, or the kernel that the eviction came with still
// has it.
func TestVoidEviction(t *testing.T) {
	for name, c := range map[string]struct {
		in    [2][]int32 // read by the two kernels of the compute stream
		hints []policies.Action
		span  sim.Time // of the first of them
		away  bool
	}{
		"nobody has it":     {span: 10, away: true},
		"no longer":         {in: [2][]int32{ids(0)}, span: 10, away: true},
		"still":             {in: [2][]int32{ids(0)}, span: 100},
		"a later kernel":    {in: [2][]int32{nil, ids(0)}, span: 10},
		"fetched meanwhile": {hints: []policies.Action{prefetch(0, 3)}, span: 10},
	} {
		p := program(-1, []policies.NominalKernel{
			kernel(10, nil, ids(0)), kernel(50, ids(0), nil), kernel(c.span, c.in[0], nil), kernel(100, c.in[1], nil),
		}, nil, []sim.Bytes{30})
		l := newLanes(t, withSSD(Options{Capacity: 100}), p, &policies.Plan{Hints: append([]policies.Action{evict(0, 2)}, c.hints...)})
		l.put(stream.Compute, 0)
		l.at(10, func() {
			l.put(stream.Comm, 1)
			l.put(stream.Compute, 2)
			l.put(stream.Compute, 3)
		})
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		if away := l.mem.tensors[0].place == away; away != c.away {
			t.Errorf("%s: away %v", name, away)
		}
	}
}

// Hints of the last operators of an iteration, which communicate, come with the
// first kernel of the next.
func TestHintsBehindCompute(t *testing.T) {
	p := program(-1, []policies.NominalKernel{kernel(10, nil, nil), kernel(10, nil, nil)}, []sim.Bytes{30}, nil)
	l := newLanes(t, withSSD(Options{Capacity: 100}), p, &policies.Plan{Hints: []policies.Action{evict(0, 1)}})
	for l.now = range 2 {
		l.put(stream.Compute, 0)
		l.put(stream.Comm, 1)
	}
	if err := l.run(); err != nil {
		t.Fatal(err)
	}
	if l.mem.tensors[0].place != away {
		t.Errorf("the tensor is at place %d", l.mem.tensors[0].place)
	}
}
