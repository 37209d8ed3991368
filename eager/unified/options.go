package unified

import (
	"fmt"
	"math/bits"

	"smartswap/sim"
)

// Options are how the driver works and what it has to work with. Sources: G10
// is platformxlab/G10 (MICRO'23), src/resources/genconfigs.py and src/simulator.
type Options struct {
	// Page is the unit of everything. 4 KiB: G10.
	Page sim.Bytes
	// Device, Host and SSD are the memories' sizes; whole pages of them count.
	// SSD < 0 is without limit; SSD = 0 with SSDRate = 0 is none.
	Device, Host, SSD sim.Bytes
	// Link is the rate between device and host, SSDRate what it carries of
	// that from and to the SSD; each direction has both. An SSD that is faster
	// than the link is as fast as that.
	Link, SSDRate sim.Rate
	// Batch is how many pages a transfer batch moves each way at most. 50: G10.
	Batch int64
	// Map is the rate at which new pages are mapped on the device. 8.14e-7
	// microseconds per byte: G10.
	Map sim.Rate
	// Fault is the time that the driver takes for a fault, SSDRead what the
	// SSD adds to it. 45 and 20 microseconds: G10.
	Fault, SSDRead sim.Time
	// Times says how profiled times of kernels with page faults are used:
	// FaultsMeasured, or FaultsAsBuilt like the program of G10.
	Times FaultTimes
	// Tick is the unit of the driver's clock: batches and kernels begin and
	// end at whole ticks. 1 ps, unless another program's clock is to be met.
	TicksPerSecond int64
}

// FaultTimes is a way to use profiled times.
type FaultTimes uint8

const (
	// FaultsMeasured: the rate at which a kernel works while its inputs fault
	// is their bytes over the time that faulting inputs add to the kernel,
	// likewise for outputs.
	FaultsMeasured FaultTimes = iota
	// FaultsAsBuilt counts profiled times in whole seconds, so that those of
	// nearly all kernels are 0 and their faults cost what the link costs, and
	// takes inputs for what outputs add and the other way round. Found by
	// comparing with timelines of G10.
	FaultsAsBuilt
)

// String is the name in options.
func (f FaultTimes) String() string { return [...]string{"measured", "as-built"}[f] }

// Defaults are G10's constants. Device, Host and Link are to be filled in; Host
// is below 0 so that a host without memory for pages can be told from that.
func Defaults() Options {
	return Options{
		Page: 4 * sim.KiB, Host: -1, SSD: -1, SSDRate: sim.GBps(3.2), Batch: 50, Map: 1_228_501_228_501,
		Fault: 45 * sim.Microsecond, SSDRead: 20 * sim.Microsecond, TicksPerSecond: int64(sim.Second),
	}
}

// Validate checks ranges; the error is one line.
func (o *Options) Validate() error {
	switch {
	case o.Page < 512 || o.Page > sim.GiB || o.Page&(o.Page-1) != 0:
		return fmt.Errorf("page = %d: allowed are powers of two from 512 to 1073741824 bytes", o.Page)
	case o.Batch < 1 || o.Batch > 1<<20:
		return fmt.Errorf("batch = %d pages: allowed are 1 to 1048576", o.Batch)
	case o.Device < o.Page:
		return fmt.Errorf("%d bytes of device memory: want at least a page of %d", o.Device, o.Page)
	case o.Host < 0:
		return fmt.Errorf("host = %d: allowed are sizes from 0", o.Host)
	case o.Link < 1:
		return fmt.Errorf("link = %d: allowed are positive rates", o.Link)
	case o.SSDRate < 0:
		return fmt.Errorf("ssd rate = %d: allowed are rates from 0", o.SSDRate)
	case o.SSDRate == 0 && o.SSD != 0:
		return fmt.Errorf("ssd rate = 0: want ssd = 0 too, no SSD")
	case o.SSDRate > 0 && scale(o.Batch, int64(o.SSDRate), int64(o.Link)) == 0:
		return fmt.Errorf("batch = %d pages: the share of the SSD, %v of %v, is below one page", o.Batch, o.SSDRate, o.Link)
	case o.Map < 1:
		return fmt.Errorf("map = %d: allowed are positive rates", o.Map)
	case o.Fault < 0 || o.SSDRead < 0:
		return fmt.Errorf("fault latencies %v and %v: want none below 0", o.Fault, o.SSDRead)
	case o.TicksPerSecond < 1_000_000 || o.TicksPerSecond > int64(sim.Second):
		return fmt.Errorf("%d ticks per second: allowed are 1e6 to 1e12", o.TicksPerSecond)
	}
	return nil
}

// scale is a*b/c rounded down, for values that are not negative; the largest
// int64 where the quotient is larger or c is 0.
func scale(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, 1<<63-1))
}

// limits are what one batch may do, and how long it takes.
type limits struct {
	ticks                  int64
	in, out, inSSD, outSSD int64 // pages
	new                    int64 // pages that may arrive, whether moved or mapped
}

// limits works out a batch: it takes as long as the link takes for Batch pages;
// the SSD's share of them is its share of the link; in that time so many pages
// can be mapped.
func (o *Options) limits() limits {
	tps := o.TicksPerSecond
	perPage := max(1, scale(int64(o.Page), tps, int64(o.Map)))
	l := limits{in: o.Batch, out: o.Batch}
	l.ticks = max(1, scale(o.Batch*int64(o.Page), tps, int64(o.Link)))
	l.inSSD = min(o.Batch, scale(o.Batch, int64(o.SSDRate), int64(o.Link)))
	l.outSSD = l.inSSD
	l.new = max(1, l.ticks/perPage)
	return l
}
