package alloc

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"smartswap/sim"
)

// Options configure an allocator under the names of PyTorch's
// PYTORCH_ALLOC_CONF. Start from DefaultOptions: the zero value is not valid.
type Options struct {
	// Backend: "caching" is the framework's allocator, "bytes" one without
	// fragmentation and driver calls, to tell their effect apart.
	Backend string `toml:"backend"`
	// Dialect: "pytorch", or "torch_npu", which adds 32 bytes to each
	// request, defers a free even for the block's own stream once that is
	// recorded, and waits for the whole device before it gives memory back.
	Dialect string `toml:"dialect"`
	// EventPolicy says when Malloc asks which deferred frees are over:
	// "query" always, "query-lazy" (torch_npu's multi_stream_lazy_reclaim)
	// only if the search missed or more than 512 events are outstanding.
	EventPolicy string `toml:"event_policy"`
	// MaxSplitSizeMB: blocks this large are oversize: never split, and only
	// for requests as large. 0 = unlimited, otherwise 20 to 2^20 MiB.
	MaxSplitSizeMB int64 `toml:"max_split_size_mb"`
	// MaxNonSplitRoundingMB is how much an oversize request may waste on a
	// cached block: the block must be smaller than the request plus this.
	// 20 (default) to 2^20 MiB; needs max_split_size_mb.
	MaxNonSplitRoundingMB int64 `toml:"max_non_split_rounding_mb"`
	// GarbageCollectionThreshold: above this share of the limit, old cached
	// segments go back before a new one comes. 0 = off, otherwise strictly
	// between 0 and 1; needs memory_fraction.
	GarbageCollectionThreshold float64 `toml:"garbage_collection_threshold"`
	// RoundupPower2Divisions rounds a request up to a power of two or one of
	// so many even steps between two of them: "" off, "4" for all sizes, or
	// by size in MiB, "64:8,256:2,>:1"; brackets allowed. See parseDivisions.
	RoundupPower2Divisions string `toml:"roundup_power2_divisions"`
	// LargeSegmentSizeMB is the segment for requests over 1 and below
	// 10 MiB: 11 to 2^20 (default 20), not above max_split_size_mb.
	LargeSegmentSizeMB int64 `toml:"large_segment_size_mb"`
	// MemoryFraction of the capacity is the most that may be reserved (of
	// an unbounded device: everything). 0 = no limit set, otherwise up to 1.
	MemoryFraction float64 `toml:"memory_fraction"`
}

// Names that Options take.
const (
	BackendCaching = "caching"
	BackendBytes   = "bytes"

	DialectPyTorch  = "pytorch"
	DialectTorchNPU = "torch_npu"

	EventQuery     = "query"
	EventQueryLazy = "query-lazy"
)

// DefaultOptions is PyTorch's allocator as it is without configuration.
func DefaultOptions() Options {
	return Options{
		Backend:               BackendCaching,
		Dialect:               DialectPyTorch,
		EventPolicy:           EventQuery,
		MaxNonSplitRoundingMB: 20,
		LargeSegmentSizeMB:    20,
	}
}

// maxMB keeps every size of a configuration far from overflow.
const maxMB = 1 << 20

// Validate refuses values out of range and options that contradict each
// other. The error is one line: key, value, what is allowed.
func (o Options) Validate() error {
	_, err := o.rules()
	return err
}

