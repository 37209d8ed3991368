package workloads

import (
	"fmt"
	"strings"
	"sync"

	"smartswap/sim"
)

// New makes the training job that c describes; the error is c.Check's. The
// workload generates a program the first time it is asked for one and keeps it;
// all its methods may be called by several goroutines.
//
// Ranks are numbered in Megatron-LM's order: tensor-parallel members first, then
// replicas, then stages. Folded ranks (see Config.Unfold) are the stages.
func New(c Config) (Workload, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	d := &decoder{c: c, names: newDecoderNames(), programs: make(map[programKey]*Program)}
	for s := range c.PP {
		d.stages = append(d.stages, newStage(c, s))
	}
	peers := c.TP * c.DP // devices of one stage
	for s := range c.PP {
		devices := make([]int, peers)
		for i := range devices {
			devices[i] = s*peers + i
		}
		if !c.Unfold {
			d.ranks = append(d.ranks, Rank{Devices: devices, Stage: s, Residents: d.stages[s].residents})
			continue
		}
		for i := range devices {
			d.ranks = append(d.ranks, Rank{Devices: devices[i : i+1 : i+1], Stage: s, Residents: d.stages[s].residents})
		}
	}
	return d, nil
}

// decoder is the Workload of a decoder transformer.
type decoder struct {
	c      Config
	names  *Names
	ranks  []Rank
	stages []*stage

	mu       sync.Mutex
	programs map[programKey]*Program
}

type programKey struct {
	rank    int
	variant Variant
}

func (d *decoder) Names() *Names { return d.names }
func (d *decoder) Ranks() []Rank { return d.ranks }
func (d *decoder) Tokens() int64 { return int64(d.c.GlobalBatch) * int64(d.c.Seq) }

// Name tells everything that shapes the programs, for example
// "llama2-7b/s4096/b1g8/tp2pp1dp4/minimal/fused/full-block8".
func (d *decoder) Name() string {
	c := d.c
	var s strings.Builder
	fmt.Fprintf(&s, "%s/s%d/b%dg%d/tp%dpp%ddp%d", c.Model.Name, c.Seq, c.MicroBatch, c.GlobalBatch, c.TP, c.PP, c.DP)
	if c.SequenceParallel && c.TP > 1 {
		s.WriteString("sp")
	}
	if c.ZeRO == 3 {
		s.WriteString("/zero3")
	}
	fmt.Fprintf(&s, "/%s/%s", c.SaveRule, c.Attention)
	if r := c.Recompute; r.Kind != NoRecompute {
		fmt.Fprintf(&s, "/%s", r.Kind)
		if r.N > 0 {
			fmt.Fprintf(&s, "%d", r.N)
		}
	}
	if c.Unfold {
		s.WriteString("/unfolded")
	}
	return s.String()
}

func (d *decoder) Program(r, i int) (*Program, error) {
	if r < 0 || r >= len(d.ranks) || i < 0 {
		return nil, fmt.Errorf("rank %d, iteration %d: ranks are 0..%d, iterations from 0", r, i, len(d.ranks)-1)
	}
	var v Variant
	for _, p := range d.c.Processes {
		p.Apply(i, &v)
	}
	key := programKey{r, v}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.programs[key]; ok {
		return p, nil
	}
	p, err := generate(d, r, v)
	if err != nil {
		return nil, err
	}
	d.programs[key] = p
	return p, nil
}

// stage is what a pipeline stage keeps resident, and where.
type stage struct {
	first, last bool
	residents   []Storage
	units       []unit  // embedding (first stage), layers, head (last stage)
	states      []state // what the optimizer steps through, one by one
	grads       []StorageID

	params   StorageID // the flat buffer of 16-bit parameters; none without data parallelism
	gathered StorageID // sequence parallelism: where all-gathers put the full sequence
	mask     StorageID
	rotary   StorageID
}

// unit is a part of the model that ZeRO-3 gathers and reduces as a whole: the
// embedding, one layer, or the head.
type unit struct {
	layer    int // 1-based; 0 for the embedding, layers+1 for the head
	params   [numParams]param
	elements int64     // of all its parameters
	shard    StorageID // ZeRO-3: this rank's share of the parameters …
	grad     StorageID // … and of the fp32 gradients
}

// param is one parameter tensor: where its 16-bit values and its gradient are.
// A tied head is the embedding's param.
type param struct {
	unit     int // the unit that owns it
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
	value, grad              Arg
	elements                 int64 // of the share
}

// none stands for a storage that a configuration does not have.
const none StorageID = -1

// attentionMask is the compressed causal mask that npu_fusion_attention takes:
// 2048 x 2048 booleans (torch_npu documentation, sparse_mode 2 to 4).
const attentionMask = 2048

