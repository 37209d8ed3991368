package timeline

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"smartswap/eager"
	"smartswap/eager/stream"
	"smartswap/formats/chrome"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// Lanes of a rank's process.
const (
	laneDispatch = 1
	laneLaunch   = 2
	laneStream   = 10 // + stream
)

// Categories as Kineto names them.
const (
	catOperator   = "cpu_op"
	catHost       = "host"
	catWait       = "host_wait"
	catLaunch     = "cuda_runtime"
	catKernel     = "kernel"
	catCopy       = "gpu_memcpy"
	catAnnotation = "user_annotation"
	catMemory     = "cpu_instant_event"
	catSwap       = "swap"
)

// WriteTrace writes the iterations kept of all ranks as a Chrome trace. Slices of
// a lane nest or do not overlap. Arrows lead from each swap-out to the swap-ins
// of the same content.
func (r *Recorder) WriteTrace(w io.Writer) error {
	out := chrome.NewWriter(w)
	for i, k := range r.ranks {
		t := tracer{Writer: out, k: k, pid: i + 1, flows: int64(i) << 40}
		t.names()
		t.dispatch()
		t.launch()
		t.streams()
		t.arrows()
		t.memory()
	}
	return out.Close()
}

// tracer writes one rank.
type tracer struct {
	*chrome.Writer
	k     *rank
	pid   int
	flows int64 // arrows so far
}

func (t *tracer) names() {
	info := &t.k.info
	title := fmt.Sprintf("rank %d, device %d", info.Rank, info.Devices[0])
	if n := len(info.Devices); n > 1 {
		title += fmt.Sprintf(" for %d alike", n)
	}
	t.Process(t.pid, title)
	t.lane(laneDispatch, "host: dispatch")
	if info.Launches {
		t.lane(laneLaunch, "host: launch")
	}
	for s := range stream.Count {
		t.lane(laneStream+int(s), s.Name())
	}
}

func (t *tracer) lane(tid int, name string) {
	t.Thread(t.pid, tid, name)
	t.Sort(t.pid, tid, tid)
}

// slice writes a span; instants are cut to ns one by one, so that spans which
// meet still do.
func (t *tracer) slice(tid int, category, name string, start, end sim.Time, fields ...chrome.Field) {
	at := nanoseconds(start)
	t.Slice(t.pid, tid, category, name, at, nanoseconds(end)-at, fields...)
}

// dispatch writes the dispatching thread: operators and waits inside phases
// inside iterations.
func (t *tracer) dispatch() {
	var steps []*step
	for i := range t.k.host.all() {
		if s := &t.k.host.all()[i]; s.thread == eager.Dispatching && !t.k.old(s.iteration) {
			steps = append(steps, s)
		}
	}
	t.groups(steps, func(s *step) string { return fmt.Sprintf("ProfilerStep#%d", s.iteration) }, func(a, b *step) bool { return a.iteration == b.iteration })
	t.groups(steps, func(s *step) string { return passName(s.pass) }, func(a, b *step) bool { return a.iteration == b.iteration && a.pass == b.pass })
	for _, s := range steps {
		switch {
		case s.waits:
			t.slice(laneDispatch, catWait, "wait: "+s.cause.Name(), s.start, s.end, chrome.Field{Name: "operator", Value: s.name})
		case s.op < 0:
			t.slice(laneDispatch, catHost, s.name, s.start, s.end)
		default:
			t.slice(laneDispatch, catOperator, s.name, s.start, s.end, replayed([]chrome.Field{{Name: "External id", Value: s.op}}, s.replayFor)...)
		}
	}
}

// groups writes a slice around each run of steps that belong together.
func (t *tracer) groups(steps []*step, name func(*step) string, same func(a, b *step) bool) {
	for lo := 0; lo < len(steps); {
		hi := lo + 1
		for hi < len(steps) && same(steps[lo], steps[hi]) {
			hi++
		}
		t.slice(laneDispatch, catAnnotation, name(steps[lo]), steps[lo].start, steps[hi-1].end)
		lo = hi
	}
}

// passName is a pass in words.
func passName(s profilers.Stage) string {
	name := phaseName(s.Phase)
	if s.MicroBatch > 0 {
		name += fmt.Sprintf(" %d", s.MicroBatch)
	}
	if s.Model > 0 {
		name += fmt.Sprintf(" of chunk %d", s.Model)
	}
	return name
}

func (t *tracer) launch() {
	for i := range t.k.host.all() {
		s := &t.k.host.all()[i]
		switch {
		case s.thread != eager.Launching || t.k.old(s.iteration):
		case s.waits:
			t.slice(laneLaunch, catWait, "wait: "+s.cause.Name(), s.start, s.end, chrome.Field{Name: "operator", Value: s.name})
		case s.command == 0:
			t.slice(laneLaunch, catLaunch, "event", s.start, s.end)
		default:
			t.slice(laneLaunch, catLaunch, "launch "+s.name, s.start, s.end,
				replayed([]chrome.Field{{Name: "correlation", Value: s.command}, {Name: "External id", Value: s.op}}, s.replayFor)...)
		}
	}
}

