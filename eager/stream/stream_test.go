package stream

import (
	"slices"
	"testing"

	"smartswap/hw"
	"smartswap/sim"
)

const us = sim.Microsecond

// rig is a device without a host: commands are enqueued at chosen times.
type rig struct {
	eng *sim.Engine
	*Device
	fabric *Fabric
	log    []string
	steps  []func()
	self   sim.HandlerID
	woken  []sim.Time
}

func newRig() *rig {
	r := &rig{eng: sim.NewEngine()}
	r.fabric = NewFabric(r.eng)
	var beside [hw.NumFamilies]float64
	r.Device = New(r.eng, sim.NewShare(r.eng), nil, r.fabric, beside, 0, 0, r)
	r.self = r.eng.Register(r)
	return r
}

// at runs f at time t.
func (r *rig) at(t sim.Time, f func()) {
	r.steps = append(r.steps, f)
	r.eng.At(t, sim.PrioHost, r.self, uint32(len(r.steps)-1))
}

const awaited = 1 << 20

// Handle runs steps, and notes when awaited events arrive.
func (r *rig) Handle(arg uint32, _ sim.Stamp) {
	if arg == awaited {
		r.woken = append(r.woken, r.eng.Now())
		return
	}
	r.steps[arg]()
}

// Started and Retired log.
func (r *rig) Started(_ *Device, s ID, c *Command) {
	r.log = append(r.log, r.eng.Now().String()+" + "+s.Name())
}

// Retired logs.
func (r *rig) Retired(_ *Device, s ID, c *Command) {
	r.log = append(r.log, r.eng.Now().String()+" - "+s.Name())
}

func (r *rig) put(s ID, c Command) Event {
	e := r.Issue(s)
	r.Enqueue(s, c)
	return e
}

func kernel(t sim.Time) Command {
	return Command{Kind: Kernel, Timing: hw.Timing{Span: t, Demand: 1}}
}

func (r *rig) run(t *testing.T) {
	t.Helper()
	if err := r.eng.Run(); err != nil {
		t.Fatal(err)
	}
}

// TestTies: what ends at an instant frees what waits for it at that instant,
// streams in order of waiting, and a kernel without duration takes none.
func TestTies(t *testing.T) {
	r := newRig()
	r.at(0, func() {
		e := r.put(Compute, kernel(5*us))
		r.put(Comm, Command{Kind: WaitFor, Wait: e, Cause: Order})
		r.put(Comm, kernel(us))
		r.put(Peer, Command{Kind: WaitFor, Wait: e, Cause: Order})
		r.put(Peer, kernel(0))
		r.put(Compute, kernel(us))
	})
	r.run(t)
	want := []string{"0s + compute", "5us - compute", "5us + compute", "5us + comm", "5us + peer", "5us - peer", "6us - compute", "6us - comm"}
	if !slices.Equal(r.log, want) {
		t.Errorf("history %q\nwant    %q", r.log, want)
	}
	if got := r.Lane(Comm).Wait[Order]; got != 5*us {
		t.Errorf("comm waited %v in order, want 5us", got)
	}
}

// TestEvents: an event is complete when its stream has come that far, and not
// before it has been enqueued.
func TestEvents(t *testing.T) {
	r := newRig()
	var first, second Event
	r.at(0, func() {
		if !r.Done(0) || !r.Done(r.End(Compute)) {
			t.Error("nothing has been issued, and something is not done")
		}
		first = r.put(Compute, kernel(5*us))
		second = r.Issue(Compute) // issued, enqueued later
		r.Await(first, r.self, awaited)
		r.Await(second, r.self, awaited)
		r.Await(0, r.self, awaited)
	})
	r.at(5*us, func() {
		if !r.Done(first) || r.Done(second) {
			t.Errorf("first done %v, second done %v", r.Done(first), r.Done(second))
		}
	})
	r.at(9*us, func() { r.Enqueue(Compute, kernel(us)) })
	r.run(t)
	if want := []sim.Time{0, 5 * us, 10 * us}; !slices.Equal(r.woken, want) {
		t.Errorf("woken at %v, want %v", r.woken, want)
	}
	if first.Stream() != Compute || r.End(Compute) != second {
		t.Error("events do not name their stream")
	}
	if l := r.Lane(Compute); l.Busy != 6*us || l.Wait[Empty] != 4*us || l.Runs != 2 {
		t.Errorf("%+v, want 6us busy, 4us empty, 2 runs", l)
	}
}

// TestSlots: the head counts as outstanding until it has retired.
func TestSlots(t *testing.T) {
	r := newRig()
	r.at(0, func() {
		for range 3 {
			r.put(Compute, kernel(2*us))
		}
		if n := r.Outstanding(Compute); n != 3 {
			t.Errorf("%d outstanding, want 3", n)
		}
		r.AwaitSlot(Compute, r.self, awaited)
	})
	r.run(t)
	if want := []sim.Time{2 * us}; !slices.Equal(r.woken, want) {
		t.Errorf("woken at %v, want %v", r.woken, want)
	}
}

// TestRing: order survives growth and wrapping.
func TestRing(t *testing.T) {
	var f fifo
	next, expect := int32(0), int32(0)
	for round := range 200 {
		for range round%7 + 1 {
			f.push(Command{Tag: next})
			next++
		}
		for f.tail-f.head > int64(round%5) {
			if got := f.at(f.head).Tag; got != expect {
				t.Fatalf("%d comes out, want %d", got, expect)
			}
			f.head++
			expect++
		}
	}
}

// TestUnfinishedMeeting: a rendezvous that lacks a member is told.
func TestUnfinishedMeeting(t *testing.T) {
	r := newRig()
	g := r.fabric.Group(2)
	r.at(0, func() { r.put(Comm, Command{Kind: Meet, Group: g, Timing: hw.Timing{Span: us}}) })
	r.run(t)
	if group, here, of, ok := r.fabric.Waiting(); !ok || group != int(g) || here != 1 || of != 2 {
		t.Errorf("waiting: group %d, %d of %d, %v", group, here, of, ok)
	}
}
