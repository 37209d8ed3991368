package bench

import (
	"fmt"
	"slices"
	"testing"
)

// attempts is how often a measurement may be repeated until it holds: other
// work on the machine slows some of them, a slow program all.
const attempts = 5

// verdicts collects what a measurement found wrong.
type verdicts struct {
	t     *testing.T
	wrong []string
}

// Logf reports a figure.
func (v *verdicts) Logf(format string, args ...any) { v.t.Logf(format, args...) }

// atMost notes that got exceeds limit.
func (v *verdicts) atMost(what string, got, limit float64) {
	if got > limit {
		v.wrong = append(v.wrong, fmt.Sprintf("%s: %.4g, want at most %.4g", what, got, limit))
	}
}

// holds measures until nothing is wrong, and fails if something always is.
func holds(t *testing.T, measure func(v *verdicts)) {
	t.Helper()
	v := &verdicts{t: t}
	for range attempts {
		v.wrong = nil
		if measure(v); len(v.wrong) == 0 {
			return
		}
		t.Logf("again: %v", v.wrong)
	}
	for _, w := range v.wrong {
		t.Error(w)
	}
}

// fastest is the least of some times: what the program takes when nothing
// disturbs it.
func fastest(times []float64) float64 { return slices.Min(times) }
