package experiments

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"smartswap/eager/alloc"
	"smartswap/eager/swap"
	"smartswap/eager/unified"
	"smartswap/internal/paths"
	"smartswap/sim"
	"smartswap/workloads"
)

// Config is an experiment file. See configs/fig7.toml for one with comments.
type Config struct {
	Path string // as given
	Text string

	Name  string // of the result folder
	Title string
	// CompareWith names the strategy whose iteration time others are held
	// against, unless they name their own: column overhead_percent.
	CompareWith string

	Columns    []Column
	Cases      Cases
	Axes       []Axis
	Strategies []Strategy
	Tables     []TableSpec
	Figures    []FigureSpec
	Claims     []ClaimSpec
	Times      []TimesSpec

	// Settings override the file, whatever column or axis says otherwise:
	// [quick] under -quick, then -set in the order given.
	Settings []Setting

	base  Setup
	own   []string // keys of the file's [workload]
	quick map[string]any
	lines lines
}

// Setup is what columns and axes may change: all that a point starts from.
type Setup struct {
	// Node has "name", a catalogue entry or a file; its other keys go to
	// the node's fields, such as "link.rate".
	Node     map[string]any
	Workload Workload
	Strategy Strategy
	// Variation is what makes iterations differ, applied in order.
	Variation []Variation
	// Profilers has costs to put in place of registered ones:
	// profilers.detailed.per_op.
	Profilers map[string]any
	Search    Search

	Allocator alloc.Options
	Pinned    alloc.PinnedOptions
	Executor  swap.Options
	// Unified is memory of policies that need unified or direct memory;
	// DirectAsBuilt is how the latter runs.
	Unified       unified.Options
	DirectAsBuilt bool

	Iterations   int64 // simulated per point
	Warmup       int64 // of them not counted
	Replications int64 // runs per point with different seeds
	Seed         int64
	// HBMPercent gives every device that percentage of what the job's live
	// tensors need at their peak, in place of the node's memory; 0 = the node's.
	HBMPercent int64
	// Host is "full", or "none" for traces without host costs.
	Host string
	// Series keeps every iteration: iterations.csv, figures over iterations,
	// and the columns about changes of the sequence.
	Series bool
}

// Workload says what is trained.
type Workload struct {
	Kind   string // "decoder", "trace"
	Model  string // decoder: as workloads.LookupModel knows it
	Layers int64  // decoder: in place of the model's; 0 = the model's
	Hidden int64  // decoder: in place of the model's, other widths in proportion; 0 = the model's
	// Shape is the model itself, in place of Model, Layers and Hidden; of jobs that
	// a list describes.
	Shape         *workloads.Model
	Seq           int64  // decoder: tokens per sequence
	TokensPerStep int64  // decoder: tokens per optimizer step of the whole job, over all devices
	MicroBatches  int64  // decoder: per step and replica, in place of TokensPerStep; 0 = by that
	Save          string // decoder: save rule, "minimal" or "eager"
	Attention     string // decoder: "fused" or "unfused"
	Framework     string // decoder: "megatron-core", "megatron-2021" or "megatron-2022"
	// SequenceParallel, decoder: norms and dropout are split over tensor parallelism.
	SequenceParallel bool
	Fold             bool // decoder: simulate one rank for all that are identical

	// Trace is the path of a trace, relative to the experiment file; the
	// others help where it does not say everything: see trace.Options.
	Trace        string
	Network      string
	Batch        int64
	Net, Scratch string
	// Jitter lets every kernel of a trace take up to that share longer or
	// shorter; see workloads.Jitter.
	Jitter float64
	// Step is the profiled step to take of a recording of several.
	Step string
	// Member is the file to read of an archive; Kineto the trace that belongs
	// to an ExecutionTrace, and KinetoMember the file of it.
	Member, Kineto, KinetoMember string
	// Gaps keeps the host time that was recorded.
	Gaps bool
}

