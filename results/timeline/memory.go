package timeline

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sort"

	"smartswap/eager/alloc"
	"smartswap/formats/ascend"
	"smartswap/formats/snapshot"
	"smartswap/profilers"
	"smartswap/sim"
)

// nanoseconds are how files count time; picoseconds are cut off.
func nanoseconds(t sim.Time) int64 { return int64(t / sim.Nanosecond) }

// WriteSamples writes a rank's memory_record.csv: the framework's totals (PTA)
// at each change.
func (r *Recorder) WriteSamples(w io.Writer, rank int) error {
	k := r.ranks[rank]
	var samples []ascend.Sample
	for _, l := range k.since() {
		samples = append(samples, ascend.Sample{
			Component: "PTA", Time: nanoseconds(l.at), Totals: ascend.Totals{Allocated: l.Allocated, Reserved: l.Reserved, Active: l.Active},
			Stream: "0", Device: k.device0(),
		})
	}
	return ascend.WriteSamples(w, samples)
}

// WriteTensors writes a rank's operator_memory.csv: the allocations that were
// there at some time in the iterations kept, oldest first, under the name of
// the operator that allocated.
func (r *Recorder) WriteTensors(w io.Writer, rank int) error {
	k := r.ranks[rank]
	var tensors []ascend.Tensor
	for _, l := range k.allocations() {
		t := ascend.Tensor{
			Name: l.op, Bytes: l.size, Alloc: nanoseconds(l.born), Release: ascend.Never, ActiveRelease: ascend.Never,
			AtAlloc:   ascend.Totals{Allocated: l.atAlloc.Allocated, Reserved: l.atAlloc.Reserved, Active: l.atAlloc.Active},
			AtRelease: ascend.Totals{Allocated: ascend.NoBytes, Reserved: ascend.NoBytes, Active: ascend.NoBytes},
			Stream:    fmt.Sprint(l.stream), Device: k.device0(),
		}
		if l.freed != never {
			t.Release = nanoseconds(l.freed)
			t.AtRelease = ascend.Totals{Allocated: l.atFree.Allocated, Reserved: l.atFree.Reserved, Active: l.atFree.Active}
		}
		if l.gone != never {
			t.ActiveRelease = nanoseconds(l.gone)
		}
		tensors = append(tensors, t)
	}
	return ascend.WriteTensors(w, tensors)
}

// device0 is what the profiler calls the first device that the rank stands for.
func (k *rank) device0() string { return fmt.Sprintf("NPU:%d", k.info.Devices[0]) }

// since lists the levels of the iterations kept. The first is that of their
// beginning.
func (k *rank) since() []level {
	all, from := k.levels.all(), k.from()
	first := sort.Search(len(all), func(i int) bool { return all[i].at >= from })
	if first == len(all) || all[first].at > from {
		first = max(0, first-1)
	}
	kept := slices.Clone(all[first:])
	if len(kept) > 0 {
		kept[0].at = max(kept[0].at, from)
	}
	return kept
}

// allocations are the lives that reach into the iterations kept, in order of
// their beginning.
func (k *rank) allocations() []life {
	var list []life
	for _, l := range k.lives.all() {
		if !k.old(l.iteration) {
			list = append(list, l)
		}
	}
	for _, l := range k.open {
		if l.size > 0 {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b life) int { return cmp.Compare(a.bornAs, b.bornAs) })
	return list
}

// Snapshot is the memory of all ranks as it is at the end, with the history that
// led there. Its frames say, innermost first, which tensor, operator, layer and
// phase of the program an entry belongs to.
func (r *Recorder) Snapshot() *snapshot.Snapshot {
	var s snapshot.Snapshot
	for _, k := range r.ranks {
		k.recorder.AddTo(&s)
	}
	return &s
}

// frameKey is a place in the program, and what is allocated there.
type frameKey struct {
	tensor, op string
	layer      int32
	phase      profilers.Phase
}

// context is the instant and the place of the present entry.
func (k *rank) context() (timeUS int64, frames []snapshot.Frame) {
	e := k.event
	key := frameKey{op: e.Place.Name, layer: e.Place.Layer, phase: e.Place.Stage.Phase}
	if e.Action == alloc.Alloc {
		key.tensor = e.Tensor
	}
	frames, ok := k.frames[key]
	if !ok {
		if key.tensor != "" {
			frames = append(frames, snapshot.Frame{Name: key.tensor, File: "tensor"})
		}
		frames = append(frames, snapshot.Frame{Name: key.op, File: "operator"})
		if key.layer > 0 {
			frames = append(frames, snapshot.Frame{Name: fmt.Sprintf("layer %d", key.layer), File: "model", Line: int(key.layer)})
		}
		frames = append(frames, snapshot.Frame{Name: phaseName(key.phase), File: "phase"})
		k.frames[key] = frames
	}
	return nanoseconds(e.Time) / 1000, frames
}

func phaseName(p profilers.Phase) string {
	switch p {
	case profilers.Forward:
		return "forward"
	case profilers.Backward:
		return "backward"
	case profilers.Optim:
		return "optimizer"
	}
	return "begin"
}
