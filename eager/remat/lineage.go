// Package remat keeps the lineage of a rank's storages: which operator made the
// content of each, and of each view of it, so that content that was discarded
// can be made again by running operators again. It decides what may be
// discarded; it runs nothing.
//
// # Content, not storages
//
// An operator reads contents. When a storage is written again, or changed in
// place, the content before is gone for good, and an operator that read it
// cannot run again: it is lost. What such an operator made is kept from then on
// if it is there. If it is not there, and the program still has a reference, it
// must be made before the write (Threatened). If it is not there and nobody has
// a reference, operators that read it are lost in turn. So, at any time, what an
// operator that is not lost reads is there or can be made.
//
// # What can be made again
//
// The results of an operator that is replayable (workloads.Replayable) and runs on
// the compute stream, or is a collective that may run again, and that writes storages that it does not read: a Write
// replaces the whole content (workloads.Access). Everything else is kept:
// residents, what is changed in place, in whole or in part, what draws random
// numbers. DTR (Kirisame et al., ICLR 2021, section 4) treats mutation in
// the same spirit, as the copy of a tensor followed by a change that cannot be
// replayed.
//
// # Views
//
// An operator may make views of storages it reads (workloads.Views). They go
// with the storage's memory. When the storage is back, a view of it is not,
// before its operator has run again; it takes time but no memory. Views that no
// operator makes, or one that cannot run again, are there when the storage is.
//
// Storages without references stay in the lineage until the iteration ends.
package remat

import (
	"cmp"
	"slices"

	"smartswap/eager/swap"
	"smartswap/policies"
	"smartswap/workloads"
)

// Op is an operator that has been dispatched, or is about to be.
type Op struct {
	ID    int64 // number in the rank's run
	PC    int   // its instruction
	Args  []*swap.Storage
	Views []workloads.ViewID // of Args
	Roles []policies.Role    // of Args

	lost bool
	mark uint32
}

// node is what is known about a storage.
type node struct {
	storage  *swap.Storage
	maker    *Op    // of the present content; nil: it was there before the lineage, or was changed since
	resident bool   // never discarded
	kept     bool   // nothing can make the content again
	readers  []*Op  // of the present content
	views    []view // by id
}

// view is a view that an operator has made.
type view struct {
	id    workloads.ViewID
	maker *Op
	there bool
}

// Lineage of one rank. The zero Lineage is ready for use.
type Lineage struct {
	nodes []node // by Storage.Node - 1
	marks uint32
	work  []*Op
}

// Reset forgets every storage but the first residents ones that are given, of
// which it forgets the readers. Forgotten storages must not be used with the
// lineage any more.
func (l *Lineage) Reset(residents []*swap.Storage) {
	clear(l.nodes)
	l.nodes = l.nodes[:0]
	for _, s := range residents {
		s.Node = 0
		n := l.node(s)
		n.resident, n.kept = true, true
	}
}

// node is s's, made if need be. It is valid until the next one is made.
func (l *Lineage) node(s *swap.Storage) *node {
	if s.Node == 0 {
		l.nodes = append(l.nodes, node{storage: s})
		s.Node = int32(len(l.nodes))
	}
	return &l.nodes[s.Node-1]
}

// Each calls f for every storage that is known.
func (l *Lineage) Each(f func(*swap.Storage)) {
	for i := range l.nodes {
		f(l.nodes[i].storage)
	}
}

// there tells whether the content of s is on the device or on the host.
func there(s *swap.Storage) bool { return s.OnDevice() || s.Current() != nil }

// Absent tells that a storage is known and its content is not there.
func (l *Lineage) Absent(s *swap.Storage) bool { return s.Node != 0 && !there(s) }

// New describes the operator at an instruction: what each argument is to it. An
// operator that makes views is the first to name them. collective tells of one
// that may run again.
func (l *Lineage) New(id int64, pc int, in *workloads.Instr, args []workloads.Arg, storages []*swap.Storage, collective bool) *Op {
	op := &Op{
		ID: id, PC: pc, Args: append([]*swap.Storage(nil), storages...),
		Views: make([]workloads.ViewID, len(args)), Roles: make([]policies.Role, len(args)),
	}
	for i, a := range args {
		op.Views[i] = a.View
		switch {
		case a.Mode == workloads.Write:
			op.Roles[i] = policies.Output
		case a.Mode == workloads.Update:
			op.Roles[i] = policies.Changed
		case in.Flags&workloads.Views != 0 && a.View != 0 && l.view(storages[i], a.View) == nil:
			op.Roles[i] = policies.View
		}
	}
	op.lost = !(collective || replayable(in)) || !pure(args)
	return op
}

