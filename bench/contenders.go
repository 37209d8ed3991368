package bench

import (
	"container/heap"

	"github.com/fschuetz04/simgo"
	akita "github.com/sarchlab/akita/v4/sim"

	"smartswap/sim"
)

// contender makes an engine for a model. The function returned runs one batch:
// it schedules the actors, handles n events in all (idle timers apart) and
// returns how many it did handle. It leaves the engine empty, so that the next
// batch finds it warm.
type contender struct {
	name string
	new  func(m model) func(n int) (fired int)
}

// contenders are the engines compared; the first is ours, the second the
// reference.
var contenders = [...]contender{
	{"sim", newSim},
	{"reference", newReference},
	{"container-heap", newContainerHeap},
	{"akita", newAkita},
	{"simgo", newSimgo},
}

// The engine of this project.

type simLoad struct {
	load
	engine *sim.Engine
	self   sim.HandlerID
}

func (l *simLoad) Handle(arg uint32, _ sim.Stamp) {
	if d, more := l.next(); more {
		l.engine.After(sim.Time(d), sim.PrioDevice, l.self, arg)
	}
}

type simIdle struct{}

func (simIdle) Handle(uint32, sim.Stamp) {}

func newSim(m model) func(n int) int {
	l := &simLoad{load: load{model: m}, engine: sim.NewEngine()}
	l.self = l.engine.Register(l)
	idle := l.engine.Register(simIdle{})
	return func(n int) int {
		l.begin(n)
		for i := range l.idle {
			l.engine.After(farAway, sim.PrioDevice, idle, uint32(i))
		}
		for i := range l.actors {
			l.engine.After(sim.Time(l.delay()), sim.PrioDevice, l.self, uint32(i))
		}
		if err := l.engine.Run(); err != nil {
			panic(err) // no model makes an invalid event
		}
		return l.fired
	}
}

// The reference heap.

type refLoad struct {
	load
	engine *reference
}

func (l *refLoad) handle(arg uint32) {
	if d, more := l.next(); more {
		l.engine.at(l.engine.now+d, 0, arg)
	}
}

type refIdle struct{}

func (refIdle) handle(uint32) {}

func newReference(m model) func(n int) int {
	l := &refLoad{load: load{model: m}, engine: &reference{}}
	l.engine.handlers = []refHandler{l, refIdle{}}
	return func(n int) int {
		l.begin(n)
		for i := range l.idle {
			l.engine.at(l.engine.now+farAway, 1, uint32(i))
		}
		for i := range l.actors {
			l.engine.at(l.engine.now+l.delay(), 0, uint32(i))
		}
		l.engine.run()
		return l.fired
	}
}

// The standard library's heap, with an event allocated for each: how one would
// write an event loop at first.

type heapEvent struct {
	time, seq uint64
	fire      func(arg uint32)
	arg       uint32
}

type eventHeap []*heapEvent

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].time < h[j].time || h[i].time == h[j].time && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(*heapEvent)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

func newContainerHeap(m model) func(n int) int {
	l := &load{model: m}
	var queue eventHeap
	var now, seq uint64
	at := func(t uint64, fire func(uint32), arg uint32) {
		seq++
		heap.Push(&queue, &heapEvent{t, seq, fire, arg})
	}
	var actor func(arg uint32)
	actor = func(arg uint32) {
		if d, more := l.next(); more {
			at(now+d, actor, arg)
		}
	}
	return func(n int) int {
		l.begin(n)
		for i := range l.idle {
			at(now+farAway, func(uint32) {}, uint32(i))
		}
		for i := range l.actors {
			at(now+l.delay(), actor, uint32(i))
		}
		for len(queue) > 0 {
			ev := heap.Pop(&queue).(*heapEvent)
			now = ev.time
			ev.fire(ev.arg)
		}
		return l.fired
	}
}

// akita, a simulator of computer architecture: its serial engine, with events
// made as its components make them. Time is a float in seconds there.

type akitaLoad struct {
	load
	engine *akita.SerialEngine
}

func (l *akitaLoad) Handle(akita.Event) error {
	if d, more := l.next(); more {
		l.after(d, l)
	}
	return nil
}

func (l *akitaLoad) after(d uint64, h akita.Handler) {
	l.engine.Schedule(akita.NewEventBase(l.engine.CurrentTime()+akita.VTimeInSec(d), h))
}

type akitaIdle struct{}

func (akitaIdle) Handle(akita.Event) error { return nil }

func newAkita(m model) func(n int) int {
	return func(n int) int {
		// Time starts anew, as a float holds few large integers.
		l := &akitaLoad{load{model: m}, akita.NewSerialEngine()}
		l.begin(n)
		for range l.idle {
			l.after(farAway, akitaIdle{})
		}
		for range l.actors {
			l.after(l.delay(), l)
		}
		if err := l.engine.Run(); err != nil {
			panic(err) // no handler returns an error
		}
		return l.fired
	}
}

// simgo, in the style of SimPy: timeouts with callbacks, which spares it the
// goroutines of its processes.
func newSimgo(m model) func(n int) int {
	return func(n int) int {
		l := &load{model: m}
		s := simgo.NewSimulation()
		var actor func(*simgo.Event)
		actor = func(*simgo.Event) {
			if d, more := l.next(); more {
				s.Timeout(float64(d)).AddHandler(actor)
			}
		}
		l.begin(n)
		for range l.idle {
			s.Timeout(farAway).AddHandler(func(*simgo.Event) {})
		}
		for range l.actors {
			s.Timeout(float64(l.delay())).AddHandler(actor)
		}
		s.Run()
		return l.fired
	}
}
