package experiments

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"smartswap/internal/nearest"
	"smartswap/profilers"
	"smartswap/results"
	"smartswap/sim"
	"smartswap/workloads"
)

// IterationOutcome is one iteration of a run. What the host decided is summed
// over simulated ranks.
type IterationOutcome struct {
	Kind              string
	Span              sim.Time
	Evictions, Faults int64
	PlannedOuts       int64
	OutBytes, InBytes sim.Bytes
	Sequence          SequenceOutcome
}

// SequenceOutcome holds one iteration's operator sequence, on simulated rank 0,
// against the one before; the first iteration is like itself.
type SequenceOutcome struct {
	Operators int64
	Changed   bool    // not the same operators in the same order
	Length    float64 // relative difference in length
	ZeroPad   float64 // cosine, the shorter sequence padded with zeros
	Truncate  float64 // cosine, the longer sequence cut off
	// Program identifies what all ranks run, sizes included: a hash.
	Program uint64
}

// sequences compares the operator sequences of a workload's first iterations.
func sequences(w workloads.Workload, iterations int) ([]SequenceOutcome, error) {
	names := new(profilers.Names)
	list := make([]SequenceOutcome, iterations)
	var before *workloads.Program
	programs := map[*workloads.Program]uint64{}
	var reference []int32
	var hash uint64
	for i := range list {
		p, err := w.Program(0, i)
		if err != nil {
			return nil, err
		}
		whole, err := jobHash(w, i, programs)
		if err != nil {
			return nil, err
		}
		if p == before {
			list[i] = SequenceOutcome{Operators: list[i-1].Operators, ZeroPad: 1, Truncate: 1, Program: whole}
			continue
		}
		var sequence []int32
		h := fnv.New64a()
		for j := range p.Instrs {
			if in := &p.Instrs[j]; in.Kind == workloads.Op {
				id := names.ID(int32(in.Name), p.Names.String(in.Name))
				sequence = append(sequence, id)
				h.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
			}
		}
		if before == nil {
			reference, hash = sequence, h.Sum64()
		}
		list[i] = SequenceOutcome{
			Operators: int64(len(sequence)),
			Changed:   h.Sum64() != hash || len(sequence) != len(reference),
			Length:    profilers.RelativeLength(len(reference), len(sequence)),
			ZeroPad:   profilers.Cosine(reference, sequence, profilers.ZeroPad),
			Truncate:  profilers.Cosine(reference, sequence, profilers.Truncate),
			Program:   whole,
		}
		before, reference, hash = p, sequence, h.Sum64()
	}
	return list, nil
}

// jobHash combines the hashes of what each rank runs in iteration i; known has
// those of programs seen before.
func jobHash(w workloads.Workload, i int, known map[*workloads.Program]uint64) (uint64, error) {
	h := uint64(0xcbf29ce484222325)
	for r := range w.Ranks() {
		p, err := w.Program(r, i)
		if err != nil {
			return 0, err
		}
		one, ok := known[p]
		if !ok {
			one = p.Hash()
			if len(known) >= knownPrograms {
				clear(known)
			}
			known[p] = one
		}
		h = mixFingerprint(h, one)
	}
	return h, nil
}

// knownPrograms bounds what is remembered of jobs that never repeat.
const knownPrograms = 256

// sequenceKinds names iterations such that neighbours have different names
// exactly if their sequences differ.
func sequenceKinds(list []IterationOutcome) []string {
	kinds := make([]string, len(list))
	n := 0
	for i := range list {
		if list[i].Sequence.Changed {
			n++
		}
		kinds[i] = strconv.Itoa(n)
	}
	return kinds
}

// iterationAxis is the x of figures over iterations.
const iterationAxis = "iteration"

// iterationColumn is one column of iterations.csv after the axes.
type iterationColumn struct {
	results.Column
	// of gives the value; ideal is the same iteration of the ideal run, nil
	// where there is none.
	of func(i int, it, ideal *IterationOutcome) results.Value
}

