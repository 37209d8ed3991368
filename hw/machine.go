package hw

import (
	"fmt"
	"slices"

	"smartswap/sim"
)

// Slot is where a simulated rank sits: the device it uses, which is the first,
// and the identical devices it stands for, itself included.
type Slot struct{ Devices []int }

// Copy is one host copy, ready to run.
type Copy struct {
	Direction Direction
	Bytes     sim.Bytes
	Pageable  bool          // the host buffer is not page-locked: Link.Pageable
	Remote    bool          // the host buffer is on another NUMA node: Link.Remote
	Weight    int32         // share relative to other flows on a bottleneck; 0 = 1
	Done      sim.HandlerID // called with Arg when the last byte has arrived
	Arg       uint32
}

// CopyRate is the rate of a copy that shares nothing with anybody: the link's
// (or the pageable) rate, times the efficiency at its size. At least 1 B/s.
func (l *Link) CopyRate(b sim.Bytes, dir Direction, pageable bool) sim.Rate {
	rate := l.Rate[dir]
	if pageable {
		rate = min(rate, l.Pageable)
	}
	return scaled(rate, l.Efficiency.At(log2(int64(b))))
}

// Machine is a Node inside one run: the devices of its slots, their DMA
// engines, and the bandwidth they share.
//
// Each device has one DMA engine per direction, which carries one copy at a
// time in the order in which they were submitted. A copy holds its engine for
// Link.Latency, then moves its bytes as one flow over everything on its way:
// the device's link direction, the cap on both directions together if there is
// one, the uplink's direction, the memory of the host's NUMA node, and the
// HBM, where it meets the kernels. The flow never exceeds Link.CopyRate.
//
// A slot that stands for k devices is simulated once. What its copies use of
// the device and its link each device has for itself; an uplink or a NUMA node
// they load as many times as there are devices of the slot on it. A copy from
// a remote buffer loads the node of its device all the same: when every
// device's buffers are one node off, each node still serves as many.
type Machine struct {
	engine    *sim.Engine
	share     *sim.Share
	node      *Node
	ports     []port
	observers []func(slot int, c Copy, start, end sim.Time)
	starters  []func(slot int, c Copy)
}

// port is the simulated device of a slot.
type port struct {
	hbm  []sim.Use
	link [NumDirections]sim.ResourceID
	dma  [NumDirections]*dma
}

// numa is the NUMA node of a device, counted through the servers.
func (n *Node) numa(device int) int {
	server := n.Devices
	if n.Fabric.Server > 0 {
		server = min(server, n.Fabric.Server)
	}
	return device/server*n.Host.NUMA + device%server*n.Host.NUMA/server
}

// NewMachine registers a node's shared resources and DMA engines for a run.
// The error says which slot is empty, holds a device that the node lacks or
// another slot has, or cannot be folded: its devices do not all share their
// uplinks and NUMA nodes with the same numbers of devices of each slot, so one
// of them cannot stand for all.
func NewMachine(e *sim.Engine, s *sim.Share, n *Node, slots []Slot) (*Machine, error) {
	owner, err := owners(n, slots)
	if err != nil {
		return nil, err
	}
	m := &Machine{engine: e, share: s, node: n}
	numa := newDomains("NUMA node", n.Devices, owner, len(slots), n.numa)
	uplinks := newDomains("uplink", n.Devices, owner, len(slots), func(device int) int { return device / max(n.Link.UplinkDevices, 1) })
	memory := numa.register(s, "host memory of NUMA node", n.Host.NUMABandwidth)
	var uplink [NumDirections][]sim.ResourceID
	if n.Link.Uplink > 0 {
		for dir := range NumDirections {
			uplink[dir] = uplinks.register(s, dir.String()+" of uplink", n.Link.Uplink)
		}
	}
	for i, slot := range slots {
		device := slot.Devices[0]
		hbm := sim.Use{Resource: s.Resource(fmt.Sprint("HBM of device ", device), n.Device.Bandwidth), Times: 1}
		p := port{hbm: []sim.Use{hbm}}
		shared := []sim.Use{hbm}

		class, times, err := numa.of(i, slot)
		if err != nil {
			return nil, err
		}
		shared = append(shared, sim.Use{Resource: memory[class], Times: times})
		if n.Link.Both > 0 {
			shared = append(shared, sim.Use{Resource: s.Resource(fmt.Sprint("both ways of device ", device), n.Link.Both), Times: 1})
		}
		for dir := range NumDirections {
			p.link[dir] = s.Resource(fmt.Sprint(dir, " link of device ", device), n.Link.Rate[dir])
			path := append(slices.Clone(shared), sim.Use{Resource: p.link[dir], Times: 1})
			if n.Link.Uplink > 0 {
				class, times, err := uplinks.of(i, slot)
				if err != nil {
					return nil, err
				}
				path = append(path, sim.Use{Resource: uplink[dir][class], Times: times})
			}
			p.dma[dir] = &dma{machine: m, slot: i, direction: dir, path: path}
			p.dma[dir].id = e.Register(p.dma[dir])
		}
		m.ports = append(m.ports, p)
	}
	return m, nil
}

