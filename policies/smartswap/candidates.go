package smartswap

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"smartswap/profilers"
	"smartswap/sim"
)

// Candidate is a tensor that could leave the device between two of its uses.
// Operators are positions in the profile, stages are those of the planner's
// grid.
type Candidate struct {
	Tensor    profilers.Tensor
	Bytes     sim.Bytes
	Optimizer bool

	OutOp, InOp       int32           // last use before, first use after
	OutStage, InStage profilers.Stage // of these uses
	InAt              profilers.Stage // where it comes back: chosen to come early enough
	Free, InFree      profilers.Stage // where the memory held for either copy is released
	Score             float64
	Delayed           bool // accepted although a copy does not fit its stage

	out, in, inAt, free, inFree int32 // stage indices
	start, end                  int32 // what it covers of memory.ops, half-open
	chunked                     bool  // comes back piece by piece inside the optimizer phase
}

// usage is what the profile tells about one tensor.
type usage struct {
	rec       profilers.TensorRec // its first record
	lastOp    int32               // last operator seen
	ops       int32               // distinct operators
	lastFwd   int32               // -1 = none
	firstBwd  int32
	inOptim   bool
	firstSeen profilers.Phase
}

// usages lists the tensors of a profile in the order of their first use, by
// newest id.
func (g *grid) usages(obs *profilers.Observation) []usage {
	var all []usage
	index := make(map[profilers.Tensor]int32)
	for i := range obs.Ops {
		pos, phase := int32(i), g.phaseOf(int32(i))
		for _, a := range obs.Args(&obs.Ops[i]) {
			k, ok := index[a.Tensor]
			if !ok {
				k = int32(len(all))
				index[a.Tensor] = k
				all = append(all, usage{rec: a, lastOp: -1, lastFwd: -1, firstBwd: -1, firstSeen: phase})
			}
			u := &all[k]
			if u.lastOp == pos {
				continue
			}
			u.lastOp = pos
			u.ops++
			switch phase {
			case profilers.Forward:
				u.lastFwd = pos
			case profilers.Backward:
				if u.firstBwd < 0 {
					u.firstBwd = pos
				}
			case profilers.Optim:
				u.inOptim = true
			}
		}
	}
	return all
}

// candidates lists what may be swapped, at most once per tensor: activations
// between their last forward and their first backward use, optimizer states
// from the start of the first forward pass to the optimizer phase. Optimizer
// states of the modes whole and chunks are not among them (see states).
func (g *grid) candidates(obs *profilers.Observation, o *Options) []Candidate {
	var all []Candidate
	home, optim := g.find(profilers.Forward, 1, 1), g.find(profilers.Optim, 0, 0)
	for _, u := range g.usages(obs) {
		isState := u.rec.Type == profilers.OptimState
		once := isState && o.SingleUseStates
		if u.rec.Type == profilers.SharedMemory || u.rec.Bytes < o.MinTensor || u.ops < 2 && !once {
			continue
		}
		c := Candidate{Tensor: u.rec.Tensor, Bytes: u.rec.Bytes, Optimizer: isState}
		switch {
		case isState:
			if o.Optimizer != OptimizerPlan || u.firstSeen != profilers.Optim || home < 0 || optim < 0 {
				continue
			}
			c.out, c.in = home, optim
			c.OutOp, c.InOp = g.first[home], g.first[optim]
		case u.inOptim || u.lastFwd < 0 || u.firstBwd < 0:
			continue
		default:
			c.out, c.in = g.of[u.lastFwd], g.of[u.firstBwd]
			c.OutOp, c.InOp = u.lastFwd, u.firstBwd
		}
		c.inAt = c.in
		all = append(all, c)
	}
	return all
}

// firstState is the tensor id of the first live optimizer state, one that no
// profile has; those of the others follow.
const firstState profilers.Tensor = math.MinInt64

// state is the live optimizer state that c stands for; false if c is a tensor of
// the profile.
func (c *Candidate) state() (int, bool) { return int(c.Tensor - firstState), c.Tensor < 0 }

// states makes a candidate of every optimizer state of the run, for the modes
// whole and chunks.
func (g *grid) states(sizes []sim.Bytes, o *Options) []Candidate {
	home, optim := g.find(profilers.Forward, 1, 1), g.find(profilers.Optim, 0, 0)
	if o.Optimizer != OptimizerWhole && o.Optimizer != OptimizerChunks || home < 0 || optim < 0 {
		return nil
	}
	var all []Candidate
	for i, bytes := range sizes {
		if bytes >= o.MinTensor {
			all = append(all, Candidate{
				Tensor: firstState + profilers.Tensor(i), Bytes: bytes, Optimizer: true,
				OutOp: g.first[home], InOp: g.first[optim], out: home, in: optim, inAt: optim,
				chunked: o.Optimizer == OptimizerChunks,
			})
		}
	}
	return all
}

// cover sets which operators above the target c relieves: from the stage after
// it left to the stage in which it comes back.
func (g *grid) cover(c *Candidate, m *demand) {
	c.start, c.end = 0, 0
	if int(c.out)+1 >= len(g.stages) {
		return
	}
	lo, hi := g.first[c.out+1], g.first[c.inAt]
	start := sort.Search(len(m.ops), func(i int) bool { return m.ops[i] >= lo })
	end := sort.Search(len(m.ops), func(i int) bool { return m.ops[i] >= hi })
	if start < end {
		c.start, c.end = int32(start), int32(end)
	}
}

// rank scores the candidates (coverage plus weight times size, each scaled to
// 0..1, size by its cube root) and sorts them, best first. Equal scores are
// ordered by what they relieve first, then by operator, then by tensor; the
// shipped code leaves the order of equals to a hash table.
func (g *grid) rank(all []Candidate, m *demand, weight float64) {
	if len(all) == 0 {
		return
	}
	minCover, maxCover := math.Inf(1), math.Inf(-1)
	minRoot, maxRoot := math.Inf(1), math.Inf(-1)
	for i := range all {
		c := &all[i]
		g.cover(c, m)
		cover, root := float64(c.end-c.start), math.Cbrt(c.mib())
		minCover, maxCover = min(minCover, cover), max(maxCover, cover)
		minRoot, maxRoot = min(minRoot, root), max(maxRoot, root)
	}
	coverSpan, rootSpan := max(0.001, maxCover-minCover), max(0.001, maxRoot-minRoot)
	for i := range all {
		c := &all[i]
		cover := (float64(c.end-c.start) - minCover) / coverSpan
		size := (math.Cbrt(c.mib()) - minRoot) / rootSpan
		c.Score = cover + float64(weight*size)
	}
	slices.SortStableFunc(all, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(b.Score, a.Score),
			cmp.Compare(a.start, b.start),
			cmp.Compare(a.OutOp, b.OutOp),
			cmp.Compare(a.Tensor, b.Tensor),
		)
	})
}

// mib is the size as the score sees it.
func (c *Candidate) mib() float64 { return float64(c.Bytes) / float64(sim.MiB) }
