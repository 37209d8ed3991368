package bench

import (
	"testing"
	"time"

	"smartswap/eager/alloc"
	"smartswap/workloads"
)

// request is one step of an allocator's history: a storage comes or goes.
type request struct {
	storage int32
	free    bool
}

// steadyStep lists the requests of one iteration of a Llama-2 7B job, which
// repeats exactly.
func steadyStep(tb testing.TB) (requests []request, sizes []workloads.Storage, residents int) {
	model, err := workloads.LookupModel("llama2-7b")
	check(tb, err)
	w, err := workloads.New(workloads.Config{Model: model, Seq: 4096, GlobalBatch: 8, TP: 1, DP: 8})
	check(tb, err)
	p, err := w.Program(0, 0)
	check(tb, err)
	refs := make([]int32, len(p.Storages))
	for i := range p.Residents {
		refs[i] = 1
	}
	for i := range p.Instrs {
		switch in := &p.Instrs[i]; in.Kind {
		case workloads.Op:
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if refs[a.Storage] == 0 {
					refs[a.Storage] = 1
					requests = append(requests, request{storage: int32(a.Storage)})
				}
			}
		case workloads.Ref:
			refs[in.A]++
		case workloads.Drop:
			if refs[in.A]--; refs[in.A] == 0 {
				requests = append(requests, request{storage: in.A, free: true})
			}
		}
	}
	return requests, p.Storages, int(p.Residents)
}

// never is an Env of one stream: nothing is deferred.
type never struct{}

func (never) Record(alloc.Stream) alloc.Event { return 0 }
func (never) Done(alloc.Event) bool           { return true }

// player replays the step on an allocator that already holds the residents.
func player(tb testing.TB) (play func(), pairs int) {
	requests, storages, residents := steadyStep(tb)
	a, err := alloc.New(alloc.DefaultOptions(), 0, never{})
	check(tb, err)
	blocks := make([]alloc.Block, len(storages))
	malloc := func(s int32) {
		b, err := a.Malloc(storages[s].Bytes, 0)
		check(tb, err)
		blocks[s] = b
	}
	for s := range residents {
		malloc(int32(s))
	}
	return func() {
		for _, r := range requests {
			if r.free {
				a.Free(blocks[r.storage])
			} else {
				malloc(r.storage)
			}
		}
		a.TakeCosts()
	}, len(requests) / 2
}

// BenchmarkAllocator is an allocation and its release in a steady transformer
// step.
func BenchmarkAllocator(b *testing.B) {
	play, pairs := player(b)
	play()
	b.ReportAllocs()
	for b.Loop() {
		play()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pairs), "ns/pair")
}

// TestAllocator asserts that such a pair costs at most three events of the
// reference heap at depth 16 in the same run, about 100 ns, and no Go
// allocation.
func TestAllocator(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for a second")
	}
	var heap func(int) int
	for _, c := range contenders {
		if c.name == "reference" {
			heap = c.new(models[0])
		}
	}
	play, pairs := player(t)
	play()
	if n := testing.AllocsPerRun(10, play); n != 0 {
		t.Errorf("%v Go allocations in a steady step of %d pairs, want none", n, pairs)
	}
	const events = 1 << 18
	heap(events)
	holds(t, func(v *verdicts) {
		var perEvent, perPair []float64
		for range 15 {
			start := time.Now()
			heap(events)
			perEvent = append(perEvent, float64(time.Since(start).Nanoseconds())/events)
			const rounds = 200
			start = time.Now()
			for range rounds {
				play()
			}
			perPair = append(perPair, float64(time.Since(start).Nanoseconds())/float64(rounds*pairs))
		}
		event, pair := fastest(perEvent), fastest(perPair)
		v.Logf("%.0f ns per pair, %.2f reference events of %.1f ns; %d pairs", pair, pair/event, event, pairs)
		v.atMost("reference events per pair", pair/event, 3)
	})
}
