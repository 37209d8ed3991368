package dtr

import (
	"math"
	"slices"
	"testing"

	"smartswap/policies"
	"smartswap/sim"

	"pgregory.net/rapid"
)

// filled is a policy with a candidate of each size; handles are from 1, and the
// higher the later it was used.
func filled(o Options, sizes []sim.Bytes) (*Policy, *fakeMemory) {
	o.Release, o.Duplicates = "eager", "apart"
	p := New(o)
	f := &fakeMemory{tensors: map[policies.Handle]policies.TensorInfo{}, stays: map[policies.Handle]bool{}}
	for i, size := range sizes {
		h := policies.Handle(i + 1)
		f.tensors[h] = policies.TensorInfo{OnDevice: true, Discardable: true, Bytes: size, Block: size}
		op := policies.OpView{Args: []policies.Handle{h}, Roles: []policies.Role{policies.Output}, Cost: 1}
		p.Handle(&policies.Event{Kind: policies.AfterOp, Op: op}, f)
	}
	return p, f
}

// TestSample: the root of the candidates is drawn, each as often as any other,
// and the best of them leaves; the same seed draws the same.
func TestSample(t *testing.T) {
	const n = 50 // 8 of them are looked at
	sizes := make([]sim.Bytes, n)
	for i := range sizes {
		sizes[i] = 100
	}
	drawn := make([]int, n)
	const trials = 4000
	for seed := range int64(trials) {
		p, _ := filled(Options{Heuristic: "lru", SampleTensors: true, Seed: seed}, sizes)
		best, looked := p.worst(0)
		list := slices.Clone(p.considered[:looked])
		if looked != 8 || best != slices.Min(list) || !slices.IsSorted(list) || len(slices.Compact(list)) != 8 {
			t.Fatalf("seed %d: %d of %v, %d looked at", seed, best, list, looked)
		}
		for _, id := range list {
			drawn[id]++
		}
		q, _ := filled(Options{Heuristic: "lru", SampleTensors: true, Seed: seed}, sizes)
		if q.worst(0); !slices.Equal(q.considered[:8], list) {
			t.Fatalf("seed %d: %v, and then %v", seed, list, q.considered[:8])
		}
		if q.worst(0); slices.Equal(q.considered[:8], list) {
			t.Fatalf("seed %d: %v twice", seed, list)
		}
	}
	// 640 each on average, with a standard deviation of 23.2.
	if lo, hi := slices.Min(drawn), slices.Max(drawn); lo < 640-5*23 || hi > 640+5*23 {
		t.Errorf("drawn from %d to %d times of %d", lo, hi, trials)
	}
}

// TestSampleLooksAtAll: whatever is drawn, a request ends with nothing only when
// all have refused, and looks each time at the root of those that are left.
func TestSampleLooksAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "candidates")
		sizes := make([]sim.Bytes, n)
		for i := range sizes {
			sizes[i] = 100
		}
		p, f := filled(Options{Heuristic: "lru", SampleTensors: true, Seed: rapid.Int64Range(0, 99).Draw(t, "seed")}, sizes)
		goes := policies.Handle(rapid.IntRange(0, n).Draw(t, "goes")) // 0 = none
		for h := range f.tensors {
			f.stays[h] = h != goes
		}
		for left := n; left > 0; left-- {
			p.pool.request()
			for range n - left { // some have refused already
				id, _ := p.worst(0)
				p.pool.pass(id)
			}
			if _, looked := p.worst(0); looked != int(math.Ceil(math.Sqrt(float64(left)))) {
				t.Fatalf("%d of %d looked at", looked, left)
			}
		}
		f.asked = nil
		p.Handle(&policies.Event{Kind: policies.Pressure, Need: 100, Attempt: 1}, f)
		if _, there := f.tensors[goes]; there || len(f.tensors) != n-min(1, int(goes)) {
			t.Fatalf("%d of %d are left, %d should go", len(f.tensors), n, goes)
		}
		f.asked = slices.Compact(f.asked)
		slices.Sort(f.asked)
		if len(slices.Compact(f.asked)) != len(f.asked) || goes == 0 && len(f.asked) != n {
			t.Fatalf("asked %v", f.asked)
		}
	})
}

// TestSmallTensors: what is below a hundredth of the mean leaves last.
func TestSmallTensors(t *testing.T) {
	for _, c := range []struct {
		sizes []sim.Bytes
		order []policies.Handle
	}{
		{[]sim.Bytes{1, 100, 199}, []policies.Handle{1, 2, 3}}, // the mean is 100: 1 is not below a hundredth
		{[]sim.Bytes{1, 100, 202}, []policies.Handle{2, 3, 1}}, // 101
		{[]sim.Bytes{0, 0, 0}, []policies.Handle{1, 2, 3}},
		{[]sim.Bytes{3, 2, 1_000_000}, []policies.Handle{3, 1, 2}},
	} {
		for _, ignore := range []bool{true, false} {
			p, f := filled(Options{Heuristic: "lru", IgnoreSmallTensors: ignore}, c.sizes)
			want := c.order
			if !ignore {
				want = []policies.Handle{1, 2, 3}
			}
			for _, h := range want {
				id, _ := p.worst(0)
				if got := p.graph.storages[id].handle; got != h {
					t.Errorf("%v, %v: %d leaves, want %d", c.sizes, ignore, got, h)
				}
				p.evicted(id)
			}
			if id, _ := p.worst(0); id >= 0 {
				t.Errorf("%v: %d is left of %d", c.sizes, id, len(f.tensors))
			}
		}
	}
}
