package eager_test

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/eager/stream"
	"smartswap/eager/unified"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"
)

// device is what a job did on the streams of rank 0, in the order of the ends.
type device struct {
	quiet
	spans []eager.DeviceSpan
}

// quiet observes nothing.
type quiet struct{}

func (quiet) Rank(eager.RankInfo)                    {}
func (quiet) Device(*eager.DeviceSpan)               {}
func (quiet) Host(*eager.HostSpan)                   {}
func (quiet) Memory(*eager.MemoryEvent)              {}
func (quiet) Counters(int, sim.Time, eager.Counters) {}
func (d *device) Device(s *eager.DeviceSpan) {
	if s.Rank == 0 {
		d.spans = append(d.spans, *s)
	}
}

// span is operator name of an iteration.
func (d *device) span(t *testing.T, name string, iteration int) eager.DeviceSpan {
	t.Helper()
	for _, s := range d.spans {
		if s.Place.Name == name && s.Place.Iteration == iteration {
			return s
		}
	}
	t.Fatalf("%s did not run in iteration %d: %+v", name, iteration, d.spans)
	return eager.DeviceSpan{}
}

// reduce is an all-reduce of 10 us that has no other member; kernel is one on
// the stream of communication, as traces have them.
func reduce(names *workloads.Names, name string, group ...int32) workloads.OpSpec {
	return workloads.OpSpec{Name: names.ID(name), Lane: workloads.Comm, Kernel: workloads.Kernel{
		Work: hw.Work{Kind: hw.Collective, Collective: hw.AllReduce, Size: 10_000, Members: 2}, Group: group}}
}

func beside(names *workloads.Names, name string, t sim.Time) workloads.OpSpec {
	k := eagertest.Kernel(names, name, t)
	k.Lane = workloads.Comm
	return k
}

// memories are the two kinds, each under a policy that plans nothing.
var memories = map[string]func() (policies.Policy, error){
	"unified": func() (policies.Policy, error) { return &paged{}, nil },
	"direct": func() (policies.Policy, error) {
		return onDirect{&paged{hints: func(*policies.Nominal) []policies.Action { return nil }}}, nil
	},
}

