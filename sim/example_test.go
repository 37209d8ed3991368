package sim_test

import (
	"fmt"

	"smartswap/sim"
)

// logger prints when something ends.
type logger struct {
	engine *sim.Engine
	names  []string
}

func (l *logger) Handle(arg uint32, _ sim.Stamp) {
	fmt.Println(l.engine.Now(), l.names[arg])
}

// A kernel that wants the whole memory bandwidth runs beside a copy from the
// host. The copy is held by its link; what it draws from the memory slows the
// kernel from 100 to 102 microseconds.
func Example() {
	engine := sim.NewEngine()
	share := sim.NewShare(engine)
	memory := share.Resource("HBM", sim.GBps(1600))
	link := share.Resource("host to device", sim.GBps(32))
	done := engine.Register(&logger{engine, []string{"kernel", "copy"}})

	share.Start(sim.FlowSpec{
		Path: []sim.Use{{Resource: memory}},
		Cap:  sim.GBps(1600),
		Work: sim.SpanWork(100*sim.Microsecond, sim.GBps(1600)),
		Done: done, Arg: 0,
	})
	share.Start(sim.FlowSpec{
		Path: []sim.Use{{Resource: link}, {Resource: memory}},
		Cap:  sim.GBps(64),
		Work: sim.BytesWork(3_200_000),
		Done: done, Arg: 1,
	})
	if err := engine.Run(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 100us copy
	// 102us kernel
}

// ping schedules its next event until it has had enough.
type ping struct {
	engine *sim.Engine
	self   sim.HandlerID
}

func (p *ping) Handle(count uint32, _ sim.Stamp) {
	fmt.Println("ping", count, "at", p.engine.Now())
	if count < 3 {
		p.engine.After(250*sim.Nanosecond, sim.PrioHost, p.self, count+1)
	}
}

func ExampleEngine() {
	engine := sim.NewEngine()
	p := &ping{engine: engine}
	p.self = engine.Register(p)
	engine.At(sim.Microsecond, sim.PrioHost, p.self, 1)
	fmt.Println(engine.Run(), engine.Events())
	// Output:
	// ping 1 at 1us
	// ping 2 at 1.25us
	// ping 3 at 1.5us
	// <nil> 3
}

func ExampleStream() {
	skips := sim.NewStream(42, "overflow")
	for iteration := range 4 {
		fmt.Print(skips.Bernoulli(0, iteration, 0, 0.5), " ")
	}
	// The third again, on its own: the same value.
	fmt.Println(skips.Bernoulli(0, 2, 0, 0.5))
	// Output:
	// true true true false true
}
