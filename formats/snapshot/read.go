package snapshot

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"smartswap/sim"
)

// Read reads one snapshot, a pickle of protocol 2 to 5. file is the name that
// errors use; an error is one line that begins with it and says at which byte
// the trouble begins. Time and memory are proportional to the file, up to a
// bound.
func Read(r io.Reader, file string) (*Snapshot, error) {
	root, err := unpickle(r, file, usual())
	if err != nil {
		return nil, err
	}
	d := decoder{
		file:   file,
		frames: make(map[*object][]Frame),
		blocks: make(map[*object][]Block),
		traces: make(map[*object][]Event),
	}
	s := d.snapshot(root)
	if d.err != nil {
		return nil, d.err
	}
	return s, nil
}

// decoder turns plain data into a Snapshot. The first error stays in err, and
// what comes after it is not looked at.
//
// A pickle can name one list any number of times. Lists are decoded once and
// shared, so that the result is not larger than what was read.
type decoder struct {
	file   string
	err    error
	frames map[*object][]Frame
	blocks map[*object][]Block
	traces map[*object][]Event
}

func (d *decoder) fail(at int64, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: byte %d: %s", d.file, at, fmt.Sprintf(format, args...))
	}
}

// dict is v as a dictionary; nil and an error if it is not one.
func (d *decoder) dict(v value, at int64, what string) *object {
	if v.kind != kindDict {
		d.fail(at, "%s is of type %v; allowed: dict", what, v.kind)
		return nil
	}
	return v.obj
}

// list is the list at a key; nil if there is none, and an error if it must be
// there.
func (d *decoder) list(o *object, key string, required bool) *object {
	v, ok := o.get(key)
	switch {
	case v.kind == kindList || v.kind == kindTuple:
		return v.obj
	case !ok && required:
		d.fail(o.at, "the key %q is missing", key)
	case v.kind != kindNone || required:
		d.fail(o.at, "%q is of type %v; allowed: list", key, v.kind)
	}
	return nil
}

// integer is the integer at a key; false if there is none.
func (d *decoder) integer(o *object, key string) (int64, bool) {
	v, ok := o.get(key)
	if !ok || v.kind == kindNone {
		return 0, false
	}
	if v.kind != kindInt {
		d.fail(o.at, "%q is of type %v; allowed: int", key, v.kind)
	}
	return v.bits, true
}

// address is the address at a key that must be there.
func (d *decoder) address(o *object, key string) uint64 {
	v, ok := d.integer(o, key)
	if !ok {
		d.fail(o.at, "the key %q is missing", key)
	}
	return uint64(v)
}

// size is the byte count at a key that must be there.
func (d *decoder) size(o *object, key string) sim.Bytes {
	v, ok := d.integer(o, key)
	if !ok {
		d.fail(o.at, "the key %q is missing", key)
	}
	return d.inRange(o, key, v)
}

// maxBytes keeps sums of sizes far from overflow: 1 PiB.
const maxBytes = 1 << 50

func (d *decoder) inRange(o *object, key string, v int64) sim.Bytes {
	if v < 0 || v > maxBytes {
		d.fail(o.at, "%q = %d bytes; allowed: 0 to %d", key, v, int64(maxBytes))
		return 0
	}
	return sim.Bytes(v)
}

// word is the string at a key, "" if there is none.
func (d *decoder) word(o *object, key string) string {
	v, ok := o.get(key)
	if !ok || v.kind == kindNone {
		return ""
	}
	if v.kind != kindString {
		d.fail(o.at, "%q is of type %v; allowed: str", key, v.kind)
		return ""
	}
	return v.obj.text
}

func (d *decoder) snapshot(root value) *Snapshot {
	top := d.dict(root, 0, "the snapshot")
	if top == nil {
		return nil
	}
	s := &Snapshot{}
	if list := d.list(top, "segments", true); list != nil {
		s.Segments = make([]Segment, 0, len(list.items))
		for _, v := range list.items {
			if o := d.dict(v, list.at, "a segment"); o != nil {
				s.Segments = append(s.Segments, d.segment(o))
			}
			if d.err != nil {
				return nil
			}
		}
	}
	if list := d.list(top, "device_traces", false); list != nil {
		for _, v := range list.items {
			if v.kind != kindList {
				d.fail(list.at, "a device's trace is of type %v; allowed: list", v.kind)
				return nil
			}
			s.Traces = append(s.Traces, d.trace(v.obj))
			if d.err != nil {
				return nil
			}
		}
	}
	if v, ok := top.get("allocator_settings"); ok && v.kind == kindDict {
		s.Settings = d.settings(v.obj)
	}
	return s
}

// maxDevice bounds the number of a device: it is an index into a table.
const maxDevice = 1 << 16

func (d *decoder) segment(o *object) (s Segment) {
	device, _ := d.integer(o, "device")
	if device < 0 || device >= maxDevice {
		d.fail(o.at, "device %d; allowed: 0 to %d", device, maxDevice-1)
		return s
	}
	s.Device = int(device)
	s.Address = d.address(o, "address")
	s.Size = d.size(o, "total_size")
	s.Stream, _ = d.integer(o, "stream")
	switch t := d.word(o, "segment_type"); t {
	case "large":
		s.Large = true
	case "small", "":
	default:
		d.fail(o.at, "\"segment_type\" = %.40q; allowed: small large", t)
	}
	if v, ok := o.get("is_expandable"); ok {
		s.Expandable = v.kind == kindBool && v.bits == 1
	}
	if pool := d.list(o, "segment_pool_id", false); pool != nil {
		if len(pool.items) != 2 || pool.items[0].kind != kindInt || pool.items[1].kind != kindInt {
			d.fail(o.at, "\"segment_pool_id\" must be two integers")
			return s
		}
		s.Pool = [2]int64{pool.items[0].bits, pool.items[1].bits}
	}
	s.Frames = d.stack(o)
	if list := d.list(o, "blocks", true); list != nil {
		s.Blocks = d.segmentBlocks(list, s)
	}
	return s
}

