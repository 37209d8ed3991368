package eager_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
	"smartswap/workloads"

	"pgregory.net/rapid"
)

// discarder discards what it is told to, or, with chance, anything at any time.
type discarder struct {
	needs   policies.Lineage
	release bool          // it wants to hear of releases, and keeps what is released
	at      map[int][]int // after the n-th event: numbers of storages, in the order in which they were seen; -n = make it again
	chance  func() bool   // nil: by at
	seen    []policies.Handle
	known   map[policies.Handle]bool
	events  int
	log     []string
	ops     []string // names of the program's operators; nil = no log
	names   map[int32]string
	refused int
	swaps   bool // it evicts and prefetches too
}

func (d *discarder) Needs() policies.Needs {
	n := policies.Needs{Events: policies.Set(policies.BeforeOp, policies.AfterOp), Lineage: d.needs}
	if d.release {
		n.Events |= policies.Set(policies.Released)
	}
	return n
}

func (d *discarder) Handle(ev *policies.Event, rt policies.Runtime) {
	if ev.Kind == policies.Released {
		return
	}
	if d.known == nil {
		d.known = map[policies.Handle]bool{}
	}
	for _, h := range ev.Op.Args {
		if !d.known[h] {
			d.known[h] = true
			d.seen = append(d.seen, h)
		}
	}
	if ev.Kind == policies.BeforeOp {
		return
	}
	if ev.Op.Roles != nil && d.ops != nil {
		if ev.Op.Again {
			d.log = append(d.log, d.names[ev.Op.Name]+"'")
		} else {
			d.names[ev.Op.Name] = d.ops[d.events%len(d.ops)]
			d.log = append(d.log, d.names[ev.Op.Name])
		}
	}
	discard := func(h policies.Handle) {
		if rt.Do(policies.Action{Kind: policies.Discard, What: policies.Selector{Handle: h}}) != policies.Done {
			d.refused++
			return
		}
		if d.chance != nil {
			d.log = append(d.log, fmt.Sprint("-", slices.Index(d.seen, h)))
		}
	}
	if d.chance != nil {
		d.log = append(d.log, fmt.Sprint(ev.Op.Index, ev.Op.Again))
		for _, h := range d.seen {
			t, ok := rt.Tensor(h)
			switch {
			case !ok || !d.chance():
			case d.swaps && d.chance():
				kind := policies.Evict
				if !t.OnDevice {
					kind = policies.Prefetch
					if !t.OnHost {
						kind = policies.Rematerialize
					}
				}
				rt.Do(policies.Action{Kind: kind, What: policies.Selector{Handle: h}})
			case t.OnDevice:
				discard(h)
			}
		}
		return
	}
	if ev.Op.Roles == nil || ev.Op.Again {
		return
	}
	for _, i := range d.at[d.events] {
		if i < 0 {
			rt.Do(policies.Action{Kind: policies.Rematerialize, What: policies.Selector{Handle: d.seen[-i]}})
			continue
		}
		discard(d.seen[i])
	}
	d.events++
}

// lineageCase is a hand-written program and what runs again in it.
type lineageCase struct {
	name    string
	discard map[int][]int // after operator n, from 0: storages in the order of first use, residents first
	program func(b *workloads.Builder, n *workloads.Names)
	want    string // operators in order, ' = again
	refused int
	time    sim.Time // of the run, in us
	over    bool
	peak    sim.Bytes // 0 = not looked at
	keep    bool      // storages without references stay
}

func again(n *workloads.Names, name string, us int64) workloads.OpSpec {
	return eagertest.Replayable(eagertest.Kernel(n, name, sim.Time(us)*sim.Microsecond))
}

func makesViews(n *workloads.Names, name string, us int64) workloads.OpSpec {
	o := again(n, name, us)
	o.Flags |= workloads.Views
	return o
}

func seen(s workloads.StorageID, v workloads.ViewID) workloads.Arg {
	return workloads.Arg{Storage: s, View: v}
}

