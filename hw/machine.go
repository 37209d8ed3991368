package hw

import "smartswap/sim"

// Slot is where a simulated rank sits: the device it uses and the identical
// devices it stands for.
type Slot struct{ Devices []int }

// Kernels, copies and collectives of one run. See NewMachine.
//
//	func NewMachine(e *sim.Engine, s *sim.Share, n *Node, slots []Slot) (*Machine, error)
//	func (m *Machine) Kernel(slot int, w Work) Timing           // cached by the caller per distinct Work
//	func (m *Machine) HBM(slot int) []sim.Use                   // path of a kernel's HBM demand
//	func (m *Machine) Copy(slot int, c Copy)                    // queue on the slot's DMA engine of c.Direction
//	func (m *Machine) OnCopy(func(slot int, c Copy, start, end sim.Time))

// Timing is a kernel's demand when nothing disturbs it: it takes Span and
// draws HBM bytes at Demand while it runs.
type Timing struct {
	Span   sim.Time
	Demand sim.Rate
}

// Copy is one host copy, ready to run.
type Copy struct {
	Direction Direction
	Bytes     sim.Bytes
	Pageable  bool
	Done      sim.HandlerID // called with Arg when the last byte has arrived
	Arg       uint32
}