// check is Validate without the divisions, in the order of the fields, then
// the pairs.
func (o Options) check() error {
	for _, c := range []struct {
		key, value string
		allowed    [2]string
	}{
		{"backend", o.Backend, [2]string{BackendCaching, BackendBytes}},
		{"dialect", o.Dialect, [2]string{DialectPyTorch, DialectTorchNPU}},
		{"event_policy", o.EventPolicy, [2]string{EventQuery, EventQueryLazy}},
	} {
		if c.value != c.allowed[0] && c.value != c.allowed[1] {
			return fmt.Errorf("%s = %q: must be %q or %q", c.key, c.value, c.allowed[0], c.allowed[1])
		}
	}
	for _, c := range []struct {
		key             string
		value, min      int64
		orZeroUnlimited bool
	}{
		{"max_split_size_mb", o.MaxSplitSizeMB, 20, true},
		{"max_non_split_rounding_mb", o.MaxNonSplitRoundingMB, 20, false},
		{"large_segment_size_mb", o.LargeSegmentSizeMB, 11, false},
	} {
		zero := ""
		if c.orZeroUnlimited {
			if c.value == 0 {
				continue
			}
			zero = "0 (unlimited) or "
		}
		if c.value < c.min || c.value > maxMB {
			return fmt.Errorf("%s = %d: must be %s%d to %d", c.key, c.value, zero, c.min, maxMB)
		}
	}
	if t := o.GarbageCollectionThreshold; !(t >= 0 && t < 1) {
		return fmt.Errorf("garbage_collection_threshold = %v: must be 0 (off) or strictly between 0 and 1", t)
	}
	if f := o.MemoryFraction; !(f >= 0 && f <= 1) {
		return fmt.Errorf("memory_fraction = %v: must be 0 (no limit) to 1", f)
	}

	d := DefaultOptions()
	if o.Backend == BackendBytes {
		for _, c := range []struct {
			key string
			set bool
		}{
			{"event_policy", o.EventPolicy != d.EventPolicy},
			{"max_split_size_mb", o.MaxSplitSizeMB != d.MaxSplitSizeMB},
			{"max_non_split_rounding_mb", o.MaxNonSplitRoundingMB != d.MaxNonSplitRoundingMB},
			{"garbage_collection_threshold", o.GarbageCollectionThreshold != d.GarbageCollectionThreshold},
			{"roundup_power2_divisions", o.RoundupPower2Divisions != d.RoundupPower2Divisions},
			{"large_segment_size_mb", o.LargeSegmentSizeMB != d.LargeSegmentSizeMB},
		} {
			if c.set {
				return fmt.Errorf("backend = %q and %s contradict: only %q has that option", BackendBytes, c.key, BackendCaching)
			}
		}
	}
	switch {
	case o.MaxSplitSizeMB == 0 && o.MaxNonSplitRoundingMB != d.MaxNonSplitRoundingMB:
		return fmt.Errorf("max_non_split_rounding_mb = %d and max_split_size_mb = 0 contradict: without oversize blocks it does nothing", o.MaxNonSplitRoundingMB)
	case o.MaxSplitSizeMB != 0 && o.LargeSegmentSizeMB > o.MaxSplitSizeMB:
		return fmt.Errorf("large_segment_size_mb = %d and max_split_size_mb = %d contradict: the segment must not be larger", o.LargeSegmentSizeMB, o.MaxSplitSizeMB)
	case o.GarbageCollectionThreshold > 0 && o.MemoryFraction == 0:
		return fmt.Errorf("garbage_collection_threshold = %v and memory_fraction = 0 contradict: the threshold is a share of that limit", o.GarbageCollectionThreshold)
	}
	return nil
}

// New makes an allocator for a device with capacity bytes for the framework;
// capacity <= 0 means unbounded (1 EiB, so that no sum overflows).
func New(o Options, capacity sim.Bytes, env Env) (Allocator, error) {
	r, err := o.rules()
	if err != nil {
		return nil, fmt.Errorf("allocator: %w", err)
	}
	bounded := capacity > 0
	if !bounded || capacity > unbounded {
		capacity = unbounded
	}
	r.capacity, r.room = capacity, capacity
	if o.MemoryFraction > 0 && bounded {
		r.limit = sim.Bytes(o.MemoryFraction * float64(capacity))
		r.room = min(capacity, r.limit)
		r.collectAbove = sim.Bytes(o.GarbageCollectionThreshold * float64(r.limit))
		r.collects = o.GarbageCollectionThreshold > 0
	}
	if o.Backend == BackendBytes {
		return newBytes(r, env), nil
	}
	return newCaching(r, env), nil
}

// The fixed sizes of both dialects (kMinBlockSize and its neighbours).
const (
	quantum       sim.Bytes = 512           // every block is a multiple of it
	smallLimit              = sim.MiB       // rounded requests up to it are small
	smallSegment            = 2 * sim.MiB   // segment for small requests
	largeRequest            = 10 * sim.MiB  // from here on a request has its own segment
	segmentStep             = 2 * sim.MiB   // such a segment is a multiple of it
	maxRequest              = 1024 << 50    // 1 EiB; more fails at once
	unbounded               = maxRequest    // capacity of an unbounded device
	lazyEvents              = 512           // outstanding events that make query-lazy ask
	anySize       sim.Bytes = math.MaxInt64 // no block is oversize
	divisionsFrom           = 20            // log2 of the lowest rounding interval, 1 MiB
	numDivisions            = 16            // intervals, the last from 32 GiB on
)

// rules are Options and capacity in the form in which the allocators ask.
type rules struct {
	pad                   sim.Bytes // added to each request before rounding
	ownStream             bool      // recording a block's own stream counts
	syncRecovery          bool      // wait for the device before giving memory back
	lazy                  bool
	maxSplit, nonSplit    sim.Bytes
	largeSegment          sim.Bytes
	divisions             [numDivisions]sim.Bytes // 0, 1: plain rounding
	capacity, limit, room sim.Bytes               // limit 0: none; room: the smaller of the two
	collects              bool                    // garbage collection is on,
	collectAbove          sim.Bytes               // above this reservation
}

