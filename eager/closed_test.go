package eager_test

import (
	"testing"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/eagertest"
	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"
)

const us = sim.Microsecond

// tensor is a storage of n bytes.
func tensor(n sim.Bytes) workloads.Storage {
	return workloads.Storage{Bytes: n, Shape: [4]int32{int32(n)}}
}

func state(n sim.Bytes) workloads.Storage {
	return workloads.Storage{Bytes: n, Class: workloads.Optimizer, DType: workloads.FP32}
}

// scriptPolicy acts at chosen operators of the first iteration: act[i] runs
// after operator i with its arguments' handles.
type scriptPolicy struct {
	act      map[int64]func(args []policies.Handle, rt policies.Runtime)
	pressure func(rt policies.Runtime)
	seen     []policies.Handle
}

func (p *scriptPolicy) Needs() policies.Needs {
	return policies.Needs{Events: policies.Set(policies.AfterOp, policies.Pressure)}
}

func (p *scriptPolicy) Handle(ev *policies.Event, rt policies.Runtime) {
	switch ev.Kind {
	case policies.AfterOp:
		p.seen = append(p.seen, ev.Op.Args...)
		if f := p.act[ev.Op.Index]; f != nil {
			f(p.seen, rt)
		}
	case policies.Pressure:
		if p.pressure != nil {
			p.pressure(rt)
		}
	}
}

func do(t *testing.T, rt policies.Runtime, k policies.Kind, h policies.Handle, wait bool, want policies.Outcome) {
	t.Helper()
	a := policies.Action{Kind: k, What: policies.Selector{Kind: policies.ByHandle, Handle: h}, Wait: wait}
	if got := rt.Do(a); got != want {
		t.Errorf("Do(%v) = %v, want %v", a, got, want)
	}
}

