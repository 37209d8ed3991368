package workloads

import "smartswap/sim"

// PeakLive is the largest number of bytes that live storages and workspaces of
// p take at one time in host order, with residents counted from the start: what
// a run without a policy must at least reserve. Sizes are as requested; give
// round = 512 for the granularity of PyTorch's caching allocator, 1 for none.
// Time is linear in the program's length.
func PeakLive(p *Program, round sim.Bytes) sim.Bytes {
	size := func(b sim.Bytes) sim.Bytes { return (b + round - 1) / round * round }
	refs := make([]int32, len(p.Storages)) // 0 = not born; residents may go up and down above 1
	live := sim.Bytes(0)
	for i := range p.Residents {
		refs[i] = 1
		live += size(p.Storages[i].Bytes)
	}
	peak := live
	for i := range p.Instrs {
		switch in := &p.Instrs[i]; in.Kind {
		case Op:
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if refs[a.Storage] == 0 {
					refs[a.Storage] = 1
					live += size(p.Storages[a.Storage].Bytes)
				}
			}
			peak = max(peak, live+size(in.Scratch))
		case Ref:
			refs[in.A]++
		case Drop:
			refs[in.A]--
			if refs[in.A] == 0 {
				live -= size(p.Storages[in.A].Bytes)
			}
		}
	}
	return peak
}

// Total is the time that the kernels of lane take one after another, by the
// caller's price of a kernel: a lower bound of the iteration. Every distinct
// kernel is priced once.
func (p *Program) Total(price func(KernelID) sim.Time, lane Lane) sim.Time {
	counts := make([]int64, len(p.Kernels))
	for i := range p.Instrs {
		if in := &p.Instrs[i]; in.Kind == Op && in.Lane == lane && in.Kernel >= 0 {
			counts[in.Kernel]++
		}
	}
	total := sim.Time(0)
	for k, n := range counts {
		if n > 0 {
			total += sim.Time(n) * price(KernelID(k))
		}
	}
	return total
}
