package experiments

import (
	"os"
	"path/filepath"
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

func TestTimelineFlags(t *testing.T) {
	for _, args := range [][]string{{"-timeline", "x"}, {"-timeline", "x", "-check"}, {"-timeline", "x", "-shard", "0/2"}} {
		code, _, stderr := runFile(t, t.Context(), small, &fake{}, args...)
		if code != exitInput || !strings.Contains(stderr, "-timeline") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}
