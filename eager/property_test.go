package eager_test

import (
	"flag"
	"os"
	"reflect"
	"testing"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/eagertest"
	"smartswap/eager/swap"
	"smartswap/policies"
	"smartswap/policies/registry"
	"smartswap/policies/smartswap"
	"smartswap/profilers"
	"smartswap/sim"

	"pgregory.net/rapid"
)

// TestMain raises the number of random cases from rapid's 100 to 1,000.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("1000")
	}
	os.Exit(m.Run())
}

// bites counts what the random cases exercised.
type bites struct {
	cases, evicted, planned, varied, oom, finished int
}

// drawConfig draws everything about a run but the policy.
func drawConfig(t *rapid.T, job *eagertest.Random) eager.Config {
	cfg := eagertest.Config(eagertest.DrawNode(t, len(job.Ranks())), job)
	cfg.Iterations = rapid.IntRange(5, 10).Draw(t, "iterations")
	cfg.Warmup = rapid.IntRange(0, cfg.Iterations-1).Draw(t, "warm-up")
	cfg.Allocator.Dialect = rapid.SampledFrom([]string{"pytorch", "torch_npu"}).Draw(t, "dialect")
	cfg.Pinned.Rounding = rapid.SampledFrom([]string{alloc.RoundExact, alloc.RoundPow2}).Draw(t, "pinned")
	cfg.Executor = swap.Options{
		Streams:  rapid.IntRange(1, 2).Draw(t, "swap streams"),
		Release:  rapid.SampledFrom([]string{"custom", "custom", "stock"}).Draw(t, "release"),
		Clean:    rapid.Bool().Draw(t, "clean copies"),
		Prefetch: rapid.SampledFrom([]string{"guard", "defer"}).Draw(t, "prefetch"),
		Drain:    rapid.SampledFrom([]string{"enough", "all", "first"}).Draw(t, "drain"),
		Features: rapid.SampledFrom([]string{"storage", "pointer"}).Draw(t, "features"),
		Match:    rapid.SampledFrom([]string{swap.MatchFeature, swap.MatchFeature, swap.MatchFeature, swap.MatchPosition, swap.MatchTruth}).Draw(t, "match"),
		Pageable: rapid.Bool().Draw(t, "pageable"),
		Settle:   rapid.Bool().Draw(t, "settle"),
		Priority: rapid.SampledFrom([]int{1, 4}).Draw(t, "priority"),
	}
	p, err := profilers.Lookup(rapid.SampledFrom([]string{"detailed", "stage-events"}).Draw(t, "profiler"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Profiler = p
	cfg.Fingerprint = true
	return cfg
}

// framework lists the policies that work on the framework's memory.
func framework() (names []string) {
	for _, r := range registry.All() {
		if p, err := r.New(nil); err == nil && p.Needs().Memory == policies.Framework {
			names = append(names, r.Name)
		}
	}
	return names
}

// drawPolicy draws a registered policy with options that make it act on small
// tensors.
func drawPolicy(t *rapid.T, unit int64) (string, func() (policies.Policy, error)) {
	name := "smartswap" // the one that plans has most to get wrong
	if rapid.SampledFrom([]bool{false, false, false, false, true}).Draw(t, "another policy") {
		name = rapid.SampledFrom(framework()).Draw(t, "policy")
	}
	params := policies.Params{}
	if name == "smartswap" {
		preset := rapid.SampledFrom(smartswap.Presets()).Draw(t, "preset")
		params["preset"] = preset.Name
		for _, key := range []string{"watch", "resume", "patch", "predict", "borders", "narrow_tags", "sized", "exact_bounds"} {
			if rapid.IntRange(0, 3).Draw(t, key) == 0 { // mostly as the preset has it
				params[key] = rapid.Bool().Draw(t, key)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "other memory") == 0 {
			params["remember"] = rapid.Int64Range(0, 3).Draw(t, "remember")
		}
		params["min_tensor_bytes"] = int64(512)
		params["redundant_bytes"] = unit * rapid.SampledFrom([]int64{0, 16, 256, 2048}).Draw(t, "redundant")
		params["redundant_step_bytes"] = unit * 128
		params["layers"] = rapid.Int64Range(1, 12).Draw(t, "layers")
		if rapid.IntRange(0, 3).Draw(t, "reduce") > 0 {
			params["target"] = "reduction"
			params["reduction_bytes"] = unit * rapid.SampledFrom([]int64{1, 256, 4096, 1 << 15}).Draw(t, "reduction")
		}
		params["optimizer"] = rapid.SampledFrom([]string{"plan", "whole", "chunks", "off"}).Draw(t, "optimizer")
		params["chunks"] = rapid.Int64Range(1, 4).Draw(t, "chunks")
	}
	if name == "dtr" {
		params["heuristic"] = rapid.SampledFrom([]string{"dtr", "eqclass", "local", "lru", "size", "msps"}).Draw(t, "heuristic")
		params["release"] = rapid.SampledFrom([]string{"eager", "plain"}).Draw(t, "release of memory")
		params["duplicates"] = rapid.SampledFrom([]string{"apart", "over"}).Draw(t, "duplicates")
		params["compat_foresight"] = rapid.Bool().Draw(t, "foresight")
	}
	r, err := registry.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return name, func() (policies.Policy, error) { return r.New(params) }
}

// TestProperties runs random programs on random hardware under every policy
// with all invariants on, and insists that the cases bite.
func TestProperties(t *testing.T) {
	var n bites
	rapid.Check(t, func(t *rapid.T) {
		// Tensors are large enough for the caching allocator to cut.
		backend := rapid.SampledFrom([]string{"bytes", "bytes", "caching", "pages", "stitching"}).Draw(t, "allocator")
		unit := sim.Bytes(512)
		if backend != "bytes" {
			unit = 128 * sim.KiB
		}
		job := eagertest.DrawJob(t, 3, unit)
		cfg := drawConfig(t, job)
		switch backend {
		case "pages":
			cfg.Allocator.Backend, cfg.Allocator.ExpandableSegments = "caching", true
		case "stitching":
			cfg.Allocator = alloc.SmartSwapOptions()
		default:
			cfg.Allocator.Backend = backend
		}
		if backend != "bytes" {
			cfg.Allocator.Drain = rapid.SampledFrom([]string{"late", "early"}).Draw(t, "drain when")
			cfg.Allocator.EventPolicy = rapid.SampledFrom([]string{"query", "query-lazy", "wait-at-reuse"}).Draw(t, "event policy")
		}

		// What the program does when nothing is in its way.
		free := cfg
		free.Unbounded = true
		// What runs beside communication is slower, and that depends on when
		// things happen; here nothing is, so that busy times are least.
		alone := *free.Node
		for f := range alone.Device.Beside {
			alone.Device.Beside[f] = 1
		}
		free.Node = &alone
		ideal, err := eager.Run(free)
		if err != nil {
			t.Fatal(err)
		}
		checkRun(t, ideal)
		if ideal.OOM != nil {
			t.Fatalf("out of unbounded memory: %v", ideal.OOM)
		}
		peak := sim.Bytes(ideal.Peak(func(r *eager.RankReport) int64 { return r.Memory.Reserved.Peak }))
		floor := min(job.Floor(), peak)
		if backend != "bytes" {
			floor = min(peak, floor+100*sim.MiB) // whole segments of 2 and 20 MiB
		}
		percent := rapid.SampledFrom([]sim.Bytes{-10, 20, 40, 50, 60, 70, 75, 80, 85, 88, 90, 92, 95, 97, 99, 105}).Draw(t, "HBM, percent of the way from floor to peak")
		cfg.HBM = max(1, floor+(peak-floor)*percent/100)

		name, policy := drawPolicy(t, int64(unit))
		cfg.NewPolicy = policy
		r, err := eager.Run(cfg)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkRun(t, r)

		n.cases++
		var outs, planned int64
		for _, rank := range r.Ranks {
			outs += rank.Swap.Evictions() + rank.Replays.Forced
			planned += rank.Swap.Outs[swap.Planned]
		}
		if outs > 0 {
			n.evicted++
		}
		if planned > 0 {
			n.planned++
		}
		if job.Kinds > 1 {
			n.varied++
		}
		if r.OOM != nil {
			n.oom++
			return
		}
		n.finished++
		for i := range r.Ranks {
			if r.Ranks[i].Sequence != ideal.Ranks[i].Sequence || r.Ranks[i].Ops != ideal.Ranks[i].Ops {
				t.Fatalf("%s: rank %d executed another program than without a policy (12)", name, i)
			}
			if b, i := busy(r, i), busy(ideal, i); b < i {
				t.Fatalf("%s: compute was busy %v, less than the %v its kernels take (13)", name, b, i)
			}
		}
		if b, err := eager.NewRunBounds(&alone, job, cfg.Iterations); err != nil {
			t.Fatal(err)
		} else if r.Makespan < b.Time {
			t.Fatalf("%s: the run took %v, its streams alone need %v (13)", name, r.Makespan, b.Time)
		}
		again, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(r, again) {
			t.Fatalf("%s: the same run twice differs (11)", name)
		}
	})
	t.Logf("%+v", n)
	if testing.Short() {
		return
	}
	for _, share := range []struct {
		what    string
		have    int
		atLeast int // percent
	}{
		{"evict", n.evicted, 30}, {"execute planned swaps", n.planned, 30},
		{"vary the sequence", n.varied, 10}, {"run out of memory", n.oom, 10}, {"finish", n.finished, 30},
	} {
		if 100*share.have < share.atLeast*n.cases {
			t.Errorf("%d of %d cases %s, want at least %d %%", share.have, n.cases, share.what, share.atLeast)
		}
	}
}

func busy(r *eager.Report, rank int) sim.Time { return r.Ranks[rank].Lanes[0].Busy }

func checkRun(t *rapid.T, r *eager.Report) {
	for _, v := range r.Violations {
		t.Error(v)
	}
	if len(r.Violations) > 0 {
		t.FailNow()
	}
}
