// Package et reads ExecutionTraces of PyTorch: the graph of operators of an
// iteration, with the identity of every tensor and its storage, and without
// times. All published schemas are read, from 1.0.1 with its flat nodes to
// 1.1.1-chakra, whose nodes keep inputs, outputs and attributes in objects.
//
// Tensor and storage ids are labels: a framework gives them out again after a
// free, so equal ids far apart need not mean the same memory.
package et

import (
	"fmt"
	"io"
	"slices"

	"smartswap/formats/internal/decimal"
	"smartswap/formats/internal/jsons"
	"smartswap/formats/notes"
)

// Tensor is a tensor among the inputs or outputs of a node.
type Tensor struct {
	ID, Storage      int64
	Offset, Elements int64 // in elements
	ElementBytes     int64
	Device           string // "cuda:0", "cpu"; may be ""
}

// Reach is the number of bytes from the start of its storage to the end of t: a
// lower bound of the storage's size.
func (t *Tensor) Reach() int64 { return (t.Offset + t.Elements) * t.ElementBytes }

// Node is an operator, or an annotation around operators.
type Node struct {
	ID, Parent int64
	Name       string
	// RF is the id of the recorded function, the link to a profiler's trace; 0 =
	// none. Thread numbers count from 1.
	RF, Thread, ForwardParent, ForwardThread, Sequence, Scope int64
	Backend                                                   string // of a compiled kernel: "triton"
	Inputs, Outputs                                           []Tensor
	Line                                                      int // of the file
}

// Graph is a whole trace, its nodes by ascending ID: the order in which they
// began.
type Graph struct {
	Schema        string
	Start, Finish int64 // in the unit of the file; 0 if not told
	Nodes         []Node
	index         map[int64]int
}

// Find is the position of the node with an id in Nodes.
func (g *Graph) Find(id int64) (int, bool) {
	i, ok := g.index[id]
	return i, ok
}

// Bounds on input: no field of a tensor, and so no product of two, leaves an
// int64, and a graph fits in memory.
const (
	maxNodes   = 1 << 22
	maxTensors = 1 << 16 // of one node
	maxField   = 1 << 50
	maxElement = 1 << 10
	maxReach   = 1 << 50 // bytes
)

// Read reads a graph. A node twice, a node whose parent does not exist (one
// root may have such a parent), and a cycle of parents are refused with the ids.
func Read(r io.Reader, file string, list *notes.List) (*Graph, error) {
	p := parser{in: jsons.New(r, file, list), file: file, list: list}
	found := false
	err := p.in.Object(func(key []byte) error {
		switch string(key) {
		case "schema":
			return p.text(&p.g.Schema)
		case "start_ts":
			return p.integer(&p.g.Start)
		case "finish_ts":
			return p.integer(&p.g.Finish)
		case "nodes":
			found = true
			return p.in.Array(p.node)
		}
		return p.in.Skip()
	})
	if err != nil {
		return nil, err
	}
	if !found || len(p.g.Nodes) == 0 {
		return nil, fmt.Errorf("%s: no \"nodes\" in the file; it is no ExecutionTrace", file)
	}
	return &p.g, p.link()
}

