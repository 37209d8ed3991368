package experiments

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"smartswap/paper"
	"smartswap/results"
	"smartswap/sim"
)

// table builds the table that spec asks for. All cells are finished.
func (c *Config) table(spec *TableSpec, cells []*CellResult) *paper.Table {
	cells = c.chosen(spec.Where, cells)
	t := &paper.Table{Columns: []paper.Column{{Name: "column"}}}
	for _, a := range c.Axes {
		t.Columns = append(t.Columns, paper.Column{Name: shortKey(a.Key)})
	}
	switch {
	case spec.Claim != "":
		t = c.comparisons(spec, cells)
	case spec.Value != "":
		c.pivot(t, spec.Value, cells)
	default:
		c.list(t, spec, cells)
	}
	for _, cell := range cells {
		for _, complaint := range representative(cell).Outcome.Complaints {
			note(t, cell.Cell.Strategy+": "+complaint+".")
		}
	}
	if t.Title = spec.Title; t.Title == "" {
		t.Title = c.Title
	}
	return t
}

// note puts a line below a table, once.
func note(t *paper.Table, line string) {
	if !slices.Contains(t.Notes, line) {
		t.Notes = append(t.Notes, line)
	}
}

// list has one line per cell and one column per name in show.
func (c *Config) list(t *paper.Table, spec *TableSpec, cells []*CellResult) {
	show := spec.Show
	var ranks map[*CellResult]int
	if spec.BestFirst {
		cells, ranks = ranking(cells)
		t.Columns = append(t.Columns, paper.Column{Name: "rank", Number: true})
		advice := "Rank 1 is recommended: of the strategies that fit the fastest, of equals the first of the file."
		if len(cells) > 0 && len(ranks) == 0 {
			advice = "No strategy fits: nothing is recommended."
		}
		note(t, advice)
	}
	t.Columns = append(t.Columns, paper.Column{Name: "strategy"})
	for _, name := range show {
		t.Columns = append(t.Columns, paper.Column{Name: heading(name), Number: !textual(name)})
	}
	for _, cell := range cells {
		if impossible(cell) {
			note(t, "Impossible: "+cell.Results[0].Why+".")
		}
		line := append([]string{cell.Cell.Column}, cell.Cell.Axes...)
		if spec.BestFirst {
			line = append(line, rankText(ranks[cell]))
		}
		line = append(line, cell.Cell.Strategy)
		said := false // the out-of-memory figures stand in the first column that has no value
		for _, name := range show {
			s := printed(cell, name)
			if s == "" && cell.Best < 0 && !said {
				s, said = failText(cell), true
			}
			line = append(line, s)
		}
		t.Rows = append(t.Rows, line)
	}
}

// ranking sorts the cells of each place, best first, and numbers those that fit
// from 1; those that do not have 0.
func ranking(cells []*CellResult) ([]*CellResult, map[*CellResult]int) {
	var sorted []*CellResult
	ranks := make(map[*CellResult]int)
	for _, group := range groups(cells) {
		group = slices.Clone(group)
		slices.SortStableFunc(group, func(a, b *CellResult) int {
			if (a.Best < 0) != (b.Best < 0) {
				return cmp.Compare(b.Best, a.Best)
			}
			if a.Best < 0 {
				return 0
			}
			return cmp.Compare(a.Results[a.Best].Outcome.Time, b.Results[b.Best].Outcome.Time)
		})
		for i, cell := range group {
			if cell.Best >= 0 {
				ranks[cell] = i + 1
			}
		}
		sorted = append(sorted, group...)
	}
	return sorted, ranks
}

func rankText(rank int) string {
	if rank == 0 {
		return ""
	}
	return strconv.Itoa(rank)
}

// pivot has one line per column and axis values, and one column per strategy.
func (c *Config) pivot(t *paper.Table, value string, cells []*CellResult) {
	for i := range c.Strategies {
		t.Columns = append(t.Columns, paper.Column{Name: c.Strategies[i].Name, Number: !textual(value)})
	}
	for _, group := range groups(cells) {
		line := append([]string{group[0].Cell.Column}, group[0].Cell.Axes...)
		for _, cell := range group {
			s := printed(cell, value)
			if s == "" && cell.Best < 0 {
				s = "OOM"
				if o := representative(cell).Outcome.OOM; o != nil && o.Rematerialized > 0 {
					s = "limit"
				}
			}
			line = append(line, s)
		}
		t.Rows = append(t.Rows, line)
	}
	t.Notes = append(t.Notes, "Values: "+heading(value)+".")
}

