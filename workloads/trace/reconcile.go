package trace

import (
	"cmp"
	"slices"

	"smartswap/sim"
)

// tlTotal is what the allocator itself said to hold, just after an event.
type tlTotal struct {
	at    int64
	bytes sim.Bytes
}

// reconcile holds the tensors against the allocator's own totals, which are
// right where a profiler lost an event, and makes t agree with them. The level
// at the start becomes t.base. Later, memory that the totals miss was released:
// by a tensor without a release if one has that size or fits, else by what was
// there before the recording. Memory that the totals have on top was allocated
// by something without a record. totals are put into order; tensors must be in
// order of allocation. What is changed is noted under file.
//
// Two events that cross within a microsecond disagree for a moment; a
// difference counts only once the next total confirms at least a part of it.
func (t *timeline) reconcile(rep *Report, file string, totals []tlTotal) {
	if len(totals) == 0 {
		return
	}
	slices.SortStableFunc(totals, func(a, b tlTotal) int { return cmp.Compare(a.at, b.at) })
	totals = lastOfInstants(totals)
	r := reconciler{t: t, freed: make([]int, 0, len(t.tensors))}
	for i := range t.tensors {
		if t.tensors[i].freed != never {
			r.freed = append(r.freed, i)
		}
	}
	slices.SortStableFunc(r.freed, func(a, b int) int { return cmp.Compare(t.tensors[a].freed, t.tensors[b].freed) })
	r.sorted = len(t.tensors)
	r.advance(totals[0].at)
	t.base = max(0, totals[0].bytes-r.live)
	drift := totals[0].bytes - r.live - t.base // of the present total
	for i := range totals {
		r.advance(totals[i].at)
		had := drift
		drift = totals[i].bytes - r.live - t.base
		switch {
		case drift < 0 && had < 0:
			r.release(-max(drift, had), totals[i].at)
		case drift > 0 && had > 0:
			r.allocate(min(drift, had), totals[i].at)
		default:
			continue // nothing, or new: the next total tells
		}
		drift = totals[i].bytes - r.live - t.base
	}
	if drift != 0 {
		rep.note(Inferred, file, "at the last event the allocator's total is %d bytes from the sum of the tensors", drift)
	}
	slices.SortStableFunc(t.tensors, func(x, y tlTensor) int { return cmp.Compare(x.born, y.born) })
	if r.lost > 0 {
		rep.note(Repaired, file, "%d releases that the recording lost, %d bytes, put where the allocator's totals fall", r.lost, r.lostBytes)
	}
	if r.early > 0 {
		rep.note(Inferred, file, "%d bytes of what was allocated before the recording were released in it", r.early)
	}
	if r.unseen > 0 {
		rep.note(Inferred, file, "%d allocations without a record, %d bytes, put where the allocator's totals rise", r.unseen, r.unseenBytes)
	}
}

// lastOfInstants keeps the last of totals with the same instant: the one after
// all events of that instant.
func lastOfInstants(totals []tlTotal) []tlTotal {
	n := 0
	for i := range totals {
		if i+1 == len(totals) || totals[i].at != totals[i+1].at {
			totals[n] = totals[i]
			n++
		}
	}
	return totals[:n]
}

type reconciler struct {
	t                             *timeline
	sorted                        int   // tensors[:sorted] are the recorded ones, in order of allocation
	freed                         []int // recorded tensors with a release, in its order
	nextBorn, nextFreed           int
	live                          sim.Bytes // of recorded, repaired and added tensors
	open                          []int     // live tensors without a release, oldest first
	lost, unseen                  int
	lostBytes, unseenBytes, early sim.Bytes
}

// advance takes all recorded events up to and with instant at.
func (r *reconciler) advance(at int64) {
	t := r.t.tensors
	for ; r.nextBorn < r.sorted && t[r.nextBorn].born <= at; r.nextBorn++ {
		r.live += t[r.nextBorn].bytes
		if t[r.nextBorn].freed == never {
			r.open = append(r.open, r.nextBorn)
		}
	}
	for ; r.nextFreed < len(r.freed) && t[r.freed[r.nextFreed]].freed <= at; r.nextFreed++ {
		r.live -= t[r.freed[r.nextFreed]].bytes
	}
}

// searched is how many tensors without a release are looked at for one release.
const searched = 4096

// release ends n bytes of tensors without a release, before instant at.
func (r *reconciler) release(n sim.Bytes, at int64) {
	end := func(k int) {
		v := &r.t.tensors[r.open[k]]
		v.freed = max(v.born, at-1)
		r.live -= v.bytes
		n -= v.bytes
		r.lost++
		r.lostBytes += v.bytes
		r.open = slices.Delete(r.open, k, k+1)
	}
	// The oldest are looked at, so that a long list does not cost its square.
	oldest := r.open[:min(len(r.open), searched)]
	if k := slices.IndexFunc(oldest, func(i int) bool { return r.t.tensors[i].bytes == n }); k >= 0 {
		end(k)
		return
	}
	for k, looked := 0, 0; k < len(r.open) && n > 0 && looked < searched; looked++ {
		if r.t.tensors[r.open[k]].bytes <= n {
			end(k)
		} else {
			k++
		}
	}
	if n = min(n, r.t.base); n > 0 {
		r.t.base -= n
		start := at - 1
		if len(r.t.tensors) > 0 {
			start = min(start, r.t.tensors[0].born)
		}
		r.t.tensors = append(r.t.tensors, tlTensor{name: "allocated before the recording", bytes: n, born: start, freed: at - 1})
		r.early += n
	}
}

// allocate adds n bytes without a record, before instant at.
func (r *reconciler) allocate(n sim.Bytes, at int64) {
	r.open = append(r.open, len(r.t.tensors))
	r.t.tensors = append(r.t.tensors, tlTensor{name: "allocation without a record", bytes: n, born: at - 1, freed: never})
	r.live += n
	r.unseen++
	r.unseenBytes += n
}

// clip keeps what lives in [from, to): what lived before is born at from, what
// lives on is never released.
func (t *timeline) clip(from, to int64) {
	t.tensors = slices.DeleteFunc(t.tensors, func(v tlTensor) bool { return v.freed <= from || v.born >= to })
	for i := range t.tensors {
		v := &t.tensors[i]
		v.born = max(v.born, from)
		if v.freed >= to {
			v.freed = never
		}
	}
}