func (t *tracer) streams() {
	device := t.k.info.Devices[0]
	for i := range t.k.device.all() {
		w := &t.k.device.all()[i]
		if t.k.old(w.iteration) {
			continue
		}
		fields := []chrome.Field{
			{Name: "device", Value: device}, {Name: "stream", Value: int(w.lane)}, {Name: "correlation", Value: w.command}, {Name: "External id", Value: w.op},
		}
		if w.kind == stream.Copy {
			why := "planned"
			if w.forced {
				why = "forced"
			}
			fields = append(fields, chrome.Field{Name: "bytes", Value: int64(w.bytes)})
			if !t.k.paged() { // where moves are of many tensors, asked for by demand and by plan
				fields = append(fields, chrome.Field{Name: "why", Value: why})
			}
			t.slice(laneStream+int(w.lane), catCopy, w.name, w.start, w.end, fields...)
			continue
		}
		if t.k.paged() {
			fields = append(fields, chrome.Field{Name: "memory wait ns", Value: nanoseconds(w.wait)},
				chrome.Field{Name: "bytes in", Value: int64(w.in)}, chrome.Field{Name: "bytes out", Value: int64(w.out)})
		}
		if w.layer > 0 {
			fields = append(fields, chrome.Field{Name: "layer", Value: int(w.layer)})
		}
		t.slice(laneStream+int(w.lane), catKernel, w.name, w.start, w.end, replayed(fields, w.replayFor)...)
	}
}

// replayed marks what an operator does that runs again for another one.
func replayed(fields []chrome.Field, forOp int64) []chrome.Field {
	if forOp < 0 {
		return fields
	}
	return append(fields, chrome.Field{Name: "replay for", Value: forOp})
}

// arrows lead from each swap-out to the swap-ins that read what it wrote: those
// of the same storage up to its next swap-out.
func (t *tracer) arrows() {
	if t.k.paged() {
		return // a move is of many tensors
	}
	outs := make(map[policies.Handle]*work)
	for i := range t.k.device.all() {
		w := &t.k.device.all()[i]
		switch {
		case w.kind != stream.Copy || t.k.old(w.iteration):
		case w.dir == hw.D2H:
			outs[w.storage] = w
		case outs[w.storage] != nil:
			out := outs[w.storage]
			t.flows++
			inside := max(nanoseconds(out.start), nanoseconds(out.end)-1)
			t.FlowBegin(t.pid, laneStream+int(out.lane), catSwap, w.name, t.flows, inside)
			t.FlowEnd(t.pid, laneStream+int(w.lane), catSwap, w.name, t.flows, nanoseconds(w.start))
		}
	}
}

// memory writes counters at each change, and, as the PyTorch profiler does, the
// allocations and releases of the iterations kept.
func (t *tracer) memory() {
	type counter struct {
		name string
		of   func(*eager.Counters) sim.Bytes
	}
	counters := []counter{
		{"allocated bytes", func(c *eager.Counters) sim.Bytes { return c.Allocated }},
		{"active bytes", func(c *eager.Counters) sim.Bytes { return c.Active }},
		{"reserved bytes", func(c *eager.Counters) sim.Bytes { return c.Reserved }},
		{"host bytes", func(c *eager.Counters) sim.Bytes { return c.Host }},
	}
	if t.k.paged() {
		counters = []counter{
			{"resident bytes", func(c *eager.Counters) sim.Bytes { return c.Allocated }},
			{"host bytes", func(c *eager.Counters) sim.Bytes { return c.Host }},
			{"SSD bytes", func(c *eager.Counters) sim.Bytes { return c.SSD }},
		}
	}
	levels := t.k.since()
	for _, c := range counters {
		for i := range levels {
			l := &levels[i]
			if v := c.of(&l.Counters); i == 0 || v != c.of(&levels[i-1].Counters) {
				t.Counter(t.pid, c.name, nanoseconds(l.at), chrome.Field{Name: "bytes", Value: int64(v)})
			}
		}
	}
	type change struct {
		entry int64
		at    sim.Time
		bytes sim.Bytes // below zero for a release
		total eager.Counters
		*life
	}
	var changes []change
	lives := t.k.allocations()
	for i := range lives {
		l := &lives[i]
		if l.born >= t.k.from() {
			changes = append(changes, change{l.bornAs, l.born, l.size, l.atAlloc, l})
		}
		if l.freed >= t.k.from() {
			changes = append(changes, change{l.freedAs, l.freed, -l.size, l.atFree, l})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.entry, b.entry) })
	for _, c := range changes {
		t.Instant(t.pid, laneDispatch, catMemory, "[memory]", nanoseconds(c.at),
			chrome.Field{Name: "Bytes", Value: int64(c.bytes)}, chrome.Field{Name: "Addr", Value: int64(c.addr)},
			chrome.Field{Name: "Total Allocated", Value: int64(c.total.Allocated)}, chrome.Field{Name: "Total Reserved", Value: int64(c.total.Reserved)},
			chrome.Field{Name: "Device Type", Value: 1}, chrome.Field{Name: "Device Id", Value: t.k.info.Devices[0]}, chrome.Field{Name: "tensor", Value: c.tensor})
	}
}
