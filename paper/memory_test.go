package paper

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func memoryFigure() *Memory {
	return &Memory{
		Title: "A job", XLabel: "ms", YLabel: "GiB", Levels: []string{"reserved", "allocated", "host"}, Out: "swap-out", In: "swap-in",
		Panels: []MemoryPanel{
			{Title: "rank 0", Begin: 10, End: 20, Limit: 8, Steps: [][]Point{{{X: 10, Y: 6}}, {{X: 10, Y: 2}, {X: 12, Y: 5}, {X: 15, Y: 3}}, nil}, Out: []Span{{11, 12}, {13, 13}}, In: []Span{{9, 30}}},
			{Title: "rank 1", Begin: 0, End: 1, Steps: [][]Point{nil, nil, nil}},
		},
	}
}

func TestMemory(t *testing.T) {
	var first, second, png, pdf bytes.Buffer
	m := memoryFigure()
	for _, err := range []error{m.SVG(&first), m.SVG(&second), m.PNG(&png), m.PDF(&pdf)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) || png.Len() == 0 || pdf.Len() == 0 {
		t.Error("two drawings differ, or one is empty")
	}
	for _, want := range []string{"A job", "rank 0", "rank 1", "swap-out", "swap-in", "reserved", "GiB", "ms"} {
		if !strings.Contains(first.String(), ">"+want+"<") {
			t.Errorf("no %q in the figure", want)
		}
	}
	m.Panels[0].Out = nil
	second.Reset()
	if err := m.SVG(&second); err != nil || bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("copies leave no mark")
	}
}

func TestMemoryRefused(t *testing.T) {
	for name, damage := range map[string]func(*Memory){
		"no panel":      func(m *Memory) { m.Panels = nil },
		"two levels":    func(m *Memory) { m.Panels[0].Steps = m.Panels[0].Steps[:2] },
		"no time":       func(m *Memory) { m.Panels[0].End = m.Panels[0].Begin },
		"back in time":  func(m *Memory) { m.Panels[0].Steps[1][2].X = 11 },
		"no number":     func(m *Memory) { m.Panels[0].Steps[1][0].Y = math.NaN() },
		"no limit":      func(m *Memory) { m.Panels[0].Limit = math.Inf(1) },
		"begins at NaN": func(m *Memory) { m.Panels[0].Begin = math.NaN() },
	} {
		m := memoryFigure()
		damage(m)
		var text bytes.Buffer
		if err := m.SVG(&text); err == nil || text.Len() > 0 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, %d bytes", name, err, text.Len())
		}
	}
}
