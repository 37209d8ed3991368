package experiments

import (
	"math"
	"strings"
	"testing"

	"smartswap/results"
	"smartswap/sim"
)

const agreementFile = `
name = "x"
node.name = "n"
workload.tokens_per_step = 262144
[cases]
reference = "ascend-910b"
set.model = "workload.model"
set.seq   = "workload.seq"
[axes]
workload.save = ["minimal", "eager"]
[[strategy]]
name = "a"
layouts = ["tp1pp1dp8"]
[[strategy]]
name = "b"
layouts = ["tp1pp1dp8"]
[[claim]]
name = "agrees"
kind = "agreement"
reference = "ascend-910b"
value = "tokens_per_s_per_device"
published_column = "value"
match = { device = "workload.save" }
of = ["a"]
within = 1
`

// Every distinct combination of the table becomes one column, in its order,
// with the types of the keys.
func TestCases(t *testing.T) {
	c, err := Parse("x.toml", agreementFile)
	if err != nil {
		t.Fatal(err)
	}
	table, err := results.ReferenceTable("ascend-910b")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for r := range table.Rows {
		want[table.At(r, "model").String()+", "+table.At(r, "seq").String()] = true
	}
	if len(c.Columns) != len(want) || len(want) >= len(table.Rows) || len(want) < 2 {
		t.Fatalf("%d columns of %d distinct cases in %d rows", len(c.Columns), len(want), len(table.Rows))
	}
	first := table.At(0, "model").String() + ", " + table.At(0, "seq").String()
	if c.Columns[0].Name != first {
		t.Errorf("the first column is %q, want %q, the first row", c.Columns[0].Name, first)
	}
	cells, err := c.Cells((&fake{}).Devices)
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range cells {
		w := &cell.Points[0].Workload
		if got := strings.Join([]string{w.Model, show(w.Seq)}, ", "); got != cell.Column {
			t.Errorf("column %q runs %q", cell.Column, got)
		}
	}
}

func TestCasesWhereAndQuick(t *testing.T) {
	file := strings.Replace(agreementFile, "[axes]", "where.seq = [4096]\n[axes]", 1) + "[quick]\ncases.where.model = [\"llama2-7b\"]\n"
	c, err := Parse("x.toml", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, col := range c.Columns {
		if !strings.HasSuffix(col.Name, ", 4096") {
			t.Errorf("column %q is not of 4096 tokens", col.Name)
		}
	}
	all := len(c.Columns)
	if err := c.applyQuick(); err != nil {
		t.Fatal(err)
	}
	if len(c.Columns) != 1 || all < 2 || c.Columns[0].Name != "llama2-7b, 4096" {
		t.Errorf("the quick form has %d columns of %d", len(c.Columns), all)
	}
}

func TestCasesErrors(t *testing.T) {
	for _, tc := range []struct{ from, to, want string }{
		{`reference = "ascend-910b"` + "\nset.model", `reference = "ascend"` + "\nset.model", `x.toml:6: cases.reference = "ascend": no such reference; nearest is ascend-910b`},
		{"set.seq ", "set.sequence ", `x.toml:8: cases.set.sequence: ascend-910b has no column "sequence"; nearest is `},
		{`"workload.seq"`, `"workload.sec"`, `workload.sec: unknown key; nearest is seq`},
		{`"workload.seq"`, `"strategy.vpp"`, `cases.set.seq = "strategy.vpp": want a key such as`},
		{`"workload.seq"`, `{ key = "workload.seq", as = "4096" }`, `cases.set.seq.as = "4096": want a text with {}`},
		{"[axes]", "where.model = [\"gpt\"]\n[axes]", "cases.where: no row of ascend-910b has these values"},
		{"[axes]", "[[column]]\nname = \"c\"\n[axes]", "cases: the file has [[column]] too"},
		{`published_column = "value"`, `published_column = "val"`, `claim[0].published_column: ascend-910b has no column "val"; nearest is value`},
		{`match = { device = "workload.save" }`, ``, `claim[0].match: missing workload.save; want the column of ascend-910b`},
		{`match = { device = "workload.save" }`, `match = { device = "workload.seq" }`, `claim[0].match.device = "workload.seq": want one of the axes workload.save`},
		{`of = ["a"]`, `of = ["a", "b"]`, `claim[0].of = ["a", "b"]: want one strategy, or strategy_column`},
	} {
		if !strings.Contains(agreementFile, tc.from) {
			t.Fatalf("%q is not in the file", tc.from)
		}
		_, err := Parse("x.toml", strings.Replace(agreementFile, tc.from, tc.to, 1))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v; want %q", tc.to, err, tc.want)
		}
	}
}

