package eager

import (
	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/sim"
)

// checkMemory tests the allocator's books against the node's capacity, unless it
// hands out addresses alone (invariant 2), and the host pool's against its own (8).
func (r *rank) checkMemory() {
	if r.check == nil {
		return
	}
	s := r.mem.Stats()
	if cap := int64(r.job.cfg.capacity()); r.paged == nil && cap > 0 && s.Reserved.Current > cap {
		r.job.violate("rank %d: reserved %d exceeds the capacity %d (2)", r.index, s.Reserved.Current, cap)
	}
	if s.Allocated.Current > s.Reserved.Current || s.Allocated.Current > s.Active.Current || s.Active.Current > s.Reserved.Current {
		r.job.violate("rank %d: allocated %d, active %d, reserved %d are out of order (2)", r.index, s.Allocated.Current, s.Active.Current, s.Reserved.Current)
	}
	if u, c := r.pool.Stats().Used.Current, int64(r.pool.Capacity()); u > c {
		r.job.violate("rank %d: %d bytes of pinned memory in use, the pool has %d (8)", r.index, u, c)
	}
}

// watchEngines tests that a DMA engine never carries two copies at once (7).
func (j *job) watchEngines() {
	type key struct {
		slot int
		dir  hw.Direction
	}
	last := make(map[key]sim.Time)
	j.machine.OnCopy(func(slot int, c hw.Copy, start, end sim.Time) {
		k := key{slot, c.Direction}
		if start < last[k] {
			j.violate("device slot %d: a %v copy starts at %v while another runs until %v (7)", slot, c.Direction, start, last[k])
		}
		last[k] = end
	})
}

// closeBooks tests, at the end of a complete run, that every lane accounts for
// all its time (9), that nothing is left over (10), and that all commands ran.
func (j *job) closeBooks(rep *Report) {
	for i, r := range j.ranks {
		r.check.Idle()
		for s := range stream.Count {
			if t := r.dev.Lane(s).Total(); t != j.eng.Now() {
				j.violate("rank %d: %s accounts for %v of %v (9)", i, s.Name(), t, j.eng.Now())
			}
		}
		t := r.host.Busy
		for _, w := range r.host.Wait {
			t += w
		}
		if t != r.host.Done {
			j.violate("rank %d: the host accounts for %v of %v (9)", i, t, r.host.Done)
		}
		if rep.Ranks[i].Live != 0 {
			j.violate("rank %d: %d storages beyond the residents are alive at the end (10)", i, rep.Ranks[i].Live)
		}
	}
	rep.Violations = j.violations
}
