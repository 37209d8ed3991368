package experiments

import (
	"math"

	"smartswap/eager/stream"
	"smartswap/profilers"
	"smartswap/sim"
)

// Runner simulates points. Its methods are called from several goroutines at
// once and must be functions of their arguments.
type Runner interface {
	// Devices is how many devices a [node] table describes.
	Devices(node map[string]any) (int, error)
	// Check refuses what no run of the point could accept, such as an
	// unknown device, model or policy: a keyError, before anything runs.
	Check(p *Point) error
	// Bound is what can be known of p without running it. *Impossible means
	// that the job does not exist, such as a layout that the model's heads
	// cannot be spread over.
	Bound(p *Point) (Bounds, error)
	// Run simulates p. Not fitting is an Outcome, not an error.
	Run(p *Point) (*Outcome, error)
	// Key identifies all that Run depends on: points of equal keys have equal
	// outcomes, and one run serves them.
	Key(p *Point) (string, error)
}

// Bounds are proofs about a point.
type Bounds struct {
	// Time is a lower bound of the steady iteration time.
	Time sim.Time
	// Memory is a lower bound of what a device must hold at once under the
	// point's policy, Capacity what it has; Capacity 0 is unbounded.
	Memory, Capacity sim.Bytes
}

// Fits is false if the bounds prove that the point runs out of memory.
func (b Bounds) Fits() bool { return b.Capacity == 0 || b.Memory <= b.Capacity }

// Impossible is a point that does not exist.
type Impossible struct{ Reason string }

func (e *Impossible) Error() string { return e.Reason }

// Outcome is what a run showed. Times, bytes and counts are per steady
// iteration. It is what -resume keeps, so all fields are exported.
type Outcome struct {
	Time    sim.Time // steady iteration time
	Fastest sim.Time // of the counted iterations
	Tokens  int64    // of one iteration of the whole job
	Devices int64
	Grade   string // of truth that the policy was granted

	PeakAllocated, PeakReserved sim.Bytes // over the run, on the worst device
	PeakHost                    sim.Bytes // host memory for copies, whole node
	Allocator                   AllocatorOutcome

	OutBytes, InBytes sim.Bytes // host copies, per device on average
	SSDOut, SSDIn     sim.Bytes // of them, to and from the SSD
	Evictions, Faults int64     // whole job: forced swap-outs and discards, demand swap-ins
	RematOps          int64     // whole job: operators that ran again to make what was discarded
	RematTime         sim.Time  // their device time, mean over ranks

	// Busy and Stalls split the compute stream's time, mean over ranks.
	Busy   sim.Time
	Stalls [stream.NumCauses]sim.Time

	OOM *OOM // nil: it fits

	Completed       int64   // iterations that ended
	OpsPerIteration float64 // program operators per rank

	Records  string   // what the profiler records, if it is always on
	HostBusy sim.Time // dispatching thread, per iteration of the whole run, mean over ranks
	// OutByType splits OutBytes by what the runtime can tell about tensors.
	OutByType [profilers.NumTensorTypes]sim.Bytes
	// First and Last are the peaks of the first and the last simulated rank,
	// of the first and last pipeline stage, over the counted iterations.
	First, Last Peaks
	// Detection is how well the policy of rank 0 noticed changes of the
	// sequence, by its own notes; only with Setup.Series, nil if it keeps none.
	Detection *profilers.Detection
	// Iterations of the whole run, complete ones; only with Setup.Series.
	Iterations []IterationOutcome
	// Passes and Allocated are of each simulated rank; only with Point.Passes.
	Passes    []PassOutcome
	Allocated []sim.Bytes

	// Inferred, Repaired and Skipped count what the reader of a trace did beside
	// reading; Notes says it.
	Inferred, Repaired, Skipped int64
	Notes                       []string
	// Complaints say why the policy could not do what it is for; tables print
	// them below.
	Complaints []string

	Ops         int64 // program operators of the run
	Events      uint64
	Fingerprint uint64
}

// AllocatorOutcome is what the device allocator had to do over the whole run:
// each figure that of the rank where it is largest, but LargestFree.
type AllocatorOutcome struct {
	Active, Requested, Pending, InactiveSplit sim.Bytes // peaks
	// LargestFree is that of the rank with the largest peak of reserved
	// memory (alloc.Stats.LargestFree), the first of equals.
	LargestFree               sim.Bytes
	Segments                  int64 // peak
	DriverAllocs, DriverFrees int64 // segments, or mapped ranges
	Retries                   int64
	Driver, DriverWait        sim.Time // host time in the driver for memory, and waiting because of it
}

