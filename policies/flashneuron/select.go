package flashneuron

import (
	"smartswap/policies"
	"smartswap/sim"
)

// Choice is what is offloaded.
type Choice struct {
	// Budget is what device memory leaves to tensors that wait for the
	// backward pass: its size less the globals and the largest working set of
	// a kernel. It may be negative.
	Budget sim.Bytes
	// Candidates are the tensors that the forward pass leaves to the backward
	// pass, in the order of their first use; those of one kernel by number.
	Candidates []int32
	// Offloaded are the chosen ones, with the kernels at which they leave.
	Offloaded []Leave
	Left      sim.Bytes // the sum of the candidates that stay
	Fits      bool      // Left <= Budget
}

// Leave is a tensor and the kernel from which it is not needed any more in the
// forward pass.
type Leave struct{ Tensor, Kernel int32 }

// Select chooses candidates from the front until those that remain fit into
// device memory of gpu bytes. O(arguments + tensors).
func Select(p *policies.Nominal, gpu sim.Bytes) *Choice {
	c := &Choice{}
	seen := make([]int32, len(p.Tensors)) // 1 + last kernel that used it
	leave := make([]int32, len(p.Tensors))
	for i := range leave {
		leave[i] = -1
	}
	var largest, globals sim.Bytes
	for k := range p.Kernels {
		var set sim.Bytes
		n := int32(k)
		operands(&p.Kernels[k], func(t int32) {
			x := &p.Tensors[t]
			if last := seen[t]; last != n+1 {
				set += x.Bytes
				if last > 0 && last < n && last <= p.Loss {
					leave[t] = last // a period begins at kernel last
				}
				if last == 0 && n < p.Loss && !x.Global && x.Death > p.Loss {
					c.Candidates = append(c.Candidates, t)
					c.Left += x.Bytes
				}
				seen[t] = n + 1
			}
		})
		largest = max(largest, set)
	}
	for i := range p.Tensors {
		if p.Tensors[i].Global {
			globals += p.Tensors[i].Bytes
		}
	}
	c.Budget = gpu - globals - largest
	for _, t := range c.Candidates {
		if c.Left <= c.Budget {
			break
		}
		if leave[t] < 0 {
			continue // in use throughout
		}
		c.Offloaded = append(c.Offloaded, Leave{t, leave[t]})
		c.Left -= p.Tensors[t].Bytes
	}
	c.Fits = c.Left <= c.Budget
	return c
}

// operands calls f for the operands of a kernel by number; one that is read and
// written comes twice.
func operands(k *policies.NominalKernel, f func(int32)) {
	in, out := k.In, k.Out
	for len(in) > 0 || len(out) > 0 {
		if len(out) == 0 || len(in) > 0 && in[0] <= out[0] {
			f(in[0])
			in = in[1:]
		} else {
			f(out[0])
			out = out[1:]
		}
	}
}

// Hints are the evictions of a choice.
func (c *Choice) Hints() []policies.Action {
	list := make([]policies.Action, 0, len(c.Offloaded))
	for _, l := range c.Offloaded {
		list = append(list, policies.Action{
			Kind: policies.Evict, To: policies.SSDTier,
			What:  policies.Selector{Kind: policies.ByStatic, Static: l.Tensor},
			Start: policies.Trigger{Kind: policies.AtOp, N: l.Kernel},
		})
	}
	return list
}
