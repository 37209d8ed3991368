package native

import (
	"fmt"

	"smartswap/workloads"
)

// Trace is a recorded workload: programs that were made before. What follows
// the last recorded iteration repeats it. It is immutable and may serve many
// runs at once.
type Trace struct {
	name     string
	tokens   int64
	names    *workloads.Names
	ranks    []workloads.Rank
	programs [][]*workloads.Program // by rank and iteration
}

var _ workloads.Workload = (*Trace)(nil)

// NewTrace makes a recorded workload. programs[r][i] is what rank r runs in
// iteration i; equal iterations share a pointer. Every rank needs at least one,
// and all programs must be valid, share names, and begin with their rank's
// residents; NewTrace keeps what it is given and does not check it.
func NewTrace(name string, tokens int64, names *workloads.Names, ranks []workloads.Rank, programs [][]*workloads.Program) *Trace {
	return &Trace{name: name, tokens: tokens, names: names, ranks: ranks, programs: programs}
}

// Name is the label of the workload.
func (t *Trace) Name() string { return t.name }

// Ranks lists the ranks.
func (t *Trace) Ranks() []workloads.Rank { return t.ranks }

// Tokens is the number of tokens per training iteration; 0 = not a token
// workload.
func (t *Trace) Tokens() int64 { return t.tokens }

// Names is the table that all programs share.
func (t *Trace) Names() *workloads.Names { return t.names }

// Iterations is the number of recorded iterations.
func (t *Trace) Iterations() int { return len(t.programs[0]) }

// Program is what rank r runs in iteration i >= 0; the last recorded iteration
// repeats. A rank or iteration that does not exist is an error.
func (t *Trace) Program(r, i int) (*workloads.Program, error) {
	if r < 0 || r >= len(t.programs) || i < 0 {
		return nil, fmt.Errorf("%s: rank %d, iteration %d; allowed: ranks below %d, iterations from 0", t.name, r, i, len(t.programs))
	}
	p := t.programs[r]
	return p[min(i, len(p)-1)], nil
}
