package unified

import (
	"smartswap/eager/stream"
	"smartswap/sim"
)

// mover tells of the batches that moved something.
type mover struct {
	stream.Moves
	before struct{ in, out int64 } // pages up to the last one
}

// note tells of n equal batches, the first at tick d.tick. A batch moves its
// pages in the time up to its tick.
func (m *mover) note(d *driver, n int64) {
	if !m.Watched() {
		return
	}
	var in, out int64
	for p := device; p < numPlaces; p++ {
		in, out = in+d.counts.in[p], out+d.counts.out[p]
	}
	start, end := sim.Time(max(0, d.tick-d.limits.ticks)), sim.Time(d.tick+(n-1)*d.limits.ticks)
	m.In(start, end, sim.Bytes(in-m.before.in)*d.opt.Page)
	m.Out(start, end, sim.Bytes(out-m.before.out)*d.opt.Page)
	m.before.in, m.before.out = in, out
}

// Moves are the times in which pages moved, for those who watch.
func (m *Memory) Moves() *stream.Moves { return &m.driver.moves.Moves }
