// Package eagertest has what tests of the runtime need: a node with round
// numbers, workloads written by hand, and random ones.
package eagertest

import (
	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"
)

// Node has n devices with 1,000 bytes per microsecond of host link each way
// (1 GB/s), 1,000 GB/s of HBM, no latencies, no host costs, and no queue
// limits: tests add what they are about.
func Node(n int) *hw.Node {
	node := &hw.Node{
		Name:    "test",
		Devices: n,
		Device:  hw.Device{Name: "test", HBM: sim.GiB, Bandwidth: sim.GBps(1000), Peak16: 1e12, Peak32: 1e12},
		Host:    hw.Host{Memory: sim.GiB * 64, Pinned: sim.GiB * 64, NUMA: 1, NUMABandwidth: sim.GBps(10000)},
		Link:    hw.Link{Rate: [hw.NumDirections]sim.Rate{sim.GBps(1), sim.GBps(1)}, Pageable: sim.GBps(1) / 4, Remote: 1},
		Fabric:  hw.Fabric{Peer: sim.GBps(1)},
	}
	for k := range node.Fabric.Tables {
		node.Fabric.Tables[k] = []hw.GroupRate{{Members: 2, Rate: sim.GBps(1)}, {Members: 8, Rate: sim.GBps(1)}}
	}
	for f := range node.Device.Beside {
		node.Device.Beside[f] = 1
	}
	return node
}

// Config runs w on node with no policy, the bytes allocator, and checks on.
func Config(node *hw.Node, w workloads.Workload) eager.Config {
	o := alloc.DefaultOptions()
	o.Backend = "bytes"
	return eager.Config{
		Node: node, Workload: w,
		NewPolicy:  func() (policies.Policy, error) { return None{}, nil },
		Allocator:  o,
		Pinned:     alloc.PinnedOptions{Rounding: alloc.RoundExact, Reuse: alloc.BuffersReuse},
		Executor:   swap.DefaultOptions(),
		Iterations: 1,
		Checks:     true,
		Limits:     sim.Limits{Events: 50_000_000},
	}
}

// None is a policy that does nothing.
type None struct{}

// Needs nothing.
func (None) Needs() policies.Needs { return policies.Needs{} }

// Handle is never called.
func (None) Handle(*policies.Event, policies.Runtime) {}

// Script is a workload written by hand: the same program in every iteration.
type Script struct {
	names *workloads.Names
	ranks []workloads.Rank
	progs [][]*workloads.Program // by rank, then iteration modulo
}

// NewScript makes a workload of one rank per element of residents, on devices
// 0, 1, …; write fills each rank's program.
func NewScript(residents [][]workloads.Storage, write func(rank int, b *workloads.Builder, names *workloads.Names)) (*Script, error) {
	s := &Script{names: workloads.NewNames()}
	for r, res := range residents {
		s.ranks = append(s.ranks, workloads.Rank{Devices: []int{r}, Stage: r, Residents: res})
		b := workloads.NewBuilder(s.names, res)
		b.Mark(workloads.MarkIterationBegin, 0, 0)
		write(r, b, s.names)
		b.Mark(workloads.MarkIterationEnd, 0, 0)
		p, err := b.Program("script")
		if err != nil {
			return nil, err
		}
		s.progs = append(s.progs, []*workloads.Program{p})
	}
	return s, nil
}

// Name is "script".
func (s *Script) Name() string { return "script" }

// Ranks lists the ranks.
func (s *Script) Ranks() []workloads.Rank { return s.ranks }

// Program is the rank's program of iteration i.
func (s *Script) Program(r, i int) (*workloads.Program, error) {
	return s.progs[r][i%len(s.progs[r])], nil
}

// Tokens is zero.
func (s *Script) Tokens() int64 { return 0 }

// Names is the shared table.
func (s *Script) Names() *workloads.Names { return s.names }

// Kernel is an operator specification that takes t on the device.
func Kernel(names *workloads.Names, name string, t sim.Time) workloads.OpSpec {
	return workloads.OpSpec{Name: names.ID(name), Kernel: workloads.Kernel{Work: hw.Work{Kind: hw.Measured, Family: hw.MatMul, Time: t}}}
}

// Replayable is o as an operator that may run again.
func Replayable(o workloads.OpSpec) workloads.OpSpec {
	o.Flags |= workloads.Replayable
	return o
}
