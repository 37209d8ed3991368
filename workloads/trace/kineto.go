package trace

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"smartswap/formats/chrome"
	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// openChrome reads a Chrome trace as Kineto and its kin write it. The work of
// the device that has most of it becomes the workload. A kernel stands in host
// order where the call that launched it began, and is named after the operator
// on the host that it belongs to; where the trace has no such call, after
// itself, where the device started it. Allocations are the [memory] events: a
// release belongs to the allocation of its address, or without addresses to the
// latest of its size; what was there before counts from the start.
func openChrome(rep *Report, path string, opt Options) (*native.Trace, error) {
	k := kineto{rep: rep, opt: opt}
	if err := k.read(path); err != nil {
		return nil, err
	}
	t, err := k.timeline()
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gz"), ".json")
	if opt.Step != "" {
		name += "/step" + opt.Step
	}
	return t.program(rep, name, !opt.NoGaps)
}

// kineto is what a trace tells of one process.
type kineto struct {
	rep     *Report
	opt     Options
	file    string
	work    []deviceWork
	ops     []hostOp
	memory  []memoryEvent
	waits   []tlWait
	steps   []hostOp            // ProfilerStep#N
	launch  map[int64]hostPoint // by correlation: where the host launched
	noTimes int
	train   string // the first operator or annotation of a training step

	annotations bool // ops holds annotations of the program too
}

// deviceWork is a kernel, copy or fill.
type deviceWork struct {
	name                  string
	device, stream        int64
	pid                   string
	correlation, external int64
	start, duration       int64 // ns
}

// hostOp is an operator or an annotation on the host.
type hostOp struct {
	name               string
	thread             string
	start, end         int64 // ns
	external, function int64
}

type memoryEvent struct {
	thread      string
	at          int64
	device      int64
	bytes, addr int64
	total       int64
}

func (k *kineto) read(path string) error {
	k.launch = make(map[int64]hostPoint)
	return readFile(k.rep, path, k.opt, func(r io.Reader, name string) error {
		k.file = name
		_, err := chrome.Read(r, name, &k.rep.list, k.take)
		return err
	})
}

func (k *kineto) take(e *chrome.Event) error {
	if len(k.work)+len(k.ops)+len(k.memory) > 4*maxRecords {
		return fmt.Errorf("%s:%d: more than %d events", k.file, e.Line, 4*maxRecords)
	}
	if e.Category == chrome.Memory {
		if e.DeviceType == 1 && e.Start != chrome.None && e.Bytes != 0 && max(e.Bytes, -e.Bytes) <= int64(maxBytes) && e.Bytes != chrome.None {
			k.memory = append(k.memory, memoryEvent{e.PID + "/" + e.TID, e.Start, e.DeviceID, e.Bytes, e.Addr, e.TotalAllocated})
		}
		return nil
	}
	if e.Phase != 'X' {
		return nil
	}
	if e.Start == chrome.None || e.Duration == chrome.None || e.Duration < 0 {
		k.noTimes++
		return nil
	}
	if k.train == "" && (e.Category == chrome.CPUOp || e.Category == chrome.Annotation) && trainsAt(e.Name) >= 0 {
		k.train = e.Name
	}
	switch {
	case e.Category.OnDevice():
		k.work = append(k.work, deviceWork{e.Name, e.Device, e.Stream, e.PID, e.Correlation, e.ExternalID, e.Start, e.Duration})
	case e.Category == chrome.Runtime:
		if e.Correlation != chrome.None {
			k.launch[e.Correlation] = hostPoint{e.PID + "/" + e.TID, e.Start}
		}
		if strings.Contains(e.Name, "Synchronize") {
			k.waits = append(k.waits, tlWait{e.Start, e.Duration})
		}
	case e.Category == chrome.CPUOp:
		k.op(e)
	case e.Category == chrome.Annotation && k.annotations:
		k.op(e)
	case e.Category == chrome.Annotation && strings.HasPrefix(e.Name, "ProfilerStep#"):
		k.steps = append(k.steps, hostOp{name: strings.TrimPrefix(e.Name, "ProfilerStep#"), start: e.Start, end: e.Start + e.Duration})
	}
	return nil
}

func (k *kineto) op(e *chrome.Event) {
	k.ops = append(k.ops, hostOp{e.Name, e.PID + "/" + e.TID, e.Start, e.Start + e.Duration, e.ExternalID, e.RecordFunctionID})
}

