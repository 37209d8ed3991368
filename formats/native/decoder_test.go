package native_test

import (
	"bytes"
	"testing"

	"smartswap/formats/native"
	"smartswap/workloads"
	"smartswap/workloads/workloadstest"
)

// decoder is a real workload: two pipeline stages of a 7B model whose
// iterations vary.
func decoder(t testing.TB) workloads.Workload {
	t.Helper()
	model, err := workloads.LookupModel("llama2-7b")
	if err != nil {
		t.Fatal(err)
	}
	w, err := workloads.New(workloads.Config{
		Model: model, PP: 2, TP: 2, DP: 2, SequenceParallel: true, GlobalBatch: 8, SaveRule: workloads.Eager,
		Processes: []workloads.Process{workloads.OverflowSkip{Probability: 0.5}, workloads.Validation{Every: 2, Batches: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestDecoderRoundTrip(t *testing.T) {
	roundTrip(t, decoder(t), 6)
}

// A workload that was read keeps every promise of a workload, and executes in
// the same time as the one that was written.
func TestReadConforms(t *testing.T) {
	original := decoder(t)
	var text bytes.Buffer
	if err := native.Write(&text, original, 4); err != nil {
		t.Fatal(err)
	}
	fresh := func() workloads.Workload { return read(t, text.String()) }
	workloadstest.Conformance(t, 5, fresh)
	cost := func(k *workloads.Kernel) int64 { return 1 + k.Flops/1e9 + int64(k.Size) }
	for i := range 4 {
		want, err := workloadstest.Play(original, i, cost)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := workloadstest.Play(fresh(), i, cost); got != want || err != nil {
			t.Errorf("iteration %d takes %d, %v; the original %d", i, got, err, want)
		}
	}
	for _, name := range []string{"demo.trace", "two-ranks.trace"} {
		workloadstest.Conformance(t, 3, func() workloads.Workload { return read(t, file(t, name)) })
	}
}

// BenchmarkWrite and BenchmarkRead report bytes of text and time per operator.
func BenchmarkWrite(b *testing.B) {
	w := decoder(b)
	text, ops := written(b, w)
	for b.Loop() {
		written(b, w)
	}
	report(b, text, ops)
}

func BenchmarkRead(b *testing.B) {
	text, ops := written(b, decoder(b))
	for b.Loop() {
		if _, err := native.Read(bytes.NewReader(text), "f"); err != nil {
			b.Fatal(err)
		}
	}
	report(b, text, ops)
}

// written is one iteration as text, and its operators over all ranks.
func written(b *testing.B, w workloads.Workload) (text []byte, ops int) {
	var buf bytes.Buffer
	if err := native.Write(&buf, w, 1); err != nil {
		b.Fatal(err)
	}
	for r := range w.Ranks() {
		p, err := w.Program(r, 0)
		if err != nil {
			b.Fatal(err)
		}
		ops += int(p.Ops)
	}
	return buf.Bytes(), ops
}

func report(b *testing.B, text []byte, ops int) {
	b.ReportMetric(float64(len(text))/float64(ops), "B/operator")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(ops), "ns/operator")
}
