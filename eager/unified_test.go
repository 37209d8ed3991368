package eager_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/eager/stream"
	"smartswap/eager/unified"
	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"
)

// paged is a policy on unified memory that arms hints for the whole run.
type paged struct {
	paging policies.Paging
	hints  func(n *policies.Nominal) []policies.Action
	err    error
}

func (p *paged) Needs() policies.Needs {
	n := policies.Needs{Memory: policies.Unified}
	if p.hints != nil {
		n.Grade, n.Events = policies.Static, policies.Set(policies.MarkEvent, policies.IterationEnd)
	}
	return n
}

func (p *paged) Paging() policies.Paging { return p.paging }

func (p *paged) Handle(ev *policies.Event, rt policies.Runtime) {
	if p.hints != nil {
		p.err = rt.Arm(&policies.Plan{Hints: p.hints(rt.Nominal())})
		p.hints = nil
	}
}

// needs changes what a policy says it needs.
type needs struct {
	policies.Policy
	memory policies.MemoryKind
}

func (n needs) Needs() policies.Needs { return policies.Needs{Memory: n.memory} }

// TestUnifiedProperties runs random jobs in unified memory of random sizes with
// all invariants on: every page in one place, memories not exceeded, batches
// within their budget, kernels read what was written.
func TestUnifiedProperties(t *testing.T) {
	var cases, evicted, far, starved, varied, faster int
	rapid.Check(t, func(t *rapid.T) {
		job := eagertest.DrawAlone(t, 512)
		cfg := eagertest.Config(eagertest.DrawNode(t, 1), job)
		cfg.Iterations = rapid.IntRange(2, 7).Draw(t, "iterations")
		cfg.Warmup = rapid.IntRange(0, cfg.Iterations-1).Draw(t, "warm-up")
		cfg.HostNone = rapid.Bool().Draw(t, "no host costs")
		cfg.Fingerprint = true
		free := cfg
		free.Unbounded = true
		ideal, err := eager.Run(free)
		if err != nil {
			t.Fatal(err)
		}
		peak := sim.Bytes(ideal.Peak(func(r *eager.RankReport) int64 { return r.Memory.Allocated.Peak }))

		o := unified.Defaults()
		o.Page = rapid.SampledFrom([]sim.Bytes{512, 4096, 64 * sim.KiB}).Draw(t, "page")
		o.Device = max(o.Page, peak*sim.Bytes(rapid.SampledFrom([]int64{20, 50, 60, 70, 80, 90, 95, 120}).Draw(t, "device, percent of peak"))/100)
		o.Host = peak * sim.Bytes(rapid.SampledFrom([]int64{0, 20, 100, 400}).Draw(t, "host, percent of peak")) / 100
		switch rapid.IntRange(0, 3).Draw(t, "ssd") {
		case 0:
			o.SSD, o.SSDRate = 0, 0
			o.Host += peak * sim.Bytes(rapid.SampledFrom([]int64{0, 1, 2}).Draw(t, "more host, peaks"))
		case 1:
			o.SSD = peak / 2
		}
		o.Times = rapid.SampledFrom([]unified.FaultTimes{unified.FaultsMeasured, unified.FaultsAsBuilt}).Draw(t, "fault times")
		o.Link = sim.GBps(10)
		cfg.Unified = o
		p := policies.Paging{
			Lookahead: rapid.SampledFrom([]int32{0, 1, 8, 50}).Draw(t, "lookahead"), Spare: rapid.Bool().Draw(t, "spare"),
			Oldest: rapid.Bool().Draw(t, "oldest"), DropDead: rapid.Bool().Draw(t, "drop dead"),
		}
		cfg.NewPolicy = func() (policies.Policy, error) { return &paged{paging: p}, nil }
		r, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		checkRun(t, r)
		checkPages(t, cfg, r, o.Device)
		cases++
		if job.Kinds > 1 {
			varied++
		}
		if r.OOM != nil {
			starved++
			if s := r.OOM.Error(); !strings.Contains(s, "unified memory") {
				t.Fatalf("out of memory without a reason: %s", s)
			}
			return
		}
		var out, ssd sim.Bytes
		for _, it := range r.Iterations {
			out += it.OutBytes
			ssd += it.SSDOut
		}
		if out > 0 {
			evicted++
		}
		if ssd > 0 {
			far++
		}
		rank, ref := &r.Ranks[0], &ideal.Ranks[0]
		if rank.Sequence != ref.Sequence || rank.Ops != ref.Ops {
			t.Fatalf("another program than without a policy (12)")
		}
		if rank.Lanes[0].Busy < ref.Lanes[0].Busy {
			t.Fatalf("compute was busy %v, less than the %v its kernels take (13)", rank.Lanes[0].Busy, ref.Lanes[0].Busy)
		}
		if sim.Bytes(rank.Memory.Allocated.Peak) > o.Device || rank.HostPeak > o.Host {
			t.Fatalf("peaks %d and %d, memories of %d and %d (2)", rank.Memory.Allocated.Peak, rank.HostPeak, o.Device, o.Host)
		}
		if r.Makespan < ideal.Makespan && !cfg.HostNone {
			faster++ // hosts differ: no allocator to pay
		}
		again, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(r, again) {
			t.Fatal("the same run twice differs (11)")
		}
	})
	t.Logf("%d cases: %d evict, %d to the SSD, %d cannot go on, %d vary", cases, evicted, far, starved, varied)
	if 100*evicted < 25*cases || 100*far < 4*cases || 100*starved < 10*cases || 100*varied < 10*cases {
		t.Error("the cases do not bite")
	}
}

