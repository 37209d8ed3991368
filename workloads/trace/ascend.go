package trace

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"smartswap/formats/ascend"
	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// ascendOutput is the folder that the profiler puts its tables in.
const ascendOutput = "ASCEND_PROFILER_OUTPUT"

// ascendTables finds the folder with the tables of a profile: dir itself, or the
// ASCEND_PROFILER_OUTPUT in it.
func ascendTables(dir string) (string, error) {
	for _, d := range []string{dir, filepath.Join(dir, ascendOutput)} {
		if _, err := os.Stat(filepath.Join(d, "kernel_details.csv")); err == nil {
			return d, nil
		}
	}
	return "", fmt.Errorf("%s: no kernel_details.csv; allowed: a folder %s with tables as text (the SQLite form is not read), or the one above it", dir, ascendOutput)
}

// openAscend reads a profile of torch_npu: kernel_details.csv, and beside it
// operator_memory.csv (tensors), memory_record.csv (what was allocated before)
// and step_trace_time.csv (compared with the kernels). path is the folder or the
// kernel table. The tables tell when the device ran a kernel but not when the
// host launched it: the order of kernels and allocations is that of the clock.
func openAscend(rep *Report, path string, opt Options) (*native.Trace, error) {
	kernels := path
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		dir, err := ascendTables(path)
		if err != nil {
			return nil, err
		}
		kernels = filepath.Join(dir, "kernel_details.csv")
	}
	a := ascendReader{rep: rep, opt: opt, t: timeline{file: kernels}}
	if err := a.kernels(kernels); err != nil {
		return nil, err
	}
	if err := a.tensors(filepath.Join(filepath.Dir(kernels), "operator_memory.csv")); err != nil {
		return nil, err
	}
	a.samples(filepath.Join(filepath.Dir(kernels), "memory_record.csv"))
	a.steps(filepath.Join(filepath.Dir(kernels), "step_trace_time.csv"))
	rep.note(Inferred, kernels, "when the host launched a kernel: when the device started it")
	return a.t.program(rep, a.name(kernels), !opt.NoGaps)
}

// openAscendMemory refuses a memory table without its kernels: first for what is
// wrong inside it, if anything is.
func openAscendMemory(rep *Report, path string, opt Options) (*native.Trace, error) {
	err := readFile(rep, path, opt, func(r io.Reader, name string) error {
		start := bufio.NewReader(r)
		if head, _ := start.Peek(len("Component")); string(head) == "Component" {
			return ascend.ReadSamples(start, name, &rep.list, func(*ascend.Sample) error { return nil })
		}
		return ascend.ReadTensors(start, name, &rep.list, func(*ascend.Tensor) error { return nil })
	})
	if err == nil {
		err = fmt.Errorf("%s: a memory table alone is no workload; open the folder with its kernel_details.csv", path)
	}
	return nil, err
}

// ascendReader gathers the timeline of a profile.
type ascendReader struct {
	streams  []string // names that kernels share
	rep      *Report
	opt      Options
	t        timeline
	numbers  []string // steps in the file
	from, to int64    // of the chosen kernels, ns
	compute  sim.Time // of the chosen kernels
}

