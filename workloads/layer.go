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
	forward    feedForwardSaved
	experts    expertsSaved
	dropout2   StorageID

	qkvAdapter, projAdapter StorageID // between the two halves of adapters
}

// feedForwardSaved is what a feed-forward part keeps.
type feedForwardSaved struct {
	in, up    StorageID
	gate, act StorageID // none when recomputed
}

// layerForward computes one layer of unit u on x.
func (g *generator) layerForward(u int, x StorageID) (y StorageID, s layerSaved) {
	m, t := g.m, g.c.TP
	in1, norm1 := g.norm(u, pNorm1, In(x), g.local, m.Hidden)
	s.norm1, s.in1 = norm1, g.keepFor(in1, g.trains(pQKV) || g.v.Adapters)
	qkv, low := g.column(u, pQKV, pQKVBias, qkvAdapter, in1, lQKV, (m.queryWidth()+2*m.kvWidth())/t)
	s.qkvAdapter = low
	g.b.Drop(in1)
	g.calls(callsProjected)
	h := g.splitHeads(u, qkv, &s)
	a := g.coreForward(h, &s)
	g.dropHeads(h)
	s.attention = g.keepFor(a, g.trains(pProj) || g.v.Adapters)
	p, low := g.row(u, pProj, projAdapter, a, lProj, m.queryWidth()/t)
	s.projAdapter = low
	g.b.Drop(a)
	g.calls(callsReduced)
	x2, mask1 := g.residual(u, pProjBias, p, x)
	s.dropout1 = mask1
	g.b.Drop(p)

	in2, norm2 := g.norm(u, pNorm2, In(x2), g.local, m.Hidden)
	s.norm2 = norm2
	var d StorageID
	if m.Experts > 0 {
		d, s.experts = g.expertsForward(u, in2)
	} else {
		d, s.forward = g.feedForward(u, in2)
	}
	g.calls(callsEntered + callsReduced)
	y, s.dropout2 = g.residual(u, pDownBias, d, x2)
	g.b.Drop(d)
	g.b.Drop(x2)
	return y, s
}

// feedForward is the feed-forward part on in, whose reference it takes over.
func (g *generator) feedForward(u int, in StorageID) (y StorageID, s feedForwardSaved) {
	m, t := g.m, g.c.TP
	s.in = g.keepFor(in, g.trains(pUp))
	up, _ := g.column(u, pUp, pUpBias, noAdapter, in, lUp, m.upWidth()/t)
	g.b.Drop(in)
	act := g.activate(g.tokens, up, &s)
	y, _ = g.row(u, pDown, noAdapter, act, lDown, m.FFN/t)
	g.b.Drop(act)
	return y, s
}

// activate computes the activation of rows rows of up, whose reference it takes
// over, and keeps what its backward needs.
func (g *generator) activate(rows int, up StorageID, s *feedForwardSaved) (act StorageID) {
	gate, act := g.activation(rows, up)
	s.up = g.keep(up)
	g.b.Drop(up)
	s.gate, s.act = none, none
	if !g.reactivate {
		if gate != none {
			s.gate = g.keep(gate)
		}
		s.act = g.keepFor(act, g.trains(pDown))
	}
	if gate != none {
		g.b.Drop(gate)
	}
	return act
}

// activated is the activation that activate kept, or computes it again.
func (g *generator) activated(rows int, s *feedForwardSaved) (gate, act StorageID) {
	g.b.Unpack(s.up)
	if g.reactivate {
		g.flags |= Recomputed
		gate, act = g.activation(rows, s.up)
		g.flags &^= Recomputed
		return gate, act
	}
	if s.act != none {
		g.b.Unpack(s.act)
	}
	if s.gate != none {
		g.b.Unpack(s.gate)
	}
	return s.gate, s.act
}

// activatedBackward is the gradient of up and gives back what was kept but for
// the activation itself.
func (g *generator) activatedBackward(rows int, dact, gate StorageID, s *feedForwardSaved) (dup StorageID) {
	dup = g.activationBackward(rows, dact, s.up, gate)
	g.b.Drop(dact)
	g.b.Drop(s.up)
	if gate != none {
		g.b.Drop(gate)
	}
	return dup
}

