package smartswap

import (
	"math"

	"smartswap/internal/recency"
	"smartswap/policies"
	"smartswap/sim"
)

// guard makes room when an allocation fails, whatever the plan. It evicts one
// tensor per failed attempt, chosen by size, while the host waits: the
// smallest block that covers the need, or else the largest; of equals, the one
// used longest ago.
type guard struct {
	used recency.List[policies.Handle]
}

// touch notes the arguments of an operator.
func (g *guard) touch(args []policies.Handle) {
	for _, h := range args {
		g.used.Touch(h)
	}
}

// makeRoom evicts a victim for need bytes. If the runtime refuses one, the next
// is tried; tensors that cannot be victims any more leave the list until they
// are used again. If the host has no memory for one, only smaller ones are
// tried, and none is forgotten: host memory may be back at the next attempt.
// O(tracked tensors) per try.
func (g *guard) makeRoom(need sim.Bytes, rt policies.Runtime) {
	limit := sim.Bytes(math.MaxInt64)
	for {
		victim, size, found := g.victim(need, limit, rt)
		if !found {
			return
		}
		evict := policies.Action{
			Kind: policies.Evict, Wait: true,
			What: policies.Selector{Kind: policies.ByHandle, Handle: victim},
		}
		switch rt.Do(evict) {
		case policies.Done:
			g.used.Remove(victim)
			return
		case policies.NoHost:
			limit = size
		default:
			g.used.Remove(victim)
		}
	}
}

// victim is the best tensor to evict of those whose block is below limit.
func (g *guard) victim(need, limit sim.Bytes, rt policies.Runtime) (victim policies.Handle, size sim.Bytes, found bool) {
	for h := range g.used.Oldest() {
		t, alive := rt.Tensor(h)
		if !alive || !t.OnDevice && !t.InUse {
			g.used.Remove(h)
			continue
		}
		if !t.Evictable || t.Block >= limit {
			continue
		}
		covers, best := t.Block >= need, size >= need
		better := false
		switch {
		case !found:
			better = true
		case covers != best:
			better = covers
		case covers:
			better = t.Block < size
		default:
			better = t.Block > size
		}
		if better {
			victim, size, found = h, t.Block, true
		}
	}
	return victim, size, found
}

// prune forgets tensors that are gone.
func (g *guard) prune(rt policies.Runtime) {
	for h := range g.used.Oldest() {
		if _, alive := rt.Tensor(h); !alive {
			g.used.Remove(h)
		}
	}
}
