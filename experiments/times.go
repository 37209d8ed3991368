package experiments

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"smartswap/eager"
	"smartswap/eager/stream"
	"smartswap/experiments/published"
	"smartswap/paper"
	"smartswap/profilers"
	"smartswap/results"
	"smartswap/sim"
)

// TimesSpec asks for a comparison with measured times of a list of jobs. A file
// with such lists has no strategies: every job is a cell of one point, with
// unbounded HBM and no policy, the list its column and the job its strategy.
type TimesSpec struct {
	Name   string
	Source string // reader: "vtrain", "steps", "aceso"
	File   string // vtrain: the table, aceso: the folder; relative to the experiment file
	// Reference, of steps, is a committed table in place of File; Prefix chooses
	// the jobs whose ids begin with it.
	Reference, Prefix string
	// Node has "name", for lists that do not say it, and overrides.
	Node map[string]any
	// Every takes only each n-th job, for quick forms; 0 = all.
	Every int64
	// Target is the median error in percent that is aimed at, of the first metric,
	// reported; AtMost, by timesMetrics, are those that are asserted, aimed at where
	// Target does not say it. 0 = none.
	Target float64
	AtMost [len(timesMetrics)]float64
	// Ratios are pairs of jobs whose step times are compared with each other;
	// RatioTarget is the error in percent that is aimed at, RatioAtMost one that is
	// asserted of each.
	Ratios                   [][2]string
	RatioTarget, RatioAtMost float64
}

// timesMetrics are the names of metrics in summaries; in files, the keys of bounds.
var timesMetrics = [...]string{"step time", "forward compute", "backward compute", "peak allocated"}

// atMost is the asserted median error of a metric; 0 = none.
func (t *TimesSpec) atMost(metric string) float64 {
	return t.AtMost[slices.Index(timesMetrics[:], metric)]
}

// target is the median error that is aimed at in a metric, the first of the list or
// a later one; 0 = none.
func (t *TimesSpec) target(metric string, first bool) float64 {
	if first && t.Target > 0 {
		return t.Target
	}
	return t.atMost(metric)
}

func (t *TimesSpec) fields() []field {
	percent := func(p *float64) func(any) error {
		return func(v any) error {
			if err := number(p, 0, 1000)(v); err != nil || *p == 0 { // 0 is none
				return fmt.Errorf("want a number above 0, at most 1000")
			}
			return nil
		}
	}
	bounds := make([]field, len(timesMetrics))
	for i, m := range timesMetrics {
		bounds[i] = field{key: strings.ReplaceAll(m, " ", "_"), set: percent(&t.AtMost[i])}
	}
	return []field{
		{key: "name", set: text(&t.Name)},
		{key: "source", set: choice(&t.Source, "vtrain", "steps", "aceso")},
		{key: "file", set: text(&t.File)},
		{key: "reference", set: text(&t.Reference)},
		{key: "prefix", set: text(&t.Prefix)},
		{key: "node", free: &t.Node},
		{key: "every", set: integer(&t.Every, 1, maxCells)},
		{key: "target", set: percent(&t.Target)},
		{key: "at_most", sub: bounds},
		{key: "ratios", set: func(v any) error {
			var list []string
			if err := texts(&list)(v); err != nil {
				return err
			}
			t.Ratios = nil
			for _, s := range list {
				over, under, ok := strings.Cut(s, "/")
				if !ok {
					return fmt.Errorf(`element %q: want two jobs such as "KOR-034/KOR-035"`, s)
				}
				t.Ratios = append(t.Ratios, [2]string{over, under})
			}
			return nil
		}},
		{key: "ratio_target", set: percent(&t.RatioTarget)},
		{key: "ratio_at_most", set: percent(&t.RatioAtMost)},
	}
}

