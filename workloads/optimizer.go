package workloads

import (
	"math/bits"
	"slices"

	"smartswap/hw"
	"smartswap/sim"
)

// zeroGradients clears the fp32 gradients before the first micro-batch.
func (g *generator) zeroGradients() {
	args := make([]Arg, len(g.st.grads))
	for i, s := range g.st.grads {
		args[i] = Out(s)
	}
	if g.v.Adapters { // the others are left alone
		args[0].Mode = Update
	}
	g.op(oZero, moving(hw.Elementwise, g.trained(), int64(g.c.gradientBytes())), args...)
}

// trained is the number of elements of gradients that this iteration trains.
func (g *generator) trained() int64 {
	elements := int64(0)
	for i := range g.st.states {
		s := &g.st.states[i]
		switch {
		case g.c.ZeRO == 3:
			elements += s.elements
		case g.trains(s.name):
			elements += s.whole
		}
	}
	return elements
}

// step is everything between the last backward and the end of the optimizer
// (Megatron-LM megatron/core/optimizer/distrib_optimizer.py and
// distributed/finalize_model_grads.py): gradients are reduced over replicas,
// their norm is computed and read by the host, which then knows whether anything
// overflowed; unless it did, they are clipped and AdamW runs tensor by tensor.
func (g *generator) step() {
	g.b.Mark(MarkOptimizerBegin, 0, 0)
	defer g.b.Mark(MarkOptimizerEnd, 0, 0)
	g.layer = 0
	g.reduceShared()
	shared := g.c.DP > 1 && g.c.ZeRO == 1 && !g.c.Replicated // states are shares of whole buffers
	trained := g.trained()
	switch size := g.c.gradientBytes() * sim.Bytes(trained); {
	case shared:
		g.wait(g.start(oReduceScatter, g.overReplicas(hw.ReduceScatter, size), g.dp, InPlace(g.st.grads[0])))
	case g.c.DP > 1 && g.c.Replicated:
		g.wait(g.start(oAllReduce, g.overReplicas(hw.AllReduce, size), g.dp, InPlace(g.st.grads[0])))
	}
	states := g.trainedStates()
	if !g.update(states, shared) {
		return
	}
	if shared {
		w := g.overReplicas(hw.AllGather, 2*sim.Bytes(trained))
		g.wait(g.start(oAllGather, w, g.dp, InPlace(g.st.params)))
	}
	g.extras(states)
}

// update computes the norm of the reduced gradients, clips them and steps through
// states; false if the step is skipped instead. Shared states are shares of
// tensors.
func (g *generator) update(states []state, shared bool) bool {
	own := int64(0)
	for _, s := range states {
		own += s.elements
	}
	args := make([]Arg, 0, len(g.st.grads)+1)
	if g.c.gradients() == BF16 {
		args = g.mainGradients(states, own)
		defer func() {
			for _, a := range args {
				g.b.Drop(a.Storage)
			}
		}()
		if g.v.Skip { // the host has read that something overflowed
			return false
		}
		states = slices.Clone(states)
		for i := range states {
			states[i].grad = args[i]
		}
	} else {
		for _, s := range g.st.grads {
			args = append(args, In(s))
		}
	}
	size := int64(g.b.Storage(args[0].Storage).DType.Size())
	norm := g.norms(own, size, args)
	if g.v.Skip {
		g.b.Drop(norm)
		return false
	}
	clipped := slices.Clone(args)
	for i := range clipped {
		clipped[i].Mode = Update
	}
	g.op(oMul, moving(hw.Elementwise, own, 2*size), append(clipped, In(norm))...)
	g.b.Drop(norm)
	if g.classic() {
		g.updateClassic(states, own, size)
		return true
	}
	for _, s := range states {
		// Gradient in; fp32 copy and both moments in and out.
		grad := s.grad
		grad.Mode = Read
		g.op(oAdamW, moving(hw.OptimizerStep, s.elements, 4+3*8), grad, InPlace(s.master), InPlace(s.expAvg), InPlace(s.expAvgSq))
		value := s.value
		value.Mode = Write
		if shared {
			value.Mode = Update // of this rank's share
		}
		g.op(oCopy, moving(hw.Cast, s.elements, 6), In(s.master), value)
	}
	return true
}

// trainedStates are the states that the optimizer steps through.
func (g *generator) trainedStates() []state {
	if !g.v.Adapters && g.c.adapterRank() == 0 {
		return g.st.states
	}
	var list []state
	for _, s := range g.st.states {
		if g.trains(s.name) {
			list = append(list, s)
		}
	}
	return list
}

