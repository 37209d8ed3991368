package dtr_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"smartswap/policies"
	"smartswap/policies/dtr"
	"smartswap/policies/policytest"
	"smartswap/sim"
	"smartswap/workloads"

	"pgregory.net/rapid"
)

func TestConform(t *testing.T) {
	policytest.Conform(t, dtr.Registration(), policies.Params{"sample_tensors": true, "ignore_small_tensors": true, "seed": int64(7)}, policies.Params{"release": "plain"})
}

// TestSeed: a seed belongs to sampling, and a run gives its own there alone.
func TestSeed(t *testing.T) {
	r := dtr.Registration()
	for _, c := range []struct {
		options policies.Params
		seeded  bool
		refused string
	}{
		{nil, false, ""},
		{policies.Params{"sample_tensors": true}, true, ""},
		{policies.Params{"sample_tensors": true, "seed": int64(0)}, true, ""},
		{policies.Params{"sample_tensors": false}, false, ""},
		{policies.Params{"seed": int64(0)}, false, "policies: option seed = 0: nothing is drawn at random; allowed only with sample_tensors = true"},
		{policies.Params{"sample_tensors": false, "seed": int64(7)}, false, "policies: option seed = 7: nothing is drawn at random; allowed only with sample_tensors = true"},
		{policies.Params{"sample_tensors": int64(1)}, false, "policies: option sample_tensors = 1: must be true or false"},
	} {
		if got := r.Seeded(c.options); got != c.seeded {
			t.Errorf("%v: seeded %v, want %v", c.options, got, c.seeded)
		}
		refused := ""
		if _, err := r.New(c.options); err != nil {
			refused = err.Error()
		}
		if refused != c.refused {
			t.Errorf("%v: %q, want %q", c.options, refused, c.refused)
		}
	}
}

// TestByHand follows a log with pencil and paper. It is
//
//	w: 100 bytes, there from the start      time
//	a   = A(w)     300                        60
//	b   = B(a)     400                        30
//	c   = C(b)     200                        20
//	v   = V(c)     a view of c                 4
//	d,e = D(v)     250, 50                    10
//	d   = M_(d)    a new 250, the old goes     5
//	f   = E(a, e)  100                         8
//	g   = F(b, f)  100                         7
//
// with 1,150 bytes; storages are numbered a b c d e d' f g from 0. D needs 150
// more: a was used last at 61, b at 91, now is 115. LRU takes a; b is larger and,
// with 30/(400 x 24) to 60/(300 x 54), cheaper for the others.
//
// LRU: M_ needs 100: b (91) goes. E makes a again. F needs b, of 400, while 1,000
// are in use: c (115), then e or d', both used at 130; d' came into the pool
// first. With e, 100 are missing for g, and d' goes.
//
// The others: F needs b while 1,000 are in use, at 138. Of c, d' and e, d' is the
// largest; local: 24/(200 x 23), 5/(250 x 8), 10/(50 x 8), d' again; msps: (24 +
// 30)/200, (5 + 10)/250 for the old d, 10/50; dtr: 24 + 30 for b + 10 for the old
// d, 5 + 10, 10 over the same. So d' goes. For g, 100 are missing, at 168: size
// takes a; local has 60/(300 x 30) for a, 24/(200 x 53) for c, 10/(50 x 38) for e;
// msps 60/300, 24/200, 10/50; dtr 39 for c, with the old d and d'. c goes.
func TestByHand(t *testing.T) {
	const path = "testdata/byhand.log"
	for _, c := range []struct {
		heuristic string
		compat    bool
		evicted   []int
		remat     sim.Time
	}{
		{"lru", false, []int{0, 1, 2, 5}, 90},
		{"lru", true, []int{0, 1, 2, 4, 5}, 90},
		{"size", false, []int{1, 5, 0}, 30},
		{"size", true, []int{1, 5, 0}, 30},
		{"local", false, []int{1, 5, 2}, 30},
		{"msps", false, []int{1, 5, 2}, 30},
		{"dtr", false, []int{1, 5, 2}, 30},
		{"dtr", true, []int{1, 5, 2}, 30},
		{"eqclass", false, []int{1, 5, 2}, 30},
	} {
		t.Run(fmt.Sprint(c.heuristic, c.compat), func(t *testing.T) {
			got, rep := simulate(t, openLog(t, path), options(c.heuristic, "eager", c.compat, 0), 1150)
			if got.result != "ok" || !slices.Equal(got.evictions, c.evicted) || got.remat != c.remat*sim.Nanosecond {
				t.Errorf("%s, %v evicted, %v again; want %v, %dns", got.result, got.evictions, got.remat, c.evicted, c.remat)
			}
			if want := (144 + c.remat) * sim.Nanosecond; rep.Makespan != want {
				t.Errorf("took %v, want %v", rep.Makespan, want)
			}
		})
	}
}