// worst is the larger of each figure; ours and theirs are the peaks of reserved
// memory that go with a and b.
func (a AllocatorOutcome) worst(b AllocatorOutcome, ours, theirs sim.Bytes) AllocatorOutcome {
	largest := a.LargestFree
	if theirs > ours {
		largest = b.LargestFree
	}
	return AllocatorOutcome{
		Active: max(a.Active, b.Active), Requested: max(a.Requested, b.Requested), Pending: max(a.Pending, b.Pending),
		InactiveSplit: max(a.InactiveSplit, b.InactiveSplit), LargestFree: largest,
		Segments: max(a.Segments, b.Segments), DriverAllocs: max(a.DriverAllocs, b.DriverAllocs), DriverFrees: max(a.DriverFrees, b.DriverFrees),
		Retries: max(a.Retries, b.Retries), Driver: max(a.Driver, b.Driver), DriverWait: max(a.DriverWait, b.DriverWait),
	}
}

// Peaks are those of one rank over the counted iterations.
type Peaks struct{ Allocated, Reserved sim.Bytes }

// OOM is why a run ended early.
type OOM struct {
	Rank, Iteration           int
	Operator                  string
	Requested, Free, Capacity sim.Bytes
	LargestFree               sim.Bytes // block that the request was allowed to use
	// Rematerialized is the device time of operators that ran again, when it
	// passed what the policy allows and that ended the run; else 0.
	Rematerialized, Allowed sim.Time
}

// reason says what a run ran out of.
func (o *OOM) reason() string {
	if o.Rematerialized > 0 {
		return "rematerialization limit"
	}
	return "memory"
}

// pool sums replications up: means, and the worst case of peaks; the interval is
// that of the mean time. One that does not fit decides for all. Iterations are
// not pooled.
func pool(runs []*Outcome) (o Outcome, interval sim.Time) {
	o = *runs[0]
	if len(runs) == 1 {
		return o, 0
	}
	n := sim.Time(len(runs))
	times := []float64{float64(runs[0].Time)}
	o.Iterations = nil
	for _, r := range runs[1:] {
		if o.OOM == nil {
			o.OOM = r.OOM
		}
		times = append(times, float64(r.Time))
		o.Time += r.Time
		o.Fastest += r.Fastest
		o.Tokens += r.Tokens
		o.Allocator = o.Allocator.worst(r.Allocator, o.PeakReserved, r.PeakReserved)
		o.PeakAllocated = max(o.PeakAllocated, r.PeakAllocated)
		o.PeakReserved = max(o.PeakReserved, r.PeakReserved)
		o.PeakHost = max(o.PeakHost, r.PeakHost)
		o.OutBytes += r.OutBytes
		o.SSDOut += r.SSDOut
		o.SSDIn += r.SSDIn
		o.InBytes += r.InBytes
		o.Evictions += r.Evictions
		o.Faults += r.Faults
		o.RematOps += r.RematOps
		o.RematTime += r.RematTime
		o.Busy += r.Busy
		for i := range o.Stalls {
			o.Stalls[i] += r.Stalls[i]
		}
		o.HostBusy += r.HostBusy
		o.OpsPerIteration += r.OpsPerIteration
		for i := range o.OutByType {
			o.OutByType[i] += r.OutByType[i]
		}
		o.First, o.Last = o.First.worst(r.First), o.Last.worst(r.Last)
		o.Ops += r.Ops
		o.Events += r.Events
		o.Fingerprint = mixFingerprint(o.Fingerprint, r.Fingerprint)
	}
	o.Time /= n
	o.Fastest /= n
	o.Tokens /= int64(n)
	o.OutBytes /= sim.Bytes(n)
	o.SSDOut /= sim.Bytes(n)
	o.SSDIn /= sim.Bytes(n)
	o.InBytes /= sim.Bytes(n)
	o.Evictions /= int64(n)
	o.Faults /= int64(n)
	o.RematOps /= int64(n)
	o.RematTime /= n
	o.Busy /= n
	for i := range o.Stalls {
		o.Stalls[i] /= n
	}
	o.HostBusy /= n
	o.OpsPerIteration /= float64(n)
	for i := range o.OutByType {
		o.OutByType[i] /= sim.Bytes(n)
	}
	return o, sim.Time(math.Round(estimate(times).Half))
}

// worst is the larger of each peak.
func (p Peaks) worst(q Peaks) Peaks {
	return Peaks{max(p.Allocated, q.Allocated), max(p.Reserved, q.Reserved)}
}

// mixFingerprint chains fingerprints; the order matters. FNV-1a, word by word.
func mixFingerprint(h, next uint64) uint64 {
	const prime = 0x100000001b3
	return (h ^ next) * prime
}
