package inspect

import (
	"fmt"
	"strconv"

	"smartswap/paper"
	"smartswap/workloads"
)

// recorded is the number of iterations that a workload has of its own; 1 for
// one that was not recorded.
func recorded(w workloads.Workload) int {
	if r, ok := w.(interface{ Iterations() int }); ok {
		return r.Iterations()
	}
	return 1
}

// runInfo tells what is in a workload.
func runInfo(c *call) error {
	opt := c.traceFlags()
	iteration := c.flags.Int("iteration", 0, "`number` of the iteration to look into, from 0")
	top := c.flags.Int("top", 10, "`number` of storages to list")
	if err := c.parse(1); err != nil {
		return err
	}
	if *iteration < 0 || *top < 0 {
		return fmt.Errorf("-iteration %d -top %d: want 0 or more", *iteration, *top)
	}
	w, rep, err := c.open(c.args[0], opt)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: %s, %d iterations of %d ranks, %d tokens each\n", w.Name(), rep.Format, recorded(w), len(w.Ranks()), w.Tokens())
	overview := paper.Table{Title: fmt.Sprintf("Iteration %d", *iteration), Columns: []paper.Column{{Name: ""}}, Notes: []string{
		"device time: sum of the measured kernels; host time: sum of what was recorded per operator",
		"peak live: requested bytes, residents and workspaces included",
	}}
	for _, name := range summaryNames {
		overview.Rows = append(overview.Rows, []string{name})
	}
	var largest []paper.Table
	for r := range w.Ranks() {
		p, err := w.Program(r, *iteration)
		if err != nil {
			return err
		}
		s := summarize(p)
		overview.Columns = append(overview.Columns, paper.Column{Name: fmt.Sprintf("rank %d", r), Number: true})
		for i, cell := range s.cells(p) {
			overview.Rows[i] = append(overview.Rows[i], cell)
		}
		largest = append(largest, livesTable(r, p, s.Lives[:min(*top, len(s.Lives))]))
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
	if err := overview.Terminal(c.stdout); err != nil {
		return err
	}
	for i := range largest {
		if *top == 0 {
			break
		}
		if err := largest[i].Terminal(c.stdout); err != nil {
			return err
		}
	}
	return nil
}

// summaryNames are what the cells of a summary are.
var summaryNames = []string{
	"kind", "operators", "kernels", "measured", "device time", "operators with host time", "host time", "longest host time",
	"storages", "storages, bytes", "residents, bytes", "peak live", "at operator", "largest workspace",
}

// cells is the summary of p as text.
func (s *summary) cells(p *workloads.Program) []string {
	return []string{
		p.Kind, strconv.Itoa(s.Ops), strconv.Itoa(s.Kernels), strconv.Itoa(s.Measured), s.DeviceTime.String(), strconv.Itoa(s.HostOps), s.HostTime.String(), s.LongestHost.String(),
		strconv.Itoa(s.Storages), s.Bytes.String(), s.Residents.String(), s.Peak.String(), strconv.Itoa(s.PeakAt), s.Scratch.String(),
	}
}

// livesTable lists storages of rank r's program p.
func livesTable(r int, p *workloads.Program, lives []life) paper.Table {
	t := paper.Table{Title: fmt.Sprintf("Rank %d, storages by bytes x operators alive", r), Columns: []paper.Column{
		{Name: "storage", Number: true}, {Name: "label"}, {Name: "layer", Number: true}, {Name: "bytes", Number: true},
		{Name: "born", Number: true}, {Name: "freed", Number: true}, {Name: "longest idle", Number: true},
	}}
	for _, l := range lives {
		s := &p.Storages[l.Storage]
		t.Rows = append(t.Rows, []string{
			strconv.Itoa(int(l.Storage)), p.Names.String(s.Label), strconv.Itoa(int(s.Layer)), l.Bytes.String(),
			strconv.Itoa(l.Born), strconv.Itoa(l.Freed), strconv.Itoa(l.Idle),
		})
	}
	return t
}
