package eager

import (
	"testing"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/workloads"
)

// TestClock: chunks of a model count their own passes, and a pass has its own
// layer borders where the plan has some for it.
func TestClock(t *testing.T) {
	c := newClock(&policies.Plan{
		ForwardBounds: []int32{1},
		Passes:        []policies.PassBounds{{Pass: profilers.Stage{Phase: profilers.Forward, MicroBatch: 1, Model: 1}, Bounds: []int32{0, 2}}},
	})
	for _, s := range []struct {
		mark  workloads.MarkKind
		chunk int32
		want  string // stages of four operators
	}{
		{workloads.MarkIterationBegin, 0, "I0.0 I0.0 I0.0 I0.0"},
		{workloads.MarkForwardBegin, 0, "F1.1 F1.1 F1.2 F1.2"},
		{workloads.MarkForwardBegin, 1, "F1.1/1 F1.2/1 F1.2/1 F1.3/1"},
		{workloads.MarkForwardEnd, 1, "F1.3/1 F1.3/1 F1.3/1 F1.3/1"},
		{workloads.MarkForwardBegin, 0, "F2.1 F2.1 F2.2 F2.2"},
		{workloads.MarkForwardBegin, 1, "F2.1/1 F2.1/1 F2.2/1 F2.2/1"},
		{workloads.MarkBackwardBegin, 1, "B1.1/1 B1.1/1 B1.1/1 B1.1/1"},
		{workloads.MarkBackwardBegin, 0, "B1.1 B1.1 B1.1 B1.1"},
		{workloads.MarkValidationBegin, 0, "F3.1 F3.1 F3.2 F3.2"},
		{workloads.MarkOptimizerBegin, 0, "O0.0 O0.0 O0.0 O0.0"},
	} {
		c.mark(s.mark, s.chunk)
		got := ""
		for i := range 4 {
			if i > 0 {
				got += " "
			}
			got += c.stage.String()
			c.step()
		}
		if got != s.want {
			t.Errorf("mark %d of chunk %d: %s, want %s", s.mark, s.chunk, got, s.want)
		}
	}
}
