package smartswap

import (
	"cmp"
	"slices"
	"strings"

	"smartswap/policies"
	"smartswap/profilers"
)

// The planner shipped since December 2025 ("v2"): it aims at nothing and asks
// nothing of the link, but swaps every large activation that lives inside one
// layer, from forward to backward, apart from those of the last layer. Layers
// are found by a pattern of operator names around the attention operator.

// newAttentionGrid cuts each pass into the layers found in it.
func newAttentionGrid(obs *profilers.Observation, o *Options) (*grid, error) {
	isAttention := make([]bool, len(obs.Names))
	for i, name := range obs.Names {
		isAttention[i] = strings.Contains(name, "attention")
	}
	var bounds []policies.PassBounds
	var names []int32
	for lo := 0; lo < len(obs.Ops); {
		pass := obs.Ops[lo].Stage
		pass.Layer = 0
		names = names[:0]
		hi, count := lo, 0
		for ; hi < len(obs.Ops); hi++ {
			op := &obs.Ops[hi]
			if s := op.Stage; s.Phase != pass.Phase || s.MicroBatch != pass.MicroBatch || s.Model != pass.Model {
				break
			}
			names = append(names, op.Name)
			if isAttention[op.Name] {
				count++
			}
		}
		lo = hi
		if pass.Phase != profilers.Forward && pass.Phase != profilers.Backward {
			continue
		}
		starts := repeats(names, count/max(1, o.AttentionPerStage), func(name int32) bool { return isAttention[name] })
		b := policies.PassBounds{Pass: pass}
		for _, s := range starts[min(1, len(starts)):] {
			b.Bounds = append(b.Bounds, s-1)
		}
		bounds = append(bounds, b)
	}
	g, err := newGridOf(obs, func(pass profilers.Stage) []int32 {
		for i := range bounds {
			if bounds[i].Pass == pass {
				return bounds[i].Bounds
			}
		}
		return nil
	})
	if err == nil {
		g.passes = bounds
	}
	return g, err
}

// sides are the forward and the backward use of a tensor between which it can
// be away.
type sides struct {
	use       usage
	fwd, bwd  int32 // operators; -1 = none
	crossings int   // stages, of forward and backward, that use it
}

// planAttention makes the schedule of the shipped planner.
func planAttention(in Input, o *Options) (*Schedule, error) {
	obs := in.Profile
	g, err := newAttentionGrid(obs, o)
	if err != nil {
		return nil, err
	}
	s := &Schedule{Reached: true, Stages: g.stages, profile: obs, grid: g, options: o}
	for i, t := range g.curve(obs) {
		if p := g.phaseOf(int32(i)); p == profilers.Forward || p == profilers.Backward {
			s.Peak = max(s.Peak, t)
		}
	}
	s.Target = s.Peak
	chosen := g.inBuckets(g.insideLayers(obs, o), o)
	chosen = append(chosen, g.shippedStates(obs, in, o)...)
	chosen = slices.DeleteFunc(chosen, func(c Candidate) bool { return c.inAt-c.out <= 1 }) // nothing to gain
	slices.SortStableFunc(chosen, func(a, b Candidate) int { return inOrder(&a, &b) })
	for i := range chosen {
		chosen[i].name(g.stages)
	}
	s.Swaps = chosen
	return s, nil
}

// insideLayers lists the activations that one forward and one backward stage
// use, and no other of these phases.
func (g *grid) insideLayers(obs *profilers.Observation, o *Options) []Candidate {
	all := g.usages(obs)
	index := make(map[profilers.Tensor]int32, len(all))
	uses := make([]sides, len(all))
	for i, u := range all {
		index[u.rec.Tensor] = int32(i)
		uses[i] = sides{use: u, fwd: -1, bwd: -1}
	}
	last := make([]int32, len(all)) // stage of the use before, +1
	for i := range obs.Ops {
		pos := int32(i)
		phase := g.phaseOf(pos)
		if phase != profilers.Forward && phase != profilers.Backward {
			continue
		}
		for _, a := range obs.Args(&obs.Ops[i]) {
			k := index[a.Tensor]
			u := &uses[k]
			if phase == profilers.Forward {
				u.fwd = pos
			} else if u.bwd < 0 {
				u.bwd = pos
			}
			if stage := g.of[pos] + 1; last[k] != stage {
				last[k] = stage
				u.crossings++
			}
		}
	}
	var list []Candidate
	end := int32(len(g.stages)) - 1
	for i := range uses {
		u := &uses[i]
		if u.use.rec.Type != profilers.Others || u.use.rec.Bytes <= o.MinTensor || u.fwd < 0 || u.bwd < 0 || u.crossings != 2 {
			continue
		}
		c := Candidate{Tensor: u.use.rec.Tensor, Bytes: u.use.rec.Bytes, OutOp: u.fwd, InOp: u.bwd, out: g.of[u.fwd], in: g.of[u.bwd]}
		c.inAt = c.in - 1
		c.free, c.inFree = min(c.out+int32(o.FreeDelay), end), min(c.inAt+int32(o.InFreeDelay), end)
		list = append(list, c)
	}
	return list
}

// inBuckets keeps, of each forward stage, the candidates whose uses come first
// up to Options.Bucket bytes, or all if that is negative.
func (g *grid) inBuckets(list []Candidate, o *Options) []Candidate {
	if o.Bucket < 0 {
		return list
	}
	slices.SortStableFunc(list, func(a, b Candidate) int { return cmp.Or(cmp.Compare(a.out, b.out), cmp.Compare(a.OutOp, b.OutOp)) })
	var kept []Candidate
	stage, left := int32(-1), o.Bucket
	for _, c := range list {
		if c.out != stage {
			stage, left = c.out, o.Bucket
		}
		if c.Bytes > left {
			left = 0 // the first that does not fit ends the stage
			continue
		}
		left -= c.Bytes
		kept = append(kept, c)
	}
	return kept
}

// shippedStates lists the optimizer states that leave: those that the profile
// saw, or all that are alive, whatever their size.
func (g *grid) shippedStates(obs *profilers.Observation, in Input, o *Options) []Candidate {
	home, optim := g.find(profilers.Forward, 1, 1), g.find(profilers.Optim, 0, 0)
	if home < 0 || optim < 0 {
		return nil
	}
	var list []Candidate
	switch o.Optimizer {
	case OptimizerPlan:
		for _, u := range g.usages(obs) {
			if u.rec.Type == profilers.OptimState {
				list = append(list, Candidate{Tensor: u.rec.Tensor, Bytes: u.rec.Bytes, Optimizer: true,
					OutOp: g.first[home], InOp: g.first[optim], out: home, in: optim})
			}
		}
	case OptimizerWhole, OptimizerChunks:
		every := *o
		every.MinTensor = 0
		list = g.states(in.States, &every)
	}
	for i := range list {
		c := &list[i]
		c.inAt, c.free, c.inFree = optim, home, optim
	}
	return list
}
