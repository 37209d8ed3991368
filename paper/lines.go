package paper

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Lines is a figure of lines, in panels that have axes of their own.
type Lines struct {
	Title          string
	XLabel, YLabel string
	LogX           bool     // then every X is above 0
	Series         []string // one line each in every panel
	Panels         []LinePanel
	Marks          []Mark
}

// LinePanel is one coordinate system.
type LinePanel struct {
	Title string
	// Points[s] are the points of series s in the order in which they are
	// joined; none is a series that this panel does not have.
	Points [][]Point
}

// Point is one place on a line. Half is the half-width of its interval, 0 for
// none. A Y of NaN is a gap in the line.
type Point struct{ X, Y, Half float64 }

// Mark is a dashed level across all panels, such as a published value.
type Mark struct {
	Y    float64
	Text string
}

// Validate reports the first panel that does not fit the series.
func (l *Lines) Validate() error {
	if len(l.Series) == 0 || len(l.Panels) == 0 {
		return errors.New("paper: a figure needs at least one series and one panel")
	}
	for _, p := range l.Panels {
		if len(p.Points) != len(l.Series) {
			return fmt.Errorf("paper: panel %q has %d lines, want %d", p.Title, len(p.Points), len(l.Series))
		}
		for s, points := range p.Points {
			for _, q := range points {
				if math.IsNaN(q.X) || math.IsInf(q.X, 0) || math.IsInf(q.Y, 0) || !(q.Half >= 0) || l.LogX && q.X <= 0 {
					return fmt.Errorf("paper: panel %q, line %q has the point %v, want finite numbers, above 0 on a logarithmic axis", p.Title, l.Series[s], q)
				}
			}
		}
	}
	return nil
}

// SVG writes the figure as SVG 1.1; fonts are named, not embedded.
func (l *Lines) SVG(w io.Writer) error { return write(w, l, svg) }

// PDF writes the figure as PDF with embedded fonts.
func (l *Lines) PDF(w io.Writer) error { return write(w, l, pdf) }

// PNG writes the figure at 150 dots per inch.
func (l *Lines) PNG(w io.Writer) error { return write(w, l, png) }

// sheet implements drawing. Few panels stand below each other, many in three
// columns.
func (l *Lines) sheet() *sheet {
	s := &sheet{title: l.Title, series: l.Series, swatch: lineSwatch, across: 1, height: panelHeight}
	if len(l.Panels) > 4 {
		s.across, s.height = 3, smallPanel
	}
	for i := range l.Panels {
		s.panels = append(s.panels, l.plot(&l.Panels[i]))
	}
	return s
}

func (l *Lines) plot(panel *LinePanel) *plot.Plot {
	p := newPanel(panel.Title, l.YLabel)
	p.X.Label.Text = l.XLabel
	p.X.Label.TextStyle.Font.Size = textSize
	p.X.Tick.Label.Font.Size = textSize
	p.X.Tick.Marker = plainTicks{}
	if l.LogX {
		p.X.Scale = plot.LogScale{}
		p.X.Tick.Marker = logTicks{}
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid, &polylines{panel, l.Marks})
	return p
}

// logTicks are the multiples of a power of ten, of which 1, 2 and 5 have labels.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for m := 1.0; m < 10; m++ {
			v := m * power
			if v < low || v > high {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || m == 2 || m == 5 {
				t.Label = strconv.FormatFloat(v, 'g', 6, 64)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

var gridColor = color.Gray{0xDD}

// polylines draws a panel in data coordinates.
type polylines struct {
	*LinePanel
	marks []Mark
}

// DataRange implements plot.DataRanger. A range without extent is widened, so
// that there is a scale.
func (l *polylines) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, ymin = math.Inf(1), math.Inf(1)
	xmax, ymax = math.Inf(-1), math.Inf(-1)
	for _, points := range l.Points {
		for _, p := range points {
			xmin, xmax = min(xmin, p.X), max(xmax, p.X)
			if !math.IsNaN(p.Y) {
				ymin, ymax = min(ymin, p.Y-p.Half), max(ymax, p.Y+p.Half)
			}
		}
	}
	for _, m := range l.marks {
		ymin, ymax = min(ymin, m.Y), max(ymax, m.Y)
	}
	if xmin > xmax {
		xmin, xmax = 1, 2
	}
	if ymin > ymax {
		ymin, ymax = 0, 1
	}
	if xmin == xmax {
		xmax += max(1, xmax)
	}
	if ymin == ymax {
		ymin, ymax = ymin-math.Abs(ymin)/10, ymax+max(math.Abs(ymax)/10, 0.1)
	}
	return xmin, xmax, ymin, ymax
}

// Plot implements plot.Plotter.
func (l *polylines) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	for _, m := range l.marks {
		dashed := draw.LineStyle{Color: color.Black, Width: lineWidth, Dashes: []vg.Length{vg.Points(3), vg.Points(2)}}
		c.StrokeLine2(dashed, c.Min.X, toY(m.Y), c.Max.X, toY(m.Y))
		c.FillText(textStyle(smallSize), vg.Point{X: c.Min.X + legendGap, Y: toY(m.Y) + legendGap/2}, m.Text)
	}
	for s, points := range l.Points {
		style := draw.LineStyle{Color: palette(s), Width: 2 * lineWidth, Dashes: dashes(s)}
		var joined []vg.Point
		for _, q := range points {
			if math.IsNaN(q.Y) {
				l.stroke(c, style, joined)
				joined = nil
				continue
			}
			at := vg.Point{X: toX(q.X), Y: toY(q.Y)}
			joined = append(joined, at)
			if q.Half > 0 {
				whisker := draw.LineStyle{Color: palette(s), Width: lineWidth}
				c.StrokeLine2(whisker, at.X, toY(q.Y-q.Half), at.X, toY(q.Y+q.Half))
			}
		}
		l.stroke(c, style, joined)
	}
}

// stroke draws one unbroken piece; a single point is a dot.
func (l *polylines) stroke(c draw.Canvas, style draw.LineStyle, joined []vg.Point) {
	switch len(joined) {
	case 0:
	case 1:
		c.DrawGlyph(draw.GlyphStyle{Color: style.Color, Radius: 2 * lineWidth, Shape: draw.CircleGlyph{}}, joined[0])
	default:
		c.StrokeLines(style, joined)
	}
}

// dashes tells lines of one colour apart: after the palette has been used up,
// lines are dashed.
func dashes(series int) []vg.Length {
	if series < paletteSize {
		return nil
	}
	return []vg.Length{vg.Points(2), vg.Points(1)}
}

// lineSwatch is a short piece of the line.
func lineSwatch(c draw.Canvas, box vg.Rectangle, series int) {
	style := draw.LineStyle{Color: palette(series), Width: 3 * lineWidth, Dashes: dashes(series)}
	y := (box.Min.Y + box.Max.Y) / 2
	c.StrokeLine2(style, box.Min.X, y, box.Max.X, y)
}
