package trace

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/sim"
)

const ns = sim.Nanosecond

// Gaps are what a map of every nanosecond shows: times in which nothing runs and
// at whose border something starts or ends.
func TestStreams(t *testing.T) {
	gaps, sums := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var kernels []tlStream
		for i := range rapid.IntRange(1, 8).Draw(t, "kernels") {
			kernels = append(kernels, tlStream{
				stream: rapid.SampledFrom([]string{"7", "13"}).Draw(t, "stream"), name: fmt.Sprint("k", i),
				start: rapid.Int64Range(5, 40).Draw(t, "start"), time: sim.Time(rapid.Int64Range(0, 9).Draw(t, "time")) * ns,
			})
		}
		total := 0
		for _, s := range streams(kernels) {
			own := kernels
			if s.Name != AllStreams {
				own = nil
				for _, k := range kernels {
					if "stream "+k.stream == s.Name {
						own = append(own, k)
					}
				}
				total += len(own)
			} else {
				sums++
			}
			var works [64]bool // by ns
			first, last := int64(64), int64(0)
			edge := [65]string{} // kernels that start there
			for _, k := range own {
				first, last = min(first, k.start), max(last, k.start+int64(k.time/ns))
				edge[k.start] += " " + k.name
				for at := k.start; at < k.start+int64(k.time/ns); at++ {
					works[at] = true
				}
			}
			var busy sim.Time
			var want []int64
			run := int64(0)
			for at := first; at <= last; at++ {
				if run > 0 && (edge[at] != "" || at < last && works[at]) {
					want, run = append(want, run), 0
				}
				if works[at] {
					busy += ns
				} else if at < last {
					run++
				}
			}
			if s.Kernels != len(own) || s.Span != sim.Time(last-first)*ns || s.Busy != busy || s.Gaps != len(want) || len(s.Longest) != len(want) || s.Pauses != 0 {
				t.Fatalf("%+v\n of %+v: busy %v, gaps %v", s, own, busy, want)
			}
			gaps += len(want)
			at := map[sim.Time]int{}
			var sum sim.Time
			for i, g := range s.Longest {
				sum += g.Time
				at[g.At+g.Time]++
				if i > 0 && (s.Longest[i-1].Time < g.Time || s.Longest[i-1].Time == g.Time && s.Longest[i-1].At >= g.At) {
					t.Fatalf("%+v before %+v", s.Longest[i-1], g)
				}
				if to := first + int64((g.At+g.Time)/ns); !strings.Contains(edge[to]+" ", " "+g.After+" ") {
					t.Fatalf("%+v: %q start there", g, edge[to])
				}
			}
			if sum != s.Idle() {
				t.Fatalf("gaps of %v, idle %v", sum, s.Idle())
			}
		}
		if total != len(kernels) {
			t.Fatalf("%d kernels of %d", total, len(kernels))
		}
	})
	if gaps == 0 || sums == 0 {
		t.Error("no gap, or never two streams")
	}
}

// Parts of a nanosecond count; a pause of more than 30 s does not.
func TestStreamEdges(t *testing.T) {
	const second = int64(sim.Second / ns)
	list := streams([]tlStream{
		{"7", "a", 0, 1500},
		{"7", "b", 2, ns},
		{"7", "c", 3 + 30*second, ns},
		{"7", "d", 5 + 60*second, ns},
	})
	want := Stream{Name: "stream 7", Kernels: 4, Span: 30*sim.Second + 1500 + 500 + 3*ns, Busy: 1500 + 3*ns, Gaps: 2, Pauses: 1, Longest: []Gap{
		{At: 3 * ns, Time: 30 * sim.Second, Before: "b", After: "c"}, {At: 1500, Time: 500, Before: "a", After: "b"},
	}}
	if got := fmt.Sprintf("%+v", list); got != fmt.Sprintf("%+v", []Stream{want}) {
		t.Errorf("%s\n want %+v", got, want)
	}
	if s := streams(nil); len(s) != 0 {
		t.Errorf("%+v", s)
	}
	// The longest are kept, and a recording cannot make the sums overflow.
	var many []tlStream
	at := int64(0)
	for i := range 40_000 {
		many = append(many, tlStream{"7", "k", at, 29 * sim.Second})
		at += 29*second + 1 + int64(i)
	}
	s := streams(many)[0]
	if s.Gaps != 39_999 || len(s.Longest) != KeptGaps || s.Longest[0].Time != 39_999*ns || s.Longest[KeptGaps-1].Time != 39_900*ns || s.Span > maxTotalTime || s.Busy > s.Span {
		t.Errorf("%d gaps, %d kept, span %v", s.Gaps, len(s.Longest), s.Span)
	}
}
