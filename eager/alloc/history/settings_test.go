package history_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"smartswap/eager/alloc"
	"smartswap/eager/alloc/history"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// What Settings tells, Infer understands, through a file: all of it, or, of what
// the framework's own tools know, as much.
func TestSettings(t *testing.T) {
	npu := func(o *alloc.Options) { o.Dialect = alloc.DialectTorchNPU }
	for _, change := range []func(*alloc.Options){
		func(*alloc.Options) {},
		func(o *alloc.Options) { o.MaxSplitSizeMB, o.MaxNonSplitRoundingMB = 200, 30 },
		func(o *alloc.Options) { o.ExpandableSegments = true },
		func(o *alloc.Options) {
			npu(o)
			o.ExpandableSegments, o.SegmentSizeMB, o.BaseAddrAlignedKB = true, 4, 0
		},
		func(o *alloc.Options) { npu(o); o.PageSize, o.ThrowOnNPUMallocOOM = "1g", true },
		func(o *alloc.Options) { o.RoundupPower2Divisions = "8" },
		func(o *alloc.Options) { o.RoundupPower2Divisions = "[1:2,16:4,>:8]" },
		func(o *alloc.Options) { o.GarbageCollectionThreshold, o.PerProcessMemoryFraction = 0.8, 0.25 },
		func(o *alloc.Options) {
			*o = alloc.SmartSwapOptions()
			o.FreshSegmentSplit, o.EventPolicy, o.Drain = true, "wait-at-reuse", "early"
		},
		func(o *alloc.Options) { o.Backend = alloc.BackendBytes },
	} {
		want := history.Setup{Options: alloc.DefaultOptions(), Capacity: 61 * sim.GiB, Own: true}
		change(&want.Options)
		var file bytes.Buffer
		if err := snapshot.Write(&file, &snapshot.Snapshot{Settings: history.Settings(want)}); err != nil {
			t.Fatal(err)
		}
		s, err := snapshot.Read(&file, "written")
		if err != nil {
			t.Fatal(err)
		}
		got, notes := history.Infer(s)
		if diff := cmp.Diff(want, got); diff != "" || notes != nil {
			t.Errorf("-want +got: %s, %v", diff, notes)
		}
		s.Settings = slices.DeleteFunc(s.Settings, func(x snapshot.Setting) bool { return strings.HasPrefix(x.Key, "smartswap.") })
		plain, _ := history.Infer(s)
		o := want.Options
		if plain.Own || plain.Options.MaxSplitSizeMB != o.MaxSplitSizeMB || plain.Options.ExpandableSegments != o.ExpandableSegments {
			t.Errorf("%+v became %+v", o, plain)
		}
		if o.Dialect != alloc.DialectPyTorch || o.Backend != alloc.BackendCaching {
			continue
		}
		for _, size := range []sim.Bytes{3 * sim.MiB / 4, 3*sim.MiB + 1, 33*sim.MiB + 1, 129*sim.MiB + 1} {
			if a, b := rounded(t, o, size), rounded(t, plain.Options, size); a != b {
				t.Errorf("%q became %q: %d bytes are rounded to %d, were to %d", o.RoundupPower2Divisions, plain.Options.RoundupPower2Divisions, size, b, a)
			}
		}
	}
}

// Settings of ours that are damaged are left out, with a note.
func TestDamagedSettings(t *testing.T) {
	setup, notes := history.Infer(&snapshot.Snapshot{Settings: []snapshot.Setting{
		{Key: "smartswap.backend", Value: "stitching"}, {Key: "smartswap.capacity", Value: "-1"}, {Key: "smartswap.colour", Value: "red"},
		{Key: "smartswap.max_split_size_mb", Value: "many"}, {Key: "smartswap.expandable_segments", Value: "2"}, {Key: "smartswap.per_process_memory_fraction", Value: ""},
	}})
	want := history.Setup{Options: alloc.DefaultOptions(), Own: true}
	want.Options.Backend = alloc.BackendStitching
	if setup != want || len(notes) != 5 || !strings.HasPrefix(notes[1], `smartswap.colour = "red" is left out: no option`) {
		t.Errorf("%+v, %q", setup, notes)
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