// checkTimes checks what lists say about each other and the rest of the file.
func (c *Config) checkTimes() error {
	for _, other := range []struct {
		key   string
		there bool
	}{{"strategy", c.Strategies != nil}, {"column", c.Columns != nil}, {"axes", c.Axes != nil}, {"claim", c.Claims != nil}, {"table", c.Tables != nil}, {"figure", c.Figures != nil}} {
		if other.there {
			return &keyError{other.key, ": a file with [[times]] has none; each job of a list is a cell"}
		}
	}
	for i := range c.Times {
		t, path := &c.Times[i], fmt.Sprintf("times[%d]", i)
		for _, other := range c.Times[:i] {
			if other.Name == t.Name {
				return &keyError{path + ".name", fmt.Sprintf(" = %q: another list has this name", t.Name)}
			}
		}
		switch {
		case t.Name == "":
			return &keyError{path + ".name", ": missing; want a name for tables"}
		case t.Source == "":
			return &keyError{path + ".source", ": missing; allowed: vtrain, steps, aceso"}
		case (t.File == "") == (t.Reference == ""):
			return &keyError{path + ".file", ": want either that, a path, or reference, a committed table"}
		case t.Reference != "" && t.Source != "steps":
			return &keyError{path + ".reference", fmt.Sprintf(" = %q: committed tables are for source = \"steps\"", t.Reference)}
		}
		if t.RatioAtMost > 0 && t.Ratios == nil {
			return &keyError{path + ".ratio_at_most", fmt.Sprintf(" = %g: want ratios to hold against it", t.RatioAtMost)}
		}
		if t.Reference != "" {
			if _, err := results.Reference(t.Reference); err != nil {
				return &keyError{path + ".reference", fmt.Sprintf(" = %q: %v", t.Reference, err)}
			}
		}
	}
	return nil
}

// timesJob is the job behind a cell.
type timesJob struct {
	list int // in Config.Times
	published.Job
	peak float64 // nominal 16-bit rate of the device, in flop/s
}

// has tells whether a number of the metric was published.
func (j *timesJob) has(metric string) bool {
	return slices.ContainsFunc(j.Numbers, func(n published.Number) bool { return metricName(n.Metric) == metric })
}

// leftOut is why a list, or jobs of it, are not in the comparison.
type leftOut struct {
	list int
	jobs int // 0 = the whole list: its file is absent
	why  string
}

// openTimes reads the jobs of list i. A file that is absent is no error: its list is
// left out, so that the others can be compared without it.
func (c *Config) openTimes(i int) ([]published.Job, *leftOut, error) {
	t := &c.Times[i]
	if t.Source == "aceso" {
		dir := c.relative(t.File)
		jobs, err := published.Aceso(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &leftOut{list: i, why: "no " + t.File}, nil
		}
		return jobs, nil, err
	}
	var in io.ReadCloser
	var err error
	name := t.File
	if t.Reference != "" {
		name = t.Reference
		in, err = results.OpenReference(t.Reference)
	} else {
		in, err = os.Open(c.relative(t.File))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &leftOut{list: i, why: "no " + name}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	var jobs []published.Job
	if t.Source == "vtrain" {
		jobs, err = published.VTrain(in, name)
	} else {
		jobs, err = published.Steps(in, name, t.Prefix)
	}
	if err == nil && len(jobs) == 0 {
		err = fmt.Errorf("%s: no job whose id begins with %q", name, t.Prefix)
	}
	return jobs, nil, err
}

// relative is a path of the file, relative to its folder.
func (c *Config) relative(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.dir(), path)
}

