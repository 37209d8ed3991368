package smartswap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"smartswap/profilers"
	"smartswap/profilers/layered"
	"smartswap/sim"
)

// drawProfile makes a random iteration: forward operators make tensors of few
// different sizes (many scores are equal), backward operators use them in any
// order, states are used once by the optimizer.
func drawProfile(t *rapid.T) *profilers.Observation {
	var names profilers.Names
	r := profilers.NewRecorder(&names, rapid.IntRange(0, 3).Draw(t, "layers"))
	r.Begin(0, profilers.Spec{Records: profilers.IterationTime | profilers.OpNames | profilers.OpRecords |
		profilers.TensorArgs | profilers.MemoryStats | profilers.SwapRecords})
	var active sim.Bytes
	id := int64(-1)
	op := func(s profilers.Stage, args ...profilers.TensorRec) {
		name := rapid.Int32Range(0, 3).Draw(t, "name")
		id++
		r.Op(profilers.OpRec{ID: id, Name: names.ID(name, "op"), Stage: s, Active: active}, args)
	}
	next := profilers.Tensor(0)
	tensor := func(kind profilers.TensorType) profilers.TensorRec {
		next++
		return profilers.TensorRec{Tensor: next, Type: kind,
			Bytes: sim.Bytes(rapid.SampledFrom([]int{16, 20, 20, 32, 64}).Draw(t, "mib")) * sim.MiB}
	}
	op(profilers.Stage{Phase: profilers.Init})
	for m := range rapid.Int32Range(1, 3).Draw(t, "micro-batches") {
		var live []profilers.TensorRec
		forward := profilers.Stage{Phase: profilers.Forward, MicroBatch: m + 1, Layer: 1}
		for range rapid.IntRange(1, 40).Draw(t, "forward operators") {
			x := tensor(profilers.Others)
			live = append(live, x)
			active += x.Bytes
			op(forward, x)
		}
		backward := profilers.Stage{Phase: profilers.Backward, MicroBatch: m + 1, Layer: 1}
		for len(live) > 0 {
			// Mostly the newest first, as in training.
			i := max(0, len(live)-1-rapid.SampledFrom([]int{0, 0, 0, 1, 5, 30}).Draw(t, "back"))
			op(backward, live[i])
			active -= live[i].Bytes
			live = slices.Delete(live, i, i+1)
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "states") {
		x := tensor(profilers.OptimState)
		op(profilers.Stage{Phase: profilers.Optim}, x)
		op(profilers.Stage{Phase: profilers.Optim}, x)
	}
	return r.End(sim.Time(rapid.IntRange(1, 400).Draw(t, "duration"))*sim.Millisecond, false)
}

// naive is the selection in the words of its description: every round looks at
// all peaks, all operators above the target and all candidates.
func naive(g *grid, m demand, all []Candidate, times *stageTimes, o *Options) (chosen []Candidate, reached bool) {
	time := func(c Candidate) sim.Time { return transfer(c.Bytes, o.Bandwidth) }
	need := slices.Clone(m.need)
	taken := make([]bool, len(all))
	covers := func(c Candidate, i int) bool {
		return int(c.out)+1 < len(g.stages) && m.ops[i] >= g.first[c.out+1] && m.ops[i] < g.first[c.inAt]
	}
	cum := func(stage int32) sim.Time {
		var t sim.Time
		for s := int32(0); s <= stage; s++ {
			t = min(0, t) + times.left[s]
		}
		return t
	}
	book := func(c *Candidate, delayed bool) {
		times.left[c.out] -= time(*c)
		j := c.in - 1
		if delayed {
			for s := j; s > c.out; s-- {
				if cum(s) > time(*c) {
					j = s
					break
				}
			}
		}
		c.inAt = j
		times.left[j] -= time(*c)
	}
	for {
		target := -1
		for _, p := range g.peaks() {
			top := -1
			for i, op := range m.ops {
				if p.lo <= op && op <= p.hi && need[i] > 0 && (top < 0 || need[i] > need[top]) {
					top = i
				}
			}
			if top >= 0 && (target < 0 || need[top] > need[target]) {
				target = top
			}
		}
		if target < 0 {
			return chosen, true
		}
		var order []int // candidates are ranked already
		for i, c := range all {
			if !taken[i] && covers(c, target) {
				order = append(order, i)
			}
		}
		if len(order) == 0 {
			return chosen, false
		}
		var picked []int
		remaining := need[target]
		for _, i := range order {
			if remaining <= 0 {
				break
			}
			c := &all[i]
			if times.left[c.out] < time(*c) || times.left[c.in-1] < time(*c) {
				continue
			}
			picked = append(picked, i)
			remaining -= c.Bytes
			if o.Recheck {
				book(c, false)
			}
		}
		delayed := len(picked) == 0
		if delayed {
			picked = order[:1]
		}
		if delayed || !o.Recheck {
			for _, i := range picked {
				book(&all[i], delayed)
			}
		}
		for _, i := range picked {
			for k := range need {
				if covers(all[i], k) {
					need[k] -= all[i].Bytes
				}
			}
			taken[i] = true
			chosen = append(chosen, all[i])
		}
	}
}

func TestSelectionAgainstNaive(t *testing.T) {
	rounds, late, short := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		obs := drawProfile(t)
		o := Default()
		o.MinTensor = 18 * sim.MiB
		o.Recheck = rapid.Bool().Draw(t, "recheck")
		o.CountAllOps = rapid.Bool().Draw(t, "count all")
		o.Target, o.Reduction = Reduction, 4*sim.Bytes(rapid.IntRange(1, 500).Draw(t, "reduction"))*sim.MiB
		g, err := newGrid(obs, obs.Layers)
		if err != nil {
			t.Fatal(err)
		}
		m := g.measure(obs, &o, false, 0)
		all := g.candidates(obs, &o)
		g.rank(all, &m, o.SizeWeight)
		want, reached := naive(g, m, slices.Clone(all), newStageTimes(g, obs.Duration, nil, o.CountAllOps), &o)

		s := &selector{grid: g, memory: &m, options: &o, rate: o.Bandwidth, times: newStageTimes(g, obs.Duration, nil, o.CountAllOps),
			all: all, fates: make([]fate, len(all)), needs: newNeeds(m.need)}
		got := s.run()
		if got != reached || len(s.chosen) != len(want) {
			t.Fatalf("chose %d, reached %v; naive chose %d, reached %v", len(s.chosen), got, len(want), reached)
		}
		for i, k := range s.chosen {
			if c := s.all[k]; c.Tensor != want[i].Tensor || c.inAt != want[i].inAt {
				t.Fatalf("choice %d is tensor %d back at %v, naive: %d at %v", i,
					c.Tensor, g.stages[c.inAt], want[i].Tensor, g.stages[want[i].inAt])
			}
			if s.all[k].Delayed {
				late++
			}
		}
		rounds = max(rounds, s.rounds)
		if !got {
			short++
		}
	})
	if rounds < 3 || late == 0 || short == 0 {
		t.Errorf("the cases do not bite: at most %d rounds, %d delayed, %d short of the target", rounds, late, short)
	}
}

