package workloads

import (
	"sync"

	"smartswap/hw"
	"smartswap/sim"
)

// Jitter is w with kernels that take longer or shorter than its programs say:
// every kernel of an iteration, by its place, has one factor that is uniform in
// [1-amount, 1+amount], 0 <= amount < 1, and the same in all iterations. Only
// measured times change. Planners still see w; see Nominal.
//
// It is the variation that MICRO'23 G10 tests its planner with (section on
// robustness; platformxlab/G10, "kernel time variation").
func Jitter(w Workload, amount float64, seed uint64) Workload {
	if amount == 0 {
		return w
	}
	return &jittered{Workload: w, amount: amount, draw: sim.NewStream(seed, "kernel jitter"), programs: map[*Program]*Program{}}
}

// Nominal is the workload that a compile-time planner sees.
func Nominal(w Workload) Workload {
	if j, ok := w.(*jittered); ok {
		return j.Workload
	}
	return w
}

type jittered struct {
	Workload
	amount float64
	draw   sim.Stream

	mu       sync.Mutex
	programs map[*Program]*Program
}

// maxJittered bounds what is remembered of programs that differ in every
// iteration.
const maxJittered = 64

// Program implements Workload.
func (j *jittered) Program(rank, i int) (*Program, error) {
	p, err := j.Workload.Program(rank, i)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if q, ok := j.programs[p]; ok {
		return q, nil
	}
	q := *p
	q.Instrs = append([]Instr(nil), p.Instrs...)
	q.Kernels = nil
	op := int64(0)
	for i := range q.Instrs {
		in := &q.Instrs[i]
		if in.Kind != Op {
			continue
		}
		if in.Kernel >= 0 {
			k := p.Kernels[in.Kernel]
			if k.Kind == hw.Measured {
				factor := 1 + j.amount*(2*j.draw.Float64(rank, 0, op)-1)
				for _, t := range []*sim.Time{&k.Time, &k.Faulting[0], &k.Faulting[1]} {
					*t = sim.Time(factor * float64(*t))
				}
			}
			in.Kernel = KernelID(len(q.Kernels))
			q.Kernels = append(q.Kernels, k)
		}
		op++
	}
	if len(j.programs) >= maxJittered {
		clear(j.programs)
	}
	j.programs[p] = &q
	return &q, nil
}

// TokensIn implements TokenCounter.
func (j *jittered) TokensIn(i int) (int64, error) {
	if c, ok := j.Workload.(TokenCounter); ok {
		return c.TokensIn(i)
	}
	return j.Workload.Tokens(), nil
}
