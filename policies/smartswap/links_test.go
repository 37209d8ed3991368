package smartswap

import (
	"slices"
	"testing"

	"smartswap/profilers"
	"smartswap/sim"

	"pgregory.net/rapid"
)

// TestLedger plays bookings against a plain array.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "stages")
		left := make([]sim.Time, n)
		for i := range left {
			left[i] = sim.Time(rapid.IntRange(0, 5).Draw(t, "time"))
		}
		l := newLedger(left)
		for range rapid.IntRange(1, 20).Draw(t, "bookings") {
			s := int32(rapid.IntRange(0, n-1).Draw(t, "stage"))
			d := sim.Time(rapid.IntRange(1, 6).Draw(t, "copy"))
			step, book, at := int32(1), l.bookForward, l.forward
			if rapid.Bool().Draw(t, "backward") {
				step, book, at = -1, l.bookBackward, l.backward
			}
			got, ok := at(s, d)
			want, fits, rest := int32(0), false, d
			for k := s; k >= 0 && int(k) < n; k += step {
				if left[k] > 0 {
					if rest -= left[k]; rest <= 0 {
						want, fits = k, true
						break
					}
				}
			}
			if ok != fits || ok && got != want {
				t.Fatalf("a copy of %d from stage %d ends in %d, %v; want %d, %v (left %v)", d, s, got, ok, want, fits, left)
			}
			if !ok {
				continue
			}
			book(s, d)
			for k := s; d > 0; k += step {
				b := min(d, left[k])
				left[k] -= b
				d -= b
			}
			if !slices.Equal(l.left, left) {
				t.Fatalf("left %v, want %v", l.left, left)
			}
		}
	})
}

// TestLinksPlan checks every plan of the link planner against its promises.
func TestLinksPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		obs := drawProfile(t)
		o := Default()
		o.MinTensor = 16 * sim.MiB
		o.Target = Reduction
		o.Reduction = sim.Bytes(rapid.IntRange(1, 800).Draw(t, "reduction")) * sim.MiB
		o.Bandwidth = int64(rapid.SampledFrom([]int{100, 1000, 25600}).Draw(t, "link"))
		o.InAhead = rapid.IntRange(0, 2).Draw(t, "ahead")
		o.Optimizer = rapid.SampledFrom([]string{OptimizerPlan, OptimizerOff}).Draw(t, "optimizer")
		s, err := Generate(Input{Profile: obs, Duration: obs.Duration}, &o)
		if err != nil {
			t.Skip() // a stage that comes twice
		}
		var outs, ins sim.Time
		seen := map[profilers.Tensor]bool{}
		for i := range s.Swaps {
			c := &s.Swaps[i]
			if seen[c.Tensor] {
				t.Fatalf("tensor %d is swapped twice", c.Tensor)
			}
			seen[c.Tensor] = true
			if c.Bytes < o.MinTensor {
				t.Fatalf("%v is below the least size", c.Bytes)
			}
			if !(c.out < c.free && c.free < c.inAt && c.inAt <= c.in && c.inFree == c.in) {
				t.Fatalf("out %d, free %d, back %d for %d: not in order", c.out, c.free, c.inAt, c.in)
			}
			if !c.Delayed {
				outs += transfer(c.Bytes, o.Bandwidth)
				ins += transfer(c.Bytes, o.Bandwidth)
			}
		}
		if outs > obs.Duration || ins > obs.Duration {
			t.Fatalf("copies said to be hidden take %v out and %v in of an iteration of %v", outs, ins, obs.Duration)
		}
		if s.Reached {
			checkReached(t, s, obs, &o)
		}
		if p := s.Plan(nil); len(p.Swaps) > 0 {
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// checkReached adds up, operator by operator, what the plan leaves on the
// device by its own account.
func checkReached(t *rapid.T, s *Schedule, obs *profilers.Observation, o *Options) {
	g := s.grid
	for op := range obs.Ops {
		if p := g.phaseOf(int32(op)); p != profilers.Forward && p != profilers.Backward {
			continue
		}
		held := obs.Ops[op].Active
		for i := range s.Swaps {
			c := &s.Swaps[i]
			gone := c.free - int32(o.FreeDelay) // at the earliest, see place
			if from := g.first[max(gone, c.out+1)]; int32(op) >= from && int32(op) < g.first[c.inAt] {
				held -= c.Bytes
			}
		}
		if held > s.Target {
			t.Fatalf("operator %d holds %v, the target is %v, and the plan says it is reached", op, held, s.Target)
		}
	}
}

// TestLinksHideMore: what the shipped selection can only do with a delay,
// bookings over several stages hide.
func TestLinksHideMore(t *testing.T) {
	var names profilers.Names
	r := profilers.NewRecorder(&names, 12)
	r.Begin(0, profilers.Spec{Records: profilers.IterationTime | profilers.OpNames | profilers.OpRecords | profilers.TensorArgs | profilers.MemoryStats | profilers.SwapRecords})
	id := int64(0)
	op := func(s profilers.Stage, active sim.Bytes, args ...profilers.TensorRec) {
		r.Op(profilers.OpRec{ID: id, Name: names.ID(0, "op"), Stage: s, Active: active}, args)
		id++
	}
	big := profilers.TensorRec{Tensor: 1, Bytes: 300 * sim.MiB}
	f, b := profilers.Stage{Phase: profilers.Forward, MicroBatch: 1, Layer: 1}, profilers.Stage{Phase: profilers.Backward, MicroBatch: 1, Layer: 1}
	op(profilers.Stage{Phase: profilers.Init}, sim.GiB)
	for i := range 120 {
		if i == 0 {
			op(f, sim.GiB, big)
		} else {
			op(f, sim.GiB+sim.Bytes(i)*sim.MiB)
		}
	}
	for i := range 120 {
		if i == 119 {
			op(b, sim.GiB, big)
		} else {
			op(b, sim.GiB+sim.Bytes(120-i)*sim.MiB)
		}
	}
	obs := r.End(240*sim.Millisecond, false) // a stage lasts 10 ms, the copy 12
	for _, planner := range []string{PlanStages, PlanLinks} {
		o := Default()
		o.Target, o.Reduction, o.Planner = Reduction, 10*sim.MiB, planner
		s, err := Generate(Input{Profile: obs, Duration: obs.Duration}, &o)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Swaps) != 1 || s.Swaps[0].Delayed != (planner == PlanStages) {
			t.Errorf("%s: %+v", planner, s.Swaps)
		}
	}
}
