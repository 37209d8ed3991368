package policytest

import (
	"fmt"

	"pgregory.net/rapid"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// Script is a random run: what a Fake plays.
type Script struct {
	Capacity   sim.Bytes // of the device
	Host       sim.Bytes // of host memory
	Stubborn   int       // every such handle refuses to be evicted; 0 = none
	States     []sim.Bytes
	Iterations []Iteration
}

// Iteration is one iteration of a Script: a stack of layers, forward and
// backward by micro-batch, then the optimizer.
type Iteration struct {
	MicroBatches int
	ForwardOnly  bool          // validation: no backward, no optimizer
	Layers       [][]sim.Bytes // saved tensors of each layer
	Extra        int           // operators beside the layers, in each pass
}

// Draw makes a random script. Its sizes and capacities are such that most
// scripts run short of memory.
func Draw(t *rapid.T) Script {
	size := rapid.Custom(func(t *rapid.T) sim.Bytes {
		return sim.Bytes(rapid.IntRange(1, 64).Draw(t, "mib")) * sim.MiB
	})
	layers := rapid.SliceOfN(rapid.SliceOfN(size, 1, 4), 2, 12).Draw(t, "layers")
	s := Script{
		Host:     sim.Bytes(rapid.SampledFrom([]int{1 << 20, 1 << 20, 1 << 20, 200}).Draw(t, "host mib")) * sim.MiB,
		Stubborn: rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "stubborn"),
		States:   rapid.SliceOfN(size, 0, 6).Draw(t, "states"),
	}
	var total sim.Bytes
	for _, b := range s.States {
		total += b
	}
	for _, l := range layers {
		for _, b := range l {
			total += b
		}
	}
	usual := Iteration{MicroBatches: rapid.IntRange(1, 3).Draw(t, "micro-batches"), Layers: layers}
	s.Capacity = total * sim.Bytes(rapid.IntRange(45, 115).Draw(t, "capacity %")) / 100
	for i := range rapid.IntRange(3, 12).Draw(t, "iterations") {
		it := usual
		switch rapid.IntRange(0, 19).Draw(t, fmt.Sprintf("kind %d", i)) {
		case 17:
			it.ForwardOnly = true
		case 18:
			it.Extra = rapid.IntRange(1, 20).Draw(t, "extra")
		case 19:
			it.Layers = layers[:(len(layers)+1)/2]
		}
		s.Iterations = append(s.Iterations, it)
	}
	return s
}

// Play runs a script under p and returns what p did, in order. Events of kinds
// that p did not ask for are delivered only if all is set. It ends early when
// p finds no room.
func Play(t rapid.TB, s Script, p policies.Policy, all bool) []string {
	f := &Fake{t: t, script: s, policy: p, needs: p.Needs(), all: all, tensors: map[policies.Handle]*tensor{}}
	f.recorder = profilers.NewRecorder(&f.names, len(s.Iterations[0].Layers))
	if f.needs.Fields != 0 {
		f.level = policies.Full
	}
	for _, b := range s.States {
		h := f.create(b, profilers.OptimState)
		f.states = append(f.states, h)
		if !f.allocate(h) {
			return f.log
		}
	}
	for i := range s.Iterations {
		if !f.iterate(i) {
			break
		}
	}
	return f.log
}

// Fake is a runtime without time: host memory, device memory, handles. Actions
// that a policy must not try fail the test.
type Fake struct {
	t        rapid.TB
	script   Script
	policy   policies.Policy
	needs    policies.Needs
	all      bool
	names    profilers.Names
	recorder *profilers.Recorder
	level    policies.Level

	now        sim.Time
	iteration  int
	ops        int64
	stage      profilers.Stage
	used, host sim.Bytes
	tensors    map[policies.Handle]*tensor
	next       policies.Handle
	nextID     profilers.Tensor
	states     []policies.Handle
	dead       []policies.Handle // under a lineage
	wanted     []policies.Handle // to be made again
	evictions  int
	delivering bool
	calls      int // actions during the present event

	log []string
}

type tensor struct {
	info  policies.TensorInfo
	id    profilers.Tensor
	locks int
	made  *made // nil: no operator
	dead  bool  // the script has no use for it any more
}

// made is an operator that can run again: its name, inputs and outputs.
type made struct {
	name            int32
	inputs, outputs []policies.Handle
}

var _ policies.Runtime = (*Fake)(nil)

func (f *Fake) create(b sim.Bytes, kind profilers.TensorType) policies.Handle {
	f.next++
	f.tensors[f.next] = &tensor{info: policies.TensorInfo{Handle: f.next, Bytes: b, Type: kind}}
	return f.next
}

