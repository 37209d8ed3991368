package sim

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// sample is 100,000 values over all three parts of the key.
func sample(f func(rank, iteration int, op int64) float64) []float64 {
	var xs []float64
	for rank := range 10 {
		for iteration := range 100 {
			for op := range int64(100) {
				xs = append(xs, f(rank, iteration, op))
			}
		}
	}
	return xs
}

// moments are the mean, the variance and the third and fourth standardized
// moments.
func moments(xs []float64) (mean, variance, skew, kurtosis float64) {
	n := float64(len(xs))
	for _, x := range xs {
		mean += x / n
	}
	for _, x := range xs {
		variance += (x - mean) * (x - mean) / n
	}
	for _, x := range xs {
		z := (x - mean) / math.Sqrt(variance)
		skew += z * z * z / n
		kurtosis += z * z * z * z / n
	}
	return
}

func TestMoments(t *testing.T) {
	s := NewStream(1, "moments")
	const sigma = 0.25
	spread := math.Exp(sigma*sigma) - 1 // variance of a log-normal factor
	for _, c := range []struct {
		name           string
		draw           func(rank, iteration int, op int64) float64
		mean, variance float64
		skew, kurtosis float64 // NaN: not checked
	}{
		{"Float64", s.Float64, 0.5, 1.0 / 12, 0, 1.8},
		{"Normal", s.Normal, 0, 1, 0, 3},
		{"LogNormal", func(r, i int, o int64) float64 { return s.LogNormal(r, i, o, sigma) },
			1, spread, (spread + 3) * math.Sqrt(spread), math.NaN()},
		{"Bernoulli", func(r, i int, o int64) float64 {
			if s.Bernoulli(r, i, o, 0.3) {
				return 1
			}
			return 0
		}, 0.3, 0.21, math.NaN(), math.NaN()},
	} {
		mean, variance, skew, kurtosis := moments(sample(c.draw))
		// 100,000 values: five standard errors of the mean; the others are
		// wider, by the higher moments of the normal distribution.
		for _, m := range []struct {
			name            string
			got, want, most float64
		}{
			{"mean", mean, c.mean, 5 * math.Sqrt(c.variance/1e5)},
			{"variance", variance, c.variance, c.variance * 5 * math.Sqrt(2/1e5)},
			{"skew", skew, c.skew, 5 * math.Sqrt(6/1e5)},
			{"kurtosis", kurtosis, c.kurtosis, 5 * math.Sqrt(24/1e5)},
		} {
			if math.Abs(m.got-m.want) > m.most {
				t.Errorf("%s: %s is %.4f, want %.4f +- %.4f", c.name, m.name, m.got, m.want, m.most)
			}
		}
	}
}

// Whatever part of the key changes by little, about half of the bits change:
// no part shadows another.
func TestKeysAreIndependent(t *testing.T) {
	type key struct {
		seed            uint64
		name            string
		rank, iteration int
		op              int64
	}
	value := func(k key) uint64 { return NewStream(k.seed, k.name).Uint64(k.rank, k.iteration, k.op) }
	base := key{1, "jitter", 2, 3, 5}
	for _, c := range []struct {
		name   string
		change func(k *key, i int)
	}{
		{"seed", func(k *key, i int) { k.seed += uint64(i) }},
		{"name", func(k *key, i int) { k.name += fmt.Sprint(i) }},
		{"rank", func(k *key, i int) { k.rank += i }},
		{"iteration", func(k *key, i int) { k.iteration += i }},
		{"op", func(k *key, i int) { k.op += int64(i) }},
		{"rank against iteration", func(k *key, i int) { k.rank += i; k.iteration -= i }},
		{"iteration against op", func(k *key, i int) { k.iteration += i; k.op -= int64(i) }},
		{"rank and op", func(k *key, i int) { k.rank += i; k.op += int64(i) }},
	} {
		var flips int
		const n = 1000
		for i := 1; i <= n; i++ {
			k := base
			c.change(&k, i)
			flips += bits.OnesCount64(value(k) ^ value(base))
		}
		// 64,000 coins: mean 32,000, standard deviation 126.
		if flips < 32000-5*126 || flips > 32000+5*126 {
			t.Errorf("%s: %d of 64000 bits differ, want about half", c.name, flips)
		}
	}
	// Two streams are not correlated value by value.
	a, b := NewStream(1, "a"), NewStream(1, "b")
	xs := sample(func(r, i int, o int64) float64 { return a.Normal(r, i, o) * b.Normal(r, i, o) })
	if mean, _, _, _ := moments(xs); math.Abs(mean) > 5/math.Sqrt(1e5) {
		t.Errorf("correlation of two streams is %.4f", mean)
	}
}

// A value does not depend on what was drawn before it, and differs from other
// values of all keys in a run.
func TestOrderOfDrawsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type key struct {
			rank, iteration int
			op              int64
		}
		keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) key {
			return key{rapid.IntRange(0, 7).Draw(t, "rank"), rapid.IntRange(0, 99).Draw(t, "iteration"), rapid.Int64().Draw(t, "op")}
		}), 1, 20).Draw(t, "keys")
		s, again := NewStream(7, "x"), NewStream(7, "x")
		seen := map[key]uint64{}
		owner := map[uint64]key{}
		for _, k := range keys {
			v := s.Uint64(k.rank, k.iteration, k.op)
			if other, ok := owner[v]; ok && other != k {
				t.Fatalf("%v and %v both give %x", other, k, v)
			}
			seen[k], owner[v] = v, k
		}
		for _, i := range rapid.Permutation(keys).Draw(t, "order") {
			if got := again.Uint64(i.rank, i.iteration, i.op); got != seen[i] {
				t.Fatalf("%v: %x, then %x", i, seen[i], got)
			}
		}
	})
}

// Fixed values: a change of the hash would change every seeded result.
func TestStreamGolden(t *testing.T) {
	for _, c := range []struct {
		seed uint64
		name string
		want uint64
	}{
		{0, "", 0xfcddfd864e7c0a65},
		{1, "overflow", 0xa1e49915f9dd55dc},
	} {
		if got := NewStream(c.seed, c.name).Uint64(1, 2, 3); got != c.want {
			t.Errorf("seed %d, %q: %#x, want %#x", c.seed, c.name, got, c.want)
		}
	}
	// SplitMix64 with seed 0 yields these first (its published test values).
	if a, b := mix(0), mix(0x9e3779b97f4a7c15); a != 0xe220a8397b1dcdaf || b != 0x6e789e6aa1b965f4 {
		t.Errorf("mix: %#x, %#x", a, b)
	}
}

func TestBernoulliEdges(t *testing.T) {
	s := NewStream(1, "edges")
	for op := range int64(1000) {
		if s.Bernoulli(0, 0, op, 0) || !s.Bernoulli(0, 0, op, 1) {
			t.Fatalf("op %d: probability 0 is true or 1 is false", op)
		}
		if f := s.LogNormal(0, 0, op, 0); f != 1 {
			t.Fatalf("op %d: log-normal factor %v without spread, want 1", op, f)
		}
		if x := unit(math.MaxUint64); x >= 1 {
			t.Fatalf("unit of the largest value is %v", x)
		}
	}
}
