package workloads

import (
	"slices"

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

	v      Variant
	shape  MicroBatch // of the micro-batch at hand
	tokens int        // of it
	local  int        // of these, what sequence-parallel parts of this rank hold
	micro  int        // its number, from 0
	layer  int        // the layer that new storages belong to

	flags    Flags // of operators: Recomputed while backward repeats forward
	saving   bool  // forward keeps tensors for backward
	training bool  // dropout is on
	// reactivate: the layers at hand do not keep the feed-forward activation.
	reactivate bool

	live      []liveUnit // ZeRO-3, by unit
	reduced   []reduction
	sends     [2]pendingSend // forward, backward
	blocks    [][]block      // by chunk
	backwards int            // backward passes so far
}

// block is a run of layers of a chunk; a checkpointed one keeps only its input.
type block struct {
	span
	checkpoint bool
}

// microPass is what a micro-batch leaves between its forward and backward through
// one chunk.
type microPass struct {
	batch    StorageID
	input    received // what the stage before sent
	output   StorageID
	embedded StorageID // dropout mask
	blocks   []blockSaved
	head     headSaved
	gradient received // what the stage after sent
	result   StorageID
	done     int32 // event at the end of the last pass
}

type blockSaved struct {
	input  StorageID // checkpointed blocks
	layers []layerSaved
}

// generate writes the program of rank r for variant v.
func generate(d *decoder, r int, v Variant) (*Program, error) {
	rank := d.ranks[r]
	c := d.c
	g := &generator{c: c, m: c.Model, v: v, st: d.stages[rank.Stage], groups: newGroups(c, r)}
	g.b = NewBuilder(d.names, g.st.residents)
	g.live = make([]liveUnit, len(g.st.units))
	for i := range g.live {
		g.live[i] = liveUnit{value: none, grad: none, ready: -1}
	}
	g.sends = [2]pendingSend{{output: none}, {output: none}}
	g.cutBlocks()

	perUnit := 32 + 12*c.Model.Experts // operators, about
	if g.sequenceParallel() {
		perUnit += 12
	}
	g.b.Grow((len(v.Micros)*v.Runs+v.Validation)*len(g.st.units)*perUnit + 4*len(g.st.states))
	g.b.Mark(MarkIterationBegin, 0, 0)
	for run := range v.Runs {
		if run > 0 {
			g.b.Sync(Compute) // the host read what made it run again
		}
		g.zeroGradients()
		g.train()
	}
	g.step()
	g.validate()
	g.save()
	g.b.Mark(MarkIterationEnd, 0, 0)
	return g.b.Program(v.kind(c.nominal()))
}

// cutBlocks cuts the chunks' layers into blocks by the recomputation strategy.
func (g *generator) cutBlocks() {
	checkpoints := g.v.Recompute.N // left, of full-block
	for _, chunk := range g.st.chunks {
		var blocks []block
		for i := chunk.lo; i < chunk.hi; {
			b := block{span: span{i, i + 1}}
			switch g.v.Recompute.Kind {
			case FullUniform:
				b.hi = min(i+g.v.Recompute.N, chunk.hi)
				b.checkpoint = true
			case FullBlock:
				b.checkpoint = checkpoints > 0
				checkpoints--
			}
			blocks = append(blocks, b)
			i = b.hi
		}
		g.blocks = append(g.blocks, blocks)
	}
}

// open makes the layers of bl those at hand.
func (g *generator) open(bl block) {
	r := g.v.Recompute
	g.reactivate = r.Kind == ActivationFunction || r.Activation && !bl.checkpoint
}

// enter makes micro-batch i, of the given shape, the one at hand.
func (g *generator) enter(i int, shape MicroBatch) {
	g.micro, g.shape = i, shape
	g.tokens = shape.Tokens()
	g.local = g.tokens
	if g.sequenceParallel() {
		g.local /= g.c.TP
	}
}

