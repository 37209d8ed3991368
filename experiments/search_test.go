package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/sim"
)

// scripted is a Runner with given bounds and outcomes, by micro-batch.
type scripted struct {
	fake
	points []scriptedPoint
}

type scriptedPoint struct {
	absent bool
	bounds Bounds
	time   sim.Time // 0 = does not fit
}

func (s *scripted) Bound(p *Point) (Bounds, error) {
	if q := s.points[p.MicroBatch]; !q.absent {
		return q.bounds, nil
	}
	return Bounds{}, &Impossible{"no such job"}
}

func (s *scripted) Run(p *Point) (*Outcome, error) {
	s.runs.Add(1)
	q := s.points[p.MicroBatch]
	switch {
	case p.Strategy.Ideal:
		return &Outcome{Time: q.bounds.Time}, nil
	case q.time == 0:
		return &Outcome{OOM: &OOM{}}, nil
	}
	return &Outcome{Time: q.time}, nil
}

func (s *scripted) cell() *Cell {
	cell := &Cell{Column: "c", Strategy: "s"}
	for i := range s.points {
		cell.Points = append(cell.Points, &Point{Setup: Setup{Replications: 1}, MicroBatch: int64(i)})
	}
	return cell
}

// The search finds what running every point finds, and never runs a point that
// a bound excludes.
func TestSearchIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 100
		var s scripted
		for range rapid.IntRange(1, 12).Draw(t, "points") {
			var q scriptedPoint
			q.absent = rapid.IntRange(0, 5).Draw(t, "absent") == 0
			q.time = sim.Time(rapid.IntRange(0, 10).Draw(t, "time"))
			q.bounds = Bounds{Capacity: capacity, Time: sim.Time(rapid.IntRange(0, max(int(q.time), 1)).Draw(t, "bound"))}
			if q.time == 0 { // a proof that it does not fit is possible only if it does not
				q.bounds.Memory = sim.Bytes(rapid.IntRange(90, 110).Draw(t, "memory"))
			}
			s.points = append(s.points, q)
		}
		exists := slices.ContainsFunc(s.points, func(q scriptedPoint) bool { return !q.absent })
		best := sim.Time(0)
		for _, q := range s.points {
			if !q.absent && q.time > 0 && (best == 0 || q.time < best) {
				best = q.time
			}
		}
		found, err := search(background, s.cell(), &s)
		if !exists {
			if err != nil || found.Best >= 0 || !impossible(found) || !strings.Contains(found.Results[0].Why, "no such job") {
				t.Fatalf("%+v, %v for a cell without points", found, err)
			}
			table := (&Config{}).table(&TableSpec{Show: []string{"iteration_time_ms"}}, []*CellResult{found})
			if row := table.Rows[0]; row[len(row)-1] != "impossible" || len(table.Notes) != 1 || !strings.Contains(table.Notes[0], "no such job") {
				t.Fatalf("the table says %q, %q", row, table.Notes)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if (found.Best >= 0) != (best > 0) {
			t.Fatalf("best point %d, best time %v", found.Best, best)
		}
		if found.Best >= 0 && found.Results[found.Best].Outcome.Time != best {
			t.Fatalf("found %v, want %v", found.Results[found.Best].Outcome.Time, best)
		}
		ran, bests := 0, 0
		for i, r := range found.Results {
			if r.Best {
				bests++
			}
			switch r.Status {
			case Simulated, OutOfHBM:
				ran++
				if (r.Status == Simulated) != (s.points[i].time > 0) {
					t.Errorf("point %d: status %d", i, r.Status)
				}
			case Skipped:
				if r.Bounds.Fits() && (best == 0 || r.Bounds.Time < best) {
					t.Errorf("point %d was skipped without a proof: %s", i, r.Why)
				}
				if r.Why == "" {
					t.Errorf("point %d was skipped without a word", i)
				}
			case Absent:
				if !s.points[i].absent {
					t.Errorf("point %d exists", i)
				}
			}
		}
		if ran == 0 {
			t.Error("nothing ran: the cell has nothing to show")
		}
		if want := min(1, max(0, int(best))); bests != want {
			t.Errorf("%d best points, want %d", bests, want)
		}
	})
}

