package direct

import (
	"fmt"

	"smartswap/policies"
	"smartswap/sim"
)

// Tiers below the device, by policies.TierID.
const tiers = 2

// Direction of a transfer.
type Direction uint8

// Directions.
const (
	Out Direction = iota // device to tier
	In
	directions
)

// Tier is one place that tensors move to.
type Tier struct {
	// Out and In are what its two queues move, in bytes per second; both 0:
	// there is no such tier.
	Out, In sim.Rate
	// Bytes is how much it holds; 0 = without limit.
	Bytes sim.Bytes
	// Demand leaves tensors there until a kernel needs them: hints to
	// prefetch them are not followed.
	Demand bool
}

// Options say what the memory is and how it is run.
type Options struct {
	// Capacity is the device memory in bytes, > 0. Addresses is the size of
	// the address space in which tensors take contiguous ranges, >= Capacity;
	// 0 = Capacity. With more addresses than memory, fragmentation does no
	// harm.
	Capacity, Addresses sim.Bytes
	// Tiers are host memory and SSD.
	Tiers [tiers]Tier
	// Scratch are tensors that are scratch memory of the kernel that writes
	// them. They take no memory of their own, but share a range at the low end
	// that is as large as the largest need of a kernel, for the whole run.
	Scratch []int32
	// HighEnd places the tensors that the plan evicts from the high end of the
	// addresses; all others come from the low end.
	HighEnd bool
	// Drain lets the backward pass begin when all writes have ended.
	Drain bool
	// Ahead prefetches evicted tensors after each backward kernel, in the
	// order in which the coming kernels need them, while the largest free
	// range has room for the next one beside the largest working set of a
	// kernel. Otherwise tensors come back by the plan's hints.
	Ahead bool
}

// FlashNeuron are the options of G10's version of FlashNeuron for a program: an
// SSD of so much each way, no host memory, workspaces in a range of their own.
// Published runs have 40 GiB and 3.2 GiB/s (platformxlab/G10,
// src/resources/genconfigs.py; the simulator reckons with 2^30 bytes to the
// gigabyte).
func FlashNeuron(capacity sim.Bytes, ssd sim.Rate, p *policies.Nominal) Options {
	o := Options{Capacity: capacity, HighEnd: true, Drain: true, Ahead: true, Scratch: Workspaces(p)}
	o.Tiers[policies.SSDTier] = Tier{Out: ssd, In: ssd}
	return o
}

// Workspaces are the tensors at the end of a program that nobody reads and one
// kernel touches. G10's front end numbers the workspaces of kernels after all
// tensors of the network, the last of which is read, so these are they. (A
// nominal program does not tell scratch memory from an output that nobody
// reads.)
func Workspaces(p *policies.Nominal) []int32 {
	uses, read := make([]int, len(p.Tensors)), make([]bool, len(p.Tensors))
	for k := range p.Kernels {
		for _, t := range p.Kernels[k].Out {
			uses[t]++
		}
		for _, t := range p.Kernels[k].In {
			read[t] = true
		}
	}
	first := len(p.Tensors)
	for first > 0 && !p.Tensors[first-1].Global && !read[first-1] && uses[first-1] == 1 {
		first--
	}
	var list []int32
	for ; first < len(p.Tensors); first++ {
		list = append(list, int32(first))
	}
	return list
}

// G10GDS are the options of G10 over GPUDirect Storage, and with host memory of
// host bytes (0 = none) on what the SSD leaves of the link, as the origin's
// simulator has them: the four times larger address space is also the only bound,
// so runs use as much memory as the plan lets them, which Stats.Peak tells; and
// tensors come back from the host when a kernel needs them, as published times
// say (see TestPublishedResults). Set Capacity to that of the device for a memory
// that is bounded, and Demand to false for one that prefetches from the host too.
func G10GDS(capacity sim.Bytes, ssd, link sim.Rate, host sim.Bytes) Options {
	o := Options{Capacity: 4 * capacity, Addresses: 4 * capacity, Drain: true}
	o.Tiers[policies.SSDTier] = Tier{Out: ssd, In: ssd}
	if host > 0 {
		o.Tiers[policies.HostTier] = Tier{Out: link - ssd, In: link - ssd, Bytes: host, Demand: true}
	}
	return o
}

// Validate says what is out of range.
func (o *Options) Validate() error {
	if o.Capacity <= 0 {
		return fmt.Errorf("direct: capacity = %d bytes: must be positive", o.Capacity)
	}
	if o.Addresses != 0 && o.Addresses < o.Capacity {
		return fmt.Errorf("direct: addresses = %d bytes: must be 0 or at least the capacity of %d", o.Addresses, o.Capacity)
	}
	for i, t := range o.Tiers {
		name := [...]string{"host", "ssd"}[i]
		if t.Out < 0 || t.In < 0 || (t.Out > 0) != (t.In > 0) {
			return fmt.Errorf("direct: %s rates = %d and %d bytes per second: must be both positive, or both 0 for none", name, t.Out, t.In)
		}
		if t.Bytes < 0 {
			return fmt.Errorf("direct: %s bytes = %d: must not be negative", name, t.Bytes)
		}
	}
	return nil
}