// Strategy is a way to make a job fit, with the choices it may make.
type Strategy struct {
	Name    string
	Policy  string
	Options map[string]any // of the policy
	// Profiler feeds the policy; what it must record, the policy says.
	Profiler string
	// AlwaysProfile keeps the profiler on whatever the policy asks for: a
	// profiler studied on its own.
	AlwaysProfile bool

	AllLayouts bool
	Layouts    []Layout
	VPP        int64 // model chunks of a pipeline stage, in layouts with pipelines
	ZeRO       int64 // 0: every replica keeps all; 1: optimizer states sharded over data parallelism; 3: gradients and parameters too
	Recompute  []string
	MicroBatch []int64

	// Set overrides keys of the set-up for this strategy alone, such as
	// executor.streams.
	Set map[string]any
	// CompareWith replaces the file's for this strategy.
	CompareWith string
	// Ideal runs with unbounded HBM: the speed of which swapping is a part.
	Ideal bool

	like []string // the strategies that it was made from, nearest first
}

// Layout is a way to spread a model over devices: tensor, pipeline and data
// parallelism.
type Layout struct{ TP, PP, DP int64 }

// String is the short form, such as tp2pp1dp4.
func (l Layout) String() string { return fmt.Sprintf("tp%dpp%ddp%d", l.TP, l.PP, l.DP) }

// Column is one column of the published figure: a name and what it sets.
type Column struct {
	Name    string
	leaves  []leaf
	options []columnOption
}

// Axis is a key and the values it takes, one after the other.
type Axis struct {
	Key    string
	Values []any
}

// Setting is an override and where it comes from.
type Setting struct {
	Key    string
	Value  any
	Origin string // such as "-set"
}

// Largest values that files may ask for: beyond them is a slip of the hand,
// not an experiment.
const (
	maxSeq        = 1 << 24
	maxLayers     = 1 << 12
	maxHidden     = 1 << 17
	maxTokens     = 1 << 32
	maxIterations = 10_000
	maxDegree     = 1 << 16
	maxBatch      = 1 << 20
	maxMB         = 1 << 20 // of the allocator's sizes in MiB
	maxCells      = 100_000 // of a file, and points of a cell
	maxTier       = 1 << 50 // bytes
)

