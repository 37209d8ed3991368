package inspect

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/alloc/history"
	"smartswap/formats/snapshot"
	"smartswap/hw"
	"smartswap/internal/paths"
	"smartswap/paper"
	"smartswap/sim"
	"smartswap/workloads/trace"
)

// runSnapshot replays a memory snapshot's history through the allocators of the
// model.
func runSnapshot(c *call) error {
	var sets listFlag
	device := c.flags.Int("device", -1, "`number` of the device; -1 = all that the file tells of")
	node := c.flags.String("node", "910b2-8", "`name` of the node whose host's prices calls of the driver have")
	samples := c.flags.Int("samples", 10, "`number` of lines of the table over time")
	c.flags.Var(&sets, "set", "`key=value` sets an option of the allocator that the file does not tell; may be repeated, e.g. -set expandable_segments=true")
	if err := c.parse(1); err != nil {
		return err
	}
	if *samples < 0 {
		return fmt.Errorf("-samples %d: want 0 or more", *samples)
	}
	n, err := hw.Load(*node)
	if err != nil {
		return fmt.Errorf("-node: %w", err) // which names it
	}
	s, err := readSnapshot(c.args[0])
	if err != nil {
		return err
	}
	setup, notes := history.Infer(s)
	for _, n := range notes {
		fmt.Fprintf(c.stderr, "%s: inferred: %s\n", c.args[0], n)
	}
	for _, set := range sets {
		if err := setOption(&setup.Options, set, optionKeys()); err != nil {
			return err
		}
	}
	devices := devicesOf(s)
	if *device >= 0 {
		devices = []int{*device}
	}
	if len(devices) == 0 {
		return fmt.Errorf("%s: the snapshot is empty", c.args[0])
	}
	same := true
	for _, d := range devices {
		first, err := c.replay(s, d, setup, n, *samples)
		if err != nil {
			return fmt.Errorf("%s: device %d: %w", c.args[0], d, err)
		}
		same = same && first == nil
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
	if !same {
		return errNegative
	}
	return nil
}

// readSnapshot reads a snapshot, packed with gzip or not.
func readSnapshot(path string) (*snapshot.Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, paths.Error(path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: is a folder; allowed: a file", path)
	}
	in := bufio.NewReaderSize(f, sniffed)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		in = bufio.NewReaderSize(z, sniffed)
	}
	start, err := in.Peek(sniffed)
	if len(start) == 0 && errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file is empty", path)
	}
	if len(start) > 0 && start[0] != 0x80 {
		if what := trace.Recognise(start); what != "" {
			return nil, fmt.Errorf("%s: is no snapshot: %s", path, what)
		}
		if format := trace.Sniff(start); format != "" {
			return nil, fmt.Errorf("%s: is no snapshot but a recorded workload (%s); trace info reads it", path, format)
		}
	}
	return snapshot.Read(in, path)
}

// sniffed is how much of a file tells what it is.
const sniffed = 64 << 10

// devicesOf lists the devices that have segments or events.
func devicesOf(s *snapshot.Snapshot) []int {
	var used []bool
	mark := func(d int) {
		for len(used) <= d {
			used = append(used, false)
		}
		used[d] = true
	}
	for i := range s.Segments {
		mark(s.Segments[i].Device)
	}
	for d, trace := range s.Traces {
		if len(trace) > 0 {
			mark(d)
		}
	}
	var list []int
	for d, u := range used {
		if u {
			list = append(list, d)
		}
	}
	return list
}

