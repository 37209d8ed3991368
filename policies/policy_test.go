package policies

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/profilers"
)

func TestNeedsCheck(t *testing.T) {
	n := Needs{Fields: profilers.OpNames | profilers.OpTimes, Grade: Static}
	if err := n.Check(profilers.OpNames|profilers.OpTimes|profilers.CallStacks, Future); err != nil {
		t.Error(err)
	}
	err := n.Check(profilers.OpNames, Static)
	if err == nil || !strings.Contains(err.Error(), "needs profile fields op-names+op-times, the profiler records op-names: missing op-times") {
		t.Errorf("missing fields: %v", err)
	}
	if err := n.Check(n.Fields, Observed); err == nil || !strings.Contains(err.Error(), `"static"`) {
		t.Errorf("missing truth: %v", err)
	}
}

func TestEvents(t *testing.T) {
	s := Set(AfterOp, Pressure)
	for k := range NumEvents {
		if s.Has(k) != (k == AfterOp || k == Pressure) || k.String() == "" {
			t.Errorf("event %v in the set: %v", k, s.Has(k))
		}
	}
	if got := EventKind(99).String(); got != "event(99)" {
		t.Error(got)
	}
}

// TestFeatureKeepsEightUses compares with a list of all uses.
func TestFeatureKeepsEightUses(t *testing.T) {
	v := Vocabulary{Index: []uint8{1, 64, 0, 7}}
	rapid.Check(t, func(t *rapid.T) {
		var f Feature
		var want Feature
		uses := rapid.SliceOf(rapid.Custom(func(t *rapid.T) [2]int32 {
			return [2]int32{rapid.Int32Range(0, 6).Draw(t, "name"), rapid.Int32Range(0, 20).Draw(t, "arg")}
		})).Draw(t, "uses")
		for _, u := range uses {
			f.Use(v, u[0], int(u[1]))
		}
		want.Uses = int32(len(uses))
		for back := range min(8, len(uses)) {
			u := uses[len(uses)-1-back]
			if int(u[0]) < len(v.Index) {
				want.Calls |= uint64(v.Index[u[0]]) << (8 * back)
			}
			want.Args |= uint64(u[1]) << (8 * back)
		}
		for _, u := range uses {
			if int(u[0]) < len(v.Index) && v.Index[u[0]] > 0 {
				want.Tags |= 1 << (v.Index[u[0]] - 1)
			}
		}
		if f != want {
			t.Fatalf("got %+v, want %+v", f, want)
		}
	})
}

func TestFind(t *testing.T) {
	table := []Registration{None(), LRU()}
	if r, err := Find(table, "lru"); err != nil || r.Name != "lru" {
		t.Errorf("%v, %v", r.Name, err)
	}
	if _, err := Find(table, "LRU"); err == nil || !strings.Contains(err.Error(), "valid are none, lru") {
		t.Errorf("error %v does not help", err)
	}
}
