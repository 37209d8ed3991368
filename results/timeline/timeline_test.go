package timeline_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/alloc/history"
	"smartswap/eager/eagertest"
	"smartswap/eager/swap"
	"smartswap/formats/ascend"
	"smartswap/formats/chrome"
	"smartswap/formats/snapshot"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/policies/registry"
	"smartswap/profilers"
	"smartswap/results/timeline"
	"smartswap/sim"
	"smartswap/workloads"

	"pgregory.net/rapid"
)

var regen = flag.Bool("regen", false, "rewrite the golden files")

// record runs cfg under a recorder.
func record(t interface{ Fatal(...any) }, cfg eager.Config, o timeline.Options) (*timeline.Recorder, *eager.Report) {
	rec := timeline.New(o)
	cfg.Observers = []eager.Observer{rec}
	r, err := eager.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rec, r
}

// drawRun draws a job that has to swap.
func drawRun(t *rapid.T) eager.Config {
	job := eagertest.DrawJob(t, 2, 128*sim.KiB)
	cfg := eagertest.Config(eagertest.DrawNode(t, len(job.Ranks())), job)
	cfg.Checks = false
	cfg.Iterations = rapid.IntRange(1, 6).Draw(t, "iterations")
	cfg.Allocator.Backend = rapid.SampledFrom([]string{"bytes", "caching", "caching"}).Draw(t, "allocator")
	cfg.Executor.Streams = rapid.IntRange(1, 2).Draw(t, "swap streams")
	cfg.HBM = job.Floor() * rapid.SampledFrom([]sim.Bytes{11, 13, 20}).Draw(t, "HBM, tenths of the floor") / 10
	if cfg.Allocator.Backend == "caching" {
		cfg.HBM += 60 * sim.MiB
	}
	var err error
	if cfg.Profiler, err = profilers.Lookup("detailed"); err != nil {
		t.Fatal(err)
	}
	policy, err := registry.Lookup(rapid.SampledFrom([]string{"none", "lru", "smartswap", "dtr"}).Draw(t, "policy"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.NewPolicy = func() (policies.Policy, error) { return policy.New(nil) }
	return cfg
}

// trace is what a viewer reads.
type trace struct {
	slices map[[2]string][]chrome.Event // by process and thread
}

func readTrace(t interface{ Fatal(...any) }, rec *timeline.Recorder) trace {
	var text bytes.Buffer
	if err := rec.WriteTrace(&text); err != nil {
		t.Fatal(err)
	}
	got := trace{slices: map[[2]string][]chrome.Event{}}
	_, err := chrome.Read(&text, "trace.json", nil, func(e *chrome.Event) error {
		if e.Phase == 'X' {
			lane := [2]string{e.PID, e.TID}
			got.slices[lane] = append(got.slices[lane], *e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestTrace: slices of a lane nest or do not overlap; nothing is left out of a
// trace of everything, and what is in one of the last iterations is the end of
// that; arrows lead from inside a copy out to inside a copy in of one tensor.
func TestTrace(t *testing.T) {
	var copies, arrows int
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawRun(t)
		rec, report := record(t, cfg, timeline.Options{})
		got := readTrace(t, rec)
		kernels, moved := int64(0), [2]int64{}
		for lane, list := range got.slices {
			checkNesting(t, lane, list)
			for _, e := range list {
				switch e.Category {
				case chrome.Kernel:
					kernels++
				case chrome.Memcpy:
					moved[0]++
				}
			}
		}
		want := [2]int64{}
		for i := range report.Ranks {
			s := &report.Ranks[i].Swap
			for _, n := range s.Outs {
				want[0] += n
			}
			want[0] -= s.Clean
			for _, n := range s.Ins {
				want[0] += n
			}
		}
		if report.OOM == nil && (moved != want || kernels == 0) {
			t.Errorf("%v copies, report %v; %d kernels", moved, want, kernels)
		}
		copies += int(moved[0])
		arrows += checkArrows(t, rec, got)

		keep := rapid.IntRange(1, 3).Draw(t, "keep")
		last, _ := record(t, cfg, timeline.Options{Iterations: keep})
		for lane, list := range readTrace(t, last).slices {
			checkNesting(t, lane, list)
			steps := 0
			for _, e := range list {
				if strings.HasPrefix(e.Name, "ProfilerStep#") {
					steps++
					continue
				}
				if e.Category != chrome.Annotation && !slices.ContainsFunc(got.slices[lane], func(w chrome.Event) bool { w.Line = e.Line; return w == e }) {
					t.Fatalf("%v: %+v is not in the trace of everything", lane, e)
				}
			}
			if steps > keep {
				t.Errorf("%d iterations, want the last %d", steps, keep)
			}
		}
	})
	if copies == 0 || arrows == 0 {
		t.Errorf("%d copies, %d arrows: the cases do not bite", copies, arrows)
	}
}

// checkNesting: every two slices of a lane are apart or one is in the other.
func checkNesting(t *rapid.T, lane [2]string, list []chrome.Event) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b chrome.Event) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Duration, a.Duration))
	})
	var open []chrome.Event
	for _, e := range list {
		for len(open) > 0 && open[len(open)-1].Start+open[len(open)-1].Duration <= e.Start {
			open = open[:len(open)-1]
		}
		if n := len(open); n > 0 && e.Start+e.Duration > open[n-1].Start+open[n-1].Duration {
			t.Fatalf("lane %v: %s [%d, +%d] overlaps %s [%d, +%d]", lane, e.Name, e.Start, e.Duration, open[n-1].Name, open[n-1].Start, open[n-1].Duration)
		}
		open = append(open, e)
	}
}