// iterationColumns are the columns of iterations.csv after axes, strategy and
// seed. Their texts are in the manifest.
func iterationColumns() []iterationColumn {
	whole := func(name, about string, of func(it *IterationOutcome) int64) iterationColumn {
		return iterationColumn{results.Column{Name: name, Kind: results.Integer, About: about},
			func(_ int, it, _ *IterationOutcome) results.Value { return results.IntegerValue(of(it)) }}
	}
	decimal := func(name, about string, of func(it, ideal *IterationOutcome) float64) iterationColumn {
		return iterationColumn{results.Column{Name: name, Kind: results.Real, About: about},
			func(_ int, it, ideal *IterationOutcome) results.Value { return results.RealValue(of(it, ideal)) }}
	}
	return []iterationColumn{
		{results.Column{Name: "iteration", Kind: results.Integer, About: "counted from 0"},
			func(i int, _, _ *IterationOutcome) results.Value { return results.IntegerValue(int64(i)) }},
		{results.Column{Name: "kind", Kind: results.Text, About: "what the iteration runs that others do not"},
			func(_ int, it, _ *IterationOutcome) results.Value { return results.TextValue(it.Kind) }},
		whole("operators", "operators that rank 0 dispatches", func(it *IterationOutcome) int64 { return it.Sequence.Operators }),
		whole("sequence_changed", "1 if they are not those of the iteration before, in the same order", func(it *IterationOutcome) int64 {
			if it.Sequence.Changed {
				return 1
			}
			return 0
		}),
		decimal("length_change", "relative difference of their number from that of the iteration before", func(it, _ *IterationOutcome) float64 { return it.Sequence.Length }),
		decimal("cosine", "cosine of the vectors of operator name ids of this and the iteration before, the shorter one padded with zeros", func(it, _ *IterationOutcome) float64 { return it.Sequence.ZeroPad }),
		decimal("cosine_truncated", "the same, the longer one cut off", func(it, _ *IterationOutcome) float64 { return it.Sequence.Truncate }),
		decimal("span_ms", "from the end of the iteration before to the end of this one, on the last compute stream", func(it, _ *IterationOutcome) float64 { return it.Span.Milliseconds() }),
		decimal("ideal_span_ms", "the same with unbounded HBM", func(_, ideal *IterationOutcome) float64 {
			if ideal == nil {
				return math.NaN()
			}
			return ideal.Span.Milliseconds()
		}),
		decimal("slowdown", "span over ideal span", func(it, ideal *IterationOutcome) float64 {
			if ideal == nil || ideal.Span == 0 {
				return math.NaN()
			}
			return float64(it.Span) / float64(ideal.Span)
		}),
		whole("evictions", "swap-outs that a failed allocation forced, all simulated ranks", func(it *IterationOutcome) int64 { return it.Evictions }),
		whole("faults", "swap-ins that an operator had to wait for unplanned, all simulated ranks", func(it *IterationOutcome) int64 { return it.Faults }),
		whole("planned_outs", "planned swap-outs, all simulated ranks", func(it *IterationOutcome) int64 { return it.PlannedOuts }),
		whole("out_bytes", "moved to the host, all simulated ranks", func(it *IterationOutcome) int64 { return int64(it.OutBytes) }),
		whole("in_bytes", "moved back, all simulated ranks", func(it *IterationOutcome) int64 { return int64(it.InBytes) }),
	}
}

// checkIterationColumn refuses a name that iterations.csv will not have.
func (c *Config) checkIterationColumn(path, name string) error {
	var have []string
	for _, col := range iterationColumns() {
		if col.Name == name && col.Kind != results.Text {
			return nil
		}
		have = append(have, col.Name)
	}
	return &keyError{path, fmt.Sprintf(" = %q: no such number in iterations.csv; nearest is %s", name, nearest.Name(name, have))}
}

// iterationFrame is iterations.csv: every iteration of every run of the points
// that speak for their cells.
func iterationFrame(axes []Axis, cells []*CellResult) *results.Frame {
	f := &results.Frame{Columns: dimensions(axes)}
	f.Columns = append(f.Columns,
		results.Column{Name: "strategy", Kind: results.Text, About: "name of the strategy"},
		results.Column{Name: "seed", Kind: results.Integer, About: "of the run"})
	columns := iterationColumns()
	for _, col := range columns {
		f.Columns = append(f.Columns, col.Column)
	}
	for _, c := range cells {
		if c == nil {
			continue
		}
		r := representative(c)
		for n, run := range r.Runs {
			for i := range run.Iterations {
				row := dimensionValues(c)
				row = append(row, results.TextValue(c.Cell.Strategy), results.IntegerValue(r.Point.Seed+int64(n)))
				for _, col := range columns {
					row = append(row, col.of(i, &run.Iterations[i], r.idealIteration(n, i)))
				}
				f.Rows = append(f.Rows, row)
			}
		}
	}
	return f
}

