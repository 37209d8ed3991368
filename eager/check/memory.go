// Package check holds the observers that test a run against its invariants:
// whether every kernel finds the content that program order demands, whether
// memory is shared by nobody, whether engines and lanes keep their books.
// A run is the same with and without them.
//
// # Content
//
// Every write of a storage makes a version, and every version is a token.
// Tokens live in device memory by address and in host buffers by number.
// Commands carry, from the moment they are issued, the tokens they must find
// and the tokens they leave behind; both are settled at the command's device
// times. A block that is reused while a copy still reads it, a swap-in that
// nobody waits for, a stale host copy: each is a token that is not there.
package check

import (
	"cmp"
	"fmt"
	"slices"

	"smartswap/eager/alloc"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
)

// token is the content of a range: storage handle and version. Zero is
// garbage; the highest bit marks a range that is being written.
type token uint64

const writing token = 1 << 63

// current is the token of a storage's content in program order. The observer
// counts versions itself, from the writes it is told of, and trusts no one
// else's count. Tokens are unequal for the runs that are checked: 2^20
// versions of a storage, and handles that differ in their lower 43 bits.
func (m *Memory) current(s *swap.Storage) token {
	return token(uint64(s.Handle)<<20|uint64(m.versions[s.Handle])&(1<<20-1)) &^ writing
}

// span is a range of device memory.
type span struct{ lo, hi uint64 }

// access is what a command does with device memory or a host buffer. A block
// that is stitched together has several spans.
type access struct {
	spans  []span
	buffer alloc.Buffer // alloc.NoBuffer: device memory
	expect token        // before; 0 = does not matter
	leave  token        // after; 0 = unchanged
}

// empty tells that a is of no memory at all: a tensor of 0 bytes.
func (a *access) empty() bool { return a.buffer == alloc.NoBuffer && len(a.spans) == 0 }

// record is the accesses of one command.
type record struct{ accesses []access }

// Memory checks one rank.
type Memory struct {
	rank     int
	mem      alloc.Allocator
	report   func(format string, args ...any)
	now      func() sim.Time
	content  regions
	hosts    []token // by buffer
	owned    []span  // allocated blocks in address order
	blocks   map[alloc.Block][]span
	versions map[policies.Handle]uint32
	pending  []access               // of the operator being issued
	first    map[int64][]access     // of operators that may run again
	streams  [stream.Count][]record // issued, not retired, in order
}

// NewMemory returns the checks of one rank; broken invariants go to report.
func NewMemory(rank int, mem alloc.Allocator, now func() sim.Time, report func(format string, args ...any)) *Memory {
	return &Memory{rank: rank, mem: mem, report: report, now: now, blocks: make(map[alloc.Block][]span), versions: make(map[policies.Handle]uint32), first: make(map[int64][]access)}
}

// Begin, Reads, Writes and Issue describe the kernel issued next: all it reads
// first, then, once for each storage, what it writes.
func (m *Memory) Begin() { m.pending = m.pending[:0] }

// Reads tells that the kernel needs the present content of s.
func (m *Memory) Reads(s *swap.Storage) {
	m.pending = append(m.pending, access{spans: m.spans(s.Block, s.Bytes), buffer: alloc.NoBuffer, expect: m.current(s)})
}

// Writes tells that the kernel leaves a new content of s behind.
func (m *Memory) Writes(s *swap.Storage) {
	m.versions[s.Handle]++
	m.pending = append(m.pending, access{spans: m.spans(s.Block, s.Bytes), buffer: alloc.NoBuffer, leave: m.current(s)})
}

// Remember keeps what the operator described last reads and leaves, under a
// number, until ForgetAll.
func (m *Memory) Remember(id int64) { m.first[id] = slices.Clone(m.pending) }

// ForgetAll ends what Remember began.
func (m *Memory) ForgetAll() { clear(m.first) }

// Again describes a kernel that runs again: it must find what it found the first
// time, whatever has been written since, and leaves what it left then. The
// blocks are those of its reads, in order, then those of its writes.
func (m *Memory) Again(id int64, blocks []alloc.Block, sizes []sim.Bytes) {
	first, ok := m.first[id]
	if !ok || len(first) != len(blocks) {
		m.report("rank %d at %v: an operator runs again that never ran like that", m.rank, m.now())
		return
	}
	m.pending = m.pending[:0]
	for i, a := range first {
		m.pending = append(m.pending, access{spans: m.spans(blocks[i], sizes[i]), buffer: alloc.NoBuffer, expect: a.expect, leave: a.leave})
	}
}

