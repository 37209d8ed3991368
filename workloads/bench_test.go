package workloads

import "testing"

// BenchmarkGenerate reports ns per operator of generating and validating a
// program: 16 micro-batches of Llama-2 7B.
func BenchmarkGenerate(b *testing.B) {
	m, err := LookupModel("llama2-7b")
	if err != nil {
		b.Fatal(err)
	}
	c := Config{Model: m, GlobalBatch: 16}
	ops := 0
	for b.Loop() {
		w, err := New(c)
		if err != nil {
			b.Fatal(err)
		}
		p, err := w.Program(0, 0)
		if err != nil {
			b.Fatal(err)
		}
		ops += int(p.Ops)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(ops), "ns/operator")
}
