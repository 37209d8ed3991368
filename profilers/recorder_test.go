package profilers

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/sim"
)

const everything = IterationTime | OpNames | OpRecords | TensorArgs | MemoryStats | SwapRecords | OpTimes | CallStacks

// record plays three operators and two transfers.
func record(r *Recorder, iteration int, p Profiler) *Observation {
	r.Begin(iteration, p)
	at := Stage{Phase: Forward, MicroBatch: 1, Layer: 1}
	r.Op(OpRec{ID: 7, Name: 0, Stage: at, Active: 10}, []TensorRec{{Tensor: 1, Bytes: 5}, {Tensor: 1, Bytes: 5}})
	r.Op(OpRec{ID: 8, Name: 1, Stage: at, Active: 20}, nil)
	r.Swap(SwapRec{Out: true, Bytes: 5, Src: 1, Dst: 2})
	r.Swap(SwapRec{Bytes: 5, Src: 2, Dst: 3})
	r.Op(OpRec{ID: 9, Name: 0, Stage: at, Active: 30}, []TensorRec{{Tensor: 3, Bytes: 5}})
	r.Timed(8, 100, 50)
	r.Timed(6, 100, 50)  // of the iteration before
	r.Timed(10, 100, 50) // not there yet
	return r.End(1000, true)
}

func newTestRecorder() *Recorder {
	var n Names
	n.ID(5, "a")
	n.ID(0, "b")
	return NewRecorder(&n, 12)
}

func TestRecorder(t *testing.T) {
	at := Stage{Phase: Forward, MicroBatch: 1, Layer: 1}
	want := &Observation{
		Iteration: 4, Fields: everything, Duration: 1000, OOM: true,
		Ops: []OpRec{
			{ID: 7, Name: 0, Stage: at, Lo: 0, Hi: 2, Active: 10},
			{ID: 8, Name: 1, Stage: at, Lo: 2, Hi: 2, Active: 20, Begin: 100, Span: 50},
			{ID: 9, Name: 0, Stage: at, Lo: 2, Hi: 3, Active: 30},
		},
		Tensors: []TensorRec{
			{Tensor: 3, Orig: 1, Bytes: 5}, {Tensor: 3, Orig: 1, Bytes: 5}, {Tensor: 3, Orig: 3, Bytes: 5},
		},
		Swaps: []SwapRec{
			{OpID: 8, Out: true, Bytes: 5, Src: 1, Dst: 2}, {OpID: 8, Bytes: 5, Src: 2, Dst: 3},
		},
		Sequence: []int32{0, 1, 0}, Names: []string{"a", "b"}, Layers: 12,
		Passes: []Pass{{Stage: Stage{Phase: Forward, MicroBatch: 1}, Hash: roll(roll(roll(hashStart, 0), 1), 0)}},
	}
	got := record(newTestRecorder(), 4, Spec{Records: everything})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAnObservationIsNeverTouchedAgain(t *testing.T) {
	r := newTestRecorder()
	first := record(r, 0, Spec{Records: everything})
	want := *first
	want.Ops, want.Tensors = slices.Clone(first.Ops), slices.Clone(first.Tensors)
	want.Swaps, want.Sequence, want.Names = slices.Clone(first.Swaps), slices.Clone(first.Sequence), slices.Clone(first.Names)
	r.names.ID(9, "c")
	r.Timed(8, 1, 1)
	record(r, 1, Spec{Records: everything})
	if diff := cmp.Diff(&want, first); diff != "" {
		t.Errorf("it changed: -was +is:\n%s", diff)
	}
}

func TestNothingIsRecordedWithoutAProfiler(t *testing.T) {
	r := newTestRecorder()
	for _, p := range []Profiler{nil, Spec{}} {
		if o := record(r, 0, p); o != nil {
			t.Errorf("profiler %v recorded %+v", p, o)
		}
		if c := r.OpCost(5) + r.EndCost(); c != 0 {
			t.Errorf("profiler %v costs %d ps", p, c)
		}
	}
}

func TestNames(t *testing.T) {
	var n Names
	for i, key := range []int32{5, 0, 5, 9, 0} {
		if got, want := n.ID(key, "x"), []int32{0, 1, 0, 2, 1}[i]; got != want {
			t.Errorf("meeting %d: id %d, want %d", i, got, want)
		}
	}
}

func TestOpDoesNotAllocate(t *testing.T) {
	r := newTestRecorder()
	args := []TensorRec{{Tensor: 1, Bytes: 1}, {Tensor: 2, Bytes: 1}}
	play := func() {
		r.Begin(0, Spec{Records: everything}) // discards what was recorded
		for i := range int64(1000) {
			r.Op(OpRec{ID: i}, args)
		}
	}
	play()
	if n := testing.AllocsPerRun(10, play); n > 0 {
		t.Errorf("%v allocations in an iteration as long as one before", n)
	}
}

// TestRenewal compares with following each tensor's moves one by one.
func TestRenewal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newTestRecorder()
		r.Begin(0, Spec{Records: everything})
		storages := rapid.IntRange(1, 4).Draw(t, "storages")
		now := make([]Tensor, storages) // id of each storage
		next := Tensor(0)
		for i := range now {
			next++
			now[i] = next
		}
		var uses []int // storage of each recorded tensor
		for op := range rapid.IntRange(0, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, storages-1).Draw(t, "storage")
			if rapid.Bool().Draw(t, "swap") {
				next++
				r.Swap(SwapRec{Src: now[i], Dst: next})
				now[i] = next
				continue
			}
			r.Op(OpRec{ID: int64(op)}, []TensorRec{{Tensor: now[i]}})
			uses = append(uses, i)
		}
		for k, a := range r.End(0, false).Tensors {
			if a.Tensor != now[uses[k]] {
				t.Fatalf("record %d of storage %d has id %d, want the newest, %d", k, uses[k], a.Tensor, now[uses[k]])
			}
		}
	})
}

