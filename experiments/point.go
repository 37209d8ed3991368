package experiments

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Point is one simulation: everything is decided.
type Point struct {
	Setup
	Dir        string // folder of the experiment file; traces are named relative to it
	Layout     Layout
	Recompute  string
	MicroBatch int64
	// Repeat is one more than the iteration that is run for ever; 0 = the job
	// varies as it does.
	Repeat int64
	Passes bool // keep kernel times and peaks of each rank
}

// Ideal is the same job with unbounded HBM and no policy.
func (p *Point) Ideal() *Point {
	q := *p
	q.Strategy.Policy, q.Strategy.Options, q.Strategy.Profiler = "none", nil, "none"
	q.Strategy.Ideal, q.Strategy.AlwaysProfile = true, false
	return &q
}

// String is the point's choice, such as "tp2pp1dp4 block-1/4 mb2".
func (p *Point) String() string {
	if p.Workload.Kind == "trace" {
		return "trace"
	}
	return fmt.Sprintf("%v %s mb%d", p.Layout, p.Recompute, p.MicroBatch)
}

// Cell is one combination of column, axis values and strategy. Its points
// differ in layout, recomputation and micro-batch.
type Cell struct {
	Column   string
	Axes     []string // the value of each axis, as in the file
	Strategy string
	Points   []*Point

	search Search                          // Key "" = none; with one, Points are of its first value
	at     func(v int64) ([]*Point, error) // points of a value of the search

	column, strategy int // indices in Config, for messages

	job *timesJob // whose measured numbers the cell is held against; nil = none
}

// String names the cell in messages and claims.
func (c *Cell) String() string {
	return strings.Join(append(append([]string{c.Column}, c.Axes...), c.Strategy), ", ")
}

// Cells resolves the file, devices being Runner.Devices: columns x axes x strategies in this order, the
// last varying fastest. Errors are one line with file and line.
func (c *Config) Cells(devices func(node map[string]any) (int, error)) ([]*Cell, error) {
	axes, err := c.axes()
	if err != nil {
		return nil, err
	}
	total := len(c.Columns) * len(c.Strategies)
	for _, a := range axes {
		if total *= len(a.Values); total > maxCells {
			return nil, fmt.Errorf("%s: %d columns x %d strategies x the axes: want at most %d cells", c.Path, len(c.Columns), len(c.Strategies), maxCells)
		}
	}
	combinations := product(axes)
	var cells []*Cell
	for col := range c.Columns {
		for _, values := range combinations {
			for s := range c.Strategies {
				if c.Cases.skips(c.Columns[col].Name, &c.Strategies[s]) {
					continue
				}
				cell := &Cell{Column: c.Columns[col].Name, Strategy: c.Strategies[s].Name, column: col, strategy: s}
				for _, v := range values {
					cell.Axes = append(cell.Axes, plain(v))
				}
				if err := c.resolve(cell, axes, values, devices); err != nil {
					return nil, c.blame(cell, err)
				}
				cells = append(cells, cell)
			}
		}
	}
	return cells, nil
}

// axes are the file's, those that a setting overrides reduced to its value, or
// with its values.
func (c *Config) axes() ([]Axis, error) {
	axes := slices.Clone(c.Axes)
	for _, s := range c.Settings {
		values := []any{s.Value}
		if c.spreads(&s) {
			values = s.Value.([]any)
		}
		trial := c.base
		for i, v := range values {
			if err := assign(trial.fields(), "", splitKey(s.Key), v); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Origin, err)
			}
			if slices.ContainsFunc(values[:i], func(o any) bool { return show(o) == show(v) }) {
				return nil, fmt.Errorf("%s: %s = %s: %s stands there twice", s.Origin, s.Key, show(s.Value), show(v))
			}
		}
		for i := range axes {
			if axes[i].Key == s.Key {
				axes[i].Values = values
			}
		}
	}
	return axes, nil
}

// spreads tells whether a setting is a list of values for an axis, none of whose
// values is a list itself.
func (c *Config) spreads(s *Setting) bool {
	list, ok := s.Value.([]any)
	isList := func(v any) bool { _, ok := v.([]any); return ok }
	return ok && len(list) > 0 && slices.ContainsFunc(c.Axes, func(a Axis) bool { return a.Key == s.Key && !slices.ContainsFunc(a.Values, isList) })
}

// product lists all combinations, the last axis varying fastest.
func product(axes []Axis) [][]any {
	combinations := [][]any{nil}
	for _, a := range axes {
		var longer [][]any
		for _, head := range combinations {
			for _, v := range a.Values {
				longer = append(longer, append(slices.Clone(head), v))
			}
		}
		combinations = longer
	}
	return combinations
}

// plain is a value as a table shows it: strings without quotes.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return show(v)
}