// A table of two places and two strategies, with a failure on each side.
func agreementCase(t *testing.T, change func(*ClaimSpec)) []results.Claim {
	t.Helper()
	table, err := results.ReadCSV(strings.NewReader(`id,source,save,strategy,ms,note
1,s,minimal,a,100,
2,s,minimal,b,200,
3,s,eager,a,,gave up
4,s,eager,b,300,
5,s,other,a,1,
`))
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{Columns: []Column{{Name: "x"}}, Axes: []Axis{{Key: "workload.save", Values: []any{"minimal", "eager"}}}}
	cell := func(save, strategy string, ms float64) *CellResult {
		r := &CellResult{Cell: &Cell{Column: "x", Axes: []string{save}, Strategy: strategy}, Results: []Result{{Point: &Point{}, Status: Simulated}}}
		if math.IsNaN(ms) {
			r.Best = -1
			r.Results[0].Status = OutOfHBM
			return r
		}
		r.Results[0].Outcome.Time = sim.Time(ms * float64(sim.Millisecond))
		return r
	}
	nan := math.NaN()
	groups := [][]*CellResult{
		{cell("minimal", "a", 104), cell("minimal", "b", 103)},
		{cell("eager", "a", nan), cell("eager", "b", 330)},
	}
	spec := &ClaimSpec{Name: "n", Kind: "agreement", Value: "iteration_time_ms", Of: []string{"a", "b"}, Agreement: newAgreement()}
	spec.PublishedColumn, spec.StrategyColumn, spec.Match = "ms", "strategy", map[string]any{"save": "workload.save"}
	change(spec)
	return c.agreementWith(table, spec, groups)
}

func TestAgreement(t *testing.T) {
	find := func(list []results.Claim, statistic, unit string) results.Claim {
		for _, l := range list {
			if l.Statistic == statistic && l.Unit == unit {
				return l
			}
		}
		t.Fatalf("no line %s in %s", statistic, unit)
		return results.Claim{}
	}
	const wrong = "rows that disagree"
	list := agreementCase(t, func(s *ClaimSpec) { s.Within, s.WithinRelative, s.Ranking = 5, 0.1, 10 })
	if l := find(list, "count", wrong); l.Simulated != 1 || l.Verdict != results.Failed || l.Where != "of 4 rows of , 1 without a cell here" {
		t.Errorf("%+v: row 2 differs by 97, row 4 by exactly 10 %%, row 5 has no cell", l)
	}
	if l := find(list, "mean", "ms"); math.Abs(l.Simulated-(4+97+30)/3.0) > 1e-9 || l.Verdict != results.Reported {
		t.Errorf("mean %+v", l)
	}
	if l := find(list, "max", "ms"); l.Simulated != 97 || !strings.Contains(l.Where, "minimal, b") {
		t.Errorf("max %+v", l)
	}
	if l := find(list, "count", "pairs in another order"); l.Simulated != 1 || l.Verdict != results.Failed || !strings.HasPrefix(l.Where, "of 1 pairs") {
		t.Errorf("ranking %+v: published a < b, simulated a > b; the other place has one number", l)
	}
	for _, c := range list {
		if c.Statistic == "cell" && c.Detail != (c.Where != "x, minimal, b") {
			t.Errorf("%s: a terminal shows what disagrees, and only that", c.Where)
		}
	}
	list = agreementCase(t, func(s *ClaimSpec) { s.Within, s.Outliers, s.MeanWithin = 5, 2, 44 })
	if l := find(list, "count", wrong); l.Simulated != 2 || l.Verdict != results.Passed {
		t.Errorf("%+v: two outliers are allowed", l)
	}
	if l := find(list, "mean", "ms"); l.Verdict != results.Passed {
		t.Errorf("%+v", l)
	}
	// Without a tolerance nothing disagrees but failures, and nothing is asserted.
	list = agreementCase(t, func(*ClaimSpec) {})
	if l := find(list, "count", wrong); l.Simulated != 0 || l.Verdict != results.Reported {
		t.Errorf("%+v", l)
	}
}

// What fits where the published one did not disagrees, and the other way
// round.
func TestAgreementOfFailures(t *testing.T) {
	nan := math.NaN()
	spec := &ClaimSpec{Value: "iteration_time_ms", Agreement: newAgreement()}
	spec.PublishedColumn = "ms"
	table := &results.Frame{Columns: []results.Column{{Name: "ms"}}, Rows: [][]results.Value{{results.Value{}}, {results.RealValue(1)}}}
	for _, tc := range []struct {
		row     int
		ms      float64
		outside bool
	}{{0, nan, false}, {0, 1, true}, {1, nan, true}, {1, 1, false}} {
		cell := &CellResult{Cell: &Cell{}, Results: []Result{{Point: &Point{}, Status: Simulated}}}
		if math.IsNaN(tc.ms) {
			cell.Best = -1
		} else {
			cell.Results[0].Outcome.Time = sim.Time(tc.ms * float64(sim.Millisecond))
		}
		if got := spec.held(table, tc.row, cell, ""); got.outside != tc.outside {
			t.Errorf("row %d, simulated %v: outside is %v", tc.row, tc.ms, got.outside)
		}
	}
}
