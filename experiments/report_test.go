package experiments

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"smartswap/eager/stream"
	"smartswap/results"
	"smartswap/sim"
)

// grid is finished cells: columns x strategies with given times in ms; 0 does
// not fit.
func grid(t *testing.T, strategies []string, columns map[string][]int64, order []string) []*CellResult {
	t.Helper()
	var cells []*CellResult
	for _, column := range order {
		for s, ms := range columns[column] {
			p := &Point{Setup: Setup{Replications: 1, Workload: Workload{Kind: "decoder", Model: "llama2-7b", Seq: 4096}}, Layout: Layout{1, 1, 8}, Recompute: "none", MicroBatch: 1}
			r := Result{Point: p, Outcome: Outcome{Time: sim.Time(ms) * sim.Millisecond, Tokens: 8000, Devices: 8}, Best: ms > 0, Ideal: &Outcome{Time: sim.Time(ms) * sim.Millisecond, PeakAllocated: 90 * sim.GiB}, Bounds: Bounds{Capacity: 60 * sim.GiB}}
			c := &CellResult{Cell: &Cell{Column: column, Strategy: strategies[s], Points: []*Point{p}}, Best: 0}
			if ms == 0 {
				r.Status, c.Best = OutOfHBM, -1
				r.Outcome = Outcome{OOM: &OOM{Requested: 3 * sim.GiB, Free: sim.GiB, Capacity: 60 * sim.GiB}}
			}
			c.Results = []Result{r}
			cells = append(cells, c)
		}
	}
	return cells
}

func find(claims []results.Claim, statistic string) []results.Claim {
	var list []results.Claim
	for _, c := range claims {
		if c.Statistic == statistic {
			list = append(list, c)
		}
	}
	return list
}

func TestGainClaim(t *testing.T) {
	nan := math.NaN()
	names := []string{"base", "zero", "swap"}
	c := &Config{Strategies: []Strategy{{Name: "base"}, {Name: "zero"}, {Name: "swap"}}}
	spec := ClaimSpec{Name: "gain", Kind: "gain", Value: "tokens_per_s_per_device", Of: []string{"swap"}, Over: []string{"base", "zero"},
		Statistic: "max", Published: 38.94, Source: "paper", AtLeast: nan, AtMost: nan}
	c.Claims = []ClaimSpec{spec}
	cells := grid(t, names, map[string][]int64{
		"wins":  {200, 150, 100}, // the better baseline is 150: +50 %
		"loses": {100, 0, 125},   // -20 %
		"ties":  {100, 100, 100},
		"alone": {0, 0, 100},
		"lost":  {100, 0, 0},
		"none":  {0, 0, 0},
	}, []string{"wins", "loses", "ties", "alone", "lost", "none"})
	claims, err := c.claims(cells)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		statistic string
		value     float64
		where     string
	}{{"min", -20, "loses"}, {"median", 0, "ties"}, {"max", 50, "wins"}, {"count", 1, "of 3 cells in which both fit"}} {
		got := find(claims, want.statistic)
		if len(got) != 1 || math.Abs(got[0].Simulated-want.value) > 1e-9 || got[0].Where != want.where {
			t.Errorf("%s: %+v, want %g at %s", want.statistic, got, want.value, want.where)
		}
	}
	if top := find(claims, "max")[0]; top.Published != 38.94 || top.Source != "paper" || top.Verdict != results.Reported {
		t.Errorf("the published number stands beside the maximum: %+v", top)
	}
	if low := find(claims, "min")[0]; !math.IsNaN(low.Published) {
		t.Errorf("the published number is not the minimum: %+v", low)
	}
	notes := map[string]string{}
	for _, cell := range find(claims, "cell") {
		notes[cell.Where] = cell.Note
	}
	for where, want := range map[string]string{"wins": "swap (tp1pp1dp8 none mb1) over zero", "alone": "only swap fits", "lost": "only base fits", "none": "nothing fits"} {
		if !strings.Contains(notes[where], want) {
			t.Errorf("%s: note %q, want %q", where, notes[where], want)
		}
	}

	// An even number of gains: the median lies between two cells.
	claims, err = c.claims(cells[:6])
	if err != nil {
		t.Fatal(err)
	}
	if m := find(claims, "median")[0]; math.Abs(m.Simulated-15) > 1e-9 || m.Where != "loses and wins" {
		t.Errorf("median %+v, want 15 between loses and wins", m)
	}
	// Nothing to compare: the claim is there, without a number.
	claims, err = c.claims(cells[9:])
	if err != nil {
		t.Fatal(err)
	}
	if m := find(claims, "max"); len(m) != 1 || !math.IsNaN(m[0].Simulated) {
		t.Errorf("max of nothing: %+v", m)
	}
	// Where restricts cells.
	c.Claims[0].Where = map[string]any{"column": "loses"}
	claims, err = c.claims(cells)
	if err != nil {
		t.Fatal(err)
	}
	if m := find(claims, "max"); math.Abs(m[0].Simulated+20) > 1e-9 {
		t.Errorf("restricted to one column: %+v", m)
	}
}

