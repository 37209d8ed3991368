package workloads

import (
	"smartswap/hw"
	"smartswap/sim"
)

// Framework is whose operators a decoder dispatches.
type Framework string

// Frameworks.
const (
	// MegatronCore has the fused operators of Megatron-Core and MindSpeed: the
	// product that computes a weight gradient adds it to the fp32 gradient.
	MegatronCore Framework = "megatron-core"
	// Megatron2021 is Megatron-LM before Megatron-Core, alone or below
	// DeepSpeed (GPT style only). Against MegatronCore:
	//
	//   - autograd makes each gradient as a tensor of its own, which another
	//     kernel adds to the 16-bit gradient buffer;
	//   - the result of attention is copied to be contiguous, and the gradient
	//     of the fused projection is put together from its three parts;
	//   - the fused softmax reads only what its causal mask leaves; for some
	//     shapes there is none;
	//   - the loss is computed in elementary operators;
	//   - the host waits for the device after every transfer between pipeline
	//     stages, which is cut over a tensor-parallel group;
	//   - each kernel of the optimizer runs over all tensors, but for copies of
	//     16-bit gradients to fp32;
	//   - operators without a kernel cost the host a dispatch each: see calls.
	Megatron2021 Framework = "megatron-2021"
	// Megatron2022 is Megatron-LM 3.0, that of Korthikanti et al. (arXiv
	// 2205.05198): as Megatron2021, but with sequence parallelism, and with
	// gradient buffers of 32 bits. The product that computes a weight gradient
	// adds it to the buffer (megatron/mpu/layers.py,
	// gradient_accumulation_fusion, on by default); other gradients are 16-bit
	// tensors of their own, which another kernel adds.
	Megatron2022 Framework = "megatron-2022"
)

// classic tells whether the framework is older than Megatron-Core.
func (g *generator) classic() bool { return g.c.Framework != MegatronCore }

// Framework operators without a kernel, as megatron/model/transformer.py, mpu and
// p2p_communication.py of Megatron-LM 2.5 call them: counted from memory of the
// source, so assumed. A backward pass has one for each view or identity of the
// forward pass.
const (
	callsProjected = 3     // identity of the parallel region; view, split
	callsScores    = 6     // two views, an empty result, three transposes
	callsDropout   = 1 + 4 // a view; the generator's state fetched and set, before and after
	callsContext   = 3 + 3 // two views, a transpose; view, permute, view
	callsReduced   = 2     // function around the all-reduce; the bias expanded
	callsEntered   = 1     // identity of the parallel region

	callsScoresBackward  = 5 // no empty result
	callsDropoutBackward = 1

	callsCheckpoint = 3       // three generator states fetched
	callsRecompute  = 1 + 3*3 // input detached; three states fetched, set, and set back
	callsBatch      = 8       // masks and position ids
	callsLoss       = 8       // masked mean, and its mean over replicas
	callsTransfer   = 3       // buffers, a group of one request, its wait
)

// calls dispatches n framework operators that have no kernel.
func (g *generator) calls(n int) {
	if !g.classic() {
		return
	}
	for range n {
		g.b.Op(OpSpec{Name: oView, Lane: Compute, HostOnly: true, Flags: g.flags | Replayable})
	}
}

// addGradient computes a gradient of parameter name by compute, whose result is
// the last argument it is given, and adds it to what earlier micro-batches left:
// in the same kernel, or in one more, which reads and writes the buffer.
func (g *generator) addGradient(u int, name NameID, compute func(to Arg)) {
	if !g.classic() {
		compute(g.weightGrad(u, name))
		return
	}
	p := g.param(u, name)
	own := g.tensor(lGradient, BF16, p.rows, p.cols)
	compute(Out(own))
	g.op(oAdd, moving(hw.Elementwise, p.elements, 2+2*int64(g.c.gradientBytes())), In(own), g.weightGrad(u, name))
	g.b.Drop(own)
}