// timesCells makes a cell of every job of every list. Jobs that cannot exist here
// are left out and counted.
func (c *Config) timesCells(r Runner) (cells []*Cell, left []leftOut, err error) {
	for i := range c.Times {
		t := &c.Times[i]
		jobs, absent, err := c.openTimes(i)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: times %q: %w", c.Path, t.Name, err)
		}
		if absent != nil {
			left = append(left, *absent)
			continue
		}
		for n := range jobs {
			if t.Every > 0 && int64(n)%t.Every != 0 {
				continue
			}
			cell, err := c.timesCell(i, &jobs[n], r)
			var none *Impossible
			switch {
			case errors.As(err, &none):
				left = append(left, leftOut{i, 1, jobs[n].ID + ": " + none.Reason})
			case err != nil:
				return nil, nil, fmt.Errorf("%s: times %q: %s: %w", c.Path, t.Name, jobs[n].ID, err)
			default:
				cells = append(cells, cell)
			}
		}
		for k, metric := range timesMetrics {
			if t.AtMost[k] > 0 && !slices.ContainsFunc(cells, func(c *Cell) bool { return c.job.list == i && c.job.has(metric) }) {
				return nil, nil, c.explain(&keyError{fmt.Sprintf("times[%d].at_most.%s", i, strings.ReplaceAll(metric, " ", "_")),
					fmt.Sprintf(" = %g: no job of the list that can run has such a number", t.AtMost[k])})
			}
		}
		for _, pair := range t.Ratios {
			for _, id := range pair {
				if !slices.ContainsFunc(cells, func(c *Cell) bool { return c.job.list == i && c.job.ID == id }) && (t.Every == 0 || t.RatioAtMost > 0) {
					return nil, nil, c.explain(&keyError{fmt.Sprintf("times[%d].ratios", i), fmt.Sprintf(": no job %q in the list", id)})
				}
			}
		}
	}
	return cells, left, nil
}

func (c *Config) timesCell(list int, j *published.Job, r Runner) (*Cell, error) {
	p := &Point{Setup: c.base, Dir: c.dir(), MicroBatch: j.MicroBatch, Recompute: j.Recompute}
	for _, s := range c.Settings {
		if err := assign(p.Setup.fields(), "", splitKey(s.Key), s.Value); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Origin, err)
		}
	}
	node := map[string]any{}
	for _, table := range []map[string]any{c.Times[list].Node, p.Node} { // settings win
		for k, v := range table {
			node[k] = v
		}
	}
	if j.Node != "" {
		node["name"] = j.Node
	}
	p.Node = node
	p.Strategy = Strategy{Name: j.ID, Policy: "none", Profiler: "none", Ideal: true, VPP: 1, ZeRO: 1, Recompute: []string{"none"}, MicroBatch: []int64{1}}
	job := &timesJob{list: list, Job: *j}
	if j.Trace != "" {
		p.Workload = Workload{Kind: "trace", Trace: j.Trace}
		p.Passes = true
	} else {
		node["devices"] = j.Devices
		p.Layout = Layout{TP: j.TP, PP: j.PP, DP: j.DP}
		p.Strategy.VPP, p.Strategy.ZeRO = j.VPP, j.ZeRO
		p.Strategy.Layouts, p.Strategy.Recompute, p.Strategy.MicroBatch = []Layout{p.Layout}, []string{j.Recompute}, []int64{j.MicroBatch}
		p.Workload = Workload{Kind: "decoder", Shape: &job.Model, Seq: j.Seq, TokensPerStep: j.GlobalBatch * j.Seq, Save: "minimal",
			Attention: j.Attention, Framework: j.Framework, SequenceParallel: j.SequenceParallel, Fold: true}
	}
	if err := r.Check(p); err != nil {
		return nil, err
	}
	n, err := loadNode(node)
	if err != nil {
		return nil, err
	}
	job.peak = n.Device.Peak16
	return &Cell{Column: c.Times[list].Name, Strategy: j.ID, Points: []*Point{p}, job: job}, nil
}

// PassOutcome is the kernel time of a simulated rank by kind of pass.
type PassOutcome struct{ Forward, Backward sim.Time }

// passObserver adds up kernels of counted iterations by kind of pass.
type passObserver struct {
	warmup int
	ranks  []PassOutcome
}

func (*passObserver) Host(*eager.HostSpan)                   {}
func (*passObserver) Memory(*eager.MemoryEvent)              {}
func (*passObserver) Counters(int, sim.Time, eager.Counters) {}

func (o *passObserver) Rank(info eager.RankInfo) {
	for len(o.ranks) <= info.Rank {
		o.ranks = append(o.ranks, PassOutcome{})
	}
}

