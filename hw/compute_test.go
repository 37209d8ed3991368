package hw

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"smartswap/sim"
)

func TestCurveEdges(t *testing.T) {
	up := Curve{[]Point{{10, 0.2}, {20, 0.2}, {30, 0.8}}}
	for _, c := range []struct {
		curve Curve
		x, y  float64
	}{
		{Curve{}, 5, 1},
		{Curve{[]Point{{7, 0.3}}}, -9, 0.3},
		{Curve{[]Point{{7, 0.3}}}, 7, 0.3},
		{Curve{[]Point{{7, 0.3}}}, 9, 0.3},
		{up, math.Inf(-1), 0.2},
		{up, 10, 0.2},
		{up, 15, 0.2}, // equal neighbours: exactly flat
		{up, 20, 0.2},
		{up, 25, 0.5}, // slope zero at both ends: the middle
		{up, 30, 0.8},
		{up, math.Inf(1), 0.8},
	} {
		if got := c.curve.At(c.x); got != c.y {
			t.Errorf("%v at %v = %v, want %v", c.curve, c.x, got, c.y)
		}
	}
}

func TestCurveIsMonotoneBetweenKnotsAndContinuous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Curve
		x := 0.0
		for range rapid.IntRange(2, 6).Draw(t, "knots") {
			x += rapid.Float64Range(0.1, 10).Draw(t, "dx")
			c.Points = append(c.Points, Point{x, rapid.Float64Range(0.001, 1).Draw(t, "y")})
		}
		for i := 1; i < len(c.Points); i++ {
			left, right := c.Points[i-1], c.Points[i]
			if got := c.At(left.X); math.Abs(got-left.Y) > 1e-12 {
				t.Fatalf("at knot %v: %v", left, got)
			}
			const steps = 64
			last := left.Y
			for k := 1; k <= steps; k++ {
				y := c.At(left.X + (right.X-left.X)*float64(k)/steps)
				if step := (y - last) * (right.Y - left.Y); step < -1e-12 {
					t.Fatalf("between %v and %v the curve turns back at step %d", left, right, k)
				}
				// Slopes are at most three secants, so steps are small.
				if most := 3 * math.Abs(right.Y-left.Y) / steps; math.Abs(y-last) > most+1e-9 {
					t.Fatalf("between %v and %v it jumps by %v at step %d", left, right, y-last, k)
				}
				last = y
			}
		}
	})
}

func TestTimingClosedForms(t *testing.T) {
	d := Device{Bandwidth: sim.GBps(1000), Peak16: 100e12, Peak32: 10e12, Fixed: 2 * us}
	d.Flop[MatMul] = Curve{[]Point{{0, 0.5}}}
	d.Mem[Norm] = Curve{[]Point{{0, 0.25}}}
	d.Skinny = Curve{[]Point{{4, 0.1}, {6, 1}}}
	for _, c := range []struct {
		name string
		work Work
		want Timing
	}{
		{"nothing", Work{}, Timing{2 * us, 1}},
		{"flops bound, 16 bit", Work{Family: MatMul, Flops: 1e9, Dtype16: true}, Timing{22 * us, 1}},
		{"flops bound, 32 bit", Work{Family: MatMul, Flops: 1e9, Traffic: 101e6}, Timing{202 * us, sim.GBps(500)}},
		{"memory bound", Work{Family: Norm, Flops: 10, Traffic: 1e6}, Timing{6 * us, 1e6 * 1e12 / sim.Rate(6*us)}},
		{"skinny", Work{Family: MatMul, Flops: 1e9, Dtype16: true, M: 16, N: 4096, K: 4096}, Timing{202 * us, 1}},
		{"below the first knot, padded to it", Work{Family: MatMul, Flops: 1e9, Dtype16: true, M: 4, N: 4096, K: 4096}, Timing{802 * us, 1}},
		{"thick", Work{Family: MatMul, Flops: 1e9, Dtype16: true, M: 64, N: 4096, K: 4096}, Timing{22 * us, 1}},
		{"measured", Work{Kind: Measured, Time: 3 * us, Traffic: 3e5}, Timing{3 * us, sim.GBps(100)}},
		{"measured, faster than the memory", Work{Kind: Measured, Time: us, Traffic: 3e9}, Timing{us, sim.GBps(1000)}},
		{"measured nothing", Work{Kind: Measured}, Timing{0, 1}},
		{"not of this device", Work{Kind: Collective, Size: 1e9, Members: 2}, Timing{0, 1}},
		{"beyond time", Work{Family: Norm, Traffic: math.MaxInt64}, Timing{sim.Forever, 1e12}},
	} {
		if got := d.Timing(c.work); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestTimingGrowsWithSize holds for every device of the catalogue: more flops
// or more bytes never take less time, and demand stays within the bandwidth.
func TestTimingGrowsWithSize(t *testing.T) {
	var devices []*Device
	for _, name := range Nodes() {
		devices = append(devices, device(t, name))
	}
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(devices).Draw(t, "device")
		w := Work{
			Family:  Family(rapid.IntRange(0, int(NumFamilies)-1).Draw(t, "family")),
			Dtype16: rapid.Bool().Draw(t, "16 bit"),
			Flops:   int64(math.Exp2(rapid.Float64Range(0, 50).Draw(t, "log2 flops"))),
			Traffic: sim.Bytes(math.Exp2(rapid.Float64Range(0, 42).Draw(t, "log2 bytes"))),
		}
		more := w
		factor := rapid.Float64Range(1, 1.5).Draw(t, "factor")
		more.Flops = int64(float64(w.Flops) * factor)
		small, large := d.Timing(w), d.Timing(more)
		if large.Span < small.Span {
			t.Fatalf("%s %v: %d flops take %v, %d take %v", d.Name, w.Family, w.Flops, small.Span, more.Flops, large.Span)
		}
		more = w
		more.Traffic = sim.Bytes(float64(w.Traffic) * factor)
		if large = d.Timing(more); large.Span < small.Span {
			t.Fatalf("%s %v: %d bytes take %v, %d take %v", d.Name, w.Family, w.Traffic, small.Span, more.Traffic, large.Span)
		}
		if small.Demand < 1 || small.Demand > d.Bandwidth {
			t.Fatalf("demand %v of %v", small.Demand, d.Bandwidth)
		}
	})
}

