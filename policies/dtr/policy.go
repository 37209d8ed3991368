package dtr

import (
	"slices"

	"smartswap/policies"
	"smartswap/sim"
)

// scoreCost is the host time of looking at one candidate (assumed: a division and
// a few loads).
const scoreCost = 5 * sim.Nanosecond

// Policy is one rank's.
type Policy struct {
	options Options
	graph   graph
	pool    pool
	// clock is the device time of all operators so far, those that ran again
	// included. It begins above 0, the access time of what was never used.
	clock sim.Time
	ids   map[policies.Handle]int32
	// made counts the storages that operators have made so far, and their bytes.
	made  int64
	bytes sim.Bytes
	luck  sim.Stream
	draws int64 // from luck, in the iteration
	// considered is what a search looks at, unless it is the whole pool.
	considered []int32
	// results and inputs of the operator at hand.
	results, inputs []int32
}

// New makes a policy; o must hold allowed values.
func New(o Options) *Policy {
	return &Policy{luck: sim.NewStream(uint64(o.Seed), "dtr"), options: o, clock: sim.Nanosecond, ids: make(map[policies.Handle]int32), graph: graph{classes: o.Heuristic == "eqclass", sums: o.Heuristic == "dtr" || o.Heuristic == "msps"}}
}

// Needs a lineage, and operators before and after they run.
func (p *Policy) Needs() policies.Needs {
	return policies.Needs{
		Events:  policies.Set(policies.BeforeOp, policies.AfterOp, policies.Released, policies.Pressure, policies.IterationEnd),
		Lineage: policies.Lineage{Keep: true, Overwrite: p.options.Duplicates == "over", Communication: p.options.Communication, Limit: p.options.Limit},
	}
}

// Handle implements policies.Policy.
func (p *Policy) Handle(ev *policies.Event, rt policies.Runtime) {
	switch ev.Kind {
	case policies.BeforeOp:
		p.before(&ev.Op, rt)
	case policies.AfterOp:
		if ev.Op.Roles != nil { // construction has none
			p.after(&ev.Op, rt)
		}
	case policies.Released:
		p.released(ev.Tensor, rt)
	case policies.Pressure:
		p.makeRoom(ev, rt)
	case policies.IterationEnd:
		// No storage that an operator made outlives its iteration.
		clear(p.ids)
		p.graph.reset()
		p.pool.reset()
		p.draws = 0
	}
}

// before notes that an operator uses its inputs now. The host's own look at a
// tensor, which takes no device time and makes nothing, is no use.
func (p *Policy) before(op *policies.OpView, rt policies.Runtime) {
	if op.Cost == 0 && !slices.Contains(op.Roles, policies.Output) && !slices.Contains(op.Roles, policies.View) {
		return
	}
	for i, h := range op.Args {
		if op.Roles[i] == policies.Input || op.Roles[i] == policies.Changed {
			if id, ok := p.ids[h]; ok {
				p.graph.storages[id].access = p.clock
			}
		}
	}
	if p.options.Foresight && !op.Again {
		p.learn(op, rt)
	}
}

// learn adds an operator to the graph: its results cost what it takes, and are
// children of its inputs. Storages that no operator has made, such as
// parameters, are nobody's neighbours: they never leave.
func (p *Policy) learn(op *policies.OpView, rt policies.Runtime) {
	p.inputs, p.results = p.inputs[:0], p.results[:0]
	for i, h := range op.Args {
		id, known := p.ids[h]
		switch op.Roles[i] {
		case policies.Input, policies.Changed:
			if known {
				p.inputs = append(p.inputs, id)
			}
			continue
		case policies.Output:
			if !known {
				t, ok := rt.Tensor(h)
				if !ok {
					continue
				}
				id = p.graph.add(h, t.Bytes)
				p.made++
				p.bytes += t.Bytes
				p.ids[h] = id
			}
		case policies.View:
			if !known {
				continue
			}
		}
		p.results = append(p.results, id)
	}
	p.graph.operator(op.Cost, p.inputs, p.results)
}

// after notes what an operator has made, and puts it and what the operator has
// used at the end of the pool.
func (p *Policy) after(op *policies.OpView, rt policies.Runtime) {
	if !p.options.Foresight && !op.Again {
		p.learn(op, rt)
	}
	p.clock += op.Cost
	if !op.Again {
		p.pool.unlock()
	}
	for i, h := range op.Args {
		role := op.Roles[i]
		if role != policies.Output && role != policies.View {
			continue
		}
		id, known := p.ids[h]
		if !known {
			continue
		}
		if !op.Again {
			p.graph.storages[id].access = p.clock
		}
		switch {
		case role != policies.Output:
		case p.graph.storages[id].resident:
			if !op.Again || p.pool.held(id) { // another content; or written over where it was
				p.pool.admit(id)
			}
		case p.there(h, op.Again, rt):
			p.graph.back(id)
			p.pool.admit(id)
		}
	}
	for i, h := range op.Args {
		if op.Roles[i] == policies.Input || op.Roles[i] == policies.Changed {
			if id, known := p.ids[h]; known && p.graph.storages[id].resident {
				p.pool.put(id)
			}
		}
	}
}

// there tells whether an operator has left its result. One that runs again makes
// nothing of what has been written since.
func (p *Policy) there(h policies.Handle, again bool, rt policies.Runtime) bool {
	if !again {
		return true
	}
	t, ok := rt.Tensor(h)
	return ok && t.OnDevice
}

// discard gives up the memory of a tensor and tells whether it could.
func (p *Policy) discard(h policies.Handle, rt policies.Runtime) bool {
	t, alive := rt.Tensor(h)
	return alive && t.Discardable && rt.Do(policies.Action{Kind: policies.Discard, What: policies.Selector{Kind: policies.ByHandle, Handle: h}}) == policies.Done
}

// released frees the memory of a tensor without references, or, if it has to stay
// for a while or is to be treated as if nothing had happened, lets it be chosen.
func (p *Policy) released(h policies.Handle, rt policies.Runtime) {
	id, known := p.ids[h]
	switch {
	case !(known && p.options.Release == "plain") && p.discard(h, rt):
		if known {
			p.evicted(id)
		}
	case known:
		p.pool.free(id)
	}
}

func (p *Policy) evicted(id int32) {
	p.pool.remove(id)
	p.graph.gone(id)
}

// makeRoom discards until what is missing is free. Where blocks do not lie
// together that may not be enough: then the allocation fails again, and the whole
// need is discarded. All attempts of an allocation are one request to the pool:
// see there why it ends, and what becomes of a candidate that refuses.
func (p *Policy) makeRoom(ev *policies.Event, rt policies.Runtime) {
	missing := ev.Need
	if free := rt.Capacity() - rt.Allocated(); ev.Attempt == 1 && free > 0 && free < missing {
		missing -= free
	}
	if ev.Attempt == 1 {
		p.pool.request()
	}
	for missing > 0 {
		id, looked := p.worst(ev.Iteration)
		rt.Charge(sim.Time(looked) * scoreCost)
		if id < 0 {
			return
		}
		h := p.graph.storages[id].handle
		t, _ := rt.Tensor(h)
		if !p.discard(h, rt) {
			switch {
			case t.InUse:
				p.pool.hold(id)
			case t.Discardable:
				p.pool.pass(id)
			default:
				p.pool.bar(id)
			}
			continue
		}
		p.evicted(id)
		missing -= t.Block
	}
}
