package workloads_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

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
		return workloads.ProfiledOp{Name: name, Forward: us, Backward: 2 * us, Weights: 8, Result: 64, ReadsInput: true, Input: 32, Recompute: again, Group: group, Replicas: 1}
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

// kept are the bytes of activations that live at the end of the first forward pass,
// and at that of the iteration.
func kept(p *workloads.Program) (forward, end sim.Bytes) {
	refs := make([]int, len(p.Storages))
	live := sim.Bytes(0)
	forward = -1
	for _, in := range p.Instrs {
		switch in.Kind {
		case workloads.Mark:
			if in.Mark == workloads.MarkForwardEnd && forward < 0 {
				forward = live
			}
		case workloads.Op:
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if s := &p.Storages[a.Storage]; s.Class == workloads.Activation && a.Mode == workloads.Write && refs[a.Storage] == 0 {
					refs[a.Storage] = 1
					live += s.Bytes
				}
			}
		case workloads.Ref:
			refs[in.A]++
		case workloads.Drop:
			if refs[in.A]--; refs[in.A] == 0 && p.Storages[in.A].Class == workloads.Activation {
				live -= p.Storages[in.A].Bytes
			}
		}
	}
	return forward, live
}

// TestProfiledKeeps: at the end of a forward pass live what a stage has received and
// sends, what operators that are not computed again read in backward, and what groups
// begin with.
func TestProfiledKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stages []workloads.ProfiledStage
		for s := range rapid.IntRange(1, 3).Draw(t, "stages") {
			st := workloads.ProfiledStage{Devices: []int{s}, Output: sim.Bytes(rapid.IntRange(1, 50).Draw(t, "output"))}
			for i := range rapid.IntRange(1, 6).Draw(t, "operators") {
				st.Ops = append(st.Ops, workloads.ProfiledOp{
					Name: string(rune('a' + i)), Forward: 1, Backward: 1, Input: 1, Replicas: 1,
					Result: sim.Bytes(rapid.IntRange(1, 1000).Draw(t, "result")), Aside: sim.Bytes(rapid.SampledFrom([]int{0, 7}).Draw(t, "aside")),
					ReadsInput: rapid.Bool().Draw(t, "reads input"), ReadsResult: rapid.Bool().Draw(t, "reads result"),
					Recompute: rapid.Bool().Draw(t, "again"), Group: rapid.IntRange(0, 1).Draw(t, "group"),
				})
			}
			stages = append(stages, st)
		}
		_, _, programs, err := workloads.NewProfiled(stages, rapid.IntRange(1, 3).Draw(t, "micro-batches"))
		if err != nil {
			t.Fatal(err)
		}
		for s, p := range programs {
			if err := workloadstest.Races(p); err != nil {
				t.Fatalf("stage %d: %v", s, err)
			}
			ops, want := stages[s].Ops, sim.Bytes(0)
			if s > 0 {
				want += stages[s-1].Output
			}
			for i, op := range ops {
				lives := !op.Recompute && op.ReadsResult
				size := op.Result
				if i+1 < len(ops) {
					next := ops[i+1]
					lives = lives || !next.Recompute && next.ReadsInput || next.Recompute && !(op.Recompute && op.Group == next.Group)
				} else if s+1 < len(stages) {
					lives, size = true, max(size, stages[s].Output)
				}
				if lives {
					want += size
				}
				if !op.Recompute {
					want += op.Aside
				}
			}
			got, end := kept(p)
			if s > 0 { // the received tensor of a second micro-batch may be there
				if extra := got - want; extra != 0 && extra != stages[s-1].Output {
					t.Fatalf("stage %d keeps %d bytes, want %d", s, got, want)
				}
			} else if got != want {
				t.Fatalf("stage %d keeps %d bytes, want %d", s, got, want)
			}
			if end != 0 {
				t.Fatalf("stage %d leaves %d bytes", s, end)
			}
		}
	})
}
