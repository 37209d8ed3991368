package experiments

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"smartswap/hw"
	"smartswap/paper"
	"smartswap/sim"
)

// drawing is a figure that can be written in every form.
type drawing interface {
	SVG(io.Writer) error
	PDF(io.Writer) error
	PNG(io.Writer) error
}

// figure builds the figure that spec asks for; false if there is nothing to
// show.
func (c *Config) figure(spec *FigureSpec, cells []*CellResult) (drawing, bool) {
	cells = c.chosen(spec.Where, cells)
	title := spec.Title
	if title == "" {
		title = c.Title
	}
	if spec.X == "" {
		b := c.barFigure(spec, cells)
		b.Title = title
		return b, len(b.Panels) > 0
	}
	l := c.lineFigure(spec, cells)
	l.Title = title
	return l, len(l.Panels) > 0
}

// barFigure has a panel per combination of axis values, in the order of the
// file.
func (c *Config) barFigure(spec *FigureSpec, cells []*CellResult) *paper.Bars {
	b := &paper.Bars{YLabel: heading(spec.Value), Series: c.strategyNames()}
	var columns []string
	for _, cell := range cells {
		if !slices.Contains(columns, cell.Cell.Column) {
			columns = append(columns, cell.Cell.Column)
		}
	}
	groupNames := columns
	if spec.Bars == "column" {
		groupNames, b.Series = b.Series, columns
	}
	for _, cell := range cells {
		title := strings.Join(cell.Cell.Axes, ", ")
		i := slices.IndexFunc(b.Panels, func(p paper.Panel) bool { return p.Title == title })
		if i < 0 {
			i = len(b.Panels)
			b.Panels = append(b.Panels, paper.Panel{Title: title, Groups: groupNames, Values: absent(len(groupNames), len(b.Series)), Absent: "OOM"})
		}
		group, bar := cell.Cell.Column, cell.Cell.Strategy
		if spec.Bars == "column" {
			group, bar = bar, group
		}
		v, ok := valueOf(cell, spec.Value)
		switch {
		case !ok && cell.Best >= 0:
			b.Panels[i].Absent = "none" // of several reasons
		case ok:
			b.Panels[i].Values[slices.Index(groupNames, group)][slices.Index(b.Series, bar)] = v.Number()
		}
	}
	return b
}

// absent is a table of missing values.
func absent(rows, columns int) [][]float64 {
	table := make([][]float64, rows)
	for i := range table {
		table[i] = slices.Repeat([]float64{math.NaN()}, columns)
	}
	return table
}

// sample is one value for a figure of lines: where it was seen, by dimension
// (column, axes, strategy), and the points it gives.
type sample struct {
	place  []string
	points []paper.Point
}

// lineFigure has a panel per combination of what is neither on the x axis nor tells
// lines apart.
func (c *Config) lineFigure(spec *FigureSpec, cells []*CellResult) *paper.Lines {
	l := &paper.Lines{LogX: spec.LogX, YLabel: heading(spec.Value)}
	dims := append(append([]string{"column"}, c.axisKeys()...), "strategy")
	x := slices.Index(dims, spec.X)
	line := slices.Index(dims, spec.Lines)
	var samples []sample
	switch {
	case spec.Claim != "":
		claim := c.claim(spec.Claim)
		l.YLabel = "change of " + strings.TrimSuffix(heading(claim.Value), " (%)") + " (%)"
		if !math.IsNaN(claim.Published) {
			l.Marks = []paper.Mark{{Y: claim.Published, Text: "published"}}
		}
		for _, group := range groups(cells) {
			if found := claim.compare(group); found.of != nil && c.matches(claim.Where, group[0].Cell) {
				s := sample{place: append(place(group), "")}
				if at, ok := coordinate(found.of, spec.X, s.place, x); ok {
					s.points = []paper.Point{{X: at, Y: found.percent}}
				}
				samples = append(samples, s)
			}
		}
	default:
		for _, cell := range cells {
			s := sample{place: append(append([]string{cell.Cell.Column}, cell.Cell.Axes...), cell.Cell.Strategy)}
			if spec.X == iterationAxis {
				s.points = iterationPoints(cell, spec.Value)
			} else if v, ok := valueOf(cell, spec.Value); ok {
				if at, ok := coordinate(cell, spec.X, s.place, x); ok {
					s.points = []paper.Point{{X: at, Y: v.Number(), Half: halfWidth(cell, spec.Value)}}
				}
			}
			samples = append(samples, s)
		}
	}
	l.XLabel = heading(spec.X)
	if x >= 0 {
		l.XLabel = shortKey(spec.X) + axisUnit(c.Axes[x-1])
	}
	if len(samples) > 0 {
		overResult := x < 0 && spec.X != iterationAxis
		c.arrange(l, samples, panelDims(samples, x, line, overResult), line)
	}
	return l
}

