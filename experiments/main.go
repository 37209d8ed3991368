package experiments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	stdflag "flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"smartswap/internal/nearest"
	"smartswap/internal/paths"
	"smartswap/paper"
	"smartswap/results"
)

// Exit codes of the command.
const (
	exitDone   = 0
	exitFailed = 1 // a run or an asserted claim failed, results differ, or an interruption
	exitInput  = 2 // unusable flags or experiment file
)

const usage = `usage: experiment CONFIG.toml [flags]

Runs the experiment and writes its rows, tables, figures, claims and manifest
to OUT/NAME. See configs/fig7.toml for what a file may say.

flags:
`

// command is the parsed command line.
type command struct {
	config   string
	out      string
	golden   string
	parallel int
	seed     int64
	sets     []string
	list     bool
	check    bool
	regen    bool
	quick    bool
	resume   bool
	merge    bool
	timeline string
	shard    string
	shardAt  int // of shards; -1 = all cells
	shards   int
}

// Main is the experiment command: it returns the exit code and touches no
// other global state. Tables go to stdout, progress and errors to stderr. When
// ctx ends, finished cells are written and the code is 1.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return run(ctx, args, stdout, stderr, NewSimulator(), results.BuildCode)
}

// run is Main with a Runner and an identity of the caller's choice.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, r Runner, code func() results.Code) int {
	cmd, err := parseArgs(args, stderr)
	switch {
	case errors.Is(err, stdflag.ErrHelp):
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "experiment:", err)
		return exitInput
	}
	e, err := prepare(cmd, r)
	if err != nil {
		fmt.Fprintln(stderr, "experiment:", err)
		return exitInput
	}
	if cmd.list {
		e.list(stdout)
		return exitDone
	}
	golden := filepath.Join(cmd.golden, e.name, "rows.csv")
	if _, err := os.Stat(golden); cmd.check && err != nil {
		if folder, err := os.Stat(cmd.golden); err != nil || !folder.IsDir() {
			fmt.Fprintf(stderr, "experiment: -check: nothing was compared: %s is sound, but there is no folder %s here; run this where the project is, or name the folder with -golden\n", cmd.config, cmd.golden)
			return exitInput
		}
		fmt.Fprintf(stdout, "%s: sound, %d cells; nothing was compared: no %s, which -regen writes\n", cmd.config, len(e.cells), golden)
		return exitDone
	}
	e.code = code
	if err := e.run(ctx, stdout, stderr, golden); err != nil {
		fmt.Fprintln(stderr, "experiment:", err)
		return exitFailed
	}
	return exitDone
}

// settingList collects -set flags.
type settingList []string

func (l *settingList) String() string     { return strings.Join(*l, " ") }
func (l *settingList) Set(s string) error { *l = append(*l, s); return nil }

