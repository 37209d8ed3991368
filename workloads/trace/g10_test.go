package trace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
)

// Times measured with page faults lie beside the kernel times.
func TestFaultingTimes(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/g10")); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "traces", "Small")
	text, err := os.ReadFile(filepath.Join(folder, "cudnn64.txt"))
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Count(string(text), "\n")
	write := func(suffix string, n, ms int) {
		var s strings.Builder
		for k := range n {
			fmt.Fprintf(&s, "%04d %d.5 ms\n", k, ms+k)
		}
		if err := os.WriteFile(filepath.Join(folder, "cudnn64"+suffix+".txt"), []byte(s.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("InputPF", n, 100)
	write("PF", n, 200)
	w, _ := open(t, filepath.Join(folder, "cudnn64.txt"), trace.Options{})
	p, err := w.Program(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	k := 0
	for i := range p.Instrs {
		if in := &p.Instrs[i]; in.Kind == workloads.Op {
			ms := sim.Time(k) * sim.Millisecond
			if got, want := p.Kernels[in.Kernel].Faulting, [2]sim.Time{100500*sim.Microsecond + ms, 200500*sim.Microsecond + ms}; got != want {
				t.Errorf("kernel %d: %v, want %v", k, got, want)
			}
			k++
		}
	}
	write("PF", n-1, 200)
	if _, _, err := trace.Open(filepath.Join(folder, "cudnn64.txt"), trace.Options{}); err == nil || !strings.Contains(err.Error(), "cudnn64PF.txt: 18 kernel times, but the network has 19 kernels") {
		t.Errorf("a file that is too short: %v", err)
	}
}
