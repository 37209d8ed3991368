package workloads

import (
	"smartswap/hw"
	"smartswap/sim"
)

// NameID indexes Program.Names: the framework operator's name, such as
// "aten::matmul". Names are shared by all programs of one workload, so an id
// means the same operator in every iteration.
type NameID int32

// StorageID identifies a storage inside one Program. Ids below
// Workload.Residents are the residents, the same in every program of a rank;
// the others live and die within the program that names them.
type StorageID int32

// ViewID distinguishes views of one storage; 0 is the storage seen whole.
type ViewID int32

// KernelID indexes Program.Kernels.
type KernelID int32

// Access says how an operator touches an argument.
//
// Modes are about the content of the storage, the whole of it, whatever view the
// argument is. A Write takes nothing of the old content over: it may be fetched
// from nowhere, and an operator that only reads and writes may be run again. A
// storage may be born in parts: its first Writes, all of one operator, may name
// views; what they leave out is undefined, and the parts that follow are Updates.
// Writing a part of a content that is there is an Update, as the rest has to be
// there afterwards: wherever the storage is kept, it is brought first, and it
// cannot be made again by running operators again. Validate refuses a Write of a
// view of such a storage. A source that rewrites mutations as copies, as DTR does,
// says so with a new storage, read from the old one, for each.
type Access uint8

// Access modes.
const (
	Read   Access = iota // content must be current
	Write                // content is replaced; a storage without memory is allocated here
	Update               // read, then changed in place, whole or in part: both of the above
)

// Lane is where an operator's device work runs.
type Lane uint8

// Lanes of a rank. Copy lanes exist too, but belong to the executor: programs
// do not swap.
const (
	Compute  Lane = iota // the compute stream
	Comm                 // the stream of collectives
	CommPeer             // the stream of point-to-point transfers between pipeline stages
	NumLanes
)

// Arg is one tensor argument. Inputs come first in argument order, then
// outputs; an operator may name a storage twice.
type Arg struct {
	Storage StorageID
	View    ViewID
	Mode    Access
}

// Class is what a storage is for: it decides what tables count it under and
// what a static planner may assume. Observed-grade policies see only what
// their profiler can tell (see profilers.TensorType).
type Class uint8

// Storage classes.
const (
	Activation Class = iota // saved or temporary results of forward and backward
	Parameter               // 16-bit parameters the model computes with
	Gradient                // gradient buffers that live across micro-batches
	Optimizer               // fp32 master parameters and moments
	Logits                  // output head results and their fp32 copy
	CommBuffer              // communication buffers
	Input                   // batches of token ids, masks, position tables
	NumClasses
)

// DType is an element type, for the features that policies see.
type DType uint8

// Element types.
const (
	BF16 DType = iota
	FP16
	FP32
	INT64
	INT32
	UINT8
)

// Size is the size of one element.
func (d DType) Size() sim.Bytes {
	switch d {
	case BF16, FP16:
		return 2
	case FP32, INT32:
		return 4
	case INT64:
		return 8
	default:
		return 1
	}
}

// Storage describes one storage of a program.
type Storage struct {
	Bytes sim.Bytes // requested size; a tensor of 0 bytes takes memory where the allocator rounds
	Class Class
	DType DType
	Shape [4]int32 // leading dimensions of the tensor that created it; 0 = absent
	Layer int32    // model layer it belongs to, 1-based; 0 = none
	Flat  bool     // a framework's flat parameter or gradient buffer, shared by many tensors: never swapped
	Label NameID   // for reports: what it is, such as "layer.ffn.gate_up"
}

// Kernel is distinct device work. Equal kernels of a program share one entry.
type Kernel struct {
	hw.Work
	// Group, for collectives and transfers, lists the job's ranks (indices of
	// Workload.Ranks) that meet here; empty or one rank = no rendezvous.
	Group []int32
	// Tag pairs the members' n-th use of this group; kernels of one group
	// and tag meet in program order.
	Tag int32
}

// InstrKind is the kind of an instruction.
type InstrKind uint8

