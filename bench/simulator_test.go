package bench

import (
	"runtime"
	"testing"
	"time"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/policies/registry"
	"smartswap/profilers"
	"smartswap/workloads"
)

// job is a training job to simulate as a whole: generation of the program and
// all of the run are timed.
type job struct {
	name       string
	seq, batch int
	tp, dp     int
	policy     string
	// half runs at an oversubscription of 2: the device has half of what the
	// job's live storages need at their peak.
	half bool
}

// jobs: Llama-2 7B without a policy on a device that is large enough, and at
// twofold oversubscription under a reactive policy and the planning one.
var jobs = []job{
	{name: "fits", seq: 4096, batch: 64, tp: 8, dp: 1, policy: "none"},
	{name: "lru", seq: 16384, batch: 16, tp: 1, dp: 8, policy: "lru", half: true},
	{name: "smartswap", seq: 16384, batch: 16, tp: 1, dp: 8, policy: "smartswap", half: true},
}

// run simulates n iterations and returns how many operators were dispatched.
func (j job) run(tb testing.TB, n int) int64 {
	model, err := workloads.LookupModel("llama2-7b")
	check(tb, err)
	w, err := workloads.New(workloads.Config{Model: model, Seq: j.seq, GlobalBatch: j.batch, TP: j.tp, DP: j.dp, SequenceParallel: true})
	check(tb, err)
	node, err := hw.Load("910b2-8")
	check(tb, err)
	policy, err := registry.Lookup(j.policy)
	check(tb, err)
	profiler, err := profilers.Lookup("detailed")
	check(tb, err)
	cfg := eager.Config{
		Node: node, Workload: w, Profiler: profiler,
		NewPolicy: func() (policies.Policy, error) { return policy.New(nil) },
		Allocator: alloc.DefaultOptions(),
		Pinned:    alloc.PinnedOptions{Rounding: alloc.RoundExact, Reuse: alloc.BuffersReuse},
		Executor:  swap.DefaultOptions(), Iterations: n, Layers: model.Layers,
	}
	if j.half {
		b, err := eager.NewBounds(node, w, 0)
		check(tb, err)
		cfg.HBM = b.Memory / 2
	}
	r, err := eager.Run(cfg)
	check(tb, err)
	if r.OOM != nil {
		tb.Fatal(r.OOM)
	}
	return r.Ops
}

func check(tb testing.TB, err error) {
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkSimulator reports the time, the bytes and the allocations of the
// whole simulator per program operator.
func BenchmarkSimulator(b *testing.B) {
	for _, j := range jobs {
		b.Run(j.name, func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var ops int64
			for b.Loop() {
				ops += j.run(b, 10)
			}
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(ops), "ns/operator")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(ops), "allocs/operator")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(ops), "B/operator")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestSimulator asserts the speed that makes figures cheap: with a reactive
// policy at twofold oversubscription an operator takes at most 60 events of the
// reference heap at depth 16, and an iteration of about 100,000 operators takes
// half a second and 256 MB.
func TestSimulator(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for several seconds")
	}
	var heap func(int) int
	for _, c := range contenders {
		if c.name == "reference" {
			heap = c.new(models[0])
		}
	}
	if models[0].name != "hold/16" || heap == nil {
		t.Fatal("the reference heap at depth 16 is not where it was")
	}
	const events = 1 << 20
	heap(events)
	jobs[1].run(t, 2)
	holds(t, func(v *verdicts) {
		var perEvent, perOperator []float64
		for range 9 {
			start := time.Now()
			heap(events)
			perEvent = append(perEvent, float64(time.Since(start).Nanoseconds())/events)
			start = time.Now()
			ops := jobs[1].run(t, 20)
			perOperator = append(perOperator, float64(time.Since(start).Nanoseconds())/float64(ops))
		}
		event, operator := fastest(perEvent), fastest(perOperator)
		v.Logf("%.0f ns per operator, %.1f reference events of %.1f ns", operator, operator/event, event)
		v.atMost("ns per operator", operator, 60*event)
	})
	holds(t, func(v *verdicts) {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		ops := jobs[0].run(t, 1)
		elapsed := time.Since(start)
		runtime.ReadMemStats(&after)
		scale := 100_000 / float64(ops)
		v.Logf("%d operators in %v, %d MB allocated", ops, elapsed, (after.TotalAlloc-before.TotalAlloc)>>20)
		v.atMost("seconds per 100,000 operators", elapsed.Seconds()*scale, 0.5)
		v.atMost("MB per 100,000 operators", float64(after.TotalAlloc-before.TotalAlloc)/1e6*scale, 256)
	})
}
