package workloads

import "smartswap/hw"

// A transformer layer, forward and backward, operator by operator.

// layerSaved is what a layer keeps for its backward pass.
type layerSaved struct {
	norm1      normSaved
	in1        StorageID // norm1's output, the input of the qkv projection
	query, key headPart
	heads      heads // selective recomputation: the checkpoint's inputs
	core       coreSaved
	attention  StorageID
	dropout1   StorageID
	norm2      normSaved
	in2        StorageID
	up         StorageID
	gate, act  StorageID // none when recomputed
	dropout2   StorageID
}

// layerForward computes one layer of unit u on x.
func (g *generator) layerForward(u int, x StorageID) (y StorageID, s layerSaved) {
	m, t := g.m, g.c.TP
	in1, norm1 := g.norm(u, pNorm1, In(x), g.local, m.Hidden)
	s.norm1, s.in1 = norm1, g.keep(in1)
	qkv := g.column(u, pQKV, pQKVBias, in1, lQKV, (m.queryWidth()+2*m.kvWidth())/t)
	g.b.Drop(in1)
	h := g.splitHeads(u, qkv, &s)
	a := g.coreForward(h, &s)
	g.dropHeads(h)
	s.attention = g.keep(a)
	p := g.row(u, pProj, a, lProj, m.queryWidth()/t)
	g.b.Drop(a)
	x2, mask1 := g.residual(u, pProjBias, p, x)
	s.dropout1 = mask1
	g.b.Drop(p)

	in2, norm2 := g.norm(u, pNorm2, In(x2), g.local, m.Hidden)
	s.norm2, s.in2 = norm2, g.keep(in2)
	up := g.column(u, pUp, pUpBias, in2, lUp, m.upWidth()/t)
	g.b.Drop(in2)
	gate, act := g.activation(up)
	s.up = g.keep(up)
	g.b.Drop(up)
	s.gate, s.act = none, none
	if g.c.Recompute.Kind != ActivationFunction {
		if gate != none {
			s.gate = g.keep(gate)
		}
		s.act = g.keep(act)
	}
	if gate != none {
		g.b.Drop(gate)
	}
	d := g.row(u, pDown, act, lDown, m.FFN/t)
	g.b.Drop(act)
	y, s.dropout2 = g.residual(u, pDownBias, d, x2)
	g.b.Drop(d)
	g.b.Drop(x2)
	return y, s
}

// layerBackward turns the gradient of the layer's output, whose reference it
// takes over, into that of its input and adds to the gradients of its
// parameters.
func (g *generator) layerBackward(u int, dy StorageID, s *layerSaved) (dx StorageID) {
	m, t := g.m, g.c.TP
	d := g.dropoutGrad(dy, s.dropout2)
	g.b.Unpack(s.up)
	gate, act := s.gate, s.act
	if act == none {
		g.flags |= Recomputed
		gate, act = g.activation(s.up)
		g.flags &^= Recomputed
	} else {
		g.b.Unpack(act)
		if gate != none {
			g.b.Unpack(gate)
		}
	}
	dact := g.rowBackward(u, pDown, pDownBias, d, act, m.FFN/t)
	g.b.Drop(act)
	if d != dy {
		g.b.Drop(d)
	}
	dup := g.activationBackward(dact, s.up, gate)
	g.b.Drop(dact)
	g.b.Drop(s.up)
	if gate != none {
		g.b.Drop(gate)
	}
	din2 := g.columnBackward(u, pUp, pUpBias, dup, s.in2, m.upWidth()/t)
	g.b.Drop(dup)
	dx2 := g.normBackward(u, pNorm2, din2, s.norm2, g.local, m.Hidden)
	g.b.Drop(din2)
	g.accumulate(dx2, dy)
	g.b.Drop(dy)

	d = g.dropoutGrad(dx2, s.dropout1)
	g.b.Unpack(s.attention)
	da := g.rowBackward(u, pProj, pProjBias, d, s.attention, m.queryWidth()/t)
	g.b.Drop(s.attention)
	if d != dx2 {
		g.b.Drop(d)
	}
	dheads := g.coreBackward(da, s)
	g.b.Drop(da)
	dqkv := g.headsBackward(u, dheads, s)
	din1 := g.columnBackward(u, pQKV, pQKVBias, dqkv, s.in1, (m.queryWidth()+2*m.kvWidth())/t)
	g.b.Drop(dqkv)
	dx = g.normBackward(u, pNorm1, din1, s.norm1, g.local, m.Hidden)
	g.b.Drop(din1)
	g.accumulate(dx, dx2)
	g.b.Drop(dx2)
	return dx
}

