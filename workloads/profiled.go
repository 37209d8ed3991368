package workloads

import (
	"fmt"
	"slices"

	"smartswap/hw"
	"smartswap/sim"
)

// ProfiledOp is an operator whose times were measured.
type ProfiledOp struct {
	Name              string
	Forward, Backward sim.Time
	Weights           sim.Bytes // 16-bit; 0 = none
	Input             sim.Bytes // gradient of what it reads
	Result            sim.Bytes // what it leaves for the next operator
	Aside             sim.Bytes // what it leaves for its own backward pass alone, such as a mask; 0 = nothing
	// ReadsInput and ReadsResult tell what its backward pass reads beside Aside. A
	// result that no backward pass reads dies once the next operator has run.
	ReadsInput, ReadsResult bool
	Recompute               bool // runs again in backward, with its neighbours of the same Group
	Group                   int
	// Replicas share the operator's batch and all-reduce its gradients.
	Replicas int
}

// ProfiledStage is a pipeline stage of measured operators.
type ProfiledStage struct {
	Devices []int
	Ops     []ProfiledOp
	Output  sim.Bytes // sent to the next stage per micro-batch
}

// maxProfiledOps bounds the operators of a stage times its micro-batches: a program
// of about ten million instructions.
const maxProfiledOps = 1 << 20

// NewProfiled makes the program of every stage of a pipeline of measured
// operators under 1F1B over so many micro-batches: kernels take the given times,
// recomputation runs neighbours of one group again before their backward passes,
// from what the first one read. A stage keeps what it has received and what it sends
// until the micro-batch's backward pass ends, as megatron/schedules.py does in its
// lists of input and output tensors. Too many operators for one
// program are an error.
//
// Weights and gradients are as in Megatron-LM 2.5 without contiguous buffers, on
// which the planner's runtime is built (megatron/optimizer/optimizer.py,
// Float16OptimizerWithFloat16Params): 16-bit weights, fp32 copies and moments, 14
// bytes per parameter, stay. The first micro-batch leaves 16-bit gradients, to which
// those of all others are added by kernels of their own, which the profiles of
// single operators do not have; the step makes fp32 copies of them, 18 bytes in
// all. The optimizer's step, transfers and all-reduces over replicas are modelled.
func NewProfiled(stages []ProfiledStage, micros int) (*Names, []Rank, []*Program, error) {
	most := 0
	for s := range stages {
		most = max(most, len(stages[s].Ops))
	}
	if micros < 1 || most < 1 || micros > maxProfiledOps/most {
		return nil, nil, nil, fmt.Errorf("%d micro-batches of %d operators on a stage: want at least one of each, and at most %d together", micros, most, maxProfiledOps)
	}
	names := NewNames()
	var ranks []Rank
	var programs []*Program
	steps := schedule(len(stages), 1, micros, false, between)
	for s := range stages {
		g := &profiled{stages: stages, s: s, names: names, ops: stages[s].Ops}
		g.layOut()
		g.b = NewBuilder(names, g.residents)
		g.run(steps[s], micros)
		p, err := g.b.Program("train")
		if err != nil {
			return nil, nil, nil, fmt.Errorf("stage %d: %w", s, err)
		}
		ranks = append(ranks, Rank{Devices: stages[s].Devices, Stage: s, Residents: g.residents})
		programs = append(programs, p)
	}
	return names, ranks, programs, nil
}

// profiled writes the program of one stage.
type profiled struct {
	stages    []ProfiledStage
	s         int
	names     *Names
	b         *Builder
	ops       []ProfiledOp
	residents []Storage
	states    []profiledState // by operator
	gradients []StorageID     // by operator, 16-bit, since the first backward pass; none before and without weights
	sends     [2]pendingSend
	flags     Flags
}

// profiledState is where an operator's weights and optimizer states are.
type profiledState struct{ weights, optimizer StorageID }

// profiledMicro is what a micro-batch leaves between its passes.
type profiledMicro struct {
	input    received
	kept     []profiledSaved // by operator
	read     []StorageID     // by operator: what a group that begins there was computed from
	gradient received
	output   StorageID // what was sent on; none on the last stage
	result   StorageID
	done     int32
}

// profiledSaved is what an operator keeps for its backward pass; none = not that.
type profiledSaved struct{ input, result, aside StorageID }

