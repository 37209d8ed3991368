package workloads

import (
	"slices"
	"strings"
	"testing"

	"smartswap/hw"
	"smartswap/sim"
)

// small is a correct program with one of everything, as a starting point for
// breaking rules: resident 0, storages 1 (saved) and 2 (temporary).
func small(t *testing.T) *Program {
	t.Helper()
	names := NewNames()
	op, weight := names.ID("op"), names.ID("weight")
	b := NewBuilder(names, []Storage{{Bytes: 4, Class: Parameter, Label: weight}})
	b.Mark(MarkIterationBegin, 0, 0)
	b.Mark(MarkForwardBegin, 1, 0)
	x := b.New(Storage{Bytes: 8})
	b.Op(OpSpec{Name: op}, In(0), Out(x))
	b.Save(x)
	b.Order(Compute, Comm)
	b.Op(OpSpec{Name: op, Lane: Comm, Kernel: Kernel{Work: hw.Work{Kind: hw.Collective, Members: 2, Size: 8}}}, InPlace(x))
	b.Order(Comm, Compute)
	b.Drop(x)
	b.Mark(MarkForwardEnd, 1, 0)
	b.Mark(MarkBackwardBegin, 1, 0)
	b.Unpack(x)
	y := b.New(Storage{Bytes: 16})
	b.Op(OpSpec{Name: op, Scratch: 32}, In(x), Out(y), InPlace(0))
	b.Drop(x)
	b.Sync(Compute)
	b.Drop(y)
	b.Mark(MarkBackwardEnd, 1, 0)
	b.Mark(MarkIterationEnd, 0, 0)
	p, err := b.Program("small")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// find is the n-th instruction of a kind.
func find(p *Program, kind InstrKind, n int) int {
	for i := range p.Instrs {
		if p.Instrs[i].Kind == kind {
			if n == 0 {
				return i
			}
			n--
		}
	}
	panic("no such instruction")
}

func TestValidateCatches(t *testing.T) {
	remove := func(p *Program, i int) { p.Instrs = slices.Delete(p.Instrs, i, i+1) }
	insert := func(p *Program, i int, in Instr) { p.Instrs = slices.Insert(p.Instrs, i, in) }
	last := func(p *Program) int { return len(p.Instrs) - 1 }
	for _, c := range []struct {
		name  string
		spoil func(p *Program)
		want  string
	}{
		{"no names", func(p *Program) { p.Names = nil }, "no table of names"},
		{"residents", func(p *Program) { p.Residents = 9 }, "9 residents"},
		{"events", func(p *Program) { p.Events = -1 }, "-1 events"},
		{"negative storage", func(p *Program) { p.Storages[1].Bytes = -1 }, "storage 1 has -1 bytes"},
		{"class", func(p *Program) { p.Storages[1].Class = NumClasses }, "class 7"},
		{"kernel kind", func(p *Program) { p.Kernels[0].Kind = 9 }, "kernel 0: kind 9"},
		{"family", func(p *Program) { p.Kernels[0].Family = hw.NumFamilies }, "kernel 0: family"},
		{"negative work", func(p *Program) { p.Kernels[0].Flops = -1 }, "none may be negative"},
		{"lonely collective", func(p *Program) { p.Kernels[1].Members = 1 }, "1 members"},
		{"empty collective", func(p *Program) { p.Kernels[1].Size = 0 }, "0 bytes"},
		{"transfer among three", func(p *Program) { p.Kernels[1].Kind, p.Kernels[1].Group = hw.Transfer, []int32{0, 1, 2} }, "between 3 ranks"},
		{"no begin", func(p *Program) { remove(p, 0) }, "instruction 0: the iteration must begin"},
		{"two begins", func(p *Program) { insert(p, 1, p.Instrs[0]) }, "instruction 1: the iteration must begin"},
		{"no end", func(p *Program) { remove(p, last(p)) }, "does not end"},
		{"after the end", func(p *Program) { p.Instrs = append(p.Instrs, Instr{Kind: Sync}) }, "nothing may follow"},
		{"phase in phase", func(p *Program) { insert(p, 2, p.Instrs[1]) }, "inside another"},
		{"phase open", func(p *Program) { remove(p, last(p)-1) }, "ends inside a phase"},
		{"phase not open", func(p *Program) { insert(p, last(p), Instr{Kind: Mark, Mark: MarkOptimizerEnd}) }, "did not begin"},
		{"other phase ends", func(p *Program) { p.Instrs[find(p, Mark, 2)].A = 2 }, "did not begin"},
		{"mark", func(p *Program) { insert(p, 1, Instr{Kind: Mark, Mark: 99}) }, "mark 99"},
		{"kind", func(p *Program) { insert(p, 1, Instr{Kind: 99}) }, "kind 99"},
		{"lane", func(p *Program) { p.Instrs[find(p, Op, 0)].Lane = NumLanes }, "lane 3"},
		{"name", func(p *Program) { p.Instrs[find(p, Op, 0)].Name = 99 }, "name 99"},
		{"kernel", func(p *Program) { p.Instrs[find(p, Op, 0)].Kernel = 99 }, "kernel 99"},
		{"arguments", func(p *Program) { p.Instrs[find(p, Op, 0)].ArgHi = 99 }, "arguments 0..99"},
		{"host time", func(p *Program) { p.Instrs[find(p, Op, 0)].Host = -1 }, "host time -1"},
		{"access", func(p *Program) { p.Args[0].Mode = 3 }, "access mode 3"},
		{"storage of an argument", func(p *Program) { p.Args[0].Storage = 99 }, "storage 99"},
		{"storage of a reference", func(p *Program) { p.Instrs[find(p, Ref, 0)].A = -1 }, "storage -1"},
		{"read before write", func(p *Program) { p.Args[1].Mode = Read }, "reads storage 1 (op) before"},
		{"update before write", func(p *Program) { p.Args[1].Mode = Update }, "reads storage 1 (op) before"},
		{"part of a resident written", func(p *Program) { p.Args[0].View, p.Args[0].Mode = 1, Write }, "op writes view 1 of storage 0 (weight), which has a content"},
		{"part of what is there written", func(p *Program) { p.Args[2].View, p.Args[2].Mode = 7, Write }, "op writes view 7 of storage 1 (op), which has a content"},
		{"use after free", func(p *Program) { insert(p, last(p), p.Instrs[find(p, Op, 2)]) }, "touches storage 1 (op) after"},
		{"save after free", func(p *Program) { remove(p, find(p, Ref, 0)); remove(p, find(p, Op, 2)) }, "which is not alive"},
		{"reference before birth", func(p *Program) { insert(p, 1, Instr{Kind: Ref, A: 1}) }, "which is not alive"},
		{"resident dropped", func(p *Program) { insert(p, 1, Instr{Kind: Drop, A: 0}) }, "last reference of resident storage 0 (weight)"},
		{"resident kept", func(p *Program) { insert(p, 1, Instr{Kind: Ref, A: 0}) }, "ends with 2 references"},
		{"leak", func(p *Program) { remove(p, find(p, Drop, 2)) }, "still has 1 references"},
		{"never written", func(p *Program) { p.Storages = append(p.Storages, Storage{Bytes: 1}) }, "storage 3 (op) is never written"},
		{"event", func(p *Program) { p.Instrs[find(p, Wait, 0)].A = 99 }, "event 99"},
		{"wait before record", func(p *Program) { remove(p, find(p, Record, 0)) }, "which nobody recorded"},
		{"recorded twice", func(p *Program) { p.Instrs[find(p, Record, 1)].A = 0 }, "recorded twice"},
		{"count", func(p *Program) { p.Ops = 7 }, "the program says 7"},
	} {
		p := small(t)
		c.spoil(p)
		err := p.Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v must say %q", c.name, err, c.want)
		}
	}
}

