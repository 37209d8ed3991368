package workloads

import (
	"smartswap/hw"
	"smartswap/sim"
)

// groups are the ranks that a rank meets, as indices of Workload.Ranks. A group
// that is folded into one rank is empty.
type groups struct {
	stage    int
	tp, dp   []int32
	all      []int32
	peer     []int32 // by stage: the rank of this pipeline
	firstEnd []int32 // first and last stage of this pipeline
}

func newGroups(c Config, r int) groups {
	tp, dp := c.TP, c.DP
	if !c.Unfold {
		tp, dp = 1, 1
	}
	stage, replica, shard := r/(tp*dp), r/tp%dp, r%tp
	at := func(s, d, t int) int32 { return int32((s*dp+d)*tp + t) }
	g := groups{stage: stage}
	if tp > 1 {
		for t := range tp {
			g.tp = append(g.tp, at(stage, replica, t))
		}
	}
	if dp > 1 {
		for d := range dp {
			g.dp = append(g.dp, at(stage, d, shard))
		}
	}
	for i := range tp * dp * c.PP {
		g.all = append(g.all, int32(i))
	}
	if len(g.all) == 1 {
		g.all = nil
	}
	for s := range c.PP {
		g.peer = append(g.peer, at(s, replica, shard))
	}
	g.firstEnd = []int32{g.peer[0], g.peer[c.PP-1]}
	return g
}

// overReplicas is a collective over data parallelism: replicas are a tensor-parallel
// group apart.
func (g *generator) overReplicas(kind hw.CollectiveKind, size sim.Bytes) hw.Work {
	w := collective(kind, size, g.c.DP)
	w.Stride = int32(g.c.TP)
	return w
}

// distance is how many devices lie between equal members of two stages.
func (g *generator) distance(from, to int) int32 {
	return int32(max(from-to, to-from) * g.c.TP * g.c.DP)
}

func (g *generator) sequenceParallel() bool { return g.c.SequenceParallel && g.c.TP > 1 }

// start puts a collective on the communication lane, after all that the compute
// lane has been given so far, and returns the event of its end.
func (g *generator) start(name NameID, w hw.Work, group []int32, args ...Arg) int32 {
	g.b.Order(Compute, Comm)
	g.b.Op(OpSpec{Name: name, Lane: Comm, Kernel: Kernel{Work: w, Group: group}, Flags: g.flags}, args...)
	return g.b.Record(Comm)
}

// bytes is the size of a storage.
func (g *generator) bytes(s StorageID) sim.Bytes { return g.b.Storage(s).Bytes }

// Tensor parallelism (Megatron-LM megatron/core/tensor_parallel/layers.py). A
// column-parallel projection needs the whole sequence; with sequence
// parallelism it is gathered into one resident buffer, again in backward, so
// that only the local part is kept. A row-parallel projection yields partial
// sums: reduce-scatter with sequence parallelism, all-reduce without.

// startGather begins to collect the full sequence of x; it returns where it
// will be and the event to wait for, -1 if there is nothing to do.
func (g *generator) startGather(x StorageID) (full Arg, ready int32) {
	if !g.sequenceParallel() {
		return In(x), -1
	}
	w := collective(hw.AllGather, g.hiddenBytes(g.tokens), g.c.TP)
	return In(g.st.gathered), g.start(oAllGather, w, g.tp, In(x), Out(g.st.gathered))
}

func (g *generator) wait(event int32) {
	if event >= 0 {
		g.b.Wait(Compute, event)
	}
}

// gatherSequence is startGather and the wait.
func (g *generator) gatherSequence(x StorageID) Arg {
	full, ready := g.startGather(x)
	g.wait(ready)
	return full
}

// startReduce begins to sum the partial [tokens, hidden] result y. The caller
// waits for ready and then calls finish to drop what is not needed any more;
// sum is the reduced tensor (y itself unless sequence-parallel).
func (g *generator) startReduce(label NameID, y StorageID) (sum StorageID, ready int32) {
	switch {
	case g.c.TP == 1:
		return y, -1
	case !g.sequenceParallel():
		return y, g.start(oAllReduce, collective(hw.AllReduce, g.bytes(y), g.c.TP), g.tp, InPlace(y))
	}
	sum = g.tensor(label, BF16, g.local, g.m.Hidden)
	return sum, g.start(oReduceScatter, collective(hw.ReduceScatter, g.bytes(y), g.c.TP), g.tp, In(y), Out(sum))
}

