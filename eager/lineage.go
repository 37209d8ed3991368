package eager

import (
	"fmt"
	"math"
	"slices"

	"smartswap/eager/alloc"
	"smartswap/eager/remat"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
	"smartswap/workloads"
)

// frame is an operator being dispatched. With a lineage, an operator that needs
// what was discarded is suspended while the operator that makes it runs again,
// which may have to wait in turn: suspended frames are a stack, so that chains of
// any length are followed without recursion.
type frame struct {
	args    []*swap.Storage
	next    int // argument to bring next
	scratch alloc.Block

	// With a lineage only.
	op     *remat.Op
	again  bool            // it runs another time
	ran    bool            // others have run again for it
	held   []bool          // arguments that it has locked
	second []alloc.Block   // memory for results that are there already, by argument
	saved  []*swap.Storage // made before it writes, see safe; locked
}

// at is the instruction of the operator being dispatched, or the next one.
func (r *rank) at() int {
	if r.again {
		return r.op.PC
	}
	return r.pc
}

// deviceTime is what an operator takes on the device alone.
func (r *rank) deviceTime(in *workloads.Instr) sim.Time {
	if in.Kernel < 0 {
		return 0
	}
	return r.work.commands[in.Kernel].Timing.Span
}

// allowed is the time that operators may run again in the present iteration.
func (r *rank) allowed() sim.Time {
	l := r.needs.Lineage
	if !l.Keep || l.Limit == 0 {
		return math.MaxInt64
	}
	var all sim.Time
	for i := range r.prog.Instrs {
		if in := &r.prog.Instrs[i]; in.Kind == workloads.Op && in.Lane == workloads.Compute {
			all += r.deviceTime(in)
		}
	}
	if t := l.Limit * float64(all); t < math.MaxInt64 {
		return sim.Time(t)
	}
	return math.MaxInt64
}

// meetsAgain tells whether an operator is a collective that may run again: the
// policy allows it, and all members are ranks of the same stage.
func (r *rank) meetsAgain(in *workloads.Instr) bool {
	if r.lineage == nil || !r.needs.Lineage.Communication || in.Lane != workloads.Comm || in.Kernel < 0 {
		return false
	}
	k := &r.prog.Kernels[in.Kernel]
	ranks := r.job.cfg.Workload.Ranks()
	return k.Kind == hw.Collective && !slices.ContainsFunc(k.Group, func(m int32) bool { return ranks[m].Stage != ranks[r.index].Stage })
}

// replaces tells whether argument i is the first that names a storage, which the
// operator only writes.
func replaces(args []workloads.Arg, i int) bool {
	for j, a := range args {
		if a.Storage == args[i].Storage && (j < i || a.Mode != workloads.Write) {
			return false
		}
	}
	return true
}

// renew gives the program a new storage in the place of one that a collective is
// about to fill again.
func (r *rank) renew(id workloads.StorageID) *swap.Storage {
	old, s := r.storages[id], r.newStorage(&r.prog.Storages[id])
	s.Refs, s.Identity = old.Refs, old.Identity
	r.storages[id] = s
	r.lineage.Replace(old, s)
	old.Refs = 1
	r.drop(old)
	return s
}

// enter begins to dispatch op: the policy hears of it, and what can be read
// already is locked, in order. The rest follows in bring. An operator without
// device work takes one argument after the other instead: it is the host that
// reads them.
func (r *rank) enter(op *remat.Op, again bool) {
	r.op, r.again, r.ran, r.next, r.scratch = op, again, false, 0, alloc.NoBlock
	if again {
		r.args = op.Args
	}
	r.held = append(r.held[:0], make([]bool, len(op.Args))...)
	r.second = r.second[:0]
	for range op.Args {
		r.second = append(r.second, alloc.NoBlock)
	}
	r.saved = r.saved[:0]
	if r.needs.Events.Has(policies.BeforeOp) {
		r.tell(policies.Event{Kind: policies.BeforeOp, Op: r.view(&r.prog.Instrs[op.PC])})
	}
	for i, role := range op.Roles {
		switch role {
		case policies.Input, policies.Changed:
			if r.prog.Instrs[op.PC].Kernel >= 0 && r.lineage.Defined(op, i) {
				r.lock(i)
			}
		case policies.Output:
			if !again && !r.useful(i) {
				r.lock(i)
			}
		}
	}
	r.phase = atArgs
}

func (r *rank) lock(i int) {
	r.args[i].Locks++
	r.held[i] = true
}

