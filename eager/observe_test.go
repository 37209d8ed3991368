package eager_test

import (
	"fmt"
	"reflect"
	"testing"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/eagertest"
	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"

	"pgregory.net/rapid"
)

// books is an observer that keeps its own accounts of every rank.
type books struct {
	t        interface{ Errorf(string, ...any) }
	launches bool // cost time
	ranks    []*book
}

type book struct {
	info      eager.RankInfo
	busy      [stream.Count]sim.Time
	ends      [stream.Count]sim.Time
	moved     [hw.NumDirections]sim.Bytes
	forced    int64
	hostBusy  sim.Time
	waits     [eager.NumHostCauses]sim.Time
	hostEnds  [2]sim.Time
	launched  map[int64]sim.Time
	peak, now eager.Counters
	live      map[uint64]sim.Bytes // requested, by address
	names     map[string]int       // of kernels
	tensors   map[string]int
	clock     sim.Time
}

func (b *books) Rank(r eager.RankInfo) {
	if r.Rank != len(b.ranks) || r.Memory == nil {
		b.t.Errorf("rank %d is introduced as number %d", r.Rank, len(b.ranks))
	}
	b.ranks = append(b.ranks, &book{info: r, launched: map[int64]sim.Time{}, live: map[uint64]sim.Bytes{}, names: map[string]int{}, tensors: map[string]int{}})
}

func (b *books) Device(s *eager.DeviceSpan) {
	k := b.ranks[s.Rank]
	if s.Start < k.ends[s.Stream] || s.End < s.Start {
		b.t.Errorf("rank %d, %s: [%v, %v] after %v", s.Rank, s.Stream.Name(), s.Start, s.End, k.ends[s.Stream])
	}
	k.ends[s.Stream] = s.End
	k.busy[s.Stream] += s.End - s.Start
	if at, ok := k.launched[s.Command]; k.info.Launches && b.launches && !ok || at > s.Start {
		b.t.Errorf("rank %d: command %d starts at %v, launched at %v, %v", s.Rank, s.Command, s.Start, at, ok)
	}
	delete(k.launched, s.Command)
	if s.Kind == stream.Copy {
		k.moved[s.Dir] += s.Bytes
		if s.Forced {
			k.forced++
		}
		if s.Tensor == "" || s.Storage == 0 {
			b.t.Errorf("a copy of nothing: %+v", s)
		}
		return
	}
	if s.Place.Name == "" || s.Place.Name == "between operators" {
		b.t.Errorf("a kernel of no operator: %+v", s)
	}
	k.names[s.Place.Name]++
}

func (b *books) Host(s *eager.HostSpan) {
	k := b.ranks[s.Rank]
	if s.Start < k.hostEnds[s.Thread] || s.End <= s.Start || s.Place.Name == "" {
		b.t.Errorf("rank %d, thread %d: %+v after %v", s.Rank, s.Thread, s, k.hostEnds[s.Thread])
	}
	k.hostEnds[s.Thread] = s.End
	switch {
	case s.Thread == eager.Launching:
		if !s.Waits || s.Command > 0 {
			k.launched[s.Command] = s.End
		}
	case s.Waits:
		k.waits[s.Cause] += s.End - s.Start
	default:
		k.hostBusy += s.End - s.Start
	}
}

func (b *books) Memory(e *eager.MemoryEvent) {
	k := b.ranks[e.Rank]
	b.level(k, e.Time, e.Counters)
	switch e.Action {
	case alloc.Alloc:
		k.live[e.Addr] = e.Size
		k.tensors[e.Tensor]++
	case alloc.FreeRequested:
		if k.live[e.Addr] != e.Size {
			b.t.Errorf("%d bytes at %#x are freed, %d live there", e.Size, e.Addr, k.live[e.Addr])
		}
		delete(k.live, e.Addr)
	}
}

func (b *books) Counters(rank int, at sim.Time, c eager.Counters) {
	k := b.ranks[rank]
	if c == k.now && at > 0 {
		b.t.Errorf("rank %d: nothing has changed at %v", rank, at)
	}
	k.now = c
	b.level(k, at, c)
}

func (b *books) level(k *book, at sim.Time, c eager.Counters) {
	if at < k.clock || c.Allocated > c.Active {
		b.t.Errorf("at %v after %v: %+v", at, k.clock, c)
	}
	k.clock = at
	k.peak = eager.Counters{
		Allocated: max(k.peak.Allocated, c.Allocated), Active: max(k.peak.Active, c.Active),
		Reserved: max(k.peak.Reserved, c.Reserved), Host: max(k.peak.Host, c.Host),
	}
}