// train runs the pipeline schedule over the micro-batches.
func (g *generator) train() {
	g.saving, g.training = true, true
	g.pipeline(g.v.Micros, schedule(g.c.PP, g.c.VPP, len(g.v.Micros), false, g.exchanges()), MarkForwardBegin)
	g.finishReductions(0)
}

// validate runs forward-only micro-batches and reads their loss.
func (g *generator) validate() {
	if g.v.Validation == 0 {
		return
	}
	g.saving, g.training = false, false
	shapes := slices.Repeat([]MicroBatch{{Sequences: g.c.MicroBatch, Seq: g.c.Seq}}, g.v.Validation)
	g.pipeline(shapes, schedule(g.c.PP, g.c.VPP, g.v.Validation, true, g.exchanges()), MarkValidationBegin)
	g.b.Sync(Compute)
}

// pipeline runs this stage's part of a schedule over micro-batches of the given
// shapes; begin marks a forward pass, the mark after it its end.
func (g *generator) pipeline(shapes []MicroBatch, steps [][]step, begin MarkKind) {
	batches := make([]microPass, len(shapes)*g.c.VPP)
	own := steps[g.stage]
	for i, s := range own {
		mb := &batches[s.micro*g.c.VPP+s.chunk]
		g.enter(s.micro, shapes[s.micro])
		switch s.kind {
		case receiveForward:
			mb.input = g.receive(g.before(), tagForward)
		case forward:
			g.b.Mark(begin, s.micro+1, s.chunk)
			g.forward(mb, s.chunk)
			g.b.Mark(begin+1, s.micro+1, s.chunk)
			mb.done = g.passed(mb.output)
		case sendForward:
			g.send(g.after(), tagForward, mb.output, mb.done)
		case receiveBackward:
			mb.gradient = g.receive(g.after(), tagBackward)
		case backward:
			g.backwards++
			g.b.Mark(MarkBackwardBegin, g.backwards, s.chunk)
			g.backward(mb, s.chunk)
			g.b.Mark(MarkBackwardEnd, g.backwards, s.chunk)
			mb.done = g.passed(mb.result)
		case sendBackward:
			g.send(g.before(), tagBackward, mb.result, mb.done)
		}
		if s.transfers() && (i+1 == len(own) || !own[i+1].transfers()) {
			g.exchanged()
		}
	}
	g.finishSends()
}

// passed records the end of a pass whose result is to be sent.
func (g *generator) passed(result StorageID) int32 {
	if result == none {
		return -1
	}
	return g.b.Record(Compute)
}

// before and after are the neighbouring stages of the pipeline, which with
// several chunks is a ring.
func (g *generator) before() int { return (g.stage + g.c.PP - 1) % g.c.PP }
func (g *generator) after() int  { return (g.stage + 1) % g.c.PP }

// embeds and predicts tell whether a chunk begins with the embedding and ends
// with the head.
func (g *generator) embeds(chunk int) bool   { return g.st.first && chunk == 0 }
func (g *generator) predicts(chunk int) bool { return g.st.last && chunk == g.c.VPP-1 }

// runs tells whether the micro-batch at hand runs unit u.
func (g *generator) runs(u int) bool { return !g.shape.Without.Has(g.st.units[u].layer) }

// next and previous are the nearest units that run, after and before u.
func (g *generator) next(u int) int {
	for u++; u < len(g.st.units) && !g.runs(u); u++ {
	}
	return u
}

func (g *generator) previous(u int) int {
	for u--; u >= 0 && !g.runs(u); u-- {
	}
	return u
}