func (o *passObserver) Device(s *eager.DeviceSpan) {
	if s.Place.Iteration < o.warmup || s.Stream != stream.Compute {
		return
	}
	switch r := &o.ranks[s.Rank]; s.Place.Stage.Phase {
	case profilers.Forward:
		r.Forward += s.End - s.Start
	case profilers.Backward:
		r.Backward += s.End - s.Start
	}
}

// timesRow is a published number beside the simulated one.
type timesRow struct {
	job       *timesJob
	number    published.Number
	simulated float64
	// longer is the relative error of the time behind the number: positive where
	// the simulated job is slower. Of numbers that are no times, of the number.
	longer float64
}

// timesRows compares every number of every job. All cells are finished.
func timesRows(cells []*CellResult) []timesRow {
	var list []timesRow
	for _, c := range cells {
		job := c.Cell.job
		o := &c.Results[0].Outcome
		for _, n := range job.Numbers {
			row := timesRow{job: job, number: n}
			pass := func(of func(PassOutcome) sim.Time) float64 {
				if n.Rank >= len(o.Passes) {
					return math.NaN()
				}
				return of(o.Passes[n.Rank]).Milliseconds()
			}
			switch n.Metric {
			case published.Forward:
				row.simulated = pass(func(p PassOutcome) sim.Time { return p.Forward })
			case published.Backward:
				row.simulated = pass(func(p PassOutcome) sim.Time { return p.Backward })
			case published.Allocated:
				row.simulated = math.NaN()
				if n.Rank < len(o.Allocated) {
					row.simulated = float64(o.Allocated[n.Rank])
				}
			default:
				row.simulated = job.Simulated(n.Metric, o.Time.Milliseconds(), job.peak)
			}
			row.longer = row.simulated/n.Value - 1
			if n.Metric.Better() {
				row.longer = n.Value/row.simulated - 1
			}
			list = append(list, row)
		}
	}
	return list
}

// stepMetric tells whether a metric is another way to say the time of a step.
func stepMetric(m published.Metric) bool { return m == published.StepTime || m.Better() }

// metricName is what a summary calls a metric.
func metricName(m published.Metric) string {
	if stepMetric(m) {
		return "step time"
	}
	return strings.NewReplacer("_ms", "", "_bytes", "", "_", " ").Replace(string(m))
}

// timesSummary is one source's errors in one metric, in percent.
type timesSummary struct {
	list                     int
	metric                   string
	rows                     []*timesRow // by error
	absolute, median, spread float64     // medians of |error| and error; of |error - median|
	rank                     float64     // Spearman
}

// summarise groups rows by list and metric, in the order of their first.
func summarise(rows []timesRow) []*timesSummary {
	var list []*timesSummary
	for i := range rows {
		r := &rows[i]
		if math.IsNaN(r.longer) {
			continue
		}
		name := metricName(r.number.Metric)
		at := slices.IndexFunc(list, func(s *timesSummary) bool { return s.list == r.job.list && s.metric == name })
		if at < 0 {
			at = len(list)
			list = append(list, &timesSummary{list: r.job.list, metric: name})
		}
		list[at].rows = append(list[at].rows, r)
	}
	for _, s := range list {
		var signed, absolute, spread, measured, simulated []float64
		for _, r := range s.rows {
			signed = append(signed, 100*r.longer)
			absolute = append(absolute, 100*math.Abs(r.longer))
			simulated = append(simulated, r.time(r.simulated))
			measured = append(measured, r.time(r.number.Value))
		}
		s.absolute, s.median = median(absolute), median(signed)
		for _, e := range signed {
			spread = append(spread, math.Abs(e-s.median))
		}
		s.spread = median(spread)
		s.rank = Spearman(measured, simulated)
		sort.SliceStable(s.rows, func(a, b int) bool { return s.rows[a].longer < s.rows[b].longer })
	}
	return list
}

