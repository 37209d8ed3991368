package experiments

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"smartswap/eager/stream"
	"smartswap/profilers"
	"smartswap/results"
)

// rowColumn is one column of rows.csv after the axes: its meaning and how a
// result fills it.
type rowColumn struct {
	results.Column
	// of gives the value; after says which results have one.
	of    func(c *CellResult, r *Result) results.Value
	after scope
}

// scope says which results have a value in a column.
type scope uint8

const (
	everyPoint scope = iota
	possible         // the job exists
	simulated        // it ran
	fitting          // it ran and fits
	failing          // it ran and does not fit
	searched         // by a [search]
	adapted          // iterations are kept, and their sequence changes
)

func (s scope) covers(r *Result) bool {
	switch s {
	case possible:
		return r.Status != Absent
	case simulated:
		return r.Status == Simulated || r.Status == OutOfHBM
	case fitting:
		return r.Status == Simulated
	case failing:
		return r.Status == OutOfHBM
	case searched:
		return r.Tried > 0
	case adapted:
		return r.Adaptation != nil
	}
	return true
}

// tableColumns are columns for tables alone: what they say is in rows.csv in
// other columns, or follows from the axes.
func tableColumns() []rowColumn {
	return []rowColumn{
		{results.Column{Name: "stalls_ms", Kind: results.Text, About: "the causes that cost the compute stream time, in the order of the columns stall_..._ms"},
			func(_ *CellResult, r *Result) results.Value { return results.TextValue(stallText(&r.Outcome)) }, fitting},
		{results.Column{Name: "capacity_bytes", Kind: results.Integer, About: "what the allocator of a device may reserve; empty if it is unbounded"},
			func(_ *CellResult, r *Result) results.Value {
				if r.Bounds.Capacity == 0 {
					return results.Value{}
				}
				return results.IntegerValue(int64(r.Bounds.Capacity))
			}, possible},
	}
}

// columnNamed finds a column that a table may show.
func columnNamed(name string) (rowColumn, bool) {
	columns := append(rowColumns(), tableColumns()...)
	if i := slices.IndexFunc(columns, func(c rowColumn) bool { return c.Name == name }); i >= 0 {
		return columns[i], true
	}
	return rowColumn{}, false
}

