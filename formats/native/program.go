package native

import (
	"math"
	"strings"

	"smartswap/sim"
	"smartswap/workloads"
)

// programReader reads the lines of one program.
type programReader struct {
	*reader
	begin     int // line of the keyword "program"
	p         *workloads.Program
	types     map[workloads.StorageID]int32 // type of each storage that is no resident
	residents int64
}

func newProgramReader(r *reader, kind string, residents int) *programReader {
	return &programReader{
		reader:    r,
		begin:     r.in.Line(),
		p:         &workloads.Program{Kind: kind, Names: r.names, Residents: int32(residents)},
		types:     make(map[workloads.StorageID]int32),
		residents: int64(residents),
	}
}

// program ends the program: it makes the table of storages and checks the
// whole.
func (r *programReader) program(residents []workloads.Storage) *workloads.Program {
	p := r.p
	p.Storages = append(make([]workloads.Storage, 0, len(residents)+len(r.types)), residents...)
	for id := r.residents; len(p.Storages) < cap(p.Storages); id++ {
		t, ok := r.types[workloads.StorageID(id)]
		if !ok {
			r.err = r.in.ErrorAt(r.begin, "program %q: no storage %d, but there are higher numbers", p.Kind, id)
			return nil
		}
		p.Storages = append(p.Storages, r.reader.types[t])
	}
	if err := p.Validate(); err != nil {
		r.err = r.in.ErrorAt(r.begin, "program %q: %v", p.Kind, err)
		return nil
	}
	return p
}

// read reads one line of the program; false if no such keyword belongs into
// one.
func (r *programReader) read(keyword string) bool {
	switch keyword {
	case "kernel":
		r.number("number of the kernel that comes next", int64(len(r.p.Kernels)), int64(len(r.p.Kernels)))
		r.p.Kernels = append(r.p.Kernels, r.readKernel())
	case "op":
		r.append(r.op())
	case "ref":
		r.references(workloads.Ref)
	case "drop":
		r.references(workloads.Drop)
	case "save":
		r.references(workloads.Save)
	case "unpack":
		r.references(workloads.Unpack)
	case "mark":
		in := workloads.Instr{Kind: workloads.Mark, Mark: workloads.MarkKind(r.word("mark", markWords))}
		if len(r.items) > 0 {
			in.A = int32(r.number("first number of the mark", math.MinInt32, math.MaxInt32))
			in.B = int32(r.number("second number of the mark", math.MinInt32, math.MaxInt32))
		}
		r.append(in)
	case "sync":
		r.append(workloads.Instr{Kind: workloads.Sync, Lane: r.lane()})
	case "record":
		e := r.number("number of the event that comes next", int64(r.p.Events), int64(r.p.Events))
		r.append(workloads.Instr{Kind: workloads.Record, A: int32(e), Lane: r.lane()})
		r.p.Events++
	case "wait":
		e := r.number("event", 0, int64(r.p.Events)-1)
		r.append(workloads.Instr{Kind: workloads.Wait, A: int32(e), Lane: r.lane()})
	default:
		return false
	}
	return true
}

func (r *programReader) lane() workloads.Lane { return workloads.Lane(r.word("lane", laneWords)) }

// append adds an instruction.
func (r *programReader) append(in workloads.Instr) {
	r.keep(1)
	r.p.Instrs = append(r.p.Instrs, in)
}

// references reads storages, at least one, and adds an instruction for each.
func (r *programReader) references(kind workloads.InstrKind) {
	for first := true; (first || len(r.items) > 0) && r.err == nil; first = false {
		s := workloads.StorageID(r.number("storage", 0, math.MaxInt32))
		r.mention(s)
		r.append(workloads.Instr{Kind: kind, A: int32(s)})
	}
}

// mention checks that a storage has been mentioned with its type.
func (r *programReader) mention(s workloads.StorageID) {
	if int64(s) < r.residents {
		return
	}
	if _, ok := r.types[s]; !ok {
		r.fail("storage %d is not mentioned before: its first argument needs a type, such as w%d:0", s, s)
	}
}

// op reads an operator.
func (r *programReader) op() workloads.Instr {
	in := workloads.Instr{Kind: workloads.Op, Kernel: -1, ArgLo: int32(len(r.p.Args))}
	in.Name = r.knownName("operator")
	if k := r.item("kernel"); strings.HasPrefix(k, "k") {
		in.Kernel = workloads.KernelID(r.parse("kernel", k[1:], 0, int64(len(r.p.Kernels))-1))
	} else if k != "-" {
		r.fail("kernel %.40q; allowed: - or one such as k0", k)
	}
	for len(r.items) > 0 && isArg(r.items[0]) && r.err == nil {
		r.arg(r.item("argument"))
	}
	in.ArgHi = int32(len(r.p.Args))
	if len(r.items) > 0 && r.items[0][0] == '@' {
		in.Lane = workloads.Lane(r.oneOf("lane", r.item("lane")[1:], laneWords))
	}
	opt := r.options("host=", "scratch=", "replayable", "recomputed", "views")
	in.Host = sim.Time(r.value("host", opt[0], maxAmount))
	in.Scratch = sim.Bytes(r.value("scratch", opt[1], maxAmount))
	if opt[2] != "" {
		in.Flags |= workloads.Replayable
	}
	if opt[3] != "" {
		in.Flags |= workloads.Recomputed
	}
	if opt[4] != "" {
		in.Flags |= workloads.Views
	}
	r.p.Ops++
	return in
}

// isArg tells arguments from lanes and options: a letter and a digit.
func isArg(item string) bool {
	return len(item) > 1 && strings.IndexByte("rwu", item[0]) >= 0 && item[1] >= '0' && item[1] <= '9'
}

// arg reads an argument such as "r5", "r5.2" or "w5:3".
func (r *programReader) arg(item string) {
	text, typ, first := strings.Cut(item, ":")
	id, view, hasView := strings.Cut(text[1:], ".")
	a := workloads.Arg{
		Storage: workloads.StorageID(r.parse("storage", id, 0, math.MaxInt32)),
		Mode:    workloads.Access(strings.IndexByte("rwu", item[0])),
	}
	if hasView {
		a.View = workloads.ViewID(r.parse("view", view, 0, math.MaxInt32))
	}
	if first {
		t := r.knownType("type", typ)
		if _, again := r.types[a.Storage]; again || int64(a.Storage) < r.residents {
			r.fail("%.40q gives storage %d a type again", item, a.Storage)
		}
		r.types[a.Storage] = int32(t)
	}
	r.mention(a.Storage)
	r.keep(1)
	r.p.Args = append(r.p.Args, a)
}
