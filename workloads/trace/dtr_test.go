package trace_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"smartswap/formats/formatstest"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
	"smartswap/workloads/workloadstest"
)

const smallDTR = "../../formats/dtr/testdata/small.log"

func TestSmallDTR(t *testing.T) {
	w, rep := open(t, smallDTR, trace.Options{})
	p := program(t, w)
	// mm, t, relu_, max, mm_backward and the outputs; a, relu_'s, m, unused, g.
	if p.Ops != 6 || p.Residents != 2 || len(p.Storages) != 2+5 || w.Name() != "small" {
		t.Errorf("%d operators, %d residents, %d storages, %q", p.Ops, p.Residents, len(p.Storages), w.Name())
	}
	if got := busy(p); got != 7200*sim.Nanosecond {
		t.Errorf("%d ps", got)
	}
	// At mm_backward: constants, a (held as "saved"), relu_'s, m, unused, g.
	if peak := workloads.PeakLive(p, 1); peak != 5120+8192+8192+512+256+4096 {
		t.Errorf("peak %d", peak)
	}
	// a, and m through mm_backward; relu_'s result is not used after BACKWARD.
	if count(p, workloads.Save) != 2 || count(p, workloads.Unpack) != 2 {
		t.Errorf("%d saved, %d unpacked", count(p, workloads.Save), count(p, workloads.Unpack))
	}
	var views []workloads.Arg
	for _, in := range p.Instrs {
		for _, a := range p.Args[in.ArgLo:in.ArgHi] {
			if a.View != 0 {
				views = append(views, a)
			}
		}
	}
	if fmt.Sprint(views) != "[{2 1 0} {2 1 0}]" { // made by t, read by relu_
		t.Errorf("views %v", views)
	}
	if !strings.Contains(fmt.Sprint(rep.Notes), "skipped: 1 releases of names that nothing has") {
		t.Errorf("%v", rep.Notes)
	}
	workloadstest.Conformance(t, 2, func() workloads.Workload {
		w, _ := open(t, smallDTR, trace.Options{})
		return w
	})
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.log")
	write(t, bad, `{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}`+"\n"+`{"INSTRUCTION":"MUTATE","NAME":"f","ARGS":["x"],"MUTATE":[0],"TIME":"1"}`)
	if _, _, err := trace.Open(bad, trace.Options{}); err == nil || !strings.Contains(err.Error(), `bad.log:2: f uses "x", which is not the name of a tensor`) {
		t.Errorf("error %v", err)
	}
}

// The published logs: their times, and a peak of live bytes that a walk over the
// raw lines gives too.
func TestRealDTR(t *testing.T) {
	for name, ns := range map[string]sim.Time{"inceptionv4": 636429561, "lstm": 769458833, "resnet32": 291905487, "tv_densenet121": 355299140, "unet": 435278292} {
		path := formatstest.Shared(t, "dtr", "logs", name+".log.gz")
		w, _ := open(t, path, trace.Options{})
		p := program(t, w)
		if got := busy(p); got != ns*sim.Nanosecond {
			t.Errorf("%s: %d ps", name, got)
		}
		if got, want := int64(workloads.PeakLive(p, 1)), naivePeak(t, path); got != want {
			t.Errorf("%s: peak %d; want %d", name, got, want)
		}
	}
}

// naivePeak counts live bytes with garbage collection in place of reference
// counts: after each line, what some name reaches is alive. Constants live from
// the start.
func naivePeak(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	type line struct {
		INSTRUCTION, NAME, DST, SRC, MEMORY, ALIAS string
		ARGS, RESULT                               []string
		MUTATE                                     json.RawMessage
	}
	size := map[int]int64{}    // of storages
	names := map[string]int{}  // storage of each name
	users := map[int]int{}     // names of each storage
	constant := map[int]bool{} // storages
	var live, peak, constants int64
	next := 0
	set := func(name string, s int) {
		old, had := names[name]
		names[name] = s
		users[s]++
		if had {
			users[old]--
			if users[old] == 0 && !constant[old] {
				live -= size[old]
			}
		}
	}
	fresh := func(bytes int64) int {
		next++
		size[next] = bytes
		live += bytes
		return next
	}
	var call line
	d := json.NewDecoder(z)
	for d.More() {
		var l line
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		switch l.INSTRUCTION {
		case "CONSTANT":
			s := fresh(0)
			constant[s] = true
			set(l.NAME, s)
			call = line{}
		case "CALL":
			call = l
			for _, r := range l.RESULT {
				set(r, fresh(0))
			}
		case "MEMORY":
			b, _ := strconv.ParseInt(l.MEMORY, 10, 64)
			s := names[l.NAME]
			if constant[s] {
				constants += b
				size[s] = b
				continue
			}
			size[s] += b
			live += b
		case "ALIAS":
			if k, _ := strconv.Atoi(l.ALIAS); k >= 0 {
				s := names[l.NAME]
				live -= size[s]
				size[s] = 0
				set(l.NAME, names[call.ARGS[k]])
			}
		case "MUTATE":
			var at []int
			if err := json.Unmarshal(l.MUTATE, &at); err != nil {
				t.Fatal(err)
			}
			var made []int
			for _, k := range at {
				made = append(made, fresh(size[names[l.ARGS[k]]]))
			}
			peak = max(peak, live)
			for i, k := range at {
				set(l.ARGS[k], made[i])
			}
		case "COPY", "COPY_FROM":
			set(l.DST, names[l.SRC])
		case "RELEASE":
			// Only now are the sizes of an earlier call's results complete.
			peak = max(peak, live)
			if s, ok := names[l.NAME]; ok {
				delete(names, l.NAME)
				users[s]--
				if users[s] == 0 && !constant[s] {
					live -= size[s]
				}
			}
		}
	}
	return max(peak, live) + constants
}

// busy is the sum of all kernel times.
func busy(p *workloads.Program) (sum sim.Time) {
	for _, in := range p.Instrs {
		if in.Kind == workloads.Op && in.Kernel >= 0 {
			sum += p.Kernels[in.Kernel].Time
		}
	}
	return sum
}

// A name that is copied onto itself keeps its tensor, also if it is the last one;
// a tensor of 0 bytes is one.
func TestCopyOntoItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "self.log")
	write(t, path, strings.Join([]string{
		`{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}`,
		`{"INSTRUCTION":"CALL","NAME":"f","ARGS":[],"RESULT":["x"],"TIME":"1"}`,
		`{"INSTRUCTION":"MEMORY","NAME":"x","MEMORY":"0"}`,
		`{"INSTRUCTION":"ALIAS","NAME":"x","ALIAS":"-1"}`,
		`{"INSTRUCTION":"COPY_FROM","DST":"x","SRC":"x"}`,
		`{"INSTRUCTION":"CALL","NAME":"g","ARGS":["x"],"RESULT":["y"],"TIME":"1"}`,
		`{"INSTRUCTION":"MEMORY","NAME":"y","MEMORY":"8"}`,
		`{"INSTRUCTION":"ALIAS","NAME":"y","ALIAS":"-1"}`,
	}, "\n"))
	w, _ := open(t, path, trace.Options{})
	if p := program(t, w); p.Ops != 3 || p.Storages[0].Bytes != 0 || workloads.PeakLive(p, 1) != 8 {
		t.Errorf("%d operators, %d bytes, peak %d", p.Ops, p.Storages[0].Bytes, workloads.PeakLive(p, 1))
	}
}