// layerBackward turns the gradient of the layer's output, whose reference it
// takes over, into that of its input and adds to the gradients of its
// parameters.
func (g *generator) layerBackward(u int, dy StorageID, s *layerSaved) (dx StorageID) {
	m, t := g.m, g.c.TP
	var din2 StorageID
	if m.Experts > 0 {
		din2 = g.expertsBackward(u, dy, &s.experts)
	} else {
		din2 = g.feedForwardBackward(u, dy, s)
	}
	dx2 := g.normBackward(u, pNorm2, din2, s.norm2, g.local, m.Hidden)
	g.b.Drop(din2)
	g.calls(callsEntered + callsReduced)
	g.accumulate(dx2, dy)
	g.b.Drop(dy)

	d := g.dropoutGrad(dx2, s.dropout1)
	if s.attention != none {
		g.b.Unpack(s.attention)
	}
	da := g.rowBackward(u, pProj, pProjBias, projAdapter, d, s.attention, s.projAdapter, m.queryWidth()/t)
	if s.attention != none {
		g.b.Drop(s.attention)
	}
	if d != dx2 {
		g.b.Drop(d)
	}
	dheads := g.coreBackward(da, s)
	g.b.Drop(da)
	g.calls(callsReduced + callsProjected)
	dqkv := g.headsBackward(u, dheads, s)
	din1 := g.columnBackward(u, pQKV, pQKVBias, qkvAdapter, dqkv, s.in1, s.qkvAdapter, (m.queryWidth()+2*m.kvWidth())/t)
	g.b.Drop(dqkv)
	dx = g.normBackward(u, pNorm1, din1, s.norm1, g.local, m.Hidden)
	g.b.Drop(din1)
	g.accumulate(dx, dx2)
	g.b.Drop(dx2)
	return dx
}