// Issue puts the kernel on a stream.
func (m *Memory) Issue(on stream.ID) {
	m.streams[on] = append(m.streams[on], record{accesses: slices.Clone(m.pending)})
}

// Immediate is an operator without device work: its effects are there at once.
func (m *Memory) Immediate() {
	for _, a := range m.pending {
		if a.leave != 0 {
			m.put(&a, a.leave)
		}
	}
}

// Resident gives a storage that exists before the first iteration its content.
func (m *Memory) Resident(s *swap.Storage) {
	for _, r := range m.spans(s.Block, s.Bytes) {
		m.content.set(r, m.current(s))
	}
}

// spans are the first size bytes of b in physical memory.
func (m *Memory) spans(b alloc.Block, size sim.Bytes) []span {
	var all []span
	m.pieces(b, func(addr uint64, n sim.Bytes) {
		if n = min(n, size); n > 0 {
			all = append(all, span{addr, addr + uint64(n)})
			size -= n
		}
	})
	return all
}

// pieces are where b lies, rounded size included.
func (m *Memory) pieces(b alloc.Block, f func(addr uint64, n sim.Bytes)) {
	if i, ok := m.mem.(alloc.Inspector); ok {
		i.Pieces(b, f)
		return
	}
	f(m.mem.Range(b))
}

// Copied puts a copy on a stream.
func (m *Memory) Copied(on stream.ID, s *swap.Storage, b alloc.Block, c *swap.Copy, dir hw.Direction) {
	dev := access{spans: m.spans(b, s.Bytes), buffer: alloc.NoBuffer}
	host := access{buffer: c.Buffer}
	t := m.current(s)
	if dir == hw.D2H {
		dev.expect, host.leave = t, t
	} else {
		host.expect, dev.leave = t, t
	}
	m.streams[on] = append(m.streams[on], record{accesses: []access{dev, host}})
}

// Started checks what a command needs and marks what it is about to change.
func (m *Memory) Started(s stream.ID, c *stream.Command) {
	if c.Kind == stream.Marker {
		return
	}
	r := m.head(s)
	for i := range r.accesses {
		m.need(s, &r.accesses[i], "starts")
	}
	for i := range r.accesses {
		if a := &r.accesses[i]; a.leave != 0 {
			m.put(a, a.leave|writing)
		}
	}
}

// Retired checks that nobody disturbed the command, and settles its effects.
func (m *Memory) Retired(s stream.ID, c *stream.Command) {
	if c.Kind == stream.Marker {
		return
	}
	r := m.head(s)
	for i := range r.accesses {
		a := &r.accesses[i]
		if a.leave != 0 {
			m.undisturbed(s, a)
			continue
		}
		if !m.updated(r, a) {
			m.need(s, a, "ends")
		}
	}
	for i := range r.accesses {
		if a := &r.accesses[i]; a.leave != 0 {
			m.put(a, a.leave)
		}
	}
	m.streams[s] = m.streams[s][1:]
}

// updated tells whether the command itself writes what a reads.
func (m *Memory) updated(r *record, a *access) bool {
	for i := range r.accesses {
		if w := &r.accesses[i]; w.leave != 0 && w.buffer == a.buffer && slices.Equal(w.spans, a.spans) {
			return true
		}
	}
	return false
}

func (m *Memory) head(s stream.ID) *record {
	if len(m.streams[s]) == 0 {
		m.report("rank %d: %s runs a command that was never announced", m.rank, s.Name())
		return &record{}
	}
	return &m.streams[s][0]
}

// need checks a's expected content.
func (m *Memory) need(s stream.ID, a *access, when string) {
	if a.expect == 0 || a.empty() {
		return
	}
	if got, ok := m.get(a); !ok || got != a.expect {
		m.report("rank %d at %v: a command on %s %s and finds %v where it needs %v (4, 6)", m.rank, m.now(), s.Name(), when, got, a.expect)
	}
}

func (m *Memory) undisturbed(s stream.ID, a *access) {
	if a.empty() {
		return
	}
	if got, ok := m.get(a); !ok || got != a.leave|writing {
		m.report("rank %d at %v: a command on %s ends and what it wrote has become %v (5)", m.rank, m.now(), s.Name(), got)
	}
}

