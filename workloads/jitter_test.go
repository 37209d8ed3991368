package workloads_test

import (
	"testing"

	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// measured is a workload of one rank with kernels that take what is given, and
// one that is modelled.
type measured struct{ p *workloads.Program }

func (measured) Name() string                                   { return "measured" }
func (m measured) Ranks() []workloads.Rank                      { return []workloads.Rank{{Devices: []int{0}}} }
func (m measured) Program(int, int) (*workloads.Program, error) { return m.p, nil }
func (measured) Tokens() int64                                  { return 7 }
func (measured) Names() *workloads.Names                        { return nil }

func TestJitter(t *testing.T) {
	names := workloads.NewNames()
	b := workloads.NewBuilder(names, nil)
	const n = 2000
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	for range n { // equal kernels share one entry of the table
		b.Op(workloads.OpSpec{Name: names.ID("k"), Kernel: workloads.Kernel{Work: hw.Work{Kind: hw.Measured, Time: sim.Millisecond, Faulting: [2]sim.Time{2 * sim.Millisecond, 4 * sim.Millisecond}}}})
	}
	b.Op(workloads.OpSpec{Name: names.ID("m"), Kernel: workloads.Kernel{Work: hw.Work{Kind: hw.Modelled, Flops: 5}}})
	b.Op(workloads.OpSpec{Name: names.ID("h"), HostOnly: true})
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	p, err := b.Program("train")
	if err != nil {
		t.Fatal(err)
	}
	w := measured{p}
	if workloads.Jitter(w, 0, 1) != workloads.Workload(w) || workloads.Nominal(w) != workloads.Workload(w) {
		t.Error("no jitter is another workload")
	}
	j := workloads.Jitter(w, 0.25, 1)
	if workloads.Nominal(j) != workloads.Workload(w) {
		t.Error("planners do not see the clean workload")
	}
	q, err := j.Program(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := j.Program(0, 5); again != q {
		t.Error("the times of another iteration differ")
	}
	other, err := workloads.Jitter(w, 0.25, 2).Program(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var sum, least, most sim.Time = 0, sim.Second, 0
	same := 0
	for i := range n {
		k, o := q.Kernels[q.Instrs[i+1].Kernel], other.Kernels[other.Instrs[i+1].Kernel]
		sum += k.Time
		least, most = min(least, k.Time), max(most, k.Time)
		for f, clean := range []sim.Time{2, 4} {
			if d := k.Faulting[f] - clean*k.Time; d < -4 || d > 4 {
				t.Fatalf("kernel %d: %v, with faults %v", i, k.Time, k.Faulting)
			}
		}
		if k.Time == o.Time {
			same++
		}
	}
	ms := sim.Millisecond
	if mean := sum / n; mean < 99*ms/100 || mean > 101*ms/100 || least < 75*ms/100 || least > 76*ms/100 || most > 125*ms/100 || most < 124*ms/100 {
		t.Errorf("of %d kernels: mean %v, from %v to %v", n, mean, least, most)
	}
	if same > n/100 {
		t.Errorf("%d kernels have the same time under another seed", same)
	}
	if k := q.Kernels[q.Instrs[n+1].Kernel]; k.Flops != 5 || k.Time != 0 || q.Instrs[n+2].Kernel != -1 {
		t.Errorf("kernels without a measured time changed: %+v", k)
	}
	if p.Kernels[0].Time != sim.Millisecond || len(p.Kernels) != 2 {
		t.Error("the clean program has changed")
	}
	if tokens, err := j.(workloads.TokenCounter).TokensIn(3); tokens != 7 || err != nil {
		t.Errorf("tokens %d, %v", tokens, err)
	}
}
