package history

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"smartswap/eager/alloc"
	"smartswap/formats/snapshot"
	"smartswap/sim"
)

// Setup is what a record was made with.
type Setup struct {
	Options  alloc.Options
	Capacity sim.Bytes // of the device, for the framework; 0 = unbounded, or not told
	// Own: the record was left by a Recorder, which tells all options and the
	// capacity, and of each event whether it belongs to the request after it
	// (alloc.Trace.Making).
	Own bool
}

// ownGroup is the key under which a Recorder's settings are: the names of
// alloc.Options, and the capacity. Frameworks and their viewers skip it.
const (
	ownGroup    = "smartswap"
	capacityKey = "capacity"
)

// Infer is the set-up that a snapshot was made with, as far as it tells: from
// its settings, and where it has none, from its contents. The notes say what was
// inferred and what cannot be known.
func Infer(s *snapshot.Snapshot) (setup Setup, notes []string) {
	setup.Options = alloc.DefaultOptions()
	o := &setup.Options
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	for _, set := range s.Settings {
		if key, ok := strings.CutPrefix(set.Key, ownGroup+"."); ok {
			setup.Own = true
			if err := setup.set(key, set.Value); err != nil {
				note("%s = %q is left out: %v", set.Key, set.Value, err)
			}
		}
	}
	if setup.Own {
		return setup, notes
	}
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
	return setup, notes
}

// set takes one of a Recorder's settings.
func (s *Setup) set(key, value string) error {
	if key == capacityKey {
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil || v < 0 {
			return errors.New("want a number of bytes")
		}
		s.Capacity = sim.Bytes(v)
		return nil
	}
	v := option(&s.Options, key)
	if !v.IsValid() {
		return errors.New("no option of this name")
	}
	var err error
	switch v.Kind() {
	case reflect.String:
		v.SetString(value)
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(value)
		v.SetBool(b)
	case reflect.Int64:
		var i int64
		i, err = strconv.ParseInt(value, 10, 64)
		v.SetInt(i)
	case reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(value, 64)
		v.SetFloat(f)
	}
	return err
}

// option is the field of o with that TOML key; no value if there is none.
func option(o *alloc.Options, key string) reflect.Value {
	v := reflect.ValueOf(o).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("toml") == key {
			return v.Field(i)
		}
	}
	return reflect.Value{}
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

// Settings tells a set-up in the words of a snapshot: first the framework's own,
// for its tools, then all of it, for Infer.
func Settings(s Setup) []snapshot.Setting {
	o := &s.Options
	size := int64(-1) // unlimited
	if o.MaxSplitSizeMB > 0 {
		size = o.MaxSplitSizeMB * int64(sim.MiB)
	}
	list := []snapshot.Setting{
		{Key: "max_split_size", Value: strconv.FormatInt(size, 10)},
		{Key: "garbage_collection_threshold", Value: fmt.Sprint(o.GarbageCollectionThreshold)},
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
	v := reflect.ValueOf(s.Options)
	for i := range v.NumField() {
		list = append(list, snapshot.Setting{Key: ownGroup + "." + v.Type().Field(i).Tag.Get("toml"), Value: fmt.Sprint(v.Field(i))})
	}
	return append(list, snapshot.Setting{Key: ownGroup + "." + capacityKey, Value: strconv.FormatInt(int64(s.Capacity), 10)})
}
