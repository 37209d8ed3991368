package trace

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"smartswap/formats/chakra"
	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/workloads"
)

func openChakraJSON(rep *Report, path string, opt Options) (*native.Trace, error) {
	return openChakra(rep, path, opt, func(r io.Reader, name string) (*chakra.Graph, error) {
		return chakra.ReadJSON(r, name, &rep.list)
	})
}

func openChakraProto(rep *Report, path string, opt Options) (*native.Trace, error) {
	return openChakra(rep, path, opt, func(r io.Reader, name string) (*chakra.Graph, error) {
		return chakra.ReadProto(r, name, &rep.list)
	})
}

// openChakra makes the workload of a Chakra graph: its nodes on the device, in an
// order that respects their dependencies and their recorded times. Nodes on the
// host pass dependencies on but take no time: the graph has them nested, so
// their times would count twice. Collectives and transfers run on lanes of their
// own; a node waits for what it depends on there. The graph does not tell the
// life of tensors, so the workload uses no memory.
func openChakra(rep *Report, path string, opt Options, read func(io.Reader, string) (*chakra.Graph, error)) (*native.Trace, error) {
	var g *chakra.Graph
	file := path
	err := readFile(rep, path, opt, func(r io.Reader, name string) (err error) {
		file = name
		g, err = read(r, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	c := chakraConverter{g: g, index: make(map[int64]int, len(g.Nodes)), names: workloads.NewNames()}
	for i := range g.Nodes {
		c.index[g.Nodes[i].ID] = i
	}
	c.b = workloads.NewBuilder(c.names, nil)
	sign := ""
	if i := slices.IndexFunc(g.Nodes, func(n chakra.Node) bool { return trainsAt(n.Name) >= 0 }); i >= 0 {
		sign = g.Nodes[i].Name
	}
	p, err := c.program(kindOf(rep, sign))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if p.Ops == 0 {
		return nil, fmt.Errorf("%s: no node runs on a device; the graph cannot become a workload", file)
	}
	rep.note(Skipped, file, "%d nodes that run on the host, hold metadata, or move memory", len(g.Nodes)-int(p.Ops))
	if c.untimed > 0 {
		rep.note(Inferred, file, "%d nodes without a run time take none", c.untimed)
	}
	rep.note(Inferred, file, "the workload uses no memory: the graph does not tell how long tensors live")
	rep.note(Inferred, file, "the host waits for the device at the end of the iteration")
	rep.note(Inferred, file, "run times are microseconds; families, from the names of the nodes")
	name := filepath.Base(path)
	name = strings.TrimSuffix(name, filepath.Ext(name))
	return native.NewTrace(name, 0, c.names, []workloads.Rank{{Devices: []int{0}}}, [][]*workloads.Program{{p}}), nil
}

type chakraConverter struct {
	g       *chakra.Graph
	index   map[int64]int // by id
	names   *workloads.Names
	b       *workloads.Builder
	untimed int
}

// reach is, for each lane, the last work that a node depends on, directly or by
// way of other nodes: its place in the lane from 1; 0 = none.
type reach [workloads.NumLanes]int

// program writes the nodes in order. A lane runs in order, so that a wait for
// the last work that a node depends on is enough.
func (c *chakraConverter) program(kind string) (*workloads.Program, error) {
	b, order := c.b, c.g.Order()
	done := make([]reach, len(c.g.Nodes))
	var count reach
	events := [workloads.NumLanes][]int32{}
	waited := [workloads.NumLanes]reach{} // by lane: what it has waited for
	b.Grow(len(order))
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	b.Mark(workloads.MarkForwardBegin, 1, 0)
	for _, i := range order {
		n := &c.g.Nodes[i]
		r := &done[i]
		for _, id := range slices.Concat(n.Control, n.Data) {
			for lane, at := range done[c.index[id]] {
				r[lane] = max(r[lane], at)
			}
		}
		lane, runs := laneOf(n)
		if !runs {
			continue
		}
		for other := range workloads.NumLanes {
			if at := r[other]; other != lane && at > waited[lane][other] {
				b.Wait(lane, events[other][at-1])
				waited[lane][other] = at
			}
		}
		if !n.HasTime {
			c.untimed++
		}
		b.Op(workloads.OpSpec{
			Name: c.names.ID(n.Name), Lane: lane,
			Kernel: workloads.Kernel{Work: hw.Work{Kind: hw.Measured, Family: familyByName(n.Name), Time: min(n.Time, maxKernelTime)}},
		})
		events[lane] = append(events[lane], b.Record(lane))
		count[lane]++
		r[lane] = count[lane]
	}
	b.Mark(workloads.MarkForwardEnd, 1, 0)
	for lane := range workloads.NumLanes { // the graph is whole when all of it is done
		if count[lane] > 0 {
			b.Sync(lane)
		}
	}
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	return b.Program(kind)
}

// laneOf is where a node runs on the device, if it does.
func laneOf(n *chakra.Node) (lane workloads.Lane, runs bool) {
	switch {
	case n.OnHost:
		return 0, false
	case n.Type == chakra.Compute:
		return workloads.Compute, true
	case n.Type == chakra.Collective:
		return workloads.Comm, true
	case n.Type == chakra.Send || n.Type == chakra.Receive:
		return workloads.CommPeer, true
	}
	return 0, false
}