// Storage 0 is a resident of 512 bytes.
var lineageCases = []lineageCase{
	{
		name:    "a result is made again when it is used",
		discard: map[int][]int{1: {1}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z := b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 10), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 20), workloads.In(0), workloads.Out(y))
			b.Op(again(n, "c", 40), workloads.In(x), workloads.In(y), workloads.Out(z))
			drop(b, x, y, z)
		},
		want: "a b a' c", time: 80,
	},
	{
		name:    "a chain, the last of which nobody has a reference to",
		discard: map[int][]int{2: {3}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z, u := b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 2), workloads.In(x), workloads.Out(y))
			drop(b, x)
			b.Op(again(n, "c", 4), workloads.In(y), workloads.Out(z))
			drop(b, y)
			b.Op(again(n, "d", 8), workloads.In(z), workloads.Out(u))
			drop(b, z, u)
		},
		want: "a b c a' b' c' d", time: 1 + 2 + 4 + 7 + 8,
	},
	{
		name:    "two results: both are made, the one that is there beside itself",
		discard: map[int][]int{0: {1}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z := b.New(tensor(512)), b.New(tensor(1024)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x), workloads.Out(y))
			b.Op(again(n, "b", 2), workloads.In(x), workloads.Out(z))
			drop(b, x, y, z)
		},
		want: "a a' b", time: 4, peak: 512 + 512 + 1024 + 1024,
	},
	{
		name:    "two results: the one that is there is written over",
		discard: map[int][]int{0: {1}},
		over:    true,
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z := b.New(tensor(512)), b.New(tensor(1024)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x), workloads.Out(y))
			b.Op(again(n, "b", 2), workloads.In(x), workloads.Out(z))
			drop(b, x, y, z)
		},
		want: "a a' b", time: 4, peak: 512 + 512 + 1024 + 512,
	},
	{
		name:    "views of views: each is made again, in order, without memory",
		discard: map[int][]int{2: {1}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z := b.New(tensor(4096)), b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(makesViews(n, "v", 2), workloads.In(x), seen(x, 1))
			b.Op(makesViews(n, "w", 4), seen(x, 1), seen(x, 2))
			b.Op(again(n, "b", 8), workloads.In(x), workloads.Out(y)) // the whole needs no view
			b.Op(again(n, "c", 16), seen(x, 2), workloads.Out(z))
			drop(b, x, y, z)
		},
		want: "a v w a' b v' w' c", time: 1 + 2 + 4 + 1 + 8 + 2 + 4 + 16, peak: 512 + 4096 + 1024,
	},
	{
		name:    "a view that no operator made is there with its storage",
		discard: map[int][]int{0: {1}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y := b.New(tensor(4096)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 2), seen(x, 7), workloads.Out(y))
			b.Op(again(n, "c", 4), seen(x, 7), workloads.Out(b.New(tensor(512))))
			drop(b, x, y, y+1)
		},
		want: "a a' b c", time: 8,
	},
	{
		name:    "the same argument twice is made once",
		discard: map[int][]int{0: {1}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y := b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 2), workloads.In(x), workloads.In(x), workloads.Out(y))
			drop(b, x, y)
		},
		want: "a a' b", time: 4,
	},
	{
		name:    "operators without time",
		discard: map[int][]int{1: {2, 1}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z := b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 0), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 0), workloads.In(x), workloads.Out(y))
			b.Op(again(n, "c", 5), workloads.In(y), workloads.Out(z))
			drop(b, x, y, z)
		},
		want: "a b a' b' c", time: 5,
	},
	{
		name:    "residents, what is changed in place and what cannot run again stay",
		discard: map[int][]int{2: {0, 1, 2}},
		refused: 3,
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y := b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(eagertest.Kernel(n, "dropout", 2*sim.Microsecond), workloads.In(x), workloads.Out(y))
			b.Op(again(n, "add_", 4), workloads.In(y), workloads.InPlace(x))
			b.Op(again(n, "c", 8), workloads.In(x), workloads.In(y), workloads.InPlace(0))
			drop(b, x, y)
		},
		want: "a dropout add_ c", time: 15,
	},
	{
		name: "what was made from the old content is kept, what is not there is made before the change",
		// y and z come from x. y is discarded; x is then changed.
		discard: map[int][]int{2: {2}, 3: {2, 3}},
		refused: 2,
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z := b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 2), workloads.In(x), workloads.Out(y))
			b.Op(again(n, "c", 4), workloads.In(x), workloads.Out(z))
			b.Op(again(n, "add_", 8), workloads.InPlace(x))
			b.Op(again(n, "d", 16), workloads.In(y), workloads.In(z), workloads.Out(b.New(tensor(512))))
			drop(b, x, y, z, z+1)
		},
		want: "a b c b' add_ d", time: 33,
	},
	{
		name: "… through what nobody has a reference to",
		// z comes from y, which is gone, which comes from x.
		discard: map[int][]int{2: {3}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y, z := b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 2), workloads.In(x), workloads.Out(y))
			b.Op(again(n, "c", 4), workloads.In(y), workloads.Out(z))
			drop(b, y)
			b.Op(again(n, "fill", 8), workloads.Out(x)) // a new content, which has nothing to do with z
			b.Op(again(n, "d", 16), workloads.In(z), workloads.In(x), workloads.Out(b.New(tensor(512))))
			drop(b, x, z, z+1)
		},
		want: "a b c b' c' fill d", time: 37,
	},
	{
		name:    "a view is there when its storage has been written anew",
		discard: map[int][]int{1: {1}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x := b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(makesViews(n, "v", 2), workloads.In(x), seen(x, 1))
			b.Op(again(n, "fill", 4), workloads.Out(x))
			b.Op(again(n, "b", 8), seen(x, 1), workloads.Out(b.New(tensor(512))))
			drop(b, x, x+1)
		},
		want: "a v a' fill b", time: 16, // v reads x: its old content counts as useful
	},
	{
		name:    "what is updated in part stays",
		discard: map[int][]int{1: {1}},
		refused: 1,
		program: func(b *workloads.Builder, n *workloads.Names) {
			x := b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 2), workloads.In(0), workloads.Arg{Storage: x, View: 1, Mode: workloads.Update})
			b.Op(again(n, "c", 4), workloads.In(x), workloads.InPlace(0))
			drop(b, x)
		},
		want: "a b c", time: 7,
	},
	{
		name:    "a part that is all there is of a new storage comes back",
		discard: map[int][]int{0: {1}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x := b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Arg{Storage: x, View: 1, Mode: workloads.Write})
			b.Op(again(n, "b", 2), workloads.In(0), workloads.Arg{Storage: x, View: 2, Mode: workloads.Update})
			b.Op(again(n, "c", 4), workloads.In(x), workloads.InPlace(0))
			drop(b, x)
		},
		want: "a a' b c", time: 8,
	},
	{
		name:    "a parameter that is updated: what nobody needs any more is not made for it",
		discard: map[int][]int{1: {1, 2}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y := b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 2), workloads.In(x), workloads.Out(y))
			drop(b, x, y)
			b.Op(again(n, "adamw", 4), workloads.InPlace(0))
		},
		want: "a b adamw", time: 7,
	},
	{
		name:    "a policy may ask for it earlier; what is there already is not made",
		discard: map[int][]int{0: {1, -1}, 1: {-1}},
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y := b.New(tensor(512)), b.New(tensor(512))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 2), workloads.In(0), workloads.Out(y))
			b.Op(again(n, "c", 4), workloads.In(y), workloads.InPlace(0))
			b.Op(again(n, "d", 8), workloads.In(x), workloads.Out(b.New(tensor(512))))
			drop(b, x, y, y+1)
		},
		want: "a a' b c d", time: 16,
	},
	{
		name:    "what cannot run again stays for what is made from it, references or not",
		discard: map[int][]int{1: {2}, 2: {2}},
		keep:    true,
		refused: 0,
		program: func(b *workloads.Builder, n *workloads.Names) {
			x, y := b.New(tensor(512)), b.New(tensor(512))
			b.Op(eagertest.Kernel(n, "rand", sim.Microsecond), workloads.Out(x))
			b.Op(again(n, "b", 2), workloads.In(x), workloads.Out(y))
			drop(b, x)
			b.Op(again(n, "c", 4), workloads.In(y), workloads.In(0), workloads.Out(b.New(tensor(512))))
			b.Op(again(n, "d", 8), workloads.In(y), workloads.Out(b.New(tensor(512))))
			drop(b, y, y+1, y+2)
		},
		want: "rand b b' c b' d", time: 1 + 2 + 2 + 4 + 2 + 8,
	},
}

