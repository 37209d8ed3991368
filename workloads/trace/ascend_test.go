package trace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"smartswap/formats/formatstest"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
	"smartswap/workloads/workloadstest"
)

// smallAscend is a profile of three kernels and a collective beside them:
//
//	t = 0    10      30   40   50      100
//	compute  [ MatMul ]        [ MatMulGrad ]  [Adam]
//	comm               [ hcom_allReduce ]
//
// with a tensor from before MatMul until after MatMulGrad, one that only the
// host sees, and one that is never released.
func smallAscend(t testing.TB) string {
	dir := t.TempDir()
	out := filepath.Join(dir, "small_ascend_pt", "ASCEND_PROFILER_OUTPUT")
	write(t, filepath.Join(out, "kernel_details.csv"), `Step Id,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us)
1,2,aclnnMatmul,MatMulV2,AI_CORE,1700000000000010.000	,20
1,N/A,hcom_allReduce__1,hcom_allReduce_,COMMUNICATION,1700000000000031.000	,19
1,2,aclnnMatmulGrad,MatMulGrad,AI_CORE,1700000000000050.000	,40
1,2,aclnnAdam,ApplyAdamW,AI_VECTOR_CORE,1700000000000095.000	,5
`)
	write(t, filepath.Join(out, "operator_memory.csv"), `Name,Size(KB),Allocation Time(us),Release Time(us),Allocation Total Allocated(MB)
aten::mm,4,1700000000000005.000,1700000000000092.000,2.00390625
aten::empty,1,1700000000000006.000,1700000000000007.000,2.0048828125
aten::zeros,2,1700000000000040.000,,2.005859375
`)
	return filepath.Dir(out)
}

func TestSmallAscend(t *testing.T) {
	w, rep := open(t, smallAscend(t), trace.Options{})
	p := program(t, w)
	if p.Ops != 7 || len(p.Storages) != 4 || p.Residents != 1 || p.Storages[0].Bytes != 2*sim.MiB || !p.Storages[0].Flat {
		t.Errorf("%d operators, storages %+v", p.Ops, p.Storages)
	}
	if peak := workloads.PeakLive(p, 1); peak != 2*sim.MiB+6<<10 {
		t.Errorf("peak %d", peak)
	}
	// One tensor is made forward, held, and used by the gradient.
	if count(p, workloads.Save) != 1 || count(p, workloads.Unpack) != 1 {
		t.Error("saved tensors")
	}
	var marks []workloads.MarkKind
	for _, in := range p.Instrs {
		if in.Kind == workloads.Mark {
			marks = append(marks, in.Mark)
		}
	}
	if len(marks) != 8 || marks[3] != workloads.MarkBackwardBegin || marks[5] != workloads.MarkOptimizerBegin {
		t.Errorf("marks %v", marks)
	}
	// The collective starts after MatMul, MatMulGrad after both.
	if count(p, workloads.Record) != 2 || count(p, workloads.Wait) != 2 {
		t.Errorf("%d records, %d waits", count(p, workloads.Record), count(p, workloads.Wait))
	}
	// Replayed, the iteration takes the recorded 100 us less the 5 before the
	// first event: every start but the first is made by the host or by an order.
	if got := play(t, p); got != 95*sim.Microsecond+1 { // an operator takes 1 ps or more
		t.Errorf("replay takes %d ps", got)
	}
	w, _ = open(t, smallAscend(t), trace.Options{NoGaps: true})
	if got := play(t, program(t, w)); got < 84*sim.Microsecond || got > 85*sim.Microsecond {
		t.Errorf("replay without gaps takes %d ps", got)
	}
	for _, want := range []string{"inferred: 2097152 bytes that were allocated before", "3 tensors; 1 without", "1 tensors that live from before", "repaired: 1 tensors that the recording never releases", "when the host launched a kernel"} {
		if !strings.Contains(fmt.Sprint(rep.Notes), want) {
			t.Errorf("no note %q in %v", want, rep.Notes)
		}
	}
	if w.Name() != "small_ascend_pt" || rep.Format != "ascend" {
		t.Errorf("%s, %s", w.Name(), rep.Format)
	}
	if !rep.Has(trace.Inferred) || rep.Has(trace.Skipped) {
		t.Error("kinds of notes")
	}
	memory := filepath.Join(smallAscend(t), "ASCEND_PROFILER_OUTPUT", "operator_memory.csv")
	if _, _, err := trace.Open(memory, trace.Options{}); err == nil || !strings.Contains(err.Error(), "a memory table alone is no workload") {
		t.Errorf("error %v", err)
	}
	if err := workloadstest.Races(p); err != nil {
		t.Error(err)
	}
	workloadstest.Conformance(t, 2, func() workloads.Workload {
		w, _ := open(t, smallAscend(t), trace.Options{Step: "1"})
		return w
	})
	_, _, err := trace.Open(smallAscend(t), trace.Options{Step: "2"})
	if err == nil || !strings.Contains(err.Error(), "step \"2\"; allowed: 1") {
		t.Errorf("error %v", err)
	}
}

