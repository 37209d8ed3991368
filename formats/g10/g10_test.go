package g10_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/formats/formatstest"
	"smartswap/formats/g10"
	"smartswap/sim"
)

// open opens a file, unpacked if it ends in .gz.
func open(t testing.TB, path string) io.Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if !strings.HasSuffix(path, ".gz") {
		return f
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func readNet(t testing.TB, path string) *g10.Net {
	t.Helper()
	net, err := g10.ReadNet(open(t, path), path)
	if err != nil {
		t.Fatal(err)
	}
	return net
}

func readTables(t testing.TB, prefix, suffix string) *g10.Graph {
	t.Helper()
	k, s := prefix+".kernels.csv"+suffix, prefix+".tensors.csv"+suffix
	g, err := g10.ReadTables(open(t, k), k, open(t, s), s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// unshaped is g without shapes, which tables do not have.
func unshaped(g *g10.Graph) *g10.Graph {
	c := *g
	c.Tensors = append([]g10.Tensor(nil), g.Tensors...)
	for i := range c.Tensors {
		c.Tensors[i].Shape = [4]int32{}
	}
	return &c
}

func TestTimesAreExact(t *testing.T) {
	for in, want := range map[string]sim.Time{
		"0":           0,
		"0.000000001": 1,
		"2.528256":    2_528_256_000,
		"2.5282560":   2_528_256_000,
		"2":           2_000_000_000,
		// As a float: 9018559570999.998.
		"9018.559571":        9_018_559_571_000,
		"0.1000000000000000": 100_000_000,
		"30000":              30 * sim.Second,
	} {
		got, err := g10.ReadTimes(strings.NewReader("0000 "+in+" ms"), "f")
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, %v; want %d", in, got, err, want)
		}
	}
}

// Whatever number of picoseconds is written comes back.
func TestTimesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Int64Range(0, int64(30*sim.Second)), 1, 20).Draw(t, "ps")
		var text strings.Builder
		for i, ps := range want {
			ms := new(big.Rat).SetFrac64(ps, int64(sim.Millisecond))
			fmt.Fprintf(&text, "%04d %s ms\n", i, ms.FloatString(9))
		}
		got, err := g10.ReadTimes(strings.NewReader(text.String()), "f")
		if err != nil || len(got) != len(want) {
			t.Fatalf("%v, %v", got, err)
		}
		for i := range want {
			if int64(got[i]) != want[i] {
				t.Errorf("kernel %d: %d ps, want %d", i, got[i], want[i])
			}
		}
	})
}

func TestBadTimes(t *testing.T) {
	for in, want := range map[string]string{
		"":                                      "f:1: the file is empty",
		"0000 1 ms\n\n":                         "f:2: \"\" is not a line",
		"0000 1 ms\n0001 2":                     "f:2: \"0001 2\" is not a line",
		"0000 1 ms\n0002 2 ms":                  "f:2: kernel number \"0002\", but kernel 1 comes here",
		"0000 1 s":                              "f:1: unit \"s\" of kernel 0; allowed: ms",
		"0000 1.0000000001 ms":                  "f:1: value \"1.0000000001\" of kernel 0; allowed: a decimal",
		"0000 -1 ms":                            "f:1: value \"-1\"",
		"0000 1e3 ms":                           "f:1: value \"1e3\"",
		"0000 NaN ms":                           "f:1: value \"NaN\"",
		"0000 . ms":                             "f:1: value \".\"",
		"0000 1. ms":                            "f:1: value \"1.\"",
		"0000 30000.000001 ms":                  "f:1: value \"30000.000001\" of kernel 0; allowed: at most 30000 ms",
		"0000 99999999999999999999999999999 ms": "f:1: value",
	} {
		got, err := g10.ReadTimes(strings.NewReader(in), "f")
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, error %v; want %q", in, got, err, want)
		}
	}
}

