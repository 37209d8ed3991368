package experiments

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/experiments/published"
	"smartswap/hw"
	"smartswap/results"
	"smartswap/sim"
)

// naiveSpearman counts ranks pair by pair: 1 plus the smaller values, plus half of
// the other equal ones.
func naiveSpearman(a, b []float64) float64 {
	rank := func(v []float64) []float64 {
		out := make([]float64, len(v))
		for i := range v {
			out[i] = 1
			for j := range v {
				switch {
				case v[j] < v[i]:
					out[i]++
				case v[j] == v[i] && j != i:
					out[i] += 0.5
				}
			}
		}
		return out
	}
	x, y := rank(a), rank(b)
	mean := func(v []float64) float64 {
		s := 0.0
		for _, e := range v {
			s += e
		}
		return s / float64(len(v))
	}
	mx, my := mean(x), mean(y)
	var xy, xx, yy float64
	for i := range x {
		xy += (x[i] - mx) * (y[i] - my)
		xx += (x[i] - mx) * (x[i] - mx)
		yy += (y[i] - my) * (y[i] - my)
	}
	return xy / math.Sqrt(xx*yy)
}

func TestSpearman(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{nil, nil, math.NaN()},
		{[]float64{1}, []float64{1}, math.NaN()},
		{[]float64{1, 2}, []float64{1, 2, 3}, math.NaN()},
		{[]float64{1, 2}, []float64{5, 5}, math.NaN()}, // no order to agree with
		{[]float64{1, 2, 3}, []float64{10, 20, 1000}, 1},
		{[]float64{1, 2, 3}, []float64{9, 5, -7}, -1},
		{[]float64{1, 1, 2}, []float64{1, 2, 3}, math.Sqrt(3) / 2},
	} {
		if got := Spearman(c.a, c.b); math.Abs(got-c.want) > 1e-12 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("%v, %v: %g, want %g", c.a, c.b, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 30).Draw(t, "n")
		draw := func(name string) []float64 { // few values: ties
			return rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 8), func(i int) float64 { return float64(i) }), n, n).Draw(t, name)
		}
		a, b := draw("a"), draw("b")
		got, want := Spearman(a, b), naiveSpearman(a, b)
		if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > 1e-9 {
			t.Fatalf("%v, %v: %g, naive %g", a, b, got, want)
		}
	})
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("%v: %g, want %g", c.values, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

// TestSummarise: errors are of times whatever was published; lists and metrics are
// kept apart.
func TestSummarise(t *testing.T) {
	cell := func(list int, id string, ms float64, numbers ...published.Number) *CellResult {
		job := &timesJob{list: list, Job: published.Job{ID: id, Devices: 2, GlobalBatch: 10, Seq: 100, Numbers: numbers}}
		c := &CellResult{Cell: &Cell{job: job}, Results: make([]Result, 1)}
		c.Results[0].Outcome.Time = sim.FromSeconds(1e-3 * ms)
		c.Results[0].Outcome.Passes = []PassOutcome{{Forward: sim.FromSeconds(1e-3 * 3)}}
		return c
	}
	rows := timesRows([]*CellResult{
		cell(0, "a", 110, published.Number{Metric: published.StepTime, Value: 100}),
		// 500 tokens per device in 100 ms: 5,000 per second; measured 10,000.
		cell(0, "b", 100, published.Number{Metric: published.TokenRate, Value: 10_000}),
		cell(0, "c", 90, published.Number{Metric: published.StepTime, Value: 100}, published.Number{Metric: published.Forward, Value: 4}, published.Number{Metric: published.Forward, Rank: 1, Value: 4}),
		cell(1, "d", 50, published.Number{Metric: published.StepTime, Value: 100}),
	})
	if len(rows) != 6 {
		t.Fatalf("%d rows", len(rows))
	}
	sums := summarise(rows)
	var got []string
	for _, s := range sums {
		got = append(got, fmt.Sprintf("%d %s n%d |%.4g| %.4g (%.4g)", s.list, s.metric, len(s.rows), s.absolute, s.median, s.spread))
	}
	want := []string{"0 step time n3 |10| 10 (20)", "0 forward compute n1 |25| -25 (0)", "1 step time n1 |50| -50 (0)"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if s := sums[0]; s.rows[0].job.ID != "c" || s.rows[2].job.ID != "b" || s.rank != Spearman([]float64{100, 50, 100}, []float64{110, 100, 90}) {
		t.Errorf("fastest %s, slowest %s, rank %g", s.rows[0].job.ID, s.rows[2].job.ID, s.rank)
	}
	steps := func(v float64) [4]float64 { return [4]float64{v} }
	forward := func(v float64) [4]float64 { return [4]float64{0, v} }
	c := &Config{Times: []TimesSpec{{Name: "x", Target: 11, Ratios: [][2]string{{"a", "c"}}, RatioTarget: 5}, {Name: "y", AtMost: steps(49)}}}
	claims := c.timesClaims(rows, sums)
	if len(claims) != 4 || claims[0].Note != "target 11 %: met" || claims[1].Note != "" || claims[3].Verdict != results.Failed {
		t.Errorf("claims %+v", claims)
	}
	// The same as assertions: bounds hold on their edge, fail beyond it, and where
	// nothing was simulated.
	for _, k := range []struct {
		atMost, ratio float64
		first, pair   results.Verdict
	}{{9.99, 22.3, results.Failed, results.Passed}, {10.001, 22.2, results.Passed, results.Failed}} {
		c.Times = []TimesSpec{{Name: "x", AtMost: steps(k.atMost), Ratios: [][2]string{{"a", "c"}}, RatioAtMost: k.ratio}, {Name: "y"}}
		claims := c.timesClaims(rows, sums)
		if claims[0].Verdict != k.first || claims[1].Verdict != results.Reported || claims[2].Verdict != k.pair || claims[3].Verdict != results.Reported {
			t.Errorf("at most %g and %g: %+v", k.atMost, k.ratio, claims)
		}
		c.Times[0].Ratios[0] = [2]string{"c", "a"} // too small as well as too large
		if r := c.timesClaims(rows, sums)[2]; r.Verdict != results.Passed || !strings.Contains(r.Note, "off by 18.2 %") {
			t.Errorf("the other way round: %+v", r)
		}
		c.Times[0].RatioAtMost = 18.1
		if r := c.timesClaims(rows, sums)[2]; r.Verdict != results.Failed {
			t.Errorf("a ratio that is too small: %+v", r)
		}
	}
	// A metric that is not the first of its list.
	for bound, verdict := range map[float64]results.Verdict{24.9: results.Failed, 25.1: results.Passed} {
		c.Times = []TimesSpec{{Name: "x", AtMost: forward(bound)}, {Name: "y"}}
		if claims := c.timesClaims(rows, sums); len(claims) != 3 || claims[0].Verdict != results.Reported || claims[1].Verdict != verdict {
			t.Errorf("forward compute at most %g: %+v", bound, claims)
		}
	}
	none := timesRows([]*CellResult{cell(0, "e", 100, published.Number{Metric: published.Forward, Rank: 1, Value: 4}, published.Number{Metric: published.StepTime, Value: 100})})
	c.Times = []TimesSpec{{Name: "x", AtMost: forward(50)}}
	if claims := c.timesClaims(none, summarise(none)); len(claims) != 2 || claims[0].Verdict != results.Failed || !strings.Contains(claims[0].Name, "forward compute") {
		t.Errorf("an asserted metric that was not simulated: %+v", claims)
	}
	c = &Config{Times: []TimesSpec{{Name: "x", Target: 11, Ratios: [][2]string{{"a", "c"}}, RatioTarget: 5}, {Name: "y", AtMost: steps(49)}}}
	claims = c.timesClaims(rows, sums)
	if r := claims[2]; math.Abs(r.Published-1) > 1e-12 || math.Abs(r.Simulated-110.0/90) > 1e-12 || !strings.Contains(r.Note, "off by 22.2 %; target 5 %: missed") {
		t.Errorf("ratio %+v", r)
	}
}

// TestTimesAsserted: a missed bound of a ratio ends the run with exit code 1.
func TestTimesAsserted(t *testing.T) {
	for _, c := range []struct {
		bound   string
		code    int
		verdict string
	}{{"ratio_at_most = 50", exitDone, "passed"}, {"ratio_at_most = 0.001", exitFailed, "failed"}, {"at_most.step_time = 0.01", exitFailed, "failed"}} {
		file := "name = \"x\"\niterations = 2\nwarmup = 1\n[[times]]\nname = \"a\"\nsource = \"steps\"\nreference = \"step-times\"\nprefix = \"IEVO-00\"\n" +
			"ratios = [\"IEVO-009/IEVO-002\"]\n" + c.bound + "\n"
		code, stdout, stderr := runFile(t, background, file, NewSimulator(), "-out", t.TempDir())
		if code != c.code || !strings.Contains(stdout, c.verdict) {
			t.Errorf("%s: exit code %d, want %d and %s: %s", c.bound, code, c.code, c.verdict, stderr)
		}
	}
}

const timesFile = `
name       = "times"
iterations = 2
warmup     = 1

[[times]]
name      = "here"
source    = "vtrain"
file      = "%s"
node.name = "a100-80-8"
target    = 10

[[times]]
name      = "gone"
source    = "vtrain"
file      = "nowhere/jobs.csv"
node.name = "a100-80-8"

[[times]]
name      = "plans"
source    = "aceso"
file      = "%s"
node.name = "a10g-8"

[quick]
times = ["gone"]
`

// TestTimes runs lists of our own: every job is simulated, an absent file is said
// and left out, and measured kernels add up.
func TestTimes(t *testing.T) {
	dir, err := filepath.Abs("published/testdata")
	if err != nil {
		t.Fatal(err)
	}
	file := fmt.Sprintf(timesFile, filepath.Join(dir, "vtrain.csv"), filepath.Join(dir, "aceso"))
	out := t.TempDir()
	code, stdout, stderr := runFile(t, background, file, NewSimulator(), "-out", out)
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if !strings.Contains(stderr, `fake.toml: times "gone": left out: no nowhere/jobs.csv`) || !strings.Contains(stdout, "absent: no nowhere/jobs.csv") {
		t.Errorf("the absent file is not said:\n%s\n%s", stderr, stdout)
	}
	rows := readCSV(t, filepath.Join(out, "times", "times.csv"))
	if len(rows) != 1+2+10 {
		t.Fatalf("%d rows: %q", len(rows), rows)
	}
	simulated := map[string]float64{}
	for _, r := range rows[1:] {
		v, err := strconv.ParseFloat(r[6], 64)
		if err != nil || v <= 0 {
			t.Errorf("row %q", r)
		}
		simulated[r[1]+" "+r[3]+" "+r[4]] = v
	}
	for s, where := range []string{"stage 0 rank 0", "stage 1 rank 2"} {
		forward, backward := sumOfProfiles(t, filepath.Join(dir, "aceso"), "gpt_tiny_2stages_a", s)
		for metric, want := range map[string]float64{"forward_compute_ms": forward, "backward_compute_ms": backward} {
			if got := simulated["gpt_tiny_2stages_a "+where+" "+metric]; math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%s, %s: %g, sum of the profiles %g", where, metric, got, want)
			}
		}
	}
	if code, _, stderr = runFile(t, background, file, NewSimulator(), "-quick", "-out", out); code != exitInput || !strings.Contains(stderr, "none of the lists of [[times]] has a job here: no nowhere/jobs.csv") {
		t.Errorf("only absent lists: exit code %d, %s", code, stderr)
	}
}

// TestMistStages: two stages of the published plans, whose kernel times through the
// runner are the sums of the profile, computed apart.
func TestMistStages(t *testing.T) {
	const dir = "../../shared/data/op-profiles/mist-a10g"
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		t.Skip("shared data absent: op-profiles/mist-a10g")
	}
	jobs, err := published.Aceso(dir)
	if err != nil {
		t.Fatal(err)
	}
	const name = "gpt_2_6B_3stages_2024-3-22-19-35-2"
	at := slices.IndexFunc(jobs, func(j published.Job) bool { return j.ID == name })
	c, err := Parse("x.toml", "name = \"x\"\niterations = 2\nwarmup = 1\n[[times]]\nname = \"Mist\"\nsource = \"aceso\"\nfile = \"y\"\nnode.name = \"a10g-8\"\n")
	if err != nil {
		t.Fatal(err)
	}
	s := NewSimulator()
	cell, err := c.timesCell(0, &jobs[at], s)
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Run(cell.Points[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []int{0, 1} { // one with tensor 1, one with two replicas
		forward, backward := sumOfProfiles(t, dir, name, stage)
		for _, v := range [][2]float64{{o.Passes[stage].Forward.Milliseconds(), forward}, {o.Passes[stage].Backward.Milliseconds(), backward}} {
			if math.Abs(v[0]/v[1]-1) > 1e-9 {
				t.Errorf("stage %d: %.6f ms, sum of the profile %.6f", stage, v[0], v[1])
			}
		}
	}
}

// sumOfProfiles adds up the profile's times of a stage by itself: forward, and
// backward with what is computed again, in ms over all micro-batches. Backward
// passes but the first add 16-bit gradients to those that are there: 6 bytes per
// element, which are in no profile.
func sumOfProfiles(t *testing.T, dir, plan string, stage int) (forward, backward float64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "plans", plan+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Size   string  `json:"model_size"`
		Layers int     `json:"num_layers"`
		Global int     `json:"global_batch_size"`
		Micro  int     `json:"micro_batch_size"`
		Ops    []int   `json:"num_ops_in_each_stage"`
		TP     [][]int `json:"model_parallel_size_of_each_op"`
		DP     [][]int `json:"data_parallel_size_of_each_op"`
		Again  [][]int `json:"recompute_ops"`
		Algo   [][]int `json:"algo_of_each_op"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	node, err := hw.Load("a10g-8")
	if err != nil {
		t.Fatal(err)
	}
	n := float64(p.Global / p.Micro)
	first := 0
	for s := range stage {
		first += p.Ops[s]
	}
	for k := range p.Ops[stage] {
		rows := readCSV(t, filepath.Join(dir, "profile", fmt.Sprintf("gpt_%s_mbs%d_tp%d_algo%d.csv", p.Size, p.Micro/p.DP[stage][k], p.TP[stage][k], p.Algo[stage][k])))
		// The embedding, layers of thirteen in the order of the table, and two more.
		line := 1 + first + k
		if i := first + k; i > 0 && i <= 13*p.Layers {
			line = 2 + (i-1)%13
		} else if i > 0 {
			line = 2 + 13 + i - 13*p.Layers - 1
		}
		f, err1 := strconv.ParseFloat(rows[line][1], 64)
		b, err2 := strconv.ParseFloat(rows[line][2], 64)
		mib, err3 := strconv.ParseFloat(rows[line][5], 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		forward += f
		backward += b + float64(p.Again[stage][k])*f
		if mib > 0 {
			add := node.Device.Timing(hw.Work{Family: hw.Elementwise, Traffic: sim.Bytes(6 * mib * (1 << 19))})
			backward += add.Span.Microseconds() * (n - 1) / n
		}
	}
	return forward * n / 1000, backward * n / 1000
}

func readCSV(t *testing.T, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestTimesErrors(t *testing.T) {
	list := "[[times]]\nname = \"a\"\nsource = \"steps\"\nreference = \"step-times\"\n"
	for _, c := range []struct{ name, text, want string }{
		{"strategies", list + "[[strategy]]\nname = \"x\"\n", "strategy: a file with [[times]] has none"},
		{"axes", list + "[axes]\nseed = [1]\n", "axes: a file with [[times]] has none"},
		{"twice", list + list, `fake.toml:9: times[1].name = "a": another list has this name`},
		{"no name", "[[times]]\nsource = \"vtrain\"\n", "times[0].name: missing"},
		{"no source", "[[times]]\nname = \"a\"\n", "times[0].source: missing; allowed: vtrain, steps, aceso"},
		{"source", "[[times]]\nname = \"a\"\nsource = \"vtrian\"\n", "vtrian"},
		{"no file", "[[times]]\nname = \"a\"\nsource = \"vtrain\"\n", "times[0].file: want either that, a path, or reference"},
		{"reference", "[[times]]\nname = \"a\"\nsource = \"steps\"\nreference = \"step-time\"\n", `"step-time": no such reference; nearest is step-times`},
		{"reference of others", "[[times]]\nname = \"a\"\nsource = \"aceso\"\nreference = \"step-times\"\n", `committed tables are for source = "steps"`},
		{"prefix", list + "prefix = \"X-\"\n", `times "a": step-times: no job whose id begins with "X-"`},
		{"ratio", list + "ratios = [\"KOR-034\"]\n", `want two jobs such as "KOR-034/KOR-035"`},
		{"bound of 0", list + "at_most.step_time = 0\n", `times[0].at_most.step_time = 0: want a number above 0, at most 1000`},
		{"bound of nothing", list + "at_most = 10\n", `times[0].at_most = 10: want a table; its keys: step_time, forward_compute, backward_compute, peak_allocated`},
		{"bound of an unknown metric", list + "at_most.peak_alloc = 10\n", `times[0].at_most.peak_alloc: unknown key; nearest is peak_allocated`},
		{"bound of a metric not there", list + "at_most.peak_allocated = 10\n", `fake.toml:8: times[0].at_most.peak_allocated = 10: no job of the list that can run has such a number`},
		{"bound", list + "ratio_at_most = -1\n", `times[0].ratio_at_most = -1: want a number above 0, at most 1000`},
		{"ratio bound", list + "ratio_at_most = 5\n", `times[0].ratio_at_most = 5: want ratios to hold against it`},
		{"ratio of left out", list + "prefix = \"KOR-\"\nevery = 100\nratios = [\"KOR-034/KOR-035\"]\nratio_at_most = 5\n", `times[0].ratios: no job "KOR-034" in the list`},
		{"ratio job", list + "ratios = [\"KOR-034/KOR-999\"]\n", `times[0].ratios: no job "KOR-999" in the list`},
		{"node", "[[times]]\nname = \"a\"\nsource = \"vtrain\"\nfile = \"%s\"\nnode.name = \"a100\"\n", `times "a": line 2: node.name: unknown node "a100"`},
		{"key", list + "files = \"x\"\n", "unknown key; nearest is file"},
	} {
		path, err := filepath.Abs("published/testdata/vtrain.csv")
		if err != nil {
			t.Fatal(err)
		}
		text := "name = \"x\"\niterations = 2\nwarmup = 1\n" + strings.ReplaceAll(c.text, "%s", path)
		code, _, stderr := runFile(t, background, text, NewSimulator(), "-list")
		if code != exitInput || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q, want %q in one line", c.name, code, stderr, c.want)
		}
	}
}
