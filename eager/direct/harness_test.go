package direct

import (
	"slices"
	"testing"

	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
)

// rig runs a nominal program on a device without a host: all kernels are
// enqueued at once.
type rig struct {
	eng    *sim.Engine
	dev    *stream.Device
	mem    *Memory
	p      *policies.Nominal
	ends   []sim.Time // of the kernels, in order
	noRoom *NoRoom
}

// fataler is a test, or a check of one.
type fataler interface{ Fatal(...any) }

func newRig(t testing.TB, o Options, p *policies.Nominal, plan *policies.Plan) *rig {
	t.Helper()
	return newRigT(t, o, p, plan)
}

func newRigT(t fataler, o Options, p *policies.Nominal, plan *policies.Plan) *rig {
	r := &rig{eng: sim.NewEngine(), p: p}
	var beside [hw.NumFamilies]float64
	r.dev = stream.New(r.eng, sim.NewShare(r.eng), nil, stream.NewFabric(r.eng), beside, 0, 0, r)
	m, err := New(r.eng, r.dev, o, p, func(n *NoRoom) { r.noRoom = n })
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Arm(plan); err != nil {
		t.Fatal(err)
	}
	r.mem = m
	r.dev.SetResidency(m)
	return r
}

// run plays n iterations; the times are those at which each ended, fewer if
// the run found no room.
func (r *rig) run(t testing.TB, n int) []sim.Time {
	t.Helper()
	r.enqueue(n)
	if err := r.eng.Run(); err != nil {
		t.Fatal(err)
	}
	var ends []sim.Time
	for i := range n {
		if at := (i+1)*len(r.p.Kernels) - 1; at < len(r.ends) {
			ends = append(ends, r.ends[at])
		}
	}
	return ends
}

// enqueue hands n iterations to the device, which starts on them.
func (r *rig) enqueue(n int) {
	var dead []stream.Death
	last := lastUses(r.p)
	for i := range n {
		for k := range r.p.Kernels {
			kernel := &r.p.Kernels[k]
			u := &stream.Use{Iteration: i, Index: int32(k), Span: kernel.Span, Dead: dead}
			for _, id := range operandsOf(kernel) {
				x := &r.p.Tensors[id]
				u.Operands = append(u.Operands, stream.Operand{
					Storage: id, Bytes: x.Bytes, Resident: x.Global,
					Read: slices.Contains(kernel.In, id), Write: slices.Contains(kernel.Out, id),
				})
			}
			r.mem.Issued(u)
			r.dev.Issue(stream.Compute)
			r.dev.Enqueue(stream.Compute, stream.Command{Kind: stream.Kernel})
			dead = nil
			for _, o := range u.Operands {
				if !o.Resident && last[o.Storage] == int32(k) {
					dead = append(dead, stream.Death{Storage: o.Storage, At: stream.Point{Iteration: i, Index: int32(k + 1)}})
				}
			}
		}
	}
}

// operandsOf lists the operands of a kernel by number.
func operandsOf(k *policies.NominalKernel) []int32 {
	list := slices.Concat(k.In, k.Out)
	slices.Sort(list)
	return slices.Compact(list)
}

// lastUses is the last kernel that uses each tensor.
func lastUses(p *policies.Nominal) []int32 {
	last := make([]int32, len(p.Tensors))
	for k := range p.Kernels {
		for _, id := range operandsOf(&p.Kernels[k]) {
			last[id] = int32(k)
		}
	}
	return last
}

// Started does nothing.
func (r *rig) Started(*stream.Device, stream.ID, *stream.Command) {}

// Retired notes the end of a kernel.
func (r *rig) Retired(*stream.Device, stream.ID, *stream.Command) {
	r.ends = append(r.ends, r.eng.Now())
}
