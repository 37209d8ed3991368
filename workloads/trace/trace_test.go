package trace_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"smartswap/formats/formatstest"
	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
	"smartswap/workloads/workloadstest"
)

var regen = flag.Bool("regen", false, "write golden files anew")

const small = "testdata/g10/traces/Small/cudnn64.txt"

func open(t testing.TB, path string, opt trace.Options) (workloads.Workload, trace.Report) {
	t.Helper()
	w, rep, err := trace.Open(path, opt)
	if err != nil {
		t.Fatal(err)
	}
	return w, rep
}

func program(t testing.TB, w workloads.Workload) *workloads.Program {
	t.Helper()
	p, err := w.Program(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// total is the sum of the kernel times; it fails if anything else takes time on
// the device.
func total(t testing.TB, p *workloads.Program) sim.Time {
	t.Helper()
	sum := sim.Time(0)
	for i, in := range p.Instrs {
		switch in.Kind {
		case workloads.Op:
			k := p.Kernels[in.Kernel]
			if k.Kind != hw.Measured || in.Lane != workloads.Compute || in.Host != 0 {
				t.Errorf("instruction %d: %+v, %+v", i, in, k)
			}
			sum += k.Time
		case workloads.Sync, workloads.Record, workloads.Wait:
			t.Errorf("instruction %d: %+v", i, in)
		}
	}
	return sum
}

// writtenSum adds up a kernel-time file as decimal numbers.
func writtenSum(t testing.TB, path string) sim.Time {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := new(big.Rat)
	for line := range strings.Lines(string(text)) {
		ms, ok := new(big.Rat).SetString(strings.Fields(line)[1])
		if !ok {
			t.Fatal(line)
		}
		sum.Add(sum, ms)
	}
	sum.Mul(sum, big.NewRat(int64(sim.Millisecond), 1))
	if !sum.IsInt() {
		t.Fatal("not whole picoseconds")
	}
	return sim.Time(sum.Num().Int64())
}

func count(p *workloads.Program, kind workloads.InstrKind) (n int) {
	for _, in := range p.Instrs {
		if in.Kind == kind {
			n++
		}
	}
	return n
}

func native1(t testing.TB, w workloads.Workload) string {
	t.Helper()
	var b bytes.Buffer
	if err := native.Write(&b, w, 1); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The whole conversion of a small network, as a native file; the sums beside it
// hold whatever the golden file says.
func TestSmall(t *testing.T) {
	w, rep := open(t, small, trace.Options{})
	p := program(t, w)
	const golden = "testdata/small.trace"
	got := native1(t, w)
	if *regen {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Error(d)
	}

	const page = 4096
	if p.Ops != 19 || len(p.Storages) != 21 || p.Residents != 3 {
		t.Errorf("%d operators, %d storages, %d residents", p.Ops, len(p.Storages), p.Residents)
	}
	if got, want := total(t, p), writtenSum(t, small); got != want {
		t.Errorf("kernels take %d ps, the file says %d", got, want)
	}
	// Live tensors peak at 16 pages, at kernel 8, which has no workspace; those
	// of the other kernels fit below.
	if peak := workloads.PeakLive(p, 1); peak != 16*page {
		t.Errorf("peak %d", peak)
	}
	// Tensors 0, 2, 8, 13, 14 are made before makeLoss and read after it.
	if s, u := count(p, workloads.Save), count(p, workloads.Unpack); s != 5 || u != 5 {
		t.Errorf("%d saved, %d unpacked", s, u)
	}
	if w.Name() != "Small/b64" || w.Tokens() != 0 || len(w.Ranks()) != 1 {
		t.Errorf("%s, %d tokens, %d ranks", w.Name(), w.Tokens(), len(w.Ranks()))
	}
	if again, _ := w.Program(0, 7); again != p {
		t.Error("equal iterations have different programs")
	}
	if rep.Format != "g10" || len(rep.Files) != 3 || rep.Files[0] != small {
		t.Errorf("report %+v", rep)
	}
	notes := fmt.Sprint(rep.Notes)
	for _, want := range []string{"inferred: batch size 64", "inferred: 5 tensors", "families"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in %s", want, notes)
		}
	}
}

// What the small files of the other formats become, as native files. The tests of
// each format check the sums beside them.
func TestGolden(t *testing.T) {
	for name, path := range map[string]string{"ascend": smallAscend(t), "dtr": smallDTR, "kineto": smallKineto, "et": smallET, "chakra": smallChakra} {
		w, _ := open(t, path, trace.Options{})
		golden := filepath.Join("testdata", name+".trace")
		got := native1(t, w)
		if *regen {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		copied := filepath.Join(t.TempDir(), "copy.trace")
		if err := trace.Export(copied, w, 1); err != nil {
			t.Fatal(err)
		}
		again, _ := open(t, copied, trace.Options{})
		if native1(t, again) != got {
			t.Errorf("%s: the export is another workload", name)
		}
	}
}

// A folder and a network, and files in other places, give the same workload.
func TestOtherWaysToOpen(t *testing.T) {
	w, _ := open(t, small, trace.Options{})
	want := native1(t, w)
	w, _ = open(t, "testdata/g10", trace.Options{Network: "Small", Batch: 64})
	if got := native1(t, w); got != want {
		t.Error("the folder gives another workload")
	}
	dir := filepath.Join(t.TempDir(), "Small")
	for to, from := range map[string]string{
		"times": small, "net": "testdata/g10/nets/Small.txt", "scratch": "testdata/g10/traces/Small/cudnn64Workspace.txt",
	} {
		pack(t, from, filepath.Join(dir, to))
	}
	w, rep := open(t, filepath.Join(dir, "times"), trace.Options{
		Batch: 64, Net: filepath.Join(dir, "net"), Scratch: filepath.Join(dir, "scratch"),
	})
	if got := native1(t, w); got != want {
		t.Error("packed files give another workload")
	}
	if strings.Contains(fmt.Sprint(rep.Notes), "batch") {
		t.Errorf("nothing about the batch was inferred: %v", rep.Notes)
	}
}

// A Chrome trace may be a bare list, over several lines, and end anywhere.
func TestBareList(t *testing.T) {
	var file struct {
		Events []json.RawMessage `json:"traceEvents"`
	}
	text, err := os.ReadFile(smallKineto)
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	w, _ := open(t, smallKineto, trace.Options{})
	want := workloads.PeakLive(program(t, w), 1)
	var lines []string
	for _, e := range file.Events {
		lines = append(lines, string(e))
	}
	all := strings.Join(lines, ",\n")
	for name, text := range map[string]string{
		"one line": "[" + all + "]", "lines": "[\n" + all + "\n]", "indented": "[\n  " + all + "\r\n]", "killed": "[\n" + all + ",\n", "space first": "\n\n [\n" + all + "]",
	} {
		path := filepath.Join(t.TempDir(), "list.json")
		write(t, path, text)
		w, rep := open(t, path, trace.Options{})
		if got := workloads.PeakLive(program(t, w), 1); rep.Format != "chrome" || got != want {
			t.Errorf("%s: format %s, peak %d, want %d", name, rep.Format, got, want)
		}
	}
}

// pack copies a file packed with gzip.
func pack(t testing.TB, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(text)
	z.Close()
	write(t, to, b.String())
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A network whose text is a printed module comes from its tables.
func TestTables(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "nets", "Small.txt"), "Net(\n  (fc): Linear()\n)\n")
	times := filepath.Join(dir, "traces", "Small", "cudnn64.txt")
	text, err := os.ReadFile(small)
	if err != nil {
		t.Fatal(err)
	}
	write(t, times, string(text))
	tables := filepath.Join("..", "..", "formats", "g10", "testdata")
	pack(t, filepath.Join(tables, "small.kernels.csv"), filepath.Join(dir, "graph", "Small-64.kernels.csv.gz"))
	pack(t, filepath.Join(tables, "small.tensors.csv"), filepath.Join(dir, "graph", "Small-64.tensors.csv.gz"))
	w, rep := open(t, times, trace.Options{})
	text2, _ := open(t, small, trace.Options{})
	got, want := program(t, w), program(t, text2)
	if total(t, got) != total(t, want) || got.Ops != want.Ops || len(got.Instrs) != len(want.Instrs) {
		t.Error("the tables give another program than the text")
	}
	if !strings.Contains(fmt.Sprint(rep.Notes), "skipped: not the text of a transformer") {
		t.Errorf("notes %v", rep.Notes)
	}
}

func TestExport(t *testing.T) {
	w, _ := open(t, small, trace.Options{})
	want := native1(t, w)
	dir := t.TempDir()
	for _, name := range []string{"a.trace", "a.trace.gz"} {
		path := filepath.Join(dir, name)
		if err := trace.Export(path, w, 1); err != nil {
			t.Fatal(err)
		}
		again, rep := open(t, path, trace.Options{})
		if got := native1(t, again); got != want || rep.Format != "native" {
			t.Errorf("%s: another workload, format %q", name, rep.Format)
		}
	}
	// A failed export leaves nothing, and an older file alone.
	if err := trace.Export(filepath.Join(dir, "a.trace"), w, 0); err == nil {
		t.Error("no iterations: no error")
	}
	if err := trace.Export(filepath.Join(dir, "none", "a.trace"), w, 1); err == nil {
		t.Error("no folder: no error")
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
	if again, _ := open(t, filepath.Join(dir, "a.trace"), trace.Options{}); native1(t, again) != want {
		t.Error("a failed export changed the file")
	}
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile(small)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	make := func(name, text string) string {
		path := filepath.Join(dir, "traces", "Small", name)
		write(t, path, text)
		return path
	}
	net, err := os.ReadFile("testdata/g10/nets/Small.txt")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "nets", "Small.txt"), string(net))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(text)
	z.Close()
	for name, c := range map[string]struct {
		path string
		opt  trace.Options
		want string
	}{
		"missing":           {"testdata/none", trace.Options{}, "testdata/none: no such file"},
		"empty":             {make("empty", ""), trace.Options{}, "empty:1: the file is empty"},
		"unknown":           {make("unknown", "{\"events\": []}"), trace.Options{}, "unknown format"},
		"truncated times":   {make("cudnn64.txt", strings.Join(lines[:10], "")), trace.Options{}, "10 kernel times, but the network has 19 kernels"},
		"cut line":          {make("cudnn65.txt", strings.Join(lines[:10], "")+"0010 1."), trace.Options{}, "cudnn65.txt:11: "},
		"damaged time":      {make("cudnn66.txt", strings.Replace(string(text), "1.007931", "1.00793x", 1)), trace.Options{}, "cudnn66.txt:2: value \"1.00793x\""},
		"truncated archive": {make("cudnn67.txt", packed.String()[:packed.Len()-20]), trace.Options{}, "unexpected EOF"},
		"no batch":          {make("times.txt", string(text)), trace.Options{}, "the name does not tell the batch size"},
		"negative batch":    {small, trace.Options{Batch: -1}, "batch size -1; allowed: 1 to"},
		"no net":            {small, trace.Options{Net: filepath.Join(dir, "none")}, "no such file"},
		"net is a folder":   {small, trace.Options{Net: dir}, dir + ": is a folder; allowed: a file"},
		"damaged net":       {small, trace.Options{Net: make("net", "300\nTanh\n")}, "net:2: the file ends inside a record"},
		"no tables":         {small, trace.Options{Net: make("printed", "Net(")}, "Small-64.kernels.csv.gz: no such file"},
		"scratch":           {small, trace.Options{Scratch: make("scratch", "0000 1 B\n")}, "1 workspaces, but the network has 19 kernels"},
		"border":            {small, trace.Options{Globals: 400}, "is that of a global"},
		"native":            {make("native", "smartswap-trace 1\nend\n"), trace.Options{}, "native:2: the file has no line \"workload\""},
		"folder":            {"testdata", trace.Options{}, "a folder of no known layout; allowed: a file, one rank's folder of the Ascend profiler"},
		"white space":       {make("white", "\n\n"), trace.Options{}, "white:1: unknown format"},
		"list, cut":         {make("cutlist", "[\n"), trace.Options{}, "cutlist:2: the file ends inside a value"},
		"list of messages":  {make("proto", "[\n\x05"), trace.Options{}, "message 1: the file ends inside it"},
		"network":           {"testdata/g10", trace.Options{Network: "Smal"}, "network \"Smal\"; allowed: Small"},
		"batch":             {"testdata/g10", trace.Options{Network: "Small", Batch: 65}, "batch size 65 of Small; allowed: 64"},
	} {
		_, _, err := trace.Open(c.path, c.opt)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
}

// BERT-base, batch 256, against the sums of the origin's own graph.
func TestBERT256(t *testing.T) {
	path := filepath.Join(formatstest.Shared(t, "g10"), "traces", "BERT_Base", "cudnn256.txt")
	w, rep := open(t, path, trace.Options{})
	p := program(t, w)
	if p.Ops != 1369 || len(p.Storages) != 1463 {
		t.Errorf("%d operators, %d storages", p.Ops, len(p.Storages))
	}
	if got, want := total(t, p), writtenSum(t, path); got != want {
		t.Errorf("kernels take %d ps, the file says %d", got, want)
	}
	classes := workloads.Totals(p.Storages)
	if classes[workloads.Parameter] != 17_823_494_144 {
		t.Errorf("globals %d", classes[workloads.Parameter])
	}
	sum := sim.Bytes(0)
	for _, b := range classes {
		sum += b
	}
	if sum != 158_958_346_240 {
		t.Errorf("footprint %d", sum)
	}
	if peak := workloads.PeakLive(p, 1); peak != 51_282_243_584 {
		t.Errorf("peak %d", peak)
	}
	if at, op := peakOp(p); op != 486 {
		t.Errorf("peak at operator %d (instruction %d)", op, at)
	}
	if set := largestSet(p); set != 2_415_919_104 {
		t.Errorf("largest working set %d", set)
	}
	for _, n := range rep.Notes {
		t.Log(n)
	}

	// Exported and opened again, nothing is lost.
	copied := filepath.Join(t.TempDir(), "bert.trace")
	if err := trace.Export(copied, w, 2); err != nil {
		t.Fatal(err)
	}
	again, _ := open(t, copied, trace.Options{})
	if native1(t, again) != native1(t, w) {
		t.Error("the export is another workload")
	}
	info, err := os.Stat(copied)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("native file: %d bytes for %d operators", info.Size(), p.Ops)
}

// peakOp is the instruction and the operator at which live bytes are first at
// their largest.
func peakOp(p *workloads.Program) (instr, op int) {
	refs := make([]int, len(p.Storages))
	var live, peak sim.Bytes
	ops := -1
	for i, in := range p.Instrs {
		switch in.Kind {
		case workloads.Op:
			ops++
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if int32(a.Storage) >= p.Residents && refs[a.Storage] == 0 {
					refs[a.Storage] = 1
					live += p.Storages[a.Storage].Bytes
				}
			}
			if live > peak {
				peak, instr, op = live, i, ops
			}
		case workloads.Ref:
			refs[in.A]++
		case workloads.Drop:
			if refs[in.A]--; refs[in.A] == 0 {
				live -= p.Storages[in.A].Bytes
			}
		}
	}
	return instr, op
}

// largestSet is the largest sum of one operator's storages.
func largestSet(p *workloads.Program) (largest sim.Bytes) {
	for _, in := range p.Instrs {
		seen := map[workloads.StorageID]bool{}
		set := sim.Bytes(0)
		for _, a := range p.Args[in.ArgLo:in.ArgHi] {
			if !seen[a.Storage] {
				seen[a.Storage] = true
				set += p.Storages[a.Storage].Bytes
			}
		}
		largest = max(largest, set)
	}
	return largest
}

// Every published workload opens and keeps the origin's peak of live bytes.
func TestAllRealFiles(t *testing.T) {
	dir := formatstest.Shared(t, "g10")
	summary, err := os.ReadFile(filepath.Join(dir, "graph", "summary.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(summary)), "\n")[1:]
	for _, row := range rows {
		f := strings.Split(row, ",")
		path := filepath.Join(dir, "traces", f[0], "cudnn"+f[1]+".txt")
		w, _ := open(t, path, trace.Options{})
		p := program(t, w)
		if got, want := total(t, p), writtenSum(t, path); got != want {
			t.Errorf("%s: kernels take %d ps, the file says %d", path, got, want)
		}
		if peak := fmt.Sprint(int64(workloads.PeakLive(p, 1))); peak != f[8] {
			t.Errorf("%s: peak %s, want %s", path, peak, f[8])
		}
	}
}

func TestConforms(t *testing.T) {
	workloadstest.Conformance(t, 2, func() workloads.Workload {
		w, _ := open(t, small, trace.Options{})
		return w
	})
}
