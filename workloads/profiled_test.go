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

// TestProfiledGradients: the first micro-batch leaves 16-bit gradients, those of the
// others are added to them; 2 bytes per parameter beside the 14 that stay, and one
// more gradient while it is added. The step copies them to fp32 one by one, which
// leaves 4 bytes per parameter at its end.
func TestProfiledGradients(t *testing.T) {
	const micros, weights = 3, 1 << 20
	stages := []workloads.ProfiledStage{{Devices: []int{0}, Output: 1, Ops: []workloads.ProfiledOp{
		{Name: "a", Forward: 1, Backward: 1, Weights: weights, Replicas: 1},
		{Name: "b", Forward: 1, Backward: 1, Replicas: 1},
		{Name: "c", Forward: 1, Backward: 1, Weights: weights, Replicas: 1},
	}}}
	names, ranks, programs, err := workloads.NewProfiled(stages, micros)
	if err != nil {
		t.Fatal(err)
	}
	resident := sim.Bytes(0)
	for _, s := range ranks[0].Residents {
		resident += s.Bytes
	}
	if resident != 2*7*weights {
		t.Errorf("%d bytes of residents, want 14 for each of %d parameters", resident, weights)
	}
	p := programs[0]
	refs := make([]int, len(p.Storages))
	live, passes, step := sim.Bytes(0), sim.Bytes(0), sim.Bytes(0)
	peak, adds := &passes, 0
	for _, in := range p.Instrs {
		switch in.Kind {
		case workloads.Mark:
			if in.Mark == workloads.MarkOptimizerBegin {
				peak = &step
			}
		case workloads.Op:
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if s := &p.Storages[a.Storage]; s.Class == workloads.Gradient && a.Mode == workloads.Write && refs[a.Storage] == 0 {
					refs[a.Storage] = 1
					live += s.Bytes
				}
			}
			*peak = max(*peak, live)
			if names.String(in.Name) == "aten::add_" {
				adds++
				if k := p.Kernels[in.Kernel]; k.Traffic != 6*weights/2 || k.Family != hw.Elementwise {
					t.Errorf("gradients of %d bytes are added by %+v", weights, k.Work)
				}
			}
		case workloads.Ref:
			refs[in.A]++
		case workloads.Drop:
			if refs[in.A]--; refs[in.A] == 0 && p.Storages[in.A].Class == workloads.Gradient {
				live -= p.Storages[in.A].Bytes
			}
		}
	}
	if adds != 2*(micros-1) {
		t.Errorf("%d additions, want one for each of two operators and each micro-batch but the first", adds)
	}
	if passes != 3*weights || step != 5*weights || live != 0 {
		t.Errorf("gradients take at most %d bytes in passes and %d in the step, and %d are left: want %d, %d and 0", passes, step, live, 3*weights, 5*weights)
	}
}
