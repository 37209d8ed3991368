package eagertest

import (
	"fmt"

	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"

	"pgregory.net/rapid"
)

// DrawStep draws a step, without phases, beside resident w: operators have
// several results, change things in place, read views and let go of what they
// used, in any order; about one in ten cannot run again, or communicates.
func DrawStep(t *rapid.T, w workloads.StorageID, b *workloads.Builder, n *workloads.Names) {
	type live struct {
		id    workloads.StorageID
		views int
		refs  int
	}
	var have []*live
	beside := false // communication under way that compute has not waited for
	join := func() {
		if beside {
			b.Order(workloads.Comm, workloads.Compute)
		}
		beside = false
	}
	size := func() sim.Bytes { return sim.Bytes(rapid.IntRange(0, 8).Draw(t, "size")) * 512 }
	input := func() workloads.Arg {
		if len(have) == 0 || rapid.IntRange(0, 5).Draw(t, "resident") == 0 {
			return workloads.In(w)
		}
		l := rapid.SampledFrom(have).Draw(t, "input")
		return workloads.Arg{Storage: l.id, View: workloads.ViewID(rapid.IntRange(0, l.views).Draw(t, "view"))}
	}
	for i := range rapid.IntRange(3, 40).Draw(t, "operators") {
		o := Kernel(n, fmt.Sprint("op", i%7), sim.Time(rapid.IntRange(1, 50).Draw(t, "time"))*sim.Microsecond)
		if rapid.IntRange(0, 9).Draw(t, "replayable") > 0 {
			o.Flags |= workloads.Replayable
		}
		if rapid.IntRange(0, 9).Draw(t, "workspace") == 0 {
			o.Scratch = 1024
		}
		var args []workloads.Arg
		for range rapid.IntRange(0, 3).Draw(t, "inputs") {
			args = append(args, input())
		}
		if rapid.IntRange(0, 9).Draw(t, "beside") == 0 && len(args) > 0 {
			// Communication reads, and changes in place, what compute made. Compute
			// may go on before it is dispatched, and after.
			o.Lane = workloads.Comm
			b.Order(workloads.Compute, workloads.Comm)
			if rapid.Bool().Draw(t, "late") {
				l := &live{id: b.New(workloads.Storage{Bytes: size()}), refs: 1}
				have = append(have, l)
				k := Replayable(Kernel(n, "meanwhile", 10*sim.Microsecond))
				b.Op(k, args[0], workloads.Out(l.id))
			} else if args[0].Storage != w && rapid.Bool().Draw(t, "change") {
				args[0].Mode = workloads.Update
				args = args[:1]
			}
			b.Op(o, args...)
			if beside = true; args[0].Mode == workloads.Update || rapid.Bool().Draw(t, "wait") {
				join()
			}
		} else {
			if beside && rapid.Bool().Draw(t, "wait") {
				join()
			}
			switch rapid.IntRange(0, 10).Draw(t, "kind") {
			case 10: // a collective of alike ranks, folded into this one
				join()
				o.Lane, o.Scratch, beside = workloads.Comm, 0, true
				o.Kernel.Work = hw.Work{Kind: hw.Collective, Collective: hw.AllGather, Size: 512 * sim.Bytes(rapid.IntRange(1, 50).Draw(t, "gathered")), Members: 2}
				b.Order(workloads.Compute, workloads.Comm)
				if len(have) > 0 { // into a buffer that is there
					args = append(args, workloads.Out(rapid.SampledFrom(have).Draw(t, "buffer").id))
				}
			case 0: // in place
				join()
				if len(have) > 0 {
					l := rapid.SampledFrom(have).Draw(t, "changed")
					args = append(args, workloads.Arg{Storage: l.id, Mode: workloads.Update})
				}
			case 1: // over what is there, or over a part of it
				join()
				if len(have) > 0 {
					l := rapid.SampledFrom(have).Draw(t, "replaced")
					a := workloads.Out(l.id)
					if rapid.Bool().Draw(t, "part") {
						a.View, a.Mode = 1, workloads.Update
					}
					args = append(args, a)
				}
			case 2, 3: // a view
				if len(have) > 0 {
					l := rapid.SampledFrom(have).Draw(t, "viewed")
					from := rapid.IntRange(0, l.views).Draw(t, "of")
					l.views++
					o.Flags |= workloads.Views
					args = append(args, workloads.Arg{Storage: l.id, View: workloads.ViewID(from)}, workloads.Arg{Storage: l.id, View: workloads.ViewID(l.views)})
				}
			case 4: // a parameter
				join()
				args = append(args, workloads.InPlace(w))
			}
			for range rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2, 3}).Draw(t, "results") {
				l := &live{id: b.New(workloads.Storage{Bytes: size()}), refs: 1}
				have = append(have, l)
				a := workloads.Out(l.id)
				if rapid.IntRange(0, 5).Draw(t, "in parts") == 0 {
					a.View = 1
				}
				args = append(args, a)
			}
			b.Op(o, args...)
			if o.Lane == workloads.Comm {
				join()
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "drops") {
			if len(have) == 0 {
				break
			}
			join()
			k := rapid.IntRange(0, len(have)-1).Draw(t, "drop")
			b.Drop(have[k].id)
			have = append(have[:k], have[k+1:]...)
		}
	}
	join()
	var rest []workloads.Arg
	for _, l := range have {
		rest = append(rest, workloads.In(l.id))
	}
	if len(rest) > 0 {
		b.Op(workloads.OpSpec{Name: n.ID("outputs"), HostOnly: true}, rest...)
	}
	for _, l := range have {
		b.Drop(l.id)
	}
}
