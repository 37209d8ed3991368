package direct

import (
	"fmt"
	"slices"

	"smartswap/eager/stream"
)

// Check says which rule is broken: no two tensors share an address, free and
// taken addresses make up the space, memory in use is the sum of the tensors
// there and within the capacity, each tensor is in at most one queue and its
// place says which, tiers hold what they are said to hold, and running kernels
// have their operands. O(n log n) in tensors.
func (m *Memory) Check() error {
	type owned struct {
		span
		id int
	}
	var all []owned
	for _, f := range m.free {
		all = append(all, owned{f, -1})
	}
	queued := map[int32]string{}
	for tier := range m.queues {
		for d := range m.queues[tier] {
			for _, id := range m.queues[tier][d].list {
				name := fmt.Sprintf("queue %d/%d", tier, d)
				if other, twice := queued[id]; twice {
					return fmt.Errorf("direct: tensor %d is in %s and in %s", id, other, name)
				}
				queued[id] = name
				if t := &m.tensors[id]; int(t.tier) != tier || t.place != [...]place{leaving, coming}[d] {
					return fmt.Errorf("direct: tensor %d in %s has place %d and tier %d", id, name, t.place, t.tier)
				}
			}
		}
	}
	for s := range m.claims {
		if m.claims[s].phase != computing {
			continue
		}
		for _, o := range m.claims[s].operands {
			if t := &m.tensors[o.Storage]; t.dead || t.place != here && t.place != scratch && !(t.place == leaving && t.wanted) {
				return fmt.Errorf("direct: operator %d runs on %s while tensor %d has place %d", m.claims[s].Index, stream.ID(s).Name(), o.Storage, t.place)
			}
		}
	}
	held := m.held
	used := m.used
	if m.aside.hi > 0 {
		used -= m.aside.hi - m.aside.lo
		all = append(all, owned{m.aside, -2})
	}
	for i := range m.tensors {
		t := &m.tensors[i]
		_, waits := queued[int32(i)]
		if moving := t.place == leaving || t.place == coming; moving != waits {
			return fmt.Errorf("direct: tensor %d has place %d, in a queue: %v", i, t.place, waits)
		}
		if t.place == leaving || t.place == coming || t.place == away {
			held[t.tier] -= t.bytes
		}
		if t.place == nowhere || t.place == away || t.place == scratch {
			continue
		}
		used -= t.bytes
		if t.at.hi-t.at.lo != t.bytes {
			return fmt.Errorf("direct: tensor %d of %d bytes has addresses %d to %d", i, t.bytes, t.at.lo, t.at.hi)
		}
		if t.bytes > 0 {
			all = append(all, owned{t.at, i})
		}
	}
	if used != 0 || m.used > m.o.Capacity {
		return fmt.Errorf("direct: %d bytes in use of %d, %d more than the tensors there have", m.used, m.o.Capacity, used)
	}
	for tier, b := range held {
		if b != 0 {
			return fmt.Errorf("direct: tier %d is said to hold %d bytes more than it does", tier, b)
		}
	}
	slices.SortFunc(all, func(a, b owned) int { return int(min(1, max(-1, a.lo-b.lo))) })
	for i := range all[1:] {
		if all[i].hi != all[i+1].lo {
			return fmt.Errorf("direct: addresses %d to %d of tensor %d (-1: free, -2: scratch) are followed by %d of tensor %d",
				all[i].lo, all[i].hi, all[i].id, all[i+1].lo, all[i+1].id)
		}
	}
	return nil
}
