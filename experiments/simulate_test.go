package experiments

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/swap"
	"smartswap/policies"
	"smartswap/policies/registry"
	"smartswap/sim"
	"smartswap/workloads"
)

// job is a small decoder point on the 910B2 node.
func job(micro, tokens int64, l Layout, recompute string) *Point {
	return &Point{
		Setup: Setup{
			Node:      map[string]any{"name": "910b2-8"},
			Workload:  Workload{Kind: "decoder", Model: "llama2-7b", Seq: 1024, TokensPerStep: tokens, Save: "minimal", Attention: "fused", Fold: true},
			Strategy:  Strategy{Policy: "none", Profiler: "none", ZeRO: 1, AllLayouts: true},
			Allocator: alloc.DefaultOptions(), Pinned: alloc.DefaultPinnedOptions(), Executor: swap.DefaultOptions(),
			Iterations: 4, Warmup: 2, Replications: 1, Host: "full",
		},
		Layout: l, Recompute: recompute, MicroBatch: micro,
	}
}

// Bounds found on short programs are those of the whole program.
func TestBoundsExtend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := job(
			int64(rapid.IntRange(1, 2).Draw(t, "micro-batch")),
			1024*16*int64(rapid.IntRange(1, 3).Draw(t, "sequences")),
			rapid.SampledFrom(allLayouts(8)).Draw(t, "layout"),
			rapid.SampledFrom([]string{"none", "full", "block-1/2", "activation-function"}).Draw(t, "recompute"))
		if p.Layout.PP == 1 && p.Layout.DP > 1 && rapid.Bool().Draw(t, "zero3") {
			p.Strategy.ZeRO = 3
		}
		if p.Layout.PP > 1 {
			p.Strategy.VPP = rapid.Int64Range(1, 2).Draw(t, "vpp")
		}
		s := NewSimulator()
		got, err := s.Bound(p)
		var absent *Impossible
		if errors.As(err, &absent) {
			t.Skip(absent.Reason)
		}
		if err != nil {
			t.Fatal(err)
		}
		node, err := s.node(p.Node)
		if err != nil {
			t.Fatal(err)
		}
		w, err := s.workload(p, node)
		if err != nil {
			t.Fatal(err)
		}
		want, err := eager.NewBounds(node, w, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.HBMPercent = 100
		if all, err := s.Bound(p); err != nil || all.Capacity != want.Live {
			t.Errorf("%v: 100 %% are %d bytes, %v; want the peak of the whole program, %d", p, all.Capacity, err, want.Live)
		}
		if got.Time != want.Time || got.Memory != want.Memory {
			t.Errorf("%v: time %v and memory %d from short programs, %v and %d from the whole", p, got.Time, got.Memory, want.Time, want.Memory)
		}
	})
}

// logged is a step of an operator log under a policy that makes tensors again.
func logged(path string, options map[string]any, percent int64) *Point {
	p := job(1, 1024, Layout{1, 1, 1}, "none")
	p.Node = map[string]any{"name": "a100-40-1"}
	p.Workload = Workload{Kind: "trace", Trace: path}
	p.Strategy.Policy, p.Strategy.Options = "dtr", options
	p.Allocator.Backend, p.Allocator.Exact = alloc.BackendBytes, true
	p.Host, p.Iterations, p.Warmup, p.HBMPercent = "none", 2, 0, percent
	return p
}