// timeline makes the timeline of the busiest device.
func (k *kineto) timeline() (*timeline, error) {
	t := &timeline{file: k.file, train: k.train}
	from, to, err := k.window()
	if err != nil {
		return nil, err
	}
	if k.noTimes > 0 {
		k.rep.note(Skipped, k.file, "%d complete events without a start or a duration", k.noTimes)
	}
	device, pid := k.device()
	byID := make(map[int64]string, len(k.ops))
	for _, op := range k.ops {
		if op.external != chrome.None {
			byID[op.external] = op.name
		}
	}
	unlaunched := 0
	streams := map[int64]int{}
	for i := range k.work {
		w := &k.work[i]
		if w.device != device || w.pid != pid {
			continue
		}
		v := tlKernel{name: w.name, kernel: w.name, stream: streamName(w.stream), lane: laneByName(w.name), start: w.start, at: w.start, time: sim.Time(min(w.duration, int64(maxKernelTime/sim.Nanosecond)+1)) * sim.Nanosecond}
		v.family, v.backward = familyByName(w.name), isBackward(w.name)
		if at, ok := k.launch[w.correlation]; ok && w.correlation != chrome.None {
			v.at = min(at.at, w.start)
		} else {
			unlaunched++
		}
		if op := byID[w.external]; op != "" && w.external != chrome.None {
			v.name = op
			v.backward = v.backward || isBackward(op)
			if v.family == hw.Elementwise {
				v.family = familyByName(op)
			}
		}
		if v.at >= from && v.at < to {
			t.kernels = append(t.kernels, v)
			if v.lane == workloads.Compute {
				streams[w.stream]++
			}
		}
	}
	if unlaunched > 0 {
		k.rep.note(Inferred, k.file, "when the host launched %d of %d kernels: when the device started them", unlaunched, len(t.kernels))
	}
	if len(streams) > 1 {
		k.rep.note(Inferred, k.file, "kernels and copies of %d streams run on one compute stream", len(streams))
	}
	k.overlaps(device, pid)
	for _, w := range k.waits {
		if w.at >= from && w.at < to {
			t.waits = append(t.waits, w)
		}
	}
	k.tensors(t, device)
	if k.opt.Step != "" {
		t.clip(from, to)
	}
	return t, nil
}

// streamName is a stream's number as text.
func streamName(stream int64) string {
	if stream == chrome.None {
		return "without a number"
	}
	return strconv.FormatInt(stream, 10)
}

// window is the time of the chosen step; all time if none is chosen.
func (k *kineto) window() (from, to int64, err error) {
	if k.opt.Step == "" {
		if len(k.steps) > 1 {
			k.rep.note(Inferred, k.file, "%d profiled steps are one iteration; choose one as the step", len(k.steps))
		}
		return -1 << 62, 1 << 62, nil
	}
	var names []string
	for _, s := range k.steps {
		if s.name == k.opt.Step {
			return s.start, s.end, nil
		}
		if len(names) < 20 {
			names = append(names, s.name)
		}
	}
	return 0, 0, fmt.Errorf("%s: step %q; allowed: %s", k.file, k.opt.Step, strings.Join(names, " "))
}

// device is the one with most work, by process too: events without a device
// number differ in that.
func (k *kineto) device() (device int64, pid string) {
	type key struct {
		device int64
		pid    string
	}
	var keys []key
	counts := map[key]int{}
	for _, w := range k.work {
		id := key{w.device, w.pid}
		if counts[id]++; counts[id] == 1 {
			keys = append(keys, id)
		}
	}
	best, others := key{device: chrome.None}, 0
	for _, id := range keys {
		if counts[id] > counts[best] {
			best = id
		}
	}
	for _, id := range keys {
		if id != best {
			others += counts[id]
		}
	}
	if others > 0 {
		k.rep.note(Skipped, k.file, "%d kernels and copies of other devices than the busiest", others)
	}
	return best.device, best.pid
}

// overlaps counts kernels that begin before the one ahead of them on their
// stream has ended.
func (k *kineto) overlaps(device int64, pid string) {
	var own []deviceWork
	for _, w := range k.work {
		if w.device == device && w.pid == pid {
			own = append(own, w)
		}
	}
	slices.SortStableFunc(own, func(a, b deviceWork) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.start, b.start))
	})
	n, longest := 0, int64(0)
	for i := 1; i < len(own); i++ {
		if over := own[i-1].start + own[i-1].duration - own[i].start; own[i].stream == own[i-1].stream && over > 0 {
			n++
			longest = max(longest, over)
		}
	}
	if n > 0 {
		k.rep.note(Repaired, k.file, "%d kernels overlap the one ahead of them on their stream, by up to %d ns; they run one after the other", n, longest)
	}
}

