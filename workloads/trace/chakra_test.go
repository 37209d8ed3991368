package trace_test

import (
	"fmt"
	"strings"
	"testing"

	"smartswap/formats/formatstest"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
	"smartswap/workloads/workloadstest"
)

const smallChakra = "../../formats/chakra/testdata/small.json"

// gemm, the collective after it, and after that the node that has no host flag
// and the add: one lane waits for the other both ways.
func TestSmallChakra(t *testing.T) {
	w, rep := open(t, smallChakra, trace.Options{})
	p := program(t, w)
	if got := fmt.Sprint(listing(p)); got != "[gemm ncclAllReduce aten::add(0) add]" {
		t.Error(got)
	}
	if count(p, workloads.Wait) != 2 || play(t, p) != 360_500*sim.Nanosecond || rep.Format != "chakra" {
		t.Errorf("%d waits", count(p, workloads.Wait))
	}
	// Collectives that nothing depends on are part of the iteration too.
	if n := count(p, workloads.Sync); n != 2 {
		t.Errorf("the host waits for %d lanes at the end, want 2", n)
	}
	end, err := workloadstest.Play(w, 0, func(k *workloads.Kernel) int64 { return int64(k.Time) })
	if err != nil || sim.Time(end) != 360_500*sim.Nanosecond {
		t.Errorf("takes %d ps, %v", end, err)
	}
	for _, want := range []string{"such as 3", "1 nodes that run on the host", "1 nodes without a run time", "uses no memory"} {
		if !strings.Contains(fmt.Sprint(rep.Notes), want) {
			t.Errorf("no note %q in %v", want, rep.Notes)
		}
	}
	workloadstest.Conformance(t, 2, func() workloads.Workload {
		w, _ := open(t, smallChakra, trace.Options{})
		return w
	})
}

// Both forms of the published graph are one workload but for the control
// dependencies, which the JSON form lacks.
func TestRealChakra(t *testing.T) {
	var ops [2]int32
	var times [2]sim.Time
	for i, archive := range []string{"feeder_tests_trace.tar.gz", "json_trace.tar.gz"} {
		member := []string{"", "jsonData/chakra.0.json"}[i]
		w, rep := open(t, formatstest.Shared(t, "chakra", archive), trace.Options{Member: member})
		p := program(t, w)
		ops[i], times[i] = p.Ops, busy(p)
		t.Log(archive, p.Ops, busy(p), rep.Notes)
	}
	if ops[0] != ops[1] || times[0] != times[1] || ops[0] == 0 || times[0] == 0 {
		t.Errorf("%d and %d operators, %v and %v", ops[0], ops[1], times[0], times[1])
	}
	// The side file of macOS beside it is passed over.
	if _, rep := open(t, formatstest.Shared(t, "chakra", "1.0.2-chakra.0.0.4.tgz"), trace.Options{}); rep.Format != "et" {
		t.Errorf("format %s", rep.Format)
	}
}
