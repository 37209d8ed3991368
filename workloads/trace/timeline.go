package trace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// Bounds on what a timeline holds. What breaks them is damage, and must not
// decide how long a run takes.
const (
	maxKernelTime = 30 * sim.Second
	maxGap        = int64(30e9) // ns between two events of the host
	maxRecords    = 1 << 23     // kernels, and tensors
	maxTotalTime  = 1_000_000 * sim.Second
	maxTotalBytes = sim.Bytes(1) << 60 // of all tensors ever
	maxBytes      = sim.Bytes(1) << 46 // of one tensor
)

// never is the release of a tensor that outlives the recording.
const never = math.MaxInt64

// timeline is what a profiler saw of one device: kernels and allocations, each
// with its instant, but not which kernel uses which tensor. program puts both
// into one order and infers the uses.
type timeline struct {
	file    string // for notes
	kernels []tlKernel
	tensors []tlTensor
	waits   []tlWait
	base    sim.Bytes // allocated before the recording and never released in it
	train   string    // what on the host belongs to a training step; "" = nothing
}

// tlWait is a time that the host spent waiting for the device. The program waits
// instead of taking this time.
type tlWait struct{ at, time int64 } // ns

// tlKernel is device work. at is its place in host order: when it was launched,
// or where the recording does not tell, when it started.
type tlKernel struct {
	name      string // of its operator in the program
	kernel    string // its own
	stream    string // as the file numbers it; "" = not told
	family    hw.Family
	lane      workloads.Lane
	backward  bool  // part of a backward pass
	at, start int64 // ns
	time      sim.Time
}

func (k *tlKernel) end() int64 { return k.start + int64(k.time/sim.Nanosecond) }

// tlTensor is an allocation: the operator that asked for it, and its life in ns
// of host time. born = the instant of the first event if it lived before.
type tlTensor struct {
	name        string
	bytes       sim.Bytes
	born, freed int64

	first, last int // kernels that use it; last < first: none
	storage     workloads.StorageID
	saved       bool
}

// tlEvent is one step of the merged order. At one instant, releases come first,
// then allocations, kernels, waits.
type tlEvent struct {
	at    int64
	what  tlKind
	index int
}

type tlKind uint8

const (
	tlFree tlKind = iota
	tlBorn
	tlRun
	tlSync
)

// program makes one iteration of the recording.
//
// Each allocation is a host-only operator where it happened, so that live bytes
// run through the recorded values whatever is inferred about uses. A tensor is
// written by the first kernel after its allocation and read by the last before
// its release. Kernels take their recorded times and the host the recorded times
// between its events (no time at all if gaps is false), so that gaps of the
// device that the host made come back. Lanes keep their recorded order: a
// collective waits for the compute kernels that had ended before it started, and
// the reverse. At the end the host waits for the device, and what is still
// allocated is released.
//
// Phases are inferred from the names of the kernels: the backward pass is from
// the first to the last that has "grad" or "backward" in its name, the optimizer
// what follows. A tensor that is allocated before the backward pass and released
// in it counts as saved by autograd.
func (t *timeline) program(rep *Report, name string, gaps bool) (*native.Trace, error) {
	t.sane(rep)
	if len(t.kernels) == 0 {
		return nil, fmt.Errorf("%s: no device work in the file; it cannot become a workload: was the profiler told to record the device, too?", t.file)
	}
	if len(t.kernels) > maxRecords || len(t.tensors) > maxRecords {
		return nil, fmt.Errorf("%s: %d kernels and %d tensors; allowed: %d of each", t.file, len(t.kernels), len(t.tensors), maxRecords)
	}
	if err := t.bounded(); err != nil {
		return nil, err
	}
	rep.Streams = t.deviceStreams()
	slices.SortStableFunc(t.kernels, func(a, b tlKernel) int { return cmp.Compare(a.at, b.at) })
	events := t.merge()
	phases := t.phases()
	t.uses(events, phases)
	w := tlWriter{t: t, names: workloads.NewNames(), gaps: gaps, phases: phases, last: events[0].at}
	w.syncs = t.crossings()
	var residents []workloads.Storage
	if t.base > 0 {
		residents = []workloads.Storage{{
			Bytes: t.base, DType: workloads.UINT8, Class: workloads.Parameter, Flat: true, Label: w.names.ID("allocated before the recording"),
		}}
		rep.note(Inferred, t.file, "%d bytes that were allocated before the recording are one resident that is never swapped", t.base)
	}
	w.b = workloads.NewBuilder(w.names, residents)
	w.b.Grow(len(events))
	p, err := w.write(events, kindOf(rep, t.trains()))
	if err == nil && w.total > maxTotalTime {
		err = errors.New("the recording spans more than 10^6 s")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.file, err)
	}
	t.report(rep, &w)
	ranks := []workloads.Rank{{Devices: []int{0}, Residents: p.Storages[:p.Residents:p.Residents]}}
	return native.NewTrace(name, 0, w.names, ranks, [][]*workloads.Program{{p}}), nil
}

