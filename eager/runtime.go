package eager

import (
	"errors"

	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// Host costs of policies. All are assumed: a hook through a Python or C++
// callback, a comparison of two small structs.
const (
	eventCost    = 300 * sim.Nanosecond // delivering one event to a policy
	eventArgCost = 50 * sim.Nanosecond  // per operator argument in it
	matchCost    = 2 * sim.Nanosecond   // comparing a tensor with a pending swap
	mapCost      = 30 * sim.Microsecond // mapping or unmapping one physical handle of device memory
)

// Reasons for which a policy's own actions move data.
const (
	orderedReason  = swap.Ordered
	pressureReason = swap.Pressure
)

// tell delivers an event if the policy wants it, and charges for it.
func (r *rank) tell(ev policies.Event) {
	if !r.needs.Events.Has(ev.Kind) {
		return
	}
	ev.Iteration = r.iteration
	r.cost += eventPrice(r.costs.Dispatch, len(ev.Op.Args))
	r.event = ev // where it stays: policies are behind an interface
	r.policy.Handle(&r.event, r)
}

// eventPrice is free where the host costs nothing at all.
func eventPrice(dispatch sim.Time, args int) sim.Time {
	if dispatch == 0 {
		return 0
	}
	return eventCost + sim.Time(args)*eventArgCost
}

// Charge adds host time; a rank is the executor's Host and the policy's
// Runtime.
func (r *rank) Charge(t sim.Time) {
	if t > 0 && !r.job.cfg.HostNone {
		r.cost += t
	}
}

// Now is the host clock.
func (r *rank) Now() sim.Time { return r.eng.Now() }

// Do carries out a policy's action on a live handle, or on the storage that a
// static id names in this iteration. Memory that is made resident at the kernel
// moves by plan only.
func (r *rank) Do(a policies.Action) policies.Outcome {
	s := r.selected(a.What)
	if s == nil || r.paged != nil || a.Part != (policies.Range{}) || a.To != policies.HostTier {
		return policies.Refused
	}
	switch a.Kind {
	case policies.Evict:
		if s.InUse() {
			return policies.Refused
		}
		return r.x.Out(s, -1, r.reason, a.Wait)
	case policies.Discard:
		return r.discard(s)
	case policies.Rematerialize:
		if r.lineage == nil || s.InUse() || !r.lineage.Absent(s) || !r.lineage.Replayable(s) {
			return policies.Refused
		}
		r.wanted = append(r.wanted, s.Handle)
		return policies.Done
	case policies.Prefetch:
		if s.OnDevice() || s.Current() == nil {
			return policies.Refused
		}
		if !r.fits.Fits(s.Bytes, 0) {
			return policies.NoRoom
		}
		r.about(s)
		b, err := r.malloc(s.Bytes)
		r.payAllocator()
		if err != nil {
			return policies.NoRoom
		}
		r.checkMemory()
		r.x.In(s, b, -1, r.reason)
		return policies.Done
	}
	return policies.Refused
}

// selected is the live storage that a selector names; nil if there is none.
func (r *rank) selected(w policies.Selector) *swap.Storage {
	switch {
	case w.Kind == policies.ByHandle:
		return r.storageOf(w.Handle)
	case w.Kind == policies.ByStatic && r.needs.Grade >= policies.Static && w.Static >= 0 && int(w.Static) < len(r.storages):
		return r.storages[w.Static]
	}
	return nil
}

// Arm replaces the plan.
func (r *rank) Arm(p *policies.Plan) error {
	if r.paged != nil {
		return r.paged.Arm(p)
	}
	if r.lineage != nil && p != nil {
		return errors.New("a policy that keeps a lineage cannot arm a plan")
	}
	r.later = r.later[:0]
	err := r.x.Arm(p)
	r.clock.index = r.x.StageIndex(r.clock.stage)
	return err
}

// Observe sets the profiling level of the iterations that follow.
func (r *rank) Observe(l policies.Level) { r.level = l }

// Tensor looks a live storage up.
func (r *rank) Tensor(h policies.Handle) (policies.TensorInfo, bool) {
	s := r.storageOf(h)
	if s == nil {
		return policies.TensorInfo{}, false
	}
	t := policies.TensorInfo{Handle: h, Bytes: s.Bytes, Type: s.Type, OnDevice: s.OnDevice(), OnHost: s.Current() != nil, InUse: s.InUse()}
	if s.OnDevice() {
		_, t.Block = r.mem.Range(s.Block)
	}
	t.Evictable = s.OnDevice() && !s.InUse() && !r.x.Arriving(s) && s.Type != profilers.SharedMemory && s.Refs > 0 && s.Bytes > 0
	t.Discardable = r.discardable(s) && (s.Refs == 0 || r.lineage.Replayable(s))
	return t, true
}

// OptimizerStates lists the optimizer's storages in allocation order.
func (r *rank) OptimizerStates() []policies.Handle {
	var hs []policies.Handle
	for _, s := range r.storages[:r.residents] {
		if s.Type == profilers.OptimState {
			hs = append(hs, s.Handle)
		}
	}
	return hs
}

// Moved is what finished copies of a direction have measured.
func (r *rank) Moved(out bool) (sim.Bytes, sim.Time) {
	dir := hw.H2D
	if out {
		dir = hw.D2H
	}
	m := r.dev.Moved(dir)
	return m.Bytes, m.Time
}

// Capacity is the allocator's limit, 0 if there is none; the device memory where
// that is not the allocator's.
func (r *rank) Capacity() sim.Bytes {
	if r.paged != nil {
		return r.job.cfg.unified().Device
	}
	return r.job.cfg.capacity()
}

// Reserved is what the allocator holds now.
func (r *rank) Reserved() sim.Bytes { return sim.Bytes(r.mem.Stats().Reserved.Current) }

// Allocated is what storages hold now.
func (r *rank) Allocated() sim.Bytes { return sim.Bytes(r.mem.Stats().Allocated.Current) }