// norms computes the norm of elements of a size that args read, over all devices,
// and lets the host read it.
func (g *generator) norms(elements, size int64, args []Arg) (norm StorageID) {
	norm = g.tensor(lNormValue, FP32, 1)
	g.op(oNorm, moving(hw.Reduction, elements, size), append(args, Out(norm))...)
	if g.c.Devices > 1 {
		g.wait(g.start(oAllReduce, collective(hw.AllReduce, 4, g.c.Devices), g.all, InPlace(norm)))
	}
	g.b.Sync(Compute)
	return norm
}

// extras logs and averages (see Extras).
func (g *generator) extras(states []state) {
	if g.v.Average {
		for _, s := range states {
			g.op(oLerp, moving(hw.Elementwise, s.elements, 12), In(s.master), InPlace(s.average))
		}
	}
	if !g.v.Log {
		return
	}
	zeros := g.tensor(lNormValue, FP32, len(states))
	own, args := int64(0), make([]Arg, 0, len(states)+1)
	for i, s := range states {
		grad := s.grad
		grad.Mode = Read
		out := Arg{Storage: zeros, View: ViewID(i + 1), Mode: Update}
		if i == 0 {
			out.Mode = Write
		}
		g.op(oCountNonzero, moving(hw.Reduction, s.elements, 4), grad, out)
		own += s.elements
		args = append(args, In(s.master))
	}
	norm := g.norms(own, 4, args)
	g.b.Drop(norm)
	g.b.Drop(zeros)
}

// save writes a checkpoint (see CheckpointSave): parameters and the states of
// the optimizer, in the order of residents.
func (g *generator) save() {
	if g.v.Save == 0 {
		return
	}
	g.b.Sync(Compute)
	total := uint64(0)
	saved := func(s *Storage) bool { return s.Class == Parameter || s.Class == Optimizer }
	for i := range g.st.residents {
		if s := &g.st.residents[i]; saved(s) {
			total += uint64(s.Bytes)
		}
	}
	for i := range g.st.residents {
		s := &g.st.residents[i]
		if !saved(s) {
			continue
		}
		hi, lo := bits.Mul64(uint64(g.v.Save), uint64(s.Bytes))
		host, _ := bits.Div64(hi, lo, total) // at most Save
		g.b.Op(OpSpec{Name: oToHost, Lane: Compute, HostOnly: true, Host: max(sim.Time(host), 1)}, In(StorageID(i)))
	}
}

// reduceShared sums gradients of parameters that exist more than once: norms
// under sequence parallelism (each rank saw its part of the sequence), and a
// tied embedding on the first and the last stage.
func (g *generator) reduceShared() {
	if g.sequenceParallel() {
		elements := int64(0)
		for i := range g.st.units {
			for name, p := range g.st.units[i].params {
				if sequenceSplit(NameID(name)) && g.trains(NameID(name)) {
					elements += p.elements
				}
			}
		}
		if g.c.ZeRO == 3 { // reduced over replicas already: a share is left
			elements = (elements + int64(g.c.DP) - 1) / int64(g.c.DP)
		}
		args := make([]Arg, len(g.st.grads))
		for i, s := range g.st.grads {
			args[i] = InPlace(s)
		}
		g.wait(g.start(oAllReduce, collective(hw.AllReduce, sim.Bytes(4*elements), g.c.TP), g.tp, args...))
	}
	if g.m.Tied && g.trains(pEmbedding) && g.c.PP > 1 && (g.st.first || g.st.last) {
		u, name := 0, pEmbedding
		if g.st.last {
			u, name = len(g.st.units)-1, pHead
		}
		p := &g.st.units[u].params[name]
		w := collective(hw.AllReduce, g.c.gradientBytes()*sim.Bytes(p.elements), 2)
		w.Stride = g.distance(0, g.c.PP-1)
		g.wait(g.start(oAllReduce, w, g.firstEnd, g.weightGrad(u, name)))
	}
}

// sequenceSplit tells whether a parameter is whole on every member of a
// tensor-parallel group while each has seen a part of the tokens or of the
// result only.
func sequenceSplit(name NameID) bool {
	switch name {
	case pNorm1, pNorm1Bias, pNorm2, pNorm2Bias, pFinalNorm, pFinalNormBias, pProjBias, pDownBias, pPositions,
		pQKVAdapterDown, pProjAdapterUp:
		return true
	}
	return false
}
