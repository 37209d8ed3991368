package recency

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestEmpty(t *testing.T) {
	var l List[int]
	l.Remove(1)
	l.Clear()
	if got := slices.Collect(l.Oldest()); len(got) != 0 || l.Len() != 0 {
		t.Errorf("an empty list yields %v, length %d", got, l.Len())
	}
}

func TestRemoveWhileWalking(t *testing.T) {
	var l List[int]
	for k := range 5 {
		l.Touch(k)
	}
	for k := range l.Oldest() {
		if k%2 == 0 {
			l.Remove(k)
		}
	}
	if got := slices.Collect(l.Oldest()); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("left: %v, want [1 3]", got)
	}
}

// TestAgainstSlice compares with a slice in order of use.
func TestAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l List[int]
		var naive []int
		drop := func(k int) {
			if i := slices.Index(naive, k); i >= 0 {
				naive = slices.Delete(naive, i, i+1)
			}
		}
		key := rapid.IntRange(0, 9)
		t.Repeat(map[string]func(*rapid.T){
			"touch": func(t *rapid.T) {
				k := key.Draw(t, "key")
				l.Touch(k)
				drop(k)
				naive = append(naive, k)
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "key")
				l.Remove(k)
				drop(k)
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					l.Clear()
					naive = nil
				}
			},
			"": func(t *rapid.T) {
				if got := slices.Collect(l.Oldest()); !slices.Equal(got, naive) || l.Len() != len(naive) {
					t.Fatalf("got %v (length %d), want %v", got, l.Len(), naive)
				}
			},
		})
	})
}