// TestClosedForms compares runs with times worked out by hand: 0 ps error.
// The test node moves 1,000 bytes per microsecond over each link direction.
func TestClosedForms(t *testing.T) {
	evict := func(h int) func([]policies.Handle, policies.Runtime) {
		return func(args []policies.Handle, rt policies.Runtime) {
			do(t, rt, policies.Evict, args[h], false, policies.Done)
		}
	}
	both := func(f ...func([]policies.Handle, policies.Runtime)) func([]policies.Handle, policies.Runtime) {
		return func(args []policies.Handle, rt policies.Runtime) {
			for _, g := range f {
				g(args, rt)
			}
		}
	}
	prefetch := func(h int) func([]policies.Handle, policies.Runtime) {
		return func(args []policies.Handle, rt policies.Runtime) {
			do(t, rt, policies.Prefetch, args[h], false, policies.Done)
		}
	}
	type script = map[int64]func([]policies.Handle, policies.Runtime)

	// short needs memory that two swap-outs under way hold.
	short := func(_ int, b *workloads.Builder, n *workloads.Names) {
		x, y, z := b.New(tensor(20_480)), b.New(tensor(20_480)), b.New(tensor(30_720))
		b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x)) // leaves 20..40.48
		b.Op(eagertest.Kernel(n, "b", 10*us), workloads.Out(y)) // leaves 40.48..60.96
		b.Op(eagertest.Kernel(n, "c", 50*us), workloads.Out(z)) // needs half of x's memory
		b.Drop(x)
		b.Drop(y)
		b.Drop(z)
	}
	cases := []struct {
		name    string
		ranks   int // 0 = 1
		node    func(n *hw.Node)
		config  func(c *eager.Config)
		policy  script
		program func(rank int, b *workloads.Builder, n *workloads.Names)
		want    sim.Time // makespan
		also    func(t *testing.T, r *eager.Report)
	}{
		{
			name: "one kernel takes its time",
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 7*us), workloads.Out(x))
				b.Drop(x)
			},
			want: 7 * us,
		},
		{
			name: "two kernels of a stream add up",
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 7*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 5*us+1), workloads.InPlace(x))
				b.Drop(x)
			},
			want: 12*us + 1,
		},
		{
			name: "a kernel on another stream overlaps",
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y := b.New(tensor(1000)), b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 7*us), workloads.Out(x))
				k := eagertest.Kernel(n, "b", 5*us)
				k.Lane = workloads.Comm
				b.Op(k, workloads.Out(y))
				b.Order(workloads.Comm, workloads.Compute)
				b.Drop(x)
				b.Drop(y)
			},
			want: 7 * us,
		},
		{
			name: "an event orders two streams",
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 7*us), workloads.Out(x))
				b.Order(workloads.Compute, workloads.Comm)
				k := eagertest.Kernel(n, "b", 5*us)
				k.Lane = workloads.Comm
				b.Op(k, workloads.InPlace(x))
				b.Order(workloads.Comm, workloads.Compute)
				b.Drop(x)
			},
			want: 12 * us,
		},
		{
			name: "host-bound chain: dispatch of each, then the last kernel",
			node: func(n *hw.Node) { n.Host.Dispatch, n.Host.Launch = 10*us, 3*us },
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 2*us), workloads.Out(x))
				for range 4 {
					b.Op(eagertest.Kernel(n, "b", 2*us), workloads.InPlace(x))
				}
				b.Drop(x)
			},
			want: 5*13*us + 2*us,
		},
		{
			name: "device-bound chain hides all dispatches but the first",
			node: func(n *hw.Node) { n.Host.Dispatch = 10 * us },
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 20*us), workloads.Out(x))
				for range 4 {
					b.Op(eagertest.Kernel(n, "b", 20*us), workloads.InPlace(x))
				}
				b.Drop(x)
			},
			want: 10*us + 5*20*us,
		},
		{
			name: "launch queue full: the host ends two kernels before the device",
			node: func(n *hw.Node) { n.Host.Dispatch, n.Host.LaunchQueue = 1*us, 2 },
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 20*us), workloads.Out(x))
				for range 5 {
					b.Op(eagertest.Kernel(n, "b", 20*us), workloads.InPlace(x))
				}
				b.Drop(x)
			},
			want: 1*us + 6*20*us,
			also: func(t *testing.T, r *eager.Report) {
				// The sixth kernel enters the queue when the fourth
				// retires, the marker when the fifth does.
				if got, want := r.Ranks[0].Host.Done, 1*us+5*20*us; got != want {
					t.Errorf("host done at %v, want %v", got, want)
				}
				if got, want := r.Ranks[0].Host.Wait[eager.QueueFull], 1*us+5*20*us-6*us; got != want {
					t.Errorf("host waited %v for queues, want %v", got, want)
				}
			},
		},
		{
			name: "task queue: dispatching and launching overlap",
			node: func(n *hw.Node) { n.Host.Dispatch, n.Host.Launch, n.Host.TaskQueue = 4*us, 6*us, 100 },
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 1*us), workloads.Out(x))
				for range 4 {
					b.Op(eagertest.Kernel(n, "b", 1*us), workloads.InPlace(x))
				}
				b.Drop(x)
			},
			want: 4*us + 5*6*us + 1*us, // the slower thread sets the pace
		},
		{
			name: "task queue full: one slot stays empty, the dispatcher waits",
			node: func(n *hw.Node) { n.Host.Dispatch, n.Host.Launch, n.Host.TaskQueue = 1*us, 10*us, 3 },
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 1*us), workloads.Out(x))
				for range 4 {
					b.Op(eagertest.Kernel(n, "b", 1*us), workloads.InPlace(x))
				}
				b.Drop(x)
			},
			want: 1*us + 5*10*us + 1*us,
			also: func(t *testing.T, r *eager.Report) {
				// Launches end at 11, 21, 31, 41, 51; a slot frees at each;
				// the marker is the sixth task and enters at 41.
				if got, want := r.Ranks[0].Host.Done, 41*us; got != want {
					t.Errorf("host done at %v, want %v", got, want)
				}
			},
		},
		{
			name: "a synchronisation drains the device and exposes the next dispatch",
			node: func(n *hw.Node) { n.Host.Dispatch = 10 * us },
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 50*us), workloads.Out(x))
				b.Sync(workloads.Compute)
				b.Op(eagertest.Kernel(n, "b", 5*us), workloads.InPlace(x))
				b.Drop(x)
			},
			want: 10*us + 50*us + 10*us + 5*us,
		},
		{
			name:   "a swap-out overlaps with compute",
			policy: script{0: evict(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y := b.New(tensor(30_000)), b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 50*us), workloads.Out(y))
				b.Drop(x)
				b.Drop(y)
			},
			want: 60 * us,
		},
		{
			name:   "a demand fault waits for the swap-out, then for the swap-in",
			policy: script{0: evict(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(30_000))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 5*us), workloads.InPlace(x))
				b.Drop(x)
			},
			want: 10*us + 30*us + 30*us + 5*us,
			also: func(t *testing.T, r *eager.Report) {
				if got := r.Ranks[0].Lanes[stream.Compute].Wait[stream.Fault]; got != 60*us {
					t.Errorf("compute waited %v for the fault, want 60us", got)
				}
			},
		},
		{
			name:   "a prefetch hides behind a kernel",
			policy: script{1: evict(0), 2: prefetch(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y := b.New(tensor(10_000)), b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 1*us), workloads.Out(y))
				b.Op(eagertest.Kernel(n, "c", 10*us), workloads.InPlace(y)) // the prefetch waits for its end
				b.Op(eagertest.Kernel(n, "d", 50*us), workloads.InPlace(y))
				b.Op(eagertest.Kernel(n, "e", 5*us), workloads.InPlace(x))
				b.Drop(x)
				b.Drop(y)
			},
			want: 76 * us,
		},
		{
			name:   "a prefetch that comes late is waited for on the device",
			policy: script{1: both(evict(0)), 2: prefetch(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y := b.New(tensor(30_000)), b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 40*us), workloads.Out(y)) // evicted after it: copy 50..80
				b.Op(eagertest.Kernel(n, "c", 50*us), workloads.InPlace(y))
				b.Op(eagertest.Kernel(n, "d", 5*us), workloads.InPlace(x)) // prefetch 100..130
				b.Drop(x)
				b.Drop(y)
			},
			want: 135 * us,
			also: func(t *testing.T, r *eager.Report) {
				if got := r.Ranks[0].Lanes[stream.Compute].Wait[stream.SwapIn]; got != 30*us {
					t.Errorf("compute waited %v for the swap-in, want 30us", got)
				}
			},
		},
		{
			name:   "one swap stream: the swap-in queues behind a later swap-out",
			config: func(c *eager.Config) { c.Executor.Streams = 1 },
			policy: script{1: evict(0), 2: both(evict(1), prefetch(0))},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y, z := b.New(tensor(10_000)), b.New(tensor(20_000)), b.New(tensor(512))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 10*us), workloads.Out(y)) // x leaves 20..30
				b.Op(eagertest.Kernel(n, "c", 20*us), workloads.Out(z)) // ends 40: y leaves 40..60, x returns 60..70
				b.Op(eagertest.Kernel(n, "d", 5*us), workloads.InPlace(x))
				b.Drop(x)
				b.Drop(y)
				b.Drop(z)
			},
			want: 75 * us,
		},
		{
			name:   "two swap streams: the directions overlap",
			policy: script{1: evict(0), 2: both(evict(1), prefetch(0))},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y, z := b.New(tensor(10_000)), b.New(tensor(20_000)), b.New(tensor(512))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 10*us), workloads.Out(y))
				b.Op(eagertest.Kernel(n, "c", 20*us), workloads.Out(z))
				b.Op(eagertest.Kernel(n, "d", 5*us), workloads.InPlace(x)) // x returns 40..50
				b.Drop(x)
				b.Drop(y)
				b.Drop(z)
			},
			want: 60 * us, // y leaves until 60
		},
		{
			name:   "pair cap: both directions share it",
			node:   func(n *hw.Node) { n.Link.Both = sim.GBps(1) },
			policy: script{1: evict(0), 2: both(evict(1), prefetch(0))},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y, z := b.New(tensor(10_000)), b.New(tensor(20_000)), b.New(tensor(512))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 10*us), workloads.Out(y))
				b.Op(eagertest.Kernel(n, "c", 20*us), workloads.Out(z))
				b.Op(eagertest.Kernel(n, "d", 5*us), workloads.InPlace(x)) // half rate: 40..60
				b.Drop(x)
				b.Drop(y)
				b.Drop(z)
			},
			want: 70 * us, // 10,000 bytes of y are left at 60, alone from there
		},
		{
			name:   "copies of one direction go one after the other",
			policy: script{1: both(evict(0), evict(1))},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y, z := b.New(tensor(10_000)), b.New(tensor(20_000)), b.New(tensor(512))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 10*us), workloads.Out(y))
				b.Op(eagertest.Kernel(n, "c", 5*us), workloads.Out(z))
				b.Drop(x)
				b.Drop(y)
				b.Drop(z)
			},
			want: 50 * us,
		},
		{
			name:   "a copy has its set-up time",
			node:   func(n *hw.Node) { n.Link.Latency = 3 * us },
			policy: script{0: evict(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(30_000))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 5*us), workloads.InPlace(x))
				b.Drop(x)
			},
			want: 10*us + 2*(3*us+30*us) + 5*us,
		},
		{
			name:   "pageable memory: a quarter of the rate, and the host waits",
			node:   func(n *hw.Node) { n.Host.Pinned = 1 },
			config: func(c *eager.Config) { c.Executor.Pageable = true },
			policy: script{0: evict(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(30_000))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 5*us), workloads.InPlace(x))
				b.Drop(x)
			},
			want: 10*us + 120*us + 120*us + 5*us,
			also: func(t *testing.T, r *eager.Report) {
				if got := r.Ranks[0].Host.Wait[eager.EvictWait]; got != 250*us {
					t.Errorf("host waited %v for copies, want 250us", got)
				}
			},
		},
		{
			name:   "a clean copy evicts for free",
			policy: script{0: evict(0), 1: evict(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y := b.New(tensor(30_000)), b.New(tensor(512))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))                     // leaves 10..40
				b.Op(eagertest.Kernel(n, "b", 5*us), workloads.In(x), workloads.Out(y))     // back 40..70, runs 70..75
				b.Op(eagertest.Kernel(n, "c", 5*us), workloads.In(x), workloads.InPlace(y)) // back again 75..105
				b.Drop(x)
				b.Drop(y)
			},
			want: 110 * us,
			also: func(t *testing.T, r *eager.Report) {
				if s := r.Ranks[0].Swap; s.Clean != 1 || s.OutBytes != 30_000 || s.InBytes != 60_000 {
					t.Errorf("clean %d, out %d, in %d, want 1, 30000, 60000", s.Clean, s.OutBytes, s.InBytes)
				}
			},
		},
		{
			name:   "release wait: memory of a swap-out under way is reused, compute waits",
			config: func(c *eager.Config) { c.HBM = 40_960 },
			policy: script{0: evict(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y := b.New(tensor(30_720)), b.New(tensor(20_480))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x)) // leaves 10..40.72
				b.Op(eagertest.Kernel(n, "b", 5*us), workloads.Out(y))  // needs its memory
				b.Drop(x)
				b.Drop(y)
			},
			want: 10*us + 30_720*sim.Nanosecond + 5*us,
			also: func(t *testing.T, r *eager.Report) {
				if got := r.Ranks[0].Lanes[stream.Compute].Wait[stream.Freed]; got != 30_720*sim.Nanosecond {
					t.Errorf("compute waited %v for the release, want 30.72us", got)
				}
			},
		},
		{
			name:    "short of memory, drain enough: compute waits for the oldest swap-out",
			config:  func(c *eager.Config) { c.HBM, c.Executor.Drain = 61_440, "enough" },
			policy:  script{1: both(evict(0), evict(1))},
			program: short,
			want:    40_480*sim.Nanosecond + 50*us,
		},
		{
			name:    "short of memory, drain all: compute waits for every swap-out",
			config:  func(c *eager.Config) { c.HBM, c.Executor.Drain = 61_440, "all" },
			policy:  script{1: both(evict(0), evict(1))},
			program: short,
			want:    60_960*sim.Nanosecond + 50*us,
		},
		{
			name:    "short of memory, drain first: the queue without stages is one group",
			config:  func(c *eager.Config) { c.HBM, c.Executor.Drain = 61_440, "first" },
			policy:  script{1: both(evict(0), evict(1))},
			program: short,
			want:    60_960*sim.Nanosecond + 50*us,
		},
		{
			name:  "collective rendezvous: all start with the last",
			ranks: 2,
			program: func(rank int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", sim.Time(10+20*rank)*us), workloads.Out(x))
				b.Order(workloads.Compute, workloads.Comm)
				b.Op(workloads.OpSpec{Name: n.ID("all_reduce"), Lane: workloads.Comm, Kernel: workloads.Kernel{
					Work: hw.Work{Kind: hw.Collective, Collective: hw.AllReduce, Size: 8000, Members: 2}, Group: []int32{0, 1}}}, workloads.InPlace(x))
				b.Order(workloads.Comm, workloads.Compute)
				b.Op(eagertest.Kernel(n, "b", 5*us), workloads.InPlace(x))
				b.Drop(x)
			},
			want: 30*us + 8*us + 5*us,
			also: func(t *testing.T, r *eager.Report) {
				if got := r.Ranks[0].Lanes[stream.Comm].Wait[stream.Rendezvous]; got != 20*us {
					t.Errorf("rank 0 waited %v for rank 1, want 20us", got)
				}
			},
		},
		{
			name: "a folded collective takes its time without waiting",
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(1000))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Order(workloads.Compute, workloads.Comm)
				b.Op(workloads.OpSpec{Name: n.ID("all_reduce"), Lane: workloads.Comm, Kernel: workloads.Kernel{
					Work: hw.Work{Kind: hw.Collective, Collective: hw.AllReduce, Size: 8000, Members: 8}}}, workloads.InPlace(x))
				b.Order(workloads.Comm, workloads.Compute)
				b.Drop(x)
			},
			want: 18 * us,
		},
		{
			name: "kernels beside a collective slow down while it runs",
			node: func(n *hw.Node) { n.Device.Beside[hw.MatMul] = 2 },
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y := b.New(tensor(1000)), b.New(tensor(1000))
				b.Op(workloads.OpSpec{Name: n.ID("all_reduce"), Lane: workloads.Comm, Kernel: workloads.Kernel{
					Work: hw.Work{Kind: hw.Collective, Collective: hw.AllReduce, Size: 8000, Members: 8}}}, workloads.Out(x))
				k := eagertest.Kernel(n, "a", 10*us)
				k.Kernel.Traffic = 1000
				b.Op(k, workloads.Out(y)) // 8 us at half speed, then 6 us
				b.Order(workloads.Comm, workloads.Compute)
				b.Drop(x)
				b.Drop(y)
			},
			want: 14 * us,
		},
		{
			name:   "HBM shared by a kernel and a copy",
			node:   func(n *hw.Node) { n.Device.Bandwidth = sim.GBps(1) },
			policy: script{0: evict(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x, y := b.New(tensor(10_000)), b.New(tensor(512))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				k := eagertest.Kernel(n, "b", 20*us) // wants all of the HBM for 20 us
				k.Kernel.Traffic = 20_000
				b.Op(k, workloads.Out(y))
				b.Drop(x)
				b.Drop(y)
			},
			want: 40 * us, // half each for 20 us, then the kernel's other 10,000 bytes
		},
		{
			name:   "an uplink shared by two devices halves each",
			ranks:  2,
			node:   func(n *hw.Node) { n.Link.Uplink, n.Link.UplinkDevices = sim.GBps(1), 2 },
			policy: script{0: evict(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(10_000))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				b.Op(eagertest.Kernel(n, "b", 5*us), workloads.InPlace(x))
				b.Drop(x)
			},
			want: 10*us + 20*us + 20*us + 5*us,
		},
		{
			// Stage 0 runs F1 F2 B1 F3 B2 B3, stage 1 F1 B1 F2 B2 F3 B3; a
			// transfer takes 1 us, and each pair of neighbours makes theirs
			// in one order. (m + p - 1)(f + b) = 120 us, and six transfers
			// lie on the critical path.
			name:  "1F1B on two stages: the pipeline's bubble",
			ranks: 2,
			program: func(rank int, b *workloads.Builder, n *workloads.Names) {
				// x is what goes forward, y what comes back, by micro-batch.
				var x, y [3]workloads.StorageID
				for m := range 3 {
					x[m], y[m] = b.New(tensor(1000)), b.New(tensor(1000))
					b.Op(eagertest.Kernel(n, "init", 0), workloads.Out(x[m]), workloads.Out(y[m]))
				}
				transfer := func(tag int32, what workloads.Arg, send bool) {
					if send {
						b.Order(workloads.Compute, workloads.CommPeer)
					}
					b.Op(workloads.OpSpec{Name: n.ID("p2p"), Lane: workloads.CommPeer, Kernel: workloads.Kernel{
						Work: hw.Work{Kind: hw.Transfer, Size: 1000}, Group: []int32{0, 1}, Tag: tag}}, what)
					if !send {
						b.Order(workloads.CommPeer, workloads.Compute)
					}
				}
				steps := "FsFrsBFrsBrB"
				if rank == 1 {
					steps = "rFBsrFBsrFBs"
				}
				forward, backward := int32(0), int32(1) // tags of the two ways
				var done [256]int
				for _, step := range steps {
					m := done[step]
					done[step]++
					switch step {
					case 'F':
						b.Op(eagertest.Kernel(n, "f", 10*us), workloads.InPlace(x[m]))
					case 'B':
						b.Op(eagertest.Kernel(n, "b", 20*us), workloads.InPlace(y[m]))
					case 's':
						if rank == 0 {
							transfer(forward, workloads.In(x[m]), true)
						} else {
							transfer(backward, workloads.In(y[m]), true)
						}
					case 'r':
						if rank == 0 {
							transfer(backward, workloads.Out(y[m]), false)
						} else {
							transfer(forward, workloads.Out(x[m]), false)
						}
					}
				}
				b.Order(workloads.CommPeer, workloads.Compute)
				for m := range 3 {
					b.Drop(x[m])
					b.Drop(y[m])
				}
			},
			want: 126 * us,
		},
		{
			name:   "ready order: a copy that waits does not hold the engine",
			policy: script{0: evict(0)},
			program: func(_ int, b *workloads.Builder, n *workloads.Names) {
				// The swap-out of x is ready at 10 although the peer
				// stream's kernel, enqueued before it, runs until 100.
				x, y := b.New(tensor(10_000)), b.New(tensor(512))
				b.Op(eagertest.Kernel(n, "a", 10*us), workloads.Out(x))
				k := eagertest.Kernel(n, "p", 100*us)
				k.Lane = workloads.CommPeer
				b.Op(k, workloads.Out(y))
				b.Op(eagertest.Kernel(n, "b", 5*us), workloads.InPlace(x))
				b.Order(workloads.CommPeer, workloads.Compute)
				b.Drop(x)
				b.Drop(y)
			},
			want: 100 * us,
			also: func(t *testing.T, r *eager.Report) {
				if got := r.Ranks[0].Lanes[stream.Compute].Busy; got != 15*us {
					t.Errorf("compute busy %v, want 15us", got)
				}
				if got := r.Ranks[0].Lanes[stream.Compute].Wait[stream.Fault]; got != 20*us {
					t.Errorf("compute waited %v for the fault, want 20us", got)
				}
			},
		},
	}
	if len(cases) < 25 {
		t.Errorf("%d closed forms, want at least 25", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ranks := max(1, c.ranks)
			node := eagertest.Node(ranks)
			if c.node != nil {
				c.node(node)
			}
			w, err := eagertest.NewScript(make([][]workloads.Storage, ranks), c.program)
			if err != nil {
				t.Fatal(err)
			}
			cfg := eagertest.Config(node, w)
			if c.config != nil {
				c.config(&cfg)
			}
			if c.policy != nil {
				cfg.NewPolicy = func() (policies.Policy, error) { return &scriptPolicy{act: c.policy}, nil }
			}
			r, err := eager.Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r.OOM != nil {
				t.Fatal(r.OOM)
			}
			for _, v := range r.Violations {
				t.Error(v)
			}
			if r.Makespan != c.want {
				t.Errorf("makespan %v, want %v (difference %d ps)", r.Makespan, c.want, r.Makespan-c.want)
			}
			if c.also != nil {
				c.also(t, r)
			}
		})
	}
}

// TestOneReportTwoBackends runs the same program under both allocators.
func TestOneReportTwoBackends(t *testing.T) {
	w, err := eagertest.NewScript(make([][]workloads.Storage, 1), func(_ int, b *workloads.Builder, n *workloads.Names) {
		x := b.New(tensor(100 << 20))
		b.Op(eagertest.Kernel(n, "a", 7*us), workloads.Out(x))
		b.Drop(x)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"bytes", "caching"} {
		cfg := eagertest.Config(eagertest.Node(1), w)
		cfg.Allocator = alloc.DefaultOptions()
		cfg.Allocator.Backend = backend
		r, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Ranks[0].Memory.Reserved.Peak; got != 100<<20 {
			t.Errorf("%s: reserved peak %d, want %d", backend, got, 100<<20)
		}
		if len(r.Violations) > 0 {
			t.Errorf("%s: %v", backend, r.Violations)
		}
	}
}
