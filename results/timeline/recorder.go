package timeline

import (
	"sort"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/alloc/history"
	"smartswap/eager/stream"
	"smartswap/formats/snapshot"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// Options limit what is kept.
type Options struct {
	// Iterations to keep: the last ones that each rank's host has begun, >= 1;
	// 0 = all.
	Iterations int
	// History is how many entries of each allocator's history a snapshot has,
	// the last ones; 0 = all.
	History int
}

// Recorder keeps the end of a run. Memory: about 100 bytes per span, allocation
// and change of a level in the iterations kept. It serves one run.
type Recorder struct {
	opts  Options
	ranks []*rank
}

// New returns a Recorder for eager.Config.Observers.
func New(o Options) *Recorder { return &Recorder{opts: o} }

// Ranks is the number of simulated ranks.
func (r *Recorder) Ranks() int { return len(r.ranks) }

// Info tells about a rank.
func (r *Recorder) Info(rank int) eager.RankInfo { return r.ranks[rank].info }

// rank is what is kept of one rank.
type rank struct {
	info   eager.RankInfo
	begins []sim.Time // of the iterations that the host has begun
	first  int        // oldest iteration that is kept

	device window[work]
	host   window[step]
	levels window[level]
	lives  window[life]     // ended ones, by their end
	open   []life           // those that have not ended, and vacant places
	vacant []int32          // places in open
	at     map[uint64]int32 // place in open by address
	last   eager.Counters

	tap      tap
	recorder *history.Recorder
	frames   map[frameKey][]snapshot.Frame
	event    *eager.MemoryEvent
	entries  int64
}

// work is a device span.
type work struct {
	start, end sim.Time
	name       string // operator, or of a copy the tensor
	op         int64
	replayFor  int64 // operator that this one runs again for; -1 = it does not
	command    int64
	storage    policies.Handle
	bytes      sim.Bytes
	iteration  int32
	layer      int32
	lane       stream.ID
	kind       stream.Kind
	dir        hw.Direction
	forced     bool
	wait       sim.Time
	in, out    sim.Bytes
}

// step is a host span.
type step struct {
	start, end sim.Time
	name       string // operator, or of a copy's launch the tensor
	op         int64
	replayFor  int64 // see work
	command    int64
	iteration  int32
	pass       profilers.Stage // without its layer
	thread     eager.Thread
	waits      bool
	cause      eager.HostCause
}

// level is the counters from at on.
type level struct {
	at sim.Time
	eager.Counters
}

// life is an allocation.
type life struct {
	op, tensor        string
	addr              uint64
	size              sim.Bytes // as the allocator counts it
	stream            alloc.Stream
	born, freed, gone sim.Time // freed and gone are never if they have not happened
	iteration         int32    // in which it was gone
	bornAs, freedAs   int64    // numbers of the entries in the history
	atAlloc, atFree   eager.Counters
}

// never is the instant of what has not happened.
const never sim.Time = -1

// window is a list that loses its front.
type window[T any] struct {
	list []T
	head int
}

func (w *window[T]) push(x T) { w.list = append(w.list, x) }

func (w *window[T]) all() []T { return w.list[w.head:] }

// drop takes entries from the front while old says so.
func (w *window[T]) drop(old func(*T) bool) {
	for w.head < len(w.list) && old(&w.list[w.head]) {
		w.head++
	}
	if w.head > len(w.list)/2 {
		n := copy(w.list, w.list[w.head:])
		clear(w.list[n:])
		w.list, w.head = w.list[:n], 0
	}
}

// tap stands between an allocator, which has room for one observer, and the
// recorder of its history.
type tap struct {
	alloc.Inspector
	pass func(alloc.Trace)
}

// Observe implements alloc.Inspector.
func (t *tap) Observe(f func(alloc.Trace)) { t.pass = f }

// Rank implements eager.Observer.
func (r *Recorder) Rank(info eager.RankInfo) {
	k := &rank{info: info, begins: []sim.Time{0}, at: make(map[uint64]int32), frames: make(map[frameKey][]snapshot.Frame)}
	k.tap.Inspector = info.Memory
	k.recorder = history.Record(&k.tap, info.Devices[0], r.opts.History, k.context)
	r.ranks = append(r.ranks, k)
}

// Device implements eager.Observer.
func (r *Recorder) Device(s *eager.DeviceSpan) {
	k := r.ranks[s.Rank]
	if k.paged() { // a host that takes no time and does not allocate is not heard of
		k.reach(s.Place.Iteration, r.opts.Iterations, s.Start)
	}
	if s.Place.Iteration < k.first {
		return
	}
	w := work{
		start: s.Start, end: s.End, name: s.Place.Name, op: s.Place.Op, command: s.Command, storage: s.Storage, bytes: s.Bytes,
		iteration: int32(s.Place.Iteration), layer: s.Place.Layer, lane: s.Stream, kind: s.Kind, dir: s.Dir, forced: s.Forced,
		wait: s.Wait, in: s.In, out: s.Out, replayFor: replayFor(&s.Place),
	}
	if s.Kind == stream.Copy {
		w.name = s.Tensor
	}
	k.device.push(w)
}

// Host implements eager.Observer.
func (r *Recorder) Host(s *eager.HostSpan) {
	k := r.ranks[s.Rank]
	if s.Thread == eager.Dispatching {
		k.reach(s.Place.Iteration, r.opts.Iterations, s.Start)
	}
	if s.Place.Iteration < k.first {
		return
	}
	pass := s.Place.Stage
	pass.Layer = 0
	name := s.Place.Name
	if s.Tensor != "" {
		name = s.Tensor
	}
	k.host.push(step{
		start: s.Start, end: s.End, name: name, op: s.Place.Op, replayFor: replayFor(&s.Place), command: s.Command,
		iteration: int32(s.Place.Iteration), pass: pass, thread: s.Thread, waits: s.Waits, cause: s.Cause,
	})
}

func replayFor(p *eager.Place) int64 {
	if p.Again {
		return p.For
	}
	return -1
}

// Memory implements eager.Observer.
func (r *Recorder) Memory(e *eager.MemoryEvent) {
	k := r.ranks[e.Rank]
	k.reach(e.Place.Iteration, r.opts.Iterations, e.Time)
	k.event = e
	k.entries++
	k.tap.pass(e.Trace)
	switch e.Action {
	case alloc.Alloc:
		k.bear(life{
			op: e.Place.Name, tensor: e.Tensor, addr: e.Addr, size: e.Counters.Allocated - k.last.Allocated, stream: e.Stream,
			born: e.Time, freed: never, gone: never, atAlloc: e.Counters, bornAs: k.entries,
		})
	case alloc.FreeRequested:
		if i, ok := k.at[e.Addr]; ok {
			l := &k.open[i]
			l.freed, l.freedAs, l.atFree = e.Time, k.entries, e.Counters
		}
	case alloc.FreeCompleted:
		if i, ok := k.at[e.Addr]; ok {
			l := &k.open[i]
			l.gone, l.iteration = e.Time, int32(e.Place.Iteration)
			k.lives.push(*l)
			k.bury(i)
		}
	}
	k.reached(e.Time, e.Counters)
}

// bear and bury keep the list of lives that have not ended.
func (k *rank) bear(l life) {
	i := int32(len(k.open))
	if n := len(k.vacant); n > 0 {
		i, k.vacant = k.vacant[n-1], k.vacant[:n-1]
		k.open[i] = l
	} else {
		k.open = append(k.open, l)
	}
	k.at[l.addr] = i
}

func (k *rank) bury(i int32) {
	delete(k.at, k.open[i].addr)
	k.open[i] = life{}
	k.vacant = append(k.vacant, i)
}

// Counters implements eager.Observer.
func (r *Recorder) Counters(rank int, at sim.Time, c eager.Counters) { r.ranks[rank].reached(at, c) }

// reached notes a level.
func (k *rank) reached(at sim.Time, c eager.Counters) {
	if c != k.last {
		k.last = c
		k.levels.push(level{at, c})
	}
}

// reach forgets the oldest iterations when the host begins another one; of
// levels the last one before the first iteration kept is needed.
func (k *rank) reach(iteration, keep int, at sim.Time) {
	if iteration < len(k.begins) {
		return
	}
	k.begins = append(k.begins, at)
	if keep == 0 || len(k.begins)-keep <= k.first {
		return
	}
	k.first = len(k.begins) - keep
	first, from := int32(k.first), k.from()
	k.device.drop(func(w *work) bool { return w.iteration < first })
	k.host.drop(func(s *step) bool { return s.iteration < first })
	k.lives.drop(func(l *life) bool { return l.iteration < first })
	kept := k.levels.all()
	last := sort.Search(len(kept), func(i int) bool { return kept[i].at > from }) - 1
	k.levels.drop(func(l *level) bool { last--; return last >= 0 })
}

// from is when what is kept begins: with the host, which allocates, or, where
// memory is not the allocator's, with the first kernel.
func (k *rank) from() sim.Time {
	if k.paged() {
		for i := range k.device.all() {
			if w := &k.device.all()[i]; !k.old(w.iteration) {
				return w.start
			}
		}
	}
	return k.begins[k.first]
}

// paged tells that memory is not the allocator's.
func (k *rank) paged() bool { return k.info.Kind != policies.Framework }

// old tells whether a span of iteration i is older than what is kept: it ended
// late, after others of its kind that are.
func (k *rank) old(i int32) bool { return int(i) < k.first }