func (g *profiled) layOut() {
	add := func(class Class, d DType, size sim.Bytes, label string) StorageID {
		g.residents = append(g.residents, Storage{Bytes: size, Class: class, DType: d, Shape: flat(int64(size / d.Size())), Label: g.names.ID(label)})
		return StorageID(len(g.residents) - 1)
	}
	for i := range g.ops {
		st := profiledState{none, none}
		if w := g.ops[i].Weights; w > 0 {
			st = profiledState{add(Parameter, BF16, w, g.ops[i].Name+".weight"), add(Optimizer, FP32, 6*w, "optimizer")}
		}
		g.states = append(g.states, st)
		g.gradients = append(g.gradients, none)
	}
}

// gradient declares a gradient of operator i's weights.
func (g *profiled) gradient(i int, d DType, label string) StorageID {
	n := int64(g.ops[i].Weights / 2)
	return g.b.New(Storage{Bytes: sim.Bytes(n) * d.Size(), Class: Gradient, DType: d, Shape: flat(n), Label: g.names.ID(label)})
}

func (g *profiled) activation(size sim.Bytes, label string) StorageID {
	size = max(size, 1)
	return g.b.New(Storage{Bytes: size, Class: Activation, DType: UINT8, Shape: flat(int64(size)), Label: g.names.ID(label)})
}

// kernel is a measured kernel; no time takes none.
func (g *profiled) kernel(name string, took sim.Time, args ...Arg) {
	g.b.Op(OpSpec{Name: g.names.ID(name), Lane: Compute, Kernel: Kernel{Work: hw.Work{Kind: hw.Measured, Time: took}}, Flags: g.flags}, args...)
}

// modelled is a kernel of the compute lane that is in no profile.
func (g *profiled) modelled(name string, w hw.Work, args ...Arg) {
	g.b.Op(OpSpec{Name: g.names.ID(name), Lane: Compute, Kernel: Kernel{Work: w}, Flags: g.flags}, args...)
}

func (g *profiled) first() bool { return g.s == 0 }
func (g *profiled) last() bool  { return g.s == len(g.stages)-1 }

func (g *profiled) run(steps []step, micros int) {
	g.sends = [2]pendingSend{{output: none}, {output: none}}
	g.b.Mark(MarkIterationBegin, 0, 0)
	batches := slices.Repeat([]profiledMicro{{input: received{storage: none}}}, micros)
	backwards := 0
	for _, st := range steps {
		m := &batches[st.micro]
		switch st.kind {
		case receiveForward:
			m.input = g.receive(g.s-1, tagForward, g.stages[g.s-1].Output)
		case forward:
			g.b.Mark(MarkForwardBegin, st.micro+1, 0)
			g.forward(m)
			g.b.Mark(MarkForwardEnd, st.micro+1, 0)
			m.done = g.passed(m.result)
		case sendForward:
			g.send(g.s+1, tagForward, m.result, m.done, g.stages[g.s].Output)
		case receiveBackward:
			m.gradient = g.receive(g.s+1, tagBackward, g.stages[g.s].Output)
		case backward:
			backwards++
			g.b.Mark(MarkBackwardBegin, backwards, 0)
			g.backward(m)
			g.b.Mark(MarkBackwardEnd, backwards, 0)
			m.done = g.passed(m.result)
		case sendBackward:
			g.send(g.s-1, tagBackward, m.result, m.done, g.stages[g.s-1].Output)
		}
	}
	for i := range g.sends {
		g.finishSend(&g.sends[i])
	}
	g.step()
	g.b.Mark(MarkIterationEnd, 0, 0)
}

func (g *profiled) passed(result StorageID) int32 {
	if result == none {
		return -1
	}
	return g.b.Record(Compute)
}

func (g *profiled) receive(from int, tag int32, size sim.Bytes) received {
	x := g.activation(size, "hidden")
	g.b.Order(Compute, CommPeer)
	g.b.Op(OpSpec{Name: g.names.ID("c10d::recv_"), Lane: CommPeer, Kernel: g.transfer(from, g.s, tag, size)}, Out(x))
	return received{x, g.b.Record(CommPeer)}
}

func (g *profiled) send(to int, tag int32, y StorageID, ready int32, size sim.Bytes) {
	p := &g.sends[tag-tagForward]
	g.finishSend(p)
	g.b.Wait(CommPeer, ready)
	g.b.Op(OpSpec{Name: g.names.ID("c10d::send"), Lane: CommPeer, Kernel: g.transfer(g.s, to, tag, size)}, In(y))
	*p = pendingSend{y, g.b.Record(CommPeer)}
}