// comparisons has one line per column and values of the axes other than across,
// and one column per value of that.
func (c *Config) comparisons(spec *TableSpec, cells []*CellResult) *paper.Table {
	claim := c.claim(spec.Claim)
	across := slices.Index(c.axisKeys(), spec.Across)
	t := &paper.Table{Columns: []paper.Column{{Name: "column"}}}
	for i, a := range c.Axes {
		if i != across {
			t.Columns = append(t.Columns, paper.Column{Name: shortKey(a.Key)})
		}
	}
	fixed := len(t.Columns)
	at := map[string]int{} // row by what stands in its first columns
	for _, group := range groups(cells) {
		if !c.matches(claim.Where, group[0].Cell) {
			continue
		}
		line := []string{group[0].Cell.Column}
		for i, v := range group[0].Cell.Axes {
			if i != across {
				line = append(line, v)
			}
		}
		key := strings.Join(line, "\x00")
		if _, ok := at[key]; !ok {
			at[key] = len(t.Rows)
			t.Rows = append(t.Rows, line)
		}
		name := fmt.Sprintf("%s = %s", shortKey(spec.Across), group[0].Cell.Axes[across])
		col := slices.IndexFunc(t.Columns, func(p paper.Column) bool { return p.Name == name })
		if col < 0 {
			col = len(t.Columns)
			t.Columns = append(t.Columns, paper.Column{Name: name, Number: true})
		}
		row := &t.Rows[at[key]]
		for len(*row) <= col {
			*row = append(*row, "")
		}
		if v := claim.compare(group); v.of != nil {
			(*row)[col] = fmt.Sprintf("%.1f", v.percent)
		} else {
			(*row)[col] = v.note
		}
	}
	for i := range t.Rows {
		for len(t.Rows[i]) < max(len(t.Columns), fixed) {
			t.Rows[i] = append(t.Rows[i], "")
		}
	}
	t.Notes = append(t.Notes, fmt.Sprintf("Values: change of %s in percent, %s over %s.", heading(claim.Value), strings.Join(claim.Of, " or "), strings.Join(claim.Over, " or ")))
	return t
}

// claim is the claim of that name, which exists.
func (c *Config) claim(name string) *ClaimSpec {
	return &c.Claims[slices.IndexFunc(c.Claims, func(s ClaimSpec) bool { return s.Name == name })]
}

// noteLines say what readers of traces did beside reading; nil if all is as
// recorded.
func noteLines(cells []*CellResult) []string {
	var lines []string
	seen := map[string]bool{}
	said := map[string]int{} // notes by trace
	for _, cell := range cells {
		r := representative(cell)
		path := r.Point.Workload.Trace
		for _, n := range r.Outcome.Notes {
			if seen[path+n] {
				continue
			}
			seen[path+n] = true
			if said[path]++; said[path] == 1 {
				lines = append(lines, r.Point.tracePath(path)+" as it was read:")
			}
			lines = append(lines, "  "+n)
		}
	}
	if more := len(lines) - maxNotes; more > 0 {
		lines = append(lines[:maxNotes], fmt.Sprintf("  and %d more; manifest.json has all", more))
	}
	return lines
}

// maxNotes is how many lines about traces a terminal shows.
const maxNotes = 14

// chosen are the cells that a table or figure is about.
func (c *Config) chosen(where map[string]any, cells []*CellResult) []*CellResult {
	var list []*CellResult
	for _, cell := range cells {
		if c.matches(where, cell.Cell) {
			list = append(list, cell)
		}
	}
	return list
}

// groups splits cells into those that differ in strategy only. Strategies vary
// fastest, so a group is a run of neighbours.
func groups(cells []*CellResult) [][]*CellResult {
	var list [][]*CellResult
	for _, c := range cells {
		if n := len(list); n > 0 && list[n-1][0].Cell.Column == c.Cell.Column && slices.Equal(list[n-1][0].Cell.Axes, c.Cell.Axes) {
			list[n-1] = append(list[n-1], c)
			continue
		}
		list = append(list, []*CellResult{c})
	}
	return list
}

