package workloads

import "smartswap/hw"

// The feed-forward part of a mixture-of-experts layer, without capacity and
// without dropped tokens (Megatron-LM megatron/core/transformer/moe/router.py,
// token_dispatcher.py and SequentialMLP in experts.py): a router picks experts
// for every token, the tokens are copied into the order of experts, each expert
// works on its rows, and the results are put back and summed by weight. The host
// must know how many rows each expert has before it can dispatch them, so it
// waits for the router once per layer.
//
// Every device has all experts; tensor parallelism splits each of them, so that
// every member routes all tokens the same way.

// expertsSaved is what the feed-forward part keeps.
type expertsSaved struct {
	in      StorageID // its input, for the router's gradient
	probs   StorageID // weights of the chosen experts
	route   StorageID // where each row came from
	rows    StorageID // tokens in the order of experts
	outs    StorageID // results in the same order
	experts []feedForwardSaved
	rowsOf  []int // by expert
}

// expertView is the view of rows that belong to expert e.
func expertView(s StorageID, e int, mode Access) Arg {
	return Arg{Storage: s, View: ViewID(e + 1), Mode: mode}
}

// expertsForward runs the part on in, whose reference it takes over.
func (g *generator) expertsForward(u int, in StorageID) (y StorageID, s expertsSaved) {
	m, t, h := g.m, g.c.TP, g.m.Hidden
	s.rowsOf = g.v.Routing.split(g.tokens, m.TopK, g.micro, g.layer, m.Experts)
	count := g.tokens * m.TopK
	s.in = g.keepFor(in, g.trains(pRouter))
	full := g.gatherSequence(in)

	scores := g.tensor(lRouter, FP32, g.tokens, m.Experts)
	g.op(oMatmul, matmul(g.tokens, m.Experts, h), full, g.weight(u, pRouter), Out(scores))
	s.probs = g.tensor(lRouter, FP32, g.tokens, m.TopK)
	s.route = g.tensor(lRoute, INT32, g.tokens, m.TopK)
	g.op(oTopK, moving(hw.Softmax, int64(g.tokens)*int64(m.Experts), 4), In(scores), Out(s.probs), Out(s.route))
	g.b.Drop(scores)
	counts := g.tensor(lRoute, INT32, m.Experts)
	g.op(oCount, moving(hw.Reduction, int64(count), 4), In(s.route), Out(counts))
	g.b.Sync(Compute)
	g.b.Drop(counts)
	s.rows = g.tensor(lRows, BF16, count, h)
	g.op(oPermute, moving(hw.Elementwise, int64(count)*int64(h), 4), full, In(s.route), Out(s.rows))
	g.b.Drop(in)

	s.outs = g.tensor(lRows, BF16, count, h)
	s.experts = make([]feedForwardSaved, m.Experts)
	mode := Write // the first expert brings the storage to life
	for e, rows := range s.rowsOf {
		if rows == 0 {
			continue
		}
		ex := &g.st.units[u].experts[e]
		up := g.tensor(lUp, BF16, rows, m.upWidth()/t)
		g.op(oMatmul, matmul(rows, m.upWidth()/t, h), expertView(s.rows, e, Read), g.value(&ex.up), Out(up))
		act := g.activate(rows, up, &s.experts[e])
		g.op(oMatmul, matmul(rows, h, m.FFN/t), In(act), g.value(&ex.down), expertView(s.outs, e, mode))
		g.b.Drop(act)
		mode = Update
	}
	part := g.tensor(lDown, BF16, g.tokens, h)
	g.op(oUnpermute, moving(hw.Elementwise, int64(count+g.tokens)*int64(h), 2), In(s.outs), In(s.route), In(s.probs), Out(part))
	for _, x := range []StorageID{s.probs, s.route, s.rows, s.outs} {
		g.keep(x)
		g.b.Drop(x)
	}
	sum, ready := g.startReduce(lDown, part)
	return g.finishReduce(part, sum, ready), s
}

