package experiments

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/remat"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/eager/unified"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/policies/registry"
	"smartswap/profilers"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
)

// Simulator is the Runner of the command: it looks names up, builds the job
// and runs it.
type Simulator struct {
	mu     sync.Mutex
	nodes  map[string]*hw.Node // by [node] table; read-only once they are here
	traces map[string]*openTrace
	bounds map[string]*boundOnce
	checks bool // runs check the invariants, and fail when one is broken
}

// openTrace is a trace as it was read.
type openTrace struct {
	workload workloads.Workload
	report   trace.Report
}

// boundOnce computes the bounds of one job once.
type boundOnce struct {
	sync.Once
	time   sim.Time
	memory sim.Bytes // peak of live bytes without a policy, in blocks
	live   sim.Bytes // the same without rounding
	pinned sim.Bytes // what no policy may move
	err    error
}

// NewSimulator makes a Simulator.
func NewSimulator() *Simulator {
	return &Simulator{nodes: map[string]*hw.Node{}, traces: map[string]*openTrace{}, bounds: map[string]*boundOnce{}}
}

// node is the node that a [node] table describes, shared and read-only.
func (s *Simulator) node(table map[string]any) (*hw.Node, error) {
	key := fmt.Sprint(leaves(nil, table))
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.nodes[key]; ok {
		return n, nil
	}
	n, err := loadNode(table)
	if err == nil {
		s.nodes[key] = n
	}
	return n, err
}

// loadNode reads a [node] table.
func loadNode(table map[string]any) (*hw.Node, error) {
	name, ok := table["name"].(string)
	if !ok {
		return nil, &keyError{"node.name", fmt.Sprintf(": missing; want a string, such as %q", "910b2-8")}
	}
	n, err := hw.Load(name)
	if err != nil {
		return nil, &keyError{"node.name", ": " + err.Error()} // which names it
	}
	for _, l := range leaves(nil, table) {
		key := strings.Join(l.path, ".")
		if key == "name" {
			continue
		}
		if err := n.Set(key, plain(l.value)); err != nil {
			return nil, &keyError{"node." + key, fmt.Sprintf(" = %s: %v", show(l.value), err)}
		}
	}
	if err := n.Validate(); err != nil {
		return nil, &keyError{"node", ": " + err.Error()}
	}
	return n, nil
}

// Devices implements Runner.
func (s *Simulator) Devices(table map[string]any) (int, error) {
	n, err := s.node(table)
	if err != nil {
		return 0, err
	}
	return n.Devices, nil
}

// Check implements Runner.
func (s *Simulator) Check(p *Point) error {
	node, err := s.node(p.Node)
	if err != nil {
		return err
	}
	policy, profiler, err := p.policy()
	if err != nil {
		return err
	}
	if err := policy.Needs().Check(profiler.Fields(), policies.Static); err != nil {
		return &keyError{"strategy.profiler", fmt.Sprintf(" = %q: %v", p.Strategy.Profiler, err)}
	}
	for _, c := range []struct {
		key string
		err error
	}{
		{"allocator", p.Allocator.Validate()},
		{"pinned", p.Pinned.Validate()},
		{"executor", p.Executor.Validate()},
	} {
		if c.err != nil {
			return &keyError{c.key, ": " + c.err.Error()}
		}
	}
	if p.Workload.Kind == "trace" {
		switch {
		case len(p.Variation) > 0:
			return &keyError{"variation", ": a trace is as it was recorded; only a decoder can vary"}
		case p.Strategy.ZeRO != 1:
			return &keyError{"strategy.zero", fmt.Sprintf(" = %d: want 1; a trace is as it was recorded", p.Strategy.ZeRO)}
		}
		t, err := s.trace(p)
		if err != nil {
			return err
		}
		for _, r := range t.workload.Ranks() {
			if len(r.Devices) == 0 {
				continue // the run says so
			}
			if d := slices.Max(r.Devices); d >= node.Devices {
				return &keyError{"node.name", fmt.Sprintf(": node %s has %d devices, the trace %s has ranks on devices up to %d", node.Name, node.Devices, t.workload.Name(), d)}
			}
		}
		if p.Strategy.AllLayouts || p.Strategy.Layouts != nil {
			return &keyError{"strategy.layouts", ": a trace is as it was recorded; only a decoder has layouts"}
		}
		return nil
	}
	m, err := p.model()
	if err != nil {
		return err
	}
	if _, err := p.processes(); err != nil {
		return err
	}
	for _, r := range p.Strategy.Recompute {
		if _, err := parseRecompute(r, m.Layers); err != nil {
			return &keyError{"strategy.recompute", fmt.Sprintf(" = %q: %v", r, err)}
		}
	}
	for _, l := range p.Strategy.Layouts {
		if l.TP*l.PP*l.DP != int64(node.Devices) {
			return &keyError{"strategy.layouts", fmt.Sprintf(" = [%q]: want a product of %d, the devices of node %s", l, node.Devices, node.Name)}
		}
	}
	_, err = p.decoder(node, p.sequences())
	return err
}