// resolve fills cell.Points: base, then strategy, column, axes, settings, and
// the searched key.
func (c *Config) resolve(cell *Cell, axes []Axis, values []any, devices func(node map[string]any) (int, error)) error {
	setup, err := c.setup(cell, axes, values)
	if err != nil {
		return err
	}
	if setup.Search.Key == "" {
		cell.Points, err = c.points(setup, devices)
		return err
	}
	cell.search = setup.Search
	if err := cell.search.check(); err != nil {
		return err
	}
	cell.at = func(v int64) ([]*Point, error) {
		tried := setup
		l := cell.search.leaf(v)
		if err := assign(tried.fields(), "", l.path, l.value); err != nil {
			return nil, within("search", err)
		}
		return c.points(tried, devices)
	}
	l := cell.search.leaf(cell.search.value((cell.search.To - cell.search.From) / cell.search.Step))
	if err := assign(new(Setup).fields(), "", l.path, l.value); err != nil { // it is not reached before the others pass
		return within("search", err)
	}
	cell.Points, err = cell.at(cell.search.From)
	return err
}

// setup lays the cell's values over each other.
func (c *Config) setup(cell *Cell, axes []Axis, values []any) (Setup, error) {
	setup := c.base
	setup.Strategy = c.Strategies[cell.strategy]
	overlay := leaves(nil, setup.Strategy.Set)
	overlay = append(overlay, c.Columns[cell.column].leaves...)
	for _, o := range c.Columns[cell.column].options {
		if o.concerns(&setup.Strategy) {
			overlay = append(overlay, o.leaf)
		}
	}
	for i, a := range axes {
		overlay = append(overlay, leaf{splitKey(a.Key), values[i]})
	}
	for _, s := range c.Settings {
		if !slices.ContainsFunc(axes, func(a Axis) bool { return a.Key == s.Key }) { // or axes has done so
			overlay = append(overlay, leaf{splitKey(s.Key), s.Value})
		}
	}
	for _, l := range overlay {
		if err := assign(setup.fields(), "", l.path, l.value); err != nil {
			return Setup{}, err
		}
	}
	if err := c.checkKind(&setup, overlay); err != nil {
		return Setup{}, err
	}
	if s := &setup.Strategy; s.Ideal && s.Policy != "none" {
		return Setup{}, &keyError{"strategy.ideal", fmt.Sprintf(" = true: an ideal strategy has unbounded memory and no policy, but policy = %q", s.Policy)}
	}
	if device, ok := setup.Node["device"].(map[string]any); ok && device["hbm"] != nil && setup.HBMPercent > 0 {
		return Setup{}, &keyError{"hbm_percent", fmt.Sprintf(" = %d: takes the place of node.device.hbm = %s; want one of them", setup.HBMPercent, show(device["hbm"]))}
	}
	if setup.Warmup >= setup.Iterations {
		return Setup{}, &keyError{"warmup", fmt.Sprintf(" = %d: want fewer than iterations = %d", setup.Warmup, setup.Iterations)}
	}
	return setup, nil
}

// checkKind refuses keys of the other kind of workload, which would do nothing.
// Those of the file's own [workload] may stand there where the overlay has made
// it the other kind.
func (c *Config) checkKind(setup *Setup, overlay []leaf) error {
	w := &setup.Workload
	mine, other, others := w.decoderFields(), "trace", w.traceFields()
	if w.Kind == "trace" {
		mine, other, others = others, "decoder", mine
	}
	var given []string
	if c.base.Workload.Kind == w.Kind {
		given = append(given, c.own...)
	}
	for _, l := range overlay {
		if tree, ok := l.value.(map[string]any); ok && len(l.path) == 1 && l.path[0] == "workload" {
			given = append(given, sortedKeys(tree)...)
		} else if l.path[0] == "workload" {
			given = append(given, l.path[1])
		}
	}
	refusal := fmt.Sprintf(": a key of workload.kind = %q, but here it is %q; allowed: kind, %s", other, w.Kind, strings.Join(keysOf(mine), ", "))
	for _, key := range given {
		if slices.Contains(keysOf(others), key) {
			return &keyError{"workload." + key, refusal}
		}
	}
	if key, ok := strings.CutPrefix(setup.Search.Key, "workload."); ok && slices.Contains(keysOf(others), key) {
		return &keyError{"search.key", fmt.Sprintf(" = %q", setup.Search.Key) + refusal}
	}
	return nil
}

