package workloads

import "smartswap/hw"

// heads are the inputs of core attention: three storages of their own, or three
// views of the fused projection.
type heads struct {
	q, k, v Arg
	owned   [3]StorageID
	n       int // storages owned
}

func (g *generator) dropHeads(h heads) {
	for _, s := range h.owned[:h.n] {
		g.b.Drop(s)
	}
}

// headPart is what preparing the queries (or keys) keeps.
type headPart struct {
	norm   normSaved // when queries and keys are normalised
	rotary Arg       // eager, rotary positions: the operator's input …
	cast   StorageID // … or its cast tables
}

// splitHeads makes the inputs of core attention out of the fused projection,
// whose reference it takes over.
//
// With learned positions attention reads the three views as they are. With
// rotary positions queries and keys are rotated into storages of their own, and
// values are copied because the attention kernel wants them contiguous, so that
// the projection dies here unless someone keeps a view of it.
//
// Who does under the eager rule was read off a profile of Qwen3-0.6B on Ascend
// (Ascend/msinsight test/st/level2, operator_memory.csv). With fewer key than
// query heads the queries are copied out; keys stay a view, so that whoever
// keeps the keys keeps the whole projection. In that profile it is the key
// norm, and rotation is done in elementary operators that keep nothing but their
// tables cast to 16 bits. Without query and key norms the fused rotary operator
// keeps its input (torch_npu derivatives.yaml, npu_rotary_mul), with the same
// effect. Under the minimal rule only a query or key norm keeps its input.
func (g *generator) splitHeads(u int, qkv StorageID, s *layerSaved) heads {
	m, t := g.m, g.c.TP
	q, k, v := Arg{Storage: qkv, View: viewQuery}, Arg{Storage: qkv, View: viewKey}, Arg{Storage: qkv, View: viewValue}
	if m.Style == GPT {
		return heads{q: q, k: k, v: v, owned: [3]StorageID{qkv}, n: 1}
	}
	if g.c.SaveRule == Eager && m.KVHeads < m.Heads {
		q = In(g.copyOut(q, lQuery, m.queryWidth()/t))
	}
	query := g.prepare(u, q, lQuery, pQueryNorm, m.Heads/t, &s.query)
	key := g.prepare(u, k, lKey, pKeyNorm, m.KVHeads/t, &s.key)
	value := g.copyOut(v, lValue, m.kvWidth()/t)
	if q.Storage != qkv {
		g.b.Drop(q.Storage)
	}
	g.b.Drop(qkv)
	return heads{q: In(query), k: In(key), v: In(value), owned: [3]StorageID{query, key, value}, n: 3}
}

// copyOut copies a view into a storage of its own.
func (g *generator) copyOut(x Arg, label NameID, width int) StorageID {
	y := g.tensor(label, BF16, g.tokens, width)
	g.op(oClone, moving(hw.Elementwise, int64(g.tokens)*int64(width), 4), x, Out(y))
	return y
}

// prepare normalises (where the model does) and rotates queries or keys.
func (g *generator) prepare(u int, x Arg, label, norm NameID, count int, s *headPart) (y StorageID) {
	width := count * g.m.HeadDim
	in := x
	if g.m.QKNorm {
		out, saved := g.norm(u, norm, x, g.tokens*count, g.m.HeadDim)
		in, s.norm = In(out), saved
	}
	y = g.tensor(label, BF16, g.tokens, width)
	work := moving(hw.Rope, int64(g.tokens)*int64(width), 4)
	s.rotary, s.cast = Arg{Storage: none}, none
	switch {
	case g.c.SaveRule == Eager && g.m.QKNorm:
		s.cast = g.tensor(lRotaryCast, BF16, 2, g.shape.Seq, g.m.HeadDim)
		g.op(oRotary, work, in, In(g.st.rotary), Out(y), Out(s.cast))
		g.keep(s.cast)
		g.b.Drop(s.cast)
	default:
		g.op(oRotary, work, in, In(g.st.rotary), Out(y))
		if g.c.SaveRule == Eager {
			s.rotary = in
			g.keep(in.Storage)
		}
	}
	if in != x {
		g.b.Drop(in.Storage)
	}
	return y
}

