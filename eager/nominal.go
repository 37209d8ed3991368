package eager

import (
	"slices"

	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"
)

// Nominal is the nominal program of the rank for policies of grade Static: its
// program of iteration 0, without jitter.
func (r *rank) Nominal() *policies.Nominal {
	if r.needs.Grade < policies.Static {
		return nil
	}
	if r.nominal == nil {
		p, err := workloads.Nominal(r.job.cfg.Workload).Program(r.index, 0)
		if err != nil {
			return nil // the run has ended, or is about to end, with this error
		}
		r.nominal = newNominal(p, r.job.prepare(p))
	}
	return r.nominal
}

// newNominal shows a program to a compile-time planner. All operators are in it
// in the order of dispatch, whatever stream they run on. The spans add up to the
// time at which the compute stream ends, with a host that costs nothing and
// other ranks that are never late: a kernel of that stream has its own, and
// communication what the compute stream waits for it, which is booked to the
// last kernel that it then waits for. What runs beside compute is in no span
// twice. O(instructions + arguments).
func newNominal(p *workloads.Program, w *prepared) *policies.Nominal {
	type point struct {
		at     sim.Time
		kernel int32 // the last one before it; -1 = none
	}
	var ends [workloads.NumLanes]point // of what the lanes have run
	for l := range ends {
		ends[l].kernel = -1
	}
	events := make([]point, p.Events)
	s := &policies.Nominal{Loss: -1, Tensors: make([]policies.NominalTensor, len(p.Storages))}
	for i := range p.Storages {
		s.Tensors[i] = policies.NominalTensor{Bytes: p.Storages[i].Bytes, Global: i < int(p.Residents)}
	}
	touched := make([]bool, len(p.Storages))
	for i := range p.Instrs {
		in := &p.Instrs[i]
		switch {
		case in.Kind == workloads.Mark && in.Mark == workloads.MarkForwardEnd:
			s.Loss = int32(len(s.Kernels) - 1)
		case in.Kind == workloads.Record:
			events[in.A] = ends[in.Lane]
		case in.Kind == workloads.Wait:
			e, l := events[in.A], &ends[in.Lane]
			if late := e.at - l.at; late > 0 {
				*l = e
				if in.Lane == workloads.Compute {
					s.Kernels[e.kernel].Span += late
				}
			}
		case in.Kind == workloads.Op:
			n := int32(len(s.Kernels))
			var k policies.NominalKernel
			if in.Kernel >= 0 {
				span := w.commands[in.Kernel].Timing.Span
				ends[in.Lane] = point{ends[in.Lane].at + span, n}
				if in.Lane == workloads.Compute {
					k.Span = span
				}
			}
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				id := int32(a.Storage)
				if a.Mode != workloads.Write && !slices.Contains(k.In, id) {
					k.In = append(k.In, id)
				}
				if a.Mode != workloads.Read && !slices.Contains(k.Out, id) {
					k.Out = append(k.Out, id)
				}
				if t := &s.Tensors[id]; !t.Global {
					if !touched[id] {
						t.Birth, touched[id] = n, true
					}
					t.Death = n + 1
				}
			}
			s.Kernels = append(s.Kernels, k)
		}
	}
	return s
}
