package policies_test

import (
	"slices"
	"testing"

	"smartswap/policies"
	"smartswap/policies/policytest"
	"smartswap/sim"
)

// TestLRU plays an iteration whose every eviction is known: states 1 to 3,
// then tensors 4 to 7 of two layers on a device of 100 MiB.
func TestLRU(t *testing.T) {
	p, err := policies.LRU().New(nil)
	if err != nil {
		t.Fatal(err)
	}
	mib := func(n ...sim.Bytes) []sim.Bytes {
		for i := range n {
			n[i] *= sim.MiB
		}
		return n
	}
	got := policytest.Play(t, policytest.Script{
		Capacity: 100 * sim.MiB, Host: sim.GiB,
		States:     mib(10, 10, 10),
		Iterations: []policytest.Iteration{{MicroBatches: 1, Layers: [][]sim.Bytes{mib(30, 30), mib(20, 40)}}},
	}, p, false)
	want := []string{
		"0:3 do 0 1: 0", "0:3 do 0 2: 0", // 20 MiB for tensor 6: the oldest two states just suffice
		"0:4 do 0 3: 0", "0:4 do 0 4: 0", // 40 for tensor 7: the last state, then the oldest tensor
		// Backward frees as it goes: 6, 7, and 4 comes back into their room.
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
