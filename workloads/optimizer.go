package workloads

import (
	"smartswap/hw"
	"smartswap/sim"
)

// zeroGradients clears the fp32 gradients before the first micro-batch.
func (g *generator) zeroGradients() {
	args := make([]Arg, len(g.st.grads))
	elements := int64(0)
	for i, s := range g.st.grads {
		args[i] = Out(s)
		elements += int64(g.bytes(s) / 4)
	}
	g.op(oZero, moving(hw.Elementwise, elements, 4), args...)
}

// step is everything between the last backward and the end of the optimizer
// (Megatron-LM megatron/core/optimizer/distrib_optimizer.py and
// distributed/finalize_model_grads.py): gradients are reduced over replicas,
// their norm is computed and read by the host, which then knows whether anything
// overflowed; unless it did, they are clipped and AdamW runs tensor by tensor.
func (g *generator) step(skip bool) {
	g.b.Mark(MarkOptimizerBegin, 0, 0)
	defer g.b.Mark(MarkOptimizerEnd, 0, 0)
	g.layer = 0
	g.reduceShared()
	shared := g.c.DP > 1 && g.c.ZeRO == 1 // states are shares of whole buffers
	if shared {
		grads := g.st.grads[0]
		g.wait(g.start(oReduceScatter, collective(hw.ReduceScatter, g.bytes(grads), g.c.DP), g.dp, InPlace(grads)))
	}
	own := int64(0)
	args := make([]Arg, 0, len(g.st.grads)+1)
	for _, s := range g.st.states {
		own += s.elements
	}
	for _, s := range g.st.grads {
		args = append(args, In(s))
	}
	norm := g.tensor(lNormValue, FP32, 1)
	g.op(oNorm, moving(hw.Reduction, own, 4), append(args, Out(norm))...)
	if g.c.Devices > 1 {
		g.wait(g.start(oAllReduce, collective(hw.AllReduce, 4, g.c.Devices), g.all, InPlace(norm)))
	}
	g.b.Sync(Compute)
	if skip {
		g.b.Drop(norm)
		return
	}
	for i := range args {
		args[i].Mode = Update
	}
	g.op(oMul, moving(hw.Elementwise, own, 8), append(args, In(norm))...)
	g.b.Drop(norm)
	for _, s := range g.st.states {
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
	if shared {
		params := g.st.params
		g.wait(g.start(oAllGather, collective(hw.AllGather, g.bytes(params), g.c.DP), g.dp, InPlace(params)))
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
				switch NameID(name) {
				case pNorm1, pNorm1Bias, pNorm2, pNorm2Bias, pFinalNorm, pFinalNormBias, pProjBias, pDownBias, pPositions:
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
	if g.m.Tied && g.c.PP > 1 && (g.st.first || g.st.last) {
		u, name := 0, pEmbedding
		if g.st.last {
			u, name = len(g.st.units)-1, pHead
		}
		p := &g.st.units[u].params[name]
		g.wait(g.start(oAllReduce, collective(hw.AllReduce, sim.Bytes(4*p.elements), 2), g.firstEnd, g.weightGrad(u, name)))
	}
}
