package eager

import (
	"fmt"

	"smartswap/eager/alloc"
	"smartswap/eager/check"
	"smartswap/eager/remat"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
	"smartswap/workloads"
)

// phase is where the dispatching thread stands inside an instruction. Every
// phase can be taken up again after a wait.
type phase uint8

const (
	atBirth   phase = iota // allocate the residents
	atNext                 // take the next instruction
	atArgs                 // bring arguments to the device, allocate outputs
	atLaunch               // host time is paid: issue the kernel
	atPost                 // record, match
	atMatched              // swap matched tensors out, stage tasks
	atDue                  // find memory for planned swap-ins
	atEnd                  // end of the iteration
	atHalt                 // all iterations dispatched
)

// Events of a rank.
const (
	hostWake uint32 = iota
	launchStep
)

// lanes maps a program's lanes to streams.
var lanes = [workloads.NumLanes]stream.ID{stream.Compute, stream.Comm, stream.Peer}

// rank is one simulated rank: its host threads, memory and device.
type rank struct {
	job   *job
	index int
	eng   *sim.Engine
	self  sim.HandlerID
	costs *hw.Host
	dev   *stream.Device
	mem   alloc.Allocator
	fits  alloc.Fitter
	pool  *alloc.Pinned
	x     *swap.Executor
	paged pagedMemory   // nil: device memory is the allocator's
	check *check.Memory // nil without checks
	obs   *observation  // nil without observers

	policy   policies.Policy
	needs    policies.Needs
	recorder *profilers.Recorder
	names    *profilers.Names
	level    policies.Level
	reason   swap.Reason // why a policy's action moves data

	// The program and where the thread stands in it.
	iteration int
	prog      *workloads.Program
	work      *prepared
	pc        int
	phase     phase
	clock     clock
	storages  []*swap.Storage // by StorageID; residents first
	residents int
	events    []stream.Event
	behind    [stream.Count]stream.Event // latest command of the compute stream that a stream was made to wait for

	// The operator being dispatched, and those that wait for it to make what
	// they need: see lineage.go.
	frame
	suspended  []frame
	wanted     []policies.Handle // to be made again before the next operator runs
	lineage    *remat.Lineage    // nil: the policy does not ask for it
	replays    Replays           // of the iteration
	allReplays Replays           // of the iterations before
	allowance  sim.Time          // that replays of the iteration may take

	due     []swap.Due
	later   []swap.Due // planned swap-ins that found no memory yet
	opID    int64
	firstOp int64 // of the iteration
	handles []policies.Handle
	event   policies.Event // being delivered; no event leads to another
	records []profilers.TensorRec

	// Live storages by slot; a handle is generation and slot.
	live    []*swap.Storage
	free    []int32
	gen     int64
	spare   []*swap.Storage
	created map[swap.Identity]int32 // by label, layer and pass: how many, in this iteration

	// Host time.
	cost    sim.Time // charged, not yet paid
	paying  bool     // pay and flush before the next phase
	waits   []stream.Event
	cause   HostCause
	waiting bool
	since   sim.Time
	host    HostLane
	finish  bool // synchronous evictions end with the wait
	ready   alloc.Block
	denied  *alloc.OOM // what Malloc said before the host waited
	attempt int

	// Launching thread.
	step      queue // issued in this step
	tasks     queue // task queue
	slots     int   // of the task queue; 0 = none
	depth     int   // of a launch queue; 0 = no limit
	launching bool
	tasksFull bool

	// The iteration so far.
	iterStart sim.Time // host clock
	oomSeen   bool
	evictions int64
	base      swap.Stats // at its start
	kernelAt  sim.Time   // start of the running kernel

	ops, recomputed int64
	sequence        uint64
	use             stream.Use    // of the kernel being issued, and what has died since the one before
	reached         int           // iteration that the device is in, with paged memory
	unmoved         sim.Bytes     // beside unified memory: buffers that never leave
	ledger, warm    stream.Ledger // of the paged memory: at the end of the last iteration, before the steady window
	nominal         *policies.Nominal
	before          alloc.Stats // peaks up to the steady window
	driver          sim.Time    // in the driver for device memory
	lanes           [stream.Count]stream.Lane
	windowFrom      sim.Time
	windowTo        sim.Time
}

