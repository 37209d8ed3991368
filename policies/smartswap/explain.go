package smartswap

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"smartswap/profilers"
	"smartswap/sim"
)

// Explain makes the plan that o makes from one observation: what the policy
// would do after it, before it has seen how its plan does. The optimizer states
// are those that the profile names.
func Explain(obs *profilers.Observation, o Options) (*Schedule, error) {
	var states []sim.Bytes
	seen := make(map[profilers.Tensor]bool)
	for i := range obs.Tensors {
		if t := &obs.Tensors[i]; t.Type == profilers.OptimState && !seen[t.Tensor] {
			seen[t.Tensor] = true
			states = append(states, t.Bytes)
		}
	}
	return Generate(Input{
		Profile: obs, OOM: obs.OOM, Duration: obs.Duration, States: states,
		Redundant: o.Redundant, Weight: o.SizeWeight, Borders: obs.Borders,
	}, &o)
}

// Columns names the columns of Rows.
func Columns() []string {
	return []string{"tensor", "bytes", "out op", "out", "in op", "in at", "free", "in free", "score", "delayed"}
}

// Rows is the schedule as a table, one row per swap in the order of the plan.
// label names tensors, optimizer states that are not in the profile apart; nil
// numbers them.
func (s *Schedule) Rows(label func(profilers.Tensor) string) [][]string {
	var rows [][]string
	for i := range s.Swaps {
		c := &s.Swaps[i]
		name := fmt.Sprintf("tensor %d", c.Tensor)
		if n, ok := c.state(); ok {
			name = fmt.Sprintf("state %d", n)
		} else if label != nil {
			name = label(c.Tensor)
		}
		delayed := "no"
		if c.Delayed {
			delayed = "yes"
		}
		rows = append(rows, []string{
			name, strconv.FormatInt(int64(c.Bytes), 10),
			strconv.FormatInt(int64(c.OutOp), 10), c.OutStage.String(),
			strconv.FormatInt(int64(c.InOp), 10), c.InAt.String(), c.Free.String(), c.InFree.String(),
			strconv.FormatFloat(c.Score, 'f', 6, 64), delayed,
		})
	}
	return rows
}

// Table writes the schedule as text: what was aimed at, and Rows. Operators are
// positions in the profile, from 0.
func (s *Schedule) Table(w io.Writer, label func(profilers.Tensor) string) error {
	reached := "reached"
	if !s.Reached {
		reached = "not reached"
	}
	mib := func(b sim.Bytes) float64 { return float64(b) / float64(sim.MiB) }
	_, err := fmt.Fprintf(w, "peak %.10g MiB, target %.10g MiB (%s), %d operators above it; %d swaps of %.10g MiB together in %d rounds\n",
		mib(s.Peak), mib(s.Target), reached, s.Reductions, len(s.Swaps), mib(s.Bytes()), s.Rounds)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{Columns()}, s.Rows(label)...) {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
