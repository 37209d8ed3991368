package stream

import "slices"

// Point is an operator of a rank's run. Its kernels are issued in the order of
// their points.
type Point struct {
	Iteration int
	Index     int32 // of the iteration
}

// Before tells whether p comes first.
func (p Point) Before(q Point) bool {
	return p.Iteration < q.Iteration || p.Iteration == q.Iteration && p.Index < q.Index
}

// Outstanding knows which kernels of other streams than compute have been
// issued and have not ended: what the compute stream's own order does not tell.
// The zero Outstanding is ready for use.
type Outstanding struct{ streams [Count][]pending }

type pending struct {
	at       Point
	end      Event
	operands []Operand
}

// Issued notes a kernel.
func (o *Outstanding) Issued(u *Use) {
	if u.On != Compute {
		o.streams[u.On] = append(o.streams[u.On], pending{u.Point(), u.End, slices.Clone(u.Operands)})
	}
}

// Ended tells that the oldest kernel of s has ended.
func (o *Outstanding) Ended(s ID) {
	if s != Compute {
		o.streams[s] = slices.Delete(o.streams[s], 0, 1)
	}
}

// Busy tells whether a storage is an operand of an outstanding kernel that comes
// before a point. O(operands of these).
func (o *Outstanding) Busy(storage int32, before Point) bool {
	if storage == Scratch {
		return false
	}
	for s := range o.streams {
		for i := range o.streams[s] {
			if p := &o.streams[s][i]; !p.at.Before(before) {
				break
			} else if p.has(storage) {
				return true
			}
		}
	}
	return false
}

// Earlier calls f with the ends of outstanding kernels of earlier iterations that
// have a local with the number of one of u's: another storage, but maybe at the
// same addresses.
func (o *Outstanding) Earlier(u *Use, f func(end Event)) {
	for s := range o.streams {
		for i := range o.streams[s] {
			p := &o.streams[s][i]
			if p.at.Iteration >= u.Iteration {
				break
			}
			if slices.ContainsFunc(u.Operands, func(x Operand) bool { return !x.Resident && x.Storage != Scratch && p.has(x.Storage) }) {
				f(p.end)
			}
		}
	}
}

func (p *pending) has(storage int32) bool {
	return slices.ContainsFunc(p.operands, func(x Operand) bool { return x.Storage == storage })
}