// handleBits is the part of a handle that numbers the slot.
const handleBits = 24

// Handle serves the rank's events.
func (r *rank) Handle(arg uint32, _ sim.Stamp) {
	if arg == launchStep {
		r.launch()
		return
	}
	if r.obs != nil {
		r.obs.resume()
	}
	if r.waiting {
		r.waiting = false
		r.host.Wait[r.cause] += r.eng.Now() - r.since
	}
	r.run()
}

// waitHost books what follows as waiting for cause.
func (r *rank) waitHost(c HostCause) {
	r.waiting, r.cause, r.since = true, c, r.eng.Now()
	if r.obs != nil {
		r.obs.pause(true, c)
	}
}

// await makes the thread pay, hand its commands over, and wait for events.
func (r *rank) await(c HostCause, events ...stream.Event) {
	r.waits = append(r.waits, events...)
	r.cause = c
	r.paying = true
}

func (r *rank) awaitAll(c HostCause) {
	for s := range stream.Count {
		r.await(c, r.dev.End(s))
	}
}

// run is the dispatching thread: it goes on until it has to wait.
func (r *rank) run() {
	for r.job.oom == nil && r.job.err == nil {
		if r.paying {
			if c := r.cost; c > 0 {
				r.cost = 0
				r.host.Busy += c
				if r.obs != nil {
					r.obs.pause(false, 0)
				}
				r.eng.After(c, sim.PrioHost, r.self, hostWake)
				return
			}
			if !r.flush() {
				return
			}
			r.paying = false
		}
		if n := len(r.waits); n > 0 {
			e := r.waits[n-1]
			r.waits = r.waits[:n-1]
			if !r.dev.Done(e) {
				r.waitHost(r.cause)
				r.dev.Await(e, r.self, hostWake)
				return
			}
			continue
		}
		if r.finish {
			r.finish = false
			r.x.Finish()
		}
		if r.x.Awaiting() {
			r.finish = true
			r.await(EvictWait, r.x.Awaited()...)
			continue
		}
		switch r.phase {
		case atBirth:
			r.bear()
		case atNext:
			r.take()
		case atArgs:
			r.bring()
		case atLaunch:
			r.issue()
		case atPost:
			r.post()
		case atMatched:
			r.swapOut()
		case atDue:
			r.prefetch()
		case atEnd:
			r.endIteration()
		case atHalt:
			r.host.Done = r.eng.Now()
			return
		}
	}
}

// bear allocates the residents in order, as model and optimizer construction
// do, and starts the first iteration. Policies see each as the argument of one
// operator, numbered -1. Construction is not timed.
func (r *rank) bear() {
	for ; r.next < r.residents; r.next++ {
		s := r.storages[r.next]
		r.about(s)
		b, v := r.allocate(s.Bytes, true)
		if v != granted {
			return
		}
		r.x.Place(s, b)
		if r.check != nil {
			r.check.Resident(s)
		}
		if r.needs.Events.Has(policies.AfterOp) {
			r.handles = append(r.handles[:0], s.Handle)
			r.tell(policies.Event{Kind: policies.AfterOp, Op: policies.OpView{Index: -1, Name: r.names.ID(int32(r.job.cfg.Workload.Names().Len()), "construction"), Args: r.handles}})
		}
	}
	r.cost = 0
	r.startIteration()
}