// time is the step time in ms behind a value of the row's metric; the value itself
// where it says no step time.
func (r *timesRow) time(value float64) float64 {
	switch r.number.Metric {
	case published.TokenRate:
		return 1000 * float64(r.job.GlobalBatch*r.job.Seq) / float64(r.job.Devices) / value
	case published.ModelShare:
		return 1000 * 100 * r.job.ModelFlops() / (value * r.job.peak * float64(r.job.Devices))
	}
	return value
}

// median is the middle of values, the mean of the two middle ones; NaN of none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	v := slices.Clone(values)
	slices.Sort(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// Spearman is the rank correlation of paired values: the correlation of their
// ranks, equal values sharing the mean of theirs. NaN with fewer than two pairs or
// where all values of one side are equal. O(n log n).
func Spearman(a, b []float64) float64 {
	n := len(a)
	if n != len(b) || n < 2 {
		return math.NaN()
	}
	x, y := ranks(a), ranks(b)
	mean := float64(n+1) / 2
	var xy, xx, yy float64
	for i := range x {
		dx, dy := x[i]-mean, y[i]-mean
		xy, xx, yy = xy+dx*dy, xx+dx*dx, yy+dy*dy
	}
	return xy / math.Sqrt(xx*yy)
}

// ranks are those of values from 1, ties with their mean.
func ranks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return values[order[a]] < values[order[b]] })
	out := make([]float64, len(values))
	for lo := 0; lo < len(order); {
		hi := lo
		for hi < len(order) && values[order[hi]] == values[order[lo]] {
			hi++
		}
		for _, i := range order[lo:hi] {
			out[i] = float64(lo+1+hi) / 2
		}
		lo = hi
	}
	return out
}

// timesFrame is times.csv.
func (c *Config) timesFrame(rows []timesRow) *results.Frame {
	f := &results.Frame{Columns: []results.Column{
		{Name: "source", Kind: results.Text, About: "list of jobs"},
		{Name: "id", Kind: results.Text, About: "job"},
		{Name: "model", Kind: results.Text, About: "its model"},
		{Name: "where", Kind: results.Text, About: "part of the job that the number is about; empty: all"},
		{Name: "metric", Kind: results.Text, About: "what was measured, with its unit"},
		{Name: "published", Kind: results.Real, About: "measured number"},
		{Name: "simulated", Kind: results.Real, About: "simulated number"},
		{Name: "error_percent", Kind: results.Real, About: "simulated over measured time, less one; of rates the other way round"},
		{Name: "reference", Kind: results.Text, About: "where the number stands"},
		{Name: "note", Kind: results.Text, About: "what else must be known"},
	}}
	for i := range rows {
		r := &rows[i]
		f.Rows = append(f.Rows, []results.Value{
			results.TextValue(c.Times[r.job.list].Name), results.TextValue(r.job.ID), results.TextValue(r.job.Model.Name),
			results.TextValue(r.number.Where), results.TextValue(string(r.number.Metric)),
			results.RealValue(r.number.Value), results.RealValue(r.simulated), results.RealValue(100 * r.longer),
			results.TextValue(r.job.Source), results.TextValue(r.job.Note),
		})
	}
	return f
}

// timesTable has a line per source and metric, and one per source that is absent.
func (c *Config) timesTable(sums []*timesSummary, left []leftOut) *paper.Table {
	t := &paper.Table{Title: c.Title, Columns: []paper.Column{
		{Name: "source"}, {Name: "metric"}, {Name: "numbers", Number: true}, {Name: "left out", Number: true},
		{Name: "median |error| %", Number: true}, {Name: "target %", Number: true}, {Name: "median error %", Number: true},
		{Name: "spread about it %", Number: true}, {Name: "fastest %", Number: true}, {Name: "of"}, {Name: "slowest %", Number: true}, {Name: "of"}, {Name: "Spearman", Number: true},
	}}
	number := func(v float64) string {
		if math.IsNaN(v) {
			return ""
		}
		return fmt.Sprintf("%.1f", v)
	}
	for i := range c.Times {
		out := 0
		for _, l := range left {
			if l.list != i {
				continue
			}
			out += l.jobs
			if l.jobs == 0 {
				t.Rows = append(t.Rows, []string{c.Times[i].Name, "absent: " + l.why, "0", "", "", "", "", "", "", "", "", "", ""})
			}
		}
		first := true
		for _, s := range sums {
			if s.list != i {
				continue
			}
			target, gone := "", ""
			if aim := c.Times[i].target(s.metric, first); aim > 0 {
				target = number(aim)
			}
			if first {
				gone = fmt.Sprint(out)
			}
			first = false
			low, high := s.rows[0], s.rows[len(s.rows)-1]
			t.Rows = append(t.Rows, []string{c.Times[i].Name, s.metric, fmt.Sprint(len(s.rows)), gone,
				number(s.absolute), target, number(s.median), number(s.spread), number(100 * low.longer), low.name(), number(100 * high.longer), high.name(), fmt.Sprintf("%.3f", s.rank)})
		}
	}
	t.Notes = append(t.Notes, "Errors are of times: above 0 the simulated job is slower. The spread is the median distance from the median error.")
	return t
}

