package eager

import (
	"fmt"

	"smartswap/eager/alloc"
	"smartswap/eager/swap"
	"smartswap/eager/unified"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
	"smartswap/workloads"
)

// Config is everything a run depends on.
type Config struct {
	Node     *hw.Node
	Workload workloads.Workload
	// NewPolicy makes one policy per rank.
	NewPolicy func() (policies.Policy, error)
	// Profiler is used while a policy asks for the full level, and is on all
	// the time when AlwaysProfile is set (a profiler studied on its own).
	Profiler      profilers.Profiler
	AlwaysProfile bool
	Allocator     alloc.Options
	Pinned        alloc.PinnedOptions
	Executor      swap.Options

	// Unified is how unified memory works for policies that need it. The node
	// fills in a Device or Link of 0 and a Host below 0. A zero Unified stands
	// for unified.Defaults.
	Unified unified.Options

	// DirectAsBuilt runs direct memory as the simulator of G10 does: the rates of
	// Unified are multiples of 2^30 bytes per second where they say 10^9, and
	// memory that follows a plan is bounded by its addresses alone and prefetches
	// nothing from the host.
	DirectAsBuilt bool

	// Unbounded takes the limit off device memory: the ideal run.
	Unbounded bool
	// HBM replaces the node's allocator capacity; 0 keeps it.
	HBM sim.Bytes
	// HostNone removes all host time: a trace without host costs. The launch
	// queue keeps its length, so that the host does not run ahead for ever.
	HostNone bool

	// Iterations is how many are run, >= 1; the first Warmup of them are not
	// counted as steady.
	Iterations, Warmup int
	// Layers is the model's layer count as given to the policy; 0 = unknown.
	Layers int
	// Checks turns the invariants on; they slow a run down about tenfold.
	Checks bool
	// Observers watch the run.
	Observers []Observer
	// Limits end a run that does not end by itself.
	Limits sim.Limits
	// Fingerprint hashes the event history.
	Fingerprint bool
}

// Validate checks what can be checked before a run; the error is one line.
func (c *Config) Validate() error {
	switch {
	case c.Node == nil:
		return fmt.Errorf("eager: no node")
	case c.Workload == nil:
		return fmt.Errorf("eager: no workload")
	case c.NewPolicy == nil:
		return fmt.Errorf("eager: no policy")
	case c.Iterations < 1 || c.Iterations > 1_000_000:
		return fmt.Errorf("iterations = %d: allowed are 1 to 1000000", c.Iterations)
	case c.Warmup < 0 || c.Warmup >= c.Iterations:
		return fmt.Errorf("warmup = %d: allowed are 0 to iterations - 1 = %d", c.Warmup, c.Iterations-1)
	case c.HBM < 0:
		return fmt.Errorf("hbm = %d: allowed are positive sizes, or 0 for the node's own", c.HBM)
	}
	for _, r := range c.Workload.Ranks() {
		if len(r.Devices) == 0 {
			return fmt.Errorf("workload %s: a rank without devices", c.Workload.Name())
		}
		for _, d := range r.Devices {
			if d < 0 || d >= c.Node.Devices {
				return fmt.Errorf("workload %s uses device %d: node %s has devices 0 to %d", c.Workload.Name(), d, c.Node.Name, c.Node.Devices-1)
			}
		}
	}
	return c.Executor.Validate()
}

// capacity is the allocator's limit; 0 = none.
func (c *Config) capacity() sim.Bytes {
	switch {
	case c.Unbounded:
		return 0
	case c.HBM > 0:
		return c.HBM
	}
	return c.Node.Device.Capacity()
}

// admit refuses a policy whose needs the run cannot meet, naming both sides.
func (c *Config) admit(n policies.Needs) error {
	var offered profilers.Fields
	if c.Profiler != nil {
		offered = c.Profiler.Fields()
	}
	if !offered.Has(n.Fields) {
		return fmt.Errorf("the policy needs the profile fields {%s}, the profiler records {%s}", n.Fields, offered)
	}
	if n.Grade > policies.Static {
		return fmt.Errorf("the policy needs the grade of truth %q, this run grants at most %q", n.Grade, policies.Static)
	}
	if n.Lineage.Keep && n.Memory != policies.Framework {
		return fmt.Errorf("the policy needs a lineage in %v memory: only the framework's allocator makes room for what runs again", n.Memory)
	}
	return nil
}