// parseArgs reads flags before and after the config path.
func parseArgs(args []string, stderr io.Writer) (*command, error) {
	cmd := &command{shardAt: -1, shards: 1, seed: -1}
	fs := stdflag.NewFlagSet("experiment", stdflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&cmd.out, "out", filepath.Join("results", "out"), "`folder` for results")
	fs.StringVar(&cmd.golden, "golden", filepath.Join("results", "golden"), "`folder` of committed results")
	fs.IntVar(&cmd.parallel, "parallel", runtime.GOMAXPROCS(0), "`workers`; the results do not depend on them")
	fs.Func("seed", "`number`, 0 or more, in place of the file's seed", func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return errors.New("want a whole number from 0")
		}
		cmd.seed = n
		return nil
	})
	fs.Var((*settingList)(&cmd.sets), "set", "`key=value` replaces a value of the file; may be repeated, e.g. -set node.link.rate=55GB/s")
	fs.BoolVar(&cmd.list, "list", false, "list the cells and their points, run nothing")
	fs.BoolVar(&cmd.check, "check", false, "check the file; run and compare if the folder of -golden, which must exist, has results of it")
	fs.BoolVar(&cmd.regen, "regen", false, "run and replace the committed results")
	fs.BoolVar(&cmd.quick, "quick", false, "the file's [quick] form")
	fs.BoolVar(&cmd.resume, "resume", false, "keep each simulation's outcome, and reuse those kept by the same program")
	fs.StringVar(&cmd.timeline, "timeline", "", "write timelines of each cell's answer to this `folder`: a trace for Perfetto, memory over time, memory tables of the Ascend profiler, a snapshot for memory_viz")
	fs.StringVar(&cmd.shard, "shard", "", "run cells `i/n` (0 <= i < n) and keep the outcomes for -merge")
	fs.BoolVar(&cmd.merge, "merge", false, "write results from the outcomes that shards kept")
	var paths []string
	for rest := args; ; {
		if err := fs.Parse(rest); err != nil {
			if errors.Is(err, stdflag.ErrHelp) {
				fmt.Fprint(stderr, usage)
				fs.SetOutput(stderr)
				fs.PrintDefaults()
			}
			return nil, err
		}
		if fs.NArg() == 0 {
			break
		}
		paths, rest = append(paths, fs.Arg(0)), fs.Args()[1:]
	}
	switch {
	case len(paths) != 1:
		return nil, fmt.Errorf("%d experiment files given, want one: experiment CONFIG.toml [flags]", len(paths))
	case cmd.parallel < 1 || cmd.parallel > 4096:
		return nil, fmt.Errorf("-parallel %d: want from 1 to 4096 workers", cmd.parallel)
	case cmd.timeline != "" && (cmd.shard != "" || cmd.check):
		return nil, errors.New("-timeline and -shard or -check: want one of them; -timeline goes with a whole run or -merge")
	case cmd.check && cmd.regen:
		return nil, errors.New("-check and -regen: want one of them")
	case cmd.shard != "" && (cmd.check || cmd.regen):
		return nil, errors.New("-shard and -check or -regen: want one of them; -check and -regen go with a whole run or -merge")
	case cmd.merge && cmd.shard != "":
		return nil, errors.New("-merge and -shard: want one of them")
	}
	cmd.config = paths[0]
	if cmd.shard != "" {
		i, n, ok := strings.Cut(cmd.shard, "/")
		var err1, err2 error
		cmd.shardAt, err1 = strconv.Atoi(i)
		cmd.shards, err2 = strconv.Atoi(n)
		if !ok || err1 != nil || err2 != nil || cmd.shardAt < 0 || cmd.shardAt >= cmd.shards {
			return nil, fmt.Errorf("-shard %s: want i/n with 0 <= i < n", cmd.shard)
		}
	}
	return cmd, nil
}

// experiment is a checked file, ready to run.
type experiment struct {
	*Config
	cmd    *command
	name   string
	folder string // OUT/NAME
	runner Runner
	watch  observable // for -timeline
	cells  []*Cell
	hash   string // of file and settings
	left   []leftOut
	// compared is what came of [[times]]; nil without.
	compared *comparison
	code     func() results.Code
}

// comparison is what [[times]] adds to the files of a run.
type comparison struct {
	rows  *results.Frame
	table *paper.Table
}

// checkCell checks what the points of a cell share, and that one of them exists.
func checkCell(cell *Cell, r Runner) error {
	var first *Impossible
	for _, p := range cell.Points {
		err := r.Check(p)
		var absent *Impossible
		if !errors.As(err, &absent) {
			return err
		}
		if first == nil {
			first = absent
		}
	}
	if cell.Points[0].Search.Key != "" {
		return nil // another value may do
	}
	return &keyError{"strategy", fmt.Sprintf(": no job exists for any layout, recomputation and micro-batch; the first because %s", first.Reason)}
}