// play is how long the program takes on a host without costs of its own and
// with lanes as long as needed: a model of a replay in a few lines.
func play(t testing.TB, p *workloads.Program) sim.Time {
	t.Helper()
	var host sim.Time
	var lanes [workloads.NumLanes]sim.Time
	events := make([]sim.Time, p.Events)
	for _, in := range p.Instrs {
		switch in.Kind {
		case workloads.Op:
			host += in.Host
			if in.Kernel >= 0 {
				lanes[in.Lane] = max(lanes[in.Lane], host) + p.Kernels[in.Kernel].Time
			}
		case workloads.Record:
			events[in.A] = lanes[in.Lane]
		case workloads.Wait:
			lanes[in.Lane] = max(lanes[in.Lane], events[in.A])
		case workloads.Sync:
			host = max(host, lanes[in.Lane])
		}
	}
	return host
}

// The profiled step of four NPUs: the step's length, its computing time and its
// memory to the last byte, from its own kernels and allocations.
func TestAscendRank0(t *testing.T) {
	w, rep := open(t, formatstest.Shared(t, "ascend-profiler", "qwen3-0.6b-pp2-dp2-level2", "rank_0_ascend_pt"), trace.Options{})
	p := program(t, w)
	if err := workloadstest.Races(p); err != nil {
		t.Error(err)
	}
	const peak = 10_282*sim.MiB + 785_408 // 10,282.7490234375 MiB
	if got := workloads.PeakLive(p, 1); got != peak {
		t.Errorf("peak %d; want %d", got, int64(peak))
	}
	// 4,304.95703125 MiB before the step, of which the totals miss 512 bytes
	// near the end: the release of something older than the recording.
	if p.Storages[0].Bytes+512 != 4304*sim.MiB+1_003_520 {
		t.Errorf("before the step %d", p.Storages[0].Bytes)
	}
	var busy [workloads.NumLanes]sim.Time
	kernels := 0
	for _, in := range p.Instrs {
		if in.Kind == workloads.Op && in.Kernel >= 0 {
			busy[in.Lane] += p.Kernels[in.Kernel].Time
			kernels++
		}
	}
	if kernels != 2463 || p.Ops != 2463+3103+1 {
		t.Errorf("%d kernels of %d operators", kernels, p.Ops)
	}
	if busy[workloads.Compute] != 231_290_100*sim.Nanosecond || busy[workloads.Comm]+busy[workloads.CommPeer] != 420_174_260*sim.Nanosecond {
		t.Errorf("busy %v", busy)
	}
	const step = 810_022_250 * sim.Nanosecond
	if got := play(t, p); got < step*99/100 || got > step*101/100 {
		t.Errorf("replayed step %d ps; the file says %d", got, int64(step))
	} else {
		t.Logf("replayed step %d ps; the file says %d", got, int64(step))
	}
	for _, n := range rep.Notes {
		t.Log(n)
	}
}

// A profile in SQLite alone is told so.
func TestAscendSQLite(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ASCEND_PROFILER_OUTPUT", "analysis.db"), "SQLite format 3")
	for _, path := range []string{dir, filepath.Join(dir, "ASCEND_PROFILER_OUTPUT")} {
		if _, _, err := trace.Open(path, trace.Options{}); err == nil || !strings.Contains(err.Error(), "the SQLite form is not read") {
			t.Errorf("error %v", err)
		}
	}
}

func TestAscendOthers(t *testing.T) {
	const alexNetPeak = 1187*sim.MiB + 1_029_120 // 1,187.9814453125 MiB
	for path, want := range map[string]sim.Bytes{
		"alexnet-2npu/text/level0/rank0_ascend_pt": alexNetPeak, "alexnet-2npu/text/level0/rank1_ascend_pt": alexNetPeak,
		"alexnet-2npu/text/level1/rank0_ascend_pt": alexNetPeak, "alexnet-2npu/text/level1/rank1_ascend_pt": alexNetPeak,
		"fixtures/test_rank_0": 0, "fixtures/test_rank_1": -1, // a few rows of a longer table
		"fixtures/test_kernel_parse/op_summary_1.csv": 0, "mstt/test.csv": 0,
	} {
		w, _ := open(t, formatstest.Shared(t, "ascend-profiler", path), trace.Options{})
		p := program(t, w)
		if peak := workloads.PeakLive(p, 1); want >= 0 && peak != want {
			t.Errorf("%s: peak %d; want %d", path, peak, want)
		}
	}
}

// Every damaged file is refused with one line.
func TestDamaged(t *testing.T) {
	for _, dir := range []string{"zero-byte", "excel"} {
		names, err := os.ReadDir(formatstest.Shared(t, "damaged", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			_, _, err := trace.Open(formatstest.Shared(t, "damaged", dir, n.Name()), trace.Options{})
			if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), n.Name()) {
				t.Errorf("%s: error %v", n.Name(), err)
			}
			if dir == "excel" && !strings.Contains(err.Error(), "has lost digits") || dir == "zero-byte" && !strings.Contains(err.Error(), "the file is empty") {
				t.Errorf("error %v", err)
			}
		}
	}
}

// A table that is only compared with does not have to be sound; the note names it
// once, with the line.
func TestDamagedComparison(t *testing.T) {
	dir := smallAscend(t)
	table := filepath.Join(dir, "ASCEND_PROFILER_OUTPUT", "memory_record.csv")
	write(t, table, "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB)\nPTA,x,1,1\n")
	_, rep := open(t, dir, trace.Options{})
	var notes []string
	for _, n := range rep.Notes {
		if s := n.String(); strings.Contains(s, "memory_record") {
			notes = append(notes, s)
		}
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], table+":2: skipped: ") || strings.Count(notes[0], table) != 1 {
		t.Errorf("%q", notes)
	}
}
