package smartswap

import (
	"fmt"
	"sort"

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
	first, last       []int32 // positions of a stage's operators in the profile, inclusive
	of                []int32 // stage index by operator position
	forward, backward []int32 // layer boundaries
}

// newGrid cuts the operators of a profile into stages. The boundaries come
// from the first micro-batch and serve for all. An iteration in which a stage
// comes twice cannot be planned.
func newGrid(obs *profilers.Observation, layers int) (*grid, error) {
	var n [2]int // operators of micro-batch 1, forward and backward
	for i := range obs.Ops {
		if s := obs.Ops[i].Stage; s.MicroBatch == 1 && s.Model == 0 {
			switch s.Phase {
			case profilers.Forward:
				n[0]++
			case profilers.Backward:
				n[1]++
			}
		}
	}
	k := logicalLayers(layers)
	g := &grid{
		of:      make([]int32, len(obs.Ops)),
		forward: boundaries(n[0], k), backward: boundaries(n[1], k),
	}
	seen := make(map[profilers.Stage]int32)
	var phase profilers.Stage // of the last operator, without its layer
	var pos int32             // inside the phase
	for i := range obs.Ops {
		s := obs.Ops[i].Stage
		s.Layer = 0
		if i == 0 || s != phase {
			phase, pos = s, 0
		}
		switch s.Phase {
		case profilers.Forward:
			s.Layer = layerOf(g.forward, pos)
		case profilers.Backward:
			s.Layer = layerOf(g.backward, pos)
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
