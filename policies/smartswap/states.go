package smartswap

import (
	"slices"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// stateOrder knows the live optimizer states in the order in which the optimizer
// uses them: what moves through the device in chunks must move in that order.
// Until an optimizer phase has been seen, it is the order of allocation.
type stateOrder struct {
	place map[policies.Handle]int32 // in order
	order []policies.Handle
	fresh int // of order: used in the present iteration
}

// begin starts with the states in the order of allocation.
func (s *stateOrder) begin(states []policies.Handle) {
	s.order = slices.Clone(states)
	s.place = make(map[policies.Handle]int32, len(states))
	for i, h := range states {
		s.place[h] = int32(i)
	}
}

// used notes the arguments of an operator of the optimizer phase: a state that
// has not been used before in this iteration moves behind those that have.
func (s *stateOrder) used(args []policies.Handle) {
	for _, h := range args {
		i, ok := s.place[h]
		if !ok || int(i) < s.fresh {
			continue
		}
		other := s.order[s.fresh]
		s.order[s.fresh], s.order[i] = h, other
		s.place[h], s.place[other] = int32(s.fresh), i
		s.fresh++
	}
}

// end closes an iteration.
func (s *stateOrder) end() { s.fresh = 0 }

// live lists the states that may leave, and their sizes.
func (s *stateOrder) live(rt policies.Runtime) (states []State, sizes []sim.Bytes) {
	for _, h := range s.order {
		if t, ok := rt.Tensor(h); ok && t.Type != profilers.SharedMemory {
			states = append(states, State{h, t.Bytes})
			sizes = append(sizes, t.Bytes)
		}
	}
	return states, sizes
}