// TestBornInParts: the operator that brings a storage to life may write it part
// by part; another may only replace it or update parts.
func TestBornInParts(t *testing.T) {
	for _, second := range []struct {
		arg Arg
		ok  bool
	}{
		{Arg{Mode: Write}, true},
		{Arg{View: 1, Mode: Update}, true},
		{Arg{View: 1, Mode: Write}, false},
	} {
		b := NewBuilder(NewNames(), nil)
		b.Mark(MarkIterationBegin, 0, 0)
		x := b.New(Storage{Bytes: 8})
		op := OpSpec{Name: b.p.Names.ID("op")}
		b.Op(op, Arg{Storage: x, View: 1, Mode: Write}, Arg{Storage: x, View: 2, Mode: Write})
		second.arg.Storage = x
		b.Op(op, second.arg)
		b.Drop(x)
		b.Mark(MarkIterationEnd, 0, 0)
		if _, err := b.Program("parts"); (err == nil) != second.ok {
			t.Errorf("%+v: %v", second.arg, err)
		}
	}
}

func TestBuilderSharesKernels(t *testing.T) {
	names := NewNames()
	op := names.ID("op")
	b := NewBuilder(names, []Storage{{Bytes: 4}})
	b.Mark(MarkIterationBegin, 0, 0)
	work := hw.Work{Kind: hw.Collective, Members: 2, Size: 4}
	for _, k := range []Kernel{
		{Work: work}, {Work: work}, // one
		{Work: work, Group: []int32{0, 1}}, {Work: work, Group: []int32{0, 1}}, // two
		{Work: work, Group: []int32{1, 0}},         // three: order matters
		{Work: work, Group: []int32{0, 1}, Tag: 1}, // four
	} {
		b.Op(OpSpec{Name: op, Lane: Comm, Kernel: k}, InPlace(0))
	}
	b.Op(OpSpec{Name: op, HostOnly: true, Host: sim.Microsecond})
	b.Mark(MarkIterationEnd, 0, 0)
	p, err := b.Program("kernels")
	if err != nil {
		t.Fatal(err)
	}
	var got []KernelID
	for _, in := range p.Instrs {
		if in.Kind == Op {
			got = append(got, in.Kernel)
		}
	}
	if want := []KernelID{0, 0, 1, 1, 2, 3, -1}; !slices.Equal(got, want) {
		t.Errorf("kernels %v, want %v", got, want)
	}
	if p.Ops != 7 || len(p.Kernels) != 4 {
		t.Errorf("%d operators and %d kernels, want 7 and 4", p.Ops, len(p.Kernels))
	}
}

