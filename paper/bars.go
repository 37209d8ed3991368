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
	// Values[g][s] is the height of series s in group g, at least 0. NaN
	// draws Absent in place of a bar.
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
				if v < 0 || math.IsInf(v, 0) {
					return fmt.Errorf("paper: panel %q, group %q has value %g, want a finite height of at least 0", p.Title, p.Groups[g], v)
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
	top := b.top()
	for i := range b.Panels {
		s.panels = append(s.panels, b.plot(&b.Panels[i], top))
	}
	return s
}

// top is the common upper end of the value axes.
func (b *Bars) top() float64 {
	top := 0.0
	for _, p := range b.Panels {
		for _, values := range p.Values {
			for _, v := range values {
				if v > top { // false for NaN
					top = v
				}
			}
		}
	}
	if top == 0 {
		return 1
	}
	return top * 1.05
}

func (b *Bars) plot(p *Panel, top float64) *plot.Plot {
	pl := newPanel(p.Title, b.YLabel)
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = color.Gray{0xDD}
	pl.Add(grid, &groupedBars{p})
	pl.NominalX(wrapped(p.Groups)...)
	pl.X.Tick.Label.Font.Size = textSize
	pl.X.Min, pl.X.Max = -0.5, float64(len(p.Groups))-0.5
	pl.Y.Min, pl.Y.Max = 0, top
	return pl
}

// wrapped breaks group names at their last space when they would run into each
// other on one line.
func wrapped(groups []string) []string {
	const room = 130 // letters of textSize across figureWidth
	letters := 0
	for _, g := range groups {
		letters += len(g) + 2
	}
	if letters <= room {
		return groups
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		if at := strings.LastIndexByte(g, ' '); at > 0 {
			g = g[:at] + "\n" + g[at+1:]
		}
		names[i] = g
	}
	return names
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