// prepare loads the file, applies settings and checks every cell.
func prepare(cmd *command, r Runner) (*experiment, error) {
	config, err := Load(cmd.config)
	if err != nil {
		return nil, err
	}
	if err := config.applySettings(cmd); err != nil {
		return nil, err
	}
	e := &experiment{Config: config, cmd: cmd, name: config.Name}
	if cmd.quick {
		e.name += "-quick"
	}
	e.folder = filepath.Join(cmd.out, e.name)
	if config.Times != nil {
		if e.cells, e.left, err = config.timesCells(r); err != nil {
			return nil, err
		}
		if len(e.cells) == 0 {
			return nil, fmt.Errorf("%s: none of the lists of [[times]] has a job here: %s", config.Path, e.left[0].why)
		}
	} else if e.cells, err = config.Cells(r.Devices); err != nil {
		return nil, err
	}
	for _, cell := range e.cells {
		if cell.job != nil {
			break // checked when it was made
		}
		if err := checkCell(cell, r); err != nil {
			return nil, config.blame(cell, err)
		}
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%v\n", config.Text, e.settings())
	e.hash = hex.EncodeToString(h.Sum(nil))

	var ok bool
	if e.watch, ok = r.(observable); cmd.timeline != "" && !ok {
		return nil, errors.New("-timeline: this runner cannot be observed")
	}
	kept := ""
	if cmd.resume || cmd.merge || cmd.shard != "" {
		program, err := programHash()
		if err != nil {
			return nil, err
		}
		kept = filepath.Join(e.folder, "points-"+program)
	}
	e.runner = newMemo(r, kept, cmd.merge)
	return e, nil
}

// settings lists what differs from the file.
func (c *Config) settings() []string {
	var list []string
	for _, s := range c.Settings {
		list = append(list, s.Key+" = "+show(s.Value))
	}
	return list
}

// applySettings brings -quick, -seed and -set into the configuration.
func (c *Config) applySettings(cmd *command) error {
	if cmd.quick {
		if c.quick == nil {
			return fmt.Errorf("%s: -quick: the file has no [quick]", c.Path)
		}
		if err := c.applyQuick(); err != nil {
			return c.explain(err)
		}
	}
	if cmd.seed >= 0 {
		c.Settings = append(c.Settings, Setting{"seed", cmd.seed, "-seed"})
	}
	for _, s := range cmd.sets {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return fmt.Errorf("-set %s: want key=value", s)
		}
		set, err := c.shellSetting(strings.TrimSpace(key), parseValue(value))
		if err != nil {
			return fmt.Errorf("-set %s: %w", s, err)
		}
		c.Settings = append(c.Settings, set...)
	}
	c.settleMemory()
	return c.settleSeries()
}

// settleMemory lets a setting of the device memory take the place of an axis that
// says it the other way, as a size or a percentage: with both no cell could run.
// The axis keeps its place and gets the setting's key and values.
func (c *Config) settleMemory() {
	other := map[string]string{"node.device.hbm": "hbm_percent", "hbm_percent": "node.device.hbm"}
	for _, s := range c.Settings {
		i := slices.IndexFunc(c.Axes, func(a Axis) bool { return a.Key == other[s.Key] })
		if i < 0 {
			continue
		}
		values, isList := s.Value.([]any)
		if !isList || len(values) == 0 {
			values = []any{s.Value}
		}
		c.Axes[i] = Axis{Key: s.Key, Values: values}
	}
}

// settleSeries lets a setting decide about the files of a series, which are
// those of the whole experiment, and refuses settings that could do nothing.
func (c *Config) settleSeries() error {
	for _, s := range c.Settings {
		switch s.Key {
		case "series":
			if err := assign(c.base.fields(), "", []string{"series"}, s.Value); err != nil {
				return fmt.Errorf("%s: %w", s.Origin, err)
			}
		case "strategy.name", "strategy.set", "strategy.compare_with":
			return fmt.Errorf("%s: %s: a setting cannot change this; edit the file", s.Origin, s.Key)
		}
	}
	if err := c.checkReports(); err != nil { // settings may take away what reports refer to
		return c.explain(err)
	}
	return nil
}

