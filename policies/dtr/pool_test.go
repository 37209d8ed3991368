package dtr_test

import (
	"maps"
	"slices"
	"testing"

	"smartswap/eager"
	"smartswap/eager/eagertest"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/policies/dtr"
	"smartswap/sim"
	"smartswap/workloads"

	"pgregory.net/rapid"
)

// content is what a storage holds after a write.
type content struct {
	storage policies.Handle
	version int
}

// ran is an operator of the program that has run.
type ran struct {
	flags  bool // by its nature it may run again
	inputs []content
}

// oracle says what could be discarded, from the program's text and from what
// operators have been told of, by definition: a content can be made again if its
// operator may run again and each of its inputs is what it was and is there, or
// can be made again.
type oracle struct {
	*dtr.Policy
	t       *rapid.T
	options dtr.Options
	program *workloads.Program
	ops     []workloads.Instr

	rt       policies.Runtime
	ids      map[policies.Handle]workloads.StorageID
	current  map[workloads.StorageID]policies.Handle // what the program has a reference to
	versions map[policies.Handle]int
	makers   map[content]*ran
	open     []policies.OpView // being dispatched, outermost first
	next     int               // operator of the program
	asked    int               // times that the policy was asked for room
	freed    bool              // it gave something up for the present event
	gaveUp   int
}

func (o *oracle) Do(a policies.Action) policies.Outcome {
	out := o.rt.Do(a)
	o.freed = o.freed || out == policies.Done
	return out
}

// withOracle lets the policy act through o.
type withOracle struct {
	*oracle
	policies.Runtime
}

func (w withOracle) Do(a policies.Action) policies.Outcome { return w.oracle.Do(a) }

func (o *oracle) Handle(ev *policies.Event, rt policies.Runtime) {
	o.rt, o.freed = rt, false
	o.Policy.Handle(ev, withOracle{o, rt})
	switch {
	case ev.Kind == policies.IterationEnd:
		clear(o.ids)
		clear(o.current)
		clear(o.versions)
		clear(o.makers)
		o.next = 0
	case ev.Kind == policies.BeforeOp:
		op := ev.Op
		op.Args, op.Roles = slices.Clone(op.Args), slices.Clone(op.Roles)
		o.open = append(o.open, op)
		if !op.Again {
			in := &o.ops[o.next]
			for i, a := range o.program.Args[in.ArgLo:in.ArgHi] {
				o.current[a.Storage] = op.Args[i]
			}
		}
	case ev.Kind == policies.AfterOp && ev.Op.Roles != nil:
		o.open = o.open[:len(o.open)-1]
		if !ev.Op.Again {
			o.run(&ev.Op)
		}
	case ev.Kind == policies.Pressure:
		o.asked++
		if !o.freed {
			o.judge()
		}
	}
}

// run notes what an operator has read and made.
func (o *oracle) run(op *policies.OpView) {
	in := &o.ops[o.next]
	o.next++
	args := o.program.Args[in.ArgLo:in.ArgHi]
	r := &ran{flags: in.Flags&workloads.Replayable != 0 && in.Lane == workloads.Compute && in.Kernel >= 0}
	if in.Kernel >= 0 && o.program.Kernels[in.Kernel].Kind == hw.Collective {
		r.flags = o.options.Communication
	}
	for i, h := range op.Args {
		o.ids[h] = args[i].Storage
		if args[i].Mode != workloads.Write {
			r.inputs = append(r.inputs, content{h, o.versions[h]})
		}
		for j := range args {
			changes := args[i].Mode == workloads.Update || args[i].Mode == workloads.Write && args[j].Mode != workloads.Write
			r.flags = r.flags && !(changes && args[i].Storage == args[j].Storage)
		}
	}
	written := map[policies.Handle]bool{}
	for i, h := range op.Args {
		if args[i].Mode != workloads.Read && !written[h] {
			written[h] = true
			o.versions[h]++
			o.makers[content{h, o.versions[h]}] = r
		}
	}
}

// can tells whether an operator can run again without what is in gone.
func (o *oracle) can(r *ran, gone policies.Handle) bool {
	if r == nil || !r.flags {
		return false
	}
	for _, c := range r.inputs {
		t, _ := o.rt.Tensor(c.storage)
		there := t.OnDevice && c.storage != gone
		if o.versions[c.storage] != c.version || !there && !o.can(o.makers[c], gone) {
			return false
		}
	}
	return true
}

