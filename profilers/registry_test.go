package profilers_test

import (
	"strings"
	"testing"

	"smartswap/profilers"
	"smartswap/profilers/profilertest"
)

func TestConformance(t *testing.T) {
	for _, r := range profilers.All() {
		t.Run(r.Name, func(t *testing.T) { profilertest.Conform(t, r.Profiler) })
	}
}

func TestLookup(t *testing.T) {
	for _, name := range profilers.RegisteredNames() {
		if _, err := profilers.Lookup(name); err != nil {
			t.Error(err)
		}
	}
	_, err := profilers.Lookup("detail")
	if err == nil || !strings.Contains(err.Error(), `nearest is "detailed"`) {
		t.Errorf("error %v does not help", err)
	}
}

// TestTheRegistryIsInOrderOfCost compares what an operator with three
// arguments, its records and a border cost.
func TestTheRegistryIsInOrderOfCost(t *testing.T) {
	last := -1.0
	for _, r := range profilers.All() {
		c := r.Profiler.Costs()
		cost := (c.Op(r.Profiler.Fields(), 3) + 3*c.PerRecord + c.PerBorder).Microseconds()
		if cost <= last {
			t.Errorf("%s costs %v us per operator, the one before %v", r.Name, cost, last)
		}
		last = cost
	}
}

func TestFieldsString(t *testing.T) {
	for f, want := range map[profilers.Fields]string{
		0:                                        "nothing",
		profilers.OpNames:                        "op-names",
		profilers.OpNames | profilers.CallStacks: "op-names+call-stacks",
	} {
		if got := f.String(); got != want {
			t.Errorf("%d is %q, want %q", f, got, want)
		}
	}
}