// tensors pairs allocations and releases on the device.
func (k *kineto) tensors(t *timeline, device int64) {
	slices.SortStableFunc(k.memory, func(a, b memoryEvent) int { return cmp.Compare(a.at, b.at) })
	names := k.allocators()
	live := map[int64][]int{} // by address, or by size where there is none: a stack
	var totals []tlTotal
	start, before, twice, noAddr := int64(0), sim.Bytes(0), 0, 0
	for i := range k.memory {
		e := &k.memory[i]
		if e.device != device && device != chrome.None && e.device != chrome.None {
			continue
		}
		if len(t.tensors) == 0 {
			start = e.at
		}
		if e.total >= 0 && sim.Bytes(e.total) <= maxTotalBytes {
			totals = append(totals, tlTotal{e.at, sim.Bytes(e.total)})
		}
		id := e.addr
		if id == chrome.None {
			noAddr++
			id = max(e.bytes, -e.bytes)
		}
		stack := live[id]
		if e.bytes > 0 {
			if len(stack) > 0 && e.addr != chrome.None { // its release was lost
				twice++
				t.tensors[stack[0]].freed = e.at
				stack = stack[:0]
			}
			live[id] = append(stack, len(t.tensors))
			t.tensors = append(t.tensors, tlTensor{name: names[i], bytes: sim.Bytes(e.bytes), born: e.at, freed: never})
			continue
		}
		if n := len(stack); n > 0 {
			t.tensors[stack[n-1]].freed = e.at
			live[id] = stack[:n-1]
			continue
		}
		before -= sim.Bytes(e.bytes)
		t.tensors = append(t.tensors, tlTensor{name: "allocated before the recording", bytes: sim.Bytes(-e.bytes), born: start, freed: e.at})
	}
	if noAddr > 0 {
		k.rep.note(Inferred, k.file, "%d allocations and releases without an address are paired by size", noAddr)
	}
	if twice > 0 {
		k.rep.note(Repaired, k.file, "%d releases that the recording lost are put where their address is allocated again", twice)
	}
	if before > 0 {
		k.rep.note(Inferred, k.file, "%d bytes of what was allocated before the recording were released in it", before)
	}
	slices.SortStableFunc(t.tensors, func(x, y tlTensor) int { return cmp.Compare(x.born, y.born) })
	t.reconcile(k.rep, k.file, totals)
}

// allocators names each memory event by the operator around it.
func (k *kineto) allocators() []string {
	points := make([]hostPoint, len(k.memory))
	for i, e := range k.memory {
		points[i] = hostPoint{e.thread, e.at}
	}
	names := make([]string, len(points))
	for i, op := range k.innermost(points) {
		names[i] = "allocation"
		if op >= 0 {
			names[i] = k.ops[op].name
		}
	}
	return names
}

// hostPoint is an instant on a thread of the host.
type hostPoint struct {
	thread string
	at     int64
}

// innermost finds for each point the innermost of k.ops around it on its thread;
// -1 = none. O(n log n).
func (k *kineto) innermost(points []hostPoint) []int {
	ops := k.inOrder()
	order := make([]int, len(points))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(points[a].thread, points[b].thread), cmp.Compare(points[a].at, points[b].at))
	})
	found := make([]int, len(points))
	var open []int // around the present point, outermost first
	closeBefore := func(thread string, at int64) {
		for len(open) > 0 {
			if last := &k.ops[open[len(open)-1]]; last.thread == thread && last.end >= at {
				return
			}
			open = open[:len(open)-1]
		}
	}
	next := 0
	for _, i := range order {
		e := &points[i]
		for next < len(ops) {
			op := &k.ops[ops[next]]
			if op.thread > e.thread || op.thread == e.thread && op.start > e.at {
				break
			}
			closeBefore(op.thread, op.start)
			open = append(open, ops[next])
			next++
		}
		closeBefore(e.thread, e.at)
		found[i] = -1
		if len(open) > 0 {
			found[i] = open[len(open)-1]
		}
	}
	return found
}

// inOrder lists k.ops by thread, each before those inside it.
func (k *kineto) inOrder() []int {
	order := make([]int, len(k.ops))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		a, b := &k.ops[x], &k.ops[y]
		return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(a.external, b.external))
	})
	return order
}