// allocate gives h device memory, with the policy's help if need be.
func (f *Fake) allocate(h policies.Handle) bool {
	x := f.tensors[h]
	block := (x.info.Bytes + 511) / 512 * 512
	for attempt := 1; f.used+block > f.script.Capacity; attempt++ {
		before := f.used
		f.deliver(&policies.Event{Kind: policies.Pressure, Need: block, Attempt: attempt})
		if f.used == before {
			return false
		}
	}
	f.used += block
	x.info.Block, x.info.OnDevice = block, true
	f.nextID++
	if x.info.OnHost {
		f.recorder.Swap(profilers.SwapRec{Bytes: x.info.Bytes, Src: x.id, Dst: f.nextID})
		f.host -= x.info.Bytes
		x.info.OnHost = false
	}
	x.id = f.nextID
	f.refresh(x)
	return true
}

// destroy ends the script's use of h. Under a policy with a lineage it stays
// known until the iteration ends, and keeps its memory until the policy discards
// it.
func (f *Fake) destroy(h policies.Handle) {
	x := f.tensors[h]
	if !f.needs.Lineage.Keep {
		f.remove(h)
		return
	}
	x.dead = true
	f.refresh(x)
	f.dead = append(f.dead, h)
	if !x.info.OnDevice {
		return
	}
	if f.needs.Events.Has(policies.Released) {
		f.deliver(&policies.Event{Kind: policies.Released, Tensor: h})
	} else {
		f.discard(x)
	}
}

// refresh works out what follows from a tensor's state.
func (f *Fake) refresh(x *tensor) {
	free := x.info.OnDevice && x.locks == 0 && x.info.Type != profilers.SharedMemory
	x.info.InUse = x.locks > 0
	x.info.Evictable = free && !x.dead
	x.info.Discardable = free && f.needs.Lineage.Keep && (x.dead || x.made != nil)
}

func (f *Fake) remove(h policies.Handle) {
	x := f.tensors[h]
	f.used -= x.info.Block
	if x.info.OnHost {
		f.host -= x.info.Bytes
	}
	delete(f.tensors, h)
}

// deliver hands the policy an event that it asked for, or any if f.all.
func (f *Fake) deliver(ev *policies.Event) {
	if !f.all && !f.needs.Events.Has(ev.Kind) {
		return
	}
	if !f.needs.Events.Has(ev.Kind) {
		before := len(f.log)
		defer func() {
			if len(f.log) != before {
				f.t.Fatalf("the policy acted on event %v, which it did not ask for: %q", ev.Kind, f.log[before:])
			}
		}()
	}
	ev.Iteration = f.iteration
	f.calls = 0
	f.delivering = true
	f.policy.Handle(ev, f)
	f.delivering = false
}

// op runs an operator: its inputs are brought back, its outputs allocated.
func (f *Fake) op(name int32, inputs, outputs []policies.Handle) bool {
	m := &made{name, inputs, outputs}
	for _, h := range outputs {
		f.tensors[h].made = m
	}
	for len(f.wanted) > 0 {
		x := f.tensors[f.wanted[0]]
		f.wanted = f.wanted[1:]
		if x != nil && !x.info.OnDevice && !f.run(x.made, true) {
			return false
		}
	}
	return f.run(m, false)
}

// opCost is the device time of every operator, as the runtime measures it.
const opCost = sim.Millisecond

// run runs an operator for the first time, or again.
func (f *Fake) run(m *made, again bool) bool {
	args := append(append([]policies.Handle{}, m.inputs...), m.outputs...)
	f.names.ID(m.name, fmt.Sprintf("op%d", m.name))
	view := policies.OpView{Index: f.ops, Name: m.name, Stage: f.stage, Args: args}
	if f.needs.Lineage.Keep {
		view.Cost, view.Again = opCost, again
		for i := range args {
			role := policies.Input
			if i >= len(m.inputs) {
				role = policies.Output
			}
			view.Roles = append(view.Roles, role)
		}
	}
	f.deliver(&policies.Event{Kind: policies.BeforeOp, Op: view})
	for _, h := range args {
		x := f.tensors[h]
		x.locks++
		f.refresh(x)
	}
	for _, h := range args {
		x := f.tensors[h]
		if x.info.OnDevice {
			continue
		}
		if x.info.OnHost {
			f.deliver(&policies.Event{Kind: policies.Miss, Tensor: h})
		} else if x.made != nil && x.made != m && !f.run(x.made, true) { // it was discarded
			return false
		}
		if !x.info.OnDevice && !f.allocate(h) {
			return false
		}
	}
	var recs []profilers.TensorRec
	for _, h := range args {
		x := f.tensors[h]
		recs = append(recs, profilers.TensorRec{Tensor: x.id, Bytes: x.info.Bytes, Type: x.info.Type})
	}
	if !again {
		f.recorder.Op(profilers.OpRec{
			ID: f.ops, Name: m.name, Stage: f.stage, Allocated: f.used, Reserved: f.used, Active: f.used,
		}, recs)
		f.ops++
	}
	f.now += sim.Millisecond
	f.deliver(&policies.Event{Kind: policies.AfterOp, Op: view})
	for _, h := range args {
		x := f.tensors[h]
		x.locks--
		f.refresh(x)
	}
	return true
}

