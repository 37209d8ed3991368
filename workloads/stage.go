package workloads

import "smartswap/sim"

// stage is what a pipeline stage keeps resident, and where.
type stage struct {
	first, last bool
	residents   []Storage
	units       []unit  // embedding (first stage), layers chunk by chunk, head (last stage)
	chunks      []span  // of units: the layers of each model chunk
	states      []state // what the optimizer steps through, one by one
	grads       []StorageID

	params   StorageID // the flat buffer of 16-bit parameters; none without data parallelism
	gathered StorageID // sequence parallelism: where all-gathers put the full sequence
	mask     StorageID
	rotary   StorageID
}

// span is units lo..hi-1.
type span struct{ lo, hi int }

// unit is a part of the model that ZeRO-3 gathers and reduces as a whole: the
// embedding, one layer, or the head.
type unit struct {
	layer    int // 1-based; 0 for the embedding, layers+1 for the head
	params   [numParams]param
	experts  []expert
	elements int64     // of all its parameters
	shard    StorageID // ZeRO-3: this rank's share of the parameters …
	grad     StorageID // … and of the fp32 gradients
}

// expert is one of the feed-forward parts that a router chooses from.
type expert struct{ up, down param }

// param is one parameter tensor: where its 16-bit values and its gradient are.
// A tied head is the embedding's param.
type param struct {
	unit     int // the unit that owns it
	name     NameID
	rows     int
	cols     int // 0 = the model has no such parameter
	value    Arg // not with ZeRO-3, where the unit has to be gathered first
	grad     Arg
	view     ViewID // in the flat buffers of its unit or stage
	elements int64
}

// state is what the optimizer keeps for one parameter tensor (with ZeRO-3: for
// one unit): this rank's share of the fp32 copy and the two moments. A real
// distributed optimizer cuts the flat buffer into equal ranges, so that a rank
// owns some tensors whole and others not at all; here every tensor is cut. The
// bytes are the same up to rounding and replicas stay identical.
type state struct {
	master, expAvg, expAvgSq StorageID
	average                  StorageID // none unless an Extras process keeps one
	name                     NameID    // the parameter's; -1 for a unit
	value, grad              Arg
	elements                 int64 // of the share …
	whole                    int64 // … and of the whole tensor
}

// none stands for a storage that a configuration does not have.
const none StorageID = -1

// attentionMask is the compressed causal mask that npu_fusion_attention takes:
// 2048 x 2048 booleans (torch_npu documentation, sparse_mode 2 to 4).
const attentionMask = 2048

// newStage lays out stage s. Residents come in the order in which a framework
// allocates them: parameters, gradients, optimizer, buffers.
func newStage(c Config, s int) *stage {
	l := &layout{c: c, m: c.Model, stage: &stage{first: s == 0, last: s == c.PP-1, params: none, gathered: none, rotary: none}}
	l.listUnits(s)
	if c.ZeRO == 3 {
		l.shardUnits()
	} else {
		l.placeTensors()
	}
	l.tieHead()
	l.buffers()
	return l.stage
}

// layout is a stage in the making.
type layout struct {
	*stage
	c       Config
	m       Model
	tensors []*param // in order
}

// resident appends a resident.
func (l *layout) resident(x Storage) StorageID {
	l.residents = append(l.residents, x)
	return StorageID(len(l.residents) - 1)
}

// share is one replica's part of a number of elements.
func (l *layout) share(elements int64) int64 {
	if l.c.Replicated {
		return elements
	}
	return (elements + int64(l.c.DP) - 1) / int64(l.c.DP)
}

// listUnits lists the parts of stage s and their parameters.
func (l *layout) listUnits(s int) {
	if l.first {
		l.units = append(l.units, unit{layer: 0})
	}
	perChunk := l.m.Layers / (l.c.PP * l.c.VPP)
	for chunk := range l.c.VPP {
		lo := len(l.units)
		for i := range perChunk {
			l.units = append(l.units, unit{layer: (chunk*l.c.PP+s)*perChunk + i + 1})
		}
		l.chunks = append(l.chunks, span{lo, len(l.units)})
	}
	if l.last {
		l.units = append(l.units, unit{layer: l.m.Layers + 1})
	}
	adapter := l.c.adapterRank()
	for i := range l.units {
		l.listTensors(i, l.m.tensors(l.units[i].layer, l.c.TP, adapter))
	}
}

// listTensors lists the parameters of unit i. A head that is tied to an
// embedding of the same stage brings no table of its own.
func (l *layout) listTensors(i int, tensors []tensor) {
	u := &l.units[i]
	if u.layer >= 1 && u.layer <= l.m.Layers {
		u.experts = make([]expert, l.m.Experts)
	}
	for _, t := range tensors {
		if t.name == pHead && l.m.Tied && l.first {
			continue
		}
		p := &u.params[t.name]
		switch t.name {
		case pExpertUp:
			p = &u.experts[t.expert].up
		case pExpertDown:
			p = &u.experts[t.expert].down
		}
		l.tensors = append(l.tensors, p)
		*p = param{unit: i, name: t.name, rows: t.rows, cols: t.cols, elements: t.elements(), view: ViewID(len(l.tensors))}
		u.elements += p.elements
	}
}

