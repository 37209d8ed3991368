// Package policytest is the conformance suite of policies: what every policy
// must do, whatever it decides. A policy's test is one call of Conform.
//
// The suite plays random training iterations on a Fake, a runtime that has
// memory and handles but neither time nor streams, and watches what the policy
// does to it.
package policytest

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"smartswap/policies"
)

// Conform checks that policies of r
//
//   - refuse options they do not know, and are made afresh by each New;
//   - have constant Needs of the grade they are registered with;
//   - act only on live tensors that allow it, and stop when nothing helps;
//   - arm plans that are valid and bind live optimizer states;
//   - decide the same on the same events, and ignore events of other kinds.
func Conform(t *testing.T, r policies.Registration, options ...policies.Params) {
	t.Helper()
	if _, err := r.New(policies.Params{"no_policy_has_this_option": true}); err == nil {
		t.Errorf("%s takes an option that does not exist", r.Name)
	}
	if r.Name == "" || r.About == "" {
		t.Errorf("registration %q lacks a name or a description: %q", r.Name, r.About)
	}
	for _, params := range append([]policies.Params{nil}, options...) {
		fresh := func(t rapid.TB) policies.Policy {
			p, err := r.New(params)
			if err != nil {
				t.Fatalf("%s with %v: %v", r.Name, params, err)
			}
			return p
		}
		checkNeeds(t, r, fresh)
		t.Run("random iterations", func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				script := Draw(t)
				first := Play(t, script, fresh(t), false)
				again := Play(t, script, fresh(t), false)
				if !slices.Equal(first, again) {
					t.Fatalf("the same events led to other actions:\n%q\n%q", first, again)
				}
				other := Play(t, script, fresh(t), true)
				if !slices.Equal(first, other) {
					t.Fatalf("events that were not asked for changed the actions:\n%q\n%q", first, other)
				}
			})
		})
	}
}

func checkNeeds(t *testing.T, r policies.Registration, fresh func(rapid.TB) policies.Policy) {
	t.Helper()
	p := fresh(t)
	needs := p.Needs()
	if needs.Grade != r.Grade {
		t.Errorf("%s needs grade %v but is registered as %v", r.Name, needs.Grade, r.Grade)
	}
	if needs.Events>>policies.NumEvents != 0 {
		t.Errorf("%s asks for events that do not exist: %b", r.Name, needs.Events)
	}
	if !reflect.DeepEqual(needs, p.Needs()) || !reflect.DeepEqual(needs, fresh(t).Needs()) {
		t.Errorf("%s: needs are not constant", r.Name)
	}
}
