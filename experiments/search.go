package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"smartswap/sim"
)

// Status of a point.
type Status uint8

// Statuses.
const (
	Simulated Status = iota // it ran and fits
	OutOfHBM                // it ran and does not fit
	Skipped                 // a bound proves that it cannot be the answer
	Absent                  // the job does not exist
)

// Result is what became of a point.
type Result struct {
	Point    *Point
	Status   Status
	Why      string // Skipped, Absent
	Bounds   Bounds // not of an Absent point
	Outcome  Outcome
	Interval sim.Time // see pool
	Best     bool     // of its cell
	// Ideal is the same point with unbounded HBM; of the best point only.
	Ideal *Outcome
	// Baseline is the best point of the strategy that the file compares with,
	// under the same column and axis values; of the best point only.
	Baseline *Outcome
	// Tried is the value that a [search] tried here.
	Tried int64
	// Runs and IdealRuns are behind Outcome and Ideal, one per replication.
	Runs, IdealRuns []*Outcome
	// Adaptation is of the best point, with Setup.Series and variation.
	Adaptation *Adaptation
}

// CellResult is a searched cell; Results are in the order of its points.
type CellResult struct {
	Cell    *Cell
	Results []Result
	// Best is the index of the fastest point that fits; -1 if none does.
	Best int
	// Runs are the keys of the simulations behind the results, Events what
	// each took.
	Runs []runRecord
}

// runRecord names a simulation, for counting distinct ones.
type runRecord struct {
	key    string
	events uint64
}

