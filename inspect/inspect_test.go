package inspect

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/eager/alloc"
	"smartswap/eager/eagertest"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// The summary of random programs agrees with one that looks at one storage at a
// time.
func TestSummarize(t *testing.T) {
	idle := 0
	rapid.Check(t, func(t *rapid.T) {
		j := eagertest.DrawJob(t, 2, sim.KiB)
		for r := range j.Ranks() {
			p, err := j.Program(r, 0)
			if err != nil {
				t.Fatal(err)
			}
			s := summarize(p)
			if want := workloads.PeakLive(p, 1); s.Peak != want {
				t.Fatalf("peak %d, want %d", s.Peak, want)
			}
			if s.Ops != int(p.Ops) || s.Storages != len(p.Storages)-int(p.Residents) || len(s.Lives) != s.Storages {
				t.Fatalf("%+v", s)
			}
			var bytes sim.Bytes
			for i, l := range s.Lives {
				bytes += l.Bytes
				if want := naiveLife(p, l.Storage); l != want {
					t.Fatalf("%+v, want %+v", l, want)
				}
				if l.Idle > 0 {
					idle++
				}
				if i > 0 {
					if b := s.Lives[i-1]; int64(b.Bytes)*int64(b.Alive()) < int64(l.Bytes)*int64(l.Alive()) {
						t.Fatalf("%+v before %+v", b, l)
					}
				}
			}
			if bytes != s.Bytes {
				t.Fatalf("lives of %d bytes, storages of %d", bytes, s.Bytes)
			}
		}
	})
	if idle == 0 {
		t.Error("no storage was ever idle")
	}
}

// naiveLife walks through the whole program for one storage.
func naiveLife(p *workloads.Program, id workloads.StorageID) life {
	l := life{Storage: id, Bytes: p.Storages[id].Bytes}
	var uses []int
	refs, op := 1, 0
	for _, in := range p.Instrs {
		switch {
		case in.Kind == workloads.Op:
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if a.Storage == id {
					uses = append(uses, op)
				}
			}
			op++
		case in.Kind == workloads.Ref && in.A == int32(id):
			refs++
		case in.Kind == workloads.Drop && in.A == int32(id):
			if refs--; refs == 0 {
				l.Freed = op
			}
		}
	}
	l.Born, l.last = uses[0], uses[len(uses)-1]
	for i, u := range append(uses[1:], l.Freed) {
		l.Idle = max(l.Idle, u-uses[i]-1)
	}
	return l
}

// Times count what was recorded, and only that.
func TestSummarizeTimes(t *testing.T) {
	names := workloads.NewNames()
	b := workloads.NewBuilder(names, []workloads.Storage{{Bytes: sim.MiB}})
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	op := func(k hw.Work, host sim.Time) {
		b.Op(workloads.OpSpec{Name: names.ID("op"), Kernel: workloads.Kernel{Work: k}, Host: host, Scratch: sim.KiB}, workloads.InPlace(0))
	}
	op(hw.Work{Kind: hw.Measured, Time: 5}, 0)
	op(hw.Work{Kind: hw.Measured, Time: 7}, 11)
	op(hw.Work{Kind: hw.Modelled, Flops: 100}, 13)
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	p, err := b.Program("train")
	if err != nil {
		t.Fatal(err)
	}
	s := summarize(p)
	if s.Ops != 3 || s.Kernels != 3 || s.Measured != 2 || s.DeviceTime != 12 || s.HostOps != 2 || s.HostTime != 24 || s.LongestHost != 13 || s.Scratch != sim.KiB || s.Peak != sim.MiB+sim.KiB {
		t.Errorf("%+v", s)
	}
}