// prepareBackward turns the gradient of prepared queries or keys, whose
// reference it takes over, into that of the projection's part.
func (g *generator) prepareBackward(u int, dy StorageID, norm NameID, count int, s *headPart) (dx StorageID) {
	width := count * g.m.HeadDim
	dx = g.tensor(lGradient, BF16, g.tokens, width)
	work := moving(hw.Rope, int64(g.tokens)*int64(width), 4)
	switch {
	case s.cast != none:
		g.b.Unpack(s.cast)
		g.op(oRotaryGrad, work, In(dy), In(s.cast), Out(dx))
		g.b.Drop(s.cast)
	case s.rotary.Storage != none:
		g.b.Unpack(s.rotary.Storage)
		g.op(oRotaryGrad, work, In(dy), s.rotary, In(g.st.rotary), Out(dx))
		g.b.Drop(s.rotary.Storage)
	default:
		g.op(oRotaryGrad, work, In(dy), In(g.st.rotary), Out(dx))
	}
	g.b.Drop(dy)
	if g.m.QKNorm {
		d := dx
		dx = g.normBackward(u, norm, d, s.norm, g.tokens*count, g.m.HeadDim)
		g.b.Drop(d)
	}
	return dx
}

// headsGrad are the gradients of heads: one storage of the fused projection's
// shape, or three.
type headsGrad struct{ qkv, q, k, v StorageID }

// oneGradient tells whether the gradients of queries, keys and values are written
// into one storage: where attention has read them from one.
func (g *generator) oneGradient() bool { return g.m.Style == GPT && !g.classic() }

// headsBackward makes the gradient of the fused projection.
func (g *generator) headsBackward(u int, d headsGrad, s *layerSaved) StorageID {
	if g.oneGradient() {
		return d.qkv
	}
	m, t := g.m, g.c.TP
	dq, dk := d.q, d.k
	if m.Style != GPT {
		dq = g.prepareBackward(u, d.q, pQueryNorm, m.Heads/t, &s.query)
		dk = g.prepareBackward(u, d.k, pKeyNorm, m.KVHeads/t, &s.key)
	}
	width := (m.queryWidth() + 2*m.kvWidth()) / t
	dqkv := g.tensor(lGradient, BF16, g.tokens, width)
	g.op(oCat, moving(hw.Elementwise, int64(g.tokens)*int64(width), 4), In(dq), In(dk), In(d.v), Out(dqkv))
	g.b.Drop(dq)
	g.b.Drop(dk)
	g.b.Drop(d.v)
	return dqkv
}

// coreSaved is what core attention keeps: its inputs, and either the result with
// the softmax statistics (fused) or the scores after softmax and, with dropout,
// the mask and the scores after it (unfused).
type coreSaved struct {
	heads          heads
	out            StorageID
	stats          [2]StorageID
	probs, dropped StorageID
	mask           StorageID
}

// coreForward runs core attention. Selective recomputation keeps only its
// inputs; the result is kept by the projection after it in any case.
func (g *generator) coreForward(h heads, s *layerSaved) StorageID {
	if g.v.Recompute.Kind != Selective {
		out, saved := g.core(h)
		s.core = saved
		return out
	}
	s.heads = h
	g.keepHeads(h)
	saving := g.saving
	g.saving = false
	out, _ := g.core(h)
	g.saving = saving
	return out
}

func (g *generator) coreBackward(da StorageID, s *layerSaved) headsGrad {
	if g.v.Recompute.Kind == Selective {
		h := s.heads
		g.unpackHeads(h)
		g.flags |= Recomputed
		out, saved := g.core(h)
		g.flags &^= Recomputed
		s.core = saved
		g.b.Drop(out)
		g.dropHeads(h)
	}
	return g.coreGrad(da, &s.core)
}

func (g *generator) keepHeads(h heads) {
	for _, s := range h.owned[:h.n] {
		g.keep(s)
	}
}

func (g *generator) unpackHeads(h heads) {
	for _, s := range h.owned[:h.n] {
		g.b.Unpack(s)
	}
}