func drop(b *workloads.Builder, list ...workloads.StorageID) {
	for _, s := range list {
		b.Drop(s)
	}
}

func opNames(t *testing.T, w workloads.Workload) []string {
	p, err := w.Program(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, in := range p.Instrs {
		if in.Kind == workloads.Op {
			names = append(names, p.Names.String(in.Name))
		}
	}
	return names
}

func TestLineage(t *testing.T) {
	for _, c := range lineageCases {
		t.Run(c.name, func(t *testing.T) {
			w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, n *workloads.Names) { c.program(b, n) })
			if err != nil {
				t.Fatal(err)
			}
			d := &discarder{at: c.discard, needs: policies.Lineage{Keep: true, Overwrite: c.over}, names: map[int32]string{}, ops: opNames(t, w), release: c.keep}
			cfg := eagertest.Config(eagertest.Node(1), w)
			cfg.NewPolicy = func() (policies.Policy, error) { return d, nil }
			r, err := eager.Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(d.log, " "); got != c.want {
				t.Errorf("ran %s, want %s", got, c.want)
			}
			if r.OOM != nil || len(r.Violations) > 0 {
				t.Errorf("%v, %q", r.OOM, r.Violations)
			}
			if d.refused != c.refused {
				t.Errorf("%d discards refused, want %d", d.refused, c.refused)
			}
			if want := c.time * sim.Microsecond; r.Makespan != want {
				t.Errorf("took %v, want %v", r.Makespan, want)
			}
			replays := r.Ranks[0].Replays
			if got, want := replays.Ops, int64(strings.Count(c.want, "'")); got != want || r.Ops != int64(len(d.log))-want || r.Iterations[0].Replays != replays {
				t.Errorf("%d operators of %d ran again, want %d; iteration %+v, run %+v", got, r.Ops, want, r.Iterations[0].Replays, replays)
			}
			if peak := sim.Bytes(r.Ranks[0].Memory.Allocated.Peak); c.peak > 0 && peak != c.peak {
				t.Errorf("peak %d, want %d", peak, c.peak)
			}
			if r.Ranks[0].Live != 0 {
				t.Errorf("%d storages are left", r.Ranks[0].Live)
			}
		})
	}
}