// panelDims lists the dimensions that tell panels apart. Over a result, axes do
// not: their values are the points of a line.
func panelDims(samples []sample, x, line int, overResult bool) []int {
	var dims []int
	strategy := len(samples[0].place) - 1
	for d := range samples[0].place {
		if d == x || d == line || overResult && 0 < d && d < strategy {
			continue
		}
		if slices.ContainsFunc(samples, func(s sample) bool { return s.place[d] != samples[0].place[d] }) {
			dims = append(dims, d)
		}
	}
	return dims
}

// arrange distributes samples over panels and lines, both in the order in which
// they come up.
func (c *Config) arrange(l *paper.Lines, samples []sample, panels []int, line int) {
	for _, s := range samples {
		if !slices.Contains(l.Series, s.place[line]) {
			l.Series = append(l.Series, s.place[line])
		}
	}
	for _, s := range samples {
		var words []string
		for _, d := range panels {
			words = append(words, s.place[d])
		}
		title := strings.Join(words, ", ")
		i := slices.IndexFunc(l.Panels, func(p paper.LinePanel) bool { return p.Title == title })
		if i < 0 {
			i = len(l.Panels)
			l.Panels = append(l.Panels, paper.LinePanel{Title: title, Points: make([][]paper.Point, len(l.Series))})
		}
		of := &l.Panels[i].Points[slices.Index(l.Series, s.place[line])]
		*of = append(*of, s.points...)
	}
	for _, p := range l.Panels {
		for _, points := range p.Points {
			slices.SortStableFunc(points, func(a, b paper.Point) int { return cmp.Compare(a.X, b.X) })
		}
	}
}

// iterationPoints is a column of iterations.csv over the iterations of the
// cell's first run.
func iterationPoints(cell *CellResult, column string) []paper.Point {
	r := representative(cell)
	var points []paper.Point
	for _, col := range iterationColumns() {
		if col.Name != column || len(r.Runs) == 0 {
			continue
		}
		run := r.Runs[0]
		for i := range run.Iterations {
			points = append(points, paper.Point{X: float64(i), Y: col.of(i, &run.Iterations[i], r.idealIteration(0, i)).Number()})
		}
	}
	return points
}

// coordinate is a cell's place on the x axis: the value of an axis, or its
// figure in a column of rows.csv.
func coordinate(cell *CellResult, column string, place []string, axis int) (float64, bool) {
	if axis >= 0 {
		x, _, ok := numeric(place[axis])
		return x, ok
	}
	v, ok := valueOf(cell, column)
	return v.Number(), ok && !math.IsNaN(v.Number())
}

// halfWidth is that of a value's confidence interval, 0 if it has none.
func halfWidth(cell *CellResult, column string) float64 {
	r := representative(cell)
	switch a := r.Adaptation; {
	case column == "iteration_time_ms":
		return r.Interval.Milliseconds()
	case a != nil && column == "lost_iterations_per_change":
		return a.Lost.Half
	case a != nil && column == "recovery_iterations":
		return a.Recovery.Half
	}
	return 0
}

// numeric reads a value as a number and its unit: plain, a time in us, a rate in
// GB/s, or a size in GiB.
func numeric(v any) (x float64, unit string, ok bool) {
	s := plain(v)
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return f, "", true
	}
	if t, err := hw.ParseTime(s); err == nil {
		return float64(t) / float64(sim.Microsecond), "us", true
	}
	if r, err := hw.ParseRate(s); err == nil {
		return float64(r) / 1e9, "GB/s", true
	}
	if b, err := hw.ParseBytes(s); err == nil {
		return float64(b) / float64(sim.GiB), "GiB", true
	}
	return 0, "", false
}

// axisUnit is the unit of an axis's values in brackets.
func axisUnit(a Axis) string {
	if _, unit, ok := numeric(a.Values[len(a.Values)-1]); ok && unit != "" {
		return fmt.Sprintf(" (%s)", unit)
	}
	return ""
}