// Names of the Fake's operators.
const (
	nameExtra int32 = iota
	nameForward
	nameBackward
	nameOptimizer
)

// iterate runs iteration i; false means out of memory.
func (f *Fake) iterate(i int) bool {
	f.iteration, f.evictions = i, 0
	began := f.now
	switch f.level {
	case policies.Full:
		f.recorder.Begin(i, profilers.Spec{Records: f.needs.Fields})
	case policies.Light:
		f.recorder.Begin(i, profilers.Spec{Records: profilers.IterationTime | profilers.OpNames})
	default:
		f.recorder.Begin(i, nil)
	}
	ok := f.body(&f.script.Iterations[i])
	for _, h := range f.dead {
		f.remove(h)
	}
	f.dead, f.wanted = f.dead[:0], nil
	obs := f.recorder.End(f.now-began, f.evictions > 0)
	if ok {
		f.deliver(&policies.Event{Kind: policies.IterationEnd, Observation: obs, Evictions: f.evictions})
	}
	return ok
}

func (f *Fake) body(it *Iteration) bool {
	f.stage = profilers.Stage{Phase: profilers.Init}
	if !f.op(nameExtra, nil, nil) {
		return false
	}
	for m := 1; m <= it.MicroBatches; m++ {
		var saved [][]policies.Handle
		f.begin(profilers.Stage{Phase: profilers.Forward, MicroBatch: int32(m), Layer: 1})
		for range it.Extra {
			if !f.op(nameExtra, nil, nil) {
				return false
			}
		}
		var last []policies.Handle
		for _, sizes := range it.Layers {
			var layer []policies.Handle
			for _, b := range sizes {
				h := f.create(b, profilers.Others)
				layer = append(layer, h)
				if !f.op(nameForward, last, []policies.Handle{h}) {
					return false
				}
				f.deliver(&policies.Event{Kind: policies.SaveEvent, Tensor: h})
				last = []policies.Handle{h}
			}
			saved = append(saved, layer)
		}
		if !it.ForwardOnly {
			f.begin(profilers.Stage{Phase: profilers.Backward, MicroBatch: int32(m), Layer: 1})
		}
		for l := len(saved) - 1; l >= 0; l-- {
			for _, h := range saved[l] {
				if !it.ForwardOnly {
					f.deliver(&policies.Event{Kind: policies.UnpackEvent, Tensor: h})
					if !f.op(nameBackward, []policies.Handle{h}, nil) {
						return false
					}
				}
				f.destroy(h)
			}
		}
	}
	if it.ForwardOnly {
		return true
	}
	f.begin(profilers.Stage{Phase: profilers.Optim})
	for _, h := range f.states {
		if !f.op(nameOptimizer, []policies.Handle{h}, nil) {
			return false
		}
	}
	return true
}

func (f *Fake) begin(s profilers.Stage) {
	f.stage = s
	f.deliver(&policies.Event{Kind: policies.MarkEvent, Mark: policies.Mark{Stage: s}})
}

// Now is a clock that advances by a millisecond per operator.
func (f *Fake) Now() sim.Time { return f.now }

