package dtr_test

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	fdtr "smartswap/formats/dtr"
	"smartswap/formats/formatstest"
	"smartswap/formats/notes"
	"smartswap/policies"
	"smartswap/policies/dtr"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"

	"pgregory.net/rapid"
)

// names of the heuristics in the reference data.
var heuristics = map[string]string{"DTR": "dtr", "DTR-EqClass": "eqclass", "DTR-Local": "local", "LRU": "lru", "Size": "size", "MSPS": "msps"}

// classes of its run-time, by what they do with storages without references.
var releases = map[string]string{"RuntimeV2EagerOptimized": "eager", "RuntimeV2Optimized": "plain"}

func readLog(t rapid.TB, path string) []*fdtr.Instr {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := io.Reader(bufio.NewReader(f))
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			t.Fatal(err)
		}
	}
	var log []*fdtr.Instr
	var list notes.List
	if err := fdtr.Read(in, path, &list, func(i *fdtr.Instr) error {
		log = append(log, i)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return log
}

func openLog(t rapid.TB, path string) workloads.Workload {
	t.Helper()
	w, _, err := trace.Open(path, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// options are those of the original's simulator, or of a framework.
func options(heuristic, release string, compat bool, limit float64) dtr.Options {
	return dtr.Options{Heuristic: heuristic, Release: release, Limit: limit, Duplicates: "apart", LastOfEquals: compat, ZeroStops: compat, Foresight: compat}
}

// outcome is what a run and a run of the model have in common.
type outcome struct {
	result    string
	remat     sim.Time
	ops       int64
	evictions []int // numbers of storages in the order in which operators made them
	peak      sim.Bytes
}

// recording passes a policy's actions on and keeps what it discards because an
// allocation failed.
type recording struct {
	policies.Policy
	policies.Runtime
	numbers  map[policies.Handle]int
	pressure bool
	evicted  []int
}

func (r *recording) Handle(ev *policies.Event, rt policies.Runtime) {
	for i, h := range ev.Op.Args {
		if _, ok := r.numbers[h]; !ok && ev.Op.Roles != nil && ev.Op.Roles[i] == policies.Output {
			r.numbers[h] = len(r.numbers)
		}
	}
	r.Runtime, r.pressure = rt, ev.Kind == policies.Pressure
	r.Policy.Handle(ev, r)
}

func (r *recording) Do(a policies.Action) policies.Outcome {
	o := r.Runtime.Do(a)
	if o == policies.Done && r.pressure {
		r.evicted = append(r.evicted, r.numbers[a.What.Handle])
	}
	return o
}

// simulate runs a workload once, with the invariants on, on a device without
// fragmentation, without host time.
func simulate(t rapid.TB, w workloads.Workload, o dtr.Options, budget sim.Bytes) (outcome, *eager.Report) {
	t.Helper()
	r := &recording{Policy: dtr.New(o), numbers: map[policies.Handle]int{}}
	cfg := eagertest.Config(eagertest.Node(1), w)
	cfg.NewPolicy = func() (policies.Policy, error) { return r, nil }
	cfg.Allocator.Exact, cfg.HostNone = true, true
	cfg.HBM, cfg.Unbounded = budget, budget == 0
	rep, err := eager.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range rep.Violations {
		t.Error(v)
	}
	rank := &rep.Ranks[0]
	out := outcome{"ok", rank.Replays.Time, rank.Replays.Ops, r.evicted, sim.Bytes(rank.Memory.Requested.Peak)}
	if rep.OOM != nil {
		out.result = "fail-oom"
		if rep.OOM.Limit != nil {
			out.result = "fail-remat-limit"
		}
	}
	if budget > 0 && out.peak > budget {
		t.Errorf("peak %d with a budget of %d", out.peak, budget)
	}
	return out, rep
}

func (m *model) outcome() outcome {
	return outcome{m.result, sim.Time(m.remat) * sim.Nanosecond, m.rematOps, m.evictions, m.peak}
}

// row is a run of the reference simulator.
type row struct {
	log, runtime, heuristic, result string
	percent                         int64
	budget, peak                    sim.Bytes
	base, remat                     sim.Time
	slowdown                        float64
	evictions, ops, scores          int64
}

func (r *row) String() string {
	return fmt.Sprintf("%s, %s, %s, %d %%", r.log, r.runtime, r.heuristic, r.percent)
}

func referenceRows(t *testing.T) []row {
	f, err := os.Open(formatstest.Shared(t, "dtr", "simrd-reference.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for _, l := range lines[1:] {
		s := func(name string) string { return l[slices.Index(lines[0], name)] }
		n := func(name string) int64 {
			if s(name) == "" {
				return 0
			}
			v, err := strconv.ParseInt(s(name), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		r := row{
			log: s("log"), runtime: s("runtime"), heuristic: s("heuristic"), result: s("result"), percent: n("budget_pct"),
			budget: sim.Bytes(n("budget_bytes")), peak: sim.Bytes(n("peak_bytes")),
			base: sim.Time(n("baseline_compute_ns")) * sim.Nanosecond, remat: sim.Time(n("remat_compute_ns")) * sim.Nanosecond,
			evictions: n("evictions"), ops: n("remat_ops"), scores: n("score_evals"),
		}
		if r.result == "ok" {
			if r.slowdown, err = strconv.ParseFloat(s("slowdown"), 64); err != nil {
				t.Fatal(err)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// part keeps the rows that a short test looks at.
func part(rows []row) []row {
	if !testing.Short() {
		return rows
	}
	return slices.DeleteFunc(rows, func(r row) bool {
		return r.percent != 0 && r.percent != 50 || r.log == "lstm" || r.log == "tv_densenet121"
	})
}

// each calls f for all rows, several at a time.
func each(rows []row, f func(r *row)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range rows {
		slots <- struct{}{}
		wg.Go(func() {
			f(&rows[i])
			<-slots
		})
	}
	wg.Wait()
}

// TestReference runs every row of the reference data, with invariants on: equal
// integers. A peak may differ by what the original counts otherwise: constants
// from their line on, and memory for all results of an operator at once.
func TestReference(t *testing.T) {
	rows := part(referenceRows(t))
	logs := map[string]workloads.Workload{}
	for _, r := range rows {
		if logs[r.log] == nil {
			logs[r.log] = openLog(t, formatstest.Shared(t, "dtr", "logs", r.log+".log.gz"))
		}
	}
	var mu sync.Mutex
	equal, peaks := 0, 0
	worst := 0.0
	each(rows, func(r *row) {
		w := logs[r.log]
		p, err := w.Program(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.runtime == "RuntimeV1" {
			// It frees constants, too.
			if peak := workloads.PeakLive(p, 1); peak < r.peak || peak > r.peak+4096 {
				t.Errorf("%v: live peak %d, want %d", r, peak, r.peak)
			}
			return
		}
		if r.percent > 0 {
			// The budget as an experiment file states it, from the job's own peak.
			r.budget = workloads.PeakLive(p, 1) * sim.Bytes(r.percent) / 100
		}
		heuristic := heuristics[r.heuristic]
		if r.heuristic == "none" {
			heuristic = "lru"
		}
		got, rep := simulate(t, w, options(heuristic, releases[r.runtime], true, 4), r.budget)
		mu.Lock()
		defer mu.Unlock()
		if got.result != r.result || got.remat != r.remat || got.ops != r.ops || int64(len(got.evictions)) != r.evictions {
			t.Errorf("%v: %s, %v in %d operators, %d evictions; want %s, %v in %d, %d",
				r, got.result, got.remat, got.ops, len(got.evictions), r.result, r.remat, r.ops, r.evictions)
		} else {
			equal++
		}
		if got.peak == r.peak {
			peaks++
		} else if d := math.Abs(float64(got.peak)/float64(r.peak) - 1); d > 1e-3 {
			t.Errorf("%v: peak %d, want %d", r, got.peak, r.peak)
		}
		if r.result == "ok" {
			slowdown := float64(rep.Makespan) / float64(r.base)
			if worst = max(worst, math.Abs(slowdown-r.slowdown)); math.Abs(slowdown-r.slowdown) > 1e-6 {
				t.Errorf("%v: slowdown %f, want %f", r, slowdown, r.slowdown)
			}
		}
	})
	t.Logf("%d rows: %d with equal integers, %d with equal peaks, slowdowns differ by at most %.1g", len(rows), equal, peaks, worst)
}

var allLogs = flag.Bool("alllogs", false, "hold the naive model against every log")

// TestModel holds the naive model against the reference data, peaks and, but for
// a few in millions, the number of scores included, and the policy against the model where the reference
// data say nothing: which storage leaves, and why peaks differ. The model takes
// its time: without -alllogs it plays the shortest log.
func TestModel(t *testing.T) {
	rows := slices.DeleteFunc(referenceRows(t), func(r row) bool {
		return !*allLogs && r.log != "resnet32" || r.runtime == "RuntimeV1" || r.percent != 0 && r.percent != 50 && !(r.percent == 30 && r.log == "unet")
	})
	logs := map[string][]*fdtr.Instr{}
	jobs := map[string]workloads.Workload{}
	for _, r := range rows {
		if logs[r.log] == nil {
			path := formatstest.Shared(t, "dtr", "logs", r.log+".log.gz")
			logs[r.log], jobs[r.log] = readLog(t, path), openLog(t, path)
		}
	}
	each(rows, func(r *row) {
		m := model{heuristic: r.heuristic, eager: r.runtime == "RuntimeV2EagerOptimized", budget: r.budget, limit: 4 * int64(r.base/sim.Nanosecond), compat: true}
		again := m
		m.play(logs[r.log])
		got := m.outcome()
		if got.result != r.result || got.remat != r.remat || got.ops != r.ops || int64(len(got.evictions)) != r.evictions || got.peak != r.peak || max(m.scores-r.scores, r.scores-m.scores) > 16 {
			t.Errorf("%v: the model has %s, %v in %d operators, %d evictions, peak %d, %d scores; want %+v",
				r, got.result, got.remat, got.ops, len(got.evictions), got.peak, m.scores, *r)
		}
		if r.heuristic == "none" {
			return
		}
		again.framework = true
		again.play(logs[r.log])
		want := again.outcome()
		if have, _ := simulate(t, jobs[r.log], options(heuristics[r.heuristic], releases[r.runtime], true, 4), r.budget); !same(have, want) {
			t.Errorf("%v: %s", r, difference(have, want))
		}
	})
}

func same(a, b outcome) bool {
	return a.result == b.result && a.remat == b.remat && a.ops == b.ops && a.peak == b.peak && slices.Equal(a.evictions, b.evictions)
}

func difference(have, want outcome) string {
	n := 0
	for n < min(len(have.evictions), len(want.evictions)) && have.evictions[n] == want.evictions[n] {
		n++
	}
	h, w := have.evictions, want.evictions
	have.evictions, want.evictions = nil, nil
	return fmt.Sprintf("%+v, %d evictions; the model has %+v, %d evictions; equal up to %d: %v and %v", have, len(h), want, len(w), n, h[n:min(len(h), n+5)], w[n:min(len(w), n+5)])
}

// drawLog writes a random log.
func drawLog(t *rapid.T) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	var names []string
	made := 0
	name := func() string {
		made++
		return fmt.Sprintf("x%d", made)
	}
	constant := func() {
		n := name()
		line(`{"INSTRUCTION":"CONSTANT","NAME":"%s"}`, n)
		line(`{"INSTRUCTION":"MEMORY","NAME":"%s","MEMORY":"%d"}`, n, rapid.SampledFrom([]int{0, 8, 64}).Draw(t, "constant"))
		names = append(names, n)
	}
	list := func(of []string) string {
		if len(of) == 0 {
			return "[]"
		}
		return `["` + strings.Join(of, `","`) + `"]`
	}
	line(`{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}`)
	constant()
	for range rapid.IntRange(4, 60).Draw(t, "lines") {
		pick := func() string { return rapid.SampledFrom(names).Draw(t, "name") }
		kind := rapid.IntRange(0, 15).Draw(t, "kind")
		if len(names) == 0 {
			kind = 0
		}
		switch {
		case kind == 0:
			constant()
		case kind == 1:
			line(`{"INSTRUCTION":"COPY","DST":"%s","SRC":"%s"}`, name(), pick())
			names = append(names, fmt.Sprintf("x%d", made))
		case kind == 2:
			line(`{"INSTRUCTION":"COPY_FROM","DST":"%s","SRC":"%s"}`, pick(), pick())
		case kind <= 4:
			k := rapid.IntRange(0, len(names)-1).Draw(t, "released")
			line(`{"INSTRUCTION":"RELEASE","NAME":"%s"}`, names[k])
			names = slices.Delete(names, k, k+1)
		case kind == 5:
			line(`{"INSTRUCTION":"RELEASE","NAME":"nobody"}`)
		case kind == 6:
			args := []string{pick(), pick()}
			if args[0] == args[1] {
				args = args[:1]
			}
			line(`{"INSTRUCTION":"MUTATE","NAME":"m_","ARGS":%s,"MUTATE":[0],"TIME":"%d"}`, list(args), rapid.IntRange(0, 9).Draw(t, "time"))
		default:
			var args, results []string
			for range rapid.IntRange(0, 3).Draw(t, "arguments") {
				args = append(args, pick())
			}
			for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "results") {
				results = append(results, name())
			}
			line(`{"INSTRUCTION":"CALL","NAME":"f","ARGS":%s,"RESULT":%s,"TIME":"%d"}`, list(args), list(results), rapid.SampledFrom([]int{0, 1, 5, 5, 20, 100}).Draw(t, "time"))
			for _, n := range results {
				line(`{"INSTRUCTION":"MEMORY","NAME":"%s","MEMORY":"%d"}`, n, rapid.SampledFrom([]int{0, 16, 64, 64, 256, 1024}).Draw(t, "bytes"))
				alias := -1
				if len(args) > 0 && rapid.IntRange(0, 3).Draw(t, "view") == 0 {
					alias = rapid.IntRange(0, len(args)-1).Draw(t, "of")
				}
				line(`{"INSTRUCTION":"ALIAS","NAME":"%s","ALIAS":"%d"}`, n, alias)
				names = append(names, n)
			}
		}
	}
	for _, n := range names {
		if rapid.IntRange(0, 3).Draw(t, "is an output") > 0 {
			line(`{"INSTRUCTION":"RELEASE","NAME":"%s"}`, n)
		}
	}
	line(`{"INSTRUCTION":"CALL","NAME":"last","ARGS":[],"RESULT":["end"],"TIME":"1"}`)
	line(`{"INSTRUCTION":"MEMORY","NAME":"end","MEMORY":"16"}`)
	line(`{"INSTRUCTION":"ALIAS","NAME":"end","ALIAS":"-1"}`)
	return b.String()
}

// TestRandomLogs: under every heuristic and option the policy, in the runtime,
// discards what the model evicts, in its order, and the run takes as long, peaks
// as high and ends as the model's does.
func TestRandomLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "random.log")
	results := map[string]int{}
	evictions, remats := 0, int64(0)
	rapid.Check(t, func(t *rapid.T) {
		if err := os.WriteFile(path, []byte(drawLog(t)), 0o644); err != nil {
			t.Fatal(err)
		}
		log, w := readLog(t, path), openLog(t, path)
		p, err := w.Program(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		budget := max(1, workloads.PeakLive(p, 1)*sim.Bytes(rapid.IntRange(40, 110).Draw(t, "percent"))/100)
		var base sim.Time
		var constants sim.Bytes
		for _, i := range log {
			base += i.Time
			if i.Kind == fdtr.Constant {
				constants += i.Bytes
			}
		}
		budget = max(budget, constants) // construction does not fail
		for _, reference := range slices.Sorted(maps.Keys(heuristics)) {
			heuristic := heuristics[reference]
			for _, release := range []string{"eager", "plain"} {
				for _, compat := range []bool{false, true} {
					m := model{heuristic: reference, eager: release == "eager", compat: compat, framework: true, budget: budget, limit: 4 * int64(base/sim.Nanosecond)}
					m.play(log)
					have, _ := simulate(t, w, options(heuristic, release, compat, 4), budget)
					if want := m.outcome(); !same(have, want) {
						t.Fatalf("%s, %s, compat %v, budget %d: %s", heuristic, release, compat, budget, difference(have, want))
					}
					results[have.result]++
					evictions += len(have.evictions)
					remats += have.ops
				}
			}
		}
	})
	t.Logf("%v, %d evictions, %d operators ran again", results, evictions, remats)
	if results["ok"] == 0 || results["fail-oom"] == 0 || evictions == 0 || remats == 0 {
		t.Error("the cases do not bite")
	}
}