// Ties: equal bounds run in the order of the file, and an equal time does not
// replace an earlier one.
func TestSearchTies(t *testing.T) {
	tie := scriptedPoint{bounds: Bounds{Time: 5, Capacity: 1}, time: 7}
	s := &scripted{points: []scriptedPoint{tie, tie, tie}}
	found, err := search(background, s.cell(), s)
	if err != nil {
		t.Fatal(err)
	}
	if found.Best != 0 {
		t.Errorf("best is point %d, want the first of equals", found.Best)
	}
	// All three had to run: their bound is below the best time.
	if got := s.runs.Load(); got != 3+1 {
		t.Errorf("%d runs, want 3 and one ideal", got)
	}
	tie.bounds.Time = 7 // a bound equal to the best time cannot win
	s = &scripted{points: []scriptedPoint{tie, tie, tie}}
	if _, err := search(background, s.cell(), s); err != nil {
		t.Fatal(err)
	}
	if got := s.runs.Load(); got != 1+1 {
		t.Errorf("%d runs, want 1 and one ideal", got)
	}
}

// A bound that a run beats makes the search wrong: it must be an error.
func TestSearchNoticesBrokenBounds(t *testing.T) {
	for name, q := range map[string]scriptedPoint{
		"time":   {bounds: Bounds{Time: 8, Capacity: 1}, time: 7},
		"memory": {bounds: Bounds{Time: 1, Memory: 2, Capacity: 1}, time: 7},
	} {
		s := &scripted{points: []scriptedPoint{q}}
		if _, err := search(background, s.cell(), s); err == nil || !strings.Contains(err.Error(), "bound") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Results do not depend on the number of workers, and one error is always the
// same error.
func TestRunCellsIsDeterministic(t *testing.T) {
	c, err := Parse("fake.toml", fakeFile)
	if err != nil {
		t.Fatal(err)
	}
	var want string
	for _, workers := range []int{1, 2, 7} {
		f := &fake{}
		cells, err := c.Cells(f.Devices)
		if err != nil {
			t.Fatal(err)
		}
		found, err := runCells(background, cells, newMemo(f, "", false), workers, func(*CellResult) {})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := rows(c.Axes, found).WriteCSV(&text); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = text.String()
		}
		if text.String() != want {
			t.Errorf("%d workers: other rows", workers)
		}
	}
	failing := errors.New("broken")
	for range 20 {
		f := &failingRunner{err: failing, column: "13B"}
		cells, err := c.Cells(f.Devices)
		if err != nil {
			t.Fatal(err)
		}
		_, err = runCells(background, cells, f, 4, func(*CellResult) {})
		if !errors.Is(err, failing) || !strings.HasPrefix(err.Error(), "13B, minimal, baseline: ") {
			t.Fatalf("error %v, want that of the first failing cell", err)
		}
	}
}

type failingRunner struct {
	fake
	err    error
	column string
}

func (f *failingRunner) Run(p *Point) (*Outcome, error) {
	if p.Workload.Model == "llama2-13b" {
		return nil, f.err
	}
	return f.fake.Run(p)
}

// Points of equal keys run once, however many workers ask.
func TestMemoRunsOnce(t *testing.T) {
	f := &fake{}
	m := newMemo(f, "", false)
	point := func(i int) *Point {
		return &Point{Setup: Setup{Replications: 1, Workload: Workload{Model: fmt.Sprint(i % 3)}}, MicroBatch: 1}
	}
	cells := make([]*Cell, 60)
	for i := range cells {
		cells[i] = &Cell{Column: "c", Strategy: "s", Points: []*Point{point(i)}}
		cells[i].Points[0].Strategy.Ideal = true // no second run for the ideal
	}
	if _, err := runCells(background, cells, m, 8, func(*CellResult) {}); err != nil {
		t.Fatal(err)
	}
	if got := f.runs.Load(); got != 3 {
		t.Errorf("%d runs of 3 different points", got)
	}
}

// An interruption keeps finished cells whole and hands out no more.
func TestRunCellsInterrupted(t *testing.T) {
	c, err := Parse("fake.toml", fakeFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(background)
	f := &fake{}
	cells, err := c.Cells(f.Devices)
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	found, err := runCells(ctx, cells, f, 2, func(*CellResult) {
		if done++; done == 3 {
			stop()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, r := range found {
		if r != nil {
			whole++
			if len(r.Results) != len(r.Cell.Points) {
				t.Error("a cell is not whole")
			}
		}
	}
	if whole != done || whole == len(cells) {
		t.Errorf("%d cells kept, %d reported, of %d", whole, done, len(cells))
	}
}

func TestPool(t *testing.T) {
	one := &Outcome{Time: 10, Tokens: 7, PeakReserved: 5, OutBytes: 4}
	if o, interval := pool([]*Outcome{one}); o.Time != 10 || interval != 0 {
		t.Errorf("one run: %v ± %v", o.Time, interval)
	}
	o, interval := pool([]*Outcome{one, {Time: 20, Tokens: 8, PeakReserved: 9, OutBytes: 8}, {Time: 30, Tokens: 12, PeakReserved: 1}})
	// Standard deviation 10, t quantile 4.303 for 2 degrees of freedom:
	// 4.303 x 10 / sqrt(3) = 24.84.
	if o.Time != 20 || o.Tokens != 9 || o.PeakReserved != 9 || o.OutBytes != 4 || interval != 25 {
		t.Errorf("three runs: %+v ± %v", o, interval)
	}
	a := &Outcome{PeakReserved: 5, Allocator: AllocatorOutcome{Active: 1, Requested: 9, Pending: 2, InactiveSplit: 8, LargestFree: 3, Segments: 7, DriverAllocs: 4, DriverFrees: 6, Retries: 5, Driver: 5, DriverWait: 4}}
	b := &Outcome{PeakReserved: 6, Allocator: AllocatorOutcome{Active: 9, Requested: 1, Pending: 8, InactiveSplit: 2, LargestFree: 2, Segments: 3, DriverAllocs: 6, DriverFrees: 4, Retries: 4, Driver: 6, DriverWait: 5}}
	worst := AllocatorOutcome{Active: 9, Requested: 9, Pending: 8, InactiveSplit: 8, LargestFree: 2, Segments: 7, DriverAllocs: 6, DriverFrees: 6, Retries: 5, Driver: 6, DriverWait: 5}
	if o, _ := pool([]*Outcome{a, b}); o.Allocator != worst {
		t.Errorf("got %+v, want %+v", o.Allocator, worst)
	}
	b.PeakReserved, worst.LargestFree = 5, 3 // of equals the first
	if o, _ := pool([]*Outcome{a, b}); o.Allocator != worst {
		t.Errorf("got %+v, want %+v", o.Allocator, worst)
	}
	if o, _ := pool([]*Outcome{one, {OOM: &OOM{Rank: 3}}}); o.OOM == nil || o.OOM.Rank != 3 {
		t.Error("one run that does not fit decides for all")
	}
}

func TestAllLayouts(t *testing.T) {
	got := allLayouts(8)
	if len(got) != 10 {
		t.Errorf("%d layouts of 8 devices, want 10: %v", len(got), got)
	}
	for _, l := range got {
		if l.TP*l.PP*l.DP != 8 {
			t.Errorf("%v does not use 8 devices", l)
		}
	}
	if !slices.IsSortedFunc(got, func(a, b Layout) int { return cmp.Or(cmp.Compare(a.TP, b.TP), cmp.Compare(a.PP, b.PP)) }) {
		t.Errorf("order: %v", got)
	}
}

// Every cell has a line of progress, or every percent where there are many; the
// last one always.
func TestProgress(t *testing.T) {
	for total, want := range map[int]int{1: 1, 199: 199, 200: 100, 250: 100, 1000: 100, 1050: 100} {
		var w strings.Builder
		p := newProgress(&w, total)
		for range total {
			p.cell(&CellResult{Cell: &Cell{Column: "x"}, Best: -1, Results: []Result{{Status: OutOfHBM}}})
		}
		p.end()
		lines := strings.Split(strings.TrimSuffix(w.String(), "\n"), "\n")
		if last := lines[len(lines)-1]; len(lines) != want || !strings.HasPrefix(last, fmt.Sprintf("[%d/%d] x", total, total)) {
			t.Errorf("%d cells: %d lines, want %d; the last %q", total, len(lines), want, last)
		}
	}
}
