package workloadstest

import (
	"fmt"
	"slices"

	"smartswap/hw"
	"smartswap/workloads"
)

// Play executes one iteration of all ranks on a machine with nothing but order:
// lanes run their work one after another, events and rendezvous hold, the host
// costs no time and stops only at Sync, cost prices each kernel. It returns the
// time at which the last lane ends, or an error that says where everything
// stands still.
func Play(w workloads.Workload, iteration int, cost func(*workloads.Kernel) int64) (int64, error) {
	players := make([]*player, len(w.Ranks()))
	for r := range players {
		p, err := w.Program(r, iteration)
		if err != nil {
			return 0, err
		}
		players[r] = &player{p: p, done: make([]int64, p.Events)}
		for e := range players[r].done {
			players[r].done[e] = -1
		}
	}
	for {
		progress := false
		for r, p := range players {
			progress = p.dispatch() || progress
			for lane := range p.queue {
				for advance(players, r, lane, cost) {
					progress = true
				}
			}
		}
		if !progress {
			break
		}
	}
	end := int64(0)
	for r, p := range players {
		for lane, q := range p.queue {
			if len(q) > 0 {
				return 0, fmt.Errorf("rank %d stands still at instruction %d on lane %d", r, q[0], lane)
			}
			end = max(end, p.free[lane])
		}
		if p.next < len(p.p.Instrs) {
			return 0, fmt.Errorf("rank %d: the host stands still at instruction %d", r, p.next)
		}
	}
	return end, nil
}

// player is one rank: where its host is, what its lanes still have to do, when
// each lane is free and each event was reached (-1 = not yet).
type player struct {
	p     *workloads.Program
	next  int
	queue [workloads.NumLanes][]int
	free  [workloads.NumLanes]int64
	done  []int64
}

// dispatch lets the host run up to a Sync whose lane is not empty.
func (p *player) dispatch() (progress bool) {
	for ; p.next < len(p.p.Instrs); p.next++ {
		switch in := &p.p.Instrs[p.next]; in.Kind {
		case workloads.Sync:
			if len(p.queue[in.Lane]) > 0 {
				return progress
			}
		case workloads.Op, workloads.Record, workloads.Wait:
			p.queue[in.Lane] = append(p.queue[in.Lane], p.next)
		}
		progress = true
	}
	return progress
}

// kernel is what the head of lane wants to run; nil if it is no kernel.
func (p *player) kernel(lane int) *workloads.Kernel {
	if len(p.queue[lane]) == 0 {
		return nil
	}
	in := &p.p.Instrs[p.queue[lane][0]]
	if in.Kind != workloads.Op || in.Kernel < 0 {
		return nil
	}
	return &p.p.Kernels[in.Kernel]
}

func (p *player) pop(lane int) { p.queue[lane] = p.queue[lane][1:] }

// advance runs the head of a lane if it can run, with all members of its group.
func advance(players []*player, r, lane int, cost func(*workloads.Kernel) int64) bool {
	p := players[r]
	if len(p.queue[lane]) == 0 {
		return false
	}
	in := &p.p.Instrs[p.queue[lane][0]]
	k := p.kernel(lane)
	switch {
	case in.Kind == workloads.Record:
		p.done[in.A] = p.free[lane]
	case in.Kind == workloads.Wait:
		if p.done[in.A] < 0 {
			return false
		}
		p.free[lane] = max(p.free[lane], p.done[in.A])
	case k == nil: // host only
	case len(k.Group) < 2:
		p.free[lane] += cost(k)
	default:
		return meet(players, k, cost)
	}
	p.pop(lane)
	return true
}

