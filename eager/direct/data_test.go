package direct

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"smartswap/formats/g10"
	"smartswap/policies"
	"smartswap/sim"
)

// shared is the folder of the published inputs, beside the module; the test is
// skipped where it is not.
func shared(t testing.TB) string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "data", "g10")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the published inputs are not here: %v", err)
	}
	return dir
}

// network is the nominal program of a published workload, numbered as in its
// tables, with the times of its kernels.
func network(t testing.TB, dir, name string, batch int) *policies.Nominal {
	t.Helper()
	open := func(parts ...string) io.ReadCloser {
		f, err := os.Open(filepath.Join(append([]string{dir}, parts...)...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	table := func(kind string) io.Reader {
		z, err := gzip.NewReader(open("graph", fmt.Sprintf("%s-%d.%s.csv.gz", name, batch, kind)))
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	g, err := g10.ReadTables(table("kernels"), "kernels", table("tensors"), "tensors")
	if err != nil {
		t.Fatal(err)
	}
	times, err := g10.ReadTimes(open("traces", name, fmt.Sprintf("cudnn%d.txt", batch)), "times")
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