// HBM is the path of a kernel's demand on the memory of a slot's device.
func (m *Machine) HBM(slot int) []sim.Use { return m.ports[slot].hbm }

// Submit queues a copy on the slot's DMA engine of its direction.
func (m *Machine) Submit(slot int, c Copy) { m.ports[slot].dma[c.Direction].submit(c) }

// Busy is the time for which the slot's DMA engine of a direction has carried
// copies so far, their set-up included.
func (m *Machine) Busy(slot int, d Direction) sim.Time {
	e := m.ports[slot].dma[d]
	busy := e.busy
	if e.phase != idle {
		busy += m.engine.Now() - e.start
	}
	return busy
}

// Queued is the bytes of the copies waiting for, or on, the slot's DMA engine
// of a direction.
func (m *Machine) Queued(slot int, d Direction) sim.Bytes { return m.ports[slot].dma[d].queued }

// OnCopy adds an observer, called when a copy ends, before its Done handler.
// Start is when the engine took the copy.
func (m *Machine) OnCopy(f func(slot int, c Copy, start, end sim.Time)) {
	m.observers = append(m.observers, f)
}

// OnStart adds an observer, called when an engine takes a copy: inside Submit if
// the engine is idle.
func (m *Machine) OnStart(f func(slot int, c Copy)) { m.starters = append(m.starters, f) }

// phase is what a DMA engine is doing.
type phase uint8

const (
	idle phase = iota
	setup
	moving
)

// dma is one DMA engine: a handler that is called at the end of each phase.
type dma struct {
	machine   *Machine
	id        sim.HandlerID
	slot      int
	direction Direction
	path      []sim.Use

	queue  []Copy // queue[head:] are waiting, the first of them in progress unless idle
	head   int
	queued sim.Bytes
	phase  phase
	start  sim.Time // when the engine took the copy in progress
	busy   sim.Time // copies that have ended
}

func (d *dma) submit(c Copy) {
	if d.head > len(d.queue)/2 { // make room for what is to come
		d.queue = d.queue[:copy(d.queue, d.queue[d.head:])]
		d.head = 0
	}
	d.queue = append(d.queue, c)
	d.queued += c.Bytes
	if d.phase == idle {
		d.next()
	}
}

// next takes the first copy of the queue, if there is one.
func (d *dma) next() {
	if d.head == len(d.queue) {
		return
	}
	d.phase = setup
	d.start = d.machine.engine.Now()
	for _, f := range d.machine.starters {
		f(d.slot, d.queue[d.head])
	}
	d.machine.engine.After(d.machine.node.Link.Latency, sim.PrioFinish, d.id, 0)
}

// Handle ends a phase of the copy in progress.
func (d *dma) Handle(uint32, sim.Stamp) {
	if d.phase == setup {
		d.move()
		return
	}
	d.finish()
}

// move starts the flow of the copy in progress.
func (d *dma) move() {
	m, c := d.machine, d.queue[d.head]
	link := &m.node.Link
	rate := link.CopyRate(c.Bytes, d.direction, c.Pageable)
	if c.Remote {
		rate = scaled(rate, link.Remote)
	}
	d.phase = moving
	m.adapt(d.slot)
	m.share.Start(sim.FlowSpec{Path: d.path, Cap: rate, Weight: c.Weight, Work: sim.BytesWork(c.Bytes), Done: d.id})
}