// checkArrows reads the flow events, which the reader of workloads passes over.
func checkArrows(t *rapid.T, rec *timeline.Recorder, got trace) int {
	var text bytes.Buffer
	if err := rec.WriteTrace(&text); err != nil {
		t.Fatal(err)
	}
	n := 0
	_, err := chrome.Read(&text, "trace.json", nil, func(e *chrome.Event) error {
		if e.Phase != 's' && e.Phase != 'f' {
			return nil
		}
		n++
		for _, s := range got.slices[[2]string{e.PID, e.TID}] {
			if s.Category == chrome.Memcpy && s.Name == e.Name && s.Start <= e.Start && e.Start <= s.Start+s.Duration {
				return nil
			}
		}
		t.Errorf("arrow %c at %d is in no copy of %s", e.Phase, e.Start, e.Name)
		return nil
	})
	if err != nil || n%2 != 0 {
		t.Errorf("%d ends of arrows, %v", n, err)
	}
	return n / 2
}

// TestMemoryTables: what is written is read back; its peaks are the report's,
// and adding up the lives gives the totals.
func TestMemoryTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawRun(t)
		rec, report := record(t, cfg, timeline.Options{})
		for i := range rec.Ranks() {
			var text bytes.Buffer
			if err := rec.WriteSamples(&text, i); err != nil {
				t.Fatal(err)
			}
			var peak ascend.Totals
			err := ascend.ReadSamples(&text, "memory_record.csv", nil, func(s *ascend.Sample) error {
				peak.Allocated, peak.Reserved, peak.Active = max(peak.Allocated, s.Totals.Allocated), max(peak.Reserved, s.Totals.Reserved), max(peak.Active, s.Totals.Active)
				return nil
			})
			m := &report.Ranks[i].Memory
			if want := (ascend.Totals{Allocated: sim.Bytes(m.Allocated.Peak), Reserved: sim.Bytes(m.Reserved.Peak), Active: sim.Bytes(m.Active.Peak)}); err != nil || peak != want {
				t.Fatalf("rank %d: peaks %+v, report %+v, %v", i, peak, want, err)
			}
			text.Reset()
			if err := rec.WriteTensors(&text, i); err != nil {
				t.Fatal(err)
			}
			live, born := sim.Bytes(0), int64(-1)
			err = ascend.ReadTensors(&text, "operator_memory.csv", nil, func(v *ascend.Tensor) error {
				if v.Release == ascend.Never {
					live += v.Bytes
				}
				if v.Name == "" || v.Alloc < born || v.AtAlloc.Allocated < v.Bytes {
					t.Errorf("tensor %+v after %d", *v, born)
				}
				born = v.Alloc
				return nil
			})
			if err != nil || live != sim.Bytes(m.Allocated.Current) {
				t.Fatalf("rank %d: %d bytes live at the end, report %d, %v", i, live, m.Allocated.Current, err)
			}
			c := rec.Curve(i, 50)
			var top eager.Counters
			for _, l := range c.Levels {
				top.Allocated, top.Reserved = max(top.Allocated, l.Allocated), max(top.Reserved, l.Reserved)
			}
			if top.Allocated != peak.Allocated || top.Reserved != peak.Reserved || len(c.Levels) > 51*8 || c.To <= c.From {
				t.Fatalf("curve of %d levels from %v to %v peaks at %+v, want %+v", len(c.Levels), c.From, c.To, top, peak)
			}
		}
	})
}