// accumulateProduct adds the m x n product over k of args to the gradient of a
// matrix.
func (g *generator) accumulateProduct(u int, name NameID, m, n, k int, args ...Arg) {
	if g.c.Framework == Megatron2021 {
		g.addGradient(u, name, func(to Arg) { g.op(oMatmul, matmul(m, n, k), append(args, to)...) })
		return
	}
	g.op(oMatmulAccumulate, matmulAccumulate(m, n, k), append(args, g.weightGrad(u, name))...)
}

// gradientBytes is the size of an element of the gradient buffers.
func (c *Config) gradientBytes() sim.Bytes { return c.gradients().Size() }

func (c *Config) gradients() DType {
	if c.Framework == Megatron2021 {
		return BF16
	}
	return FP32
}

// exchanges is when stages exchange tensors.
func (g *generator) exchanges() exchange {
	if g.classic() {
		return inTurns
	}
	return beside
}

// exchanged makes the host wait for the device after the transfers between two passes,
// which are one group ("to protect against race condition when using
// batch_isend_irecv").
func (g *generator) exchanged() {
	if g.classic() {
		g.b.Sync(CommPeer)
		g.b.Sync(Compute)
	}
}

// Fused softmax of older frameworks (megatron/model/fused_softmax.py,
// is_kernel_available, and fused_kernels/scaled_upper_triang_masked_softmax.h): a block
// of the kernel has four rows of different heads, and a row is in registers.
const (
	softmaxHeads   = 4    // heads times sequences must be a multiple
	softmaxLeast   = 16   // sequences must be longer
	softmaxMost    = 2048 // and not longer than that
	softmaxMost22  = 4096 // since Megatron-LM 3.0
	softmaxAligned = 4    // and a multiple of it
)

// fusedSoftmax tells whether scale, mask and softmax of count heads times sequences are
// one kernel.
func (g *generator) fusedSoftmax(count, seq int) bool {
	if !g.classic() {
		return true
	}
	most := softmaxMost
	if g.c.Framework == Megatron2022 {
		most = softmaxMost22
	}
	return count%softmaxHeads == 0 && seq > softmaxLeast && seq <= most && seq%softmaxAligned == 0
}

// triangle is how many elements of a seq x seq matrix of scores softmax reads: those
// that a causal mask leaves, or all.
func (g *generator) triangle(seq int) int64 {
	if g.classic() {
		return int64(seq) * int64(seq+1) / 2
	}
	return int64(seq) * int64(seq)
}

// softmaxClassic is softmax in elementary operators and fp32 (forward_torch_softmax of
// the same file, with query-key layer scaling, which is on by default).
func (g *generator) softmaxClassic(scores StorageID, count, seq int, s *coreSaved) (probs StorageID) {
	elements := int64(count) * int64(seq) * int64(seq)
	next := func(name NameID, label NameID, d DType, work hw.Work, from StorageID) StorageID {
		to := g.tensor(label, d, count, seq, seq)
		g.op(name, work, In(from), Out(to))
		return to
	}
	wide := next(oCast, lScores, FP32, moving(hw.Cast, elements, 6), scores)
	g.b.Drop(scores)
	scaled := next(oMul, lScores, FP32, moving(hw.Elementwise, elements, 8), wide)
	g.b.Drop(wide)
	g.op(oMaskedFill, moving(hw.Elementwise, elements, 8), In(g.st.mask), InPlace(scaled))
	s.probs = next(oSoftmax, lProbs, FP32, moving(hw.Softmax, elements, 8), scaled)
	g.b.Drop(scaled)
	return next(oCast, lProbs, BF16, moving(hw.Cast, elements, 6), s.probs)
}

