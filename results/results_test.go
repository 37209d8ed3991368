package results_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/results"
)

func values(t *rapid.T) results.Value {
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return results.Value{}
	case 1:
		// A text that looks like a number reads back as one, in the same form.
		return results.TextValue(rapid.StringMatching(`[ -~]{1,12}`).Draw(t, "text"))
	case 2:
		return results.IntegerValue(rapid.Int64().Draw(t, "integer"))
	}
	return results.RealValue(rapid.Float64().Draw(t, "real"))
}

// What is written reads back in the same form, whatever stands in the cells.
func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &results.Frame{Columns: []results.Column{{Name: "name"}, {Name: "time_ms"}, {Name: "odd, \"name\""}}}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			f.Rows = append(f.Rows, []results.Value{results.TextValue("x"), values(t), values(t)})
		}
		var first, second bytes.Buffer
		if err := f.WriteCSV(&first); err != nil {
			t.Fatal(err)
		}
		g, err := results.ReadCSV(bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.WriteCSV(&second); err != nil {
			t.Fatal(err)
		}
		if first.String() != second.String() {
			t.Fatalf("wrote\n%s\nread and wrote\n%s", &first, &second)
		}
		if diffs := results.Compare(f, g, 10); diffs != nil {
			t.Fatalf("read back differs: %s", diffs)
		}
	})
}

