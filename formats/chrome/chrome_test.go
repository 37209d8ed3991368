package chrome

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"smartswap/formats/formatstest"
	"smartswap/formats/notes"
	"smartswap/sim"
)

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(r io.Reader, file string, list *notes.List) (h Header, all []Event, err error) {
	h, err = Read(r, file, list, func(e *Event) error { all = append(all, *e); return nil })
	return h, all, err
}

func TestKineto(t *testing.T) {
	var list notes.List
	h, all, err := read(bytes.NewReader(testdata(t, "kineto.json")), "f", &list)
	if err != nil {
		t.Fatal(err)
	}
	want := Header{Devices: []Device{{0, "Device A", 1024}}, Base: 1700000000000000000, Rank: 3, WorldSize: 4, Events: 12}
	if d := cmp.Diff(want, h); d != "" {
		t.Error(d)
	}
	none := Event{Start: None, Duration: None, Device: None, Stream: None, Correlation: None, ExternalID: None, RecordFunctionID: None, Bytes: None, Addr: None, TotalAllocated: None, TotalReserved: None, DeviceType: None, DeviceID: None}
	op, mem, kernel := none, none, none
	op.Phase, op.Category, op.Name, op.PID, op.TID, op.Start, op.Duration = 'X', CPUOp, "aten::mm", "1", "1", 12001, 8000
	op.Shapes, op.ExternalID, op.RecordFunctionID, op.Line = true, 7, 5, 9
	mem.Phase, mem.Category, mem.Name, mem.PID, mem.TID, mem.Start, mem.Line = 'i', Memory, "[memory]", "1", "1", 13000, 10
	mem.Bytes, mem.Addr, mem.TotalAllocated, mem.TotalReserved, mem.DeviceID, mem.DeviceType = 1024, 140000000000000, 2048, 4096, 0, 1
	kernel.Phase, kernel.Category, kernel.Name, kernel.PID, kernel.TID, kernel.Start, kernel.Duration = 'X', Kernel, "gemm<float>", "0", "7", 20125, 30001
	kernel.ExternalID, kernel.Device, kernel.Stream, kernel.Correlation, kernel.Line = 7, 0, 7, 70, 13
	if d := cmp.Diff([]Event{op, mem, kernel}, []Event{all[2], all[3], all[6]}); d != "" {
		t.Error(d)
	}
	if n := fmt.Sprint(list.All()); n != "[f:13: repaired: times finer than a ns, here first, are rounded]" {
		t.Error(n)
	}
}

func TestNPU(t *testing.T) {
	h, all, err := read(bytes.NewReader(testdata(t, "npu.json")), "f", nil)
	if err != nil || h.Events != 3 || h.Rank != None || all[0].Start != 1704161511420306491 || all[1].Category != Kernel || all[1].Stream != 3 || all[2].Category != Other {
		t.Errorf("%+v, %+v, %v", h, all, err)
	}
}

func TestTail(t *testing.T) {
	var list notes.List
	if _, _, err := read(strings.NewReader("[]\n x"), "f", &list); err != nil || fmt.Sprint(list.All()) != "[f:2: skipped: what follows the end of the trace]" {
		t.Errorf("%v, %v", list.All(), err)
	}
}

// A trace whose profiler was killed, in the spelling of older years.
func TestKilled(t *testing.T) {
	var list notes.List
	h, all, err := read(bytes.NewReader(testdata(t, "killed.json")), "f", &list)
	if err != nil || !h.Truncated || len(all) != 2 || all[0].Category != Kernel || all[0].ExternalID != 12 || all[1].Category != Memcpy || all[1].PID != "0" {
		t.Errorf("%+v, %+v, %v", h, all, err)
	}
	for _, want := range []string{
		"f:3: skipped: event with a time that is no number", "f:4: skipped: entry that is no event", "f:5: skipped: event without a phase",
		"f:6: repaired: control character", "f:7: repaired: the file ends inside the list of events; 5 complete events are kept",
	} {
		if !strings.Contains(fmt.Sprint(list.All()), want) {
			t.Errorf("no note %q in %v", want, list.All())
		}
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "f:1: the file is empty",
		"7":                      "f:1: a plain value; a trace in JSON",
		"{}":                     "f: no \"traceEvents\"",
		`{"traceEvents": 7}`:     "f:1: '7' where a list is expected",
		"[[-1, 1, 2, 7]]":        "f:1: a list of lists is no trace; is it a memory timeline?",
		`{"traceEvents": [`:      "f:1: the file ends inside a value",
		`{"traceEvents": [{}]`:   "f:1: the file ends inside a value",
		"{\n\"traceEvents\": [x": "f:2: 'x' where a value is expected",
	} {
		_, _, err := read(strings.NewReader(text), "f", nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v; want %q", text, err, want)
		}
	}
	stop := errors.New("stop")
	if _, err := Read(bytes.NewReader(testdata(t, "kineto.json")), "f", nil, func(*Event) error { return stop }); err != stop {
		t.Errorf("error %v", err)
	}
}