// shellSetting is what -set key=value means: paths are those of the shell, not
// relative to the experiment file, trace names a trace to run, and node a node
// of the catalogue.
func (c *Config) shellSetting(key string, value any) ([]Setting, error) {
	path, isText := value.(string)
	var list []Setting
	switch {
	case !isText:
	case key == "node":
		key = "node.name"
	case key == "trace":
		key = "workload.trace"
		list = append(list, Setting{"workload.kind", "trace", "-set"})
	}
	if isText && slices.Contains(pathKeys, key) && !filepath.IsAbs(path) {
		dir, err := filepath.Abs(c.dir())
		if err != nil {
			return nil, err
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		if path, err = filepath.Rel(dir, path); err != nil {
			return nil, err
		}
		value = path
	}
	return append(list, Setting{key, value, "-set"}), nil
}

// pathKeys are keys with the name of a file that a trace is read from.
var pathKeys = []string{"workload.trace", "workload.net", "workload.scratch", "workload.kineto"}

// parseValue reads a TOML value; what is none is a string, so that quotes are
// not needed in -set node.link.rate=55GB/s.
func parseValue(s string) any {
	tree := map[string]any{}
	if _, err := toml.Decode("x = "+s, &tree); err == nil && len(tree) == 1 {
		return tree["x"]
	}
	return s
}

// applyQuick reduces the experiment as its [quick] table says: columns and
// strategies by name, axes by values, anything else as a setting.
func (c *Config) applyQuick() error {
	var columns, strategies, times []string
	var other []leaf
	cases := false
	for _, l := range leaves(nil, c.quick) {
		var err error
		switch key := strings.Join(l.path, "."); {
		case key == "columns":
			err = texts(&columns)(l.value)
		case key == "strategies":
			err = texts(&strategies)(l.value)
		case l.path[0] == "cases" && len(l.path) == 3 && l.path[1] == "where" && c.Cases.Reference != "":
			err = assignFree(&c.Cases.Where, "quick.cases.where", l.path[2:], l.value)
			cases = true
		case key == "times":
			err = texts(&times)(l.value)
		case l.path[0] == "axes":
			name := strings.Join(l.path[1:], ".")
			i := slices.IndexFunc(c.Axes, func(a Axis) bool { return a.Key == name })
			values, ok := l.value.([]any)
			if i < 0 || !ok || len(values) == 0 {
				return &keyError{"quick." + key, fmt.Sprintf(" = %s: want an axis of the file and an array of values", show(l.value))}
			}
			trial := c.base
			for _, v := range values {
				if err := assign(trial.fields(), "", splitKey(name), v); err != nil {
					return within("quick.axes", err)
				}
			}
			c.Axes[i].Values = values
		default:
			other = append(other, l)
		}
		if err != nil {
			return &keyError{"quick." + strings.Join(l.path, "."), fmt.Sprintf(" = %s: %v", show(l.value), err)}
		}
	}
	for _, l := range other {
		trial := c.base
		if err := assign(trial.fields(), "", l.path, l.value); err != nil {
			return within("quick", err)
		}
		c.Settings = append(c.Settings, Setting{strings.Join(l.path, "."), l.value, "-quick"})
	}
	if cases {
		if err := c.addCases(); err != nil {
			return within("quick", err)
		}
	}
	if times != nil {
		kept, err := pick("quick.times", times, c.Times, func(t TimesSpec) string { return t.Name })
		if err != nil {
			return err
		}
		c.Times = kept
	}
	if columns != nil {
		kept, err := pick("quick.columns", columns, c.Columns, func(col Column) string { return col.Name })
		if err != nil {
			return err
		}
		c.Columns = kept
	}
	if strategies != nil {
		kept, err := pick("quick.strategies", strategies, c.Strategies, func(s Strategy) string { return s.Name })
		if err != nil {
			return err
		}
		c.Strategies = kept
		return c.checkReports() // claims may name a strategy that is gone
	}
	return nil
}

// pick keeps the elements that names list, in the order of the file.
func pick[T any](path string, names []string, all []T, name func(T) string) ([]T, error) {
	have := make([]string, len(all))
	for i, e := range all {
		have[i] = name(e)
	}
	for _, n := range names {
		if !slices.Contains(have, n) {
			return nil, &keyError{path, fmt.Sprintf(": no %q; nearest is %q", n, nearest.Name(n, have))}
		}
	}
	var kept []T
	for i, e := range all {
		if slices.Contains(names, have[i]) {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// list prints the cells and their points.
func (e *experiment) list(w io.Writer) {
	for i, cell := range e.cells {
		fmt.Fprintf(w, "%4d  %s: %d points\n", i, cell, len(cell.Points))
	}
}

// run searches the cells and writes everything. Failed claims, differences and
// interruptions are errors.
func (e *experiment) run(ctx context.Context, stdout, stderr io.Writer, golden string) error {
	mine := e.cells
	if e.cmd.shardAt >= 0 {
		mine = nil
		for i := e.cmd.shardAt; i < len(e.cells); i += e.cmd.shards {
			mine = append(mine, e.cells[i])
		}
	}
	if ctx.Err() == nil {
		if err := os.MkdirAll(e.folder, 0o777); err != nil { // before the work, not after it
			return fmt.Errorf("-out: %w", paths.Error(e.folder, err))
		}
	}
	for _, l := range e.left {
		fmt.Fprintf(stderr, "%s: times %q: left out: %s\n", e.Path, e.Times[l.list].Name, l.why)
	}
	fmt.Fprintf(stderr, "%s: %d cells, %d workers\n", e.name, len(mine), e.cmd.parallel)
	bar := newProgress(stderr, len(mine))
	found, err := runCells(ctx, mine, e.runner, e.cmd.parallel, bar.cell)
	bar.end()
	if err != nil {
		return err
	}
	if e.cmd.shardAt >= 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted after %d of %d cells of the shard; run it again to go on", bar.done, len(mine))
		}
		fmt.Fprintf(stderr, "shard %s of %s done; -merge writes the results when all are\n", e.cmd.shard, e.name)
		return nil
	}
	if e.Times == nil {
		e.attachBaselines(found)
	}
	frame := rows(e.Axes, found)
	if ctx.Err() != nil {
		return e.interrupted(frame, found, bar.done)
	}
	claims, err := e.claims(found)
	if err != nil {
		return err
	}
	if e.Times != nil {
		rows := timesRows(found)
		sums := summarise(rows)
		claims = e.timesClaims(rows, sums)
		e.compared = &comparison{rows: e.timesFrame(rows), table: e.timesTable(sums, e.left)}
	}
	if err := e.write(frame, found, claims); err != nil {
		return err
	}
	if err := e.print(stdout, found, claims); err != nil {
		return err
	}
	if e.cmd.timeline != "" {
		if err := e.timelines(ctx, found, stderr); err != nil {
			return err
		}
	}
	if e.cmd.regen {
		if err := results.WriteFile(golden, frame.WriteCSV); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "wrote %s\n", golden)
	}
	if e.cmd.check {
		if err := compare(frame, golden, stderr); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "equal to %s\n", golden)
	}
	for i := range claims {
		if claims[i].Verdict == results.Failed {
			return fmt.Errorf("claim %q failed: %s: simulated %g, %s", claims[i].Name, claims[i].Where, claims[i].Simulated, claims[i].Note)
		}
	}
	return nil
}

