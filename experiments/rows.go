package experiments

import (
	"fmt"
	"math"
	"strings"

	"smartswap/eager/stream"
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
	}
	return true
}

// stallsColumn is a column for tables alone: the causes that cost the compute
// stream time, largest first.
const stallsColumn = "stalls_ms"

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
			if !r.Best {
				return math.NaN()
			}
			return float64(r.Ideal.Time) / float64(r.Outcome.Time)
		}),
		decimal("multiple_of_hbm", "peak allocated bytes of the same point with unbounded HBM over what the allocator may reserve; of the best point, empty for ideal strategies", fitting, func(r *Result) float64 {
			if !r.Best || r.Bounds.Capacity == 0 {
				return math.NaN()
			}
			return float64(r.Ideal.PeakAllocated) / float64(r.Bounds.Capacity)
		}),
		whole("peak_allocated_bytes", "peak bytes in blocks handed out, worst device", simulated, func(r *Result) int64 { return int64(r.Outcome.PeakAllocated) }),
		whole("peak_reserved_bytes", "peak bytes the allocator held from the driver, worst device", simulated, func(r *Result) int64 { return int64(r.Outcome.PeakReserved) }),
		whole("host_bytes", "peak host memory that held tensors, whole node", simulated, func(r *Result) int64 { return int64(r.Outcome.PeakHost) }),
		whole("out_bytes", "moved to the host per iteration and device", fitting, func(r *Result) int64 { return int64(r.Outcome.OutBytes) }),
		whole("in_bytes", "moved back per iteration and device", fitting, func(r *Result) int64 { return int64(r.Outcome.InBytes) }),
		whole("evictions", "swap-outs per iteration that a failed allocation forced, all simulated ranks", fitting, func(r *Result) int64 { return r.Outcome.Evictions }),
		whole("faults", "swap-ins per iteration that an operator had to wait for unplanned, all simulated ranks", fitting, func(r *Result) int64 { return r.Outcome.Faults }),
		decimal("busy_ms", "compute stream running kernels, per iteration, mean over ranks", fitting, func(r *Result) float64 { return r.Outcome.Busy.Milliseconds() }),
	}
	for cause := stream.Cause(0); cause < stream.NumCauses; cause++ {
		columns = append(columns, decimal("stall_"+cause.Name()+"_ms", "compute stream waiting, per iteration, mean over ranks; cause: "+causeText[cause], fitting,
			func(r *Result) float64 { return r.Outcome.Stalls[cause].Milliseconds() }))
	}
	return append(columns,
		text("oom_operator", "operator whose allocation failed", failing, func(r *Result) string { return r.Outcome.OOM.Operator }),
		whole("oom_rank", "simulated rank that ran out", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Rank) }),
		whole("oom_iteration", "iteration in which it did", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Iteration) }),
		whole("oom_requested_bytes", "size of the allocation that failed", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Requested) }),
		whole("oom_free_bytes", "what the device had left outside the allocator's reservation", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Free) }),
		whole("oom_capacity_bytes", "what the allocator may reserve", failing, func(r *Result) int64 { return int64(r.Outcome.OOM.Capacity) }),
		whole("program_operators", "operators of the program that the run dispatched, all ranks and iterations", simulated, func(r *Result) int64 { return r.Outcome.Ops }),
		whole("events", "simulated events of the run", simulated, func(r *Result) int64 { return int64(r.Outcome.Events) }),
		text("fingerprint", "hash of the event history", simulated, func(r *Result) string { return fmt.Sprintf("%016x", r.Outcome.Fingerprint) }),
	)
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
	f := &results.Frame{Columns: []results.Column{{Name: "column", Kind: results.Text, About: "column of the figure"}}}
	for _, a := range axes {
		f.Columns = append(f.Columns, results.Column{Name: a.Key, Kind: results.Text, About: "axis: value of this key in the experiment file"})
	}
	for _, c := range rowColumns() {
		f.Columns = append(f.Columns, c.Column)
	}
	return f
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
			row := []results.Value{results.TextValue(c.Cell.Column)}
			for _, v := range c.Cell.Axes {
				row = append(row, results.TextValue(v))
			}
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

// valueOf is one cell's figure in a column of rows.csv: that of its best
// point, or, if nothing fits, of the point that showed it. The second result
// is false if there is none.
func valueOf(c *CellResult, column string) (results.Value, bool) {
	r := representative(c)
	for _, col := range rowColumns() {
		if col.Name == column && col.after.covers(r) {
			v := col.of(c, r)
			return v, v.Present()
		}
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
