package paper

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Memory is a figure of memory over time, one panel per device: levels as steps,
// and above them, as bars, when copies to the host and back were under way.
type Memory struct {
	Title          string
	XLabel, YLabel string
	Levels         []string // names of the levels, one line each in every panel
	Out, In        string   // names of the two rows of bars
	Panels         []MemoryPanel
}

// MemoryPanel is one device.
type MemoryPanel struct {
	Title string
	// Steps[l] are the changes of level l by time: it has the value Y from X
	// on, up to End.
	Steps [][]Point
	// Begin and End of the time axis; Begin < End.
	Begin, End float64
	// Limit is a level that cannot be passed, as a dashed line; 0 = none.
	Limit float64
	// Out and In are when copies were under way.
	Out, In []Span
}

// Span is a stretch of the time axis.
type Span struct{ From, To float64 }

// Validate reports the first panel that does not fit the levels.
func (m *Memory) Validate() error {
	if len(m.Levels) == 0 || len(m.Panels) == 0 {
		return errors.New("paper: a figure of memory needs at least one level and one panel")
	}
	for _, p := range m.Panels {
		if len(p.Steps) != len(m.Levels) {
			return fmt.Errorf("paper: panel %q has %d levels, want %d", p.Title, len(p.Steps), len(m.Levels))
		}
		if !(p.Begin < p.End) || math.IsInf(p.End-p.Begin, 0) || !(p.Limit >= 0) || math.IsInf(p.Limit, 0) {
			return fmt.Errorf("paper: panel %q lasts from %v to %v with the limit %v, want finite numbers", p.Title, p.Begin, p.End, p.Limit)
		}
		for l, steps := range p.Steps {
			last := math.Inf(-1)
			for _, q := range steps {
				if !(q.X >= last) || math.IsInf(q.X, 0) || math.IsNaN(q.Y) || math.IsInf(q.Y, 0) {
					return fmt.Errorf("paper: panel %q, level %q has the step %v after %v, want finite numbers in order", p.Title, m.Levels[l], q, last)
				}
				last = q.X
			}
		}
	}
	return nil
}

// SVG writes the figure as SVG 1.1; fonts are named, not embedded.
func (m *Memory) SVG(w io.Writer) error { return write(w, m, svg) }

// PDF writes the figure as PDF with embedded fonts.
func (m *Memory) PDF(w io.Writer) error { return write(w, m, pdf) }

// PNG writes the figure at 150 dots per inch.
func (m *Memory) PNG(w io.Writer) error { return write(w, m, png) }

// sheet implements drawing: one panel below the other.
func (m *Memory) sheet() *sheet {
	levels := len(m.Levels)
	s := &sheet{title: m.Title, series: append(append([]string{}, m.Levels...), m.Out, m.In), across: 1, height: panelHeight}
	s.swatch = func(c draw.Canvas, box vg.Rectangle, series int) {
		if series < levels {
			c.StrokeLine2(levelStyle(series), box.Min.X, (box.Min.Y+box.Max.Y)/2, box.Max.X, (box.Min.Y+box.Max.Y)/2)
			return
		}
		c.SetColor(copyColor(series - levels))
		c.Fill(box.Path())
	}
	if len(m.Panels) > 4 {
		s.height = smallPanel
	}
	for i := range m.Panels {
		s.panels = append(s.panels, m.plot(&m.Panels[i]))
	}
	return s
}

// levelStyle and copyColor keep apart what is drawn in one panel.
func levelStyle(level int) draw.LineStyle {
	return draw.LineStyle{Color: palette([...]int{7, 5, 4}[level%3]), Width: 2 * lineWidth}
}

func copyColor(direction int) color.Color { return palette([...]int{3, 2}[direction%2]) }

// Rows of copies take a share of the height of a panel above its highest level.
const copyRow = 0.06

func (m *Memory) plot(panel *MemoryPanel) *plot.Plot {
	p := newPanel(panel.Title, m.YLabel)
	p.X.Label.Text = m.XLabel
	p.X.Label.TextStyle.Font.Size = textSize
	p.X.Tick.Label.Font.Size = textSize
	p.X.Tick.Marker = plainTicks{}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid, &levels{panel})
	p.X.Min, p.X.Max = panel.Begin, panel.End
	p.Y.Min, p.Y.Max = 0, panel.top()*(1+3*copyRow)
	return p
}

// top is the highest level.
func (p *MemoryPanel) top() float64 {
	top := p.Limit
	for _, steps := range p.Steps {
		for _, q := range steps {
			top = max(top, q.Y)
		}
	}
	if top == 0 {
		return 1
	}
	return top
}

// levels draws a panel in data coordinates.
type levels struct{ *MemoryPanel }

// Plot implements plot.Plotter.
func (l *levels) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	inside := func(x float64) vg.Length { return toX(min(max(x, l.Begin), l.End)) }
	if l.Limit > 0 {
		dashed := draw.LineStyle{Color: color.Black, Width: lineWidth, Dashes: []vg.Length{vg.Points(3), vg.Points(2)}}
		c.StrokeLine2(dashed, c.Min.X, toY(l.Limit), c.Max.X, toY(l.Limit))
		c.FillText(textStyle(smallSize), vg.Point{X: c.Min.X + legendGap, Y: toY(l.Limit) + legendGap/2}, "capacity")
	}
	for level, steps := range l.Steps {
		var joined []vg.Point
		for i, q := range steps {
			if n := len(joined); n > 0 {
				joined = append(joined, vg.Point{X: inside(q.X), Y: joined[n-1].Y})
			}
			joined = append(joined, vg.Point{X: inside(q.X), Y: toY(q.Y)})
			if i == len(steps)-1 {
				joined = append(joined, vg.Point{X: toX(l.End), Y: toY(q.Y)})
			}
		}
		if len(joined) > 0 {
			c.StrokeLines(levelStyle(level), joined)
		}
	}
	top := l.top()
	for direction, spans := range [...][]Span{l.Out, l.In} {
		low, high := toY(top*(1+copyRow*(1.1+float64(1-direction)))), toY(top*(1+copyRow*(1.9+float64(1-direction))))
		for _, s := range spans {
			x0, x1 := inside(s.From), inside(s.To)
			c.FillPolygon(copyColor(direction), []vg.Point{{X: x0, Y: low}, {X: x0, Y: high}, {X: x1, Y: high}, {X: x1, Y: low}})
		}
	}
}
