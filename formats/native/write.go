package native

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"smartswap/formats/internal/lines"
	"smartswap/hw"
	"smartswap/workloads"
)

// Write writes the first n >= 1 iterations of a workload, each distinct program
// once. Reading them back gives equal programs: the same ids, tables and order
// of instructions; arguments are laid out in the order of their operators. It
// streams: beside what the workload itself keeps it needs memory for the
// distinct types only.
//
// It refuses, and names, what the format cannot hold: an invalid program,
// programs of one rank with different residents, unknown constants, sizes of
// more than 1 PiB and times of more than 18 minutes.
func Write(w io.Writer, work workloads.Workload, n int) error {
	if n < 1 || work.Tokens() < 0 {
		return fmt.Errorf("%d iterations of %d tokens to write; allowed: at least 1 of at least 0", n, work.Tokens())
	}
	out := &writer{
		w: bufio.NewWriter(w), names: work.Names(), ranks: len(work.Ranks()),
		types: make(map[workloads.Storage]int), devices: make(map[int]bool),
	}
	out.line(magic)
	out.line("workload ", quoted(work.Name()))
	out.line("tokens ", strconv.FormatInt(work.Tokens(), 10))
	for id := range out.names.Len() {
		out.line("name ", quoted(out.names.String(workloads.NameID(id))))
	}
	for r, rank := range work.Ranks() {
		if err := out.rank(work, r, rank, n); err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	out.line("")
	out.line("end")
	if out.err != nil {
		return out.err
	}
	return out.w.Flush()
}

// writer is a file being written.
type writer struct {
	w       *bufio.Writer
	names   *workloads.Names
	ranks   int
	devices map[int]bool              // of the ranks written so far
	types   map[workloads.Storage]int // those written so far
	buf     []byte                    // the line being made
	err     error                     // a line that would not be read back
}

// line writes a line of parts that are strung together.
func (w *writer) line(parts ...string) {
	for _, p := range parts {
		w.w.WriteString(p)
	}
	w.w.WriteByte('\n')
}

// quoted is how a name is written.
func quoted(name string) string {
	if isBare(name) {
		return name
	}
	return strconv.Quote(name)
}

func (w *writer) rank(work workloads.Workload, r int, rank workloads.Rank, n int) error {
	if len(rank.Devices) == 0 || slices.Min(rank.Devices) < 0 || rank.Stage < 0 {
		return fmt.Errorf("devices %v, stage %d; allowed: at least one device, nothing negative", rank.Devices, rank.Stage)
	}
	for _, d := range rank.Devices {
		if w.devices[d] {
			return fmt.Errorf("device %d stands in two places", d)
		}
		w.devices[d] = true
	}
	w.line("")
	w.line("rank devices=", joined(rank.Devices), " stage=", strconv.Itoa(rank.Stage))
	for i := range rank.Residents {
		t, err := w.typeOf(&rank.Residents[i])
		if err != nil {
			return fmt.Errorf("resident %d: %w", i, err)
		}
		w.line("resident ", strconv.Itoa(t))
	}
	number := make(map[*workloads.Program]int)
	order := make([]int, n)
	for i := range n {
		p, err := work.Program(r, i)
		if err != nil {
			return fmt.Errorf("iteration %d: %w", i, err)
		}
		if _, ok := number[p]; !ok {
			number[p] = len(number)
			if err := w.program(p, rank.Residents); err != nil {
				return fmt.Errorf("iteration %d: %w", i, err)
			}
		}
		order[i] = number[p]
	}
	for row := range slices.Chunk(order, 32) {
		w.begin("iterations")
		for _, p := range row {
			w.int(int64(p))
		}
		w.flush()
	}
	return nil
}

// joined writes numbers with commas between them.
func joined[T int | int32](list []T) string {
	var b []byte
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(v), 10)
	}
	return string(b)
}