// finishReduce waits for startReduce's event and drops y if sum replaced it.
func (g *generator) finishReduce(y, sum StorageID, ready int32) StorageID {
	g.wait(ready)
	if sum != y {
		g.b.Drop(y)
	}
	return sum
}

// ZeRO-3 (torch FSDP): a unit's parameters exist whole only around its use. The
// next unit's gather runs beside the computation; gradients are reduced, in 16
// bits, beside the next unit's backward and then added to this rank's fp32
// share. Without ZeRO-3 gather, use, free and reduce do nothing.

type liveUnit struct {
	value StorageID // gathered parameters
	ready int32     // the gather's event until someone waited for it, then -1
	grad  StorageID // 16-bit gradients of the whole unit
}

// reduction is a reduce-scatter under way.
type reduction struct {
	unit        int
	grad, share StorageID
	ready       int32
}

// gather begins to collect unit u unless it is there or on its way.
func (g *generator) gather(u int) {
	if g.c.ZeRO != 3 || g.live[u].value != none {
		return
	}
	l, un := &g.live[u], &g.st.units[u]
	l.value = g.b.New(Storage{Bytes: sim.Bytes(2 * un.elements), Class: Parameter, DType: BF16, Shape: flat(un.elements),
		Layer: int32(un.layer), Flat: true, Label: lGathered})
	l.ready = g.start(oAllGather, g.overReplicas(hw.AllGather, sim.Bytes(2*un.elements)), g.dp, In(un.shard), Out(l.value))
}

// use makes the compute lane wait until unit u is whole.
func (g *generator) use(u int) {
	if g.c.ZeRO == 3 {
		g.wait(g.live[u].ready)
		g.live[u].ready = -1
	}
}

// gatherLayer is gather in backward, where the embedding needs no weights.
func (g *generator) gatherLayer(u int) {
	if u > 0 {
		g.gather(u)
	}
}

// free gives the whole unit u back.
func (g *generator) free(u int) {
	if g.c.ZeRO == 3 {
		g.b.Drop(g.live[u].value)
		g.live[u].value = none
	}
}

// gatherHead and freeHead treat the head, whose weight may be the embedding's.
func (g *generator) gatherHead(u int) {
	g.gather(u)
	g.use(u)
	if owner := g.st.units[u].params[pHead].unit; owner != u {
		g.gather(owner)
		g.use(owner)
	}
}

func (g *generator) freeHead(u int) {
	g.free(u)
	if owner := g.st.units[u].params[pHead].unit; owner != u {
		g.free(owner)
	}
}

// weight is the argument that reads parameter name of unit u.
func (g *generator) weight(u int, name NameID) Arg { return g.value(g.param(u, name)) }

// weightGrad is the argument that adds to the gradient of parameter name.
func (g *generator) weightGrad(u int, name NameID) Arg { return g.grad(g.param(u, name)) }

func (g *generator) param(u int, name NameID) *param { return &g.st.units[u].params[name] }

func (g *generator) value(p *param) Arg {
	if g.c.ZeRO == 3 {
		return Arg{Storage: g.live[p.unit].value, View: p.view}
	}
	return p.value
}

func (g *generator) grad(p *param) Arg {
	if g.c.ZeRO != 3 {
		return Arg{Storage: p.grad.Storage, View: p.view, Mode: Update}
	}
	l, un := &g.live[p.unit], &g.st.units[p.unit]
	mode := Update
	if l.grad == none {
		mode = Write
		l.grad = g.b.New(Storage{Bytes: sim.Bytes(2 * un.elements), Class: Gradient, DType: BF16, Shape: flat(un.elements),
			Layer: int32(un.layer), Flat: true, Label: lGradient})
	}
	return Arg{Storage: l.grad, View: p.view, Mode: mode}
}

// reduce begins to sum the gradients of unit u and finishes all earlier ones
// but the last, so that one is always under way beside the computation.
func (g *generator) reduce(u int) {
	if g.c.ZeRO != 3 {
		return
	}
	l, un := &g.live[u], &g.st.units[u]
	share := g.b.New(Storage{Bytes: g.bytes(un.shard), Class: Gradient, DType: BF16, Shape: g.b.Storage(un.shard).Shape,
		Layer: int32(un.layer), Label: lShard})
	w := g.overReplicas(hw.ReduceScatter, g.bytes(l.grad))
	g.reduced = append(g.reduced, reduction{u, l.grad, share, g.start(oReduceScatter, w, g.dp, In(l.grad), Out(share))})
	l.grad = none
	g.finishReductions(1)
}

