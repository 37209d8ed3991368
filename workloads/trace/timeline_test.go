package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/workloadstest"
)

// drawTimeline makes recordings with ties: few instants, many events.
func drawTimeline(t *rapid.T) *timeline {
	instant := rapid.SampledFrom([]int64{1000, 1001, 1005, 1010, 1015, 1020, 1025, 1030, 1040})
	tl := &timeline{file: "f", base: sim.Bytes(rapid.Int64Range(0, 3).Draw(t, "base"))}
	for range rapid.SampledFrom([]int{1, 2, 6, 10, 14}).Draw(t, "kernels") {
		k := tlKernel{name: "k", lane: workloads.Lane(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "lane")), at: instant.Draw(t, "at")}
		k.backward = k.at > 1010 && k.at < 1040
		k.start = k.at + rapid.Int64Range(0, 10).Draw(t, "delay")
		k.time = sim.Time(rapid.Int64Range(0, 20).Draw(t, "time")) * sim.Nanosecond
		tl.kernels = append(tl.kernels, k)
	}
	for range rapid.SampledFrom([]int{0, 1, 6, 10, 14}).Draw(t, "tensors") {
		v := tlTensor{name: "a", bytes: sim.Bytes(rapid.Int64Range(1, 9).Draw(t, "bytes")), born: instant.Draw(t, "born"), freed: never}
		if rapid.Bool().Draw(t, "freed") {
			v.freed = v.born + rapid.SampledFrom([]int64{0, 1, 5, 20, 30, 35}).Draw(t, "life")
		}
		tl.tensors = append(tl.tensors, v)
	}
	for range rapid.IntRange(0, 2).Draw(t, "waits") {
		tl.waits = append(tl.waits, tlWait{instant.Draw(t, "wait"), rapid.Int64Range(0, 5).Draw(t, "waited")})
	}
	slices.SortStableFunc(tl.tensors, func(a, b tlTensor) int { return cmp.Compare(a.born, b.born) })
	return tl
}

// naivePeak is the largest sum of bytes at any instant: at each, releases of
// what was there before come first, then allocations one by one.
func naivePeak(tl *timeline) sim.Bytes {
	peak := tl.base
	for _, at := range tl.tensors {
		live := tl.base
		for _, v := range tl.tensors {
			switch {
			case v.born == at.born && v.freed == at.born:
				live += v.bytes // they are released after all are born
			case v.born <= at.born && v.freed > at.born:
				live += v.bytes
			}
		}
		peak = max(peak, live)
	}
	return peak
}

// Any recording becomes a valid program without races, with its own peak, all
// its kernels on their lanes and no time lost.
func TestTimelines(t *testing.T) {
	saved, waits := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		tl := drawTimeline(t)
		want := naivePeak(tl)
		kernels, busy := len(tl.kernels), sim.Time(0)
		for _, k := range tl.kernels {
			busy += k.time
		}
		var rep Report
		tr, err := tl.program(&rep, "w", rapid.Bool().Draw(t, "gaps"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := tr.Program(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := workloadstest.Races(p); err != nil {
			t.Fatal(err)
		}
		if got := workloads.PeakLive(p, 1); got != want {
			t.Fatalf("peak %d; want %d", got, want)
		}
		for _, in := range p.Instrs {
			switch {
			case in.Kind == workloads.Op && in.Kernel >= 0:
				kernels--
				busy -= p.Kernels[in.Kernel].Time
			case in.Kind == workloads.Save:
				saved++
			case in.Kind == workloads.Wait:
				waits++
			}
		}
		if kernels != 0 || busy != 0 {
			t.Fatalf("%d kernels and %d ps are missing", kernels, busy)
		}
	})
	if !testing.Short() && (saved < 3 || waits < 50) {
		t.Errorf("the cases are too tame: %d saved, %d waits", saved, waits)
	}
}

// A recording whose releases were lost in part gets its totals back. The
// difference shows one total late, so the last ones do not count.
func TestReconcile(t *testing.T) {
	repaired := 0
	rapid.Check(t, func(t *rapid.T) {
		// Events at distinct instants, with the totals that an allocator would
		// have told.
		before := sim.Bytes(rapid.Int64Range(0, 50).Draw(t, "before"))
		total := before
		var truth []tlTensor
		var totals []tlTotal
		var live []int
		at := int64(1000)
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			at += 10
			if len(live) > 0 && rapid.Bool().Draw(t, "release") {
				k := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				truth[live[k]].freed = at
				total -= truth[live[k]].bytes
				live = slices.Delete(live, k, k+1)
			} else {
				live = append(live, len(truth))
				truth = append(truth, tlTensor{name: "a", bytes: sim.Bytes(rapid.Int64Range(1, 9).Draw(t, "bytes")), born: at, freed: never})
				total += truth[len(truth)-1].bytes
			}
			totals = append(totals, tlTotal{at, total})
		}
		tl := &timeline{file: "f"}
		lost := false
		for _, v := range truth {
			if v.freed != never && rapid.IntRange(0, 3).Draw(t, "lose") == 0 {
				v.freed = never
				lost = true
			}
			tl.tensors = append(tl.tensors, v)
		}
		var rep Report
		tl.reconcile(&rep, "f", totals)
		if !lost && (len(rep.list.All()) != 0 || tl.base != before || len(tl.tensors) != len(truth)) {
			t.Fatalf("nothing was lost, but %v", rep.list.All())
		}
		if lost {
			repaired++
		}
		for i, v := range tl.tensors {
			if v.freed < v.born || i > 0 && v.born < tl.tensors[i-1].born || v.bytes <= 0 {
				t.Fatalf("tensor %+v", v)
			}
		}
		// After each total that the next one confirms, the sum is the total's.
		sum := func(at int64) sim.Bytes {
			n := tl.base
			for _, v := range tl.tensors {
				if v.born <= at && v.freed > at {
					n += v.bytes
				}
			}
			return n
		}
		if n := len(totals); !lost && sum(totals[n-1].at) != totals[n-1].bytes {
			t.Fatalf("sum %d; total %d", sum(totals[n-1].at), totals[n-1].bytes)
		}
		if tl.base < 0 || tl.base > before {
			t.Fatalf("base %d of %d", tl.base, before)
		}
	})
	if repaired < 30 && !testing.Short() {
		t.Errorf("only %d cases lost a release", repaired)
	}
}

