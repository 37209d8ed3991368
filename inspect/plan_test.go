package inspect

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// traceCommand runs the command and returns what it printed.
func traceCommand(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := Main(context.Background(), args, &out, &errs); code != want {
		t.Fatalf("trace %s: code %d, want %d: %s%s", strings.Join(args, " "), code, want, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// TestPlan goes the whole way: the synthetic iteration as a file, read again,
// run, profiled and planned for, against results of the shipped planner.
func TestPlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "layered.trace")
	if out, _ := traceCommand(t, exitDone, "layered", file); !strings.HasSuffix(out, ": 123 operators\n") {
		t.Errorf("wrote %q", out)
	}
	out, _ := traceCommand(t, exitDone, "plan", "-policy", "smartswap", "-preset", "faithful-v1", "-layers", "12", "-set", "reduction_bytes=536870912", file)
	want := []string{
		"peak 14201 MiB, target 13689 MiB (reached), 16 operators above it; 6 swaps of 597 MiB together in 1 rounds",
		"qkv1 #3 101711872 3 F1.1 118 B1.11 F1.5 O0.0 2.397677 no",
		"qkv2 #7 102760448 8 F1.2 113 B1.10 F1.6 B1.12 2.413532 no",
		"qkv3 #11 103809024 13 F1.3 108 B1.9 F1.7 B1.11 2.429279 no",
		"qkv4 #15 104857600 18 F1.4 103 B1.8 F1.8 B1.10 2.444920 no",
		"qkv5 #19 105906176 23 F1.5 98 B1.7 F1.9 B1.9 2.460458 no",
		"qkv6 #23 106954752 28 F1.6 93 B1.6 F1.10 B1.8 2.475893 no",
	}
	var got []string
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if i != 1 { // the head of the table
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	traceCommand(t, exitDone, "layered", "-layers", "4", "-micro-batches", "2", file)
	if out, _ := traceCommand(t, exitDone, "plan", "-preset", "faithful-v2", file); !strings.Contains(out, "; 24 swaps of 1872 MiB together") {
		t.Errorf("two micro-batches of four layers:\n%s", out)
	}
}

func TestPlanRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "layered.trace")
	traceCommand(t, exitDone, "layered", "-layers", "1", file)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"plan", "-policy", "lru", file}, "allowed: smartswap"},
		{[]string{"plan", "-preset", "faithful", file}, "faithful-v1"},
		{[]string{"plan", "-set", "windows=3", file}, "nearest is window"},
		{[]string{"plan", "-set", "window", file}, "want key=value"},
		{[]string{"plan", "-rank", "1", file}, "ranks 0 to 0"},
		{[]string{"plan", "-iteration", "1", file}, "iterations 0 to 0"},
		{[]string{"plan", "-node", "910b", file}, `-node: unknown node "910b"`},
		{[]string{"plan", "-layers", "-1", file}, "want 0 or more"},
		{[]string{"layered", "-layers", "0", file}, "allowed: 1 to 1000"},
		{[]string{"layered", "-op", "2m", file}, "allowed: 0 to 1m"},
	} {
		if _, errs := traceCommand(t, exitInput, c.args...); !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: %q, want one line with %q", c.args, errs, c.want)
		}
	}
}