// take executes instructions up to the next operator.
func (r *rank) take() {
	for r.pc < len(r.prog.Instrs) {
		in := &r.prog.Instrs[r.pc]
		switch in.Kind {
		case workloads.Op:
			r.begin(in)
			return
		case workloads.Ref:
			r.storages[in.A].Refs++
		case workloads.Drop:
			if s := r.storages[in.A]; r.drop(s) {
				r.storages[in.A] = nil
				if r.paged != nil {
					r.use.Dead = append(r.use.Dead, stream.Death{Storage: in.A, At: stream.Point{Iteration: r.iteration, Index: int32(r.opID - r.firstOp)}})
				}
			}
		case workloads.Save:
			if r.needs.Events.Has(policies.SaveEvent) {
				r.tell(policies.Event{Kind: policies.SaveEvent, Tensor: r.storages[in.A].Handle})
			}
		case workloads.Unpack:
			if r.needs.Events.Has(policies.UnpackEvent) {
				r.tell(policies.Event{Kind: policies.UnpackEvent, Tensor: r.storages[in.A].Handle})
			}
		case workloads.Mark:
			r.mark(in)
		case workloads.Record:
			r.cost += r.costs.EventRecord
			r.events[in.A] = r.dev.End(lanes[in.Lane])
		case workloads.Wait:
			r.wait(lanes[in.Lane], r.events[in.A])
		case workloads.Sync:
			r.pc++
			r.await(SyncPoint, r.dev.End(lanes[in.Lane]))
			return
		}
		r.pc++
	}
	r.phase = atEnd
}

// wait makes stream s wait for e.
func (r *rank) wait(s stream.ID, e stream.Event) {
	cause := stream.Order
	switch e.Stream() {
	case stream.Comm:
		cause = stream.Collective
	case stream.Peer:
		cause = stream.Pipeline
	}
	if s == stream.Compute {
		r.x.Join(e, cause)
		return
	}
	if e.Stream() == stream.Compute {
		r.behind[s] = max(r.behind[s], e)
	}
	r.cost += r.costs.StreamWait
	if !r.dev.Done(e) {
		r.Push(s, stream.Command{Kind: stream.WaitFor, Wait: e, Cause: cause})
	}
}

// after makes stream s, not compute, wait for a command of the compute stream
// unless it has ended or s already waits for it or a later one.
func (r *rank) after(s stream.ID, e stream.Event) {
	if e > r.behind[s] && !r.dev.Done(e) {
		r.wait(s, e)
	}
}

// begin starts an operator: its arguments are known and in use.
func (r *rank) begin(in *workloads.Instr) {
	r.args, r.next = r.args[:0], 0
	args := r.prog.Args[in.ArgLo:in.ArgHi]
	collective := r.meetsAgain(in)
	for i, a := range args {
		s := r.storages[a.Storage]
		switch {
		case s == nil:
			s = r.create(a.Storage)
		case collective && replaces(args, i):
			s = r.renew(a.Storage)
		}
		r.args = append(r.args, s)
	}
	r.x.Poll()
	if r.lineage != nil {
		r.enter(r.lineage.New(r.opID, r.pc, in, args, r.args, collective), false)
		return
	}
	for _, s := range r.args {
		s.Locks++
	}
	if r.needs.Events.Has(policies.BeforeOp) {
		r.tell(policies.Event{Kind: policies.BeforeOp, Op: r.view(in)})
	}
	r.phase = atArgs
}

// view is the operator as policies see it.
func (r *rank) view(in *workloads.Instr) policies.OpView {
	r.handles = r.handles[:0]
	for _, s := range r.args {
		r.handles = append(r.handles, s.Handle)
	}
	v := policies.OpView{Index: r.opID, Name: r.nameID(in.Name), Stage: r.clock.stage, Args: r.handles}
	if r.op != nil {
		v.Roles, v.Cost, v.Again = r.op.Roles, r.deviceTime(in), r.again
	}
	return v
}

