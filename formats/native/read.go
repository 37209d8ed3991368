package native

import (
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"smartswap/formats/internal/lines"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// Read reads a workload. file is the name that errors use; an error is one line
// that begins with "file:line:". Read takes one pass and memory in proportion
// to what the file holds, up to a bound.
func Read(r io.Reader, file string) (*Trace, error) {
	rd := &reader{
		scanner: scanner{in: lines.New(r, file)}, tokens: -1,
		names: workloads.NewNames(), devices: make(map[int32]bool),
	}
	if line, _ := rd.in.Next(); line != magic {
		if err := rd.in.Err(); err != nil {
			return nil, err
		}
		return nil, rd.in.ErrorAt(1, "the file begins with %.40q; expected: %s", line, magic)
	}
	for !rd.ended {
		keyword, ok := rd.line()
		if !ok {
			rd.fail("the file ends before its line \"end\"")
			break
		}
		rd.read(keyword)
		rd.done()
		if rd.err != nil {
			break
		}
	}
	if keyword, ok := rd.line(); ok {
		rd.fail("%q after the line \"end\"", keyword)
	}
	if rd.err != nil {
		return nil, rd.err
	}
	return NewTrace(*rd.name, rd.tokens, rd.names, rd.ranks, rd.programs), nil
}

// reader is a file being read.
type reader struct {
	scanner
	name     *string // nil before the line workload
	tokens   int64   // -1 before the line tokens
	names    *workloads.Names
	types    []workloads.Storage
	ranks    []workloads.Rank
	devices  map[int32]bool         // of all ranks so far
	distinct []*workloads.Program   // of the rank being read
	programs [][]*workloads.Program // by rank and iteration
	open     *programReader         // the program being read
	groups   []groupUse             // to check when all ranks are known
	entries  int                    // things kept so far; see limit
	ended    bool
}

// groupUse is the highest rank that a kernel's group names, and where.
type groupUse struct {
	rank int64
	line int
}

// keywords is what an error about an unknown one lists.
const keywords = "workload tokens name rank type resident program iterations kernel op ref drop save unpack mark sync record wait end"

// read reads one line.
func (r *reader) read(keyword string) {
	switch keyword {
	case "workload":
		name := r.nameItem("name of the workload")
		if r.name != nil {
			r.fail("a second workload")
		}
		r.name = &name
	case "tokens":
		if r.tokens >= 0 {
			r.fail("a second number of tokens")
		}
		r.tokens = r.number("tokens", 0, math.MaxInt64)
	case "name":
		r.readName()
	case "type":
		r.readType()
	case "rank":
		r.closeRank()
		r.readRank()
	case "resident":
		r.readResidents()
	case "program":
		r.openProgram()
	case "iterations":
		r.readIterations()
	case "end":
		r.closeRank()
		r.readEnd()
	default:
		switch {
		case r.open != nil && r.open.read(keyword):
		case slices.Contains(strings.Fields(keywords), keyword):
			r.fail("%s outside of a program", keyword)
		default:
			r.fail("unknown keyword %.40q; allowed: %s", keyword, keywords)
		}
	}
}

// keep counts n more things against the limit.
func (r *reader) keep(n int) {
	if r.entries += n; r.entries > limit {
		r.fail("the file holds more than %d names, types and instructions with their arguments", limit)
	}
}

func (r *reader) readName() {
	if len(r.ranks) > 0 {
		r.fail("a name after the first rank; names come before")
	}
	r.keep(1)
	if n := r.names.Len(); int(r.names.ID(r.nameItem("name"))) != n {
		r.fail("the name appears twice")
	}
}

// knownName reads a name that the table has.
func (r *reader) knownName(what string) workloads.NameID {
	name, n := r.nameItem(what), r.names.Len()
	id := r.names.ID(name)
	if r.names.Len() > n { // new: the table is spoiled, but so is the file
		r.fail("%s %.40q has no line \"name\"", what, name)
	}
	return id
}

func (r *reader) readType() {
	r.keep(1)
	r.number("number of the type that comes next", int64(len(r.types)), int64(len(r.types)))
	s := workloads.Storage{
		Bytes: sim.Bytes(r.number("bytes", 0, maxAmount)),
		Class: workloads.Class(r.word("class", classWords)),
		DType: workloads.DType(r.word("element type", dtypeWords)),
		Shape: r.shape(r.item("shape")),
		Label: r.knownName("label"),
	}
	opt := r.options("layer=", "flat")
	s.Layer = int32(r.value("layer", opt[0], math.MaxInt32))
	s.Flat = opt[1] != ""
	r.types = append(r.types, s)
}

// shape reads dimensions such as "8x4096"; "-" has none.
func (r *reader) shape(item string) (shape [4]int32) {
	if item == "-" {
		return shape
	}
	for i, d := range strings.SplitN(item, "x", 5) {
		v, err := strconv.ParseInt(d, 10, 32)
		if err != nil || v < 0 || i == 4 {
			r.fail("shape %.40q; allowed: - or up to four dimensions such as 8x4096", item)
			return shape
		}
		shape[i] = int32(v)
	}
	return shape
}

func (r *reader) readRank() {
	opt := r.options("devices=", "stage=")
	var rank workloads.Rank
	for _, d := range r.list("devices", opt[0]) {
		r.keep(1)
		if r.devices[d] {
			r.fail("device %d stands in two places", d)
		}
		r.devices[d] = true
		rank.Devices = append(rank.Devices, int(d))
	}
	rank.Stage = int(r.value("stage", opt[1], math.MaxInt32))
	r.ranks = append(r.ranks, rank)
	r.programs = append(r.programs, nil)
	r.distinct = nil
}

// rank is the rank being read; nil before the first.
func (r *reader) rank() *workloads.Rank {
	if len(r.ranks) == 0 {
		r.fail("this line belongs into a rank; the first line \"rank\" comes later")
		return nil
	}
	return &r.ranks[len(r.ranks)-1]
}

func (r *reader) readResidents() {
	rank := r.rank()
	if len(r.distinct) > 0 || r.open != nil {
		r.fail("a resident after the first program of its rank; residents come before")
	}
	for first := true; first || len(r.items) > 0; first = false {
		t := r.knownType("type", r.item("type of a resident"))
		if r.err != nil {
			return
		}
		r.keep(1)
		rank.Residents = append(rank.Residents, r.types[t])
	}
}

// knownType reads the number of a type.
func (r *reader) knownType(what, item string) int64 {
	if len(r.types) == 0 {
		r.fail("%s %.40q, but there are no types yet", what, item)
		return 0
	}
	return r.parse(what, item, 0, int64(len(r.types))-1)
}

func (r *reader) openProgram() {
	r.closeProgram()
	kind := r.nameItem("kind of the program")
	if rank := r.rank(); rank != nil && r.err == nil {
		if len(r.programs[len(r.programs)-1]) > 0 {
			r.fail("a program after the iterations of its rank")
		}
		r.keep(1 + len(rank.Residents))
		r.open = newProgramReader(r, kind, len(rank.Residents))
	}
}

// closeProgram ends the program being read, if there is one.
func (r *reader) closeProgram() {
	if r.open != nil && r.err == nil {
		r.distinct = append(r.distinct, r.open.program(r.rank().Residents))
	}
	r.open = nil
}

func (r *reader) readIterations() {
	r.closeProgram()
	r.rank()
	if r.err == nil && len(r.distinct) == 0 {
		r.fail("iterations of a rank without a program")
	}
	for first := true; first || len(r.items) > 0; first = false {
		p := r.number("program", 0, int64(len(r.distinct))-1)
		if r.err != nil {
			return
		}
		r.keep(1)
		list := &r.programs[len(r.programs)-1]
		*list = append(*list, r.distinct[p])
	}
}

// closeRank ends the rank being read, if there is one.
func (r *reader) closeRank() {
	if len(r.ranks) == 0 || r.err != nil {
		return
	}
	switch got, first := len(r.programs[len(r.programs)-1]), len(r.programs[0]); {
	case got == 0:
		r.fail("rank %d ends without a line \"iterations\"", len(r.ranks)-1)
	case got != first:
		r.fail("rank %d has %d iterations; allowed: %d, as rank 0 has", len(r.ranks)-1, got, first)
	}
}

func (r *reader) readEnd() {
	switch {
	case r.name == nil:
		r.fail("the file has no line \"workload\"")
	case r.tokens < 0:
		r.fail("the file has no line \"tokens\"")
	case len(r.ranks) == 0:
		r.fail("the file has no line \"rank\"")
	}
	for _, g := range r.groups {
		if g.rank >= int64(len(r.ranks)) && r.err == nil {
			r.err = r.in.ErrorAt(g.line, "rank %d in the group; there are %d ranks", g.rank, len(r.ranks))
		}
	}
	r.ended = true
}

// readKernel reads a kernel's kind and options.
func (r *reader) readKernel() (k workloads.Kernel) {
	k.Kind = hw.WorkKind(r.word("kind of kernel", kindWords))
	opt := r.options("family=", "flops=", "traffic=", "mnk=", "16bit", "time=", "collective=", "size=", "members=", "stride=", "group=", "tag=", "inputs_fault=", "all_fault=")
	if opt[0] != "" {
		k.Family = hw.Family(r.oneOf("family", opt[0], familyWords))
	}
	k.Flops = r.value("flops", opt[1], math.MaxInt64)
	k.Traffic = sim.Bytes(r.value("traffic", opt[2], maxAmount))
	if opt[3] != "" {
		mnk := r.shape(opt[3])
		k.M, k.N, k.K = mnk[0], mnk[1], mnk[2]
		if strings.Count(opt[3], "x") != 2 {
			r.fail("mnk %.40q; allowed: three dimensions such as 8x4096x4096", opt[3])
		}
	}
	k.Dtype16 = opt[4] != ""
	k.Time = sim.Time(r.value("time", opt[5], maxAmount))
	if opt[6] != "" {
		k.Collective = hw.CollectiveKind(r.oneOf("collective", opt[6], collectiveWords))
	}
	k.Size = sim.Bytes(r.value("size", opt[7], maxAmount))
	k.Members = int32(r.value("members", opt[8], math.MaxInt32))
	k.Stride = int32(r.value("stride", opt[9], math.MaxInt32))
	if opt[10] != "" {
		k.Group = r.list("group", opt[10])
		r.groups = append(r.groups, groupUse{rank: int64(slices.Max(append(k.Group, 0))), line: r.in.Line()})
	}
	k.Tag = int32(r.value("tag", opt[11], math.MaxInt32))
	k.Faulting = [2]sim.Time{sim.Time(r.value("inputs_fault", opt[12], maxAmount)), sim.Time(r.value("all_fault", opt[13], maxAmount))}
	r.keep(1 + len(k.Group))
	return k
}
