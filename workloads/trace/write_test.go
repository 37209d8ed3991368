package trace

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/formats/formatstest"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// drawProgram makes programs of everything that an instruction can be, with ties
// and with names that other formats take for something else.
func drawProgram(t *rapid.T) *workloads.Program {
	names := workloads.NewNames()
	var residents []workloads.Storage
	for range rapid.IntRange(0, 2).Draw(t, "residents") {
		residents = append(residents, workloads.Storage{Bytes: sim.Bytes(rapid.Int64Range(0, 9).Draw(t, "resident"))})
	}
	b := workloads.NewBuilder(names, residents)
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	b.Mark(workloads.MarkForwardBegin, 1, 0)
	var live []workloads.StorageID
	refs := map[workloads.StorageID]int{}
	drop := func(i int) {
		if s := live[i]; refs[s] == 1 {
			live = slices.Delete(live, i, i+1)
			b.Drop(s)
		} else {
			refs[s]--
			b.Drop(s)
		}
	}
	var events []int32
	backward := false
	for i := range rapid.IntRange(1, 25).Draw(t, "steps") {
		switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
		case what == 0 && len(live) > 0:
			drop(rapid.IntRange(0, len(live)-1).Draw(t, "drop"))
		case what == 1 && len(live) > 0:
			s := rapid.SampledFrom(live).Draw(t, "ref")
			refs[s]++
			b.Ref(s)
		case what == 2:
			b.Sync(workloads.Lane(rapid.IntRange(0, 2).Draw(t, "sync")))
		case what == 3:
			events = append(events, b.Record(workloads.Lane(rapid.IntRange(0, 2).Draw(t, "recorded"))))
		case what == 4 && len(events) > 0:
			b.Wait(workloads.Lane(rapid.IntRange(0, 2).Draw(t, "waits")), rapid.SampledFrom(events).Draw(t, "event"))
		case what == 5 && !backward:
			backward = true
			b.Mark(workloads.MarkForwardEnd, 1, 0)
			b.Mark(workloads.MarkBackwardBegin, 1, 0)
		default:
			spec := workloads.OpSpec{
				Name: names.ID(rapid.SampledFrom([]string{"mm", "nccl all_reduce", "hcom_send", "MmBackward0", "Adam", "a\"b<c>\n", "ä"}).Draw(t, "name")),
				Host: sim.Time(rapid.SampledFrom([]int64{0, 1, 999, 1000, 1500, 7000}).Draw(t, "host")),
			}
			if rapid.IntRange(0, 4).Draw(t, "scratched") == 0 {
				spec.Scratch = sim.Bytes(rapid.Int64Range(1, 9).Draw(t, "scratch"))
			}
			if spec.HostOnly = i > 0 && rapid.IntRange(0, 4).Draw(t, "host only") == 0; !spec.HostOnly {
				spec.Lane = workloads.Lane(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "lane"))
				spec.Kernel.Work = hw.Work{Kind: hw.Measured, Time: sim.Time(rapid.SampledFrom([]int64{0, 1, 999, 2000, 2001, 50_000}).Draw(t, "time"))}
			}
			var args []workloads.Arg
			for range rapid.IntRange(0, 2).Draw(t, "uses") {
				if all := len(live) + len(residents); all > 0 {
					k := rapid.IntRange(0, all-1).Draw(t, "use")
					s := workloads.StorageID(k)
					if k >= len(residents) {
						s = live[k-len(residents)]
					}
					args = append(args, workloads.Arg{Storage: s, Mode: workloads.Access(rapid.IntRange(0, 2).Draw(t, "mode"))})
				}
			}
			for range rapid.IntRange(0, 2).Draw(t, "made") {
				s := b.New(workloads.Storage{Bytes: sim.Bytes(rapid.Int64Range(0, 9).Draw(t, "bytes"))})
				live, refs[s] = append(live, s), 1
				args = append(args, workloads.Out(s))
				if rapid.IntRange(0, 3).Draw(t, "twice") == 0 {
					args = append(args, workloads.Arg{Storage: s, Mode: workloads.Access(rapid.IntRange(0, 2).Draw(t, "mode again"))})
				}
			}
			b.Op(spec, args...)
		}
	}
	b.Op(workloads.OpSpec{Name: names.ID("last"), Kernel: workloads.Kernel{Work: hw.Work{Kind: hw.Measured, Time: 3000}}})
	if backward {
		b.Mark(workloads.MarkBackwardEnd, 1, 0)
	} else {
		b.Mark(workloads.MarkForwardEnd, 1, 0)
	}
	for len(live) > 0 {
		drop(0)
	}
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	p, err := b.Program("train")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// kernelsOf lists operators with device work that takes time, as each format
// can hold them.
func kernelsOf(p *workloads.Program, unit sim.Time, lanes bool) (all []string) {
	for _, in := range p.Instrs {
		if in.Kind != workloads.Op || in.Kernel < 0 || p.Kernels[in.Kernel].Time < unit {
			continue
		}
		lane := in.Lane
		if !lanes {
			lane = workloads.Compute
		}
		all = append(all, fmt.Sprint(p.Names.String(in.Name), " ", p.Kernels[in.Kernel].Time/unit, " ", lane))
	}
	return all
}