// bring makes the arguments ready, in order, then the workspace.
func (r *rank) bring() {
	in := &r.prog.Instrs[r.at()]
	on := lanes[in.Lane]
	for ; r.next < len(r.args); r.next++ {
		s := r.args[r.next]
		if r.op != nil {
			if !r.hold(r.next) {
				return
			}
			if r.again && r.op.Roles[r.next] == policies.Output {
				continue
			}
		}
		if !s.OnDevice() {
			mode := r.prog.Args[int(in.ArgLo)+r.next].Mode
			if r.op != nil && r.lineage.Read(s) {
				mode = workloads.Update // what is replaced is still of use
			}
			var from *swap.Copy
			if mode != workloads.Write {
				if from = s.Current(); from == nil {
					r.job.fail(fmt.Errorf("rank %d, iteration %d, %s: the content of %s is nowhere", r.index, r.iteration, r.opName(), r.storageName(s)))
					return
				}
				if r.attempt == 0 && r.ready == alloc.NoBlock && r.denied == nil {
					r.tell(policies.Event{Kind: policies.Miss, Tensor: s.Handle})
				}
			}
			if !s.OnDevice() { // a Miss handler may have brought it
				r.about(s)
				b, v := r.allocate(s.Bytes, true)
				if v != granted {
					return
				}
				if on != stream.Compute {
					r.wait(on, r.x.Freed())
				}
				if from == nil {
					r.x.Place(s, b)
				} else {
					r.x.In(s, b, -1, swap.Demand)
				}
			}
		}
		switch {
		case on == stream.Compute:
			r.x.Touch(s)
		case s.Pending:
			r.wait(on, s.Arrives)
		default:
			r.after(on, s.Since)
		}
	}
	if in.Scratch > 0 && r.scratch == alloc.NoBlock {
		r.about(nil)
		b, v := r.allocate(in.Scratch, true)
		if v != granted {
			return
		}
		if on != stream.Compute {
			r.wait(on, r.x.Freed())
		}
		r.scratch = b
		if r.check != nil {
			r.check.Bound(nil, b)
		}
	}
	if r.op != nil && !r.safe(on) {
		return
	}
	dispatch := in.Host
	if dispatch == 0 {
		dispatch = r.costs.Dispatch
	}
	if r.slots == 0 && in.Kernel >= 0 {
		dispatch += r.costs.Launch
	}
	r.cost += dispatch + r.recorder.OpCost(len(r.args))
	r.paying = true
	r.phase = atLaunch
}

// issue hands the kernel over and advances the versions of what it writes.
func (r *rank) issue() {
	if r.again {
		r.issueAgain()
		return
	}
	in := &r.prog.Instrs[r.pc]
	args := r.prog.Args[in.ArgLo:in.ArgHi]
	if r.check != nil {
		r.check.Begin()
		for i, s := range r.args {
			if args[i].Mode != workloads.Write {
				r.check.Reads(s)
			}
		}
	}
	for i, s := range r.args {
		if args[i].Mode != workloads.Read && !writtenBefore(args, r.args, i) {
			r.x.Written(s)
			if r.check != nil {
				r.check.Writes(s)
			}
		}
	}
	if r.op != nil {
		r.lineage.Ran(r.op)
		if r.check != nil {
			r.check.Remember(r.op.ID)
		}
	}
	if in.Kernel >= 0 {
		c := r.work.commands[in.Kernel]
		c.Tag = int32(r.opID)
		if r.paged != nil {
			r.announce(in, &c)
		}
		if r.check != nil {
			r.check.Issue(lanes[in.Lane])
		}
		e := r.Push(lanes[in.Lane], c)
		if in.Lane != workloads.Compute {
			for _, s := range r.args {
				s.UsedOn(e)
			}
		}
	} else if r.check != nil {
		r.check.Immediate()
	}
	r.ops++
	if in.Flags&workloads.Recomputed != 0 {
		r.recomputed++
	} else {
		r.sequence = (r.sequence ^ uint64(in.Name)) * 1099511628211
	}
	r.paying = true
	r.phase = atPost
}

// writtenBefore tells whether argument i repeats a storage written by an
// earlier one.
func writtenBefore(args []workloads.Arg, storages []*swap.Storage, i int) bool {
	for j := range i {
		if storages[j] == storages[i] && args[j].Mode != workloads.Read {
			return true
		}
	}
	return false
}