// policy makes the point's policy and profiler.
func (p *Point) policy() (policies.Policy, profilers.Profiler, error) {
	registration, err := registry.Lookup(p.Strategy.Policy)
	if err != nil {
		return nil, nil, &keyError{"strategy.policy", fmt.Sprintf(" = %q: %v", p.Strategy.Policy, err)}
	}
	policy, err := registration.New(policies.Params(p.Strategy.Options))
	if err != nil {
		return nil, nil, &keyError{"strategy.options", ": " + err.Error()}
	}
	profiler, err := p.profiler()
	return policy, profiler, err
}

// model is the point's model. With another hidden size heads keep their width,
// and the widths that follow from it their proportions, the feed-forward part's
// rounded up to a multiple of ffnMultiple.
func (p *Point) model() (workloads.Model, error) {
	w := &p.Workload
	if w.Shape != nil {
		return *w.Shape, nil
	}
	m, err := workloads.LookupModel(w.Model)
	if err != nil {
		return m, &keyError{"workload.model", fmt.Sprintf(" = %q: %v", w.Model, err)}
	}
	if w.Layers > 0 {
		m.Layers = int(w.Layers)
		m.Name = fmt.Sprintf("%s with %d layers", m.Name, m.Layers)
	}
	if w.Hidden > 0 {
		hidden := int(w.Hidden)
		if hidden%m.HeadDim != 0 {
			return m, &keyError{"workload.hidden", fmt.Sprintf(" = %d: want a multiple of the head width %d of %s", hidden, m.HeadDim, m.Name)}
		}
		const ffnMultiple = 256
		heads := hidden / m.HeadDim
		m.KVHeads = max(1, heads*m.KVHeads/m.Heads)
		m.FFN = (m.FFN*hidden + m.Hidden*ffnMultiple - 1) / (m.Hidden * ffnMultiple) * ffnMultiple
		m.Heads, m.Hidden = heads, hidden
		m.Name = fmt.Sprintf("%s, hidden %d", m.Name, hidden)
	}
	return m, nil
}

// parseRecompute reads none, selective, activation-function, full, block-N or
// block-A/B: the first N layers, or that share (rounded up), of each stage.
func parseRecompute(s string, layers int) (workloads.Recompute, error) {
	switch s {
	case "none", "selective", "activation-function":
		return workloads.Recompute{Kind: workloads.RecomputeKind(s)}, nil
	case "full":
		return workloads.Recompute{Kind: workloads.FullUniform, N: 1}, nil
	}
	var n, of int
	if c, err := fmt.Sscanf(s, "block-%d/%d", &n, &of); c == 2 && err == nil && s == fmt.Sprintf("block-%d/%d", n, of) && 0 < n && n <= of && of <= maxLayers {
		return workloads.Recompute{Kind: workloads.FullBlock, N: (layers*n + of - 1) / of}, nil
	}
	if c, err := fmt.Sscanf(s, "block-%d", &n); c == 1 && err == nil && s == fmt.Sprintf("block-%d", n) && 0 < n && n <= layers {
		return workloads.Recompute{Kind: workloads.FullBlock, N: n}, nil
	}
	return workloads.Recompute{}, fmt.Errorf("allowed: none, selective, activation-function, full, block-N with N from 1 to %d, block-A/B with A <= B <= %d", layers, maxLayers)
}