// outputs are the files of a complete run beside rows.csv and manifest.json.
func (e *experiment) outputs(found []*CellResult, claims []results.Claim) []output {
	list := []output{{"claims.csv", results.ClaimFrame(claims).WriteCSV}}
	if e.base.Series {
		list = append(list, output{"iterations.csv", iterationFrame(e.Axes, found).WriteCSV})
	}
	if e.compared != nil {
		t := e.compared.table
		list = append(list, output{"times.csv", e.compared.rows.WriteCSV},
			output{"errors.md", t.Markdown}, output{"errors.tex", t.LaTeX}, output{"errors.csv", t.CSV})
	}
	for i := range e.Tables {
		t := e.table(&e.Tables[i], found)
		name := e.Tables[i].Name
		list = append(list, output{name + ".md", t.Markdown}, output{name + ".tex", t.LaTeX}, output{name + ".csv", t.CSV})
	}
	for i := range e.Figures {
		f, ok := e.figure(&e.Figures[i], found)
		if !ok {
			continue
		}
		name := e.Figures[i].Name
		list = append(list, output{name + ".svg", f.SVG}, output{name + ".pdf", f.PDF}, output{name + ".png", f.PNG})
	}
	return list
}

// output is one file to write.
type output struct {
	name  string
	write func(io.Writer) error
}

