package smartswap

import (
	"cmp"
	"slices"

	"smartswap/policies"
	"smartswap/profilers"
)

// vocabulary gives the most frequent operator names of a profile an index from
// 1; of equally frequent names, the one the run met first.
func vocabulary(obs *profilers.Observation) policies.Vocabulary {
	count := make([]int, len(obs.Names))
	for i := range obs.Ops {
		count[obs.Ops[i].Name]++
	}
	order := make([]int32, 0, len(count))
	for name, n := range count {
		if n > 0 {
			order = append(order, int32(name))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(count[b], count[a]) })
	v := policies.Vocabulary{Index: make([]uint8, len(count))}
	for i, name := range order[:min(len(order), policies.VocabularySize)] {
		v.Index[name] = uint8(i + 1)
	}
	return v
}

// history is what a tensor has been through when it leaves.
type history struct {
	feature policies.Feature
	op, arg int32            // its last use
	first   profilers.Tensor // the id of its first use
}

// histories replays the profile for all chosen candidates at once. whole counts
// a tensor's uses under all its ids, otherwise only those under the first.
func histories(obs *profilers.Observation, v policies.Vocabulary, chosen []*Candidate, whole bool) []history {
	all := make([]history, len(chosen))
	index := make(map[profilers.Tensor]int32, len(chosen))
	for i, c := range chosen {
		index[c.Tensor] = int32(i)
	}
	for i := range obs.Ops {
		op := &obs.Ops[i]
		for arg, a := range obs.Args(op) {
			k, ok := index[a.Tensor]
			if !ok || int32(i) > chosen[k].OutOp {
				continue
			}
			h := &all[k]
			if h.feature.Uses == 0 {
				h.feature = v.Begin(a.DType, a.Bytes, a.Shape)
				h.first = a.Orig
			}
			if whole || a.Orig == h.first {
				h.feature.Use(v, op.Name, arg)
				h.op, h.arg = int32(i), int32(arg)
			}
		}
	}
	return all
}
