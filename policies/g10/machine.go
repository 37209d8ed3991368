package g10

import (
	"fmt"
	"math"
	"math/bits"

	"smartswap/sim"
)

// Machine is what the planner believes about the machine, and how it plans for
// it. The planner is not told what the machine really does.
type Machine struct {
	GPU  sim.Bytes // device memory, > 0
	Host sim.Bytes // host memory that may hold evicted tensors; 0 = this tier is not used
	// Link and SSD are what one direction moves in bytes per second, > 0; SSD
	// traffic takes its share out of the link. SSD = 0: this tier is not used.
	Link, SSD sim.Rate
	// SSDLatency and SystemLatency come on top of each way to the SSD; a way
	// to the host has SystemLatency only. >= 0.
	SSDLatency, SystemLatency sim.Time
	// Delta is the safety margin, as a part of one way: a period must be
	// longer than the round trip by half of it, and a looped period reads so
	// much ahead of its end. 0 to 10.
	Delta float64
	// Alloc is the time to allocate a mebibyte of device memory: a planned
	// allocation stands so much before the first use. >= 0.
	Alloc sim.Time

	// Line is the part of GPU to which the plan brings the estimate; 0 to 10.
	Line float64
	// LastPass > 0 evicts further periods around the fullest kernel to the SSD
	// until its estimate is below LastPass x Line x GPU.
	LastPass float64

	// KeepFirst is a quirk of the published planner: the first local tensor
	// stays in the estimate at all kernels, and reads are pulled forward to
	// kernels that have room for it, whatever their own size. Otherwise it is
	// subtracted outside its life like all others, and a read needs room for
	// itself.
	KeepFirst bool
}

// A100 is the machine of the published runs (MICRO'23, repository
// platformxlab/G10, src/resources/genconfigs.py): an A100 of 40 GiB, PCIe 3.0
// x16, an SSD of 3.2 GB/s. Its planner reckons with 2^30 bytes to the gigabyte.
// Alloc is 8.14e-7 us/B.
func A100() Machine {
	return Machine{
		GPU: 40 * sim.GiB, Host: 128 * sim.GiB,
		Link: Binary(15.754), SSD: Binary(3.2),
		SSDLatency: 20 * sim.Microsecond, SystemLatency: 45 * sim.Microsecond,
		Delta: 0.5, Alloc: 853_541 * sim.Picosecond, Line: 0.99, KeepFirst: true,
	}
}

// Binary is a rate in gigabytes of 2^30 bytes per second.
func Binary(gb float64) sim.Rate { return sim.Rate(math.Round(gb * float64(sim.GiB))) }

// check says what is out of range.
func (m *Machine) check() error {
	for _, c := range []struct {
		bad     bool
		name    string
		value   any
		allowed string
	}{
		{m.GPU <= 0, "GPU", int64(m.GPU), "positive bytes"},
		{m.Host < 0, "Host", int64(m.Host), "bytes, or 0 for none"},
		{m.Link <= 0, "Link", int64(m.Link), "positive bytes per second"},
		{m.SSD < 0, "SSD", int64(m.SSD), "bytes per second, or 0 for none"},
		{m.Host == 0 && m.SSD == 0, "Host and SSD", 0, "at least one tier"},
		{m.SSDLatency < 0, "SSDLatency", m.SSDLatency, "not negative"},
		{m.SystemLatency < 0, "SystemLatency", m.SystemLatency, "not negative"},
		{m.Alloc < 0, "Alloc", m.Alloc, "not negative"},
		{!(m.Delta >= 0 && m.Delta <= 10), "Delta", m.Delta, "0 to 10"},
		{!(m.Line > 0 && m.Line <= 10), "Line", m.Line, "above 0, to 10"},
		{!(m.LastPass >= 0 && m.LastPass <= 10), "LastPass", m.LastPass, "0 to 10"},
		{m.LastPass > 0 && m.SSD == 0, "LastPass", m.LastPass, "0 without an SSD"},
	} {
		if c.bad {
			return fmt.Errorf("g10: machine: %s = %v: must be %s", c.name, c.value, c.allowed)
		}
	}
	return nil
}

// line is the estimate that the plan stays below.
func (m *Machine) line() sim.Bytes { return sim.Bytes(m.Line * float64(m.GPU)) }

// slowest is the rate at which benefits reckon with transfers: the SSD's, or
// the link's where there is none.
func (m *Machine) slowest() sim.Rate {
	if m.SSD > 0 {
		return m.SSD
	}
	return m.Link
}

// way is the time of moving n bytes one way, without latencies.
func way(n sim.Bytes, r sim.Rate) sim.Time {
	return sim.Time(mulDiv(uint64(n), uint64(sim.Second), uint64(r)))
}

// capacity is what rate r moves in time t, rounded down.
func capacity(r sim.Rate, t sim.Time) sim.Bytes {
	return sim.Bytes(mulDiv(uint64(r), uint64(t), uint64(sim.Second)))
}

// mulDiv is a*b/c rounded down, at most math.MaxInt64.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, c)
	return min(q, math.MaxInt64)
}
