package workloads

import (
	"fmt"
	"slices"

	"smartswap/sim"
)

// Builder writes one Program, instruction by instruction, in host order. Equal
// kernels become one entry. The zero Builder is not usable; see NewBuilder. A
// Builder serves one goroutine and one Program.
type Builder struct {
	p      Program
	index  []KernelID // hash table of p.Kernels: id + 1, 0 = empty; its length is a power of two
	groups [][]int32
}

// NewBuilder starts a program over names and the residents of its rank, which
// become storages 0..len(residents)-1.
func NewBuilder(names *Names, residents []Storage) *Builder {
	b := &Builder{index: make([]KernelID, 256)}
	b.p.Names = names
	b.p.Residents = int32(len(residents))
	b.p.Storages = slices.Clone(residents)
	return b
}

// Grow makes room for about n more operators; a hint, never needed.
func (b *Builder) Grow(n int) {
	b.p.Instrs = slices.Grow(b.p.Instrs, 4*n)
	b.p.Args = slices.Grow(b.p.Args, 4*n)
	b.p.Storages = slices.Grow(b.p.Storages, n)
}

// New declares a storage. It takes no memory before its first Write.
func (b *Builder) New(s Storage) StorageID {
	b.p.Storages = append(b.p.Storages, s)
	return StorageID(len(b.p.Storages) - 1)
}

// Storage is what New was told about s.
func (b *Builder) Storage(s StorageID) Storage { return b.p.Storages[s] }

// In makes the argument of a whole storage that is read.
func In(s StorageID) Arg { return Arg{Storage: s, Mode: Read} }

// Out makes the argument of a whole storage whose content is replaced.
func Out(s StorageID) Arg { return Arg{Storage: s, Mode: Write} }

// InPlace makes the argument of a whole storage that is read and changed.
func InPlace(s StorageID) Arg { return Arg{Storage: s, Mode: Update} }

// OpSpec is everything about an operator but its arguments.
type OpSpec struct {
	Name    NameID
	Lane    Lane
	Kernel  Kernel
	Flags   Flags
	Scratch sim.Bytes // workspace, freed right after the dispatch
	Host    sim.Time  // host time; 0 = the node's dispatch cost
	// HostOnly: no device work; Kernel is ignored.
	HostOnly bool
}

// Op appends an operator with its arguments, inputs first.
func (b *Builder) Op(o OpSpec, args ...Arg) {
	lo := int32(len(b.p.Args))
	b.p.Args = append(b.p.Args, args...)
	kernel := KernelID(-1)
	if !o.HostOnly {
		kernel = b.kernel(&o.Kernel)
	}
	b.p.Instrs = append(b.p.Instrs, Instr{
		Kind: Op, Lane: o.Lane, Flags: o.Flags, Name: o.Name, Kernel: kernel,
		ArgLo: lo, ArgHi: int32(len(b.p.Args)), Host: o.Host, Scratch: o.Scratch,
	})
	b.p.Ops++
}

// kernel finds or adds k. The table is probed linearly and at most half full. It
// is one of its own, because hashing a whole kernel, as a map does, costs more
// than all else that an operator takes.
func (b *Builder) kernel(k *Kernel) KernelID {
	i := k.hash() & uint64(len(b.index)-1)
	for ; b.index[i] > 0; i = (i + 1) & uint64(len(b.index)-1) {
		id := b.index[i] - 1
		if have := &b.p.Kernels[id]; have.Work == k.Work && have.Tag == k.Tag && slices.Equal(have.Group, k.Group) {
			return id
		}
	}
	b.p.Kernels = append(b.p.Kernels, Kernel{Work: k.Work, Group: b.group(k.Group), Tag: k.Tag})
	n := len(b.p.Kernels)
	b.index[i] = KernelID(n)
	if 2*n > len(b.index) {
		b.index = make([]KernelID, 4*len(b.index))
		for id := range b.p.Kernels {
			i := b.p.Kernels[id].hash() & uint64(len(b.index)-1)
			for b.index[i] > 0 {
				i = (i + 1) & uint64(len(b.index)-1)
			}
			b.index[i] = KernelID(id + 1)
		}
	}
	return KernelID(n - 1)
}

// hash mixes the numbers in which kernels differ most: multiply and fold, with
// the multiplier of Fibonacci hashing (2^64 over the golden ratio).
func (k *Kernel) hash() uint64 {
	const golden = 0x9e3779b97f4a7c15
	h := uint64(k.Flops) * golden
	h = (h ^ h>>32 ^ uint64(k.Traffic)) * golden
	h = (h ^ h>>32 ^ uint64(k.Size) ^ uint64(k.Time) ^ uint64(k.Family)<<56 ^ uint64(k.Tag)<<48) * golden
	return h ^ h>>32
}

// group is one copy of each distinct group; a program has a handful.
func (b *Builder) group(g []int32) []int32 {
	if len(g) == 0 {
		return nil
	}
	for _, have := range b.groups {
		if slices.Equal(have, g) {
			return have
		}
	}
	g = slices.Clone(g)
	b.groups = append(b.groups, g)
	return g
}

// Ref adds a reference to s.
func (b *Builder) Ref(s StorageID) { b.storage(Ref, s) }

// Drop gives a reference of s back.
func (b *Builder) Drop(s StorageID) { b.storage(Drop, s) }

// Save makes autograd keep s: a reference of its own and the event. The
// backward pass calls Unpack, uses s, and drops that reference.
func (b *Builder) Save(s StorageID) {
	b.storage(Ref, s)
	b.storage(Save, s)
}

// Unpack tells that backward asks for the saved s.
func (b *Builder) Unpack(s StorageID) { b.storage(Unpack, s) }

func (b *Builder) storage(kind InstrKind, s StorageID) {
	b.p.Instrs = append(b.p.Instrs, Instr{Kind: kind, A: int32(s)})
}

// Mark appends a phase border with its payload; see MarkKind.
func (b *Builder) Mark(m MarkKind, a, chunk int) {
	b.p.Instrs = append(b.p.Instrs, Instr{Kind: Mark, Mark: m, A: int32(a), B: int32(chunk)})
}

// Sync makes the host wait for everything enqueued on lane so far.
func (b *Builder) Sync(lane Lane) {
	b.p.Instrs = append(b.p.Instrs, Instr{Kind: Sync, Lane: lane})
}

// Record records a new event on lane and returns it.
func (b *Builder) Record(lane Lane) int32 {
	e := b.p.Events
	b.p.Events++
	b.p.Instrs = append(b.p.Instrs, Instr{Kind: Record, Lane: lane, A: e})
	return e
}

// Wait makes later work of lane wait for event e.
func (b *Builder) Wait(lane Lane, e int32) {
	b.p.Instrs = append(b.p.Instrs, Instr{Kind: Wait, Lane: lane, A: e})
}

// Order makes later work of after wait for all earlier work of before.
func (b *Builder) Order(before, after Lane) { b.Wait(after, b.Record(before)) }

// Program ends the building: the program under its kind, or the first rule of
// Validate that it breaks. The Builder must not be used afterwards.
func (b *Builder) Program(kind string) (*Program, error) {
	b.p.Kind = kind
	if err := b.p.Validate(); err != nil {
		return nil, fmt.Errorf("program %q: %w", kind, err)
	}
	p := b.p // apart from the builder's tables, which can go
	return &p, nil
}