// points are the choices that a set-up leaves to the search of a cell.
func (c *Config) points(setup Setup, devices func(node map[string]any) (int, error)) ([]*Point, error) {
	if setup.Workload.Kind == "trace" {
		if setup.Workload.Trace == "" {
			return nil, &keyError{"workload.trace", `: missing; want a path, since workload.kind = "trace"`}
		}
		return []*Point{{Setup: setup, Dir: c.dir()}}, nil
	}
	if err := checkDecoder(&setup.Workload); err != nil {
		return nil, err
	}
	n, err := devices(setup.Node)
	if err != nil {
		return nil, err
	}
	layouts := setup.Strategy.Layouts
	if setup.Strategy.AllLayouts {
		layouts = allLayouts(int64(n))
	}
	if len(layouts) == 0 {
		return nil, &keyError{"strategy.layouts", `: missing; want "all" or an array of layouts such as "tp2pp1dp4"`}
	}
	if n := len(layouts) * len(setup.Strategy.Recompute) * len(setup.Strategy.MicroBatch); n > maxCells {
		return nil, &keyError{"strategy", fmt.Sprintf(": %d layouts x %d recomputations x %d micro-batch sizes: want at most %d points", len(layouts), len(setup.Strategy.Recompute), len(setup.Strategy.MicroBatch), maxCells)}
	}
	var points []*Point
	for _, l := range layouts {
		for _, r := range setup.Strategy.Recompute {
			for _, mb := range setup.Strategy.MicroBatch {
				points = append(points, &Point{Setup: setup, Dir: c.dir(), Layout: l, Recompute: r, MicroBatch: mb})
			}
		}
	}
	return points, nil
}

func checkDecoder(w *Workload) error {
	switch {
	case w.Model == "":
		return &keyError{"workload.model", ": missing; want a model, or workload.kind = \"trace\""}
	case w.Seq == 0:
		return &keyError{"workload.seq", ": missing; want tokens per sequence"}
	case (w.TokensPerStep == 0) == (w.MicroBatches == 0):
		return &keyError{"workload.tokens_per_step", ": want either that, tokens per optimizer step of the whole job, or workload.micro_batches, per step and replica"}
	case w.TokensPerStep%w.Seq != 0:
		return &keyError{"workload.tokens_per_step", fmt.Sprintf(" = %d: want a multiple of workload.seq = %d", w.TokensPerStep, w.Seq)}
	}
	return nil
}

// sequences is the number of sequences per optimizer step of the whole job.
func (p *Point) sequences() int64 {
	if w := &p.Workload; w.MicroBatches == 0 {
		return w.TokensPerStep / w.Seq
	}
	return p.Workload.MicroBatches * p.MicroBatch * p.Layout.DP
}

// allLayouts lists every (TP, PP, DP) whose product is n, TP varying slowest.
func allLayouts(n int64) []Layout {
	var all []Layout
	for tp := int64(1); tp <= n; tp++ {
		for pp := int64(1); tp*pp <= n; pp++ {
			if n%(tp*pp) == 0 {
				all = append(all, Layout{tp, pp, n / (tp * pp)})
			}
		}
	}
	return all
}

// blame puts the origin of a key before a keyError of this cell: the setting,
// axis, column, strategy or base line that gave the key its value.
func (c *Config) blame(cell *Cell, err error) error {
	var key *keyError
	if !errors.As(err, &key) {
		return fmt.Errorf("%s: %s: %w", c.Path, cell, err)
	}
	for i := len(c.Settings) - 1; i >= 0; i-- {
		if c.Settings[i].Key == key.path {
			return fmt.Errorf("%s: %w", c.Settings[i].Origin, key)
		}
	}
	for i := len(c.Settings) - 1; i >= 0; i-- { // errors of a whole table name the key
		if name, ok := strings.CutPrefix(c.Settings[i].Key, key.path+"."); ok && strings.Contains(key.text, name) {
			return fmt.Errorf("%s: %w", c.Settings[i].Origin, key)
		}
	}
	own := key.path // where the file would have it by itself
	if rest, ok := strings.CutPrefix(own, "strategy"); ok {
		own = fmt.Sprintf("strategy[%d]%s", cell.strategy, rest)
	}
	if n, ok := c.lines["axes."+key.path]; ok {
		return fmt.Errorf("%s:%d: %w", c.Path, n, key)
	}
	for _, table := range []struct {
		path   string
		leaves []leaf
	}{
		{fmt.Sprintf("column[%d].", cell.column), c.Columns[cell.column].leaves},
		{fmt.Sprintf("strategy[%d].set.", cell.strategy), leaves(nil, c.Strategies[cell.strategy].Set)},
	} {
		has := slices.ContainsFunc(table.leaves, func(l leaf) bool { return strings.Join(l.path, ".") == key.path })
		if n := c.lines.of(table.path + key.path); has && n > 0 {
			return fmt.Errorf("%s:%d: %w", c.Path, n, key)
		}
	}
	if n := c.lines.of(own); n > 0 {
		return fmt.Errorf("%s:%d: %w", c.Path, n, key)
	}
	return fmt.Errorf("%s: %w", c.Path, key)
}
