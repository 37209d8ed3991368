package native_test

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// content is what two equal workloads agree in.
type content struct {
	Name       string
	Tokens     int64
	Names      []string
	Ranks      []workloads.Rank
	Programs   [][]workloads.Program // by rank, in order of first use
	Iterations [][]int
}

func contentOf(t rapid.TB, w workloads.Workload, n int) content {
	c := content{Name: w.Name(), Tokens: w.Tokens(), Ranks: w.Ranks()}
	for id := range w.Names().Len() {
		c.Names = append(c.Names, w.Names().String(workloads.NameID(id)))
	}
	for r := range w.Ranks() {
		var seen []*workloads.Program
		var programs []workloads.Program
		var order []int
		for i := range n {
			p, err := w.Program(r, i)
			if err != nil {
				t.Fatal(err)
			}
			if p.Names != w.Names() {
				t.Errorf("rank %d, iteration %d: names of its own", r, i)
			}
			at := slices.Index(seen, p)
			if at < 0 {
				at = len(seen)
				seen = append(seen, p)
				plain := *p
				plain.Names = nil
				programs = append(programs, plain)
			}
			order = append(order, at)
		}
		c.Programs = append(c.Programs, programs)
		c.Iterations = append(c.Iterations, order)
	}
	return c
}

// roundTrip writes n iterations, reads them back and compares; it returns the
// text.
func roundTrip(t rapid.TB, w workloads.Workload, n int) string {
	t.Helper()
	var text bytes.Buffer
	if err := native.Write(&text, w, n); err != nil {
		t.Fatal(err)
	}
	got, err := native.Read(bytes.NewReader(text.Bytes()), "f")
	if err != nil {
		t.Fatalf("%v\n%.5000s", err, text.String())
	}
	if got.Iterations() != n {
		t.Errorf("%d iterations, want %d", got.Iterations(), n)
	}
	want, have := contentOf(t, w, n), contentOf(t, got, n)
	if !reflect.DeepEqual(want, have) { // much faster; but nil and empty differ
		if d := cmp.Diff(want, have, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s\n%.5000s", d, text.String())
		}
	}
	var again bytes.Buffer
	if err := native.Write(&again, got, n); err != nil || again.String() != text.String() {
		t.Errorf("the second writing differs from the first: %v", err)
	}
	return text.String()
}

// draw draws a number in [lo, hi].
func draw[T ~int | ~int32 | ~int64 | ~uint8](t *rapid.T, what string, lo, hi T) T {
	return T(rapid.Int64Range(int64(lo), int64(hi)).Draw(t, what))
}

func drawStorage(t *rapid.T, names int) workloads.Storage {
	s := workloads.Storage{
		Bytes: draw[sim.Bytes](t, "bytes", 0, 1<<50),
		Class: draw(t, "class", 0, workloads.NumClasses-1),
		DType: draw(t, "dtype", workloads.BF16, workloads.UINT8),
		Layer: draw[int32](t, "layer", 0, 3),
		Flat:  rapid.Bool().Draw(t, "flat"),
		Label: draw(t, "label", 0, workloads.NameID(names-1)),
	}
	for i := range s.Shape {
		s.Shape[i] = draw[int32](t, "dimension", 0, 3)
	}
	return s
}

func drawKernel(t *rapid.T, ranks int) workloads.Kernel {
	k := workloads.Kernel{Work: hw.Work{
		Kind:       draw(t, "kind", hw.Modelled, hw.Transfer),
		Family:     draw(t, "family", 0, hw.NumFamilies-1),
		Flops:      draw[int64](t, "flops", 0, 1<<62),
		Traffic:    draw[sim.Bytes](t, "traffic", 0, 1<<50),
		M:          draw[int32](t, "m", 0, 9),
		N:          draw[int32](t, "n", 0, 9),
		K:          draw[int32](t, "k", 0, 9),
		Dtype16:    rapid.Bool().Draw(t, "16bit"),
		Time:       draw[sim.Time](t, "time", 0, 1<<50),
		Collective: draw(t, "collective", 0, hw.NumCollectives-1),
		Size:       draw[sim.Bytes](t, "size", 1, 1<<50),
		Members:    draw[int32](t, "members", 2, 9),
		Stride:     draw[int32](t, "stride", 0, 9),
	}, Tag: draw[int32](t, "tag", 0, 3)}
	k.Faulting = [2]sim.Time{draw[sim.Time](t, "inputs fault", 0, 1<<50), draw[sim.Time](t, "all fault", 0, 1<<50)}
	for range draw(t, "group", 0, 2) {
		k.Group = append(k.Group, draw[int32](t, "rank", 0, int32(ranks-1)))
	}
	return k
}

// programDrawer draws a valid program. Storages are born in any order.
type programDrawer struct {
	t      *rapid.T
	p      *workloads.Program
	unborn []workloads.StorageID
	refs   map[workloads.StorageID]int
	live   []workloads.StorageID // that may be read: residents and the living
}