func TestTimeline(t *testing.T) {
	sum, peak, n := sim.Bytes(0), sim.Bytes(0), 0
	each := func(r Record) error {
		sum += r.Bytes
		peak = max(peak, sum)
		n++
		return nil
	}
	if err := ReadTimeline(bytes.NewReader(testdata(t, "timeline.json")), "f", each); err != nil || sum != 150 || peak != 180 || n != 6 {
		t.Errorf("sum %d, peak %d, %d records, %v", sum, peak, n, err)
	}
	for text, want := range map[string]string{"[[1,2,3]]": "3 numbers", "[[1,2,3,4,5]]": "value \"5\"", "[[1,9,3,4]]": "action 9", "{}": "'{' where a list", "[[1,2": "ends inside"} {
		if err := ReadTimeline(strings.NewReader(text), "f", each); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

func TestRealTimeline(t *testing.T) {
	sum, peak, existed := sim.Bytes(0), sim.Bytes(0), sim.Bytes(0)
	var actions [5]int
	err := ReadTimeline(formatstest.Open(t, "kineto", "hta", "memory_timeline.raw.gz"), "f", func(r Record) error {
		actions[r.Action]++
		if r.Action == Existed {
			existed += r.Bytes
		}
		sum += r.Bytes
		peak = max(peak, sum)
		return nil
	})
	if err != nil || sum != 332_060_904 || existed != sum || peak != 3_082_832_104 || actions != [5]int{0, 645, 3345, 9510, 3345} {
		t.Errorf("sum %d, peak %d, %v, %v", sum, peak, actions, err)
	}
}

// Every real trace against the independent counts beside it. Sums of times are
// compared in ns; a sum in the table that is not of whole ns is rounded.
func TestExpected(t *testing.T) {
	table := csv.NewReader(formatstest.Open(t, "kineto", "expected.csv"))
	header, err := table.Read()
	if err != nil {
		t.Fatal(err)
	}
	ns := func(us string) int64 {
		r, ok := new(big.Rat).SetString(us)
		if !ok {
			t.Fatal(us)
		}
		r.Mul(r, big.NewRat(1000, 1))
		return new(big.Int).Quo(r.Num(), r.Denom()).Int64()
	}
	files := 0
	for {
		row, err := table.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		cell := func(name string) string { return row[slices.Index(header, name)] }
		file := cell("file")
		if strings.Contains(file, "memory_timeline") {
			continue
		}
		files++
		var got struct{ complete, kernels, memcpy, memset, ops, memory, addr, totals, onDevice, shapes int64 }
		var kernelSum, allocated, reserved int64
		type span struct{ from, to int64 }
		busy := map[string][]span{}
		from, to := int64(1)<<62, int64(-1)<<62
		running, peak := int64(0), int64(0)
		var list notes.List
		var mem []Event
		h, err := Read(formatstest.Open(t, "kineto", file), file, &list, func(e *Event) error {
			if e.Category == Memory {
				got.memory++
				if e.Addr != None {
					got.addr++
				}
				if e.TotalAllocated != None {
					got.totals++
				}
				if e.DeviceType == 1 {
					got.onDevice++
					allocated, reserved = max(allocated, e.TotalAllocated), max(reserved, e.TotalReserved)
					mem = append(mem, *e)
				}
			}
			if e.Phase != 'X' {
				return nil
			}
			got.complete++
			if e.Shapes {
				got.shapes++
			}
			switch e.Category {
			case Kernel:
				got.kernels++
				kernelSum += e.Duration
			case Memcpy:
				got.memcpy++
			case Memset:
				got.memset++
			case CPUOp:
				got.ops++
			}
			if e.Category.OnDevice() && e.Category != Accelerator {
				busy[e.PID] = append(busy[e.PID], span{e.Start, e.Start + e.Duration})
				from, to = min(from, e.Start), max(to, e.Start+e.Duration)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for name, n := range map[string]int64{"events": h.Events, "complete": got.complete, "kernels": got.kernels, "memcpy": got.memcpy, "memset": got.memset,
			"cpu_ops": got.ops, "memory_events": got.memory, "shapes": got.shapes, "n_devices": int64(len(h.Devices)), "base_ns": h.Base} {
			if want := cell(name); fmt.Sprint(n) != want && !(want == "" && n == 0) {
				t.Errorf("%s: %s %d; want %s", file, name, n, want)
			}
		}
		if want := ns(cell("kernel_us_sum")); kernelSum != want {
			t.Errorf("%s: kernels %d ns; want %d", file, kernelSum, want)
		}
		if want := cell("device_span_us"); want != "" && to-from != ns(want) {
			t.Errorf("%s: span %d ns; want %s us", file, to-from, want)
		}
		for pid, spans := range busy {
			slices.SortFunc(spans, func(a, b span) int { return int(min(1, max(-1, a.from-b.from))) })
			sum, end := int64(0), int64(-1)<<62
			for _, s := range spans {
				if s.to > end {
					sum += s.to - max(s.from, end)
					end = s.to
				}
			}
			found := false
			for part := range strings.SplitSeq(cell("device_busy_us"), ";") {
				if name, us, _ := strings.Cut(part, "="); name == pid {
					// The table rounds some sums to a few digits.
					found = true
					if diff := sum - ns(us); (diff > 500_000 || diff < -500_000) && diff*20 > sum || sum > 0 && !strings.Contains(us, "E") && diff != 0 {
						t.Errorf("%s: process %s busy %d ns; want %s us", file, pid, sum, us)
					}
				}
			}
			if !found {
				t.Errorf("%s: process %s is not in %s", file, pid, cell("device_busy_us"))
			}
		}
		if cell("mem_has_addr") == "" {
			continue
		}
		slices.SortStableFunc(mem, func(a, b Event) int { return int(min(1, max(-1, a.Start-b.Start))) })
		for _, e := range mem {
			running += e.Bytes
			peak = max(peak, running)
		}
		for name, n := range map[string]int64{"mem_has_addr": got.addr, "mem_has_total": got.totals, "mem_device_events": got.onDevice,
			"peak_total_allocated": allocated, "peak_total_reserved": reserved, "running_sum_peak": peak} {
			if want := cell(name); want != "" && fmt.Sprint(n) != want {
				t.Errorf("%s: %s %d; want %s", file, name, n, want)
			}
		}
	}
	if files < 30 {
		t.Errorf("only %d files", files)
	}
}

// The trace views of NPU profiles: bare lists with times as strings.
func TestTraceView(t *testing.T) {
	for path, want := range map[string]int64{"mstt/trace_view.json.gz": 3670, "alexnet-2npu/text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json": 10112} {
		kernels := 0
		h, err := Read(formatstest.Open(t, "ascend-profiler", path), path, nil, func(e *Event) error {
			if e.Category == Kernel {
				kernels++
			}
			return nil
		})
		if err != nil || h.Events != want || kernels == 0 {
			t.Errorf("%s: %d events, %d kernels, %v", path, h.Events, kernels, err)
		}
	}
}

func TestWriter(t *testing.T) {
	var text bytes.Buffer
	w := NewWriter(&text)
	w.Process(1, "rank 0")
	w.Thread(1, 2, "compute")
	w.Slice(1, 2, "kernel", "mm \"a\"", 1700000000000000123, 4500, Field{"stream", 7}, Field{"note", "x<y"})
	w.Instant(1, 2, "", "mark", 5)
	w.Counter(1, "memory", 6, Field{"allocated", 100}, Field{"reserved", 200})
	w.FlowBegin(1, 2, "swap", "swap", 9, 10)
	w.FlowEnd(1, 3, "swap", "swap", 9, 20)
	if err := w.Close(); err != nil || !json.Valid(text.Bytes()) {
		t.Fatalf("%v\n%s", err, text.String())
	}
	h, all, err := read(&text, "f", nil)
	if err != nil || h.Events != 7 || all[2].Start != 1700000000000000123 || all[2].Duration != 4500 || all[2].Name != "mm \"a\"" || all[2].Category != Kernel || all[2].Stream != 7 {
		t.Errorf("%+v, %v", all, err)
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"kineto.json", "npu.json", "killed.json", "timeline.json"} {
		f.Add(testdata(f, name))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n := int64(0)
		h, err := Read(bytes.NewReader(text), "f", nil, func(e *Event) error {
			n++
			if e.Phase == 0 {
				t.Errorf("%+v", e)
			}
			return nil
		})
		if n > h.Events || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%d of %d events, %v", n, h.Events, err)
		}
		_ = ReadTimeline(bytes.NewReader(text), "f", func(Record) error { return nil })
	})
}

// synthetic is a trace of about n bytes, made as it is read.
type synthetic struct {
	left, i int64
	rest    []byte
	ended   bool
}

func (s *synthetic) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		switch {
		case s.ended:
			return 0, io.EOF
		case s.left <= 0:
			s.ended = true
			s.rest = []byte("\n]}\n")
		default:
			comma := ","
			if s.i == 0 {
				comma = "{\"schemaVersion\": 1, \"traceEvents\": ["
			}
			s.rest = fmt.Appendf(s.rest[:0], `%s
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
    "ts": %d.250, "dur": 8.125,
    "args": {
      "External id": %d,"Record function id": %d, "Concrete Inputs": ["", "", ""], "Input type": ["float", "float"], "Input Strides": [[1024, 1], [1, 1024]], "Input Dims": [[4096, 1024], [1024, 4096]], "Ev Idx": %d
    }
  },
  {
    "ph": "X", "cat": "kernel", "name": "void gemm_kernel_%d<float, 128, 1>(float*, float*)", "pid": 0, "tid": 7,
    "ts": %d.125, "dur": 20.500,
    "args": {
      "External id": %d, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": %d,
      "registers per thread": 64, "shared memory": 16384, "blocks per SM": 1.5, "grid": [64, 16, 1], "block": [128, 1, 1]
    }
  }`, comma, s.i*30, s.i, s.i, s.i, s.i%50, s.i*30+5, s.i, s.i)
			s.i++
			s.left -= int64(len(s.rest))
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// premade repeats a synthetic trace without the cost of making it.
func premade(n int64) []byte {
	text, _ := io.ReadAll(&synthetic{left: n})
	return text
}

func BenchmarkRead(b *testing.B) {
	text := premade(8 << 20)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(bytes.NewReader(text), "f", nil, func(*Event) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

var large = flag.Bool("large", false, "read a trace of 200 MB")

// A trace of 200 MB passes in bounded memory at 50 MB/s or better.
func TestLarge(t *testing.T) {
	size := int64(20 << 20)
	if *large {
		size = 200 << 20
	}
	in := io.Reader(&synthetic{left: size})
	if *large {
		in = bytes.NewReader(premade(size)) // the time of making it does not count
	}
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var most uint64
	n := int64(0)
	start := time.Now()
	_, err := Read(in, "f", nil, func(*Event) error {
		if n++; n%(1<<15) == 0 {
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
		}
		return nil
	})
	took := time.Since(start)
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	t.Logf("%d MiB, %d events in %v: %.0f MB/s; heap grew by at most %d KiB", size>>20, n, took, float64(size)/1e6/took.Seconds(), most>>10)
	if most > 8<<20 {
		t.Errorf("heap grew by %d bytes", most)
	}
	if *large && took > 4*time.Second {
		t.Errorf("%v for 200 MB; allowed: 4 s", took)
	}
}