// newStage lays out stage s. Residents come in the order in which a framework
// allocates them: parameters, gradients, optimizer, buffers.
func newStage(c Config, s int) *stage {
	m := c.Model
	st := &stage{first: s == 0, last: s == c.PP-1, params: none, gathered: none, rotary: none}
	lo, hi := s*m.Layers/c.PP+1, (s+1)*m.Layers/c.PP
	if st.first {
		lo = 0
	}
	if st.last {
		hi = m.Layers + 1
	}
	add := func(x Storage) StorageID {
		st.residents = append(st.residents, x)
		return StorageID(len(st.residents) - 1)
	}
	var tensors []*param // in order, for the layout of buffers and states
	var names []NameID
	total := int64(0)
	st.units = make([]unit, hi-lo+1)
	for i := range st.units {
		u := &st.units[i]
		u.layer = lo + i
		for _, t := range m.tensors(u.layer, c.TP) {
			if t.name == pHead && m.Tied && st.first {
				u.params[pHead] = st.units[0].params[pEmbedding] // completed below
				continue
			}
			p := &u.params[t.name]
			*p = param{unit: i, rows: t.rows, cols: t.cols, elements: t.elements()}
			tensors, names = append(tensors, p), append(names, t.name)
			u.elements += p.elements
			p.view = ViewID(len(tensors))
		}
		total += u.elements
	}
	share := func(elements int64) int64 { return (elements + int64(c.DP) - 1) / int64(c.DP) }
	states := func(layer int32, elements int64, shape [4]int32) state {
		x := Storage{Bytes: sim.Bytes(4 * elements), Class: Optimizer, DType: FP32, Shape: shape, Layer: layer}
		one := func(label NameID) StorageID { x.Label = label; return add(x) }
		return state{master: one(lMaster), expAvg: one(lExpAvg), expAvgSq: one(lExpAvgSq), elements: elements}
	}
	if c.ZeRO == 3 {
		for i := range st.units {
			u := &st.units[i]
			n := share(u.elements)
			u.shard = add(Storage{Bytes: sim.Bytes(2 * n), Class: Parameter, DType: BF16, Shape: flat(n), Layer: int32(u.layer), Flat: true, Label: lParams})
		}
		for i := range st.units {
			u := &st.units[i]
			n := share(u.elements)
			u.grad = add(Storage{Bytes: sim.Bytes(4 * n), Class: Gradient, DType: FP32, Shape: flat(n), Layer: int32(u.layer), Flat: true, Label: lGrads})
			st.grads = append(st.grads, u.grad)
		}
		for i := range st.units {
			u := &st.units[i]
			x := states(int32(u.layer), share(u.elements), flat(share(u.elements)))
			x.value, x.grad = In(u.shard), In(u.grad)
			st.states = append(st.states, x)
		}
	} else {
		if c.DP > 1 {
			st.params = add(Storage{Bytes: sim.Bytes(2 * total), Class: Parameter, DType: BF16, Shape: flat(total), Flat: true, Label: lParams})
		}
		for i, p := range tensors {
			if c.DP > 1 {
				p.value = Arg{Storage: st.params, View: p.view}
			} else {
				p.value = In(add(Storage{Bytes: sim.Bytes(2 * p.elements), Class: Parameter, DType: BF16, Shape: p.shape(),
					Layer: int32(st.units[p.unit].layer), Label: names[i]}))
			}
		}
		grads := add(Storage{Bytes: sim.Bytes(4 * total), Class: Gradient, DType: FP32, Shape: flat(total), Flat: true, Label: lGrads})
		st.grads = []StorageID{grads}
		for _, p := range tensors {
			p.grad = Arg{Storage: grads, View: p.view}
			shape := p.shape()
			if c.DP > 1 {
				shape = flat(share(p.elements))
			}
			x := states(int32(st.units[p.unit].layer), share(p.elements), shape)
			x.value, x.grad = p.value, p.grad
			st.states = append(st.states, x)
		}
	}
	if head := &st.units[len(st.units)-1].params[pHead]; head.cols > 0 && head.unit == 0 && st.first {
		*head = st.units[0].params[pEmbedding]
	}
	if c.SequenceParallel && c.TP > 1 {
		tokens := c.Seq * c.MicroBatch
		st.gathered = add(Storage{Bytes: 2 * sim.Bytes(tokens) * sim.Bytes(m.Hidden), Class: CommBuffer, DType: BF16,
			Shape: [4]int32{int32(tokens), int32(m.Hidden)}, Label: lGathered})
	}
	st.mask = add(Storage{Bytes: attentionMask * attentionMask, Class: Input, DType: UINT8, Shape: [4]int32{attentionMask, attentionMask}, Label: lMask})
	if m.Style == Llama {
		st.rotary = add(Storage{Bytes: 4 * 2 * sim.Bytes(c.Seq) * sim.Bytes(m.HeadDim), Class: Input, DType: FP32,
			Shape: [4]int32{2, int32(c.Seq), int32(m.HeadDim)}, Label: lRotary})
	}
	return st
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
