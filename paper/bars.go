package paper

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"
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
func (b *Bars) SVG(w io.Writer) error {
	return b.write(w, func(width, height vg.Length) vg.CanvasWriterTo { return vgsvg.New(width, height) })
}

// PDF writes the figure as PDF with embedded fonts.
func (b *Bars) PDF(w io.Writer) error {
	fixPDF()
	return b.write(w, func(width, height vg.Length) vg.CanvasWriterTo { return vgpdf.New(width, height) })
}

// PNG writes the figure at 150 dots per inch.
func (b *Bars) PNG(w io.Writer) error {
	return b.write(w, func(width, height vg.Length) vg.CanvasWriterTo {
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(150))}
	})
}

// fixPDF takes the clock and the map order out of PDF files. The library has
// no such setting per document behind gonum's canvas, only defaults for the
// process; they are set once, to constants.
var fixPDF = sync.OnceFunc(func() {
	fpdf.SetDefaultCatalogSort(true)
	fpdf.SetDefaultCreationDate(time.Unix(0, 0).UTC())
	fpdf.SetDefaultModificationDate(time.Unix(0, 0).UTC())
})

func (b *Bars) write(w io.Writer, open func(width, height vg.Length) vg.CanvasWriterTo) error {
	if err := b.Validate(); err != nil {
		return err
	}
	height := legendSpace + panelHeight*vg.Length(len(b.Panels))
	canvas := open(figureWidth, height)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	b.legend(draw.Crop(whole, 0, 0, height-legendSpace, 0))

	plots := make([][]*plot.Plot, len(b.Panels))
	top := b.top()
	for i := range b.Panels {
		plots[i] = []*plot.Plot{b.plot(&b.Panels[i], top)}
	}
	tiles := draw.Tiles{Cols: 1, Rows: len(plots), PadX: vg.Millimeter, PadY: 2 * vg.Millimeter,
		PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter, PadRight: 2 * vg.Millimeter}
	areas := plot.Align(plots, tiles, draw.Crop(whole, 0, 0, 0, -legendSpace))
	for i := range plots {
		plots[i][0].Draw(areas[i][0])
	}
	_, err := canvas.WriteTo(w)
	return err
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

// legend draws the title and one swatch and name per series in a row.
func (b *Bars) legend(c draw.Canvas) {
	style := textStyle(titleSize)
	style.YAlign = text.YCenter
	middle := (c.Min.Y + c.Max.Y) / 2
	x := c.Min.X + 2*vg.Millimeter
	c.FillText(style, vg.Point{X: x, Y: middle}, b.Title)

	style = textStyle(textSize)
	style.YAlign = text.YCenter
	const swatch, gap = 3 * vg.Millimeter, vg.Millimeter
	x = c.Max.X - 2*vg.Millimeter
	for s := len(b.Series) - 1; s >= 0; s-- { // from the right edge leftwards
		x -= style.Width(b.Series[s])
		c.FillText(style, vg.Point{X: x, Y: middle}, b.Series[s])
		x -= swatch + gap
		box := vg.Rectangle{Min: vg.Point{X: x, Y: middle - swatch/2}, Max: vg.Point{X: x + swatch, Y: middle + swatch/2}}
		c.SetColor(palette(s))
		c.Fill(box.Path())
		c.StrokeLines(outline(), append([]vg.Point{}, box.Min, vg.Point{X: box.Max.X, Y: box.Min.Y}, box.Max, vg.Point{X: box.Min.X, Y: box.Max.Y}, box.Min))
		x -= 3 * gap
	}
}

func (b *Bars) plot(p *Panel, top float64) *plot.Plot {
	pl := plot.New()
	pl.Title.Text = p.Title
	pl.Title.TextStyle.Font.Size = textSize
	pl.Y.Label.Text = b.YLabel
	pl.Y.Label.TextStyle.Font.Size = textSize
	pl.Y.Tick.Marker = plainTicks{}
	pl.Y.Tick.Label.Font.Size = textSize
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = color.Gray{0xDD}
	pl.Add(grid, &groupedBars{p})
	pl.NominalX(wrapped(p.Groups)...)
	pl.X.Min, pl.X.Max = -0.5, float64(len(p.Groups))-0.5
	pl.X.Tick.Label.Font.Size = textSize
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

// plainTicks are gonum's ticks without trailing zeros in their labels.
type plainTicks struct{}

// Ticks implements plot.Ticker.
func (plainTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strconv.FormatFloat(ticks[i].Value, 'g', 6, 64)
		}
	}
	return ticks
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

func outline() draw.LineStyle { return draw.LineStyle{Color: color.Black, Width: lineWidth} }

func textStyle(size vg.Length) text.Style {
	style := text.Style{Color: color.Black, Font: plot.DefaultFont, Handler: plot.DefaultTextHandler}
	style.Font.Size = size
	return style
}