func (s *Setup) fields() []field {
	return []field{
		{key: "node", free: &s.Node},
		{key: "workload", sub: s.Workload.fields()},
		{key: "strategy", sub: s.Strategy.fields()},
		{key: "variation", set: variations(&s.Variation)},
		{key: "profilers", free: &s.Profilers},
		{key: "search", sub: s.Search.fields()},
		{key: "allocator", sub: []field{
			{key: "backend", set: text(&s.Allocator.Backend)},
			{key: "dialect", set: text(&s.Allocator.Dialect)},
			{key: "event_policy", set: text(&s.Allocator.EventPolicy)},
			{key: "max_split_size_mb", set: integer(&s.Allocator.MaxSplitSizeMB, 0, maxMB)},
			{key: "max_non_split_rounding_mb", set: integer(&s.Allocator.MaxNonSplitRoundingMB, 0, maxMB)},
			{key: "garbage_collection_threshold", set: number(&s.Allocator.GarbageCollectionThreshold, 0, 1)},
			{key: "roundup_power2_divisions", set: s.Allocator.RoundupPower2Divisions.UnmarshalTOML},
			{key: "large_segment_size_mb", set: integer(&s.Allocator.LargeSegmentSizeMB, 0, maxMB)},
			{key: "per_process_memory_fraction", set: number(&s.Allocator.PerProcessMemoryFraction, 0, 1)},
			{key: "drain", set: text(&s.Allocator.Drain)},
			{key: "expandable_segments", set: flag(&s.Allocator.ExpandableSegments)},
			{key: "segment_size_mb", set: integer(&s.Allocator.SegmentSizeMB, 0, maxMB)},
			{key: "page_size", set: choice(&s.Allocator.PageSize, "", alloc.PageSize1G)},
			{key: "base_addr_aligned_kb", set: integer(&s.Allocator.BaseAddrAlignedKB, 0, maxMB)},
			{key: "throw_on_npumalloc_oom", set: flag(&s.Allocator.ThrowOnNPUMallocOOM)},
			{key: "fresh_segment_split", set: flag(&s.Allocator.FreshSegmentSplit)},
			{key: "exact", set: flag(&s.Allocator.Exact)},
		}},
		{key: "pinned", sub: []field{
			{key: "rounding", set: text(&s.Pinned.Rounding)},
			{key: "reuse", set: text(&s.Pinned.Reuse)},
			{key: "pinned_max_round_threshold_mb", set: integer(&s.Pinned.MaxRoundThresholdMB, 0, maxMB)},
			{key: "pinned_max_cached_size_mb", set: integer(&s.Pinned.MaxCachedSizeMB, 0, maxMB)},
		}},
		{key: "executor", sub: []field{
			{key: "preset", set: func(v any) error {
				o, err := swap.Preset(fmt.Sprint(v))
				if err == nil {
					s.Executor = o
				}
				return err
			}},
			{key: "streams", set: whole(&s.Executor.Streams, 1, 2)},
			{key: "release", set: text(&s.Executor.Release)},
			{key: "clean", set: flag(&s.Executor.Clean)},
			{key: "prefetch", set: text(&s.Executor.Prefetch)},
			{key: "drain", set: text(&s.Executor.Drain)},
			{key: "features", set: text(&s.Executor.Features)},
			{key: "match", set: text(&s.Executor.Match)},
			{key: "priority", set: whole(&s.Executor.Priority, 1, swap.MaxPriority)},
			{key: "settle", set: flag(&s.Executor.Settle)},
			{key: "pageable", set: flag(&s.Executor.Pageable)},
		}},
		{key: "unified", sub: []field{
			{key: "page", set: size(&s.Unified.Page, 512, sim.GiB)},
			{key: "device", set: size(&s.Unified.Device, 512, maxTier)},
			{key: "host", set: size(&s.Unified.Host, 0, maxTier)},
			{key: "ssd", set: unlimited(&s.Unified.SSD, maxTier)},
			{key: "link_rate", set: rate(&s.Unified.Link)},
			{key: "ssd_rate", set: rate(&s.Unified.SSDRate)},
			{key: "batch", set: integer(&s.Unified.Batch, 1, 1<<20)},
			{key: "map_rate", set: rate(&s.Unified.Map)},
			{key: "fault", set: span(&s.Unified.Fault)},
			{key: "ssd_read", set: span(&s.Unified.SSDRead)},
			{key: "direct_as_built", set: flag(&s.DirectAsBuilt)},
			{key: "fault_times", set: faultTimes(&s.Unified.Times)},
		}},
		{key: "iterations", set: integer(&s.Iterations, 1, maxIterations)},
		{key: "warmup", set: integer(&s.Warmup, 0, maxIterations-1)},
		{key: "replications", set: integer(&s.Replications, 1, 1000)},
		{key: "seed", set: integer(&s.Seed, 0, math.MaxInt64)},
		{key: "host", set: choice(&s.Host, "full", "none")},
		{key: "hbm_percent", set: integer(&s.HBMPercent, 1, 1000)},
		{key: "series", set: flag(&s.Series)},
	}
}

func (w *Workload) fields() []field {
	return slices.Concat([]field{{key: "kind", set: choice(&w.Kind, "decoder", "trace")}}, w.decoderFields(), w.traceFields())
}

// decoderFields are the keys of kind "decoder".
func (w *Workload) decoderFields() []field {
	return []field{
		{key: "model", set: text(&w.Model)},
		{key: "layers", set: integer(&w.Layers, 1, maxLayers)},
		{key: "hidden", set: integer(&w.Hidden, 1, maxHidden)},
		{key: "seq", set: integer(&w.Seq, 1, maxSeq)},
		{key: "tokens_per_step", set: integer(&w.TokensPerStep, 1, maxTokens)},
		{key: "micro_batches", set: integer(&w.MicroBatches, 1, maxBatch)},
		{key: "save", set: choice(&w.Save, "minimal", "eager")},
		{key: "attention", set: choice(&w.Attention, "fused", "unfused")},
		{key: "framework", set: choice(&w.Framework, string(workloads.MegatronCore), string(workloads.Megatron2021), string(workloads.Megatron2022))},
		{key: "sequence_parallel", set: flag(&w.SequenceParallel)},
		{key: "fold", set: flag(&w.Fold)},
	}
}

