package alloc

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"smartswap/sim"
)

// The fixed sizes of all dialects (kMinBlockSize and its neighbours).
const (
	quantum       sim.Bytes = 512           // every block is a multiple of it
	smallLimit              = sim.MiB       // rounded requests up to it are small
	smallSegment            = 2 * sim.MiB   // segment for small requests
	largeRequest            = 10 * sim.MiB  // from here on a request has its own segment
	segmentStep             = 2 * sim.MiB   // such a segment is a multiple of it
	largePage               = 20 * sim.MiB  // page of PyTorch's expandable large segments
	alignedFrom             = 2 * sim.MiB   // blocks that torch_npu aligns there
	maxRequest              = 1024 << 50    // 1 EiB; more fails at once
	unbounded               = maxRequest    // capacity of an unbounded device
	lazyEvents              = 512           // outstanding events that make query-lazy ask
	anySize       sim.Bytes = math.MaxInt64 // no block is oversize
	divisionsFrom           = 20            // log2 of the lowest rounding interval, 1 MiB
	numDivisions            = 16            // intervals, the last from 32 GiB on
)

// rules are Options and capacity in the form in which the allocators ask.
type rules struct {
	exact                 bool      // requests are not rounded
	pad                   sim.Bytes // added to each request before rounding
	largeQuantum          sim.Bytes // of blocks in the large pool
	largeRest             sim.Bytes // least rest of a large block that is kept
	ownStream             bool      // recording a block's own stream counts
	syncRecovery          bool      // wait for the device before giving memory back
	lazy, waits           bool      // event policies other than query
	drainEarly            bool      // ask for held memory before the driver
	refuse                bool      // give up rather than try again
	splitFresh            bool      // split a new large segment
	chunked               bool      // large segments are made of chunks
	maxSplit, nonSplit    sim.Bytes
	largeSegment, step    sim.Bytes               // segments below and from largeRequest on
	page                  [2]sim.Bytes            // of expandable segments, small and large
	align                 sim.Bytes               // of large blocks in them; 0: off
	expandable            bool                    // new memory is mapped into expandable segments
	divisions             [numDivisions]sim.Bytes // 0, 1: plain rounding
	capacity, limit, room sim.Bytes               // limit 0: none; room: the smaller of the two
	collects              bool                    // garbage collection is on,
	collectAbove          sim.Bytes               // above this reservation
}

// rules checks o and translates it, all but what depends on the capacity.
func (o Options) rules() (rules, error) {
	for _, check := range []func() error{o.checkNames, o.checkRanges, o.checkOwners, o.checkPairs} {
		if err := check(); err != nil {
			return rules{}, err
		}
	}
	d, err := parseDivisions(o.RoundupPower2Divisions)
	if err != nil {
		return rules{}, err
	}
	r := rules{
		exact:        o.Exact,
		largeQuantum: quantum,
		largeRest:    smallLimit + quantum, // more than 1 MiB
		lazy:         o.EventPolicy == EventQueryLazy,
		waits:        o.EventPolicy == EventWaitAtReuse,
		drainEarly:   o.Drain == DrainEarly,
		refuse:       o.ThrowOnNPUMallocOOM,
		splitFresh:   true,
		maxSplit:     anySize,
		nonSplit:     sim.Bytes(o.MaxNonSplitRoundingMB) * sim.MiB,
		largeSegment: sim.Bytes(o.LargeSegmentSizeMB) * sim.MiB,
		step:         segmentStep,
		page:         [2]sim.Bytes{smallSegment, largePage},
		expandable:   o.ExpandableSegments,
		divisions:    d,
	}
	if o.MaxSplitSizeMB > 0 {
		r.maxSplit = sim.Bytes(o.MaxSplitSizeMB) * sim.MiB
	}
	if o.Dialect == DialectTorchNPU {
		// Copies of CANN want buffers of ALIGN_UP(size, 32) + 32 bytes.
		r.pad, r.ownStream, r.syncRecovery = 32, true, true
		r.page = [2]sim.Bytes{sim.Bytes(o.SegmentSizeMB) * sim.MiB, r.largeSegment}
		r.align = sim.Bytes(o.BaseAddrAlignedKB) * sim.KiB
	}
	if o.PageSize == PageSize1G {
		r.step, r.page[1] = sim.GiB, sim.GiB
	}
	if o.Backend == BackendStitching {
		r.chunked, r.largeQuantum, r.largeRest, r.splitFresh = true, chunk, chunk, o.FreshSegmentSplit
	}
	return r, nil
}

// parseDivisions reads roundup_power2_divisions. A single value holds for all
// intervals [2^i, 2^(i+1)) MiB. In a list, "m:d" sets the interval of m MiB
// and the first entry also all below; ">:d" sets all from the last entry's
// interval up. Intervals in a gap round plainly. Both numbers must be powers
// of two; d may be 0 for plain rounding.
func parseDivisions(s Divisions) (d [numDivisions]sim.Bytes, err error) {
	fill := func(from, to int, v sim.Bytes) {
		for i := from; i < to; i++ {
			d[i] = v
		}
	}
	list := strings.TrimSpace(string(s))
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
	if r.exact {
		return size
	}
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
	if size > smallLimit {
		return roundUp(size, r.largeQuantum)
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
	return roundUp(rounded, r.step)
}

// roundUp is the least multiple of step, a power of two, that is not below n.
func roundUp(n, step sim.Bytes) sim.Bytes { return (n + step - 1) &^ (step - 1) }
