package g10

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"smartswap/policies"
	"smartswap/sim"
)

// draw makes a small random program and a machine that is too small for it.
func draw(t *rapid.T) (*policies.Nominal, Machine) {
	n := rapid.IntRange(2, 24).Draw(t, "kernels")
	globals := rapid.SliceOfN(rapid.IntRange(1, 40), 0, 5).Draw(t, "globals")
	locals := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 14).Draw(t, "locals")
	kernels := make([]policies.NominalKernel, n)
	for k := range kernels {
		kernels[k].Span = sim.Time(rapid.IntRange(0, 9).Draw(t, "ms")) * ms
	}
	var sizes [2][]sim.Bytes
	var total sim.Bytes
	use := func(id int32) {
		for _, k := range rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, min(n, 4), rapid.ID[int]).Draw(t, "uses") {
			kernels[k].In = append(kernels[k].In, id)
		}
	}
	for i, b := range slices.Concat(globals, locals) {
		use(int32(i))
		size := sim.Bytes(b) * 100
		total += size
		list := &sizes[1]
		if i < len(globals) {
			list = &sizes[0]
		}
		*list = append(*list, size)
	}
	m := Machine{
		GPU:  max(1, total*sim.Bytes(rapid.IntRange(10, 90).Draw(t, "gpu %"))/100),
		Host: total * sim.Bytes(rapid.SampledFrom([]int{0, 20, 100}).Draw(t, "host %")) / 100,
		Link: sim.Rate(rapid.IntRange(1, 3000).Draw(t, "link")) * 1000,
		Line: rapid.SampledFrom([]float64{0.9, 1, 1.05}).Draw(t, "line"), Delta: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "delta"),
		SSDLatency: sim.Time(rapid.IntRange(0, 3).Draw(t, "ssd latency")) * ms, Alloc: sim.Time(rapid.IntRange(0, 2).Draw(t, "alloc")) * sim.Second,
		KeepFirst: rapid.Bool().Draw(t, "keep first"),
	}
	if m.Host == 0 || rapid.Bool().Draw(t, "ssd") {
		m.SSD = max(1, m.Link*sim.Rate(rapid.IntRange(10, 100).Draw(t, "ssd %"))/100)
		m.LastPass = rapid.SampledFrom([]float64{0, 0.7}).Draw(t, "last pass")
	}
	return program(kernels, sizes[0], sizes[1]), m
}

// naive repeats the plan as it is described: all periods are ranked again, from
// an estimate that is made again, after every choice.
func naive(p *policies.Nominal, m Machine) []Move {
	pl := &planner{p: p, m: m, clock: newClock(p), s: &Schedule{}}
	pl.estimate()
	pl.channels()
	start := slices.Clone(pl.est.bytes)
	rest := periods(p, pl.clock)
	n := len(p.Kernels)
	for len(rest) > 0 {
		est := fromScratch(p, start, pl.s.Moves)
		if slices.Max(est) < m.line() {
			break
		}
		best, bestBenefit, bestWeight := -1, sim.Bytes(0), sim.Bytes(0)
		for i, x := range rest {
			size := p.Tensors[x.Tensor].Bytes
			half := size * sim.Bytes(sim.Second) / sim.Bytes(m.slowest()) / 2
			var benefit sim.Bytes
			for k := x.From; k < x.To; k++ {
				var before, after sim.Time
				for j := x.From; j < k; j++ {
					before += p.Kernels[int(j)%n].Span
				}
				for j := k + 1; j < x.To; j++ {
					after += p.Kernels[int(j)%n].Span
				}
				if (x.Looped || sim.Bytes(before) >= half && sim.Bytes(after) >= half) && est[int(k)%n] > m.GPU {
					benefit += size * sim.Bytes(p.Kernels[int(k)%n].Span)
				}
			}
			weight := size * sim.Bytes(x.Length)
			if best < 0 || benefit > bestBenefit || benefit == bestBenefit && weight > bestWeight {
				best, bestBenefit, bestWeight = i, benefit, weight
			}
		}
		x := rest[best]
		rest = slices.Delete(rest, best, best+1)
		above := false
		for k := x.From; k < x.To; k++ {
			above = above || est[int(k)%n] >= m.line()
		}
		if x.To-x.From > 1 && above {
			pl.take(&candidate{Period: x})
		}
	}
	return pl.s.Moves
}