// traceFields are the keys of kind "trace".
func (w *Workload) traceFields() []field {
	return []field{
		{key: "trace", set: text(&w.Trace)},
		{key: "network", set: text(&w.Network)},
		{key: "batch", set: integer(&w.Batch, 1, maxBatch)},
		{key: "jitter", set: number(&w.Jitter, 0, 0.99)},
		{key: "net", set: text(&w.Net)},
		{key: "scratch", set: text(&w.Scratch)},
		{key: "step", set: func(v any) error {
			if n, ok := v.(int64); ok { // as most recordings count them
				v = strconv.FormatInt(n, 10)
			}
			return text(&w.Step)(v)
		}},
		{key: "member", set: text(&w.Member)},
		{key: "kineto", set: text(&w.Kineto)},
		{key: "kineto_member", set: text(&w.KinetoMember)},
		{key: "gaps", set: flag(&w.Gaps)},
	}
}

func (s *Strategy) fields() []field {
	return []field{
		{key: "name", set: text(&s.Name)},
		{key: "policy", set: text(&s.Policy)},
		{key: "options", free: &s.Options},
		{key: "profiler", set: text(&s.Profiler)},
		{key: "always_profile", set: flag(&s.AlwaysProfile)},
		{key: "layouts", set: s.setLayouts},
		{key: "vpp", set: integer(&s.VPP, 1, maxDegree)},
		{key: "zero", set: func(v any) error {
			if v != int64(0) && v != int64(1) && v != int64(3) {
				return errors.New("allowed are 0, 1 and 3")
			}
			s.ZeRO = v.(int64)
			return nil
		}},
		{key: "recompute", set: texts(&s.Recompute)},
		{key: "micro_batch", set: integers(&s.MicroBatch, 1, maxBatch)},
		{key: "compare_with", set: text(&s.CompareWith)},
		{key: "set", free: &s.Set},
		{key: "ideal", set: flag(&s.Ideal)},
	}
}

var layoutForm = regexp.MustCompile(`^tp(\d{1,5})pp(\d{1,5})dp(\d{1,5})$`)

// setLayouts takes "all" or a list such as ["tp8pp1dp1"].
func (s *Strategy) setLayouts(v any) error {
	if v == "all" {
		s.AllLayouts, s.Layouts = true, nil
		return nil
	}
	var names []string
	if err := texts(&names)(v); err != nil {
		return errors.New(`want "all" or an array of layouts such as "tp2pp1dp4"`)
	}
	s.AllLayouts, s.Layouts = false, nil
	for _, name := range names {
		m := layoutForm.FindStringSubmatch(name)
		if m == nil {
			return fmt.Errorf(`element %q: want a layout such as "tp2pp1dp4"`, name)
		}
		var l Layout
		for i, p := range []*int64{&l.TP, &l.PP, &l.DP} {
			fmt.Sscan(m[i+1], p) // digits, by the pattern
			if *p < 1 || *p > maxDegree {
				return fmt.Errorf("element %q: want degrees from 1 to %d", name, maxDegree)
			}
		}
		s.Layouts = append(s.Layouts, l)
	}
	return nil
}

var fileForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// fileName takes what may be the name of a file or folder: no separators.
func fileName(p *string) func(any) error {
	return func(v any) error {
		s, ok := v.(string)
		if !ok || !fileForm.MatchString(s) {
			return errors.New("want a name of at most 64 letters, digits, dots, dashes and underscores")
		}
		*p = s
		return nil
	}
}

// maxFile is the largest experiment file that is read.
const maxFile = 1 << 20

// Load reads the experiment file at path. Errors are one line: file, line,
// key, value, what is allowed.
func Load(path string) (*Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, paths.Error(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a file; want an experiment file", path)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: %d bytes, want an experiment file of at most %d", path, info.Size(), maxFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, paths.Error(path, err)
	}
	return Parse(path, string(content))
}

// Parse reads an experiment file from text; path is for messages and for
// what the file refers to.
func Parse(path, content string) (*Config, error) {
	tree := map[string]any{}
	meta, err := toml.Decode(content, &tree)
	if err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("%s:%d: %s", path, syntax.Position.Line, oneLine(syntax.Message))
		}
		return nil, fmt.Errorf("%s: %s", path, oneLine(err.Error()))
	}
	c := &Config{Path: path, Text: content, lines: locate(content)}
	c.base = Setup{
		Workload:   Workload{Kind: "decoder", Save: "minimal", Attention: "fused", Framework: string(workloads.MegatronCore), SequenceParallel: true, Fold: true, Gaps: true},
		Allocator:  alloc.DefaultOptions(),
		Pinned:     alloc.DefaultPinnedOptions(),
		Executor:   swap.DefaultOptions(),
		Unified:    unified.Defaults(),
		Iterations: 4, Warmup: 2, Replications: 1, Seed: 1, Host: "full",
	}
	if err := c.decode(tree, meta); err != nil {
		return nil, c.explain(err)
	}
	return c, nil
}