// TestSnapshot: the snapshot of a run replays through the allocator without a
// difference, and tells tensors, operators and layers.
func TestSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawRun(t)
		cfg.Allocator = alloc.DefaultOptions()
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			cfg.Allocator = alloc.SmartSwapOptions()
		case 1:
			cfg.Allocator.ExpandableSegments = true
		case 2:
			cfg.Allocator.Dialect = alloc.DialectTorchNPU
		}
		cfg.Allocator.EventPolicy = rapid.SampledFrom([]string{"query", "query-lazy", "wait-at-reuse"}).Draw(t, "events")
		cfg.Allocator.Drain = rapid.SampledFrom([]string{"late", "early"}).Draw(t, "drain")
		cfg.Executor.Release = rapid.SampledFrom([]string{"custom", "stock"}).Draw(t, "release")
		cfg.HBM += rapid.SampledFrom([]sim.Bytes{22, 40, 60}).Draw(t, "more HBM") * sim.MiB
		rec, _ := record(t, cfg, timeline.Options{})
		made := rec.Snapshot()
		made.Settings = history.Settings(history.Setup{Options: cfg.Allocator, Capacity: rec.Info(0).Capacity})
		var file bytes.Buffer
		if err := snapshot.Write(&file, made); err != nil {
			t.Fatal(err)
		}
		s, err := snapshot.Read(&file, "snapshot.pickle")
		if err != nil {
			t.Fatal(err)
		}
		for i := range rec.Ranks() {
			device := rec.Info(i).Devices[0]
			if len(s.Traces[device]) == 0 {
				continue // another rank ran out of memory before
			}
			setup, _ := history.Infer(s)
			h, err := history.Rebuild(s, device, setup.Options)
			if err != nil {
				t.Fatal(err)
			}
			result, err := history.Replay(h, setup, 0)
			if err != nil || result.First != nil {
				t.Fatalf("rank %d: %v, %v", i, result.First, err)
			}
			for _, e := range s.Traces[device] {
				if e.Action == snapshot.Alloc && (len(e.Frames) < 3 || e.Frames[0].File != "tensor" || e.Frames[0].Name == "" || e.Frames[1].File != "operator") {
					t.Fatalf("frames %+v", e.Frames)
				}
			}
		}
	})
}

// golden compares with a committed file.
func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var text bytes.Buffer
	if err := write(&text); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *regen {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text.Bytes(), want) {
		t.Errorf("%s differs; got\n%s", name, text.String())
	}
}

// once sends its first operator's tensor out and lets the next one ask for it.
type once struct{ sent bool }

func (*once) Needs() policies.Needs {
	return policies.Needs{Events: policies.Set(policies.AfterOp)}
}

func (o *once) Handle(ev *policies.Event, rt policies.Runtime) {
	if !o.sent && ev.Op.Index == 0 {
		o.sent = rt.Do(policies.Action{Kind: policies.Evict, What: policies.Selector{Kind: policies.ByHandle, Handle: ev.Op.Args[0]}}) == policies.Done
	}
}

// again discards the result of the first operator after the second.
type again struct {
	ops    int
	tensor policies.Handle
}

func (*again) Needs() policies.Needs {
	return policies.Needs{Events: policies.Set(policies.AfterOp), Lineage: policies.Lineage{Keep: true}}
}

func (a *again) Handle(ev *policies.Event, rt policies.Runtime) {
	if ev.Op.Roles == nil || ev.Op.Again {
		return
	}
	switch a.ops++; a.ops {
	case 1:
		a.tensor = ev.Op.Args[0]
	case 2:
		rt.Do(policies.Action{Kind: policies.Discard, What: policies.Selector{Handle: a.tensor}})
	}
}

