package history_test

import (
	"testing"

	"smartswap/eager/alloc"
	"smartswap/eager/alloc/history"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// What Settings tells, Infer understands.
func TestSettings(t *testing.T) {
	for _, change := range []func(*alloc.Options){
		func(*alloc.Options) {},
		func(o *alloc.Options) { o.MaxSplitSizeMB = 200 },
		func(o *alloc.Options) { o.ExpandableSegments = true },
		func(o *alloc.Options) { o.RoundupPower2Divisions = "8" },
		func(o *alloc.Options) { o.RoundupPower2Divisions = "[1:2,16:4,>:8]" },
	} {
		o := alloc.DefaultOptions()
		change(&o)
		got, _ := history.Infer(&snapshot.Snapshot{Settings: history.Settings(o)})
		if got.MaxSplitSizeMB != o.MaxSplitSizeMB || got.ExpandableSegments != o.ExpandableSegments {
			t.Errorf("%+v became %+v", o, got)
		}
		for _, size := range []sim.Bytes{3 * sim.MiB / 4, 3*sim.MiB + 1, 33*sim.MiB + 1, 129*sim.MiB + 1} {
			if a, b := rounded(t, o, size), rounded(t, got, size); a != b {
				t.Errorf("%q became %q: %d bytes are rounded to %d, were to %d", o.RoundupPower2Divisions, got.RoundupPower2Divisions, size, b, a)
			}
		}
	}
}

// rounded is what a request takes.
func rounded(t *testing.T, o alloc.Options, size sim.Bytes) int64 {
	a, err := alloc.New(o, 0, device{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Malloc(size, 0); err != nil {
		t.Fatal(err)
	}
	return a.Stats().Active.Current
}