// useful tells whether a storage that the operator is going to replace has a
// content that is not there and may be needed: tensors made from it could have to
// be made before (safe), at a time when its new memory is there already. So it is
// made first.
func (r *rank) useful(i int) bool {
	return r.lineage.Absent(r.args[i]) && r.lineage.Read(r.args[i])
}

// hold makes argument i ready to be brought: what it reads is locked, and memory
// is there for results that an operator makes again. It returns false when
// something else has to happen first; it is called again then.
func (r *rank) hold(i int) bool {
	switch role := r.op.Roles[i]; {
	case r.held[i] || role == policies.View:
		return true
	case role == policies.Output && r.again:
		return r.place(i)
	case role == policies.Output && !r.useful(i) || r.lineage.Defined(r.op, i):
		r.lock(i)
		return true
	}
	maker := r.lineage.Maker(r.op, i)
	if maker == nil {
		r.job.fail(fmt.Errorf("rank %d, iteration %d, %s: the content of %s is nowhere and cannot be made again", r.index, r.iteration, r.opName(), r.storageName(r.args[i])))
		return false
	}
	r.replay(maker)
	return false
}

// place finds memory for a result of an operator that runs again. A result that
// is there already is made beside itself, unless the policy wants it overwritten;
// so is one that has been written since, whose old content nobody asks for. It is
// not locked meanwhile: it may have to go.
func (r *rank) place(i int) bool {
	s, makes := r.args[i], r.lineage.Makes(r.op, i)
	if r.second[i] != alloc.NoBlock || slices.Contains(r.args[:i], s) {
		return true
	}
	if s.OnDevice() && makes && r.needs.Lineage.Overwrite {
		r.x.Touch(s)
		for _, e := range s.Uses { // other streams read it where it is
			r.wait(stream.Compute, e)
		}
		r.lock(i)
		return true
	}
	r.about(s)
	b, v := r.allocate(s.Bytes, true)
	if v != granted {
		return false
	}
	if s.OnDevice() || !makes {
		r.second[i] = b
		if r.check != nil {
			r.check.Bound(nil, b)
		}
		return true
	}
	r.x.Place(s, b)
	r.lock(i)
	return true
}

// safe makes what the policy has asked for, and sees to it that nothing is lost
// by what the operator writes: storages that could not be made again after it are
// made before. Then the operator may be issued.
func (r *rank) safe(on stream.ID) bool {
	if !r.again {
		for len(r.wanted) > 0 {
			s := r.storageOf(r.wanted[0])
			r.wanted = r.wanted[:copy(r.wanted, r.wanted[1:])]
			if s != nil && !s.InUse() && r.lineage.Absent(s) && r.lineage.Replayable(s) {
				r.replay(r.lineage.MakerOf(s))
				return false
			}
		}
		if list := r.lineage.Threatened(r.op, nil); len(list) > 0 {
			maker := r.lineage.MakerOf(list[0])
			if maker == nil {
				r.job.fail(fmt.Errorf("rank %d, iteration %d, %s: %s cannot be made again", r.index, r.iteration, r.opName(), r.storageName(list[0])))
				return false
			}
			list[0].Locks++ // from the moment it is there
			r.saved = append(r.saved, list[0])
			r.replay(maker)
			return false
		}
	}
	if r.ran && on != stream.Compute {
		r.after(on, r.dev.End(stream.Compute))
	}
	return true
}

// replay suspends the operator and begins another one again.
func (r *rank) replay(op *remat.Op) {
	r.ran = true
	r.suspended = append(r.suspended, r.frame)
	r.frame = frame{}
	r.enter(op, true)
}

// issueAgain hands over the kernel of an operator that runs again. Nothing gets
// a new version: it makes what it made before.
func (r *rank) issueAgain() {
	in := &r.prog.Instrs[r.op.PC]
	args := r.prog.Args[in.ArgLo:in.ArgHi]
	for i, s := range r.args {
		if b := r.second[i]; b != alloc.NoBlock && !s.OnDevice() && r.lineage.Makes(r.op, i) {
			r.x.Place(s, b) // it had to go after all
			r.second[i] = alloc.NoBlock
		}
	}
	on := lanes[in.Lane]
	if on != stream.Compute {
		r.after(on, r.dev.End(stream.Compute)) // what it reads is made there, and memory given back
	}
	if r.check != nil {
		r.checkAgain(args)
		r.check.Issue(on)
	}
	c := r.work.commands[in.Kernel]
	c.Tag = -1 // no operator's profile record is about it
	c.Again = r.op.ID - r.firstOp + 1
	e := r.Push(on, c)
	if on != stream.Compute {
		for _, s := range r.args {
			s.UsedOn(e)
		}
		r.x.Join(e, stream.Collective)
		e = r.dev.End(stream.Compute)
	}
	for _, s := range r.args {
		s.Since = e
	}
	r.lineage.RanAgain(r.op)
	r.replays.Ops++
	r.replays.Time += c.Timing.Span
	if r.replays.Time > r.allowance {
		r.end(&OutOfMemory{Limit: &RematLimit{r.replays.Time, r.allowance}, Cause: &alloc.OOM{Capacity: r.job.cfg.capacity()}})
		return
	}
	r.paying = true
	r.phase = atPost
}

