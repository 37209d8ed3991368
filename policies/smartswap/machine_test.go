package smartswap

import (
	"fmt"
	"slices"
	"testing"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/profilers/layered"
	"smartswap/sim"
)

// stub is a runtime that notes what the machine asks for.
type stub struct {
	level   policies.Level
	armed   *policies.Plan
	charged sim.Time
	tensors map[policies.Handle]policies.TensorInfo
	moved   sim.Bytes
	moving  sim.Time
	states  []policies.Handle
	evicted []policies.Handle
	outcome map[policies.Handle]policies.Outcome
}

func (s *stub) Now() sim.Time { return 0 }
func (s *stub) Do(a policies.Action) policies.Outcome {
	h := a.What.Handle
	if o := s.outcome[h]; o != policies.Done {
		return o
	}
	t := s.tensors[h]
	t.OnDevice, t.Evictable = false, false
	s.tensors[h] = t
	s.evicted = append(s.evicted, h)
	return policies.Done
}
func (s *stub) Arm(p *policies.Plan) error { s.armed = p; return nil }
func (s *stub) Observe(l policies.Level)   { s.level = l }
func (s *stub) Charge(c sim.Time)          { s.charged += c }
func (s *stub) Tensor(h policies.Handle) (policies.TensorInfo, bool) {
	t, ok := s.tensors[h]
	return t, ok
}
func (s *stub) Nominal() *policies.Nominal         { return nil }
func (s *stub) OptimizerStates() []policies.Handle { return s.states }
func (s *stub) Moved(bool) (sim.Bytes, sim.Time)   { return s.moved, s.moving }
func (s *stub) Capacity() sim.Bytes                { return 64 * sim.GiB }
func (s *stub) Reserved() sim.Bytes                { return 0 }
func (s *stub) Allocated() sim.Bytes               { return 0 }

// iteration is what a test says about one.
type iteration struct {
	layers    int // 12, unless the sequence is another
	evictions int
	time      sim.Time // 0 = 123 ms
}

// run plays iterations and returns the machine's state after each: phase,
// level, and whether a plan is armed.
func run(p *Policy, rt *stub, script []iteration) []string {
	rt.level = policies.Full
	var states []string
	for i, it := range script {
		c := twelve
		if it.layers > 0 {
			c.Layers = it.layers
		}
		if it.time > 0 {
			c.Duration = it.time
		}
		obs := c.Observation()
		obs.OOM = it.evictions > 0
		switch rt.level {
		case policies.Off:
			obs = nil
		case policies.Light:
			obs = &profilers.Observation{Fields: profilers.OpNames, Sequence: obs.Sequence, Passes: obs.Passes, Duration: obs.Duration}
		}
		p.Handle(&policies.Event{Kind: policies.IterationEnd, Iteration: i, Observation: obs, Evictions: it.evictions}, rt)
		state := p.Phase().String()
		switch rt.level {
		case policies.Full:
			state += " full"
		case policies.Light:
			state += " light"
		}
		if rt.armed != nil {
			state += " armed"
		}
		states = append(states, state)
	}
	return states
}

