package smartswap

import (
	"sort"

	"smartswap/profilers"
	"smartswap/sim"
)

// peak is one rise and fall of memory: the operators from the first forward
// one after another phase to the last backward one, as positions, inclusive.
// Pipelines of several micro-batches have several.
type peak struct{ lo, hi int32 }

// peaks finds the rises and falls. Forward and backward operators all lie in
// some peak, in order.
func (g *grid) peaks() []peak {
	var all []peak
	last := profilers.Init // phase of the operator before
	for i := range g.of {
		phase := g.phaseOf(int32(i))
		if phase == profilers.Forward || phase == profilers.Backward {
			falling := last == profilers.Backward && phase == profilers.Forward
			if falling || last != profilers.Forward && last != profilers.Backward {
				all = append(all, peak{lo: int32(i)})
			}
			all[len(all)-1].hi = int32(i)
		}
		last = phase
	}
	return all
}

// curve is the memory that each operator would have found without swaps: the
// measured active bytes, and what swaps have taken away by then. A swap-out
// that was never undone counts until the end of the peak it happened in, when
// its tensor would have died.
func (g *grid) curve(obs *profilers.Observation) []sim.Bytes {
	delta := make([]sim.Bytes, len(obs.Ops)+1) // change of the difference at each operator
	var out, in sim.Bytes
	returned := make(map[profilers.Tensor]bool)
	for i := range obs.Swaps {
		s := &obs.Swaps[i]
		if s.Out {
			out += s.Bytes
			delta[position(obs, s.OpID)] += s.Bytes
		} else {
			in += s.Bytes
			delta[position(obs, s.OpID)] -= s.Bytes
			returned[s.Src] = true
		}
	}
	if out != in {
		peaks := g.peaks()
		for i := range obs.Swaps {
			s := &obs.Swaps[i]
			if !s.Out || returned[s.Dst] {
				continue
			}
			at := int32(position(obs, s.OpID))
			p := sort.Search(len(peaks), func(p int) bool { return at <= peaks[p].hi })
			if p < len(peaks) && at >= peaks[p].lo {
				delta[peaks[p].hi+1] -= s.Bytes
			}
		}
	}
	theoretical := make([]sim.Bytes, len(obs.Ops))
	var d sim.Bytes
	for i := range theoretical {
		d += delta[i]
		theoretical[i] = obs.Ops[i].Active + d
	}
	return theoretical
}

// position is the place of the operator with the given id in the profile; of
// the one before it if it was not recorded; 0 if it lies before the profile.
func position(obs *profilers.Observation, id int64) int {
	i := sort.Search(len(obs.Ops), func(i int) bool { return obs.Ops[i].ID > id })
	return max(i-1, 0)
}

// demand says how much has to go.
type demand struct {
	peak, target sim.Bytes
	ops          []int32     // forward and backward operators above the target, in order
	need         []sim.Bytes // by how much
}

// measure compares the curve with the target. redundant is the margin to keep
// below the measured peak when evictions showed that memory is short.
func (g *grid) measure(obs *profilers.Observation, o *Options, oom bool, redundant sim.Bytes) demand {
	theoretical := g.curve(obs)
	var m demand
	var measured sim.Bytes
	for i, t := range theoretical {
		measured = max(measured, obs.Ops[i].Active)
		if p := g.phaseOf(int32(i)); p == profilers.Forward || p == profilers.Backward {
			m.peak = max(m.peak, t)
		}
	}
	switch {
	case oom:
		m.target = measured - redundant
	case len(obs.Swaps) > 0:
		m.target = measured
	case o.Target == Reduction:
		m.target = m.peak - o.Reduction
	case o.Target == Absolute:
		m.target = o.TargetBytes
	default:
		m.target = m.peak
	}
	for i, t := range theoretical {
		if t <= m.target {
			continue
		}
		switch g.phaseOf(int32(i)) {
		case profilers.Forward, profilers.Backward:
			m.ops = append(m.ops, int32(i))
			m.need = append(m.need, t-m.target)
		case profilers.Optim:
			return m // a peak in the optimizer ends the list
		}
	}
	return m
}
