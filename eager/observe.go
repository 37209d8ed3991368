package eager

import (
	"smartswap/eager/alloc"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
	"smartswap/workloads"
)

// Observer watches a run: what every lane did and how memory went. It must not
// change anything, and a run is the same with and without it. Methods are called
// in the order of the simulation, from the goroutine of Run; what they point to
// is valid during the call. A span is told when it ends.
type Observer interface {
	// Rank introduces a rank, before time 0.
	Rank(RankInfo)
	// Device tells of a kernel, copy or collective. The spans of one stream of
	// one rank do not overlap and come in order.
	Device(*DeviceSpan)
	// Host tells what a host thread did. The spans of one thread of one rank
	// do not overlap and come in order.
	Host(*HostSpan)
	// Memory tells an entry of the device allocator's history, at the host time
	// at which the dispatching thread caused it; nothing where memory is not the
	// allocator's.
	Memory(*MemoryEvent)
	// Counters tells the level of memory whenever it has changed, before the
	// host's clock goes on; where memory is not the allocator's, when a kernel
	// ends, too.
	Counters(rank int, at sim.Time, c Counters)
}

// RankInfo is what does not change about a rank.
type RankInfo struct {
	Rank    int
	Devices []int
	// Capacity is the limit of device memory, 0 = none; HostCapacity that of
	// the pinned pool.
	Capacity, HostCapacity sim.Bytes
	// Launches tells that a thread of its own launches commands.
	Launches bool
	// Kind is what memory the policy runs on. Beside policies.Framework the
	// allocator hands out addresses alone.
	Kind policies.MemoryKind
	// Memory may be looked into at any time; Observe belongs to the run.
	Memory alloc.Inspector
}

// Place is where in the program something comes from.
type Place struct {
	Iteration int
	Op        int64  // number of the operator in the rank's run, from 0; -1 = outside of operators
	Name      string // of the operator; outside, "construction" or "between operators"
	// Again tells that the operator runs another time, for the sake of the
	// program's operator For: Op, Name and Layer are of the one that runs again,
	// Stage is the one that the program is in.
	Again bool
	For   int64
	Stage profilers.Stage
	Layer int32 // of the model, 1-based: that of the operator's first argument with one; 0 = none
}

// DeviceSpan is a command of a stream, from its start to its end: what a
// profiler calls a kernel.
type DeviceSpan struct {
	Rank       int
	Stream     stream.ID
	Kind       stream.Kind // Kernel, Copy, Meet or Solo
	Command    int64       // number in the rank's run, from 1
	Start, End sim.Time
	Place      Place // the operator that issued it

	// Of a copy.
	Dir     hw.Direction
	Bytes   sim.Bytes
	Storage policies.Handle // the same for all copies of a storage, of no other storage in the run
	Tensor  string          // the storage's label
	Type    profilers.TensorType
	Forced  bool // a failed allocation or a demand fault made it
	// Where memory is not the allocator's, a copy is a stretch of time in which
	// the link was busy without a pause: Place is the kernel that ended next,
	// Storage -1, Tensor "moves", and Forced is not told.

	// Of a kernel on memory that is not the allocator's: the part of its span in
	// which it stood still, and what came to the device and left it since the
	// kernel before ended.
	Wait    sim.Time
	In, Out sim.Bytes
}

// Thread is a host thread of a rank.
type Thread uint8

// Threads.
const (
	Dispatching Thread = iota
	Launching
)

// HostSpan is a stretch of a host thread: work on an operator or the launch of a
// command, or, with Waits, standing still for Cause.
type HostSpan struct {
	Rank       int
	Thread     Thread
	Waits      bool
	Cause      HostCause // with Waits
	Start, End sim.Time
	// Place is the operator that is dispatched, or that issued the command; of
	// an event, the one that issued the command before.
	Place   Place
	Command int64  // launching: DeviceSpan.Command; 0 = an event
	Tensor  string // launching: DeviceSpan.Tensor of a copy
}