func (g *profiled) finishSend(p *pendingSend) {
	if p.output != none {
		g.b.Wait(Compute, p.done)
		g.b.Drop(p.output)
		p.output = none
	}
}

func (g *profiled) transfer(from, to int, tag int32, size sim.Bytes) Kernel {
	return Kernel{Work: hw.Work{Kind: hw.Transfer, Size: size}, Group: []int32{int32(from), int32(to)}, Tag: tag}
}

// weight is the argument of an operator's weights, if it has any.
func (g *profiled) weight(i int) []Arg {
	if g.states[i].weights == none {
		return nil
	}
	return []Arg{In(g.states[i].weights)}
}

// forward runs the operators on the received tensor; the result is the caller's,
// none on the last stage. What backward needs is saved.
func (g *profiled) forward(m *profiledMicro) {
	x := none
	if !g.first() {
		g.b.Wait(Compute, m.input.ready)
		x = m.input.storage
		g.b.Save(x)
	}
	m.kept = make([]profiledSaved, len(g.ops))
	m.read = slices.Repeat([]StorageID{none}, len(g.ops))
	for i := range g.ops {
		if g.ops[i].Recompute && (i == 0 || !g.joins(i)) && x != none {
			g.b.Save(x)
			m.read[i] = x
		}
		x = g.one(m, i, x, !g.ops[i].Recompute)
	}
	m.output = none
	if g.last() {
		g.b.Drop(x)
		x = none
	} else {
		g.b.Save(x)
		m.output = x
	}
	m.result = x
}

// begin is the first of the operators up to hi-1 that are computed again together;
// hi-1 if that one is not.
func (g *profiled) begin(hi int) (lo int) {
	lo = hi - 1
	for lo > 0 && g.joins(lo) {
		lo--
	}
	return lo
}

// joins tells whether operator i > 0 is computed again together with the one before.
func (g *profiled) joins(i int) bool {
	return g.ops[i].Recompute && g.ops[i-1].Recompute && g.ops[i-1].Group == g.ops[i].Group
}

// one runs operator i forward on x, whose reference it takes over, and saves what its
// backward pass reads if that is to follow.
func (g *profiled) one(m *profiledMicro, i int, x StorageID, save bool) (y StorageID) {
	op := &g.ops[i]
	size := op.Result
	if i == len(g.ops)-1 && !g.last() {
		size = max(size, g.stages[g.s].Output)
	}
	y = g.activation(size, op.Name)
	args := g.weight(i)
	if x != none {
		args = append(args, In(x))
	}
	args = append(args, Out(y))
	aside := none
	if op.Aside > 0 {
		aside = g.activation(op.Aside, op.Name)
		args = append(args, Out(aside))
	}
	g.kernel(op.Name, op.Forward, args...)
	kept := profiledSaved{none, none, none}
	if save {
		keep := func(s StorageID, needed bool) StorageID {
			if s == none || !needed {
				return none
			}
			g.b.Save(s)
			return s
		}
		kept = profiledSaved{keep(x, op.ReadsInput), keep(y, op.ReadsResult), keep(aside, true)}
	}
	m.kept[i] = kept
	for _, s := range []StorageID{aside, x} {
		if s != none {
			g.b.Drop(s)
		}
	}
	return y
}

// backward runs back; the gradient for the stage before is the caller's.
func (g *profiled) backward(m *profiledMicro) {
	dy := none
	if !g.last() {
		g.b.Wait(Compute, m.gradient.ready)
		dy = m.gradient.storage
	}
	for hi := len(g.ops); hi > 0; {
		lo := g.begin(hi)
		if g.ops[lo].Recompute {
			g.again(m, lo, hi)
		}
		for i := hi - 1; i >= lo; i-- {
			dy = g.back(m, i, dy)
		}
		if m.read[lo] != none {
			g.b.Drop(m.read[lo])
		}
		hi = lo
	}
	for _, s := range []StorageID{m.output, m.input.storage} {
		if s != none {
			g.b.Unpack(s)
			g.b.Drop(s)
		}
	}
	m.result = dy
	if g.first() {
		g.b.Drop(dy)
		m.result = none
	}
}

// again runs operators lo..hi-1 once more, now for their backward passes.
func (g *profiled) again(m *profiledMicro, lo, hi int) {
	x := m.read[lo]
	if x != none {
		g.b.Unpack(x)
		g.b.Ref(x)
	}
	g.flags |= Recomputed
	for i := lo; i < hi; i++ {
		x = g.one(m, i, x, true)
	}
	g.flags &^= Recomputed
	g.b.Drop(x)
}

