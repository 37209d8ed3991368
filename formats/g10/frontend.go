package g10

import (
	"fmt"
	"slices"

	"smartswap/sim"
)

// BERTGlobals is the border of the published BERT text: tensors whose id in the
// text is below it are weights and other globals (platformxlab/G10, front end
// for transformers). The text itself does not say.
const BERTGlobals = 210

// MaxBatch is the largest batch size that Net.Graph accepts.
const MaxBatch = 1 << 20

// elemBytes: every tensor of the origin holds 32-bit floats, indices too.
const elemBytes = 4

// operator says how many inputs an operator of the text has, and the name that
// its kernels carry; 0 inputs if the front end does not know it.
func operator(op string) (inputs int, kernel string) {
	switch op {
	case "Add", "Subtract", "Multiply", "Divide", "Power", "BatchMatMul", "GatherV2":
		return 2, op
	case "Dot":
		return 2, "Linear"
	case "Relu":
		return 1, "ReLU"
	case "Sum", "Sqrt", "Tanh", "SoftmaxBasic":
		return 1, op
	}
	return 0, ""
}

// operatorNames is what an error about an unknown operator lists.
const operatorNames = "Add, Subtract, Multiply, Divide, Power, BatchMatMul, GatherV2, Dot, Relu, Sum, Sqrt, Tanh, SoftmaxBasic"

// none marks a gradient that is not computed.
const none = -1

// layer is a record with its tensors in the graph.
type layer struct {
	rec  *Record
	name string  // kernel name
	in   []int32 // operands, as often as the record names them
	out  int32
	grad []int32 // gradient of each operand, or none
}

// frontend turns a network into a graph.
type frontend struct {
	net     *Net
	batch   int
	globals int

	graph    Graph
	layers   []layer
	tensor   map[int]int32     // id in the text -> tensor
	produced map[int]bool      // ids that some layer has written
	shape    map[int][]int     // id in the text -> dimensions at its first use
	grads    map[int32][]int32 // tensor -> its gradients, one per reader
}

// Graph makes the training iteration for a batch size as the origin's front end
// does. globals is the border below which ids of the text are global tensors
// (BERTGlobals).
//
// Tensors, in this order of numbers: for each layer its output, the weights and
// network inputs that it is the first to use, then a gradient for each operand
// that has one: results of other layers and weights, but not network inputs and
// not the exponent of a power. A tensor has the size that its first reader sees
// (the text swaps the operands of some matrix products, and the origin then
// swaps their sizes too). Last comes the gradient of the loss.
//
// Kernels: the layers in order, makeLoss, and the layers backwards; each of
// those first adds up the gradients of its output if several readers made one,
// then computes the gradients of its operands, then applies those of its
// weights.
//
// It is linear in the size of the network.
func (n *Net) Graph(batch, globals int) (*Graph, error) {
	if batch < 1 || batch > MaxBatch {
		return nil, fmt.Errorf("%s: batch size %d; allowed: 1 to %d", n.file, batch, MaxBatch)
	}
	f := &frontend{
		net: n, batch: batch, globals: globals,
		tensor:   make(map[int]int32),
		produced: make(map[int]bool),
		shape:    make(map[int][]int),
		grads:    make(map[int32][]int32),
	}
	if err := f.readLayers(); err != nil {
		return nil, err
	}
	for i := range f.layers {
		f.forward(&f.layers[i])
	}
	if err := f.loss(); err != nil {
		return nil, err
	}
	for i := len(f.layers) - 1; i >= 0; i-- {
		if err := f.backward(&f.layers[i]); err != nil {
			return nil, err
		}
	}
	if err := f.graph.setLives(); err != nil {
		return nil, fmt.Errorf("%s: %w", n.file, err)
	}
	return &f.graph, nil
}

