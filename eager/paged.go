package eager

import (
	"errors"
	"fmt"
	"slices"

	"smartswap/eager/alloc"
	"smartswap/eager/direct"
	"smartswap/eager/stream"
	"smartswap/eager/unified"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"
)

// pagedMemory is device memory that is not the allocator's: a residency with a
// plan and books. The allocator then hands out addresses without limit.
type pagedMemory interface {
	stream.Residency
	// Moves is when what moved, once somebody watches.
	Moves() *stream.Moves
	// Arm replaces the plan; see policies.Plan.Hints.
	Arm(p *policies.Plan) error
	// Ledger is what has happened up to the last kernel that has begun.
	Ledger() stream.Ledger
	ResetPeaks()
	// Share tells, before any of them is issued, that there will be kernels
	// that communicate: see stream.Use.
	Share()
	// Stuck is, when nothing happens any more, what kernels that have begun
	// wait for: nil if it is not memory.
	Stuck() error
}

// newPaged makes the memory of the kind that the policy needs.
func (r *rank) newPaged(d *workloads.Rank) (pagedMemory, error) {
	switch r.needs.Memory {
	case policies.Unified:
		var p policies.Paging
		if pager, ok := r.policy.(policies.Pager); ok {
			p = pager.Paging()
		}
		var checks func(string, ...any)
		if r.job.cfg.Checks {
			checks = r.job.violate
		}
		unknown := r.unknown(d)
		residents := make([]sim.Bytes, len(d.Residents))
		for i := range residents {
			if b := d.Residents[i].Bytes; unknown[i] {
				r.unmoved += b // and no pages
			} else {
				residents[i] = b
			}
		}
		o := r.job.cfg.unified()
		o.Device = max(o.Device-r.unmoved, o.Page) // with a page for all, the first kernel runs out of memory
		return unified.New(o, p, r.eng, r.dev, residents, r.nominalBytes, r.starved, checks)
	case policies.Direct:
		n := r.Nominal()
		if n == nil {
			return nil, fmt.Errorf("direct memory is placed by the nominal program: the policy needs grade %q, it has %q", policies.Static, r.needs.Grade)
		}
		placing := policies.ByPlan
		if placer, ok := r.policy.(policies.Placer); ok {
			placing = placer.Placing()
		}
		m, err := direct.New(r.eng, r.dev, r.job.cfg.direct(placing, n), n, func(e *direct.NoRoom) { r.starved(e) })
		if err != nil {
			return nil, err
		}
		paged := directMemory{Memory: m}
		if r.job.cfg.Checks {
			paged.checks = r.job.violate
		}
		r.dev.SetResidency(paged)
		return paged, nil
	}
	return nil, fmt.Errorf("no memory of kind %q", r.needs.Memory)
}

// unknown tells which residents are flat buffers that no operator of the first
// iteration touches: what a trace found on the device without telling what it is
// for. They stay there.
func (r *rank) unknown(d *workloads.Rank) []bool {
	list := make([]bool, len(d.Residents))
	p, err := r.job.cfg.Workload.Program(r.index, 0)
	if err != nil {
		return list // the run has ended, or is about to end, with this error
	}
	for i := range d.Residents {
		list[i] = d.Residents[i].Flat
	}
	for _, a := range p.Args {
		if int(a.Storage) < len(list) {
			list[a.Storage] = false
		}
	}
	return list
}

// direct is how direct memory works on this node: with the sizes and rates of
// unified memory. Host memory has what the SSD leaves of the link.
func (c *Config) direct(placing policies.Placing, n *policies.Nominal) direct.Options {
	u := c.unified()
	rate := func(r sim.Rate) sim.Rate {
		if c.DirectAsBuilt {
			return sim.Rate(float64(r) / 1e9 * float64(sim.GiB))
		}
		return r
	}
	ssd := min(u.SSDRate, u.Link)
	if placing == policies.ByNeed {
		return direct.FlashNeuron(u.Device, rate(ssd), n)
	}
	o := direct.G10GDS(u.Device, rate(ssd), rate(u.Link), u.Host)
	if !c.DirectAsBuilt {
		o.Capacity = u.Device
		o.Tiers[policies.HostTier].Demand = false
	}
	return o
}

