package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"smartswap/experiments"
	"smartswap/formats/snapshot"
	"smartswap/inspect"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"trace": main})
}

// The scripts run the built command the way a user does. $SNAPSHOTS is the
// folder of small memory snapshots.
func TestScript(t *testing.T) {
	snapshots, err := filepath.Abs(filepath.Join("..", "..", "formats", "snapshot", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("SNAPSHOTS", snapshots)
			return nil
		},
	})
}

// runSnapshot is the snapshot of a run of a few iterations that swaps, or has to
// try again and again, or both. settings are lines of the file.
func runSnapshot(t *testing.T, settings string) (file string) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "run.toml")
	text := `
name = "run"
node.name = "910b2-8"
node.device.hbm = "7GiB"
iterations = 4
warmup = 3
` + settings + `
[workload]
model = "llama2-7b"
layers = 2
seq = 4096
micro_batches = 4

[[strategy]]
name = "lru"
policy = "lru"
layouts = ["tp1pp1dp8"]
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := experiments.Main(t.Context(), []string{"-out", dir, "-timeline", dir, config}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	files, err := filepath.Glob(filepath.Join(dir, "run", "*", "snapshot.pickle"))
	if err != nil || len(files) != 1 {
		t.Fatalf("snapshots %v, %v", files, err)
	}
	return files[0]
}

// The snapshot of a run is read back, and replays without a difference: nothing
// but the file says which allocator left it.
func TestSnapshotsOfRuns(t *testing.T) {
	var pending, stitched, oom, unmap int
	for _, c := range []struct{ settings, says string }{
		{"", "pytorch allocator:"},
		{"allocator.dialect = \"torch_npu\"", "torch_npu allocator:"},
		{"allocator.expandable_segments = true", "pytorch allocator with expandable segments:"},
		{"allocator.dialect = \"torch_npu\"\nallocator.expandable_segments = true", "torch_npu allocator with expandable segments:"},
		{"allocator.backend = \"stitching\"\nallocator.dialect = \"torch_npu\"", "torch_npu stitching allocator:"},
		{"allocator.max_split_size_mb = 64\nallocator.per_process_memory_fraction = 0.97", "pytorch allocator:"},
		{"allocator.garbage_collection_threshold = 0.8\nallocator.per_process_memory_fraction = 0.97", "pytorch allocator:"},
		{"allocator.roundup_power2_divisions = 8", "pytorch allocator:"},
	} {
		for _, release := range []string{"custom", "stock"} {
			for _, events := range []string{"query", "query-lazy", "wait-at-reuse"} {
				for _, drain := range []string{"late", "early"} {
					if drain == "early" && events != "query" {
						continue
					}
					settings := fmt.Sprintf("%s\nexecutor.release = %q\nallocator.event_policy = %q\nallocator.drain = %q", c.settings, release, events, drain)
					file := runSnapshot(t, settings)
					var out, errs bytes.Buffer
					if code := inspect.Main(t.Context(), []string{"snapshot", file}, &out, &errs); code != 0 || errs.Len() > 0 || !strings.Contains(out.String(), c.says) {
						t.Errorf("%s: exit code %d\n%s%s", settings, code, out.String(), errs.String())
					}
					p, s, o, u := bites(t, file)
					pending, stitched, oom, unmap = pending+p, stitched+s, oom+o, unmap+u
				}
			}
		}
	}
	if pending < 10 || stitched < 3 || oom < 100 || unmap < 100 {
		t.Errorf("%d blocks pending, %d parts of stitched ones, %d out of memory, %d segments given back: too few to show anything", pending, stitched, oom, unmap)
	}
}

// bites counts what makes a snapshot hard to replay.
func bites(t *testing.T, file string) (pending, stitched, oom, givenBack int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := snapshot.Read(f, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range s.Segments {
		for _, b := range g.Blocks {
			if b.State == snapshot.PendingFree {
				pending++
			}
			if len(b.Frames) > 0 {
				stitched++
			}
		}
	}
	for _, trace := range s.Traces {
		for _, e := range trace {
			switch e.Action {
			case snapshot.OOM:
				oom++
			case snapshot.SegmentFree, snapshot.SegmentUnmap:
				givenBack++
			}
		}
	}
	return pending, stitched, oom, givenBack
}

// The allocator without segments has none to replay, and says so.
func TestSnapshotWithoutSegments(t *testing.T) {
	file := runSnapshot(t, "allocator.backend = \"bytes\"")
	var out, errs bytes.Buffer
	code := inspect.Main(t.Context(), []string{"snapshot", file}, &out, &errs)
	if code != 2 || !strings.Contains(errs.String(), `backend = "bytes" has no segments to replay; allowed: "caching" "stitching"`) || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
}
