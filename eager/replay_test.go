package eager_test

import (
	"bytes"
	"reflect"
	"testing"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/policies/registry"
	"smartswap/profilers"
	"smartswap/sim"
	"smartswap/workloads"

	"pgregory.net/rapid"
)

// TestReplay: a job that is written to the native format and read back runs
// alike, under any policy (invariant 14).
func TestReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := eagertest.DrawJob(t, 2, 512)
		cfg := drawConfig(t, job)
		cfg.Allocator.Backend = "bytes"
		_, cfg.NewPolicy = drawPolicy(t, 512)
		want, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := native.Write(&file, job, cfg.Iterations); err != nil {
			t.Fatal(err)
		}
		trace, err := native.Read(&file, "replayed")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Workload = trace
		got, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("replayed: %+v\nwant: %+v", got, want)
		}
	})
}

// TestReplayDecoder: the same of generated iterations that vary, on the caching
// allocator, with memory that does not suffice: times and peaks are the same to
// the last digit.
func TestReplayDecoder(t *testing.T) {
	model, err := workloads.LookupModel("llama2-7b")
	if err != nil {
		t.Fatal(err)
	}
	model.Layers = 4
	job, err := workloads.New(workloads.Config{
		Model: model, PP: 2, DP: 4, GlobalBatch: 16, SaveRule: workloads.Eager,
		Processes: []workloads.Process{workloads.OverflowSkip{Probability: 0.5}, workloads.Validation{Every: 3, Batches: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	node, err := hw.Load("910b2-8")
	if err != nil {
		t.Fatal(err)
	}
	cfg := eagertest.Config(node, job)
	cfg.Iterations, cfg.Warmup, cfg.Fingerprint = 9, 3, true
	if cfg.Profiler, err = profilers.Lookup("detailed"); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := native.Write(&file, job, cfg.Iterations); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"none", "lru", "smartswap", "dtr"} {
		policy, err := registry.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Workload, cfg.HBM = job, 0
		cfg.NewPolicy = func() (policies.Policy, error) { return policy.New(nil) }
		if name != "none" {
			cfg.HBM = 6500 * sim.MiB
		}
		want, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var moved sim.Bytes
		kinds := map[string]bool{}
		for _, it := range want.Iterations {
			moved += it.OutBytes
			kinds[it.Kind] = true
		}
		if len(kinds) < 2 {
			t.Errorf("%s: iterations of kinds %v: nothing varies", name, kinds)
		}
		t.Logf("%s: %v, %v moved, OOM %v, kinds %v", name, want.Makespan, moved, want.OOM, kinds)
		if cfg.Workload, err = native.Read(bytes.NewReader(file.Bytes()), "replayed"); err != nil {
			t.Fatal(err)
		}
		got, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: replayed: %+v\nwant: %+v", name, got, want)
		}
	}
}
