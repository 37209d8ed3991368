package experiments

import (
	"fmt"
	"slices"
	"strings"

	"smartswap/hw"
	"smartswap/internal/nearest"
	"smartswap/profilers"
	"smartswap/sim"
)

// profiler is the point's profiler, with the costs that [profilers] puts in
// place of the registered ones. Errors are keyErrors.
func (p *Point) profiler() (profilers.Profiler, error) {
	registered, err := profilers.Lookup(p.Strategy.Profiler)
	if err != nil {
		return nil, &keyError{"strategy.profiler", fmt.Sprintf(" = %q: %v", p.Strategy.Profiler, err)}
	}
	spec := profilers.Spec{Records: registered.Fields(), Prices: registered.Costs()}
	names := profilers.RegisteredNames()
	for _, l := range leaves(nil, p.Profilers) {
		name, path := l.path[0], "profilers."+strings.Join(l.path, ".")
		if !slices.Contains(names, name) || len(l.path) != 2 {
			return nil, &keyError{path, fmt.Sprintf(": want profilers.NAME.COST; nearest profiler is %s, allowed: %s", nearest.Name(name, names), strings.Join(names, ", "))}
		}
		var others profilers.Costs // whose value is checked, but not used
		prices := &others
		if name == p.Strategy.Profiler {
			prices = &spec.Prices
		}
		if err := setCost(prices, l.path[1], l.value); err != nil {
			return nil, &keyError{path, err.Error()}
		}
	}
	return spec, nil
}

// setCost changes one cost by the name that files use.
func setCost(c *profilers.Costs, key string, value any) error {
	costs := []struct {
		key string
		to  *sim.Time
	}{
		{"per_op", &c.PerOp}, {"per_tensor", &c.PerTensor}, {"per_stats", &c.PerStats},
		{"per_record", &c.PerRecord}, {"per_iteration", &c.PerIteration},
	}
	keys := make([]string, len(costs))
	for i, cost := range costs {
		keys[i] = cost.key
		if cost.key != key {
			continue
		}
		t, err := hw.ParseTime(plain(value))
		if err != nil {
			return fmt.Errorf(" = %s: %w", show(value), err)
		}
		if t < 0 || t > sim.Second {
			return fmt.Errorf(" = %s: want a time from 0s to 1s", show(value))
		}
		*cost.to = t
		return nil
	}
	return fmt.Errorf(": unknown cost; nearest is %s, allowed: %s", nearest.Name(key, keys), strings.Join(keys, ", "))
}