// post is what hooks do after the kernel is on its way.
func (r *rank) post() {
	in := &r.prog.Instrs[r.at()]
	if r.op != nil {
		r.unlock()
	} else {
		for _, s := range r.args {
			s.Locks--
		}
	}
	if r.scratch != alloc.NoBlock {
		r.x.Release(r.scratch)
		if r.check != nil {
			r.check.Freed(r.scratch)
		}
		r.scratch = alloc.NoBlock
	}
	if r.again {
		r.leave(in)
		return
	}
	if f := r.recorder.Fields(); f != 0 {
		r.record(in, f)
	}
	if r.needs.Events.Has(policies.AfterOp) {
		r.tell(policies.Event{Kind: policies.AfterOp, Op: r.view(in)})
	}
	if r.x.Armed() {
		r.Charge(sim.Time(r.x.Match(r.nameID(in.Name), int32(r.opID-r.firstOp), r.args, r.clock.index)) * matchCost)
	}
	r.phase = atMatched
}

// swapOut swaps matched tensors out, waiting for host buffers of copies under
// way if need be, and runs the tasks of the stage.
func (r *rank) swapOut() {
	for skip := false; !r.x.SwapMatched(skip); {
		r.x.Poll()
		if e, busy := r.x.Pending(); busy {
			r.await(HostMemory, e)
			return
		}
		skip = true
	}
	if r.x.Armed() {
		at := r.clock.index
		r.due = r.x.Tasks(at, r.storageOf, r.due)
		if r.clock.stage.Phase == profilers.Optim {
			r.due = r.x.Used(r.args, r.due)
		}
		r.x.ReleaseAt(at)
	}
	r.opID++
	if r.clock.step() {
		r.clock.index = r.x.StageIndex(r.clock.stage)
		r.border()
	}
	r.phase = atDue
}

// record builds the operator's profile record.
func (r *rank) record(in *workloads.Instr, f profilers.Fields) {
	rec := profilers.OpRec{ID: r.opID, Name: r.nameID(in.Name), Stage: r.clock.stage}
	r.records = r.records[:0]
	if f.Has(profilers.TensorArgs) {
		for _, s := range r.args {
			r.x.Know(s)
			r.records = append(r.records, profilers.TensorRec{Tensor: s.Tensor, Bytes: s.Bytes, Shape: s.Shape, DType: s.DType, Type: s.Type})
		}
	}
	if f.Has(profilers.MemoryStats) {
		st := r.mem.Stats()
		rec.Allocated, rec.Reserved, rec.Active = sim.Bytes(st.Allocated.Current), sim.Bytes(st.Reserved.Current), sim.Bytes(st.Active.Current)
	}
	r.recorder.Op(rec, r.records)
}

// prefetch finds memory for planned swap-ins, the ones that were too early
// for it first.
func (r *rank) prefetch() {
	guard := r.job.cfg.Executor.Prefetch == "guard"
	if len(r.later) > 0 {
		keep := r.later[:0]
		for _, d := range r.later {
			if d.Wanted() && !r.early(d) {
				keep = append(keep, d)
			}
		}
		r.later = keep
	}
	for len(r.due) > 0 {
		d := r.due[0]
		if d.Wanted() {
			if guard {
				r.about(d.Storage)
				b, v := r.allocate(d.Storage.Bytes, true)
				if v != granted {
					return
				}
				r.x.In(d.Storage, b, d.Stage, swap.Planned)
			} else if !r.early(d) {
				r.x.Stats.Late++
				r.later = append(r.later, d)
			}
		}
		r.due = r.due[:copy(r.due, r.due[1:])]
	}
	r.pc++
	r.phase = atNext
	if r.step.len() > 0 {
		r.paying = true
	}
}

