package flashneuron

import (
	"smartswap/policies"
	"smartswap/sim"
)

// The host time of choosing. Assumed: one look at each operand of the program.
const (
	chooseFixed     = 1 * sim.Millisecond
	choosePerKernel = 1 * sim.Microsecond
	choosePerTensor = 100 * sim.Nanosecond
)

// Registration registers the policy. Its option is
//
//	gpu_bytes = 0    device memory that it reckons with; 0: what the allocator may have
func Registration() policies.Registration {
	return policies.Registration{
		Name:  "flashneuron",
		About: "offloads the first tensors of the forward pass to SSD, fetches them in the order of need (FlashNeuron as in G10)",
		Grade: policies.Static,
		New: func(params policies.Params) (policies.Policy, error) {
			p := &policy{}
			r := params.Read()
			policies.Int(r, "gpu_bytes", &p.gpu, 0, 1<<50)
			return p, r.Done()
		},
	}
}

// policy arms its plan at the first operator.
type policy struct {
	gpu    sim.Bytes
	chosen bool
	notes  []policies.Note
}

// Needs grants the nominal program.
func (*policy) Needs() policies.Needs {
	return policies.Needs{Grade: policies.Static, Memory: policies.Direct, Events: policies.Set(policies.BeforeOp)}
}

// Placing fetches in the order of need.
func (*policy) Placing() policies.Placing { return policies.ByNeed }

// Notes tells of the choice.
func (p *policy) Notes() []policies.Note { return p.notes }

// Handle chooses once. Where even offloading every candidate leaves too much,
// nothing is armed, and the run ends when the memory finds no room.
func (p *policy) Handle(ev *policies.Event, rt policies.Runtime) {
	if p.chosen || ev.Kind != policies.BeforeOp {
		return
	}
	p.chosen = true
	note := policies.Note{Iteration: ev.Iteration, Event: "planned", Phase: "planned"}
	defer func() { p.notes = append(p.notes, note) }()
	nominal := rt.Nominal()
	if nominal == nil {
		note.Event, note.Error = "no plan", "there is no nominal program"
		return
	}
	gpu := p.gpu
	if gpu == 0 {
		gpu = rt.Capacity()
	}
	c := Select(nominal, gpu)
	rt.Charge(chooseFixed + sim.Time(len(nominal.Kernels))*choosePerKernel + sim.Time(len(nominal.Tensors))*choosePerTensor)
	if !c.Fits {
		note.Event, note.Error = "no plan", "the program does not fit, whatever is offloaded"
		return
	}
	note.Swaps = len(c.Offloaded)
	for _, l := range c.Offloaded {
		note.Bytes += nominal.Tensors[l.Tensor].Bytes
	}
	if err := rt.Arm(&policies.Plan{Hints: c.Hints(), Iteration: ev.Iteration}); err != nil {
		note.Event, note.Error = "no plan", err.Error()
	}
}