// core is one core attention with what its operators keep.
func (g *generator) core(h heads) (out StorageID, s coreSaved) {
	if g.c.Attention == Unfused {
		return g.coreUnfused(h)
	}
	m, t := g.m, g.c.TP
	out = g.tensor(lAttention, BF16, g.tokens, m.queryWidth()/t)
	s = coreSaved{heads: h, out: out, stats: [2]StorageID{none, none}}
	work := flashAttention(g.tokens, g.shape.pairs(), m.Heads/t, m.KVHeads/t, m.HeadDim)
	if g.c.SaveRule == Eager {
		// npu_fusion_attention returns maximum and sum of each row, each
		// repeated eight times in fp32 (torch_npu documentation).
		for i := range s.stats {
			s.stats[i] = g.tensor(lStats, FP32, g.shape.Sequences, m.Heads/t, g.shape.Seq, 8)
		}
		g.op(oAttention, work, h.q, h.k, h.v, In(g.st.mask), Out(out), Out(s.stats[0]), Out(s.stats[1]))
	} else {
		// FlashAttention-2 keeps one logarithm of a sum per row.
		s.stats[0] = g.tensor(lStats, FP32, g.shape.Sequences, m.Heads/t, g.shape.Seq)
		g.op(oAttention, work, h.q, h.k, h.v, In(g.st.mask), Out(out), Out(s.stats[0]))
	}
	g.keepHeads(h)
	g.keep(out)
	for _, x := range s.stats {
		if x != none {
			g.keep(x)
			g.b.Drop(x)
		}
	}
	return out, s
}

// coreUnfused stores the scores: 2as²b bytes after softmax, and 3as²b more with
// dropout (Korthikanti et al., arXiv 2205.05198 section 4.1).
func (g *generator) coreUnfused(h heads) (out StorageID, s coreSaved) {
	m, t := g.m, g.c.TP
	seq, count := g.shape.Seq, g.shape.Sequences*m.Heads/t
	elements := int64(count) * int64(seq) * int64(seq)
	s = coreSaved{heads: h, mask: none, dropped: none}
	g.calls(callsScores)
	scores := g.tensor(lScores, BF16, count, seq, seq)
	g.op(oBMM, batched(count, seq, seq, m.HeadDim), h.q, h.k, Out(scores))
	probs := g.softmax(scores, count, seq, &s)
	weights := probs
	g.calls(callsDropout)
	if m.biased() && g.training {
		s.dropped = g.tensor(lProbs, BF16, count, seq, seq)
		s.mask = g.tensor(lDropout, UINT8, count, seq, seq)
		g.op(oDropout, moving(hw.Elementwise, elements, 5), In(probs), Out(s.dropped), Out(s.mask))
		weights = s.dropped
	}
	out = g.tensor(lAttention, BF16, g.tokens, m.queryWidth()/t)
	g.op(oBMM, batched(count, seq, m.HeadDim, seq), In(weights), h.v, Out(out))
	if probs != s.probs {
		g.b.Drop(probs)
	}
	if g.classic() {
		g.calls(callsContext)
		strided := out
		out = g.copyOut(In(strided), lAttention, m.queryWidth()/t)
		g.b.Drop(strided)
	}
	g.keepHeads(h)
	for _, x := range []StorageID{s.probs, s.dropped, s.mask} {
		if x != none {
			g.keep(x)
			g.b.Drop(x)
		}
	}
	return out, s
}

// coreGrad is the backward pass of core.
func (g *generator) coreGrad(da StorageID, s *coreSaved) (d headsGrad) {
	m, t := g.m, g.c.TP
	g.unpackHeads(s.heads)
	if g.oneGradient() {
		d.qkv = g.tensor(lGradient, BF16, g.tokens, (m.queryWidth()+2*m.kvWidth())/t)
	} else {
		d.q = g.tensor(lGradient, BF16, g.tokens, m.queryWidth()/t)
		d.k = g.tensor(lGradient, BF16, g.tokens, m.kvWidth()/t)
		d.v = g.tensor(lGradient, BF16, g.tokens, m.kvWidth()/t)
	}
	if g.c.Attention == Unfused {
		g.coreGradUnfused(da, d, s)
	} else {
		g.coreGradFused(da, d, s)
	}
	g.dropHeads(s.heads)
	return d
}