func TestReadCSVRefuses(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "ragged": "a,b\n1\n", "quote": "a\n\"1\n"} {
		if _, err := results.ReadCSV(strings.NewReader(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestValues(t *testing.T) {
	for _, v := range []results.Value{{}, results.RealValue(math.NaN()), results.RealValue(math.Inf(-1))} {
		if v.Present() || v.String() != "" || !math.IsNaN(v.Number()) {
			t.Errorf("%q: want an absent value", v)
		}
	}
	if got := results.IntegerValue(math.MaxInt64).String(); got != "9223372036854775807" {
		t.Errorf("integers must be exact, got %s", got)
	}
	f := &results.Frame{Columns: []results.Column{{Name: "a"}}, Rows: [][]results.Value{{results.IntegerValue(7)}}}
	if f.At(0, "a").Number() != 7 || f.At(0, "b").Present() || f.Index("b") != -1 {
		t.Error("lookup by name")
	}
}

func TestCompare(t *testing.T) {
	frame := func(v ...results.Value) *results.Frame {
		f := &results.Frame{Columns: []results.Column{{Name: "x"}}}
		for _, e := range v {
			f.Rows = append(f.Rows, []results.Value{e})
		}
		return f
	}
	one, big := results.RealValue(1), results.IntegerValue(1<<60)
	for _, c := range []struct {
		name      string
		got, want *results.Frame
		diffs     int
	}{
		{"equal", frame(one, big), frame(one, big), 0},
		{"within tolerance", frame(results.RealValue(1 + 1e-12)), frame(one), 0},
		{"beyond tolerance", frame(results.RealValue(1 + 1e-8)), frame(one), 1},
		{"real read back as integer", frame(one), frame(results.IntegerValue(1)), 0},
		{"integer off by one", frame(results.IntegerValue(1<<60 + 1)), frame(big), 1},
		{"text", frame(results.TextValue("a")), frame(results.TextValue("b")), 1},
		{"absent", frame(results.Value{}), frame(one), 1},
		{"row missing", frame(one), frame(one, one), 1},
		{"column renamed", frame(one), &results.Frame{Columns: []results.Column{{Name: "y"}}}, 1},
		{"column missing", frame(one), &results.Frame{}, 1},
	} {
		if diffs := results.Compare(c.got, c.want, 10); len(diffs) != c.diffs {
			t.Errorf("%s: %q, want %d differences", c.name, diffs, c.diffs)
		}
	}
	if diffs := results.Compare(frame(one, one, one), frame(big, big, big), 2); len(diffs) != 2 {
		t.Errorf("limit: %q", diffs)
	}
}

// A failing writer must leave the old content and no litter.
func TestWriteFileIsAtomic(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(folder, "rows.csv")
	write := func(s string, err error) error {
		return results.WriteFile(path, func(w io.Writer) error {
			io.WriteString(w, s)
			return err
		})
	}
	if err := write("old", nil); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no more")
	if err := write("half", failure); !errors.Is(err, failure) {
		t.Fatalf("error %v, want %v", err, failure)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("content %q after a failed write, want the old one", got)
	}
	if err := write("new", nil); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "new" || len(entries) != 1 {
		t.Errorf("content %q and %d files, want the new content alone", got, len(entries))
	}
	if err := results.WriteFile(filepath.Join(path, "below"), func(io.Writer) error { return nil }); err == nil {
		t.Error("a file cannot be a folder")
	}
}

func TestClaim(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name      string
		simulated float64
		low, high float64
		want      results.Verdict
	}{
		{"on the lower bound", 1, 1, nan, results.Passed},
		{"on the upper bound", 1, nan, 1, results.Passed},
		{"below", 0.9, 1, 2, results.Failed},
		{"above", 2.1, 1, 2, results.Failed},
		{"nothing simulated", nan, nan, nan, results.Failed},
	} {
		claim := results.Claim{Simulated: c.simulated, Published: 2}
		claim.Assert(c.low, c.high)
		if claim.Verdict != c.want {
			t.Errorf("%s: %s, want %s", c.name, claim.Verdict, c.want)
		}
	}
	claim := results.Claim{Simulated: 3, Published: 2}
	if claim.Difference() != 1 || claim.Ratio() != 1.5 {
		t.Errorf("difference %g, ratio %g", claim.Difference(), claim.Ratio())
	}
	claim.Published = 0
	if !math.IsNaN(claim.Ratio()) {
		t.Error("a ratio to 0 is no number")
	}
	f := results.ClaimFrame([]results.Claim{claim})
	if len(f.Rows) != 1 || len(f.Rows[0]) != len(f.Columns) {
		t.Error("a claim is one full row")
	}
}

// Every committed table must load, and say for each number what it is and
// where it stands.
func TestReferences(t *testing.T) {
	names := results.References()
	if len(names) == 0 {
		t.Fatal("no reference tables")
	}
	for _, name := range names {
		table, err := results.ReferenceTable(name)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		if table.Index("device") < 0 { // not of measurements of training jobs
			for r := range table.Rows {
				id, source := table.At(r, "id").String(), table.At(r, "source").String()
				if id == "" || ids[id] || source == "" {
					t.Errorf("%s, row %d: id %q, source %q: both must be given, ids once", name, r+1, id, source)
				}
				ids[id] = true
			}
			continue
		}
		list, err := results.Reference(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.ID == "" || ids[m.ID] || m.Source == "" || m.Device == "" || m.Model == "" || m.Metric == "" || m.Unit == "" || m.Value <= 0 || m.Seq <= 0 {
				t.Errorf("%s: %+v: every field must be given, ids once", name, m)
			}
			ids[m.ID] = true
		}
	}
	if _, err := results.Reference("ascend-910"); err == nil || !strings.Contains(err.Error(), "ascend-910b") {
		t.Errorf("error %v does not name the nearest", err)
	}
}

// The sums behind derived values of the reference table.
func TestReferenceArithmetic(t *testing.T) {
	list, err := results.Reference("ascend-910b")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range list {
		got[m.ID] = m.Value
	}
	for id, want := range map[string]float64{
		"MSLR-005": 1.78 * 16384 / 8, // samples/s, tokens, devices
		"MSLR-007": 0.79 * 32768 / 8,
	} {
		if math.Abs(got[id]-want) > 1e-9*want {
			t.Errorf("%s: %g, want %g", id, got[id], want)
		}
	}
}

func TestManifest(t *testing.T) {
	m := results.Manifest{Name: "x", Config: "a < b", Code: results.BuildCode()}
	var first, second bytes.Buffer
	if err := errors.Join(m.Write(&first), m.Write(&second)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.String(), second.String()); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(first.String(), "a < b") {
		t.Error("the configuration must be readable")
	}
	if !strings.HasPrefix(m.Code.Go, "go") || m.Code.Commit == "" || m.Code.Dirty == "" {
		t.Errorf("code %+v: want a value or unknown everywhere", m.Code)
	}
}