func TestSetOption(t *testing.T) {
	keys := optionKeys()
	o := alloc.DefaultOptions()
	for _, set := range []string{"dialect=torch_npu", "max_split_size_mb = 200", "roundup_power2_divisions=64:8,>:1", "per_process_memory_fraction=0.5", "event_policy=\"query-lazy\""} {
		if err := setOption(&o, set, keys); err != nil {
			t.Error(err)
		}
	}
	want := alloc.DefaultOptions()
	want.Dialect, want.MaxSplitSizeMB, want.RoundupPower2Divisions, want.PerProcessMemoryFraction, want.EventPolicy = "torch_npu", 200, "64:8,>:1", 0.5, "query-lazy"
	if o != want {
		t.Errorf("got %+v, want %+v", o, want)
	}
	for value, want := range map[string]alloc.Divisions{"4": "4", "": "", "[256:1,512:2,>:4]": "[256:1,512:2,>:4]", `"8"`: "8"} {
		if err := setOption(&o, "roundup_power2_divisions="+value, keys); err != nil || o.RoundupPower2Divisions != want {
			t.Errorf("%s: %q, %v", value, o.RoundupPower2Divisions, err)
		}
	}
	for set, part := range map[string]string{
		"memory_fraction=0.5":    "unknown key",
		"dialect":                "-set \"dialect\": want key=value on one line",
		"dialekt=x":              "unknown key; nearest is dialect, allowed: backend",
		"max_split_size_mb=much": "-set max_split_size_mb=much: ",
		"max_split_size_mb=1.5":  "-set max_split_size_mb=1.5: ",
		"per_process_memory_fraction=0.5\nbackend = \"bytes\"": "want key=value on one line",
	} {
		before := o
		err := setOption(&o, set, keys)
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n\n") {
			t.Errorf("%q: %v", set, err)
		}
		if o.Backend != before.Backend {
			t.Errorf("%q changed another key", set)
		}
	}
}

// An interruption is neither a result nor a mistake in the input.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	code := Main(ctx, []string{"snapshot", filepath.Join("..", "formats", "snapshot", "testdata", "old.pickle")}, &out, &errs)
	if code != exitFailed || errs.String() != "trace snapshot: interrupted\n" {
		t.Errorf("code %d: %s", code, errs.String())
	}
}

// A device that the file says nothing of is named once.
func TestDeviceWithoutHistory(t *testing.T) {
	file := filepath.Join("..", "formats", "snapshot", "testdata", "midrun.pickle")
	var out, errs bytes.Buffer
	code := Main(context.Background(), []string{"snapshot", "-device", "5", file}, &out, &errs)
	if want := "trace snapshot: " + file + ": device 5: no segments and no events\n"; code != exitInput || errs.String() != want {
		t.Errorf("code %d: %q, want %q", code, errs.String(), want)
	}
}

// Files that are no snapshots end with one line and code 2, whatever they are.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"file: the file is empty": "", "half packed": "\x1f\x8b\x08", "text": "hello", "runs code": "\x80\x04cos\nsystem\n.",
		"file: is no snapshot: a page of a memory viewer; export": "\n<html>", "file: is no snapshot but a recorded workload (chrome); trace info reads it": "{\"traceEvents\": []}",
		"file: is no snapshot: an experiment; cmd": "[workload]\n",
	} {
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := Main(context.Background(), []string{"snapshot", file}, &out, &errs); code != exitInput || out.Len() > 0 ||
			strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), file) || strings.HasPrefix(name, "file: ") && !strings.Contains(errs.String(), name) {
			t.Errorf("%s: code %d, %q %q", name, code, out.String(), errs.String())
		}
	}
}

// Times have at most three decimals, rounded, in the unit that they reach.
func TestBrief(t *testing.T) {
	for _, c := range []struct {
		time sim.Time
		want string
	}{
		{0, "0s"}, {7, "7ps"}, {1_234, "1.234ns"}, {1_500_000, "1.5us"},
		{810_019_440_002_000, "810.019s"}, {810_019_440_002, "810.019ms"}, {651_464_360_000, "651.464ms"}, {651_464_500_000, "651.465ms"},
		{999_999_500, "1ms"}, {999_999_499, "999.999us"}, {60_000_000_000_499, "60s"},
	} {
		if got := brief(c.time); got != c.want {
			t.Errorf("%d ps: %s, want %s", int64(c.time), got, c.want)
		}
	}
}
