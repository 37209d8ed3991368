package hw

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"smartswap/internal/nearest"
	"smartswap/sim"
)

// setting is one number of a node: its dotted key, where it is kept, and the
// values allowed, in the text form that catalogue files use.
type setting struct {
	key     string
	to      any    // a pointer whose type says how text is read: see parse
	low, hi string // inclusive; a curve's bounds hold for each of its values
}

// flops is a peak in floating-point operations per second.
type flops float64

// settings lists every number of n. It is the one place that knows the keys of
// catalogue files, of Set, and the range that Validate allows.
func (n *Node) settings() []setting {
	d, h, l, f := &n.Device, &n.Host, &n.Link, &n.Fabric
	list := []setting{
		{"devices", &n.Devices, "1", "4096"},

		{"device.hbm", &d.HBM, "64MiB", "16TiB"},
		{"device.held", &d.Held, "0", "16TiB"},
		{"device.bandwidth", &d.Bandwidth, "1GB/s", "1000TB/s"},
		{"device.peak16", (*flops)(&d.Peak16), "1GFLOP/s", "1000PFLOP/s"},
		{"device.peak32", (*flops)(&d.Peak32), "1GFLOP/s", "1000PFLOP/s"},
		{"device.fixed", &d.Fixed, "0", "1s"},
		{"device.skinny", &d.Skinny, "0.001", "1"},

		{"host.dispatch", &h.Dispatch, "0", "1s"},
		{"host.launch", &h.Launch, "0", "1s"},
		{"host.task-queue", &h.TaskQueue, "0", "16777216"},
		{"host.launch-queue", &h.LaunchQueue, "1", "16777216"},
		{"host.malloc", &h.Malloc, "0", "1s"},
		{"host.free", &h.Free, "0", "1s"},
		{"host.driver-alloc", &h.DriverAlloc, "0", "1s"},
		{"host.driver-free", &h.DriverFree, "0", "1s"},
		{"host.event-record", &h.EventRecord, "0", "1s"},
		{"host.event-query", &h.EventQuery, "0", "1s"},
		{"host.stream-wait", &h.StreamWait, "0", "1s"},
		{"host.copy-launch", &h.CopyLaunch, "0", "1s"},
		{"host.memory", &h.Memory, "0", "1024TiB"},
		{"host.pinned", &h.Pinned, "1MiB", "1024TiB"},
		{"host.pin-fixed", &h.PinFixed, "0", "1s"},
		{"host.pin-per-mib", &h.PinPerMiB, "0", "1s"},
		{"host.numa", &h.NUMA, "1", "1024"},
		{"host.numa-bandwidth", &h.NUMABandwidth, "1MB/s", "1000TB/s"},

		{"link.rate.d2h", &l.Rate[D2H], "1MB/s", "1000TB/s"},
		{"link.rate.h2d", &l.Rate[H2D], "1MB/s", "1000TB/s"},
		{"link.rate-both.d2h", &l.RateBoth[D2H], "0", "1000TB/s"},
		{"link.rate-both.h2d", &l.RateBoth[H2D], "0", "1000TB/s"},
		{"link.both", &l.Both, "0", "1000TB/s"},
		{"link.latency", &l.Latency, "0", "1s"},
		{"link.efficiency", &l.Efficiency, "0.001", "1"},
		{"link.pageable", &l.Pageable, "1MB/s", "1000TB/s"},
		{"link.uplink", &l.Uplink, "0", "1000TB/s"},
		{"link.uplink-devices", &l.UplinkDevices, "0", "4096"},
		{"link.remote", &l.Remote, "0.001", "1"},

		{"fabric.latency", &f.Latency, "0", "1s"},
		{"fabric.peer", &f.Peer, "0", "1000TB/s"},
		{"fabric.ramp", &f.Ramp, "0", "16TiB"},
		{"fabric.server", &f.Server, "0", "4096"},
		{"fabric.across", &f.Across, "0", "1000TB/s"},
	}
	for i := range NumFamilies {
		list = append(list,
			setting{"device.flop." + i.String(), &d.Flop[i], "0.001", "1"},
			setting{"device.mem." + i.String(), &d.Mem[i], "0.001", "1"},
			setting{"device.beside." + i.String(), &d.Beside[i], "1", "100"})
	}
	for i := range NumCollectives {
		list = append(list, setting{"fabric." + i.String(), &f.Tables[i], "1MB/s", "1000TB/s"})
	}
	return list
}

// Keys are the dotted keys that Set knows, in alphabetical order. A key that
// is a prefix of others, such as "link.rate" or "device.beside", stands for
// all of them.
func (n *Node) Keys() []string {
	var keys []string
	for _, s := range n.settings() {
		keys = append(keys, s.key)
	}
	slices.Sort(keys)
	return keys
}

