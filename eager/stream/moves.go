package stream

import "smartswap/sim"

// Move is a time in which content came to the device or left it, beside the
// streams.
type Move struct {
	Start, End sim.Time
	Bytes      sim.Bytes
}

// Moves gathers what a Residency moves, for those who watch. Moves of one
// direction that meet or overlap become one, so that there are few: one for each
// stretch of time without a pause, cut where they are taken. The zero Moves
// drops what it is told; Watch starts it.
type Moves struct {
	watched bool
	in, out moves
}

type moves struct {
	list  []Move   // in order, with pauses between
	until sim.Time // when the latest that was taken ended
}

// Watch starts to gather.
func (m *Moves) Watch() { m.watched = true }

// Watched says whether anybody watches.
func (m *Moves) Watched() bool { return m.watched }

// In tells of a move to the device. Moves of one direction come in the order of
// their ends.
func (m *Moves) In(start, end sim.Time, n sim.Bytes) { m.add(&m.in, start, end, n) }

// Out tells of a move from the device.
func (m *Moves) Out(start, end sim.Time, n sim.Bytes) { m.add(&m.out, start, end, n) }

func (m *Moves) add(to *moves, start, end sim.Time, n sim.Bytes) {
	if !m.watched || n == 0 {
		return
	}
	v := Move{max(start, to.until), end, n}
	for i := len(to.list) - 1; i >= 0 && to.list[i].End >= v.Start; i-- {
		v.Start, v.Bytes = min(v.Start, to.list[i].Start), v.Bytes+to.list[i].Bytes
		to.list = to.list[:i]
	}
	to.list = append(to.list, v)
}

// Take hands over what was gathered since the last call: moves in order, without
// overlaps. The lists are valid until the next In or Out.
func (m *Moves) Take() (in, out []Move) { return m.in.take(), m.out.take() }

func (m *moves) take() []Move {
	list := m.list
	if n := len(list); n > 0 {
		m.until = list[n-1].End
	}
	m.list = m.list[:0]
	return list
}
