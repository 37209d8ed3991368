package paper_test

import (
	"bytes"
	"encoding/csv"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"smartswap/paper"
)

var regen = flag.Bool("regen", false, "rewrite the golden files in testdata")

func table() *paper.Table {
	return &paper.Table{
		Title:   "Throughput at 100 % load_factor",
		Columns: []paper.Column{{Name: "strategy"}, {Name: "peak allocated (GiB)", Number: true}},
		Rows: [][]string{
			{"recompute | full", "41.2"},
			{`odd \ {name} & #1 $x^2~<y>`, "5 ± 0.1"},
			{"", ""},
		},
		Notes: []string{"Best of 210 points; 50% skipped."},
	}
}

func TestTableGolden(t *testing.T) {
	for name, write := range map[string]func(*paper.Table, io.Writer) error{
		"table.txt": (*paper.Table).Terminal, "table.md": (*paper.Table).Markdown,
		"table.tex": (*paper.Table).LaTeX, "table.csv": (*paper.Table).CSV,
	} {
		var got bytes.Buffer
		if err := write(table(), &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		path := filepath.Join("testdata", name)
		if *regen {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got.Bytes(), want)
		}
	}
}

// The invariants beside the golden files: what may not appear in each form.
func TestTableForms(t *testing.T) {
	var md, tex, text bytes.Buffer
	for _, err := range []error{table().Markdown(&md), table().LaTeX(&tex), table().CSV(&text)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range strings.Split(md.String(), "\n") {
		if strings.HasPrefix(line, "|") && strings.Count(line, "|")-strings.Count(line, `\|`) != 3 {
			t.Errorf("a Markdown row does not have two cells: %s", line)
		}
	}
	if !strings.Contains(md.String(), "peak allocated (GiB)") {
		t.Error("the header was rewritten")
	}
	body := tex.String()[strings.Index(tex.String(), `\midrule`):]
	body = body[:strings.Index(body, `\bottomrule`)]
	if n := strings.Count(body, " & "); n != 3 {
		t.Errorf("%d column separators in 3 LaTeX rows of 2 cells, want 3", n)
	}
	records, err := csv.NewReader(&text).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 4 || records[2][0] != table().Rows[1][0] {
		t.Errorf("CSV does not read back: %q", records)
	}
}
