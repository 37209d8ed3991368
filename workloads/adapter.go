package workloads

// Low-rank adapters (Hu et al., arXiv 2106.09685 section 4.1): beside a frozen
// projection y = Wx there is y += B(Ax) with A and B of a small common rank.

// adapter names the two parameters beside a projection, A and B.
type adapter struct{ down, up NameID }

var (
	qkvAdapter  = adapter{pQKVAdapterDown, pQKVAdapterUp}
	projAdapter = adapter{pProjAdapterDown, pProjAdapterUp}
	noAdapter   = adapter{-1, -1} // beside projections that never have one
)

// trains tells whether parameter name is trained: nothing but adapters where
// they train, everything but adapters otherwise.
func (g *generator) trains(name NameID) bool {
	return g.v.Adapters == (name >= pQKVAdapterDown && name <= pProjAdapterUp)
}

// active tells whether ad takes part.
func (g *generator) active(ad adapter) bool { return g.v.Adapters && ad != noAdapter }

// adapt adds the adapter's result on x to y and keeps Ax as low.
func (g *generator) adapt(u int, ad adapter, x Arg, y StorageID) (low StorageID) {
	if !g.active(ad) {
		return none
	}
	down, up := g.param(u, ad.down), g.param(u, ad.up)
	low = g.tensor(lAdapter, BF16, g.tokens, down.rows)
	g.op(oMatmul, matmul(g.tokens, down.rows, down.cols), x, g.value(down), Out(low))
	g.op(oMatmul, matmul(g.tokens, up.rows, up.cols), In(low), g.value(up), InPlace(y))
	g.keep(low)
	g.b.Drop(low)
	return low
}

// adaptBackward adds the adapter's part to the gradient dx of the projection's
// input and returns the gradient of low.
func (g *generator) adaptBackward(u int, ad adapter, dy Arg, low, dx StorageID) (dlow StorageID) {
	if !g.active(ad) {
		return none
	}
	down, up := g.param(u, ad.down), g.param(u, ad.up)
	dlow = g.tensor(lGradient, BF16, g.tokens, down.rows)
	g.op(oMatmul, matmul(g.tokens, up.cols, up.rows), dy, g.value(up), Out(dlow))
	g.op(oMatmul, matmul(g.tokens, down.cols, down.rows), In(dlow), g.value(down), InPlace(dx))
	return dlow
}

// adaptWeights adds to the gradients of the adapter and gives low and dlow back.
func (g *generator) adaptWeights(u int, ad adapter, dy, x Arg, low, dlow StorageID) {
	if !g.active(ad) {
		return
	}
	down, up := g.param(u, ad.down), g.param(u, ad.up)
	g.b.Unpack(low)
	g.op(oMatmulAccumulate, matmulAccumulate(up.rows, up.cols, g.tokens), dy, In(low), g.grad(up))
	g.op(oMatmulAccumulate, matmulAccumulate(down.rows, down.cols, g.tokens), In(dlow), x, g.grad(down))
	g.b.Drop(low)
	g.b.Drop(dlow)
}