// segmentBlocks decodes the blocks of s and checks that they tile it.
func (d *decoder) segmentBlocks(list *object, s Segment) []Block {
	blocks, seen := d.blocks[list]
	if !seen {
		blocks = make([]Block, 0, len(list.items))
		at := s.Address
		for _, v := range list.items {
			o := d.dict(v, list.at, "a block")
			if o == nil {
				return nil
			}
			b := d.block(o, at)
			if d.err != nil {
				return nil
			}
			if b.Address != at {
				d.fail(o.at, "a block at address %d; the blocks of a segment follow each other, expected: %d", b.Address, at)
				return nil
			}
			at += uint64(b.Size)
			blocks = append(blocks, b)
		}
		d.blocks[list] = blocks
	}
	var sum sim.Bytes
	for i := range blocks {
		sum += blocks[i].Size
	}
	if sum != s.Size || len(blocks) > 0 && blocks[0].Address != s.Address {
		d.fail(list.at, "the blocks sum to %d bytes; the segment at address %d has %d", sum, s.Address, s.Size)
	}
	return blocks
}

// block decodes a block; at is its address in files that do not tell it.
func (d *decoder) block(o *object, at uint64) (b Block) {
	b.Address = at
	if v, ok := d.integer(o, "address"); ok {
		b.Address = uint64(v)
	}
	b.Size = d.size(o, "size")
	switch state := d.word(o, "state"); state {
	case "inactive":
	case "active_allocated":
		b.State = Allocated
	case "active_pending_free", "active_awaiting_free": // the code and the manual differ
		b.State = PendingFree
	default:
		d.fail(o.at, "\"state\" = %.40q; allowed: inactive active_allocated active_pending_free", state)
	}
	b.Frames = d.stack(o)
	if v, ok := d.integer(o, "requested_size"); ok {
		b.Requested = d.inRange(o, "requested_size", v)
	} else if past := d.list(o, "history", false); past != nil && len(past.items) > 0 {
		if last := d.dict(past.items[0], past.at, "a block's history"); last != nil {
			b.Requested = d.size(last, "real_size")
			b.Frames = d.stack(last)
		}
	}
	return b
}

func (d *decoder) trace(list *object) []Event {
	if events, seen := d.traces[list]; seen {
		return events
	}
	events := make([]Event, 0, len(list.items))
	for _, v := range list.items {
		o := d.dict(v, list.at, "an event")
		if o == nil {
			return nil
		}
		events = append(events, d.event(o))
		if d.err != nil {
			return nil
		}
	}
	d.traces[list] = events
	return events
}

func (d *decoder) event(o *object) (e Event) {
	e.Action = actionOf(d.word(o, "action"))
	if e.Action != Other {
		key := "addr"
		if e.Action == OOM {
			key = "device_free"
		}
		if e.Action != Dump {
			e.Addr = d.address(o, key)
		}
		e.Size = d.size(o, "size")
	}
	e.Stream, _ = d.integer(o, "stream")
	e.TimeUS, _ = d.integer(o, "time_us")
	e.Frames = d.stack(o)
	return e
}

// actionOf is the action of a name.
func actionOf(name string) Action {
	for a := range Other {
		if actionNames[a] == name {
			return a
		}
	}
	return Other
}

// stack decodes the call stack of o, nil if there is none.
func (d *decoder) stack(o *object) []Frame {
	list := d.list(o, "frames", false)
	if list == nil || len(list.items) == 0 {
		return nil
	}
	if frames, seen := d.frames[list]; seen {
		return frames
	}
	frames := make([]Frame, 0, len(list.items))
	for _, v := range list.items {
		f := d.dict(v, list.at, "a frame")
		if f == nil {
			return nil
		}
		line, _ := d.integer(f, "line")
		if line < math.MinInt32 || line > math.MaxInt32 {
			line = 0 // "unknown" of some unwinders
		}
		frames = append(frames, Frame{Name: d.word(f, "name"), File: d.word(f, "filename"), Line: int(line)})
	}
	d.frames[list] = frames
	return frames
}

// settings flattens a dictionary of settings, one level deep.
func (d *decoder) settings(o *object) []Setting {
	var list []Setting
	for i := 0; i < len(o.items); i += 2 {
		key, v := o.items[i], o.items[i+1]
		if key.kind != kindString {
			continue
		}
		if v.kind != kindDict {
			list = append(list, Setting{key.obj.text, plain(v)})
			continue
		}
		for j := 0; j < len(v.obj.items); j += 2 {
			if inner := v.obj.items[j]; inner.kind == kindString {
				list = append(list, Setting{key.obj.text + "." + inner.obj.text, plain(v.obj.items[j+1])})
			}
		}
	}
	return list
}

// plain is a number, boolean or string as text; containers are left out.
func plain(v value) string {
	switch v.kind {
	case kindBool:
		return strconv.FormatBool(v.bits == 1)
	case kindInt:
		return strconv.FormatInt(v.bits, 10)
	case kindFloat:
		return strconv.FormatFloat(math.Float64frombits(uint64(v.bits)), 'g', -1, 64)
	case kindString:
		return v.obj.text
	}
	return ""
}