// TestObserved: a run is the same with and without observers, and what they are
// told adds up to the report.
func TestObserved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		backend := rapid.SampledFrom([]string{"bytes", "caching"}).Draw(rt, "allocator")
		job := eagertest.DrawJob(rt, 2, 128*sim.KiB)
		cfg := drawConfig(rt, job)
		cfg.Iterations, cfg.Warmup = 5, 0
		cfg.Allocator.Backend = backend
		cfg.Checks = rapid.Bool().Draw(rt, "checks")
		cfg.HBM = job.Floor() * rapid.SampledFrom([]sim.Bytes{10, 15, 30}).Draw(rt, "HBM, tenths of the floor") / 10
		_, cfg.NewPolicy = drawPolicy(rt, 128*1024)
		plain, err := eager.Run(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		b, second := &books{t: rt, launches: cfg.Node.Host.Launch > 0}, &books{t: rt, launches: cfg.Node.Host.Launch > 0}
		cfg.Observers = []eager.Observer{b, second}
		r, err := eager.Run(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		if !reflect.DeepEqual(r, plain) {
			rt.Fatalf("observed: %+v\nalone: %+v", r, plain)
		}
		for i, k := range b.ranks {
			rank := &r.Ranks[i]
			if !reflect.DeepEqual(k.peak, second.ranks[i].peak) {
				rt.Fatalf("two observers were told %+v and %+v", k.peak, second.ranks[i].peak)
			}
			m := &rank.Memory
			if want := (eager.Counters{
				Allocated: sim.Bytes(m.Allocated.Peak), Active: sim.Bytes(m.Active.Peak), Reserved: sim.Bytes(m.Reserved.Peak), Host: k.peak.Host,
			}); k.peak != want || k.peak.Host > rank.HostPeak {
				rt.Fatalf("rank %d: peaks %+v, report %+v, host %v", i, k.peak, want, rank.HostPeak)
			}
			if r.OOM != nil {
				continue
			}
			if k.hostBusy != rank.Host.Busy || k.waits != rank.Host.Wait {
				rt.Fatalf("rank %d: host busy %v, waits %v; report %+v", i, k.hostBusy, k.waits, rank.Host)
			}
			if k.busy[stream.Compute] != rank.Lanes[stream.Compute].Busy {
				rt.Fatalf("rank %d: compute busy %v; report %v", i, k.busy[stream.Compute], rank.Lanes[stream.Compute].Busy)
			}
			if k.moved[hw.D2H] != rank.Swap.OutBytes || k.moved[hw.H2D] != rank.Swap.InBytes {
				rt.Fatalf("rank %d: moved %v; report %v out, %v in", i, k.moved, rank.Swap.OutBytes, rank.Swap.InBytes)
			}
		}
	})
}

// pages is an observer of one rank whose memory is not the allocator's.
type pages struct {
	kind     policies.MemoryKind
	levels   []eager.Counters
	at       []sim.Time
	wait     sim.Time
	busy     sim.Time
	in, out  sim.Bytes
	memories int
	moved    [hw.NumDirections]sim.Bytes
	until    [hw.NumDirections]sim.Time // when the last move ended
	wrong    string                     // about a move
}

func (p *pages) Rank(r eager.RankInfo) { p.kind = r.Kind }
func (p *pages) Device(s *eager.DeviceSpan) {
	if s.Kind == stream.Copy {
		if s.Start < p.until[s.Dir] || s.End < s.Start || (s.Dir == hw.H2D) != (s.Stream == stream.In) || (s.Dir == hw.D2H) != (s.Stream == stream.Out) {
			p.wrong = fmt.Sprintf("a move %+v after %v", *s, p.until)
		}
		p.moved[s.Dir] += s.Bytes
		p.until[s.Dir] = s.End
		return
	}
	if last := max(p.until[hw.H2D], p.until[hw.D2H]); last > s.End {
		p.wrong = fmt.Sprintf("a move ends at %v, after the kernel %+v", last, *s)
	}
	p.busy += s.End - s.Start - s.Wait
	p.wait += s.Wait
	p.in += s.In
	p.out += s.Out
}
func (p *pages) Host(*eager.HostSpan)      {}
func (p *pages) Memory(*eager.MemoryEvent) { p.memories++ }
func (p *pages) Counters(_ int, at sim.Time, c eager.Counters) {
	p.levels, p.at = append(p.levels, c), append(p.at, at)
}

