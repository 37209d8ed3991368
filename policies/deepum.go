package policies

// DeepUM registers DeepUM+ as the authors of G10 have it (MICRO'23, section on
// baselines; platformxlab/G10, src/simulator), after DeepUM (ASPLOS'23):
// unified memory with a correlation prefetcher and pre-eviction. At each kernel
// the driver asks for the tensors of the one that comes degree kernels later, as
// it learned them in the iteration before; what the next degree kernels need
// does not make room for a prefetch; pages of dead tensors are forgotten
// instead of written out.
//
// The first iteration teaches and pages on demand. The simulator of G10 knows
// the order from the start, which makes no difference once iterations repeat.
func DeepUM() Registration {
	return Registration{
		Name:  "deepum",
		About: "unified memory with prefetching by what the iteration before did",
		New: func(p Params) (Policy, error) {
			degree := int32(8)
			r := p.Read()
			Int(r, "degree", &degree, 1, 1024)
			return &uvm{Paging{Lookahead: degree, Spare: true, Oldest: true, DropDead: true}}, r.Done()
		},
	}
}