// sane drops what would let one damaged record decide the outcome.
func (t *timeline) sane(rep *Report) {
	zero, long := 0, 0
	t.waits = slices.DeleteFunc(t.waits, func(w tlWait) bool { return w.time < 0 || w.time > maxGap })
	t.kernels = slices.DeleteFunc(t.kernels, func(k tlKernel) bool {
		if k.time == 0 {
			zero++
		}
		if k.time > maxKernelTime || k.time < 0 {
			long++
			return true
		}
		return false
	})
	if zero > 0 {
		rep.note(Inferred, t.file, "%d kernels take no time at all", zero)
	}
	if long > 0 {
		rep.note(Skipped, t.file, "%d kernels of less than 0 or more than 30 s", long)
	}
}

// bounded refuses totals that no recording has, so that no sum of times or sizes
// leaves an int64 later.
func (t *timeline) bounded() error {
	busy, bytes := sim.Time(0), t.base
	for i := range t.kernels {
		busy += t.kernels[i].time
	}
	for i := range t.tensors {
		if bytes += t.tensors[i].bytes; bytes > maxTotalBytes {
			return fmt.Errorf("%s: more than 2^60 bytes allocated in all", t.file)
		}
	}
	if busy > maxTotalTime {
		return fmt.Errorf("%s: kernels of more than 10^6 s in all", t.file)
	}
	return nil
}

func (t *timeline) merge() []tlEvent {
	events := make([]tlEvent, 0, len(t.kernels)+2*len(t.tensors))
	for i := range t.kernels {
		events = append(events, tlEvent{t.kernels[i].at, tlRun, i})
	}
	for i := range t.tensors {
		v := &t.tensors[i]
		events = append(events, tlEvent{v.born, tlBorn, i})
		if v.freed != never {
			events = append(events, tlEvent{v.freed, tlFree, i})
		}
	}
	for i := range t.waits {
		events = append(events, tlEvent{t.waits[i].at, tlSync, i})
	}
	order := func(e tlEvent) int {
		if e.what == tlFree && t.tensors[e.index].born == e.at {
			return int(tlSync) + 1 // born at the same instant
		}
		return int(e.what)
	}
	slices.SortStableFunc(events, func(a, b tlEvent) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(order(a), order(b)), cmp.Compare(a.index, b.index))
	})
	return events
}

// tlPhases are the kernels at which phases begin: forward at 0, backward at
// backward, optimizer at optimizer; len(kernels) = the phase does not exist.
type tlPhases struct{ backward, optimizer int }

func (t *timeline) phases() tlPhases {
	n := len(t.kernels)
	p := tlPhases{backward: n, optimizer: n}
	for i := range t.kernels {
		if t.kernels[i].backward {
			p.backward = min(p.backward, i)
			p.optimizer = i + 1
		}
	}
	return p
}

// uses finds the kernels between which every tensor lives, and so its users.
func (t *timeline) uses(events []tlEvent, p tlPhases) {
	next := 0 // the kernel that comes next on the compute lane
	compute := make([]int, 0, len(t.kernels))
	for i := range t.kernels {
		if t.kernels[i].lane == workloads.Compute {
			compute = append(compute, i)
		}
	}
	for _, e := range events {
		switch e.what {
		case tlBorn:
			t.tensors[e.index].first, t.tensors[e.index].last = len(t.kernels), -1
			if next < len(compute) {
				t.tensors[e.index].first = compute[next]
			}
		case tlFree:
			if next > 0 {
				t.tensors[e.index].last = compute[next-1]
			}
		case tlRun:
			if t.kernels[e.index].lane == workloads.Compute {
				next++
			}
		}
	}
	for i := range t.tensors {
		v := &t.tensors[i]
		v.saved = v.first < p.backward && v.last >= p.backward && v.last < p.optimizer
	}
}

