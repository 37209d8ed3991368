package inspect

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"smartswap/workloads"
	"smartswap/workloads/trace"
)

// runConvert writes a workload as a native file, or as one of another program.
func runConvert(c *call) error {
	opt := c.traceFlags()
	n := c.flags.Int("iterations", 0, "`number` of iterations to write; 0 = all that were recorded; native only")
	to := c.flags.String("to", "native", "`format` to write: native, "+strings.Join(trace.Writers(), ", ")+"; all but native hold one iteration of one rank")
	rank := c.flags.Int("rank", 0, "`number` of the rank to write, from 0; not native")
	iteration := c.flags.Int("iteration", 0, "`number` of the iteration to write, from 0; not native")
	if err := c.parse(2); err != nil {
		return err
	}
	if *n < 0 || *rank < 0 || *iteration < 0 {
		return fmt.Errorf("-iterations %d -rank %d -iteration %d: want 0 or more", *n, *rank, *iteration)
	}
	if *to != "native" && !slices.Contains(trace.Writers(), *to) {
		return fmt.Errorf("-to %s: allowed: native, %s", *to, strings.Join(trace.Writers(), ", "))
	}
	if *to == "native" && (*rank > 0 || *iteration > 0) || *to != "native" && *n > 0 {
		return fmt.Errorf("-to %s: -iterations belongs to native files, -rank and -iteration to others", *to)
	}
	w, rep, err := c.open(c.args[0], opt)
	if err != nil {
		return err
	}
	if *to != "native" {
		return c.convertTo(*to, w, rep.Format, *rank, *iteration)
	}
	if *n == 0 {
		*n = recorded(w)
	}
	if err := trace.Export(c.args[1], w, *n); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: %s from %s, %d iterations of %d ranks\n", c.args[1], w.Name(), rep.Format, *n, len(w.Ranks()))
	return nil
}

// convertTo writes one program in a format of trace.Writers, and says what is
// lost.
func (c *call) convertTo(to string, w workloads.Workload, from string, rank, iteration int) error {
	if ranks, all := len(w.Ranks()), recorded(w); rank >= ranks || iteration >= all {
		return fmt.Errorf("-rank %d -iteration %d: allowed: below %d and below %d", rank, iteration, ranks, all)
	}
	p, err := w.Program(rank, iteration)
	if err != nil {
		return err
	}
	var lost []trace.Lost
	err = trace.Create(c.args[1], func(out io.Writer) (err error) {
		lost, err = trace.Write(out, to, w.Name(), p)
		return err
	})
	if err != nil {
		return err
	}
	for _, l := range []trace.Lost{{Count: len(w.Ranks()) - 1, What: "other ranks"}, {Count: recorded(w) - 1, What: "other iterations"}} {
		if l.Count > 0 {
			lost = append(lost, l)
		}
	}
	for _, l := range lost {
		fmt.Fprintf(c.stderr, "%s: lost: %v\n", c.args[1], l)
	}
	fmt.Fprintf(c.stdout, "%s: %s from %s to %s, rank %d, iteration %d: %d operators\n", c.args[1], w.Name(), from, to, rank, iteration, p.Ops)
	return nil
}