// typeOf is the number of the type that s is of, which is written if it is new.
func (w *writer) typeOf(s *workloads.Storage) (int, error) {
	t, ok := w.types[*s]
	if ok {
		return t, nil
	}
	switch {
	case int(s.Class) >= len(classWords):
		return 0, fmt.Errorf("storage class %d is unknown", s.Class)
	case int(s.DType) >= len(dtypeWords):
		return 0, fmt.Errorf("element type %d is unknown", s.DType)
	case s.Label < 0 || int(s.Label) >= w.names.Len():
		return 0, fmt.Errorf("label %d; there are %d names", s.Label, w.names.Len())
	case s.Bytes > maxAmount:
		return 0, fmt.Errorf("%d bytes; allowed: up to %d", s.Bytes, int64(maxAmount))
	case s.Layer < 0 || slices.Min(s.Shape[:]) < 0:
		return 0, fmt.Errorf("layer %d, shape %v; none may be negative", s.Layer, s.Shape)
	}
	t = len(w.types)
	w.types[*s] = t
	w.begin("type")
	w.int(int64(t))
	w.int(int64(s.Bytes))
	w.word(classWords[s.Class])
	w.word(dtypeWords[s.DType])
	w.word(shapeWord(s.Shape))
	w.word(quoted(w.names.String(s.Label)))
	w.option("layer", int64(s.Layer))
	w.flag("flat", s.Flat)
	w.flush()
	return t, nil
}

// shapeWord writes a shape up to its last dimension that is there.
func shapeWord(shape [4]int32) string {
	var b []byte
	for i, end := 0, lastNonZero(shape); i < end; i++ {
		if i > 0 {
			b = append(b, 'x')
		}
		b = strconv.AppendInt(b, int64(shape[i]), 10)
	}
	if len(b) == 0 {
		return "-"
	}
	return string(b)
}

// lastNonZero is the number of dimensions up to the last that is there.
func lastNonZero(shape [4]int32) int {
	n := len(shape)
	for n > 0 && shape[n-1] == 0 {
		n--
	}
	return n
}

// programWriter writes one program.
type programWriter struct {
	*writer
	p       *workloads.Program
	known   []bool // storages that have been mentioned
	kernels int    // kernels that have been written
	events  int32  // events that have been recorded
}

func (w *writer) program(p *workloads.Program, residents []workloads.Storage) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if int(p.Residents) != len(residents) || !slices.Equal(p.Storages[:p.Residents], residents) {
		return errors.New("the program's residents are not those of its rank")
	}
	if p.Names != w.names {
		return errors.New("the program's names are not those of its workload")
	}
	w.line("")
	w.line("program ", quoted(p.Kind))
	out := &programWriter{writer: w, p: p, known: make([]bool, len(p.Storages))}
	for i := range residents {
		out.known[i] = true
	}
	for i := 0; i < len(p.Instrs); {
		used, err := out.instr(p.Instrs[i:])
		if err != nil {
			return fmt.Errorf("instruction %d: %w", i, err)
		}
		i += used
	}
	if out.events != p.Events {
		return fmt.Errorf("%d events, but %d are recorded", p.Events, out.events)
	}
	return out.kernelsUpTo(len(p.Kernels) - 1)
}