// search finds the cell's fastest point that fits. Points run in order of
// their time bounds (of equal ones, in the order of the file), and one is
// skipped only if
//
//   - its memory bound is above the capacity: it cannot fit, or
//   - its time bound is not below the best time so far: it cannot win.
//
// So the best time is the minimum over all points. If no point fits, the one
// with the smallest memory bound is run to see how it fails; if none exists,
// nothing runs. The order depends
// on nothing but the bounds.
func search(ctx context.Context, cell *Cell, r Runner) (*CellResult, error) {
	found := &CellResult{Cell: cell, Best: -1, Results: make([]Result, len(cell.Points))}
	var order []int
	for i, p := range cell.Points {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		res := &found.Results[i]
		res.Point = p
		bounds, err := r.Bound(p)
		var absent *Impossible
		switch {
		case errors.As(err, &absent):
			res.Status, res.Why = Absent, absent.Reason
		case err != nil:
			return nil, err
		default:
			res.Bounds = bounds
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return found, nil
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(found.Results[a].Bounds.Time, found.Results[b].Bounds.Time)
	})

	ran := false
	for _, i := range order {
		res := &found.Results[i]
		switch best := found.Best; {
		case !res.Bounds.Fits():
			res.Status = Skipped
			res.Why = fmt.Sprintf("memory bound %d bytes > capacity %d bytes", res.Bounds.Memory, res.Bounds.Capacity)
		case best >= 0 && res.Bounds.Time >= found.Results[best].Outcome.Time:
			res.Status = Skipped
			res.Why = fmt.Sprintf("time bound %.3f ms >= best %.3f ms", res.Bounds.Time.Milliseconds(), found.Results[best].Outcome.Time.Milliseconds())
		default:
			if err := found.run(ctx, i, r); err != nil {
				return nil, err
			}
			ran = true
			if res.Status == Simulated && (best < 0 || res.Outcome.Time < found.Results[best].Outcome.Time) {
				found.Best = i
			}
		}
	}
	if !ran {
		smallest := slices.MinFunc(order, func(a, b int) int {
			return cmp.Compare(found.Results[a].Bounds.Memory, found.Results[b].Bounds.Memory)
		})
		if err := found.run(ctx, smallest, r); err != nil {
			return nil, err
		}
		if res := &found.Results[smallest]; res.Status == Simulated {
			return nil, fmt.Errorf("%v: it fits although its memory bound of %d bytes is above the capacity of %d", res.Point, res.Bounds.Memory, res.Bounds.Capacity)
		}
	}
	if found.Best >= 0 {
		best := &found.Results[found.Best]
		best.Best = true
		if err := found.compare(ctx, best, r); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// run simulates point i once per replication.
func (c *CellResult) run(ctx context.Context, i int, r Runner) error {
	res := &c.Results[i]
	var err error
	if res.Runs, err = c.simulate(ctx, res.Point, r); err != nil {
		return err
	}
	res.Outcome, res.Interval = pool(res.Runs)
	res.Status, res.Why = Simulated, ""
	switch {
	case res.Outcome.OOM != nil:
		res.Status = OutOfHBM
	case res.Outcome.Time < res.Bounds.Time:
		// The search relies on bounds: one that does not hold makes it wrong.
		why := ""
		if res.Point.Workload.Kind == "trace" { // the bound is that of an iteration alone
			why = "; iterations of this trace overlap, want each to end with a wait of the host (sync) for every lane that it uses"
		}
		return fmt.Errorf("%v: simulated iteration time %v is below its lower bound %v%s", res.Point, res.Outcome.Time, res.Bounds.Time, why)
	}
	return nil
}

// compare runs what the best point is held against: itself with unbounded HBM,
// and, if iterations vary and are kept, both without variation.
func (c *CellResult) compare(ctx context.Context, best *Result, r Runner) error {
	p := best.Point
	if p.Strategy.Ideal && !p.Strategy.AlwaysProfile {
		best.IdealRuns, best.Ideal = best.Runs, &best.Outcome
	} else {
		var err error
		if best.IdealRuns, best.Ideal, err = c.ideal(ctx, p, r); err != nil {
			return err
		}
	}
	if !p.Series || len(p.Variation) == 0 {
		return nil
	}
	steady := *p
	steady.Variation, steady.Replications = nil, 1
	runs, err := c.simulate(ctx, &steady, r)
	if err != nil {
		return err
	}
	if runs[0].OOM != nil {
		return nil // nothing undisturbed to hold the others against
	}
	_, ideal, err := c.ideal(ctx, &steady, r)
	if err != nil {
		return err
	}
	undisturbed := float64(runs[0].Time) / float64(ideal.Time)
	settled, err := c.settled(ctx, best, r, undisturbed)
	if err != nil {
		return err
	}
	if a, ok := adapt(best.Runs, best.IdealRuns, int(p.Warmup), undisturbed, settled); ok {
		best.Adaptation = &a
	}
	return nil
}

// settled finds the slow-down of every regime of the best point's runs: that of
// its job when it repeats for ever. One that does not fit then has the
// undisturbed slow-down.
func (c *CellResult) settled(ctx context.Context, best *Result, r Runner, undisturbed float64) (func(n, i int) float64, error) {
	known := map[uint64]float64{} // by job
	of := make([][]float64, len(best.Runs))
	for n, run := range best.Runs {
		of[n] = make([]float64, len(run.Iterations))
		for i, first := range regimes(run.Iterations) {
			if of[n][i] = undisturbed; first < 0 {
				continue
			}
			job := run.Iterations[first].Sequence.Program
			ratio, ok := known[job]
			if !ok {
				var err error
				if ratio, err = c.repeat(ctx, best.Point, r, int64(n), int64(first), undisturbed); err != nil {
					return nil, err
				}
				known[job] = ratio
			}
			of[n][i] = ratio
		}
	}
	return func(n, i int) float64 { return of[n][i] }, nil
}

// repeat is the slow-down of p when iteration i of its n-th replication repeats
// for ever.
func (c *CellResult) repeat(ctx context.Context, p *Point, r Runner, n, i int64, otherwise float64) (float64, error) {
	q := *p
	q.Seed += n
	q.Replications, q.Repeat = 1, i+1
	q.Iterations = min(q.Iterations, q.Warmup+settledIterations)
	runs, err := c.simulate(ctx, &q, r)
	if err != nil || runs[0].OOM != nil {
		return otherwise, err
	}
	_, ideal, err := c.ideal(ctx, &q, r)
	if err != nil {
		return 0, err
	}
	return float64(runs[0].Time) / float64(ideal.Time), nil
}

// settledIterations is how many iterations after the warm-up show what a
// repeating job costs.
const settledIterations = 10

// ideal is p with unbounded HBM: its runs, and the pool of them.
func (c *CellResult) ideal(ctx context.Context, p *Point, r Runner) ([]*Outcome, *Outcome, error) {
	runs, err := c.simulate(ctx, p.Ideal(), r)
	if err != nil {
		return nil, nil, err
	}
	outcome, _ := pool(runs)
	if outcome.OOM != nil {
		return nil, nil, fmt.Errorf("%v does not fit into unbounded memory", p)
	}
	return runs, &outcome, nil
}

// simulate runs p's replications. Seeds of replications follow each other, the
// same for every strategy: comparisons are paired.
func (c *CellResult) simulate(ctx context.Context, p *Point, r Runner) ([]*Outcome, error) {
	var runs []*Outcome
	for n := range p.Replications {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		q := *p
		q.Seed += n
		key, err := r.Key(&q)
		if err != nil {
			return nil, err
		}
		o, err := r.Run(&q)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", p, err)
		}
		c.Runs = append(c.Runs, runRecord{key, o.Events})
		runs = append(runs, o)
	}
	return runs, nil
}
