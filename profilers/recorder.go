package profilers

import "smartswap/sim"

// Recorder turns what the runtime tells it into Observations. It keeps the
// fields that the iteration's profiler records, drops the others, and prices
// the work. One Recorder serves one rank for a whole run:
//
//	r := NewRecorder(names, layers)
//	r.Begin(iteration, profiler)
//	r.Op(rec, args)        // after each operator; charge r.OpCost(len(args))
//	r.Swap(rec)            // at each transfer, after the operator it follows
//	t, ok := r.Border()    // at each stage border and at the end; charge r.BorderCost()
//	r.Reached(t, at)       // whenever the device has come there
//	obs := r.End(duration, oom) // charge r.EndCost() before
//
// The zero Profiler, nil, records nothing.
type Recorder struct {
	names  *Names
	layers int
	fields Fields
	costs  Costs
	obs    Observation
	last   int64 // id of the last operator, of this or an earlier iteration

	now, before borders // of the present iteration and the one before
	tickets     int32   // borders so far

	// Sizes of the last observation handed out: the next one is likely to
	// need as much.
	ops, tensors, swaps, sequence int
}

// borders are the stage borders of an iteration.
type borders struct {
	first   int32 // ticket
	list    []Border
	missing int // of them the device has not reached
}

// NewRecorder makes a recorder that takes operator names from names; layers is
// the model's layer count as the user gave it, 0 if not given.
func NewRecorder(names *Names, layers int) *Recorder {
	return &Recorder{names: names, layers: layers}
}

// Begin starts an iteration under profiler p; nil records nothing. Whatever
// was recorded since the last End is discarded and its memory used again.
func (r *Recorder) Begin(iteration int, p Profiler) {
	r.fields, r.costs = 0, Costs{}
	if p != nil {
		r.fields, r.costs = p.Fields(), p.Costs()
	}
	o := &r.obs
	*o = Observation{
		Iteration: iteration, Fields: r.fields, Layers: r.layers,
		Ops: o.Ops[:0], Tensors: o.Tensors[:0], Swaps: o.Swaps[:0], Sequence: o.Sequence[:0], Passes: o.Passes[:0],
	}
	r.before, r.now = r.now, borders{first: r.tickets}
}

// Fields is what the present iteration records: the runtime need not prepare
// anything else.
func (r *Recorder) Fields() Fields { return r.fields }

// OpCost is the host time of recording an operator with that many tensor
// arguments in the present iteration.
func (r *Recorder) OpCost(tensors int) sim.Time { return r.costs.Op(r.fields, tensors) }

// EndCost is the host time of ending the present iteration.
func (r *Recorder) EndCost() sim.Time { return r.costs.End(len(r.obs.Tensors)) }

// Op records an operator: op without its argument range, and its arguments,
// inputs first, of which Tensor counts (Orig is set from it). Both are copied.
// It allocates only while the iteration is longer than any before.
func (r *Recorder) Op(op OpRec, args []TensorRec) {
	o := &r.obs
	r.last = op.ID
	if r.fields.Has(OpNames) {
		o.pass(op.Stage, op.Name)
		o.Sequence = grow(o.Sequence, r.sequence)
		o.Sequence = append(o.Sequence, op.Name)
	}
	if !r.fields.Has(OpRecords) {
		return
	}
	op.Lo = int32(len(o.Tensors))
	if r.fields.Has(TensorArgs) {
		o.Tensors = grow(o.Tensors, r.tensors)
		for _, a := range args {
			a.Orig = a.Tensor
			o.Tensors = append(o.Tensors, a)
		}
	}
	op.Hi = int32(len(o.Tensors))
	if !r.fields.Has(MemoryStats) {
		op.Allocated, op.Reserved, op.Active = 0, 0, 0
	}
	op.Begin, op.Span = 0, 0 // known later, see Timed
	o.Ops = grow(o.Ops, r.ops)
	o.Ops = append(o.Ops, op)
}

// pass hashes the name of the next operator into its pass.
func (o *Observation) pass(s Stage, name int32) {
	s.Layer = 0
	if n := len(o.Passes); n == 0 || o.Passes[n-1].Stage != s {
		o.Passes = append(o.Passes, Pass{Stage: s, Lo: int32(len(o.Sequence)), Hash: hashStart})
	}
	p := &o.Passes[len(o.Passes)-1]
	p.Hash = roll(p.Hash, uint64(name))
}

