package workloads

import (
	"smartswap/hw"
	"smartswap/sim"
)

// Both ends of the model: from tokens to the first layer, and from the last
// layer to the loss.

// loadBatch brings token ids and labels of a micro-batch to the device.
func (g *generator) loadBatch() StorageID {
	g.layer = 0
	s := g.tensorOf(Input, lTokens, INT64, 2, g.tokens)
	g.op(oCopy, moving(hw.Elementwise, 2*int64(g.tokens), 8), Out(s))
	g.calls(callsBatch)
	return s
}

// embed looks the tokens up. GPT adds learned positions and drops out; its mask
// is returned for backward (none otherwise).
func (g *generator) embed(batch StorageID) (x, mask StorageID) {
	h := g.m.Hidden
	e := g.tensor(lEmbedded, BF16, g.tokens, h)
	g.op(oEmbedding, moving(hw.Embedding, int64(g.tokens)*int64(h), 4), In(batch), g.weight(0, pEmbedding), Out(e))
	sum, ready := g.startReduce(lEmbedded, e)
	x = g.finishReduce(e, sum, ready)
	if !g.m.biased() {
		return x, none
	}
	elements := int64(g.local) * int64(h)
	g.op(oAdd, moving(hw.Elementwise, elements, 6), g.weight(0, pPositions), InPlace(x))
	if !g.training || !g.m.biased() {
		return x, none
	}
	y := g.tensor(lEmbedded, BF16, g.local, h)
	mask = g.tensor(lDropout, UINT8, g.local, h)
	g.op(oDropout, moving(hw.Elementwise, elements, 5), In(x), Out(y), Out(mask))
	g.b.Drop(x)
	if g.saving {
		g.b.Save(mask)
	}
	g.b.Drop(mask)
	return y, mask
}

func (g *generator) embedBackward(batch, dy, mask StorageID) {
	h := g.m.Hidden
	d := g.dropoutGrad(dy, mask)
	if !g.trains(pEmbedding) {
		if d != dy {
			g.b.Drop(d)
		}
		return
	}
	if g.m.biased() {
		g.addGradient(0, pPositions, func(to Arg) { g.op(oSum, moving(hw.Reduction, int64(g.local)*int64(h), 2), In(d), to) })
	}
	full := g.gatherSequence(d)
	// The gradient rows that are read and written are as many as tokens.
	work := moving(hw.EmbeddingGrad, int64(g.tokens)*int64(h), 2+4+4)
	if g.classic() { // a gradient of its own is zero elsewhere
		g.calls(callsEntered)
		work.Traffic += 2 * sim.Bytes(g.param(0, pEmbedding).elements)
	}
	g.addGradient(0, pEmbedding, func(to Arg) { g.op(oEmbeddingGrad, work, full, In(batch), to) })
	if d != dy {
		g.b.Drop(d)
	}
}

// headSaved is what the loss keeps: the final norm's, its output, and the fp32
// softmax that cross entropy leaves in the memory of the fp32 logits.
type headSaved struct {
	norm    normSaved
	in      StorageID
	softmax StorageID
	loss    StorageID
}

// headForward computes the loss of x. The 16-bit logits live until they have
// been cast: 6 bytes per vocabulary entry and token at that moment, 4 after it.
func (g *generator) headForward(u int, batch, x StorageID) (s headSaved) {
	vocab := g.st.units[u].params[pHead].rows
	elements := int64(g.tokens) * int64(vocab)
	in, norm := g.norm(u, pFinalNorm, In(x), g.local, g.m.Hidden)
	s.norm, s.in = norm, g.keepFor(in, g.trains(pHead))
	logits := g.tensorOf(Logits, lLogits, BF16, g.tokens, vocab)
	g.op(oMatmul, matmul(g.tokens, vocab, g.m.Hidden), g.gatherSequence(in), g.weight(u, pHead), Out(logits))
	g.b.Drop(in)

	s.softmax = g.tensorOf(Logits, lLogits32, FP32, g.tokens, vocab)
	g.op(oCast, moving(hw.Cast, elements, 6), In(logits), Out(s.softmax))
	g.b.Drop(logits)
	s.loss = g.tensor(lLoss, FP32, g.tokens)
	switch {
	case g.classic():
		g.crossEntropyClassic(batch, &s, elements)
	case g.c.TP == 1:
		g.op(oCrossEntropy, moving(hw.Softmax, elements, 8), In(batch), InPlace(s.softmax), Out(s.loss))
	default:
		// Maximum, sum and target logit of every token are all-reduced: three
		// small collectives in the original, one of the same bytes here.
		part := g.tensor(lStats, FP32, g.tokens, 3)
		g.op(oCrossEntropy, moving(hw.Softmax, elements, 8), In(batch), InPlace(s.softmax), Out(part))
		g.wait(g.start(oAllReduce, collective(hw.AllReduce, g.bytes(part), g.c.TP), g.tp, InPlace(part)))
		g.op(oSum, moving(hw.Elementwise, int64(g.tokens), 16), In(part), Out(s.loss))
		g.b.Drop(part)
	}
	g.keep(s.softmax)
	g.b.Drop(s.softmax)
	if !g.saving {
		g.b.Drop(s.loss)
	}
	return s
}

func (g *generator) headBackward(u int, batch StorageID, s *headSaved) (dx StorageID) {
	vocab := g.st.units[u].params[pHead].rows
	elements := int64(g.tokens) * int64(vocab)
	g.b.Unpack(s.softmax)
	g.calls(callsLoss)
	g.op(oCrossEntropyGrad, moving(hw.Softmax, elements, 8), In(batch), In(s.loss), InPlace(s.softmax))
	g.b.Drop(s.loss)
	d := g.tensorOf(Logits, lGradient, BF16, g.tokens, vocab)
	g.op(oCast, moving(hw.Cast, elements, 6), In(s.softmax), Out(d))
	g.b.Drop(s.softmax)
	dn := g.columnBackward(u, pHead, noBias, noAdapter, d, s.in, none, vocab)
	g.b.Drop(d)
	dx = g.normBackward(u, pFinalNorm, dn, s.norm, g.local, g.m.Hidden)
	g.b.Drop(dn)
	return dx
}
