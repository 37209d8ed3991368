package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// handlerFunc is a Handler made of a function.
type handlerFunc func(arg uint32, stamp Stamp)

func (f handlerFunc) Handle(arg uint32, stamp Stamp) { f(arg, stamp) }

// verify checks what the documentation of heap and lane promises.
func verify(t interface {
	Helper()
	Fatalf(string, ...any)
}, e *Engine) {
	t.Helper()
	for i := 1; i < len(e.future); i++ {
		if parent := (i - 1) / arity; e.future[i].before(&e.future[parent]) {
			t.Fatalf("heap: node %d %+v is before its parent %d %+v", i, e.future[i], parent, e.future[parent])
		}
	}
	for p := range e.lane {
		lane := e.lane[p]
		if busy := e.busy>>p&1 == 1; busy != (lane.len() > 0) {
			t.Fatalf("lane %d holds %d events and its bit is %v", p, lane.len(), busy)
		}
		for ; lane.len() > 0; lane.pop() {
			if ev := lane.front(); ev.time != e.now || ev.key>>seqBits != uint64(p) {
				t.Fatalf("lane %d at %v holds %+v", p, e.now, *ev)
			}
		}
	}
}

// All events tie: priority decides, then the order of scheduling, whether they
// wait in the heap or in a lane.
func TestTies(t *testing.T) {
	for _, at := range []Time{0, 7} {
		t.Run(at.String(), func(t *testing.T) {
			e := NewEngine()
			var got []uint32
			h := e.Register(handlerFunc(func(arg uint32, _ Stamp) {
				verify(t, e)
				got = append(got, arg)
			}))
			var want []uint32
			const each = 20 // more than a lane first has room for
			for i := range uint32(each) {
				for p := int(numPriorities) - 1; p >= 0; p-- {
					e.At(at, Priority(p), h, uint32(p)*each+i)
					verify(t, e)
				}
			}
			for i := range uint32(numPriorities) * each {
				want = append(want, i)
			}
			if err := e.Run(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// Events of one instant that were scheduled before it (heap) and at it (lane)
// mix as if they were in one queue.
func TestHeapAndLaneTie(t *testing.T) {
	e := NewEngine()
	var got []string
	names := []string{"first", "host, early", "observe, early", "host, late", "finish, late", "device, late", "finish, from host"}
	var h HandlerID
	h = e.Register(handlerFunc(func(arg uint32, _ Stamp) {
		got = append(got, names[arg])
		switch arg {
		case 0:
			e.At(10, PrioHost, h, 3)
			e.At(10, PrioFinish, h, 4)
			e.After(0, PrioDevice, h, 5)
		case 1:
			e.At(10, PrioFinish, h, 6) // an earlier priority, but now
		}
	}))
	e.At(10, PrioObserve, h, 2)
	e.At(10, PrioHost, h, 1)
	e.At(10, PrioDevice, h, 0)
	if err := e.Run(); err != nil {
		t.Fatal(err)
	}
	want := []string{"first", "finish, late", "device, late", "host, early", "finish, from host", "host, late", "observe, early"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// naive is the engine as one would explain it: a slice that is searched.
type naive struct {
	now    Time
	seq    Stamp
	events []naiveEvent
}

type naiveEvent struct {
	Time  Time
	Prio  Priority
	Stamp Stamp
	Arg   uint32
}

func (n *naive) at(t Time, p Priority, arg uint32) Stamp {
	n.seq++
	n.events = append(n.events, naiveEvent{t, p, n.seq, arg})
	return n.seq
}

func (n *naive) pop() naiveEvent {
	slices.SortFunc(n.events, func(a, b naiveEvent) int {
		switch {
		case a.Time != b.Time:
			return int(a.Time - b.Time)
		case a.Prio != b.Prio:
			return int(a.Prio) - int(b.Prio)
		}
		return int(a.Stamp) - int(b.Stamp)
	})
	first := n.events[0]
	n.events = n.events[1:]
	n.now = first.Time
	return first
}

// Random histories, most of them ties, agree with the naive engine event by
// event.
func TestOrderAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type child struct {
			delay Time
			prio  Priority
		}
		// What the i-th event to fire schedules.
		script := rapid.SliceOfN(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) child {
			return child{
				rapid.SampledFrom([]Time{0, 0, 0, 1, 1, 2, 5, 1000}).Draw(t, "delay"),
				Priority(rapid.IntRange(0, int(numPriorities)-1).Draw(t, "priority")),
			}
		}), 0, 12), 1, 40).Draw(t, "script")

		e, model := NewEngine(), &naive{}
		var got naiveEvent
		var fired int
		h := e.Register(handlerFunc(func(arg uint32, stamp Stamp) {
			got = naiveEvent{Time: e.Now(), Stamp: stamp, Arg: arg}
		}))
		schedule := func() {
			if fired < len(script) {
				for i, c := range script[fired] {
					arg := uint32(fired*100 + i)
					a, b := e.After(c.delay, c.prio, h, arg), model.at(model.now+c.delay, c.prio, arg)
					if a != b {
						t.Fatalf("stamp %d, want %d", a, b)
					}
				}
			}
			fired++
			verify(t, e)
		}
		schedule()
		for len(model.events) > 0 {
			if e.Pending() != len(model.events) {
				t.Fatalf("%d pending, want %d", e.Pending(), len(model.events))
			}
			if more, err := e.Step(); !more || err != nil {
				t.Fatalf("Step = %v, %v with %d events pending", more, err, len(model.events))
			}
			want := model.pop()
			want.Prio = 0 // not visible to a handler
			if got != want {
				t.Fatalf("event %d: %+v, want %+v", fired, got, want)
			}
			schedule()
		}
		if more, err := e.Step(); more || err != nil || e.Pending() != 0 {
			t.Fatalf("Step = %v, %v, %d pending at the end", more, err, e.Pending())
		}
		if int(e.Events()) != fired-1 {
			t.Fatalf("%d events, want %d", e.Events(), fired-1)
		}
	})
}

// ticker makes an engine that fires forever, each event one period after the
// one before, the first at 0.
func ticker(period Time) *Engine {
	e := NewEngine()
	var h HandlerID
	h = e.Register(handlerFunc(func(arg uint32, _ Stamp) { e.After(period, PrioDevice, h, arg+1) }))
	e.At(0, PrioDevice, h, 0)
	return e
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name    string
		limits  Limits
		events  uint64
		message string
	}{
		{"events", Limits{Events: 5}, 5, "sim: event limit 5 reached at 40ps after 5 events; the next of 1 pending is due at 50ps"},
		{"an event at the limit still fires", Limits{Time: 50}, 6, "sim: time limit 50ps reached at 50ps after 6 events; the next of 1 pending is due at 60ps"},
		{"between events", Limits{Time: 59}, 6, "sim: time limit 59ps reached at 50ps after 6 events; the next of 1 pending is due at 60ps"},
		{"events before time", Limits{Events: 3, Time: 59}, 3, "sim: event limit 3 reached at 20ps after 3 events; the next of 1 pending is due at 30ps"},
		{"time before events", Limits{Events: 300, Time: 5}, 1, "sim: time limit 5ps reached at 0s after 1 events; the next of 1 pending is due at 10ps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := ticker(10)
			e.SetLimits(c.limits)
			err := e.Run()
			var limit *LimitError
			if !errors.As(err, &limit) {
				t.Fatalf("Run = %v, want a *LimitError", err)
			}
			want := LimitError{Now: e.Now(), Events: c.events, Next: e.Now() + 10, Pending: 1, Limits: c.limits}
			if *limit != want || err.Error() != c.message {
				t.Errorf("%+v %q\nwant %+v %q", *limit, err, want, c.message)
			}
			// The event was refused, not lost: wider limits go on with it.
			e.SetLimits(Limits{Events: c.events + 1})
			if err := e.Run(); !errors.As(err, &limit) || e.Events() != c.events+1 || e.Now() != want.Next {
				t.Errorf("going on: %v at %v", err, e.Now())
			}
		})
	}
}