func TestScratch(t *testing.T) {
	got, err := g10.ReadScratch(strings.NewReader("0000 0 B\n0001 17592186044416 B"), "f")
	if err != nil || len(got) != 2 || got[0] != 0 || got[1] != 1<<44 {
		t.Errorf("%v, %v", got, err)
	}
	for _, in := range []string{"0000 1.0 B", "0000 17592186044417 B", "0000 -1 B", "0000 1 ms"} {
		if got, err := g10.ReadScratch(strings.NewReader(in), "f"); err == nil {
			t.Errorf("%q: %v, no error", in, got)
		}
	}
}

// The small network's tables were worked out by hand from the rules that
// Net.Graph states.
func TestSmallNet(t *testing.T) {
	net := readNet(t, "testdata/small.net.txt")
	got, err := net.Graph(64, g10.BERTGlobals)
	if err != nil {
		t.Fatal(err)
	}
	want := readTables(t, "testdata/small", "")
	if d := cmp.Diff(want, unshaped(got)); d != "" {
		t.Error(d)
	}
	if s := got.Tensors[0].Shape; s != [4]int32{64, 4, 8} {
		t.Errorf("shape of the first output %v", s)
	}
	const page = 4096
	// 13 tensors of two pages, 8 of one.
	if b := got.Footprint(); b != 34*page {
		t.Errorf("footprint %d", b)
	}
	if b := got.GlobalBytes(); b != 3*page {
		t.Errorf("globals %d", b)
	}
	// Add_Forward and others: three tensors of two pages.
	if b, k := got.LargestWorkingSet(); b != 6*page || k != 2 {
		t.Errorf("largest working set %d at kernel %d", b, k)
	}
	// At the second Multiply_Backward: 3 globals; 2, 14 and 19 of one page; 0, 8,
	// 13, 18 and 20 of two.
	if b, k := got.PeakLive(); b != 16*page || k != 8 {
		t.Errorf("peak %d at kernel %d", b, k)
	}
}