func script(t *testing.T, residents []workloads.Storage, write func(b *workloads.Builder, names *workloads.Names)) *eagertest.Script {
	t.Helper()
	s, err := eagertest.NewScript([][]workloads.Storage{residents}, func(_ int, b *workloads.Builder, names *workloads.Names) { write(b, names) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a job of so many iterations in pages of device memory; 0 is without
// limit.
func run(t *testing.T, w workloads.Workload, kind string, pages sim.Bytes) (*eager.Report, *device) {
	t.Helper()
	d := &device{}
	cfg := eagertest.Config(eagertest.Node(len(w.Ranks())), w)
	cfg.HostNone, cfg.Iterations, cfg.Observers = true, 3, []eager.Observer{d}
	cfg.Unified = unified.Defaults()
	cfg.Unified.Device, cfg.Unbounded = pages*4096, pages == 0
	cfg.Limits.Events = 100_000
	if kind != "framework" {
		cfg.NewPolicy = memories[kind]
	}
	r, err := eager.Run(cfg)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	if len(r.Violations) > 0 {
		t.Fatalf("%s: %v", kind, r.Violations)
	}
	return r, d
}

// kinds are the memories in order.
var kinds = []string{"direct", "unified"}

// TestCommunicationBeside: where all fits, communication runs beside compute and
// takes the time it takes in the framework's memory, whatever kind it is; it
// waits for the events that it is made to wait for, and compute for its.
func TestCommunicationBeside(t *testing.T) {
	job := script(t, []workloads.Storage{tensor(40960)}, func(b *workloads.Builder, names *workloads.Names) {
		x, y := b.New(tensor(40960)), b.New(tensor(40960))
		b.Op(eagertest.Kernel(names, "make", 10*us), workloads.Out(x))
		b.Order(workloads.Compute, workloads.Comm)
		b.Op(beside(names, "send", 40*us), workloads.In(x))
		b.Op(reduce(names, "reduce"), workloads.InPlace(0))
		b.Op(eagertest.Kernel(names, "along", 20*us), workloads.Out(y))
		b.Order(workloads.Comm, workloads.Compute)
		b.Op(eagertest.Kernel(names, "take", 10*us), workloads.In(0), workloads.In(y))
		b.Drop(x)
		b.Drop(y)
	})
	_, want := run(t, job, "framework", 0)
	for _, kind := range kinds {
		for _, pages := range []sim.Bytes{0, 30} {
			r, got := run(t, job, kind, pages)
			if r.OOM != nil {
				t.Fatal(r.OOM)
			}
			start := func(d *device) sim.Time { return d.span(t, "make", 2).Start }
			for _, name := range []string{"make", "send", "reduce", "along", "take"} {
				g, w := got.span(t, name, 2), want.span(t, name, 2)
				if g.Start-start(got) != w.Start-start(want) || g.End-g.Start != w.End-w.Start {
					t.Errorf("%s, %d pages, %s: %v to %v, in the framework's memory %v to %v", kind, pages, name, g.Start-start(got), g.End-start(got), w.Start-start(want), w.End-start(want))
				}
			}
		}
	}
}

// TestCommunicationStarves: what no order can make room for is out of memory, at
// the operator.
func TestCommunicationStarves(t *testing.T) {
	job := script(t, nil, func(b *workloads.Builder, names *workloads.Names) {
		x := b.New(tensor(40960))
		y := b.New(tensor(40960))
		b.Op(eagertest.Kernel(names, "make", 10*us), workloads.Out(x))
		b.Order(workloads.Compute, workloads.Comm)
		b.Op(beside(names, "send", 40*us), workloads.In(x), workloads.Out(y))
		b.Order(workloads.Comm, workloads.Compute)
		b.Op(eagertest.Kernel(names, "take", 10*us), workloads.In(y))
		b.Drop(x)
		b.Drop(y)
	})
	for _, kind := range kinds {
		r, _ := run(t, job, kind, 15)
		if r.OOM == nil || r.OOM.Op != "operator 1" || r.OOM.Cause.Capacity != 15*4096 {
			t.Errorf("%s: %v", kind, r.OOM)
		}
		if r, _ = run(t, job, kind, 20); r.OOM != nil {
			t.Errorf("%s: %v", kind, r.OOM)
		}
	}
}

// TestLastPages: of two kernels that come one after the other and do not fit together, the
// second starts when the first has ended, whichever stream it is on; on the
// device with one page more they run side by side.
func TestLastPages(t *testing.T) {
	first := func(comm bool) *eagertest.Script {
		return script(t, []workloads.Storage{tensor(40960), tensor(40960)}, func(b *workloads.Builder, names *workloads.Names) {
			c := beside(names, "comm", 100*us)
			k := eagertest.Kernel(names, "kernel", 100*us)
			if comm {
				b.Op(c, workloads.InPlace(0))
				b.Op(eagertest.Kernel(names, "late", us))
				b.Op(k, workloads.InPlace(1))
			} else {
				b.Op(k, workloads.InPlace(1))
				b.Op(beside(names, "late", us))
				b.Op(c, workloads.InPlace(0))
			}
			b.Order(workloads.Comm, workloads.Compute)
			b.Order(workloads.Compute, workloads.Comm)
		})
	}
	for _, comm := range []bool{true, false} {
		for _, pages := range []sim.Bytes{19, 20} {
			r, d := run(t, first(comm), "unified", pages)
			if r.OOM != nil {
				t.Fatal(r.OOM)
			}
			a, b := d.span(t, "comm", 2), d.span(t, "kernel", 2)
			if !comm {
				a, b = b, a
			}
			starts := b.Start
			if b.Stream == stream.Compute {
				starts += b.Wait // its span has it, at the front and while pages come
			}
			if apart := starts >= a.End; apart != (pages == 19) {
				t.Errorf("communication first %v, %d pages: %s from %v to %v, then %s from %v to %v, of which it waits %v", comm, pages, a.Place.Name, a.Start, a.End, b.Place.Name, b.Start, b.End, b.Wait)
			}
		}
	}
}

// TestCrossedMeetings: two meetings that either rank comes to in another order,
// on devices with room for one: nothing is held for a member that has not come.
func TestCrossedMeetings(t *testing.T) {
	tensors := []workloads.Storage{tensor(40960), tensor(40960), tensor(40960)}
	job, err := eagertest.NewScript([][]workloads.Storage{tensors, tensors}, func(rank int, b *workloads.Builder, names *workloads.Names) {
		all := reduce(names, "reduce", 0, 1)
		peer := workloads.OpSpec{Name: names.ID("send"), Lane: workloads.CommPeer, Kernel: workloads.Kernel{Work: hw.Work{Kind: hw.Transfer, Size: 10_000}, Group: []int32{0, 1}, Tag: 1}}
		k := eagertest.Kernel(names, "kernel", 50*us)
		if rank == 0 { // reduces at once; the kernel, then the transfer
			b.Op(all, workloads.InPlace(0))
			b.Op(k, workloads.InPlace(1))
			b.Order(workloads.Compute, workloads.CommPeer)
			b.Op(peer, workloads.In(2))
		} else { // the transfer, then the kernel, then it reduces
			b.Op(peer, workloads.Out(2))
			b.Order(workloads.CommPeer, workloads.Compute)
			b.Op(k, workloads.InPlace(1))
			b.Order(workloads.Compute, workloads.Comm)
			b.Op(all, workloads.InPlace(0))
		}
		b.Order(workloads.Comm, workloads.Compute)
		b.Order(workloads.CommPeer, workloads.Compute)
		b.Op(eagertest.Kernel(names, "end", us))
		b.Order(workloads.Compute, workloads.Comm)
		b.Order(workloads.Compute, workloads.CommPeer)
	})
	if err != nil {
		t.Fatal(err)
	}
	r, d := run(t, job, "unified", 10)
	if r.OOM != nil || len(r.Iterations) != 3 {
		t.Fatal(r.OOM, r.Iterations)
	}
	// The kernel of rank 0 does not wait for the collective, which waits for the
	// other rank.
	if k, c := d.span(t, "kernel", 2), d.span(t, "reduce", 2); k.End > c.Start {
		t.Errorf("kernel ends at %v, the collective starts at %v", k.End, c.Start)
	}
	if r, _ := run(t, job, "direct", 30); r.OOM != nil || len(r.Iterations) != 3 {
		t.Error(r.OOM, r.Iterations)
	}
}

// TestDeathWaits: a tensor whose last reference goes while communication has
// still to read it keeps its pages until then, and the tensor of the next
// iteration at the same addresses waits for that.
func TestDeathWaits(t *testing.T) {
	job := script(t, []workloads.Storage{tensor(40960)}, func(b *workloads.Builder, names *workloads.Names) {
		x, y := b.New(tensor(40960)), b.New(tensor(40960))
		b.Op(eagertest.Kernel(names, "make", 10*us), workloads.Out(x))
		b.Order(workloads.Compute, workloads.Comm)
		b.Op(beside(names, "send", 400*us), workloads.In(x))
		b.Drop(x)
		b.Op(eagertest.Kernel(names, "other", 10*us), workloads.Out(y))
		b.Drop(y)
		b.Op(eagertest.Kernel(names, "third", 10*us), workloads.InPlace(0))
	})
	for _, kind := range kinds {
		for _, pages := range []sim.Bytes{20, 30} {
			r, d := run(t, job, kind, pages)
			if r.OOM != nil {
				if kind == "direct" && pages == 20 {
					continue // x, y and the resident are there at once
				}
				t.Fatalf("%s, %d pages: %v", kind, pages, r.OOM)
			}
			for i := range 2 {
				a, b := d.span(t, "send", i), d.span(t, "make", i+1)
				if a.End-a.Start != 400*us || b.Start+b.Wait < a.End {
					t.Errorf("%s, %d pages: x is sent from %v to %v, and made again from %v", kind, pages, a.Start, a.End, b.Start+b.Wait)
				}
			}
		}
	}
}

// TestEvictedOperand: a plan has a tensor leave while communication has still to
// use it. It leaves when that has ended, and is there for the next kernel.
func TestEvictedOperand(t *testing.T) {
	at := func(kind policies.Kind, kernel int32) policies.Action {
		return policies.Action{Kind: kind, What: policies.Selector{Kind: policies.ByStatic, Static: 0}, To: policies.SSDTier, Start: policies.Trigger{Kind: policies.AtOp, N: kernel}}
	}
	job := script(t, []workloads.Storage{tensor(40960)}, func(b *workloads.Builder, names *workloads.Names) {
		b.Op(eagertest.Kernel(names, "make", 10*us), workloads.InPlace(0))
		b.Order(workloads.Compute, workloads.Comm)
		b.Op(beside(names, "send", 2*sim.Millisecond), workloads.InPlace(0))
		b.Op(eagertest.Kernel(names, "idle", 10*us))
		b.Order(workloads.Comm, workloads.Compute)
		b.Op(eagertest.Kernel(names, "idle too", 4*sim.Millisecond))
		b.Op(eagertest.Kernel(names, "take", 10*us), workloads.In(0))
		b.Order(workloads.Compute, workloads.Comm)
	})
	for _, kind := range kinds {
		// At 1, communication itself, and at 2, a kernel beside it.
		for _, when := range []int32{1, 2} {
			hints := &paged{hints: func(*policies.Nominal) []policies.Action {
				return []policies.Action{at(policies.Evict, when), at(policies.Prefetch, 4)}
			}}
			d := &device{}
			cfg := unifiedConfig(t, job, hints)
			if kind == "direct" {
				cfg = unifiedConfig(t, job, onDirect{hints})
			}
			cfg.Unified.Device = 100 * 4096
			cfg.Observers = []eager.Observer{d}
			r, err := eager.Run(cfg)
			if err != nil || r.OOM != nil || len(r.Violations) > 0 || hints.err != nil {
				t.Fatal(kind, err, r, hints.err)
			}
			if it := r.Iterations[2]; it.SSDOut != 40960 || it.SSDIn != 40960 {
				t.Errorf("%s, hint at %d: %+v, want the tensor out and in once", kind, when, it)
			}
			if s := d.span(t, "send", 2); s.Out > 0 || s.End-s.Start != 2*sim.Millisecond {
				t.Errorf("%s, hint at %d: %+v, want nothing to leave while it is sent", kind, when, s)
			}
		}
	}
}

// TestDeathToldLate: a tensor is received again while a kernel of compute that
// tells of the death of its predecessor has not begun. The new content stays.
func TestDeathToldLate(t *testing.T) {
	job := script(t, []workloads.Storage{tensor(40960), tensor(409600)}, func(b *workloads.Builder, names *workloads.Names) {
		x := b.New(tensor(40960))
		b.Op(beside(names, "recv", 10*us), workloads.Out(x))
		b.Op(eagertest.Kernel(names, "other", us), workloads.InPlace(0))
		b.Op(eagertest.Kernel(names, "big", 2*sim.Millisecond), workloads.InPlace(1))
		b.Order(workloads.Comm, workloads.Compute)
		b.Op(eagertest.Kernel(names, "take", 10*us), workloads.In(x))
		b.Drop(x)
	})
	for _, pages := range []sim.Bytes{105, 112, 130} { // 110 are short of all
		cfg := unifiedConfig(t, job, &paged{paging: policies.Paging{DropDead: true}})
		cfg.Unified.Device = pages * 4096
		r, err := eager.Run(cfg)
		if err != nil || r.OOM != nil || len(r.Violations) > 0 {
			t.Error(pages, err, r)
		}
	}
	// In direct memory the new tensor leaves as planned, which one that has died
	// would not.
	cfg := unifiedConfig(t, job, onDirect{&paged{hints: func(*policies.Nominal) []policies.Action {
		return []policies.Action{{Kind: policies.Evict, What: policies.Selector{Kind: policies.ByStatic, Static: 2}, To: policies.SSDTier, Start: policies.Trigger{Kind: policies.AtOp, N: 2}}}
	}}})
	cfg.Unified.Device = 130 * 4096
	r, err := eager.Run(cfg)
	if err != nil || r.OOM != nil || len(r.Violations) > 0 {
		t.Fatal(err, r)
	}
	for _, it := range r.Iterations {
		if it.OutBytes != 40960 || it.InBytes != 40960 {
			t.Errorf("%+v, want the tensor out and in once", it)
		}
	}
}

// TestDeathAtOnce: the kernel of compute that tells of a death has not begun when
// communication of the next iteration makes the tensor anew, which runs while
// that kernel begins.
func TestDeathAtOnce(t *testing.T) {
	job := script(t, []workloads.Storage{tensor(40960)}, func(b *workloads.Builder, names *workloads.Names) {
		x, y := b.New(tensor(40960)), b.New(tensor(40960))
		b.Op(beside(names, "first", 10*us), workloads.Out(x))
		b.Order(workloads.Comm, workloads.Compute)
		b.Op(eagertest.Kernel(names, "tells", us), workloads.In(x))
		b.Op(beside(names, "second", 20*us), workloads.Out(y))
		b.Order(workloads.Comm, workloads.Compute)
		b.Op(eagertest.Kernel(names, "take", 10*us), workloads.In(x), workloads.In(y))
		b.Drop(x)
		b.Drop(y)
	})
	for _, kind := range kinds {
		if r, _ := run(t, job, kind, 40); r.OOM != nil {
			t.Error(kind, r.OOM)
		}
	}
}

// TestHintAhead: communication that comes later in the program is ahead of
// compute, and has what a hint of an operator before would have leave: it stays.
func TestHintAhead(t *testing.T) {
	job := script(t, []workloads.Storage{tensor(40960), tensor(40960)}, func(b *workloads.Builder, names *workloads.Names) {
		b.Op(eagertest.Kernel(names, "first", 10*us), workloads.InPlace(1))
		b.Op(eagertest.Kernel(names, "second", 10*us), workloads.InPlace(1))
		b.Op(beside(names, "send", 2*sim.Millisecond), workloads.In(0))
		b.Order(workloads.Comm, workloads.Compute)
		b.Op(eagertest.Kernel(names, "end", 10*us), workloads.In(0))
	})
	for _, kind := range kinds {
		hints := &paged{hints: func(*policies.Nominal) []policies.Action {
			return []policies.Action{{Kind: policies.Evict, What: policies.Selector{Kind: policies.ByStatic, Static: 0}, To: policies.SSDTier, Start: policies.Trigger{Kind: policies.AtOp, N: 1}}}
		}}
		cfg := unifiedConfig(t, job, hints)
		if kind == "direct" {
			cfg = unifiedConfig(t, job, onDirect{hints})
		}
		cfg.Unified.Device = 100 * 4096
		r, err := eager.Run(cfg)
		if err != nil || r.OOM != nil || len(r.Violations) > 0 {
			t.Fatal(kind, err, r)
		}
		if it := r.Iterations[2]; it.OutBytes != 0 || it.Span != 2*sim.Millisecond {
			t.Errorf("%s: %+v, want that nothing moves and nobody waits", kind, it)
		}
	}
}

// TestHintOfTheDead: hints of the last operator, which communicates, come with the
// first kernel of compute in the next iteration, when the tensor that they are
// about has been made anew: they are void.
func TestHintOfTheDead(t *testing.T) {
	job := script(t, []workloads.Storage{tensor(40960), tensor(40960)}, func(b *workloads.Builder, names *workloads.Names) {
		x := b.New(tensor(40960))
		b.Op(beside(names, "recv", sim.Millisecond), workloads.Out(x))
		b.Op(eagertest.Kernel(names, "first", 10*us), workloads.InPlace(1))
		b.Order(workloads.Comm, workloads.Compute)
		b.Op(eagertest.Kernel(names, "take", 10*us), workloads.In(x))
		b.Drop(x)
		b.Order(workloads.Compute, workloads.Comm)
		b.Op(beside(names, "send", 10*us), workloads.InPlace(0))
	})
	for _, kind := range kinds {
		for _, what := range []policies.Kind{policies.Evict, policies.Discard} {
			hints := &paged{hints: func(*policies.Nominal) []policies.Action {
				return []policies.Action{{Kind: what, What: policies.Selector{Kind: policies.ByStatic, Static: 2}, To: policies.SSDTier, Start: policies.Trigger{Kind: policies.AtOp, N: 3}}}
			}}
			cfg := unifiedConfig(t, job, hints)
			if kind == "direct" {
				if what == policies.Discard {
					continue // what has died is gone there without a hint
				}
				cfg = unifiedConfig(t, job, onDirect{hints})
			}
			cfg.Unified.Device = 100 * 4096
			r, err := eager.Run(cfg)
			if err != nil || r.OOM != nil || len(r.Violations) > 0 {
				t.Fatal(kind, what, err, r)
			}
			if it := r.Iterations[2]; it.InBytes != 0 || it.OutBytes != 0 || what == policies.Evict && it.Span != 1020*us {
				t.Errorf("%s, %v: %+v, want that nothing moves, and nobody waits for what is mapped", kind, what, it)
			}
		}
	}
}

// TestNominalCommunication: the nominal program counts communication that
// compute waits for, and no time twice.
func TestNominalCommunication(t *testing.T) {
	job := script(t, []workloads.Storage{tensor(4096)}, func(b *workloads.Builder, names *workloads.Names) {
		b.Op(eagertest.Kernel(names, "a", 10*us), workloads.InPlace(0))
		b.Order(workloads.Compute, workloads.Comm)
		b.Op(beside(names, "covered", 15*us), workloads.In(0))
		b.Op(eagertest.Kernel(names, "b", 20*us))
		b.Order(workloads.Comm, workloads.Compute) // has ended
		b.Op(beside(names, "first", 30*us), workloads.In(0))
		b.Op(beside(names, "second", 5*us), workloads.InPlace(0))
		b.Op(eagertest.Kernel(names, "c", 10*us))
		b.Order(workloads.Comm, workloads.Compute) // 10 + 15 + 30 + 5 = 60 after the begin, compute is at 40
		b.Op(eagertest.Kernel(names, "d", 10*us), workloads.In(0))
		b.Op(beside(names, "never", 50*us), workloads.In(0)) // nobody waits for it
	})
	var got *policies.Nominal
	p := &paged{hints: func(n *policies.Nominal) []policies.Action { got = n; return nil }}
	if _, err := eager.Run(unifiedConfig(t, job, p)); err != nil {
		t.Fatal(err)
	}
	var spans []sim.Time
	for _, k := range got.Kernels {
		spans = append(spans, k.Span)
	}
	if want := []sim.Time{10 * us, 0, 20 * us, 0, 20 * us, 10 * us, 10 * us, 0}; !slices.Equal(spans, want) {
		t.Errorf("spans %v, want %v", spans, want)
	}
	if k := got.Kernels[4]; !slices.Equal(k.In, []int32{0}) || !slices.Equal(k.Out, []int32{0}) {
		t.Errorf("the operands of communication: %+v", k)
	}
}

// largest is how many pages the operands of one operator have, at most.
func largest(job workloads.Workload, iterations int, page sim.Bytes) (most int64) {
	pages := func(n sim.Bytes) int64 { return int64((n + page - 1) / page) }
	for r := range job.Ranks() {
		for i := range iterations {
			p, _ := job.Program(r, i)
			for _, in := range p.Instrs {
				if in.Kind != workloads.Op {
					continue
				}
				n := pages(in.Scratch)
				seen := map[workloads.StorageID]bool{}
				for _, a := range p.Args[in.ArgLo:in.ArgHi] {
					if !seen[a.Storage] {
						seen[a.Storage] = true
						n += pages(p.Storages[a.Storage].Bytes)
					}
				}
				most = max(most, n)
			}
		}
	}
	return most
}

// TestCommunicationProperties runs random jobs that communicate, of one rank and
// of several, in both memories at random sizes with all invariants on: memory is
// not exceeded, operands stay while their kernel runs, content is what was
// written. Unified memory with an SSD behind
// it runs out only where the operands of one operator do not fit. No run is faster than with unlimited memory; with all of it in place
// from the start, direct memory is as fast, and unified memory as soon as it has
// been touched.
func TestCommunicationProperties(t *testing.T) {
	var cases, evicted, starved, equal, later, ranks int
	rapid.Check(t, func(t *rapid.T) {
		job := eagertest.DrawJob(t, 3, 512)
		node := eagertest.DrawNode(t, 3)
		slows := rapid.IntRange(0, 3).Draw(t, "kernels slow each other") == 0
		if !slows {
			node.Device.Beside[hw.MatMul], node.Device.Bandwidth = 1, sim.GBps(1e6)
		}
		cfg := eagertest.Config(node, job)
		cfg.Iterations, cfg.HostNone = rapid.IntRange(2, 5).Draw(t, "iterations"), true
		free := cfg
		free.Unbounded = true
		ideal, err := eager.Run(free)
		if err != nil {
			t.Fatal(err)
		}
		peak := sim.Bytes(ideal.Peak(func(r *eager.RankReport) int64 { return r.Memory.Allocated.Peak }))
		o := unified.Defaults()
		o.Page = rapid.SampledFrom([]sim.Bytes{512, 4096, 64 * sim.KiB}).Draw(t, "page")
		percent := rapid.SampledFrom([]int64{20, 50, 60, 70, 80, 90, 100, 100_000, 100_000}).Draw(t, "device, percent of peak")
		o.Device = max(o.Page, peak*sim.Bytes(percent)/100)
		o.Host = peak * sim.Bytes(rapid.SampledFrom([]int64{0, 20, 400}).Draw(t, "host, percent of peak")) / 100
		if rapid.IntRange(0, 4).Draw(t, "ssd") == 0 {
			o.SSD, o.SSDRate = 0, 0
		}
		o.Link = sim.GBps(10)
		cfg.Unified = o
		p := policies.Paging{
			Lookahead: rapid.SampledFrom([]int32{0, 1, 8}).Draw(t, "lookahead"), Spare: rapid.Bool().Draw(t, "spare"),
			Oldest: rapid.Bool().Draw(t, "oldest"), DropDead: rapid.Bool().Draw(t, "drop dead"),
		}
		direct := rapid.IntRange(0, 2).Draw(t, "direct") == 0
		var moves []int32
		if percent <= 100 {
			moves = rapid.SliceOfN(rapid.Int32Range(0, 1<<20), 0, 12).Draw(t, "moves")
		}
		hints := func(n *policies.Nominal) (list []policies.Action) {
			for i := 0; i+1 < len(moves); i += 2 {
				a := policies.Action{
					Kind: policies.Evict, What: policies.Selector{Kind: policies.ByStatic, Static: moves[i] % int32(len(n.Tensors))},
					Start: policies.Trigger{Kind: policies.AtOp, N: moves[i+1] % int32(len(n.Kernels))},
				}
				list = append(list, a)
				a.Kind, a.Start.N = policies.Prefetch, moves[i]%int32(len(n.Kernels))
				list = append(list, a)
			}
			slices.SortStableFunc(list, func(a, b policies.Action) int { return cmp.Compare(a.Start.N, b.Start.N) })
			return list
		}
		cfg.NewPolicy = func() (policies.Policy, error) {
			if direct {
				return onDirect{&paged{hints: hints}}, nil
			}
			if len(moves) > 6 {
				return &paged{paging: p, hints: hints}, nil
			}
			return &paged{paging: p}, nil
		}
		r, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		checkRun(t, r)
		if fits := largest(job, cfg.Iterations, o.Page) <= int64(o.Device/o.Page); !direct && (o.SSDRate > 0 && fits != (r.OOM == nil) || !fits && r.OOM == nil) {
			t.Fatalf("every operator fits %v, out of memory %v", fits, r.OOM)
		}
		cases++
		if len(job.Ranks()) > 1 {
			ranks++
		}
		if r.OOM != nil {
			starved++
			return
		}
		var out sim.Bytes
		for _, it := range r.Iterations {
			out += it.OutBytes
		}
		if out > 0 {
			evicted++
		}
		if r.Makespan < ideal.Makespan && !slows {
			t.Fatalf("takes %v, %v with unlimited memory (13)", r.Makespan, ideal.Makespan)
		}
		if r.Makespan > ideal.Makespan {
			later++
		}
		for i := range r.Ranks {
			rank, ref := &r.Ranks[i], &ideal.Ranks[i]
			if rank.Sequence != ref.Sequence || rank.Ops != ref.Ops {
				t.Fatal("another program than without a policy (12)")
			}
			if sim.Bytes(rank.Memory.Allocated.Peak) > o.Device {
				t.Fatalf("a peak of %d in a memory of %d (2)", rank.Memory.Allocated.Peak, o.Device)
			}
			for s := range stream.Count {
				if rank.Lanes[s].Busy != ref.Lanes[s].Busy && !slows {
					t.Fatalf("%s was busy %v, with unlimited memory %v", s.Name(), rank.Lanes[s].Busy, ref.Lanes[s].Busy)
				}
			}
		}
		if percent > 100 && job.Kinds == 1 {
			equal++
			for i := range r.Iterations {
				if (i > 0 || direct) && r.Iterations[i].Span != ideal.Iterations[i].Span {
					t.Fatalf("iteration %d takes %v, %v with unlimited memory", i, r.Iterations[i].Span, ideal.Iterations[i].Span)
				}
			}
		}
		again, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(r, again) {
			t.Fatal("the same run twice differs (11)")
		}
	})
	t.Logf("%d cases: %d evict, %d cannot go on, %d take longer, %d have everything in place, %d of several ranks", cases, evicted, starved, later, equal, ranks)
	if cases >= 100 && (100*evicted < 10*cases || 100*starved < 5*cases || 100*later < 15*cases || equal == 0 || 100*ranks < 20*cases) {
		t.Error("the cases do not bite")
	}
}

// TestCommunicationByName: a failure of communication names it.
func TestCommunicationByName(t *testing.T) {
	job := script(t, nil, func(b *workloads.Builder, names *workloads.Names) {
		x := b.New(tensor(40960))
		b.Op(beside(names, "send", us), workloads.Out(x))
		b.Drop(x)
	})
	r, _ := run(t, job, "unified", 1)
	if r.OOM == nil || !strings.Contains(r.OOM.Error(), "its operands have 40960 bytes, the device 4096") {
		t.Error(r.OOM)
	}
}

// TestUplink: devices share an uplink equally.
func TestUplink(t *testing.T) {
	res := []workloads.Storage{tensor(40960)}
	job, err := eagertest.NewScript([][]workloads.Storage{res, res}, func(_ int, b *workloads.Builder, names *workloads.Names) {
		b.Op(eagertest.Kernel(names, "k", us), workloads.In(0))
	})
	if err != nil {
		t.Fatal(err)
	}
	for devices, want := range map[int]sim.Time{1: 40960 * sim.Nanosecond, 2: 2 * 40960 * sim.Nanosecond, 8: 2 * 40960 * sim.Nanosecond} {
		cfg := unifiedConfig(t, job, &paged{})
		cfg.Node = eagertest.Node(8)
		cfg.Node.Link.Uplink, cfg.Node.Link.UplinkDevices = cfg.Node.Link.Rate[hw.H2D], devices
		cfg.Unified.Batch = 1
		cfg.Unified.Fault, cfg.Unified.SSDRead, cfg.Unified.SSDRate = 0, 0, cfg.Node.Link.Rate[hw.H2D]
		r, err := eager.Run(cfg)
		if err != nil || len(r.Violations) > 0 {
			t.Fatal(err, r)
		}
		if got := r.Iterations[0].Span - us; got < want || got > want+want/4 { // whole batches
			t.Errorf("%d devices on an uplink: %v, want %v", devices, got, want)
		}
	}
}
