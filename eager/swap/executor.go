package swap

import (
	"smartswap/eager/alloc"
	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// Host is the dispatching thread on whose behalf the executor acts.
type Host interface {
	// Push issues a command and returns the event of its end.
	Push(s stream.ID, c stream.Command) stream.Event
	// Charge adds host time to what the thread is doing.
	Charge(t sim.Time)
	// Gone tells that a storage is no more.
	Gone(s *Storage)
}

// Watcher observes memory and copies; it must not change anything. Methods
// are called in host order.
type Watcher interface {
	// Bound tells that s (nil: a workspace) owns block b, or, with
	// alloc.NoBlock, none any more. Freed tells that the allocator got a
	// block back.
	Bound(s *Storage, b alloc.Block)
	Freed(b alloc.Block)
	// Copied announces the copy that is issued next on a stream: between
	// block b and the host buffer of c, carrying c.Version of s.
	Copied(on stream.ID, s *Storage, b alloc.Block, c *Copy, dir hw.Direction)
}

// Reason says why a copy was made.
type Reason uint8

// Reasons.
const (
	Planned  Reason = iota // an armed plan
	Ordered                // a policy's own action
	Pressure               // a failed allocation
	Demand                 // an operator needed it
	NumReasons
)

// Stats count what the executor did. Bytes are requested sizes.
type Stats struct {
	OutBytes, InBytes sim.Bytes
	// OutByType splits OutBytes by what the runtime can tell about tensors.
	OutByType [profilers.NumTensorTypes]sim.Bytes
	Outs, Ins [NumReasons]int64
	Clean     int64 // evictions that moved nothing
	Undone    int64 // swap-ins taken back because an allocation failed
	Late      int64 // planned swap-ins given up for lack of memory
	Missed    int64 // planned swaps whose tensor was never matched
	Matched   int64
	NoHost    int64    // swap-outs refused because the host pool was exhausted
	Drains    int64    // times that held memory was released because an allocation failed
	Pinning   sim.Time // of the host, for page-locking new buffers
}

// Evictions counts swap-outs that failed allocations forced.
func (s *Stats) Evictions() int64 { return s.Outs[Pressure] }

// hold is memory that must outlive a copy.
type hold struct {
	ends   stream.Event
	block  alloc.Block  // device block, or alloc.NoBlock
	buffer alloc.Buffer // host buffer, or alloc.NoBuffer
}

// guard keeps a storage alive until the copy that brings it has ended.
type guard struct {
	s    *Storage
	ends stream.Event
}

// turn says where a held device block is: in the list of a plan stage, or, at
// -1, in the list without stages.
type turn struct {
	stage int32
	ends  stream.Event
}

// Executor moves the storages of one rank.
type Executor struct {
	freed stream.Event // see Freed
	opts  Options
	costs *hw.Host
	dev   *stream.Device
	mem   alloc.Allocator
	pool  *alloc.Pinned
	host  Host
	watch Watcher // may be nil
	swaps func(profilers.SwapRec)

	nextTensor profilers.Tensor
	// joined[s] is the latest event of s that the compute stream has been
	// made to wait for: what came before it is safe to reuse.
	joined [stream.Count]stream.Event

	cached  []cached
	coming  []cached // swap-ins that no operator asked for, oldest first
	loose   []hold   // device blocks without a stage, oldest first
	buffers []hold   // host buffers, oldest first
	turns   []turn   // device blocks held anywhere, oldest first; stale entries are skipped
	sync    []hold   // blocks the host waits for
	drained bool     // for the present request; see Options.Drain
	armed   *armed
	chunks  chunks
	seen    map[profilers.Tensor]Identity // by truth: tensors of profiled iterations
	Stats   Stats
	// Room is what the host has for pageable buffers.
	Room sim.Bytes
}

// New returns an executor. swaps, if not nil, hears of every copy.
func New(opts Options, costs *hw.Host, dev *stream.Device, mem alloc.Allocator, pool *alloc.Pinned, host Host, watch Watcher, swaps func(profilers.SwapRec)) *Executor {
	return &Executor{opts: opts, costs: costs, dev: dev, mem: mem, pool: pool, host: host, watch: watch, swaps: swaps, seen: make(map[profilers.Tensor]Identity)}
}

// Place gives s the device block b: a new allocation instance.
func (x *Executor) Place(s *Storage, b alloc.Block) {
	s.Block, s.Uses = b, [2]stream.Event{}
	s.Arrives, s.Pending, s.Since = 0, false, 0
	x.rename(s)
	if x.watch != nil {
		x.watch.Bound(s, b)
	}
}

func (x *Executor) rename(s *Storage) {
	x.nextTensor++
	s.Tensor = x.nextTensor
}

// inStream is where swap-ins run.
func (x *Executor) inStream() stream.ID {
	if x.opts.Streams == 1 {
		return stream.Out
	}
	return stream.In
}

// Join makes the compute stream wait for e unless it already has.
func (x *Executor) Join(e stream.Event, cause stream.Cause) {
	s := e.Stream()
	if e <= x.joined[s] || s == stream.Compute {
		return
	}
	x.host.Charge(x.costs.StreamWait)
	x.host.Push(stream.Compute, stream.Command{Kind: stream.WaitFor, Wait: e, Cause: cause})
	x.joined[s] = e
}

// Joined tells whether the compute stream comes after e.
func (x *Executor) Joined(e stream.Event) bool {
	return e.Stream() == stream.Compute || e <= x.joined[e.Stream()] || x.dev.Done(e)
}

// Touch makes an operator on the compute stream find s: a swap-in under way
// is waited for on the device.
func (x *Executor) Touch(s *Storage) {
	if !s.Pending {
		return
	}
	cause := stream.SwapIn
	if s.fault {
		cause = stream.Fault
	}
	x.Join(s.Arrives, cause)
	s.Pending, s.Since = false, x.dev.End(stream.Compute)
}

// Arriving tells whether s is on its way in, see Options.Settle.
func (x *Executor) Arriving(s *Storage) bool {
	if s.Pending && x.opts.Settle && x.dev.Done(s.Arrives) {
		s.Pending = false
	}
	return s.Pending
}

// Written tells that the operator being dispatched writes s: a new version
// exists and every other copy is stale.
func (x *Executor) Written(s *Storage) {
	s.Version++
	x.forget(s)
}

// forget gives back all copies elsewhere, each when its last copy has ended.
func (x *Executor) forget(s *Storage) {
	for i := range s.Elsewhere {
		x.giveBack(s.Elsewhere[i].Buffer, s.Elsewhere[i].Busy)
	}
	s.Elsewhere = s.Elsewhere[:0]
}

func (x *Executor) giveBack(b alloc.Buffer, busy stream.Event) {
	if x.dev.Done(busy) {
		x.give(b)
		return
	}
	x.buffers = append(x.buffers, hold{ends: busy, block: alloc.NoBlock, buffer: b})
}

func (x *Executor) give(b alloc.Buffer) { x.pool.Free(b) }

// Out swaps s out: after what is enqueued on the compute stream, its content
// goes to the host and its block is given back by the release rule at plan
// stage (-1 = first come). With wait, the host will wait for the copy (see
// Finish). A current copy elsewhere makes it free of charge.
func (x *Executor) Out(s *Storage, stage int32, why Reason, wait bool) policies.Outcome {
	if !s.OnDevice() || x.Arriving(s) || s.Type == profilers.SharedMemory || s.Refs == 0 || s.Bytes == 0 {
		return policies.Refused
	}
	b := s.Block
	if s.Current() != nil {
		x.leave(s)
		x.free(b, s.Uses)
		x.Stats.Clean++
		x.Stats.Outs[why]++
		return policies.Done
	}
	buf, fresh, err := x.pool.Alloc(s.Bytes)
	for err != nil && x.uncache() {
		buf, fresh, err = x.pool.Alloc(s.Bytes)
	}
	if err != nil {
		if x.Stats.NoHost++; !x.opts.Pageable || x.pageable(s.Bytes) {
			return policies.NoHost
		}
		buf, wait = x.pool.AllocPageable(s.Bytes), true
	}
	if fresh > 0 {
		pinning := x.costs.PinFixed + sim.Time(int64(x.costs.PinPerMiB)*int64(fresh)/int64(sim.MiB))
		x.host.Charge(pinning)
		x.Stats.Pinning += pinning
	}
	x.host.Charge(x.costs.EventRecord + x.costs.StreamWait + x.costs.CopyLaunch)
	x.order(stream.Out, x.dev.End(stream.Compute))
	for _, e := range s.Uses {
		if !x.Joined(e) {
			x.order(stream.Out, e)
		}
	}
	s.Elsewhere = append(s.Elsewhere, Copy{Version: s.Version, Buffer: buf})
	c := &s.Elsewhere[len(s.Elsewhere)-1]
	e := x.move(s, b, c, hw.D2H, stream.Out)
	c.Ready = e

	old := s.Tensor
	x.leave(s)
	x.Stats.OutBytes += s.Bytes
	x.Stats.OutByType[s.Type] += s.Bytes
	x.Stats.Outs[why]++
	x.record(s, old, true, why)

	switch {
	case wait:
		x.sync = append(x.sync, hold{ends: e, block: b, buffer: alloc.NoBuffer})
	case x.opts.Release == "stock":
		x.mem.RecordStream(b, alloc.Stream(stream.Out))
		x.free(b, s.Uses)
	default:
		x.host.Charge(x.costs.EventRecord)
		x.hold(stage, hold{ends: e, block: b, buffer: alloc.NoBuffer})
	}
	return policies.Done
}

// pageable tells whether s more bytes of pageable memory are more than the host
// has beside the pinned pool.
func (x *Executor) pageable(s sim.Bytes) (exhausted bool) {
	return sim.Bytes(x.pool.Stats().Pageable.Current)+s > x.Room
}

// leave takes the device copy from s.
func (x *Executor) leave(s *Storage) {
	s.Block = alloc.NoBlock
	x.rename(s)
	if x.opts.Features == "pointer" {
		s.featureIn = 0
	}
	if x.watch != nil {
		x.watch.Bound(s, alloc.NoBlock)
	}
}

// In swaps s in, into block b, which the caller allocated for it.
func (x *Executor) In(s *Storage, b alloc.Block, stage int32, why Reason) {
	c := s.Current()
	in := x.inStream()
	x.host.Charge(x.costs.EventRecord + x.costs.StreamWait + x.costs.CopyLaunch)
	x.order(in, x.dev.End(stream.Compute))
	if c.Ready.Stream() != in {
		x.order(in, c.Ready)
	}
	old := s.Tensor
	s.Block, s.Uses = b, [2]stream.Event{}
	x.rename(s)
	if x.watch != nil {
		x.watch.Bound(s, b)
	}
	e := x.move(s, b, c, hw.H2D, in)
	s.Arrives, s.Pending, s.Since, s.fault = e, true, 0, why == Demand
	c.Busy = e
	x.Stats.InBytes += s.Bytes
	x.Stats.Ins[why]++
	x.record(s, old, false, why)
	if x.opts.Release == "stock" {
		x.mem.RecordStream(b, alloc.Stream(in))
	} else if stage >= 0 {
		s.Guard++
		x.armed.guards[stage] = append(x.armed.guards[stage], guard{s, e})
	}
	if why != Demand {
		x.coming = append(x.coming, cached{s, s.Handle})
	}
	if x.opts.Clean {
		x.cached = append(x.cached, cached{s, s.Handle})
	} else {
		x.forget(s)
	}
}

// cached is a storage that came back with its host copy kept.
type cached struct {
	s      *Storage
	handle policies.Handle
}

// Undo takes back the latest swap-in that no operator has used yet, if its
// host copy is still there: its block is free again, after the copy. It tells
// whether there was one.
func (x *Executor) Undo() bool {
	for n := len(x.coming); n > 0; n = len(x.coming) {
		c := x.coming[n-1]
		x.coming = x.coming[:n-1]
		if s := c.s; s.Handle == c.handle && s.Pending && !s.InUse() && s.Refs > 0 && s.Current() != nil {
			x.Touch(s)
			b := s.Block
			x.leave(s)
			x.free(b, s.Uses)
			x.Stats.Undone++
			return true
		}
	}
	return false
}

// uncache gives up the oldest host copy that is only kept in case its storage
// leaves again, and tells whether there was one.
func (x *Executor) uncache() bool {
	for len(x.cached) > 0 {
		c := x.cached[0]
		x.cached = x.cached[1:]
		if s := c.s; s.Handle == c.handle && s.OnDevice() && len(s.Elsewhere) > 0 {
			before := x.pool.Stats().Used.Current
			x.forget(s)
			if x.pool.Stats().Used.Current < before {
				return true
			}
		}
	}
	return false
}

// order makes stream s wait for e.
func (x *Executor) order(s stream.ID, e stream.Event) {
	if !x.dev.Done(e) {
		x.host.Push(s, stream.Command{Kind: stream.WaitFor, Wait: e, Cause: stream.Order})
	}
}

func (x *Executor) move(s *Storage, b alloc.Block, c *Copy, dir hw.Direction, on stream.ID) stream.Event {
	cmd := stream.Command{Kind: stream.Copy, Dir: dir, Bytes: s.Bytes, Pageable: x.pool.Pageable(c.Buffer)}
	if dir == hw.H2D {
		cmd.Weight = int32(x.opts.Priority)
	}
	if x.watch != nil {
		x.watch.Copied(on, s, b, c, dir)
	}
	e := x.host.Push(on, cmd)
	if cmd.Pageable && dir == hw.H2D { // a copy from pageable memory blocks its caller
		x.sync = append(x.sync, hold{ends: e, block: alloc.NoBlock, buffer: alloc.NoBuffer})
	}
	c.Busy = e
	return e
}

func (x *Executor) record(s *Storage, old profilers.Tensor, out bool, why Reason) {
	if x.swaps != nil {
		x.swaps(profilers.SwapRec{Out: out, Bytes: s.Bytes, OOM: why == Pressure || why == Demand, Src: old, Dst: s.Tensor})
	}
}

// Discard takes the device copy of s away and frees its memory; its content is
// nobody's concern.
func (x *Executor) Discard(s *Storage) {
	x.Touch(s)
	b := s.Block
	x.leave(s)
	x.free(b, s.Uses)
}

// Bury ends a storage that has no reference left.
func (x *Executor) Bury(s *Storage) { x.destroy(s) }

// Forget gives the copies of s outside the device back.
func (x *Executor) Forget(s *Storage) { x.forget(s) }

// Drop gives a reference of s back and tells whether it was the last. The
// storage dies then, or when the last swap-in that guards it is released.
func (x *Executor) Drop(s *Storage) (last bool) {
	s.Refs--
	if s.Refs > 0 {
		return false
	}
	if s.Guard == 0 {
		x.destroy(s)
	}
	return true
}

func (x *Executor) destroy(s *Storage) {
	if s.OnDevice() {
		x.Touch(s)
		b := s.Block
		s.Block = alloc.NoBlock
		if x.watch != nil {
			x.watch.Bound(s, alloc.NoBlock)
		}
		x.free(b, s.Uses)
	}
	x.forget(s)
	x.host.Gone(s)
}

// free gives a block back to the allocator. What other streams than compute
// still have to do with it is deferred by record_stream, as communication
// libraries do.
func (x *Executor) free(b alloc.Block, uses [2]stream.Event) {
	for _, e := range uses {
		if !x.Joined(e) {
			x.mem.RecordStream(b, alloc.Stream(e.Stream()))
		}
	}
	x.Release(b)
	if x.watch != nil {
		x.watch.Freed(b)
	}
}

// Release gives a block back to the allocator as it is: workspace, which no
// other stream uses.
func (x *Executor) Release(b alloc.Block) {
	x.host.Charge(x.costs.Free)
	x.mem.Free(b)
	x.Ordered()
}

// Ordered notes that memory compute may now be given is free only behind what
// compute has before it: because it was used there, or because compute waits
// for a copy out of it.
func (x *Executor) Ordered() { x.freed = x.dev.End(stream.Compute) }

// Freed is the end of the compute stream at the last Ordered. What another
// stream does with memory allocated since must come after it.
func (x *Executor) Freed() stream.Event { return x.freed }

// hold keeps a device block until the run reaches a stage of the plan, or in
// the queue without a stage.
func (x *Executor) hold(stage int32, h hold) {
	if stage < 0 || x.armed == nil {
		stage = -1
		x.loose = append(x.loose, h)
	} else {
		x.armed.holds[stage] = append(x.armed.holds[stage], h)
	}
	x.turns = append(x.turns, turn{stage, h.ends})
}

// release ends a hold, making the compute stream wait for its copy.
func (x *Executor) release(h hold) {
	x.Join(h.ends, stream.Freed)
	x.free(h.block, [2]stream.Event{})
}

// unguard lets a storage die whose last reference has gone meanwhile.
func (x *Executor) unguard(g guard) {
	if g.s.Guard--; g.s.Guard == 0 && g.s.Refs == 0 {
		x.destroy(g.s)
	}
}

// EndIteration lets storages die that only a guard keeps: an iteration that left
// operators out may not have reached the stage of its release.
func (x *Executor) EndIteration() {
	if a := x.armed; a != nil {
		for i := range a.guards {
			for _, g := range a.guards[i] {
				x.unguard(g)
			}
			a.guards[i] = a.guards[i][:0]
		}
	}
}

// Poll gives back what the heads of the two queues without stages no longer
// need; called at every operator.
func (x *Executor) Poll() {
	x.poll(&x.loose, func(h hold) { x.free(h.block, [2]stream.Event{}) })
	x.poll(&x.buffers, func(h hold) { x.give(h.buffer) })
}

func (x *Executor) poll(queue *[]hold, done func(hold)) {
	n := 0
	for _, h := range *queue {
		x.host.Charge(x.costs.EventQuery)
		if !x.dev.Done(h.ends) {
			break
		}
		done(h)
		n++
	}
	if n > 0 {
		*queue = (*queue)[:copy(*queue, (*queue)[n:])]
	}
}

// Pending is the end of the copy whose host buffer comes back next, if any.
func (x *Executor) Pending() (stream.Event, bool) {
	if len(x.buffers) == 0 {
		return 0, false
	}
	return x.buffers[0].ends, true
}

// Request notes that the allocator is asked anew.
func (x *Executor) Request() { x.drained = false }

// Drain gives back device memory that is held for swap-outs under way, the
// compute stream waiting for them, as much as Options.Drain says. It tells
// whether there was any.
func (x *Executor) Drain() bool {
	switch x.opts.Drain {
	case "all":
		return x.drainAll()
	case "first":
		if x.drained {
			return false
		}
		x.drained = x.drainQueue(true) || x.drainHolds() || x.drainGuards()
		if x.turns = x.turns[:0]; x.drained { // they are of "enough" alone
			x.Stats.Drains++
		}
		return x.drained
	}
	for len(x.turns) > 0 {
		t := x.turns[0]
		x.turns = x.turns[1:]
		list := &x.loose
		if t.stage >= 0 {
			list = &x.armed.holds[t.stage]
		}
		// Lists are in the order of issue and lose entries at the front
		// only: what is still there is first.
		if len(*list) > 0 && (*list)[0].ends == t.ends {
			h := (*list)[0]
			*list = (*list)[:copy(*list, (*list)[1:])]
			x.release(h)
			x.Stats.Drains++
			return true
		}
	}
	return false
}

// drainAll releases every device block and every guard.
func (x *Executor) drainAll() bool {
	got := x.drainQueue(false)
	got = x.drainHolds() || got
	x.drainGuards()
	if x.turns = x.turns[:0]; got {
		x.Stats.Drains++
	}
	return got
}

// drainQueue releases the device blocks without a stage, and, if told to, the
// host buffers of past swap-ins. It tells whether there were any.
func (x *Executor) drainQueue(buffers bool) bool {
	got := len(x.loose) > 0
	for _, h := range x.loose {
		x.release(h)
	}
	x.loose = x.loose[:0]
	if !buffers {
		return got
	}
	got = got || len(x.buffers) > 0
	for _, h := range x.buffers {
		// Whoever writes to the buffer next comes after the compute stream.
		x.Join(h.ends, stream.Freed)
		x.give(h.buffer)
	}
	x.buffers = x.buffers[:0]
	return got
}

// drainHolds releases the device blocks of all stages and tells whether there
// were any.
func (x *Executor) drainHolds() bool {
	return x.armed != nil && drainStages(x.armed.holds, x.release)
}

// drainGuards lets go of the storages of all stages and tells whether there were
// any.
func (x *Executor) drainGuards() bool {
	return x.armed != nil && drainStages(x.armed.guards, x.unguard)
}

// drainStages hands what waits at each stage to end, stage by stage.
func drainStages[T any](stages [][]T, end func(T)) (got bool) {
	for i, list := range stages {
		got = got || len(list) > 0
		for _, one := range list {
			end(one)
		}
		stages[i] = list[:0]
	}
	return got
}

// Awaiting tells whether the host must wait for copies.
func (x *Executor) Awaiting() bool { return len(x.sync) > 0 }

// Awaited are the copies that the host must wait for before Finish: synchronous
// swap-outs, and all copies between the device and pageable memory.
func (x *Executor) Awaited() []stream.Event {
	var all []stream.Event
	for _, h := range x.sync {
		all = append(all, h.ends)
	}
	return all
}

// Finish gives back the blocks of synchronous swap-outs, once the host has
// waited for them.
func (x *Executor) Finish() {
	for _, h := range x.sync {
		if h.block != alloc.NoBlock {
			x.free(h.block, [2]stream.Event{})
		}
	}
	x.sync = x.sync[:0]
}
