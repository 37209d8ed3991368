package workloads

import "testing"

// BenchmarkGenerate reports ns per operator of generating and validating a
// program: 16 micro-batches of Llama-2 7B, 4 of Mixtral 8x7B, and both with
// shapes that are new in every iteration.
func BenchmarkGenerate(b *testing.B) {
	for _, c := range []struct {
		name, model string
		batch       int
		processes   []Process
	}{
		{"dense", "llama2-7b", 16, nil},
		{"lengths", "llama2-7b", 16, []Process{VariableLength{Lengths{Sigma: LengthSigma}}}},
		{"experts", "mixtral-8x7b", 4, nil},
		{"imbalance", "mixtral-8x7b", 4, []Process{ExpertImbalance{Start: ImbalanceStart, Tau: ImbalanceTau}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			m, err := LookupModel(c.model)
			if err != nil {
				b.Fatal(err)
			}
			ops := 0
			for b.Loop() {
				w, err := New(Config{Model: m, GlobalBatch: c.batch, Processes: c.processes})
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
		})
	}
}