// instr writes one line for the first instruction, or the first few; it returns
// how many.
func (w *programWriter) instr(rest []workloads.Instr) (int, error) {
	in := &rest[0]
	if *in != used(in) {
		return 0, fmt.Errorf("%+v has fields that its kind does not use", *in)
	}
	n := 1
	switch in.Kind {
	case workloads.Op:
		return n, w.op(in)
	case workloads.Ref, workloads.Drop, workloads.Save, workloads.Unpack:
		// A run of equal kinds is one line, as long as it is easy to read.
		w.begin(referenceWord(in.Kind))
		w.int(int64(in.A))
		for n < len(rest) && n < 16 && rest[n].Kind == in.Kind && rest[n] == used(&rest[n]) {
			w.int(int64(rest[n].A))
			n++
		}
	case workloads.Mark:
		w.begin("mark")
		w.word(markWords[in.Mark])
		if in.A != 0 || in.B != 0 {
			w.int(int64(in.A))
			w.int(int64(in.B))
		}
	case workloads.Sync:
		w.begin("sync")
		w.word(laneWords[in.Lane])
	case workloads.Record:
		if in.A != w.events {
			return 0, fmt.Errorf("event %d is recorded, but %d comes here", in.A, w.events)
		}
		w.events++
		w.begin("record")
		w.int(int64(in.A))
		w.word(laneWords[in.Lane])
	case workloads.Wait:
		w.begin("wait")
		w.int(int64(in.A))
		w.word(laneWords[in.Lane])
	}
	w.flush()
	return n, nil
}

// referenceWord is the keyword of an instruction about references; "" for
// others.
func referenceWord(k workloads.InstrKind) string {
	switch k {
	case workloads.Ref:
		return "ref"
	case workloads.Drop:
		return "drop"
	case workloads.Save:
		return "save"
	case workloads.Unpack:
		return "unpack"
	}
	return ""
}

// used is in with only those fields that its kind uses, which are those that
// the format holds.
func used(in *workloads.Instr) workloads.Instr {
	switch in.Kind {
	case workloads.Op:
		out := *in
		out.Mark, out.A, out.B = 0, 0, 0
		return out
	case workloads.Mark:
		return workloads.Instr{Kind: in.Kind, Mark: in.Mark, A: in.A, B: in.B}
	case workloads.Sync:
		return workloads.Instr{Kind: in.Kind, Lane: in.Lane}
	case workloads.Record, workloads.Wait:
		return workloads.Instr{Kind: in.Kind, Lane: in.Lane, A: in.A}
	}
	return workloads.Instr{Kind: in.Kind, A: in.A}
}

func (w *programWriter) op(in *workloads.Instr) error {
	if in.Flags&^(workloads.Replayable|workloads.Recomputed|workloads.Views) != 0 {
		return fmt.Errorf("operator flags %b are unknown", in.Flags)
	}
	if in.Host > maxAmount || in.Scratch > maxAmount {
		return fmt.Errorf("host time %d, scratch %d; allowed: up to %d", in.Host, in.Scratch, int64(maxAmount))
	}
	if err := w.kernelsUpTo(int(in.Kernel)); err != nil {
		return err
	}
	args := w.p.Args[in.ArgLo:in.ArgHi]
	types := make([]int, len(args)) // of arguments that are mentioned first
	for i, a := range args {
		types[i] = -1
		if a.View < 0 {
			return fmt.Errorf("view %d; must not be negative", a.View)
		}
		if !w.known[a.Storage] {
			t, err := w.typeOf(&w.p.Storages[a.Storage])
			if err != nil {
				return fmt.Errorf("storage %d: %w", a.Storage, err)
			}
			types[i] = t
			w.known[a.Storage] = true
		}
	}
	w.begin("op")
	w.word(quoted(w.names.String(in.Name)))
	if in.Kernel < 0 {
		w.word("-")
	} else {
		w.numbered('k', int64(in.Kernel))
	}
	for i, a := range args {
		w.numbered("rwu"[a.Mode], int64(a.Storage))
		if a.View != 0 {
			w.buf = append(w.buf, '.')
			w.buf = strconv.AppendInt(w.buf, int64(a.View), 10)
		}
		if types[i] >= 0 {
			w.buf = append(w.buf, ':')
			w.buf = strconv.AppendInt(w.buf, int64(types[i]), 10)
		}
	}
	if in.Lane != workloads.Compute {
		w.word("@" + laneWords[in.Lane])
	}
	w.option("host", int64(in.Host))
	w.option("scratch", int64(in.Scratch))
	w.flag("replayable", in.Flags&workloads.Replayable != 0)
	w.flag("recomputed", in.Flags&workloads.Recomputed != 0)
	w.flag("views", in.Flags&workloads.Views != 0)
	w.flush()
	return nil
}

