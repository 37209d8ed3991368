package history_test

import (
	"bytes"
	"fmt"

	"smartswap/eager/alloc"
	"smartswap/eager/alloc/history"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// device has passed everything that was ever enqueued.
type device struct{}

func (device) Record(alloc.Stream) alloc.Event { return 0 }
func (device) Done(alloc.Event) bool           { return true }

// A run leaves a snapshot for memory_viz; the replay of what is in it does the
// same again.
func ExampleRecord() {
	a, err := alloc.New(alloc.DefaultOptions(), 0, device{})
	if err != nil {
		fmt.Println(err)
		return
	}
	layer := []snapshot.Frame{{Name: "aten::mm", File: "layer 3", Line: 0}}
	rec := history.Record(a.(alloc.Inspector), 0, 0, func() (int64, []snapshot.Frame) { return 0, layer })
	x, _ := a.Malloc(5*sim.MiB, 0)
	a.Malloc(16*sim.MiB, 0)
	a.Free(x)

	var s snapshot.Snapshot
	rec.AddTo(&s)
	var file bytes.Buffer
	if err := snapshot.Write(&file, &s); err != nil {
		fmt.Println(err)
		return
	}

	read, err := snapshot.Read(&file, "run.pickle")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range read.Traces[0] {
		fmt.Println(e.Action, e.Size)
	}
	setup, _ := history.Infer(read)
	h, err := history.Rebuild(read, 0, setup.Options)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := history.Replay(h, setup, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("segments:", r.Model.Allocs, "peak:", r.Model.Peak, "difference:", r.First)
	// Output:
	// segment_alloc 20MiB
	// alloc 5MiB
	// segment_alloc 16MiB
	// alloc 16MiB
	// free_requested 5MiB
	// free_completed 5MiB
	// segments: 2 peak: 36MiB difference: <nil>
}
