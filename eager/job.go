package eager

import (
	"fmt"
	"slices"
	"strings"

	"smartswap/eager/alloc"
	"smartswap/eager/check"
	"smartswap/eager/remat"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
	"smartswap/workloads"
)

// job is one run.
type job struct {
	cfg      *Config
	eng      *sim.Engine
	share    *sim.Share
	machine  *hw.Machine
	fabric   *stream.Fabric
	node     hw.Node // with host costs removed for HostNone
	light    profilers.Profiler
	ranks    []*rank
	prepared map[*workloads.Program]*prepared
	groups   map[string]int32

	iterations []Iteration
	passing    []int // ranks that have passed the end of iteration i on the device
	oom        *OutOfMemory
	err        error
	violations []string
}

// prepared is what a program needs on this node, by kernel.
type prepared struct {
	commands     []stream.Command
	communicates bool // any of them
}

// Run simulates a job. An error means that the configuration cannot be run or
// that the run broke; running out of memory is an outcome, in the report.
func Run(cfg Config) (*Report, error) {
	j, err := newJob(&cfg)
	if err != nil {
		return nil, err
	}
	for _, r := range j.ranks {
		r.start()
	}
	if err := j.eng.Run(); err != nil {
		return nil, fmt.Errorf("run of %s: %w", cfg.Workload.Name(), err)
	}
	if j.err != nil {
		return nil, j.err
	}
	j.starve()
	if j.oom == nil {
		if err := j.stuck(); err != nil {
			return nil, err
		}
	}
	return j.report(), nil
}

func newJob(cfg *Config) (*job, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	light, err := profilers.Lookup("lightweight")
	if err != nil {
		return nil, err
	}
	j := &job{
		cfg: cfg, eng: sim.NewEngine(), node: *cfg.Node, light: light,
		prepared: make(map[*workloads.Program]*prepared), groups: make(map[string]int32),
		iterations: make([]Iteration, cfg.Iterations), passing: make([]int, cfg.Iterations),
	}
	if cfg.HostNone {
		j.node.Host = hw.Host{LaunchQueue: cfg.Node.Host.LaunchQueue, Memory: cfg.Node.Host.Memory, Pinned: cfg.Node.Host.Pinned, NUMA: cfg.Node.Host.NUMA, NUMABandwidth: cfg.Node.Host.NUMABandwidth}
		j.light = nil
	}
	j.eng.SetLimits(cfg.Limits)
	if cfg.Fingerprint {
		j.eng.EnableFingerprint()
	}
	j.share = sim.NewShare(j.eng)
	j.fabric = stream.NewFabric(j.eng)
	j.fabric.Mismatch = func(a, b int) {
		j.fail(fmt.Errorf("ranks %d and %d meet for different operators: collectives run again (replay_communication) only where ranks of a stage are alike in everything", a, b))
	}
	ranks := cfg.Workload.Ranks()
	slots := make([]hw.Slot, len(ranks))
	for i, r := range ranks {
		slots[i].Devices = r.Devices
	}
	if j.machine, err = hw.NewMachine(j.eng, j.share, &j.node, slots); err != nil {
		return nil, err
	}
	j.machine.OnStart(func(slot int, c hw.Copy) { j.ranks[slot].dev.CopyStarted(c) })
	if cfg.Checks {
		j.watchEngines()
	}
	for i := range ranks {
		r, err := j.newRank(i, &ranks[i])
		if err != nil {
			return nil, err
		}
		j.ranks = append(j.ranks, r)
	}
	return j, nil
}

