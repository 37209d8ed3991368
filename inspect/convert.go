package inspect

import (
	"fmt"

	"smartswap/workloads/trace"
)

// runConvert writes a workload as a native file.
func runConvert(c *call) error {
	opt := c.traceFlags()
	n := c.flags.Int("iterations", 0, "`number` of iterations to write; 0 = all that were recorded")
	if err := c.parse(2); err != nil {
		return err
	}
	if *n < 0 {
		return fmt.Errorf("-iterations %d: want 0 or more", *n)
	}
	w, rep, err := c.open(c.args[0], opt)
	if err != nil {
		return err
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