func TestReferenceClaim(t *testing.T) {
	nan := math.NaN()
	c := &Config{Strategies: []Strategy{{Name: "base"}}, Claims: []ClaimSpec{{Name: "measured", Kind: "reference", Reference: "ascend-910b", Of: []string{"base"}, AtLeast: nan, AtMost: nan}}}
	cells := grid(t, []string{"base"}, map[string][]int64{"7B 4k": {250}}, []string{"7B 4k"})
	claims, err := c.claims(cells)
	if err != nil {
		t.Fatal(err)
	}
	// 8,000 tokens on 8 devices in 250 ms are 4,000 tokens/s; 4,672 are published.
	if len(claims) != 1 || claims[0].Simulated != 4000 || claims[0].Published != 4672 || !strings.HasPrefix(claims[0].Source, "MSLR-011") {
		t.Errorf("%+v", claims)
	}
}

func TestValueClaim(t *testing.T) {
	c := &Config{Strategies: []Strategy{{Name: "base"}}, Claims: []ClaimSpec{{Name: "exact", Kind: "value", Value: "iteration_time_ps", Of: []string{"base"}, Published: 250e9, AtLeast: 250e9, AtMost: 250e9}}}
	for ms, want := range map[int64]results.Verdict{250: results.Passed, 251: results.Failed, 249: results.Failed, 0: results.Failed} {
		claims, err := c.claims(grid(t, []string{"base"}, map[string][]int64{"c": {ms}}, []string{"c"}))
		if err != nil {
			t.Fatal(err)
		}
		if len(claims) != 1 || claims[0].Verdict != want || claims[0].Unit != "ps" {
			t.Errorf("%d ms: %+v, want %s", ms, claims, want)
		}
	}
}

func TestTables(t *testing.T) {
	c := &Config{Title: "T", Strategies: []Strategy{{Name: "base"}, {Name: "swap"}}}
	cells := grid(t, []string{"base", "swap"}, map[string][]int64{"a": {250, 0}, "b": {500, 1000}}, []string{"a", "b"})
	cells[0].Results[0].Outcome.Stalls[stream.SwapIn] = 3 * sim.Millisecond
	cells[0].Results[0].Outcome.Stalls[stream.Fault] = 12340 * sim.Microsecond
	list := c.table(&TableSpec{Show: []string{"layout", "tokens_per_s_per_device", "peak_reserved_bytes", "stalls_ms", "fraction_of_ideal", "multiple_of_hbm", "capacity_bytes"}}, cells)
	for i, row := range list.Rows {
		if len(row) != len(list.Columns) {
			t.Errorf("row %d has %d cells for %d columns", i, len(row), len(list.Columns))
		}
	}
	if got := strings.Join(list.Rows[0], "|"); got != "a|base|tp1pp1dp8|4000|0.0|swap_in 3.0, fault 12.3|1.000|1.50|60.0" {
		t.Errorf("row %q", got)
	}
	if got := list.Rows[1][3]; got != "OOM: requested 3.000, free 1.000 of 60.0 GiB" {
		t.Errorf("what does not fit: %q", got)
	}
	pivot := c.table(&TableSpec{Value: "iteration_time_ms"}, cells)
	for i, want := range []string{"a|250.0|OOM", "b|500.0|1000.0"} {
		if got := strings.Join(pivot.Rows[i], "|"); got != want {
			t.Errorf("row %q, want %q", got, want)
		}
	}
	figure := c.barFigure(&FigureSpec{Value: "iteration_time_ms"}, cells)
	if err := figure.Validate(); err != nil {
		t.Error(err)
	}
	if v := figure.Panels[0].Values; v[1][1] != 1000 || !math.IsNaN(v[0][1]) {
		t.Errorf("figure values %v", v)
	}
}