// checkAgain tells the checks what the operator touches, in the order of issue.
func (r *rank) checkAgain(args []workloads.Arg) {
	var blocks []alloc.Block
	var sizes []sim.Bytes
	for i, s := range r.args {
		if args[i].Mode != workloads.Write {
			blocks, sizes = append(blocks, s.Block), append(sizes, s.Bytes)
		}
	}
	for i, s := range r.args {
		if args[i].Mode != workloads.Read && !writtenBefore(args, r.args, i) {
			b := s.Block
			if r.second[i] != alloc.NoBlock {
				b = r.second[i]
			}
			blocks, sizes = append(blocks, b), append(sizes, s.Bytes)
		}
	}
	r.check.Again(r.op.ID, blocks, sizes)
}

// unlock ends what the operator holds: its locks, and the memory of results that
// it has made beside themselves.
func (r *rank) unlock() {
	for i, s := range r.args {
		if r.held[i] {
			s.Locks--
		}
		if b := r.second[i]; b != alloc.NoBlock {
			r.x.Release(b)
			if r.check != nil {
				r.check.Freed(b)
			}
		}
	}
	for _, s := range r.saved {
		s.Locks--
	}
}

// leave ends an operator that has run again: the one that needed it goes on.
func (r *rank) leave(in *workloads.Instr) {
	if r.needs.Events.Has(policies.AfterOp) {
		r.tell(policies.Event{Kind: policies.AfterOp, Op: r.view(in)})
	}
	last := len(r.suspended) - 1
	r.frame = r.suspended[last]
	r.suspended[last] = frame{}
	r.suspended = r.suspended[:last]
	r.phase = atArgs
}

// drop gives a reference of s back and tells whether it was the last. With a
// lineage the storage stays known; what becomes of its memory is for the policy
// to say, if it wants to.
func (r *rank) drop(s *swap.Storage) (last bool) {
	if r.lineage == nil {
		return r.x.Drop(s)
	}
	if s.Refs--; s.Refs > 0 {
		return false
	}
	switch {
	case s.OnDevice() && r.needs.Events.Has(policies.Released):
		r.tell(policies.Event{Kind: policies.Released, Tensor: s.Handle})
	case s.OnDevice():
		r.discard(s)
	case r.lineage.Discard(s):
		r.x.Forget(s)
	}
	return true
}

// discardable tells whether the memory of s is free to go. Without references
// anything may: shared memory is freed too, and a copy under way is waited for.
func (r *rank) discardable(s *swap.Storage) bool {
	return r.lineage != nil && s.OnDevice() && !s.InUse() && (s.Refs == 0 || !r.x.Arriving(s) && s.Type != profilers.SharedMemory)
}

// discard takes the memory of s without keeping a copy. What cannot be made again
// stays while operators are suspended: those that run for them may read it, for a
// view or for a result without references.
func (r *rank) discard(s *swap.Storage) policies.Outcome {
	if len(r.suspended) > 0 && !r.lineage.Replayable(s) {
		return policies.Refused
	}
	if !r.discardable(s) || !r.lineage.Discard(s) {
		return policies.Refused
	}
	r.x.Discard(s)
	r.replays.Discards++
	r.replays.Bytes += s.Bytes
	if r.reason == pressureReason {
		r.replays.Forced++
	}
	if s.Refs == 0 {
		r.x.Forget(s)
	}
	return policies.Done
}

// bury ends the lineage of an iteration: what nobody has a reference to is gone.
func (r *rank) bury() {
	if r.lineage == nil {
		return
	}
	r.lineage.Each(func(s *swap.Storage) {
		if s.Refs == 0 {
			r.x.Bury(s)
		}
	})
	r.lineage.Reset(r.storages[:r.residents])
	r.frame.op = nil
	r.wanted = r.wanted[:0]
	r.allReplays.add(&r.replays)
	if r.check != nil {
		r.check.ForgetAll()
	}
}

// replaysSoFar are those of the whole run.
func (r *rank) replaysSoFar() Replays {
	all := r.allReplays
	all.add(&r.replays)
	return all
}