// TestTies: the search stops at a score of 0 only where the original's is
// asked for, and takes the last of equals only there.
func TestTies(t *testing.T) {
	w := openLog(t, "testdata/ties.log")
	p, err := w.Program(0, 0)
	if err != nil || workloads.PeakLive(p, 1) != 500 {
		t.Fatalf("%v, peak %d", err, workloads.PeakLive(p, 1))
	}
	for _, c := range []struct {
		o    dtr.Options
		want []int
	}{
		{dtr.Options{Heuristic: "size"}, []int{0}},
		{dtr.Options{Heuristic: "size", LastOfEquals: true}, []int{2}},
		// a has taken no time: 0, as have b and c.
		{dtr.Options{Heuristic: "local"}, []int{0}},
		{dtr.Options{Heuristic: "local", LastOfEquals: true}, []int{2}},
		{dtr.Options{Heuristic: "local", LastOfEquals: true, ZeroStops: true}, []int{0}},
	} {
		c.o.Release, c.o.Duplicates = "plain", "apart"
		if got, _ := simulate(t, w, c.o, 400); !slices.Equal(got.evictions, c.want) {
			t.Errorf("%+v: %v evicted, want %v", c.o, got.evictions, c.want)
		}
	}
}

// TestScores: quick comparisons say what exact ones do.
func TestScores(t *testing.T) {
	number := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 1<<40), rapid.Int64Range(1<<52, 1<<53))
	over := rapid.OneOf(number, rapid.Int64Range(-20, 0), rapid.Int64Range(-1<<53, -1<<52))
	rapid.Check(t, func(t *rapid.T) {
		var n [6]int64
		for i := range n {
			n[i] = number.Draw(t, "n")
		}
		n[0], n[3] = over.Draw(t, "over"), over.Draw(t, "over")
		if rapid.Bool().Draw(t, "near") { // the same but for one
			n[3], n[4], n[5] = n[0], n[1], n[2]
			k := rapid.IntRange(0, 5).Draw(t, "which")
			n[k] += rapid.Int64Range(0, 2).Draw(t, "more")
		}
		exact := func(over, bytes, stale int64) float64 {
			if bytes == 0 || stale == 0 {
				return math.Inf(1)
			}
			f, _ := new(big.Rat).SetFrac(big.NewInt(over), new(big.Int).Mul(big.NewInt(bytes), big.NewInt(stale))).Float64()
			return f
		}
		a, b := exact(n[0], n[1], n[2]), exact(n[3], n[4], n[5])
		want := 0
		if a < b {
			want = -1
		} else if a > b {
			want = 1
		}
		if got := dtr.CompareScores(n[0], n[1], n[2], n[3], n[4], n[5]); got != want {
			t.Fatalf("%d/(%d x %d) and %d/(%d x %d): %d, want %d", n[0], n[1], n[2], n[3], n[4], n[5], got, want)
		}
	})
}