// checkPages runs cfg, whose report is want, once more under observation: what is
// told adds up to the report.
func checkPages(t interface{ Fatalf(string, ...any) }, cfg eager.Config, want *eager.Report, capacity sim.Bytes) *pages {
	p := &pages{}
	cfg.Observers = []eager.Observer{p}
	r, err := eager.Run(cfg)
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Fatalf("observed: %+v, %v; alone: %+v", r, err, want)
	}
	if p.kind == policies.Framework || p.memories > 0 {
		t.Fatalf("memory of kind %v has %d allocations", p.kind, p.memories)
	}
	for i, c := range p.levels {
		if i > 0 && p.at[i] < p.at[i-1] || c.Allocated != c.Reserved || c.Allocated > capacity {
			t.Fatalf("at %v: %+v; capacity %d", p.at[i], c, capacity)
		}
	}
	if r.OOM != nil {
		return p
	}
	rank := &r.Ranks[0]
	for i, c := range p.levels {
		if c.Allocated > sim.Bytes(rank.Memory.Allocated.Peak) || c.Host > rank.HostPeak {
			t.Fatalf("at %v: %+v; peaks %d and %d in the report", p.at[i], c, rank.Memory.Allocated.Peak, rank.HostPeak)
		}
	}
	var in, out sim.Bytes
	for _, it := range r.Iterations {
		in += it.InBytes
		out += it.OutBytes
	}
	if p.in != in || p.out != out {
		t.Fatalf("kernels moved %d in and %d out, iterations %d and %d", p.in, p.out, in, out)
	}
	if p.moved[hw.H2D] != in || p.moved[hw.D2H] != out || p.wrong != "" {
		t.Fatalf("moves of %v; iterations have %d in and %d out; %s", p.moved, in, out, p.wrong)
	}
	if lane := &rank.Lanes[stream.Compute]; cfg.Warmup == 0 && (p.busy != lane.Busy || p.wait != lane.Wait[stream.Fault]) {
		t.Fatalf("kernels took %v and waited %v, the lane %v and %v", p.busy, p.wait, lane.Busy, lane.Wait[stream.Fault])
	}
	return p
}

// TestObservedByHand follows one operator through all lanes.
func TestObservedByHand(t *testing.T) {
	node := eagertest.Node(1)
	node.Host.Dispatch, node.Host.Launch, node.Host.TaskQueue = 3*sim.Microsecond, 2*sim.Microsecond, 16
	w, err := eagertest.NewScript([][]workloads.Storage{{{Bytes: 1000, Layer: 7, Label: 0}}}, func(_ int, b *workloads.Builder, names *workloads.Names) {
		op := eagertest.Kernel(names, "mm", 10*sim.Microsecond)
		op.Scratch = 500
		b.Op(op, workloads.Arg{Storage: 0, Mode: workloads.Update})
	})
	if err != nil {
		t.Fatal(err)
	}
	var got spans
	cfg := eagertest.Config(node, w)
	cfg.Observers = []eager.Observer{&got}
	if _, err := eager.Run(cfg); err != nil {
		t.Fatal(err)
	}
	us := sim.Microsecond
	if len(got.device) != 1 || got.device[0].Place.Name != "mm" || got.device[0].Place.Layer != 7 || got.device[0].Start != 5*us || got.device[0].End != 15*us {
		t.Errorf("device: %+v", got.device)
	}
	if len(got.host) < 2 || got.host[0].Place.Name != "mm" || got.host[0].Start != 0 || got.host[0].End != 3*us ||
		got.host[1].Thread != eager.Launching || got.host[1].Start != 3*us || got.host[1].End != 5*us || got.host[1].Command != got.device[0].Command {
		t.Errorf("host: %+v", got.host)
	}
	want := []struct {
		action alloc.Action
		at     sim.Time
		op     string
		tensor string
	}{{alloc.Alloc, 0, "construction", "mm"}, {alloc.Alloc, 0, "mm", "workspace"}, {alloc.FreeRequested, 3 * us, "mm", ""}, {alloc.FreeCompleted, 3 * us, "mm", ""}}
	for i, e := range got.memory {
		if i >= len(want) || e.Action != want[i].action || e.Time != want[i].at || e.Place.Name != want[i].op || e.Tensor != want[i].tensor {
			t.Errorf("memory event %d: %+v", i, e)
		}
	}
	if len(got.memory) != len(want) {
		t.Errorf("%d memory events", len(got.memory))
	}
}

// spans keeps everything.
type spans struct {
	device []eager.DeviceSpan
	host   []eager.HostSpan
	memory []eager.MemoryEvent
}

func (s *spans) Rank(eager.RankInfo)                    {}
func (s *spans) Device(d *eager.DeviceSpan)             { s.device = append(s.device, *d) }
func (s *spans) Host(h *eager.HostSpan)                 { s.host = append(s.host, *h) }
func (s *spans) Memory(m *eager.MemoryEvent)            { s.memory = append(s.memory, *m) }
func (s *spans) Counters(int, sim.Time, eager.Counters) {}
