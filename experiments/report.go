package experiments

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"smartswap/paper"
	"smartswap/results"
	"smartswap/sim"
)

// table builds the table that spec asks for. All cells are finished.
func (c *Config) table(spec *TableSpec, cells []*CellResult) *paper.Table {
	t := &paper.Table{Title: spec.Title, Columns: []paper.Column{{Name: "column"}}}
	if t.Title == "" {
		t.Title = c.Title
	}
	for _, a := range c.Axes {
		t.Columns = append(t.Columns, paper.Column{Name: shortKey(a.Key)})
	}
	if spec.Value != "" {
		c.pivot(t, spec.Value, cells)
	} else {
		c.list(t, spec.Show, cells)
	}
	return t
}

// list has one line per cell and one column per name in show.
func (c *Config) list(t *paper.Table, show []string, cells []*CellResult) {
	t.Columns = append(t.Columns, paper.Column{Name: "strategy"})
	for _, name := range show {
		t.Columns = append(t.Columns, paper.Column{Name: heading(name), Number: !textual(name)})
	}
	for _, cell := range cells {
		line := append([]string{cell.Cell.Column}, cell.Cell.Axes...)
		line = append(line, cell.Cell.Strategy)
		said := false // the out-of-memory figures stand in the first column that has no value
		for _, name := range show {
			s := printed(cell, name)
			if s == "" && cell.Best < 0 && !said {
				s, said = oomText(representative(cell).Outcome.OOM), true
			}
			line = append(line, s)
		}
		t.Rows = append(t.Rows, line)
	}
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
			if s == "" {
				s = "OOM"
			}
			line = append(line, s)
		}
		t.Rows = append(t.Rows, line)
	}
	t.Notes = append(t.Notes, "Values: "+heading(value)+".")
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
	if column == stallsColumn {
		if c.Best < 0 {
			return ""
		}
		return stallText(&c.Results[c.Best].Outcome)
	}
	v, ok := valueOf(c, column)
	switch {
	case !ok:
		return ""
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
	case strings.HasPrefix(column, "fraction"):
		return fmt.Sprintf("%.3f", v.Number())
	case column == "multiple_of_hbm":
		return fmt.Sprintf("%.2f", v.Number())
	case strings.Contains(column, "_per_s"):
		return fmt.Sprintf("%.0f", v.Number())
	}
	return v.String()
}

// textual tells which columns hold words.
func textual(column string) bool {
	if column == stallsColumn {
		return true
	}
	for _, c := range rowColumns() {
		if c.Name == column {
			return c.Kind == results.Text
		}
	}
	return true // an axis or the column itself
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
	}
	return words(column)
}

// shortKey is an axis key without its table: workload.save is save.
func shortKey(key string) string {
	if _, rest, ok := strings.Cut(key, "."); ok {
		return rest
	}
	return key
}

func gib(b sim.Bytes) string { return fmt.Sprintf("%.1f", float64(b)/float64(sim.GiB)) }

// oomText is what a cell says in which nothing fits.
func oomText(o *OOM) string {
	if o == nil {
		return "OOM"
	}
	return fmt.Sprintf("OOM: requested %s, free %s of %s GiB", fineGiB(o.Requested), fineGiB(o.Free), gib(o.Capacity))
}

// fineGiB keeps small requests visible.
func fineGiB(b sim.Bytes) string { return fmt.Sprintf("%.3f", float64(b)/float64(sim.GiB)) }

// figure builds the figure that spec asks for: a panel per combination of axis
// values, in the order of the file.
func (c *Config) figure(spec *FigureSpec, cells []*CellResult) *paper.Bars {
	b := &paper.Bars{Title: spec.Title, YLabel: heading(spec.Value), Series: c.strategyNames()}
	if b.Title == "" {
		b.Title = c.Title
	}
	for _, group := range groups(cells) {
		title := strings.Join(group[0].Cell.Axes, ", ")
		i := slices.IndexFunc(b.Panels, func(p paper.Panel) bool { return p.Title == title })
		if i < 0 {
			i = len(b.Panels)
			b.Panels = append(b.Panels, paper.Panel{Title: title, Absent: "OOM"})
		}
		p := &b.Panels[i]
		p.Groups = append(p.Groups, group[0].Cell.Column)
		values := make([]float64, len(group))
		for s, cell := range group {
			values[s] = math.NaN()
			if v, ok := valueOf(cell, spec.Value); ok {
				values[s] = v.Number()
			}
		}
		p.Values = append(p.Values, values)
	}
	return b
}
