package workloads

import (
	"errors"
	"fmt"
	"slices"

	"smartswap/hw"
)

// Validate checks that the program is well formed and returns the first breach
// with the index of its instruction. It takes time linear in the program's
// length. The rules:
//
//   - every id lies in its table, sizes and times are not negative, storages
//     are not negative either;
//   - the first instruction is MarkIterationBegin, the last MarkIterationEnd;
//     forward, backward, optimizer and validation phases lie between them, one
//     after the other, and each ends with the numbers it began with;
//   - a read, update, Ref, Drop, Save or Unpack meets a living storage: a
//     resident, or one that was written and not yet freed;
//   - a view is written (Write) only of a storage that no operator before has
//     written: parts of others are updated;
//   - a freed storage does not come back, and every storage that is not a
//     resident is written and freed again; residents end with the one
//     reference they began with;
//   - every event is recorded once, before anyone waits for it;
//   - a collective has at least two members, a transfer a group of two ranks
//     or none, and work of both kinds a size;
//   - what meets under one group and tag is on one lane: on two, a rank could
//     meet itself.
func (p *Program) Validate() error {
	if err := p.validateTables(); err != nil {
		return err
	}
	v := validator{p: p, refs: make([]int32, len(p.Storages)), recorded: make([]bool, p.Events)}
	for i := range v.refs {
		v.refs[i] = unborn
		if int32(i) < p.Residents {
			v.refs[i] = 1
		}
	}
	ops := int32(0)
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if err := v.step(i, in); err != nil {
			return fmt.Errorf("instruction %d: %w", i, err)
		}
		if in.Kind == Op {
			ops++
		}
	}
	return v.end(ops)
}

func (p *Program) validateTables() error {
	if p.Names == nil {
		return errors.New("no table of names")
	}
	if p.Residents < 0 || int(p.Residents) > len(p.Storages) {
		return fmt.Errorf("%d residents: there are %d storages", p.Residents, len(p.Storages))
	}
	if p.Events < 0 {
		return fmt.Errorf("%d events: must not be negative", p.Events)
	}
	for i := range p.Storages {
		s := &p.Storages[i]
		switch {
		case s.Bytes < 0:
			return fmt.Errorf("storage %d has %d bytes: must not be negative", i, s.Bytes)
		case s.Class >= NumClasses:
			return fmt.Errorf("storage %d has class %d: must be below %d", i, s.Class, NumClasses)
		}
	}
	for i := range p.Kernels {
		if err := p.Kernels[i].validate(); err != nil {
			return fmt.Errorf("kernel %d: %w", i, err)
		}
	}
	return nil
}

func (k *Kernel) validate() error {
	switch {
	case k.Kind > hw.Transfer:
		return fmt.Errorf("kind %d: must be below %d", k.Kind, hw.Transfer+1)
	case k.Family >= hw.NumFamilies:
		return fmt.Errorf("family %d: must be below %d", k.Family, hw.NumFamilies)
	case k.Flops < 0 || k.Traffic < 0 || k.Time < 0:
		return fmt.Errorf("flops %d, traffic %d, time %d: none may be negative", k.Flops, k.Traffic, k.Time)
	case k.Kind == hw.Collective && k.Members < 2:
		return fmt.Errorf("collective with %d members: must be at least 2", k.Members)
	case (k.Kind == hw.Collective || k.Kind == hw.Transfer) && k.Size <= 0:
		return fmt.Errorf("collective or transfer of %d bytes: must be larger than 0", k.Size)
	case k.Kind == hw.Transfer && len(k.Group) > 2:
		return fmt.Errorf("transfer between %d ranks: must be 2", len(k.Group))
	}
	return nil
}

// unborn marks a storage before its first write; 0 references means freed.
const unborn = -1

type validator struct {
	p        *Program
	refs     []int32
	recorded []bool
	meetings []KernelID // used so far, with a group
	lanes    []Lane     // of them
	phase    Instr      // the open phase's begin mark; its Kind is Op when none is open
	ended    bool
}

func (v *validator) step(i int, in *Instr) error {
	if begins := in.Kind == Mark && in.Mark == MarkIterationBegin; begins != (i == 0) {
		return errors.New("the iteration must begin with the first instruction, once")
	}
	if v.ended {
		return errors.New("nothing may follow the end of the iteration")
	}
	if in.Lane >= NumLanes {
		return fmt.Errorf("lane %d: must be below %d", in.Lane, NumLanes)
	}
	switch in.Kind {
	case Op:
		return v.op(in)
	case Ref, Drop, Save, Unpack:
		return v.reference(in)
	case Mark:
		return v.mark(in)
	case Sync:
		return nil
	case Record, Wait:
		return v.event(in)
	}
	return fmt.Errorf("kind %d: unknown", in.Kind)
}

// meeting tells whether what meets under the group and tag of an operator's kernel
// is all on its lane. O(distinct kernels with a group), and a kernel's first use
// sorts as many groups.
func (v *validator) meeting(in *Instr) error {
	p := v.p
	at := slices.Index(v.meetings, in.Kernel)
	if at >= 0 && v.lanes[at] == in.Lane {
		return nil
	}
	k := &p.Kernels[in.Kernel]
	members := slices.Sorted(slices.Values(k.Group))
	for i, id := range v.meetings {
		other := &p.Kernels[id]
		if other.Tag == k.Tag && v.lanes[i] != in.Lane && slices.Equal(slices.Sorted(slices.Values(other.Group)), members) {
			return fmt.Errorf("%s is on lane %d, another operator of ranks %v and tag %d on lane %d: what meets under one group and tag must be on one lane", p.Names.String(in.Name), in.Lane, members, k.Tag, v.lanes[i])
		}
	}
	v.meetings, v.lanes = append(v.meetings, in.Kernel), append(v.lanes, in.Lane)
	return nil
}

