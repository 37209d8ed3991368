package trace_test

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"smartswap/formats/chrome"
	"smartswap/formats/formatstest"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
	"smartswap/workloads/workloadstest"
)

const smallKineto = "../../formats/chrome/testdata/kineto.json"

func TestSmallKineto(t *testing.T) {
	w, rep := open(t, smallKineto, trace.Options{})
	p := program(t, w)
	// Two kernels and a copy, one allocation; 1,024 bytes were there before.
	if p.Ops != 4 || len(p.Storages) != 2 || p.Residents != 1 || p.Storages[0].Bytes != 1024 || p.Storages[1].Bytes != 1024 {
		t.Errorf("%d operators, %+v", p.Ops, p.Storages)
	}
	var names []string
	for _, in := range p.Instrs {
		if in.Kind == workloads.Op {
			names = append(names, p.Names.String(in.Name))
		}
	}
	if fmt.Sprint(names) != "[aten::mm aten::mm gemm_backward Memcpy DtoH]" { // the allocation, then the kernel
		t.Errorf("%q", names)
	}
	if got := busy(p); got != 55_001*sim.Nanosecond {
		t.Errorf("busy %d ps", got)
	}
	if peak := workloads.PeakLive(p, 1); peak != 2048 {
		t.Errorf("peak %d", peak)
	}
	if count(p, workloads.Save) != 1 || count(p, workloads.Unpack) != 1 {
		t.Error("the tensor is used by the forward and the backward kernel")
	}
	for _, want := range []string{"1 of 3 kernels", "overlap the one ahead"} {
		if got := strings.Contains(fmt.Sprint(rep.Notes), want); got != (want == "1 of 3 kernels") {
			t.Errorf("note %q: %v in %v", want, got, rep.Notes)
		}
	}
	step, _ := open(t, smallKineto, trace.Options{Step: "3"})
	if native1(t, step) == "" || step.Name() != "kineto/step3" {
		t.Error(step.Name())
	}
	if _, _, err := trace.Open(smallKineto, trace.Options{Step: "4"}); err == nil || !strings.Contains(err.Error(), "step \"4\"; allowed: 3") {
		t.Errorf("error %v", err)
	}
	workloadstest.Conformance(t, 2, func() workloads.Workload {
		w, _ := open(t, smallKineto, trace.Options{})
		return w
	})
}

// Metadata may fill pages before the first sign of the format.
func TestLongHeader(t *testing.T) {
	text, err := os.ReadFile(smallKineto)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "long.json")
	write(t, path, strings.Replace(string(text), "{", `{"metadata": "`+strings.Repeat("x", 1<<17)+`",`, 1))
	if w, rep := open(t, path, trace.Options{}); rep.Format != "chrome" || program(t, w).Ops != 4 {
		t.Errorf("format %s", rep.Format)
	}
	write(t, path, `{"metadata": "`+strings.Repeat("x", 1<<17)+`"}`)
	if _, _, err := trace.Open(path, trace.Options{}); err == nil || !strings.Contains(err.Error(), "it is no trace") {
		t.Errorf("error %v", err)
	}
}

// A packed trace that was cut off is refused, with the file.
func TestCutArchive(t *testing.T) {
	packed := filepath.Join(t.TempDir(), "cut.json.gz")
	pack(t, smallKineto, packed)
	text, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{5, 15, 200, len(text) - 20} {
		write(t, packed, string(text[:n]))
		_, _, err := trace.Open(packed, trace.Options{})
		if err == nil || !strings.Contains(err.Error(), "cut.json.gz") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d bytes: error %v", n, err)
		}
	}
}