// TestDiscardAnything: whatever is discarded, whenever, the program reads what
// it would have read, as the content checks see it.
func TestDiscardAnything(t *testing.T) {
	var discards, replays, refused, finished int64
	rapid.Check(t, func(t *rapid.T) {
		w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, n *workloads.Names) { eagertest.DrawStep(t, 0, b, n) })
		if err != nil {
			t.Fatal(err)
		}
		cfg := eagertest.Config(eagertest.DrawNode(t, 1), w)
		cfg.Iterations = 2
		cfg.Allocator.Exact = rapid.Bool().Draw(t, "exact")
		ideal, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		checkRun(t, ideal)
		var policy *discarder
		swaps := rapid.Bool().Draw(t, "swaps")
		communication := rapid.Bool().Draw(t, "communication")
		over, release := rapid.Bool().Draw(t, "over"), rapid.Bool().Draw(t, "hears of releases")
		often := rapid.IntRange(1, 12).Draw(t, "one of")
		cfg.NewPolicy = func() (policies.Policy, error) {
			state := uint64(rapid.IntRange(1, 1<<30).Draw(t, "seed"))
			policy = &discarder{needs: policies.Lineage{Keep: true, Overwrite: over, Communication: communication, Limit: 30}, release: release, swaps: swaps, chance: func() bool {
				state = state*6364136223846793005 + 1442695040888963407
				return int(state>>33)%often == 0
			}}
			return policy, nil
		}
		r, err := eager.Run(cfg)
		if err != nil || len(r.Violations) > 0 {
			p, _ := w.Program(0, 0)
			for i, in := range p.Instrs {
				switch in.Kind {
				case workloads.Op:
					t.Logf("%d op lane %d flags %b %v", i, in.Lane, in.Flags, p.Args[in.ArgLo:in.ArgHi])
				case workloads.Drop:
					t.Logf("%d drop %d", i, in.A)
				}
			}
			t.Logf("%+v %v", policy.needs, policy.log)
		}
		if err != nil {
			t.Fatal(err)
		}
		checkRun(t, r)
		if r.OOM != nil {
			if r.OOM.Limit == nil {
				t.Fatal(r.OOM)
			}
			return // what is discarded all the time is made all the time
		}
		finished++
		if r.Ranks[0].Sequence != ideal.Ranks[0].Sequence || r.Ops != ideal.Ops || r.Ranks[0].Live != 0 {
			t.Fatalf("another program: %d of %d operators, %d left", r.Ops, ideal.Ops, r.Ranks[0].Live)
		}
		discards += r.Ranks[0].Replays.Discards
		replays += r.Ranks[0].Replays.Ops
		refused += int64(policy.refused)
	})
	t.Logf("%d finished, %d discards, %d refused, %d operators ran again", finished, discards, refused, replays)
	if finished == 0 || discards == 0 || replays == 0 || refused == 0 {
		t.Error("the cases do not bite")
	}
}