// One lost release, by hand: it is put between the total that first lacks it and
// the next.
func TestReconcileByHand(t *testing.T) {
	tl := &timeline{file: "f", tensors: []tlTensor{{name: "a", bytes: 4, born: 10, freed: never}, {name: "b", bytes: 8, born: 20, freed: never}, {name: "c", bytes: 7, born: 40, freed: never}}}
	var rep Report
	// a is gone by 30, and so are 3 of the 5 bytes from before by 60.
	tl.reconcile(&rep, "f", []tlTotal{{10, 9}, {20, 17}, {30, 13}, {40, 20}, {50, 20}, {60, 17}, {70, 17}})
	if tl.base != 2 || len(tl.tensors) != 4 {
		t.Errorf("base %d, %+v", tl.base, tl.tensors)
	}
	for _, v := range tl.tensors {
		switch v.name {
		case "a":
			if v.freed <= 20 || v.freed > 40 {
				t.Errorf("%+v", v)
			}
		case "allocated before the recording":
			if v.bytes != 3 || v.born > 10 || v.freed <= 50 || v.freed > 70 {
				t.Errorf("%+v", v)
			}
		}
	}
	for _, want := range []string{"1 releases that the recording lost, 4 bytes", "3 bytes of what was allocated before"} {
		if !strings.Contains(fmt.Sprint(rep.list.All()), want) {
			t.Errorf("no note %q in %v", want, rep.list.All())
		}
	}
}

func TestBounds(t *testing.T) {
	kernel := tlKernel{name: "k", at: 5, start: 5, time: 1}
	for name, c := range map[string]struct {
		t    timeline
		want string
	}{
		"no work":   {timeline{}, "no device work"},
		"only long": {timeline{kernels: []tlKernel{{time: maxKernelTime + 1}}}, "no device work"},
		"bytes":     {timeline{kernels: []tlKernel{kernel}, tensors: slices.Repeat([]tlTensor{{bytes: maxTotalBytes / 2}}, 3)}, "more than 2^60 bytes"},
		"time":      {timeline{kernels: slices.Repeat([]tlKernel{{name: "k", time: maxKernelTime}}, 40000)}, "more than 10^6 s"},
		"span":      {timeline{kernels: wide(40000)}, "spans more than 10^6 s"},
	} {
		c.t.file = "f"
		_, err := c.t.program(&Report{}, "w", true)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
}

// wide are kernels just under the longest gap apart.
func wide(n int) (all []tlKernel) {
	for i := range int64(n) {
		all = append(all, tlKernel{name: "k", at: i * (maxGap - 1), start: i * (maxGap - 1)})
	}
	return all
}