// Do carries out evictions, prefetches, discards and rematerializations of live
// tensors; it fails the test on actions that a policy can know to be impossible.
func (f *Fake) Do(a policies.Action) policies.Outcome {
	f.count()
	x, alive := f.tensors[a.What.Handle]
	if a.What.Kind != policies.ByHandle || !alive {
		f.t.Fatalf("action %v on a tensor that is not alive", a)
	}
	outcome := policies.Done
	switch a.Kind {
	case policies.Evict:
		switch {
		case !x.info.Evictable:
			f.t.Fatalf("eviction of a tensor that cannot be evicted: %+v", x.info)
		case f.script.Stubborn > 0 && int(a.What.Handle)%f.script.Stubborn == 0:
			outcome = policies.Refused
		case f.host+x.info.Bytes > f.script.Host:
			outcome = policies.NoHost
		default:
			f.evict(x)
		}
	case policies.Prefetch:
		switch block := (x.info.Bytes + 511) / 512 * 512; {
		case x.info.OnDevice || !x.info.OnHost:
			outcome = policies.Refused
		case f.used+block > f.script.Capacity:
			outcome = policies.NoRoom
		default:
			f.allocate(a.What.Handle)
		}
	case policies.Discard:
		switch {
		case !f.needs.Lineage.Keep:
			f.t.Fatalf("a discard by a policy that does not ask for a lineage")
		case !x.info.Discardable:
			f.t.Fatalf("discard of a tensor that cannot be discarded: %+v", x.info)
		case f.script.Stubborn > 0 && int(a.What.Handle)%f.script.Stubborn == 0:
			outcome = policies.Refused
		default:
			f.discard(x)
			f.evictions++
		}
	case policies.Rematerialize:
		switch {
		case !f.needs.Lineage.Keep:
			f.t.Fatalf("a rematerialization by a policy that does not ask for a lineage")
		case x.info.OnDevice || x.info.OnHost || x.made == nil || x.locks > 0:
			outcome = policies.Refused
		default:
			f.wanted = append(f.wanted, a.What.Handle)
		}
	default:
		f.t.Fatalf("action kind %d is not for live tensors here", a.Kind)
	}
	f.log = append(f.log, fmt.Sprintf("%d:%d do %d %d: %d", f.iteration, f.ops, a.Kind, a.What.Handle, outcome))
	return outcome
}

func (f *Fake) evict(x *tensor) {
	f.host += x.info.Bytes
	f.used -= x.info.Block
	f.nextID++
	f.recorder.Swap(profilers.SwapRec{
		Out: true, Bytes: x.info.Bytes, OOM: true, Src: x.id, Dst: f.nextID})
	x.id = f.nextID
	x.info.OnDevice, x.info.OnHost, x.info.Block = false, true, 0
	f.refresh(x)
	f.evictions++
}

func (f *Fake) discard(x *tensor) {
	f.used -= x.info.Block
	x.info.OnDevice, x.info.Block = false, 0
	f.refresh(x)
}

// count fails the test when one event leads to more actions than there can be
// reasons for.
func (f *Fake) count() {
	if !f.delivering {
		f.t.Fatalf("an action outside of Handle")
	}
	if f.calls++; f.calls > 4*len(f.tensors)+16 {
		f.t.Fatalf("%d actions in one event with %d tensors alive: will it end?", f.calls, len(f.tensors))
	}
}

// Arm checks the plan.
func (f *Fake) Arm(p *policies.Plan) error {
	f.count()
	if err := p.Validate(); err != nil {
		f.t.Fatalf("the plan is not valid: %v", err)
	}
	f.log = append(f.log, fmt.Sprintf("%d arm %+v", f.iteration, p))
	if p == nil {
		return nil
	}
	bound := map[policies.Handle]bool{}
	for i := range p.Swaps {
		s := &p.Swaps[i]
		if !s.Optimizer {
			continue
		}
		h := s.Out.What.Handle
		x, alive := f.tensors[h]
		if !alive || x.info.Type != profilers.OptimState || bound[h] {
			f.t.Fatalf("swap %d binds handle %d, which is not an optimizer state, or twice", i, h)
		}
		bound[h] = true
	}
	return nil
}

// Observe sets the profiling level of the next iteration.
func (f *Fake) Observe(l policies.Level) {
	f.level = l
	f.log = append(f.log, fmt.Sprintf("%d observe %d", f.iteration, l))
}

// Charge logs a planning cost, which must not be negative.
func (f *Fake) Charge(cost sim.Time) {
	if cost < 0 {
		f.t.Fatalf("a charge of %d ps", cost)
	}
	f.log = append(f.log, fmt.Sprintf("%d charge %d", f.iteration, cost))
}

// Tensor looks a live tensor up.
func (f *Fake) Tensor(h policies.Handle) (policies.TensorInfo, bool) {
	if x, ok := f.tensors[h]; ok {
		return x.info, true
	}
	return policies.TensorInfo{}, false
}

// Nominal grants no truth.
func (f *Fake) Nominal() *policies.Nominal { return nil }

// OptimizerStates lists the script's states.
func (f *Fake) OptimizerStates() []policies.Handle { return f.states }

// Moved has a link of 1 GiB/s each way.
func (f *Fake) Moved(bool) (sim.Bytes, sim.Time) { return sim.GiB, sim.Second }

// Capacity is the device's.
func (f *Fake) Capacity() sim.Bytes { return f.script.Capacity }

// Reserved equals Allocated: the Fake has no pool.
func (f *Fake) Reserved() sim.Bytes { return f.used }

// Allocated is what all tensors occupy.
func (f *Fake) Allocated() sim.Bytes { return f.used }
