package alloc

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"smartswap/sim"
)

// Options configure an allocator under the names of PyTorch's
// PYTORCH_ALLOC_CONF and torch_npu's PYTORCH_NPU_ALLOC_CONF. Start from
// DefaultOptions: the zero value is not valid.
type Options struct {
	// Backend: "caching" is the framework's allocator; "stitching" the one
	// of SmartSwap, whose large pool maps scattered free memory into one
	// range; "bytes" one without fragmentation and driver calls, to tell
	// their effect apart.
	Backend string `toml:"backend"`
	// Dialect: "pytorch", or "torch_npu", which adds 32 bytes to each
	// request, defers a free even for the block's own stream once that is
	// recorded, and waits for the whole device before it gives memory back.
	// SmartSwap's own is "torch_npu".
	Dialect string `toml:"dialect"`
	// EventPolicy says how deferred frees end. "query": each Malloc asks
	// which are over. "query-lazy" (torch_npu's multi_stream_lazy_reclaim):
	// only if the search missed or more than 512 events are outstanding.
	// "wait-at-reuse": nobody asks; if the search missed, the stream of the
	// request is made to wait on the device for its oldest deferred frees
	// until one serves it, which needs an Env that is a Waiter.
	EventPolicy string `toml:"event_policy"`
	// Drain says when Malloc asks an Env that is a Drainer for memory held
	// elsewhere, after the search missed: "late", once the driver has no
	// more (as SmartSwap ships), or "early", before it asks the driver.
	Drain string `toml:"drain"`
	// MaxSplitSizeMB: blocks this large are oversize: never split, and only
	// for requests as large. 0 = unlimited, otherwise 20 to 2^20 MiB.
	MaxSplitSizeMB int64 `toml:"max_split_size_mb"`
	// MaxNonSplitRoundingMB is how much an oversize request may waste on a
	// cached block: the block must be smaller than the request plus this.
	// 20 (default) to 2^20 MiB; needs max_split_size_mb.
	MaxNonSplitRoundingMB int64 `toml:"max_non_split_rounding_mb"`
	// GarbageCollectionThreshold: above this share of the limit, old cached
	// segments go back before a new one comes. 0 = off, otherwise strictly
	// between 0 and 1; needs
	// per_process_memory_fraction.
	GarbageCollectionThreshold float64 `toml:"garbage_collection_threshold"`
	// RoundupPower2Divisions rounds a request up to a power of two or one of
	// so many even steps between two of them.
	RoundupPower2Divisions Divisions `toml:"roundup_power2_divisions"`
	// LargeSegmentSizeMB is the segment for requests over 1 and below
	// 10 MiB: 11 to 2^20 (default 20), not above max_split_size_mb. In
	// torch_npu it is also the page of expandable large segments, and even.
	LargeSegmentSizeMB int64 `toml:"large_segment_size_mb"`
	// PerProcessMemoryFraction of the capacity is the most that may be
	// reserved (of an unbounded device: everything). 0 = no limit set,
	// otherwise up to 1.
	PerProcessMemoryFraction float64 `toml:"per_process_memory_fraction"`

	// ExpandableSegments grow page by page in a wide range of addresses, one
	// for each pool and stream, instead of one driver call per segment.
	// torch_npu refuses them with max_split_size_mb or garbage collection.
	ExpandableSegments bool `toml:"expandable_segments"`
	// SegmentSizeMB (torch_npu) is the page of expandable small segments: an
	// even number from 2 (default) to 2^20.
	SegmentSizeMB int64 `toml:"segment_size_mb"`
	// PageSize (torch_npu) "1g" makes segments for 10 MiB and more multiples
	// of 1 GiB, and 1 GiB the page of expandable large segments; "" off.
	PageSize string `toml:"page_size"`
	// BaseAddrAlignedKB (torch_npu): in expandable segments, blocks of 2 MiB
	// and more start at a multiple of this where their place allows: a power
	// of two up to 2^20 (default 16), 0 = off.
	BaseAddrAlignedKB int64 `toml:"base_addr_aligned_kb"`
	// ThrowOnNPUMallocOOM (torch_npu) gives up as soon as a new segment
	// would not fit, instead of giving cached memory back and trying again.
	ThrowOnNPUMallocOOM bool `toml:"throw_on_npumalloc_oom"`

	// Exact (bytes) counts requests as they are, without rounding: what an
	// analysis on tensor sizes alone assumes.
	Exact bool `toml:"exact"`

	// FreshSegmentSplit (stitching) splits a new 20 MiB segment for the
	// request that it was made for. SmartSwap as shipped (false) hands it
	// out whole; only the next request from it splits.
	FreshSegmentSplit bool `toml:"fresh_segment_split"`
}

// Divisions are roundup_power2_divisions in the forms that PyTorch takes: ""
// off; a number for all sizes, "4"; or numbers by size in MiB, with or without
// brackets, "[256:1,512:2,>:4]". parseDivisions has their meaning.
type Divisions string

