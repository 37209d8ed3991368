package trace

import (
	"errors"

	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// script is a program before its storages have numbers: residents, which come
// first, are known only once the file is read. Adapters of formats that tell the
// use of tensors write one.
type script struct {
	cells []*cell // in order of creation
	steps []scriptStep
	saved int // tensors that autograd keeps; counted by write
}

// cell is a storage: memory with a number of references.
type cell struct {
	bytes    sim.Bytes
	constant bool // a resident
	refs     int
	views    int
	label    string
	forward  bool // made before the backward pass
	saved    bool // … and used in it
	unpacked bool
	id       workloads.StorageID
}

// cellView is a view of a storage: what names stand for.
type cellView struct {
	storage *cell
	view    int
}

// scriptArg is an argument of an operator.
type scriptArg struct {
	cellView
	mode workloads.Access
}

// scriptStep is an instruction.
type scriptStep struct {
	kind     workloads.InstrKind // Op, Ref, Drop; Mark = phase begins
	name     string
	lane     workloads.Lane
	work     hw.Work
	host     sim.Time
	hostOnly bool
	flags    workloads.Flags
	args     []scriptArg
	at       *cell
	last     bool               // Drop: the last reference
	phase    workloads.MarkKind // Mark
}

// write makes the program. It begins in the forward pass.
func (c *script) write(kind string) (*workloads.Program, *workloads.Names, error) {
	sum := sim.Bytes(0)
	for _, s := range c.cells {
		if sum += s.bytes; sum > maxTotalBytes {
			return nil, nil, errors.New("more than 2^60 bytes allocated in all")
		}
	}
	names := workloads.NewNames()
	var residents []workloads.Storage
	for _, s := range c.cells {
		if s.constant {
			s.id = workloads.StorageID(len(residents))
			residents = append(residents, workloads.Storage{Bytes: s.bytes, DType: workloads.FP32, Class: workloads.Parameter, Label: names.ID(s.label)})
		}
	}
	b := workloads.NewBuilder(names, residents)
	for _, s := range c.cells {
		if !s.constant {
			s.id = b.New(workloads.Storage{Bytes: s.bytes, DType: workloads.FP32, Label: names.ID(s.label)})
		}
	}
	b.Grow(len(c.steps))
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	open := workloads.MarkForwardBegin
	b.Mark(open, number(open), 0)
	for i := range c.steps {
		switch s := &c.steps[i]; s.kind {
		case workloads.Op:
			if open != workloads.MarkForwardBegin {
				unpack(b, s)
			}
			c.op(b, names, s)
		case workloads.Ref:
			b.Ref(s.at.id)
		case workloads.Drop:
			b.Drop(s.at.id)
			if s.last && s.at.saved {
				b.Drop(s.at.id)
			}
		case workloads.Mark:
			b.Mark(open+1, number(open), 0)
			open = s.phase
			b.Mark(open, number(open), 0)
		}
	}
	b.Mark(open+1, number(open), 0)
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	p, err := b.Program(kind)
	return p, names, err
}

// unpack tells of the saved tensors that an operator of the backward pass is the
// first to use.
func unpack(b *workloads.Builder, s *scriptStep) {
	for _, a := range s.args {
		if a.storage.saved && !a.storage.unpacked {
			a.storage.unpacked = true
			b.Unpack(a.storage.id)
		}
	}
}

// op writes an operator and tells of the tensors that autograd keeps.
func (c *script) op(b *workloads.Builder, names *workloads.Names, s *scriptStep) {
	args := make([]workloads.Arg, len(s.args))
	for k, a := range s.args {
		args[k] = workloads.Arg{Storage: a.storage.id, View: workloads.ViewID(a.view), Mode: a.mode}
	}
	b.Op(workloads.OpSpec{
		Name: names.ID(s.name), Lane: s.lane, Host: s.host, HostOnly: s.hostOnly, Flags: s.flags, Kernel: workloads.Kernel{Work: s.work},
	}, args...)
	for _, a := range s.args {
		if a.mode == workloads.Write && a.storage.saved && a.storage.refs != savedAlready {
			a.storage.refs = savedAlready
			c.saved++
			b.Save(a.storage.id)
		}
	}
}

// savedAlready marks a storage, in refs, that write has told of.
const savedAlready = -1 << 30