// tlOrder is an order between lanes: before a kernel, its lane waits for another.
type tlOrder struct{ before, after int } // kernels: before runs first

// crossings lists the waits that keep the recorded order between lanes, at most
// one of each kernel for each other lane, by the kernel that waits.
func (t *timeline) crossings() []tlOrder {
	var lanes [workloads.NumLanes][]int
	for i := range t.kernels {
		lanes[t.kernels[i].lane] = append(lanes[t.kernels[i].lane], i)
	}
	var syncs []tlOrder
	for a := range lanes {
		for b := range lanes {
			if a == b {
				continue
			}
			done := 0 // kernels of lane b that ended before the present one of a
			for _, k := range lanes[a] {
				had := done
				for done < len(lanes[b]) && lanes[b][done] < k && t.kernels[lanes[b][done]].end() <= t.kernels[k].start {
					done++
				}
				if done > had {
					syncs = append(syncs, tlOrder{before: lanes[b][done-1], after: k})
				}
			}
		}
	}
	slices.SortFunc(syncs, func(x, y tlOrder) int {
		return cmp.Or(cmp.Compare(x.after, y.after), cmp.Compare(x.before, y.before))
	})
	return syncs
}

// tlWriter writes the program.
type tlWriter struct {
	t      *timeline
	names  *workloads.Names
	b      *workloads.Builder
	gaps   bool
	phases tlPhases
	syncs  []tlOrder
	last   int64 // instant of the last operator

	saved, unused, open, cut int // for the report
	total                    sim.Time
}

func (w *tlWriter) write(events []tlEvent, kind string) (*workloads.Program, error) {
	t, b := w.t, w.b
	readers := make([][]int, len(t.kernels)) // tensors whose last user the kernel is
	writers := make([][]int, len(t.kernels))
	for i := range t.tensors {
		v := &t.tensors[i]
		if v.first < len(t.kernels) && (v.last >= v.first || v.freed == never) {
			writers[v.first] = append(writers[v.first], i)
		} else {
			w.unused++
		}
		if v.last > v.first {
			readers[v.last] = append(readers[v.last], i)
		}
	}
	record := make([]bool, len(t.kernels)) // somebody waits for this kernel
	for _, s := range w.syncs {
		record[s.before] = true
	}
	recorded := make([]int32, len(t.kernels))
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	phase := workloads.MarkIterationBegin
	for _, e := range events {
		switch e.what {
		case tlBorn:
			v := &t.tensors[e.index]
			v.storage = b.New(workloads.Storage{Bytes: v.bytes, DType: workloads.UINT8, Label: w.names.ID(v.name)})
			b.Op(workloads.OpSpec{Name: w.names.ID(v.name), Host: w.host(e.at), HostOnly: true}, workloads.Out(v.storage))
		case tlFree:
			w.drop(&t.tensors[e.index])
		case tlSync:
			b.Sync(workloads.Compute)
			w.last += t.waits[e.index].time
		case tlRun:
			k := &t.kernels[e.index]
			phase = w.enter(phase, e.index)
			for len(w.syncs) > 0 && w.syncs[0].after == e.index {
				b.Wait(k.lane, recorded[w.syncs[0].before])
				w.syncs = w.syncs[1:]
			}
			w.kernel(k, e.at, readers[e.index], writers[e.index])
			if record[e.index] {
				recorded[e.index] = b.Record(k.lane)
			}
		}
	}
	w.leave(phase)
	used := [workloads.NumLanes]bool{}
	for i := range t.kernels {
		used[t.kernels[i].lane] = true
	}
	for lane := range workloads.NumLanes {
		if used[lane] {
			b.Sync(lane)
		}
	}
	for i := range t.tensors {
		if v := &t.tensors[i]; v.freed == never {
			w.open++
			w.drop(v)
		}
	}
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	return b.Program(kind)
}

