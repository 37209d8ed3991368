package profilers

import (
	"fmt"

	"smartswap/sim"
)

// Phase is the kind of a stage.
type Phase uint8

// Phases, numbered as in the shipped code.
const (
	Init     Phase = 1
	Forward  Phase = 2
	Backward Phase = 3
	Optim    Phase = 4
)

// Stage is a place in the time grid of an iteration: phase, micro-batch,
// logical layer, model chunk. Init and Optim always have micro-batch 0 and
// layer 0; forward and backward count both from 1. A layer is logical: a run
// of consecutive operators, not necessarily a layer of the model.
type Stage struct {
	Phase      Phase
	MicroBatch int32
	Layer      int32
	Model      int32
}

// String is the short notation: F2.7 is forward, micro-batch 2, layer 7.
func (s Stage) String() string {
	c := "?IFBO"[min(int(s.Phase), 4)]
	if s.Model != 0 {
		return fmt.Sprintf("%c%d.%d/%d", c, s.MicroBatch, s.Layer, s.Model)
	}
	return fmt.Sprintf("%c%d.%d", c, s.MicroBatch, s.Layer)
}

// Tensor identifies one allocation instance of a storage as a profiler sees
// it. An id is never used for two instances; the same storage gets a new id
// when its content moves to a new block (after a swap).
type Tensor int64

// TensorType is what the runtime can tell about a tensor without guessing.
type TensorType uint8

// Tensor types.
const (
	Others       TensorType = iota
	Model                   // parameters of the model
	OptimState              // fp32 master parameters and moments
	SharedMemory            // the framework's flat parameter and gradient buffers: never swapped
	NumTensorTypes
)

// TensorRec is one argument of a recorded operator. Orig is the id that the
// operator saw; Tensor is the newest id of the same storage, rewritten when
// the iteration ends if passive swaps moved it.
type TensorRec struct {
	Tensor, Orig Tensor
	Bytes        sim.Bytes
	Shape        [4]int32
	DType        uint8
	Type         TensorType
}

// OpRec is one recorded operator. Ids count up over the whole run. Its
// arguments are Observation.Tensors[Lo:Hi], inputs first, duplicates kept. The
// memory counters are the allocator's at host dispatch, after the outputs
// exist.
type OpRec struct {
	ID     int64
	Name   int32 // index into Observation.Names
	Stage  Stage
	Lo, Hi int32

	Allocated, Reserved, Active sim.Bytes

	// Begin and Span are the device start and duration: only profilers with
	// OpTimes record them.
	Begin, Span sim.Time
}

// SwapRec is one transfer that was not planned, or planned and executed.
type SwapRec struct {
	OpID     int64 // last recorded operator
	Out      bool  // device to host
	Bytes    sim.Bytes
	OOM      bool // forced by a failed allocation
	Src, Dst Tensor
}

// Pass is a run of operators between two phase borders: one forward or backward
// pass of a micro-batch through a model chunk, or what lies outside of them.
type Pass struct {
	Stage Stage  // without its layer
	Lo    int32  // position of its first operator; it ends where the next pass begins
	Hash  uint64 // rolling hash of its operator names
}

// Border is a stage border as the device passed it: an event recorded before
// the operator at position Op. At counts from the first border of the
// iteration.
type Border struct {
	Op int32
	At sim.Time
}

// Observation is what a profiler recorded in one iteration. Fields that it
// does not record are empty. It belongs to whoever receives it; the recorder
// never touches it again.
type Observation struct {
	Iteration int
	Fields    Fields
	Duration  sim.Time // host clock, end of iteration to end of iteration
	OOM       bool     // a failed allocation forced a swap
	Ops       []OpRec
	Tensors   []TensorRec
	Swaps     []SwapRec
	Sequence  []int32 // operator name ids in order: the lightweight profile
	Passes    []Pass  // where phases begin in Sequence; module hooks tell, at no cost of their own
	// Borders are those of the latest iteration that the device has finished,
	// which is mostly the one before: reading an event does not wait for it.
	// The last border is the end, so its Op is that iteration's length. Empty
	// when no iteration is complete.
	Borders []Border
	Names   []string // by name id, first-seen order over the run
	Layers  int      // the model's layer count as the user gave it; 0 = not given
}

// Args are the arguments of op.
func (o *Observation) Args(op *OpRec) []TensorRec { return o.Tensors[op.Lo:op.Hi] }

// Fingerprint identifies the operator sequence: equal sequences with equal
// phase borders have equal fingerprints, others almost surely different ones.
// 0 when operator names are not recorded.
func (o *Observation) Fingerprint() uint64 {
	if !o.Fields.Has(OpNames) {
		return 0
	}
	h := uint64(hashStart)
	for i := range o.Passes {
		p := &o.Passes[i]
		for _, v := range [...]uint64{uint64(p.Stage.Phase), uint64(p.Stage.MicroBatch), uint64(p.Stage.Model), uint64(p.Lo), p.Hash} {
			h = roll(h, v)
		}
	}
	return roll(h, uint64(len(o.Sequence)))
}

// PassLength is the number of operators in pass i.
func (o *Observation) PassLength(i int) int32 {
	if i+1 < len(o.Passes) {
		return o.Passes[i+1].Lo - o.Passes[i].Lo
	}
	return int32(len(o.Sequence)) - o.Passes[i].Lo
}

// hashStart and roll are FNV-1a on 64-bit words.
const hashStart = 14695981039346656037

func roll(h, v uint64) uint64 { return (h ^ v) * 1099511628211 }
