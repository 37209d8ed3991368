package dtr

import (
	"fmt"
	"math"

	"smartswap/policies"
)

// Options of the policy.
type Options struct {
	// Heuristic is the score, see the package.
	Heuristic string
	// Release says what becomes of a storage when the program gives its last
	// reference back: "eager", its memory is free at once, as in every
	// framework; "plain", it stays in the pool as if nothing had happened. Both
	// keep it as something that may have to be made again on the way to
	// something else.
	Release string
	// Limit ends the run when recomputation in an iteration takes longer than
	// Limit times the iteration's own kernels; 0 = never. The published study
	// uses 4.
	Limit float64
	// Duplicates are results of an operator that runs again which are still
	// there: "apart", made a second time and dropped, as operators do that
	// allocate what they return; "over", written where they are.
	Duplicates string
	// Communication lets collectives run again (policies.Lineage), as they do
	// where layers are recomputed as a whole. The original knows one device.
	Communication bool

	// What the prototype of the original does to make the search short (section 5
	// of the paper; its switches have these names).

	// SampleTensors looks at the root of the number of candidates, rounded up,
	// drawn at random by Seed for each storage that is to leave. Without it there is
	// nothing to seed, and a seed is refused.
	SampleTensors bool
	// IgnoreSmallTensors leaves out candidates of less than a hundredth of the
	// mean size of all storages that operators have made so far, unless there are
	// no others: the prototype would run out of memory.
	IgnoreSmallTensors bool
	Seed               int64

	// What only the original's own simulator does, for comparison with it.

	// LastOfEquals takes, of equal scores, the candidate that came into the
	// pool last; otherwise the one that has been there longest.
	LastOfEquals bool
	// ZeroStops ends the search at the first score of 0, equal ones behind it
	// unseen.
	ZeroStops bool
	// Foresight counts an operator, with the time it is going to take, from the
	// moment it is met: while its arguments are made, its results are evicted
	// neighbours of what they come from. Sums that were computed before are not
	// corrected for it, so that what they say depends on who asked when.
	// Otherwise only what has run counts.
	Foresight bool
}

// Registration is the policy's line in the table of policies.
func Registration() policies.Registration {
	return policies.Registration{
		Name: "dtr",
		Seeded: func(p policies.Params) bool {
			sampled, _ := p["sample_tensors"].(bool)
			return sampled
		},
		About: "reactive: when an allocation fails, discard what is cheapest to make again, and run its operators again when it is needed",
		New: func(p policies.Params) (policies.Policy, error) {
			o := Options{Heuristic: "dtr", Release: "eager", Limit: 4, Duplicates: "apart"}
			r := p.Read()
			r.Choice("heuristic", &o.Heuristic, "dtr", "eqclass", "local", "lru", "size", "msps")
			r.Choice("release", &o.Release, "eager", "plain")
			r.Float("limit", &o.Limit, 0, 1e6)
			r.Choice("duplicates", &o.Duplicates, "apart", "over")
			r.Bool("replay_communication", &o.Communication)
			r.Bool("sample_tensors", &o.SampleTensors)
			r.Bool("ignore_small_tensors", &o.IgnoreSmallTensors)
			policies.Int(r, "seed", &o.Seed, 0, math.MaxInt64)
			r.Bool("compat_last_of_equals", &o.LastOfEquals)
			r.Bool("compat_zero_stops", &o.ZeroStops)
			r.Bool("compat_foresight", &o.Foresight)
			if err := r.Done(); err != nil {
				return nil, err
			}
			if seed, given := p["seed"]; given && !o.SampleTensors {
				return nil, fmt.Errorf("policies: option seed = %v: nothing is drawn at random; allowed only with sample_tensors = true", seed)
			}
			return New(o), nil
		},
	}
}
