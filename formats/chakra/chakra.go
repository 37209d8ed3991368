// Package chakra reads execution traces of MLCommons Chakra: graphs of compute
// and communication nodes with their dependencies and run times. Both forms are
// read: protobuf (a stream of messages, each after its length as a varint: one of
// metadata, then one for each node) and JSON (an object with "workload_graph").
// The wire format is decoded by hand: a node has ten fields.
//
// The third kind of file that goes by this name, "1.0.2-chakra.0.0.4.json" and
// its kin, is an ExecutionTrace; see package et.
//
// # Where to start reading
//
//	chakra.go  Node, Graph; what makes a graph valid, and its order
//	json.go    ReadJSON
//	proto.go   ReadProto
//	write.go   WriteJSON
package chakra

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"smartswap/formats/notes"
	"smartswap/sim"
)

// Type is the type of a node, numbered as in the schema (et_def.proto).
type Type uint8

// Types of nodes.
const (
	Invalid Type = iota
	Metadata
	Load
	Store
	Compute
	Send
	Receive
	Collective
	numTypes
)

// Node is a piece of work.
type Node struct {
	ID       int64
	Name     string
	Type     Type
	Control  []int64 // nodes that must end first: in program order …
	Data     []int64 // … and because they make what this one uses
	Time     sim.Time
	HasTime  bool
	OnHost   bool // runs on the host; false also if the file does not tell
	CommSize int64
	// Line of the file (JSON) or number of the message (protobuf), from 1.
	Line int
}

// Graph is a whole trace, nodes in file order.
type Graph struct {
	Schema string // "" if not told
	Nodes  []Node
	order  []int
}

// Order lists the nodes such that every one comes after those that it depends
// on; where that leaves a choice, by ascending id. If control dependencies, which
// some converters use for the nesting of calls, contradict data dependencies,
// they do not count.
func (g *Graph) Order() []int { return g.order }

// Bounds on input.
const (
	maxNodes = 1 << 22
	maxDeps  = 1 << 16       // of a node
	maxTime  = 3_600_000_000 // us, of a node
	psPerUs  = int64(sim.Microsecond)
)

// link checks ids and finds the order. A dependency on a node that is not in the
// file is dropped with a note that names it; a node twice and a cycle of data
// dependencies are errors that name the ids.
func (g *Graph) link(file string, list *notes.List) error {
	index := make(map[int64]int, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if j, ok := index[n.ID]; ok {
			return fmt.Errorf("%s:%d: node %d is also at %d", file, n.Line, n.ID, g.Nodes[j].Line)
		}
		index[n.ID] = i
	}
	var absent []int64
	dropped := 0
	for i := range g.Nodes {
		n := &g.Nodes[i]
		unknown := func(id int64) bool {
			_, ok := index[id]
			if !ok {
				if dropped++; len(absent) < 3 && !slices.Contains(absent, id) {
					absent = append(absent, id)
				}
			}
			return !ok
		}
		n.Control = slices.DeleteFunc(n.Control, unknown)
		n.Data = slices.DeleteFunc(n.Data, unknown)
	}
	if dropped > 0 {
		list.Add(notes.Skipped, file, "%d dependencies on nodes that are not in the file, such as %s", dropped, strings.Trim(fmt.Sprint(absent), "[]"))
	}
	left := g.sort(index, true)
	if len(g.order) == len(g.Nodes) {
		return nil
	}
	both := g.cycle(index, left, true)
	if left = g.sort(index, false); len(g.order) == len(g.Nodes) {
		list.Add(notes.Repaired, file, "control dependencies contradict data dependencies, as of nodes %s; data dependencies alone give the order", both)
		return nil
	}
	return fmt.Errorf("%s: nodes depend on each other in a cycle: %s", file, g.cycle(index, left, false))
}

// deps are the dependencies of a node that count.
func (n *Node) deps(control bool) [][]int64 {
	if control {
		return [][]int64{n.Data, n.Control}
	}
	return [][]int64{n.Data}
}

// sort fills g.order as far as it goes, and returns the number of dependencies
// that each node still waits for. O(n log n + dependencies).
func (g *Graph) sort(index map[int64]int, control bool) (left []int) {
	after := make([][]int, len(g.Nodes)) // nodes that depend on each
	left = make([]int, len(g.Nodes))
	for i := range g.Nodes {
		for _, ids := range g.Nodes[i].deps(control) {
			for _, id := range ids {
				after[index[id]] = append(after[index[id]], i)
				left[i]++
			}
		}
	}
	ready := &byID{g: g}
	for i := range g.Nodes {
		if left[i] == 0 {
			ready.list = append(ready.list, i)
		}
	}
	heap.Init(ready)
	g.order = make([]int, 0, len(g.Nodes))
	for len(ready.list) > 0 {
		i := heap.Pop(ready).(int)
		g.order = append(g.order, i)
		for _, j := range after[i] {
			if left[j]--; left[j] == 0 {
				heap.Push(ready, j)
			}
		}
	}
	return left
}

// cycle names the ids of a cycle among the nodes that still wait.
func (g *Graph) cycle(index map[int64]int, left []int, control bool) string {
	at := slices.IndexFunc(left, func(n int) bool { return n > 0 })
	seen := map[int]int{} // place on the way
	var way []int64
	for {
		n := &g.Nodes[at]
		if first, ok := seen[at]; ok {
			way = way[first:]
			more := ""
			if len(way) > 10 {
				way, more = way[:10], " …"
			}
			return strings.Trim(fmt.Sprint(way), "[]") + more
		}
		seen[at] = len(way)
		way = append(way, n.ID)
		// A node that waits has a dependency that waits.
		for _, id := range slices.Concat(n.deps(control)...) {
			if left[index[id]] > 0 {
				at = index[id]
				break
			}
		}
	}
}

// byID is a heap of nodes.
type byID struct {
	g    *Graph
	list []int
}

func (h *byID) Len() int           { return len(h.list) }
func (h *byID) Less(i, j int) bool { return h.g.Nodes[h.list[i]].ID < h.g.Nodes[h.list[j]].ID }
func (h *byID) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *byID) Push(x any)         { h.list = append(h.list, x.(int)) }
func (h *byID) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}
