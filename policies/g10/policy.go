package g10

import (
	"fmt"
	"slices"

	"smartswap/policies"
	"smartswap/sim"
)

// The host time of making a plan. Assumed, like that of the other planners:
// compiled code that touches each period a few times.
const (
	planFixed     = 1 * sim.Millisecond
	planPerKernel = 2 * sim.Microsecond
	planPerPeriod = 5 * sim.Microsecond
)

// Options are the policy's. ReadOptions gives them their defaults.
type Options struct {
	Memory policies.MemoryKind
	// Machine is believed; GPU = 0 stands for what the allocator may have.
	Machine Machine
}

// ReadOptions reads options; those not given stand for the published machine,
// without the quirks of the published planner:
//
//	memory = "framework"        or "unified", "direct": what the plan runs in
//	tiers = "both"              or "host", "ssd"; framework memory has the host only
//	gpu_bytes = 0               0: what the allocator may have
//	host_gib = 128              host memory for evicted tensors; 0: none
//	link_gbps = 15.754          each direction
//	ssd_gbps = 3.2
//	gigabyte = "binary"         2^30 bytes, or "decimal": 10^9, in the two rates
//	ssd_latency_us = 20
//	system_latency_us = 45
//	alloc_us_per_mib = 0.853541
//	delta = 0.5                 margin, as a part of one way
//	line = 0.99                 of the GPU, which the estimate stays below
//	compat_line_factor = 1      on line; published runs have 1.394 for BERT-512 with an SSD
//	                            below 6.3 GB/s, and 1.060606 over GPUDirect Storage
//	compat_last_pass = 0        0.9 over GPUDirect Storage; see Machine.LastPass
//	compat_first_tensor = false true: the estimate counts the first local tensor at all kernels
func ReadOptions(p policies.Params) (Options, error) {
	o := Options{Machine: A100()}
	m := &o.Machine
	memory, tiers, gigabyte := policies.Framework.String(), "", "binary"
	link, ssd, host := 15.754, 3.2, 128.0
	ssdLatency, systemLatency, alloc, factor := 20.0, 45.0, 0.853541, 1.0
	m.GPU, m.KeepFirst = 0, false

	r := p.Read()
	r.Choice("memory", &memory, policies.Framework.String(), policies.Unified.String(), policies.Direct.String())
	r.Choice("tiers", &tiers, "both", "host", "ssd")
	policies.Int(r, "gpu_bytes", &m.GPU, 0, 1<<50)
	r.Float("host_gib", &host, 0, 1<<20)
	r.Float("link_gbps", &link, 0.001, 1e5)
	r.Float("ssd_gbps", &ssd, 0.001, 1e5)
	r.Choice("gigabyte", &gigabyte, "binary", "decimal")
	r.Float("ssd_latency_us", &ssdLatency, 0, 1e6)
	r.Float("system_latency_us", &systemLatency, 0, 1e6)
	r.Float("alloc_us_per_mib", &alloc, 0, 1e6)
	r.Float("delta", &m.Delta, 0, 10)
	r.Float("line", &m.Line, 0.01, 10)
	r.Float("compat_line_factor", &factor, 0.01, 10)
	r.Float("compat_last_pass", &m.LastPass, 0, 10)
	r.Bool("compat_first_tensor", &m.KeepFirst)
	if err := r.Done(); err != nil {
		return o, err
	}

	for _, k := range []policies.MemoryKind{policies.Framework, policies.Unified, policies.Direct} {
		if k.String() == memory {
			o.Memory = k
		}
	}
	switch {
	case tiers == "" && o.Memory == policies.Framework:
		tiers = "host"
	case tiers == "":
		tiers = "both"
	case tiers != "host" && o.Memory == policies.Framework:
		return o, fmt.Errorf("policies: option tiers = %q: must be host with memory = %q, which has no SSD", tiers, memory)
	}
	rate := func(gb float64) sim.Rate {
		if gigabyte == "decimal" {
			return sim.GBps(gb)
		}
		return Binary(gb)
	}
	m.Link, m.SSD, m.Host = rate(link), rate(ssd), sim.Bytes(host*float64(sim.GiB))
	if tiers == "host" {
		m.SSD = 0
	}
	if tiers == "ssd" {
		m.Host = 0
	}
	us := func(x float64) sim.Time { return sim.FromSeconds(x / 1e6) }
	m.SSDLatency, m.SystemLatency, m.Alloc = us(ssdLatency), us(systemLatency), us(alloc)
	m.Line *= factor
	check := *m
	check.GPU = max(check.GPU, 1)
	if err := check.check(); err != nil {
		return o, fmt.Errorf("policies: %w", err)
	}
	return o, nil
}

