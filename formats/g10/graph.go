package g10

import (
	"fmt"
	"slices"

	"smartswap/sim"
)

// PageBytes is the page size that tensors are rounded up to.
const PageBytes sim.Bytes = 4096

// Graph is one training iteration: kernels in execution order and the tensors
// they touch.
//
// A tensor is global (it outlives the iteration: weights and constants) or
// local. A local tensor lives from the first kernel that touches it until after
// the last kernel that reads it; one that nobody reads lives for the kernel
// that writes it. A local that its first kernel reads without writing it is an
// input of the network, brought in for that kernel.
type Graph struct {
	Kernels []Kernel
	Tensors []Tensor
}

// Kernel is one kernel. Its arguments are indices of Graph.Tensors, ascending
// and each at most once per list; a tensor in both lists is updated in place.
type Kernel struct {
	// Type is the origin's name, such as "Linear_Backward_Weight" (or
	// "Add_MultiGredient", which sums the gradients of several readers).
	Type    string
	In, Out []int32
}

// Tensor is one tensor.
type Tensor struct {
	Bytes  sim.Bytes // > 0, whole pages
	Shape  [4]int32  // in elements, batch filled in; zeros when read from tables
	Global bool
	// Birth is the first kernel that touches a local; Death is the first
	// kernel after its life, > Birth. Both are 0 for globals.
	Birth, Death int32
}

// Footprint is the sum of all tensors: the memory that an iteration needs when
// no tensor ever takes the place of another.
func (g *Graph) Footprint() sim.Bytes {
	var sum sim.Bytes
	for _, t := range g.Tensors {
		sum += t.Bytes
	}
	return sum
}

// GlobalBytes is the sum of the global tensors.
func (g *Graph) GlobalBytes() sim.Bytes {
	var sum sim.Bytes
	for _, t := range g.Tensors {
		if t.Global {
			sum += t.Bytes
		}
	}
	return sum
}

// LargestWorkingSet is the largest sum of the distinct tensors of one kernel,
// and the first kernel that has it: no policy that moves whole tensors runs the
// iteration in less.
func (g *Graph) LargestWorkingSet() (bytes sim.Bytes, kernel int) {
	for i, k := range g.Kernels {
		var sum sim.Bytes
		for _, t := range k.In {
			sum += g.Tensors[t].Bytes
		}
		for _, t := range k.Out {
			if !k.Reads(t) {
				sum += g.Tensors[t].Bytes
			}
		}
		if sum > bytes {
			bytes, kernel = sum, i
		}
	}
	return bytes, kernel
}

// PeakLive is the largest sum of live tensors at one kernel, globals included,
// and the first kernel that has it.
func (g *Graph) PeakLive() (bytes sim.Bytes, kernel int) {
	change := make([]sim.Bytes, len(g.Kernels)+1)
	live := g.GlobalBytes()
	for _, t := range g.Tensors {
		if !t.Global {
			change[t.Birth] += t.Bytes
			change[t.Death] -= t.Bytes
		}
	}
	for i := range g.Kernels {
		if live += change[i]; live > bytes {
			bytes, kernel = live, i
		}
	}
	return bytes, kernel
}

// Reads says whether the kernel reads tensor t. Linear in its arguments.
func (k *Kernel) Reads(t int32) bool { return slices.Contains(k.In, t) }

// Writes says whether the kernel writes tensor t. Linear in its arguments.
func (k *Kernel) Writes(t int32) bool { return slices.Contains(k.Out, t) }

// setLives fills Birth and Death of the locals from the kernels. It fails if no
// kernel touches a local.
func (g *Graph) setLives() error {
	for i := range g.Tensors {
		g.Tensors[i].Birth, g.Tensors[i].Death = -1, -1
	}
	for i, k := range g.Kernels {
		for _, args := range [][]int32{k.In, k.Out} {
			for _, t := range args {
				if g.Tensors[t].Birth < 0 {
					g.Tensors[t].Birth = int32(i)
				}
			}
		}
		for _, t := range k.In {
			g.Tensors[t].Death = int32(i) + 1
		}
	}
	for i := range g.Tensors {
		t := &g.Tensors[i]
		switch {
		case t.Global:
			t.Birth, t.Death = 0, 0
		case t.Birth < 0:
			return fmt.Errorf("no kernel touches local tensor %d", i)
		case t.Death < 0:
			t.Death = t.Birth + 1
		}
	}
	return nil
}
