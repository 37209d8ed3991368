package direct

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"smartswap/formats/formatstest"
	"smartswap/formats/g10"
	"smartswap/policies"
	"smartswap/sim"
)

// network is the nominal program of a published workload, numbered as in its
// tables, with the times of its kernels.
func network(t testing.TB, name string, batch int) *policies.Nominal {
	t.Helper()
	table := func(kind string) io.Reader {
		return formatstest.Open(t, "g10", "graph", fmt.Sprintf("%s-%d.%s.csv.gz", name, batch, kind))
	}
	g, err := g10.ReadTables(table("kernels"), "kernels", table("tensors"), "tensors")
	if err != nil {
		t.Fatal(err)
	}
	times, err := g10.ReadTimes(formatstest.Open(t, "g10", "traces", name, fmt.Sprintf("cudnn%d.txt", batch)), "times")
	if err != nil {
		t.Fatal(err)
	}
	p := &policies.Nominal{Loss: -1}
	for i, k := range g.Kernels {
		if k.Type == "makeLoss" {
			p.Loss = int32(i)
		}
		p.Kernels = append(p.Kernels, policies.NominalKernel{Span: times[i], In: slices.Clone(k.In), Out: slices.Clone(k.Out)})
	}
	for _, x := range g.Tensors {
		p.Tensors = append(p.Tensors, policies.NominalTensor{Bytes: x.Bytes, Global: x.Global, Birth: x.Birth, Death: x.Death})
	}
	return p
}

// ideal is the sum of the kernel times.
func ideal(p *policies.Nominal) (sum sim.Time) {
	for _, k := range p.Kernels {
		sum += k.Span
	}
	return sum
}
