package paper

import (
	"image/color"
	"io"
	"strconv"
	"sync"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"
)

// drawing is what every kind of figure can say about itself.
type drawing interface {
	Validate() error
	sheet() *sheet // of a figure that is valid
}

// sheet is a figure laid out: a title, a legend, and panels in a grid that is
// filled row by row.
type sheet struct {
	title  string
	series []string
	swatch func(c draw.Canvas, box vg.Rectangle, series int)
	panels []*plot.Plot
	across int       // panels side by side
	height vg.Length // of a panel
}

// format makes an empty canvas of one file format.
type format func(width, height vg.Length) vg.CanvasWriterTo

func svg(width, height vg.Length) vg.CanvasWriterTo { return vgsvg.New(width, height) }

func pdf(width, height vg.Length) vg.CanvasWriterTo {
	fixPDF()
	return vgpdf.New(width, height)
}

func png(width, height vg.Length) vg.CanvasWriterTo {
	return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(150))}
}

// fixPDF takes the clock and the map order out of PDF files. The library has
// no such setting per document behind gonum's canvas, only defaults for the
// process; they are set once, to constants.
var fixPDF = sync.OnceFunc(func() {
	fpdf.SetDefaultCatalogSort(true)
	fpdf.SetDefaultCreationDate(time.Unix(0, 0).UTC())
	fpdf.SetDefaultModificationDate(time.Unix(0, 0).UTC())
})

// write draws f and writes it in a format.
func write(w io.Writer, f drawing, open format) error {
	if err := f.Validate(); err != nil {
		return err
	}
	s := f.sheet()
	rows := (len(s.panels) + s.across - 1) / s.across
	head := legendSpace * vg.Length(len(s.legendRows()))
	canvas := open(figureWidth, head+s.height*vg.Length(rows))
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	s.legend(whole)

	grid := make([][]*plot.Plot, rows)
	for i := range grid {
		grid[i] = make([]*plot.Plot, s.across)
		copy(grid[i], s.panels[i*s.across:])
	}
	tiles := draw.Tiles{Cols: s.across, Rows: rows, PadX: vg.Millimeter, PadY: 2 * vg.Millimeter,
		PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter, PadRight: 2 * vg.Millimeter}
	areas := plot.Align(grid, tiles, draw.Crop(whole, 0, 0, 0, -head))
	for i := range grid {
		for j, p := range grid[i] {
			if p != nil {
				p.Draw(areas[i][j])
			}
		}
	}
	_, err := canvas.WriteTo(w)
	return err
}

// Sizes of the legend.
const (
	legendSwatch = 3 * vg.Millimeter
	legendGap    = vg.Millimeter
	legendMargin = 2 * vg.Millimeter
)

// entryWidth is the room that one series takes in the legend.
func (s *sheet) entryWidth(series int) vg.Length {
	style := textStyle(textSize)
	return style.Width(s.series[series]) + legendSwatch + 4*legendGap
}

// legendRows spreads the series over rows: all beside the title if they fit
// there, else below it. A row is a range of series; the first row, the title's,
// may be empty.
func (s *sheet) legendRows() [][2]int {
	title := textStyle(titleSize)
	room := figureWidth - 2*legendMargin - title.Width(s.title)
	for i := range s.series {
		room -= s.entryWidth(i)
	}
	if room >= 0 {
		return [][2]int{{0, len(s.series)}}
	}
	rows := [][2]int{{0, 0}, {0, 0}}
	room = figureWidth - 2*legendMargin
	for i := range s.series {
		last := &rows[len(rows)-1]
		if room -= s.entryWidth(i); room < 0 && last[1] > last[0] {
			rows = append(rows, [2]int{i, i})
			last = &rows[len(rows)-1]
			room = figureWidth - 2*legendMargin - s.entryWidth(i)
		}
		last[1] = i + 1
	}
	return rows
}

// legend draws the title, and a swatch and the name of each series.
func (s *sheet) legend(c draw.Canvas) {
	style := textStyle(titleSize)
	style.YAlign = text.YCenter
	middle := c.Max.Y - legendSpace/2
	c.FillText(style, vg.Point{X: c.Min.X + legendMargin, Y: middle}, s.title)

	style = textStyle(textSize)
	style.YAlign = text.YCenter
	for _, row := range s.legendRows() {
		x := c.Max.X - legendMargin
		for i := row[1] - 1; i >= row[0]; i-- { // from the right edge leftwards
			x -= style.Width(s.series[i])
			c.FillText(style, vg.Point{X: x, Y: middle}, s.series[i])
			x -= legendSwatch + legendGap
			s.swatch(c, vg.Rectangle{Min: vg.Point{X: x, Y: middle - legendSwatch/2}, Max: vg.Point{X: x + legendSwatch, Y: middle + legendSwatch/2}}, i)
			x -= 3 * legendGap
		}
		middle -= legendSpace
	}
}

// newPanel is a coordinate system with a grid behind what is to come.
func newPanel(title, ylabel string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = textSize
	p.Y.Label.Text = ylabel
	p.Y.Label.TextStyle.Font.Size = textSize
	p.Y.Tick.Marker = plainTicks{}
	p.Y.Tick.Label.Font.Size = textSize
	return p
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

func outline() draw.LineStyle { return draw.LineStyle{Color: color.Black, Width: lineWidth} }

func textStyle(size vg.Length) text.Style {
	style := text.Style{Color: color.Black, Font: plot.DefaultFont, Handler: plot.DefaultTextHandler}
	style.Font.Size = size
	return style
}