func TestBadNets(t *testing.T) {
	const dashes = "\n-----\n"
	// lines makes a record of words.
	lines := func(s string) string { return strings.ReplaceAll(s, " ", "\n") }
	tanh := lines("300 Tanh 1 290 1 99")
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {"\n\n", "f:1: the file has no records"},
		"truncated":       {lines("300 Add 2 290"), "f:4: the file ends inside a record; input id is expected"},
		"truncated dims":  {lines("300 Tanh 1 290 2 99"), "f:6: the file ends inside a record; dimension is expected"},
		"no dashes":       {tanh + "\n301\n", "f:7: \"301\" after the record of line 1; a line of dashes"},
		"not a number":    {lines("x Tanh 1 290 1 99"), "f:1: output id \"x\"; allowed: a whole number"},
		"negative":        {lines("300 Tanh 1 290 1 -99"), "f:6: dimension \"-99\"; allowed: a whole number from 1"},
		"too many inputs": {lines("300 Add 2000000000 1"), "f:3: number of inputs"},
		"unknown op":      {lines("300 Sin 1 290 1 99"), "f:1: unknown operator \"Sin\"; allowed: Add"},
		"arity":           {lines("300 Add 1 290 1 99"), "f:1: Add has 1 inputs; allowed: 2"},
		"global output":   {lines("209 Tanh 1 290 1 99"), "f:1: output id 209 is that of a global"},
		"output twice":    {tanh + dashes + tanh, "f:8: output id 300 is used"},
		"used before":     {lines("301 Tanh 1 300 1 99") + dashes + tanh, "f:8: output id 300 is used"},
		"huge tensor":     {lines("300 Tanh 1 290 4 1000000 1000000 1000000 1000000"), "f:1: a tensor of dimensions"},
		"two weights":     {lines("300 Dot 2 1 2 1 99 1 99"), "f:1: Dot of 1 and 2; allowed: one weight"},
		"half a softmax":  {lines("300 SoftmaxBasic 1 290 1 99"), "f:1: a softmax is four"},
		"unread output":   {tanh + dashes + lines("301 Tanh 1 290 1 99"), "f:1: no later record reads"},
	} {
		net, err := g10.ReadNet(strings.NewReader(c.text), "f")
		if err == nil {
			_, err = net.Graph(4, g10.BERTGlobals)
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
	net := readNet(t, "testdata/small.net.txt")
	for _, batch := range []int{-1, 0, g10.MaxBatch + 1} {
		if _, err := net.Graph(batch, g10.BERTGlobals); err == nil {
			t.Errorf("batch %d: no error", batch)
		}
	}
}

func TestBadTables(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile("testdata/small." + name + ".csv")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	kernels, tensors := read("kernels"), read("tensors")
	for name, c := range map[string]struct{ file, old, new, want string }{
		"header":          {"k", "kernel,", "kernels,", "k:1: the table starts with"},
		"columns":         {"k", "2,Add_Forward,10,", "2,Add_Forward,", "k:4: 4 columns; allowed: 5"},
		"row number":      {"k", "2,Add", "3,Add", "k:4: row number \"3\", but row 2"},
		"unknown tensor":  {"k", "16,20", "16,21", "k:8: tensors \"16\", \"21\"; allowed"},
		"descending":      {"k", "1;2", "2;1", "k:2: tensors"},
		"no type":         {"k", "makeLoss", "", "k:8: type \"\""},
		"bytes":           {"t", "0,0,8192", "0,0,8191", "t:2: bytes \"8191\"; allowed: a multiple of 4096"},
		"too many bytes":  {"t", "0,0,8192", "0,0,99999999999999999", "t:2: bytes"},
		"global":          {"t", "1,1,4096", "1,2,4096", "t:3: global \"2\"; allowed: 0, 1"},
		"wrong death":     {"t", "4096,17,19", "4096,17,18", "t:5: tensor 3 lives from \"17\" to \"18\", but the kernels say \"17\" to \"19\""},
		"untouched":       {"t", "20,0,8192,6,9\n", "20,0,8192,6,9\n21,0,4096,0,1\n", "k: no kernel touches local tensor 21"},
		"truncated table": {"t", "20,0,8192,6,9\n", "", "k:8: tensors"},
	} {
		k, s := kernels, tensors
		if c.file == "k" {
			k = strings.Replace(k, c.old, c.new, 1)
		} else {
			s = strings.Replace(s, c.old, c.new, 1)
		}
		if k == kernels && s == tensors {
			t.Fatalf("%s: nothing replaced", name)
		}
		_, err := g10.ReadTables(strings.NewReader(k), "k", strings.NewReader(s), "t")
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
}

// The front end on the real text against the tables of the origin's front end,
// for every batch size that has tables.
func TestBERTAgreesWithTables(t *testing.T) {
	dir := formatstest.Shared(t, "g10")
	net := readNet(t, filepath.Join(dir, "nets", "BERT_Base.txt"))
	for _, batch := range []int{128, 256, 384, 512, 640, 768, 1024} {
		got, err := net.Graph(batch, g10.BERTGlobals)
		if err != nil {
			t.Fatal(err)
		}
		want := readTables(t, filepath.Join(dir, "graph", fmt.Sprintf("BERT_Base-%d", batch)), ".gz")
		if d := cmp.Diff(want, unshaped(got)); d != "" {
			t.Fatalf("batch %d:\n%s", batch, d)
		}
	}
}

// Published sums of BERT at batch 256.
func TestBERT256(t *testing.T) {
	dir := formatstest.Shared(t, "g10")
	g, err := readNet(t, filepath.Join(dir, "nets", "BERT_Base.txt")).Graph(256, g10.BERTGlobals)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Kernels) != 1369 || len(g.Tensors) != 1463 {
		t.Errorf("%d kernels, %d tensors", len(g.Kernels), len(g.Tensors))
	}
	if b := g.Footprint(); b != 158_958_346_240 || fmt.Sprintf("%.2f", float64(b)/float64(sim.GiB)) != "148.04" {
		t.Errorf("footprint %d", b)
	}
	if b := g.GlobalBytes(); b != 17_823_494_144 {
		t.Errorf("globals %d", b)
	}
	if b, _ := g.LargestWorkingSet(); b != 2_415_919_104 {
		t.Errorf("largest working set %d", b)
	}
	if b, k := g.PeakLive(); b != 51_282_243_584 || k != 486 {
		t.Errorf("peak %d at kernel %d", b, k)
	}

	// Times: the sum as decimal arithmetic on the text, and the origin's
	// ideal, which rounds each kernel down to cycles of 1.2 GHz.
	path := filepath.Join(dir, "traces", "BERT_Base", "cudnn256.txt")
	times, err := g10.ReadTimes(open(t, path), path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	want := new(big.Rat)
	for line := range strings.Lines(string(text)) {
		ms, ok := new(big.Rat).SetString(strings.Fields(line)[1])
		if !ok {
			t.Fatal(line)
		}
		want.Add(want, ms)
	}
	want.Mul(want, big.NewRat(int64(sim.Millisecond), 1))
	var got sim.Time
	var cycles int64
	for _, ps := range times {
		got += ps
		// As the origin: in floats, which puts nine whole numbers one lower.
		cycles += int64(ps.Milliseconds() * 1.2e9 / 1000)
	}
	if !want.IsInt() || want.Num().Int64() != int64(got) || len(times) != len(g.Kernels) {
		t.Errorf("%d times, sum %d ps, want %s", len(times), got, want)
	}
	if cycles != 8_742_558_777 {
		t.Errorf("%d cycles", cycles)
	}
}

// Every real file reads, and the tables of every network agree with the
// published summary.
func TestAllRealFiles(t *testing.T) {
	dir := formatstest.Shared(t, "g10")
	files, err := filepath.Glob(filepath.Join(dir, "traces", "*", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	kernels := map[string]int{"BERT_Base": 1369, "Inceptionv3": 929, "ResNet152": 1299}
	for _, path := range files {
		n := 0
		if strings.HasSuffix(path, "Workspace.txt") {
			scratch, err := g10.ReadScratch(open(t, path), path)
			if err != nil {
				t.Error(err)
			}
			n = len(scratch)
		} else {
			times, err := g10.ReadTimes(open(t, path), path)
			if err != nil {
				t.Error(err)
			}
			n = len(times)
		}
		if want := kernels[filepath.Base(filepath.Dir(path))]; n != want {
			t.Errorf("%s: %d values, want %d", path, n, want)
		}
	}
	summary, err := io.ReadAll(open(t, filepath.Join(dir, "graph", "summary.csv")))
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(summary)), "\n")[1:]
	for _, row := range rows {
		f := strings.Split(row, ",")
		g := readTables(t, filepath.Join(dir, "graph", f[0]+"-"+f[1]), ".gz")
		peak, at := g.PeakLive()
		set, _ := g.LargestWorkingSet()
		got := []string{
			strconv.Itoa(len(g.Kernels)), strconv.Itoa(len(g.Tensors)), f[4],
			strconv.Itoa(int(g.GlobalBytes())), strconv.Itoa(int(g.Footprint())), f[7],
			strconv.Itoa(int(peak)), strconv.Itoa(at), strconv.Itoa(int(set)),
		}
		if d := cmp.Diff(f[2:11], got); d != "" {
			t.Errorf("%s-%s:\n%s", f[0], f[1], d)
		}
	}
}

func FuzzReadNet(f *testing.F) {
	small, err := os.ReadFile("testdata/small.net.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(small), 64)
	f.Add("300\nTanh\n1\n290\n1\n99\n", 1)
	f.Fuzz(func(t *testing.T, text string, batch int) {
		net, err := g10.ReadNet(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		g, err := net.Graph(batch, g10.BERTGlobals)
		if err != nil {
			return
		}
		for i, k := range g.Kernels {
			for _, a := range append(k.In, k.Out...) {
				if ten := g.Tensors[a]; !ten.Global && (int(ten.Birth) > i || int(ten.Death) <= i) {
					t.Errorf("kernel %d touches tensor %d outside of its life", i, a)
				}
			}
		}
	})
}
