package eager_test

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/eager/stream"
	"smartswap/eager/unified"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"
)

// drawFree draws a job whose streams run freely: an operator waits for another
// stream only if that has made or changed what it touches, so communication may
// be a whole iteration ahead of compute, or behind it. All ranks run the same
// operators. It returns the last operator that uses each storage.
func drawFree(t *rapid.T) (job *eagertest.Script, last map[int32]int32) {
	ranks := rapid.IntRange(1, 3).Draw(t, "ranks")
	size := rapid.Int64Range(1, 40)
	var res []workloads.Storage
	for range rapid.IntRange(1, 4).Draw(t, "residents") {
		res = append(res, tensor(sim.Bytes(size.Draw(t, "size"))*1024))
	}
	type op struct {
		lane    workloads.Lane
		span    []int64 // by rank
		args    []workloads.Arg
		drops   []workloads.StorageID
		scratch sim.Bytes
	}
	const reads = 2 // so many residents are only read, the others updated by compute
	var ops []op
	var locals []sim.Bytes
	var live []workloads.StorageID
	last = map[int32]int32{}
	lane := rapid.SampledFrom([]workloads.Lane{workloads.Compute, workloads.Compute, workloads.Compute, workloads.Comm, workloads.Comm, workloads.CommPeer})
	n := rapid.IntRange(2, 14).Draw(t, "operators")
	for i := range n {
		o := op{lane: lane.Draw(t, "lane"), span: rapid.SliceOfN(rapid.Int64Range(0, 300), ranks, ranks).Draw(t, "spans")}
		if rapid.IntRange(0, 4).Draw(t, "workspace") == 0 {
			o.scratch = sim.Bytes(size.Draw(t, "size")) * 1024
		}
		if rapid.Bool().Draw(t, "uses a resident") {
			id := workloads.StorageID(rapid.IntRange(0, len(res)-1).Draw(t, "resident"))
			if id < reads || o.lane != workloads.Compute {
				id %= reads
				id %= workloads.StorageID(len(res))
				o.args = append(o.args, workloads.In(id))
			} else {
				o.args = append(o.args, workloads.InPlace(id))
			}
		}
		for _, id := range live {
			if rapid.IntRange(0, 2).Draw(t, "uses") == 0 {
				o.args = append(o.args, workloads.In(id))
				last[int32(id)] = int32(i)
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "makes") > 0 {
			id := workloads.StorageID(len(res) + len(locals))
			locals = append(locals, sim.Bytes(size.Draw(t, "size"))*1024)
			o.args = append(o.args, workloads.Out(id))
			live = append(live, id)
			last[int32(id)] = int32(i)
		}
		keep := live[:0:0]
		for _, id := range live {
			if i == n-1 || rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
				o.drops = append(o.drops, id)
			} else {
				keep = append(keep, id)
			}
		}
		live = keep
		ops = append(ops, o)
	}
	all := make([][]workloads.Storage, ranks)
	for r := range all {
		all[r] = res
	}
	group := []int32{0, 1, 2}[:ranks]
	job, err := eagertest.NewScript(all, func(rank int, b *workloads.Builder, names *workloads.Names) {
		for _, bytes := range locals {
			b.New(tensor(bytes))
		}
		by := map[workloads.StorageID]workloads.Lane{} // wrote it
		for i := range ops {
			o := &ops[i]
			for _, a := range o.args {
				if l, ok := by[a.Storage]; ok && l != o.lane {
					b.Order(l, o.lane)
				}
				if a.Mode != workloads.Read {
					by[a.Storage] = o.lane
				}
			}
			k := eagertest.Kernel(names, fmt.Sprint("op", i), sim.Time(o.span[rank])*us)
			k.Lane, k.Scratch = o.lane, o.scratch
			if o.lane == workloads.Comm && o.span[0]%2 == 0 {
				k.Kernel = workloads.Kernel{Work: hw.Work{Kind: hw.Collective, Collective: hw.AllReduce, Size: sim.Bytes(o.span[0]+1) * 1000, Members: int32(max(2, ranks))}, Group: group}
			}
			if o.lane == workloads.Compute && o.span[0]%5 == 1 { // traces have collectives there, too
				k.Kernel = workloads.Kernel{Work: hw.Work{Kind: hw.Collective, Collective: hw.AllGather, Size: sim.Bytes(o.span[0]) * 1000, Members: int32(max(2, ranks))}, Group: group, Tag: -1}
			}
			if o.lane == workloads.CommPeer && ranks > 1 && rank < 2 {
				k.Kernel = workloads.Kernel{Work: hw.Work{Kind: hw.Transfer, Size: sim.Bytes(o.span[0]+1) * 1000}, Group: []int32{0, 1}, Tag: int32(i + 1)}
			}
			b.Op(k, o.args...)
			for _, id := range o.drops {
				b.Drop(id)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return job, last
}

// moved checks what observers are told of streams and moves.
type moved struct {
	quiet
	t     *rapid.T
	until [3][stream.Count]sim.Time
	bytes [hw.NumDirections]sim.Bytes
	told  [hw.NumDirections]sim.Bytes
	all   []eager.DeviceSpan
}

func (m *moved) Device(s *eager.DeviceSpan) {
	m.all = append(m.all, *s)
	if s.Start < m.until[s.Rank][s.Stream] || s.End < s.Start {
		m.t.Errorf("rank %d, %s: %s from %v to %v, the one before ends at %v", s.Rank, s.Stream.Name(), s.Place.Name, s.Start, s.End, m.until[s.Rank][s.Stream])
	}
	m.until[s.Rank][s.Stream] = s.End
	if s.Kind == stream.Copy {
		m.bytes[s.Dir] += s.Bytes
	} else {
		m.told[hw.H2D] += s.In
		m.told[hw.D2H] += s.Out
	}
}

// TestFreeStreams runs random jobs whose streams run freely in both memories,
// under random plans: no invariant breaks, unified memory with an SSD runs out
// only where the operands of one operator do not fit, every move is told once, and
// the same run twice is the same.
func TestFreeStreams(t *testing.T) {
	var cases, evicted, starved int
	rapid.Check(t, func(t *rapid.T) {
		job, last := drawFree(t)
		ranks := len(job.Ranks())
		cfg := eagertest.Config(eagertest.Node(ranks), job)
		cfg.Iterations, cfg.HostNone = rapid.IntRange(2, 5).Draw(t, "iterations"), true
		cfg.Limits.Events = 500_000
		o := unified.Defaults()
		o.Page = rapid.SampledFrom([]sim.Bytes{1024, 4096}).Draw(t, "page")
		need := largest(job, 1, o.Page)
		o.Device = sim.Bytes(need*rapid.SampledFrom([]int64{90, 100, 100, 120, 150, 250, 1000}).Draw(t, "device, percent of the largest operator")/100) * o.Page
		o.Device = max(o.Device, o.Page)
		o.Host = o.Device * sim.Bytes(rapid.SampledFrom([]int64{0, 20, 400}).Draw(t, "host")) / 100
		o.Batch = rapid.SampledFrom([]int64{1, 8, 50}).Draw(t, "batch")
		cfg.Unified = o
		p := policies.Paging{
			Lookahead: rapid.SampledFrom([]int32{0, 1, 8}).Draw(t, "lookahead"), Spare: rapid.Bool().Draw(t, "spare"),
			Oldest: rapid.Bool().Draw(t, "oldest"), DropDead: rapid.Bool().Draw(t, "drop dead"),
		}
		direct := rapid.IntRange(0, 2).Draw(t, "direct") == 0
		moves := rapid.SliceOfN(rapid.Int32Range(0, 1<<20), 0, 16).Draw(t, "moves")
		hints := func(n *policies.Nominal) (list []policies.Action) {
			for i := 0; i+1 < len(moves); i += 2 {
				id := moves[i] % int32(len(n.Tensors))
				if n.Tensors[id].Bytes == 0 {
					continue
				}
				a := policies.Action{
					Kind: policies.Evict, What: policies.Selector{Kind: policies.ByStatic, Static: id},
					Start: policies.Trigger{Kind: policies.AtOp, N: moves[i+1] % int32(len(n.Kernels))}, To: policies.SSDTier,
				}
				list = append(list, a)
				a.Kind, a.Start.N = policies.Prefetch, moves[i]/7%int32(len(n.Kernels))
				list = append(list, a)
				if l, local := last[id]; local && !direct && int(l)+1 < len(n.Kernels) {
					a.Kind, a.Start.N = policies.Discard, l+1
					list = append(list, a)
				}
			}
			slices.SortStableFunc(list, func(a, b policies.Action) int { return cmp.Compare(a.Start.N, b.Start.N) })
			return list
		}
		cfg.NewPolicy = func() (policies.Policy, error) {
			if direct {
				return onDirect{&paged{hints: hints}}, nil
			}
			return &paged{paging: p, hints: hints}, nil
		}
		watch := &moved{t: t}
		cfg.Observers = []eager.Observer{watch}
		r, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		checkRun(t, r)
		if fits := need <= int64(o.Device/o.Page); !direct && fits != (r.OOM == nil) {
			t.Fatalf("every operator fits %v, out of memory %v", fits, r.OOM)
		}
		cases++
		again := &moved{t: t}
		cfg.Observers = []eager.Observer{again}
		if r2, err := eager.Run(cfg); err != nil || !reflect.DeepEqual(r, r2) || !reflect.DeepEqual(watch.all, again.all) {
			t.Fatal("the same run twice differs (11)")
		}
		cfg.Observers = nil
		if r2, err := eager.Run(cfg); err != nil || !reflect.DeepEqual(r, r2) {
			t.Fatal("an observer changes the run (11)")
		}
		if watch.told != watch.bytes {
			t.Fatalf("kernels say that %v came and left, slices that %v did", watch.told, watch.bytes)
		}
		if r.OOM != nil {
			starved++
			return
		}
		var in, out sim.Bytes
		for _, it := range r.Iterations {
			in, out = in+it.InBytes, out+it.OutBytes
		}
		if in > watch.told[hw.H2D] || out > watch.told[hw.D2H] {
			t.Fatalf("the report has %v in and %v out, kernels have %v", in, out, watch.told)
		}
		if out > 0 {
			evicted++
		}
	})
	t.Logf("%d cases: %d evict, %d cannot go on", cases, evicted, starved)
	if cases >= 100 && (100*evicted < 10*cases || 100*starved < 3*cases) {
		t.Error("the cases do not bite")
	}
}
