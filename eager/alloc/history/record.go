package history

import (
	"slices"
	"strconv"

	"smartswap/eager/alloc"
	"smartswap/formats/snapshot"
)

// Recorder keeps the history of one allocator. Requests of 0 bytes, which only
// the bytes allocator takes, are no part of it: a framework's allocator does not
// see them, and a block without bytes has no address of its own.
type Recorder struct {
	from    alloc.Inspector
	device  int
	context func() (timeUS int64, frames []snapshot.Frame)
	events  []snapshot.Event // a ring once it is full
	frames  map[stack][]snapshot.Frame
	ranges  []uint64 // begins of all ranges of addresses that pages were mapped to, sorted
	oldest  int
	limit   int
}

// making is the innermost frame of what happens while room is made for a request
// (alloc.Trace.Making).
var making = snapshot.Frame{Name: "making room", File: "allocator"}

// rangeFile marks the outermost frame of what happens to pages, and the only one
// of their segments: its name is where the range of addresses begins that they
// are part of, which shows nowhere else once its first pages are not mapped.
const rangeFile = "range of addresses"

// rangeFrame is such a frame.
func rangeFrame(begin uint64) snapshot.Frame {
	return snapshot.Frame{Name: strconv.FormatUint(begin, 10), File: rangeFile}
}

// rangeIn is the begin that the last of frames tells, if it is such a frame.
func rangeIn(frames []snapshot.Frame) (begin uint64, ok bool) {
	if len(frames) == 0 || frames[len(frames)-1].File != rangeFile {
		return 0, false
	}
	begin, err := strconv.ParseUint(frames[len(frames)-1].Name, 10, 64)
	return begin, err == nil
}

// partFile marks the frame of a block that is part of an active stitched one,
// which the history knows by its own address: the frame's name.
const partFile = "stitched block"

// stack identifies a call stack of the run, and what an event adds to it.
type stack struct {
	first  *snapshot.Frame
	length int
	making bool
	pages  uint64 // begin of their range; 0 = none
}

// Record starts to keep the history of a, which belongs to device. context, if
// not nil, tells for each event when it happened, in microseconds, and where in
// the program; equal places should share a slice. limit > 0 is the number of
// events to keep, of which the oldest are lost first; 0 = all.
func Record(a alloc.Inspector, device, limit int, context func() (timeUS int64, frames []snapshot.Frame)) *Recorder {
	r := &Recorder{from: a, device: device, limit: limit, context: context, frames: make(map[stack][]snapshot.Frame)}
	a.Observe(r.add)
	return r
}

func (r *Recorder) add(t alloc.Trace) {
	if t.Size == 0 {
		return
	}
	e := snapshot.Event{Action: actionOf(t.Action), Addr: t.Addr, Size: t.Size, Stream: int64(t.Stream)}
	if r.context != nil {
		e.TimeUS, e.Frames = r.context()
	}
	if t.Making || t.Range != 0 {
		e.Frames = r.marked(e.Frames, t)
	}
	if i, found := slices.BinarySearch(r.ranges, t.Range); t.Range != 0 && !found {
		r.ranges = slices.Insert(r.ranges, i, t.Range)
	}
	if r.limit == 0 || len(r.events) < r.limit {
		r.events = append(r.events, e)
		return
	}
	r.events[r.oldest] = e
	if r.oldest++; r.oldest == r.limit {
		r.oldest = 0
	}
}

// marked is frames with what t adds to them: making before them, the range of
// addresses behind. It is the same slice each time.
func (r *Recorder) marked(frames []snapshot.Frame, t alloc.Trace) []snapshot.Frame {
	key := stack{length: len(frames), making: t.Making, pages: t.Range}
	if len(frames) > 0 {
		key.first = &frames[0]
	}
	list, ok := r.frames[key]
	if !ok {
		if t.Making {
			list = append(list, making)
		}
		list = append(list, frames...)
		if t.Range != 0 {
			list = append(list, rangeFrame(t.Range))
		}
		r.frames[key] = list
	}
	return list
}

// AddTo adds the device's segments as they are now and its history to s, which
// may hold those of other devices already.
func (r *Recorder) AddTo(s *snapshot.Snapshot) {
	for _, g := range r.from.Segments() {
		if g.Size == 0 {
			continue
		}
		seg := snapshot.Segment{
			Device: r.device, Address: g.Addr, Size: g.Size, Stream: int64(g.Stream), Large: g.Large, Expandable: g.Expandable, Pool: [2]int64{0, int64(g.Pool)},
			Blocks: make([]snapshot.Block, len(g.Blocks)),
		}
		if i, found := slices.BinarySearch(r.ranges, g.Addr); g.Expandable && (found || i > 0) {
			if !found {
				i-- // the last that begins before it
			}
			seg.Frames = []snapshot.Frame{rangeFrame(r.ranges[i])}
		}
		for i, b := range g.Blocks {
			seg.Blocks[i] = snapshot.Block{Address: b.Addr, Size: b.Size, Requested: b.Requested, State: stateOf(b.State)}
			if b.Whole != 0 {
				seg.Blocks[i].Frames = []snapshot.Frame{{Name: strconv.FormatUint(b.Whole, 10), File: partFile}}
			}
		}
		s.Segments = append(s.Segments, seg)
	}
	for len(s.Traces) <= r.device {
		s.Traces = append(s.Traces, nil)
	}
	trace := make([]snapshot.Event, 0, len(r.events))
	trace = append(append(trace, r.events[r.oldest:]...), r.events[:r.oldest]...)
	s.Traces[r.device] = trace
}

// actionOf is the file's word for an action of the model: both bear PyTorch's
// names.
func actionOf(a alloc.Action) snapshot.Action {
	name := a.String()
	for f := range snapshot.Other {
		if f.String() == name {
			return f
		}
	}
	return snapshot.Other
}

// stateOf is the file's word for a state of the model.
func stateOf(s alloc.State) snapshot.State {
	switch s {
	case alloc.Allocated:
		return snapshot.Allocated
	case alloc.Pending:
		return snapshot.PendingFree
	}
	return snapshot.Inactive
}
