package inspect

import (
	"cmp"
	"slices"

	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// life is when a storage of a program is there and used. Points in time are
// numbers of operators, from 0 in host order.
type life struct {
	Storage     workloads.StorageID
	Bytes       sim.Bytes
	Born, Freed int // first write; the operator after the last reference went
	Idle        int // most operators between two uses that follow each other, or a use and the end
	last        int // use
}

// Alive is for how many operators the storage is there.
func (l *life) Alive() int { return l.Freed - l.Born }

// summary is what one program holds.
type summary struct {
	Ops, Kernels, Measured, HostOps int
	DeviceTime, HostTime            sim.Time // sums of what was recorded
	LongestHost                     sim.Time // of one operator
	Residents, Peak                 sim.Bytes
	PeakAt                          int // operator
	Storages                        int // that are born in the program
	Bytes                           sim.Bytes
	Scratch                         sim.Bytes // the largest workspace
	Lives                           []life    // of those, by bytes times operators alive, largest first
}

// summarize walks through a valid program once.
func summarize(p *workloads.Program) summary {
	s := summary{Storages: len(p.Storages) - int(p.Residents)}
	lives := make([]life, len(p.Storages))
	refs := make([]int32, len(p.Storages))
	for i := range p.Storages {
		lives[i] = life{Storage: workloads.StorageID(i), Bytes: p.Storages[i].Bytes, Born: -1}
		if i < int(p.Residents) {
			s.Residents += p.Storages[i].Bytes
			refs[i], lives[i].Born = 1, 0
		} else {
			s.Bytes += p.Storages[i].Bytes
		}
	}
	now := s.Residents
	op := 0
	for i := range p.Instrs {
		in := &p.Instrs[i]
		switch in.Kind {
		case workloads.Op:
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				l := &lives[a.Storage]
				if l.Born < 0 {
					l.Born, l.last = op, op
					refs[a.Storage] = 1
					now += l.Bytes
				}
				l.use(op)
			}
			if now+in.Scratch > s.Peak {
				s.Peak, s.PeakAt = now+in.Scratch, op
			}
			s.operator(p, in)
			op++
		case workloads.Ref:
			refs[in.A]++
		case workloads.Drop:
			if refs[in.A]--; refs[in.A] == 0 {
				l := &lives[in.A]
				l.Freed = op
				l.Idle = max(l.Idle, op-l.last-1)
				now -= l.Bytes
			}
		}
	}
	s.Lives = lives[p.Residents:]
	slices.SortStableFunc(s.Lives, func(a, b life) int {
		return cmp.Compare(float64(b.Bytes)*float64(b.Alive()), float64(a.Bytes)*float64(a.Alive()))
	})
	return s
}

func (l *life) use(op int) {
	l.Idle = max(l.Idle, op-l.last-1)
	l.last = op
}

// operator counts an operator's work.
func (s *summary) operator(p *workloads.Program, in *workloads.Instr) {
	s.Ops++
	s.Scratch = max(s.Scratch, in.Scratch)
	if in.Host > 0 {
		s.HostOps++
		s.HostTime += in.Host
		s.LongestHost = max(s.LongestHost, in.Host)
	}
	if in.Kernel < 0 {
		return
	}
	s.Kernels++
	if k := &p.Kernels[in.Kernel]; k.Kind == hw.Measured {
		s.Measured++
		s.DeviceTime += k.Time
	}
}
