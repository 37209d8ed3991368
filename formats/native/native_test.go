package native_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"smartswap/formats/native"
	"smartswap/workloads"
)

func file(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func read(t testing.TB, text string) *native.Trace {
	t.Helper()
	w, err := native.Read(strings.NewReader(text), "f")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// The example in the package documentation is the demo file, and is what Write
// writes.
func TestDocumentedExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "// # Example\n//\n")
	example, _, ok2 := strings.Cut(rest, "// # Text\n")
	if !ok || !ok2 {
		t.Fatal("doc.go has lost its headings")
	}
	var text strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(example, "//\n")) {
		text.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "//"), "\t"))
	}
	demo := file(t, "demo.trace")
	if text.String() != demo {
		t.Errorf("doc.go shows\n%s\nbut the file is\n%s", text.String(), demo)
	}
	if got := roundTrip(t, read(t, demo), 3); got != demo {
		t.Errorf("written back:\n%s", got)
	}
}

func TestTwoRanks(t *testing.T) {
	w := read(t, file(t, "two-ranks.trace"))
	roundTrip(t, w, 2)
	if w.Name() != "two ranks" || len(w.Ranks()) != 2 || w.Iterations() != 2 {
		t.Errorf("%q, %d ranks, %d iterations", w.Name(), len(w.Ranks()), w.Iterations())
	}
	first, _ := w.Program(0, 0)
	second, _ := w.Program(0, 1)
	if first != second {
		t.Error("equal iterations have different programs")
	}
	skip, _ := w.Program(1, 1)
	later, err := w.Program(1, 100)
	if skip.Kind != "skip" || later != skip || err != nil {
		t.Errorf("iteration 1 is %q; iteration 100 must repeat it", skip.Kind)
	}
	op := first.Instrs[1]
	if got := first.Args[op.ArgLo:op.ArgHi]; got[1] != (workloads.Arg{Storage: 1, View: 2, Mode: workloads.Update}) {
		t.Errorf("arguments %+v", got)
	}
	if op.Host != 7 || op.Scratch != 256 || op.Flags != workloads.Recomputed {
		t.Errorf("operator %+v", op)
	}
	// Types in the order of numbers, not of birth.
	if p, _ := w.Program(1, 1); len(p.Storages) != 2 || p.Storages[0].Bytes != 512 {
		t.Errorf("storages %+v", p.Storages)
	}
}