// references that the program holds to a storage between operators.
func (o *oracle) references(h policies.Handle) int {
	refs, ops := 1, 0
	if o.current[o.ids[h]] != h {
		return 0
	}
	for i := range o.program.Instrs {
		in := &o.program.Instrs[i]
		switch {
		case in.Kind == workloads.Op:
			if ops == o.next {
				return refs
			}
			ops++
		case in.Kind == workloads.Ref && workloads.StorageID(in.A) == o.ids[h]:
			refs++
		case in.Kind == workloads.Drop && workloads.StorageID(in.A) == o.ids[h]:
			refs--
		}
	}
	return refs
}

// leaves tells whether a storage could be discarded now.
func (o *oracle) leaves(h policies.Handle) bool {
	t, ok := o.rt.Tensor(h)
	if !ok || !t.OnDevice || t.InUse || int32(o.ids[h]) < o.program.Residents {
		return false
	}
	if o.can(o.makers[content{h, o.versions[h]}], h) {
		return true
	}
	if o.references(h) > 0 || len(o.open) > 1 { // what runs again may still want it
		return false
	}
	for other := range o.ids { // nothing that is needed comes from it
		t, ok := o.rt.Tensor(other)
		if ok && !t.OnDevice && o.references(other) > 0 && !o.can(o.makers[content{other, o.versions[other]}], h) {
			return false
		}
	}
	return true
}

// judge is called when the policy has found nothing.
func (o *oracle) judge() {
	o.gaveUp++
	list := slices.Sorted(maps.Keys(o.ids))
	for _, h := range list {
		if o.leaves(h) {
			o.t.Errorf("storage %d could go, and the policy gives up", o.ids[h])
		}
	}
	for _, h := range list {
		if o.rt.Do(policies.Action{Kind: policies.Discard, What: policies.Selector{Handle: h}}) == policies.Done {
			o.t.Errorf("the runtime lets storage %d go, and the policy gave up", o.ids[h])
		}
	}
}

func newOracle(t *rapid.T, o dtr.Options, w workloads.Workload) *oracle {
	p, err := w.Program(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	j := &oracle{
		Policy: dtr.New(o), t: t, options: o, program: p, current: map[workloads.StorageID]policies.Handle{},
		ids: map[policies.Handle]workloads.StorageID{}, versions: map[policies.Handle]int{}, makers: map[content]*ran{},
	}
	for _, in := range p.Instrs {
		if in.Kind == workloads.Op {
			j.ops = append(j.ops, in)
		}
	}
	return j
}

// TestNothingIsForgotten: a run ends for want of memory only when everything that
// is there is in use or could not be made again.
func TestNothingIsForgotten(t *testing.T) {
	ended, finished, replays := 0, 0, int64(0)
	rapid.Check(t, func(t *rapid.T) {
		const resident = 512
		w, err := eagertest.NewScript([][]workloads.Storage{{{Bytes: resident}}}, func(_ int, b *workloads.Builder, n *workloads.Names) { eagertest.DrawStep(t, 0, b, n) })
		if err != nil {
			t.Fatal(err)
		}
		p, err := w.Program(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		cfg := eagertest.Config(eagertest.DrawNode(t, 1), w)
		cfg.Iterations = 2
		cfg.Allocator.Exact = rapid.Bool().Draw(t, "exact")
		cfg.HBM = max(4*resident, workloads.PeakLive(p, 512)*sim.Bytes(rapid.IntRange(40, 105).Draw(t, "percent"))/100)
		for _, heuristic := range []string{"dtr", "eqclass", "local", "lru", "size", "msps"} {
			o := dtr.Options{
				Heuristic: heuristic, Limit: 50,
				Release:    rapid.SampledFrom([]string{"eager", "plain"}).Draw(t, "release"),
				Duplicates: rapid.SampledFrom([]string{"apart", "over"}).Draw(t, "duplicates"),

				Communication: rapid.Bool().Draw(t, "communication"),
				SampleTensors: rapid.Bool().Draw(t, "sample"), IgnoreSmallTensors: rapid.Bool().Draw(t, "ignore small"), Seed: 1,
			}
			j := newOracle(t, o, w)
			cfg.NewPolicy = func() (policies.Policy, error) { return j, nil }
			r, err := eager.Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range r.Violations {
				t.Error(v)
			}
			replays += r.Ranks[0].Replays.Ops
			switch {
			case r.OOM == nil:
				finished++
			case r.OOM.Limit == nil:
				ended++
				if j.gaveUp == 0 && j.asked > 0 {
					t.Errorf("%+v: out of memory, and the policy did not give up", o)
				}
			}
		}
	})
	t.Logf("%d runs out of memory, %d finished, %d operators ran again", ended, finished, replays)
	if ended == 0 || finished == 0 || replays == 0 {
		t.Error("the cases do not bite")
	}
}