// rowColumns are the columns after the axes, in order. Their texts are the
// glossary.
func rowColumns() []rowColumn {
	text := func(name, about string, after scope, of func(r *Result) string) rowColumn {
		return rowColumn{results.Column{Name: name, Kind: results.Text, About: about},
			func(_ *CellResult, r *Result) results.Value { return results.TextValue(of(r)) }, after}
	}
	whole := func(name, about string, after scope, of func(r *Result) int64) rowColumn {
		return rowColumn{results.Column{Name: name, Kind: results.Integer, About: about},
			func(_ *CellResult, r *Result) results.Value { return results.IntegerValue(of(r)) }, after}
	}
	decimal := func(name, about string, after scope, of func(r *Result) float64) rowColumn {
		return rowColumn{results.Column{Name: name, Kind: results.Real, About: about},
			func(_ *CellResult, r *Result) results.Value { return results.RealValue(of(r)) }, after}
	}
	columns := []rowColumn{
		{results.Column{Name: "strategy", Kind: results.Text, About: "name of the strategy"},
			func(c *CellResult, _ *Result) results.Value { return results.TextValue(c.Cell.Strategy) }, everyPoint},
		text("layout", "tensor x pipeline x data parallelism", everyPoint, func(r *Result) string {
			if r.Point.Workload.Kind == "trace" {
				return "trace"
			}
			return r.Point.Layout.String()
		}),
		text("recompute", "activation recomputation", everyPoint, func(r *Result) string { return r.Point.Recompute }),
		whole("micro_batch", "sequences per micro-batch", everyPoint, func(r *Result) int64 { return r.Point.MicroBatch }),
		whole("zero", "degree of state sharding over data parallelism", everyPoint, func(r *Result) int64 { return r.Point.Strategy.ZeRO }),
		text("policy", "memory policy", everyPoint, func(r *Result) string { return r.Point.Strategy.Policy }),
		text("profiler", "what feeds the policy", everyPoint, func(r *Result) string { return r.Point.Strategy.Profiler }),
		text("grade", "truth granted to the policy: observed, static or future", simulated, func(r *Result) string { return r.Outcome.Grade }),
		text("status", "ok; oom: ran and does not fit; skipped: a bound proves that it cannot be the answer; impossible: no such job", everyPoint, func(r *Result) string {
			return [...]string{"ok", "oom", "skipped: " + r.Why, "impossible: " + r.Why}[r.Status]
		}),
		whole("best", "1 for the fastest point of its cell that fits", everyPoint, func(r *Result) int64 {
			if r.Best {
				return 1
			}
			return 0
		}),
		decimal("time_bound_ms", "lower bound of the iteration time", possible, func(r *Result) float64 { return r.Bounds.Time.Milliseconds() }),
		whole("memory_bound_bytes", "lower bound of a device's peak under this policy", possible, func(r *Result) int64 { return int64(r.Bounds.Memory) }),

		decimal("tokens_per_s_per_device", "tokens trained per second, divided by the number of devices", fitting, func(r *Result) float64 { return tokensPerSecond(&r.Outcome) }),
		decimal("iteration_time_ms", "mean steady time from the last operator of one iteration to that of the next, on the compute stream", fitting, func(r *Result) float64 { return r.Outcome.Time.Milliseconds() }),
		whole("iteration_time_ps", "the same in integer picoseconds", fitting, func(r *Result) int64 { return int64(r.Outcome.Time) }),
		decimal("iteration_time_ci95_ms", "half-width of its 95 % confidence interval over replications; empty for a single, deterministic run", fitting, func(r *Result) float64 {
			if r.Point.Replications == 1 {
				return math.NaN()
			}
			return r.Interval.Milliseconds()
		}),
		decimal("fraction_of_ideal", "iteration time of the same point with unbounded HBM over its own; of the best point", fitting, func(r *Result) float64 {
			if r.Ideal == nil {
				return math.NaN()
			}
			return float64(r.Ideal.Time) / float64(r.Outcome.Time)
		}),
		decimal("fastest_iteration_ms", "shortest of the counted iterations; over replications the mean of these", fitting, func(r *Result) float64 { return r.Outcome.Fastest.Milliseconds() }),
		decimal("fastest_fraction_of_ideal", "iteration time of the same point with unbounded HBM over that; of the best point", fitting, func(r *Result) float64 {
			if r.Ideal == nil {
				return math.NaN()
			}
			return float64(r.Ideal.Time) / float64(r.Outcome.Fastest)
		}),
		decimal("overhead_percent", "iteration time over that of the strategy that the file compares with, less one; of the best point", fitting, func(r *Result) float64 {
			if r.Baseline == nil {
				return math.NaN()
			}
			return 100 * relative(r.Outcome.Time, r.Baseline.Time)
		}),
		decimal("multiple_of_hbm", "peak allocated bytes of the same point with unbounded HBM over what the allocator may reserve; of the best point, empty for ideal strategies", fitting, func(r *Result) float64 {
			if r.Ideal == nil || r.Bounds.Capacity == 0 {
				return math.NaN()
			}
			return float64(r.Ideal.PeakAllocated) / float64(r.Bounds.Capacity)
		}),
		whole("peak_allocated_bytes", "peak bytes in blocks handed out, worst device", simulated, func(r *Result) int64 { return int64(r.Outcome.PeakAllocated) }),
		whole("peak_reserved_bytes", "peak bytes the allocator held from the driver, worst device", simulated, func(r *Result) int64 { return int64(r.Outcome.PeakReserved) }),
		whole("peak_active_bytes", "peak bytes in blocks handed out or freed and waiting for other streams, worst device", simulated, func(r *Result) int64 { return int64(r.Outcome.Allocator.Active) }),
		whole("peak_requested_bytes", "of such blocks, peak bytes that were asked for, without rounding, worst device", simulated, func(r *Result) int64 { return int64(r.Outcome.Allocator.Requested) }),
		whole("peak_pending_bytes", "peak bytes in blocks freed that wait for the events of other streams, worst device", simulated, func(r *Result) int64 { return int64(r.Outcome.Allocator.Pending) }),
		whole("peak_inactive_split_bytes", "peak bytes in free blocks that are part of a segment in use; not counted in expandable segments and stitched pools; worst device", simulated, func(r *Result) int64 { return int64(r.Outcome.Allocator.InactiveSplit) }),
		whole("largest_free_bytes", "largest free block when reserved memory first reached its peak over the run, or over the counted iterations if it is higher there, once the request for which it grew was served; of the device with the highest peak", simulated, func(r *Result) int64 { return int64(r.Outcome.Allocator.LargestFree) }),
		whole("peak_segments", "peak number of segments from the driver; expandable ones are not counted; worst device", simulated, func(r *Result) int64 { return r.Outcome.Allocator.Segments }),
		whole("segments_requested", "segments asked of the driver, or ranges mapped in expandable ones, over the run, worst device", simulated, func(r *Result) int64 { return r.Outcome.Allocator.DriverAllocs }),
		whole("segments_returned", "segments given back to the driver, or ranges unmapped in expandable ones, over the run, worst device", simulated, func(r *Result) int64 { return r.Outcome.Allocator.DriverFrees }),
		whole("allocation_retries", "requests that were tried again after all cached memory was given back, over the run, worst device", simulated, func(r *Result) int64 { return r.Outcome.Allocator.Retries }),
		decimal("driver_ms", "host time in the driver for memory: segments, mappings and page-locking host buffers; over the run, which has at most four iterations without policy and variation; worst device", simulated, func(r *Result) float64 { return r.Outcome.Allocator.Driver.Milliseconds() }),
		decimal("driver_wait_ms", "dispatching thread waiting for the device because memory went back to the driver, over the run, worst device", simulated, func(r *Result) float64 { return r.Outcome.Allocator.DriverWait.Milliseconds() }),
		whole("first_stage_allocated_bytes", "peak bytes handed out in counted iterations on the first simulated rank, of the first pipeline stage", simulated, func(r *Result) int64 { return int64(r.Outcome.First.Allocated) }),
		whole("first_stage_reserved_bytes", "peak bytes reserved there", simulated, func(r *Result) int64 { return int64(r.Outcome.First.Reserved) }),
		whole("last_stage_allocated_bytes", "peak bytes handed out in counted iterations on the last simulated rank, of the last pipeline stage", simulated, func(r *Result) int64 { return int64(r.Outcome.Last.Allocated) }),
		whole("last_stage_reserved_bytes", "peak bytes reserved there", simulated, func(r *Result) int64 { return int64(r.Outcome.Last.Reserved) }),
		whole("host_bytes", "peak host memory that held tensors, whole node", simulated, func(r *Result) int64 { return int64(r.Outcome.PeakHost) }),
		whole("out_bytes", "moved off the device per iteration and device", fitting, func(r *Result) int64 { return int64(r.Outcome.OutBytes) }),
		whole("out_activation_bytes", "of them, activations and gradients in passing", fitting, func(r *Result) int64 { return int64(r.Outcome.OutByType[profilers.Others]) }),
		whole("out_parameter_bytes", "of them, parameters", fitting, func(r *Result) int64 { return int64(r.Outcome.OutByType[profilers.Model]) }),
		whole("out_optimizer_bytes", "of them, fp32 parameters and moments", fitting, func(r *Result) int64 { return int64(r.Outcome.OutByType[profilers.OptimState]) }),
		whole("in_bytes", "moved back per iteration and device", fitting, func(r *Result) int64 { return int64(r.Outcome.InBytes) }),
		whole("ssd_out_bytes", "of out_bytes, to the SSD", fitting, func(r *Result) int64 { return int64(r.Outcome.SSDOut) }),
		whole("ssd_in_bytes", "of in_bytes, from the SSD", fitting, func(r *Result) int64 { return int64(r.Outcome.SSDIn) }),
		whole("evictions", "swap-outs and discards per iteration that a failed allocation forced, all simulated ranks", fitting, func(r *Result) int64 { return r.Outcome.Evictions }),
		whole("faults", "swap-ins per iteration that an operator had to wait for unplanned, with unified memory operators that missed pages; all simulated ranks", fitting, func(r *Result) int64 { return r.Outcome.Faults }),
		whole("remat_ops", "operators per iteration that ran again to make what a policy had discarded, all simulated ranks", fitting, func(r *Result) int64 { return r.Outcome.RematOps }),
		decimal("remat_time_ms", "their time on the compute stream, per iteration, mean over ranks", fitting, func(r *Result) float64 { return r.Outcome.RematTime.Milliseconds() }),
		decimal("slowdown", "iteration time over that of the same point with unbounded HBM; of the best point", fitting, func(r *Result) float64 {
			if r.Ideal == nil {
				return math.NaN()
			}
			return 1 + slowdown(r)
		}),
		decimal("host_busy_ms", "dispatching thread at work, per iteration of the whole run, mean over ranks", fitting, func(r *Result) float64 { return r.Outcome.HostBusy.Milliseconds() }),
		decimal("busy_ms", "compute stream running kernels, per iteration, mean over ranks", fitting, func(r *Result) float64 { return r.Outcome.Busy.Milliseconds() }),
	}
	for cause := stream.Cause(0); cause < stream.NumCauses; cause++ {
		columns = append(columns, decimal("stall_"+cause.Name()+"_ms", "compute stream waiting, per iteration, mean over ranks; cause: "+causeText[cause], fitting,
			func(r *Result) float64 { return r.Outcome.Stalls[cause].Milliseconds() }))
	}
	changes := func(r *Result, seen func(*SequenceOutcome) bool) float64 {
		if !r.Point.Series || len(r.Runs) == 0 {
			return math.NaN()
		}
		n := 0
		for _, run := range r.Runs {
			for i := range run.Iterations {
				if seen(&run.Iterations[i].Sequence) {
					n++
				}
			}
		}
		return float64(n) / float64(len(r.Runs))
	}
	detects := func(d profilers.Detector, s *SequenceOutcome) bool {
		return s.Length >= d.MaxLength || s.ZeroPad < d.MinCosine
	}
	columns = append(columns,
		decimal("operators_per_iteration", "program operators that a rank dispatches, mean over iterations and ranks", simulated, func(r *Result) float64 { return r.Outcome.OpsPerIteration }),
		decimal("operator_us", "compute stream's kernel time per operator of the program", fitting, func(r *Result) float64 {
			return r.Outcome.Busy.Milliseconds() * 1000 / r.Outcome.OpsPerIteration
		}),
		text("records", "what a profiler records that is always on", fitting, func(r *Result) string { return r.Outcome.Records }),
		whole("completed_iterations", "iterations of the first run that ended", simulated, func(r *Result) int64 { return r.Outcome.Completed }),
		whole("runs_that_fit", "replications that did not run out of memory", simulated, func(r *Result) int64 {
			n := int64(0)
			for _, run := range r.Runs {
				if run.OOM == nil {
					n++
				}
			}
			return n
		}),
		decimal("sequence_changes", "iterations whose operator sequence is not that of the one before, per run; with series", simulated, func(r *Result) float64 {
			return changes(r, func(s *SequenceOutcome) bool { return s.Changed })
		}),
		decimal("seen_by_length", "of them, those that a comparison of operator counts notices (5 %)", simulated, func(r *Result) float64 {
			return changes(r, func(s *SequenceOutcome) bool { return detects(profilers.LengthOnly(), s) })
		}),
		decimal("seen_by_cosine", "of them, those that counts or the cosine of name ids notice (5 %, 95 %)", simulated, func(r *Result) float64 {
			return changes(r, func(s *SequenceOutcome) bool { return detects(profilers.LengthAndCosine(), s) })
		}),
		decimal("detected_changes", "of them, those that the policy on rank 0 notes before the next one, per run; of policies that keep notes", simulated, func(r *Result) float64 {
			return detection(r, func(d *profilers.Detection) int { return d.Detected })
		}),
		decimal("missed_changes", "of them, those that it does not", simulated, func(r *Result) float64 {
			return detection(r, func(d *profilers.Detection) int { return d.Missed })
		}),
		decimal("false_alarms", "changes that it notes and that are none, or were noted before, per run", simulated, func(r *Result) float64 {
			return detection(r, func(d *profilers.Detection) int { return d.FalseAlarms })
		}),
		decimal("detection_latency_iterations", "iterations from a change to the note, 0 for its own; mean over those noticed", simulated, func(r *Result) float64 {
			return detection(r, func(d *profilers.Detection) int { return d.Latency }) / detection(r, func(d *profilers.Detection) int { return d.Detected })
		}),
		decimal("undisturbed_slowdown", "iteration time over ideal of the same point without variation", adapted, func(r *Result) float64 { return r.Adaptation.Undisturbed }),
		decimal("lost_iterations_per_change", "what counted iterations take above the slow-down that the policy has when the job of their regime repeats for ever, in ideal iterations, divided by the changes of the sequence", adapted, func(r *Result) float64 { return r.Adaptation.Lost.Mean }),
		decimal("lost_iterations_ci95", "half-width of its 95 % confidence interval", adapted, func(r *Result) float64 { return r.Adaptation.Lost.Half }),
		decimal("recovery_iterations", "iterations from a change until one is within 0.05 ideal iterations of that slow-down, or until the next change", adapted, func(r *Result) float64 { return r.Adaptation.Recovery.Mean }),
		decimal("recovery_iterations_ci95", "half-width of its 95 % confidence interval", adapted, func(r *Result) float64 { return r.Adaptation.Recovery.Half }),
		decimal("unrecovered_fraction", "share of changes that the next one, or the end, overtakes", adapted, func(r *Result) float64 { return r.Adaptation.Late.Mean }),
		whole("tried", "value of the searched key", searched, func(r *Result) int64 { return r.Tried }),
		decimal("slowdown_percent", "iteration time over that of the same point with unbounded HBM, less one; of the best point", fitting, func(r *Result) float64 {
			if r.Ideal == nil {
				return math.NaN()
			}
			return 100 * slowdown(r)
		}),
	)
	return append(columns,
		text("oom_operator", "operator whose allocation failed", failing, func(r *Result) string { return r.Outcome.OOM.Operator }),
		text("oom_reason", "what ran out: memory, or the time that the policy allows for operators that run again", failing, func(r *Result) string { return r.Outcome.OOM.reason() }),
		whole("oom_rank", "simulated rank that ran out", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Rank) }),
		whole("oom_iteration", "iteration in which it did", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Iteration) }),
		whole("oom_requested_bytes", "size of the allocation that failed", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Requested) }),
		whole("oom_free_bytes", "what the device had left outside the allocator's reservation", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Free) }),
		whole("oom_largest_free_bytes", "largest free block that it was allowed to use, smaller than the request or kept for larger ones", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.LargestFree) }),
		whole("oom_capacity_bytes", "what the allocator may reserve", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Capacity) }),
		whole("trace_inferred", "things that the trace does not say and its reader inferred, such as uses of tensors from their lifetimes; the manifest lists them; 0 = all is as recorded", simulated, func(r *Result) int64 { return r.Outcome.Inferred }),
		whole("trace_repaired", "things that were wrong in the trace and safe to put right", simulated, func(r *Result) int64 { return r.Outcome.Repaired }),
		whole("trace_skipped", "things in the trace that the run does not have", simulated, func(r *Result) int64 { return r.Outcome.Skipped }),
		whole("program_operators", "operators of the program that the run dispatched, all ranks and iterations", simulated, func(r *Result) int64 { return r.Outcome.Ops }),
		whole("events", "simulated events of the run", simulated, func(r *Result) int64 { return int64(r.Outcome.Events) }),
		text("fingerprint", "hash of the event history", simulated, func(r *Result) string { return fmt.Sprintf("%016x", r.Outcome.Fingerprint) }),
	)
}

