package direct

import (
	"smartswap/eager/stream"
	"smartswap/policies"
	"smartswap/sim"
)

// rate is that of a tier's link.
func (m *Memory) rate(tier policies.TierID, d Direction) sim.Rate {
	if d == In {
		return m.o.Tiers[tier].In
	}
	return m.o.Tiers[tier].Out
}

// moved tells of a transfer that ends now.
func (m *Memory) moved(tier policies.TierID, d Direction, n sim.Bytes) {
	now := m.eng.Now()
	start := now - duration(n, m.rate(tier, d))
	if d == In {
		m.moves.In(start, now, n)
	} else {
		m.moves.Out(start, now, n)
	}
}

// Moves are the times in which tensors moved, for those who watch.
func (m *Memory) Moves() *stream.Moves { return &m.moves }
