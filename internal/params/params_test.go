package params_test

import (
	"math"
	"strings"
	"testing"

	"smartswap/internal/params"
)

type settings struct {
	n    int
	seed uint64
	x    float64
	mode string
}

func read(options map[string]any) (settings, error) {
	s := settings{n: 5, seed: 1, x: 0.5, mode: "a"}
	r := params.Read(options)
	params.Int(r, "n", &s.n, -10, 10)
	params.Int(r, "seed", &s.seed, 0, math.MaxInt64)
	params.Float(r, "x", &s.x, 0, 1)
	params.Choice(r, "mode", &s.mode, "a", "b")
	return s, r.Done()
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		options map[string]any
		want    settings
		err     string // "" = none
	}{
		{nil, settings{5, 1, 0.5, "a"}, ""},
		{map[string]any{"n": int64(-10), "seed": 7, "x": 1, "mode": "b"}, settings{-10, 7, 1, "b"}, ""},
		{map[string]any{"x": 0.25}, settings{5, 1, 0.25, "a"}, ""},
		{map[string]any{"n": 11}, settings{}, "option n = 11: must be an integer from -10 to 10"},
		{map[string]any{"n": 1.0}, settings{}, "option n = 1: must be an integer from -10 to 10"},
		{map[string]any{"seed": -1}, settings{}, "option seed = -1: must be an integer from 0 to"},
		{map[string]any{"x": math.NaN()}, settings{}, "option x = NaN: must be a number from 0 to 1"},
		{map[string]any{"x": "1"}, settings{}, `option x = "1": must be a number`},
		{map[string]any{"mode": "c"}, settings{}, `option mode = "c": must be one of a, b`},
		{map[string]any{"mode": true}, settings{}, `option mode = true: must be one of a, b`},
		{map[string]any{"sed": 1, "n": 99}, settings{}, "no option sed; nearest is seed, valid are n, seed, x, mode"},
		{map[string]any{"n": 99, "x": 2}, settings{}, "option n = 99"},
	} {
		got, err := read(c.options)
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%v: %+v, %v, want %+v", c.options, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%v: error %v, want %q in one line", c.options, err, c.err)
		}
	}
	if err := params.Read(map[string]any{"a": 1}).Done(); err == nil || !strings.Contains(err.Error(), "there are no options") {
		t.Errorf("an option of nothing: %v", err)
	}
}