// accumulate adds b to a, as autograd does where two gradients meet.
func (g *generator) accumulate(a, b StorageID) {
	g.op(oAdd, moving(hw.Elementwise, int64(g.local)*int64(g.m.Hidden), 6), In(b), InPlace(a))
}

// Norms.

type normSaved struct {
	x     Arg
	stats StorageID // per row: reciprocal deviation, and the mean for layer norm
}

// norm normalises rows of the given width. The bias of a layer norm follows its
// weight in the order of names.
func (g *generator) norm(u int, weight NameID, x Arg, rows, width int) (out StorageID, s normSaved) {
	out = g.tensor(lNormOut, BF16, rows, width)
	work := moving(hw.Norm, int64(rows)*int64(width), 4)
	if g.m.Style == GPT {
		s = normSaved{x, g.tensor(lStats, FP32, 2, rows)}
		g.op(oLayerNorm, work, x, g.weight(u, weight), g.weight(u, weight+1), Out(out), Out(s.stats))
	} else {
		s = normSaved{x, g.tensor(lStats, FP32, rows)}
		g.op(oRMSNorm, work, x, g.weight(u, weight), Out(out), Out(s.stats))
	}
	g.keep(x.Storage)
	g.keep(s.stats)
	g.b.Drop(s.stats)
	return out, s
}

func (g *generator) normBackward(u int, weight NameID, dy StorageID, s normSaved, rows, width int) (dx StorageID) {
	g.b.Unpack(s.x.Storage)
	g.b.Unpack(s.stats)
	dx = g.tensor(lGradient, BF16, rows, width)
	work := moving(hw.NormGrad, int64(rows)*int64(width), 6)
	if g.m.Style == GPT {
		g.op(oLayerNormGrad, work, In(dy), s.x, In(s.stats), g.weight(u, weight), Out(dx), g.weightGrad(u, weight), g.weightGrad(u, weight+1))
	} else {
		g.op(oRMSNormGrad, work, In(dy), s.x, In(s.stats), g.weight(u, weight), Out(dx), g.weightGrad(u, weight))
	}
	g.b.Drop(s.x.Storage)
	g.b.Drop(s.stats)
	return dx
}

// Projections. A bias is part of the product's epilogue, except after a
// row-parallel product, where residual adds it once the sum is complete.

// noBias stands for the bias of a projection that never has one.
const noBias NameID = -1

// has tells whether unit u has parameter name.
func (g *generator) has(u int, name NameID) bool {
	return name >= 0 && g.st.units[u].params[name].cols > 0
}

func (g *generator) column(u int, weight, bias NameID, x StorageID, label NameID, width int) (y StorageID) {
	full := g.gatherSequence(x)
	y = g.tensor(label, BF16, g.tokens, width)
	work := matmul(g.tokens, width, g.m.Hidden)
	if g.has(u, bias) {
		g.op(oMatmul, work, full, g.weight(u, weight), g.weight(u, bias), Out(y))
	} else {
		g.op(oMatmul, work, full, g.weight(u, weight), Out(y))
	}
	return y
}

// columnBackward gives the saved x back. The input is gathered beside the first
// product and its gradient reduced beside the second.
func (g *generator) columnBackward(u int, weight, bias NameID, dy, x StorageID, width int) (dx StorageID) {
	g.b.Unpack(x)
	full, gathered := g.startGather(x)
	part := g.tensor(lGradient, BF16, g.tokens, g.m.Hidden)
	g.op(oMatmul, matmul(g.tokens, g.m.Hidden, width), In(dy), g.weight(u, weight), Out(part))
	g.wait(gathered)
	dx, summed := g.startReduce(lGradient, part)
	g.op(oMatmulAccumulate, matmulAccumulate(width, g.m.Hidden, g.tokens), In(dy), full, g.weightGrad(u, weight))
	g.biasGrad(u, bias, dy, g.tokens, width)
	g.b.Drop(x)
	return g.finishReduce(part, dx, summed)
}

func (g *generator) row(u int, weight NameID, x StorageID, label NameID, width int) (y StorageID) {
	part := g.tensor(label, BF16, g.tokens, g.m.Hidden)
	g.op(oMatmul, matmul(g.tokens, g.m.Hidden, width), In(x), g.weight(u, weight), Out(part))
	sum, ready := g.startReduce(label, part)
	return g.finishReduce(part, sum, ready)
}

func (g *generator) rowBackward(u int, weight, bias NameID, dy, x StorageID, width int) (dx StorageID) {
	g.biasGrad(u, bias, dy, g.local, g.m.Hidden)
	full := g.gatherSequence(dy)
	dx = g.tensor(lGradient, BF16, g.tokens, width)
	g.op(oMatmul, matmul(g.tokens, width, g.m.Hidden), full, g.weight(u, weight), Out(dx))
	g.op(oMatmulAccumulate, matmulAccumulate(g.m.Hidden, width, g.tokens), full, In(x), g.weightGrad(u, weight))
	return dx
}