// readLayers makes layers of the records and numbers their tensors.
func (f *frontend) readLayers() error {
	recs := f.net.Records
	for i := range recs {
		for _, in := range recs[i].In {
			if f.shape[in.ID] == nil {
				f.shape[in.ID] = in.Dims
			}
		}
	}
	for i := 0; i < len(recs); i++ {
		rec := &recs[i]
		out := rec.Out
		if rec.Op == "SoftmaxBasic" {
			// The text spells a softmax out in four records; the front end
			// takes the first and the output of the last.
			for j := i; j < i+4; j++ {
				if j == len(recs) || recs[j].Op != rec.Op {
					return f.errorf(rec, "a softmax is four SoftmaxBasic records, but %d stand here", j-i)
				}
			}
			i += 3
			out = recs[i].Out
		}
		if err := f.addLayer(rec, out); err != nil {
			return err
		}
	}
	return nil
}

// addLayer makes the layer of a record whose output has the id out.
func (f *frontend) addLayer(rec *Record, out int) error {
	inputs, name := operator(rec.Op)
	switch {
	case inputs == 0:
		return f.errorf(rec, "unknown operator %q; allowed: %s", rec.Op, operatorNames)
	case inputs != len(rec.In):
		return f.errorf(rec, "%s has %d inputs; allowed: %d", rec.Op, len(rec.In), inputs)
	case out < f.globals:
		return f.errorf(rec, "output id %d is that of a global; allowed: %d and above", out, f.globals)
	case f.isKnown(out):
		return f.errorf(rec, "output id %d is used by an earlier record", out)
	}
	l := layer{rec: rec, name: name}
	dims := f.shape[out]
	if dims == nil { // nobody reads it: the network's result
		dims = rec.In[0].Dims
	}
	var err error
	if l.out, err = f.newTensor(rec, dims, false); err != nil {
		return err
	}
	f.tensor[out] = l.out
	for _, in := range rec.In {
		t, ok := f.tensor[in.ID]
		if !ok {
			if t, err = f.newTensor(rec, in.Dims, in.ID < f.globals); err != nil {
				return err
			}
			f.tensor[in.ID] = t
		}
		l.in = append(l.in, t)
	}
	for i, in := range rec.In {
		g := int32(none)
		constant := in.ID >= f.globals && !f.produced[in.ID]
		if exponent := rec.Op == "Power" && i == 1; !constant && !exponent {
			src := f.graph.Tensors[l.in[i]]
			g = int32(len(f.graph.Tensors))
			f.graph.Tensors = append(f.graph.Tensors, Tensor{Bytes: src.Bytes, Shape: src.Shape})
		}
		l.grad = append(l.grad, g)
	}
	if name == "Linear" && f.isGlobal(l.in[0]) == f.isGlobal(l.in[1]) {
		return f.errorf(rec, "Dot of %d and %d; allowed: one weight (an id below %d) and one other", rec.In[0].ID, rec.In[1].ID, f.globals)
	}
	f.produced[out] = true
	f.layers = append(f.layers, l)
	return nil
}

// isKnown says whether an id of the text has a tensor already.
func (f *frontend) isKnown(id int) bool { _, ok := f.tensor[id]; return ok }

func (f *frontend) isGlobal(t int32) bool { return f.graph.Tensors[t].Global }

// newTensor adds a tensor of the given dimensions.
func (f *frontend) newTensor(rec *Record, dims []int, global bool) (int32, error) {
	t := Tensor{Global: global}
	size := int64(elemBytes)
	for i, d := range dims {
		if d == batchDim {
			d = f.batch
		}
		// Both factors are at most 2^44 and 2^30: look before multiplying.
		if int64(d) > int64(maxBytes)/size {
			return 0, f.errorf(rec, "a tensor of dimensions %v is too large; allowed: up to 2^44 bytes", dims)
		}
		size *= int64(d)
		t.Shape[i] = int32(d)
	}
	t.Bytes = (sim.Bytes(size) + PageBytes - 1) / PageBytes * PageBytes
	f.graph.Tensors = append(f.graph.Tensors, t)
	return int32(len(f.graph.Tensors) - 1), nil
}