// decoder is the point's job; global is the number of sequences per step.
func (p *Point) decoder(node *hw.Node, global int64) (workloads.Config, error) {
	w := &p.Workload
	m, err := p.model()
	if err != nil {
		return workloads.Config{}, err
	}
	c := workloads.Config{
		Model: m, Seq: int(w.Seq), MicroBatch: int(p.MicroBatch), GlobalBatch: int(global),
		TP: int(p.Layout.TP), PP: int(p.Layout.PP), DP: int(p.Layout.DP), Devices: node.Devices,
		VPP: p.vpp(), SequenceParallel: w.SequenceParallel, ZeRO: int(p.Strategy.ZeRO), Replicated: p.Strategy.ZeRO == 0,
		Framework: workloads.Framework(w.Framework),
		SaveRule:  workloads.SaveRule(w.Save), Attention: workloads.AttentionKind(w.Attention),
		Unfold: !w.Fold,
	}
	if m.Layers%c.PP == 0 {
		if c.Recompute, err = parseRecompute(p.Recompute, m.Layers/c.PP); err != nil {
			return c, &Impossible{fmt.Sprintf("recompute %s: %v", p.Recompute, err)}
		}
	}
	if c.Processes, err = p.processes(); err != nil {
		return c, err
	}
	if err := c.Check(); err != nil {
		return c, &Impossible{err.Error()}
	}
	return c, nil
}

// vpp is the number of model chunks per pipeline stage: there are several only
// where there is a pipeline.
func (p *Point) vpp() int {
	if p.Layout.PP == 1 {
		return 1
	}
	return int(p.Strategy.VPP)
}

// workload builds the point's job.
func (s *Simulator) workload(p *Point, node *hw.Node) (workloads.Workload, error) {
	if p.Workload.Kind == "trace" {
		t, err := s.trace(p)
		if err != nil {
			return nil, err
		}
		return workloads.Jitter(t.workload, p.Workload.Jitter, uint64(p.Seed)), nil
	}
	c, err := p.decoder(node, p.sequences())
	if err != nil {
		return nil, err
	}
	return workloads.New(c)
}

// policyOptions are those of the strategy, with the point's seed for a policy that
// draws at random with them and is given none.
func (p *Point) policyOptions(r policies.Registration) policies.Params {
	options := maps.Clone(policies.Params(p.Strategy.Options))
	if _, given := options["seed"]; !given && r.Seeded != nil && r.Seeded(options) {
		if options == nil {
			options = policies.Params{}
		}
		options["seed"] = p.Seed
	}
	return options
}

// tracePath is a path of the file, relative to its folder.
func (p *Point) tracePath(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(p.Dir, path)
}

// Bound implements Runner. The bounds of a job do not depend on policy, host
// link or allocator, so strategies share them.
func (s *Simulator) Bound(p *Point) (Bounds, error) {
	node, err := s.node(p.Node)
	if err != nil {
		return Bounds{}, err
	}
	w := p.Workload
	kind, err := p.memory()
	if err != nil {
		return Bounds{}, err
	}
	key, err := digest(node.Device, node.Fabric, node.Devices, w, p.Variation, p.Seed, p.Layout, p.Recompute, p.MicroBatch, p.Strategy.ZeRO, p.Strategy.VPP)
	if err != nil {
		return Bounds{}, err
	}
	s.mu.Lock()
	once, ok := s.bounds[key]
	if !ok {
		once = &boundOnce{}
		s.bounds[key] = once
	}
	s.mu.Unlock()
	once.Do(func() { once.err = s.compute(once, p, node) })
	if once.err != nil {
		return Bounds{}, once.err
	}
	b := Bounds{Time: once.time, Memory: once.memory, Capacity: node.Device.Capacity()}
	if p.HBMPercent > 0 {
		b.Capacity = once.live * sim.Bytes(p.HBMPercent) / 100
	}
	if p.Allocator.Exact {
		b.Memory = once.live
	}
	switch {
	case p.Strategy.Ideal:
		b.Capacity = 0
	case p.Strategy.Policy != "none":
		b.Memory = once.pinned
		if kind != policies.Framework {
			b.Memory = 0
		}
	}
	return b, nil
}

