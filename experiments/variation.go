package experiments

import (
	"errors"
	"fmt"
	"maps"

	"smartswap/workloads"
)

// Variation is one [[variation]] table: a process by name, and its options.
type Variation struct {
	Name    string
	Options map[string]any
}

// variations takes an array of tables, each with a name; the processes
// themselves check the other keys when a point is resolved.
func variations(p *[]Variation) func(any) error {
	return func(v any) error {
		tables, ok := tablesOf(v)
		if !ok {
			return errors.New("want [[variation]] tables, each with a name")
		}
		var list []Variation
		for _, t := range tables {
			var one Variation
			if err := text(&one.Name)(t["name"]); err != nil {
				return fmt.Errorf("name = %s: %w", show(t["name"]), err)
			}
			one.Options = maps.Clone(t)
			delete(one.Options, "name")
			list = append(list, one)
		}
		*p = list
		return nil
	}
}

// tablesOf reads an array of tables in either form: [[key]] or inline.
func tablesOf(v any) ([]map[string]any, bool) {
	switch v := v.(type) {
	case []map[string]any:
		return v, true
	case []any:
		tables := make([]map[string]any, len(v))
		for i, e := range v {
			t, ok := e.(map[string]any)
			if !ok {
				return nil, false
			}
			tables[i] = t
		}
		return tables, true
	}
	return nil, false
}

// processes makes the point's sources of variation. Those that draw at random
// do so by the point's seed, unless their table gives one.
func (p *Point) processes() ([]workloads.Process, error) {
	var list []workloads.Process
	for i, v := range p.Variation {
		options := maps.Clone(v.Options)
		if _, given := options["seed"]; !given {
			options["seed"] = p.Seed
		}
		process, err := workloads.ProcessByName(v.Name, options)
		if err != nil {
			return nil, &keyError{fmt.Sprintf("variation[%d]", i), fmt.Sprintf(": %v", err)}
		}
		list = append(list, process)
	}
	return list, nil
}