// Nothing fires at Forever: a run that gets there has run out of time.
func TestForever(t *testing.T) {
	e := NewEngine()
	h := e.Register(handlerFunc(func(uint32, Stamp) {}))
	e.At(Forever-1, PrioHost, h, 0)
	e.At(5, PrioHost, h, 0)
	if _, err := e.Step(); err != nil {
		t.Fatal(err)
	}
	e.After(Forever, PrioHost, h, 0) // 5 + Forever does not wrap
	var limit *LimitError
	if err := e.Run(); !errors.As(err, &limit) || limit.Now != Forever-1 || limit.Next != Forever {
		t.Errorf("Run = %v", err)
	}
}

func TestMisuse(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(e *Engine, h HandlerID)
		want string
	}{
		{"past", func(e *Engine, h HandlerID) { e.At(9, PrioHost, h, 0) }, "sim: event at 9ps for sim.handlerFunc lies before the clock at 10ps"},
		{"negative delay", func(e *Engine, h HandlerID) { e.After(-1, PrioHost, h, 0) }, "sim: event at 9ps for sim.handlerFunc lies before the clock at 10ps"},
		{"priority", func(e *Engine, h HandlerID) { e.After(1, numPriorities, h, 0) }, "sim: event at 11ps for sim.handlerFunc with priority 5, want at most 4"},
		{"handler", func(e *Engine, h HandlerID) { e.After(1, PrioHost, h+1, 0) }, "sim: event at 11ps for handler 1, which is not registered (there are 1)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := NewEngine()
			var h HandlerID
			h = e.Register(handlerFunc(func(arg uint32, _ Stamp) { c.do(e, h) }))
			e.At(10, PrioHost, h, 0)
			e.At(20, PrioHost, h, 0)
			for range 2 { // the error stays
				if err := e.Run(); err == nil || err.Error() != c.want {
					t.Errorf("Run = %v, want %s", err, c.want)
				}
			}
			if e.Events() != 1 {
				t.Errorf("%d events handled, want the one that failed", e.Events())
			}
		})
	}
}

