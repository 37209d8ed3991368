package smartswap

import (
	"fmt"
	"sort"

	"smartswap/policies"
	"smartswap/profilers"
)

// logicalLayers is how many logical layers a phase is cut into for a model of
// that many layers: the least multiple above 10. (11 to 20, or the model's own
// number if that is larger.) 0 means that every operator is a layer.
func logicalLayers(model int) int {
	if model <= 0 {
		return 0
	}
	return (10/model + 1) * model
}

// boundaries are the last operators of all layers but the last, as positions
// inside the phase, for a phase of n operators cut into k layers; k = 0 gives
// every operator its own. Boundaries are inclusive, so the first layer has one
// operator more than n div k, and the last has what is left.
func boundaries(n, k int) []int32 {
	size, first := 1, 0
	if k == 0 {
		k = n
	} else {
		size = n / k
		first = size
	}
	var bounds []int32
	for i := range k - 1 {
		bounds = append(bounds, int32(first+size*i))
	}
	return bounds
}

// layerOf is the layer, from 1, of the operator at position pos of its phase.
func layerOf(bounds []int32, pos int32) int32 {
	return 1 + int32(sort.Search(len(bounds), func(i int) bool { return pos <= bounds[i] }))
}

// grid is an iteration cut into stages: the only clock that the planner has.
type grid struct {
	stages            []profilers.Stage
	first, last       []int32               // positions of a stage's operators in the profile, inclusive
	of                []int32               // stage index by operator position
	forward, backward []int32               // layer boundaries
	passes            []policies.PassBounds // those of single passes; they come first
}

// newGrid cuts the operators of a profile into logical layers of equal size.
// Each model chunk has its own boundaries, from the first micro-batch, which
// serve for all. An iteration in which a stage comes twice cannot be planned.
func newGrid(obs *profilers.Observation, layers int) (*grid, error) {
	k := logicalLayers(layers)
	lengths := make(map[profilers.Stage]int) // of first micro-batches
	for i := range obs.Ops {
		if s := obs.Ops[i].Stage; s.MicroBatch == 1 {
			s.Layer = 0
			lengths[s]++
		}
	}
	bounds := make(map[profilers.Stage][]int32)
	boundsOf := func(pass profilers.Stage) []int32 {
		pass.MicroBatch = 1
		b, ok := bounds[pass]
		if !ok {
			b = boundaries(lengths[pass], k)
			bounds[pass] = b
		}
		return b
	}
	g, err := newGridOf(obs, boundsOf)
	if err != nil {
		return nil, err
	}
	g.forward = boundsOf(profilers.Stage{Phase: profilers.Forward})
	g.backward = boundsOf(profilers.Stage{Phase: profilers.Backward})
	for _, s := range g.stages {
		if s.Model > 0 && s.Layer == 1 {
			s.Layer = 0
			g.passes = append(g.passes, policies.PassBounds{Pass: s, Bounds: boundsOf(s)})
		}
	}
	return g, nil
}

// newGridOf cuts the operators of a profile into stages by the layer boundaries
// of each pass.
func newGridOf(obs *profilers.Observation, boundsOf func(pass profilers.Stage) []int32) (*grid, error) {
	g := &grid{of: make([]int32, len(obs.Ops))}
	seen := make(map[profilers.Stage]int32)
	var pass profilers.Stage // of the last operator
	var bounds []int32
	var pos int32 // inside the pass
	for i := range obs.Ops {
		s := obs.Ops[i].Stage
		s.Layer = 0
		grid := s.Phase == profilers.Forward || s.Phase == profilers.Backward
		if i == 0 || s != pass {
			pass, pos, bounds = s, 0, nil
			if grid {
				bounds = boundsOf(pass)
			}
		}
		if grid {
			s.Layer = layerOf(bounds, pos)
		}
		pos++
		if at := len(g.stages) - 1; at < 0 || g.stages[at] != s {
			if before, ok := seen[s]; ok {
				return nil, fmt.Errorf("smartswap: stage %v begins at operator %d and again at %d", s, before, i)
			}
			seen[s] = int32(i)
			g.stages = append(g.stages, s)
			g.first = append(g.first, int32(i))
			g.last = append(g.last, int32(i))
		}
		g.last[len(g.last)-1] = int32(i)
		g.of[i] = int32(len(g.stages) - 1)
	}
	return g, nil
}

// find is the index of the first stage with that phase and layer of the first
// micro-batch, or -1.
func (g *grid) find(phase profilers.Phase, microBatch, layer int32) int32 {
	for i, s := range g.stages {
		if s.Phase == phase && s.MicroBatch == microBatch && s.Layer == layer {
			return int32(i)
		}
	}
	return -1
}

// phaseOf is the phase of the operator at position i.
func (g *grid) phaseOf(i int32) profilers.Phase { return g.stages[g.of[i]].Phase }