// UnmarshalTOML takes a string or an integer: the one number needs no quotes.
func (d *Divisions) UnmarshalTOML(v any) error {
	switch v := v.(type) {
	case string:
		*d = Divisions(v)
	case int64:
		*d = Divisions(strconv.FormatInt(v, 10))
	default:
		return fmt.Errorf("want an integer, or a string such as %q or %q", "4", "[256:1,512:2,>:4]")
	}
	return nil
}

// Names that Options take.
const (
	BackendCaching   = "caching"
	BackendStitching = "stitching"
	BackendBytes     = "bytes"

	DialectPyTorch  = "pytorch"
	DialectTorchNPU = "torch_npu"

	EventQuery       = "query"
	EventQueryLazy   = "query-lazy"
	EventWaitAtReuse = "wait-at-reuse"

	DrainLate  = "late"
	DrainEarly = "early"

	PageSize1G = "1g"
)

// DefaultOptions is PyTorch's allocator as it is without configuration.
func DefaultOptions() Options {
	return Options{
		Backend:               BackendCaching,
		Dialect:               DialectPyTorch,
		EventPolicy:           EventQuery,
		Drain:                 DrainLate,
		MaxNonSplitRoundingMB: 20,
		LargeSegmentSizeMB:    20,
		SegmentSizeMB:         2,
		BaseAddrAlignedKB:     16,
	}
}

// SmartSwapOptions is the allocator that SmartSwap plugs into torch_npu.
func SmartSwapOptions() Options {
	o := DefaultOptions()
	o.Backend, o.Dialect = BackendStitching, DialectTorchNPU
	return o
}

// maxMB keeps every size of a configuration far from overflow.
const maxMB = 1 << 20

// Validate refuses values out of range and options that contradict each
// other. The error is one line: key, value, what is allowed.
func (o Options) Validate() error {
	_, err := o.rules()
	return err
}

// checkNames refuses unknown names.
func (o Options) checkNames() error {
	for _, c := range []struct {
		key, value string
		allowed    []string
	}{
		{"backend", o.Backend, []string{BackendCaching, BackendStitching, BackendBytes}},
		{"dialect", o.Dialect, []string{DialectPyTorch, DialectTorchNPU}},
		{"event_policy", o.EventPolicy, []string{EventQuery, EventQueryLazy, EventWaitAtReuse}},
		{"drain", o.Drain, []string{DrainLate, DrainEarly}},
		{"page_size", o.PageSize, []string{"", PageSize1G}},
	} {
		if !slices.Contains(c.allowed, c.value) {
			return fmt.Errorf("%s = %q: must be %s", c.key, c.value, oneOf(c.allowed))
		}
	}
	return nil
}

