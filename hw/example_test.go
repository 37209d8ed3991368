package hw_test

import (
	"fmt"

	"smartswap/hw"
	"smartswap/sim"
)

// A node of the catalogue, what a kernel takes on its devices, and two copies
// of 64 MiB that leave and enter one of them at the same time.
func Example() {
	node, err := hw.Load("a100-80-8")
	if err != nil {
		fmt.Println(err)
		return
	}
	kernel := node.Device.Timing(hw.Work{
		Family: hw.MatMul, Dtype16: true, M: 4096, N: 4096, K: 4096,
		Flops: 2 << 36, Traffic: 3 << 25,
	})
	fmt.Println("kernel:", kernel.Span >= 500*sim.Microsecond && kernel.Span <= 700*sim.Microsecond)

	engine := sim.NewEngine()
	machine, err := hw.NewMachine(engine, sim.NewShare(engine), node, []hw.Slot{{Devices: []int{0}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	machine.OnCopy(func(_ int, c hw.Copy, start, end sim.Time) {
		fmt.Printf("%v: %.1f GB/s\n", c.Direction, float64(c.Bytes)/(end-start).Seconds()/1e9)
	})
	ignore := engine.Register(nobody{})
	for _, direction := range []hw.Direction{hw.D2H, hw.H2D} {
		machine.Submit(0, hw.Copy{Direction: direction, Bytes: 64 * sim.MiB, Done: ignore})
	}
	if err := engine.Run(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// kernel: true
	// d2h: 23.9 GB/s
	// h2d: 15.7 GB/s
}

type nobody struct{}

func (nobody) Handle(uint32, sim.Stamp) {}