func (d *dma) finish() {
	m, c, now := d.machine, d.queue[d.head], d.machine.engine.Now()
	d.head++
	d.queued -= c.Bytes
	d.busy += now - d.start
	d.phase = idle
	m.adapt(d.slot)
	for _, f := range m.observers {
		f(d.slot, c, d.start, now)
	}
	m.engine.At(now, sim.PrioFinish, c.Done, c.Arg)
	d.next()
}

// adapt sets the capacity of a device's link directions to what is left of
// them while both move data, or to all of it.
func (m *Machine) adapt(slot int) {
	p, link := &m.ports[slot], &m.node.Link
	both := p.dma[D2H].phase == moving && p.dma[H2D].phase == moving
	for dir := range NumDirections {
		want := link.Rate[dir]
		if both && link.RateBoth[dir] > 0 {
			want = link.RateBoth[dir]
		}
		if m.share.Capacity(p.link[dir]) != want {
			m.share.SetCapacity(p.link[dir], want)
		}
	}
}

// owners maps each device of the node to its slot, -1 for none.
func owners(n *Node, slots []Slot) ([]int, error) {
	owner := make([]int, n.Devices)
	for device := range owner {
		owner[device] = -1
	}
	for i, slot := range slots {
		if len(slot.Devices) == 0 {
			return nil, fmt.Errorf("slot %d: has no device", i)
		}
		for _, device := range slot.Devices {
			if device < 0 || device >= n.Devices {
				return nil, fmt.Errorf("slot %d: device %d: node %s has devices 0 to %d", i, device, n.Name, n.Devices-1)
			}
			if owner[device] >= 0 {
				return nil, fmt.Errorf("slot %d: device %d: already in slot %d", i, device, owner[device])
			}
			owner[device] = i
		}
	}
	return owner, nil
}

// domains are the places of one kind, uplinks or NUMA nodes, that devices share.
// Places with the same numbers of devices of each slot behave alike, so each
// class of alike places is one simulated resource.
type domains struct {
	kind    string
	place   func(device int) int
	counts  [][]int32 // by place: devices of each slot
	classOf []int     // by place: the first place that is alike
}

func newDomains(kind string, devices int, owner []int, slots int, place func(device int) int) *domains {
	d := &domains{kind: kind, place: place}
	for device := range devices {
		for place(device) >= len(d.counts) {
			d.counts = append(d.counts, make([]int32, slots))
		}
		if owner[device] >= 0 {
			d.counts[place(device)][owner[device]]++
		}
	}
	for _, c := range d.counts {
		d.classOf = append(d.classOf, slices.IndexFunc(d.counts, func(other []int32) bool { return slices.Equal(c, other) }))
	}
	return d
}

// register adds one resource per class; the result is indexed by class.
func (d *domains) register(s *sim.Share, name string, capacity sim.Rate) []sim.ResourceID {
	ids := make([]sim.ResourceID, len(d.counts))
	for place, class := range d.classOf {
		if place == class {
			ids[class] = s.Resource(fmt.Sprint(name, " ", place), capacity)
		}
	}
	return ids
}

// of is the class of the places that a slot's devices are in, and how many of
// the slot's devices each of them holds.
func (d *domains) of(i int, slot Slot) (class int, times int32, err error) {
	first := d.place(slot.Devices[0])
	for _, device := range slot.Devices[1:] {
		here := d.place(device)
		if d.classOf[here] != d.classOf[first] {
			return 0, 0, fmt.Errorf("slot %d cannot be folded: its device %d shares %s %d with other devices than its device %d shares %s %d",
				i, slot.Devices[0], d.kind, first, device, d.kind, here)
		}
	}
	return d.classOf[first], d.counts[first][i], nil
}

// scaled is a rate times a factor of at most 1, rounded down, at least 1 B/s.
func scaled(r sim.Rate, factor float64) sim.Rate {
	return max(sim.Rate(float64(r)*factor), 1)
}