func (v *validator) op(in *Instr) error {
	p := v.p
	switch {
	case in.Name < 0 || int(in.Name) >= p.Names.Len():
		return fmt.Errorf("name %d: there are %d names", in.Name, p.Names.Len())
	case in.Kernel < -1 || int(in.Kernel) >= len(p.Kernels):
		return fmt.Errorf("kernel %d: there are %d kernels", in.Kernel, len(p.Kernels))
	case in.ArgLo < 0 || in.ArgHi < in.ArgLo || int(in.ArgHi) > len(p.Args):
		return fmt.Errorf("arguments %d..%d: there are %d", in.ArgLo, in.ArgHi, len(p.Args))
	case in.Host < 0 || in.Scratch < 0:
		return fmt.Errorf("host time %d, scratch %d: none may be negative", in.Host, in.Scratch)
	}
	if k := in.Kernel; k >= 0 && p.Kernels[k].Kind >= hw.Collective && len(p.Kernels[k].Group) > 1 {
		if err := v.meeting(in); err != nil {
			return err
		}
	}
	for _, a := range p.Args[in.ArgLo:in.ArgHi] {
		refs, err := v.count(a.Storage)
		if err == nil && a.Mode == Write && a.View != 0 && *refs != unborn && *refs != 0 {
			return fmt.Errorf("%s writes view %d of %s, which has a content: a part of it is updated, not written", p.Names.String(in.Name), a.View, v.name(a.Storage))
		}
		if err != nil {
			return err
		}
	}
	for _, a := range p.Args[in.ArgLo:in.ArgHi] {
		refs, err := v.count(a.Storage)
		if err != nil {
			return err
		}
		switch {
		case a.Mode > Update:
			return fmt.Errorf("access mode %d: must be below %d", a.Mode, Update+1)
		case *refs == 0:
			return fmt.Errorf("%s touches %s after it was freed", p.Names.String(in.Name), v.name(a.Storage))
		case *refs == unborn && a.Mode != Write:
			return fmt.Errorf("%s reads %s before it was written", p.Names.String(in.Name), v.name(a.Storage))
		case *refs == unborn:
			*refs = 1
		}
	}
	return nil
}

func (v *validator) count(s StorageID) (*int32, error) {
	if s < 0 || int(s) >= len(v.refs) {
		return nil, fmt.Errorf("storage %d: there are %d", s, len(v.refs))
	}
	return &v.refs[s], nil
}

// name is how messages call a storage.
func (v *validator) name(s StorageID) string {
	return fmt.Sprintf("storage %d (%s)", s, v.p.Names.String(v.p.Storages[s].Label))
}

func (v *validator) reference(in *Instr) error {
	s := StorageID(in.A)
	refs, err := v.count(s)
	if err != nil {
		return err
	}
	if *refs <= 0 {
		return fmt.Errorf("reference to %s, which is not alive", v.name(s))
	}
	switch in.Kind {
	case Ref:
		*refs++
	case Drop:
		if *refs == 1 && int32(s) < v.p.Residents {
			return fmt.Errorf("last reference of resident %s dropped", v.name(s))
		}
		*refs--
	}
	return nil
}

func (v *validator) mark(in *Instr) error {
	open := v.phase.Kind == Mark
	switch in.Mark {
	case MarkIterationBegin: // step has checked that it is the first
	case MarkIterationEnd:
		if open {
			return errors.New("the iteration ends inside a phase")
		}
		v.ended = true
	case MarkForwardBegin, MarkBackwardBegin, MarkOptimizerBegin, MarkValidationBegin:
		if open {
			return errors.New("a phase begins inside another")
		}
		v.phase = *in
	case MarkForwardEnd, MarkBackwardEnd, MarkOptimizerEnd, MarkValidationEnd:
		if !open || v.phase.Mark != in.Mark-1 || v.phase.A != in.A || v.phase.B != in.B {
			return errors.New("a phase ends that did not begin")
		}
		v.phase = Instr{}
	default:
		return fmt.Errorf("mark %d: must be at most %d", in.Mark, MarkIterationEnd)
	}
	return nil
}

func (v *validator) event(in *Instr) error {
	if in.A < 0 || in.A >= v.p.Events {
		return fmt.Errorf("event %d: there are %d", in.A, v.p.Events)
	}
	switch recorded := v.recorded[in.A]; {
	case in.Kind == Record && recorded:
		return fmt.Errorf("event %d is recorded twice", in.A)
	case in.Kind == Wait && !recorded:
		return fmt.Errorf("wait for event %d, which nobody recorded", in.A)
	}
	v.recorded[in.A] = true
	return nil
}

func (v *validator) end(ops int32) error {
	if !v.ended {
		return errors.New("the iteration does not end")
	}
	if ops != v.p.Ops {
		return fmt.Errorf("%d operators: the program says %d", ops, v.p.Ops)
	}
	for i, refs := range v.refs {
		s := StorageID(i)
		switch resident := int32(i) < v.p.Residents; {
		case resident && refs != 1:
			return fmt.Errorf("resident %s ends with %d references: must be 1", v.name(s), refs)
		case !resident && refs == unborn:
			return fmt.Errorf("%s is never written", v.name(s))
		case !resident && refs > 0:
			return fmt.Errorf("%s still has %d references at the end", v.name(s), refs)
		}
	}
	return nil
}
