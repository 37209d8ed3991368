package paper

import (
	"bytes"
	"io"
	"math"
	"testing"
)

func figure() *Bars {
	return &Bars{
		Title: "Throughput", YLabel: "tokens/s per device", Series: []string{"baseline", "ZeRO-3", "SmartSwap"},
		Panels: []Panel{
			{Title: "minimal", Groups: []string{"7B 4k", "7B 8k"}, Values: [][]float64{{10, 8, 12}, {9, math.NaN(), 11}}, Absent: "OOM"},
			{Title: "eager", Groups: []string{"7B 4k", "7B 8k"}, Values: [][]float64{{0, 8, 12}, {9, 7, 11}}, Absent: "OOM"},
		},
	}
}

// Two drawings of one figure must agree byte for byte: figures are compared
// with committed ones.
func TestBarsAreDeterministic(t *testing.T) {
	for name, write := range map[string]func(*Bars, io.Writer) error{
		"svg": (*Bars).SVG, "pdf": (*Bars).PDF, "png": (*Bars).PNG,
	} {
		var first bytes.Buffer
		if err := write(figure(), &first); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 3 {
			var again bytes.Buffer
			if err := write(figure(), &again); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !bytes.Equal(first.Bytes(), again.Bytes()) {
				t.Fatalf("%s: a second drawing differs", name)
			}
		}
	}
}

func TestBarsDrawEveryName(t *testing.T) {
	var svg bytes.Buffer
	if err := figure().SVG(&svg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Throughput", "tokens/s per device", "baseline", "ZeRO-3", "SmartSwap", "minimal", "eager", "7B 4k", "7B 8k", "OOM"} {
		if !bytes.Contains(svg.Bytes(), []byte(">"+want+"<")) {
			t.Errorf("the figure does not show %q", want)
		}
	}
}

func TestBarsValidate(t *testing.T) {
	for name, spoil := range map[string]func(*Bars){
		"no series":     func(b *Bars) { b.Series = nil },
		"no panel":      func(b *Bars) { b.Panels = nil },
		"no group":      func(b *Bars) { b.Panels[0].Groups = nil },
		"missing group": func(b *Bars) { b.Panels[0].Values = b.Panels[0].Values[:1] },
		"missing value": func(b *Bars) { b.Panels[1].Values[0] = []float64{1} },
		"negative":      func(b *Bars) { b.Panels[1].Values[0][0] = -1 },
		"infinite":      func(b *Bars) { b.Panels[1].Values[0][0] = math.Inf(1) },
	} {
		b := figure()
		spoil(b)
		if err := b.SVG(io.Discard); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := figure().Validate(); err != nil {
		t.Errorf("a sound figure was refused: %v", err)
	}
}
