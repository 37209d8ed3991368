package policies

import (
	"strings"
	"testing"

	"smartswap/profilers"
)

func forward(mb, layer int32) profilers.Stage {
	return profilers.Stage{Phase: profilers.Forward, MicroBatch: mb, Layer: layer}
}

func backward(mb, layer int32) profilers.Stage {
	return profilers.Stage{Phase: profilers.Backward, MicroBatch: mb, Layer: layer}
}

func at(s profilers.Stage) Trigger { return Trigger{Kind: AtStage, Stage: s} }

// goodPlan swaps one tensor and one optimizer state; two layers.
func goodPlan() *Plan {
	optim := profilers.Stage{Phase: profilers.Optim}
	tensor := Selector{Kind: ByFeature, Stage: forward(1, 1)}
	state := Selector{Kind: ByHandle, Handle: 3}
	return &Plan{
		ForwardBounds: []int32{5}, BackwardBounds: []int32{5},
		Swaps: []Swap{
			{
				Out:   Action{Kind: Evict, What: tensor, Release: at(forward(1, 2))},
				In:    Action{Kind: Prefetch, What: tensor, Start: at(backward(1, 1)), Release: at(backward(1, 2))},
				Bytes: 1,
			},
			{
				Out:   Action{Kind: Evict, What: state, Start: at(forward(1, 1)), Release: at(forward(2, 1))},
				In:    Action{Kind: Prefetch, What: state, Start: at(optim), Release: at(optim)},
				Bytes: 1, Optimizer: true,
			},
		},
	}
}

func TestValidate(t *testing.T) {
	if err := (*Plan)(nil).Validate(); err != nil {
		t.Errorf("no plan: %v", err)
	}
	if err := goodPlan().Validate(); err != nil {
		t.Errorf("good plan: %v", err)
	}
	for name, c := range map[string]struct {
		spoil func(*Plan)
		want  string
	}{
		"bounds fall":       {func(p *Plan) { p.ForwardBounds = []int32{5, 4} }, "layer boundary 1 is 4"},
		"negative bound":    {func(p *Plan) { p.BackwardBounds = []int32{-1} }, "layer boundary 0 is -1"},
		"pass bounds fall":  {func(p *Plan) { p.Passes = []PassBounds{{forward(2, 0), []int32{3, 2}}} }, "layer boundary 1 is 2"},
		"a layer too many":  {func(p *Plan) { p.Passes = []PassBounds{{backward(1, 0), nil}} }, "stage B1.2"},
		"chunked tensor":    {func(p *Plan) { p.Swaps[0].Chunked = true }, "only optimizer states"},
		"window":            {func(p *Plan) { p.Window = -1 }, "window = -1"},
		"chunks":            {func(p *Plan) { p.Chunks = -1 }, "chunks = -1"},
		"kind":              {func(p *Plan) { p.Swaps[0].Out.Kind = Discard }, "swap 0: kinds"},
		"bytes":             {func(p *Plan) { p.Swaps[0].Bytes = 0 }, "0 bytes"},
		"in without stage":  {func(p *Plan) { p.Swaps[0].In.Start = Trigger{} }, "way in"},
		"tensor by handle":  {func(p *Plan) { p.Swaps[0].Out.What.Kind = ByHandle }, "by feature"},
		"state by feature":  {func(p *Plan) { p.Swaps[1].Out.What.Kind = ByFeature }, "by handle"},
		"no such layer":     {func(p *Plan) { p.Swaps[0].In.Start = at(backward(1, 3)) }, "layers to 2"},
		"layer 0":           {func(p *Plan) { p.Swaps[0].Out.What.Stage = forward(1, 0) }, "count from 1"},
		"micro-batch 0":     {func(p *Plan) { p.Swaps[0].Out.What.Stage = forward(0, 1) }, "count from 1"},
		"no phase":          {func(p *Plan) { p.Swaps[0].Out.What.Stage = profilers.Stage{} }, "no such phase"},
		"optimizer layer":   {func(p *Plan) { p.Swaps[1].In.Start.Stage.Layer = 1 }, "no micro-batches"},
		"in before out":     {func(p *Plan) { p.Swaps[0].In.Start = at(profilers.Stage{Phase: profilers.Init}) }, "out at F1.1 but in at I0.0"},
		"in an older layer": {func(p *Plan) { p.Swaps[0].Out.What.Stage = forward(1, 2); p.Swaps[0].In.Start = at(forward(1, 1)) }, "out at F1.2 but in at F1.1"},
		"released too soon": {func(p *Plan) { p.Swaps[0].Out.Release = at(profilers.Stage{Phase: profilers.Init}) }, "released at I0.0"},
		"guard too short":   {func(p *Plan) { p.Swaps[0].In.Release = at(forward(1, 2)) }, "in at B1.1 but released at F1.2"},
	} {
		p := goodPlan()
		c.spoil(p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestOtherMicroBatchesAreNotCompared: a pipeline may run the forward pass of
// micro-batch 3 before the backward pass of 1.
func TestOtherMicroBatchesAreNotCompared(t *testing.T) {
	p := goodPlan()
	p.Swaps[0].Out.What.Stage = forward(3, 2)
	p.Swaps[0].In.Start = at(backward(1, 1))
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

func TestBounds(t *testing.T) {
	p := Plan{ForwardBounds: []int32{1}, BackwardBounds: []int32{2}, Passes: []PassBounds{{forward(2, 0), []int32{3}}}}
	for _, c := range []struct {
		stage profilers.Stage
		want  int32
	}{{forward(1, 4), 1}, {forward(2, 4), 3}, {backward(2, 1), 2}} {
		if got := p.Bounds(c.stage); len(got) != 1 || got[0] != c.want {
			t.Errorf("boundaries of %v are %v, want [%d]", c.stage, got, c.want)
		}
	}
	if got := p.Bounds(profilers.Stage{Phase: profilers.Optim}); got != nil {
		t.Errorf("the optimizer phase has boundaries %v", got)
	}
}

// TestFeatureQuirks: a 32-bit tag loses names beyond 32, and sizes are told
// apart only where asked.
func TestFeatureQuirks(t *testing.T) {
	index := make([]uint8, 64)
	for i := range index {
		index[i] = uint8(i + 1)
	}
	for _, c := range []struct {
		name         int32
		wide, narrow uint64
	}{{0, 1, 1}, {30, 1 << 30, 1 << 30}, {31, 1 << 31, 0xffffffff80000000}, {32, 1 << 32, 0}, {63, 1 << 63, 0}} {
		for _, narrow := range []bool{false, true} {
			v := Vocabulary{Index: index, Narrow: narrow}
			f := v.Begin(0, 10, [4]int32{1})
			f.Use(v, c.name, 0)
			want := c.wide
			if narrow {
				want = c.narrow
			}
			if f.Tags != want || f.Bytes != 0 {
				t.Errorf("name %d, narrow %v: %+v, want tags %#x", c.name, narrow, f, want)
			}
		}
	}
	v := Vocabulary{Sized: true}
	if v.Begin(0, 10, [4]int32{1}) == v.Begin(0, 20, [4]int32{2}) {
		t.Error("a sized feature does not tell sizes apart")
	}
}