// detection is the mean over a point's runs of a count; NaN if a run has none.
func detection(r *Result, of func(*profilers.Detection) int) float64 {
	sum := 0
	for _, run := range r.Runs {
		if run.Detection == nil {
			return math.NaN()
		}
		sum += of(run.Detection)
	}
	return float64(sum) / float64(len(r.Runs))
}

// causeText explains the causes of waiting.
var causeText = [stream.NumCauses]string{
	stream.Empty:      "no operator enqueued (the job is host-bound, or there is nothing to do)",
	stream.SwapIn:     "a planned swap-in has not arrived",
	stream.Fault:      "a demand swap-in is being served",
	stream.Freed:      "memory is reused whose swap-out has not ended",
	stream.Collective: "a collective has not finished",
	stream.Pipeline:   "a neighbouring pipeline stage",
	stream.Rendezvous: "other members have not reached a collective",
	stream.Engine:     "the DMA engine serves another stream",
	stream.Order:      "ordering of copies",
}

// tokensPerSecond is per device; NaN for workloads without tokens.
func tokensPerSecond(o *Outcome) float64 {
	if o.Tokens == 0 || o.Devices == 0 || o.Time <= 0 {
		return math.NaN()
	}
	return float64(o.Tokens) / float64(o.Devices) / o.Time.Seconds()
}