// Every column that is a number is printed in some form for a cell that fits,
// and every column has a glossary entry and a unit that the printer knows.
func TestGlossary(t *testing.T) {
	seen := map[string]bool{}
	for _, col := range append(rowColumns(), tableColumns()...) {
		if col.About == "" || seen[col.Name] {
			t.Errorf("%s: want one entry with an explanation", col.Name)
		}
		seen[col.Name] = true
	}
	for cause := range causeText {
		if causeText[cause] == "" {
			t.Errorf("stall cause %s is not explained", stream.Cause(cause).Name())
		}
	}
}

// A change takes any column; one cell is its own summary, several have one, and
// those that reach the published number are counted.
func TestChangeClaim(t *testing.T) {
	nan := math.NaN()
	c := &Config{Strategies: []Strategy{{Name: "plain"}, {Name: "swap"}}}
	spec := ClaimSpec{Name: "change", Kind: "change", Value: "iteration_time_ms", Of: []string{"swap"}, Over: []string{"plain"},
		Statistic: "min", Published: -20, AtLeast: nan, AtMost: nan}
	c.Claims = []ClaimSpec{spec}
	one, err := c.claims(grid(t, c.strategyNames(), map[string][]int64{"a": {100, 75}}, []string{"a"}))
	if err != nil || len(one) != 1 || one[0].Statistic != "cell" || one[0].Published != -20 || math.Abs(one[0].Simulated+25) > 1e-9 {
		t.Errorf("one cell: %+v, %v", one, err)
	}
	several, err := c.claims(grid(t, c.strategyNames(), map[string][]int64{"a": {100, 75}, "b": {100, 80}, "c": {100, 110}, "d": {100, 0}}, []string{"a", "b", "c", "d"}))
	if err != nil {
		t.Fatal(err)
	}
	if min := find(several, "min"); len(min) != 1 || min[0].Published != -20 || min[0].Where != "a" {
		t.Errorf("min: %+v", min)
	}
	if count := find(several, "count"); len(count) != 1 || count[0].Simulated != 2 {
		t.Errorf("a and b reach -20 %%: %+v", count)
	}
	if cells := find(several, "cell"); len(cells) != 4 || cells[3].Note != "only plain fits" {
		t.Errorf("cells: %+v", cells)
	}
	// On a terminal, the cell of the first is shown; of the second only what
	// cannot be compared or loses.
	if rows := claimTable(one).Rows; len(rows) != 1 {
		t.Errorf("%d lines for one cell", len(rows))
	}
	c.Claims[0].Value = "stall_swap_in_ms"
	if none, _ := c.claims(grid(t, c.strategyNames(), map[string][]int64{"a": {100, 75}}, []string{"a"})); !strings.Contains(none[len(none)-1].Note, "plain has 0") {
		t.Errorf("over 0: %+v", none)
	}
}

// sweep is a grid of cells over one axis: column x values x strategies.
func sweep(t *testing.T, c *Config, times map[string][]int64) []*CellResult {
	var cells []*CellResult
	for i, v := range c.Axes[0].Values {
		for _, cell := range grid(t, c.strategyNames(), map[string][]int64{"job": times[plain(v)]}, []string{"job"}) {
			cell.Cell.Axes = []string{plain(v)}
			cell.Cell.strategy = len(cells) - i*len(c.Strategies)
			cells = append(cells, cell)
		}
	}
	return cells
}

