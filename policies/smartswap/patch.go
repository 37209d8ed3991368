package smartswap

import (
	"slices"

	"smartswap/policies"
	"smartswap/profilers"
)

// least is the share of the operators of a sequence's forward and backward
// passes, in percent, that must be found in the sequence of a plan for the plan
// to be worth fitting. Assumed.
const least = 50

// fit makes a plan for one sequence out of the plan for another.
//
// Tensors are recognised by their history and need no change. What an inserted
// or missing operator shifts are the borders of logical layers, so each pass is
// aligned with its counterpart, and its borders go where the operators went. A
// pass that is new, such as that of a further micro-batch, is aligned with the
// last one of its kind and gets that one's swaps; swaps of passes that are gone
// are left out. O(operators + passes + maxEdits^2) for each pair of passes that
// differ. False if the sequences have too little in common.
func fit(plan *policies.Plan, old, new *profilers.Observation) (*policies.Plan, bool) {
	f := fitter{plan: plan, old: old, new: new,
		oldPasses: passIndex(old), newPasses: passIndex(new), known: make(map[[2]int]moved)}
	fitted := *plan
	fitted.Passes, fitted.Swaps = nil, nil
	operators, kept := 0, 0
	for i := range new.Passes {
		pass := new.Passes[i].Stage
		if pass.Phase != profilers.Forward && pass.Phase != profilers.Backward {
			continue
		}
		operators += int(new.PassLength(i))
		from, ok := f.counterpart(pass)
		if !ok {
			continue
		}
		m := f.move(from, i)
		kept += m.kept
		fitted.Passes = append(fitted.Passes, policies.PassBounds{Pass: pass, Bounds: m.bounds})
	}
	if 100*kept < least*operators {
		return nil, false
	}
	for i := range plan.Swaps {
		if s, ok := f.swap(plan.Swaps[i], 0); ok {
			fitted.Swaps = append(fitted.Swaps, s)
		}
	}
	f.further(&fitted)
	return &fitted, true
}

// fitter fits a plan for old to new.
type fitter struct {
	plan                 *policies.Plan
	old, new             *profilers.Observation
	oldPasses, newPasses map[profilers.Stage]int
	known                map[[2]int]moved // by passes of equal content, see move
}

// moved is what has become of a pass: its borders, and how many operators of the
// new one it had.
type moved struct {
	bounds []int32
	kept   int
}

// passIndex numbers the passes of an observation by their stage.
func passIndex(o *profilers.Observation) map[profilers.Stage]int {
	index := make(map[profilers.Stage]int, len(o.Passes))
	for i := range o.Passes {
		index[o.Passes[i].Stage] = i
	}
	return index
}

// counterpart is the old pass for a new one: the same, or the last of its kind.
func (f *fitter) counterpart(pass profilers.Stage) (int, bool) {
	if i, ok := f.oldPasses[pass]; ok {
		return i, true
	}
	for i := len(f.old.Passes) - 1; i >= 0; i-- {
		if s := f.old.Passes[i].Stage; s.Phase == pass.Phase && s.Model == pass.Model {
			return i, true
		}
	}
	return 0, false
}

// move fits the borders of old pass from to new pass to. Micro-batches are
// mostly alike, so results are kept for passes that equal these.
func (f *fitter) move(from, to int) moved {
	same := func(o *profilers.Observation, i int) int { // the first pass like it
		return slices.IndexFunc(o.Passes, func(p profilers.Pass) bool {
			return p.Hash == o.Passes[i].Hash && p.Stage.Phase == o.Passes[i].Stage.Phase && p.Stage.Model == o.Passes[i].Stage.Model
		})
	}
	key := [2]int{same(f.old, from), same(f.new, to)}
	if m, ok := f.known[key]; ok {
		return m
	}
	bounds := f.plan.Bounds(f.old.Passes[from].Stage)
	length := int(f.new.PassLength(to))
	var m moved
	if f.old.Passes[from].Hash == f.new.Passes[to].Hash {
		m = moved{bounds, length}
	} else {
		m.bounds, m.kept = shift(bounds, align(names(f.old, from), names(f.new, to)), length)
	}
	f.known[key] = m
	return m
}

// names are the operators of pass i.
func names(o *profilers.Observation, i int) []int32 {
	lo := o.Passes[i].Lo
	return o.Sequence[lo : lo+o.PassLength(i)]
}

