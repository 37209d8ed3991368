package dtr

import (
	"testing"
	"time"

	"smartswap/policies"
	"smartswap/sim"

	"pgregory.net/rapid"
)

// A graph that turns back where no sum is known knows the same sums as one that
// never does.
func TestSettledGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quick, naive := graph{sums: true}, graph{sums: true}
		both := func(do func(g *graph)) {
			for i := range naive.storages {
				naive.storages[i].settled = [2]bool{}
			}
			do(&quick)
			do(&naive)
		}
		id := func() int32 { return rapid.SampledFrom([]int32{0, 1, 2, 3, 4, 5, 6}).Draw(t, "id") }
		for range 7 {
			both(func(g *graph) { g.add(0, 1) })
		}
		for range 150 {
			switch x, kind := id(), rapid.SampledFrom([]int{1, 2, 3, 4, 5}).Draw(t, "kind"); kind {
			case 1: // edges go from lower to higher numbers, as from older to younger storages
				cost, from := sim.Time(rapid.IntRange(1, 9).Draw(t, "cost")), id()
				if from < x {
					both(func(g *graph) { g.operator(cost, []int32{from}, []int32{x}) })
				}
			case 2, 3:
				if quick.storages[x].resident {
					both(func(g *graph) { g.gone(x) })
				} else {
					both(func(g *graph) { g.back(x) })
				}
			default:
				if !quick.storages[x].resident {
					break
				}
				way := kind - 4
				var sums []sim.Time
				both(func(g *graph) { sums = append(sums, g.around(x, way)) })
				if sums[0] != sums[1] {
					t.Fatalf("storage %d, direction %d: %v, want %v", x, way, sums[0], sums[1])
				}
			}
			for i := range naive.storages {
				if q, n := &quick.storages[i], &naive.storages[i]; n.resident && (q.known != n.known || q.sum != n.sum) {
					t.Fatalf("storage %d: known %v, sums %v; want %v, %v", i, q.known, q.sum, n.known, n.sum)
				}
			}
		}
	})
}

// A new edge reaches what lies behind evicted storages.
func TestNewEdge(t *testing.T) {
	g := graph{sums: true}
	for i := range int32(4) {
		g.add(0, 1)
		if i > 1 {
			g.operator(1, []int32{i - 1}, []int32{i})
		}
		g.back(i)
	}
	for _, i := range []int32{1, 2} {
		g.gone(i)
	}
	if got := g.around(0, forward); got != 0 {
		t.Fatalf("%v around a storage without neighbours", got)
	}
	g.operator(1, []int32{0}, []int32{1}) // 0 -> 1 -> 2 -> 3, where 1 and 2 are gone
	if g.gone(3); g.storages[0].known[forward] {
		t.Error("the sum of 0 is still known though 3, which it reaches, is gone")
	}
}

// A chain that goes, storage by storage, is not followed each time: a hundred
// thousand would take minutes.
func TestLongChainGoes(t *testing.T) {
	const n = 100_000
	g := graph{sums: true}
	for i := range int32(n) {
		g.add(0, 1)
		if i > 0 {
			g.operator(1, []int32{i - 1}, []int32{i})
		}
		g.back(i)
	}
	began := time.Now()
	for i := range int32(n) {
		g.gone(i)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// devices tells the policy which tensors are on the device.
type devices struct {
	policies.Runtime
	on map[policies.Handle]bool
}

func (d devices) Tensor(h policies.Handle) (policies.TensorInfo, bool) {
	return policies.TensorInfo{Handle: h, Bytes: 512, Block: 512, OnDevice: d.on[h]}, true
}

// An operator that runs again makes nothing of a result that has been written
// since: what is not on the device is no candidate.
func TestOldResult(t *testing.T) {
	p := New(Options{Heuristic: "dtr", Release: "plain", Duplicates: "apart"})
	rt := devices{on: map[policies.Handle]bool{1: true, 2: true}}
	op := policies.OpView{Args: []policies.Handle{1, 2}, Roles: []policies.Role{policies.Output, policies.Output}, Cost: 1}
	p.Handle(&policies.Event{Kind: policies.AfterOp, Op: op}, rt)
	p.evicted(0)
	p.evicted(1)
	op.Again, rt.on[1] = true, false
	p.Handle(&policies.Event{Kind: policies.AfterOp, Op: op}, rt)
	if p.graph.storages[0].resident || !p.graph.storages[1].resident {
		t.Error("want the second result there, and the first not")
	}
	if best, looked := p.worst(0); best != 1 || looked != 1 {
		t.Errorf("candidate %d of %d", best, looked)
	}
}
