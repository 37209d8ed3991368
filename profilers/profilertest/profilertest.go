// Package profilertest is the conformance suite of profilers: what every
// profiler must do, whatever it records.
package profilertest

import (
	"testing"

	"smartswap/profilers"
	"smartswap/sim"
)

// Conform checks that p has constant fields and costs, that no cost is
// negative, that it charges nothing for what it does not record, and that an
// observation made under it has the recorded fields and no others.
func Conform(t *testing.T, p profilers.Profiler) {
	t.Helper()
	fields, costs := p.Fields(), p.Costs()
	if fields != p.Fields() || costs != p.Costs() {
		t.Error("fields or costs are not constant")
	}
	for _, c := range []struct {
		name string
		cost sim.Time
	}{
		{"PerOp", costs.PerOp}, {"PerTensor", costs.PerTensor}, {"PerStats", costs.PerStats},
		{"PerRecord", costs.PerRecord}, {"PerIteration", costs.PerIteration}, {"PerBorder", costs.PerBorder},
	} {
		if c.cost < 0 {
			t.Errorf("%s = %d ps is negative", c.name, c.cost)
		}
	}
	if fields == 0 {
		if costs != (profilers.Costs{}) {
			t.Errorf("it records nothing but costs %+v", costs)
		}
	}
	if !fields.Has(profilers.TensorArgs) && costs.PerTensor+costs.PerRecord != 0 {
		t.Errorf("it records no tensors but charges for them: %+v", costs)
	}
	if !fields.Has(profilers.BorderTimes) && costs.PerBorder != 0 {
		t.Errorf("it records no borders but charges for them: %+v", costs)
	}
	if fields.Has(profilers.BorderTimes) && !fields.Has(profilers.OpRecords) {
		t.Errorf("fields %v: borders without operators", fields)
	}
	if fields.Has(profilers.TensorArgs) && !fields.Has(profilers.OpRecords) {
		t.Errorf("fields %v: tensor arguments without operators", fields)
	}
	checkObservation(t, fields, observe(p))
}

// observe records one operator and one transfer with every field set.
func observe(p profilers.Profiler) *profilers.Observation {
	var names profilers.Names
	r := profilers.NewRecorder(&names, 1)
	r.Begin(0, p)
	begin, timed := r.Border()
	r.Op(profilers.OpRec{ID: 1, Name: names.ID(0, "op"), Allocated: 1, Reserved: 1, Active: 1},
		[]profilers.TensorRec{{Tensor: 1, Bytes: 1}})
	r.Swap(profilers.SwapRec{Bytes: 1, Src: 1, Dst: 2})
	r.Timed(1, 5, 5)
	if end, ok := r.Border(); ok && timed {
		r.Reached(begin, 3)
		r.Reached(end, 9)
	}
	return r.End(10, false)
}

func checkObservation(t *testing.T, fields profilers.Fields, o *profilers.Observation) {
	t.Helper()
	if fields == 0 {
		if o != nil {
			t.Errorf("it records nothing but there is an observation: %+v", o)
		}
		return
	}
	if o == nil {
		t.Fatal("no observation")
	}
	if o.Fields != fields {
		t.Errorf("the observation claims fields %v, the profiler %v", o.Fields, fields)
	}
	var op profilers.OpRec
	if len(o.Ops) > 0 {
		op = o.Ops[0]
	}
	for _, c := range []struct {
		field profilers.Fields
		there bool
	}{
		{profilers.IterationTime, o.Duration != 0},
		{profilers.OpNames, len(o.Sequence) == 1},
		{profilers.OpRecords, len(o.Ops) == 1},
		{profilers.TensorArgs, len(o.Tensors) == 1},
		{profilers.MemoryStats, op.Allocated != 0 && op.Reserved != 0 && op.Active != 0},
		{profilers.SwapRecords, len(o.Swaps) == 1},
		{profilers.OpTimes, op.Span != 0},
		{profilers.BorderTimes, len(o.Borders) == 2 && o.Borders[1].Op == 1 && o.Borders[1].At == 6},
	} {
		if c.there != fields.Has(c.field) {
			t.Errorf("%v recorded: %v, in the profiler's fields: %v", c.field, c.there, !c.there)
		}
	}
}