// rules checks o and translates it, all but what depends on the capacity.
func (o Options) rules() (rules, error) {
	if err := o.check(); err != nil {
		return rules{}, err
	}
	d, err := parseDivisions(o.RoundupPower2Divisions)
	if err != nil {
		return rules{}, err
	}
	r := rules{
		lazy:         o.EventPolicy == EventQueryLazy,
		maxSplit:     anySize,
		nonSplit:     sim.Bytes(o.MaxNonSplitRoundingMB) * sim.MiB,
		largeSegment: sim.Bytes(o.LargeSegmentSizeMB) * sim.MiB,
		divisions:    d,
	}
	if o.MaxSplitSizeMB > 0 {
		r.maxSplit = sim.Bytes(o.MaxSplitSizeMB) * sim.MiB
	}
	if o.Dialect == DialectTorchNPU {
		// Copies of CANN want buffers of ALIGN_UP(size, 32) + 32 bytes.
		r.pad, r.ownStream, r.syncRecovery = 32, true, true
	}
	return r, nil
}

// parseDivisions reads roundup_power2_divisions. A single value holds for all
// intervals [2^i, 2^(i+1)) MiB. In a list, "m:d" sets the interval of m MiB
// and the first entry also all below; ">:d" sets all from the last entry's
// interval up. Intervals in a gap round plainly. Both numbers must be powers
// of two; d may be 0 for plain rounding.
func parseDivisions(s string) (d [numDivisions]sim.Bytes, err error) {
	fill := func(from, to int, v sim.Bytes) {
		for i := from; i < to; i++ {
			d[i] = v
		}
	}
	list := strings.TrimSpace(s)
	if inner, ok := strings.CutPrefix(list, "["); ok {
		if list, ok = strings.CutSuffix(inner, "]"); !ok {
			return d, fmt.Errorf("roundup_power2_divisions = %q: ']' is missing", s)
		}
	}
	if list == "" {
		return d, nil
	}
	if !strings.Contains(list, ":") {
		v, err := powerOf2(list, true)
		if err != nil {
			return d, fmt.Errorf("roundup_power2_divisions = %q: %w", s, err)
		}
		fill(0, numDivisions, v)
		return d, nil
	}
	last := -1
	for entry := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(entry), ":")
		if !ok {
			return d, fmt.Errorf("roundup_power2_divisions = %q: entry %q must be size_mb:divisions or >:divisions", s, entry)
		}
		v, err := powerOf2(value, true)
		if err != nil {
			return d, fmt.Errorf("roundup_power2_divisions = %q: entry %q: %w", s, entry, err)
		}
		if strings.TrimSpace(key) == ">" {
			fill(max(last, 0), numDivisions, v)
			continue
		}
		mb, err := powerOf2(key, false)
		if err != nil {
			return d, fmt.Errorf("roundup_power2_divisions = %q: entry %q: %w", s, entry, err)
		}
		i := min(bits.Len64(uint64(mb))-1, numDivisions-1)
		if last < 0 {
			fill(0, i, v)
		}
		d[i], last = v, i
	}
	return d, nil
}

// powerOf2 reads a power of two up to 2^20, or 0 where that is allowed.
func powerOf2(s string, zero bool) (sim.Bytes, error) {
	v, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || v < 0 || v > 1<<20 || bits.OnesCount64(uint64(v)) > 1 || v == 0 && !zero {
		return 0, fmt.Errorf("%q must be a power of two up to 1048576", strings.TrimSpace(s))
	}
	return sim.Bytes(v), nil
}

// round is the block size for a request of size bytes ("round_size").
func (r *rules) round(size sim.Bytes) sim.Bytes {
	size += r.pad
	if size < quantum {
		return quantum
	}
	log := bits.Len64(uint64(size)) - 1
	if d := r.divisions[min(max(log-divisionsFrom, 0), numDivisions-1)]; d > 1 && size > quantum*d {
		// The step is at least a quantum, for the power below size is at
		// least quantum x d.
		return roundUp(size, sim.Bytes(1)<<log/d)
	}
	return roundUp(size, quantum)
}

// segment is the size to ask the driver for, to serve a rounded request
// ("get_allocation_size").
func (r *rules) segment(rounded sim.Bytes) sim.Bytes {
	switch {
	case rounded <= smallLimit:
		return smallSegment
	case rounded < largeRequest:
		return r.largeSegment
	}
	return roundUp(rounded, segmentStep)
}

// roundUp is the least multiple of step, a power of two, that is not below n.
func roundUp(n, step sim.Bytes) sim.Bytes { return (n + step - 1) &^ (step - 1) }