// directMemory is direct memory as a rank sees it. Workspaces that are no
// tensors of the nominal program take none of it.
type directMemory struct {
	*direct.Memory
	checks func(string, ...any) // nil: none
}

// Ran implements stream.Residency.
func (m directMemory) Ran(s stream.ID) (sim.Time, bool) {
	if m.checks != nil {
		if err := m.Check(); err != nil {
			m.checks("%v (2, 4)", err)
		}
	}
	return m.Memory.Ran(s)
}

// Issued implements stream.Residency.
func (m directMemory) Issued(u *stream.Use) {
	v := *u
	v.Operands = slices.DeleteFunc(slices.Clone(u.Operands), func(o stream.Operand) bool { return o.Storage == stream.Scratch })
	v.Dead = slices.DeleteFunc(slices.Clone(u.Dead), func(d stream.Death) bool { return d.Storage == stream.Scratch })
	m.Memory.Issued(&v)
}

// Ledger implements pagedMemory.
func (m directMemory) Ledger() stream.Ledger {
	s := m.Stats()
	l := stream.Ledger{Faults: s.Fetches, Device: s.Used, PeakDevice: s.Peak, Tiers: s.Held, Peak: s.PeakHeld}
	for tier := range l.In {
		l.In[tier], l.Out[tier] = s.Bytes[tier][direct.In], s.Bytes[tier][direct.Out]
	}
	return l
}

// ResetPeaks implements pagedMemory; the peak is that of the run.
func (m directMemory) ResetPeaks() {}

// nominalBytes is the size of a tensor of the nominal program, 0 if there is no
// such tensor or the policy is not granted the program.
func (r *rank) nominalBytes(id int32) sim.Bytes {
	if n := r.Nominal(); n != nil && int(id) < len(n.Tensors) {
		return n.Tensors[id].Bytes
	}
	return 0
}

// unified is how unified memory works on this node. Devices below one switch
// have equal shares of its uplink, each has an SSD of its own.
func (c *Config) unified() unified.Options {
	o := c.Unified
	if o == (unified.Options{}) {
		o = unified.Defaults()
	}
	if o.Device == 0 {
		o.Device = c.capacity()
	}
	if c.Unbounded {
		o.Device = 1 << 50
	}
	if o.Host < 0 {
		o.Host = c.Node.Host.Memory / sim.Bytes(max(1, c.Node.Devices))
	}
	if l := &c.Node.Link; o.Link == 0 {
		o.Link = min(l.Rate[hw.D2H], l.Rate[hw.H2D])
		if n := min(l.UplinkDevices, c.devices()); n > 1 && l.Uplink > 0 {
			o.Link = min(o.Link, l.Uplink/sim.Rate(n))
		}
	}
	return o
}

// announce tells the paged memory of the kernel that is about to be issued.
func (r *rank) announce(in *workloads.Instr, c *stream.Command) {
	u := &r.use
	k := &r.prog.Kernels[in.Kernel]
	u.On, u.Communicates = lanes[in.Lane], communicates(in, c)
	u.Iteration, u.Index, u.Span = r.iteration, int32(r.opID-r.firstOp), c.Timing.Span
	u.Inputs, u.All = k.Faulting[0], k.Faulting[1]
	u.Operands = u.Operands[:0]
	for _, a := range r.prog.Args[in.ArgLo:in.ArgHi] {
		u.Operands = append(u.Operands, stream.Operand{
			Storage: int32(a.Storage), Bytes: r.prog.Storages[a.Storage].Bytes,
			Read: a.Mode != workloads.Write, Write: a.Mode != workloads.Read, Resident: int(a.Storage) < r.residents,
		})
	}
	if in.Scratch > 0 {
		u.Operands = append(u.Operands, stream.Operand{Storage: stream.Scratch, Bytes: in.Scratch, Write: true})
	}
	r.paged.Earlier(u, func(end stream.Event) {
		if !r.dev.Done(end) {
			r.Push(u.On, stream.Command{Kind: stream.WaitFor, Wait: end, Cause: stream.Order})
		}
	})
	u.End = r.dev.Next(u.On)
	r.paged.Issued(u)
	if u.Communicates {
		return // what has died waits for a kernel of the compute stream
	}
	u.Dead = u.Dead[:0]
	if in.Scratch > 0 {
		u.Dead = append(u.Dead, stream.Death{Storage: stream.Scratch, At: stream.Point{Iteration: u.Iteration, Index: u.Index + 1}})
	}
}