// newFrame is rows.csv without rows.
func newFrame(axes []Axis) *results.Frame {
	f := &results.Frame{Columns: dimensions(axes)}
	for _, c := range rowColumns() {
		f.Columns = append(f.Columns, c.Column)
	}
	return f
}

// dimensions are the first columns of every file of rows.
func dimensions(axes []Axis) []results.Column {
	columns := []results.Column{{Name: "column", Kind: results.Text, About: "column of the figure"}}
	for _, a := range axes {
		columns = append(columns, results.Column{Name: a.Key, Kind: results.Text, About: "axis: value of this key in the experiment file"})
	}
	return columns
}

func dimensionValues(c *CellResult) []results.Value {
	row := []results.Value{results.TextValue(c.Cell.Column)}
	for _, v := range c.Cell.Axes {
		row = append(row, results.TextValue(v))
	}
	return row
}

// rows fills rows.csv: one row per point, cells that were not reached left
// out.
func rows(axes []Axis, cells []*CellResult) *results.Frame {
	f := newFrame(axes)
	columns := rowColumns()
	for _, c := range cells {
		if c == nil {
			continue
		}
		for i := range c.Results {
			r := &c.Results[i]
			row := dimensionValues(c)
			for _, col := range columns {
				v := results.Value{}
				if col.after.covers(r) {
					v = col.of(c, r)
				}
				row = append(row, v)
			}
			f.Rows = append(f.Rows, row)
		}
	}
	return f
}