// births lists the bytes of storages, and of workspaces if they become tensors,
// in the order in which operators make them.
func births(p *workloads.Program, scratch bool, empty bool) (all []sim.Bytes) {
	born := make([]bool, len(p.Storages))
	for i := range p.Residents {
		born[i] = true
	}
	add := func(b sim.Bytes) {
		if b > 0 || empty {
			all = append(all, b)
		}
	}
	for _, in := range p.Instrs {
		if in.Kind != workloads.Op {
			continue
		}
		for _, a := range p.Args[in.ArgLo:in.ArgHi] {
			if !born[a.Storage] {
				born[a.Storage] = true
				add(p.Storages[a.Storage].Bytes)
			}
		}
		if scratch && in.Scratch > 0 {
			add(in.Scratch)
		}
	}
	return all
}

func withoutScratch(p *workloads.Program) *workloads.Program {
	q := *p
	q.Instrs = slices.Clone(p.Instrs)
	for i := range q.Instrs {
		q.Instrs[i].Scratch = 0
	}
	return &q
}

// losses are some that random programs must have had.
var losses = []string{"workspaces: they become tensors", "storages of 0 bytes", "later writes", "changes in place", "on streams of communication", "parts of a nanosecond", "waits of the host", "operators of the host"}

// There and back, a program has the same operators with the same times on the
// same lanes, the same storages and the same peak, as far as the format goes.
func TestWriteRoundTrip(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		back := roundTrip(t, dir, p, seen)
		// chrome: as launched; kernels of less than a ns take none.
		c := back["chrome"]
		if got, want := kernelsOf(c, sim.Nanosecond, true), kernelsOf(p, sim.Nanosecond, true); !slices.Equal(got, want) {
			t.Errorf("chrome: %q\nwant %q", got, want)
		}
		if got, want := births(c, false, true), births(p, true, false); !slices.Equal(got, want) {
			t.Errorf("chrome: storages of %v, want %v", got, want)
		}
		if len(births(p, true, false)) > 0 {
			if got, want := workloads.PeakLive(c, 1), workloads.PeakLive(p, 1); got != want {
				t.Errorf("chrome: peak %d, want %d", got, want)
			}
		}
		d := back["dtr"]
		if got, want := kernelsOf(d, sim.Nanosecond, false), kernelsOf(p, sim.Nanosecond, false); !slices.Equal(got, want) {
			t.Errorf("dtr: %q\nwant %q", got, want)
		}
		if got, want := births(d, false, true), births(p, false, true); !slices.Equal(got, want) {
			t.Errorf("dtr: storages of %v, want %v", got, want)
		}
		if got, want := workloads.PeakLive(d, 1), workloads.PeakLive(withoutScratch(p), 1); got != want {
			t.Errorf("dtr: peak %d, want %d", got, want)
		}
		k := back["chakra"]
		if got, want := kernelsOf(k, 1, true), kernelsOf(p, 1, true); !slices.Equal(got, want) {
			t.Errorf("chakra: %q\nwant %q", got, want)
		}
	})
	for _, what := range losses {
		if seen[what] == 0 {
			t.Errorf("nothing was ever lost of: %s", what)
		}
	}
}

