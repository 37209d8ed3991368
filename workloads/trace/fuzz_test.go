package trace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"smartswap/workloads"
	"smartswap/workloads/trace"
)

// Whatever a file holds, Open makes valid programs of it or says in one line why
// it does not.
func FuzzOpen(f *testing.F) {
	for _, path := range []string{
		small, smallDTR, smallKineto, smallET, smallChakra, "testdata/small.trace", "../../formats/chrome/testdata/npu.json", "../../formats/chrome/testdata/killed.json",
		"../../formats/chrome/testdata/timeline.json", "../../formats/et/testdata/chakra.json", "../../formats/ascend/testdata/kernel_details.csv", "../../formats/ascend/testdata/op_summary.csv",
		"../../formats/ascend/testdata/memory_record.csv",
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		w, _, err := trace.Open(path, trace.Options{})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of more than one line: %q", err)
			}
			return
		}
		for r := range w.Ranks() {
			p, err := w.Program(r, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Validate(); err != nil {
				t.Error(err)
			}
			if workloads.PeakLive(p, 1) < 0 {
				t.Error("negative peak")
			}
		}
	})
}
