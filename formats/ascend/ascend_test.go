package ascend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/formats/formatstest"
	"smartswap/formats/notes"
	"smartswap/sim"
)

func readKernels(r io.Reader, file string, list *notes.List) (all []Kernel, err error) {
	err = ReadKernels(r, file, list, func(k *Kernel) error { all = append(all, *k); return nil })
	return all, err
}

func readTensors(r io.Reader, file string, list *notes.List) (all []Tensor, err error) {
	err = ReadTensors(r, file, list, func(t *Tensor) error { all = append(all, *t); return nil })
	return all, err
}

func readSamples(r io.Reader, file string, list *notes.List) (all []Sample, err error) {
	err = ReadSamples(r, file, list, func(s *Sample) error { all = append(all, *s); return nil })
	return all, err
}

func file(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func lines(l *notes.List) string { return strings.Trim(fmt.Sprintln(l.All()), "\n") }

// A byte-order mark, tabs, doubled quotes, cells without a value, a short row
// and an absurd duration.
func TestKernels(t *testing.T) {
	var list notes.List
	got, err := readKernels(bytes.NewReader(file(t, "kernel_details.csv")), "k.csv", &list)
	if err != nil {
		t.Fatal(err)
	}
	want := []Kernel{
		{Step: "7", Stream: "2", Name: "aclnnMatMul", Type: "MatMul", Core: "AI_CORE", Start: 1700000000000001250, Duration: 10500 * sim.Nanosecond, Inputs: "4,8;8,2", Line: 2},
		{Step: "7", Stream: "2", Name: "aclnnGrad", Type: "SoftmaxGrad", Core: "AI_VECTOR_CORE", Start: 1700000000000020000, Duration: 3 * sim.Microsecond, Line: 3},
		{Step: "7", Name: "hcom_allReduce__1", Type: "hcom_allReduce_", Core: "COMMUNICATION", Start: 1700000000000012000, Duration: 40 * sim.Microsecond, Line: 4},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !got[2].Communicates() || got[0].Communicates() {
		t.Error("collectives")
	}
	for _, want := range []string{
		"k.csv:1: repaired: byte-order mark", "k.csv:5: skipped: task without a start",
		"k.csv:6: skipped: row with fewer fields", "k.csv:7: skipped: task of less than 0 or more than 30 s",
	} {
		if !strings.Contains(lines(&list), want) {
			t.Errorf("no note %q in %s", want, lines(&list))
		}
	}
}

func TestOlderNames(t *testing.T) {
	var list notes.List
	got, err := readKernels(bytes.NewReader(file(t, "op_summary.csv")), "k.csv", &list)
	if err != nil || len(got) != 1 || got[0].Name != "add_0" || got[0].Type != "Add" || got[0].Core != "AI_CORE" || got[0].Duration != 2_000_400 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMemory(t *testing.T) {
	var list notes.List
	tensors, err := readTensors(bytes.NewReader(file(t, "operator_memory.csv")), "t.csv", &list)
	if err != nil || len(tensors) != 2 {
		t.Fatalf("%+v, %v", tensors, err)
	}
	if v := tensors[0]; v.Bytes != 1024 || v.Alloc != 1700000000000000500 || v.Release != 1700000000000025000 || v.AtAlloc.Allocated != 4<<20+1024 {
		t.Errorf("%+v", v)
	}
	if v := tensors[1]; v.Bytes != 2560 || v.Release != Never || v.AtRelease.Allocated != NoBytes {
		t.Errorf("%+v", v)
	}
	samples, err := readSamples(bytes.NewReader(file(t, "memory_record.csv")), "s.csv", &list)
	if err != nil || len(samples) != 2 || samples[0].Totals != (Totals{NoBytes, 33 << 19, NoBytes}) {
		t.Errorf("%+v, %v", samples, err)
	}
	for _, want := range []string{"t.csv:4: skipped: tensor of no", "t.csv:5: skipped: tensor released before", "s.csv:4: skipped: sample without"} {
		if !strings.Contains(lines(&list), want) {
			t.Errorf("no note %q in %s", want, lines(&list))
		}
	}
	steps, err := ReadSteps(bytes.NewReader(file(t, "step_trace_time.csv")), "p.csv")
	if err != nil || len(steps) != 1 || steps[0].Computing != 13_500_000 || steps[0].Length != 50_750_000 || steps[0].Step != "7" {
		t.Errorf("%+v, %v", steps, err)
	}
}

func TestRefused(t *testing.T) {
	long := "Component,Timestamp(us),Total Reserved(MB)\nAPP,\"" + strings.Repeat("x", 3<<20)
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "s.csv:1: the file is empty; a header with \"Component\""},
		"no column":   {"Component,Total Reserved(MB)\n", "s.csv:1: no column \"Timestamp(us)\""},
		"spreadsheet": {"Component,Timestamp(us),Total Reserved(MB)\nAPP,1.69512E+15,1\n", "s.csv:2: column 2: value \"1.69512E+15\" has lost digits"},
		"word":        {"Component,Timestamp(us),Total Reserved(MB)\nAPP,now,1\n", "s.csv:2: column 2: value \"now\"; allowed"},
		"overflow":    {"Component,Timestamp(us),Total Reserved(MB)\nAPP,99999999999999999999,1\n", "s.csv:2: column 2: value"},
		"open quote":  {long, "a row is longer than 1048576 bytes"},
	} {
		_, err := readSamples(strings.NewReader(c.text), "s.csv", nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
	stop := errors.New("stop")
	err := ReadKernels(bytes.NewReader(file(t, "kernel_details.csv")), "k.csv", nil, func(*Kernel) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}

// What is written is read back the same.
func TestRoundTrip(t *testing.T) {
	bytesOrNone := rapid.OneOf(rapid.Just(NoBytes), rapid.Map(rapid.Int64Range(0, 1<<42), func(b int64) sim.Bytes { return sim.Bytes(b) }))
	when := rapid.Int64Range(1e18, 2e18)
	name := rapid.SampledFrom([]string{"aten::mm", "with, comma", `with "quotes"`, "x"})
	rapid.Check(t, func(t *rapid.T) {
		tensors := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Tensor {
			v := Tensor{
				Name: name.Draw(t, "name"), Bytes: sim.Bytes(rapid.Int64Range(1, 1<<40).Draw(t, "bytes")),
				Alloc: when.Draw(t, "alloc"), Release: Never, ActiveRelease: Never,
				AtAlloc:   Totals{bytesOrNone.Draw(t, "a"), bytesOrNone.Draw(t, "b"), bytesOrNone.Draw(t, "c")},
				AtRelease: Totals{NoBytes, NoBytes, NoBytes}, Stream: "2", Device: "NPU:0",
			}
			if rapid.Bool().Draw(t, "released") {
				v.Release = v.Alloc + rapid.Int64Range(0, 1e9).Draw(t, "life")
				v.ActiveRelease = v.Release
			}
			return v
		})).Draw(t, "tensors")
		var text bytes.Buffer
		if err := WriteTensors(&text, tensors); err != nil {
			t.Fatal(err)
		}
		got, err := readTensors(&text, "t.csv", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i].Line = 0
		}
		if d := cmp.Diff(tensors, append([]Tensor{}, got...)); d != "" {
			t.Fatal(d)
		}
		samples := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Sample {
			return Sample{Component: "PTA", Time: when.Draw(t, "time"), Totals: Totals{bytesOrNone.Draw(t, "a"), bytesOrNone.Draw(t, "b"), bytesOrNone.Draw(t, "c")}, Device: "NPU:0"}
		})).Draw(t, "samples")
		text.Reset()
		if err := WriteSamples(&text, samples); err != nil {
			t.Fatal(err)
		}
		back, err := readSamples(&text, "s.csv", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range back {
			back[i].Line = 0
		}
		if d := cmp.Diff(samples, append([]Sample{}, back...)); d != "" {
			t.Fatal(d)
		}
	})
}