// oneOf lists names: "a", "b" or "c".
func oneOf(names []string) string {
	var b strings.Builder
	for i, n := range names {
		switch {
		case i > 0 && i == len(names)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", n)
	}
	return b.String()
}

// checkRanges refuses numbers out of range.
func (o Options) checkRanges() error {
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
	if n := o.SegmentSizeMB; n < 2 || n > maxMB || n%2 != 0 {
		return fmt.Errorf("segment_size_mb = %d: must be an even number from 2 to %d", n, maxMB)
	}
	if n := o.BaseAddrAlignedKB; n < 0 || n > maxMB || bits.OnesCount64(uint64(n)) > 1 {
		return fmt.Errorf("base_addr_aligned_kb = %d: must be 0 (off) or a power of two up to %d", n, maxMB)
	}
	if t := o.GarbageCollectionThreshold; !(t >= 0 && t < 1) {
		return fmt.Errorf("garbage_collection_threshold = %v: must be 0 (off) or strictly between 0 and 1", t)
	}
	if f := o.PerProcessMemoryFraction; !(f >= 0 && f <= 1) {
		return fmt.Errorf("per_process_memory_fraction = %v: must be 0 (no limit) to 1", f)
	}
	return nil
}

// checkOwners refuses options that the backend or the dialect has not.
func (o Options) checkOwners() error {
	d := DefaultOptions()
	caching, stitching := []string{BackendCaching}, []string{BackendStitching}
	both := []string{BackendCaching, BackendStitching}
	for _, c := range []struct {
		key      string
		set      bool
		backends []string
		npuOnly  bool
	}{
		{"event_policy", o.EventPolicy != d.EventPolicy, both, false},
		{"drain", o.Drain != d.Drain, both, false},
		{"max_split_size_mb", o.MaxSplitSizeMB != d.MaxSplitSizeMB, both, false},
		{"max_non_split_rounding_mb", o.MaxNonSplitRoundingMB != d.MaxNonSplitRoundingMB, both, false},
		{"garbage_collection_threshold", o.GarbageCollectionThreshold != d.GarbageCollectionThreshold, both, false},
		{"roundup_power2_divisions", o.RoundupPower2Divisions != d.RoundupPower2Divisions, caching, false},
		{"large_segment_size_mb", o.LargeSegmentSizeMB != d.LargeSegmentSizeMB, both, false},
		{"expandable_segments", o.ExpandableSegments, caching, false},
		{"segment_size_mb", o.SegmentSizeMB != d.SegmentSizeMB, caching, true},
		{"page_size", o.PageSize != d.PageSize, caching, true},
		{"base_addr_aligned_kb", o.BaseAddrAlignedKB != d.BaseAddrAlignedKB, caching, true},
		{"throw_on_npumalloc_oom", o.ThrowOnNPUMallocOOM, caching, true},
		{"fresh_segment_split", o.FreshSegmentSplit, stitching, false},
		{"exact", o.Exact, []string{BackendBytes}, false},
	} {
		if c.set && !slices.Contains(c.backends, o.Backend) {
			return fmt.Errorf("backend = %q and %s contradict: only %s has that option", o.Backend, c.key, oneOf(c.backends))
		}
		if c.set && c.npuOnly && o.Dialect != DialectTorchNPU {
			return fmt.Errorf("dialect = %q and %s contradict: only %q has that option", o.Dialect, c.key, DialectTorchNPU)
		}
	}
	return nil
}

// checkPairs refuses options that exclude each other.
func (o Options) checkPairs() error {
	d := DefaultOptions()
	npuPages := o.ExpandableSegments && o.Dialect == DialectTorchNPU
	switch {
	case o.MaxSplitSizeMB == 0 && o.MaxNonSplitRoundingMB != d.MaxNonSplitRoundingMB:
		return fmt.Errorf("max_non_split_rounding_mb = %d and max_split_size_mb = 0 contradict: without oversize blocks it does nothing", o.MaxNonSplitRoundingMB)
	case o.MaxSplitSizeMB != 0 && o.LargeSegmentSizeMB > o.MaxSplitSizeMB:
		return fmt.Errorf("large_segment_size_mb = %d and max_split_size_mb = %d contradict: the segment must not be larger", o.LargeSegmentSizeMB, o.MaxSplitSizeMB)
	case o.GarbageCollectionThreshold > 0 && o.PerProcessMemoryFraction == 0:
		return fmt.Errorf("garbage_collection_threshold = %v and per_process_memory_fraction = 0 contradict: the threshold is a share of that limit", o.GarbageCollectionThreshold)
	case npuPages && o.MaxSplitSizeMB != 0:
		return fmt.Errorf("expandable_segments = true and max_split_size_mb = %d contradict: %q allows one of them", o.MaxSplitSizeMB, o.Dialect)
	case npuPages && o.GarbageCollectionThreshold > 0:
		return fmt.Errorf("expandable_segments = true and garbage_collection_threshold = %v contradict: %q allows one of them", o.GarbageCollectionThreshold, o.Dialect)
	case npuPages && o.LargeSegmentSizeMB%2 != 0:
		return fmt.Errorf("expandable_segments = true and large_segment_size_mb = %d contradict: a page is a multiple of 2 MiB", o.LargeSegmentSizeMB)
	case npuPages && o.PageSize != "" && o.LargeSegmentSizeMB != d.LargeSegmentSizeMB:
		return fmt.Errorf("page_size = %q and large_segment_size_mb = %d contradict: both are the page of large segments", o.PageSize, o.LargeSegmentSizeMB)
	case !o.ExpandableSegments && o.SegmentSizeMB != d.SegmentSizeMB:
		return fmt.Errorf("segment_size_mb = %d and expandable_segments = false contradict: it is the page of those segments", o.SegmentSizeMB)
	case !o.ExpandableSegments && o.BaseAddrAlignedKB != d.BaseAddrAlignedKB:
		return fmt.Errorf("base_addr_aligned_kb = %d and expandable_segments = false contradict: only blocks of those segments are aligned", o.BaseAddrAlignedKB)
	case o.Backend == BackendStitching && o.LargeSegmentSizeMB%2 != 0:
		return fmt.Errorf("backend = %q and large_segment_size_mb = %d contradict: its chunks have 2 MiB", o.Backend, o.LargeSegmentSizeMB)
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
	if _, ok := env.(Waiter); r.waits && !ok {
		return nil, fmt.Errorf("allocator: event_policy = %q: the device cannot make a stream wait", o.EventPolicy)
	}
	bounded := capacity > 0
	if !bounded || capacity > unbounded {
		capacity = unbounded
	}
	r.capacity, r.room = capacity, capacity
	if o.PerProcessMemoryFraction > 0 && bounded {
		r.limit = sim.Bytes(o.PerProcessMemoryFraction * float64(capacity))
		r.room = min(capacity, r.limit)
		r.collectAbove = sim.Bytes(o.GarbageCollectionThreshold * float64(r.limit))
		r.collects = o.GarbageCollectionThreshold > 0
	}
	switch o.Backend {
	case BackendBytes:
		return newBytes(r, env), nil
	case BackendStitching:
		return newStitching(r, env), nil
	}
	return newCaching(r, env), nil
}
