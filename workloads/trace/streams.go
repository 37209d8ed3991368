package trace

import (
	"cmp"
	"slices"

	"smartswap/sim"
	"smartswap/workloads"
)

// Stream is what the recording tells of one stream of the device that computes:
// when it worked and when it did not. A recorded program keeps the order of
// kernels and the times of the host, not when the device started each kernel, so
// that this is all that is left of its idle time.
type Stream struct {
	Name    string   // "stream N" as the file numbers it, or AllStreams
	Kernels int      // and copies
	Span    sim.Time // from the first start to the last end, without pauses
	Busy    sim.Time // the part of Span with work: kernels side by side count once
	Gaps    int      // times without work between two kernels
	Pauses  int      // the same of more than 30 s, which no step has: left out
	// Longest are the longest gaps, longest first, at equal length the earlier
	// one; at most KeptGaps.
	Longest []Gap
}

// Idle is the time that all gaps take.
func (s *Stream) Idle() sim.Time { return s.Span - s.Busy }

// Gap is a time without work.
type Gap struct {
	At, Time      sim.Time // At counts from the first start on the stream, pauses left out
	Before, After string   // the kernel that ended last before it, and the one that started
}

// KeptGaps is how many gaps of a stream are kept.
const KeptGaps = 100

// AllStreams names the sum of several streams: it is idle when all are.
const AllStreams = "all of these"

// maxStreams bounds the list: damage must not make it long.
const maxStreams = 1000

// tlStream is a kernel as its stream saw it.
type tlStream struct {
	stream, name string
	start        int64 // ns
	time         sim.Time
}

// end is the instant of the end: whole ns, and the ps above them.
func (k *tlStream) end() (ns int64, ps sim.Time) {
	return k.start + int64(k.time/sim.Nanosecond), k.time % sim.Nanosecond
}

// streams describes the streams that kernels ran on, most kernels first, and the
// sum of them if there are several. O(n log n).
func streams(kernels []tlStream) []Stream {
	order := slices.Clone(kernels)
	slices.SortStableFunc(order, func(a, b tlStream) int { return cmp.Compare(a.start, b.start) })
	byName := map[string]int{}
	var groups [][]tlStream
	for _, k := range order {
		i, ok := byName[k.stream]
		if !ok {
			i = len(groups)
			byName[k.stream] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], k)
	}
	slices.SortStableFunc(groups, func(a, b []tlStream) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0].stream, b[0].stream))
	})
	list := make([]Stream, 0, len(groups)+1)
	if len(groups) > 1 {
		list = append(list, oneStream(AllStreams, order))
	}
	for _, g := range groups[:min(len(groups), maxStreams)] {
		list = append(list, oneStream("stream "+g[0].stream, g))
	}
	return list
}

// oneStream describes a stream; kernels is in order of their starts.
func oneStream(name string, kernels []tlStream) Stream {
	s := Stream{Name: name, Kernels: len(kernels)}
	var ns int64 // the latest end so far …
	var ps sim.Time
	last := -1 // … and whose it is
	for i := range kernels {
		k := &kernels[i]
		endNS, endPS := k.end()
		switch idle := k.start - ns; {
		case last < 0:
			s.add(k.time, k.time)
		case idle > maxGap:
			s.Pauses++
			s.add(k.time, k.time)
		case idle > 0:
			gap := Gap{At: s.Span, Time: sim.Time(idle)*sim.Nanosecond - ps, Before: kernels[last].name, After: k.name}
			s.Gaps++
			s.keep(gap)
			s.add(gap.Time+k.time, k.time)
		case endNS > ns || endNS == ns && endPS > ps: // works on where the last one ends
			more := sim.Time(endNS-ns)*sim.Nanosecond + endPS - ps
			s.add(more, more)
		}
		if last < 0 || endNS > ns || endNS == ns && endPS > ps {
			ns, ps, last = endNS, endPS, i
		}
	}
	s.Longest = s.longest()
	return s
}

// add lengthens the stream; beyond maxTotalTime nothing is added.
func (s *Stream) add(span, busy sim.Time) {
	if s.Span+span <= maxTotalTime {
		s.Span, s.Busy = s.Span+span, s.Busy+busy
	}
}

// keep keeps a gap if it is among the longest. The list is cut when it is twice
// as long as needed.
func (s *Stream) keep(g Gap) {
	if s.Longest = append(s.Longest, g); len(s.Longest) == 2*KeptGaps {
		s.Longest = s.longest()
	}
}

func (s *Stream) longest() []Gap {
	slices.SortStableFunc(s.Longest, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.At, b.At))
	})
	return s.Longest[:min(len(s.Longest), KeptGaps)]
}

// deviceStreams describes the streams of the recording that compute or copy.
func (t *timeline) deviceStreams() []Stream {
	var list []tlStream
	for i := range t.kernels {
		if k := &t.kernels[i]; k.lane == workloads.Compute {
			list = append(list, tlStream{k.stream, k.kernel, k.start, k.time})
		}
	}
	return streams(list)
}