// One change in a good file, and where and how it is refused.
func TestBadFiles(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"version":              {"trace 1", "trace 2", "f:1: the file begins with \"smartswap-trace 2\"; expected: smartswap-trace 1"},
		"keyword":              {"sync compute", "synch compute", "f:30: unknown keyword \"synch\"; allowed: workload"},
		"no program":           {"program train\n", "", "f:15: mark outside of a program"},
		"missing item":         {"sync compute", "sync", "f:30: the line ends; lane is missing"},
		"extra item":           {"sync compute", "sync compute 1", "f:30: \"1\" at the end of the line"},
		"lane":                 {"sync compute", "sync copy", "f:30: lane \"copy\"; allowed: compute comm peer"},
		"two workloads":        {"tokens 0", "workload x\ntokens 0", "f:5: a second workload"},
		"two tokens":           {"tokens 0", "tokens 0\ntokens 0", "f:6: a second number"},
		"no tokens":            {"tokens 0\n", "", "f:54: the file has no line \"tokens\""},
		"no workload":          {"workload \"two ranks\"\n", "", "f:54: the file has no line \"workload\""},
		"negative tokens":      {"tokens 0", "tokens -1", "f:5: tokens \"-1\"; allowed: a whole number from 0"},
		"float tokens":         {"tokens 0", "tokens 1e3", "f:5: tokens \"1e3\""},
		"name twice":           {"name recv", "name send", "f:7: the name appears twice"},
		"open quote":           {"\"work, then rest\" k0", "\"work, then rest k0", "f:20: a quoted name does not end"},
		"bad escape":           {"name \"two\\nlines\"", "name \"two\\zlines\"", "f:10: a quoted name"},
		"late name":            {"resident 0 0", "resident 0 0\nname x", "f:15: a name after the first rank"},
		"unknown name":         {"op send", "op sent", "f:23: operator \"sent\" has no line \"name\""},
		"unknown label":        {"256 \"two\\nlines\"", "256 two", "f:13: label \"two\" has no line"},
		"type number":          {"type 1 512", "type 2 512", "f:19: number of the type that comes next \"2\"; allowed: a whole number from 1 to 1"},
		"negative bytes":       {"type 1 512", "type 1 -1", "f:19: bytes \"-1\""},
		"absurd bytes":         {"type 1 512", "type 1 1125899906842625", "f:19: bytes"},
		"class":                {"comm-buffer", "buffer", "f:13: class \"buffer\"; allowed: activation"},
		"dtype":                {"fp32 256", "f32 256", "f:13: element type \"f32\"; allowed: bf16"},
		"shape":                {"fp32 256", "fp32 1x2x3x4x5", "f:13: shape"},
		"negative shape":       {"fp32 256", "fp32 -1", "f:13: shape"},
		"option":               {" flat", " flatt", "f:13: option \"flatt\"; allowed: layer= flat"},
		"option twice":         {" flat", " flat flat", "f:13: option \"flat\" appears twice"},
		"option without value": {" flat", " layer=", "f:13: option \"layer=\" has no value"},
		"no devices":           {"devices=0,1 ", "", "f:12: devices \"\""},
		"devices":              {"devices=0,1", "devices=0,", "f:12: devices \"\""},
		"device twice":         {"devices=2,3", "devices=2,1", "f:34: device 1 stands in two places"},
		"resident's type":      {"resident 0 0", "resident 0 1", "f:14: type \"1\"; allowed: a whole number from 0 to 0"},
		"resident before":      {"type 0 1024", "resident 0\ntype 0 1024", "f:13: type \"0\", but there are no types"},
		"resident later":       {"sync compute", "resident 0", "f:30: a resident after the first program"},
		"resident outside":     {"rank devices=0,1 stage=0", "resident 0", "f:12: this line belongs into a rank"},
		"kernel number":        {"kernel 1 transfer", "kernel 2 transfer", "f:18: number of the kernel that comes next \"2\""},
		"kernel kind":          {"kernel 1 transfer", "kernel 1 copy", "f:18: kind of kernel \"copy\"; allowed: modelled"},
		"family":               {"family=elementwise", "family=magic", "f:17: family \"magic\"; allowed: matmul"},
		"negative time":        {"time=1000", "time=-1000", "f:17: time \"-1000\""},
		"group":                {"group=0,1 tag=3\ntype", "group=0,2 tag=3\ntype", "f:18: rank 2 in the group; there are 2 ranks"},
		"kernel ahead":         {"op send k1", "op send k2", "f:23: kernel \"2\"; allowed: a whole number from 0 to 1"},
		"kernel word":          {"op send k1", "op send 1", "f:23: kernel \"1\"; allowed: - or one such as k0"},
		"untyped storage":      {"w2:1", "w2", "f:20: storage 2 is not mentioned before"},
		"unknown storage":      {"op send k1 r2", "op send k1 r3", "f:23: storage 3 is not mentioned before"},
		"typed twice":          {"op send k1 r2", "op send k1 r2:1", "f:23: \"r2:1\" gives storage 2 a type again"},
		"typed resident":       {"r0 u1.2", "r0:0 u1.2", "f:20: \"r0:0\" gives storage 0 a type again"},
		"bad view":             {"u1.2", "u1.x", "f:20: view \"x\""},
		"hole in the numbers":  {"w1:1 w0:1 @peer\nrecord 0 peer\nwait 0 compute\ndrop 0 1", "w2:1 w0:1 @peer\nrecord 0 peer\nwait 0 compute\ndrop 0 2", "f:44: program \"skip\": no storage 1"},
		"event number":         {"record 1 peer", "record 2 peer", "f:24: number of the event that comes next \"2\""},
		"event ahead":          {"wait 0 peer", "wait 1 peer", "f:22: event \"1\""},
		"half a mark":          {"mark iteration-begin\nkernel 0 measured", "mark iteration-begin 1\nkernel 0 measured", "f:16: "},
		"not well formed":      {"drop 2 2", "drop 2", "f:15: program \"train\": storage 2"},
		"late program":         {"iterations 0 0\n", "iterations 0 0\nprogram x\n", "f:33: a program after the iterations"},
		"no iterations":        {"iterations 0 0\n", "", "f:33: rank 0 ends without a line \"iterations\""},
		"uneven iterations":    {"iterations 1\n", "", "f:54: rank 1 has 1 iterations; allowed: 2, as rank 0 has"},
		"iteration's program":  {"iterations 1\n", "iterations 2\n", "f:53: program \"2\"; allowed: a whole number from 0 to 1"},
		"after the end":        {"\nend\n", "\nend\nend\n", "f:56: \"end\" after the line \"end\""},
		"no end":               {"\nend\n", "\n", "f:54: the file ends before its line \"end\""},
	} {
		good := file(t, "two-ranks.trace")
		bad := strings.Replace(good, c.old, c.new, 1)
		if bad == good {
			t.Fatalf("%s: nothing replaced", name)
		}
		w, err := native.Read(strings.NewReader(bad), "f")
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, error\n%v\nwant\n%s", name, w, err, c.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", name, err)
		}
	}
}