// compute finds the bounds of a job on a short program: after the pipeline has
// filled, each further micro-batch adds the same time, so that two lengths
// give all of them, and no memory. See TestBoundsExtend, which holds this
// against whole programs.
func (s *Simulator) compute(b *boundOnce, p *Point, node *hw.Node) error {
	if p.Workload.Kind == "trace" {
		t, err := s.trace(p)
		if err != nil {
			return err
		}
		return b.whole(node, workloads.Jitter(t.workload, p.Workload.Jitter, uint64(p.Seed)))
	}
	c, err := p.decoder(node, p.sequences())
	if err != nil {
		return err
	}
	if len(c.Processes) > 0 {
		// Of iterations that vary, the first is as good a bound of memory as
		// any; how short they may get is not known.
		w, err := workloads.New(c)
		if err != nil {
			return err
		}
		err = b.whole(node, w)
		b.time = 0
		return err
	}
	perMicro := c.MicroBatch * c.DP
	micros := c.GlobalBatch / perMicro
	short := c.PP + 1                   // a full pipeline and one more
	if c.VPP > 1 || micros <= short+1 { // with model chunks micro-batches come in groups
		w, err := workloads.New(c)
		if err != nil {
			return err
		}
		return b.whole(node, w)
	}
	var spans [2]sim.Time
	for i := range spans {
		c.GlobalBatch = (short + i) * perMicro
		w, err := workloads.New(c)
		if err != nil {
			return err
		}
		if err := b.whole(node, w); err != nil {
			return err
		}
		spans[i] = b.time
	}
	b.time = spans[0] + sim.Time(micros-short)*(spans[1]-spans[0])
	return nil
}

// whole takes the bounds of the program as it is.
func (b *boundOnce) whole(node *hw.Node, w workloads.Workload) error {
	found, err := eager.NewBounds(node, w, 0)
	if err != nil {
		return err
	}
	b.time, b.memory, b.live, b.pinned = found.Time, found.Memory, found.Live, 0
	for _, r := range w.Ranks() {
		var flat sim.Bytes
		for i := range r.Residents {
			if r.Residents[i].Flat {
				flat += r.Residents[i].Bytes
			}
		}
		b.pinned = max(b.pinned, flat)
	}
	return nil
}

// Key implements Runner. What the outcome cannot depend on is left out, so that
// cells which differ in nothing else share a run: the host link and the planner
// where nothing is ever copied.
func (s *Simulator) Key(p *Point) (string, error) {
	node, err := s.node(p.Node)
	if err != nil {
		return "", err
	}
	bare := *node
	bare.Name, bare.Source = "", nil
	_, profiler, err := p.policy()
	if err != nil {
		return "", err
	}
	setup := p.settled().Setup
	setup.Node, setup.Profilers, setup.Search = nil, nil, Search{}
	setup.Replications = 1
	setup.Strategy = Strategy{Policy: p.Strategy.Policy, Options: p.Strategy.Options, AlwaysProfile: p.Strategy.AlwaysProfile, VPP: p.Strategy.VPP, ZeRO: p.Strategy.ZeRO, Ideal: p.Strategy.Ideal}
	if p.Strategy.Ideal {
		setup.HBMPercent = 0
	}
	if p.Strategy.Policy == "none" {
		bare.Link = hw.Link{}
		setup.Executor, setup.Pinned = swap.Options{}, alloc.PinnedOptions{}
		if !p.Strategy.AlwaysProfile {
			profiler = nil
		}
	}
	kind, err := p.memory()
	if err != nil {
		return "", err
	}
	if kind == policies.Framework {
		setup.Unified, setup.DirectAsBuilt = unified.Options{}, false
	}
	content := ""
	if p.Workload.Kind == "trace" {
		if content, err = p.traceDigest(); err != nil {
			return "", err
		}
	}
	return digest(bare, setup, profiler, p.Dir, content, p.Layout, p.Recompute, p.MicroBatch, p.Repeat, p.Passes)
}