func (e *experiment) write(frame *results.Frame, found []*CellResult, claims []results.Claim) error {
	all := append(e.outputs(found, claims), output{"rows.csv", frame.WriteCSV}, output{"manifest.json", e.manifest(frame, found, true).Write})
	for _, o := range all {
		if err := results.WriteFile(filepath.Join(e.folder, o.name), o.write); err != nil {
			return err
		}
	}
	return nil
}

// interrupted writes the rows of finished cells, and takes away what an
// earlier complete run left beside them: it does not belong to these rows.
func (e *experiment) interrupted(frame *results.Frame, found []*CellResult, done int) error {
	stop := fmt.Errorf("interrupted after %d of %d cells; with -resume from the start, a later run would go on from here", done, len(e.cells))
	if e.cmd.resume {
		stop = fmt.Errorf("interrupted after %d of %d cells; run it again with -resume to go on", done, len(e.cells))
	}
	names := []string{"claims.csv", "iterations.csv", "times.csv", "errors.md", "errors.tex", "errors.csv"}
	for i := range e.Tables {
		names = append(names, e.Tables[i].Name+".md", e.Tables[i].Name+".tex", e.Tables[i].Name+".csv")
	}
	for i := range e.Figures {
		names = append(names, e.Figures[i].Name+".svg", e.Figures[i].Name+".pdf", e.Figures[i].Name+".png")
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(e.folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return errors.Join(stop, err)
		}
	}
	if done == 0 {
		return stop
	}
	return errors.Join(stop,
		results.WriteFile(filepath.Join(e.folder, "rows.csv"), frame.WriteCSV),
		results.WriteFile(filepath.Join(e.folder, "manifest.json"), e.manifest(frame, found, false).Write))
}

func (e *experiment) manifest(frame *results.Frame, found []*CellResult, complete bool) *results.Manifest {
	m := &results.Manifest{
		Name: e.name, Complete: complete, Code: e.code(),
		Config: e.Text, ConfigHash: e.hash, Settings: e.settings(), Quick: e.cmd.quick,
		Seed: e.cells[0].Points[0].Seed, Points: len(frame.Rows),
	}
	distinct := map[string]bool{}
	fingerprint := uint64(0xcbf29ce484222325)
	for _, c := range found {
		if c == nil {
			continue
		}
		m.Cells++
		for _, r := range c.Runs {
			if !distinct[r.key] {
				distinct[r.key] = true
				m.Events += r.events
			}
		}
		for i := range c.Results {
			o := &c.Results[i].Outcome
			fingerprint = mixFingerprint(fingerprint, o.Fingerprint)
			for _, n := range o.Notes {
				if !slices.Contains(m.Notes, n) {
					m.Notes = append(m.Notes, n)
				}
			}
		}
	}
	m.Runs = len(distinct)
	m.Fingerprint = fmt.Sprintf("%016x", fingerprint)
	for _, c := range frame.Columns {
		m.Columns = append(m.Columns, results.Glossary{Name: c.Name, About: c.About})
	}
	return m
}

// print shows tables and claims at the end of a run.
func (e *experiment) print(w io.Writer, found []*CellResult, claims []results.Claim) error {
	if e.compared != nil {
		if err := e.compared.table.Terminal(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for i := range e.Tables {
		if !e.Tables[i].Terminal {
			continue
		}
		if err := e.table(&e.Tables[i], found).Terminal(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if lines := noteLines(found); lines != nil {
		fmt.Fprintf(w, "%s\n\n", strings.Join(lines, "\n"))
	}
	if len(claims) > 0 {
		if err := claimTable(claims).Terminal(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "Results are in %s.\n", e.folder)
	return err
}

// compare holds rows against committed ones.
func compare(frame *results.Frame, golden string, stderr io.Writer) error {
	f, err := os.Open(golden)
	if err != nil {
		return err
	}
	defer f.Close()
	want, err := results.ReadCSV(f)
	if err != nil {
		return fmt.Errorf("%s: %w", golden, err)
	}
	diffs := results.Compare(frame, want, 20)
	for _, d := range diffs {
		fmt.Fprintln(stderr, d)
	}
	if len(diffs) > 0 {
		return fmt.Errorf("rows differ from %s; -regen replaces it", golden)
	}
	return nil
}