// oneLine keeps what a file says from breaking a message into lines.
func oneLine(s string) string { return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(s) }

// explain puts file and line before the message of a keyError.
func (c *Config) explain(err error) error {
	var key *keyError
	if !errors.As(err, &key) {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	if n := c.lines.of(key.path); n > 0 {
		return fmt.Errorf("%s:%d: %w", c.Path, n, key)
	}
	return fmt.Errorf("%s: %w", c.Path, key)
}

// decode distributes the tree: descriptive keys, arrays of tables, axes, and
// all else into the base set-up.
func (c *Config) decode(tree map[string]any, meta toml.MetaData) error {
	known := append([]field{
		{key: "name", set: fileName(&c.Name)},
		{key: "title", set: text(&c.Title)},
		{key: "compare_with", set: text(&c.CompareWith)},
		{key: "column"}, {key: "axes"}, {key: "cases", sub: c.Cases.fields()}, {key: "table"}, {key: "figure"}, {key: "claim"}, {key: "times"},
		{key: "quick", free: &c.quick},
	}, c.base.fields()...)
	for _, key := range sortedKeys(tree) {
		var err error
		switch key {
		case "column":
			err = eachTable(tree, key, c.addColumn)
		case "strategy":
			err = eachTable(tree, key, c.addStrategy)
		case "table":
			err = eachTable(tree, key, func(prefix string, t map[string]any) error {
				spec := TableSpec{Name: key, Terminal: true}
				c.Tables = append(c.Tables, spec)
				return assign(c.Tables[len(c.Tables)-1].fields(), prefix, nil, t)
			})
		case "figure":
			err = eachTable(tree, key, func(prefix string, t map[string]any) error {
				c.Figures = append(c.Figures, FigureSpec{Name: key})
				return assign(c.Figures[len(c.Figures)-1].fields(), prefix, nil, t)
			})
		case "claim":
			err = eachTable(tree, key, func(prefix string, t map[string]any) error {
				nan := math.NaN()
				c.Claims = append(c.Claims, ClaimSpec{Statistic: "max", Published: nan, AtLeast: nan, AtMost: nan, Agreement: newAgreement()})
				return assign(c.Claims[len(c.Claims)-1].fields(), prefix, nil, t)
			})
		case "times":
			err = eachTable(tree, key, func(prefix string, t map[string]any) error {
				c.Times = append(c.Times, TimesSpec{})
				return assign(c.Times[len(c.Times)-1].fields(), prefix, nil, t)
			})
		case "axes":
			err = c.addAxes(tree[key], meta)
		default:
			err = assign(known, "", []string{key}, tree[key])
		}
		if err != nil {
			return err
		}
	}
	if workload, ok := tree["workload"].(map[string]any); ok {
		c.own = sortedKeys(workload)
	}
	if c.Name == "" {
		return &keyError{"name", ": missing; want the name of the result folder"}
	}
	if c.Times != nil {
		return c.checkTimes()
	}
	if len(c.Strategies) == 0 {
		return &keyError{"strategy", ": missing; want at least one [[strategy]]"}
	}
	if _, ok := tree["cases"]; ok {
		if c.Columns != nil {
			return &keyError{"cases", ": the file has [[column]] too; want one of both"}
		}
		if err := c.addCases(); err != nil {
			return err
		}
	}
	if len(c.Columns) == 0 {
		c.Columns = []Column{{Name: c.Name}}
	}
	return c.checkReports()
}

// eachTable calls add for the elements of an array of tables.
func eachTable(tree map[string]any, key string, add func(prefix string, t map[string]any) error) error {
	list, ok := tree[key].([]map[string]any)
	if !ok {
		return &keyError{key, fmt.Sprintf(" = %s: want [[%s]] tables", show(tree[key]), key)}
	}
	for i, t := range list {
		if err := add(fmt.Sprintf("%s[%d]", key, i), t); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) addColumn(prefix string, t map[string]any) error {
	var col Column
	if err := text(&col.Name)(t["name"]); err != nil {
		return &keyError{prefix + ".name", fmt.Sprintf(" = %s: %v", show(t["name"]), err)}
	}
	for _, other := range c.Columns {
		if other.Name == col.Name {
			return &keyError{prefix + ".name", fmt.Sprintf(" = %q: another column has this name", col.Name)}
		}
	}
	trial := c.base // keys and types are checked now, values in their place when resolved
	for _, l := range leaves(nil, t) {
		if len(l.path) == 1 && l.path[0] == "name" {
			continue
		}
		if l.path[0] == "strategy" {
			return &keyError{join(prefix, "strategy"), ": a column cannot change strategies; use an axis"}
		}
		if err := assign(trial.fields(), "", l.path, l.value); err != nil {
			return within(prefix, err)
		}
		col.leaves = append(col.leaves, l)
	}
	c.Columns = append(c.Columns, col)
	return nil
}

// within moves a keyError below prefix.
func within(prefix string, err error) error {
	var key *keyError
	if errors.As(err, &key) {
		return &keyError{join(prefix, key.path), key.text}
	}
	return err
}

func (c *Config) addStrategy(prefix string, t map[string]any) error {
	s := Strategy{Policy: "none", Profiler: "none", VPP: 1, ZeRO: 1, Recompute: []string{"none"}, MicroBatch: []int64{1}}
	if like, ok := t["like"]; ok {
		i := slices.IndexFunc(c.Strategies, func(o Strategy) bool { return o.Name == like })
		if i < 0 {
			return &keyError{prefix + ".like", fmt.Sprintf(" = %s: want the name of a strategy above", show(like))}
		}
		s = c.Strategies[i]
		s.like = append([]string{s.Name}, s.like...)
		s.Name = ""
	}
	for _, l := range leaves(nil, t) { // one by one: tables of the strategy it is like are extended
		if l.path[0] == "like" && len(l.path) == 1 {
			continue
		}
		if err := assign(s.fields(), prefix, l.path, l.value); err != nil {
			return err
		}
	}
	if s.Name == "" {
		return &keyError{prefix + ".name", ": missing; want a name for tables"}
	}
	for _, other := range c.Strategies {
		if other.Name == s.Name {
			return &keyError{prefix + ".name", fmt.Sprintf(" = %q: another strategy has this name", s.Name)}
		}
	}
	trial := c.base
	for _, l := range leaves(nil, s.Set) {
		if err := assign(trial.fields(), "", l.path, l.value); err != nil {
			return within(prefix+".set", err)
		}
	}
	c.Strategies = append(c.Strategies, s)
	return nil
}

// addAxes reads [axes] in the order of the file: it is the order of rows.
func (c *Config) addAxes(value any, meta toml.MetaData) error {
	tree, ok := value.(map[string]any)
	if !ok {
		return &keyError{"axes", fmt.Sprintf(" = %s: want a table of key = array of values", show(value))}
	}
	values := map[string]any{}
	for _, l := range leaves(nil, tree) {
		values[strings.Join(l.path, ".")] = l.value
	}
	for _, key := range meta.Keys() {
		if len(key) < 2 || key[0] != "axes" {
			continue
		}
		name := strings.Join(key[1:], ".")
		v, ok := values[name]
		if !ok {
			continue // a table on the way to a value
		}
		delete(values, name)
		axis := Axis{Key: name}
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			return &keyError{"axes." + name, fmt.Sprintf(" = %s: want an array of values that is not empty", show(v))}
		}
		trial := c.base
		for _, e := range list {
			if err := assign(trial.fields(), "", splitKey(name), e); err != nil {
				return within("axes", err)
			}
			if slices.ContainsFunc(axis.Values, func(o any) bool { return show(o) == show(e) }) {
				return &keyError{"axes." + name, fmt.Sprintf(" = %s: %s stands there twice", show(v), show(e))}
			}
			axis.Values = append(axis.Values, e)
		}
		c.Axes = append(c.Axes, axis)
	}
	return nil
}

func (c *Config) strategyNames() []string {
	names := make([]string, len(c.Strategies))
	for i := range c.Strategies {
		names[i] = c.Strategies[i].Name
	}
	return names
}

// dir is the folder of the experiment file.
func (c *Config) dir() string { return filepath.Dir(c.Path) }