// TestLongChain: a chain of thousands is followed without recursion.
func TestLongChain(t *testing.T) {
	const n = 20_000
	w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, names *workloads.Names) {
		x := b.New(tensor(512))
		b.Op(again(names, "a", 1), workloads.In(0), workloads.Out(x))
		for range n {
			y := b.New(tensor(512))
			b.Op(again(names, "b", 1), workloads.In(x), workloads.Out(y))
			b.Drop(x)
			x = y
		}
		b.Op(again(names, "c", 1), workloads.In(x), workloads.Out(x+1+0*b.New(tensor(512))))
		drop(b, x, x+1)
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := eagertest.Config(eagertest.Node(1), w)
	cfg.Checks = false
	cfg.NewPolicy = func() (policies.Policy, error) {
		return &discarder{at: map[int][]int{n: {n + 1}}, needs: policies.Lineage{Keep: true}}, nil
	}
	r, err := eager.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Ranks[0].Replays; got.Ops != n+1 || got.Time != (n+1)*sim.Microsecond {
		t.Errorf("%+v ran again", got)
	}
}

// TestNoLineage: a policy that asks for none can discard nothing.
func TestNoLineage(t *testing.T) {
	w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, n *workloads.Names) {
		lineageCases[0].program(b, n)
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &discarder{chance: func() bool { return true }}
	cfg := eagertest.Config(eagertest.Node(1), w)
	cfg.NewPolicy = func() (policies.Policy, error) { return d, nil }
	r, err := eager.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if d.refused == 0 || !reflect.DeepEqual(r.Ranks[0].Replays, eager.Replays{}) {
		t.Errorf("%d refused, %+v", d.refused, r.Ranks[0].Replays)
	}
}

// TestLimit: the run ends when more runs again than the policy allows, with a
// reason.
func TestLimit(t *testing.T) {
	w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, n *workloads.Names) {
		lineageCases[0].program(b, n)
	})
	if err != nil {
		t.Fatal(err)
	}
	for limit, allowed := range map[float64]string{0: "", 10. / 70: "", 9.9 / 70: "9.9us", 1e-12: "0s", 1e300: ""} {
		cfg := eagertest.Config(eagertest.Node(1), w)
		cfg.NewPolicy = func() (policies.Policy, error) {
			return &discarder{at: lineageCases[0].discard, needs: policies.Lineage{Keep: true, Limit: limit}}, nil
		}
		r, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if (r.OOM != nil) != (allowed != "") {
			t.Errorf("limit %g: %v", limit, r.OOM)
		}
		if allowed != "" && (r.OOM.Limit == nil || !strings.Contains(r.OOM.Error(), "ran again took 10us, more than the "+allowed+" that the policy allows")) {
			t.Errorf("limit %g: %v", limit, r.OOM)
		}
	}
}

// TestLineageRefusals: what a policy with a lineage cannot have besides.
func TestLineageRefusals(t *testing.T) {
	w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, n *workloads.Names) {
		lineageCases[0].program(b, n)
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := eagertest.Config(eagertest.Node(1), w)
	cfg.NewPolicy = func() (policies.Policy, error) {
		return needing(policies.Needs{Memory: policies.Unified, Lineage: policies.Lineage{Keep: true}}), nil
	}
	if _, err := eager.Run(cfg); err == nil || !strings.Contains(err.Error(), "a lineage in unified memory") {
		t.Errorf("unified memory: %v", err)
	}
	p := &planner{}
	cfg.NewPolicy = func() (policies.Policy, error) { return p, nil }
	if _, err := eager.Run(cfg); err != nil || p.err == nil || !strings.Contains(p.err.Error(), "cannot arm a plan") {
		t.Errorf("a plan: %v, %v", err, p.err)
	}
}

