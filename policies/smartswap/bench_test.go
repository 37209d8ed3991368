package smartswap

import (
	"fmt"
	"testing"

	"smartswap/profilers/layered"
	"smartswap/sim"
)

// BenchmarkPlan plans iterations of 10,000 and 100,000 operators, from profile
// to executable plan, and reports the time per operator: with O(n log n) it
// hardly grows.
func BenchmarkPlan(b *testing.B) {
	for _, micro := range []int{10, 100} {
		c := layered.Config{Layers: 100, MicroBatches: micro, Duration: sim.Time(micro) * sim.Second, Base: sim.GiB}
		obs := c.Observation()
		for _, preset := range Presets() {
			o := preset.Options()
			o.Target, o.Reduction = Reduction, 8*sim.GiB
			b.Run(fmt.Sprintf("%s/%d", preset.Name, len(obs.Ops)), func(b *testing.B) {
				for b.Loop() {
					s, err := Generate(Input{Profile: obs, Duration: c.Duration, Weight: o.SizeWeight}, &o)
					if err != nil {
						b.Fatal(err)
					}
					s.Plan(nil)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(obs.Ops)), "ns/operator")
			})
		}
	}
}

// BenchmarkFit fits a plan for 100,000 operators to an iteration with one
// micro-batch more and an operator inserted into each pass.
func BenchmarkFit(b *testing.B) {
	c := layered.Config{Layers: 100, MicroBatches: 100, Duration: 100 * sim.Second, Base: sim.GiB}
	o := Default()
	o.Target, o.Reduction = Reduction, 8*sim.GiB
	obs := c.Observation()
	s, err := Generate(Input{Profile: obs, Duration: c.Duration}, &o)
	if err != nil {
		b.Fatal(err)
	}
	plan := s.Plan(nil)
	c.MicroBatches++
	other := c.Observation()
	for i := range other.Passes {
		other.Passes[i].Hash++
		other.Sequence[other.Passes[i].Lo] = 0
	}
	for b.Loop() {
		if _, ok := fit(plan, obs, other); !ok {
			b.Fatal("it does not fit")
		}
	}
}
