package workloads

import (
	"fmt"

	"smartswap/hw"
	"smartswap/sim"
)

// ProfiledOp is an operator whose times were measured.
type ProfiledOp struct {
	Name              string
	Forward, Backward sim.Time
	Weights           sim.Bytes // 16-bit; 0 = none
	Kept              sim.Bytes // what its forward keeps for its backward
	Input             sim.Bytes
	Recompute         bool // runs again in backward, with its neighbours of the same Group
	Group             int
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
// of which forward keeps what the last one left. Too many operators for one
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
	steps := schedule(len(stages), 1, micros, false)
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
	kept     []StorageID // by operator; none where nothing is kept
	gradient received
	result   StorageID
	done     int32
}

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
	batches := make([]profiledMicro, micros)
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
	m.kept = make([]StorageID, len(g.ops))
	for i := range g.ops {
		y := g.one(i, x)
		m.kept[i] = none
		if g.keeps(i) {
			g.b.Save(y)
			m.kept[i] = y
		}
		if x != none {
			g.b.Drop(x)
		}
		x = y
	}
	if g.last() {
		g.b.Drop(x)
		x = none
	}
	m.result = x
}

// keeps tells whether forward keeps what operator i left: where it is not computed
// again, and where others of another group are computed again from it.
func (g *profiled) keeps(i int) bool {
	return !g.ops[i].Recompute || i+1 < len(g.ops) && g.ops[i+1].Recompute && g.ops[i+1].Group != g.ops[i].Group
}

// one runs an operator forward on x.
func (g *profiled) one(i int, x StorageID) (y StorageID) {
	op := &g.ops[i]
	size := op.Kept
	if i == len(g.ops)-1 && !g.last() {
		size = max(size, g.stages[g.s].Output)
	}
	y = g.activation(size, op.Name)
	args := g.weight(i)
	if x != none {
		args = append(args, In(x))
	}
	g.kernel(op.Name, op.Forward, append(args, Out(y))...)
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
		lo := hi - 1
		if g.ops[lo].Recompute {
			for lo > 0 && g.ops[lo-1].Recompute && g.ops[lo-1].Group == g.ops[lo].Group {
				lo--
			}
			g.again(m, lo, hi)
		}
		for i := hi - 1; i >= lo; i-- {
			dy = g.back(m, i, dy)
		}
		hi = lo
	}
	if !g.first() {
		g.b.Unpack(m.input.storage)
		g.b.Drop(m.input.storage)
		m.result = dy
	} else {
		g.b.Drop(dy)
		m.result = none
	}
}

// again runs operators lo..hi-1 once more and keeps what they leave.
func (g *profiled) again(m *profiledMicro, lo, hi int) {
	x := none
	switch {
	case lo > 0:
		x = m.kept[lo-1]
	case !g.first():
		x = m.input.storage
	}
	g.flags |= Recomputed
	for i := lo; i < hi; i++ {
		y := g.one(i, x)
		if m.kept[i] == none {
			g.b.Save(y)
			m.kept[i] = y
		}
		g.b.Drop(y)
		x = m.kept[i]
	}
	g.flags &^= Recomputed
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
	g.b.Unpack(m.kept[i])
	args = append(args, In(m.kept[i]))
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
	g.b.Drop(m.kept[i])
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
