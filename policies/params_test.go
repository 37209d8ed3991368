package policies

import (
	"math"
	"strings"
	"testing"

	"smartswap/sim"
)

type testOptions struct {
	On     bool
	Chunks int
	Size   sim.Bytes
	Weight float64
	Mode   string
}

func readTest(p Params) (testOptions, error) {
	o := testOptions{Chunks: 16, Mode: "plan"}
	r := p.Read()
	r.Bool("on", &o.On)
	Int(r, "chunks", &o.Chunks, 1, 4096)
	Int(r, "size_bytes", &o.Size, 0, 1<<40)
	r.Float("weight", &o.Weight, 0, 10)
	r.Choice("mode", &o.Mode, "plan", "whole")
	return o, r.Done()
}

func TestParams(t *testing.T) {
	for _, p := range []Params{nil, {}} {
		if o, err := readTest(p); err != nil || o != (testOptions{Chunks: 16, Mode: "plan"}) {
			t.Errorf("defaults: %+v, %v", o, err)
		}
	}
	o, err := readTest(Params{"on": true, "chunks": int64(4096), "size_bytes": 7, "weight": int64(2), "mode": "whole"})
	if want := (testOptions{true, 4096, 7, 2, "whole"}); err != nil || o != want {
		t.Errorf("got %+v, %v, want %+v", o, err, want)
	}
}

func TestParamsAreStrict(t *testing.T) {
	for _, c := range []struct {
		p    Params
		want []string
	}{
		{Params{"chunk": int64(1)}, []string{"no option chunk", "nearest is chunks", "on, chunks, size_bytes, weight, mode"}},
		{Params{"zebra": 1, "apple": 1}, []string{"no option apple"}}, // the first in order, always
		{Params{"chunk": 1, "mode": "x"}, []string{"no option chunk"}},
		{Params{"on": int64(1)}, []string{"option on = 1", "true or false"}},
		{Params{"chunks": int64(0)}, []string{"option chunks = 0", "from 1 to 4096"}},
		{Params{"chunks": int64(4097)}, []string{"option chunks = 4097"}},
		{Params{"chunks": 1.5}, []string{"option chunks = 1.5", "an integer"}},
		{Params{"chunks": "4"}, []string{`option chunks = "4"`}},
		{Params{"size_bytes": int64(-1)}, []string{"option size_bytes = -1"}},
		{Params{"size_bytes": int64(math.MaxInt64)}, []string{"from 0 to 1099511627776"}},
		{Params{"weight": math.NaN()}, []string{"option weight = NaN", "from 0 to 10"}},
		{Params{"weight": math.Inf(1)}, []string{"option weight = +Inf"}},
		{Params{"weight": true}, []string{"option weight = true"}},
		{Params{"mode": "Plan"}, []string{`option mode = "Plan"`, "plan, whole"}},
		{Params{"mode": int64(1)}, []string{"option mode = 1"}},
	} {
		_, err := readTest(c.p)
		if err == nil {
			t.Errorf("%v passes", c.p)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: error %q should be one line with %q", c.p, err, want)
			}
		}
	}
	if err := (Params{"x": 1}).Read().Done(); err == nil || !strings.Contains(err.Error(), "has no options") {
		t.Errorf("a policy without options: %v", err)
	}
}