// communicates tells whether a command is a collective or transfer, or a kernel
// beside the compute stream.
func communicates(in *workloads.Instr, c *stream.Command) bool {
	return in.Lane != workloads.Compute || c.Kind != stream.Kernel
}

// devices is how many a job uses.
func (c *Config) devices() (n int) {
	for _, r := range c.Workload.Ranks() {
		n += len(r.Devices)
	}
	return n
}

// settle books what the paged memory did in the iteration that the device has
// ended.
func (r *rank) settle(it *Iteration) {
	l, b := r.paged.Ledger(), r.ledger
	r.ledger, r.reached = l, it.Index+1
	if m, ok := r.paged.(directMemory); ok && r.check != nil {
		if err := m.Check(); err != nil {
			r.job.violate("rank %d, iteration %d: %v (2)", r.index, it.Index, err)
		}
	}
	it.Faults += l.Faults - b.Faults
	for tier := range l.In {
		it.InBytes += l.In[tier] - b.In[tier]
		it.OutBytes += l.Out[tier] - b.Out[tier]
	}
	it.SSDIn += l.In[policies.SSDTier] - b.In[policies.SSDTier]
	it.SSDOut += l.Out[policies.SSDTier] - b.Out[policies.SSDTier]
	if it.Index == r.job.cfg.Warmup-1 {
		r.warm = l
		r.paged.ResetPeaks()
	}
}

// pagedPeaks reports what was resident where the allocator has addresses.
func (r *rank) pagedPeaks(out *RankReport) {
	l := r.paged.Ledger()
	out.Memory, out.Steady = alloc.Stats{}, alloc.Stats{}
	steady := l.PeakDevice + r.unmoved
	out.Steady.Allocated.Peak, out.Steady.Reserved.Peak = int64(steady), int64(steady)
	peak := max(steady, r.warm.PeakDevice+r.unmoved)
	out.Memory.Allocated.Peak, out.Memory.Reserved.Peak = int64(peak), int64(peak)
	out.HostPeak = max(l.Peak[policies.HostTier], r.warm.Peak[policies.HostTier])
}

// starved ends the run when a kernel can never have its operands.
func (r *rank) starved(err error) {
	o := &OutOfMemory{Rank: r.index, Cause: &alloc.OOM{Capacity: r.job.cfg.capacity()}, Paged: err}
	var f *unified.Failure
	if errors.As(err, &f) {
		o.Iteration, o.Op = f.Iteration, fmt.Sprintf("operator %d", f.Index)
		o.Cause.Requested, o.Cause.Rounded = f.Need, f.Need
		o.Cause.Allocated, o.Cause.Reserved, o.Cause.Capacity = r.unmoved, r.unmoved, f.Capacity+r.unmoved
		if device := r.job.cfg.unified().Device; r.unmoved >= device { // no room even for what does not move
			o.Cause.Requested, o.Cause.Rounded = r.unmoved+f.Need, r.unmoved+f.Need
			o.Cause.Allocated, o.Cause.Reserved, o.Cause.Capacity = 0, 0, device
		}
	}
	var n *direct.NoRoom
	if errors.As(err, &n) {
		o.Iteration, o.Op = r.reached, fmt.Sprintf("operator %d", n.Kernel)
		o.Cause.Requested, o.Cause.Rounded, o.Cause.Allocated, o.Cause.Reserved = n.Need, n.Need, n.Used, n.Used
		o.Cause.Capacity, o.Cause.LargestFree = n.Capacity, min(n.Largest, max(0, n.Capacity-n.Used)) // there may be more addresses than memory
	}
	r.job.oom = o
	r.eng.Stop()
}