// link sorts the nodes and checks that they form a tree.
func (p *parser) link() error {
	g := &p.g
	slices.SortStableFunc(g.Nodes, func(a, b Node) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	g.index = make(map[int64]int, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if j, ok := g.index[n.ID]; ok {
			return fmt.Errorf("%s:%d: node %d is also on line %d", p.file, n.Line, n.ID, g.Nodes[j].Line)
		}
		g.index[n.ID] = i
	}
	root := int64(-1)
	// state: 0 = not seen, 1 = on the present way up, 2 = leads to a root.
	state := make([]byte, len(g.Nodes))
	var way []int
	for i := range g.Nodes {
		way = way[:0]
		at := i
		for state[at] == 0 {
			state[at] = 1
			way = append(way, at)
			n := &g.Nodes[at]
			up, ok := g.index[n.Parent]
			if !ok && root >= 0 && root != n.ID {
				return fmt.Errorf("%s:%d: node %d has the parent %d, which does not exist (the root is %d)", p.file, n.Line, n.ID, n.Parent, root)
			}
			if !ok {
				root = n.ID
			}
			if !ok || up == at {
				break
			}
			at = up
		}
		if n := &g.Nodes[at]; state[at] == 1 && at != way[len(way)-1] {
			return fmt.Errorf("%s:%d: node %d is among its own parents, by way of node %d", p.file, n.Line, n.ID, n.Parent)
		}
		for _, k := range way {
			state[k] = 2
		}
	}
	return nil
}

type parser struct {
	in   *jsons.Reader
	file string
	list *notes.List
	g    Graph
}

func (p *parser) text(to *string) error {
	s, err := p.in.Plain()
	*to = string(s)
	return err
}

func (p *parser) integer(to *int64) error {
	s, err := p.in.Plain()
	if v, _, ok := decimal.Parse(s, 1); ok {
		*to = v
	}
	return err
}

func (p *parser) node() error {
	if len(p.g.Nodes) == maxNodes {
		return p.in.Errorf("more than %d nodes", maxNodes)
	}
	n := Node{ID: -1, Parent: -1, Line: p.in.Line()}
	err := p.in.Object(func(key []byte) error {
		if string(key) == "attrs" {
			return p.in.Array(func() error { return p.attribute(&n) })
		}
		return p.field(&n, string(key))
	})
	if err == nil && (n.ID < 0 || n.Name == "") {
		err = fmt.Errorf("%s:%d: a node without an id of at least 0 or without a name", p.file, n.Line)
	}
	p.g.Nodes = append(p.g.Nodes, n)
	return err
}

// field takes the value of a key of a node. Attributes of newer schemas have the
// names that keys have in the oldest.
func (p *parser) field(n *Node, key string) error {
	switch key {
	case "id":
		return p.integer(&n.ID)
	case "name":
		return p.text(&n.Name)
	case "parent", "ctrl_deps":
		return p.integer(&n.Parent)
	case "rf_id":
		return p.integer(&n.RF)
	case "tid":
		return p.integer(&n.Thread)
	case "fw_parent":
		return p.integer(&n.ForwardParent)
	case "fw_tid":
		return p.integer(&n.ForwardThread)
	case "seq_id":
		return p.integer(&n.Sequence)
	case "scope":
		return p.integer(&n.Scope)
	case "kernel_backend":
		return p.text(&n.Backend)
	case "inputs":
		return p.tensors(&n.Inputs)
	case "outputs":
		return p.tensors(&n.Outputs)
	}
	return p.in.Skip()
}

// attribute takes {"name": "rf_id", "type": "uint64", "value": 3}; the name
// comes before the value.
func (p *parser) attribute(n *Node) error {
	name := ""
	return p.in.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return p.text(&name)
		case "value":
			switch name {
			case "rf_id", "tid", "fw_parent", "fw_tid", "seq_id", "scope", "kernel_backend":
				return p.field(n, name)
			}
		}
		return p.in.Skip()
	})
}

// tensors takes a list of values, or an object with one under "values".
func (p *parser) tensors(to *[]Tensor) error {
	k, err := p.in.Kind()
	switch {
	case err != nil:
		return err
	case k == jsons.Array:
		return p.values(to)
	case k != jsons.Object:
		return p.in.Skip()
	}
	return p.in.Object(func(key []byte) error {
		if string(key) == "values" {
			return p.tensors(to)
		}
		return p.in.Skip()
	})
}

// values takes a list of any depth. A list of five numbers and a string is a
// tensor.
func (p *parser) values(to *[]Tensor) error {
	var v [5]int64
	var device string
	n, fits := 0, true
	err := p.in.Array(func() error {
		k, err := p.in.Kind()
		if err != nil {
			return err
		}
		if k == jsons.Array {
			fits = false
			return p.values(to)
		}
		if n++; n > 6 || !fits || k == jsons.Object || (k == jsons.String) != (n == 6) || n < 6 && k != jsons.Number {
			fits = false
			return p.in.Skip()
		}
		s, err := p.in.Text()
		if err != nil {
			return err
		}
		if n == 6 {
			device = string(s)
			return nil
		}
		x, exact, ok := decimal.Parse(s, 1)
		v[n-1] = x
		fits = fits && ok && exact
		return nil
	})
	if err != nil || !fits || n != 6 {
		return err
	}
	t := Tensor{v[0], v[1], v[2], v[3], v[4], device}
	if v[2] < 0 || v[3] < 0 || v[4] < 0 || v[2] > maxField || v[3] > maxField || v[4] > maxElement || t.Reach() > maxReach {
		p.list.Count(notes.Skipped, p.file, p.in.Line(), "tensor of an impossible size")
		return nil
	}
	if len(*to) == maxTensors {
		return p.in.Errorf("more than %d tensors in a node", maxTensors)
	}
	*to = append(*to, t)
	return nil
}