// keysAndPrefixes adds to sorted keys the prefixes that Set accepts.
func keysAndPrefixes(keys []string) []string {
	var all []string
	for _, key := range keys {
		for i := strings.IndexByte(key, '.') + 1; i < len(key); i++ {
			if key[i] == '.' {
				all = append(all, key[:i])
			}
		}
		all = append(all, key)
	}
	return all
}

// Set changes one number of the node, or all below a prefix, from its text
// form: "link.rate" to "55GB/s", "device.beside.matmul" to "2.2",
// "device.skinny" to "4:0.2 10:1". Nothing changes when there is an error: an
// unknown key (the nearest is named), or a value that cannot be read or is out
// of range. What several numbers must fulfil together is left to Validate.
func (n *Node) Set(key, value string) error {
	n.Source = maps.Clone(n.Source) // copies of a Node share it
	return n.set(key, value, "set to "+value)
}

// set is Set with a text for Source.
func (n *Node) set(key, value, source string) error {
	changed := *n
	changed.Source = nil // shared with n until all is well
	var done []string
	for _, s := range changed.settings() {
		if s.key != key && !strings.HasPrefix(s.key, key+".") {
			continue
		}
		if err := s.parse(value); err != nil {
			return fmt.Errorf("%s = %q: %w", s.key, value, err)
		}
		if err := s.check(); err != nil {
			return err
		}
		done = append(done, s.key)
	}
	if len(done) == 0 {
		return fmt.Errorf("no number is called %q, the nearest is %q", key, nearest.Name(key, keysAndPrefixes(n.Keys())))
	}
	changed.Source = n.Source
	*n = changed
	if n.Source == nil {
		n.Source = map[string]string{}
	}
	for _, k := range done {
		n.Source[k] = source
	}
	return nil
}

// parse reads the value's text form. The value behind s.to is replaced, never
// changed in place: copies of a Node share their curves and tables.
func (s setting) parse(text string) (err error) {
	text = strings.TrimSpace(text)
	switch to := s.to.(type) {
	case *sim.Bytes:
		*to, err = ParseBytes(text)
	case *sim.Rate:
		*to, err = ParseRate(text)
	case *sim.Time:
		*to, err = ParseTime(text)
	case *flops:
		var v float64
		v, err = parseFloat(text, flopUnits())
		*to = flops(v)
	case *float64:
		*to, err = parseRatio(text)
	case *int:
		*to, err = strconv.Atoi(text)
		if err != nil {
			err = errors.New("want a whole number")
		}
	case *Curve:
		*to, err = parseCurve(text)
	case *[]GroupRate:
		*to, err = parseTable(text)
	default:
		err = fmt.Errorf("a %T has no text form", s.to)
	}
	return err
}

// check compares the value with the allowed range and says what is allowed.
func (s setting) check() error {
	low, hi := s.bounds()
	for _, v := range s.values() {
		if !(v >= low && v <= hi) { // also catches NaN
			return fmt.Errorf("%s = %s: must be %s to %s", s.key, s.text(), s.low, s.hi)
		}
	}
	switch to := s.to.(type) {
	case *Curve:
		for i := 1; i < len(to.Points); i++ {
			if !(to.Points[i].X > to.Points[i-1].X) {
				return fmt.Errorf("%s = %s: sizes must increase", s.key, s.text())
			}
		}
	case *[]GroupRate:
		for i, entry := range *to {
			if entry.Members < 2 || i > 0 && entry.Members <= (*to)[i-1].Members {
				return fmt.Errorf("%s = %s: group sizes must be at least 2 and increase", s.key, s.text())
			}
		}
	}
	return nil
}

// bounds are low and hi as numbers.
func (s setting) bounds() (low, hi float64) {
	read := func(text string) float64 {
		var v float64
		switch s.to.(type) {
		case *sim.Bytes:
			b, _ := ParseBytes(text)
			v = float64(b)
		case *sim.Rate, *[]GroupRate:
			r, _ := ParseRate(text)
			v = float64(r)
		case *sim.Time:
			t, _ := ParseTime(text)
			v = float64(t)
		case *flops:
			v, _ = parseFloat(text, flopUnits())
		default:
			v, _ = parseRatio(text)
		}
		return v
	}
	return read(s.low), read(s.hi)
}

// values are the numbers that the bounds hold for.
func (s setting) values() []float64 {
	switch to := s.to.(type) {
	case *sim.Bytes:
		return []float64{float64(*to)}
	case *sim.Rate:
		return []float64{float64(*to)}
	case *sim.Time:
		return []float64{float64(*to)}
	case *flops:
		return []float64{float64(*to)}
	case *float64:
		return []float64{*to}
	case *int:
		return []float64{float64(*to)}
	case *Curve:
		var v []float64
		for _, p := range to.Points {
			v = append(v, p.Y)
		}
		return v
	case *[]GroupRate:
		var v []float64
		for _, entry := range *to {
			v = append(v, float64(entry.Rate))
		}
		return v
	}
	return nil
}

