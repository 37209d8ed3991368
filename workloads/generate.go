package workloads

import (
	"smartswap/hw"
	"smartswap/sim"
)

// generator writes one program. Its methods follow one convention: storages
// passed in are borrowed, storages returned are owned by the caller, who drops
// them. What backward needs is kept by references of its own (Builder.Save).
type generator struct {
	c  Config
	m  Model
	st *stage
	b  *Builder
	groups

	tokens int // of a micro-batch
	local  int // of these, what sequence-parallel parts of this rank hold
	layer  int // the layer that new storages belong to

	flags    Flags // of operators: Recomputed while backward repeats forward
	saving   bool  // forward keeps tensors for backward
	training bool  // dropout is on

	live    []liveUnit // ZeRO-3, by unit
	reduced []reduction
	sends   [2]pendingSend // forward, backward
	blocks  []block
}

// block is a run of layers of a stage, units lo..hi-1; a checkpointed one keeps
// only its input.
type block struct {
	lo, hi     int
	checkpoint bool
}

// microBatch is what a micro-batch leaves between its forward and backward.
type microBatch struct {
	batch    StorageID
	input    received // what the stage before sent
	output   StorageID
	embedded StorageID // dropout mask
	blocks   []blockSaved
	head     headSaved
	gradient received // what the stage after sent
	result   StorageID
}

type blockSaved struct {
	input  StorageID // checkpointed blocks
	layers []layerSaved
}

// generate writes the program of rank r for variant v.
func generate(d *decoder, r int, v Variant) (*Program, error) {
	rank := d.ranks[r]
	c := d.c
	g := &generator{
		c: c, m: c.Model, st: d.stages[rank.Stage], groups: newGroups(c, r),
		tokens: c.Seq * c.MicroBatch,
	}
	g.b = NewBuilder(d.names, g.st.residents)
	g.local = g.tokens
	if g.sequenceParallel() {
		g.local /= c.TP
	}
	g.live = make([]liveUnit, len(g.st.units))
	for i := range g.live {
		g.live[i] = liveUnit{value: none, grad: none, ready: -1}
	}
	g.sends = [2]pendingSend{{output: none}, {output: none}}
	g.blocks = g.layerBlocks()

	micros := c.GlobalBatch / (c.MicroBatch * c.DP)
	g.b.Grow((micros+v.Validation)*(len(g.st.units)+1)*36 + 4*len(g.st.states))
	g.b.Mark(MarkIterationBegin, 0, 0)
	g.zeroGradients()
	g.train(rank.Stage, micros)
	g.step(v.Skip)
	g.validate(v.Validation)
	g.b.Mark(MarkIterationEnd, 0, 0)
	return g.b.Program(v.Kind())
}

// layerBlocks cuts the stage's layers into blocks by the recomputation strategy.
func (g *generator) layerBlocks() []block {
	lo, hi := 0, len(g.st.units)
	if g.st.first {
		lo++
	}
	if g.st.last {
		hi--
	}
	var blocks []block
	for i := lo; i < hi; {
		b := block{lo: i, hi: i + 1}
		switch g.c.Recompute.Kind {
		case FullUniform:
			b.hi = min(i+g.c.Recompute.N, hi)
			b.checkpoint = true
		case FullBlock:
			b.checkpoint = i-lo < g.c.Recompute.N
		}
		blocks = append(blocks, b)
		i = b.hi
	}
	return blocks
}

// train runs the pipeline schedule over the micro-batches.
func (g *generator) train(stage, micros int) {
	g.saving, g.training = true, true
	batches := make([]microBatch, micros)
	order := 0 // of backward passes
	for _, s := range oneForwardOneBackward(stage, g.c.PP, micros) {
		mb := &batches[s.micro]
		switch s.kind {
		case receiveForward:
			mb.input = g.receive(stage-1, tagForward)
		case forward:
			g.b.Mark(MarkForwardBegin, s.micro+1, 0)
			g.forward(mb)
			g.b.Mark(MarkForwardEnd, s.micro+1, 0)
		case sendForward:
			g.send(stage+1, tagForward, mb.output)
		case receiveBackward:
			mb.gradient = g.receive(stage+1, tagBackward)
		case backward:
			order++
			g.b.Mark(MarkBackwardBegin, order, 0)
			g.backward(mb)
			g.b.Mark(MarkBackwardEnd, order, 0)
		case sendBackward:
			g.send(stage-1, tagBackward, mb.result)
		}
	}
	g.finishSends()
	g.finishReductions(0)
}

// validate runs n forward-only micro-batches and reads their loss.
func (g *generator) validate(n int) {
	g.saving, g.training = false, false
	for i := range n {
		var mb microBatch
		if !g.st.first {
			mb.input = g.receive(g.stage-1, tagForward)
		}
		g.b.Mark(MarkValidationBegin, i+1, 0)
		g.forward(&mb)
		g.b.Mark(MarkValidationEnd, i+1, 0)
		if !g.st.last {
			g.send(g.stage+1, tagForward, mb.output)
		}
	}
	g.finishSends()
	if n > 0 {
		g.b.Sync(Compute)
	}
}