// MemoryEvent is an entry of the allocator's history.
type MemoryEvent struct {
	alloc.Trace
	Rank   int
	Time   sim.Time
	Place  Place  // the operator being dispatched
	Tensor string // of an alloc: the storage's label, or "workspace"
	// Counters are as the allocator's books stand while it makes the entry; a
	// completed free, for one, is still in them.
	Counters Counters
}

// Counters are levels of memory in bytes; see alloc.Stats. Host is what is in use
// of the pinned pool. Where memory is not the allocator's, the first three are
// what is resident on the device, and Host and SSD what lies there.
type Counters struct{ Allocated, Active, Reserved, Host, SSD sim.Bytes }

// observation tells the observers of a job about one rank.
type observation struct {
	r  *rank
	to []Observer

	place   Place
	placeAt placeKey
	subject string // of the next allocation
	told    Counters

	still  bool // the dispatching thread stands still, or pays
	waits  bool
	cause  HostCause
	since  sim.Time
	launch HostSpan // the running launch, or the last one

	commands int64
	copied   DeviceSpan    // announced by the executor, issued next
	last     stream.ID     // of the command issued last
	ledger   stream.Ledger // of the paged memory, when the last kernel ended
	stood    sim.Time      // how long the compute stream had waited for it when its running kernel began
	streams  [stream.Count]labels
	span     HostSpan
	event    MemoryEvent
}

// placeKey is what a place is about: it changes whenever the place does, but for
// the stage.
type placeKey struct {
	iteration, pc int
	op, again     int64 // of the program; the operator that runs again for it, -1 = none
}

// labels are the spans of one stream's commands that are issued and have not
// ended, in order; waits and markers have none.
type labels struct {
	spans    []DeviceSpan
	launched int // of them
}

// watchers pass memory and copies on to several.
type watchers []swap.Watcher

// watcher is w, as nothing at all if nobody is in it.
func (w watchers) watcher() swap.Watcher {
	switch len(w) {
	case 0:
		return nil
	case 1:
		return w[0]
	}
	return w
}

// Bound implements swap.Watcher.
func (w watchers) Bound(s *swap.Storage, b alloc.Block) {
	for _, x := range w {
		x.Bound(s, b)
	}
}

// Freed implements swap.Watcher.
func (w watchers) Freed(b alloc.Block) {
	for _, x := range w {
		x.Freed(b)
	}
}

// Copied implements swap.Watcher.
func (w watchers) Copied(on stream.ID, s *swap.Storage, b alloc.Block, c *swap.Copy, dir hw.Direction) {
	for _, x := range w {
		x.Copied(on, s, b, c, dir)
	}
}

// newObservation starts to tell about r, or returns nil if nobody listens.
func newObservation(r *rank, devices []int) *observation {
	to := r.job.cfg.Observers
	if len(to) == 0 {
		return nil
	}
	o := &observation{r: r, to: to}
	o.placeAt.pc = -1
	o.launch.Place.Op, o.launch.Place.Name = -1, r.opName()
	memory := r.mem.(alloc.Inspector)
	if r.paged == nil {
		memory.Observe(o.traced)
	} else {
		r.paged.Moves().Watch()
	}
	capacity := r.job.cfg.capacity()
	if r.paged != nil && !r.job.cfg.Unbounded {
		capacity = r.Capacity()
	}
	for _, x := range to {
		x.Rank(RankInfo{
			Rank: r.index, Devices: devices, Capacity: capacity, HostCapacity: r.pool.Capacity(),
			Launches: r.slots > 0, Kind: r.needs.Memory, Memory: memory,
		})
	}
	return o
}

