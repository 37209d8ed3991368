package bench

import (
	"testing"
	"time"

	"smartswap/policies/smartswap"
	"smartswap/profilers/layered"
	"smartswap/sim"
)

// TestPlanning asserts that a plan for 100,000 operators takes at most twice as
// long as simulating as many once, whatever the planner.
func TestPlanning(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for several seconds")
	}
	c := layered.Config{Layers: 100, MicroBatches: 100, Duration: 100 * sim.Second, Base: sim.GiB}
	obs := c.Observation()
	jobs[0].run(t, 1)
	for _, preset := range smartswap.Presets() {
		o := preset.Options()
		o.Target, o.Reduction = smartswap.Reduction, 8*sim.GiB
		holds(t, func(v *verdicts) {
			var simulating, planning []float64 // ns per operator
			for range 5 {
				start := time.Now()
				ops := jobs[0].run(t, 1)
				simulating = append(simulating, float64(time.Since(start).Nanoseconds())/float64(ops))
				start = time.Now()
				s, err := smartswap.Explain(obs, o)
				check(t, err)
				s.Plan(nil)
				planning = append(planning, float64(time.Since(start).Nanoseconds())/float64(len(obs.Ops)))
			}
			p, s := fastest(planning), fastest(simulating)
			v.Logf("%s: %.0f ns per operator to plan, %.0f to simulate", preset.Name, p, s)
			v.atMost(preset.Name+": ns per operator to plan", p, 2*s)
		})
	}
}