// back is the backward pass of operator i.
func (g *profiled) back(m *profiledMicro, i int, dy StorageID) (dx StorageID) {
	op := &g.ops[i]
	size := op.Input
	if i == 0 && !g.first() {
		size = g.stages[g.s-1].Output
	}
	dx = g.activation(size, "gradient")
	args := g.weight(i)
	kept := []StorageID{m.kept[i].input, m.kept[i].result, m.kept[i].aside}
	kept = slices.DeleteFunc(kept, func(s StorageID) bool { return s == none })
	for _, s := range kept {
		g.b.Unpack(s)
		args = append(args, In(s))
	}
	if dy != none {
		args = append(args, In(dy))
	}
	args = append(args, Out(dx))
	own := none
	if op.Weights > 0 {
		own = g.gradient(i, BF16, op.Name+".grad")
		args = append(args, Out(own))
	}
	g.kernel(op.Name+" backward", op.Backward, args...)
	switch {
	case own == none:
	case g.gradients[i] == none:
		g.gradients[i] = own
	default:
		g.modelled("aten::add_", moving(hw.Elementwise, int64(op.Weights/2), 6), In(own), InPlace(g.gradients[i]))
		g.b.Drop(own)
	}
	for _, s := range kept {
		g.b.Drop(s)
	}
	if dy != none {
		g.b.Drop(dy)
	}
	return dx
}

// step reduces gradients over replicas, one all-reduce for neighbours with as many,
// copies them to fp32 and steps all states.
func (g *profiled) step() {
	g.b.Mark(MarkOptimizerBegin, 0, 0)
	defer g.b.Mark(MarkOptimizerEnd, 0, 0)
	elements := int64(0)
	for lo := 0; lo < len(g.ops); {
		hi, size := lo, sim.Bytes(0)
		var grads []Arg
		for hi < len(g.ops) && g.ops[hi].Replicas == g.ops[lo].Replicas {
			if own := g.gradients[hi]; own != none {
				size += g.ops[hi].Weights
				grads = append(grads, InPlace(own))
			}
			hi++
		}
		if n := g.ops[lo].Replicas; n > 1 && size > 0 {
			g.b.Order(Compute, Comm)
			g.b.Op(OpSpec{Name: g.names.ID("c10d::allreduce_"), Lane: Comm, Kernel: Kernel{Work: collective(hw.AllReduce, size, n)}}, grads...)
			g.b.Order(Comm, Compute)
		}
		elements += int64(size / 2)
		lo = hi
	}
	var adam, masters, weights []Arg
	var copies []StorageID
	for i, own := range g.gradients {
		if own == none {
			continue
		}
		main := g.gradient(i, FP32, "main_grad")
		g.modelled("aten::copy_", moving(hw.Cast, int64(g.ops[i].Weights/2), 6), In(own), Out(main))
		g.b.Drop(own)
		copies = append(copies, main)
		adam = append(adam, In(main), InPlace(g.states[i].optimizer))
		masters = append(masters, In(g.states[i].optimizer))
		weights = append(weights, InPlace(g.states[i].weights))
	}
	if len(adam) > 0 { // per parameter 4 bytes of gradients, and 12 of states in and out
		g.modelled("adam", moving(hw.OptimizerStep, elements, 4+2*12), adam...)
		g.modelled("aten::copy_", moving(hw.Cast, elements, 6), append(masters, weights...)...)
	}
	// Statistics over all stages, which the host reads, end the iteration everywhere:
	// measured runs are timed so.
	stats := g.activation(4, "statistics")
	g.modelled("aten::linalg_vector_norm", moving(hw.Reduction, elements, 4), Out(stats))
	if len(g.stages) > 1 {
		all := make([]int32, len(g.stages))
		for i := range all {
			all[i] = int32(i)
		}
		devices := 0
		for i := range g.stages {
			devices += len(g.stages[i].Devices)
		}
		g.b.Order(Compute, Comm)
		g.b.Op(OpSpec{Name: g.names.ID("c10d::allreduce_"), Lane: Comm, Kernel: Kernel{Work: collective(hw.AllReduce, 4, devices), Group: all}}, InPlace(stats))
		g.b.Order(Comm, Compute)
	}
	g.b.Sync(Compute)
	g.b.Drop(stats)
	for _, s := range copies {
		g.b.Drop(s)
	}
}
