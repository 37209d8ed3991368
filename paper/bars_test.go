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

// Bars below 0 hang, and 0 stays in sight.
func TestBarsBelowZero(t *testing.T) {
	b := figure()
	b.Panels[1].Values[0][0] = -4
	if low, high := b.extent(); math.Abs(low+4.2) > 1e-12 || math.Abs(high-12.6) > 1e-12 {
		t.Errorf("range %g to %g, want -4.2 to 12.6", low, high)
	}
	if err := b.SVG(io.Discard); err != nil {
		t.Error(err)
	}
	b.Panels = []Panel{{Groups: []string{"a"}, Values: [][]float64{{0, 0, math.NaN()}}}}
	if low, high := b.extent(); low != 0 || high != 1 {
		t.Errorf("range %g to %g of nothing but zeros", low, high)
	}
}

func TestBarsTurnManyNames(t *testing.T) {
	for n, want := range map[int]bool{3: false, 12: false, 30: true} {
		b := figure()
		b.Panels = []Panel{{}}
		for range n {
			b.Panels[0].Groups = append(b.Panels[0].Groups, "a longer name")
			b.Panels[0].Values = append(b.Panels[0].Values, []float64{1, 2, 3})
		}
		if _, turned := labels(b.Panels[0].Groups); turned != want {
			t.Errorf("%d names: turned %v", n, turned)
		}
		if err := b.SVG(io.Discard); err != nil {
			t.Error(err)
		}
	}
}