func (r *timesRow) name() string { return strings.TrimSpace(r.job.ID + " " + r.number.Where) }

// timesClaims are the medians beside their targets and bounds, and ratios of two
// jobs. A bound on numbers none of which was simulated fails.
func (c *Config) timesClaims(rows []timesRow, sums []*timesSummary) []results.Claim {
	met := func(yes bool) string {
		if yes {
			return "met"
		}
		return "missed"
	}
	var list []results.Claim
	for i := range c.Times {
		t := &c.Times[i]
		first := true
		for k, metric := range timesMetrics {
			of := func(r timesRow) bool { return r.job.list == i && metricName(r.number.Metric) == metric }
			if t.AtMost[k] > 0 && slices.ContainsFunc(rows, of) && !slices.ContainsFunc(sums, func(s *timesSummary) bool { return s.list == i && s.metric == metric }) {
				line := results.Claim{Name: t.Name + ": " + metric, Statistic: "median |error|", Unit: "%", Published: math.NaN(), Simulated: math.NaN()}
				line.Assert(math.NaN(), t.AtMost[k])
				list = append(list, line)
			}
		}
		for _, s := range sums {
			if s.list != i {
				continue
			}
			line := results.Claim{Name: t.Name + ": " + s.metric, Statistic: "median |error|", Where: fmt.Sprintf("%d numbers", len(s.rows)), Unit: "%",
				Published: math.NaN(), Simulated: s.absolute, Verdict: results.Reported}
			if aim := t.target(s.metric, first); aim > 0 {
				line.Note = fmt.Sprintf("target %g %%: %s", aim, met(s.absolute <= aim))
			}
			if bound := t.atMost(s.metric); bound > 0 {
				line.Assert(math.NaN(), bound)
			}
			first = false
			list = append(list, line)
		}
		step := func(id string) *timesRow {
			at := slices.IndexFunc(rows, func(r timesRow) bool { return r.job.list == i && r.job.ID == id && stepMetric(r.number.Metric) })
			if at < 0 {
				return nil
			}
			return &rows[at]
		}
		for _, pair := range t.Ratios {
			over, under := step(pair[0]), step(pair[1])
			if over == nil || under == nil {
				continue
			}
			simulated := over.time(over.simulated) / under.time(under.simulated)
			line := results.Claim{Name: t.Name + ": ratio of step times", Statistic: "ratio", Where: pair[0] + " over " + pair[1],
				Published: over.time(over.number.Value) / under.time(under.number.Value), Simulated: simulated, Verdict: results.Reported, Source: over.job.Source}
			off := 100 * math.Abs(line.Ratio()-1)
			line.Note = fmt.Sprintf("off by %.1f %%", off)
			if t.RatioTarget > 0 {
				line.Note += fmt.Sprintf("; target %g %%: %s", t.RatioTarget, met(off <= t.RatioTarget))
			}
			if by := t.RatioAtMost / 100; by > 0 {
				line.Assert(line.Published*(1-by), line.Published*(1+by))
			}
			list = append(list, line)
		}
	}
	return list
}
