package alloc

import (
	"fmt"
	"math/bits"

	"smartswap/sim"
)

// PinnedOptions configure a pool of page-locked host memory.
type PinnedOptions struct {
	// Rounding of a buffer's size: "exact", or "pow2", the next power of
	// two, as the frameworks' caching host allocators do.
	Rounding string `toml:"rounding"`
	// Reuse: "reuse" keeps freed buffers page-locked for a later request of
	// the same rounded size, "fresh" page-locks each buffer anew.
	Reuse string `toml:"reuse"`
	// MaxRoundThresholdMB: larger requests are not rounded to powers of two:
	// 0 = no such size (default), otherwise 1 to 2^20 MiB.
	MaxRoundThresholdMB int64 `toml:"pinned_max_round_threshold_mb"`
	// MaxCachedSizeMB: larger buffers are not kept: 0 = no such size
	// (default), otherwise 1 to 2^20 MiB.
	MaxCachedSizeMB int64 `toml:"pinned_max_cached_size_mb"`
}

// Names that PinnedOptions take.
const (
	RoundExact = "exact"
	RoundPow2  = "pow2"

	BuffersReuse = "reuse"
	BuffersFresh = "fresh"
)

// DefaultPinnedOptions is what PyTorch and torch_npu do.
func DefaultPinnedOptions() PinnedOptions {
	return PinnedOptions{Rounding: RoundPow2, Reuse: BuffersReuse}
}

// Validate refuses unknown names, values out of range and options that
// contradict each other: one line with key, value, what is allowed.
func (o PinnedOptions) Validate() error {
	switch {
	case o.Rounding != RoundExact && o.Rounding != RoundPow2:
		return fmt.Errorf("rounding = %q: must be %q or %q", o.Rounding, RoundExact, RoundPow2)
	case o.Reuse != BuffersReuse && o.Reuse != BuffersFresh:
		return fmt.Errorf("reuse = %q: must be %q or %q", o.Reuse, BuffersReuse, BuffersFresh)
	case o.MaxRoundThresholdMB < 0 || o.MaxRoundThresholdMB > maxMB:
		return fmt.Errorf("pinned_max_round_threshold_mb = %d: must be 0 (off) or 1 to %d", o.MaxRoundThresholdMB, maxMB)
	case o.MaxCachedSizeMB < 0 || o.MaxCachedSizeMB > maxMB:
		return fmt.Errorf("pinned_max_cached_size_mb = %d: must be 0 (off) or 1 to %d", o.MaxCachedSizeMB, maxMB)
	case o.MaxRoundThresholdMB > 0 && o.Rounding == RoundExact:
		return fmt.Errorf("rounding = %q and pinned_max_round_threshold_mb = %d contradict: nothing is rounded", o.Rounding, o.MaxRoundThresholdMB)
	case o.MaxCachedSizeMB > 0 && o.Reuse == BuffersFresh:
		return fmt.Errorf("reuse = %q and pinned_max_cached_size_mb = %d contradict: nothing is kept", o.Reuse, o.MaxCachedSizeMB)
	}
	return nil
}

// Buffer identifies a page-locked host buffer; ids are reused after Free.
type Buffer int32

// NoBuffer is no buffer.
const NoBuffer Buffer = -1

// PinnedStats count in bytes: Requested and Used (rounded) by buffers handed
// out, Pinned with the idle ones; Pageable by buffers of AllocPageable, which
// the others leave out. Pins and Unpins count driver calls, Reuses requests
// that an idle buffer served.
type PinnedStats struct {
	Requested, Used, Pinned, Pageable Stat
	Pins, Unpins, Reuses              int64
}

// PinnedExhausted reports that the pool has no room. All sizes in bytes.
type PinnedExhausted struct {
	Requested, Rounded, Used, Capacity sim.Bytes
}

// Error is one line with every figure.
func (e *PinnedExhausted) Error() string {
	return fmt.Sprintf("pinned host memory exhausted: requested %d bytes (buffer %d), in use %d of capacity %d",
		e.Requested, e.Rounded, e.Used, e.Capacity)
}

// Pinned is a pool of page-locked host buffers of one host. It never exceeds
// its capacity: idle buffers are page-locked and count; they are given up, the
// one freed first before the others, when a new buffer needs their room.
// (assumed: the frameworks' pools fail instead, which no job could survive.)
type Pinned struct {
	roundUpTo      sim.Bytes // larger requests are not rounded
	keepUpTo       sim.Bytes // larger buffers are not kept
	capacity       sim.Bytes
	buffers        []buffer
	vacant         Buffer             // first vacant id, linked by newer
	idle           map[sim.Bytes]line // idle buffers of one size, linked by same
	oldest, newest Buffer             // all idle buffers, linked by older and newer
	stats          PinnedStats
}

// line is a queue of buffers: the one freed first is used first.
type line struct{ first, last Buffer }

type buffer struct {
	size, requested sim.Bytes
	used, pageable  bool
	same            Buffer // the idle buffer of this size that was freed next
	older, newer    Buffer
}

// NewPinned makes a pool of capacity bytes; capacity <= 0 means unbounded.
func NewPinned(o PinnedOptions, capacity sim.Bytes) (*Pinned, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("pinned pool: %w", err)
	}
	if capacity <= 0 || capacity > unbounded {
		capacity = unbounded
	}
	p := &Pinned{
		roundUpTo: anySize, keepUpTo: anySize, capacity: capacity,
		vacant: NoBuffer, oldest: NoBuffer, newest: NoBuffer, idle: make(map[sim.Bytes]line),
	}
	if o.MaxRoundThresholdMB > 0 {
		p.roundUpTo = sim.Bytes(o.MaxRoundThresholdMB) * sim.MiB
	}
	if o.MaxCachedSizeMB > 0 {
		p.keepUpTo = sim.Bytes(o.MaxCachedSizeMB) * sim.MiB
	}
	if o.Rounding == RoundExact {
		p.roundUpTo = 0
	}
	if o.Reuse == BuffersFresh {
		p.keepUpTo = 0
	}
	return p, nil
}

