package policies

import (
	"smartswap/internal/recency"
	"smartswap/sim"
)

// LRU registers a reactive policy: nothing moves before an allocation fails; then the
// tensors that were used longest ago leave for host memory, one after the
// other while the host waits, until their blocks add up to the need. They come
// back when an operator asks for them. IBM's large-model support for PyTorch
// works like this (pytorch-large-model-support, docs/Internals.md, without
// speculation).
//
// It needs no profile and no plan, never mispredicts, and always pays.
func LRU() Registration {
	return Registration{
		Name:  "lru",
		About: "reactive: when an allocation fails, evict what was used longest ago and wait for it",
		New:   func(p Params) (Policy, error) { return &lru{}, p.Read().Done() },
	}
}

type lru struct {
	used   recency.List[Handle]
	seeded bool
}

func (*lru) Needs() Needs {
	return Needs{Events: Set(AfterOp, Pressure, IterationEnd)}
}

func (l *lru) Handle(ev *Event, rt Runtime) {
	if !l.seeded {
		// What was there before the first operator was used longest ago.
		l.seeded = true
		for _, h := range rt.OptimizerStates() {
			l.used.Touch(h)
		}
	}
	switch ev.Kind {
	case AfterOp:
		for _, h := range ev.Op.Args {
			l.used.Touch(h)
		}
	case Pressure:
		l.makeRoom(ev.Need, rt)
	case IterationEnd:
		l.forgetDead(rt)
	}
}

// makeRoom evicts oldest first until need bytes of blocks are free. If these
// do not lie together, the allocation fails again and more will leave.
func (l *lru) makeRoom(need sim.Bytes, rt Runtime) {
	for h := range l.used.Oldest() {
		if need <= 0 {
			return
		}
		t, alive := rt.Tensor(h)
		if alive && t.Evictable {
			evict := Action{Kind: Evict, What: Selector{Kind: ByHandle, Handle: h}, Wait: true}
			if rt.Do(evict) != Done {
				continue
			}
			need -= t.Block
		}
		if !alive || t.Evictable {
			l.used.Remove(h) // the next use puts it back
		}
	}
}

func (l *lru) forgetDead(rt Runtime) {
	for h := range l.used.Oldest() {
		if _, alive := rt.Tensor(h); !alive {
			l.used.Remove(h)
		}
	}
}