// Any tells whether an operator of p, other than a collective, makes something
// that can be made again. Without one no storage to which the program has a
// reference may be discarded.
func Any(p *workloads.Program) bool {
	return slices.ContainsFunc(p.Instrs, func(in workloads.Instr) bool {
		if in.Kind != workloads.Op || !replayable(&in) {
			return false
		}
		args := p.Args[in.ArgLo:in.ArgHi]
		return pure(args) && slices.ContainsFunc(args, func(a workloads.Arg) bool { return a.Mode == workloads.Write })
	})
}

// replayable tells of an operator that runs on the compute stream and does the
// same each time.
func replayable(in *workloads.Instr) bool {
	return in.Flags&workloads.Replayable != 0 && in.Lane == workloads.Compute && in.Kernel >= 0
}

// pure tells whether an operator leaves what it reads as it was.
func pure(args []workloads.Arg) bool {
	for _, a := range args {
		switch a.Mode {
		case workloads.Update:
			return false
		case workloads.Write:
			if slices.ContainsFunc(args, func(b workloads.Arg) bool { return b.Mode != workloads.Write && b.Storage == a.Storage }) {
				return false
			}
		}
	}
	return true
}

// Replace tells that the program goes on with s, which is new, where it had old,
// to which it has no reference any more: if old was a resident, s is, and views of
// old that the program goes on with are of s, there when it is.
func (l *Lineage) Replace(old, s *swap.Storage) {
	l.node(s)
	o, n := l.node(old), l.node(s)
	for _, v := range o.views {
		n.views = append(n.views, view{id: v.id, there: true})
	}
	if o.resident {
		n.resident, n.kept = true, true
		o.resident, o.kept = false, l.MakerOf(old) == nil
	}
}

// view is what is known about a view of s that an operator has made.
func (l *Lineage) view(s *swap.Storage, id workloads.ViewID) *view {
	if s.Node == 0 || id == 0 {
		return nil
	}
	n := &l.nodes[s.Node-1]
	if i, found := n.find(id); found {
		return &n.views[i]
	}
	return nil
}

// find is where a view is, or belongs. Most are asked for soon after they are
// made, and numbers mostly rise.
func (n *node) find(id workloads.ViewID) (int, bool) {
	last := len(n.views) - 1
	if last < 0 || n.views[last].id < id {
		return last + 1, false
	}
	return slices.BinarySearchFunc(n.views, id, func(v view, id workloads.ViewID) int { return cmp.Compare(v.id, id) })
}

// Defined tells whether argument i of op could be read now: its storage's content
// is there, and its view.
func (l *Lineage) Defined(op *Op, i int) bool {
	if !there(op.Args[i]) {
		return false
	}
	v := l.view(op.Args[i], op.Views[i])
	return v == nil || v.there
}

// Maker is the operator that makes an argument of op that is not defined; nil if
// none can, which is a defect of whoever discarded it.
func (l *Lineage) Maker(op *Op, i int) *Op {
	var maker *Op
	if v := l.view(op.Args[i], op.Views[i]); v != nil && v.maker != nil {
		maker = v.maker
	} else if op.Args[i].Node != 0 {
		maker = l.nodes[op.Args[i].Node-1].maker
	}
	if maker == nil || maker.lost {
		return nil
	}
	return maker
}

// Makes tells whether argument i of op, which has run, still has the content that
// op gives it: it has not been written since.
func (l *Lineage) Makes(op *Op, i int) bool {
	s := op.Args[i]
	return s.Node != 0 && l.nodes[s.Node-1].maker == op
}

// Read tells whether operators that could run again read the present content of
// s.
func (l *Lineage) Read(s *swap.Storage) bool {
	if s.Node == 0 {
		return false
	}
	n := &l.nodes[s.Node-1]
	keep := n.readers[:0]
	for _, op := range n.readers {
		if !op.lost {
			keep = append(keep, op)
		}
	}
	n.readers = keep
	return len(keep) > 0
}

// Ran tells that op has been issued for the first time: it has read and made
// what it names.
func (l *Lineage) Ran(op *Op) {
	for i, s := range op.Args {
		switch op.Roles[i] {
		case policies.Changed:
			l.overwritten(s)
			n := l.node(s)
			n.maker, n.kept = nil, true
		case policies.Output:
			l.overwritten(s)
			n := l.node(s)
			n.maker, n.kept = op, n.resident || op.lost
		}
	}
	for i, s := range op.Args {
		switch op.Roles[i] {
		case policies.Input:
			if !op.lost {
				n := l.node(s)
				n.readers = append(n.readers, op)
			}
		case policies.View:
			n := l.node(s)
			at, known := n.find(op.Views[i])
			if known {
				break // the operator names it twice
			}
			v := view{op.Views[i], op, true}
			if op.lost {
				v.maker = nil
			}
			n.views = slices.Insert(n.views, at, v)
		}
	}
}