func TestFirstFailureWins(t *testing.T) {
	e := NewEngine()
	first := errors.New("first")
	e.Fail(first)
	e.Fail(errors.New("second"))
	if err := e.Run(); err != first {
		t.Errorf("Run = %v, want %v", err, first)
	}
	if more, err := e.Step(); more || err != first {
		t.Errorf("Step = %v, %v", more, err)
	}
}

func TestStop(t *testing.T) {
	e := NewEngine()
	var h HandlerID
	h = e.Register(handlerFunc(func(arg uint32, _ Stamp) {
		e.After(1, PrioHost, h, arg+1)
		if arg%3 == 2 {
			e.Stop()
		}
	}))
	e.At(0, PrioHost, h, 0)
	for _, want := range []uint64{3, 6} {
		if err := e.Run(); err != nil || e.Events() != want {
			t.Errorf("Run = %v after %d events, want nil after %d", err, e.Events(), want)
		}
	}
	e.Stop()
	if err := e.Run(); err != nil || e.Events() != 6 {
		t.Errorf("stopped before it began: %v after %d events", err, e.Events())
	}
	if err := e.Run(); err != nil || e.Events() != 9 {
		t.Errorf("after that: %v after %d events", err, e.Events())
	}
}

// The fingerprint is the same for the same history, and tells apart histories
// that differ in any one thing.
func TestFingerprint(t *testing.T) {
	type step struct {
		time    Time
		prio    Priority
		handler HandlerID
		arg     uint32
	}
	history := func(steps ...step) uint64 {
		e := NewEngine()
		e.EnableFingerprint()
		for range 3 {
			e.Register(handlerFunc(func(uint32, Stamp) {}))
		}
		for _, s := range steps {
			e.At(s.time, s.prio, s.handler, s.arg)
		}
		if err := e.Run(); err != nil {
			t.Fatal(err)
		}
		return e.Fingerprint()
	}
	a, b := step{5, PrioDevice, 1, 2}, step{5, PrioDevice, 2, 1}
	if first, second := history(a, b), history(a, b); first != second {
		t.Error("the same history has two fingerprints")
	}
	seen := map[uint64]string{}
	for _, h := range [][]step{
		{}, {a}, {a, a}, {a, b}, {b, a},
		{{6, PrioDevice, 1, 2}}, {{5, PrioHost, 1, 2}}, {{5, PrioDevice, 0, 2}}, {{5, PrioDevice, 1, 3}},
	} {
		print, name := history(h...), fmt.Sprint(h)
		if other, ok := seen[print]; ok {
			t.Errorf("%s and %s have the same fingerprint", name, other)
		}
		seen[print] = name
	}
}