func (m *Memory) get(a *access) (token, bool) {
	if a.buffer == alloc.NoBuffer {
		var all token
		for i, r := range a.spans {
			t, ok := m.content.get(r)
			if !ok || i > 0 && t != all {
				return 0, false
			}
			all = t
		}
		return all, true
	}
	if int(a.buffer) < len(m.hosts) {
		return m.hosts[a.buffer], true
	}
	return 0, true
}

func (m *Memory) put(a *access, t token) {
	if a.buffer == alloc.NoBuffer {
		for _, r := range a.spans {
			m.content.set(r, t)
		}
		return
	}
	for int(a.buffer) >= len(m.hosts) {
		m.hosts = append(m.hosts, 0)
	}
	m.hosts[a.buffer] = t
}

// Bound checks that a block handed out overlaps no other.
func (m *Memory) Bound(_ *swap.Storage, b alloc.Block) {
	if b == alloc.NoBlock {
		return
	}
	if _, known := m.blocks[b]; known {
		return
	}
	m.blocks[b] = nil
	m.pieces(b, func(addr uint64, n sim.Bytes) {
		if n == 0 {
			return
		}
		r := span{addr, addr + uint64(n)}
		i, _ := slices.BinarySearchFunc(m.owned, r, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
		if i > 0 && m.owned[i-1].hi > r.lo || i < len(m.owned) && m.owned[i].lo < r.hi {
			m.report("rank %d at %v: block [%#x, %#x) overlaps another (3)", m.rank, m.now(), r.lo, r.hi)
		}
		m.owned = slices.Insert(m.owned, i, r)
		m.blocks[b] = append(m.blocks[b], r)
	})
}

// Freed forgets a block.
func (m *Memory) Freed(b alloc.Block) {
	rs, ok := m.blocks[b]
	if !ok {
		m.report("rank %d at %v: a block is freed that was never bound (3)", m.rank, m.now())
		return
	}
	delete(m.blocks, b)
	for _, r := range rs {
		if i := slices.Index(m.owned, r); i >= 0 {
			m.owned = slices.Delete(m.owned, i, i+1)
		}
	}
}

// Idle checks that every announced command has run.
func (m *Memory) Idle() {
	for s, rs := range m.streams {
		if len(rs) > 0 {
			m.report("rank %d: %d commands on %s never ran", m.rank, len(rs), stream.ID(s).Name())
		}
	}
}

// String names a token for messages.
func (t token) String() string {
	if t == 0 {
		return "garbage"
	}
	s := ""
	if t&writing != 0 {
		s = " half written"
	}
	t &^= writing
	return fmt.Sprintf("storage %d version %d%s", uint64(t)>>20, uint64(t)&(1<<20-1), s)
}

// regions is the content of an address space: disjoint ranges in order, equal
// neighbours not merged. What is in no range is garbage.
type regions struct{ list []region }

type region struct {
	span
	t token
}

// first is the index of the first region that ends after addr.
func (r *regions) first(addr uint64) int {
	lo, hi := 0, len(r.list)
	for lo < hi {
		mid := (lo + hi) / 2
		if r.list[mid].hi > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// get is the content of all of s; false when it is not the same everywhere.
func (r *regions) get(s span) (token, bool) {
	i := r.first(s.lo)
	if i == len(r.list) || r.list[i].lo > s.lo {
		return 0, i == len(r.list) || r.list[i].lo >= s.hi
	}
	t, at := r.list[i].t, r.list[i].hi
	for at < s.hi {
		i++
		if i == len(r.list) || r.list[i].lo != at || r.list[i].t != t {
			return 0, false
		}
		at = r.list[i].hi
	}
	return t, true
}

// set makes t the content of s.
func (r *regions) set(s span, t token) {
	i := r.first(s.lo)
	j := i
	var keep []region
	for j < len(r.list) && r.list[j].lo < s.hi {
		if o := r.list[j]; o.lo < s.lo {
			keep = append(keep, region{span{o.lo, s.lo}, o.t})
		}
		j++
	}
	keep = append(keep, region{s, t})
	if j > i {
		if o := r.list[j-1]; o.hi > s.hi {
			keep = append(keep, region{span{s.hi, o.hi}, o.t})
		}
	}
	r.list = slices.Replace(r.list, i, j, keep...)
}