// Registration registers the policy.
func Registration() policies.Registration {
	return policies.Registration{
		Name:  "g10",
		About: "plans swaps to host and SSD for the nominal program, by benefit and channel (G10)",
		Grade: policies.Static,
		New: func(p policies.Params) (policies.Policy, error) {
			o, err := ReadOptions(p)
			if err != nil {
				return nil, err
			}
			lru, err := policies.LRU().New(nil)
			if err != nil {
				return nil, err
			}
			return &policy{options: o, lru: lru, iteration: -1}, nil
		},
	}
}

// policy plans at the first operator. With unified or direct memory the plan is
// armed; with the framework's it acts itself.
type policy struct {
	options Options
	lru     policies.Policy // makes room when the plan did not
	notes   []policies.Note
	planned bool

	hints     []policies.Action // framework memory: by operator
	iteration int
	base      int64 // of the iteration's first operator
	next      int   // hint
	late      []policies.Action
}

// Needs grants the nominal program.
func (p *policy) Needs() policies.Needs {
	n := policies.Needs{Grade: policies.Static, Memory: p.options.Memory, Events: policies.Set(policies.BeforeOp)}
	if p.options.Memory == policies.Framework {
		n.Events |= p.lru.Needs().Events
	}
	return n
}

// Paging is the driver's own: what the plan leaves out of account makes room
// for by age; see policies.UVM.
func (p *policy) Paging() policies.Paging { return policies.Paging{Oldest: true} }

// Notes tells of the plan.
func (p *policy) Notes() []policies.Note { return p.notes }

// Handle plans once, and acts on the framework's memory.
func (p *policy) Handle(ev *policies.Event, rt policies.Runtime) {
	if !p.planned && ev.Kind == policies.BeforeOp {
		p.planned = true
		p.plan(ev.Iteration, rt)
	}
	if p.options.Memory != policies.Framework {
		return
	}
	if ev.Kind == policies.BeforeOp {
		p.act(ev, rt)
		return
	}
	if p.lru.Needs().Events.Has(ev.Kind) {
		p.lru.Handle(ev, rt)
	}
}

// plan makes the plan.
func (p *policy) plan(iteration int, rt policies.Runtime) {
	note := policies.Note{Iteration: iteration, Event: "planned", Phase: "planned"}
	defer func() { p.notes = append(p.notes, note) }()
	m := p.options.Machine
	if m.GPU == 0 {
		m.GPU = rt.Capacity()
	}
	nominal := rt.Nominal()
	if nominal == nil {
		note.Event, note.Error = "no plan", "there is no nominal program"
		return
	}
	s, err := Plan(nominal, m)
	if err != nil {
		note.Event, note.Error = "no plan", err.Error()
		return
	}
	rt.Charge(planFixed + sim.Time(len(nominal.Kernels))*planPerKernel + sim.Time(s.Periods)*planPerPeriod)
	note.Swaps = len(s.Moves)
	for _, mv := range s.Moves {
		note.Bytes += nominal.Tensors[mv.Tensor].Bytes
	}
	if !s.Met {
		note.Error = "the estimate stays above the line"
	}
	if p.options.Memory == policies.Framework {
		p.hints = s.MoveHints()
		return
	}
	if err := rt.Arm(&policies.Plan{Hints: s.Hints(), Iteration: iteration}); err != nil {
		note.Event, note.Error = "no plan", err.Error()
	}
}

// act carries out the hints of an operator. A prefetch without room is tried
// again before each later operator of the iteration; what has become pointless
// is refused and forgotten.
func (p *policy) act(ev *policies.Event, rt policies.Runtime) {
	if ev.Iteration != p.iteration {
		p.iteration, p.base, p.next, p.late = ev.Iteration, ev.Op.Index, 0, p.late[:0]
	}
	k := int32(ev.Op.Index - p.base)
	p.late = slices.DeleteFunc(p.late, func(a policies.Action) bool { return rt.Do(a) != policies.NoRoom })
	for ; p.next < len(p.hints) && p.hints[p.next].Start.N <= k; p.next++ {
		a := p.hints[p.next]
		a.Start = policies.Trigger{}
		if rt.Do(a) == policies.NoRoom && a.Kind == policies.Prefetch {
			p.late = append(p.late, a)
		}
	}
}
