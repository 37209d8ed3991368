package hw

import (
	"math"

	"smartswap/sim"
)

// Time is how long a Collective or Transfer takes once every member has
// arrived:
//
//	Latency + (Size + Ramp) / rate
//
// which is a table's bandwidth approached with half of it reached at Size =
// Ramp. Between measured group sizes the rate is interpolated over log2 of
// the members; beyond the ends the nearest entry holds, see MaxMembers. Other
// kinds of work take no time here. A fabric without a rate for the work, which
// Validate refuses on nodes that could need it, gives Forever.
func (f *Fabric) Time(w Work) sim.Time {
	var rate float64
	switch w.Kind {
	case Transfer:
		rate = float64(f.Peer)
	case Collective:
		rate = groupRate(f.Tables[w.Collective], float64(w.Members))
	default:
		return 0
	}
	if rate <= 0 {
		return sim.Forever
	}
	moving := sim.FromSeconds((float64(w.Size) + float64(f.Ramp)) / rate)
	if moving > sim.Forever-f.Latency {
		return sim.Forever
	}
	return f.Latency + moving
}

// MaxMembers is the largest group for which every collective has a measured
// entry; 1 on a single device.
func (f *Fabric) MaxMembers() int {
	most := math.MaxInt
	for _, table := range f.Tables {
		last := 1
		if len(table) > 0 {
			last = table[len(table)-1].Members
		}
		most = min(most, last)
	}
	return most
}

// groupRate reads a table at a group size.
func groupRate(table []GroupRate, members float64) float64 {
	if len(table) == 0 {
		return 0
	}
	for i, entry := range table {
		if members > float64(entry.Members) {
			continue
		}
		if i == 0 {
			return float64(entry.Rate)
		}
		left, x := table[i-1], math.Log2(members)
		from, to := math.Log2(float64(left.Members)), math.Log2(float64(entry.Members))
		return float64(left.Rate) + (x-from)/(to-from)*float64(entry.Rate-left.Rate)
	}
	return float64(table[len(table)-1].Rate)
}