// early makes a planned swap-in if there is memory for it at no cost to
// anybody, and tells whether it did.
func (r *rank) early(d swap.Due) bool {
	if !r.fits.Fits(d.Storage.Bytes, 0) {
		return false
	}
	r.about(d.Storage)
	b, err := r.malloc(d.Storage.Bytes)
	r.payAllocator()
	if err != nil {
		return false
	}
	r.checkMemory()
	r.x.In(d.Storage, b, d.Stage, swap.Planned)
	return true
}

// mark moves the clock and tells the policy.
func (r *rank) mark(in *workloads.Instr) {
	end := r.clock.mark(in.Mark, in.B)
	r.clock.index = r.x.StageIndex(r.clock.stage)
	if !end {
		r.border()
	}
	r.tell(policies.Event{Kind: policies.MarkEvent, Mark: policies.Mark{Stage: r.clock.stage, End: end}})
}

// border records an event where a stage begins, if the profiler wants it. Its
// marker has a negative tag, unlike the marks of ends of iterations.
func (r *rank) border() {
	if ticket, ok := r.recorder.Border(); ok {
		r.Charge(r.recorder.BorderCost())
		r.Push(stream.Compute, stream.Command{Kind: stream.Marker, Tag: ^ticket})
	}
}

// endIteration closes the books of an iteration and starts the next one.
func (r *rank) endIteration() {
	r.border()
	r.x.EndIteration()
	r.Push(stream.Compute, stream.Command{Kind: stream.Marker, Tag: int32(r.iteration)})
	for i := r.residents; i < len(r.storages); i++ {
		if r.storages[i] != nil {
			r.job.violate("rank %d, iteration %d: %s is still referenced at the end (10)", r.index, r.iteration, r.storageName(r.storages[i]))
		}
	}
	r.bury()
	now := r.eng.Now()
	r.cost += r.recorder.EndCost()
	obs := r.recorder.End(now-r.iterStart, r.oomSeen)
	r.tell(policies.Event{Kind: policies.IterationEnd, Observation: obs, Evictions: int(r.evictions), OOM: r.oomSeen})
	r.job.dispatched(r)
	r.iteration++
	r.iterStart, r.oomSeen, r.evictions, r.base = now, false, 0, r.x.Stats
	r.replays = Replays{}
	if r.iteration == r.job.cfg.Iterations {
		r.paying = true
		r.phase = atHalt
		return
	}
	r.startIteration()
}

// startIteration takes the next program.
func (r *rank) startIteration() {
	prog, err := r.job.cfg.Workload.Program(r.index, r.iteration)
	if err != nil {
		r.job.fail(fmt.Errorf("rank %d, iteration %d: %w", r.index, r.iteration, err))
		return
	}
	r.prog, r.work, r.pc = prog, r.job.prepare(prog), 0
	if r.paged != nil && r.work.communicates {
		r.paged.Share()
	}
	r.allowance = r.allowed()
	r.storages = append(r.storages[:r.residents], make([]*swap.Storage, len(prog.Storages)-r.residents)...)
	if n := int(prog.Events); n > len(r.events) {
		r.events = make([]stream.Event, n)
	}
	if r.iteration == r.job.cfg.Warmup {
		r.before = r.mem.Stats()
		r.mem.ResetPeaks()
	}
	r.firstOp = r.opID
	r.recorder.Begin(r.iteration, r.profiler())
	r.clock = newClock(r.x.Plan())
	clear(r.created)
	r.x.BeginIteration(r.iteration)
	r.clock.index = r.x.StageIndex(r.clock.stage)
	r.paying = true
	r.phase = atNext
}

// profiler is the one in force.
func (r *rank) profiler() profilers.Profiler {
	switch {
	case r.level == policies.Full || r.job.cfg.AlwaysProfile:
		return r.job.cfg.Profiler
	case r.level == policies.Light:
		return r.job.light
	}
	return nil
}

