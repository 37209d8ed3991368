package profilers

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestScore(t *testing.T) {
	for _, c := range []struct {
		kinds  string // one letter per iteration
		alarms []int
		want   Detection
	}{
		{"", nil, Detection{}},
		{"aaaa", nil, Detection{}},
		{"aaaa", []int{0, 2}, Detection{FalseAlarms: 2}},
		{"aabb", []int{2}, Detection{Changes: 1, Detected: 1}},
		{"aabbb", []int{4}, Detection{Changes: 1, Detected: 1, Latency: 2}},
		{"aabbb", []int{1, 2, 3}, Detection{Changes: 1, Detected: 1, FalseAlarms: 2}},
		{"aabaa", []int{2, 3}, Detection{Changes: 2, Detected: 2}},
		{"aabaa", []int{3}, Detection{Changes: 2, Detected: 1, Missed: 1}}, // too late for the first
		{"aabaa", nil, Detection{Changes: 2, Missed: 2}},
	} {
		if got := Score(strings.Split(c.kinds, ""), c.alarms); got != c.want {
			t.Errorf("%s with alarms at %v: %+v, want %+v", c.kinds, c.alarms, got, c.want)
		}
	}
}

// TestScoreAddsUp: every change is noticed or not, every alarm is for a change
// or false.
func TestScoreAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 1, 20).Draw(t, "kinds")
		var alarms []int
		for i := range kinds {
			if rapid.Bool().Draw(t, "alarm") {
				alarms = append(alarms, i)
			}
		}
		d := Score(kinds, alarms)
		if d.Detected+d.Missed != d.Changes || d.Detected+d.FalseAlarms != len(alarms) || d.Latency > d.Detected*len(kinds) {
			t.Fatalf("%v with alarms at %v: %+v", kinds, alarms, d)
		}
	})
}