// needing is a policy that only needs something.
type needing policies.Needs

func (n needing) Needs() policies.Needs                  { return policies.Needs(n) }
func (needing) Handle(*policies.Event, policies.Runtime) {}

// planner arms an empty plan beside a lineage.
type planner struct{ err error }

func (*planner) Needs() policies.Needs {
	return policies.Needs{Events: policies.Set(policies.IterationEnd), Lineage: policies.Lineage{Keep: true}}
}

func (p *planner) Handle(_ *policies.Event, rt policies.Runtime) { p.err = rt.Arm(&policies.Plan{}) }

// outAndIn evicts the result of the first operator and brings it back after the
// second.
type outAndIn struct {
	ops    int
	tensor policies.Handle
	stay   bool // it does not come back before an operator asks for it
}

func (*outAndIn) Needs() policies.Needs {
	return policies.Needs{Events: policies.Set(policies.AfterOp), Lineage: policies.Lineage{Keep: true}}
}

func (o *outAndIn) Handle(ev *policies.Event, rt policies.Runtime) {
	if ev.Op.Roles == nil { // construction
		return
	}
	kind := policies.Prefetch
	switch o.ops++; o.ops {
	case 1:
		o.tensor, kind = ev.Op.Args[1], policies.Evict
	case 2:
		if o.stay {
			return
		}
	default:
		return
	}
	rt.Do(policies.Action{Kind: kind, What: policies.Selector{Handle: o.tensor}})
}

// TestUnreferenced: what has no reference gives its memory back at once, whatever
// it is and wherever it is on its way to.
func TestUnreferenced(t *testing.T) {
	flat := tensor(10_240)
	flat.Flat = true
	for name, c := range map[string]struct {
		policy  policies.Policy
		peak    int64 // beside the resident
		program func(b *workloads.Builder, n *workloads.Names)
	}{
		"shared memory": {needing{Lineage: policies.Lineage{Keep: true}}, 10_240, func(b *workloads.Builder, n *workloads.Names) {
			for range 3 {
				x := b.New(flat)
				b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
				b.Drop(x)
			}
		}},
		// The copy out still holds the first block when the second is there.
		"on its way in": {&outAndIn{}, 2 * 10_240, func(b *workloads.Builder, n *workloads.Names) {
			x, y := b.New(tensor(10_240)), b.New(tensor(10_240))
			b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
			b.Op(again(n, "b", 100), workloads.InPlace(0))
			b.Drop(x)
			b.Op(again(n, "c", 1), workloads.In(0), workloads.Out(y))
			b.Drop(y)
		}},
	} {
		w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, n *workloads.Names) { c.program(b, n) })
		if err != nil {
			t.Fatal(err)
		}
		cfg := eagertest.Config(eagertest.Node(1), w)
		cfg.NewPolicy = func() (policies.Policy, error) { return c.policy, nil }
		r, err := eager.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if peak := r.Ranks[0].Memory.Allocated.Peak; peak != 512+c.peak || r.OOM != nil || len(r.Violations) > 0 {
			t.Errorf("%s: peak %d, want %d; %v, %q", name, peak, 512+c.peak, r.OOM, r.Violations)
		}
		if o, ok := c.policy.(*outAndIn); ok && (o.ops != 3 || r.Ranks[0].Swap.Ins[swap.Ordered] != 1) {
			t.Errorf("%s: %d operators, %v swapped in", name, o.ops, r.Ranks[0].Swap.Ins)
		}
	}
}