func TestComparisonTableAndLines(t *testing.T) {
	nan := math.NaN()
	c := &Config{
		Title: "T", Strategies: []Strategy{{Name: "plain"}, {Name: "swap"}}, Columns: []Column{{Name: "job"}},
		Axes:   []Axis{{Key: "profilers.detailed.per_op", Values: []any{"1us", "500ns"}}},
		Claims: []ClaimSpec{{Name: "change", Kind: "change", Value: "iteration_time_ms", Of: []string{"swap"}, Over: []string{"plain"}, Statistic: "min", Published: -20, AtLeast: nan, AtMost: nan}},
	}
	cells := sweep(t, c, map[string][]int64{"1us": {100, 75}, "500ns": {200, 100}})
	table := c.table(&TableSpec{Claim: "change", Across: "profilers.detailed.per_op"}, cells)
	if got := strings.Join(table.Rows[0], "|"); got != "job|-25.0|-50.0" || table.Columns[2].Name != "detailed.per_op = 500ns" {
		t.Errorf("%v %q", table.Columns, got)
	}
	l := c.lineFigure(&FigureSpec{Claim: "change", X: "profilers.detailed.per_op", Lines: "column"}, cells)
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	if p := l.Panels[0].Points[0]; len(p) != 2 || p[0].X != 0.5 || p[0].Y != -50 || p[1].X != 1 || p[1].Y != -25 || l.XLabel != "detailed.per_op (us)" || l.Marks[0].Y != -20 {
		t.Errorf("%+v", l)
	}
	// Over a result, the values of the axis are points of one line.
	l = c.lineFigure(&FigureSpec{Value: "iteration_time_ms", X: "iteration_time_ms", Lines: "strategy"}, cells)
	if len(l.Panels) != 1 || len(l.Series) != 2 || len(l.Panels[0].Points[1]) != 2 || l.Panels[0].Points[1][0].X != 75 {
		t.Errorf("%+v", l)
	}
	// Over an axis, one line per strategy.
	l = c.lineFigure(&FigureSpec{Value: "iteration_time_ms", X: "profilers.detailed.per_op", Lines: "strategy"}, cells)
	if len(l.Panels) != 1 || len(l.Series) != 2 || l.Panels[0].Title != "" {
		t.Errorf("%+v", l)
	}
	if _, ok := c.figure(&FigureSpec{Value: "iteration_time_ms", X: "profilers.detailed.per_op", Lines: "strategy", Where: map[string]any{"column": "none"}}, cells); ok {
		t.Error("a figure of nothing")
	}
	b := c.barFigure(&FigureSpec{Value: "iteration_time_ms", Bars: "column"}, cells)
	if err := b.Validate(); err != nil || len(b.Panels) != 2 || b.Series[0] != "job" || b.Panels[1].Values[1][0] != 100 {
		t.Errorf("%v %+v", err, b)
	}
}

func TestBaselines(t *testing.T) {
	c := &Config{CompareWith: "plain", Strategies: []Strategy{{Name: "plain"}, {Name: "swap"}, {Name: "slow", CompareWith: "swap"}}, Axes: []Axis{{Key: "seed", Values: []any{int64(1)}}}}
	cells := sweep(t, c, map[string][]int64{"1": {100, 80, 120}})
	c.attachBaselines(append(cells, nil)) // an interrupted run has cells that are not there
	for i, want := range []float64{0, -20, 50} {
		if v, ok := valueOf(cells[i], "overhead_percent"); !ok || math.Abs(v.Number()-want) > 1e-9 {
			t.Errorf("%s: overhead %v, want %g", cells[i].Cell.Strategy, v, want)
		}
	}
	cells = sweep(t, c, map[string][]int64{"1": {0, 80, 120}})
	c.attachBaselines(cells)
	if _, ok := valueOf(cells[1], "overhead_percent"); ok {
		t.Error("the baseline does not fit, so there is nothing above it")
	}
}

func TestNumeric(t *testing.T) {
	for _, c := range []struct {
		v    any
		x    float64
		unit string
	}{{int64(5), 5, ""}, {0.25, 0.25, ""}, {"1.5us", 1.5, "us"}, {"2ms", 2000, "us"}, {"25.6GB/s", 25.6, "GB/s"}, {"32GiB", 32, "GiB"}} {
		if x, unit, ok := numeric(c.v); !ok || math.Abs(x-c.x) > 1e-9 || unit != c.unit {
			t.Errorf("%v: %g %q %v", c.v, x, unit, ok)
		}
	}
	for _, v := range []any{"eager", true, math.NaN(), "inf"} {
		if _, _, ok := numeric(v); ok {
			t.Errorf("%v is no number", v)
		}
	}
}

