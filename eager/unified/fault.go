package unified

import "smartswap/sim"

// Profiled are times of a kernel, measured: with everything on the device,
// with faulting inputs, with faulting inputs and outputs. The last two are 0
// where they are not known.
type Profiled struct{ Span, Inputs, All sim.Time }

// side is what a kernel's inputs, or its outputs, need.
type side struct {
	bytes     int64 // all of them
	near, far int64 // bytes missing: of the host or new, of the SSD
}

// unbounded is a rate that nothing is held up by.
const unbounded = 1<<63 - 1

// faultTicks is the time that faults add to a kernel: the SSD and the host
// deliver side by side, each at the rate at which the kernel gets through its
// faults. That rate is known from profiling; a fault on the SSD slows it by
// the share of its latency; the SSD cannot be faster than it is, and both
// together not than the link. (After G10, its page-fault model.)
//
// As built, the host has for all its pages only what the SSD leaves of the link
// while it delivers. Where that is nothing, the origin divides by zero. With pages of
// the host or new ones among inputs and outputs its sum is infinite, which as an
// integer is the smallest one: such a kernel ends when its last page has arrived.
// With pages of one of the two alone the sum is not a number, which its max passes
// over: only the SSD counts.
func (o *Options) faultTicks(p Profiled, in, out side) int64 {
	if in.near|in.far|out.near|out.far == 0 {
		return 0
	}
	inAdds, outAdds := p.Inputs-p.Span, p.All-p.Inputs
	if p.Inputs == 0 || p.All == 0 {
		inAdds, outAdds = 0, 0
	}
	if o.Times == FaultsAsBuilt {
		whole := func(t sim.Time) sim.Time { return t / sim.Second * sim.Second }
		inAdds, outAdds = whole(p.All)-whole(p.Inputs), whole(p.Inputs)-whole(p.Span)
	}
	rate := func(s side, adds sim.Time) int64 {
		if adds <= 0 {
			return unbounded
		}
		return max(1, scale(s.bytes, int64(sim.Second), int64(adds)))
	}
	inRate, outRate := rate(in, inAdds), rate(out, outAdds)
	far := func(s side, r int64) int64 {
		if s.far == 0 {
			return 0
		}
		if r != unbounded {
			r = max(1, scale(r, int64(o.Fault), int64(o.Fault+o.SSDRead)))
		}
		return min(r, int64(o.SSDRate))
	}
	inFar, outFar := far(in, inRate), far(out, outRate)
	slow := o.ticks(in.far, inFar, out.far, outFar)
	if o.Times == FaultsAsBuilt {
		left := int64(o.Link) - max(inFar, outFar)
		switch {
		case left == 0 && in.near > 0 && out.near > 0:
			return 0
		case left <= 0:
			return slow
		}
		return max(slow, o.ticks(in.near, min(inRate, left), out.near, min(outRate, left)))
	}
	link := int64(o.Link)
	return max(slow,
		o.ticks(in.near, min(inRate, link), out.near, min(outRate, link)),
		o.ticks(in.near+in.far+out.near+out.far, link, 0, link),
	)
}

// ticks is the time of two transfers after each other, rounded down once where
// they have one rate.
func (o *Options) ticks(a, rateA, b, rateB int64) int64 {
	switch {
	case a == 0:
		if b == 0 {
			return 0
		}
		return scale(b, o.TicksPerSecond, rateB)
	case b == 0:
		return scale(a, o.TicksPerSecond, rateA)
	case rateA == rateB:
		return scale(a+b, o.TicksPerSecond, rateA)
	}
	return scale(a, o.TicksPerSecond, rateA) + scale(b, o.TicksPerSecond, rateB)
}
