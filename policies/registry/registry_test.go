package registry

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/policies"
	"smartswap/policies/policytest"
	"smartswap/policies/smartswap"
)

// options are what the suite tries besides the defaults, by policy.
var options = map[string][]policies.Params{
	"dtr": {
		{"heuristic": "eqclass", "release": "plain"},
		{"heuristic": "local", "duplicates": "over", "limit": 0.0},
		{"heuristic": "lru", "compat_last_of_equals": true},
		{"heuristic": "size", "release": "plain", "compat_zero_stops": true},
		{"heuristic": "msps", "compat_foresight": true},
	},
	"g10": {
		{"memory": "unified", "gpu_bytes": int64(1 << 30), "compat_first_tensor": true},
		{"memory": "direct", "tiers": "ssd", "compat_line_factor": 1.060606, "compat_last_pass": 0.9},
	},
	"flashneuron": {{"gpu_bytes": int64(1 << 30)}},
	"uvm":         {{"victim": "used"}, {"dead": "dropped"}},
	"deepum":      {{"degree": int64(1)}},
	"smartswap": {
		{"preset": "paper", "redundant_bytes": int64(64 << 20), "reduction_bytes": int64(64 << 20)},
		{"preset": "faithful-v2", "min_tensor_bytes": int64(1), "optimizer": "plan"},
		{"preset": "faithful-v1", "redundant_bytes": int64(64 << 20), "reduction_bytes": int64(64 << 20)},
		{"optimizer": "chunks", "min_tensor_bytes": int64(1), "redundant_bytes": int64(16 << 20)},
		{"optimizer": "plan", "target": "reduction", "reduction_bytes": int64(128 << 20), "detect": "length"},
	},
}

func TestConformance(t *testing.T) {
	for _, r := range All() {
		t.Run(r.Name, func(t *testing.T) { policytest.Conform(t, r, options[r.Name]...) })
	}
}

// TestPlansAreMade makes sure that the suite sees plans, changed sequences, and
// what memory makes of them, not only evictions.
func TestPlansAreMade(t *testing.T) {
	const n = 400
	have := map[string]int{}
	scripts := rapid.Custom(policytest.Draw)
	for seed := range n {
		p, err := smartswap.Registration().New(policies.Params{"min_tensor_bytes": int64(1), "redundant_bytes": int64(32 << 20)})
		if err != nil {
			t.Fatal(err)
		}
		policytest.Play(t, scripts.Example(seed), p, false)
		seen := map[string]bool{}
		for _, note := range p.(policies.Reporter).Notes() {
			if !seen[note.Event] {
				seen[note.Event] = true
				have[note.Event]++
			}
		}
	}
	for event, percent := range map[string]int{"planned": 30, "changed": 20, "patched": 3, "recalled": 3} {
		if have[event]*100 < percent*n {
			t.Errorf("of %d scripts %d see %q, want %d %%", n, have[event], event, percent)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range Names() {
		if seen[name] {
			t.Errorf("two policies are called %q", name)
		}
		seen[name] = true
	}
}

func TestLookup(t *testing.T) {
	for _, name := range Names() {
		if r, err := Lookup(name); err != nil || r.Name != name {
			t.Errorf("Lookup(%q) = %q, %v", name, r.Name, err)
		}
	}
	_, err := Lookup("smrtswap")
	if err == nil || !strings.Contains(err.Error(), `nearest is "smartswap"`) || !strings.Contains(err.Error(), strings.Join(Names(), ", ")) {
		t.Errorf("error %v does not help", err)
	}
}