// TestContentThatIsChanged: wherever a content is when an operator changes a part
// of it, the rest of it is brought; nothing is when the operator replaces it.
func TestContentThatIsChanged(t *testing.T) {
	for _, c := range []struct {
		arg    workloads.Arg
		brings int64
	}{
		{workloads.Arg{Mode: workloads.Write}, 0},
		{workloads.Arg{Mode: workloads.Update}, 1},
		{workloads.Arg{View: 1, Mode: workloads.Update}, 1},
	} {
		for _, lineage := range []bool{false, true} {
			w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, n *workloads.Names) {
				x := b.New(tensor(512))
				b.Op(again(n, "a", 1), workloads.In(0), workloads.Out(x))
				b.Op(again(n, "b", 1000), workloads.In(0))
				c.arg.Storage = x
				b.Op(again(n, "c", 1), c.arg)
				b.Op(again(n, "d", 1), workloads.In(x), workloads.InPlace(0))
				b.Drop(x)
			})
			if err != nil {
				t.Fatal(err)
			}
			cfg := eagertest.Config(eagertest.Node(1), w)
			var p policies.Policy = &outAndIn{stay: true}
			if lineage {
				p = &discarder{at: map[int][]int{0: {1}}, needs: policies.Lineage{Keep: true}}
			}
			cfg.NewPolicy = func() (policies.Policy, error) { return p, nil }
			r, err := eager.Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			brought := r.Ranks[0].Swap.Ins[swap.Demand]
			if lineage {
				brought = r.Ranks[0].Replays.Ops
			}
			if brought != c.brings || r.OOM != nil || len(r.Violations) > 0 {
				t.Errorf("%+v, lineage %v: brought %d times, want %d; %v, %q", c.arg, lineage, brought, c.brings, r.OOM, r.Violations)
			}
		}
	}
}

// gathers writes a program whose operator b reads what a collective has gathered
// in a resident buffer, which another one then fills again; storages are, in the
// order of first use, 0 the parameter, 1 the buffer, 2 x, 3 what is gathered, if it
// is apart, and y. After the second gather y is used.
func gathers(b *workloads.Builder, n *workloads.Names, group []int32) {
	x, y, v, z := b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512)), b.New(tensor(512))
	gather := func(from workloads.StorageID) {
		b.Order(workloads.Compute, workloads.Comm)
		b.Op(workloads.OpSpec{Name: n.ID("gather"), Lane: workloads.Comm, Kernel: workloads.Kernel{
			Work: hw.Work{Kind: hw.Collective, Collective: hw.AllGather, Size: 1_000, Members: 2}, Group: group,
		}}, workloads.In(from), workloads.Out(1))
		b.Order(workloads.Comm, workloads.Compute)
	}
	b.Op(again(n, "a", 10), workloads.In(0), workloads.Out(x))
	gather(x)
	b.Op(again(n, "b", 20), workloads.In(1), workloads.Out(y))
	b.Op(again(n, "c", 40), workloads.In(0), workloads.Out(v))
	gather(v)
	b.Op(again(n, "d", 80), workloads.In(1), workloads.In(y), workloads.Out(z))
	drop(b, x, y, v, z)
}