func TestCosts(t *testing.T) {
	c := Costs{PerOp: 1000, PerTensor: 100, PerStats: 10, PerRecord: 7, PerIteration: 5}
	for _, x := range []struct {
		f    Fields
		want sim.Time
	}{
		{0, 0}, {OpNames, 1000}, {OpNames | TensorArgs, 1300}, {OpRecords | TensorArgs | MemoryStats, 1310},
	} {
		if got := c.Op(x.f, 3); got != x.want {
			t.Errorf("an operator with 3 tensors under %v costs %d, want %d", x.f, got, x.want)
		}
	}
	if got := c.End(4); got != 33 {
		t.Errorf("the end with 4 records costs %d, want 33", got)
	}
}

// TestBorders: a list is handed out once the device has passed all of it, which
// may be an iteration later.
func TestBorders(t *testing.T) {
	r := newTestRecorder()
	iterate := func(i int, reach bool) (tickets []int32, list []Border) {
		r.Begin(i, Spec{Records: OpRecords | BorderTimes})
		for op := range 4 {
			if op%2 == 0 {
				ticket, ok := r.Border()
				if _, again := r.Border(); !ok || again {
					t.Fatalf("border before operator %d: %v, and again %v", op, ok, again)
				}
				tickets = append(tickets, ticket)
			}
			r.Op(OpRec{ID: int64(4*i + op)}, nil)
		}
		end, _ := r.Border()
		tickets = append(tickets, end)
		if reach {
			for k, ticket := range tickets {
				r.Reached(ticket, sim.Time(100*i+10*k))
			}
		}
		return tickets, r.End(1, false).Borders
	}
	first, list := iterate(0, false)
	if list != nil {
		t.Errorf("the device has passed nothing, and there is %v", list)
	}
	for k, ticket := range first {
		r.Reached(ticket, sim.Time(5*k))
	}
	if _, list = iterate(1, false); !slices.Equal(list, []Border{{0, 0}, {2, 5}, {4, 10}}) {
		t.Errorf("borders of the iteration before: %v", list)
	}
	if _, list = iterate(2, true); !slices.Equal(list, []Border{{0, 0}, {2, 10}, {4, 20}}) {
		t.Errorf("borders of this iteration: %v", list)
	}
	r.Begin(3, Spec{Records: OpRecords})
	if _, ok := r.Border(); ok {
		t.Error("a border is recorded that nobody asked for")
	}
}
