package experiments

import (
	"fmt"

	"smartswap/eager/unified"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
)

// quantity takes what parse reads, as text, in [low, high].
func quantity[T ~int64](p *T, parse func(string) (T, error), low, high T, form string) func(any) error {
	return func(v any) error {
		q, err := parse(plain(v))
		if err != nil || q < low || q > high {
			return fmt.Errorf("want %s", form)
		}
		*p = q
		return nil
	}
}

// size takes a size such as "4KiB".
func size(p *sim.Bytes, low, high sim.Bytes) func(any) error {
	return quantity(p, hw.ParseBytes, low, high, fmt.Sprintf("a size such as \"4KiB\", from %v to %v", low, high))
}

// unlimited is size, or "unlimited" for -1.
func unlimited(p *sim.Bytes, high sim.Bytes) func(any) error {
	return func(v any) error {
		if v == "unlimited" {
			*p = -1
			return nil
		}
		if err := size(p, 0, high)(v); err != nil {
			return fmt.Errorf("%w, or \"unlimited\"", err)
		}
		return nil
	}
}

// rate takes a bandwidth such as "15.754GB/s".
func rate(p *sim.Rate) func(any) error {
	return quantity(p, hw.ParseRate, 0, 1<<50, "a rate such as \"15.754GB/s\"")
}

// span takes a time such as "45us".
func span(p *sim.Time) func(any) error {
	return quantity(p, hw.ParseTime, 0, sim.Second, "a time such as \"45us\", at most 1s")
}

// faultTimes takes a way to use profiled times.
func faultTimes(p *unified.FaultTimes) func(any) error {
	return func(v any) error {
		var name string
		err := choice(&name, "measured", "as-built")(v)
		if err == nil {
			*p = unified.FaultsMeasured
			if name == "as-built" {
				*p = unified.FaultsAsBuilt
			}
		}
		return err
	}
}

// memory is the kind of memory that the point's policy needs.
func (p *Point) memory() (policies.MemoryKind, error) {
	policy, _, err := p.policy()
	if err != nil {
		return 0, err
	}
	return policy.Needs().Memory, nil
}
