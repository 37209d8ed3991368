package history

import (
	"fmt"
	"strconv"
	"strings"

	"smartswap/eager/alloc"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// Infer is the configuration that a snapshot was made with, as far as it tells:
// from its settings, and where it has none, from its contents. The notes say
// what was inferred and what cannot be known.
func Infer(s *snapshot.Snapshot) (o alloc.Options, notes []string) {
	o = alloc.DefaultOptions()
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	switch {
	case mentions(s, "torch_npu"):
		o.Dialect = alloc.DialectTorchNPU
		note("dialect = %q: call stacks name torch_npu", o.Dialect)
	case padded(s):
		o.Dialect = alloc.DialectTorchNPU
		note("dialect = %q: blocks have room for 32 bytes more than requested", o.Dialect)
	}
	o.ExpandableSegments = expandable(s)
	var divisions []string
	for _, set := range s.Settings {
		key, interval, _ := strings.Cut(set.Key, ".")
		switch key {
		case "max_split_size": // bytes; -1 = unlimited
			if v, err := strconv.ParseInt(set.Value, 10, 64); err == nil && v > 0 && v < int64(sim.MiB)<<20 {
				o.MaxSplitSizeMB = v / int64(sim.MiB)
			}
		case "garbage_collection_threshold":
			if v, err := strconv.ParseFloat(set.Value, 64); err == nil && v > 0 {
				note("garbage_collection_threshold = %v is left out: the limit that it is a share of is not in the file", v)
			}
		case "expandable_segments":
			o.ExpandableSegments = o.ExpandableSegments || set.Value == "true"
		case "roundup_power2_divisions":
			if interval != "" && set.Value != "0" && set.Value != "1" {
				divisions = append(divisions, interval+":"+set.Value)
			}
		}
	}
	if divisions != nil {
		// The first entry of a list speaks for all smaller sizes too, so the
		// list begins with the smallest.
		if !strings.HasPrefix(divisions[0], "1:") {
			divisions = append([]string{"1:0"}, divisions...)
		}
		o.RoundupPower2Divisions = alloc.Divisions(strings.Join(divisions, ","))
	}
	return o, notes
}

// mentions tells whether a call stack of s has word in a file name.
func mentions(s *snapshot.Snapshot, word string) bool {
	seen := make(map[*snapshot.Frame]bool) // stacks are shared
	stack := func(frames []snapshot.Frame) bool {
		if len(frames) == 0 || seen[&frames[0]] {
			return false
		}
		seen[&frames[0]] = true
		for i := range frames {
			if strings.Contains(frames[i].File, word) {
				return true
			}
		}
		return false
	}
	for _, trace := range s.Traces {
		for i := range trace {
			if stack(trace[i].Frames) {
				return true
			}
		}
	}
	return false
}

// padded tells whether requests that are whole blocks of 512 bytes got one more,
// always: the sign of torch_npu's 32 bytes. Blocks of which a rest too small to
// be split off may be part tell nothing.
func padded(s *snapshot.Snapshot) bool {
	const quantum = 512
	more := 0
	for _, g := range s.Segments {
		if g.Large && !g.Expandable {
			continue
		}
		for _, b := range g.Blocks {
			if b.State == snapshot.Inactive || b.Requested == 0 || b.Requested%quantum != 0 {
				continue
			}
			if b.Size != b.Requested+quantum {
				return false
			}
			more++
		}
	}
	return more > 0
}

// expandable tells whether s has expandable segments.
func expandable(s *snapshot.Snapshot) bool {
	for i := range s.Segments {
		if s.Segments[i].Expandable {
			return true
		}
	}
	for _, trace := range s.Traces {
		for i := range trace {
			if a := trace[i].Action; a == snapshot.SegmentMap || a == snapshot.SegmentUnmap {
				return true
			}
		}
	}
	return false
}

// Settings tells o in the words of a snapshot, as far as Infer reads them.
func Settings(o alloc.Options) []snapshot.Setting {
	size := int64(-1) // unlimited
	if o.MaxSplitSizeMB > 0 {
		size = o.MaxSplitSizeMB * int64(sim.MiB)
	}
	list := []snapshot.Setting{
		{Key: "max_split_size", Value: strconv.FormatInt(size, 10)},
		{Key: "expandable_segments", Value: strconv.FormatBool(o.ExpandableSegments)},
	}
	divisions := strings.NewReplacer("[", "", "]", "", " ", "").Replace(string(o.RoundupPower2Divisions))
	if divisions != "" && !strings.Contains(divisions, ":") { // one value for all sizes
		divisions = "1:" + divisions + ",>:" + divisions
	}
	for entry := range strings.SplitSeq(divisions, ",") {
		if interval, n, ok := strings.Cut(entry, ":"); ok {
			list = append(list, snapshot.Setting{Key: "roundup_power2_divisions." + interval, Value: n})
		}
	}
	return list
}
