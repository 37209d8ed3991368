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
// every repetition measures all engines one after another, and the fastest of
// each are compared.
func TestRatios(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for several seconds")
	}
	const repetitions = 9
	measured := []string{"sim", "reference", "akita"}
	for _, m := range models {
		n := batch(m)
		runs := map[string]func(int) int{}
		for _, c := range contenders {
			if slices.Contains(measured, c.name) {
				runs[c.name] = c.new(m)
				runs[c.name](n) // warm up
			}
		}
		limit := 1.4
		if m.name == "chain" {
			limit = 1 // the lanes for events of this instant must pay off
		}
		holds(t, func(v *verdicts) {
			ns := map[string][]float64{}
			for range repetitions {
				for _, name := range measured {
					start := time.Now()
					runs[name](n)
					ns[name] = append(ns[name], float64(time.Since(start).Nanoseconds())/float64(n))
				}
			}
			ours, heap, akita := fastest(ns["sim"]), fastest(ns["reference"]), fastest(ns["akita"])
			v.Logf("%-12s sim %6.1f ns/event, %.2f of the reference; akita %6.1f, %4.1f of sim", m.name, ours, ours/heap, akita, akita/ours)
			v.atMost(m.name+": ns/event of sim", ours, limit*heap)
			v.atMost(m.name+": three times ns/event of sim", 3*ours, akita)
		})
		if allocs := testing.AllocsPerRun(3, func() { runs["sim"](n) }); allocs != 0 {
			t.Errorf("%s: %v allocations in a batch of %d events, want none", m.name, allocs, n)
		}
	}
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