// idealIteration is iteration i of the n-th ideal run; nil if there is none.
func (r *Result) idealIteration(n, i int) *IterationOutcome {
	if n >= len(r.IdealRuns) || i >= len(r.IdealRuns[n].Iterations) {
		return nil
	}
	return &r.IdealRuns[n].Iterations[i]
}

// Estimate is a mean over replications and the half-width of its 95 %
// confidence interval, 0 for a single one.
type Estimate struct{ Mean, Half float64 }

// estimate summarises independent values, at least one.
func estimate(values []float64) Estimate {
	mean, deviation := stat.MeanStdDev(values, nil)
	if len(values) == 1 {
		return Estimate{Mean: mean}
	}
	n := float64(len(values))
	t := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975)
	return Estimate{mean, t * deviation / math.Sqrt(n)}
}

// Adaptation is how a policy gets along with a sequence that changes, per run,
// over the counted iterations.
//
// Every iteration is held against the same iteration of the ideal run, and the
// ratio against that of the same policy when the job of its regime repeats for
// ever: what is above it is lost to variation. A regime is the latest job that
// comes up in at least regimeSize iterations of the run; before there is one it
// is the job without variation.
type Adaptation struct {
	Undisturbed float64  // slow-down without variation: iteration time over ideal
	Lost        Estimate // iterations lost per change of the sequence
	// Recovery is the number of iterations from a change until the slow-down
	// is within recovered of the undisturbed one, or until the next change.
	Recovery Estimate
	// Late is the share of changes after which that did not happen before the
	// next change or the end.
	Late Estimate
}

// recovered is how far above the undisturbed slow-down an iteration may be and
// still count as recovered, in ideal iterations.
const recovered = 0.05

// regimeSize is how many iterations of a run must have the same job for it to
// be a regime: a tenth of what figure 8 counts at the least, several recoveries
// long.
const regimeSize = 20

// regimes tells for each iteration of a run from which iteration on its regime
// is known: the first one that runs the regime's job; -1 = none yet.
func regimes(list []IterationOutcome) []int {
	count, first := map[uint64]int{}, map[uint64]int{}
	for i := range list {
		h := list[i].Sequence.Program
		if count[h]++; count[h] == 1 {
			first[h] = i
		}
	}
	of := make([]int, len(list))
	current := -1
	for i := range list {
		if h := list[i].Sequence.Program; count[h] >= regimeSize {
			current = first[h]
		}
		of[i] = current
	}
	return of
}

// adapt works out an Adaptation; ok is false if no run sees a change. settled
// is the slow-down of iteration i's regime in run n, and undisturbed that of
// the job without variation.
func adapt(runs, ideals []*Outcome, warmup int, undisturbed float64, settled func(n, i int) float64) (a Adaptation, ok bool) {
	var lost, recovery, late []float64
	for n, run := range runs {
		var excess []float64 // of counted iterations, in iterations
		var changes []int    // positions in excess
		for i := warmup; i < len(run.Iterations); i++ {
			if run.Iterations[i].Sequence.Changed {
				changes = append(changes, len(excess))
			}
			excess = append(excess, float64(run.Iterations[i].Span)/float64(ideals[n].Iterations[i].Span)-settled(n, i))
		}
		if changes == nil {
			continue
		}
		sum := 0.0
		for _, e := range excess {
			sum += e
		}
		waits, misses := 0, 0
		for k, from := range changes {
			to := len(excess)
			if k+1 < len(changes) {
				to = changes[k+1]
			}
			wait := slices.IndexFunc(excess[from:to], func(e float64) bool { return e <= recovered })
			if wait < 0 {
				wait = to - from
				misses++
			}
			waits += wait
		}
		count := float64(len(changes))
		lost = append(lost, sum/count)
		recovery = append(recovery, float64(waits)/count)
		late = append(late, float64(misses)/count)
	}
	if lost == nil {
		return Adaptation{}, false
	}
	return Adaptation{Undisturbed: undisturbed, Lost: estimate(lost), Recovery: estimate(recovery), Late: estimate(late)}, true
}
