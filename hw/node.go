package hw

import "smartswap/sim"

// Direction of a host copy.
type Direction uint8

// Directions.
const (
	D2H Direction = iota // device to host: swap-out
	H2D                  // host to device: swap-in
	NumDirections
)

// Node is one server, or several alike: equal devices, a host, links between
// them. It is data,
// safe to copy and to read from several goroutines. Load makes one; Set and
// Validate know the key, unit and range of each number.
type Node struct {
	Name    string
	Devices int
	Device  Device
	Host    Host
	Link    Link
	Fabric  Fabric
	// Source says for each key of Keys where the number comes from: a
	// publication, a public repository and file, or "assumed: why".
	Source map[string]string
}

// Device is one accelerator.
type Device struct {
	Name string
	// HBM is the capacity; Held is what driver context, collective buffers
	// and workspaces keep of it before the framework gets any.
	HBM, Held sim.Bytes
	// Bandwidth is the nominal HBM rate, Peak16 and Peak32 the nominal
	// 16-bit matrix and fp32 vector peaks in flop/s.
	Bandwidth      sim.Rate
	Peak16, Peak32 float64
	// Fixed is the part of a kernel's time that does not depend on its size.
	Fixed sim.Time
	// Flop is the achieved share of the peak over log2 of flops, Mem the
	// achieved share of Bandwidth over log2 of bytes, by family. What counts
	// as flops and bytes is said at Timing.
	Flop, Mem [NumFamilies]Curve
	// Skinny is the share of a matrix product's padded flops that are its own,
	// over log2 of its smallest dimension; see Timing. It rises no faster than
	// the dimension; below its first knot, dimensions are padded to it.
	Skinny Curve
	// Beside is the factor (>= 1) by which a kernel's time grows while a
	// collective runs on the same device.
	Beside [NumFamilies]float64
}

// Capacity is what the framework's allocator may reserve.
func (d *Device) Capacity() sim.Bytes { return d.HBM - d.Held }

// Host is the host side: dispatching threads, their costs, memory. Times are
// host time on the thread that makes the call.
type Host struct {
	// Dispatch is one framework operator on the dispatching thread; Launch
	// handing it to the device: on the same thread when TaskQueue is 0, on
	// a second thread behind a queue of TaskQueue slots otherwise.
	Dispatch, Launch sim.Time
	TaskQueue        int
	// LaunchQueue is how many launches a stream holds before the launching
	// thread blocks.
	LaunchQueue int

	Malloc, Free                        sim.Time // served from the allocator's cache
	DriverAlloc, DriverFree             sim.Time // a segment from or to the driver
	EventRecord, EventQuery, StreamWait sim.Time
	CopyLaunch                          sim.Time // enqueueing one asynchronous copy

	// Memory is what a job may use in all, Pinned what may be page-locked.
	Memory, Pinned sim.Bytes
	// PinFixed and PinPerMiB are the cost of page-locking a new buffer.
	PinFixed, PinPerMiB sim.Time
	// NUMA nodes; NUMABandwidth is the memory bandwidth of each, shared by
	// all copies that touch it.
	NUMA          int
	NUMABandwidth sim.Rate
}

// Link connects each device with the host.
type Link struct {
	// Rate by direction, one direction alone; RateBoth, at most Rate, while
	// both move data (0 = no effect); Both caps the sum (0 = no cap).
	Rate     [NumDirections]sim.Rate
	RateBoth [NumDirections]sim.Rate
	Both     sim.Rate
	// Latency is the set-up time of a copy, during which the engine is busy.
	Latency sim.Time
	// Efficiency multiplies the rate, over log2 of a copy's bytes.
	Efficiency Curve
	// Pageable is the rate of copies from memory that is not pinned.
	Pageable sim.Rate
	// Uplink is the rate per direction that UplinkDevices neighbours share
	// below one switch; 0 = every device has a path of its own.
	Uplink        sim.Rate
	UplinkDevices int
	// Remote is the factor on the rate when the buffer lies on another NUMA
	// node.
	Remote float64
}

// Fabric connects the devices of a node with each other.
type Fabric struct {
	// Latency per collective and per transfer.
	Latency sim.Time
	// Tables hold measured algorithm bandwidth (bytes of the full tensor per
	// second) by kind, in increasing order of group size. Time reads them.
	Tables [NumCollectives][]GroupRate
	// Peer is the rate of a transfer between two devices.
	Peer sim.Rate
	// Ramp is the size at which half the table's bandwidth is reached.
	Ramp sim.Bytes
	// Server is how many neighbouring devices a server holds, 0 = all; the host is
	// that of each. Across is the rate, per direction, at which one device reaches
	// other servers.
	Server int
	Across sim.Rate
}

// GroupRate is one measured point of a collective.
type GroupRate struct {
	Members int
	Rate    sim.Rate
}