// create brings a storage of the program to life; its first write allocates
// it.
func (r *rank) create(id workloads.StorageID) *swap.Storage {
	d := &r.prog.Storages[id]
	s := r.newStorage(d)
	r.storages[id] = s
	if r.job.cfg.Executor.Match == swap.MatchTruth {
		s.Identity = swap.Identity{Pass: r.clock.pass(), Label: int32(d.Label), Layer: d.Layer}
		r.created[s.Identity]++
		s.Identity.N = r.created[s.Identity]
	}
	return s
}

func (r *rank) newStorage(d *workloads.Storage) *swap.Storage {
	var s *swap.Storage
	if n := len(r.spare); n > 0 {
		s, r.spare = r.spare[n-1], r.spare[:n-1]
		*s = swap.Storage{Elsewhere: s.Elsewhere[:0]}
	} else {
		s = new(swap.Storage)
	}
	s.Bytes, s.Shape, s.DType, s.Name, s.Refs, s.Block = d.Bytes, d.Shape, uint8(d.DType), int32(d.Label), 1, alloc.NoBlock
	if s.Bytes == 0 && !r.job.cfg.Allocator.Exact {
		s.Bytes = 1 // the least that an allocator with blocks gives
	}
	switch {
	case d.Flat:
		s.Type = profilers.SharedMemory
	case d.Class == workloads.Optimizer:
		s.Type = profilers.OptimState
	case d.Class == workloads.Parameter:
		s.Type = profilers.Model
	}
	var slot int32
	if n := len(r.free); n > 0 {
		slot, r.free = r.free[n-1], r.free[:n-1]
	} else {
		slot = int32(len(r.live))
		r.live = append(r.live, nil)
	}
	r.gen++
	s.Handle = policies.Handle(r.gen<<handleBits | int64(slot))
	r.live[slot] = s
	return s
}

// Gone recycles a storage: its slot, not its handle.
func (r *rank) Gone(s *swap.Storage) {
	slot := int32(s.Handle) & (1<<handleBits - 1)
	r.live[slot] = nil
	r.free = append(r.free, slot)
	r.spare = append(r.spare, s)
}

// storageOf finds a live storage.
func (r *rank) storageOf(h policies.Handle) *swap.Storage {
	slot := int(h) & (1<<handleBits - 1)
	if slot < len(r.live) {
		if s := r.live[slot]; s != nil && s.Handle == h {
			return s
		}
	}
	return nil
}

func (r *rank) nameID(id workloads.NameID) int32 {
	return r.names.ID(int32(id), r.prog.Names.String(id))
}

func workloadName(id int32) workloads.NameID { return workloads.NameID(id) }

func (r *rank) storageName(s *swap.Storage) string {
	return r.job.cfg.Workload.Names().String(workloadName(s.Name))
}

// opName is the operator being dispatched, for messages.
func (r *rank) opName() string {
	if r.prog == nil {
		return "construction"
	}
	if at := r.at(); at < len(r.prog.Instrs) && r.prog.Instrs[at].Kind == workloads.Op {
		return r.prog.Names.String(r.prog.Instrs[at].Name)
	}
	return "between operators"
}

// Started and Retired watch the device.
func (r *rank) Started(_ *stream.Device, s stream.ID, c *stream.Command) {
	if s == stream.Compute {
		r.kernelAt = r.eng.Now()
	}
	if r.check != nil {
		r.check.Started(s, c)
	}
	if r.obs != nil {
		r.obs.started(s, c)
	}
}

// Retired tells the job when an iteration has ended on the device.
func (r *rank) Retired(_ *stream.Device, s stream.ID, c *stream.Command) {
	if r.check != nil {
		r.check.Retired(s, c)
	}
	if r.obs != nil {
		r.obs.retired(s, c)
	}
	switch {
	case c.Kind == stream.Marker && c.Tag < 0:
		r.recorder.Reached(^c.Tag, r.eng.Now())
	case c.Kind == stream.Marker:
		r.job.passed(r, int(c.Tag))
	case s == stream.Compute && r.recorder.Fields().Has(profilers.OpTimes):
		r.recorder.Timed(int64(c.Tag), r.kernelAt, r.eng.Now()-r.kernelAt)
	}
}