// TestSchedules checks what every schedule of the default planner promises.
func TestSchedules(t *testing.T) {
	planned := 0
	rapid.Check(t, func(t *rapid.T) {
		obs := drawProfile(t)
		o := Default()
		o.MinTensor = 18 * sim.MiB
		o.Target, o.Reduction = Reduction, sim.Bytes(rapid.IntRange(1, 600).Draw(t, "reduction"))*sim.MiB
		o.Optimizer = rapid.SampledFrom([]string{OptimizerPlan, OptimizerWhole, OptimizerChunks, OptimizerOff}).Draw(t, "optimizer")
		var states []State
		var sizes []sim.Bytes
		for _, u := range mustGrid(t, obs).usages(obs) {
			if u.rec.Type == profilers.OptimState {
				states = append(states, State{Bytes: u.rec.Bytes})
				sizes = append(sizes, u.rec.Bytes)
			}
		}
		in := Input{Profile: obs, Duration: obs.Duration, States: sizes, Weight: o.SizeWeight}
		s, err := Generate(in, &o)
		if err != nil {
			t.Fatal(err)
		}
		plan := s.Plan(states)
		if err := plan.Validate(); err != nil {
			t.Fatal(err)
		}
		if len(plan.Swaps) != len(s.Swaps) {
			t.Fatalf("%d swaps in the schedule, %d in the plan", len(s.Swaps), len(plan.Swaps))
		}
		planned += len(s.Swaps)
		g := s.grid
		m := g.measure(obs, &o, false, 0)
		left := slices.Clone(m.need)
		for i := range s.Swaps {
			c := &s.Swaps[i]
			if c.out >= c.inAt || c.inAt > c.in {
				t.Fatalf("out at %v, back at %v, used at %v", c.OutStage, c.InAt, c.InStage)
			}
			if c.useless() {
				t.Fatalf("released at %v, back at %v: useless", c.Free, c.InAt)
			}
			if c.Optimizer && o.Optimizer == OptimizerOff {
				t.Fatal("an optimizer state although these are to stay")
			}
			for k, op := range m.ops {
				if op >= g.first[c.out+1] && op < g.first[c.inAt] {
					left[k] -= c.Bytes
				}
			}
			if i > 0 && inOrder(&s.Swaps[i-1], c) >= 0 {
				t.Fatalf("swaps %d and %d are out of order", i-1, i)
			}
		}
		if short := len(left) > 0 && slices.Max(left) > 0; short && s.Reached {
			t.Fatalf("the target is said to be reached, but %d bytes are missing", slices.Max(left))
		}
		again, err := Generate(in, &o)
		if err != nil || !slices.Equal(again.Swaps, s.Swaps) {
			t.Fatal("the same input led to another schedule")
		}
	})
	if planned == 0 {
		t.Error("no schedule swaps anything")
	}
}