// shift puts layer borders, each the last operator of a layer, where an
// alignment puts the operators: before the first operator of the next layers
// that is still there. length is that of the new pass; kept counts the
// operators that are.
func shift(bounds, to []int32, length int) (shifted []int32, kept int) {
	next := int32(length) // new position of the first old operator kept from i on
	after := make([]int32, len(to)+1)
	after[len(to)] = next
	for i := len(to) - 1; i >= 0; i-- {
		if to[i] >= 0 {
			next = to[i]
			kept++
		}
		after[i] = next
	}
	for _, b := range bounds {
		at := min(int(b)+1, len(to))
		shifted = append(shifted, max(0, after[at]-1))
	}
	return shifted, kept
}

// swap moves a swap by a number of micro-batches. False if the new sequence
// lacks a pass that it cannot do without.
func (f *fitter) swap(s policies.Swap, by int32) (policies.Swap, bool) {
	there := func(stage *profilers.Stage) bool {
		if stage.MicroBatch > 0 {
			stage.MicroBatch += by
		}
		pass := *stage
		pass.Layer = 0
		_, ok := f.newPasses[pass]
		return ok
	}
	out := &s.Out.What.Stage
	if s.Optimizer {
		out = &s.Out.Start.Stage
	}
	if !there(out) || !there(&s.In.Start.Stage) {
		return s, false
	}
	s.In.What.Stage = s.Out.What.Stage
	for _, t := range []*policies.Trigger{&s.Out.Release, &s.In.Release} {
		if t.Kind == policies.AtStage && !there(&t.Stage) {
			*t = policies.Trigger{Kind: policies.Now} // as soon as the copy has ended
		}
	}
	return s, true
}

// further gives micro-batches that the old sequence has not the swaps of its
// last one.
func (f *fitter) further(fitted *policies.Plan) {
	last := int32(0) // forward and backward
	for i := range f.old.Passes {
		s := f.old.Passes[i].Stage
		if s.Phase == profilers.Backward {
			last = max(last, s.MicroBatch)
		}
	}
	var template []policies.Swap
	for i := range f.plan.Swaps {
		if s := &f.plan.Swaps[i]; !s.Optimizer && s.Out.What.Stage.MicroBatch == last {
			template = append(template, *s)
		}
	}
	most := int32(0)
	for i := range f.new.Passes {
		most = max(most, f.new.Passes[i].Stage.MicroBatch)
	}
	for m := last + 1; m <= most; m++ {
		for _, s := range template {
			if s, ok := f.swap(s, m-last); ok {
				fitted.Swaps = append(fitted.Swaps, s)
			}
		}
	}
}

// maxEdits bounds the edit script that align looks for.
const maxEdits = 512

// align finds where the operators of a are in b: a longest common subsequence,
// as the position in b for each of a, -1 for those that have gone (Myers 1986).
// Beyond maxEdits insertions and deletions only what the ends have in common is
// found.
func align(a, b []int32) []int32 {
	to := make([]int32, len(a))
	for i := range to {
		to[i] = -1
	}
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		to[head] = int32(head)
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
		to[len(a)-tail] = int32(len(b) - tail)
	}
	a, b = a[head:len(a)-tail], b[head:len(b)-tail]
	n, m := len(a), len(b)
	// far[k] is how far along diagonal x-y = k-off d edits lead, as x.
	limit := min(n+m, maxEdits)
	off := limit + 1
	far := make([]int32, 2*off+1)
	var before [][]int32 // far before step d, of the diagonals that it uses
	for d := 0; d <= limit; d++ {
		before = append(before, slices.Clone(far[off-d-1:off+d+2]))
		for k := -d; k <= d; k += 2 {
			x := int(far[off+k-1]) + 1 // a's operator goes
			if k == -d || k < d && far[off+k-1] < far[off+k+1] {
				x = int(far[off+k+1]) // one of b's comes
			}
			y := x - k
			for x < n && y < m && a[x] == b[y] {
				x, y = x+1, y+1
			}
			far[off+k] = int32(x)
			if x >= n && y >= m {
				trace(to, before, n, m, head)
				return to
			}
		}
	}
	return to
}

// trace walks an edit script back from its end and notes what stays.
func trace(to []int32, before [][]int32, x, y, head int) {
	for d := len(before) - 1; d >= 0; d-- {
		far := before[d] // far[i] is diagonal i-d-1
		k := x - y
		at := func(diagonal int) int { return int(far[diagonal+d+1]) }
		from := k - 1
		if k == -d || k < d && at(k-1) < at(k+1) {
			from = k + 1
		}
		startX := at(from)
		startY := startX - from
		if d == 0 {
			startX, startY = 0, 0
		}
		for x > startX && y > startY {
			x, y = x-1, y-1
			to[head+x] = int32(head + y)
		}
		x, y = startX, startY
	}
}