// kernelsUpTo writes the kernels up to number last that are not yet written.
func (w *programWriter) kernelsUpTo(last int) error {
	for ; w.kernels <= last; w.kernels++ {
		k := &w.p.Kernels[w.kernels]
		if k.M < 0 || k.N < 0 || k.K < 0 || k.Size < 0 || k.Members < 0 || k.Stride < 0 || k.Tag < 0 || k.Collective >= hw.NumCollectives {
			return fmt.Errorf("kernel %d: %+v has a negative field or an unknown collective", w.kernels, *k)
		}
		if max(int64(k.Traffic), int64(k.Time), int64(k.Size), int64(k.Faulting[0]), int64(k.Faulting[1])) > maxAmount {
			return fmt.Errorf("kernel %d: traffic %d, time %d, size %d; allowed: up to %d", w.kernels, k.Traffic, k.Time, k.Size, int64(maxAmount))
		}
		for _, r := range k.Group {
			if r < 0 || int(r) >= w.ranks {
				return fmt.Errorf("kernel %d: rank %d in its group; there are %d ranks", w.kernels, r, w.ranks)
			}
		}
		w.begin("kernel")
		w.int(int64(w.kernels))
		w.word(kindWords[k.Kind])
		if k.Family != 0 || k.Kind == hw.Modelled || k.Kind == hw.Measured {
			w.word("family=" + familyWords[k.Family])
		}
		w.option("flops", k.Flops)
		w.option("traffic", int64(k.Traffic))
		if k.M != 0 || k.N != 0 || k.K != 0 {
			w.word(fmt.Sprintf("mnk=%dx%dx%d", k.M, k.N, k.K))
		}
		w.flag("16bit", k.Dtype16)
		w.option("time", int64(k.Time))
		w.option("inputs_fault", int64(k.Faulting[0]))
		w.option("all_fault", int64(k.Faulting[1]))
		if k.Collective != 0 || k.Kind == hw.Collective {
			w.word("collective=" + collectiveWords[k.Collective])
		}
		w.option("size", int64(k.Size))
		w.option("members", int64(k.Members))
		w.option("stride", int64(k.Stride))
		if len(k.Group) > 0 {
			w.word("group=" + joined(k.Group))
		}
		w.option("tag", int64(k.Tag))
		w.flush()
	}
	return nil
}

// begin starts a line with its keyword; the methods below add items and flush
// ends it.
func (w *writer) begin(keyword string) { w.buf = append(w.buf[:0], keyword...) }

func (w *writer) word(s string) {
	w.buf = append(w.buf, ' ')
	w.buf = append(w.buf, s...)
}

func (w *writer) int(v int64) {
	w.buf = append(w.buf, ' ')
	w.buf = strconv.AppendInt(w.buf, v, 10)
}

func (w *writer) numbered(prefix byte, v int64) {
	w.buf = append(w.buf, ' ', prefix)
	w.buf = strconv.AppendInt(w.buf, v, 10)
}

// option adds key=value unless the value is 0, which is what its absence means.
func (w *writer) option(key string, v int64) {
	if v != 0 {
		w.word(key)
		w.buf = append(w.buf, '=')
		w.buf = strconv.AppendInt(w.buf, v, 10)
	}
}

// flag adds a word that means true.
func (w *writer) flag(word string, set bool) {
	if set {
		w.word(word)
	}
}

func (w *writer) flush() {
	if len(w.buf) > lines.MaxLine {
		w.err = fmt.Errorf("a line of %d bytes (%.40s…); allowed: up to %d", len(w.buf), w.buf, lines.MaxLine)
	}
	w.buf = append(w.buf, '\n')
	w.w.Write(w.buf) // its first error stays, and comes back from Flush
}
