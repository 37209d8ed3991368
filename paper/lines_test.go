package paper

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
)

func lineFigure() *Lines {
	return &Lines{
		Title: "Around changes", XLabel: "iteration", YLabel: "iteration time (ms)", Series: []string{"default", "lru"},
		Panels: []LinePanel{
			{Title: "skip", Points: [][]Point{{{1, 10, 1}, {2, 12, 0}, {3, math.NaN(), 0}, {4, 11, 0}}, {{1, 20, 0}, {2, 22, 0}}}},
			{Title: "validate", Points: [][]Point{{{1, 5, 0}, {2, 5, 0}}, nil}},
		},
		Marks: []Mark{{Y: 15, Text: "published"}},
	}
}

func TestLinesAreDeterministic(t *testing.T) {
	for name, write := range map[string]func(*Lines, io.Writer) error{
		"svg": (*Lines).SVG, "pdf": (*Lines).PDF, "png": (*Lines).PNG,
	} {
		var first, again bytes.Buffer
		if err := write(lineFigure(), &first); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := write(lineFigure(), &again); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(first.Bytes(), again.Bytes()) {
			t.Errorf("%s: a second drawing differs", name)
		}
	}
}

func TestLinesDrawEveryName(t *testing.T) {
	var svg bytes.Buffer
	if err := lineFigure().SVG(&svg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Around changes", "iteration", "iteration time (ms)", "default", "lru", "skip", "validate", "published"} {
		if !strings.Contains(svg.String(), ">"+want+"<") {
			t.Errorf("the figure does not show %q", want)
		}
	}
}

func TestLinesValidate(t *testing.T) {
	for name, spoil := range map[string]func(*Lines){
		"no series":         func(l *Lines) { l.Series = nil },
		"no panel":          func(l *Lines) { l.Panels = nil },
		"missing line":      func(l *Lines) { l.Panels[0].Points = l.Panels[0].Points[:1] },
		"no X":              func(l *Lines) { l.Panels[0].Points[0][0].X = math.NaN() },
		"infinite":          func(l *Lines) { l.Panels[0].Points[0][0].Y = math.Inf(1) },
		"negative interval": func(l *Lines) { l.Panels[0].Points[0][0].Half = -1 },
		"logarithm of zero": func(l *Lines) { l.LogX, l.Panels[0].Points[0][0].X = true, 0 },
	} {
		l := lineFigure()
		spoil(l)
		if err := l.SVG(io.Discard); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := lineFigure().Validate(); err != nil {
		t.Errorf("a sound figure was refused: %v", err)
	}
}

// Panels without extent, without points, in great number, and more series than
// fit beside the title: all are drawn.
func TestLinesAtTheEdges(t *testing.T) {
	l := lineFigure()
	l.Marks = nil
	for name, points := range map[string][][]Point{
		"one point":  {{{3, 0, 0}}, nil},
		"flat":       {{{1, 7, 0}, {2, 7, 0}}, nil},
		"nothing":    {nil, nil},
		"only a gap": {{{1, math.NaN(), 0}}, nil},
	} {
		l.Panels = []LinePanel{{Title: name, Points: points}}
		if err := l.SVG(io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	l = lineFigure()
	for len(l.Panels) < 10 {
		l.Panels = append(l.Panels, l.Panels[0])
	}
	for len(l.Series) < 12 {
		l.Series = append(l.Series, strings.Repeat("long name ", 3))
	}
	for i := range l.Panels {
		l.Panels[i].Points = append(l.Panels[i].Points, make([][]Point, 10)...)
	}
	if err := l.SVG(io.Discard); err != nil {
		t.Error(err)
	}
	rows := l.sheet().legendRows()
	next := 0
	for _, row := range rows {
		if row[0] != next {
			t.Fatalf("legend rows %v leave series out", rows)
		}
		next = row[1]
	}
	if next != len(l.Series) || len(rows) < 3 {
		t.Errorf("legend rows %v for %d series", rows, len(l.Series))
	}
}