// roundTrip writes and opens p in every format.
func roundTrip(t *rapid.T, dir string, p *workloads.Program, seen map[string]int) map[string]*workloads.Program {
	back := map[string]*workloads.Program{}
	for _, format := range Writers() {
		var out bytes.Buffer
		lost, err := Write(&out, format, "name", p)
		if err != nil {
			t.Fatal(format, err)
		}
		for _, l := range lost {
			for _, what := range losses {
				if l.Count > 0 && strings.Contains(l.What, what) {
					seen[what]++
				}
			}
		}
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		w, rep, err := Open(file, Options{})
		if err != nil {
			t.Fatalf("%s: %v\n%s", format, err, out.String())
		}
		if strings.Contains(fmt.Sprint(rep.Notes), "overlap") {
			t.Fatalf("kernels of a stream overlap: %v\n%s", rep.Notes, out.String())
		}
		if rep.Format != format {
			t.Fatalf("%s is told as %s", format, rep.Format)
		}
		if back[format], err = w.Program(0, 0); err != nil {
			t.Fatal(err)
		}
		if err := back[format].Validate(); err != nil {
			t.Fatal(format, err)
		}
	}
	return back
}

// A timeline of kernels keeps its length within the ns that its host events
// take: the Ascend step of 810 ms and its memory to the byte.
func TestWriteShared(t *testing.T) {
	w, _, err := Open(formatstest.Shared(t, "ascend-profiler", "qwen3-0.6b-pp2-dp2-level2", "rank_0_ascend_pt"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.Program(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "step.json.gz")
	if err := Create(file, func(out io.Writer) error {
		_, err := Write(out, "chrome", "step", p)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w, rep, err := Open(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	q, err := w.Program(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if workloads.PeakLive(q, 1) != workloads.PeakLive(p, 1) || !slices.Equal(kernelsOf(p, 1, true), kernelsOf(q, 1, true)) {
		t.Errorf("peak %d of %d", workloads.PeakLive(q, 1), workloads.PeakLive(p, 1))
	}
	if s := rep.Streams[0]; s.Kernels != 2448 || s.Busy != 231_290_100*sim.Nanosecond || s.Span < 809*sim.Millisecond || s.Span > 811*sim.Millisecond {
		t.Errorf("%+v", s)
	}
}

// What no format can hold is refused.
func TestWriteRefused(t *testing.T) {
	names := workloads.NewNames()
	make := func(works ...hw.Work) *workloads.Program {
		b := workloads.NewBuilder(names, nil)
		b.Mark(workloads.MarkIterationBegin, 0, 0)
		for _, w := range works {
			b.Op(workloads.OpSpec{Name: names.ID("op"), Kernel: workloads.Kernel{Work: w}, HostOnly: w.Kind != hw.Measured && w.Flops == 0})
		}
		b.Mark(workloads.MarkIterationEnd, 0, 0)
		p, err := b.Program("train")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		format string
		p      *workloads.Program
		want   string
	}{
		{"csv", make(hw.Work{Kind: hw.Measured, Time: 1}), `format "csv"; allowed: native, chrome, dtr, chakra`},
		{"dtr", make(hw.Work{Kind: hw.Measured, Time: 1}, hw.Work{Kind: hw.Modelled, Flops: 1}), "1 of 2 kernels have no measured time"},
		{"chrome", make(hw.Work{Kind: hw.Modelled}), "none with device work"},
		{"chakra", make(hw.Work{Kind: hw.Measured, Time: 31 * sim.Second}), `operator "op" takes 31s; other formats hold up to 30s`},
	} {
		if _, err := Write(&bytes.Buffer{}, c.format, "", c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", c.format, err)
		}
	}
}