// What meets under one group and tag is on one lane, in any order of the members.
func TestMeetingsOnOneLane(t *testing.T) {
	program := func(group []int32, tag int32, lane Lane) error {
		names := NewNames()
		b := NewBuilder(names, []Storage{{Bytes: 4}})
		b.Mark(MarkIterationBegin, 0, 0)
		b.Op(OpSpec{Name: names.ID("reduce"), Lane: Comm, Kernel: Kernel{Work: hw.Work{Kind: hw.Collective, Members: 2, Size: 4}, Group: []int32{0, 1}}}, InPlace(0))
		for range 2 {
			b.Op(OpSpec{Name: names.ID("send"), Lane: lane, Kernel: Kernel{Work: hw.Work{Kind: hw.Transfer, Size: 4}, Group: group, Tag: tag}}, In(0))
		}
		b.Mark(MarkIterationEnd, 0, 0)
		_, err := b.Program("meetings")
		return err
	}
	if err := program([]int32{1, 0}, 0, CommPeer); err == nil || !strings.Contains(err.Error(), "send is on lane 2, another operator of ranks [0 1] and tag 0 on lane 1") {
		t.Error(err)
	}
	for _, err := range []error{program([]int32{1, 0}, 1, CommPeer), program([]int32{1, 2}, 0, CommPeer), program([]int32{0, 1}, 0, Comm), program(nil, 0, CommPeer)} {
		if err != nil {
			t.Error(err)
		}
	}
}

// By hand: resident 4, then 8, then 8 + 16 + scratch 32.
func TestPeakLiveAndTotal(t *testing.T) {
	p := small(t)
	if got := PeakLive(p, 1); got != 4+8+16+32 {
		t.Errorf("peak of %d bytes, want 60", got)
	}
	if got := PeakLive(p, 512); got != 4*512 {
		t.Errorf("rounded peak of %d bytes, want 2048", got)
	}
	price := func(k KernelID) sim.Time { return 10 + sim.Time(k) }
	if compute, comm := p.Total(price, Compute), p.Total(price, Comm); compute != 20 || comm != 11 {
		t.Errorf("totals %d and %d, want 20 and 11", compute, comm)
	}
}

// Every constant of names.go is the id of its own name.
func TestDecoderNames(t *testing.T) {
	n := newDecoderNames()
	if n.Len() != int(numNames) {
		t.Errorf("%d distinct names for %d constants", n.Len(), numNames)
	}
	for id, name := range decoderNames {
		if name == "" || n.String(NameID(id)) != name {
			t.Errorf("name %d is %q, want %q", id, n.String(NameID(id)), name)
		}
	}
}