// RanAgain tells that op has been issued once more: all its results are there.
func (l *Lineage) RanAgain(op *Op) {
	for i, s := range op.Args {
		if op.Roles[i] == policies.View {
			l.view(s, op.Views[i]).there = true
		}
	}
}

// overwritten tells that the content of s is replaced.
func (l *Lineage) overwritten(s *swap.Storage) {
	n := l.node(s)
	readers := n.readers
	n.readers = nil
	l.lose(readers)
	// A view is of the memory, whatever is in it.
	n = l.node(s)
	for i := range n.views {
		n.views[i].maker = nil
		n.views[i].there = true
	}
}

// lose makes operators, and those that cannot run again without them, lost.
func (l *Lineage) lose(ops []*Op) {
	l.work = append(l.work[:0], ops...)
	for len(l.work) > 0 {
		op := l.work[len(l.work)-1]
		l.work = l.work[:len(l.work)-1]
		if op.lost {
			continue
		}
		op.lost = true
		for i, s := range op.Args {
			if s.Node == 0 {
				continue // an operator that has not run
			}
			n := &l.nodes[s.Node-1]
			switch {
			case op.Roles[i] == policies.Output && n.maker == op:
				n.kept = true
				if !there(s) {
					l.work = append(l.work, n.readers...)
					n.readers = nil
				}
			case op.Roles[i] == policies.View:
				if v := l.view(s, op.Views[i]); v != nil && v.maker == op {
					v.maker, v.there = nil, true
				}
			}
		}
	}
}

// Threatened lists storages with references whose content is not there and could
// not be made again after op has run: they must be made before it.
func (l *Lineage) Threatened(op *Op, list []*swap.Storage) []*swap.Storage {
	l.work = l.work[:0]
	for i, s := range op.Args {
		if (op.Roles[i] == policies.Changed || op.Roles[i] == policies.Output) && s.Node != 0 {
			l.work = append(l.work, l.nodes[s.Node-1].readers...)
		}
	}
	if len(l.work) == 0 {
		return list
	}
	return l.absent(list)
}

// absent follows the operators in l.work to storages with references that are
// not there and come, through others that are not there, from them.
func (l *Lineage) absent(list []*swap.Storage) []*swap.Storage {
	l.marks++
	for len(l.work) > 0 {
		op := l.work[len(l.work)-1]
		l.work = l.work[:len(l.work)-1]
		if op.lost || op.mark == l.marks {
			continue
		}
		op.mark = l.marks
		for i, s := range op.Args {
			if op.Roles[i] != policies.Output || s.Node == 0 || there(s) {
				continue
			}
			if n := &l.nodes[s.Node-1]; n.maker == op {
				if s.Refs > 0 {
					list = append(list, s)
				} else {
					l.work = append(l.work, n.readers...)
				}
			}
		}
	}
	return list
}

// MakerOf is the operator that makes the whole of s; nil if none can.
func (l *Lineage) MakerOf(s *swap.Storage) *Op {
	if s.Node == 0 {
		return nil
	}
	if m := l.nodes[s.Node-1].maker; m != nil && !m.lost {
		return m
	}
	return nil
}

// Replayable tells whether the content of s can be made again.
func (l *Lineage) Replayable(s *swap.Storage) bool {
	return s.Node != 0 && !l.nodes[s.Node-1].kept && l.MakerOf(s) != nil
}

// Discard tells that the memory of s is about to go, and whether it may. What can
// be made again may. What cannot, may if nobody has a reference and nothing that
// is needed would have to be made from it.
func (l *Lineage) Discard(s *swap.Storage) bool {
	if s.Node == 0 {
		return false
	}
	if !l.Replayable(s) {
		n := &l.nodes[s.Node-1]
		if s.Refs > 0 || n.resident {
			return false
		}
		l.work = append(l.work[:0], n.readers...)
		if len(l.absent(nil)) > 0 {
			return false
		}
		readers := n.readers
		n.readers = nil
		l.lose(readers)
	}
	n := &l.nodes[s.Node-1]
	for i := range n.views {
		if n.views[i].maker != nil {
			n.views[i].there = false
		}
	}
	return true
}
