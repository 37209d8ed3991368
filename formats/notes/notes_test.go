package notes

import "testing"

func TestCount(t *testing.T) {
	var l List
	l.Count(Skipped, "f", 3, "odd")
	l.Add(Inferred, "f", "%d things", 2)
	l.Count(Skipped, "f", 9, "odd")
	l.Count(Repaired, "f", 9, "odd")
	want := []string{"f:3: skipped: odd (2 times, here first)", "f: inferred: 2 things", "f:9: repaired: odd"}
	for i, n := range l.All() {
		if n.String() != want[i] {
			t.Errorf("%q; want %q", n, want[i])
		}
	}
	var none *List
	none.Count(Skipped, "f", 1, "odd")
	none.Add(Skipped, "f", "odd")
	if none.All() != nil {
		t.Error("a nil list has notes")
	}
}
