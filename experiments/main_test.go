package experiments

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"smartswap/results"
)

// runFile writes file to a folder and runs the command on it with a fake
// Runner: exit code, stdout, stderr.
func runFile(t *testing.T, ctx context.Context, file string, r Runner, args ...string) (int, string, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake.toml")
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	code := run(ctx, append([]string{path}, args...), &stdout, &stderr, r, noCode)
	return code, stdout.String(), stderr.String()
}

// noCode stands for the program: what git says may change while tests run.
func noCode() results.Code { return results.Code{Commit: "unknown"} }

// tree reads all files below folder.
func tree(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(folder, path)
		files[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func names(files map[string]string) []string {
	var list []string
	for name := range files {
		list = append(list, name)
	}
	return sortedStrings(list)
}

func sortedStrings(list []string) []string {
	set := map[string]any{}
	for _, s := range list {
		set[s] = nil
	}
	return sortedKeys(set)
}

// The whole output, and that it is the same for any number of workers.
func TestOutputsAreDeterministic(t *testing.T) {
	var want map[string]string
	var wantOut string
	for _, parallel := range []string{"1", "2", "5", "1"} {
		out := filepath.Join(t.TempDir(), "out")
		code, stdout, stderr := runFile(t, background, fakeFile, &fake{}, "-out", out, "-parallel", parallel)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		if lines := strings.Count(stderr, "\n"); lines != 1+12 {
			t.Errorf("%d progress lines for 12 cells: %s", lines, stderr)
		}
		stdout = strings.ReplaceAll(stdout, out, "OUT")
		got := tree(t, out)
		if want == nil {
			want, wantOut = got, stdout
			files := []string{"claims.csv", "figure.pdf", "figure.png", "figure.svg", "manifest.json", "pivot.csv", "pivot.md", "pivot.tex", "rows.csv", "table.csv", "table.md", "table.tex"}
			for i := range files {
				files[i] = "fake/" + files[i]
			}
			if diff := cmp.Diff(files, names(got)); diff != "" {
				t.Errorf("files: %s", diff)
			}
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-parallel %s: %s", parallel, diff)
		}
		if stdout != wantOut {
			t.Errorf("-parallel %s prints something else", parallel)
		}
	}
}

// Rows: one per point, every cell has one best point or none that fits, and
// what is skipped says why.
func TestRows(t *testing.T) {
	out := t.TempDir()
	if code, _, stderr := runFile(t, background, fakeFile, &fake{}, "-out", out); code != 0 {
		t.Fatal(stderr)
	}
	f, err := os.Open(filepath.Join(out, "fake", "rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	frame, err := results.ReadCSV(f)
	if err != nil {
		t.Fatal(err)
	}
	if want := 4 * (20 + 10 + 1); len(frame.Rows) != want {
		t.Errorf("%d rows, want %d", len(frame.Rows), want)
	}
	best := map[string]int{}
	statuses := map[string]int{}
	for r := range frame.Rows {
		text := func(name string) string { return frame.At(r, name).String() }
		cell := text("column") + text("workload.save") + text("strategy")
		best[cell] += int(frame.At(r, "best").Number())
		status, why, _ := strings.Cut(text("status"), ": ")
		statuses[status]++
		if (status == "skipped") != (why != "") {
			t.Errorf("row %d: status %q", r, text("status"))
		}
		if (status == "ok") != frame.At(r, "iteration_time_ps").Present() {
			t.Errorf("row %d: %s with iteration time %q", r, status, text("iteration_time_ps"))
		}
		if (status == "oom") != frame.At(r, "oom_requested_bytes").Present() {
			t.Errorf("row %d: %s with request %q", r, status, text("oom_requested_bytes"))
		}
	}
	for cell, n := range best {
		if n > 1 {
			t.Errorf("%s has %d best points", cell, n)
		}
	}
	for _, s := range []string{"ok", "oom", "skipped"} {
		if statuses[s] == 0 {
			t.Errorf("no row is %s: the test shows too little: %v", s, statuses)
		}
	}
}

// A cell in which nothing fits says so with figures, in table and progress.
func TestNothingFits(t *testing.T) {
	r := &fake{fits: func(p *Point) bool { return p.Strategy.Name != "baseline" }}
	out := t.TempDir()
	code, stdout, stderr := runFile(t, background, fakeFile, r, "-out", out)
	if code != 0 {
		t.Fatalf("not fitting is no failure: %s", stderr)
	}
	for _, want := range []string{"OOM: requested 1.000, free 0.500 of 62.0 GiB", "only swap fits"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("stdout does not say %q:\n%s", want, stdout)
		}
	}
	if !strings.Contains(stderr, "baseline: out of memory") {
		t.Errorf("progress: %s", stderr)
	}
	if svg := tree(t, out)["fake/figure.svg"]; strings.Count(svg, ">OOM<") != 4 {
		t.Error("the figure does not show what does not fit")
	}
}

// Ctrl-C: whole rows of finished cells, an exit code of 1, and no file of an
// earlier run that would contradict them.
func TestInterruption(t *testing.T) {
	out := t.TempDir()
	if code, _, stderr := runFile(t, background, fakeFile, &fake{}, "-out", out); code != 0 {
		t.Fatal(stderr)
	}
	ctx, stop := context.WithCancel(background)
	r := &fake{before: func(p *Point) {
		if p.Workload.Save == "eager" {
			stop()
		}
	}}
	code, stdout, stderr := runFile(t, ctx, fakeFile, r, "-out", out, "-parallel", "1")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "interrupted after 3 of 12 cells") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	files := tree(t, out)
	if diff := cmp.Diff([]string{"fake/manifest.json", "fake/rows.csv"}, names(files)); diff != "" {
		t.Errorf("files: %s", diff)
	}
	if got, want := strings.Count(files["fake/rows.csv"], "\n"), 1+20+10+1; got != want {
		t.Errorf("%d lines in rows.csv, want %d", got, want)
	}
	var m results.Manifest
	if err := json.Unmarshal([]byte(files["fake/manifest.json"]), &m); err != nil || m.Complete || m.Cells != 3 {
		t.Errorf("manifest: complete %v, %d cells, %v", m.Complete, m.Cells, err)
	}
	// Stopped before anything is finished: nothing is written.
	stopped, stop := context.WithCancel(background)
	stop()
	empty := filepath.Join(t.TempDir(), "out")
	if code, _, _ := runFile(t, stopped, fakeFile, &fake{}, "-out", empty); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(empty); err == nil {
		t.Error("something was written")
	}
}

// -resume simulates nothing twice; shards and -merge give the bytes of a plain
// run.
func TestResumeAndShards(t *testing.T) {
	plain, kept, sharded := t.TempDir(), t.TempDir(), t.TempDir()
	results := func(folder string) map[string]string {
		files := tree(t, folder)
		for name := range files {
			if strings.Contains(name, "points-") {
				delete(files, name)
			}
		}
		return files
	}
	first := &fake{}
	for _, c := range []struct {
		r    *fake
		args []string
	}{{first, []string{"-out", plain}}, {&fake{}, []string{"-out", kept, "-resume"}}} {
		if code, _, stderr := runFile(t, background, fakeFile, c.r, c.args...); code != 0 {
			t.Fatal(stderr)
		}
	}
	again := &fake{}
	if code, _, stderr := runFile(t, background, fakeFile, again, "-out", kept, "-resume"); code != 0 || again.runs.Load() != 0 {
		t.Errorf("exit code %d, %d runs although all outcomes were kept: %s", code, again.runs.Load(), stderr)
	}
	if diff := cmp.Diff(results(plain), results(kept)); diff != "" {
		t.Errorf("-resume: %s", diff)
	}

	early := &fake{}
	if code, _, stderr := runFile(t, background, fakeFile, early, "-out", sharded, "-merge"); code != 1 || early.runs.Load() != 0 || !strings.Contains(stderr, "missing") {
		t.Errorf("-merge before the shards: exit code %d, %d runs, %s", code, early.runs.Load(), stderr)
	}
	total := int64(0)
	for _, shard := range []string{"2/3", "0/3", "1/3"} {
		r := &fake{}
		if code, stdout, stderr := runFile(t, background, fakeFile, r, "-out", sharded, "-shard", shard); code != 0 || stdout != "" {
			t.Fatalf("-shard %s: exit code %d, stdout %q, stderr %s", shard, code, stdout, stderr)
		}
		total += r.runs.Load()
	}
	if total != first.runs.Load() {
		t.Errorf("%d runs in shards, %d in one piece", total, first.runs.Load())
	}
	merge := &fake{}
	if code, _, stderr := runFile(t, background, fakeFile, merge, "-out", sharded, "-merge"); code != 0 || merge.runs.Load() != 0 {
		t.Errorf("-merge: exit code %d, %d runs, %s", code, merge.runs.Load(), stderr)
	}
	if diff := cmp.Diff(results(plain), results(sharded)); diff != "" {
		t.Errorf("-merge: %s", diff)
	}
	// A damaged outcome is an error, not a result.
	for name := range tree(t, kept) {
		if strings.Contains(name, "points-") {
			if err := os.WriteFile(filepath.Join(kept, name), []byte("{"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code, _, stderr := runFile(t, background, fakeFile, &fake{}, "-out", kept, "-resume"); code != 1 || !strings.Contains(stderr, "damaged") {
		t.Errorf("damaged outcome: exit code %d, %s", code, stderr)
	}
}

// -regen writes what -check compares with; a difference is exit code 1.
func TestGolden(t *testing.T) {
	out, golden := t.TempDir(), t.TempDir()
	call := func(r *fake, args ...string) (int, string) {
		code, _, stderr := runFile(t, background, fakeFile, r, append(args, "-out", out, "-golden", golden)...)
		return code, stderr
	}
	idle := &fake{}
	if code, stdout, stderr := runFile(t, background, fakeFile, idle, "-check", "-out", out, "-golden", golden); code != 0 || idle.runs.Load() != 0 || !strings.Contains(stdout, "nothing was compared") {
		t.Errorf("-check without committed results: exit code %d, %d runs, %s%s", code, idle.runs.Load(), stdout, stderr)
	}
	// Without even the folder, nobody looked: as from another working directory.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{filepath.Join(golden, "none"), file} {
		if code, stdout, stderr := runFile(t, background, fakeFile, idle, "-check", "-out", out, "-golden", absent); code != 2 || idle.runs.Load() != 0 ||
			stdout != "" || !strings.Contains(stderr, "nothing was compared") || !strings.Contains(stderr, absent) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("-check without the folder: exit code %d, %d runs, %s%s", code, idle.runs.Load(), stdout, stderr)
		}
	}
	if code, stderr := call(&fake{}, "-regen"); code != 0 {
		t.Fatal(stderr)
	}
	if code, stderr := call(&fake{}, "-check"); code != 0 || !strings.Contains(stderr, "equal to") {
		t.Errorf("-check: exit code %d, %s", code, stderr)
	}
	code, stderr := call(&fake{fits: func(*Point) bool { return true }}, "-check")
	if code != 1 || !strings.Contains(stderr, "row 1, ") || !strings.Contains(stderr, "rows differ") {
		t.Errorf("-check of other rows: exit code %d, %s", code, stderr)
	}
}

func TestQuick(t *testing.T) {
	out := t.TempDir()
	code, stdout, stderr := runFile(t, background, fakeFile, &fake{}, "-quick", "-list", "-out", out)
	if code != 0 || stdout != "   0  7B, eager, baseline: 20 points\n   1  7B, eager, swap: 10 points\n   2  7B, eager, ideal: 1 points\n" {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr := runFile(t, background, fakeFile, &fake{}, "-quick", "-out", out); code != 0 {
		t.Fatal(stderr)
	}
	if _, ok := tree(t, out)["fake-quick/rows.csv"]; !ok {
		t.Error("the reduced form has a folder of its own")
	}
	for bad, want := range map[string]string{
		`columns = ["8B"]`:              `nearest is "7B"`,
		`columns = "7B"`:                "array",
		`strategies = ["baseline"]`:     "no strategy",
		`axes.workload.seq = [1]`:       "axis",
		`axes.workload.save = ["none"]`: "allowed",
		`iterations = 0`:                "from 1",
	} {
		file := strings.Replace(fakeFile, `columns = ["7B"]`, bad, 1)
		if strings.HasPrefix(bad, "axes") {
			file = strings.Replace(fakeFile, `axes.workload.save = ["eager"]`, bad, 1)
		}
		code, _, stderr := runFile(t, background, file, &fake{}, "-quick", "-out", out)
		if code != 2 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q does not say %q", bad, code, stderr, want)
		}
	}
}

// An asserted claim that fails is exit code 1, after everything is written.
func TestAssertedClaim(t *testing.T) {
	file := strings.Replace(fakeFile, "published = 38.94", "at_least = 1_000", 1)
	out := t.TempDir()
	code, stdout, stderr := runFile(t, background, file, &fake{}, "-out", out)
	if code != 1 || !strings.Contains(stderr, `claim "gain" failed`) || !strings.Contains(stdout, "failed") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if !strings.Contains(tree(t, out)["fake/claims.csv"], ",failed,") {
		t.Error("claims.csv does not have it")
	}
	file = strings.Replace(fakeFile, "published = 38.94", "at_least = -1_000", 1)
	if code, _, stderr := runFile(t, background, file, &fake{}, "-out", out); code != 0 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr strings.Builder
	if code := run(background, []string{"-help"}, &stdout, &stderr, &fake{}, noCode); code != 0 || !strings.Contains(stderr.String(), "-parallel") {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
	if code := run(background, nil, &stdout, &stderr, &fake{}, noCode); code != 2 {
		t.Errorf("exit code %d without a file", code)
	}
	if code := run(background, []string{"none.toml"}, &stdout, &stderr, &fake{}, noCode); code != 2 || !strings.Contains(stderr.String(), "none.toml: no such file") {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}
