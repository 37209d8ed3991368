package workloads

// Repeat is w with the programs of iteration i in every iteration: the same job
// when nothing varies any more. i must not be negative.
func Repeat(w Workload, i int) Workload { return repeated{w, i} }

type repeated struct {
	Workload
	i int
}

// Program implements Workload.
func (r repeated) Program(rank, _ int) (*Program, error) { return r.Workload.Program(rank, r.i) }

// TokensIn implements TokenCounter.
func (r repeated) TokensIn(int) (int64, error) {
	if c, ok := r.Workload.(TokenCounter); ok {
		return c.TokensIn(r.i)
	}
	return r.Workload.Tokens(), nil
}

// Hash identifies what p does to memory and in which order: programs that
// dispatch the same operators on storages of the same sizes have equal hashes.
// FNV-1a over words; O(instructions).
func (p *Program) Hash() uint64 {
	const prime = 0x100000001b3
	h := uint64(0xcbf29ce484222325)
	word := func(v int64) { h = (h ^ uint64(v)) * prime }
	for i := range p.Storages {
		word(int64(p.Storages[i].Bytes))
	}
	for i := range p.Instrs {
		in := &p.Instrs[i]
		word(int64(in.Kind)<<16 | int64(in.Mark)<<8 | int64(in.Lane))
		if in.Kind != Op {
			word(int64(in.A)<<32 | int64(uint32(in.B)))
			continue
		}
		word(int64(in.Name)<<32 | int64(uint32(in.Kernel)))
		for _, a := range p.Args[in.ArgLo:in.ArgHi] {
			word(int64(a.Storage)<<8 | int64(a.Mode))
		}
		word(int64(in.Scratch))
	}
	return h
}