// Alloc hands out a buffer of size > 0 bytes, and tells how many bytes had to
// be page-locked for it, or fails with a *PinnedExhausted and no change.
// Amortised constant time.
func (p *Pinned) Alloc(size sim.Bytes) (b Buffer, pinned sim.Bytes, err error) {
	if size <= 0 {
		return NoBuffer, 0, fmt.Errorf("pinned pool: request of %d bytes: must be > 0", size)
	}
	if size > p.capacity { // also keeps the rounding from overflowing
		return NoBuffer, 0, p.exhausted(size, size)
	}
	rounded := p.round(size)
	if l, ok := p.idle[rounded]; ok && l.first != NoBuffer {
		b = l.first
		p.unlink(b)
		p.stats.Reuses++
	} else {
		if sim.Bytes(p.stats.Used.Current)+rounded > p.capacity {
			return NoBuffer, 0, p.exhausted(size, rounded)
		}
		for sim.Bytes(p.stats.Pinned.Current)+rounded > p.capacity {
			p.unpin(p.oldest)
		}
		b = p.take()
		p.buffers[b] = buffer{size: rounded}
		pinned = rounded
		p.stats.Pins++
		p.stats.Pinned.add(int64(rounded))
	}
	n := &p.buffers[b]
	n.used, n.requested = true, size
	p.stats.Used.add(int64(rounded))
	p.stats.Requested.add(int64(size))
	return b, pinned, nil
}

// AllocPageable hands out a buffer of size > 0 bytes that is not page-locked,
// for a caller whom Alloc failed: copies to and from it are slow, and the host
// waits for them. The pool only counts it; whether the host has the memory is
// the caller's to know.
func (p *Pinned) AllocPageable(size sim.Bytes) Buffer {
	b := p.take()
	p.buffers[b] = buffer{size: size, requested: size, used: true, pageable: true}
	p.stats.Pageable.add(int64(size))
	return b
}

// Pageable tells whether b, which must be handed out, is not page-locked.
func (p *Pinned) Pageable(b Buffer) bool { return p.inUse(b).pageable }

// Free takes b back at once: the caller waits for the copies that use it.
// Freeing what is not handed out panics.
func (p *Pinned) Free(b Buffer) {
	n := p.inUse(b)
	n.used = false
	if n.pageable {
		p.stats.Pageable.add(-int64(n.size))
		n.newer, p.vacant = p.vacant, b
		return
	}
	p.stats.Used.add(-int64(n.size))
	p.stats.Requested.add(-int64(n.requested))
	if n.size > p.keepUpTo {
		p.release(b)
		return
	}
	p.link(b)
}

// Size is the rounded size of b, which must be handed out.
func (p *Pinned) Size(b Buffer) sim.Bytes { return p.inUse(b).size }

// Capacity in bytes.
func (p *Pinned) Capacity() sim.Bytes { return p.capacity }

// Stats returns the counters.
func (p *Pinned) Stats() PinnedStats { return p.stats }

func (p *Pinned) inUse(b Buffer) *buffer {
	if b < 0 || int(b) >= len(p.buffers) || !p.buffers[b].used {
		panic(fmt.Sprintf("alloc: pinned buffer %d is not in use", b))
	}
	return &p.buffers[b]
}

func (p *Pinned) round(size sim.Bytes) sim.Bytes {
	if size > p.roundUpTo {
		return size
	}
	return 1 << bits.Len64(uint64(size-1))
}

func (p *Pinned) exhausted(size, rounded sim.Bytes) error {
	return &PinnedExhausted{size, rounded, sim.Bytes(p.stats.Used.Current), p.capacity}
}

// take is a vacant id.
func (p *Pinned) take() Buffer {
	b := p.vacant
	if b == NoBuffer {
		p.buffers = append(p.buffers, buffer{})
		return Buffer(len(p.buffers) - 1)
	}
	p.vacant = p.buffers[b].newer
	return b
}

// link makes b the newest idle buffer.
func (p *Pinned) link(b Buffer) {
	n := &p.buffers[b]
	n.same, n.older, n.newer = NoBuffer, p.newest, NoBuffer
	if p.newest == NoBuffer {
		p.oldest = b
	} else {
		p.buffers[p.newest].newer = b
	}
	p.newest = b

	l, ok := p.idle[n.size]
	if !ok || l.first == NoBuffer {
		l.first = b
	} else {
		p.buffers[l.last].same = b
	}
	l.last = b
	p.idle[n.size] = l
}

// unlink takes b, the first idle buffer of its size, out of both lists.
func (p *Pinned) unlink(b Buffer) {
	n := &p.buffers[b]
	if n.older == NoBuffer {
		p.oldest = n.newer
	} else {
		p.buffers[n.older].newer = n.newer
	}
	if n.newer == NoBuffer {
		p.newest = n.older
	} else {
		p.buffers[n.newer].older = n.older
	}
	l := p.idle[n.size]
	l.first = n.same
	p.idle[n.size] = l
}

// unpin gives b, the first idle buffer of its size, back to the host.
func (p *Pinned) unpin(b Buffer) {
	p.unlink(b)
	p.release(b)
}

// release gives b, in no list, back to the host.
func (p *Pinned) release(b Buffer) {
	n := &p.buffers[b]
	p.stats.Pinned.add(-int64(n.size))
	p.stats.Unpins++
	n.newer, p.vacant = p.vacant, b
}