// TestTimingGrowsWithDimensions holds for every device of the catalogue: a
// matrix product of which one dimension grows never takes less time, however thin
// it is.
func TestTimingGrowsWithDimensions(t *testing.T) {
	var devices []*Device
	for _, name := range Nodes() {
		devices = append(devices, device(t, name))
	}
	dimension := rapid.Custom(func(t *rapid.T) int32 {
		return int32(math.Exp2(rapid.Float64Range(2, 13).Draw(t, "log2")))
	})
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(devices).Draw(t, "device")
		m, k, n := dimension.Draw(t, "m"), dimension.Draw(t, "k"), dimension.Draw(t, "n")
		grown := [3]int32{m, k, n}
		grows := rapid.IntRange(0, 2).Draw(t, "which grows")
		grown[grows] += rapid.Int32Range(0, grown[grows]).Draw(t, "by")
		small, large := d.Timing(matmul(m, k, n)).Span, d.Timing(matmul(grown[0], grown[1], grown[2])).Span
		if large < small {
			t.Fatalf("%s: %dx%dx%d takes %v, %dx%dx%d takes %v", d.Name, m, k, n, small, grown[0], grown[1], grown[2], large)
		}
	})
}

func TestFabricClosedForms(t *testing.T) {
	f := Fabric{Latency: 5 * us, Ramp: 1e6, Peer: sim.GBps(10)}
	f.Tables[AllGather] = []GroupRate{{2, sim.GBps(10)}, {8, sim.GBps(40)}}
	for _, c := range []struct {
		name string
		work Work
		want sim.Time
	}{
		{"at the ramp, half the bandwidth", Work{Kind: Collective, Collective: AllGather, Members: 2, Size: 1e6}, 5*us + 200*us},
		{"between, by log2", Work{Kind: Collective, Collective: AllGather, Members: 4, Size: 24e6}, 5*us + 1000*us},
		{"beyond the table", Work{Kind: Collective, Collective: AllGather, Members: 64, Size: 39e6}, 5*us + 1000*us},
		{"transfer", Work{Kind: Transfer, Size: 9e6}, 5*us + 1000*us},
		{"without a rate", Work{Kind: Collective, Collective: AllReduce, Members: 2, Size: 1}, sim.Forever},
		{"a kernel", Work{Kind: Measured, Time: us}, 0},
	} {
		if got := f.Time(c.work); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := f.MaxMembers(); got != 1 {
		t.Errorf("with empty tables MaxMembers = %d, want 1", got)
	}
	for kind := range NumCollectives {
		f.Tables[kind] = []GroupRate{{2, 1}, {4, 1}}
	}
	f.Tables[AllGather] = append(f.Tables[AllGather], GroupRate{8, 1})
	if got := f.MaxMembers(); got != 4 {
		t.Errorf("MaxMembers = %d, want 4", got)
	}
}

// TestFabricAcrossServers: what stays in a server is as without servers; what leaves
// it goes around a ring over the adapters of its members there.
func TestFabricAcrossServers(t *testing.T) {
	f := Fabric{Peer: sim.GBps(100), Server: 8, Across: sim.GBps(10)}
	for kind := range NumCollectives {
		f.Tables[kind] = []GroupRate{{2, sim.GBps(200)}}
	}
	seconds := func(w Work) float64 { return f.Time(w).Milliseconds() / 1000 }
	collective := func(kind CollectiveKind, members, stride int32) Work {
		return Work{Kind: Collective, Collective: kind, Members: members, Stride: stride, Size: 1e12}
	}
	for _, c := range []struct {
		name string
		work Work
		want float64
	}{
		{"within", collective(AllReduce, 8, 1), 5},
		{"within, no stride given", collective(AllReduce, 8, 0), 5},
		{"every second device of a server", collective(AllGather, 4, 2), 5},
		{"one member per server", collective(AllGather, 4, 8), 1e12 * 3 / 4 / 10e9},
		{"all-reduce", collective(AllReduce, 4, 8), 1e12 * 2 * 3 / 4 / 10e9},
		{"four per server", collective(ReduceScatter, 8, 2), 1e12 * 7 / 8 / 40e9},
		{"two servers whole, the adapters as fast as the table", collective(AllGather, 16, 1), 1e12 * 15 / 16 / 80e9},
		{"all-to-all", collective(AllToAll, 16, 1), 1e12 / 16 * 8 / 16 / 10e9},
		{"broadcast", collective(Broadcast, 2, 8), 1e12 / 10e9},
		{"neighbours", Work{Kind: Transfer, Size: 1e12}, 10},
		{"within a server", Work{Kind: Transfer, Size: 1e12, Stride: 4}, 10},
		{"to another server", Work{Kind: Transfer, Size: 1e12, Stride: 8}, 100},
	} {
		want := c.want
		if c.work.Kind == Collective {
			want = max(want, 5) // never faster than inside
		}
		if got := seconds(c.work); math.Abs(got/want-1) > 1e-6 {
			t.Errorf("%s: %g s, want %g", c.name, got, want)
		}
	}
	alone := f
	alone.Server = 0
	if w := collective(AllReduce, 64, 8); alone.Time(w) >= f.Time(w) {
		t.Error("servers make nothing slower")
	}
}
