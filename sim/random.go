package sim

import (
	"hash/fnv"
	"io"
	"math"
)

// Stream is a source of keyed random numbers: a value is a pure function of
// the run's seed, the stream's name, and the rank, iteration and operator it is
// for. There is no state and no order: whatever else a policy, a change of the
// program or another worker draws, this operator of this iteration meets the
// same luck. That makes comparisons across policies paired.
type Stream struct{ base uint64 }

// NewStream returns the stream of that name for a run's seed. Streams of
// different names or seeds are independent.
func NewStream(seed uint64, name string) Stream {
	h := fnv.New64a()
	io.WriteString(h, name) // a hash returns no error
	return Stream{mix(mix(h.Sum64()) ^ seed)}
}

// Uint64 is uniform over all 64-bit values.
func (s Stream) Uint64(rank, iteration int, op int64) uint64 {
	// Each part goes through a full mix before the next joins, so that
	// (1, 2) and (2, 1) have nothing in common.
	h := mix(s.base ^ uint64(rank))
	h = mix(h ^ uint64(iteration))
	return mix(h ^ uint64(op))
}

// Float64 is uniform in [0, 1), a multiple of 2^-53.
func (s Stream) Float64(rank, iteration int, op int64) float64 {
	return unit(s.Uint64(rank, iteration, op))
}

// Bernoulli is true with probability p; never for p <= 0, always for p >= 1.
func (s Stream) Bernoulli(rank, iteration int, op int64, p float64) bool {
	return s.Float64(rank, iteration, op) < p
}

// Normal has mean 0 and variance 1. The Box-Muller transform ("A note on the
// generation of random normal deviates", Annals of Mathematical Statistics
// 1958) needs two uniform values and rejects none: one key, one value.
func (s Stream) Normal(rank, iteration int, op int64) float64 {
	h := s.Uint64(rank, iteration, op)
	radius := math.Sqrt(-2 * math.Log(1-unit(h)))
	return radius * math.Cos(2*math.Pi*unit(mix(h)))
}

// LogNormal has mean 1 and the given standard deviation of its logarithm: a
// factor that spreads a duration without shifting its average. Sigma 0 gives 1.
func (s Stream) LogNormal(rank, iteration int, op int64, sigma float64) float64 {
	return math.Exp(sigma*s.Normal(rank, iteration, op) - sigma*sigma/2)
}

// unit maps the upper 53 bits of h to [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// mix is the step and finalizer of SplitMix64 ("Fast splittable pseudorandom
// number generators", OOPSLA 2014; constants from the public-domain
// splitmix64.c): a bijection in which every input bit changes every output bit
// with probability near one half.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
