package workloads_test

import (
	"strings"
	"testing"

	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/workloadstest"
)

// TestProfiled: kernels are the given times, each as often as there are
// micro-batches; a group is computed again before its backward passes, from what
// was left before it.
func TestProfiled(t *testing.T) {
	us := sim.Microsecond
	op := func(name string, again bool, group int) workloads.ProfiledOp {
		return workloads.ProfiledOp{Name: name, Forward: us, Backward: 2 * us, Weights: 8, Kept: 64, Input: 32, Recompute: again, Group: group, Replicas: 1}
	}
	stages := []workloads.ProfiledStage{
		{Devices: []int{0}, Output: 16, Ops: []workloads.ProfiledOp{op("a", false, 0), op("b", true, 1), op("c", true, 1), op("d", true, 2)}},
		{Devices: []int{1, 2}, Output: 16, Ops: []workloads.ProfiledOp{op("e", true, 2), op("f", false, 2)}},
	}
	const micros = 3
	names, ranks, programs, err := workloads.NewProfiled(stages, micros)
	if err != nil {
		t.Fatal(err)
	}
	var order [2][]string
	for r, p := range programs {
		if err := p.Validate(); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		if err := workloadstest.Races(p); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		total := sim.Time(0)
		for _, in := range p.Instrs {
			if in.Kind == workloads.Op && in.Kernel >= 0 && p.Kernels[in.Kernel].Kind == hw.Measured {
				total += p.Kernels[in.Kernel].Time
				name := names.String(in.Name)
				if in.Flags&workloads.Recomputed != 0 {
					name += " again"
				}
				order[r] = append(order[r], name)
			}
		}
		n := sim.Time(len(stages[r].Ops))
		again := sim.Time([2]int{3, 1}[r])
		if want := micros * (3*n + again) * us; total != want {
			t.Errorf("rank %d: kernels take %v, want %v", r, total, want)
		}
		if len(ranks[r].Devices) != len(stages[r].Devices) {
			t.Errorf("rank %d stands for %d devices", r, len(ranks[r].Devices))
		}
	}
	want := "a b c d d again d backward b again c again c backward b backward a backward"
	// Stage 0 of 1F1B warms up with one more forward pass.
	first := strings.Join(append(order[0][:4:4], order[0][8:15]...), " ")
	if first != want {
		t.Errorf("stage 0 runs %q, want %q", first, want)
	}
	for _, c := range []struct {
		stages []workloads.ProfiledStage
		micros int
	}{{nil, 1}, {stages, 0}, {stages, 1 << 20}} {
		if _, _, _, err := workloads.NewProfiled(c.stages, c.micros); err == nil || !strings.Contains(err.Error(), "micro-batches of") {
			t.Errorf("%d stages, %d micro-batches: %v", len(c.stages), c.micros, err)
		}
	}
}
