package experiments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"smartswap/eager"
	"smartswap/eager/alloc/history"
	"smartswap/formats/snapshot"
	"smartswap/hw"
	"smartswap/paper"
	"smartswap/policies"
	"smartswap/results"
	"smartswap/results/timeline"
	"smartswap/sim"
)

// observable is a Runner whose runs can be watched.
type observable interface {
	Observe(p *Point, observers ...eager.Observer) (*Outcome, error)
}

// What timelines keep of a run: as much as viewers take.
const (
	timelineIterations = 2       // the last ones
	timelineHistory    = 200_000 // entries of an allocator's history
	timelinePoints     = 2_000   // stretches of time in the figure
)

// timelines runs each cell's answer once more, observed, and writes what there
// was to see to a folder per cell. Where nothing fits, that is the first run that
// ended out of memory.
func (e *experiment) timelines(ctx context.Context, found []*CellResult, stderr io.Writer) error {
	folder := filepath.Join(e.cmd.timeline, e.name)
	errs := make([]error, len(found))
	next := make(chan int)
	var crew sync.WaitGroup
	for range e.cmd.parallel {
		crew.Go(func() {
			for i := range next {
				cell := filepath.Join(folder, fmt.Sprintf("%02d-%s", i, folderName(found[i].Cell.String())))
				errs[i] = e.timeline(representative(found[i]), cell)
			}
		})
	}
	cells := 0
	for i, c := range found {
		if s := representative(c).Status; (s == Simulated || s == OutOfHBM) && ctx.Err() == nil {
			next <- i
			cells++
		}
	}
	close(next)
	crew.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "timelines of %d cells are in %s\n", cells, folder)
	return nil
}

// folderName is a text with nothing in it that a file's name should not have.
func folderName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_':
			return r
		}
		return '-'
	}, strings.ReplaceAll(s, ", ", "_"))
}

// timeline runs the first replication of one answer and writes its files.
func (e *experiment) timeline(best *Result, folder string) error {
	rec := timeline.New(timeline.Options{Iterations: timelineIterations, History: timelineHistory})
	o, err := e.watch.Observe(best.Point, rec)
	if err != nil {
		return err
	}
	if len(best.Runs) > 0 && o.Fingerprint != best.Runs[0].Fingerprint {
		return fmt.Errorf("%s: the observed run is another one: fingerprint %016x, want %016x", folder, o.Fingerprint, best.Runs[0].Fingerprint)
	}
	figure := memoryFigure(rec, best.Point.String())
	files := []output{{"trace.json", rec.WriteTrace}, {"memory.svg", figure.SVG}, {"memory.png", figure.PNG}}
	if rec.Info(0).Kind == policies.Framework {
		files = append(files, allocations(rec, best.Point)...)
	}
	for _, f := range files {
		if err := results.WriteFile(filepath.Join(folder, f.name), f.write); err != nil {
			return err
		}
	}
	return nil
}

// allocations are the files about the framework's allocator.
func allocations(rec *timeline.Recorder, p *Point) []output {
	files := []output{
		{"snapshot.pickle", func(w io.Writer) error {
			s := rec.Snapshot()
			s.Settings = history.Settings(history.Setup{Options: p.Allocator, Capacity: rec.Info(0).Capacity})
			return snapshot.Write(w, s)
		}},
	}
	for rank := range rec.Ranks() {
		// As the profiler lays a job of several devices out.
		profile := filepath.Join("ascend", fmt.Sprintf("rank_%d_ascend_pt", rank), "ASCEND_PROFILER_OUTPUT")
		files = append(files,
			output{filepath.Join(profile, "memory_record.csv"), func(w io.Writer) error { return rec.WriteSamples(w, rank) }},
			output{filepath.Join(profile, "operator_memory.csv"), func(w io.Writer) error { return rec.WriteTensors(w, rank) }})
	}
	return files
}

// memoryFigure shows all ranks in ms and GiB: what the allocator holds, or where
// memory lies that is paged or run by a planner.
func memoryFigure(rec *timeline.Recorder, title string) *paper.Memory {
	f := &paper.Memory{
		Title: title, XLabel: "simulated time, ms", YLabel: "GiB", Levels: []string{"reserved", "allocated", "host buffers"},
		Out: "swap-out", In: "swap-in",
	}
	gib := func(b sim.Bytes) float64 { return float64(b) / float64(sim.GiB) }
	spans := func(list []timeline.Interval) []paper.Span {
		out := make([]paper.Span, len(list))
		for i, s := range list {
			out[i] = paper.Span{From: s.Start.Milliseconds(), To: s.End.Milliseconds()}
		}
		return out
	}
	levels := []func(*timeline.Level) sim.Bytes{
		func(l *timeline.Level) sim.Bytes { return l.Reserved }, func(l *timeline.Level) sim.Bytes { return l.Allocated }, func(l *timeline.Level) sim.Bytes { return l.Host },
	}
	if rec.Ranks() > 0 && rec.Info(0).Kind != policies.Framework { // one policy, one kind for all
		f.Levels = []string{"resident", "host", "SSD"}
		f.Out, f.In = "out", "in"
		levels = []func(*timeline.Level) sim.Bytes{levels[1], levels[2], func(l *timeline.Level) sim.Bytes { return l.SSD }}
	}
	for rank := range rec.Ranks() {
		info, c := rec.Info(rank), rec.Curve(rank, timelinePoints)
		p := paper.MemoryPanel{
			Title: fmt.Sprintf("rank %d, device %d", rank, info.Devices[0]), Begin: c.From.Milliseconds(), End: c.To.Milliseconds(),
			Limit: gib(info.Capacity), Steps: make([][]paper.Point, len(f.Levels)),
			Out: spans(c.Copies[hw.D2H]), In: spans(c.Copies[hw.H2D]),
		}
		for _, l := range c.Levels {
			for i, of := range levels {
				p.Steps[i] = append(p.Steps[i], paper.Point{X: l.At.Milliseconds(), Y: gib(of(&l))})
			}
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}