// tieHead makes a tied head of the same stage the embedding's parameter.
func (l *layout) tieHead() {
	if l.m.Tied && l.first && l.last {
		units := l.units
		units[len(units)-1].params[pHead] = units[0].params[pEmbedding]
	}
}

// flatBuffer appends a buffer that many tensors share.
func (l *layout) flatBuffer(class Class, d DType, label NameID, layer int, elements int64) StorageID {
	return l.resident(Storage{Bytes: sim.Bytes(elements) * d.Size(), Class: class, DType: d, Shape: flat(elements),
		Layer: int32(layer), Flat: true, Label: label})
}

// optimizer appends the fp32 copy and the moments of this replica's share of
// parameter name.
func (l *layout) optimizer(name NameID, layer int, whole int64, shape [4]int32, value, grad Arg) {
	elements := l.share(whole)
	one := func(label NameID) StorageID {
		return l.resident(Storage{Bytes: sim.Bytes(4 * elements), Class: Optimizer, DType: FP32, Shape: shape, Layer: int32(layer), Label: label})
	}
	x := state{master: one(lMaster), expAvg: one(lExpAvg), expAvgSq: one(lExpAvgSq), average: none,
		name: name, value: value, grad: grad, elements: elements, whole: whole}
	if l.c.averages() {
		x.average = one(lAverage)
	}
	l.states = append(l.states, x)
}

// shardUnits is ZeRO-3: a share of each unit as one piece.
func (l *layout) shardUnits() {
	units := l.units
	for i := range units {
		units[i].shard = l.flatBuffer(Parameter, BF16, lParams, units[i].layer, l.share(units[i].elements))
	}
	for i := range units {
		units[i].grad = l.flatBuffer(Gradient, FP32, lGrads, units[i].layer, l.share(units[i].elements))
		l.grads = append(l.grads, units[i].grad)
	}
	for i := range units {
		n := l.share(units[i].elements)
		l.optimizer(-1, units[i].layer, units[i].elements, flat(n), In(units[i].shard), In(units[i].grad))
	}
}

// placeTensors is ZeRO-1 or a single replica: parameters whole, in one buffer
// when replicas gather them; gradients in one buffer; optimizer by tensor.
func (l *layout) placeTensors() {
	sharded := l.c.DP > 1 && !l.c.Replicated
	total := int64(0)
	for _, p := range l.tensors {
		total += p.elements
	}
	if sharded {
		l.params = l.flatBuffer(Parameter, BF16, lParams, 0, total)
	}
	for _, p := range l.tensors {
		p.value = Arg{Storage: l.params, View: p.view}
		if !sharded {
			p.value = In(l.resident(Storage{Bytes: sim.Bytes(2 * p.elements), Class: Parameter, DType: BF16, Shape: p.shape(),
				Layer: int32(l.units[p.unit].layer), Label: p.name}))
		}
	}
	grads := l.flatBuffer(Gradient, l.c.gradients(), lGrads, 0, total)
	l.grads = []StorageID{grads}
	for _, p := range l.tensors {
		p.grad = Arg{Storage: grads, View: p.view}
		shape := p.shape()
		if sharded {
			shape = flat(l.share(p.elements))
		}
		l.optimizer(p.name, l.units[p.unit].layer, p.elements, shape, p.value, p.grad)
	}
}

func (l *layout) buffers() {
	if tokens := l.c.Seq * l.c.MicroBatch; l.c.SequenceParallel && l.c.TP > 1 {
		l.gathered = l.resident(Storage{Bytes: 2 * sim.Bytes(tokens) * sim.Bytes(l.m.Hidden), Class: CommBuffer, DType: BF16,
			Shape: [4]int32{int32(tokens), int32(l.m.Hidden)}, Label: lGathered})
	}
	l.mask = l.resident(Storage{Bytes: attentionMask * attentionMask, Class: Input, DType: UINT8,
		Shape: [4]int32{attentionMask, attentionMask}, Label: lMask})
	if l.m.Style == Llama {
		l.rotary = l.resident(Storage{Bytes: 4 * 2 * sim.Bytes(l.c.Seq) * sim.Bytes(l.m.HeadDim), Class: Input, DType: FP32,
			Shape: [4]int32{2, int32(l.c.Seq), int32(l.m.HeadDim)}, Label: lRotary})
	}
}

func (p *param) shape() [4]int32 {
	if p.cols == 1 {
		return [4]int32{int32(p.rows)}
	}
	return [4]int32{int32(p.rows), int32(p.cols)}
}

// flat is the shape of n elements in a row; a dimension beyond int32 is cut into
// rows of 65,536.
func flat(n int64) [4]int32 {
	if n <= 1<<31-1 {
		return [4]int32{int32(n)}
	}
	return [4]int32{int32((n + 65535) >> 16), 65536}
}
