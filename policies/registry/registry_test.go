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
	"smartswap": {
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

// TestPlansAreMade makes sure that the suite sees plans and changed sequences,
// not only evictions.
func TestPlansAreMade(t *testing.T) {
	const n = 400
	plans, replans := 0, 0
	scripts := rapid.Custom(policytest.Draw)
	for seed := range n {
		p, err := smartswap.Registration().New(policies.Params{"min_tensor_bytes": int64(1), "redundant_bytes": int64(32 << 20)})
		if err != nil {
			t.Fatal(err)
		}
		log := strings.Join(policytest.Play(t, scripts.Example(seed), p, false), "\n")
		if at := strings.Index(log, "arm &{Swaps:[{"); at >= 0 {
			plans++
			if strings.Contains(log[at:], "arm <nil>") {
				replans++
			}
		}
	}
	if plans*100 < 30*n || replans*100 < 3*n {
		t.Errorf("of %d scripts %d see a plan, %d lose it again", n, plans, replans)
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