// text shows the value in a message.
func (s setting) text() string {
	switch to := s.to.(type) {
	case *sim.Bytes:
		return to.String()
	case *sim.Rate:
		return to.String()
	case *sim.Time:
		return to.String()
	case *flops:
		return fmt.Sprintf("%gTFLOP/s", float64(*to)/1e12)
	case *float64:
		return fmt.Sprint(*to)
	case *int:
		return fmt.Sprint(*to)
	case *Curve:
		var knots []string
		for _, p := range to.Points {
			knots = append(knots, fmt.Sprintf("%g:%g", p.X, p.Y))
		}
		return strconv.Quote(strings.Join(knots, " "))
	case *[]GroupRate:
		var entries []string
		for _, entry := range *to {
			entries = append(entries, fmt.Sprintf("%d:%v", entry.Members, entry.Rate))
		}
		return strconv.Quote(strings.Join(entries, " "))
	}
	return "?"
}

// parseRatio reads a finite number.
func parseRatio(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v-v != 0 { // Inf and NaN are not equal to themselves after that
		return 0, errors.New("want a number")
	}
	return v, nil
}

// parseCurve reads knots "x:y x:y", or one number for a constant.
func parseCurve(text string) (Curve, error) {
	const form = `want a number, or knots such as "20:0.3 27:0.9" (log2 of the size : value)`
	if y, err := parseRatio(text); err == nil {
		return Curve{[]Point{{0, y}}}, nil
	}
	var c Curve
	for _, knot := range strings.Fields(text) {
		left, right, _ := strings.Cut(knot, ":")
		x, errX := parseRatio(left)
		y, errY := parseRatio(right)
		if errX != nil || errY != nil {
			return Curve{}, errors.New(form)
		}
		c.Points = append(c.Points, Point{x, y})
	}
	if len(c.Points) == 0 {
		return Curve{}, errors.New(form)
	}
	return c, nil
}

// parseTable reads entries "members:rate members:rate".
func parseTable(text string) ([]GroupRate, error) {
	var table []GroupRate
	for _, field := range strings.Fields(text) {
		left, right, _ := strings.Cut(field, ":")
		members, errM := strconv.Atoi(left)
		rate, errR := ParseRate(right)
		if errM != nil || errR != nil {
			return nil, errors.New(`want entries such as "2:36GiB/s 8:147GiB/s" (members : bandwidth)`)
		}
		table = append(table, GroupRate{members, rate})
	}
	return table, nil
}

// Validate checks every number of the node and what they must fulfil together.
// The first that is not allowed is the error, in one line with its key, its
// value and what is allowed.
func (n *Node) Validate() error {
	for _, s := range n.settings() {
		if err := s.check(); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	if err := n.checkTogether(); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

func (n *Node) checkTogether() error {
	d, h, l, f := &n.Device, &n.Host, &n.Link, &n.Fabric
	if d.Held >= d.HBM {
		return fmt.Errorf("device.held = %v: must be less than device.hbm = %v", d.Held, d.HBM)
	}
	for _, p := range d.Skinny.Points {
		if p.X < 0 || p.X > 31 {
			return fmt.Errorf("device.skinny = %s: sizes must be 0 to 31, the log2 of a dimension", setting{to: &d.Skinny}.text())
		}
	}
	if x, ok := d.Skinny.outruns(); ok {
		return fmt.Errorf("device.skinny = %s: rises faster than the dimension at log2 %.2f: a larger product would take less time", setting{to: &d.Skinny}.text(), x)
	}
	if h.Pinned > h.Memory {
		return fmt.Errorf("host.pinned = %v: must be at most host.memory = %v", h.Pinned, h.Memory)
	}
	if (l.Uplink > 0) != (l.UplinkDevices > 0) {
		return fmt.Errorf("link.uplink-devices = %d: must be 1 or more with an uplink, and 0 without (link.uplink = %v)", l.UplinkDevices, l.Uplink)
	}
	for dir := range NumDirections {
		if l.RateBoth[dir] > l.Rate[dir] {
			return fmt.Errorf("link.rate-both.%v = %v: must be at most link.rate.%v = %v", dir, l.RateBoth[dir], dir, l.Rate[dir])
		}
	}
	if f.Server > 0 && f.Server < n.Devices {
		if n.Devices%f.Server != 0 {
			return fmt.Errorf("fabric.server = %d: must divide devices = %d", f.Server, n.Devices)
		}
		if f.Across <= 0 {
			return fmt.Errorf("fabric.across = %v: must be more than 0 on %d servers", f.Across, n.Devices/f.Server)
		}
	}
	if n.Devices == 1 {
		return nil
	}
	if f.Peer <= 0 {
		return fmt.Errorf("fabric.peer = %v: must be more than 0 on a node of %d devices", f.Peer, n.Devices)
	}
	for kind := range NumCollectives {
		if len(f.Tables[kind]) == 0 {
			return fmt.Errorf("fabric.%v: needs at least one entry on a node of %d devices", kind, n.Devices)
		}
	}
	return nil
}