func (j *job) newRank(i int, d *workloads.Rank) (*rank, error) {
	cfg := j.cfg
	r := &rank{
		job: j, index: i, eng: j.eng, costs: &j.node.Host, ready: alloc.NoBlock, frame: frame{scratch: alloc.NoBlock},
		names: new(profilers.Names), residents: len(d.Residents), reason: swap.Ordered, created: make(map[swap.Identity]int32),
		slots: j.node.Host.TaskQueue, depth: j.node.Host.LaunchQueue,
	}
	r.self = j.eng.Register(r)
	r.dev = stream.New(j.eng, j.share, j.machine, j.fabric, j.node.Device.Beside, i, i, r)
	var err error
	if r.policy, err = cfg.NewPolicy(); err != nil {
		return nil, err
	}
	r.needs = r.policy.Needs()
	if err := cfg.admit(r.needs); err != nil {
		return nil, err
	}
	capacity := cfg.capacity()
	if r.needs.Memory != policies.Framework {
		capacity = 0 // the allocator hands out addresses
		if r.paged, err = r.newPaged(d); err != nil {
			return nil, err
		}
	}
	if r.mem, err = alloc.New(cfg.Allocator, capacity, r); err != nil {
		return nil, err
	}
	r.fits = r.mem.(alloc.Fitter)
	if r.pool, err = alloc.NewPinned(cfg.Pinned, j.node.Host.Pinned/sim.Bytes(max(1, j.node.Devices))); err != nil {
		return nil, err
	}
	if r.needs.Lineage.Keep {
		r.lineage = new(remat.Lineage)
	}
	r.recorder = profilers.NewRecorder(r.names, cfg.Layers)
	var watch watchers
	if cfg.Checks {
		r.check = check.NewMemory(i, r.mem, j.eng.Now, j.violate)
		watch = append(watch, r.check)
	}
	if r.obs = newObservation(r, d.Devices); r.obs != nil {
		watch = append(watch, r.obs)
	}
	r.x = swap.New(cfg.Executor, r.costs, r.dev, r.mem, r.pool, r, watch.watcher(), r.swapped)
	r.x.Room = max(0, j.node.Host.Memory-j.node.Host.Pinned) / sim.Bytes(max(1, j.node.Devices))
	r.level = policies.Full
	if r.needs.Fields == 0 {
		r.level = policies.Off
	}
	return r, nil
}

// start declares the residents and schedules the dispatching thread, which
// allocates them first.
func (r *rank) start() {
	d := &r.job.cfg.Workload.Ranks()[r.index]
	for i := range d.Residents {
		s := r.newStorage(&d.Residents[i])
		s.Identity.N = int32(i + 1)
		r.storages = append(r.storages, s)
	}
	r.phase = atBirth
	r.eng.At(0, sim.PrioHost, r.self, hostWake)
}

// prepare works out the commands of a program's kernels, once.
func (j *job) prepare(p *workloads.Program) *prepared {
	if w, ok := j.prepared[p]; ok {
		return w
	}
	w := &prepared{commands: make([]stream.Command, len(p.Kernels))}
	for i := range p.Kernels {
		k := &p.Kernels[i]
		c := stream.Command{Kind: stream.Kernel, Family: k.Family}
		switch k.Kind {
		case hw.Modelled, hw.Measured:
			c.Timing = j.node.Device.Timing(k.Work)
		case hw.Collective, hw.Transfer:
			c.Timing.Span = j.node.Fabric.Time(k.Work)
			c.Kind = stream.Solo
			if len(k.Group) > 1 {
				c.Kind, c.Group = stream.Meet, j.group(k)
			}
		}
		w.commands[i] = c
	}
	for i := range p.Instrs {
		if in := &p.Instrs[i]; in.Kind == workloads.Op && in.Kernel >= 0 && communicates(in, &w.commands[in.Kernel]) {
			w.communicates = true
			break
		}
	}
	if len(j.prepared) >= preparedLimit {
		clear(j.prepared)
	}
	j.prepared[p] = w
	return w
}

// preparedLimit bounds what a run remembers of programs, which may be new in
// every iteration; a forgotten one is worked out again.
const preparedLimit = 64

// group numbers the members of a collective or transfer.
func (j *job) group(k *workloads.Kernel) int32 {
	var b strings.Builder
	members := slices.Clone(k.Group)
	slices.Sort(members)
	fmt.Fprint(&b, k.Tag, members)
	g, ok := j.groups[b.String()]
	if !ok {
		g = j.fabric.Group(len(members))
		j.groups[b.String()] = g
	}
	return g
}

// dispatched books what a rank did in the iteration that its host has ended.
func (j *job) dispatched(r *rank) {
	it := &j.iterations[r.iteration]
	s, b := &r.x.Stats, &r.base
	it.Index = r.iteration
	if r.index == 0 {
		it.Kind = r.prog.Kind
	}
	it.Evictions += r.evictions
	it.Faults += s.Ins[swap.Demand] - b.Ins[swap.Demand]
	it.PlannedOuts += s.Outs[swap.Planned] - b.Outs[swap.Planned]
	it.Replays.add(&r.replays)
	it.OutBytes += s.OutBytes - b.OutBytes
	it.InBytes += s.InBytes - b.InBytes
	for t := range it.OutByType {
		it.OutByType[t] += s.OutByType[t] - b.OutByType[t]
	}
}