// Strategies are ranked in their own place: what fits by time, equals in the
// order of the file, what does not fit last and without a rank.
func TestBestFirst(t *testing.T) {
	cell := func(column, strategy string, ms int64) *CellResult {
		r := &CellResult{Cell: &Cell{Column: column, Strategy: strategy}, Best: -1, Results: []Result{{Point: &Point{}, Status: OutOfHBM}}}
		if ms > 0 {
			r.Best, r.Results[0].Status = 0, Simulated
			r.Results[0].Outcome.Time = sim.Time(ms) * sim.Millisecond
		}
		return r
	}
	cells := []*CellResult{
		cell("x", "none", 0), cell("x", "slow", 9), cell("x", "first", 5), cell("x", "second", 5),
		cell("y", "none", 1), cell("y", "slow", 2),
	}
	c := &Config{}
	table := c.table(&TableSpec{Show: []string{"iteration_time_ms"}, BestFirst: true}, cells)
	var got []string
	for _, row := range table.Rows {
		got = append(got, strings.Join(row, " "))
	}
	want := []string{"x 1 first 5.0", "x 2 second 5.0", "x 3 slow 9.0", "x  none OOM", "y 1 none 1.0", "y 2 slow 2.0"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !strings.HasPrefix(table.Notes[0], "Rank 1 is recommended") {
		t.Errorf("notes %q", table.Notes)
	}
	table = c.table(&TableSpec{Show: []string{"iteration_time_ms"}, BestFirst: true}, []*CellResult{cell("x", "none", 0), cell("x", "lru", 0)})
	if !slices.Equal(table.Notes, []string{"No strategy fits: nothing is recommended."}) {
		t.Errorf("notes %q", table.Notes)
	}
}

// What a policy could not do stands once below every kind of table.
func TestComplaints(t *testing.T) {
	c := &Config{Strategies: []Strategy{{Name: "base"}, {Name: "swap"}}}
	cells := grid(t, []string{"base", "swap"}, map[string][]int64{"a": {250, 0}, "b": {500, 1000}}, []string{"a", "b"})
	for i := range cells {
		if cells[i].Cell.Strategy == "swap" {
			cells[i].Results[0].Outcome.Complaints = []string{"swaps nothing"}
		}
	}
	for _, spec := range []TableSpec{{Show: []string{"layout"}, BestFirst: true}, {Value: "iteration_time_ms"}} {
		notes := c.table(&spec, cells).Notes
		if last := len(notes) - 1; last != 1 || notes[last] != "swap: swaps nothing." {
			t.Errorf("notes %q", notes)
		}
	}
}

// Free memory that is in too small pieces is told so.
func TestOutOfMemoryText(t *testing.T) {
	for want, o := range map[string]*OOM{
		"OOM": nil,
		"OOM: requested 3.000, free 2.000 of 9.0 GiB":                     {Requested: 3 * sim.GiB, Free: 2 * sim.GiB, Capacity: 9 * sim.GiB, LargestFree: sim.GiB},
		"OOM: requested 2.000, free 2.000 of 9.0 GiB, 1.000 in one range": {Requested: 2 * sim.GiB, Free: 2 * sim.GiB, Capacity: 9 * sim.GiB, LargestFree: sim.GiB},
	} {
		if got := oomText(o); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// -set has the shell's view: short names, paths from where the command is run.
func TestShellSettings(t *testing.T) {
	c := &Config{Path: filepath.Join("some", "where", "x.toml")}
	for _, tc := range []struct {
		key   string
		value any
		want  []Setting
	}{
		{"trace", "a.json", []Setting{{"workload.kind", "trace", "-set"}, {"workload.trace", filepath.Join("..", "..", "a.json"), "-set"}}},
		{"workload.net", filepath.Join("some", "n.txt"), []Setting{{"workload.net", filepath.Join("..", "n.txt"), "-set"}}},
		{"workload.trace", filepath.FromSlash("/a.json"), []Setting{{"workload.trace", filepath.FromSlash("/a.json"), "-set"}}},
		{"node", "910b2-8", []Setting{{"node.name", "910b2-8", "-set"}}},
		{"node", int64(3), []Setting{{"node", int64(3), "-set"}}},
		{"seed", int64(3), []Setting{{"seed", int64(3), "-set"}}},
	} {
		got, err := c.shellSetting(tc.key, tc.value)
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s=%v: %v, %v; want %v", tc.key, tc.value, got, err, tc.want)
		}
	}
}

// What was inferred is said once per trace, and not for ever.
func TestNoteLines(t *testing.T) {
	cell := func(path string, notes ...string) *CellResult {
		r := Result{Point: &Point{Dir: "folder"}, Status: Simulated}
		r.Point.Workload.Trace = path
		r.Outcome.Notes = notes
		return &CellResult{Cell: &Cell{}, Results: []Result{r}}
	}
	got := noteLines([]*CellResult{cell(filepath.Join("..", "a"), "1", "2"), cell(filepath.Join("..", "a"), "1", "2"), cell("b", "1"), cell("")})
	// Paths are those of the shell, whatever the experiment's folder.
	if want := []string{"a as it was read:", "  1", "  2", filepath.Join("folder", "b") + " as it was read:", "  1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var many []string
	for i := range 3 * maxNotes {
		many = append(many, show(int64(i)))
	}
	got = noteLines([]*CellResult{cell("a", many...)})
	if last := got[len(got)-1]; len(got) != maxNotes+1 || last != "  and 29 more; manifest.json has all" {
		t.Errorf("%d lines, the last %q", len(got), last)
	}
	if noteLines([]*CellResult{cell("a")}) != nil {
		t.Error("a trace without notes has lines")
	}
}
