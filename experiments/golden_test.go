package experiments

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"smartswap/results"
)

// What committed results must satisfy whatever the policies do: the columns are
// those of this program, memory is reserved before it is handed out, no run
// beats its bound, and none without profiler its ideal.
func TestGoldenResults(t *testing.T) {
	paths, err := filepath.Glob("../results/golden/*/rows.csv")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d committed results, %v", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(filepath.Dir(path)), "-quick")
		config, err := Load("../configs/" + name + ".toml")
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := results.ReadCSV(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range newFrame(config.Axes).Columns {
			if i >= len(frame.Columns) || frame.Columns[i].Name != c.Name {
				t.Fatalf("%s: column %d is not %s; -quick -regen writes the file anew", path, i+1, c.Name)
			}
		}
		fit := 0
		for r := range frame.Rows {
			at := func(column string) float64 { return frame.At(r, column).Number() }
			if at("peak_reserved_bytes") < at("peak_allocated_bytes") {
				t.Errorf("%s, row %d: reserved %.0f, allocated %.0f", path, r+1, at("peak_reserved_bytes"), at("peak_allocated_bytes"))
			}
			if frame.At(r, "status").String() != "ok" {
				continue
			}
			fit++
			if at("iteration_time_ms") < at("time_bound_ms") {
				t.Errorf("%s, row %d: %g ms, bound %g", path, r+1, at("iteration_time_ms"), at("time_bound_ms"))
			}
			if at("fraction_of_ideal") > 1.0001 { // an allocator's driver calls move a host by microseconds
				t.Errorf("%s, row %d: %g of ideal speed", path, r+1, at("fraction_of_ideal"))
			}
			if at("busy_ms") > at("iteration_time_ms") {
				t.Errorf("%s, row %d: busy for %g of %g ms", path, r+1, at("busy_ms"), at("iteration_time_ms"))
			}
		}
		if fit == 0 {
			t.Errorf("%s: nothing fits, so it shows nothing", path)
		}
	}
}