// passed tells that a rank's compute stream has reached the end of iteration
// i.
func (j *job) passed(r *rank, i int) {
	if r.paged != nil {
		r.settle(&j.iterations[i])
	}
	if i == j.cfg.Warmup-1 {
		r.windowFrom = j.eng.Now()
		for s := range stream.Count {
			r.lanes[s] = r.dev.Lane(s)
		}
	}
	if i == j.cfg.Iterations-1 {
		r.windowTo = j.eng.Now()
		for s := range stream.Count {
			r.lanes[s] = r.dev.Lane(s).Sub(r.lanes[s])
		}
	}
	if j.passing[i]++; j.passing[i] == len(j.ranks) {
		it := &j.iterations[i]
		it.End = j.eng.Now()
		it.Span = it.End
		if i > 0 {
			it.Span -= j.iterations[i-1].End
		}
	}
}

// fail ends the run with an error.
func (j *job) fail(err error) {
	if j.err == nil {
		j.err = err
	}
	j.eng.Stop()
}

// violate notes a broken invariant.
func (j *job) violate(format string, args ...any) {
	if len(j.violations) < 20 {
		j.violations = append(j.violations, fmt.Sprintf(format, args...))
	}
}

// starve ends a run in which nothing happens any more as kernels wait for memory:
// out of memory.
func (j *job) starve() {
	for _, r := range j.ranks {
		if r.paged == nil || j.oom != nil {
			continue
		}
		if err := r.paged.Stuck(); err != nil {
			r.starved(err)
		}
	}
}

// stuck explains why a run ended before its end: ranks that wait for each
// other.
func (j *job) stuck() error {
	for _, r := range j.ranks {
		if r.phase == atHalt && j.passing[j.cfg.Iterations-1] == len(j.ranks) {
			continue
		}
		msg := fmt.Sprintf("run of %s: no event is left, but rank %d is in iteration %d at instruction %d (%s)", j.cfg.Workload.Name(), r.index, r.iteration, r.pc, r.opName())
		if g, here, of, ok := j.fabric.Waiting(); ok {
			msg += fmt.Sprintf("; rendezvous %d has %d of %d members", g, here, of)
		}
		return fmt.Errorf("%s", msg)
	}
	return nil
}

// report gathers the outcome.
func (j *job) report() *Report {
	rep := &Report{OOM: j.oom, Events: j.eng.Events(), Violations: j.violations}
	if j.cfg.Fingerprint {
		rep.Fingerprint = j.eng.Fingerprint()
	}
	for i := range j.iterations {
		if j.passing[i] == len(j.ranks) {
			rep.Iterations = append(rep.Iterations, j.iterations[i])
		}
	}
	if n := len(rep.Iterations); n == j.cfg.Iterations && j.oom == nil {
		from := sim.Time(0)
		if j.cfg.Warmup > 0 {
			from = rep.Iterations[j.cfg.Warmup-1].End
		}
		rep.Steady = (rep.Iterations[n-1].End - from) / sim.Time(n-j.cfg.Warmup)
	}
	ranks := j.cfg.Workload.Ranks()
	for _, r := range j.ranks {
		st := r.mem.Stats()
		out := RankReport{
			Rank: r.index, Devices: ranks[r.index].Devices, Memory: peaks(r.before, st), Steady: st,
			HostPeak: sim.Bytes(r.pool.Stats().Used.Peak), Window: r.windowTo - r.windowFrom, Host: r.host,
			Driver: r.driver + r.x.Stats.Pinning, Swap: r.x.Stats, Replays: r.replaysSoFar(), Ops: r.ops, Recomputed: r.recomputed, Sequence: r.sequence,
		}
		if r.paged != nil {
			r.pagedPeaks(&out)
		}
		if rep.Steady > 0 {
			out.Lanes = r.lanes
		}
		if diary, ok := r.policy.(policies.Reporter); ok {
			out.Notes = diary.Notes()
		}
		for _, s := range r.live {
			if s != nil {
				out.Live++
			}
		}
		out.Live -= r.residents
		rep.Ops += r.ops
		rep.Makespan = max(rep.Makespan, r.dev.Last(), r.host.Done)
		rep.Ranks = append(rep.Ranks, out)
	}
	if j.cfg.Checks && j.oom == nil {
		j.closeBooks(rep)
	}
	return rep
}

// peaks merges the peaks of two windows.
func peaks(before, after alloc.Stats) alloc.Stats {
	if before.Reserved.Peak >= after.Reserved.Peak {
		after.LargestFree = before.LargestFree // of the first that got there
	}
	for _, p := range [...]struct{ a, b *alloc.Stat }{
		{&after.Allocated, &before.Allocated}, {&after.Active, &before.Active}, {&after.Requested, &before.Requested},
		{&after.Reserved, &before.Reserved}, {&after.InactiveSplit, &before.InactiveSplit},
		{&after.Pending, &before.Pending}, {&after.Segments, &before.Segments},
	} {
		p.a.Peak = max(p.a.Peak, p.b.Peak)
	}
	return after
}