// fromScratch is the estimate before any move, less the moves.
func fromScratch(p *policies.Nominal, start []sim.Bytes, moves []Move) []sim.Bytes {
	est := slices.Clone(start)
	for _, mv := range moves {
		for k := mv.Written + 1; k < mv.Read; k++ {
			est[int(k)%len(est)] -= p.Tensors[mv.Tensor].Bytes
		}
	}
	return est
}

// TestPlanProperties: the choices are those of the naive planner, the estimate
// kept is the estimate made again, no ledger is overdrawn, no read begins
// before its write has ended, and the host holds what it is given.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, m := draw(t)
		pl := &planner{p: p, m: m, clock: newClock(p), s: &Schedule{Kernels: int32(len(p.Kernels))}}
		pl.estimate()
		start := slices.Clone(pl.est.bytes)
		for k := range start {
			var want sim.Bytes
			for i := range p.Tensors {
				alive := p.Tensors[i].Global || !slices.ContainsFunc(pl.s.Frees, func(a At) bool { return a.Tensor == int32(i) })
				for j, a := range pl.s.Allocs {
					alive = alive || a.Tensor == int32(i) && int32(k) >= a.Kernel && int32(k) < pl.s.Frees[j].Kernel
				}
				if alive {
					want += p.Tensors[i].Bytes
				}
			}
			if start[k] != want {
				t.Fatalf("kernel %d: estimate %d before any move, want %d", k, start[k], want)
			}
		}
		pl.choose()
		if want := naive(p, m); !reflect.DeepEqual(pl.s.Moves, want) {
			t.Fatalf("chose %+v\nranking again each time gives %+v", pl.s.Moves, want)
		}
		checkLedgers(t, pl)
		if est := fromScratch(p, start, pl.s.Moves); !slices.Equal(est, pl.est.bytes) {
			t.Fatalf("estimate %v, made again %v", pl.est.bytes, est)
		}
		if pl.est.met() != (slices.Max(pl.est.bytes) < m.line()) {
			t.Fatalf("line %d met: %v, estimate %v", m.line(), pl.est.met(), pl.est.bytes)
		}

		s, err := Plan(p, m)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[[2]int32]bool{}
		for _, mv := range s.Moves {
			if key := [2]int32{mv.Tensor, mv.From}; seen[key] {
				t.Fatalf("period %v is moved twice", key)
			} else {
				seen[key] = true
			}
			if mv.Read <= mv.Written || mv.Read > mv.Latest || mv.Latest >= mv.To || mv.Written < mv.From {
				t.Fatalf("move %+v", mv)
			}
		}
		last := int32(-1)
		for _, h := range s.Hints() {
			if h.Start.N < last || h.Start.N >= s.Kernels {
				t.Fatalf("hint at kernel %d after %d, of %d", h.Start.N, last, s.Kernels)
			}
			last = h.Start.N
		}
		again, _ := Plan(p, m)
		if !reflect.DeepEqual(s, again) {
			t.Fatal("planned differently the second time")
		}
	})
}

// checkLedgers compares what is booked with the moves: all of it, and at most
// that much of looped ones; and no ledger is overdrawn.
func checkLedgers(t *rapid.T, pl *planner) {
	fresh := &planner{p: pl.p, m: pl.m, clock: pl.clock, s: &Schedule{}}
	fresh.channels()
	for name, l := range map[string]ledger{"ssd out": pl.c.ssdOut, "ssd in": pl.c.ssdIn, "link out": pl.c.linkOut, "link in": pl.c.linkIn, "host": pl.c.host} {
		for k, b := range l {
			if b < 0 {
				t.Fatalf("%s: kernel %d is overdrawn by %d", name, k, -b)
			}
		}
	}
	var least, most, booked [2]sim.Bytes
	for _, mv := range pl.s.Moves {
		size := pl.p.Tensors[mv.Tensor].Bytes
		if most[mv.Tier] += size; !mv.Looped {
			least[mv.Tier] += size
		}
	}
	for k := range fresh.c.linkOut {
		link := fresh.c.linkOut[k] - pl.c.linkOut[k]
		var ssd sim.Bytes
		if pl.m.SSD > 0 {
			ssd = fresh.c.ssdOut[k] - pl.c.ssdOut[k]
		}
		booked[policies.SSDTier] += ssd
		booked[policies.HostTier] += link - ssd
	}
	for tier, b := range booked {
		if b < least[tier] || b > most[tier] {
			t.Fatalf("tier %d: booked %d, want %d to %d", tier, b, least[tier], most[tier])
		}
	}
}