// kernel writes k, which reads and writes the given tensors.
func (w *tlWriter) kernel(k *tlKernel, at int64, reads, writes []int) {
	args := make([]workloads.Arg, 0, len(reads)+len(writes))
	for _, i := range reads {
		v := &w.t.tensors[i]
		if v.saved {
			w.b.Unpack(v.storage)
		}
		args = append(args, workloads.In(v.storage))
	}
	for _, i := range writes {
		args = append(args, workloads.Out(w.t.tensors[i].storage))
	}
	w.b.Op(workloads.OpSpec{
		Name: w.names.ID(k.name), Lane: k.lane, Host: w.host(at),
		Kernel: workloads.Kernel{Work: hw.Work{Kind: hw.Measured, Family: k.family, Time: k.time}},
	}, args...)
	for _, i := range writes {
		if v := &w.t.tensors[i]; v.saved {
			w.saved++
			w.b.Save(v.storage)
		}
	}
}

// drop releases v: its own reference and autograd's.
func (w *tlWriter) drop(v *tlTensor) {
	w.b.Drop(v.storage)
	if v.saved {
		w.b.Drop(v.storage)
	}
}

// host is the host's time from the last operator to this one; never 0, which
// would mean the cost of the simulated host.
func (w *tlWriter) host(at int64) sim.Time {
	gap := max(0, at-w.last)
	w.last = max(w.last, at)
	if !w.gaps {
		return 1
	}
	if gap > maxGap {
		w.cut++
		return 1
	}
	time := max(1, sim.Time(gap)*sim.Nanosecond)
	w.total = min(w.total+time, maxTotalTime+1)
	return time
}

// enter writes the marks before kernel i and returns the open phase.
func (w *tlWriter) enter(open workloads.MarkKind, i int) workloads.MarkKind {
	want := workloads.MarkForwardBegin
	switch {
	case i >= w.phases.optimizer:
		want = workloads.MarkOptimizerBegin
	case i >= w.phases.backward:
		want = workloads.MarkBackwardBegin
	}
	if want != open {
		w.leave(open)
		w.b.Mark(want, number(want), 0)
	}
	return want
}

func (w *tlWriter) leave(open workloads.MarkKind) {
	if open != workloads.MarkIterationBegin {
		w.b.Mark(open+1, number(open), 0)
	}
}

// number is the micro-batch of a phase's marks.
func number(m workloads.MarkKind) int {
	if m == workloads.MarkOptimizerBegin {
		return 0
	}
	return 1
}

// report notes everything that was inferred.
func (t *timeline) report(rep *Report, w *tlWriter) {
	if len(t.tensors) > 0 {
		rep.note(Inferred, t.file, "which kernels use a tensor: the first after its allocation and the last before its release (%d tensors; %d without any)", len(t.tensors), w.unused)
	} else {
		rep.note(Inferred, t.file, "the recording has no allocations: the workload uses no memory")
	}
	if w.saved > 0 {
		rep.note(Inferred, t.file, "%d tensors that live from before the backward pass into it count as saved by autograd", w.saved)
	}
	if w.open > 0 {
		rep.note(Repaired, t.file, "%d tensors that the recording never releases are released at its end", w.open)
	}
	if w.cut > 0 {
		rep.note(Repaired, t.file, "%d pauses of more than 30 s are left out", w.cut)
	}
	rep.note(Inferred, t.file, "kernel families and the phases of the iteration, from the names of the kernels")
	if len(t.waits) > 0 {
		rep.note(Inferred, t.file, "%d calls in which the host waits for the device wait for its compute stream", len(t.waits))
	}
	rep.note(Inferred, t.file, "the host waits for the device at the end of the iteration")
}

// Kinds of the programs that Open makes.
const (
	kindTrain     = "train"
	kindInference = "inference" // forward passes alone
)

