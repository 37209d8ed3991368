package experiments

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"smartswap/formats/snapshot"
	"smartswap/workloads/trace"
)

// small is a job of a second's tenth that swaps.
const small = `
name = "small"
title = "small"
node.name = "910b2-8"
node.device.hbm = "9GiB"
iterations = 4
warmup = 2

[workload]
model = "llama2-7b"
layers = 4
seq = 4096
micro_batches = 4

[[strategy]]
name = "lru, of all"
policy = "lru"
layouts = ["tp1pp1dp8"]

[[strategy]]
name = "too large"
layouts = ["tp1pp1dp8"]
`

// A cell's timelines are the files that other programs open; a cell in which
// nothing fits shows how it failed; results are the same with and without.
func TestTimelines(t *testing.T) {
	folder := t.TempDir()
	with, without := filepath.Join(folder, "with"), filepath.Join(folder, "without")
	if code, _, stderr := runFile(t, t.Context(), small, NewSimulator(), "-out", without); code != exitDone {
		t.Fatal(stderr)
	}
	lines := filepath.Join(folder, "timelines")
	code, _, stderr := runFile(t, t.Context(), small, NewSimulator(), "-out", with, "-timeline", lines)
	if code != exitDone || !strings.Contains(stderr, "timelines of 2 cells are in") {
		t.Fatal(stderr)
	}
	if a, b := tree(t, with)["small/rows.csv"], tree(t, without)["small/rows.csv"]; a != b || a == "" {
		t.Errorf("rows differ:\n%s\n%s", a, b)
	}
	const cell, profile = "small/00-small_lru_of-all/", "small/00-small_lru_of-all/ascend/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/"
	got := tree(t, lines)
	var want []string
	for _, c := range []string{cell, "small/01-small_too-large/"} {
		profile := c + "ascend/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/"
		want = append(want, profile+"memory_record.csv", profile+"operator_memory.csv", c+"memory.png", c+"memory.svg", c+"snapshot.pickle", c+"trace.json")
	}
	if strings.Join(names(got), "\n") != strings.Join(want, "\n") {
		t.Fatalf("files\n%s\nwant\n%s", strings.Join(names(got), "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(got[cell+"trace.json"], `{"ph": "s", "cat": "swap"`) {
		t.Error("nothing leaves the device and comes back")
	}
	w, report, err := trace.Open(filepath.Join(lines, cell, "trace.json"), trace.Options{Step: "3"})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range report.Notes {
		if s := n.String(); strings.Contains(s, "without a record") || strings.Contains(s, "lost") {
			t.Errorf("the trace does not agree with its own totals: %s", s)
		}
	}
	if p, err := w.Program(0, 0); err != nil || p.Ops < 1000 {
		t.Errorf("%v", err)
	}
	f, err := os.Open(filepath.Join(lines, cell, "snapshot.pickle"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s, err := snapshot.Read(f, "snapshot.pickle"); err != nil || len(s.Settings) == 0 || len(s.Segments) == 0 {
		t.Errorf("%v", err)
	}
}

// Memory that is not the allocator's has no allocations to show, but how much is
// where, and what kernels waited for.
func TestPagedTimelines(t *testing.T) {
	example, err := filepath.Abs(filepath.Join("..", "configs", "example.trace"))
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
name = "paged"
node.name = "a100-40-1"
node.device.hbm = "14500MiB"
host = "none"
iterations = 4
warmup = 2

[workload]
kind = "trace"
trace = %q

[[strategy]]
name = "uvm"
policy = "uvm"

[[strategy]]
name = "g10"
policy = "g10"
options = { memory = "direct", tiers = "both" }
`, example)
	folder := t.TempDir()
	lines := filepath.Join(folder, "timelines")
	if code, _, stderr := runFile(t, t.Context(), config, NewSimulator(), "-out", folder, "-timeline", lines); code != exitDone {
		t.Fatal(stderr)
	}
	rows, err := csv.NewReader(strings.NewReader(tree(t, folder)["paged/rows.csv"])).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	value := func(row int, column string) float64 {
		x, err := strconv.ParseFloat(rows[row][slices.Index(rows[0], column)], 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	got := tree(t, lines)
	for i, cell := range []string{"paged/00-paged_uvm/", "paged/01-paged_g10/"} {
		var files []string
		for _, name := range names(got) {
			if rest, ok := strings.CutPrefix(name, cell); ok {
				files = append(files, rest)
			}
		}
		if want := []string{"memory.png", "memory.svg", "trace.json"}; !slices.Equal(files, want) {
			t.Fatalf("%s: files %v, want %v", cell, files, want)
		}
		for _, level := range []string{"resident", "host", "SSD", "out", "in"} {
			if !strings.Contains(got[cell+"memory.svg"], ">"+level+"<") {
				t.Errorf("%s: no %q in the figure of memory", cell, level)
			}
		}
		var trace struct {
			Events []struct {
				Name string          `json:"name"`
				Cat  string          `json:"cat"`
				Ph   string          `json:"ph"`
				Tid  int             `json:"tid"`
				Ts   json.Number     `json:"ts"`
				Dur  json.Number     `json:"dur"`
				Args json.RawMessage `json:"args"`
			} `json:"traceEvents"`
		}
		if err := json.Unmarshal([]byte(got[cell+"trace.json"]), &trace); err != nil {
			t.Fatal(err)
		}
		lanes := map[int]*struct {
			bytes, end float64
			n          int
		}{}
		var in, out, wait float64
		kernels := 0
		peak := map[string]float64{}
		for _, e := range trace.Events {
			var args map[string]any
			if err := json.Unmarshal(e.Args, &args); e.Args != nil && err != nil {
				t.Fatal(err)
			}
			switch {
			case e.Ph == "C":
				peak[e.Name] = max(peak[e.Name], args["bytes"].(float64))
			case e.Cat == "gpu_memcpy":
				l := lanes[e.Tid]
				if l == nil {
					l = new(struct {
						bytes, end float64
						n          int
					})
					lanes[e.Tid] = l
				}
				start, _ := e.Ts.Float64()
				dur, _ := e.Dur.Float64()
				if start < l.end-1e-3 || dur < 0 {
					t.Fatalf("%s: a move at %v us, before the last one ends at %v", cell, start, l.end)
				}
				l.bytes, l.end, l.n = l.bytes+args["bytes"].(float64), start+dur, l.n+1
			case e.Cat == "kernel":
				kernels++
				in += args["bytes in"].(float64)
				out += args["bytes out"].(float64)
				wait += args["memory wait ns"].(float64)
			}
		}
		// Slices of moves hold what kernels say came and went, and are few.
		const laneOut, laneIn = 13, 14
		if l := lanes[laneIn]; l == nil || l.bytes != in || l.n > 4*kernels {
			t.Errorf("%s: moves in %+v; kernels say %v bytes", cell, l, in)
		}
		if l := lanes[laneOut]; out > 0 && (l == nil || l.bytes != out || l.n > 4*kernels) || len(lanes) > 2 {
			t.Errorf("%s: moves out %+v; kernels say %v bytes", cell, l, out)
		}
		// Two iterations are kept, those that rows are about.
		row := i + 1
		if in != 2*value(row, "in_bytes") || out != 2*value(row, "out_bytes") || math.Abs(wait/1e6-2*value(row, "stall_fault_ms")) > 1e-3 {
			t.Errorf("%s: %v in, %v out, waited %v ns; the table has %v, %v, %v ms an iteration", cell, in, out, wait, value(row, "in_bytes"), value(row, "out_bytes"), value(row, "stall_fault_ms"))
		}
		if kernels != 246 || in == 0 {
			t.Errorf("%s: %d kernels, %v bytes in", cell, kernels, in)
		}
		host, device := value(row, "host_bytes"), value(row, "peak_allocated_bytes")
		if peak["resident bytes"] == 0 || peak["resident bytes"] > device || peak["host bytes"] > host || (host > 0) != (peak["host bytes"] > 0) || peak["allocated bytes"] > 0 {
			t.Errorf("%s: counters up to %v; the table has %v on the device, %v on the host", cell, peak, device, host)
		}
		if tiers := host + value(row, "ssd_out_bytes"); tiers == 0 {
			t.Errorf("%s: nothing lies anywhere else", cell)
		}
	}
}

func TestTimelineFlags(t *testing.T) {
	for _, args := range [][]string{{"-timeline", "x"}, {"-timeline", "x", "-check"}, {"-timeline", "x", "-shard", "0/2"}} {
		code, _, stderr := runFile(t, t.Context(), small, &fake{}, args...)
		if code != exitInput || !strings.Contains(stderr, "-timeline") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}
