package workloads_test

import (
	"fmt"

	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// A program by hand: one operator writes an activation that is kept, one reads
// it back.
func ExampleBuilder() {
	names := workloads.NewNames()
	square, grad := names.ID("square"), names.ID("square_backward")
	weights := []workloads.Storage{{Bytes: sim.MiB, Class: workloads.Parameter, Label: names.ID("weight")}}

	b := workloads.NewBuilder(names, weights)
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	b.Mark(workloads.MarkForwardBegin, 1, 0)
	y := b.New(workloads.Storage{Bytes: 4 * sim.MiB})
	work := workloads.Kernel{Work: hw.Work{Kind: hw.Measured, Time: 20 * sim.Microsecond}}
	b.Op(workloads.OpSpec{Name: square, Kernel: work}, workloads.In(0), workloads.Out(y))
	b.Save(y)
	b.Drop(y)
	b.Mark(workloads.MarkForwardEnd, 1, 0)
	b.Mark(workloads.MarkBackwardBegin, 1, 0)
	b.Unpack(y)
	b.Op(workloads.OpSpec{Name: grad, Kernel: work}, workloads.In(y), workloads.InPlace(0))
	b.Drop(y)
	b.Mark(workloads.MarkBackwardEnd, 1, 0)
	b.Mark(workloads.MarkIterationEnd, 0, 0)

	p, err := b.Program("train")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d operators, %d kernel, peak %d MiB\n", p.Ops, len(p.Kernels), workloads.PeakLive(p, 1)/sim.MiB)
	// Output:
	// 2 operators, 1 kernel, peak 5 MiB
}