// feedForwardBackward is the gradient of the feed-forward part's input.
func (g *generator) feedForwardBackward(u int, dy StorageID, saved *layerSaved) (din StorageID) {
	m, t, s := g.m, g.c.TP, &saved.forward
	d := g.dropoutGrad(dy, saved.dropout2)
	gate, act := g.activated(g.tokens, s)
	dact := g.rowBackward(u, pDown, pDownBias, noAdapter, d, act, none, m.FFN/t)
	if act != none {
		g.b.Drop(act)
	}
	if d != dy {
		g.b.Drop(d)
	}
	dup := g.activatedBackward(g.tokens, dact, gate, s)
	din = g.columnBackward(u, pUp, pUpBias, noAdapter, dup, s.in, none, m.upWidth()/t)
	g.b.Drop(dup)
	return din
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
	family := hw.Norm
	if g.m.Style == GPT {
		family = hw.LayerNorm
	}
	work := moving(family, int64(rows)*int64(width), 4)
	if g.m.Style == GPT {
		s = normSaved{x, g.tensor(lStats, FP32, 2, rows)}
		args := []Arg{x, g.weight(u, weight)}
		if g.has(u, weight+1) {
			args = append(args, g.weight(u, weight+1))
		}
		g.op(oLayerNorm, work, append(args, Out(out), Out(s.stats))...)
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
	family, bytes := hw.NormGrad, int64(6)
	if g.m.Style == GPT {
		// Assumed, as the kernels of PyTorch and Apex are remembered: the
		// gradients of weight and bias are kernels of their own, which read
		// the input and the output's gradient again.
		family, bytes = hw.LayerNormGrad, 10
	}
	work := moving(family, int64(rows)*int64(width), bytes)
	args := []Arg{In(dy), s.x, In(s.stats), g.weight(u, weight), Out(dx)}
	if g.classic() {
		g.addGradient(u, weight, func(to Arg) {
			g.addGradient(u, weight+1, func(bias Arg) { g.op(oLayerNormGrad, work, append(args, to, bias)...) })
		})
		g.b.Drop(s.x.Storage)
		g.b.Drop(s.stats)
		return dx
	}
	if g.trains(weight) {
		args = append(args, g.weightGrad(u, weight))
	}
	switch {
	case g.m.Style != GPT:
		g.op(oRMSNormGrad, work, args...)
	case g.trains(weight) && g.has(u, weight+1):
		g.op(oLayerNormGrad, work, append(args, g.weightGrad(u, weight+1))...)
	default:
		g.op(oLayerNormGrad, work, args...)
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

// column is a column-parallel projection; low is what its adapter keeps.
func (g *generator) column(u int, weight, bias NameID, ad adapter, x StorageID, label NameID, width int) (y, low StorageID) {
	full := g.gatherSequence(x)
	y = g.tensor(label, BF16, g.tokens, width)
	work := matmul(g.tokens, width, g.m.Hidden)
	if g.has(u, bias) {
		g.op(oMatmul, work, full, g.weight(u, weight), g.weight(u, bias), Out(y))
	} else {
		g.op(oMatmul, work, full, g.weight(u, weight), Out(y))
	}
	return y, g.adapt(u, ad, full, y)
}

// columnBackward gives the saved x back (none if it was not needed). The input is
// gathered beside the first product and its gradient reduced beside the second.
func (g *generator) columnBackward(u int, weight, bias NameID, ad adapter, dy, x, low StorageID, width int) (dx StorageID) {
	full, gathered := In(x), int32(-1)
	if x != none {
		g.b.Unpack(x)
		full, gathered = g.startGather(x)
	}
	part := g.tensor(lGradient, BF16, g.tokens, g.m.Hidden)
	g.op(oMatmul, matmul(g.tokens, g.m.Hidden, width), In(dy), g.weight(u, weight), Out(part))
	dlow := g.adaptBackward(u, ad, In(dy), low, part)
	g.wait(gathered)
	dx, summed := g.startReduce(lGradient, part)
	g.adaptWeights(u, ad, In(dy), full, low, dlow)
	if g.trains(weight) {
		g.accumulateProduct(u, weight, width, g.m.Hidden, g.tokens, In(dy), full)
		g.biasGrad(u, bias, dy, g.tokens, width)
	}
	if x != none {
		g.b.Drop(x)
	}
	return g.finishReduce(part, dx, summed)
}

// row is a row-parallel projection; low is what its adapter keeps.
func (g *generator) row(u int, weight NameID, ad adapter, x StorageID, label NameID, width int) (y, low StorageID) {
	part := g.tensor(label, BF16, g.tokens, g.m.Hidden)
	g.op(oMatmul, matmul(g.tokens, g.m.Hidden, width), In(x), g.weight(u, weight), Out(part))
	low = g.adapt(u, ad, In(x), part)
	sum, ready := g.startReduce(label, part)
	return g.finishReduce(part, sum, ready), low
}

func (g *generator) rowBackward(u int, weight, bias NameID, ad adapter, dy, x, low StorageID, width int) (dx StorageID) {
	trains := g.trains(weight)
	if trains {
		g.biasGrad(u, bias, dy, g.local, g.m.Hidden)
	}
	full := g.gatherSequence(dy)
	dx = g.tensor(lGradient, BF16, g.tokens, width)
	g.op(oMatmul, matmul(g.tokens, width, g.m.Hidden), full, g.weight(u, weight), Out(dx))
	dlow := g.adaptBackward(u, ad, full, low, dx)
	g.adaptWeights(u, ad, full, In(x), low, dlow)
	if trains {
		g.accumulateProduct(u, weight, g.m.Hidden, width, g.tokens, full, In(x))
	}
	return dx
}

func (g *generator) biasGrad(u int, bias NameID, dy StorageID, rows, width int) {
	if g.has(u, bias) {
		g.addGradient(u, bias, func(to Arg) { g.op(oSum, moving(hw.Reduction, int64(rows)*int64(width), 2), In(dy), to) })
	}
}

// residual adds the branch y to x. GPT adds the projection's bias and drops out
// in the same kernel and keeps the mask.
func (g *generator) residual(u int, bias NameID, y, x StorageID) (sum, mask StorageID) {
	sum = g.tensor(lHidden, BF16, g.local, g.m.Hidden)
	elements := int64(g.local) * int64(g.m.Hidden)
	switch {
	case !g.m.biased():
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

// activation computes the feed-forward activation of rows rows of up. Under the minimal rule
// a gated one is two operators, whose intermediate is gate (none otherwise).
func (g *generator) activation(rows int, up StorageID) (gate, act StorageID) {
	width := g.m.FFN / g.c.TP
	elements := int64(rows) * int64(width)
	if g.m.Style == Llama && g.c.SaveRule == Minimal {
		gate = g.tensor(lGate, BF16, rows, width)
		g.op(oSiLU, moving(hw.ActivationFn, elements, 4), Arg{Storage: up, View: viewGate}, Out(gate))
		act = g.tensor(lAct, BF16, rows, width)
		g.op(oMul, moving(hw.Elementwise, elements, 6), In(gate), Arg{Storage: up, View: viewUp}, Out(act))
		return gate, act
	}
	act = g.tensor(lAct, BF16, rows, width)
	if g.m.Style == GPT {
		g.op(oGELU, moving(hw.ActivationFn, elements, 4), In(up), Out(act))
	} else {
		g.op(oSwiGLU, moving(hw.ActivationFn, elements, 6), In(up), Out(act))
	}
	return none, act
}

func (g *generator) activationBackward(rows int, dact, up, gate StorageID) (dup StorageID) {
	width := g.m.FFN / g.c.TP
	elements := int64(rows) * int64(width)
	dup = g.tensor(lGradient, BF16, rows, g.m.upWidth()/g.c.TP)
	switch {
	case gate != none:
		dgate := g.tensor(lGradient, BF16, rows, width)
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