func drawProgram(t *rapid.T, names *workloads.Names, residents []workloads.Storage, ranks int) *workloads.Program {
	d := &programDrawer{t: t, refs: make(map[workloads.StorageID]int), p: &workloads.Program{
		Names: names, Residents: int32(len(residents)), Storages: slices.Clone(residents),
		Kind: rapid.String().Draw(t, "program"),
	}}
	for id := range residents {
		d.live = append(d.live, workloads.StorageID(id))
	}
	for range draw(t, "storages", 0, 5) {
		d.unborn = append(d.unborn, workloads.StorageID(len(d.p.Storages)))
		d.p.Storages = append(d.p.Storages, drawStorage(t, names.Len()))
	}
	for range draw(t, "kernels", 0, 3) {
		d.p.Kernels = append(d.p.Kernels, drawKernel(t, ranks))
	}
	d.add(workloads.Instr{Kind: workloads.Mark, Mark: workloads.MarkIterationBegin, A: draw[int32](t, "a", -1, 1)})
	phase := workloads.Instr{Kind: workloads.Mark, Mark: workloads.MarkForwardBegin, A: draw[int32](t, "a", 0, 2), B: draw[int32](t, "b", 0, 2)}
	d.add(phase)
	for range draw(t, "steps", 0, 20) {
		d.step()
	}
	phase.Mark = workloads.MarkForwardEnd
	d.add(phase)
	for len(d.unborn) > 0 {
		d.op()
	}
	for id := range len(d.p.Storages) {
		for range d.refs[workloads.StorageID(id)] {
			d.add(workloads.Instr{Kind: workloads.Drop, A: int32(id)})
		}
	}
	d.add(workloads.Instr{Kind: workloads.Mark, Mark: workloads.MarkIterationEnd})
	if err := d.p.Validate(); err != nil {
		t.Fatal(err)
	}
	return d.p
}

func (d *programDrawer) add(in workloads.Instr) { d.p.Instrs = append(d.p.Instrs, in) }

func (d *programDrawer) step() {
	lane := draw(d.t, "lane", 0, workloads.NumLanes-1)
	switch draw(d.t, "step", 0, 7) {
	case 0, 1, 2:
		d.op()
	case 3:
		d.add(workloads.Instr{Kind: workloads.Sync, Lane: lane})
	case 4:
		d.add(workloads.Instr{Kind: workloads.Record, Lane: lane, A: d.p.Events})
		d.p.Events++
	case 5:
		if d.p.Events > 0 {
			d.add(workloads.Instr{Kind: workloads.Wait, Lane: lane, A: draw(d.t, "event", 0, d.p.Events-1)})
		}
	default:
		if len(d.live) == 0 {
			return
		}
		s := rapid.SampledFrom(d.live).Draw(d.t, "storage")
		in := workloads.Instr{Kind: draw(d.t, "kind", workloads.Ref, workloads.Unpack), A: int32(s)}
		switch in.Kind {
		case workloads.Ref:
			d.refs[s]++
		case workloads.Drop:
			if d.refs[s] == 0 {
				return // a resident's own reference
			}
			if d.refs[s]--; d.refs[s] == 0 && int32(s) >= d.p.Residents {
				d.live = slices.DeleteFunc(d.live, func(l workloads.StorageID) bool { return l == s })
			}
		}
		d.add(in)
	}
}

func (d *programDrawer) op() {
	in := workloads.Instr{
		Kind:    workloads.Op,
		Lane:    draw(d.t, "lane", 0, workloads.NumLanes-1),
		Name:    draw(d.t, "name", 0, workloads.NameID(d.p.Names.Len()-1)),
		Kernel:  draw(d.t, "kernel", -1, workloads.KernelID(len(d.p.Kernels)-1)),
		Host:    draw[sim.Time](d.t, "host", 0, 1<<50),
		Scratch: draw[sim.Bytes](d.t, "scratch", 0, 1<<50),
		Flags:   draw(d.t, "flags", 0, workloads.Replayable|workloads.Recomputed|workloads.Views),
		ArgLo:   int32(len(d.p.Args)),
	}
	if in.Kernel >= 0 && len(d.p.Kernels[in.Kernel].Group) > 1 { // one lane for those that could meet
		in.Lane = workloads.Comm
	}
	for _, s := range d.live {
		if rapid.Bool().Draw(d.t, "use") {
			mode := draw(d.t, "mode", workloads.Read, workloads.Update)
			d.arg(s, mode)
			if mode == workloads.Write { // all of it: parts are updated
				d.p.Args[len(d.p.Args)-1].View = 0
			}
		}
	}
	for range min(len(d.unborn), draw(d.t, "births", 0, 2)) {
		i := draw(d.t, "birth", 0, len(d.unborn)-1)
		s := d.unborn[i]
		d.unborn = slices.Delete(d.unborn, i, i+1)
		d.live = append(d.live, s)
		d.refs[s] = 1
		d.arg(s, workloads.Write)
		if rapid.Bool().Draw(d.t, "twice") {
			d.arg(s, workloads.Read)
		}
	}
	in.ArgHi = int32(len(d.p.Args))
	d.p.Ops++
	d.add(in)
}