func (a *ascendReader) kernels(path string) error {
	others := 0
	streams := map[string]int{} // looked up by key only
	err := readFile(a.rep, path, a.opt, func(r io.Reader, name string) error {
		return ascend.ReadKernels(r, name, &a.rep.list, func(k *ascend.Kernel) error {
			if !slices.Contains(a.numbers, k.Step) {
				if len(a.numbers) == 1000 {
					return fmt.Errorf("%s:%d: more than 1000 steps", name, k.Line)
				}
				a.numbers = append(a.numbers, k.Step)
			}
			if a.opt.Step != "" && a.opt.Step != k.Step {
				return nil
			}
			if len(a.t.kernels) == maxRecords {
				return fmt.Errorf("%s:%d: more than %d kernels", name, k.Line, maxRecords)
			}
			v := tlKernel{name: k.Type, kernel: strings.Clone(k.Name), at: k.Start, start: k.Start, time: k.Duration}
			if v.name == "" {
				v.name = k.Name
			}
			v.family, v.backward = familyByName(v.name), isBackward(v.name)
			if k.Communicates() {
				v.family, v.lane = hw.Elementwise, workloads.Comm
				if strings.Contains(k.Name, "send") || strings.Contains(k.Name, "receive") {
					v.lane = workloads.CommPeer
				}
			} else {
				a.compute += k.Duration
				v.stream = a.streamName(k.Stream)
				if streams[k.Stream]++; len(streams) > 1 && streams[k.Stream] == 1 {
					others++
				}
			}
			v.name = strings.Clone(v.name)
			a.t.kernels = append(a.t.kernels, v)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if len(a.t.kernels) == 0 && a.opt.Step != "" {
		return fmt.Errorf("%s: step %q; allowed: %s", path, a.opt.Step, strings.Join(a.numbers, " "))
	}
	if len(a.numbers) > 1 && a.opt.Step == "" {
		a.rep.note(Inferred, path, "%d profiled steps are one iteration; choose one as the step", len(a.numbers))
	}
	if others > 0 {
		a.rep.note(Inferred, path, "kernels of %d other streams run on the compute stream", others)
	}
	for i := range a.t.kernels {
		k := &a.t.kernels[i]
		if i == 0 || k.start < a.from {
			a.from = k.start
		}
		a.to = max(a.to, k.end())
	}
	return nil
}

// streamName is the name of a stream of kernels.
func (a *ascendReader) streamName(stream string) string {
	if stream == "" || stream == "N/A" {
		return "without a number"
	}
	if i := slices.Index(a.streams, stream); i >= 0 {
		return a.streams[i]
	}
	stream = strings.Clone(stream)
	if len(a.streams) < maxStreams {
		a.streams = append(a.streams, stream)
	}
	return stream
}

// tensors reads the allocations that live during the chosen kernels. Only the
// framework's allocator can swap: what the graph engine took for itself is left
// out.
func (a *ascendReader) tensors(path string) error {
	if _, err := os.Stat(path); err != nil {
		a.rep.note(Skipped, path, "no such file: the workload uses no memory")
		return nil
	}
	var totals []tlTotal
	engine := sim.Bytes(0)
	err := readFile(a.rep, path, a.opt, func(r io.Reader, name string) error {
		return ascend.ReadTensors(r, name, &a.rep.list, func(t *ascend.Tensor) error {
			if len(a.t.tensors) == maxRecords {
				return fmt.Errorf("%s:%d: more than %d tensors", name, t.Line, maxRecords)
			}
			if strings.HasPrefix(t.Name, "cann::") && t.Stream == "" {
				engine += t.Bytes
				return nil
			}
			v := tlTensor{name: strings.Clone(t.Name), bytes: t.Bytes, born: t.Alloc, freed: t.Release}
			if t.Release == ascend.Never {
				v.freed = never
			}
			if t.AtAlloc.Allocated != ascend.NoBytes {
				totals = append(totals, tlTotal{t.Alloc, t.AtAlloc.Allocated})
			}
			if t.Release != ascend.Never && t.AtRelease.Allocated != ascend.NoBytes {
				totals = append(totals, tlTotal{t.Release, t.AtRelease.Allocated})
			}
			a.t.tensors = append(a.t.tensors, v)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if engine > 0 {
		a.rep.note(Skipped, path, "%d bytes that the graph engine allocated and released for itself", engine)
	}
	a.rep.note(Inferred, path, "sizes are those of the allocator's blocks, its padding and rounding included")
	slices.SortStableFunc(a.t.tensors, func(x, y tlTensor) int { return cmp.Compare(x.born, y.born) })
	a.t.reconcile(a.rep, path, totals)
	if a.opt.Step != "" {
		a.t.clip(a.from, a.to)
	}
	return nil
}

// samples compares the tensors with the allocator's own totals. The file is not
// needed: a damaged one is skipped.
func (a *ascendReader) samples(path string) {
	var peak, reserved sim.Bytes
	err := readOptional(a.rep, path, a.opt, func(r io.Reader, name string) error {
		return ascend.ReadSamples(r, name, &a.rep.list, func(s *ascend.Sample) error {
			if s.Component == "PTA" {
				peak = max(peak, s.Totals.Allocated)
				reserved = max(reserved, s.Totals.Reserved)
			}
			return nil
		})
	})
	switch {
	case err != nil:
		a.skip(path, err)
	case peak > 0:
		a.rep.note(Inferred, path, "recorded peaks, for comparison: allocated %d bytes, reserved %d bytes", peak, reserved)
	}
}

// steps compares the kernels with the profiler's own sums.
func (a *ascendReader) steps(path string) {
	var steps []ascend.Step
	err := readOptional(a.rep, path, a.opt, func(r io.Reader, name string) (err error) {
		steps, err = ascend.ReadSteps(r, name)
		return err
	})
	if err != nil {
		a.skip(path, err)
		return
	}
	sum, length := sim.Time(0), sim.Time(0)
	for _, s := range steps {
		if a.opt.Step == "" || s.Step == a.opt.Step {
			sum += s.Computing
			length += s.Length
		}
	}
	if sum != 0 {
		a.rep.note(Inferred, path, "recorded, for comparison: step %v, computing %v; the kernels compute %v", length, sum, a.compute)
	}
}

// skip notes a file that is not needed and was not read because of err, which
// begins with the path.
func (a *ascendReader) skip(path string, err error) {
	line, what, _ := strings.Cut(strings.TrimPrefix(err.Error(), path), ": ")
	a.rep.note(Skipped, path+line, "%s", what)
}

// readOptional is readFile for a file that need not be there.
func readOptional(rep *Report, path string, opt Options, read func(io.Reader, string) error) error {
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return readFile(rep, path, opt, read)
}

// name labels the workload by the folder of the profile.
func (a *ascendReader) name(kernels string) string {
	dir := filepath.Dir(kernels)
	if filepath.Base(dir) == ascendOutput {
		dir = filepath.Dir(dir)
	}
	name := filepath.Base(dir)
	if a.opt.Step != "" {
		name += "/step" + a.opt.Step
	}
	return name
}
