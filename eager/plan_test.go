package eager_test

import (
	"slices"
	"testing"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/policies"
	"smartswap/policies/smartswap"
	"smartswap/profilers"
	"smartswap/sim"
	"smartswap/workloads"
)

// inTurn is a workload whose iterations are made by others.
type inTurn struct {
	*eagertest.Script
	other *eagertest.Script
	from  int // iteration from which the other runs
}

func (w inTurn) Program(rank, i int) (*workloads.Program, error) {
	if i >= w.from {
		return w.other.Program(rank, i)
	}
	return w.Script.Program(rank, i)
}

// stack is a forward and a backward pass over layers that keep one tensor each;
// inserted operators come first.
func stack(layers, inserted int) func(int, *workloads.Builder, *workloads.Names) {
	return func(_ int, b *workloads.Builder, n *workloads.Names) {
		for _, name := range []string{"embed", "log", "f", "g"} { // the same ids in both programs
			n.ID(name)
		}
		x := make([]workloads.StorageID, layers)
		b.Mark(workloads.MarkForwardBegin, 1, 0)
		y := b.New(tensor(1000))
		b.Op(eagertest.Kernel(n, "embed", us), workloads.Out(y))
		for range inserted {
			b.Op(eagertest.Kernel(n, "log", us), workloads.InPlace(y))
		}
		for l := range x {
			x[l] = b.New(tensor(100_000))
			b.Op(eagertest.Kernel(n, "f", 10*us), workloads.In(y), workloads.Out(x[l]))
			b.Op(eagertest.Kernel(n, "f", 200*us), workloads.InPlace(y))
		}
		b.Mark(workloads.MarkForwardEnd, 1, 0)
		b.Mark(workloads.MarkBackwardBegin, 1, 0)
		for l := layers - 1; l >= 0; l-- {
			b.Op(eagertest.Kernel(n, "g", 200*us), workloads.InPlace(y), workloads.In(x[l]))
			b.Drop(x[l])
		}
		b.Drop(y)
		b.Mark(workloads.MarkBackwardEnd, 1, 0)
	}
}

