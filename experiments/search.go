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
// with the smallest memory bound is run to see how it fails. The order depends
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
		return nil, fmt.Errorf("no point of the cell exists; the first because %s", found.Results[0].Why)
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
		ideal, err := found.ideal(ctx, best, r)
		if err != nil {
			return nil, err
		}
		best.Ideal = ideal
	}
	return found, nil
}

// run simulates point i once per replication.
func (c *CellResult) run(ctx context.Context, i int, r Runner) error {
	res := &c.Results[i]
	var err error
	res.Outcome, res.Interval, err = c.simulate(ctx, res.Point, r)
	if err != nil {
		return err
	}
	res.Status, res.Why = Simulated, ""
	switch {
	case res.Outcome.OOM != nil:
		res.Status = OutOfHBM
	case res.Outcome.Time < res.Bounds.Time:
		// The search relies on bounds: one that does not hold makes it wrong.
		return fmt.Errorf("%v: simulated iteration time %v is below its lower bound %v", res.Point, res.Outcome.Time, res.Bounds.Time)
	}
	return nil
}

// ideal is the same point with unbounded HBM.
func (c *CellResult) ideal(ctx context.Context, best *Result, r Runner) (*Outcome, error) {
	if best.Point.Strategy.Ideal {
		return &best.Outcome, nil
	}
	outcome, _, err := c.simulate(ctx, best.Point.Ideal(), r)
	if err != nil {
		return nil, err
	}
	if outcome.OOM != nil {
		return nil, fmt.Errorf("%v does not fit into unbounded memory", best.Point)
	}
	return &outcome, nil
}

// simulate runs p's replications. Seeds of replications follow each other, the
// same for every strategy: comparisons are paired.
func (c *CellResult) simulate(ctx context.Context, p *Point, r Runner) (Outcome, sim.Time, error) {
	var runs []*Outcome
	for n := range p.Replications {
		if err := ctx.Err(); err != nil {
			return Outcome{}, 0, err
		}
		q := *p
		q.Seed += n
		key, err := r.Key(&q)
		if err != nil {
			return Outcome{}, 0, err
		}
		o, err := r.Run(&q)
		if err != nil {
			return Outcome{}, 0, fmt.Errorf("%v: %w", p, err)
		}
		c.Runs = append(c.Runs, runRecord{key, o.Events})
		runs = append(runs, o)
	}
	o, interval := pool(runs)
	return o, interval, nil
}
