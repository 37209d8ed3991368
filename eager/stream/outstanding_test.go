package stream

import (
	"slices"
	"testing"
)

func TestOutstanding(t *testing.T) {
	var o Outstanding
	index := int32(-1)
	use := func(s ID, iteration int, end int64, ids ...int32) *Use {
		index++
		u := &Use{On: s, Iteration: iteration, Index: index, End: event(s, end)}
		for _, id := range ids {
			u.Operands = append(u.Operands, Operand{Storage: id, Resident: id == 9})
		}
		return u
	}
	o.Issued(use(Compute, 0, 1, 5)) // compute is in order by itself
	o.Issued(use(Comm, 0, 1, 2, Scratch))
	o.Issued(use(Peer, 0, 1, 3, 9))
	o.Issued(use(Compute, 0, 2, 2))
	n := Point{0, index}
	o.Issued(use(Comm, 0, 2, 4))
	for id, want := range map[int32]bool{2: true, 3: true, 9: true, 4: false, 5: false, Scratch: false} {
		if o.Busy(id, n) != want {
			t.Errorf("storage %d busy before %v: %v", id, n, !want)
		}
	}
	earlier := func(u *Use) (ends []Event) {
		o.Earlier(u, func(e Event) { ends = append(ends, e) })
		return ends
	}
	for _, c := range []struct {
		use  *Use
		want []Event
	}{
		{use(Compute, 0, 9, 2, 3), nil}, // the same iteration
		{use(Compute, 1, 9, 2, 3, 4), []Event{event(Comm, 1), event(Comm, 2), event(Peer, 1)}},
		{use(Comm, 1, 9, 9, Scratch), nil}, // a resident is the same storage
	} {
		if got := earlier(c.use); !slices.Equal(got, c.want) {
			t.Errorf("%+v waits for %v, want %v", c.use, got, c.want)
		}
	}
	o.Ended(Comm)
	o.Ended(Compute)
	if o.Busy(2, n) || !o.Busy(3, n) || !o.Busy(4, Point{0, n.Index + 2}) || !o.Busy(4, Point{Iteration: 1}) {
		t.Error("the end of a kernel is another one's")
	}
}