// Border notes a stage border before the operator that comes next; its event
// has the ticket under which Reached is told. False: this iteration records no
// borders, or has one here already.
func (r *Recorder) Border() (ticket int32, ok bool) {
	op := int32(len(r.obs.Ops))
	if n := len(r.now.list); !r.fields.Has(BorderTimes) || n > 0 && r.now.list[n-1].Op == op {
		return 0, false
	}
	r.now.list = append(r.now.list, Border{Op: op, At: -1})
	r.now.missing++
	r.tickets++
	return r.tickets - 1, true
}

// BorderCost is the host time of recording the event of a border.
func (r *Recorder) BorderCost() sim.Time { return r.costs.PerBorder }

// Reached tells when the device passed a border, of whatever iteration.
func (r *Recorder) Reached(ticket int32, at sim.Time) {
	for _, b := range [...]*borders{&r.now, &r.before} {
		if i := ticket - b.first; i >= 0 && int(i) < len(b.list) && b.list[i].At < 0 {
			b.list[i].At = at
			b.missing--
		}
	}
}

// complete is the latest complete list of borders, counted from the first.
func (r *Recorder) complete() []Border {
	for _, b := range [...]*borders{&r.now, &r.before} {
		if len(b.list) == 0 || b.missing > 0 {
			continue
		}
		list := make([]Border, len(b.list))
		for i, x := range b.list {
			list[i] = Border{Op: x.Op, At: x.At - b.list[0].At}
		}
		return list
	}
	return nil
}

// Timed adds the device times of the operator with the given id. Times of
// operators that are not in the present iteration are ignored: the device may
// run behind the end of an iteration.
func (r *Recorder) Timed(id int64, begin, span sim.Time) {
	ops := r.obs.Ops
	if !r.fields.Has(OpTimes) || len(ops) == 0 {
		return
	}
	// Ids count up by one unless an operator went unrecorded.
	if i := id - ops[0].ID; i >= 0 && i < int64(len(ops)) && ops[i].ID == id {
		ops[i].Begin, ops[i].Span = begin, span
	}
}

// Swap records a transfer after the last operator; OpID is set from that.
func (r *Recorder) Swap(s SwapRec) {
	if r.fields.Has(SwapRecords) {
		s.OpID = r.last
		r.obs.Swaps = append(grow(r.obs.Swaps, r.swaps), s)
	}
}

// End ends the iteration and hands its observation over; nil if nothing is
// recorded. In tensor records, Tensor becomes the newest id of the storage, so
// that a tensor which was swapped out and back counts once.
func (r *Recorder) End(duration sim.Time, oom bool) *Observation {
	if r.fields == 0 {
		return nil
	}
	o := r.obs
	if r.fields.Has(IterationTime) {
		o.Duration = duration
	}
	o.OOM = oom
	o.Names = r.names.List()
	o.Borders = r.complete()
	o.renew()
	r.ops, r.tensors, r.swaps, r.sequence = len(o.Ops), len(o.Tensors), len(o.Swaps), len(o.Sequence)
	r.obs = Observation{}
	return &o
}

// renew rewrites the ids of tensors that swaps moved to their newest ids. The
// swaps are walked backwards, so the newest id of a destination is known when
// its source comes up and chains need no chasing.
func (o *Observation) renew() {
	if len(o.Swaps) == 0 {
		return
	}
	newest := make(map[Tensor]Tensor, len(o.Swaps))
	for i := len(o.Swaps) - 1; i >= 0; i-- {
		s := &o.Swaps[i]
		if _, moved := newest[s.Src]; moved {
			continue // ids are never reused; of two claims the later one counts
		}
		to, ok := newest[s.Dst]
		if !ok {
			to = s.Dst
		}
		newest[s.Src] = to
	}
	for i := range o.Tensors {
		if to, ok := newest[o.Tensors[i].Tensor]; ok {
			o.Tensors[i].Tensor = to
		}
	}
}

// grow gives an empty slice without memory the capacity that the last
// observation needed.
func grow[T any](s []T, hint int) []T {
	if cap(s) == 0 && hint > 0 {
		return make([]T, 0, hint+hint/8)
	}
	return s
}