func mustGrid(t *rapid.T, obs *profilers.Observation) *grid {
	g, err := newGrid(obs, obs.Layers)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestOneRoundOverbooks shows the trap that Recheck mends: shipped, one round
// books a stage with several times its time.
func TestOneRoundOverbooks(t *testing.T) {
	for _, recheck := range []bool{false, true} {
		o := FaithfulV1()
		o.Recheck = recheck
		s := generate(t, o, 1536*sim.MiB)
		times := newStageTimes(s.grid, twelve.Duration, nil, false)
		delayed := map[int32]bool{}
		for i := range s.Swaps {
			c := &s.Swaps[i]
			times.left[c.out] -= transfer(c.Bytes, o.Bandwidth)
			times.left[c.inAt] -= transfer(c.Bytes, o.Bandwidth)
			if c.Delayed {
				delayed[c.out], delayed[c.inAt] = true, true
			}
		}
		worst := sim.Time(0)
		for stage, left := range times.left {
			if !delayed[int32(stage)] {
				worst = min(worst, left)
			}
		}
		if overbooked := worst < 0; overbooked == recheck {
			t.Errorf("recheck %v: the worst stage without delays has %v ms left", recheck, worst.Milliseconds())
		}
	}
}

// TestExactlyEnough: candidates that add up to the need to the byte suffice.
func TestExactlyEnough(t *testing.T) {
	s := generate(t, FaithfulV1(), (102+101)*sim.MiB)
	if len(s.Swaps) != 2 || s.Rounds != 1 || !s.Reached || mib(s.Bytes()) != 203 {
		t.Errorf("%d swaps of %v MiB in %d rounds, want qkv5 and qkv6 in one", len(s.Swaps), mib(s.Bytes()), s.Rounds)
	}
}

// TestUselessSwapsAreAvoided: shipped, att11 returns before its block would be
// released; the target can be reached without it.
func TestUselessSwapsAreAvoided(t *testing.T) {
	for _, reject := range []bool{false, true} {
		o := FaithfulV1()
		o.RejectUseless = reject
		s := generate(t, o, 1536*sim.MiB)
		has := slices.ContainsFunc(s.Swaps, func(c Candidate) bool { return twelve.Label(c.Tensor) == "att11" })
		if has == reject || !s.Reached {
			t.Errorf("reject %v: att11 is swapped: %v, target reached: %v", reject, has, s.Reached)
		}
	}
}

// TestWhatIsNoCandidate: used by the optimizer too, shared, small, or used in
// one pass only.
func TestWhatIsNoCandidate(t *testing.T) {
	obs := twelve.Observation()
	is := func(kind int) *profilers.TensorRec {
		for i := range obs.Tensors {
			if obs.Tensors[i].Tensor == twelve.Tensor(1, 1, kind) {
				return &obs.Tensors[i]
			}
		}
		return nil
	}
	optim := &obs.Ops[122]
	lo := int32(len(obs.Tensors))
	obs.Tensors = append(obs.Tensors, *is(layered.MLP))
	optim.Lo, optim.Hi = lo, lo+1
	is(layered.QKV).Type = profilers.SharedMemory
	is(layered.Norm).Bytes = 20*sim.MiB - 1
	g, err := newGrid(obs, 12)
	if err != nil {
		t.Fatal(err)
	}
	o := Default()
	for _, c := range g.candidates(obs, &o) {
		if label := twelve.Label(c.Tensor); label == "mlp1" || label == "qkv1" || label == "nrm1" || label == "misc" {
			t.Errorf("%s is a candidate", label)
		}
	}
}

// TestTiesHaveAnOrder: equal scores go by operator, then by tensor.
func TestTiesHaveAnOrder(t *testing.T) {
	g, err := newGrid(twelve.Observation(), 12)
	if err != nil {
		t.Fatal(err)
	}
	m := demand{ops: []int32{60}, need: []sim.Bytes{1}}
	all := []Candidate{
		{Tensor: 3, Bytes: 1, OutOp: 5, out: 1, in: 14, inAt: 14},
		{Tensor: 2, Bytes: 1, OutOp: 5, out: 1, in: 14, inAt: 14},
		{Tensor: 9, Bytes: 1, OutOp: 4, out: 1, in: 14, inAt: 14},
	}
	g.rank(all, &m, 2)
	if all[0].Tensor != 9 || all[1].Tensor != 2 || all[2].Tensor != 3 {
		t.Errorf("order %d %d %d, want 9 2 3", all[0].Tensor, all[1].Tensor, all[2].Tensor)
	}
}