// digest hashes values by their JSON form, in which map keys are sorted.
func digest(values ...any) (string, error) {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(values); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// settled is p with no more iterations than tell anything new. Without a
// policy and without variation every iteration dispatches the same program, and
// from the third on finds the allocator as the one before did.
func (p *Point) settled() *Point {
	if p.Strategy.Policy != "none" || len(p.Variation) > 0 {
		return p
	}
	q := *p
	q.Warmup = min(p.Warmup, 2)
	q.Iterations = min(p.Iterations, q.Warmup+2)
	return &q
}

// Run implements Runner.
func (s *Simulator) Run(p *Point) (*Outcome, error) { return s.Observe(p) }

// Observe is Run under the eyes of observers, which change nothing.
func (s *Simulator) Observe(p *Point, observers ...eager.Observer) (*Outcome, error) {
	p = p.settled()
	node, err := s.node(p.Node)
	if err != nil {
		return nil, err
	}
	w, err := s.workload(p, node)
	if err != nil {
		return nil, err
	}
	if p.Repeat > 0 {
		w = workloads.Repeat(w, int(p.Repeat-1))
	}
	registration, err := registry.Lookup(p.Strategy.Policy)
	if err != nil {
		return nil, err
	}
	policy, profiler, err := p.policy()
	if err != nil {
		return nil, err
	}
	layers := 0 // unknown for traces
	if p.Workload.Kind == "decoder" {
		m, err := p.model()
		if err != nil {
			return nil, err
		}
		layers = m.Layers / int(p.Layout.PP)
	}
	var passes *passObserver
	if p.Passes {
		passes = &passObserver{warmup: int(p.Warmup)}
		observers = append(slices.Clone(observers), passes)
	}
	var hbm sim.Bytes // the node's
	if p.HBMPercent > 0 && !p.Strategy.Ideal {
		b, err := s.Bound(p)
		if err != nil {
			return nil, err
		}
		hbm = b.Capacity
	}
	report, err := eager.Run(eager.Config{
		Node: node, Workload: w, Profiler: profiler, AlwaysProfile: p.Strategy.AlwaysProfile,
		NewPolicy: func() (policies.Policy, error) {
			return registration.New(p.policyOptions(registration))
		},
		Allocator: p.Allocator, Pinned: p.Pinned, Executor: p.Executor, Unified: p.Unified, DirectAsBuilt: p.DirectAsBuilt,
		Unbounded: p.Strategy.Ideal, HBM: hbm, HostNone: p.Host == "none",
		Iterations: int(p.Iterations), Warmup: int(p.Warmup), Layers: layers,
		Limits:      sim.Limits{Events: maxEvents},
		Fingerprint: true, Observers: observers, Checks: s.checks,
	})
	if err != nil {
		return nil, err
	}
	if len(report.Violations) > 0 {
		return nil, fmt.Errorf("%v: %s", p, strings.Join(report.Violations, "; "))
	}
	o := outcome(report, p, w, registration.Grade)
	if o.Tokens, err = tokens(w, int(p.Warmup), len(report.Iterations)); err != nil {
		return nil, err
	}
	if p.Workload.Kind == "trace" {
		t, err := s.trace(p)
		if err != nil {
			return nil, err
		}
		t.label(o)
	}
	if l := policy.Needs().Lineage; l.Keep && !l.Communication {
		again, err := anyAgain(w, int(p.Iterations))
		if err != nil {
			return nil, err
		}
		if !again {
			o.Complaints = append(o.Complaints, nothingAgain)
		}
	}
	if passes != nil {
		o.Passes = passes.ranks
		for i := range o.Passes {
			o.Passes[i].Forward /= sim.Time(p.Iterations - p.Warmup)
			o.Passes[i].Backward /= sim.Time(p.Iterations - p.Warmup)
		}
		for i := range report.Ranks {
			o.Allocated = append(o.Allocated, sim.Bytes(report.Ranks[i].Steady.Allocated.Peak))
		}
	}
	if p.Strategy.AlwaysProfile {
		o.Records = profiler.Fields().String()
	}
	if p.Series {
		if o.Iterations, err = series(report, w); err != nil {
			return nil, err
		}
		if notes := report.Ranks[0].Notes; notes != nil {
			d := profilers.Score(sequenceKinds(o.Iterations), policies.Alarms(notes))
			o.Detection = &d
		}
	}
	return o, nil
}

// nothingAgain is the complaint of a policy that discards what can be made again.
const nothingAgain = "recomputes nothing, since the job says of no operator that it may run again"

// anyAgain tells whether some operator of the iterations makes something that can
// be made again.
func anyAgain(w workloads.Workload, iterations int) (bool, error) {
	for i := range iterations {
		for r := range w.Ranks() {
			p, err := w.Program(r, i)
			if err != nil || remat.Any(p) {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// tokens is the number of tokens of an iteration, the mean over iterations from
// to until where they differ.
func tokens(w workloads.Workload, from, until int) (int64, error) {
	counter, varies := w.(workloads.TokenCounter)
	if !varies || until <= from {
		return w.Tokens(), nil
	}
	sum := int64(0)
	for i := from; i < until; i++ {
		n, err := counter.TokensIn(i)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum / int64(until-from), nil
}

// series reads the iterations of a report.
func series(r *eager.Report, w workloads.Workload) ([]IterationOutcome, error) {
	compared, err := sequences(w, len(r.Iterations))
	if err != nil {
		return nil, err
	}
	list := make([]IterationOutcome, len(r.Iterations))
	for i := range list {
		it := &r.Iterations[i]
		list[i] = IterationOutcome{
			Kind: it.Kind, Span: it.Span, Evictions: it.Evictions, Faults: it.Faults, PlannedOuts: it.PlannedOuts,
			OutBytes: it.OutBytes, InBytes: it.InBytes, Sequence: compared[i],
		}
	}
	return list, nil
}

// maxEvents ends a run that would not end: a hundred times the largest in the
// shipped experiments.
const maxEvents = 10_000_000_000

// outcome reads a report.
func outcome(r *eager.Report, p *Point, w workloads.Workload, grade policies.Grade) *Outcome {
	o := &Outcome{Time: r.Steady, Grade: grade.String(), Ops: r.Ops, Events: r.Events, Fingerprint: r.Fingerprint}
	o.Completed = int64(len(r.Iterations))
	o.OpsPerIteration = float64(r.Ops) / float64(max(1, len(r.Iterations))) / float64(len(r.Ranks))
	o.PeakAllocated = sim.Bytes(r.Peak(func(r *eager.RankReport) int64 { return r.Memory.Allocated.Peak }))
	o.PeakReserved = sim.Bytes(r.Peak(func(r *eager.RankReport) int64 { return r.Memory.Reserved.Peak }))
	reserved := sim.Bytes(-1) // peak of the ranks so far
	for i := range r.Ranks {
		rank := &r.Ranks[i]
		m := &rank.Memory
		o.Allocator = o.Allocator.worst(AllocatorOutcome{
			Active: sim.Bytes(m.Active.Peak), Requested: sim.Bytes(m.Requested.Peak), Pending: sim.Bytes(m.Pending.Peak),
			InactiveSplit: sim.Bytes(m.InactiveSplit.Peak), LargestFree: sim.Bytes(m.LargestFree),
			Segments: m.Segments.Peak, DriverAllocs: m.DriverAllocs, DriverFrees: m.DriverFrees, Retries: m.Retries,
			Driver: rank.Driver, DriverWait: rank.Host.Wait[eager.DriverSync],
		}, reserved, sim.Bytes(m.Reserved.Peak))
		reserved = max(reserved, sim.Bytes(m.Reserved.Peak))
		o.Devices += int64(len(rank.Devices))
		o.PeakHost += rank.HostPeak * sim.Bytes(len(rank.Devices))
		o.HostBusy += rank.Host.Busy / sim.Time(int(p.Iterations)*len(r.Ranks))
	}
	o.First, o.Last = peaks(&r.Ranks[0]), peaks(&r.Ranks[len(r.Ranks)-1])
	if r.OOM != nil {
		o.OOM = &OOM{
			Rank: r.OOM.Rank, Iteration: r.OOM.Iteration, Operator: r.OOM.Op,
			Requested: r.OOM.Cause.Requested, Free: r.OOM.Cause.Free(), Capacity: r.OOM.Cause.Capacity,
			LargestFree: r.OOM.Cause.LargestFree,
		}
		if l := r.OOM.Limit; l != nil {
			o.OOM.Rematerialized, o.OOM.Allowed, o.OOM.Free = l.Time, l.Allowed, 0
		}
		return o
	}
	steady := sim.Time(p.Iterations - p.Warmup)
	ranks := sim.Time(len(r.Ranks))
	for i := range r.Ranks {
		lane := &r.Ranks[i].Lanes[workloads.Compute]
		o.Busy += lane.Busy / steady / ranks
		for cause := range stream.NumCauses {
			o.Stalls[cause] += lane.Wait[cause] / steady / ranks
		}
	}
	// Bytes and counts of an iteration are summed over simulated ranks.
	for i, it := range r.Iterations[p.Warmup:] {
		if i == 0 || it.Span < o.Fastest {
			o.Fastest = it.Span
		}
		o.OutBytes += it.OutBytes
		o.InBytes += it.InBytes
		o.SSDOut += it.SSDOut
		o.SSDIn += it.SSDIn
		for t := range it.OutByType {
			o.OutByType[t] += it.OutByType[t]
		}
		o.Evictions += it.Evictions
		o.Faults += it.Faults
		o.RematOps += it.Replays.Ops
		o.RematTime += it.Replays.Time
	}
	o.OutBytes /= sim.Bytes(steady * ranks)
	o.InBytes /= sim.Bytes(steady * ranks)
	o.SSDOut /= sim.Bytes(steady * ranks)
	o.SSDIn /= sim.Bytes(steady * ranks)
	for t := range o.OutByType {
		o.OutByType[t] /= sim.Bytes(steady * ranks)
	}
	o.Evictions /= int64(steady)
	o.Faults /= int64(steady)
	o.RematOps /= int64(steady)
	o.RematTime /= steady * ranks
	return o
}

// peaks are those of one rank.
func peaks(r *eager.RankReport) Peaks {
	return Peaks{sim.Bytes(r.Steady.Allocated.Peak), sim.Bytes(r.Steady.Reserved.Peak)}
}

// trace reads the trace that a point names, once: a workload serves many runs.
func (s *Simulator) trace(p *Point) (*openTrace, error) {
	w := &p.Workload
	path := p.tracePath(w.Trace)
	opt := trace.Options{
		Network: w.Network, Batch: int(w.Batch), Net: p.tracePath(w.Net), Scratch: p.tracePath(w.Scratch),
		Step: w.Step, Member: w.Member, Kineto: p.tracePath(w.Kineto), KinetoMember: w.KinetoMember, NoGaps: !w.Gaps,
	}
	key := fmt.Sprint(path, opt)
	s.mu.Lock()
	defer s.mu.Unlock()
	if open, ok := s.traces[key]; ok {
		return open, nil
	}
	open, report, err := trace.Open(path, opt)
	if err != nil {
		return nil, &keyError{"workload.trace", ": " + err.Error()} // which names it
	}
	t := &openTrace{open, report}
	s.traces[key] = t
	return t, nil
}

// label says in o what the reader did to the trace beside reading it.
func (t *openTrace) label(o *Outcome) {
	for _, n := range t.report.Notes {
		switch n.Kind {
		case trace.Inferred:
			o.Inferred++
		case trace.Repaired:
			o.Repaired++
		case trace.Skipped:
			o.Skipped++
		}
		n.Where = filepath.Base(n.Where)
		o.Notes = append(o.Notes, n.String())
	}
}

// traceDigest identifies the content of the trace's files.
func (p *Point) traceDigest() (string, error) {
	h := sha256.New()
	for _, path := range []string{p.Workload.Trace, p.Workload.Net, p.Workload.Scratch, p.Workload.Kineto} {
		if path == "" {
			continue
		}
		if err := hashFiles(h, p.tracePath(path)); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashFiles adds the content of a file, or of all files of a folder in the
// order of their names, to h.
func hashFiles(h io.Writer, path string) error {
	return filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(h, f)
		return errors.Join(err, f.Close())
	})
}
