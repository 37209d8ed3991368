package hw

import (
	"math"
	"math/bits"

	"smartswap/sim"
)

// Point is one knot of a Curve.
type Point struct{ X, Y float64 }

// Curve is a monotone-cubic interpolation through knots in increasing X,
// constant beyond both ends. The zero Curve is 1 everywhere.
type Curve struct{ Points []Point }

// At is the curve's value at x. Between two knots it is a cubic Hermite
// polynomial that never leaves the range of their values (Fritsch and Carlson
// 1980), with the knot slopes of Fritsch and Butland 1984; the slope at both
// ends is zero, so that the constant continuation is smooth. The cost is
// linear in the number of knots.
func (c Curve) At(x float64) float64 {
	p := c.Points
	if len(p) == 0 {
		return 1
	}
	if x <= p[0].X {
		return p[0].Y
	}
	if x >= p[len(p)-1].X {
		return p[len(p)-1].Y
	}
	i := 0
	for x >= p[i+1].X {
		i++
	}
	h := p[i+1].X - p[i].X
	t := (x - p[i].X) / h
	rise := p[i+1].Y - p[i].Y
	// Hermite form, written as the left value plus a change so that equal
	// neighbours give exactly their common value.
	return p[i].Y + rise*t*t*(3-2*t) + h*t*(1-t)*((1-t)*c.slope(i)-t*c.slope(i+1))
}

// slope is the derivative at knot i: zero at the ends and at local extremes,
// elsewhere the weighted harmonic mean of the two secants.
func (c Curve) slope(i int) float64 {
	p := c.Points
	if i == 0 || i == len(p)-1 {
		return 0
	}
	h0, h1 := p[i].X-p[i-1].X, p[i+1].X-p[i].X
	d0, d1 := (p[i].Y-p[i-1].Y)/h0, (p[i+1].Y-p[i].Y)/h1
	if d0*d1 <= 0 {
		return 0
	}
	return 3 * (h0 + h1) / ((2*h1+h0)/d0 + (h1+2*h0)/d1)
}

// outruns looks, in steps of 1/64 octave, for a place where the curve rises by
// more than the dimension itself, whose log2 is x: there dimension / value falls.
func (c Curve) outruns() (x float64, ok bool) {
	p := c.Points
	if len(p) == 0 {
		return 0, false
	}
	const step = 1.0 / 64
	last := p[0].X - math.Log2(p[0].Y)
	for x := p[0].X + step; x < p[len(p)-1].X+step; x += step {
		next := x - math.Log2(c.At(x))
		if next < last {
			return x, true
		}
		last = next
	}
	return 0, false
}

// Timing is a kernel's demand when nothing disturbs it: it takes Span and
// draws HBM bytes at Demand while it runs.
type Timing struct {
	Span   sim.Time
	Demand sim.Rate
}

// Timing of Modelled and Measured work on this device alone. Other kinds take
// no time here: see Fabric.Time.
//
// A modelled kernel is a roofline with achieved rates,
//
//	Fixed + max(Padded / (peak x Flop), Traffic / (Bandwidth x Mem)),
//
// the efficiencies read from the family's curves at Padded and Traffic. Padded
// is Flops, of a matrix product with a thin dimension more (see padded). The
// time never falls as flops, bytes or a dimension grow. Traffic is meant as each operand read once and each result written once; the curves
// were fitted under that rule, so what caches save and what tiling reads again
// is inside them. Attention counts a causal mask as half the flops.
//
// Demand is Traffic spread evenly over Span, at least 1 B/s so that it can
// always be the rate of a flow, and at most Bandwidth.
func (d *Device) Timing(w Work) Timing {
	var t Timing
	switch w.Kind {
	case Modelled:
		seconds := max(d.computeSeconds(w), d.memorySeconds(w))
		t.Span = d.Fixed + sim.FromSeconds(seconds)
		if t.Span < d.Fixed { // the sum overflowed
			t.Span = sim.Forever
		}
	case Measured:
		t.Span = w.Time
	}
	t.Demand = min(max(averageRate(w.Traffic, t.Span), 1), max(d.Bandwidth, 1))
	return t
}

func (d *Device) computeSeconds(w Work) float64 {
	if w.Flops <= 0 {
		return 0
	}
	peak := d.Peak32
	if w.Dtype16 {
		peak = d.Peak16
	}
	flops := d.padded(w)
	return flops / (peak * d.Flop[w.Family].At(math.Log2(max(flops, 1))))
}

// padded is the flops of a product without thin dimensions that takes as long
// as w: the tiles of a kernel are as wide for a thin product as for a full one.
// It grows with every dimension, since Validate lets Skinny rise no faster than
// the dimension itself and below its first knot a dimension costs as much as
// there.
func (d *Device) padded(w Work) float64 {
	flops := float64(w.Flops)
	if w.M <= 0 || w.N <= 0 || w.K <= 0 {
		return flops
	}
	x := log2(int64(min(w.M, w.N, w.K)))
	if p := d.Skinny.Points; len(p) > 0 && x < p[0].X {
		flops *= math.Exp2(p[0].X - x)
		x = p[0].X
	}
	return flops / d.Skinny.At(x)
}

func (d *Device) memorySeconds(w Work) float64 {
	if w.Traffic <= 0 {
		return 0
	}
	efficiency := d.Mem[w.Family].At(log2(int64(w.Traffic)))
	return float64(w.Traffic) / (float64(d.Bandwidth) * efficiency)
}

// averageRate is b bytes over t, rounded down; no time or no bytes give 0.
func averageRate(b sim.Bytes, t sim.Time) sim.Rate {
	if b <= 0 || t <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(b), uint64(sim.Second))
	if hi >= uint64(t) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(t))
	return sim.Rate(min(q, math.MaxInt64))
}

// log2 of a size, where curves are read; sizes below 1 count as 1.
func log2(v int64) float64 { return math.Log2(float64(max(v, 1))) }