// expertsBackward is the gradient of the part's input.
func (g *generator) expertsBackward(u int, dy StorageID, s *expertsSaved) (din StorageID) {
	m, h := g.m, g.m.Hidden
	count := g.tokens * m.TopK
	full := g.gatherSequence(dy)
	for _, x := range []StorageID{s.probs, s.route, s.rows, s.outs} {
		g.b.Unpack(x)
	}
	douts := g.tensor(lGradient, BF16, count, h)
	dprobs := g.tensor(lGradient, FP32, g.tokens, m.TopK)
	g.op(oUnpermuteGrad, moving(hw.Elementwise, int64(2*count+g.tokens)*int64(h), 2),
		full, In(s.outs), In(s.route), In(s.probs), Out(douts), Out(dprobs))
	g.b.Drop(s.outs)
	drows := g.tensor(lGradient, BF16, count, h)
	mode := Write
	for e := m.Experts - 1; e >= 0; e-- {
		if s.rowsOf[e] > 0 {
			g.expertBackward(&g.st.units[u].experts[e], s.rowsOf[e], &s.experts[e],
				expertView(douts, e, Read), expertView(s.rows, e, Read), expertView(drows, e, mode))
			mode = Update
		}
	}
	g.b.Drop(douts)
	g.b.Drop(s.rows)

	// The router's part is added to that of the experts.
	part := g.tensor(lGradient, BF16, g.tokens, h)
	g.op(oPermuteGrad, moving(hw.Elementwise, int64(count+g.tokens)*int64(h), 2), In(drows), In(s.route), Out(part))
	g.b.Drop(drows)
	dscores := g.tensor(lGradient, FP32, g.tokens, m.Experts)
	g.op(oTopKGrad, moving(hw.Softmax, int64(g.tokens)*int64(m.Experts), 4), In(dprobs), In(s.probs), In(s.route), Out(dscores))
	g.b.Drop(dprobs)
	g.b.Drop(s.probs)
	g.b.Drop(s.route)
	g.op(oMatmul, matmul(g.tokens, h, m.Experts), In(dscores), g.weight(u, pRouter), InPlace(part))
	var in Arg
	if s.in != none {
		g.b.Unpack(s.in)
		in = g.gatherSequence(s.in)
	}
	din, summed := g.startReduce(lGradient, part)
	if s.in != none {
		g.op(oMatmulAccumulate, matmulAccumulate(m.Experts, h, g.tokens), In(dscores), in, g.weightGrad(u, pRouter))
		g.b.Drop(s.in)
	}
	g.b.Drop(dscores)
	return g.finishReduce(part, din, summed)
}

// expertBackward takes one expert's rows back: dout is the gradient of its
// results, in are its inputs, din is where their gradient goes.
func (g *generator) expertBackward(ex *expert, rows int, s *feedForwardSaved, dout, in, din Arg) {
	m, t, h := g.m, g.c.TP, g.m.Hidden
	gate, act := g.activated(rows, s)
	dact := g.tensor(lGradient, BF16, rows, m.FFN/t)
	g.op(oMatmul, matmul(rows, m.FFN/t, h), dout, g.value(&ex.down), Out(dact))
	if act != none {
		if g.trains(pExpertDown) {
			g.op(oMatmulAccumulate, matmulAccumulate(h, m.FFN/t, rows), dout, In(act), g.grad(&ex.down))
		}
		g.b.Drop(act)
	}
	dup := g.activatedBackward(rows, dact, gate, s)
	g.op(oMatmul, matmul(rows, h, m.upWidth()/t), In(dup), g.value(&ex.up), din)
	if g.trains(pExpertUp) {
		g.op(oMatmulAccumulate, matmulAccumulate(m.upWidth()/t, h, rows), In(dup), in, g.grad(&ex.up))
	}
	g.b.Drop(dup)
}
