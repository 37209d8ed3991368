package eager_test

import (
	"bytes"
	"reflect"
	"testing"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/formats/native"

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
