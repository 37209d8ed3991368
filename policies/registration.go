package policies

import (
	"fmt"
	"strings"

	"smartswap/internal/nearest"
	"smartswap/profilers"
)

// Registration is a policy in a registry; package policies/registry has the
// table of all.
type Registration struct {
	Name, About string
	Grade       Grade
	// Seeded tells of options with which the policy draws at random, by its option
	// seed: the run's, unless it is given. All ranks draw alike. nil = it never
	// draws.
	Seeded func(Params) bool
	// New makes a fresh policy for one rank of one run. Options that it does
	// not know, or that are out of range, are an error of one line.
	New func(Params) (Policy, error)
}

// Check tells whether a run that offers these profile fields and this grade
// of truth can grant n. The error lists both sides.
func (n Needs) Check(offered profilers.Fields, grade Grade) error {
	if missing := n.Fields &^ offered; missing != 0 {
		return fmt.Errorf("policies: the policy needs profile fields %v, the profiler records %v: missing %v",
			n.Fields, offered, missing)
	}
	if n.Grade > grade {
		return fmt.Errorf("policies: the policy needs truth of grade %q, the run grants %q", n.Grade, grade)
	}
	return nil
}

// eventNames by EventKind.
var eventNames = [NumEvents]string{"iteration-end", "mark", "before-op", "after-op", "save", "unpack", "miss", "pressure", "released"}

// String is the event's name.
func (k EventKind) String() string {
	if k >= NumEvents {
		return fmt.Sprintf("event(%d)", uint8(k))
	}
	return eventNames[k]
}

// Find looks a name up in a registry. The error names the nearest and all
// valid names.
func Find(table []Registration, name string) (Registration, error) {
	var names []string
	for _, r := range table {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return Registration{}, fmt.Errorf("policies: no policy %q; nearest is %q, valid are %s",
		name, nearest.Name(name, names), strings.Join(names, ", "))
}
