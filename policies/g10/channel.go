package g10

import (
	"smartswap/policies"
	"smartswap/sim"
)

// ledger holds, for each kernel, what a channel can still move while it runs.
type ledger []sim.Bytes

func newLedger(p *policies.Nominal, r sim.Rate) ledger {
	l := make(ledger, len(p.Kernels))
	for k := range l {
		l[k] = capacity(r, p.Kernels[k].Span)
	}
	return l
}

// channels are the four ledgers, and the memory of the host.
type channels struct {
	ssdOut, ssdIn, linkOut, linkIn ledger
	host                           []sim.Bytes // free, by kernel
	booking                        []entry     // of the transfer being tried
}

type entry struct {
	kernel int
	bytes  sim.Bytes
}

// free is what a transfer can move during kernel k: the SSD's share comes out
// of the link.
func free(ssd, link ledger, k int) sim.Bytes {
	if ssd == nil {
		return link[k]
	}
	return min(ssd[k], link[k])
}

// try finds the kernels in which n bytes move, from kernel k on in steps of
// step (1 or -1) as long as it is inside lo to hi-1, which count on after the
// last. ssd is nil for the host. The last kernel of the transfer is returned, with
// the bookings in c.booking; false if there is not enough room for all of it.
func (c *channels) try(ssd, link ledger, n sim.Bytes, k, step, lo, hi int) (int, bool) {
	c.booking = c.booking[:0]
	for ; k >= lo && k < hi; k += step {
		at := k % len(link)
		if take := min(n, free(ssd, link, at)); take > 0 {
			c.booking = append(c.booking, entry{at, take})
			n -= take
		}
		if n == 0 {
			return k, true
		}
	}
	return 0, false
}

// book enters bookings.
func (l ledger) book(b []entry) {
	for _, x := range b {
		l[x.kernel] -= x.bytes
	}
}

// fits tells whether the host has room for n more bytes at the kernels lo to
// hi-1, which count on after the last.
func (c *channels) fits(n sim.Bytes, lo, hi int) bool {
	for k := lo; k < hi; k++ {
		if c.host[k%len(c.host)] < n {
			return false
		}
	}
	return true
}