// optionKeys are the keys of alloc.Options.
func optionKeys() []string {
	var keys []string
	t := reflect.TypeFor[alloc.Options]()
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("toml"); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// replay replays one device and prints the result.
func (c *call) replay(s *snapshot.Snapshot, device int, setup history.Setup, n *hw.Node, samples int) (*history.Difference, error) {
	h, err := history.Rebuild(s, device, setup.Options)
	if err != nil {
		return nil, err
	}
	r, err := history.Replay(h, setup, samples)
	if err != nil {
		return nil, err
	}
	o := &setup.Options
	kind := o.Dialect
	if o.Backend != alloc.BackendCaching {
		kind += " " + o.Backend
	}
	kind += " allocator"
	if o.ExpandableSegments {
		kind += " with expandable segments"
	}
	fmt.Fprintf(c.stdout, "Device %d, %s: %d allocations, %d frees, %d out of memory, on %d streams and %d pools\n", device, kind, r.Allocs, r.Frees, r.OOMs, r.Streams, r.Pools)
	if h.Guessed > 0 {
		fmt.Fprintf(c.stderr, "device %d: inferred: sizes of %d blocks that were there at the start\n", device, h.Guessed)
	}
	tables := []paper.Table{driverTable(r), peakTable(r), workTable(r, setup.Own, n)}
	if len(r.Samples) > 0 {
		tables = append(tables, sampleTable(r))
	}
	for i := range tables {
		if err := tables[i].Terminal(c.stdout); err != nil {
			return nil, err
		}
	}
	if r.First == nil {
		fmt.Fprintln(c.stdout, "The model did what was recorded: the same requests to the driver, the same blocks.")
	} else {
		fmt.Fprintln(c.stdout, "First difference:", r.First)
	}
	return r.First, nil
}

// driverTable compares what was asked of the driver.
func driverTable(r *history.Result) paper.Table {
	t := paper.Table{Title: "Requests to the driver", Columns: []paper.Column{
		{Name: ""}, {Name: "recorded", Number: true}, {Name: "model", Number: true},
	}}
	x, y := &r.Recorded, &r.Model
	row := func(name string, recorded, model any) {
		t.Rows = append(t.Rows, []string{name, fmt.Sprint(recorded), fmt.Sprint(model)})
	}
	row("reserved at the start, bytes", int64(x.Start), int64(y.Start))
	row("segments requested", x.Allocs, y.Allocs)
	row("segments requested, bytes", int64(x.AllocBytes), int64(y.AllocBytes))
	row("segments given back", x.Frees, y.Frees)
	row("segments given back, bytes", int64(x.FreeBytes), int64(y.FreeBytes))
	if x.Maps+y.Maps+x.Unmaps+y.Unmaps > 0 {
		row("ranges mapped", x.Maps, y.Maps)
		row("ranges mapped, bytes", int64(x.MapBytes), int64(y.MapBytes))
		row("ranges unmapped", x.Unmaps, y.Unmaps)
		row("ranges unmapped, bytes", int64(x.UnmapBytes), int64(y.UnmapBytes))
	}
	row("peak reserved, bytes", int64(x.Peak), int64(y.Peak))
	row("reserved at the end, bytes", int64(x.Final), int64(y.Final))
	return t
}

// peakTable has what only the model can tell.
func peakTable(r *history.Result) paper.Table {
	t := paper.Table{Title: "Peaks in the model", Columns: []paper.Column{{Name: ""}, {Name: "bytes", Number: true}, {Name: "of peak reserved", Number: true}}}
	for _, x := range []struct {
		name string
		stat *alloc.Stat
	}{
		{"reserved", &r.Stats.Reserved}, {"active blocks", &r.Stats.Active}, {"allocated blocks", &r.Stats.Allocated},
		{"requested", &r.Stats.Requested}, {"pending: freed but waiting", &r.Stats.Pending}, {"inactive parts of segments", &r.Stats.InactiveSplit},
		{"largest free block at the peak of reserved", &alloc.Stat{Peak: r.Stats.LargestFree}},
	} {
		t.Rows = append(t.Rows, []string{x.name, strconv.FormatInt(x.stat.Peak, 10), percent(sim.Bytes(x.stat.Peak), sim.Bytes(r.Stats.Reserved.Peak))})
	}
	return t
}

// workTable is what the model had to do.
func workTable(r *history.Result, own bool, n *hw.Node) paper.Table {
	t := paper.Table{Title: "Work in the model", Columns: []paper.Column{{Name: ""}, {Name: "", Number: true}}}
	row := func(name string, v any) { t.Rows = append(t.Rows, []string{name, fmt.Sprint(v)}) }
	row("segments, peak", r.Stats.Segments.Peak)
	row("segments requested, or ranges mapped", r.Stats.DriverAllocs)
	row("segments given back, or ranges unmapped", r.Stats.DriverFrees)
	row("handles of physical memory mapped", r.Costs.Maps)
	row("handles of physical memory unmapped", r.Costs.Unmaps)
	if own {
		row("allocation retries", r.Stats.Retries)
	} else {
		row("allocation retries", "not told")
	}
	row("in the driver, ms", strconv.FormatFloat(eager.DriverTime(&r.Costs, &n.Host).Milliseconds(), 'f', 3, 64))
	t.Notes = append(t.Notes, "driver: at the prices of the host of "+n.Name)
	return t
}

// sampleTable is the model's memory over time.
func sampleTable(r *history.Result) paper.Table {
	t := paper.Table{Title: "Over time", Columns: []paper.Column{
		{Name: "event", Number: true}, {Name: "ms", Number: true}, {Name: "reserved", Number: true}, {Name: "allocated", Number: true},
		{Name: "requested", Number: true}, {Name: "pending", Number: true}, {Name: "external", Number: true}, {Name: "internal", Number: true},
		{Name: "largest free", Number: true},
	}, Notes: []string{
		"external: reserved but not active, of reserved; internal: active but not requested, of active; pending: freed but waiting for another stream",
	}}
	for _, x := range r.Samples {
		ms := "-" // files of torch_npu have no times
		if x.TimeUS != 0 {
			ms = strconv.FormatFloat(float64(x.TimeUS-r.StartUS)/1000, 'f', 1, 64)
		}
		t.Rows = append(t.Rows, []string{
			strconv.Itoa(x.Event), ms, x.Reserved.String(), x.Allocated.String(), x.Requested.String(), (x.Active - x.Allocated).String(),
			percent(x.Reserved-x.Active, x.Reserved), percent(x.Active-x.Requested, x.Active), x.Largest.String(),
		})
	}
	return t
}

// percent is part/whole for people.
func percent[T sim.Bytes | sim.Time](part, whole T) string {
	if whole == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}