// printed is a cell's value as tables show it, "" if it has none.
func printed(c *CellResult, column string) string {
	v, ok := valueOf(c, column)
	switch {
	case !ok:
		return ""
	case textual(column):
		return v.String()
	case strings.HasSuffix(column, "_bytes"):
		return gib(sim.Bytes(v.Number()))
	case column == "iteration_time_ms":
		s := fmt.Sprintf("%.1f", v.Number())
		if r := representative(c); r.Point.Replications > 1 {
			s += fmt.Sprintf(" ± %.1f", r.Interval.Milliseconds())
		}
		return s
	case strings.HasSuffix(column, "_ms"):
		return fmt.Sprintf("%.1f", v.Number())
	case strings.HasSuffix(column, "_us"), strings.HasSuffix(column, "_percent"), strings.HasSuffix(column, "slowdown"):
		return fmt.Sprintf("%.2f", v.Number())
	case strings.HasPrefix(column, "fraction"), strings.HasSuffix(column, "_fraction"):
		return fmt.Sprintf("%.3f", v.Number())
	case column == "multiple_of_hbm":
		return fmt.Sprintf("%.2f", v.Number())
	case column == "operators_per_iteration":
		return fmt.Sprintf("%.0f", v.Number())
	case column == "lost_iterations_per_change", column == "recovery_iterations":
		s := fmt.Sprintf("%.2f", v.Number())
		if half := halfWidth(c, column); half > 0 {
			s += fmt.Sprintf(" ± %.2f", half)
		}
		return s
	case strings.Contains(column, "_per_s"):
		return fmt.Sprintf("%.0f", v.Number())
	}
	return v.String()
}

// textual tells which columns hold words.
func textual(column string) bool {
	c, ok := columnNamed(column)
	return !ok || c.Kind == results.Text // an axis or the column itself has none
}

// heading is a column's name as tables show it: words and the unit printed.
func heading(column string) string {
	words := func(s string) string { return strings.ReplaceAll(s, "_", " ") }
	switch {
	case column == "tokens_per_s_per_device":
		return "tokens/s per device"
	case column == "multiple_of_hbm":
		return "multiple of HBM"
	case strings.HasSuffix(column, "_bytes"):
		return words(strings.TrimSuffix(column, "_bytes")) + " (GiB)"
	case strings.HasSuffix(column, "_ms"):
		return words(strings.TrimSuffix(column, "_ms")) + " (ms)"
	case strings.HasSuffix(column, "_us"):
		return words(strings.TrimSuffix(column, "_us")) + " (us)"
	case strings.HasSuffix(column, "_percent"):
		return words(strings.TrimSuffix(column, "_percent")) + " (%)"
	}
	return words(column)
}

// shortKey is an axis key without its table: workload.save is save. What has a
// name is called by what it is.
func shortKey(key string) string {
	key = strings.TrimSuffix(key, ".name")
	if _, rest, ok := strings.Cut(key, "."); ok {
		return rest
	}
	return key
}

func gib(b sim.Bytes) string { return fmt.Sprintf("%.1f", float64(b)/float64(sim.GiB)) }

// failText is what a cell says that has no answer; why a job is impossible
// stands below the table.
func failText(c *CellResult) string {
	if impossible(c) {
		return "impossible"
	}
	return oomText(representative(c).Outcome.OOM)
}

// oomText is what a cell says in which nothing fits.
func oomText(o *OOM) string {
	if o == nil {
		return "OOM"
	}
	if o.Rematerialized > 0 {
		return fmt.Sprintf("recomputation above %.1f ms", o.Allowed.Milliseconds())
	}
	text := fmt.Sprintf("OOM: requested %s, free %s of %s GiB", fineGiB(o.Requested), fineGiB(o.Free), gib(o.Capacity))
	if o.LargestFree < o.Requested && o.Requested <= o.Free {
		text += fmt.Sprintf(", %s in one range", fineGiB(o.LargestFree))
	}
	return text
}

// fineGiB keeps small requests visible.
func fineGiB(b sim.Bytes) string { return fmt.Sprintf("%.3f", float64(b)/float64(sim.GiB)) }
