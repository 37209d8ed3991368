package experiments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"smartswap/results"
)

// runCells searches the cells with several workers. The result has one entry
// per cell, in their order; those that an interruption left out are nil. Done
// is called as cells finish, one call at a time.
//
// Cells are handed out in order and none is handed out after an error, so every
// cell before the first failing one is finished: the error returned, that of
// the lowest cell, does not depend on the workers.
func runCells(ctx context.Context, cells []*Cell, r Runner, workers int, done func(*CellResult)) ([]*CellResult, error) {
	found := make([]*CellResult, len(cells))
	errs := make([]error, len(cells))
	var mu sync.Mutex // guards next and failed, and calls of done
	next, failed := 0, false
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed || ctx.Err() != nil || next == len(cells) {
			return 0, false
		}
		next++
		return next - 1, true
	}
	var crew sync.WaitGroup
	for range workers {
		crew.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				f, err := searchCell(ctx, cells[i], r)
				mu.Lock()
				if err != nil {
					errs[i], failed = err, true
				} else {
					found[i] = f
					done(f)
				}
				mu.Unlock()
			}
		})
	}
	crew.Wait()
	for i, err := range errs {
		if err != nil && ctx.Err() == nil {
			return found, fmt.Errorf("%s: %w", cells[i], err)
		}
	}
	return found, nil
}

// searchCell finds the best point of a cell, or the largest value that its
// [search] asks for.
func searchCell(ctx context.Context, cell *Cell, r Runner) (*CellResult, error) {
	if cell.search.Key != "" {
		return largest(ctx, cell, r)
	}
	return search(ctx, cell, r)
}

// memo serves points of equal keys with one run: the first asks, the others
// wait for its outcome. With a folder, outcomes outlive the process.
type memo struct {
	Runner
	folder string // "" = in memory only
	// strict makes an outcome that the folder does not have an error.
	strict bool

	mu   sync.Mutex
	runs map[string]*memoRun
}

type memoRun struct {
	ready   chan struct{}
	outcome *Outcome
	err     error
}

func newMemo(r Runner, folder string, strict bool) *memo {
	return &memo{Runner: r, folder: folder, strict: strict, runs: map[string]*memoRun{}}
}

// Run implements Runner.
func (m *memo) Run(p *Point) (*Outcome, error) {
	key, err := m.Key(p)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	run, known := m.runs[key]
	if !known {
		run = &memoRun{ready: make(chan struct{})}
		m.runs[key] = run
	}
	m.mu.Unlock()
	if known {
		<-run.ready
		return run.outcome, run.err
	}
	defer close(run.ready)
	run.outcome, run.err = m.fetch(key, p)
	return run.outcome, run.err
}

// fetch reads the outcome from the folder, or simulates and keeps it.
func (m *memo) fetch(key string, p *Point) (*Outcome, error) {
	if m.folder == "" {
		return m.Runner.Run(p)
	}
	path := filepath.Join(m.folder, key+".json")
	content, err := os.ReadFile(path)
	if err == nil {
		var o Outcome
		if err := json.Unmarshal(content, &o); err != nil {
			return nil, fmt.Errorf("%s: damaged: %w", path, err)
		}
		return &o, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if m.strict {
		return nil, fmt.Errorf("%s: missing: some shard has not finished", path)
	}
	o, err := m.Runner.Run(p)
	if err != nil {
		return nil, err
	}
	return o, results.WriteFile(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(o) })
}

// programHash identifies the running program by its content: outcomes of
// another build are not reused.
func programHash() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// progress tells on w how far a run is: one rewriting line on a terminal,
// otherwise a line per cell, or of many cells one per percent.
type progress struct {
	w        io.Writer
	terminal bool
	total    int
	done     int
	width    int // of the line to overwrite
}

func newProgress(w io.Writer, total int) *progress {
	p := &progress{w: w, total: total}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			p.terminal = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return p
}

// manyCells is from how many cells on not every one has a line.
const manyCells = 200

// cell reports one finished cell.
func (p *progress) cell(c *CellResult) {
	p.done++
	line := fmt.Sprintf("[%d/%d] %s: %s", p.done, p.total, c.Cell, summary(c))
	if !p.terminal {
		if p.total < manyCells || 100*p.done/p.total > 100*(p.done-1)/p.total {
			fmt.Fprintln(p.w, line)
		}
		return
	}
	const maxWidth = 100
	if len(line) > maxWidth {
		line = line[:maxWidth-3] + "..."
	}
	fmt.Fprintf(p.w, "\r%-*s", p.width, line)
	p.width = len(line)
}

// end leaves the rewriting line.
func (p *progress) end() {
	if p.terminal && p.done > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.width, "")
	}
}

// impossible tells whether no point of a cell exists.
func impossible(c *CellResult) bool {
	for i := range c.Results {
		if c.Results[i].Status != Absent {
			return false
		}
	}
	return true
}

// summary is a cell in a few words.
func summary(c *CellResult) string {
	if c.Best < 0 {
		for i := range c.Results {
			if c.Results[i].Status == Simulated { // of a search
				return "fits, but only slower than the search allows"
			}
		}
		if o := representative(c).Outcome.OOM; o != nil && o.Rematerialized > 0 {
			return fmt.Sprintf("recomputation above %.1f ms", o.Allowed.Milliseconds())
		}
		if impossible(c) {
			return "impossible: " + c.Results[0].Why
		}
		return "out of memory"
	}
	best := &c.Results[c.Best]
	o := &best.Outcome
	if s := &c.Cell.search; s.Key != "" {
		return fmt.Sprintf("%s = %d, %.2f of ideal speed, %v", s.Key, best.Tried, 1/(1+slowdown(best)), best.Point)
	}
	if o.Tokens == 0 {
		return fmt.Sprintf("%.3f ms", o.Time.Milliseconds())
	}
	return fmt.Sprintf("%.0f tokens/s per device, %v", tokensPerSecond(o), best.Point)
}