func (g *generator) biasGrad(u int, bias NameID, dy StorageID, rows, width int) {
	if g.has(u, bias) {
		g.op(oSum, moving(hw.Reduction, int64(rows)*int64(width), 2), In(dy), g.weightGrad(u, bias))
	}
}

// residual adds the branch y to x. GPT adds the projection's bias and drops out
// in the same kernel and keeps the mask.
func (g *generator) residual(u int, bias NameID, y, x StorageID) (sum, mask StorageID) {
	sum = g.tensor(lHidden, BF16, g.local, g.m.Hidden)
	elements := int64(g.local) * int64(g.m.Hidden)
	switch {
	case g.m.Style != GPT:
		g.op(oAdd, moving(hw.Elementwise, elements, 6), In(y), In(x), Out(sum))
		return sum, none
	case !g.training:
		g.op(oBiasDropoutAdd, moving(hw.Elementwise, elements, 6), In(y), In(x), g.weight(u, bias), Out(sum))
		return sum, none
	}
	mask = g.tensor(lDropout, UINT8, g.local, g.m.Hidden)
	g.op(oBiasDropoutAdd, moving(hw.Elementwise, elements, 7), In(y), In(x), g.weight(u, bias), Out(sum), Out(mask))
	g.keep(mask)
	g.b.Drop(mask)
	return sum, mask
}

// dropoutGrad is the gradient before a dropout whose mask was kept; dy itself
// if there was none.
func (g *generator) dropoutGrad(dy, mask StorageID) StorageID {
	if mask == none {
		return dy
	}
	g.b.Unpack(mask)
	d := g.tensor(lGradient, BF16, g.local, g.m.Hidden)
	g.op(oDropoutGrad, moving(hw.Elementwise, int64(g.local)*int64(g.m.Hidden), 5), In(dy), In(mask), Out(d))
	g.b.Drop(mask)
	return d
}

// Feed-forward activation.

// Views of one storage by several tensors.
const (
	viewQuery ViewID = iota + 1
	viewKey
	viewValue
	viewGate
	viewUp
)

// activation computes the feed-forward activation of up. Under the minimal rule
// a gated one is two operators, whose intermediate is gate (none otherwise).
func (g *generator) activation(up StorageID) (gate, act StorageID) {
	width := g.m.FFN / g.c.TP
	elements := int64(g.tokens) * int64(width)
	if g.m.Style == Llama && g.c.SaveRule == Minimal {
		gate = g.tensor(lGate, BF16, g.tokens, width)
		g.op(oSiLU, moving(hw.ActivationFn, elements, 4), Arg{Storage: up, View: viewGate}, Out(gate))
		act = g.tensor(lAct, BF16, g.tokens, width)
		g.op(oMul, moving(hw.Elementwise, elements, 6), In(gate), Arg{Storage: up, View: viewUp}, Out(act))
		return gate, act
	}
	act = g.tensor(lAct, BF16, g.tokens, width)
	if g.m.Style == GPT {
		g.op(oGELU, moving(hw.ActivationFn, elements, 4), In(up), Out(act))
	} else {
		g.op(oSwiGLU, moving(hw.ActivationFn, elements, 6), In(up), Out(act))
	}
	return none, act
}

func (g *generator) activationBackward(dact, up, gate StorageID) (dup StorageID) {
	width := g.m.FFN / g.c.TP
	elements := int64(g.tokens) * int64(width)
	dup = g.tensor(lGradient, BF16, g.tokens, g.m.upWidth()/g.c.TP)
	switch {
	case gate != none:
		dgate := g.tensor(lGradient, BF16, g.tokens, width)
		g.op(oMulGrad, moving(hw.Elementwise, elements, 10), In(dact), In(gate), Arg{Storage: up, View: viewUp},
			Out(dgate), Arg{Storage: dup, View: viewUp, Mode: Write})
		g.op(oSiLUGrad, moving(hw.ActivationGrad, elements, 6), In(dgate), Arg{Storage: up, View: viewGate},
			Arg{Storage: dup, View: viewGate, Mode: Update})
		g.b.Drop(dgate)
	case g.m.Style == GPT:
		g.op(oGELUGrad, moving(hw.ActivationGrad, elements, 6), In(dact), In(up), Out(dup))
	default:
		g.op(oSwiGLUGrad, moving(hw.ActivationGrad, elements, 10), In(dact), In(up), Out(dup))
	}
	return dup
}