// A percentage of the job's own peak, rounded down, is what a device has; what
// runs again is counted, and ends the run where the policy says so.
func TestHBMPercent(t *testing.T) {
	const path = "../policies/dtr/testdata/byhand.log" // 1,550 bytes at M_; 144 ns
	s := NewSimulator()
	s.checks = true
	for _, c := range []struct {
		percent   int64
		limit     float64
		heuristic string
		capacity  sim.Bytes
		ops       int64
		time      sim.Time
		reason    string
	}{
		{0, 0, "lru", 40_000_000_000, 0, 144, ""},
		{100, 0, "lru", 1550, 0, 144, ""},
		{75, 0, "lru", 1162, 2, 144 + 90, ""},
		{75, 0, "size", 1162, 1, 144 + 30, ""},
		{75, 0.63, "lru", 1162, 2, 144 + 90, ""}, // 90 of 144 are allowed
		{75, 0.62, "lru", 1162, 0, 0, "rematerialization limit"},
		{50, 0, "lru", 775, 0, 0, "memory"},
	} {
		p := logged(path, map[string]any{"heuristic": c.heuristic, "limit": c.limit}, c.percent)
		b, err := s.Bound(p)
		if err != nil {
			t.Fatal(err)
		}
		if c.percent > 0 && b.Capacity != c.capacity {
			t.Errorf("%d %%: %d bytes, want %d", c.percent, b.Capacity, c.capacity)
		}
		o, err := s.Run(p)
		if err != nil {
			t.Fatal(err)
		}
		if o.OOM != nil {
			if o.OOM.reason() != c.reason || o.OOM.Capacity != c.capacity {
				t.Errorf("%+v: ends with %+v", c, o.OOM)
			}
			if text := oomText(o.OOM); (c.reason == "memory") != strings.HasPrefix(text, "OOM: requested") || (c.reason != "memory") != strings.HasPrefix(text, "recomputation above") {
				t.Errorf("%+v: %q", c, text)
			}
			continue
		}
		if c.reason != "" || o.RematOps != c.ops || o.Time != c.time*sim.Nanosecond || o.RematTime != o.Time-144*sim.Nanosecond {
			t.Errorf("%+v: %d operators again in %v of %v", c, o.RematOps, o.RematTime, o.Time)
		}
	}
	key := func(percent int64, ideal bool) string {
		p := logged(path, nil, percent)
		if ideal {
			p = p.Ideal()
		}
		k, err := s.Key(p)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if key(50, false) == key(60, false) || key(50, true) != key(60, true) {
		t.Error("keys of runs do not tell percentages apart, or tell ideal runs apart that are the same")
	}
}

// The invariants hold for every variation of the sequence, under every preset,
// on both allocators, with so little memory that operators of all streams wait
// for it.
func TestInvariantsUnderVariation(t *testing.T) {
	often := map[string]map[string]any{
		"overflow": {"burst": int64(1), "probability": 0.3}, "validation": {"every": int64(4), "batches": int64(2)},
		"save": {"every": int64(5)}, "extras": {"log_every": int64(3), "average_every": int64(2)}, "rerun": {"probability": 0.3},
		"ramp": {"from": int64(2), "step": int64(1), "every": int64(4)}, "tail": {"every": int64(4)},
		"context": {"at": int64(6), "before": int64(4096)}, "lora": {"at": int64(7)}, "recompute": {"at": int64(7)},
	}
	presets := []string{"default", "paper", "faithful-v1", "faithful-v2", "default"} // the last without a detector
	runs, fit, swapped := 0, 0, 0
	for i, name := range append([]string{""}, workloads.ProcessNames()...) {
		for k, preset := range presets {
			if testing.Short() && k != i%len(presets) {
				continue
			}
			p := job(2, 8192*16*4, []Layout{{1, 1, 8}, {1, 2, 4}}[(i+k)%2], "none")
			p.Workload.Seq, p.Workload.Layers, p.Strategy.AllLayouts = 8192, 6, false
			p.Strategy.Policy, p.Strategy.Profiler = "smartswap", "detailed"
			p.Strategy.Options = map[string]any{"preset": preset}
			if k == 4 {
				p.Strategy.Options["watch"] = false
			}
			p.Iterations, p.Node["device.hbm"] = 14, []string{"22GiB", "26GiB", "30GiB"}[i%3]
			if p.Layout.PP == 2 {
				p.Node["device.hbm"] = "19GiB"
			}
			if name == "experts" {
				p.Workload.Model, p.Workload.Layers, p.Node["device.hbm"] = "mixtral-8x7b", 2, "36GiB"
			}
			if p.Layout.PP == 1 && k%2 == 1 && name != "lora" {
				p.Strategy.ZeRO = 3
			}
			if i%2 == 1 {
				p.Allocator.Backend = "stitching"
			}
			if k == 2 || k == 3 {
				p.Executor = swap.ShippedOptions()
			}
			if name != "" {
				p.Variation = []Variation{{Name: name, Options: often[name]}}
				if p.Variation[0].Options == nil {
					p.Variation[0].Options = map[string]any{}
				}
			}
			s := NewSimulator()
			s.checks = true
			o, err := s.Observe(p)
			if err != nil {
				t.Errorf("%s, %s: %v", name, preset, err)
				continue
			}
			runs++
			if o.OOM == nil {
				fit++
			}
			if o.OutBytes > 0 && o.InBytes > 0 {
				swapped++
			}
		}
	}
	least := 60
	if testing.Short() {
		least = 15
	}
	if runs < least || fit < runs*3/4 || swapped < runs*3/4 {
		t.Errorf("of %d runs %d fit and %d swap: want at least %d, and three quarters of them", runs, fit, swapped, least)
	}
}

// Communication does not write into memory that compute still uses, or that a
// copy is still read from.
func TestCommunicationWaitsForMemory(t *testing.T) {
	for _, c := range []struct {
		hbm    string
		layout Layout
	}{{"20GiB", Layout{4, 1, 2}}, {"24GiB", Layout{2, 1, 4}}, {"30GiB", Layout{2, 1, 4}}} {
		p := job(1, 8192*32, c.layout, "none")
		p.Workload.Seq, p.Strategy.AllLayouts, p.Allocator.Dialect = 8192, false, "torch_npu"
		p.Strategy.Policy, p.Strategy.Profiler = "smartswap", "detailed"
		p.Iterations, p.Node["device.hbm"] = 8, c.hbm
		s := NewSimulator()
		s.checks = true
		o, err := s.Observe(p)
		if err != nil {
			t.Error(err)
			continue
		}
		if o.OOM != nil || o.OutBytes == 0 {
			t.Errorf("%v: want a run that fits and swaps: %+v", c, o)
		}
	}
}

// Bounds hold for what is simulated, and what they prove not to fit does not.
func TestBoundsHold(t *testing.T) {
	s := NewSimulator()
	for i, l := range []Layout{{1, 1, 8}, {2, 1, 4}, {1, 2, 4}, {2, 2, 2}} {
		p := job(1, 1024*32, l, "none")
		if i%2 == 1 { // variation: the mean of unlike iterations
			p.Variation = []Variation{{"overflow", map[string]any{"probability": 0.5, "burst": int64(0)}}, {"validation", map[string]any{"every": int64(3), "batches": int64(1)}}}
		}
		b, err := s.Bound(p)
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.Run(p)
		if err != nil {
			t.Fatal(err)
		}
		if o.OOM == nil && (o.Time < b.Time || o.PeakReserved < b.Memory) {
			t.Errorf("%v: time %v, reserved %d; bounds %v, %d", p, o.Time, o.PeakReserved, b.Time, b.Memory)
		}
		if !b.Fits() && o.OOM == nil {
			t.Errorf("%v fits against its bound", p)
		}
	}
}

// Without policy and variation, few iterations show what many do.
func TestSettled(t *testing.T) {
	s := NewSimulator()
	p := job(1, 1024*16, Layout{1, 2, 4}, "none")
	p.Iterations, p.Warmup = 9, 7
	if q := p.settled(); q.Iterations != 4 || q.Warmup != 2 {
		t.Fatalf("%d iterations, %d of them warm-up; want 4 and 2", q.Iterations, q.Warmup)
	}
	short, err := s.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	p.Variation = []Variation{{"validation", map[string]any{"every": int64(1000), "batches": int64(1)}}} // never within the run, but not settled
	if p.settled() != p {
		t.Fatal("variation must be run in full")
	}
	long, err := s.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	if long.Ops <= short.Ops {
		t.Fatalf("%d operators in the long run, %d in the short one", long.Ops, short.Ops)
	}
	long.Ops, long.Events, long.Fingerprint = short.Ops, short.Events, short.Fingerprint
	long.Completed, long.HostBusy = short.Completed, short.HostBusy
	if diff := cmp.Diff(short, long); diff != "" {
		t.Error(diff)
	}
}

// Points share a run exactly if nothing that the run depends on differs.
func TestKey(t *testing.T) {
	s := NewSimulator()
	key := func(change func(*Point)) string {
		p := job(1, 1024*16, Layout{1, 1, 8}, "none")
		change(p)
		k, err := s.Key(p)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	link := func(p *Point) { p.Node = map[string]any{"name": "910b2-8", "link": map[string]any{"rate": "55GB/s"}} }
	lru := func(p *Point) { p.Strategy.Policy = "lru" }
	plain := key(func(*Point) {})
	for name, change := range map[string]func(*Point){
		"host link without a policy": link,
		"strategy name":              func(p *Point) { p.Strategy.Name = "other" },
		"executor without a policy":  func(p *Point) { p.Executor.Streams = 1 },
		"replications":               func(p *Point) { p.Replications = 9 },
		"settled iterations":         func(p *Point) { p.Iterations = 9 },
	} {
		if key(change) != plain {
			t.Errorf("%s: another run", name)
		}
	}
	for name, change := range map[string]func(*Point){
		"policy":      lru,
		"layout":      func(p *Point) { p.Layout = Layout{2, 1, 4} },
		"recompute":   func(p *Point) { p.Recompute = "full" },
		"micro-batch": func(p *Point) { p.MicroBatch = 2 },
		"model":       func(p *Point) { p.Workload.Model = "llama3-8b" },
		"save rule":   func(p *Point) { p.Workload.Save = "eager" },
		"seed":        func(p *Point) { p.Seed++ },
		"ideal":       func(p *Point) { p.Strategy.Ideal = true },
		"ZeRO":        func(p *Point) { p.Strategy.ZeRO = 3 },
		"allocator":   func(p *Point) { p.Allocator.Dialect = "torch_npu" },
		"host":        func(p *Point) { p.Host = "none" },
		"HBM":         func(p *Point) { p.Node = map[string]any{"name": "910b2-8", "device.hbm": "32GiB"} },
	} {
		if key(change) == plain {
			t.Errorf("%s: the same run", name)
		}
	}
	if key(lru) == key(func(p *Point) { lru(p); link(p) }) {
		t.Error("a policy that copies shares a run over another host link")
	}
}

func TestParseRecompute(t *testing.T) {
	for text, want := range map[string]workloads.Recompute{
		"none": {Kind: workloads.NoRecompute}, "selective": {Kind: workloads.Selective},
		"activation-function": {Kind: workloads.ActivationFunction},
		"full":                {Kind: workloads.FullUniform, N: 1},
		"block-3":             {Kind: workloads.FullBlock, N: 3},
		"block-10":            {Kind: workloads.FullBlock, N: 10},
		"block-1/4":           {Kind: workloads.FullBlock, N: 3}, // of 10, rounded up
		"block-1/11":          {Kind: workloads.FullBlock, N: 1},
		"block-4/4":           {Kind: workloads.FullBlock, N: 10},
	} {
		if got, err := parseRecompute(text, 10); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "block", "block-0", "block-11", "block--1", "block-5/4", "block-0/4", "block-1/", "block-1/4x", "block-1/5000", "all"} {
		if got, err := parseRecompute(text, 10); err == nil {
			t.Errorf("%q: accepted as %+v", text, got)
		}
	}
}

// Every shipped file is sound. Those that read data beside the project are
// checked where it is.
func TestShippedFiles(t *testing.T) {
	paths, err := filepath.Glob("../configs/*.toml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("../../shared/data"); err != nil && strings.Contains(string(content), "shared/data") {
			t.Logf("%s: not checked, the data it reads is not here", path)
			continue
		}
		for _, form := range [][]string{nil, {"-quick"}} {
			if form != nil && !strings.Contains(string(content), "\n[quick]") || form == nil && testing.Short() {
				continue
			}
			var stdout, stderr strings.Builder
			if code := Main(background, append([]string{path, "-check", "-golden", t.TempDir()}, form...), &stdout, &stderr); code != 0 {
				t.Errorf("%s %v: exit code %d: %s", path, form, code, &stderr)
			}
		}
	}
}

// A folder is a trace by the content of all its files.
func TestFolderDigest(t *testing.T) {
	dir := t.TempDir()
	p := &Point{}
	p.Workload.Trace = dir
	digest := func() string {
		d, err := p.traceDigest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if err := os.WriteFile(filepath.Join(dir, "a.csv"), []byte("1"), 0o666); err != nil {
		t.Fatal(err)
	}
	first := digest()
	if err := os.MkdirAll(filepath.Join(dir, "below"), 0o777); err != nil {
		t.Fatal(err)
	}
	if digest() != first {
		t.Error("an empty folder changes the content")
	}
	if err := os.WriteFile(filepath.Join(dir, "below", "b.csv"), []byte("2"), 0o666); err != nil {
		t.Fatal(err)
	}
	if digest() == first {
		t.Error("another file does not change the content")
	}
}

// The figures of the allocator are each of the rank where they are largest, in
// columns of their own; the largest free block goes with the reserved peak.
func TestAllocatorColumns(t *testing.T) {
	rank := func(base int64) eager.RankReport {
		var m alloc.Stats
		for i, s := range []*alloc.Stat{&m.Active, &m.Requested, &m.Pending, &m.InactiveSplit, &m.Segments, &m.Reserved} {
			s.Current, s.Peak = 1, base+int64(i)
		}
		m.LargestFree, m.DriverAllocs, m.DriverFrees, m.Retries = base+6, base+7, base+8, base+9
		r := eager.RankReport{Devices: []int{0}, Memory: m, Driver: sim.Time(base+10) * sim.Millisecond}
		r.Host.Wait[eager.DriverSync] = sim.Time(base+11) * sim.Millisecond
		return r
	}
	p := job(2, 8192*16*4, Layout{1, 1, 8}, "none")
	report := &eager.Report{Iterations: make([]eager.Iteration, p.Iterations), Ranks: []eager.RankReport{rank(100), rank(200), rank(0)}}
	report.Ranks[0].Memory.Pending.Peak, report.Ranks[0].Driver = 999, sim.Second
	r := &Result{Point: p, Status: Simulated, Runs: []*Outcome{{}}}
	simulator := NewSimulator()
	node, err := simulator.node(p.Node)
	if err != nil {
		t.Fatal(err)
	}
	w, err := simulator.workload(p, node)
	if err != nil {
		t.Fatal(err)
	}
	r.Outcome = *outcome(report, p, w, policies.Observed)
	want := map[string]string{
		"peak_active_bytes": "200", "peak_requested_bytes": "201", "peak_pending_bytes": "999", "peak_inactive_split_bytes": "203", "peak_segments": "204",
		"largest_free_bytes": "206", "segments_requested": "207", "segments_returned": "208", "allocation_retries": "209", "driver_ms": "1000", "driver_wait_ms": "211",
	}
	for _, c := range rowColumns() {
		if v, ok := want[c.Name]; ok {
			if got := c.of(nil, r).String(); got != v {
				t.Errorf("%s is %s, want %s", c.Name, got, v)
			}
			delete(want, c.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("no columns %v", want)
	}
	report.OOM = &eager.OutOfMemory{Cause: &alloc.OOM{Requested: 7, LargestFree: 5}}
	if o := outcome(report, p, w, policies.Observed).OOM; o.LargestFree != 5 || o.Requested != 7 {
		t.Errorf("%+v", o)
	}
}

// A trace whose ranks need devices that the node does not have is refused
// before anything runs.
func TestTraceNeedsItsDevices(t *testing.T) {
	content, err := os.ReadFile("../configs/example.trace")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "second.trace")
	moved := strings.Replace(string(content), "rank devices=0", "rank devices=1", 1)
	if moved == string(content) {
		t.Fatal("the example has no rank on device 0")
	}
	if err := os.WriteFile(path, []byte(moved), 0o666); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	code := Main(background, []string{"../configs/my-trace.toml", "-set", "trace=" + path, "-out", t.TempDir()}, &stdout, &stderr)
	if code != 2 || !strings.Contains(stderr.String(), "node a100-40-1 has 1 devices, the trace") {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

// TestTraceNumbers: what the command line reads as a number may name a step; the
// bound of one iteration does not hold for a trace whose iterations overlap, and
// what to change is said; a percentage of memory and a memory contradict each other.
func TestTraceNumbers(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "a.trace")
	write := func(end string) {
		text := "smartswap-trace 1\nworkload a\ntokens 0\nname \"add\"\n\nrank devices=0 stage=0\n\nprogram train\nmark iteration-begin\nmark forward-begin 1 0\n" +
			"kernel 0 measured family=elementwise time=4000000\nop \"add\" k0\nkernel 1 measured family=elementwise time=28000000\nop \"add\" k1 @comm\n" +
			"mark forward-end 1 0\n" + end + "mark iteration-end\niterations 0\n\nend\n"
		if err := os.WriteFile(trace, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	file := "name = \"x\"\nhost = \"none\"\niterations = 2\nwarmup = 1\nnode.name = \"a100-40-1\"\nworkload.kind = \"trace\"\nworkload.trace = \"" + trace + "\"\n[[strategy]]\nname = \"none\"\n"
	run := func(file string, code int, want string, args ...string) {
		t.Helper()
		got, stdout, stderr := runFile(t, background, file, NewSimulator(), append(args, "-out", dir)...)
		if got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%q: exit code %d, want %d and %q: %s", args, got, code, want, stderr)
		}
	}
	write("")
	run(file, exitFailed, "iterations of this trace overlap, want each to end with a wait of the host (sync) for every lane")
	write("sync compute\nsync comm\n")
	run(file, exitDone, "0.028 ms")
	run(file, exitInput, `step = 7: not for a file of format native; allowed for ascend, chrome, et`, "-set", "workload.step=7")
	run(file, exitInput, `workload.step = 0.5: want a string`, "-set", "workload.step=0.5")
	run(strings.Replace(file, "node.name", "node.device.hbm = \"12GiB\"\nnode.name", 1), exitInput, `hbm_percent = 80: takes the place of node.device.hbm = "12GiB"; want one of them`, "-set", "hbm_percent=80")
	run(file, exitDone, "0.028 ms", "-set", "hbm_percent=80")
}

// A policy that recomputes says so where nothing may run again, whether the job
// fits or not: operators without the word, and those that change what they read.
func TestNothingRunsAgain(t *testing.T) {
	text := func(op string) string {
		return "smartswap-trace 1\nworkload a\ntokens 0\nname \"f\"\nname \"x\"\n\nrank devices=0 stage=0\n\nprogram train\nmark iteration-begin\nmark forward-begin 1 0\n" +
			"type 0 1048576 activation bf16 1024x512 \"x\"\nkernel 0 measured family=elementwise time=4000000\n" + op + "mark forward-end 1 0\ndrop 0\nmark iteration-end\niterations 0\n\nend\n"
	}
	const makes = "op \"f\" k0 w0:0\n"
	for _, c := range []struct {
		ops      string
		options  map[string]any
		complain bool
	}{
		{makes, nil, true},
		{makes, map[string]any{"replay_communication": true}, false}, // collectives might
		{makes[:len(makes)-1] + " replayable\n", nil, false},
		{makes + "op \"f\" k0 u0 replayable\n", nil, true},
		{makes + "op \"f\" k0 r0 replayable\n", nil, true}, // makes nothing
	} {
		path := filepath.Join(t.TempDir(), "a.trace")
		if err := os.WriteFile(path, []byte(text(c.ops)), 0o666); err != nil {
			t.Fatal(err)
		}
		for _, percent := range []int64{50, 200} {
			o, err := NewSimulator().Run(logged(path, c.options, percent))
			if err != nil {
				t.Fatalf("%q: %v", c.ops, err)
			}
			if got := slices.Contains(o.Complaints, nothingAgain); got != c.complain || (o.OOM != nil) != (percent == 50) {
				t.Errorf("%q, %v, %d %%: complaints %q, out of memory %v", c.ops, c.options, percent, o.Complaints, o.OOM)
			}
		}
	}
}

// A policy that draws at random gets the run's seed, unless it has its own; the
// strategy's options, which cells share, stay as they are.
func TestPolicySeed(t *testing.T) {
	r, err := registry.Lookup("dtr")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		policy policies.Registration
		given  map[string]any
		want   any
	}{
		{r, nil, nil},
		{r, map[string]any{"sample_tensors": true}, int64(5)},
		{r, map[string]any{"sample_tensors": true, "seed": int64(7)}, int64(7)},
		{policies.LRU(), nil, nil},
		{policies.Registration{Seeded: func(policies.Params) bool { return true }}, nil, int64(5)},
	} {
		p := logged("", c.given, 100)
		p.Seed = 5
		before := len(c.given)
		if got := p.policyOptions(c.policy)["seed"]; got != c.want || len(c.given) != before {
			t.Errorf("%s with %v: seed %v, want %v", c.policy.Name, c.given, got, c.want)
		}
	}
}
