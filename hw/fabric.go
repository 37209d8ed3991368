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
// the members; beyond the ends the nearest entry holds, see MaxMembers. What
// crosses servers is a ring, or a transfer, over the members' adapters: see
// across. Other
// kinds of work take no time here. A fabric without a rate for the work, which
// Validate refuses on nodes that could need it, gives Forever.
func (f *Fabric) Time(w Work) sim.Time {
	var rate float64
	switch w.Kind {
	case Transfer:
		if rate = float64(f.Peer); f.crosses(2, w.Stride) {
			rate = min(rate, float64(f.Across))
		}
	case Collective:
		if rate = groupRate(f.Tables[w.Collective], float64(w.Members)); f.crosses(w.Members, w.Stride) {
			rate = min(rate, f.across(w))
		}
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

// crosses tells whether members so far apart are on several servers. Groups are
// taken to be aligned, as those of a framework are whose degrees divide a server.
func (f *Fabric) crosses(members, stride int32) bool {
	return f.Server > 0 && int64(members-1)*int64(max(stride, 1)) >= int64(f.Server)
}

// across is the bandwidth of a collective over servers by the adapters alone, in
// bytes of the full tensor per second. Of n members k are on each server and share
// a ring for each of their adapters, so that k x Across leaves and enters a server,
// and a full tensor takes (n-1)/n of itself once around, twice to be all-reduced. In an
// all-to-all each member sends its part to the n-k members of other servers.
func (f *Fabric) across(w Work) float64 {
	n := float64(w.Members)
	k := float64(max(1, f.Server/int(max(w.Stride, 1))))
	rate := float64(f.Across)
	switch w.Collective {
	case AllReduce:
		return k * rate * n / (2 * (n - 1))
	case AllToAll:
		return rate * n * n / (n - k)
	case Broadcast:
		return k * rate
	}
	return k * rate * n / (n - 1)
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