func (d *programDrawer) arg(s workloads.StorageID, mode workloads.Access) {
	d.p.Args = append(d.p.Args, workloads.Arg{Storage: s, View: draw(d.t, "view", workloads.ViewID(0), 2), Mode: mode})
}

func drawWorkload(t *rapid.T) (workloads.Workload, int) {
	names := workloads.NewNames()
	for _, s := range rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z:#" _]{0,8}`)), 1, 4).Draw(t, "names") {
		names.ID(s)
	}
	var ranks []workloads.Rank
	var programs [][]*workloads.Program
	n := draw(t, "iterations", 1, 40)
	count := draw(t, "ranks", 1, 2)
	for r := range count {
		rank := workloads.Rank{
			Devices: rapid.SliceOfNDistinct(rapid.IntRange(10*r, 10*r+9), 1, 3, rapid.ID).Draw(t, "devices"),
			Stage:   draw(t, "stage", 0, 3),
		}
		for range draw(t, "residents", 0, 3) {
			rank.Residents = append(rank.Residents, drawStorage(t, names.Len()))
		}
		var distinct, order []*workloads.Program
		for range draw(t, "programs", 1, 2) {
			distinct = append(distinct, drawProgram(t, names, rank.Residents, count))
		}
		for range n {
			order = append(order, rapid.SampledFrom(distinct).Draw(t, "program"))
		}
		ranks = append(ranks, rank)
		programs = append(programs, order)
	}
	w := native.NewTrace(rapid.String().Draw(t, "workload"), draw[int64](t, "tokens", 0, 1<<62), names, ranks, programs)
	return w, n
}

// Whatever is written is read back the same.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, n := drawWorkload(t)
		roundTrip(t, w, n)
	})
}

// Cut off anywhere, a file is an error and never a shorter workload.
func TestTruncated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, n := drawWorkload(t)
		var text bytes.Buffer
		if err := native.Write(&text, w, n); err != nil {
			t.Fatal(err)
		}
		whole := strings.TrimSuffix(text.String(), "\n")
		cut := whole[:draw(t, "cut", 0, len(whole)-1)]
		if _, err := native.Read(strings.NewReader(cut), "f"); err == nil || !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("cut to %d of %d bytes: error %v", len(cut), len(whole), err)
		}
	})
}

// Every field of a type, a kernel and an instruction survives, fields that are
// added later included: each is set to something else than 0 in turn.
func TestEveryFieldSurvives(t *testing.T) {
	base := func() (workloads.Rank, *workloads.Program) {
		names := workloads.NewNames()
		names.ID("a")
		names.ID("b")
		rank := workloads.Rank{Devices: []int{0}, Residents: []workloads.Storage{{Bytes: 1}}}
		return rank, &workloads.Program{
			Names: names, Residents: 1, Storages: slices.Clone(rank.Residents), Ops: 1,
			Kernels: []workloads.Kernel{{}},
			Instrs: []workloads.Instr{
				{Kind: workloads.Mark, Mark: workloads.MarkIterationBegin},
				{Kind: workloads.Op},
				{Kind: workloads.Mark, Mark: workloads.MarkIterationEnd},
			},
		}
	}
	try := func(what string, set func(*workloads.Rank, *workloads.Program) reflect.Value, skip ...string) {
		rank, p := base()
		n := set(&rank, p).NumField()
		for i := range n {
			rank, p := base()
			v := set(&rank, p)
			field := v.Type().Field(i).Name
			if slices.Contains(skip, field) {
				continue
			}
			if !setNonZero(v.Field(i)) {
				t.Errorf("%s.%s: a field of a new kind; teach this test and the format", what, field)
				continue
			}
			p.Storages[0] = rank.Residents[0]
			w := native.NewTrace(what+"."+field, 0, p.Names, []workloads.Rank{rank}, [][]*workloads.Program{{p}})
			roundTrip(t, w, 1)
		}
	}
	try("Storage", func(r *workloads.Rank, p *workloads.Program) reflect.Value {
		return reflect.ValueOf(&r.Residents[0]).Elem()
	})
	try("Work", func(r *workloads.Rank, p *workloads.Program) reflect.Value {
		return reflect.ValueOf(&p.Kernels[0].Work).Elem()
	})
	try("Kernel", func(r *workloads.Rank, p *workloads.Program) reflect.Value {
		return reflect.ValueOf(&p.Kernels[0]).Elem()
	}, "Work")
	try("Op", func(r *workloads.Rank, p *workloads.Program) reflect.Value {
		return reflect.ValueOf(&p.Instrs[1]).Elem()
	}, "Kind", "Mark", "ArgLo", "ArgHi", "A", "B", "Kernel")
}

// setNonZero sets a field to a small value other than 0.
func setNonZero(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Array:
		return setNonZero(v.Index(0))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	default:
		return false
	}
	return true
}

func Example() {
	f, err := os.Open("testdata/demo.trace")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	trace, err := native.Read(f, "demo.trace")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, _ := trace.Program(0, 0)
	fmt.Println(trace.Name(), trace.Tokens(), "tokens,", p.Ops, "operator,", trace.Iterations(), "iterations")
	// Output: demo/b8 512 tokens, 1 operator, 3 iterations
}
