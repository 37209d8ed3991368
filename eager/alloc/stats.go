package alloc

// Stat is one statistic: its present value, its peak since the last
// ResetPeaks, and everything that was ever taken away (PyTorch's "freed").
type Stat struct{ Current, Peak, Down int64 }

// Up is everything that was ever added (PyTorch's "allocated").
func (s Stat) Up() int64 { return s.Current + s.Down }

// add changes s by n; an intermediate value that only one add would show is
// not seen by the peak.
func (s *Stat) add(n int64) {
	if n < 0 {
		s.fall(-n)
	} else {
		s.rise(n)
	}
}

// fall is add for -n <= 0.
func (s *Stat) fall(n int64) {
	s.Current -= n
	s.Down += n
}

// rise is add for n >= 0.
func (s *Stat) rise(n int64) {
	s.Current += n
	s.Peak = max(s.Peak, s.Current)
}

// Stats are the counters under their PyTorch names (torch.cuda.memory_stats).
//
// Allocated falls when a free is requested, Active and Requested when it is
// complete: between the two the block waits for events.
type Stats struct {
	Allocated, Active, Requested, Reserved, InactiveSplit Stat // bytes
	// Pending are the bytes of blocks whose free was requested and waits.
	Pending  Stat
	Segments Stat
	// Counts of blocks: "allocation", "active", "inactive_split",
	// "oversize_allocations"; and of segments: "oversize_segments".
	Allocations, ActiveBlocks, InactiveSplits Stat
	OversizeAllocations, OversizeSegments     Stat

	// LargestFree is the largest inactive block of any pool and stream when
	// Reserved reached its Peak, once the request was served, or had failed,
	// for which it grew: of what was then reserved and not active, the most in
	// one piece. 0 if there was none, and without segments.
	LargestFree int64

	Retries, OOMs, Syncs, DriverAllocs, DriverFrees int64
	Rejections                                      int64 // requests that throw_on_npumalloc_oom gave up on ("num_oom_rejections")
}

// release counts a block whose free is requested: allocated, one less.
func (s *Stats) release(counted int64, oversize bool) {
	s.Allocated.fall(counted)
	s.Allocations.fall(1)
	if oversize {
		s.OversizeAllocations.fall(1)
	}
}

// retire counts a block whose free is complete: active, one less.
func (s *Stats) retire(size, requested int64) {
	s.Active.fall(size)
	s.ActiveBlocks.fall(1)
	s.Requested.fall(requested)
}

// hand counts a block that is handed out: allocated and active, one more.
func (s *Stats) hand(counted, size, requested int64, oversize bool) {
	s.Allocated.rise(counted)
	s.Allocations.rise(1)
	if oversize {
		s.OversizeAllocations.rise(1)
	}
	s.Active.rise(size)
	s.ActiveBlocks.rise(1)
	s.Requested.rise(requested)
}

// segment counts n segments from the driver, or less of them.
func (s *Stats) segment(n, bytes int64, oversize bool) {
	s.Reserved.add(n * bytes)
	s.Segments.add(n)
	if oversize {
		s.OversizeSegments.add(n)
	}
}

// External is the share of the reservation that no active block uses: cached
// memory and fragmentation, 0 to 1.
func (s *Stats) External() float64 {
	return share(s.Reserved.Current-s.Active.Current, s.Reserved.Current)
}

// Internal is the share of active memory that nobody asked for: rounding, 0 to 1.
func (s *Stats) Internal() float64 {
	return share(s.Active.Current-s.Requested.Current, s.Active.Current)
}

// Waiting is the share of active memory that is freed and waits for events, 0 to 1.
func (s *Stats) Waiting() float64 {
	return share(s.Active.Current-s.Allocated.Current, s.Active.Current)
}

// share is part/whole, 0 of nothing.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// resetPeaks starts a new window.
func (s *Stats) resetPeaks() {
	for _, x := range []*Stat{
		&s.Allocated, &s.Active, &s.Requested, &s.Reserved, &s.InactiveSplit, &s.Pending, &s.Segments,
		&s.Allocations, &s.ActiveBlocks, &s.InactiveSplits, &s.OversizeAllocations, &s.OversizeSegments,
	} {
		x.Peak = x.Current
	}
}
