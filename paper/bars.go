package paper

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars is a figure of grouped bars, one panel above the other, all on one
// scale and under one legend.
type Bars struct {
	Title  string
	YLabel string
	Series []string // one bar each in every group
	Panels []Panel
}

// Panel is one coordinate system.
type Panel struct {
	Title  string
	Groups []string
	// Values[g][s] is the height of series s in group g; below 0, the bar
	// hangs. NaN draws Absent in place of a bar.
	Values [][]float64
	Absent string
}

// Validate reports the first panel that does not fit the series.
func (b *Bars) Validate() error {
	if len(b.Series) == 0 || len(b.Panels) == 0 {
		return errors.New("paper: a figure needs at least one series and one panel")
	}
	for _, p := range b.Panels {
		if len(p.Groups) == 0 || len(p.Values) != len(p.Groups) {
			return fmt.Errorf("paper: panel %q has %d groups and %d lists of values", p.Title, len(p.Groups), len(p.Values))
		}
		for g, values := range p.Values {
			if len(values) != len(b.Series) {
				return fmt.Errorf("paper: panel %q, group %q has %d values, want %d", p.Title, p.Groups[g], len(values), len(b.Series))
			}
			for _, v := range values {
				if math.IsInf(v, 0) {
					return fmt.Errorf("paper: panel %q, group %q has value %g, want a finite height", p.Title, p.Groups[g], v)
				}
			}
		}
	}
	return nil
}

// SVG writes the figure as SVG 1.1; fonts are named, not embedded.
func (b *Bars) SVG(w io.Writer) error { return write(w, b, svg) }

// PDF writes the figure as PDF with embedded fonts.
func (b *Bars) PDF(w io.Writer) error { return write(w, b, pdf) }

// PNG writes the figure at 150 dots per inch.
func (b *Bars) PNG(w io.Writer) error { return write(w, b, png) }

// sheet implements drawing: one panel below the other.
func (b *Bars) sheet() *sheet {
	s := &sheet{title: b.Title, series: b.Series, swatch: barSwatch, across: 1, height: panelHeight}
	low, high := b.extent()
	for i := range b.Panels {
		s.panels = append(s.panels, b.plot(&b.Panels[i], low, high))
	}
	for i := range b.Panels {
		if _, turned := labels(b.Panels[i].Groups); turned {
			s.height = tallPanel
		}
	}
	return s
}

// extent is the common range of the value axes: 0 is in it.
func (b *Bars) extent() (low, high float64) {
	for _, p := range b.Panels {
		for _, values := range p.Values {
			for _, v := range values {
				if !math.IsNaN(v) {
					low, high = min(low, v), max(high, v)
				}
			}
		}
	}
	if low == high {
		return 0, 1
	}
	return low * 1.05, high * 1.05
}

func (b *Bars) plot(p *Panel, low, high float64) *plot.Plot {
	pl := newPanel(p.Title, b.YLabel)
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = color.Gray{0xDD}
	pl.Add(grid, &groupedBars{p})
	names, turned := labels(p.Groups)
	if turned {
		pl.X.Tick.Label.Rotation = math.Pi / 2
		pl.X.Tick.Label.XAlign, pl.X.Tick.Label.YAlign = text.XRight, text.YCenter
	}
	pl.NominalX(names...)
	pl.X.Tick.Label.Font.Size = textSize
	pl.X.Min, pl.X.Max = -0.5, float64(len(p.Groups))-0.5
	pl.Y.Min, pl.Y.Max = low, high
	return pl
}

// labels are group names that do not run into each other: broken at their last
// space when they would on one line, and turned when they still would.
func labels(groups []string) (names []string, turned bool) {
	const room = 130 // letters of textSize across figureWidth
	letters := 0
	for _, g := range groups {
		letters += len(g) + 2
	}
	switch {
	case letters <= room:
		return groups, false
	case letters > 2*room:
		return groups, true
	}
	for _, g := range groups {
		if at := strings.LastIndexByte(g, ' '); at > 0 {
			g = g[:at] + "\n" + g[at+1:]
		}
		names = append(names, g)
	}
	return names, false
}

// groupedBars draws a panel in data coordinates: group g is centred at x = g
// and takes groupFill of the unit.
type groupedBars struct{ *Panel }

// Plot implements plot.Plotter.
func (g *groupedBars) Plot(c draw.Canvas, pl *plot.Plot) {
	toX, toY := pl.Transforms(&c)
	style := textStyle(smallSize)
	style.Rotation = math.Pi / 2
	style.YAlign = text.YCenter
	for i, values := range g.Values {
		width := groupFill / float64(len(values))
		for s, v := range values {
			left := float64(i) - groupFill/2 + float64(s)*width
			x0, x1 := toX(left), toX(left+width)
			if math.IsNaN(v) {
				c.FillText(style, vg.Point{X: (x0 + x1) / 2, Y: toY(0) + vg.Millimeter/2}, g.Absent)
				continue
			}
			corners := []vg.Point{{X: x0, Y: toY(0)}, {X: x0, Y: toY(v)}, {X: x1, Y: toY(v)}, {X: x1, Y: toY(0)}}
			c.FillPolygon(palette(s), corners)
			c.StrokeLines(outline(), append(corners, corners[0]))
		}
	}
}

// barSwatch is a small bar.
func barSwatch(c draw.Canvas, box vg.Rectangle, series int) {
	c.SetColor(palette(series))
	c.Fill(box.Path())
	c.StrokeLines(outline(), []vg.Point{box.Min, {X: box.Max.X, Y: box.Min.Y}, box.Max, {X: box.Min.X, Y: box.Max.Y}, box.Min})
}