// TestReplays: an operator that runs again is told by its own name and number,
// with the number of the one that waits for it, on every lane.
func TestReplays(t *testing.T) {
	node := eagertest.Node(1)
	node.Host.Dispatch, node.Host.Launch, node.Host.TaskQueue = 3*sim.Microsecond, 2*sim.Microsecond, 16
	w, err := eagertest.NewScript([][]workloads.Storage{{}}, func(_ int, b *workloads.Builder, names *workloads.Names) {
		x, y := b.New(workloads.Storage{Bytes: 5000, Layer: 3}), b.New(workloads.Storage{Bytes: 512, Layer: 4})
		k := func(name string) workloads.OpSpec {
			return eagertest.Replayable(eagertest.Kernel(names, name, 10*sim.Microsecond))
		}
		b.Op(k("a"), workloads.Out(x))
		b.Op(k("b"), workloads.Out(y))
		b.Op(k("c"), workloads.In(y), workloads.InPlace(x))
		b.Drop(x)
		b.Drop(y)
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := eagertest.Config(node, w)
	cfg.NewPolicy = func() (policies.Policy, error) { return &again{}, nil }
	rec, _ := record(t, cfg, timeline.Options{})
	var text bytes.Buffer
	if err := rec.WriteTrace(&text); err != nil {
		t.Fatal(err)
	}
	var file struct {
		TraceEvents []struct {
			Cat, Name string
			Args      map[string]any
		}
	}
	if err := json.Unmarshal(text.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, e := range file.TraceEvents {
		if e.Cat == "cpu_op" || e.Cat == "kernel" || e.Cat == "cuda_runtime" {
			what := fmt.Sprint(strings.TrimPrefix(e.Name, "launch "), e.Args["External id"])
			if f, ok := e.Args["replay for"]; ok {
				what += fmt.Sprint(" for ", f)
			}
			if l, ok := e.Args["layer"]; ok {
				what += fmt.Sprint(" in ", l)
			}
			got[e.Cat] = append(got[e.Cat], what)
		}
	}
	want := map[string][]string{
		"cpu_op":       {"a0", "b1", "a0 for 2", "c2"},
		"cuda_runtime": {"a0", "b1", "a0 for 2", "c2"},
		"kernel":       {"a0 in 3", "b1 in 4", "a0 for 2 in 3", "c2 in 4"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestByHand is small enough to be read: a tensor is made, leaves, and comes
// back for its second use.
func TestByHand(t *testing.T) {
	node := eagertest.Node(1)
	node.Host.Dispatch, node.Host.Launch, node.Host.TaskQueue = 3*sim.Microsecond, 2*sim.Microsecond, 16
	w, err := eagertest.NewScript([][]workloads.Storage{{}}, func(_ int, b *workloads.Builder, names *workloads.Names) {
		x := b.New(workloads.Storage{Bytes: 5000, Layer: 3, Label: names.ID("layer.act")})
		b.Mark(workloads.MarkForwardBegin, 1, 0)
		b.Op(eagertest.Kernel(names, "aten::mm", 10*sim.Microsecond), workloads.Arg{Storage: x, Mode: workloads.Write})
		b.Mark(workloads.MarkForwardEnd, 1, 0)
		b.Mark(workloads.MarkBackwardBegin, 1, 0)
		b.Op(eagertest.Kernel(names, "aten::mm_backward", 20*sim.Microsecond), workloads.Arg{Storage: x})
		b.Drop(x)
		b.Mark(workloads.MarkBackwardEnd, 1, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := eagertest.Config(node, w)
	cfg.NewPolicy = func() (policies.Policy, error) { return &once{}, nil }
	cfg.Executor = swap.DefaultOptions()
	rec, report := record(t, cfg, timeline.Options{})
	if report.Ranks[0].Swap.OutBytes != 5000 || report.Ranks[0].Swap.InBytes != 5000 {
		t.Fatalf("%+v", report.Ranks[0].Swap)
	}
	golden(t, "trace.json", rec.WriteTrace)
	golden(t, "memory_record.csv", func(w io.Writer) error { return rec.WriteSamples(w, 0) })
	golden(t, "operator_memory.csv", func(w io.Writer) error { return rec.WriteTensors(w, 0) })
	c := rec.Curve(0, 100)
	if len(c.Copies[hw.D2H]) != 1 || len(c.Copies[hw.H2D]) != 1 || c.Copies[hw.D2H][0].End-c.Copies[hw.D2H][0].Start != 5*sim.Microsecond {
		t.Errorf("copies %v", c.Copies)
	}
	s := rec.Snapshot()
	if got := fmt.Sprint(s.Traces[0][0].Frames); got != "[{layer.act tensor 0} {aten::mm operator 0} {layer 3 model 3} {forward phase 0}]" {
		t.Errorf("frames %s", got)
	}
	if s.Traces[0][0].Action != snapshot.Alloc || alloc.Alloc.String() != s.Traces[0][0].Action.String() {
		t.Errorf("action %v", s.Traces[0][0].Action)
	}
}
