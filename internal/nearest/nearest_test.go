package nearest

import (
	"testing"

	"pgregory.net/rapid"
)

func TestName(t *testing.T) {
	for _, c := range []struct {
		want string
		have []string
		name string
	}{
		{"lur", nil, ""},
		{"smartsawp", []string{"none", "lru", "smartswap"}, "smartswap"},
		{"ab", []string{"ac", "ad"}, "ac"}, // a tie: the first
		{"", []string{"long", "a"}, "a"},
		{"chunk", []string{"bandwidth", "chunks"}, "chunks"},
	} {
		if got := Name(c.want, c.have); got != c.name {
			t.Errorf("Name(%q, %q) = %q, want %q", c.want, c.have, got, c.name)
		}
	}
}

func TestDistanceAgainstRecursion(t *testing.T) {
	var naive func(a, b string) int
	naive = func(a, b string) int {
		if a == "" || b == "" {
			return len(a) + len(b)
		}
		if a[0] == b[0] {
			return naive(a[1:], b[1:])
		}
		return 1 + min(naive(a[1:], b), naive(a, b[1:]), naive(a[1:], b[1:]))
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[abc]{0,6}`)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		if got, want := Distance(a, b), naive(a, b); got != want {
			t.Errorf("Distance(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}
