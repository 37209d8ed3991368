package experiments

import (
	"context"
	"fmt"
	"strings"

	"smartswap/sim"
)

// Search asks for the largest value of a whole-number key at which a job trains
// at an acceptable speed: [search].
type Search struct {
	Key            string // "" = no search
	From, To, Step int64
	// MaxSlowdown is how much longer than the ideal run an iteration may
	// take: 0.05 is 5 %.
	MaxSlowdown float64
}

const maxSearch = 1 << 40

func (s *Search) fields() []field {
	return []field{
		{key: "key", set: text(&s.Key)},
		{key: "from", set: integer(&s.From, 1, maxSearch)},
		{key: "to", set: integer(&s.To, 1, maxSearch)},
		{key: "step", set: integer(&s.Step, 1, maxSearch)},
		{key: "max_slowdown", set: number(&s.MaxSlowdown, 0, 1e6)},
	}
}

func (s *Search) check() error {
	switch {
	case s.From < 1 || s.To < s.From:
		return &keyError{"search.to", fmt.Sprintf(" = %d: want at least search.from = %d, and that at least 1", s.To, s.From)}
	case s.Step < 1:
		return &keyError{"search.step", fmt.Sprintf(" = %d: want at least 1", s.Step)}
	}
	return nil
}

// value is the k-th value that the search may try.
func (s *Search) value(k int64) int64 { return s.From + k*s.Step }

// leaf gives the searched key its value; a list of choices becomes a list of
// one.
func (s *Search) leaf(value int64) leaf {
	if strings.HasPrefix(s.Key, "strategy.") {
		return leaf{splitKey(s.Key), []any{value}}
	}
	return leaf{splitKey(s.Key), value}
}

// largest finds the cell's largest value that trains within its slow-down:
// steps double until a value fails, and the gap to the last one that passed is
// halved until it is one step. So the value passes and the next one fails;
// whether some larger value would pass again is not asked. The results of all
// values tried stand in the order in which they were tried.
func largest(ctx context.Context, cell *Cell, r Runner) (*CellResult, error) {
	s := &cell.search
	found := &CellResult{Cell: cell, Best: -1}
	try := func(k int64) (bool, error) {
		points, err := cell.at(s.value(k))
		if err != nil {
			return false, err
		}
		probe := &Cell{Column: cell.Column, Axes: cell.Axes, Strategy: cell.Strategy, Points: points}
		one, err := search(ctx, probe, r)
		if err != nil {
			return false, fmt.Errorf("%s = %d: %w", s.Key, s.value(k), err)
		}
		if impossible(one) {
			return false, fmt.Errorf("%s = %d: no point exists; the first because %s", s.Key, s.value(k), one.Results[0].Why)
		}
		found.Runs = append(found.Runs, one.Runs...)
		base := len(found.Results)
		found.Results = append(found.Results, one.Results...)
		for i := range one.Results {
			found.Results[base+i].Tried, found.Results[base+i].Best = s.value(k), false
		}
		if one.Best < 0 || slowdown(&one.Results[one.Best]) > s.MaxSlowdown {
			return false, nil
		}
		found.Best = base + one.Best
		return true, nil
	}
	last := (s.To - s.From) / s.Step
	passed, failed := int64(-1), last+1
	for k, stride := int64(0), int64(1); passed+1 < failed; {
		ok, err := try(k)
		if err != nil {
			return nil, err
		}
		if ok {
			passed = k
		} else {
			failed = k
		}
		switch {
		case failed > last: // nothing has failed yet
			k = min(k+stride, last)
			stride *= 2
		default:
			k = passed + (failed-passed)/2
		}
	}
	if found.Best >= 0 {
		found.Results[found.Best].Best = true
	}
	return found, nil
}

// slowdown is how much longer than the ideal run the point takes.
func slowdown(r *Result) float64 { return relative(r.Outcome.Time, r.Ideal.Time) }

// relative is t over reference, less one.
func relative(t, reference sim.Time) float64 { return float64(t)/float64(reference) - 1 }