const qwen = "qwen3-0.6b-pp2-dp2-level2/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT"

// The step of four NPUs against its README: counts, sums and the peak.
func TestQwen(t *testing.T) {
	var list notes.List
	kernels, err := readKernels(formatstest.Open(t, "ascend-profiler", qwen, "kernel_details.csv"), "k", &list)
	if err != nil {
		t.Fatal(err)
	}
	cores := map[string]int{}
	var computing, all sim.Time
	forward, backward := 0, 0
	for i := range kernels {
		k := &kernels[i]
		cores[k.Core]++
		all += k.Duration
		if !k.Communicates() {
			computing += k.Duration
		}
		switch {
		case strings.Contains(k.Type, "FlashAttentionScoreGrad"):
			backward++
		case strings.Contains(k.Type, "FlashAttentionScore"):
			if forward++; backward > 0 {
				t.Error("forward attention after backward attention")
			}
		}
	}
	want := map[string]int{"AI_VECTOR_CORE": 1857, "AI_CORE": 336, "MIX_AIV": 199, "MIX_AIC": 56, "COMMUNICATION": 15}
	if d := cmp.Diff(want, cores); d != "" || len(kernels) != 2463 {
		t.Errorf("%d kernels; %s", len(kernels), d)
	}
	if computing != 231_290_100*sim.Nanosecond || all != 651_464_360*sim.Nanosecond {
		t.Errorf("computing %d ps, all %d ps", computing, all)
	}
	if forward != 28 || backward != 28 {
		t.Errorf("attention: %d forward, %d backward", forward, backward)
	}

	tensors, err := readTensors(formatstest.Open(t, "ascend-profiler", qwen, "operator_memory.csv"), "t", &list)
	if err != nil || len(tensors) != 3103 {
		t.Fatalf("%d tensors, %v", len(tensors), err)
	}
	open := 0
	for i := range tensors {
		if tensors[i].Release == Never {
			open++
		}
	}
	if open != 1 {
		t.Errorf("%d tensors without a release", open)
	}
	components := map[string]int{}
	var peak sim.Bytes
	var at int64
	err = ReadSamples(formatstest.Open(t, "ascend-profiler", qwen, "memory_record.csv"), "s", &list, func(s *Sample) error {
		components[s.Component]++
		if s.Component == "PTA" && s.Totals.Allocated > peak {
			peak, at = s.Totals.Allocated, s.Time
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"PTA": 9309, "PTA+GE": 9309, "APP": 41}, components); d != "" {
		t.Error(d)
	}
	if peak != 10_282*sim.MiB+785408 || at != 1764246877390971790 { // 0.7490234375 MiB = 785,408 bytes
		t.Errorf("peak %d at %d", peak, at)
	}
	if n := lines(&list); n != "[]" {
		t.Errorf("notes %s", n)
	}
}

// Every step table of the real files.
func TestRealSteps(t *testing.T) {
	for path, want := range map[string]Step{
		qwen: {Computing: 231_290_100_000, Exposed: 420_174_260_000, Free: 158_558_000_000, Length: 810_022_250_000, Prepare: 206_250_000},
		"qwen3-0.6b-pp2-dp2-level2/rank_1_ascend_pt/ASCEND_PROFILER_OUTPUT": {Computing: 230_903_720_000, Exposed: 441_708_380_000, Free: 136_819_560_000, Length: 809_431_750_000, Prepare: 205_000_000},
		"alexnet-2npu/text/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT":   {Computing: 8_827_473_000, Exposed: 81_515_607_000, Free: 25_908_102_000, Length: 116_251_250_000, Prepare: 19_358_000_000},
		"alexnet-2npu/text/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT":   {Computing: 8_878_295_000, Exposed: 96_359_047_000, Free: 26_675_274_000, Length: 131_912_500_000},
	} {
		steps, err := ReadSteps(formatstest.Open(t, "ascend-profiler", path, "step_trace_time.csv"), path)
		if err != nil || len(steps) != 1 {
			t.Errorf("%s: %v, %v", path, steps, err)
			continue
		}
		got := steps[0]
		if want.Prepare == 0 {
			want.Prepare = got.Prepare
		}
		want.Step, want.Device, want.Overlapped, want.Communication = got.Step, got.Device, got.Overlapped, got.Communication
		if got != want {
			t.Errorf("%s: %+v; want %+v", path, got, want)
		}
	}
	steps, err := ReadSteps(formatstest.Open(t, "ascend-profiler", "mstt", "cluster_step_trace_time.csv"), "c")
	if err != nil || len(steps) != 9 || steps[7].Index != "7" {
		t.Errorf("%v, %v", steps, err)
	}
}

// The sums of the two-device run, level by level.
func TestAlexNet(t *testing.T) {
	for run, want := range map[string]sim.Time{
		"level0/rank0_ascend_pt": 94_344_340_000, "level0/rank1_ascend_pt": 77_418_862_000,
		"level1/rank0_ascend_pt": 114_865_613_000, "level1/rank1_ascend_pt": 109_253_559_000,
	} {
		dir := filepath.Join("alexnet-2npu/text", run, "ASCEND_PROFILER_OUTPUT")
		kernels, err := readKernels(formatstest.Open(t, "ascend-profiler", dir, "kernel_details.csv"), run, nil)
		var sum sim.Time
		for _, k := range kernels {
			sum += k.Duration
		}
		if err != nil || len(kernels) != 191 || sum != want {
			t.Errorf("%s: %d kernels, %d ps, %v", run, len(kernels), sum, err)
		}
		tensors, err := readTensors(formatstest.Open(t, "ascend-profiler", dir, "operator_memory.csv"), run, nil)
		if err != nil || len(tensors) != 184 {
			t.Errorf("%s: %d tensors, %v", run, len(tensors), err)
		}
		components := map[string]int{}
		var peak Totals
		err = ReadSamples(formatstest.Open(t, "ascend-profiler", dir, "memory_record.csv"), run, nil, func(s *Sample) error {
			components[s.Component]++
			if s.Component == "PTA" {
				peak.Allocated, peak.Reserved = max(peak.Allocated, s.Totals.Allocated), max(peak.Reserved, s.Totals.Reserved)
			}
			return nil
		})
		if err != nil || components["PTA"] != 381 || components["PTA+GE"] != 495 || components["GE"] != 114 {
			t.Errorf("%s: %v, %v", run, components, err)
		}
		// 1,187.9814453125 MiB
		if peak.Allocated != 1187*sim.MiB+1029120 || peak.Reserved != 1452*sim.MiB {
			t.Errorf("%s: peaks %d, %d", run, peak.Allocated, peak.Reserved)
		}
	}
}

// The fixtures and the files that must be refused.
func TestFixturesAndDamage(t *testing.T) {
	for _, name := range []string{"fixtures/test_rank_0/ASCEND_PROFILER_OUTPUT/kernel_details.csv", "fixtures/test_rank_1/ASCEND_PROFILER_OUTPUT/kernel_details.csv", "fixtures/test_kernel_parse/op_summary_1.csv", "mstt/test.csv"} {
		kernels, err := readKernels(formatstest.Open(t, "ascend-profiler", name), name, nil)
		if err != nil || len(kernels) == 0 {
			t.Errorf("%s: %d kernels, %v", name, len(kernels), err)
		}
	}
	for _, rank := range []string{"fixtures/test_rank_0", "fixtures/test_rank_1"} {
		tensors, err := readTensors(formatstest.Open(t, "ascend-profiler", rank, "ASCEND_PROFILER_OUTPUT", "operator_memory.csv"), rank, nil)
		if err != nil || len(tensors) == 0 {
			t.Errorf("%s: %d tensors, %v", rank, len(tensors), err)
		}
	}
	_, err := readSamples(formatstest.Open(t, "damaged", "excel", "test_rank_1_memory_record.csv"), "excel.csv", nil)
	if err == nil || !strings.Contains(err.Error(), "excel.csv:2: column 2: value \"1.69512E+15\" has lost digits") {
		t.Errorf("error %v", err)
	}
	for _, name := range []string{"memory_record_20230919172305.csv", "operator_memory_20230919172305.csv", "op_summary_20230919172305.csv"} {
		_, err := readSamples(formatstest.Open(t, "damaged", "zero-byte", name), name, nil)
		if err == nil || !strings.HasPrefix(err.Error(), name+":1: the file is empty") {
			t.Errorf("error %v", err)
		}
	}
}

func FuzzTables(f *testing.F) {
	names, err := os.ReadDir("testdata")
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range names {
		if !n.IsDir() {
			f.Add(file(f, n.Name()))
		}
	}
	f.Add([]byte("Name,\"Size(KB)\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var list notes.List
		check := func(n int, err error) {
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error of more than one line: %q", err)
			}
			if n > bytes.Count(text, []byte("\n"))+1 {
				t.Errorf("%d records of %d bytes", n, len(text))
			}
		}
		k, err := readKernels(bytes.NewReader(text), "k", &list)
		check(len(k), err)
		v, err := readTensors(bytes.NewReader(text), "t", &list)
		check(len(v), err)
		for i := range v {
			if v[i].Bytes <= 0 || v[i].Alloc < 0 {
				t.Errorf("tensor %+v", v[i])
			}
		}
		s, err := readSamples(bytes.NewReader(text), "s", &list)
		check(len(s), err)
		p, err := ReadSteps(bytes.NewReader(text), "p")
		check(len(p), err)
	})
}