func (g *generator) softmaxClassicBackward(d StorageID, count, seq int, s *coreSaved) (dscores StorageID) {
	elements := int64(count) * int64(seq) * int64(seq)
	wide := g.tensor(lGradient, FP32, count, seq, seq)
	g.op(oCast, moving(hw.Cast, elements, 6), In(d), Out(wide))
	g.b.Drop(d)
	g.op(oSoftmaxGrad, moving(hw.Softmax, elements, 12), In(s.probs), InPlace(wide))
	g.b.Drop(s.probs)
	g.op(oMaskedFill, moving(hw.Elementwise, elements, 8), In(g.st.mask), InPlace(wide))
	g.op(oMul, moving(hw.Elementwise, elements, 8), InPlace(wide))
	dscores = g.tensor(lGradient, BF16, count, seq, seq)
	g.op(oCast, moving(hw.Cast, elements, 6), In(wide), Out(dscores))
	g.b.Drop(wide)
	return dscores
}

// crossEntropyClassic is the loss in elementary operators (mpu/cross_entropy.py):
// maximum, difference, exponential, sum and quotient over all fp32 logits, with
// the maxima, target logits and sums all-reduced apart.
func (g *generator) crossEntropyClassic(batch StorageID, s *headSaved, elements int64) {
	part := g.tensor(lStats, FP32, g.tokens)
	reduce := func() {
		if g.c.TP > 1 {
			g.wait(g.start(oAllReduce, collective(hw.AllReduce, g.bytes(part), g.c.TP), g.tp, InPlace(part)))
		}
	}
	g.op(oMax, moving(hw.Softmax, elements, 4), In(s.softmax), Out(part))
	reduce()
	g.op(oSub, moving(hw.Softmax, elements, 8), In(part), InPlace(s.softmax))
	g.op(oGather, moving(hw.Softmax, int64(g.tokens), 16), In(batch), In(s.softmax), Out(s.loss))
	reduce()
	g.op(oExp, moving(hw.Softmax, elements, 8), InPlace(s.softmax))
	g.op(oSum, moving(hw.Softmax, elements, 4), In(s.softmax), InPlace(part))
	reduce()
	g.op(oSub, moving(hw.Elementwise, int64(g.tokens), 12), In(part), InPlace(s.loss))
	g.op(oDiv, moving(hw.Softmax, elements, 8), In(part), InPlace(s.softmax))
	g.b.Drop(part)
	g.calls(callsLoss)
}

// mainGradients copies 16-bit gradients to fp32, tensor by tensor, undoes the scale of the
// loss in all of them and lets the host read whether anything overflowed
// (megatron/optimizer/optimizer.py, _copy_model_grads_to_main_grads and
// _unscale_main_grads_and_check_for_nan). The caller drops them after the step.
func (g *generator) mainGradients(states []state, own int64) (mains []Arg) {
	var scaled []Arg
	for _, s := range states {
		grad := s.grad
		grad.Mode = Read
		main := g.b.New(Storage{Bytes: sim.Bytes(4 * s.elements), Class: Gradient, DType: FP32, Shape: flat(s.elements), Label: lGradient})
		g.op(oCast, moving(hw.Cast, s.elements, 6), grad, Out(main))
		mains = append(mains, In(main))
		scaled = append(scaled, InPlace(main))
	}
	found := g.tensor(lNormValue, FP32, 1)
	g.op(oUnscale, moving(hw.Elementwise, own, 8), append(scaled, Out(found))...)
	if g.c.Devices > 1 {
		g.wait(g.start(oAllReduce, collective(hw.AllReduce, 4, g.c.Devices), g.all, InPlace(found)))
	}
	g.b.Sync(Compute)
	g.b.Drop(found)
	return mains
}

// updateClassic steps through all states in one kernel and copies all of them back
// to 16 bits in another (apex multi_tensor_apply); gradients have size bytes.
func (g *generator) updateClassic(states []state, own, size int64) {
	var adam, masters, values []Arg
	for _, s := range states {
		grad, value := s.grad, s.value
		grad.Mode, value.Mode = Read, Update
		adam = append(adam, grad, InPlace(s.master), InPlace(s.expAvg), InPlace(s.expAvgSq))
		masters = append(masters, In(s.master))
		values = append(values, value)
	}
	g.op(oAdamW, moving(hw.OptimizerStep, own, size+3*8), adam...)
	g.op(oCopy, moving(hw.Cast, own, 6), append(masters, values...)...)
}