// TestMatching: in iterations like the one that was profiled all ways to match
// find the same. After an insertion, positions find nothing, histories most, the
// truth everything.
func TestMatching(t *testing.T) {
	const layers, iterations = 24, 8
	script := func(inserted int) *eagertest.Script {
		s, err := eagertest.NewScript(make([][]workloads.Storage, 1), stack(layers, inserted))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	profiler, err := profilers.Lookup("detailed")
	if err != nil {
		t.Fatal(err)
	}
	matched := func(match string, from int) int64 {
		cfg := eagertest.Config(eagertest.Node(1), inTurn{script(0), script(1), from})
		cfg.Iterations, cfg.Profiler, cfg.Layers = iterations, profiler, 12
		cfg.Executor.Match = match
		cfg.NewPolicy = func() (policies.Policy, error) {
			o := smartswap.FaithfulV2() // one plan, for ever
			o.Planner, o.Optimizer = smartswap.PlanLinks, smartswap.OptimizerOff
			o.MinTensor, o.Target, o.Reduction = 1000, smartswap.Reduction, 1_200_000
			o.Bandwidth = 953 // MiB/s, as the node has
			return smartswap.New(o), nil
		}
		r, err := eager.Run(cfg)
		if err != nil || len(r.Violations) > 0 {
			t.Fatal(err, r)
		}
		return r.Ranks[0].Swap.Matched
	}
	all := matched(swap.MatchFeature, iterations)
	if all == 0 || matched(swap.MatchPosition, iterations) != all || matched(swap.MatchTruth, iterations) != all {
		t.Errorf("without a change %d are matched by feature, %d by position, %d by truth", all,
			matched(swap.MatchPosition, iterations), matched(swap.MatchTruth, iterations))
	}
	once := all / (iterations - 2) // per iteration that runs the plan
	const changed = 4              // iteration from which there is one operator more
	if got, want := matched(swap.MatchPosition, changed), (changed-2)*once; got != want {
		t.Errorf("after an insertion %d are matched by position, want %d of before", got, want)
	}
	if got := matched(swap.MatchTruth, changed); got != all {
		t.Errorf("after an insertion %d are matched by truth, want all %d", got, all)
	}
	if got := matched(swap.MatchFeature, changed); got <= (all+(changed-2)*once)/2 || got > all {
		t.Errorf("after an insertion %d of %d are matched by feature, want most", got, all)
	}
}

// TestSettle: a swap-in that nobody has used may leave again once it has ended,
// unless the executor is the shipped one.
func TestSettle(t *testing.T) {
	for _, settle := range []bool{false, true} {
		w, err := eagertest.NewScript(make([][]workloads.Storage, 1), func(_ int, b *workloads.Builder, n *workloads.Names) {
			x, y := b.New(tensor(1000)), b.New(tensor(1000))
			b.Op(eagertest.Kernel(n, "a", us), workloads.Out(x))
			for range 4 {
				b.Op(eagertest.Kernel(n, "b", 100*us), workloads.Out(y))
				b.Sync(workloads.Compute)
			}
			b.Drop(x)
			b.Drop(y)
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg := eagertest.Config(eagertest.Node(1), w)
		cfg.Executor.Settle, cfg.Executor.Clean = settle, false
		want := policies.Refused
		if settle {
			want = policies.Done
		}
		cfg.NewPolicy = func() (policies.Policy, error) {
			return &scriptPolicy{act: map[int64]func([]policies.Handle, policies.Runtime){
				0: func(h []policies.Handle, rt policies.Runtime) { do(t, rt, policies.Evict, h[0], false, policies.Done) },
				2: func(h []policies.Handle, rt policies.Runtime) {
					do(t, rt, policies.Prefetch, h[0], false, policies.Done)
				},
				4: func(h []policies.Handle, rt policies.Runtime) {
					if info, _ := rt.Tensor(h[0]); info.Evictable != settle {
						t.Errorf("settle %v: evictable %v", settle, info.Evictable)
					}
					do(t, rt, policies.Evict, h[0], false, want)
				},
			}}, nil
		}
		r, err := eager.Run(cfg)
		if err != nil || len(r.Violations) > 0 {
			t.Fatal(err, r)
		}
	}
}

// armer arms a plan that moves the optimizer states in chunks, in the order in
// which sort puts them.
type armer struct{ sort func([]policies.Handle) }

func (*armer) Needs() policies.Needs {
	return policies.Needs{Events: policies.Set(policies.IterationEnd)}
}

func (a *armer) Handle(ev *policies.Event, rt policies.Runtime) {
	if ev.Iteration > 0 {
		return
	}
	at := func(p profilers.Phase, mb, layer int32) policies.Trigger {
		return policies.Trigger{Kind: policies.AtStage, Stage: profilers.Stage{Phase: p, MicroBatch: mb, Layer: layer}}
	}
	plan := &policies.Plan{Chunks: 4}
	states := rt.OptimizerStates()
	a.sort(states)
	for _, h := range states {
		what := policies.Selector{Kind: policies.ByHandle, Handle: h}
		plan.Swaps = append(plan.Swaps, policies.Swap{
			Out:   policies.Action{Kind: policies.Evict, What: what, Start: at(profilers.Forward, 1, 1), Release: at(profilers.Forward, 1, 1)},
			In:    policies.Action{Kind: policies.Prefetch, What: what, Start: at(profilers.Backward, 1, 1), Release: at(profilers.Optim, 0, 0)},
			Bytes: 1000, Optimizer: true, Chunked: true,
		})
	}
	_ = rt.Arm(plan)
}

// TestChunks: states that move in the order of their use are never missed, even
// where an operator uses states of two chunks and one of them is read again; in
// another order they are.
func TestChunks(t *testing.T) {
	const tensors, iterations = 10, 4
	var residents []workloads.Storage
	for range tensors {
		residents = append(residents, state(1000), state(1000), state(1000))
	}
	faults := func(sort func([]policies.Handle)) (demand, planned int64) {
		w, err := eagertest.NewScript([][]workloads.Storage{residents}, func(_ int, b *workloads.Builder, n *workloads.Names) {
			x := b.New(tensor(1000))
			b.Mark(workloads.MarkForwardBegin, 1, 0)
			b.Op(eagertest.Kernel(n, "f", 100*us), workloads.Out(x))
			b.Mark(workloads.MarkForwardEnd, 1, 0)
			b.Mark(workloads.MarkBackwardBegin, 1, 0)
			b.Op(eagertest.Kernel(n, "g", 100*us), workloads.In(x))
			b.Drop(x)
			b.Mark(workloads.MarkBackwardEnd, 1, 0)
			b.Mark(workloads.MarkOptimizerBegin, 0, 0)
			for i := range tensors {
				master := workloads.StorageID(3 * i)
				b.Op(eagertest.Kernel(n, "adamw", us), workloads.InPlace(master), workloads.InPlace(master+1), workloads.InPlace(master+2))
				y := b.New(tensor(500))
				b.Op(eagertest.Kernel(n, "cast", us), workloads.In(master), workloads.Out(y))
				b.Drop(y)
			}
			b.Mark(workloads.MarkOptimizerEnd, 0, 0)
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg := eagertest.Config(eagertest.Node(1), w)
		cfg.Iterations = iterations
		cfg.NewPolicy = func() (policies.Policy, error) { return &armer{sort}, nil }
		r, err := eager.Run(cfg)
		if err != nil || len(r.Violations) > 0 {
			t.Fatal(err, r)
		}
		s := &r.Ranks[0].Swap
		return s.Ins[swap.Demand], s.Ins[swap.Planned]
	}
	if demand, planned := faults(func([]policies.Handle) {}); demand != 0 || planned != 3*tensors*(iterations-1) {
		t.Errorf("in the order of use: %d faults, %d planned, want none and all of %d", demand, planned, 3*tensors*(iterations-1))
	}
	if demand, _ := faults(slices.Reverse[[]policies.Handle]); demand == 0 {
		t.Error("in the reverse order nothing is missed")
	}
}

// TestPriority: where both directions share a limit, a heavier swap-in takes
// more of it.
func TestPriority(t *testing.T) {
	arrival := func(priority int) sim.Time {
		w, err := eagertest.NewScript(make([][]workloads.Storage, 1), func(_ int, b *workloads.Builder, n *workloads.Names) {
			x, y := b.New(tensor(100_000)), b.New(tensor(900_000))
			b.Op(eagertest.Kernel(n, "a", us), workloads.Out(x), workloads.Out(y))
			b.Op(eagertest.Kernel(n, "b", 200*us), workloads.Out(b.New(tensor(1))))
			b.Sync(workloads.Compute)
			b.Op(eagertest.Kernel(n, "c", us), workloads.Out(b.New(tensor(1))))
			b.Op(eagertest.Kernel(n, "d", us), workloads.InPlace(x))
			for s := range workloads.StorageID(4) {
				b.Drop(s)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		node := eagertest.Node(1)
		node.Link.Both = sim.GBps(1)
		cfg := eagertest.Config(node, w)
		cfg.Executor.Priority = priority
		cfg.NewPolicy = func() (policies.Policy, error) {
			return &scriptPolicy{act: map[int64]func([]policies.Handle, policies.Runtime){
				0: func(h []policies.Handle, rt policies.Runtime) { do(t, rt, policies.Evict, h[0], false, policies.Done) },
				2: func(h []policies.Handle, rt policies.Runtime) {
					do(t, rt, policies.Evict, h[1], false, policies.Done)
					do(t, rt, policies.Prefetch, h[0], false, policies.Done)
				},
			}}, nil
		}
		r, err := eager.Run(cfg)
		if err != nil || len(r.Violations) > 0 {
			t.Fatal(err, r)
		}
		return r.Ranks[0].Lanes[stream.Compute].Wait[stream.SwapIn]
	}
	// 100 us alone; beside a longer swap-out half the rate, or 4 of 5 parts.
	equal, heavy := arrival(1), arrival(4)
	if equal != 200*us || heavy != 125*us {
		t.Errorf("compute waits %v at equal weights and %v at 4 to 1, want 200us and 125us", equal, heavy)
	}
}
