package bench

import (
	"slices"
	"testing"
	"time"
)

// batch is how many events of a model are handled at once: enough that filling
// and draining the queue do not count.
func batch(m model) int { return max(1<<17, 16*m.actors) }

// BenchmarkEngine reports the time and the allocations per event of every
// engine on every model.
func BenchmarkEngine(b *testing.B) {
	for _, m := range models {
		for _, c := range contenders {
			b.Run(m.name+"/"+c.name, func(b *testing.B) {
				n := batch(m)
				run := c.new(m)
				run(n) // warm up
				allocs := testing.AllocsPerRun(1, func() { run(n) })
				for b.Loop() {
					run(n)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
				b.ReportMetric(allocs/float64(n), "allocs/event")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// TestRatios asserts what the engine has to reach, as ratios within this run:
// every repetition measures all engines one after another, and the medians are
// compared.
func TestRatios(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for several seconds")
	}
	const repetitions = 9
	measured := []string{"sim", "reference", "akita"}
	for _, m := range models {
		n := batch(m)
		runs := map[string]func(int) int{}
		ns := map[string][]float64{}
		for _, c := range contenders {
			if slices.Contains(measured, c.name) {
				runs[c.name] = c.new(m)
				runs[c.name](n) // warm up
			}
		}
		for range repetitions {
			for _, name := range measured {
				start := time.Now()
				runs[name](n)
				ns[name] = append(ns[name], float64(time.Since(start).Nanoseconds())/float64(n))
			}
		}
		ours, heap, akita := median(ns["sim"]), median(ns["reference"]), median(ns["akita"])
		allocs := testing.AllocsPerRun(3, func() { runs["sim"](n) })
		t.Logf("%-12s sim %6.1f ns/event, %.2f of the reference; akita %6.1f, %4.1f of sim", m.name, ours, ours/heap, akita, akita/ours)

		limit := 1.4
		if m.name == "chain" {
			limit = 1 // the lanes for events of this instant must pay off
		}
		if ours > limit*heap {
			t.Errorf("%s: %.1f ns/event, more than %.1f times the reference's %.1f", m.name, ours, limit, heap)
		}
		if akita < 3*ours {
			t.Errorf("%s: %.1f ns/event, less than 3 times as fast as akita at %.1f", m.name, ours, akita)
		}
		if allocs != 0 {
			t.Errorf("%s: %v allocations in a batch of %d events, want none", m.name, allocs, n)
		}
	}
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// TestContenders makes sure that all engines do the same work, also in a second
// batch on the same engine.
func TestContenders(t *testing.T) {
	for _, m := range models {
		for _, c := range contenders {
			run := c.new(m)
			for b := range 2 {
				const n = 1 << 17
				if fired := run(n); fired != n {
					t.Errorf("%s on %s, batch %d: %d events, want %d", c.name, m.name, b, fired, n)
				}
			}
		}
	}
}