// forward adds the forward kernel of a layer and notes who reads what.
func (f *frontend) forward(l *layer) {
	f.kernel(l.name+"_Forward", l.in, l.out)
	for i, t := range l.in {
		if g := l.grad[i]; g != none && !f.isGlobal(t) {
			f.grads[t] = append(f.grads[t], g)
		}
	}
}

// loss adds makeLoss, which turns the last output into its gradient.
func (f *frontend) loss() error {
	last := f.layers[len(f.layers)-1]
	if len(f.grads[last.out]) > 0 {
		return f.errorf(last.rec, "the last output is also an input; the last record must be the network's result")
	}
	g := int32(len(f.graph.Tensors))
	t := f.graph.Tensors[last.out]
	f.graph.Tensors = append(f.graph.Tensors, Tensor{Bytes: t.Bytes, Shape: t.Shape})
	f.kernel("makeLoss", []int32{last.out}, g)
	f.grads[last.out] = []int32{g}
	return nil
}

// backward adds the kernels that turn the gradient of a layer's output into
// those of its operands, and apply those of its weights.
func (f *frontend) backward(l *layer) error {
	grads := f.grads[l.out]
	if len(grads) == 0 {
		return f.errorf(l.rec, "no later record reads the output of this %s", l.rec.Op)
	}
	g := grads[0]
	if len(grads) > 1 {
		f.kernel("Add_MultiGredient", grads, g)
	}
	name := l.name + "_Backward"
	switch l.name {
	case "Add", "Subtract":
		f.kernel(name, []int32{g}, l.grad...)
	case "GatherV2": // reads what it gathered by or from, whichever is no weight
		in := []int32{g}
		for _, t := range l.in {
			if !f.isGlobal(t) {
				in = append(in, t)
			}
		}
		f.kernel(name, in, l.grad...)
	case "Multiply", "BatchMatMul": // the gradient of one operand needs the other
		f.kernel(name, []int32{l.in[1], g}, l.grad[0])
		f.kernel(name, []int32{l.in[0], g}, l.grad[1])
	case "Divide": // d(a/b) = da/b - (a/b) db/b
		f.kernel(name+"_A", []int32{l.in[1], g}, l.grad[0])
		f.kernel(name+"_B", []int32{l.in[1], l.out, g}, l.grad[1])
	case "Linear":
		w, x := 1, 0
		if f.isGlobal(l.in[0]) {
			w, x = 0, 1
		}
		f.kernel(name+"_Weight", []int32{l.in[x], g}, l.grad[w])
		f.kernel(name+"_Input", []int32{l.in[w], g}, l.grad[x])
		f.kernel("Linear_Apply_Grad_Weight", []int32{l.in[w], l.grad[w]}, l.in[w])
		return nil
	default: // Power, Sum, Sqrt, ReLU, Tanh, SoftmaxBasic: need their operands
		f.kernel(name, append([]int32{g}, l.in...), l.grad...)
	}
	for i, t := range l.in {
		if f.isGlobal(t) && l.grad[i] != none {
			f.kernel("Apply_Grad", []int32{t, l.grad[i]}, t)
		}
	}
	return nil
}

// kernel adds a kernel unless all its outputs are none.
func (f *frontend) kernel(typ string, in []int32, out ...int32) {
	k := Kernel{Type: typ, In: ascending(in), Out: ascending(out)}
	if len(k.Out) > 0 {
		f.graph.Kernels = append(f.graph.Kernels, k)
	}
}

// ascending copies args in order, without repetitions and without none.
func ascending(args []int32) []int32 {
	out := slices.DeleteFunc(slices.Clone(args), func(t int32) bool { return t == none })
	slices.Sort(out)
	return slices.Compact(out)
}

// errorf makes an error about a record.
func (f *frontend) errorf(rec *Record, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", f.net.file, rec.Line, fmt.Sprintf(format, args...))
}