// forward runs a chunk's part of a micro-batch.
func (g *generator) forward(mb *microPass, chunk int) {
	x := none
	if g.embeds(chunk) || g.predicts(chunk) {
		mb.batch = g.loadBatch()
	}
	g.layer = 0
	if g.embeds(chunk) {
		g.gather(0)
		g.gather(g.next(0))
		g.use(0)
		x, mb.embedded = g.embed(mb.batch)
		g.free(0)
	} else {
		g.b.Wait(Compute, mb.input.ready)
		x = g.whole(mb.input.storage)
	}
	for _, bl := range g.blocks[chunk] {
		var saved blockSaved
		x, saved = g.blockForward(bl, x)
		if g.saving {
			mb.blocks = append(mb.blocks, saved)
		}
	}
	if g.predicts(chunk) {
		u := len(g.st.units) - 1
		g.layer = 0
		g.gatherHead(u)
		mb.head = g.headForward(u, mb.batch, x)
		g.freeHead(u)
		g.b.Drop(x)
		x = none
	}
	mb.output = x
	if !g.saving && (g.embeds(chunk) || g.predicts(chunk)) {
		g.b.Drop(mb.batch)
	}
}

// blockForward runs the layers of bl on x, whose reference it takes over.
func (g *generator) blockForward(bl block, x StorageID) (y StorageID, saved blockSaved) {
	g.open(bl)
	saving := g.saving
	if bl.checkpoint {
		g.calls(callsCheckpoint)
		saved.input = g.keep(x)
		g.saving = false
	}
	y, saved.layers = g.layersForward(bl, x)
	g.saving = saving
	return y, saved
}

func (g *generator) layersForward(bl block, x StorageID) (y StorageID, saved []layerSaved) {
	if g.saving {
		saved = make([]layerSaved, bl.hi-bl.lo)
	}
	for u := bl.lo; u < bl.hi; u++ {
		if !g.runs(u) {
			continue
		}
		g.layer = g.st.units[u].layer
		// The last layer that is computed again stays: its backward is next.
		next := g.next(u)
		passing := g.flags&Recomputed == 0 || next < bl.hi
		g.gather(u)
		if passing {
			g.gather(next)
		}
		g.use(u)
		y, s := g.layerForward(u, x)
		if passing {
			g.free(u)
		}
		g.b.Drop(x)
		x = y
		if g.saving {
			saved[u-bl.lo] = s
		}
	}
	return x, saved
}

// backward runs a chunk's part of a micro-batch back.
func (g *generator) backward(mb *microPass, chunk int) {
	var dy StorageID
	g.layer = 0
	if g.predicts(chunk) {
		u := len(g.st.units) - 1
		g.gatherHead(u)
		g.gatherLayer(g.previous(u))
		dy = g.headBackward(u, mb.batch, &mb.head)
		g.freeHead(u)
		g.reduce(u)
	} else {
		g.b.Wait(Compute, mb.gradient.ready)
		dy = g.whole(mb.gradient.storage)
	}
	blocks := g.blocks[chunk]
	for i := len(blocks) - 1; i >= 0; i-- {
		dy = g.blockBackward(blocks[i], dy, &mb.blocks[i])
	}
	if g.embeds(chunk) {
		g.layer = 0
		g.embedBackward(mb.batch, dy, mb.embedded)
		g.reduce(0)
		g.b.Drop(dy)
		dy = none
	}
	mb.result = dy
	if g.embeds(chunk) || g.predicts(chunk) {
		g.b.Drop(mb.batch)
	}
	mb.blocks = nil
}

// blockBackward takes over the reference of dy.
func (g *generator) blockBackward(bl block, dy StorageID, saved *blockSaved) StorageID {
	g.open(bl)
	layers := saved.layers
	if bl.checkpoint {
		g.b.Unpack(saved.input)
		g.flags |= Recomputed
		g.calls(callsRecompute)
		var y StorageID
		y, layers = g.layersForward(bl, saved.input) // gives the checkpoint's reference back
		g.flags &^= Recomputed
		g.b.Drop(y)
	}
	for u := bl.hi - 1; u >= bl.lo; u-- {
		if !g.runs(u) {
			continue
		}
		g.layer = g.st.units[u].layer
		g.gather(u)
		g.gatherLayer(g.previous(u))
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

// keepFor is keep if it is needed; none otherwise.
func (g *generator) keepFor(s StorageID, needed bool) StorageID {
	if !needed {
		return none
	}
	return g.keep(s)
}