// forward runs the stage's part of a micro-batch.
func (g *generator) forward(mb *microBatch) {
	x := none
	if g.st.first || g.st.last {
		mb.batch = g.loadBatch()
	}
	g.layer = 0
	if g.st.first {
		g.gather(0)
		g.gather(1)
		g.use(0)
		x, mb.embedded = g.embed(mb.batch)
		g.free(0)
	} else {
		g.b.Wait(Compute, mb.input.ready)
		x = mb.input.storage
	}
	for _, bl := range g.blocks {
		var saved blockSaved
		x, saved = g.blockForward(bl, x)
		if g.saving {
			mb.blocks = append(mb.blocks, saved)
		}
	}
	if g.st.last {
		u := len(g.st.units) - 1
		g.layer = 0
		g.gatherHead(u)
		mb.head = g.headForward(u, mb.batch, x)
		g.freeHead(u)
		g.b.Drop(x)
		x = none
	}
	mb.output = x
	if !g.saving && (g.st.first || g.st.last) {
		g.b.Drop(mb.batch)
	}
}

// blockForward runs the layers of bl on x, whose reference it takes over.
func (g *generator) blockForward(bl block, x StorageID) (y StorageID, saved blockSaved) {
	saving := g.saving
	if bl.checkpoint {
		saved.input = g.keep(x)
		g.saving = false
	}
	y, saved.layers = g.layersForward(bl, x)
	g.saving = saving
	return y, saved
}

func (g *generator) layersForward(bl block, x StorageID) (y StorageID, saved []layerSaved) {
	for u := bl.lo; u < bl.hi; u++ {
		g.layer = g.st.units[u].layer
		recomputing := g.flags&Recomputed != 0
		g.gather(u)
		if !recomputing || u+1 < bl.hi {
			g.gather(u + 1)
		}
		g.use(u)
		y, s := g.layerForward(u, x)
		if !recomputing || u+1 < bl.hi { // else its backward is next
			g.free(u)
		}
		g.b.Drop(x)
		x = y
		if g.saving {
			saved = append(saved, s)
		}
	}
	return x, saved
}

// backward runs the stage's part of a micro-batch back.
func (g *generator) backward(mb *microBatch) {
	var dy StorageID
	g.layer = 0
	if g.st.last {
		u := len(g.st.units) - 1
		g.gatherHead(u)
		g.gather(u - 1)
		dy = g.headBackward(u, mb.batch, &mb.head)
		g.freeHead(u)
		g.reduce(u)
	} else {
		g.b.Wait(Compute, mb.gradient.ready)
		dy = mb.gradient.storage
	}
	for i := len(g.blocks) - 1; i >= 0; i-- {
		dy = g.blockBackward(g.blocks[i], dy, &mb.blocks[i])
	}
	if g.st.first {
		g.layer = 0
		g.embedBackward(mb.batch, dy, mb.embedded)
		g.reduce(0)
		g.b.Drop(dy)
		dy = none
	}
	mb.result = dy
	if g.st.first || g.st.last {
		g.b.Drop(mb.batch)
	}
	mb.blocks = nil
}

// blockBackward takes over the reference of dy.
func (g *generator) blockBackward(bl block, dy StorageID, saved *blockSaved) StorageID {
	layers := saved.layers
	if bl.checkpoint {
		g.b.Unpack(saved.input)
		g.flags |= Recomputed
		var y StorageID
		y, layers = g.layersForward(bl, saved.input) // gives the checkpoint's reference back
		g.flags &^= Recomputed
		g.b.Drop(y)
	}
	for u := bl.hi - 1; u >= bl.lo; u-- {
		g.layer = g.st.units[u].layer
		g.gather(u)
		if u > 1 { // the embedding's backward needs no weights
			g.gather(u - 1)
		}
		g.use(u)
		dy = g.layerBackward(u, dy, &layers[u-bl.lo])
		g.free(u)
		g.reduce(u)
	}
	return dy
}

// op appends an operator of the compute lane. An operator that changes nothing
// in place and draws no random numbers can be replayed.
func (g *generator) op(name NameID, w hw.Work, args ...Arg) {
	flags := g.flags
	if name != oDropout && name != oBiasDropoutAdd {
		flags |= Replayable
		for _, a := range args {
			if a.Mode == Update {
				flags &^= Replayable
			}
		}
	}
	g.b.Op(OpSpec{Name: name, Lane: Compute, Kernel: Kernel{Work: w}, Flags: flags}, args...)
}

// tensor declares an activation of the current layer; sizes are its dimensions.
func (g *generator) tensor(label NameID, d DType, sizes ...int) StorageID {
	return g.tensorOf(Activation, label, d, sizes...)
}

func (g *generator) tensorOf(class Class, label NameID, d DType, sizes ...int) StorageID {
	s := Storage{Class: class, DType: d, Layer: int32(g.layer), Label: label}
	n := int64(1)
	for i, size := range sizes {
		n *= int64(size)
		s.Shape[i] = int32(size)
	}
	s.Bytes = sim.Bytes(n) * d.Size()
	return g.b.New(s)
}

// keep saves s for backward if forward is to be followed by one.
func (g *generator) keep(s StorageID) StorageID {
	if g.saving {
		g.b.Save(s)
	}
	return s
}
