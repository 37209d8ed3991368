package smartswap

import (
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
// are used again. Nothing can be done while the host has no memory: the next
// attempt may find some. O(tracked tensors) per attempt.
func (g *guard) makeRoom(need sim.Bytes, rt policies.Runtime) {
	for {
		victim, found := g.victim(need, rt)
		if !found {
			return
		}
		evict := policies.Action{
			Kind: policies.Evict, Wait: true,
			What: policies.Selector{Kind: policies.ByHandle, Handle: victim},
		}
		outcome := rt.Do(evict)
		if outcome == policies.NoHost {
			return
		}
		g.used.Remove(victim)
		if outcome == policies.Done {
			return
		}
	}
}

func (g *guard) victim(need sim.Bytes, rt policies.Runtime) (victim policies.Handle, found bool) {
	var size sim.Bytes
	for h := range g.used.Oldest() {
		t, alive := rt.Tensor(h)
		if !alive || !t.OnDevice && !t.InUse {
			g.used.Remove(h)
			continue
		}
		if !t.Evictable {
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
	return victim, found
}

// prune forgets tensors that are gone.
func (g *guard) prune(rt policies.Runtime) {
	for h := range g.used.Oldest() {
		if _, alive := rt.Tensor(h); !alive {
			g.used.Remove(h)
		}
	}
}