// meet runs k on all its members if it is at the head of a lane of each.
func meet(players []*player, k *workloads.Kernel, cost func(*workloads.Kernel) int64) bool {
	lanes := make([]int, len(k.Group))
	start := int64(0)
	for i, member := range k.Group {
		m := players[member]
		lanes[i] = -1
		for lane := range m.queue {
			if have := m.kernel(lane); have != nil && samePlace(have, k) {
				lanes[i] = lane
			}
		}
		if lanes[i] < 0 {
			return false
		}
		start = max(start, m.free[lanes[i]])
	}
	for i, member := range k.Group {
		m := players[member]
		m.free[lanes[i]] = start + cost(k)
		m.pop(lanes[i])
	}
	return true
}

// samePlace tells whether two members mean the same collective or transfer: the
// same group and tag, and work that fits together.
func samePlace(a, b *workloads.Kernel) bool {
	return a.Tag == b.Tag && slices.Equal(a.Group, b.Group) && a.Work == b.Work
}

// Races finds work of two lanes that touches one storage without an order
// between them, given by events: a conflict (one of both writes), memory that
// another lane first writes while earlier work of the compute lane, whose memory
// it may have been, is not known to be over, and memory freed while another
// lane's use is not known to be over to the compute lane. The host's Sync orders
// everything after it behind the lane it waited for.
//
// It is the usual vector-clock algorithm; time is linear in the program.
func Races(p *workloads.Program) error {
	type clock [workloads.NumLanes]int64
	join := func(a *clock, b clock) {
		for l := range a {
			a[l] = max(a[l], b[l])
		}
	}
	type use struct{ read, write clock } // by lane: when it last read or wrote
	var now [workloads.NumLanes]clock    // what each lane knows of all
	events := make([]clock, p.Events)
	uses := make([]use, len(p.Storages))
	refs := make([]int32, len(p.Storages))
	for s := range p.Residents {
		refs[s] = 1
	}
	behind := func(known, of clock) bool {
		for l := range known {
			if known[l] < of[l] {
				return false
			}
		}
		return true
	}
	for i := range p.Instrs {
		in := &p.Instrs[i]
		lane := in.Lane
		switch in.Kind {
		case workloads.Record:
			events[in.A] = now[lane]
		case workloads.Wait:
			join(&now[lane], events[in.A])
		case workloads.Sync:
			for l := range now {
				join(&now[l], now[lane])
			}
		case workloads.Ref:
			refs[in.A]++
		case workloads.Drop:
			refs[in.A]--
			if u := &uses[in.A]; refs[in.A] == 0 && !(behind(now[workloads.Compute], u.read) && behind(now[workloads.Compute], u.write)) {
				return fmt.Errorf("instruction %d frees storage %d while another lane may use it", i, in.A)
			}
		case workloads.Op:
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				u := &uses[a.Storage]
				if !behind(now[lane], u.write) || (a.Mode != workloads.Read && !behind(now[lane], u.read)) {
					return fmt.Errorf("instruction %d uses storage %d beside another lane", i, a.Storage)
				}
				if refs[a.Storage] == 0 {
					refs[a.Storage] = 1
					if now[lane][workloads.Compute] < now[workloads.Compute][workloads.Compute] {
						return fmt.Errorf("instruction %d takes new memory for storage %d without waiting for the compute lane", i, a.Storage)
					}
				}
			}
			now[lane][lane]++
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				if a.Mode != workloads.Write {
					uses[a.Storage].read[lane] = now[lane][lane]
				}
				if a.Mode != workloads.Read {
					uses[a.Storage].write[lane] = now[lane][lane]
				}
			}
		}
	}
	return nil
}

// Flops adds up the floating-point operations of a program's kernels; those of
// recomputed operators apart.
func Flops(p *workloads.Program) (once, recomputed int64) {
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if in.Kind != workloads.Op || in.Kernel < 0 || p.Kernels[in.Kernel].Kind == hw.Measured {
			continue
		}
		if f := p.Kernels[in.Kernel].Flops; in.Flags&workloads.Recomputed != 0 {
			recomputed += f
		} else {
			once += f
		}
	}
	return once, recomputed
}