// Every real trace: the number of kernels, copies and fills, and the peak that
// the allocator recorded.
func TestRealKineto(t *testing.T) {
	rows, err := csv.NewReader(formatstest.Open(t, "kineto", "expected.csv")).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	opened, refused, spans := 0, 0, 0
	for _, row := range rows[1:] {
		cell := map[string]string{}
		for i, name := range rows[0] {
			cell[name] = row[i]
		}
		number := func(name string) int {
			n, _ := strconv.Atoi(cell[name])
			return n
		}
		if number("bytes") > 30_000_000 && testing.Short() {
			continue
		}
		w, rep, err := trace.Open(formatstest.Shared(t, "kineto", cell["file"]), trace.Options{})
		want := number("kernels") + number("memcpy") + number("memset")
		if want == 0 && !strings.Contains(cell["file"], "mtia") {
			refused++
			if err == nil || !strings.Contains(err.Error(), "no device work") && !strings.Contains(err.Error(), "is it a memory timeline") {
				t.Errorf("%s: error %v", cell["file"], err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		opened++
		p := program(t, w)
		got, collectives := 0, 0
		for _, in := range p.Instrs {
			if in.Kind == workloads.Op && in.Kernel >= 0 {
				got++
				if in.Lane != workloads.Compute {
					collectives++
				}
			}
		}
		if collectives == 0 && cell["device_busy_us"] != "" && rep.Streams[0].Pauses == 0 {
			_, busy, _ := strings.Cut(cell["device_busy_us"], "=")
			if s := &rep.Streams[0]; !micros(t, busy, s.Busy) || !micros(t, cell["device_span_us"], s.Span) {
				t.Errorf("%s: busy %v of %v; want %s of %s us", cell["file"], s.Busy, s.Span, busy, cell["device_span_us"])
			}
			spans++
		}
		skipped := 0
		for _, n := range rep.Notes {
			if n.Kind == trace.Skipped {
				if m, err := strconv.Atoi(strings.Fields(n.What)[0]); err == nil {
					skipped += m
				}
			}
		}
		if got+skipped != want && want > 0 {
			t.Errorf("%s: %d kernels, %d skipped; want %d\n%v", cell["file"], got, skipped, want, rep.Notes)
		}
		if err := workloadstest.Races(p); err != nil {
			t.Errorf("%s: %v", cell["file"], err)
		}
		if cell["peak_total_allocated"] != "" {
			if peak := workloads.PeakLive(p, 1); fmt.Sprint(int64(peak)) != cell["peak_total_allocated"] {
				t.Errorf("%s: peak %d; want %s\n%v", cell["file"], peak, cell["peak_total_allocated"], rep.Notes)
			}
		}
		if len(p.Storages) > 0 {
			got, want := levels(p), recorded(t, cell["file"])
			if cell["peak_total_allocated"] == "" {
				want = got // no totals to compare with
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: the memory curve has %d levels; the file's own has %d", cell["file"], len(got), len(want))
			}
		}
	}
	t.Log(opened, "opened", refused, "refused")
	if opened < 20 || refused < 4 || spans < 15 {
		t.Errorf("%d opened, %d refused, %d with device time", opened, refused, spans)
	}
}

// micros says whether text is so many microseconds, to the nanosecond.
func micros(t *testing.T, text string, got sim.Time) bool {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return math.Round(v*1000) == math.Round(float64(got)/float64(sim.Nanosecond))
}

// levels are the live bytes after each allocation of the program that the file
// records.
func levels(p *workloads.Program) (all []int64) {
	refs := make([]int, len(p.Storages))
	live := int64(0)
	for i, s := range p.Storages[:p.Residents] {
		refs[i] = 1
		live += int64(s.Bytes)
	}
	for _, in := range p.Instrs {
		switch in.Kind {
		case workloads.Op:
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if refs[a.Storage] == 0 {
					refs[a.Storage] = 1
					live += int64(p.Storages[a.Storage].Bytes)
					if p.Names.String(in.Name) != "allocated before the recording" {
						all = append(all, live)
					}
				}
			}
		case workloads.Ref:
			refs[in.A]++
		case workloads.Drop:
			if refs[in.A]--; refs[in.A] == 0 {
				live -= int64(p.Storages[in.A].Bytes)
			}
		}
	}
	return all
}

// recorded are the allocator's own totals after each allocation on the device.
func recorded(t *testing.T, file string) (all []int64) {
	type level struct{ at, total int64 }
	var list []level
	_, err := chrome.Read(formatstest.Open(t, "kineto", file), file, nil, func(e *chrome.Event) error {
		if e.Category == chrome.Memory && e.DeviceType == 1 && e.Bytes > 0 {
			list = append(list, level{e.Start, e.TotalAllocated})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(list, func(a, b level) int { return cmp.Compare(a.at, b.at) })
	for _, l := range list {
		all = append(all, l.total)
	}
	return all
}

// The largest real trace, from file to workload.
func BenchmarkOpenKineto(b *testing.B) {
	path := formatstest.Shared(b, "kineto", "tracelens", "h100_google_owlv2-large-patch14-ensemble__1016001.json.gz")
	b.SetBytes(55_643_189) // unpacked
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := trace.Open(path, trace.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
