package stream

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"smartswap/sim"
)

// Moves come in order, with pauses between, hold every byte once, and cover the
// times that were told, except for what was taken before.
func TestMoves(t *testing.T) {
	merged := 0
	rapid.Check(t, func(t *rapid.T) {
		var m Moves
		m.In(0, 1, 5) // nobody watches
		m.Watch()
		var covered [64]bool // of the moves in, by instant
		var told, out sim.Bytes
		var all []Move
		take := func() {
			in, other := m.Take()
			all = append(all, in...)
			for _, v := range other {
				out -= v.Bytes
			}
		}
		end, n := sim.Time(0), 0
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			end = min(62, end+sim.Time(rapid.IntRange(0, 9).Draw(t, "later")))
			start := max(0, end-sim.Time(rapid.IntRange(0, 20).Draw(t, "long")))
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				take()
			case 1:
				out += 3
				m.Out(start, end, 3)
			case 2:
				m.In(start, end, 0)
			default:
				bytes := sim.Bytes(rapid.Int64Range(1, 9).Draw(t, "bytes"))
				m.In(start, end, bytes)
				told += bytes
				n++
				for i := start; i < end; i++ {
					covered[i] = true
				}
			}
		}
		take()
		for i, v := range all {
			told -= v.Bytes
			if v.Start > v.End || i > 0 && v.Start < all[i-1].End {
				t.Fatalf("%+v", all)
			}
			for at := v.Start; at < v.End; at++ {
				if !covered[at] {
					t.Fatalf("%+v: nothing moves at %d", all, at)
				}
				covered[at] = false
			}
		}
		for at, left := range covered {
			if left && len(all) > 0 && sim.Time(at) >= all[len(all)-1].Start {
				t.Fatalf("%+v: nothing at %d", all, at)
			}
		}
		if told != 0 || out != 0 {
			t.Fatalf("%d bytes in and %d out were lost", told, out)
		}
		if len(all) < n {
			merged++
		}
	})
	if merged == 0 {
		t.Error("nothing was ever joined")
	}
	// What overlaps with what was taken is cut; a long one swallows short ones.
	var m Moves
	m.Watch()
	m.In(0, 4, 1)
	m.Take()
	m.In(2, 9, 2)
	m.In(12, 13, 4)
	m.In(20, 21, 8)
	m.In(11, 30, 16)
	if in, out := m.Take(); fmt.Sprint(in, out) != "[{4ps 9ps 2B} {11ps 30ps 28B}] []" {
		t.Errorf("%v, %v", in, out)
	}
}
