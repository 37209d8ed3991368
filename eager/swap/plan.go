package swap

import (
	"fmt"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// armed is a plan in execution. Stages are numbered in the order in which the
// plan names them; -1 is a stage that the plan does not know.
type armed struct {
	plan    *policies.Plan
	stages  map[profilers.Stage]int32
	matches [][]int32 // by stage: swaps to match there
	outs    [][]int32 // by stage: optimizer swap-outs
	ins     [][]Due   // by stage: swap-ins registered in this iteration
	holds   [][]hold  // by stage
	guards  [][]guard // by stage
	fired   []bool    // by stage: its tasks have run in this iteration
	found   []match   // matched by the last operator, not swapped out yet
	taken   []bool    // by swap: matched in this iteration
	left    int       // swaps still to match
	head    int       // no swap before this one is still to match
	iter    int64     // iteration, +1

	// The key of other ways to match than by feature.
	positions  map[position][]int32
	identities map[Identity]int32
}

// position is an operator of the iteration and one of its arguments.
type position struct{ op, arg int32 }

// Due is a swap-in to be made, for the host to find memory for.
type Due struct {
	Storage *Storage
	handle  policies.Handle // the storage's when it was registered
	Stage   int32           // of release
}

// Wanted tells whether the swap-in still makes sense: the storage is the one
// it was, is alive, and not on the device.
func (d Due) Wanted() bool {
	s := d.Storage
	return s.Handle == d.handle && s.Refs > 0 && !s.OnDevice() && s.Current() != nil
}

// Arm replaces the plan. The memory held under the old one is given back as
// an allocation failure would.
func (x *Executor) Arm(p *policies.Plan) error {
	x.drainAll()
	x.armed = nil
	x.chunks = chunks{}
	if p == nil {
		return nil
	}
	a := &armed{
		plan: p, stages: make(map[profilers.Stage]int32), taken: make([]bool, len(p.Swaps)),
		positions: make(map[position][]int32), identities: make(map[Identity]int32),
	}
	stage := func(t policies.Trigger) (int32, error) {
		switch t.Kind {
		case policies.Now:
			return -1, nil
		case policies.AtStage:
			return a.stage(t.Stage), nil
		}
		return 0, fmt.Errorf("plan: trigger kind %d is not one this executor has: allowed are now and at-stage", t.Kind)
	}
	for i := range p.Swaps {
		w := &p.Swaps[i]
		if w.Out.Kind != policies.Evict || w.In.Kind != policies.Prefetch {
			return fmt.Errorf("plan: swap %d: an evict and a prefetch make a swap", i)
		}
		for _, t := range [...]policies.Trigger{w.Out.Start, w.Out.Release, w.In.Start, w.In.Release} {
			if _, err := stage(t); err != nil {
				return fmt.Errorf("swap %d: %w", i, err)
			}
		}
		switch {
		case w.Optimizer:
			at, _ := stage(w.Out.Start)
			if at < 0 {
				return fmt.Errorf("plan: swap %d: an optimizer state leaves at a stage", i)
			}
			a.outs[at] = append(a.outs[at], int32(i))
		case w.Out.What.Kind == policies.ByFeature:
			at := a.stage(w.Out.What.Stage)
			a.matches[at] = append(a.matches[at], int32(i))
			pos := position{w.Out.What.Op, w.Out.What.Arg}
			a.positions[pos] = append(a.positions[pos], int32(i))
			if id, ok := x.seen[w.Out.What.Tensor]; ok {
				a.identities[id] = int32(i)
			}
		default:
			return fmt.Errorf("plan: swap %d: selector kind %d is not one this executor has: allowed is by-feature, and by-handle for optimizer states", i, w.Out.What.Kind)
		}
	}
	x.armed = a
	return nil
}

// stage numbers s.
func (a *armed) stage(s profilers.Stage) int32 {
	if i, ok := a.stages[s]; ok {
		return i
	}
	i := int32(len(a.matches))
	a.stages[s] = i
	a.matches = append(a.matches, nil)
	a.outs = append(a.outs, nil)
	a.ins = append(a.ins, nil)
	a.holds = append(a.holds, nil)
	a.guards = append(a.guards, nil)
	a.fired = append(a.fired, false)
	return i
}

func (a *armed) at(t policies.Trigger) int32 {
	if t.Kind != policies.AtStage {
		return -1
	}
	return a.stages[t.Stage]
}

// Armed tells whether a plan is armed.
func (x *Executor) Armed() bool { return x.armed != nil }

// Plan is the armed plan, nil if there is none.
func (x *Executor) Plan() *policies.Plan {
	if x.armed == nil {
		return nil
	}
	return x.armed.plan
}

// BeginIteration makes all swaps of the plan pending again.
func (x *Executor) BeginIteration(i int) {
	a := x.armed
	if a == nil {
		return
	}
	if a.iter > 0 {
		x.Stats.Missed += int64(a.left)
	}
	a.iter = int64(i) + 1
	a.left, a.head = 0, 0
	for k := range a.taken {
		a.taken[k] = a.plan.Swaps[k].Optimizer
		if !a.taken[k] {
			a.left++
		}
	}
	for k := range a.fired {
		a.fired[k] = false
		a.ins[k] = a.ins[k][:0]
	}
	x.chunks.begin()
}

// StageIndex numbers a stage of the armed plan, -1 if the plan does not name
// it.
func (x *Executor) StageIndex(s profilers.Stage) int32 {
	if x.armed == nil {
		return -1
	}
	if i, ok := x.armed.stages[s]; ok {
		return i
	}
	return -1
}

// match is a tensor that a planned swap was waiting for.
type match struct {
	s    *Storage
	swap int32
}

// Match updates the features of an operator's arguments and notes which of
// them the plan swaps out now; SwapMatched does it. op is the operator's number
// in the iteration, stage the current one. It returns the number of comparisons,
// for the host to pay.
func (x *Executor) Match(name, op int32, args []*Storage, stage int32) (comparisons int) {
	a := x.armed
	if a == nil || a.left == 0 {
		return 0
	}
	v := &a.plan.Vocabulary
	for arg, s := range args {
		if s.featureIn != a.iter {
			s.featureIn, s.feature = a.iter, v.Begin(s.DType, s.Bytes, s.Shape)
		}
		s.feature.Use(*v, name, arg)
		comparisons += a.window()
		if i := x.find(s, position{op, int32(arg)}, stage); i >= 0 {
			a.taken[i] = true
			a.left--
			a.found = append(a.found, match{s, i})
		}
	}
	return comparisons
}

// find is the pending swap that waits for s, or -1.
func (x *Executor) find(s *Storage, at position, stage int32) int32 {
	a := x.armed
	switch {
	case x.opts.Match == MatchPosition:
		for _, i := range a.positions[at] {
			if !a.taken[i] {
				return i
			}
		}
	case x.opts.Match == MatchTruth:
		i, ok := a.identities[s.Identity]
		if ok && !a.taken[i] && s.feature.Uses == a.plan.Swaps[i].Out.What.Feature.Uses {
			return i
		}
	case stage >= 0:
		for _, i := range a.matches[stage] {
			if !a.taken[i] && s.feature == a.plan.Swaps[i].Out.What.Feature && a.inWindow(i) {
				return i
			}
		}
	}
	return -1
}

// window is how many pending swaps a tensor is compared with.
func (a *armed) window() int {
	if w := a.plan.Window; w > 0 {
		return min(w, a.left)
	}
	return a.left
}

// inWindow tells whether pending swap i is among the first ones.
func (a *armed) inWindow(i int32) bool {
	if a.plan.Window == 0 {
		return true
	}
	for a.taken[a.head] { // i is not
		a.head++
	}
	before := 0
	for k := a.head; k < int(i) && before < a.plan.Window; k++ {
		if !a.taken[k] {
			before++
		}
	}
	return before < a.plan.Window
}

// Know notes what a tensor is that a profiler has seen, for matching by truth.
func (x *Executor) Know(s *Storage) {
	if x.opts.Match == MatchTruth {
		x.seen[s.Tensor] = s.Identity
	}
}

// SwapMatched swaps out what Match has found. It returns false, to be called
// again, when the host has no memory for the next one; with skip, that one
// stays on the device.
func (x *Executor) SwapMatched(skip bool) bool {
	a := x.armed
	if a == nil {
		return true
	}
	for len(a.found) > 0 {
		m := a.found[0]
		w := &a.plan.Swaps[m.swap]
		switch x.Out(m.s, a.at(w.Out.Release), Planned, false) {
		case policies.Done:
			x.Stats.Matched++
			if in := a.at(w.In.Start); in >= 0 {
				a.ins[in] = append(a.ins[in], Due{m.s, m.s.Handle, a.at(w.In.Release)})
			}
		case policies.NoHost:
			if !skip {
				return false
			}
		}
		a.found = a.found[:copy(a.found, a.found[1:])]
	}
	return true
}

// Tasks runs what the plan has for the stage, once per iteration: optimizer
// states leave; what left before comes back, last out first. The swap-ins are
// returned for the host to find memory for. handle finds a live storage.
func (x *Executor) Tasks(stage int32, handle func(policies.Handle) *Storage, due []Due) []Due {
	a := x.armed
	if a == nil || stage < 0 || a.fired[stage] {
		return due
	}
	a.fired[stage] = true
	for _, i := range a.outs[stage] {
		w := &a.plan.Swaps[i]
		s := handle(w.Out.What.Handle)
		if s == nil {
			continue
		}
		x.Out(s, a.at(w.Out.Release), Planned, false)
		if s.OnDevice() {
			continue
		}
		x.Stats.Matched++
		in := a.at(w.In.Start)
		if in < 0 {
			continue
		}
		if w.Chunked && a.plan.Chunks > 1 {
			x.chunks.add(s, in)
			continue
		}
		a.ins[in] = append(a.ins[in], Due{s, s.Handle, a.at(w.In.Release)})
	}
	ins := a.ins[stage]
	for k := len(ins) - 1; k >= 0; k-- {
		if ins[k].Wanted() {
			due = append(due, ins[k])
		}
	}
	a.ins[stage] = ins[:0]
	return x.chunks.start(stage, a.plan.Chunks, due)
}

// ReleaseAt gives back what is held for the stage, at each of its operators.
func (x *Executor) ReleaseAt(stage int32) {
	a := x.armed
	if a == nil || stage < 0 {
		return
	}
	for _, h := range a.holds[stage] {
		x.release(h)
	}
	a.holds[stage] = a.holds[stage][:0]
	if gs := a.guards[stage]; len(gs) > 0 {
		a.guards[stage] = nil
		for _, g := range gs {
			x.unguard(g)
		}
	}
}

// chunks stream optimizer states through the device in the optimizer phase, in
// the order of the plan, which should be that of their use. Two chunks are there
// at a time: when an operator uses states of the next chunk only, the one before
// has done and leaves, and another comes in.
type chunks struct {
	states []*Storage
	stage  int32 // where the first two come in
	starts []int // of each chunk in states, and the end
	of     map[*Storage]int
	now    int // chunk in use
}

func (c *chunks) begin() {
	c.states, c.starts, c.of, c.now = c.states[:0], c.starts[:0], nil, 0
}

func (c *chunks) add(s *Storage, stage int32) {
	c.states = append(c.states, s)
	c.stage = stage
}

// start cuts the states into n chunks of about the same size and brings the
// first two in.
func (c *chunks) start(stage int32, n int, due []Due) []Due {
	if len(c.states) == 0 || stage != c.stage || n < 2 {
		return due
	}
	var total, before sim.Bytes
	for _, s := range c.states {
		total += s.Bytes
	}
	c.of = make(map[*Storage]int, len(c.states))
	for i, s := range c.states {
		if before*sim.Bytes(n) >= total*sim.Bytes(len(c.starts)) {
			c.starts = append(c.starts, i)
		}
		c.of[s] = len(c.starts) - 1
		before += s.Bytes
	}
	c.starts = append(c.starts, len(c.states))
	return c.bring(1, c.bring(0, due))
}

func (c *chunks) part(k int) []*Storage {
	if k+1 >= len(c.starts) {
		return nil
	}
	return c.states[c.starts[k]:c.starts[k+1]]
}

func (c *chunks) bring(k int, due []Due) []Due {
	for _, s := range c.part(k) {
		if d := (Due{s, s.Handle, -1}); d.Wanted() {
			due = append(due, d)
		}
	}
	return due
}

// Used tells what an operator of the optimizer phase uses. States of earlier
// chunks than all of these have done.
func (x *Executor) Used(args []*Storage, due []Due) []Due {
	c := &x.chunks
	if c.of == nil {
		return due
	}
	least := len(c.starts)
	for _, s := range args {
		if k, ok := c.of[s]; ok {
			least = min(least, k)
		}
	}
	if least == len(c.starts) {
		return due
	}
	for ; c.now < least; c.now++ {
		for _, done := range c.part(c.now) {
			x.Out(done, -1, Planned, false)
		}
		due = c.bring(c.now+2, due)
	}
	return due
}
