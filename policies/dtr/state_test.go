package dtr

import (
	"slices"
	"testing"

	"smartswap/policies"
	"smartswap/sim"
)

// fakeMemory is a runtime in which tensors of 100 bytes refuse to go.
type fakeMemory struct {
	policies.Runtime
	tensors map[policies.Handle]policies.TensorInfo
	stays   map[policies.Handle]bool // Discard refuses though it is Discardable
	asked   []policies.Handle
}

func (f *fakeMemory) Tensor(h policies.Handle) (policies.TensorInfo, bool) {
	f.asked = append(f.asked, h)
	t, ok := f.tensors[h]
	return t, ok
}

func (f *fakeMemory) Do(a policies.Action) policies.Outcome {
	if h := a.What.Handle; f.stays[h] {
		return policies.Refused
	}
	delete(f.tensors, a.What.Handle)
	return policies.Done
}

func (*fakeMemory) Charge(sim.Time)      {}
func (*fakeMemory) Capacity() sim.Bytes  { return 0 }
func (*fakeMemory) Allocated() sim.Bytes { return 0 }

// TestCandidates follows storages 1, 2 and 3, which operators made in this order,
// through requests: who is asked, and who goes.
func TestCandidates(t *testing.T) {
	free := policies.TensorInfo{OnDevice: true, Discardable: true, Bytes: 100, Block: 100}
	held := policies.TensorInfo{OnDevice: true, InUse: true, Bytes: 100, Block: 100}
	kept := policies.TensorInfo{OnDevice: true, Bytes: 100, Block: 100}
	type step struct {
		what    string
		attempt int // of a request for 100 bytes; 0 = none
		change  func(p *Policy, f *fakeMemory)
		asked   []policies.Handle // in this order
		gone    policies.Handle   // 0 = the policy gives up
	}
	reads := func(h policies.Handle, role policies.Role) func(*Policy, *fakeMemory) {
		return func(p *Policy, f *fakeMemory) {
			op := policies.OpView{Args: []policies.Handle{h}, Roles: []policies.Role{role}}
			p.Handle(&policies.Event{Kind: policies.AfterOp, Op: op}, f)
		}
	}
	// issued tells of an operator of the program, or one that runs again, that uses
	// none of the three.
	issued := func(p *Policy, f *fakeMemory, again bool) {
		p.Handle(&policies.Event{Kind: policies.AfterOp, Op: policies.OpView{Roles: []policies.Role{}, Again: again}}, f)
	}
	for name, steps := range map[string][]step{
		"held by an operator that waits": {
			{"1 is held", 1, func(_ *Policy, f *fakeMemory) { f.tensors[1] = held }, []policies.Handle{1, 2}, 2},
			{"the same request asks it no more", 2, nil, []policies.Handle{3}, 3},
			{"and there is nothing else", 3, nil, nil, 0},
			{"nor do others of the same operator", 1, nil, nil, 0},
			{"nor what runs again for it", 1, func(p *Policy, f *fakeMemory) { issued(p, f, true) }, nil, 0},
			{"another operator holds it", 1, func(p *Policy, f *fakeMemory) { issued(p, f, false) }, []policies.Handle{1}, 0},
			{"it is let go of, and that operator has not used it", 1, func(p *Policy, f *fakeMemory) {
				f.tensors[1] = free
				issued(p, f, false)
			}, []policies.Handle{1}, 1},
		},
		"held by what has used it": {
			{"1 is held", 1, func(_ *Policy, f *fakeMemory) { f.tensors[1] = held }, []policies.Handle{1, 2}, 2},
			{"it has been used by what runs again", 1, func(p *Policy, f *fakeMemory) {
				f.tensors[1] = free
				op := policies.OpView{Args: []policies.Handle{1}, Roles: []policies.Role{policies.Input}, Again: true}
				p.Handle(&policies.Event{Kind: policies.AfterOp, Op: op}, f)
			}, []policies.Handle{3}, 3}, // which was used before
			{"then", 1, nil, []policies.Handle{1}, 1},
		},
		"without references, but to be read": {
			{"1 and 2", 1, func(_ *Policy, f *fakeMemory) { f.stays[1], f.stays[2] = true, true }, []policies.Handle{1, 2, 3}, 3},
			{"again", 1, nil, []policies.Handle{1, 2}, 0},
			{"nobody reads them any more", 1, func(_ *Policy, f *fakeMemory) { clear(f.stays) }, []policies.Handle{1}, 1},
		},
		"nothing can make it again": {
			{"1", 1, func(_ *Policy, f *fakeMemory) { f.tensors[1] = kept }, []policies.Handle{1, 2}, 2},
			{"it is not asked", 1, nil, []policies.Handle{3}, 3},
			{"nor when it has been read", 1, reads(1, policies.Input), nil, 0},
			{"it has been written anew", 1, func(p *Policy, f *fakeMemory) {
				f.tensors[1] = free
				reads(1, policies.Output)(p, f)
			}, []policies.Handle{1}, 1},
		},
		"nothing can make it again, and it is let go of": {
			{"1", 1, func(_ *Policy, f *fakeMemory) { f.tensors[1] = kept }, []policies.Handle{1, 2}, 2},
			{"not at once", 1, func(p *Policy, f *fakeMemory) {
				f.tensors[1], f.stays[1] = free, true
				p.Handle(&policies.Event{Kind: policies.Released, Tensor: 1}, f)
			}, []policies.Handle{3}, 3},
			{"later", 1, func(_ *Policy, f *fakeMemory) { clear(f.stays) }, []policies.Handle{1}, 1},
		},
	} {
		for _, release := range []string{"eager", "plain"} {
			p := New(Options{Heuristic: "lru", Release: release, Duplicates: "apart"})
			f := &fakeMemory{tensors: map[policies.Handle]policies.TensorInfo{}, stays: map[policies.Handle]bool{}}
			for h := policies.Handle(1); h <= 3; h++ {
				f.tensors[h] = free
				reads(h, policies.Output)(p, f)
			}
			for _, s := range steps {
				if s.change != nil {
					s.change(p, f)
				}
				before := len(f.tensors)
				f.asked = nil
				p.Handle(&policies.Event{Kind: policies.Pressure, Need: 100, Attempt: s.attempt}, f)
				asked := slices.Compact(f.asked)
				_, there := f.tensors[s.gone]
				if !slices.Equal(asked, s.asked) || there || (len(f.tensors) < before) != (s.gone > 0) {
					t.Errorf("%s, %s, %s: %d asked, want %d; %v there, %d should go", name, release, s.what, asked, s.asked, f.tensors, s.gone)
				}
			}
		}
	}
}