// here is the place of the dispatching thread.
func (o *observation) here() *Place {
	r := o.r
	if r.prog == nil {
		o.place.Op, o.place.Name = -1, r.opName()
		return &o.place
	}
	at := placeKey{r.iteration, r.at(), r.opID, -1}
	if r.again {
		at.again = r.op.ID
	}
	if o.placeAt == at {
		o.place.Stage = r.clock.stage
		return &o.place
	}
	o.placeAt = at
	o.place = Place{Iteration: min(r.iteration, r.job.cfg.Iterations-1), Op: -1, Name: r.opName(), Stage: r.clock.stage}
	if at := r.at(); at < len(r.prog.Instrs) && r.prog.Instrs[at].Kind == workloads.Op {
		in := &r.prog.Instrs[at]
		o.place.Op = r.opID
		switch {
		case r.again:
			o.place.Op, o.place.Again, o.place.For = r.op.ID, true, r.opID
		case r.phase == atDue: // the next one's by now
			o.place.Op--
		}
		for _, a := range r.prog.Args[in.ArgLo:in.ArgHi] {
			if l := r.prog.Storages[a.Storage].Layer; l > 0 {
				o.place.Layer = l
				break
			}
		}
	}
	return &o.place
}

// about tells observers what memory is asked for next: a storage, or, with nil,
// a workspace.
func (r *rank) about(s *swap.Storage) {
	switch {
	case r.obs == nil:
	case s == nil:
		r.obs.subject = "workspace"
	default:
		r.obs.subject = r.storageName(s)
	}
}

// swapped passes the record of the copy issued last on.
func (r *rank) swapped(rec profilers.SwapRec) {
	r.recorder.Swap(rec)
	if r.obs != nil {
		issued := r.obs.streams[r.obs.last].spans
		issued[len(issued)-1].Forced = rec.OOM
	}
}

// traced is the allocator's observer.
func (o *observation) traced(t alloc.Trace) {
	o.event = MemoryEvent{Trace: t, Rank: o.r.index, Time: o.r.eng.Now(), Place: *o.here(), Counters: o.counters()}
	if t.Action == alloc.Alloc {
		o.event.Tensor = o.subject
	}
	for _, x := range o.to {
		x.Memory(&o.event)
	}
}

func (o *observation) counters() Counters {
	if o.r.paged != nil {
		l := o.r.paged.Ledger()
		on := l.Device + o.r.unmoved
		return Counters{Allocated: on, Active: on, Reserved: on, Host: l.Tiers[policies.HostTier], SSD: l.Tiers[policies.SSDTier]}
	}
	s := o.r.mem.Stats()
	return Counters{
		Allocated: sim.Bytes(s.Allocated.Current), Active: sim.Bytes(s.Active.Current), Reserved: sim.Bytes(s.Reserved.Current),
		Host: sim.Bytes(o.r.pool.Stats().Used.Current),
	}
}

// pause tells that the dispatching thread stands still from now on: it pays, or
// waits for cause. Whatever this instant did to memory is done.
func (o *observation) pause(waits bool, cause HostCause) {
	o.still, o.waits, o.cause, o.since = true, waits, cause, o.r.eng.Now()
	o.level()
}

// level tells the counters if they have changed.
func (o *observation) level() {
	if c := o.counters(); c != o.told {
		o.told = c
		for _, x := range o.to {
			x.Counters(o.r.index, o.r.eng.Now(), c)
		}
	}
}

// resume ends what pause began.
func (o *observation) resume() {
	if o.still {
		o.still = false
		o.host(HostSpan{Thread: Dispatching, Waits: o.waits, Cause: o.cause, Start: o.since, End: o.r.eng.Now(), Place: *o.here()})
	}
}

// host tells of a span, unless it took no time.
func (o *observation) host(s HostSpan) {
	if s.Start == s.End {
		return
	}
	o.span = s
	o.span.Rank = o.r.index
	for _, x := range o.to {
		x.Host(&o.span)
	}
}

// Bound and Freed implement swap.Watcher.
func (o *observation) Bound(*swap.Storage, alloc.Block) {}