func check(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// plans counts the plans in a machine's log.
func plans(p *Policy) int {
	n := 0
	for _, d := range p.Log() {
		if d.Planned {
			n++
		}
	}
	return n
}

// TestTimelines are those of the shipped machine: its unit test with a stable
// step of 4, and its default of 3 with a single plan.
func TestTimelines(t *testing.T) {
	o := FaithfulV1()
	o.StableStep = 4
	p := New(o)
	check(t, run(p, &stub{}, make([]iteration, 5)),
		"warm-up full", "searching full armed", "searching full armed", "stable armed", "stable armed")
	if n := plans(p); n != 2 {
		t.Errorf("%d plans, want 2", n)
	}

	p = New(FaithfulV2())
	check(t, run(p, &stub{}, make([]iteration, 4)),
		"warm-up full", "searching full armed", "stable armed", "stable armed")
	if n := plans(p); n != 1 {
		t.Errorf("%d plans, want 1", n)
	}

	p = New(FaithfulV1())
	got := run(p, &stub{}, make([]iteration, 11))
	if n := plans(p); n != 8 || got[8] != "searching full armed" || got[9] != "stable armed" {
		t.Errorf("%d plans, want 8; %q", n, got)
	}
}

// TestShippedStableIsFinal: neither evictions nor another sequence end it.
func TestShippedStableIsFinal(t *testing.T) {
	got := run(New(FaithfulV2()), &stub{}, []iteration{{}, {}, {}, {evictions: 5}, {layers: 6}, {layers: 6, evictions: 9}})
	check(t, got, "warm-up full", "searching full armed", "stable armed", "stable armed", "stable armed", "stable armed")
}

func TestShippedSearchEndsWithTheSequence(t *testing.T) {
	got := run(New(FaithfulV1()), &stub{}, []iteration{{}, {}, {layers: 6}, {layers: 6}, {layers: 6}})
	check(t, got, "warm-up full", "searching full armed", "warm-up full", "warm-up full", "searching full armed")
}

// evicting is an iteration that runs short of memory.
var evicting = iteration{evictions: 3}

func TestDefaultWatches(t *testing.T) {
	o := Default()
	o.Remember = 0
	// Another sequence.
	check(t, run(New(o), &stub{}, []iteration{evicting, evicting, {}, {}, {layers: 6}, {layers: 6}, {layers: 6, evictions: 1}}),
		"warm-up full", "searching full armed", "stable light armed", "stable light armed",
		"warm-up full", "warm-up full", "searching full armed")
	// Evictions: the search goes on, with a larger margin.
	p := New(o)
	check(t, run(p, &stub{}, []iteration{evicting, evicting, {}, {}, evicting, evicting, {}, {}}),
		"warm-up full", "searching full armed", "stable light armed", "stable light armed",
		"searching full armed", "searching full armed", "stable light armed", "stable light armed")
	if p.expected.redundant != o.Redundant+2*o.RedundantStep {
		t.Errorf("margin %v after two iterations with evictions", p.expected.redundant)
	}
	// Evictions, and no plans left to try: the best one stays.
	o.SearchLimit = 1
	check(t, run(New(o), &stub{}, []iteration{evicting, evicting, {}, {}, evicting}),
		"warm-up full", "searching full armed", "stable light armed", "stable light armed", "stable light armed")
}

// TestWarmUpWaitsForASteadySequence: two similar iterations in a row.
func TestWarmUpWaitsForASteadySequence(t *testing.T) {
	script := []iteration{evicting, {layers: 6, evictions: 3}, evicting, evicting}
	check(t, run(New(Default()), &stub{}, script), "warm-up full", "warm-up full", "warm-up full", "searching full armed")
	check(t, run(New(FaithfulV1()), &stub{}, script)[:2], "warm-up full", "searching full armed")
}

// TestNoPlanWithoutNeed: what fits is left alone, by default.
func TestNoPlanWithoutNeed(t *testing.T) {
	check(t, run(New(Default()), &stub{}, make([]iteration, 3)), "warm-up full", "searching full", "stable light")
}

// TestSearchKeepsTheBest: with evictions the search goes on to its limit and
// ends with the plan of the fastest iteration; shipped, it ends with the last.
func TestSearchKeepsTheBest(t *testing.T) {
	o := Default()
	o.SearchLimit = 4
	ms := func(n int64) iteration { return iteration{evictions: 3, time: sim.Time(n) * sim.Millisecond} }
	p, rt := New(o), &stub{}
	script := []iteration{ms(200), ms(200), ms(160), ms(130), ms(140), ms(150)}
	got := run(p, rt, script[:5])
	running := rt.armed
	if got[4] != "searching full armed" || plans(p) != 4 {
		t.Fatalf("%d plans, %q", plans(p), got)
	}
	p, rt = New(o), &stub{}
	var second *policies.Plan // ran in the iteration of 130 ms
	run(p, rt, script[:3])
	second = rt.armed
	p, rt = New(o), &stub{}
	got = run(p, rt, script)
	if got[5] != "stable light armed" || fmt.Sprint(*rt.armed) != fmt.Sprint(*second) || fmt.Sprint(*rt.armed) == fmt.Sprint(*running) {
		t.Errorf("%q; the plan of the fastest iteration is not the one kept", got)
	}
	// As many evictions as were accepted are no news.
	p.Handle(&policies.Event{Kind: policies.IterationEnd, Iteration: 6, Evictions: 6}, rt)
	if p.Phase() != Stable {
		t.Errorf("phase %v after as many evictions as before", p.Phase())
	}
}

// TestMargin: each further iteration with evictions lowers the target.
func TestMargin(t *testing.T) {
	o := FaithfulV1()
	o.StableStep = 10
	p := New(o)
	run(p, &stub{}, []iteration{evicting, {}, evicting, {}, evicting})
	var targets []float64
	for _, d := range p.Log() {
		if d.Planned {
			targets = append(targets, mib(d.Target))
		}
	}
	if want := []float64{14201 - 2048, 14201 - 2348, 14201 - 2348, 14201 - 2648}; !slices.Equal(targets, want) {
		t.Errorf("targets %v MiB, want %v", targets, want)
	}
}

// TestEvictionsBeforePlanningCount: one in any warm-up iteration marks the
// profile.
func TestEvictionsBeforePlanningCount(t *testing.T) {
	p := New(FaithfulV1())
	run(p, &stub{}, []iteration{evicting, {}})
	if d := p.Log()[0]; mib(d.Target) != 14201-2048 {
		t.Errorf("target %v MiB, want the measured peak less the margin", mib(d.Target))
	}
}

// TestPlanningIsCharged by the size of the profile.
func TestPlanningIsCharged(t *testing.T) {
	rt := &stub{}
	run(New(FaithfulV1()), rt, make([]iteration, 2))
	obs := twelve.Observation()
	if want := planFixed + 123*planPerOp + sim.Time(len(obs.Tensors))*planPerTensor; rt.charged != want {
		t.Errorf("charged %d ps, want %d", rt.charged, want)
	}
}

// TestAProfileThatCannotBePlanned leaves the guard alone at work.
func TestAProfileThatCannotBePlanned(t *testing.T) {
	p, rt := New(Default()), &stub{}
	broken := func() *profilers.Observation {
		obs := twelve.Observation()
		obs.OOM = true
		obs.Ops[60].Stage = profilers.Stage{Phase: profilers.Init}
		return obs
	}
	for i := range 3 {
		p.Handle(&policies.Event{Kind: policies.IterationEnd, Iteration: i, Observation: broken(), Evictions: 1}, rt)
	}
	if log := p.Log(); rt.armed != nil || len(log) == 0 || log[0].Err == nil {
		t.Errorf("armed %v, log %+v", rt.armed, log)
	}
}

// TestOptimizerStates binds states of equal size in order, each once.
func TestOptimizerStates(t *testing.T) {
	for mode, want := range map[string]int{OptimizerOff: 0, OptimizerPlan: 3, OptimizerWhole: 3, OptimizerChunks: 3} {
		o := Default()
		o.Optimizer = mode
		rt := &stub{tensors: map[policies.Handle]policies.TensorInfo{}}
		obs := twelve.Observation()
		obs.OOM = true
		for i, size := range []sim.Bytes{64, 80, 64, 1} { // the last is too small to go
			h := policies.Handle(40 + i)
			rt.states = append(rt.states, h)
			rt.tensors[h] = policies.TensorInfo{Handle: h, Bytes: size * sim.MiB, Type: profilers.OptimState}
			op := &obs.Ops[121]
			op.Lo = min(op.Lo, int32(len(obs.Tensors)))
			obs.Tensors = append(obs.Tensors, profilers.TensorRec{
				Tensor: profilers.Tensor(5000 + i), Orig: profilers.Tensor(5000 + i), Bytes: size * sim.MiB, Type: profilers.OptimState})
		}
		obs.Ops[121].Lo, obs.Ops[121].Hi = int32(len(obs.Tensors)-4), int32(len(obs.Tensors))
		o.Redundant = 8 * sim.GiB // needs everything
		p := New(o)
		for i := range 2 {
			p.Handle(&policies.Event{Kind: policies.IterationEnd, Iteration: i, Observation: obs, Evictions: 1}, rt)
		}
		var bound []policies.Handle
		for i := range rt.armed.Swaps {
			if s := &rt.armed.Swaps[i]; s.Optimizer {
				bound = append(bound, s.Out.What.Handle)
				if s.Out.Start.Stage.String() != "F1.1" {
					t.Errorf("%s: a state leaves at %v", mode, s.Out.Start.Stage)
				}
				if in := s.In.Start.Stage; in.Phase != profilers.Backward {
					t.Errorf("%s: a state returns at %v", mode, in)
				}
			}
		}
		order := []policies.Handle{41, 40, 42} // larger first
		if mode == OptimizerChunks {
			order = []policies.Handle{40, 41, 42} // as they are used
		}
		if !slices.Equal(bound, order[:want]) {
			t.Errorf("%s: bound %v, want %v", mode, bound, order[:want])
		}
		if chunks := rt.armed.Chunks; (mode == OptimizerChunks) != (chunks == 16) {
			t.Errorf("%s: %d chunks", mode, chunks)
		}
	}
}

// TestVictims are chosen by size, then by age.
func TestVictims(t *testing.T) {
	const need = 100
	for name, c := range map[string]struct {
		blocks []sim.Bytes // least recently used first; negative = not evictable
		want   policies.Handle
	}{
		"smallest that covers":      {[]sim.Bytes{300, 120, 90, 200}, 2},
		"exactly":                   {[]sim.Bytes{101, 100, 99}, 2},
		"largest if none covers":    {[]sim.Bytes{10, 99, 50}, 2},
		"oldest of equals":          {[]sim.Bytes{120, 120}, 1},
		"oldest of equals below":    {[]sim.Bytes{50, 50}, 1},
		"one that covers, however":  {[]sim.Bytes{99, 5000}, 2},
		"not what is not evictable": {[]sim.Bytes{-100, 500}, 2},
		"none":                      {[]sim.Bytes{-100, -5}, 0},
	} {
		rt := &stub{tensors: map[policies.Handle]policies.TensorInfo{}}
		var g guard
		for i, b := range c.blocks {
			h := policies.Handle(i + 1)
			rt.tensors[h] = policies.TensorInfo{Handle: h, Block: max(b, -b), OnDevice: true, Evictable: b > 0}
			g.touch([]policies.Handle{h})
		}
		g.makeRoom(need, rt)
		if c.want == 0 && len(rt.evicted) > 0 || c.want > 0 && !slices.Equal(rt.evicted, []policies.Handle{c.want}) {
			t.Errorf("%s: evicted %v, want %d", name, rt.evicted, c.want)
		}
	}
}

// TestRefusedVictims: the next best is tried, dead ones are forgotten.
func TestRefusedVictims(t *testing.T) {
	rt := &stub{
		tensors: map[policies.Handle]policies.TensorInfo{},
		outcome: map[policies.Handle]policies.Outcome{2: policies.Refused, 3: policies.Refused},
	}
	var g guard
	for h := policies.Handle(1); h <= 4; h++ {
		g.touch([]policies.Handle{h})
		if h < 4 {
			rt.tensors[h] = policies.TensorInfo{Handle: h, Block: sim.Bytes(100 * (4 - h)), OnDevice: true, Evictable: true}
		}
	}
	g.makeRoom(50, rt) // 3, then 2, then 1; 4 is dead
	if !slices.Equal(rt.evicted, []policies.Handle{1}) || g.used.Len() != 0 {
		t.Errorf("evicted %v, %d tracked", rt.evicted, g.used.Len())
	}
}

// TestNoHostMemory: smaller victims are tried, and none is forgotten.
func TestNoHostMemory(t *testing.T) {
	for small, want := range map[policies.Outcome][]policies.Handle{policies.Done: {2}, policies.NoHost: nil} {
		rt := &stub{
			tensors: map[policies.Handle]policies.TensorInfo{},
			outcome: map[policies.Handle]policies.Outcome{1: policies.NoHost, 2: small, 3: policies.NoHost},
		}
		var g guard
		for h, block := range []sim.Bytes{1: 60, 2: 40, 3: 60} {
			if h > 0 {
				rt.tensors[policies.Handle(h)] = policies.TensorInfo{Block: block, OnDevice: true, Evictable: true}
				g.touch([]policies.Handle{policies.Handle(h)})
			}
		}
		g.makeRoom(50, rt)
		if !slices.Equal(rt.evicted, want) || g.used.Len() != 3-len(want) {
			t.Errorf("evicted %v, %d tracked, want %v and the others", rt.evicted, g.used.Len(), want)
		}
	}
}

// TestShippedGuardForgets: arming a plan clears its list.
func TestShippedGuardForgets(t *testing.T) {
	for _, seed := range []bool{false, true} {
		o := FaithfulV1()
		o.SeedGuard = seed
		rt := &stub{
			states:  []policies.Handle{7},
			tensors: map[policies.Handle]policies.TensorInfo{7: {Handle: 7, Block: 1, OnDevice: true, Evictable: true}},
		}
		p := New(o)
		run(p, rt, make([]iteration, 2))
		p.Handle(&policies.Event{Kind: policies.Pressure, Need: 1, Attempt: 1}, rt)
		if got := len(rt.evicted) == 1; got != seed {
			t.Errorf("seeded %v: evicted %v", seed, rt.evicted)
		}
	}
}

// Two micro-batches have two peaks, and both are brought down.
func TestTwoPeaks(t *testing.T) {
	c := layered.Config{Layers: 12, MicroBatches: 2, Duration: 300 * sim.Millisecond, Base: sim.GiB}
	o := Default()
	o.Target, o.Reduction = Reduction, 300*sim.MiB
	s, err := Generate(Input{Profile: c.Observation(), Duration: c.Duration, Weight: o.SizeWeight}, &o)
	if err != nil {
		t.Fatal(err)
	}
	var by [3]sim.Bytes
	for i := range s.Swaps {
		by[s.Swaps[i].OutStage.MicroBatch] += s.Swaps[i].Bytes
	}
	if !s.Reached || by[1] < 300*sim.MiB || by[2] < 300*sim.MiB {
		t.Errorf("reached %v, %v MiB and %v MiB swapped", s.Reached, mib(by[1]), mib(by[2]))
	}
}