// What the format cannot hold is refused when it is written.
func TestUnwritable(t *testing.T) {
	good := read(t, file(t, "demo.trace"))
	for name, c := range map[string]struct {
		change func(*workloads.Rank, *workloads.Program)
		want   string
	}{
		"invalid":         {func(_ *workloads.Rank, p *workloads.Program) { p.Ops = 7 }, "operators: the program says 7"},
		"other residents": {func(r *workloads.Rank, _ *workloads.Program) { r.Residents = nil }, "residents are not those"},
		"other names":     {func(_ *workloads.Rank, p *workloads.Program) { p.Names = twoNames() }, "names are not those"},
		"no device":       {func(r *workloads.Rank, _ *workloads.Program) { r.Devices = nil }, "at least one device"},
		"device twice":    {func(r *workloads.Rank, _ *workloads.Program) { r.Devices = []int{1, 1} }, "device 1 stands in two places"},
		"unused field":    {func(_ *workloads.Rank, p *workloads.Program) { p.Instrs[1].Scratch = 1 }, "does not use"},
		"flags":           {func(_ *workloads.Rank, p *workloads.Program) { p.Instrs[2].Flags = 128 }, "flags"},
		"unrecorded":      {func(_ *workloads.Rank, p *workloads.Program) { p.Events = 1 }, "1 events, but 0 are recorded"},
		"dtype":           {func(_ *workloads.Rank, p *workloads.Program) { p.Storages[1].DType = 77 }, "element type 77"},
		"label":           {func(_ *workloads.Rank, p *workloads.Program) { p.Storages[1].Label = -1 }, "label -1"},
		"negative shape":  {func(_ *workloads.Rank, p *workloads.Program) { p.Storages[1].Shape[2] = -1 }, "none may be negative"},
		"huge":            {func(_ *workloads.Rank, p *workloads.Program) { p.Storages[1].Bytes = 1<<50 + 1 }, "allowed: up to"},
		"long":            {func(_ *workloads.Rank, p *workloads.Program) { p.Kernels[0].Time = 1<<50 + 1 }, "allowed: up to"},
		"group":           {func(_ *workloads.Rank, p *workloads.Program) { p.Kernels[0].Group = []int32{1} }, "there are 1 ranks"},
		"negative kernel": {func(_ *workloads.Rank, p *workloads.Program) { p.Kernels[0].M = -1 }, "negative field"},
	} {
		rank := good.Ranks()[0]
		p, _ := good.Program(0, 0)
		changed := *p
		changed.Storages = append([]workloads.Storage(nil), p.Storages...)
		changed.Kernels = append([]workloads.Kernel(nil), p.Kernels...)
		changed.Instrs = append([]workloads.Instr(nil), p.Instrs...)
		c.change(&rank, &changed)
		w := native.NewTrace("x", 0, good.Names(), []workloads.Rank{rank}, [][]*workloads.Program{{&changed}})
		if err := native.Write(&bytes.Buffer{}, w, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
	if err := native.Write(&bytes.Buffer{}, good, 0); err == nil {
		t.Error("no iterations: no error")
	}
	if err := native.Write(full{}, good, 1); err == nil {
		t.Error("full disk: no error")
	}
}

func twoNames() *workloads.Names {
	n := workloads.NewNames()
	for _, s := range []string{"a", "b", "c"} {
		n.ID(s)
	}
	return n
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, os.ErrClosed }

// Any text is refused or gives a workload that survives a round trip.
func FuzzRead(f *testing.F) {
	f.Add(file(f, "demo.trace"))
	f.Add(file(f, "two-ranks.trace"))
	f.Fuzz(func(t *testing.T, text string) {
		w, err := native.Read(strings.NewReader(text), "f")
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		roundTrip(t, w, w.Iterations())
	})
}