// Freed implements swap.Watcher.
func (o *observation) Freed(alloc.Block) {}

// Copied implements swap.Watcher.
func (o *observation) Copied(_ stream.ID, s *swap.Storage, _ alloc.Block, _ *swap.Copy, dir hw.Direction) {
	o.copied = DeviceSpan{Dir: dir, Storage: s.Handle, Tensor: o.r.storageName(s), Type: s.Type}
}

// labelled tells whether a command becomes a span.
func labelled(k stream.Kind) bool { return k != stream.WaitFor && k != stream.Marker }

// pushed tells that the host has issued c.
func (o *observation) pushed(s stream.ID, c *stream.Command) {
	if !labelled(c.Kind) {
		return
	}
	span := DeviceSpan{}
	if c.Kind == stream.Copy {
		span = o.copied
	}
	o.commands++
	o.last = s
	span.Rank, span.Stream, span.Kind, span.Command, span.Bytes, span.Place = o.r.index, s, c.Kind, o.commands, c.Bytes, *o.here()
	o.streams[s].spans = append(o.streams[s].spans, span)
}

// launching tells that the launching thread turns to the next command, at a cost.
func (o *observation) launching(cost sim.Time) {
	now := o.r.eng.Now()
	o.launch = HostSpan{Thread: Launching, Start: now, End: now + cost, Place: o.launch.Place}
}

// moved tells of what a memory that is not the allocator's has moved since the
// last time; place is the kernel that ends now.
func (o *observation) moved(place *Place) {
	in, out := o.r.paged.Moves().Take()
	tell := func(list []stream.Move, s stream.ID, d hw.Direction) {
		for _, m := range list {
			span := DeviceSpan{Rank: o.r.index, Stream: s, Kind: stream.Copy, Start: m.Start, End: m.End, Place: *place, Dir: d, Bytes: m.Bytes, Storage: -1, Tensor: "moves"}
			for _, x := range o.to {
				x.Device(&span)
			}
		}
	}
	tell(in, stream.In, hw.H2D)
	tell(out, stream.Out, hw.D2H)
}

// launched tells that the launching thread has handed c over, after waiting for
// room if need be.
func (o *observation) launched(s stream.ID, c *stream.Command) {
	if q := &o.streams[s]; labelled(c.Kind) {
		span := &q.spans[q.launched]
		o.launch.Place, o.launch.Command, o.launch.Tensor = span.Place, span.Command, span.Tensor
		q.launched++
	}
	span := o.launch
	o.host(span)
	span.Waits, span.Cause, span.Start, span.End = true, QueueFull, span.End, o.r.eng.Now()
	o.host(span)
}

// started and retired tell the device times of c.
func (o *observation) started(s stream.ID, c *stream.Command) {
	if labelled(c.Kind) {
		o.streams[s].spans[0].Start = o.r.eng.Now()
		if o.r.paged != nil && s == stream.Compute {
			o.stood = o.r.dev.Lane(stream.Compute).Wait[stream.Fault]
		}
	}
}

func (o *observation) retired(s stream.ID, c *stream.Command) {
	if !labelled(c.Kind) {
		return
	}
	q := &o.streams[s]
	span := &q.spans[0]
	span.End = o.r.eng.Now()
	if o.r.paged != nil {
		if s == stream.Compute {
			span.Wait = o.r.dev.Lane(s).Wait[stream.Fault] - o.stood
		}
		l := o.r.paged.Ledger()
		for tier := range l.In {
			span.In += l.In[tier] - o.ledger.In[tier]
			span.Out += l.Out[tier] - o.ledger.Out[tier]
		}
		o.ledger = l
		o.level()
		o.moved(&span.Place)
	}
	for _, x := range o.to {
		x.Device(span)
	}
	q.spans = q.spans[1:]
	q.launched = max(0, q.launched-1)
}