// finishReductions finishes all but the last left reductions.
func (g *generator) finishReductions(left int) {
	for len(g.reduced) > left {
		r := g.reduced[0]
		g.reduced = g.reduced[1:]
		g.wait(r.ready)
		g.b.Drop(r.grad)
		elements := int64(g.bytes(r.share) / 2)
		g.op(oAdd, moving(hw.Elementwise, elements, 2+4+4), In(r.share), InPlace(g.st.units[r.unit].grad))
		g.b.Drop(r.share)
	}
}

// Pipeline parallelism: transfers between neighbours on a lane of their own.

// Tags of transfers between two stages.
const (
	tagForward int32 = iota + 1
	tagBackward
)

// received is a tensor on its way from a neighbour.
type received struct {
	storage StorageID
	ready   int32
}

// pendingSend is a tensor that must live until its transfer is done.
type pendingSend struct {
	output StorageID
	done   int32
}

// parts is into how many parts a tensor between stages is cut that every member of a
// tensor-parallel group has whole: each sends its own part, and those of the next stage
// gather them. Without sequence parallelism Megatron-LM did so until Megatron-Core
// (Narayanan et al., arXiv 2104.04473 section 4.1; megatron/p2p_communication.py,
// scatter_gather_tensors_in_pipeline), and DeepSpeed's pipelines do
// (deepspeed/runtime/pipe/engine.py, is_pipe_partitioned).
func (g *generator) parts() int {
	if g.classic() && !g.sequenceParallel() {
		return g.c.TP
	}
	return 1
}

// whole gathers a received part, whose reference it takes over.
func (g *generator) whole(part StorageID) StorageID {
	if g.parts() == 1 {
		return part
	}
	x := g.tensor(lHidden, BF16, g.local, g.m.Hidden)
	g.wait(g.start(oAllGather, collective(hw.AllGather, g.bytes(x), g.c.TP), g.tp, In(part), Out(x)))
	g.b.Drop(part)
	return x
}

// receive begins to receive a [local tokens, hidden] tensor, or this rank's part of it,
// from stage from.
func (g *generator) receive(from int, tag int32) received {
	g.layer = 0
	s := g.tensor(lHidden, BF16, g.local, g.m.Hidden/g.parts())
	g.calls(callsTransfer)
	g.b.Order(Compute, CommPeer)
	g.b.Op(OpSpec{Name: oReceive, Lane: CommPeer, Kernel: g.transfer(from, g.stage, tag)}, Out(s))
	return received{s, g.b.Record(CommPeer)}
}

// send begins to send y, whose reference it takes over, to stage to once the
// compute lane has come to event ready; what the lane does after it goes on
// beside the transfer. The computation waits for the end only before the next
// send in the same direction, when y is dropped.
func (g *generator) send(to int, tag int32, y StorageID, ready int32) {
	p := &g.sends[tag-tagForward]
	g.finishSend(p)
	g.b.Wait(CommPeer, ready)
	g.calls(callsTransfer)
	g.b.Op(OpSpec{Name: oSend, Lane: CommPeer, Kernel: g.transfer(g.stage, to, tag)}, In(y))
	*p = pendingSend{y, g.b.Record(CommPeer)}
}

func (g *generator) finishSend(p *pendingSend) {
	if p.output != none {
		g.b.Wait(Compute, p.done)
		g.b.Drop(p.output)
		p.output = none
	}
}

func (g *generator) finishSends() {
	for i := range g.sends {
		g.finishSend(&g.sends[i])
	}
}

// hiddenBytes is the size of a [tokens, hidden] tensor.
func (g *generator) hiddenBytes(tokens int) sim.Bytes {
	return 2 * sim.Bytes(tokens) * sim.Bytes(g.m.Hidden)
}

func (g *generator) transfer(from, to int, tag int32) Kernel {
	return Kernel{Work: hw.Work{Kind: hw.Transfer, Size: g.hiddenBytes(g.local) / sim.Bytes(g.parts()), Stride: g.distance(from, to)}, Group: []int32{g.peer[from], g.peer[to]}, Tag: tag}
}
