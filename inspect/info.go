package inspect

import (
	"fmt"
	"strconv"

	"smartswap/paper"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
)

// recorded is the number of iterations that a workload has of its own; 1 for
// one that was not recorded.
func recorded(w workloads.Workload) int {
	if r, ok := w.(interface{ Iterations() int }); ok {
		return r.Iterations()
	}
	return 1
}

// checkIteration refuses a number that no recorded iteration has.
func checkIteration(w workloads.Workload, iteration int) error {
	if n := recorded(w); iteration < 0 || iteration >= n {
		return fmt.Errorf("-iteration %d: %s has iterations 0 to %d", iteration, w.Name(), n-1)
	}
	return nil
}

// runInfo tells what is in a workload.
func runInfo(c *call) error {
	opt := c.traceFlags()
	iteration := c.flags.Int("iteration", 0, "`number` of the iteration to look into, from 0")
	top := c.flags.Int("top", 10, "`number` of storages and of idle gaps to list")
	if err := c.parse(1); err != nil {
		return err
	}
	if *top < 0 {
		return fmt.Errorf("-top %d: want 0 or more", *top)
	}
	w, rep, err := c.open(c.args[0], opt)
	if err != nil {
		return err
	}
	if err := checkIteration(w, *iteration); err != nil {
		return err
	}
	tokens := "" // which most formats do not tell
	if n := w.Tokens(); n > 0 {
		tokens = fmt.Sprintf(", %d tokens each", n)
	}
	fmt.Fprintf(c.stdout, "%s: %s, %d iterations of %d ranks%s\n", w.Name(), rep.Format, recorded(w), len(w.Ranks()), tokens)
	overview := paper.Table{Title: fmt.Sprintf("Iteration %d", *iteration), Columns: []paper.Column{{Name: ""}}, Notes: []string{
		"device time: sum of the measured kernels; host time: sum of the host's own gaps, recorded between operators (when the device was idle is told below)",
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
		if n := min(*top, len(s.Lives)); n > 0 {
			largest = append(largest, livesTable(r, p, s.Lives[:n]))
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
	if rep.KindFrom != "" {
		overview.Notes = append(overview.Notes, "kind: inferred: "+rep.KindFrom)
	}
	tables := []paper.Table{overview}
	if len(rep.Streams) == 0 {
		note := "idle gaps of the device: not told: nothing in the file (" + rep.Format + ") says when the device started a kernel"
		if rep.Format == "et" {
			note += "; a Kineto trace of the same run does: -kineto FILE"
		}
		tables[0].Notes = append(tables[0].Notes, note)
	} else {
		tables = append(tables, streamsTable(rep.Streams))
		for i := range rep.Streams[:min(len(rep.Streams), gapsOf)] {
			if t := gapsTable(&rep.Streams[i], *top); len(t.Rows) > 0 {
				tables = append(tables, t)
			}
		}
	}
	tables = append(tables, largest...)
	for i := range tables {
		if err := tables[i].Terminal(c.stdout); err != nil {
			return err
		}
	}
	return nil
}

// How many streams are listed, and how many with their gaps.
const (
	mostStreams = 20
	gapsOf      = 4
)

// streamsTable tells when the streams of the recorded device worked.
func streamsTable(streams []trace.Stream) paper.Table {
	t := paper.Table{Title: "Recorded device, streams that compute or copy", Columns: []paper.Column{
		{Name: "stream"}, {Name: "kernels and copies", Number: true}, {Name: "first to last", Number: true}, {Name: "busy", Number: true},
		{Name: "idle", Number: true}, {Name: "idle share", Number: true}, {Name: "idle gaps", Number: true}, {Name: "longest", Number: true},
	}, Notes: []string{"idle: no kernel and no copy runs on the stream, whatever the host does; collectives have streams of their own"}}
	pauses := 0
	for i := range streams {
		s := &streams[i]
		pauses += s.Pauses
		if i >= mostStreams {
			continue
		}
		longest := "-"
		if len(s.Longest) > 0 {
			longest = brief(s.Longest[0].Time)
		}
		t.Rows = append(t.Rows, []string{
			s.Name, strconv.Itoa(s.Kernels), brief(s.Span), brief(s.Busy), brief(s.Idle()), percent(s.Idle(), s.Span), strconv.Itoa(s.Gaps), longest,
		})
	}
	if more := len(streams) - mostStreams; more > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d more streams, with fewer kernels", more))
	}
	if pauses > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d pauses of more than 30 s are left out", pauses))
	}
	return t
}

// gapsTable lists the longest times in which nothing ran on a stream.
func gapsTable(s *trace.Stream, top int) paper.Table {
	list := s.Longest[:min(top, len(s.Longest))]
	t := paper.Table{Title: fmt.Sprintf("Idle gaps of the device, %s: the longest %d of %d", s.Name, len(list), s.Gaps), Columns: []paper.Column{
		{Name: "at", Number: true}, {Name: "idle", Number: true}, {Name: "after kernel"}, {Name: "before kernel"},
	}}
	for _, g := range list {
		t.Rows = append(t.Rows, []string{brief(g.At), brief(g.Time), shorten(g.Before), shorten(g.After)})
	}
	return t
}

// brief is t with at most three decimals, rounded.
func brief(t sim.Time) string {
	unit := sim.Picosecond
	for unit < sim.Second && t >= 1000*unit {
		unit *= 1000
	}
	step := max(unit/1000, sim.Picosecond)
	return ((t + step/2) / step * step).String()
}

// shorten cuts names of kernels, which may be pages of template arguments.
func shorten(name string) string {
	const most = 48
	if r := []rune(name); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return name
}

// summaryNames are what the cells of a summary are.
var summaryNames = []string{
	"kind", "operators", "kernels", "measured", "device time", "operators with host time", "host time", "longest host time",
	"storages", "storages, bytes", "residents, bytes", "peak live", "at operator", "largest workspace",
}

// cells is the summary of p as text.
func (s *summary) cells(p *workloads.Program) []string {
	return []string{
		p.Kind, strconv.Itoa(s.Ops), strconv.Itoa(s.Kernels), strconv.Itoa(s.Measured), brief(s.DeviceTime), strconv.Itoa(s.HostOps), brief(s.HostTime), brief(s.LongestHost),
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