// valueOf is one cell's figure in a column: that of its best
// point, or, if nothing fits, of the point that showed it. The second result
// is false if there is none.
func valueOf(c *CellResult, column string) (results.Value, bool) {
	r := representative(c)
	if col, ok := columnNamed(column); ok && col.after.covers(r) {
		v := col.of(c, r)
		return v, v.Present()
	}
	return results.Value{}, false
}

// representative is the point that speaks for a cell.
func representative(c *CellResult) *Result {
	if c.Best >= 0 {
		return &c.Results[c.Best]
	}
	for i := range c.Results {
		if c.Results[i].Status == OutOfHBM {
			return &c.Results[i]
		}
	}
	return &c.Results[0]
}

// attachBaselines gives every best point that of the strategy the file compares
// with.
func (c *Config) attachBaselines(cells []*CellResult) {
	finished := slices.DeleteFunc(slices.Clone(cells), func(cell *CellResult) bool { return cell == nil })
	for _, group := range groups(finished) {
		best := map[string]*Outcome{}
		for _, cell := range group {
			if cell.Best >= 0 {
				best[cell.Cell.Strategy] = &cell.Results[cell.Best].Outcome
			}
		}
		for _, cell := range group {
			with := c.CompareWith
			if own := c.Strategies[cell.Cell.strategy].CompareWith; own != "" {
				with = own
			}
			if cell.Best >= 0 {
				cell.Results[cell.Best].Baseline = best[with]
			}
		}
	}
}

// stallText lists the causes that cost at least 0.05 ms, in the order of their
// table.
func stallText(o *Outcome) string {
	var parts []string
	for cause := range o.Stalls {
		if ms := o.Stalls[cause].Milliseconds(); ms >= 0.05 {
			parts = append(parts, fmt.Sprintf("%s %.1f", stream.Cause(cause).Name(), ms))
		}
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}
