package eager

import (
	"errors"
	"slices"

	"smartswap/eager/alloc"
	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
)

// verdict is how an allocation went.
type verdict uint8

const (
	granted verdict = iota
	blocked         // the thread waits; the step is taken up again from here
	failed          // no memory, and nobody can make room
)

// Record and Done make a rank the allocator's Env.
func (r *rank) Record(s alloc.Stream) alloc.Event { return alloc.Event(r.dev.End(stream.ID(s))) }

// Done tells whether the device has passed e.
func (r *rank) Done(e alloc.Event) bool { return r.dev.Done(stream.Event(e)) }

// Drain implements alloc.Drainer: the allocator asks for what is held for
// copies under way, before or after it has tried to grow (Options.Drain).
func (r *rank) Drain() bool { return r.x.Drain() }

// Wait implements alloc.Waiter: stream s is made to wait for e before a block
// is used again.
func (r *rank) Wait(s alloc.Stream, e alloc.Event) {
	r.wait(stream.ID(s), stream.Event(e))
	r.x.Ordered()
}

// allocate gets a block on the compute stream; the allocator gives back what is
// held for copies under way where its order of attempts says so. Failing that,
// with guard, the policy is asked to make room, as long as it frees something.
func (r *rank) allocate(size sim.Bytes, guard bool) (alloc.Block, verdict) {
	if b := r.ready; b != alloc.NoBlock {
		r.ready = alloc.NoBlock
		return b, granted
	}
	for {
		oom := r.denied
		r.denied = nil
		if oom == nil {
			b, err := r.malloc(size)
			sync := r.payAllocator()
			if err == nil {
				r.attempt = 0
				r.checkMemory()
				if sync {
					r.ready = b
					r.awaitAll(DriverSync)
					return alloc.NoBlock, blocked
				}
				return b, granted
			}
			errors.As(err, &oom)
			if sync { // the allocator has acted as if the host had waited
				r.denied = oom
				r.awaitAll(DriverSync)
				return alloc.NoBlock, blocked
			}
		}
		if !guard {
			return alloc.NoBlock, failed
		}
		r.x.Poll() // the thread may have waited since the operator began
		if !r.relieve(oom) {
			if r.x.Undo() {
				continue
			}
			// Host buffers of copies under way may be what is missing.
			if e, busy := r.x.Pending(); busy {
				r.await(HostMemory, e)
				return alloc.NoBlock, blocked
			}
			r.outOfMemory(oom)
			return alloc.NoBlock, failed
		}
		if r.x.Awaiting() {
			return alloc.NoBlock, blocked
		}
	}
}

// malloc asks the allocator for a block on the compute stream.
func (r *rank) malloc(size sim.Bytes) (alloc.Block, error) {
	r.x.Request()
	return r.mem.Malloc(size, 0)
}

// relieve asks the policy for room and tells whether it evicted anything.
func (r *rank) relieve(oom *alloc.OOM) bool {
	if !r.needs.Events.Has(policies.Pressure) {
		return false
	}
	r.attempt++
	before := r.x.Stats.Evictions() + r.replays.Discards
	r.oomSeen = true
	r.reason = pressureReason
	r.tell(policies.Event{Kind: policies.Pressure, Iteration: r.iteration, Need: oom.Rounded, Attempt: r.attempt})
	r.reason = orderedReason
	freed := r.x.Stats.Evictions() + r.replays.Discards - before
	r.evictions += freed
	return freed > 0
}

// payAllocator charges what the allocator did and tells whether the host must
// wait for the device.
func (r *rank) payAllocator() (sync bool) {
	c := r.mem.TakeCosts()
	r.cost += r.costs.Malloc +
		sim.Time(c.Polls)*r.costs.EventQuery +
		sim.Time(c.Records)*r.costs.EventRecord +
		sim.Time(c.Waits)*r.costs.StreamWait
	if !r.job.cfg.HostNone {
		driver := DriverTime(&c, r.costs)
		r.cost += driver
		r.driver += driver
	}
	return c.Sync || c.DeviceSync
}

// DriverTime is the host time of an allocator's calls of the driver at the
// prices of h, without the waits that they force: segments that come and go, and
// handles of physical memory that are mapped and unmapped.
func DriverTime(c *alloc.Costs, h *hw.Host) sim.Time {
	return sim.Time(c.DriverAllocs)*h.DriverAlloc + sim.Time(c.DriverFrees)*h.DriverFree + sim.Time(c.Maps+c.Unmaps)*mapCost
}

// end ends the run as o says.
func (r *rank) end(o *OutOfMemory) {
	o.Rank, o.Iteration, o.Op = r.index, r.iteration, r.opName()
	r.job.oom = o
	r.eng.Stop()
}

// outOfMemory ends the run with a report.
func (r *rank) outOfMemory(oom *alloc.OOM) {
	o := &OutOfMemory{
		Cause:   oom,
		Refused: r.x.Stats.NoHost, HostUsed: sim.Bytes(r.pool.Stats().Used.Current), HostCapacity: r.pool.Capacity(),
	}
	type held struct {
		name  int32
		bytes sim.Bytes
	}
	var top []held
	for _, s := range r.live {
		if s == nil || !s.OnDevice() {
			continue
		}
		if i := slices.IndexFunc(top, func(h held) bool { return h.name == s.Name }); i >= 0 {
			top[i].bytes += s.Bytes
			continue
		}
		top = append(top, held{s.Name, s.Bytes})
	}
	slices.SortStableFunc(top, func(a, b held) int { return int(min(1, max(-1, int64(b.bytes-a.bytes)))) })
	for _, h := range top[:min(5, len(top))] {
		o.Top = append(o.Top, Holder{Name: r.job.cfg.Workload.Names().String(workloadName(h.name)), Bytes: h.bytes})
	}
	r.end(o)
}