// TestCollectivesAgain: with Communication what was made from a gathered buffer is
// made again by gathering again, on the stream of communication, behind compute
// and before it; without, it stays. Ranks meet for it; if one of them does not
// come, the run says so.
func TestCollectivesAgain(t *testing.T) {
	const gather = 1 * sim.Microsecond // 1,000 bytes, at 1 GB/s
	run := func(ranks, stages int, allow bool, discards ...map[int][]int) (*eager.Report, []*discarder, *spans, error) {
		var residents [][]workloads.Storage
		var group []int32
		for r := range ranks {
			residents = append(residents, []workloads.Storage{tensor(512), tensor(1024)})
			group = append(group, int32(r))
		}
		w, err := eagertest.NewScript(residents, func(_ int, b *workloads.Builder, n *workloads.Names) { gathers(b, n, group) })
		if err != nil {
			t.Fatal(err)
		}
		for r := range ranks {
			w.Ranks()[r].Stage = r % stages
		}
		var list []*discarder
		cfg := eagertest.Config(eagertest.Node(ranks), w)
		cfg.Iterations = 2
		cfg.NewPolicy = func() (policies.Policy, error) {
			d := &discarder{at: discards[len(list)%len(discards)], needs: policies.Lineage{Keep: true, Communication: allow}, names: map[int32]string{}, ops: opNames(t, w)}
			list = append(list, d)
			return d, nil
		}
		var seen spans
		cfg.Observers = []eager.Observer{&seen}
		r, err := eager.Run(cfg)
		return r, list, &seen, err
	}
	late := map[int][]int{4: {4}} // y, after the second gather
	for ranks := 1; ranks <= 3; ranks++ {
		r, list, seen, err := run(ranks, 1, true, late)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if got, want := strings.Join(d.log[:8], " "), "a gather b c gather gather' b' d"; got != want || d.refused > 0 {
				t.Errorf("%d ranks: ran %s, want %s; %d refused", ranks, got, want, d.refused)
			}
		}
		if want := 2*(150*sim.Microsecond+2*gather) + 20*sim.Microsecond + gather; r.Makespan != want || len(r.Violations) > 0 {
			t.Errorf("%d ranks: took %v, want %v; %q", ranks, r.Makespan, want, r.Violations)
		}
		if peak := r.Ranks[0].Memory.Allocated.Peak; peak != 512+2*1024+4*512 {
			t.Errorf("%d ranks: peak %d", ranks, peak)
		}
		for _, s := range seen.device {
			if s.Place.Again && s.Place.Name == "gather" && (s.Stream != stream.Comm || s.End-s.Start != gather) {
				t.Errorf("%d ranks: %+v", ranks, s)
			}
		}
		if r.Ranks[0].Live != 0 {
			t.Errorf("%d ranks: %d storages are left", ranks, r.Ranks[0].Live)
		}
	}
	for name, c := range map[string]struct {
		stages int
		allow  bool
	}{"without": {1, false}, "of different stages": {2, true}} {
		_, list, _, err := run(2, c.stages, c.allow, map[int][]int{4: {3}}) // one buffer
		if err != nil || list[0].refused != 1 || slices.Contains(list[0].log, "gather'") {
			t.Errorf("%s: %v, %d refused, %v", name, err, list[0].refused, list[0].log)
		}
	}
	if _, _, _, err := run(2, 1, true, late, nil); err == nil || !strings.Contains(err.Error(), "ranks 1 and 0 meet for different operators") && !strings.Contains(err.Error(), "ranks 0 and 1 meet for different operators") {
		t.Errorf("one of two: %v", err)
	}
}

// recording is a discarder that keeps the profile of an iteration.
type recording struct {
	*discarder
	ops []profilers.OpRec
}

func (r *recording) Needs() policies.Needs {
	n := r.discarder.Needs()
	n.Events |= policies.Set(policies.IterationEnd)
	return n
}

func (r *recording) Handle(ev *policies.Event, rt policies.Runtime) {
	if ev.Kind == policies.IterationEnd {
		r.ops = slices.Clone(ev.Observation.Ops)
		return
	}
	r.discarder.Handle(ev, rt)
}

// TestProfileOfReplays: the time of an operator that runs again is not taken for
// that of the operator that waits for it.
func TestProfileOfReplays(t *testing.T) {
	w, err := eagertest.NewScript([][]workloads.Storage{{tensor(512)}}, func(_ int, b *workloads.Builder, n *workloads.Names) {
		x, y := b.New(tensor(512)), b.New(tensor(512))
		b.Op(again(n, "a", 1000), workloads.In(0), workloads.Out(x))
		b.Order(workloads.Compute, workloads.Comm)
		b.Op(onComm(n, 5), workloads.In(x))
		b.Order(workloads.Comm, workloads.Compute)
		b.Op(again(n, "b", 20), workloads.In(x), workloads.Out(y))
		b.Sync(workloads.Compute)
		drop(b, x, y)
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &recording{discarder: &discarder{at: map[int][]int{0: {1}, 1: {1}}, needs: policies.Lineage{Keep: true}}}
	cfg := eagertest.Config(eagertest.Node(1), w)
	cfg.NewPolicy = func() (policies.Policy, error) { return p, nil }
	if cfg.Profiler, err = profilers.Lookup("pytorch"); err != nil {
		t.Fatal(err)
	}
	cfg.AlwaysProfile = true
	r, err := eager.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var spans []sim.Time
	for _, o := range p.ops {
		spans = append(spans, o.Span/sim.Microsecond)
	}
	if r.Ranks[0].Replays.Ops != 2 || !slices.Equal(spans, []sim.Time{1000, 0, 20}) {
		t.Errorf("%d operators ran again; profiled %v us, want 1000, none (communication), 20", r.Ranks[0].Replays.Ops, spans)
	}
}
