package eager

import (
	"fmt"

	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// Bounds are what no run without a policy can beat, found without simulating
// it.
type Bounds struct {
	// Time is the span of the iterations on streams alone: a host that costs
	// nothing, unlimited memory, no copies. Kernels, collectives, transfers
	// and the program's own events are in it, so it contains the pipeline
	// bubble and exposed communication.
	Time sim.Time
	// Memory is the largest peak of live requested bytes over the ranks, in
	// host order: an allocator reserves at least that much.
	Memory sim.Bytes
	// Live is the same peak of sizes as requested, without an allocator's
	// rounding: what a percentage of a job's memory is a percentage of.
	Live sim.Bytes
	// Rank is where Memory occurs.
	Rank int
}

// NewBounds computes the bounds of iteration i of a workload on a node, in a
// single pass over its commands.
func NewBounds(node *hw.Node, w workloads.Workload, i int) (Bounds, error) {
	return bounds(node, w, i, i+1)
}

// NewRunBounds computes the bounds of the first n iterations together: Time is
// that of the whole run.
func NewRunBounds(node *hw.Node, w workloads.Workload, n int) (Bounds, error) {
	return bounds(node, w, 0, n)
}

func bounds(node *hw.Node, w workloads.Workload, from, to int) (Bounds, error) {
	j := &job{node: *node, groups: make(map[string]int32), prepared: make(map[*workloads.Program]*prepared), fabric: stream.NewFabric(nil)}
	net := network{arrivals: make(map[int32][]*lane)}
	var b Bounds
	for r := range w.Ranks() {
		lanes := net.rank()
		for i := from; i < to; i++ {
			p, err := w.Program(r, i)
			if err != nil {
				return Bounds{}, err
			}
			if m := workloads.PeakLive(p, 512); m > b.Memory {
				b.Memory, b.Rank = m, r
			}
			b.Live = max(b.Live, workloads.PeakLive(p, 1))
			add(lanes, p, j.prepare(p))
		}
	}
	if !net.run() {
		return Bounds{}, fmt.Errorf("workload %s: its ranks wait for each other for ever", w.Name())
	}
	for _, l := range net.lanes {
		b.Time = max(b.Time, l.at)
	}
	return b, nil
}

// network is the streams of all ranks as a dataflow network: each lane
// advances when what it waits for is known, in any order, since the result
// does not depend on it.
type network struct {
	lanes    []*lane
	arrivals map[int32][]*lane // group -> members that have reached it
}

// lane is one stream of one rank.
type lane struct {
	steps []step
	head  int
	at    sim.Time // end of what has run
	ends  []sim.Time
	met   bool // the meeting at the head has been announced
}

type stepKind uint8

const (
	stepRun stepKind = iota
	stepMeet
	stepWait
)

type step struct {
	kind  stepKind
	span  sim.Time
	group int32
	size  int32 // members of the group
	on    *lane // stepWait: position pos of that lane
	pos   int32
}

// rank adds the lanes of a rank.
func (n *network) rank() (lanes [workloads.NumLanes]*lane) {
	for i := range lanes {
		lanes[i] = &lane{}
		n.lanes = append(n.lanes, lanes[i])
	}
	return lanes
}

// add appends a program to the lanes of its rank.
func add(lanes [workloads.NumLanes]*lane, p *workloads.Program, w *prepared) {
	type point struct {
		on  *lane
		pos int32
	}
	events := make([]point, p.Events)
	for i := range p.Instrs {
		in := &p.Instrs[i]
		l := lanes[in.Lane]
		switch in.Kind {
		case workloads.Op:
			if in.Kernel < 0 {
				continue
			}
			c := &w.commands[in.Kernel]
			s := step{span: c.Timing.Span}
			if c.Kind == stream.Meet {
				s.kind, s.group, s.size = stepMeet, c.Group, int32(len(p.Kernels[in.Kernel].Group))
			}
			l.steps = append(l.steps, s)
		case workloads.Record:
			events[in.A] = point{l, int32(len(l.steps))}
		case workloads.Wait:
			if e := events[in.A]; e.on != nil && e.on != l && e.pos > 0 {
				l.steps = append(l.steps, step{kind: stepWait, on: e.on, pos: e.pos})
			}
		}
	}
}

// run advances all lanes to their ends; false if they cannot.
func (n *network) run() bool {
	for progress := true; progress; {
		progress = false
		for _, l := range n.lanes {
			for l.head < len(l.steps) && n.advance(l) {
				progress = true
			}
		}
	}
	for _, l := range n.lanes {
		if l.head < len(l.steps) {
			return false
		}
	}
	return true
}

// advance runs the head of l if what it waits for is known.
func (n *network) advance(l *lane) bool {
	s := &l.steps[l.head]
	switch s.kind {
	case stepWait:
		if s.on.head < int(s.pos) {
			return false
		}
		l.done(max(l.at, s.on.ends[s.pos-1]))
	case stepRun:
		l.done(l.at + s.span)
	case stepMeet:
		if !l.met {
			l.met = true
			n.arrivals[s.group] = append(n.arrivals[s.group], l)
		}
		here := n.arrivals[s.group]
		if len(here) < int(s.size) {
			return false
		}
		var start sim.Time
		for _, m := range here {
			start = max(start, m.at)
		}
		for _, m := range here {
			m.met = false
			m.done(start + s.span)
		}
		n.arrivals[s.group] = here[:0]
	}
	return true
}

func (l *lane) done(at sim.Time) {
	l.at = at
	l.ends = append(l.ends, at)
	l.head++
}