// two is a job of two kernels of 10 us on tensors of 40,960 bytes, ten pages.
func two(t *testing.T, op func(b *workloads.Builder, names *workloads.Names)) *eagertest.Script {
	t.Helper()
	s, err := eagertest.NewScript([][]workloads.Storage{{tensor(40960)}}, func(_ int, b *workloads.Builder, names *workloads.Names) {
		x := b.New(tensor(40960))
		b.Op(eagertest.Kernel(names, "make", 10*us), workloads.In(0), workloads.Out(x))
		if op != nil {
			op(b, names)
		}
		b.Op(eagertest.Kernel(names, "use", 10*us), workloads.In(x), workloads.InPlace(0))
		b.Drop(x)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func unifiedConfig(t *testing.T, w workloads.Workload, p policies.Policy) eager.Config {
	cfg := eagertest.Config(eagertest.Node(1), w)
	cfg.HostNone, cfg.Iterations, cfg.Warmup = true, 3, 2
	cfg.Unified = unified.Defaults()
	cfg.Unified.Device = 25 * 4096
	cfg.NewPolicy = func() (policies.Policy, error) { return p, nil }
	return cfg
}

// alternates runs the programs of two scripts in turn.
type alternates struct {
	*eagertest.Script
	other *eagertest.Script
}

func (a alternates) Program(r, i int) (*workloads.Program, error) {
	if i%2 == 1 {
		return a.other.Program(r, i)
	}
	return a.Script.Program(r, i)
}

// TestHintOfAnotherSize: in an iteration whose program is not the nominal one a
// hint may be at a tensor of another size: its content stays, and is not moved.
func TestHintOfAnotherSize(t *testing.T) {
	job := func(n sim.Bytes, nominal bool) *eagertest.Script {
		return script(t, []workloads.Storage{tensor(4096)}, func(b *workloads.Builder, names *workloads.Names) {
			x := b.New(tensor(n))
			take := func() {
				b.Op(eagertest.Kernel(names, "take", 10*us), workloads.In(x))
				b.Drop(x)
			}
			b.Op(eagertest.Kernel(names, "make", 10*us), workloads.Out(x))
			if nominal {
				take()
			}
			b.Op(eagertest.Kernel(names, "idle", sim.Millisecond), workloads.InPlace(0))
			b.Op(eagertest.Kernel(names, "idle", sim.Millisecond), workloads.InPlace(0))
			if !nominal {
				take()
			}
		})
	}
	for _, kind := range []policies.Kind{policies.Evict, policies.Prefetch, policies.Discard} {
		p := &paged{hints: func(*policies.Nominal) []policies.Action {
			return []policies.Action{{Kind: kind, What: policies.Selector{Kind: policies.ByStatic, Static: 1}, To: policies.SSDTier, Start: policies.Trigger{Kind: policies.AtOp, N: 2}}}
		}}
		cfg := unifiedConfig(t, alternates{job(40960, true), job(81920, false)}, p)
		cfg.Unified.Device = 100 * 4096
		cfg.Iterations, cfg.Warmup = 2, 0
		r, err := eager.Run(cfg)
		if err != nil || p.err != nil || r.OOM != nil || len(r.Violations) > 0 {
			t.Error(kind, err, p.err, r)
			continue
		}
		if it := r.Iterations[1]; it.OutBytes != 0 || it.InBytes != 0 {
			t.Errorf("hint %v: %+v, want that nothing moves", kind, it)
		}
	}
}

// bounds is the capacity that observers are told.
type bounds struct {
	quiet
	capacity sim.Bytes
}

func (b *bounds) Rank(i eager.RankInfo) { b.capacity = i.Capacity }

// TestPagedCapacity: addresses may exceed the device's memory; observers hear of
// the memory that the pages or tensors have.
func TestPagedCapacity(t *testing.T) {
	job := script(t, []workloads.Storage{tensor(40960), tensor(40960), tensor(40960)}, func(b *workloads.Builder, names *workloads.Names) {
		for i := range workloads.StorageID(3) {
			b.Op(eagertest.Kernel(names, "k", us), workloads.InPlace(i))
		}
	})
	for _, kind := range kinds {
		for _, c := range []struct{ hbm, device, want sim.Bytes }{{102400, 0, 102400}, {0, 204800, 204800}, {204800, 163840, 163840}} {
			if kind == "direct" && c.want < 122880 {
				continue // residents are there at once
			}
			b := &bounds{}
			cfg := unifiedConfig(t, job, nil)
			cfg.NewPolicy = memories[kind]
			cfg.HBM, cfg.Unified.Device, cfg.Observers = c.hbm, c.device, []eager.Observer{b}
			r, err := eager.Run(cfg)
			if err != nil || r.OOM != nil || len(r.Violations) > 0 {
				t.Fatal(kind, c, err, r)
			}
			if b.capacity != c.want {
				t.Errorf("%s, %+v: observers hear of %v", kind, c, b.capacity)
			}
		}
	}
}

// TestUnifiedStalls: the resident lies on the SSD at first and faults; then
// everything is there.
func TestUnifiedStalls(t *testing.T) {
	cfg := unifiedConfig(t, two(t, nil), &paged{})
	r, err := eager.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Violations) > 0 {
		t.Fatal(r.Violations)
	}
	if r.Iterations[0].SSDIn != 40960 || r.Iterations[0].Faults != 1 || r.Iterations[0].Span <= 20*us {
		t.Errorf("first iteration: %+v", r.Iterations[0])
	}
	if it := r.Iterations[2]; it.Faults != 0 || it.InBytes != 0 || it.Span != 20*us {
		t.Errorf("third iteration: %+v", it)
	}
	if l := r.Ranks[0].Lanes[stream.Compute]; l.Busy != 20*us || l.Wait[stream.Fault] != 0 {
		t.Errorf("compute in the third iteration: %+v", l)
	}
	if p := r.Ranks[0].Memory.Allocated.Peak; p != 2*40960 {
		t.Errorf("peak %d, want two tensors", p)
	}
	// Over the whole run the stall is what the first iteration took longer.
	cfg.Warmup = 0
	if r, err = eager.Run(cfg); err != nil {
		t.Fatal(err)
	}
	if l := r.Ranks[0].Lanes[stream.Compute]; l.Busy != 60*us || l.Wait[stream.Fault] != r.Iterations[0].Span-20*us {
		t.Errorf("compute in all: %+v", l)
	}
}

// TestUnifiedPlan: a plan's hints run with their kernels in every iteration.
func TestUnifiedPlan(t *testing.T) {
	at := func(kind policies.Kind, tensor, kernel int32, to policies.TierID) policies.Action {
		return policies.Action{Kind: kind, What: policies.Selector{Kind: policies.ByStatic, Static: tensor}, To: to, Start: policies.Trigger{Kind: policies.AtOp, N: kernel}}
	}
	idle := func(b *workloads.Builder, names *workloads.Names) {
		for range 3 {
			b.Op(eagertest.Kernel(names, "idle", sim.Millisecond))
		}
	}
	p := &paged{hints: func(n *policies.Nominal) []policies.Action {
		if len(n.Kernels) != 5 || len(n.Tensors) != 2 || !n.Tensors[0].Global {
			t.Errorf("nominal program: %+v", n)
		}
		return []policies.Action{at(policies.Evict, 0, 1, policies.HostTier), at(policies.Prefetch, 0, 3, 0), at(policies.Evict, 1, 1, policies.SSDTier), at(policies.Discard, 1, 0, 0)}
	}}
	r, err := eager.Run(unifiedConfig(t, two(t, idle), p))
	if err != nil {
		t.Fatal(err)
	}
	if p.err != nil || len(r.Violations) > 0 {
		t.Fatal(p.err, r.Violations)
	}
	it := r.Iterations[2]
	if it.OutBytes != 2*40960 || it.SSDOut != 40960 || it.InBytes != 2*40960 || it.SSDIn != 40960 || it.Faults != 2 {
		t.Errorf("third iteration: %+v, want both tensors out and in, a fault for the one without a prefetch and one for what was discarded", it)
	}

	for want, hint := range map[string]policies.Action{
		"by its static id":           {Kind: policies.Evict},
		"no tensor 7":                at(policies.Evict, 7, 0, 0),
		"no tier 2":                  at(policies.Evict, 0, 0, 2),
		"Evict, Prefetch or Discard": at(policies.Rematerialize, 0, 0, 0),
	} {
		p := &paged{hints: func(*policies.Nominal) []policies.Action { return []policies.Action{hint} }}
		if _, err := eager.Run(unifiedConfig(t, two(t, nil), p)); err != nil {
			t.Fatal(err)
		}
		if p.err == nil || !strings.Contains(p.err.Error(), want) {
			t.Errorf("error %v, want %q", p.err, want)
		}
	}
}

func TestUnifiedStarves(t *testing.T) {
	cfg := unifiedConfig(t, two(t, nil), &paged{})
	cfg.Unified.Device = 15 * 4096
	r, err := eager.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.OOM == nil || r.OOM.Cause.Requested != 2*40960 || r.OOM.Cause.Capacity != 15*4096 || !strings.Contains(r.OOM.Error(), "its operands have 81920 bytes, the device 61440") {
		t.Errorf("out of memory: %v", r.OOM)
	}
}

func TestUnifiedRefusals(t *testing.T) {
	if _, err := eager.Run(unifiedConfig(t, two(t, nil), needs{&paged{}, policies.Direct})); err == nil || !strings.Contains(err.Error(), `direct memory is placed by the nominal program: the policy needs grade "static", it has "observed"`) {
		t.Errorf("direct memory: %v", err)
	}
	cfg := unifiedConfig(t, two(t, nil), &paged{})
	cfg.Unified.Batch = 0
	if _, err := eager.Run(cfg); err == nil || !strings.Contains(err.Error(), "batch = 0") {
		t.Errorf("batches of nothing: %v", err)
	}
}

// static moves tensor 1 by its static id between the kernels of the program.
type static struct {
	t    *testing.T
	done []policies.Outcome
}

func (*static) Needs() policies.Needs {
	return policies.Needs{Grade: policies.Static, Events: policies.Set(policies.BeforeOp, policies.AfterOp)}
}

func (s *static) Handle(ev *policies.Event, rt policies.Runtime) {
	do := func(kind policies.Kind, id int32, to policies.TierID) {
		s.done = append(s.done, rt.Do(policies.Action{Kind: kind, What: policies.Selector{Kind: policies.ByStatic, Static: id}, To: to}))
	}
	switch op := ev.Op.Index % 5; {
	case ev.Kind == policies.AfterOp && op == 0:
		do(policies.Evict, 1, policies.SSDTier) // no such tier for the framework's memory
		do(policies.Evict, 1, policies.HostTier)
	case ev.Kind == policies.BeforeOp && op == 3:
		do(policies.Prefetch, 1, policies.HostTier)
		do(policies.Evict, 99, policies.HostTier)
	}
}

// TestStaticIDs: a planner that knows the program moves tensors of the
// framework's allocator by their numbers in it.
func TestStaticIDs(t *testing.T) {
	idle := func(b *workloads.Builder, names *workloads.Names) {
		for range 3 {
			b.Op(eagertest.Kernel(names, "idle", sim.Millisecond))
		}
	}
	s := &static{t: t}
	cfg := unifiedConfig(t, two(t, idle), s)
	r, err := eager.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := []policies.Outcome{policies.Refused, policies.Done, policies.Done, policies.Refused}
	for i, got := range s.done {
		if got != want[i%4] {
			t.Errorf("action %d: %v, want %v", i, got, want[i%4])
		}
	}
	if it := r.Iterations[2]; it.OutBytes != 40960 || it.InBytes != 40960 || it.Faults != 0 || len(s.done) != 12 {
		t.Errorf("third iteration: %+v after %d actions", it, len(s.done))
	}
}

// onDirect is a planner on direct memory.
type onDirect struct{ *paged }

func (onDirect) Needs() policies.Needs {
	return policies.Needs{Grade: policies.Static, Memory: policies.Direct, Events: policies.Set(policies.BeforeOp)}
}

// TestDirectPlan: a plan's tensors leave for the SSD and come back; bytes, peaks
// and running out are reported as for other memory.
func TestDirectPlan(t *testing.T) {
	idle := func(b *workloads.Builder, names *workloads.Names) {
		for range 3 {
			b.Op(eagertest.Kernel(names, "idle", sim.Millisecond))
		}
	}
	at := func(kind policies.Kind, kernel int32, to policies.TierID) policies.Action {
		return policies.Action{Kind: kind, What: policies.Selector{Kind: policies.ByStatic, Static: 1}, To: to, Start: policies.Trigger{Kind: policies.AtOp, N: kernel}}
	}
	config := func() eager.Config {
		cfg := unifiedConfig(t, two(t, idle), onDirect{&paged{hints: func(*policies.Nominal) []policies.Action {
			return []policies.Action{at(policies.Evict, 1, policies.SSDTier), at(policies.Prefetch, 3, policies.SSDTier)}
		}}})
		cfg.Unified.Device = 4 * 40960 // room for what comes back beside the largest working set
		return cfg
	}
	r, err := eager.Run(config())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Violations) > 0 || r.OOM != nil {
		t.Fatal(r.Violations, r.OOM)
	}
	if p := checkPages(t, config(), r, config().Unified.Device); !slices.ContainsFunc(p.levels, func(c eager.Counters) bool {
		return c == eager.Counters{Allocated: 40960, Active: 40960, Reserved: 40960, SSD: 40960}
	}) {
		t.Errorf("levels %+v, want one tensor on each side at some time", p.levels)
	}
	it := r.Iterations[2]
	if it.OutBytes != 40960 || it.SSDOut != 40960 || it.InBytes != 40960 || it.SSDIn != 40960 || it.Span != 3*sim.Millisecond+20*us {
		t.Errorf("third iteration: %+v, want one tensor out and in beside the kernels", it)
	}
	if p := r.Ranks[0].Memory.Allocated.Peak; p != 2*40960 {
		t.Errorf("peak %d, want two tensors", p)
	}
	for asBuilt, fits := range map[bool]bool{false: false, true: true} { // four times the addresses, and no other bound
		cfg := config()
		cfg.Unified.Device, cfg.DirectAsBuilt = 60000, asBuilt
		if r, err := eager.Run(cfg); err != nil || (r.OOM == nil) != fits {
			t.Errorf("60,000 bytes, as built %v: %v, %v", asBuilt, r.OOM, err)
		} else if c := r.OOM; c != nil && (c.Cause.LargestFree == 0 || c.Cause.LargestFree >= c.Cause.Requested || c.Cause.LargestFree > c.Cause.Free() || c.Cause.Capacity != 60000) {
			t.Errorf("60,000 bytes: %+v", c.Cause)
		}
	}
}

// A flat buffer that no operator touches stays on the device: a trace says that
// it is there, not what it is for.
func TestUnifiedUnmoved(t *testing.T) {
	unknown := tensor(10 * 4096)
	unknown.Flat = true
	job, err := eagertest.NewScript([][]workloads.Storage{{unknown, unknown}}, func(_ int, b *workloads.Builder, names *workloads.Names) {
		x := b.New(tensor(20 * 4096))
		b.Op(eagertest.Kernel(names, "k", us), workloads.In(1), workloads.Out(x)) // the second one is known
		b.Drop(x)
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := unifiedConfig(t, job, &paged{})
	for _, c := range []struct {
		pages sim.Bytes
		fits  bool
	}{{39, false}, {40, true}, {10, false}, {1, false}} {
		cfg.Unified.Device = c.pages * 4096
		p := &pages{}
		cfg.Observers = []eager.Observer{p}
		r, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if (r.OOM == nil) != c.fits {
			t.Errorf("%d pages: out of memory: %v", c.pages, r.OOM)
		}
		if c.fits && r.Ranks[0].Memory.Allocated.Peak != int64(c.pages)*4096 {
			t.Errorf("%d pages: %d bytes at the peak", c.pages, r.Ranks[0].Memory.Allocated.Peak)
		}
		if c.fits { // not also where a checkpoint is loaded to
			if l := p.levels[len(p.levels)-1]; l.Host+l.SSD > 0 {
				t.Errorf("%d pages: %+v at the end, want nothing outside", c.pages, l)
			}
		}
		if o := r.OOM; o != nil && (o.Cause.Capacity != c.pages*4096 || o.Cause.Allocated > o.Cause.Capacity || o.Cause.Requested <= o.Cause.Free()) {
			t.Errorf("%d pages: %+v", c.pages, o.Cause)
		}
	}
}