// A warm engine allocates nothing, in the heap or in the lanes.
func TestNoAllocation(t *testing.T) {
	e := NewEngine()
	left := 0
	var h HandlerID
	h = e.Register(handlerFunc(func(arg uint32, _ Stamp) {
		if left--; left > 0 {
			e.After(Time(arg%3), Priority(arg)%numPriorities, h, arg+1)
		}
	}))
	run := func() {
		left = 1000
		for i := range uint32(50) {
			e.After(Time(i%7), PrioDevice, h, i)
		}
		if err := e.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if allocs := testing.AllocsPerRun(10, run); allocs != 0 {
		t.Errorf("%v allocations per run, want 0", allocs)
	}
}

// A ring that grows while its content wraps around keeps the order.
func TestFifoWraps(t *testing.T) {
	var f fifo
	var put, taken uint32
	for _, n := range []int{5, 8, 3, 20, 1, 40} {
		for range n {
			f.push(event{arg: put})
			put++
		}
		for range n / 2 {
			if got := f.front().arg; got != taken {
				t.Fatalf("front is %d, want %d", got, taken)
			}
			f.pop()
			taken++
		}
	}
	for ; f.len() > 0; taken++ {
		if got := f.front().arg; got != taken {
			t.Fatalf("front is %d, want %d", got, taken)
		}
		f.pop()
	}
	if taken != put {
		t.Errorf("%d taken of %d", taken, put)
	}
}

func TestStrings(t *testing.T) {
	var got []string
	for _, x := range []fmt.Stringer{
		Time(0), Time(1), Time(999), Time(1000), Time(1001), Time(-1500), Time(1_234_567_000), 3 * Second, Second + 1, Forever, -Forever - 1,
		Rate(0), Rate(999), Rate(1000), GBps(25.6), GBps(1935), Rate(-1500),
		Bytes(0), Bytes(1023), KiB, 3 * GiB / 2, 64 * GiB, 5000 * GiB,
	} {
		got = append(got, x.String())
	}
	want := "0s 1ps 999ps 1ns 1.001ns -1.5ns 1.234567ms 3s 1.000000000001s forever -forever " +
		"0B/s 999B/s 1kB/s 25.6GB/s 1.935TB/s -1.5kB/s " +
		"0B 1023B 1KiB 1.5GiB 64GiB 4.883TiB"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestFromSeconds(t *testing.T) {
	nan := 0.0
	nan /= nan
	for s, want := range map[float64]Time{0: 0, -1: 0, 1e-12: 1, 2.5: 5 * Second / 2, 1e30: Forever} {
		if got := FromSeconds(s); got != want {
			t.Errorf("FromSeconds(%v) = %v, want %v", s, got, want)
		}
	}
	if got := FromSeconds(nan); got != 0 {
		t.Errorf("FromSeconds(NaN) = %v, want 0", got)
	}
}

// Next is the time of the event that fires next, from the heap or a lane.
func TestNext(t *testing.T) {
	e := NewEngine()
	if at, ok := e.Next(); ok {
		t.Errorf("an engine without events: %v", at)
	}
	var got []Time
	var h HandlerID
	h = e.Register(handlerFunc(func(arg uint32, _ Stamp) {
		if arg == 1 {
			e.At(e.Now(), PrioHost, h, 0)
		}
		if at, ok := e.Next(); ok {
			got = append(got, at)
		}
	}))
	e.At(7, PrioHost, h, 1)
	e.At(9, PrioFinish, h, 0)
	if at, ok := e.Next(); !ok || at != 7 {
		t.Errorf("next at %v, %v", at, ok)
	}
	if err := e.Run(); err != nil || !slices.Equal(got, []Time{7, 9}) {
		t.Errorf("next at %v, %v", got, err)
	}
}