// kindOf is the kind of a program of which sign is named after a part of a
// training step; "" = nothing is. It goes into the report with its reason.
func kindOf(rep *Report, sign string) string {
	if sign == "" {
		rep.KindFrom = "nothing recorded is named after a backward pass or an optimizer"
		return kindInference
	}
	rep.KindFrom = fmt.Sprintf("%q is part of a training step", around(sign, trainsAt(sign)))
	return kindTrain
}

// around cuts a name, which may be pages of template arguments, to what stands
// around byte at.
func around(name string, at int) string {
	const before, most = 40, 80
	if len(name) <= most {
		return name
	}
	from := max(0, min(at-before, len(name)-most))
	text := strings.ToValidUTF8(name[from:min(from+most, len(name))], "")
	if from > 0 {
		text = "…" + text
	}
	if from+most < len(name) {
		text += "…"
	}
	return text
}

// trains names something in the recording that only a training step has; "" if
// there is nothing.
func (t *timeline) trains() string {
	if t.train != "" {
		return t.train
	}
	for i := range t.kernels {
		k := &t.kernels[i]
		for _, name := range []string{k.kernel, k.name} {
			if trainsAt(name) >= 0 {
				return name
			}
		}
	}
	return ""
}

// trainsAt is where the name of an operator or a kernel says that it is part of a
// backward pass or an optimizer; -1 = it does not. Kernels over many tensors,
// which familyByName takes for an optimizer's, run in inference, too.
func trainsAt(name string) int {
	name = strings.ToLower(name)
	for _, part := range []string{"backward", "grad", "bwd", "adam", "adagrad", "sgd", "optimizer.step"} {
		if at := strings.Index(name, part); at >= 0 && (part != "grad" || isBackward(name)) {
			return at
		}
	}
	return -1
}

// isBackward tells by its name whether a kernel belongs to a backward pass.
func isBackward(name string) bool {
	name = notGradients.Replace(strings.ToLower(name))
	return strings.Contains(name, "grad") || strings.Contains(name, "backward") || strings.Contains(name, "bwd")
}

// notGradients are names that have "grad" in them and compute none: optimizers,
// and switches of the framework.
var notGradients = strings.NewReplacer("clip_grad", "", "adagrad", "", "no_grad", "", "requires_grad", "")

// familyByName sorts a kernel by its name. Measured times stand whatever the
// family; it matters for the slow-down beside collectives only. The parts are
// those of kernel names of ATen, cuBLAS, cuDNN and CANN.
func familyByName(name string) hw.Family {
	name = strings.ToLower(name)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(name, p) })
	}
	backward := isBackward(name)
	pick := func(forward, grad hw.Family) hw.Family {
		if backward {
			return grad
		}
		return forward
	}
	switch {
	case has("adam", "adagrad", "sgd", "multi_tensor", "optimizer"):
		return hw.OptimizerStep
	case has("attention", "flash"):
		return pick(hw.Attention, hw.AttentionGrad)
	case has("gemm", "matmul", "cutlass", "conv", "cublas", "addmm", "bmm", "::mm", "linear") || strings.HasPrefix(name, "mm"):
		return hw.MatMul
	case has("softmax", "crossentropy", "cross_entropy", "nll"):
		return hw.Softmax
	case has("norm"):
		return pick(hw.Norm, hw.NormGrad)
	case has("rotary", "rope"):
		return hw.Rope
	case has("embedding", "gatherv2", "index_select", "indexselect"):
		return pick(hw.Embedding, hw.EmbeddingGrad)
	case has("gelu", "silu", "swiglu", "relu", "sigmoid", "tanh"):
		return pick(hw.ActivationFn, hw.ActivationGrad)
	case has("cast", "dtype"):
		return hw.Cast
	case has("reduce", "sum", "mean"):
		return hw.Reduction
	}
	return hw.Elementwise
}

// laneByName is the lane of a kernel: collectives and transfers between devices
// have their own.
func laneByName(name string) workloads.Lane {
	name = strings.ToLower(name)
	if !strings.Contains(name, "nccl") && !strings.HasPrefix(name, "hcom") && !strings.HasPrefix(name, "c10d::") {
		return workloads.Compute
	}
	if strings.Contains(name, "send") || strings.Contains(name, "recv") || strings.Contains(name, "receive") {
		return workloads.CommPeer
	}
	return workloads.Comm
}