// Instructions, in the order in which a framework's Python thread meets them.
const (
	// Op dispatches an operator: arguments are checked, outputs allocated,
	// the kernel enqueued on Lane.
	Op InstrKind = iota
	// Ref adds a reference to storage A (another view or owner is born).
	Ref
	// Drop gives one reference of storage A back; the last one frees it, in
	// host order.
	Drop
	// Save tells that autograd keeps storage A (a Ref precedes it: Save is
	// only the event). Unpack tells that backward asks for it again.
	Save
	Unpack
	// Mark tells a phase border; see Mark* and fields A, B.
	Mark
	// Sync makes the host wait until Lane has finished all that was
	// enqueued (loss.item(), gradient-norm check).
	Sync
	// Record records event A on Lane; Wait makes Lane wait for event A.
	Record
	Wait
)

// MarkKind says which border a Mark instruction is.
type MarkKind uint8

// Marks. Micro-batch numbers start at 1, model chunks at 0.
const (
	MarkIterationBegin MarkKind = iota
	MarkForwardBegin            // A = micro-batch, B = chunk
	MarkForwardEnd
	MarkBackwardBegin // A = order of backward passes, from 1
	MarkBackwardEnd
	MarkOptimizerBegin
	MarkOptimizerEnd
	MarkValidationBegin // forward passes without backward follow, A = micro-batch
	MarkValidationEnd
	MarkIterationEnd
)

// Instr is one instruction. 48 bytes; a Program holds them in a flat slice.
type Instr struct {
	Kind    InstrKind
	Mark    MarkKind // Mark only
	Lane    Lane     // Op, Sync, Record, Wait
	Flags   Flags    // Op
	Name    NameID   // Op
	Kernel  KernelID // Op; -1 = no device work (a host-only operator)
	ArgLo   int32    // Op: arguments are Program.Args[ArgLo:ArgHi]
	ArgHi   int32
	A, B    int32     // storage, event, or mark payload
	Host    sim.Time  // Op: host time of this operator; 0 = the node's dispatch cost
	Scratch sim.Bytes // Op: workspace, allocated before and freed after the dispatch
}

// Flags of an operator.
type Flags uint8

// Operator flags.
const (
	// Replayable: running the operator again gives the same outputs, so a
	// policy may rematerialise them.
	Replayable Flags = 1 << iota
	// Recomputed: the program runs it a second time for activation
	// recomputation; counted apart in results.
	Recomputed
	// Views: arguments that are read as views that no operator before has named
	// are views that this operator makes. Without it a view is there as soon as
	// its storage is.
	Views
)

// Program is what one rank dispatches in one iteration. It is immutable after
// Builder.Program returned it and may be shared between iterations.
//
// It is well formed (see Validate): every read follows a write or touches a
// resident, references never go negative, every storage that is not a resident
// is dropped to zero before the end, marks nest.
//
// A storage that is not a resident is born with one reference at its first
// Write, Ref adds one and Drop takes one; at zero it is freed, in host order,
// and never comes back. A resident holds one reference from before the program
// to after it, so its count is one again at the end. A program drops a storage
// that another lane than Compute has used only after Compute waited for that
// use: memory may then be reused in the order of the compute stream
// (workloadstest.Races checks it).
type Program struct {
	Instrs   []Instr
	Args     []Arg
	Storages []Storage // residents first
	Kernels  []Kernel
	Names    *Names
	// Residents is the number of residents: Storages[:Residents].
	Residents int32
	Events    int32  // ids of Record and Wait are below this; each is recorded once
	Ops       int32  // number of Op instructions
	Kind      string // "train", "skip", "validate", …: what variation made it
}

// Names interns operator and storage names. It belongs to a workload; it is
// complete before a run starts and read-only from then on.
type Names struct {
	list  []string
	index map[string]NameID
}

// NewNames returns an empty table.
func NewNames() *Names { return &Names{index: make(map[string]NameID)} }

// ID interns s.
func (n *Names) ID(s string) NameID {
	if id, ok := n.index[s]; ok {
		return id
	}
	id := NameID(len(n.list))
	n.list = append(n.list, s)
	n.index[s] = id
	return id
}

// String is the name of id; "" if there is none.
func (n *Names) String(id NameID) string {
	if id < 0 || int(id) >= len(n.list) {
		return ""
	}
	return n.list[id]
}

// Len is the number of names.
func (n *Names) Len() int { return len(n.list) }
