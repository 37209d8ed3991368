package eager_test

import (
	"testing"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"
)

// orderCases are programs in which communication is ordered behind what the
// program has issued at that point, and behind nothing that the runtime does for
// the operators in between.
var orderCases = []struct {
	name    string
	over    bool
	evict   bool          // in place of discards
	discard map[int][]int // as in lineageCases
	program func(b *workloads.Builder, n *workloads.Names)
	time    sim.Time // of the run, in us
}{
	{
		name:    "communication reads what was made again meanwhile",
		discard: map[int][]int{0: {1}},
		program: readsBehind, time: 10 + 10 + 10, // the gather runs beside b
	},
	{
		name:    "communication reads what came back meanwhile",
		evict:   true,
		discard: map[int][]int{0: {1}},
		program: readsBehind, time: 10 + 50 + 50 + 10, // 50,000 bytes each way at 1 GB/s
	},
	{
		name:    "communication changes what an operator that ran again reads",
		discard: map[int][]int{1: {2}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z := b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 10), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 10), workloads.In(x), workloads.Out(y))
			b.Order(workloads.Compute, workloads.Comm)
			b.Op(again(n, "c", 10), workloads.In(y), workloads.Out(z))
			b.Op(onComm(n, 15), workloads.InPlace(x))
			b.Order(workloads.Comm, workloads.Compute)
			drop(b, x, y, z)
		},
		time: 10 + 10 + 10 + 15, // the change comes after b', beside c
	},
	{
		name:    "communication reads what is made again where it is",
		discard: map[int][]int{1: {1}},
		over:    true,
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z, u := b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 10), workloads.In(0), workloads.Out(x), workloads.Out(y))
			b.Order(workloads.Compute, workloads.Comm)
			b.Op(onComm(n, 100), workloads.In(y), workloads.Out(z))
			b.Op(again(n, "b", 10), workloads.In(x), workloads.Out(u))
			b.Order(workloads.Comm, workloads.Compute)
			drop(b, x, y, z, u)
		},
		time: 10 + 100 + 10 + 10,
	},
}

func readsBehind(b *workloads.Builder, n *workloads.Names) {
	x, y, z := b.New(tensor(50_000)), b.New(tensor(512)), b.New(tensor(512))
	b.Op(again(n, "a", 10), workloads.In(0), workloads.Out(x))
	b.Order(workloads.Compute, workloads.Comm)
	b.Op(again(n, "b", 10), workloads.In(x), workloads.Out(y))
	b.Op(onComm(n, 5), workloads.In(x), workloads.Out(z))
	b.Order(workloads.Comm, workloads.Compute)
	drop(b, x, y, z)
}

func onComm(n *workloads.Names, us int64) workloads.OpSpec {
	o := eagertest.Kernel(n, "gather", sim.Time(us)*sim.Microsecond)
	o.Lane = workloads.Comm
	return o
}

// evictor evicts what it is told to discard.
type evictor struct{ *discarder }

func (e evictor) Handle(ev *policies.Event, rt policies.Runtime) {
	e.discarder.Handle(ev, evicting{rt})
}

type evicting struct{ policies.Runtime }

func (e evicting) Do(a policies.Action) policies.Outcome {
	a.Kind = policies.Evict
	return e.Runtime.Do(a)
}

func TestOtherStreamsWait(t *testing.T) {
	for _, c := range orderCases {
		t.Run(c.name, func(t *testing.T) {
			w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, n *workloads.Names) { c.program(b, n) })
			if err != nil {
				t.Fatal(err)
			}
			d := &discarder{at: c.discard, needs: policies.Lineage{Keep: true, Overwrite: c.over}}
			cfg := eagertest.Config(eagertest.Node(1), w)
			cfg.NewPolicy = func() (policies.Policy, error) {
				if c.evict {
					return evictor{d}, nil
				}
				return d, nil
			}
			r, err := eager.Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r.OOM != nil || len(r.Violations) > 0 {
				t.Errorf("%v, %q", r.OOM, r.Violations)
			}
			if d.refused > 0 || r.Makespan != c.time*sim.Microsecond {
				t.Errorf("%d refused; took %v, want %v", d.refused, r.Makespan, c.time*sim.Microsecond)
			}
		})
	}
}