func (g *generator) coreGradFused(da StorageID, d headsGrad, s *coreSaved) {
	m, t, h := g.m, g.c.TP, s.heads
	g.b.Unpack(s.out)
	args := []Arg{In(da), h.q, h.k, h.v, In(s.out)}
	for _, x := range s.stats {
		if x != none {
			g.b.Unpack(x)
			args = append(args, In(x))
		}
	}
	if g.oneGradient() {
		args = append(args, Out(d.qkv))
	} else {
		args = append(args, Out(d.q), Out(d.k), Out(d.v))
	}
	g.op(oAttentionGrad, flashAttentionGrad(g.tokens, g.shape.pairs(), m.Heads/t, m.KVHeads/t, m.HeadDim), args...)
	g.b.Drop(s.out)
	for _, x := range s.stats {
		if x != none {
			g.b.Drop(x)
		}
	}
}

func (g *generator) coreGradUnfused(da StorageID, d headsGrad, s *coreSaved) {
	m, t, h := g.m, g.c.TP, s.heads
	seq, count := g.shape.Seq, g.shape.Sequences*m.Heads/t
	elements := int64(count) * int64(seq) * int64(seq)
	// Three gradients, or three parts of one storage, the first of which is
	// what brings it to life.
	dq, dk, dv := Out(d.q), Out(d.k), Out(d.v)
	if g.oneGradient() {
		dv = Arg{Storage: d.qkv, View: viewValue, Mode: Write}
		dq = Arg{Storage: d.qkv, View: viewQuery, Mode: Update}
		dk = Arg{Storage: d.qkv, View: viewKey, Mode: Update}
	}
	weights := s.probs
	g.b.Unpack(s.probs)
	if s.dropped != none {
		weights = s.dropped
		g.b.Unpack(s.dropped)
		g.b.Unpack(s.mask)
	}
	g.calls(callsContext)
	dscores := g.tensor(lGradient, BF16, count, seq, seq)
	g.op(oBMM, batched(count, seq, seq, m.HeadDim), In(da), h.v, Out(dscores))
	g.op(oBMM, batched(count, seq, m.HeadDim, seq), In(weights), In(da), dv)
	if s.dropped != none {
		g.b.Drop(s.dropped)
		g.calls(callsDropoutBackward)
		g.op(oDropoutGrad, moving(hw.Elementwise, elements, 5), In(s.mask), InPlace(dscores))
		g.b.Drop(s.mask)
	}
	dscores = g.softmaxBackward(dscores, count, seq, s)
	g.op(oBMM, batched(count, seq, m.HeadDim, seq), In(dscores), h.k, dq)
	g.op(oBMM, batched(count, seq, m.HeadDim, seq), In(dscores), h.q, dk)
	g.b.Drop(dscores)
	g.calls(callsScoresBackward)
}

// softmax of scaled and masked scores, whose reference it takes over: the 16-bit
// result. What its backward pass reads is s.probs, which may be the same storage.
func (g *generator) softmax(scores StorageID, count, seq int, s *coreSaved) (probs StorageID) {
	if !g.fusedSoftmax(count, seq) {
		return g.softmaxClassic(scores, count, seq, s)
	}
	probs = g.tensor(lProbs, BF16, count, seq, seq)
	g.op(oSoftmax, moving(hw.Softmax, int64(count)*g.triangle(seq)+int64(count)*int64(seq)*int64(seq), 2), In(scores), In(g.st.mask), Out(probs))
	g.b.Drop(scores)
	s.probs = probs
	return probs
}

// softmaxBackward turns the gradient of the result, whose reference it takes over,
// into that of the scores and gives s.probs back.
func (g *generator) softmaxBackward(d StorageID, count, seq int, s *coreSaved) (dscores StorageID) {
	if !g.fusedSoftmax(count, seq) {
		return g.softmaxClassicBackward(d, count, seq, s)
	}
	g.op(oSoftmaxGrad, moving(hw.Softmax, 2*int64(count)*g.triangle(seq)+int64(count)*int64(seq)*int64(seq), 2), In(s.probs), InPlace(d))
	g.b.Drop(s.probs)
	return d
}
