package inspect

import (
	"fmt"
	"strings"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/policies/smartswap"
	"smartswap/profilers"
	"smartswap/workloads"
)

// planner is the one policy whose plans can be explained from one iteration.
const planner = "smartswap"

// runPlan profiles an iteration as it runs with all the memory it wants, and
// prints the plan made from that profile.
func runPlan(c *call) error {
	opt := c.traceFlags()
	policy := c.flags.String("policy", planner, "policy that plans")
	preset := c.flags.String("preset", smartswap.Presets()[0].Name, "`name` of a set of options")
	var set listFlag
	c.flags.Var(&set, "set", "policy option as `key=value`; may be repeated")
	node := c.flags.String("node", "910b2-8", "`name` of the node that kernels without measured times run on")
	rank := c.flags.Int("rank", 0, "`number` of the rank, from 0")
	iteration := c.flags.Int("iteration", 0, "`number` of the iteration, from 0")
	layers := c.flags.Int("layers", 0, "`number` of layers of the model; 0 = not known: presets that plan by layers, such as faithful-v1, then plan nothing")
	if err := c.parse(1); err != nil {
		return err
	}
	if *policy != planner {
		return fmt.Errorf("-policy %s: allowed: %s", *policy, planner)
	}
	params := policies.Params{"preset": *preset}
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("-set %q: want key=value", s)
		}
		params[key] = plain(value)
	}
	o, err := smartswap.ReadOptions(params)
	if err != nil {
		return err
	}
	w, _, err := c.open(c.args[0], opt)
	if err != nil {
		return err
	}
	if err := checkIteration(w, *iteration); err != nil {
		return err
	}
	switch {
	case *rank < 0 || *rank >= len(w.Ranks()):
		return fmt.Errorf("-rank %d: %s has ranks 0 to %d", *rank, w.Name(), len(w.Ranks())-1)
	case *layers < 0:
		return fmt.Errorf("-layers %d: want 0 or more", *layers)
	}
	n, err := hw.Load(*node)
	if err != nil {
		return fmt.Errorf("-node: %w", err) // which names it
	}
	obs, err := profile(w, n, *rank, *iteration, *layers)
	if err != nil {
		return err
	}
	schedule, err := smartswap.Explain(obs, o)
	if err != nil {
		return err
	}
	program, err := w.Program(*rank, *iteration)
	if err != nil {
		return err
	}
	labels := labels(program, obs)
	return schedule.Table(c.stdout, func(t profilers.Tensor) string { return labels[t] })
}

// plain reads an option's value as a configuration file would: true, false, a
// number, or else a string.
func plain(value string) any {
	var i int64
	var f float64
	switch {
	case value == "true" || value == "false":
		return value == "true"
	case scan(value, &i):
		return i
	case scan(value, &f):
		return f
	}
	return value
}

// scan reads all of s.
func scan[T int64 | float64](s string, to *T) bool {
	var rest string
	n, _ := fmt.Sscan(s, to, &rest)
	return n == 1
}

// witness is a policy that only looks.
type witness struct {
	iteration int
	seen      *profilers.Observation
}

// Needs asks for everything that planners may.
func (*witness) Needs() policies.Needs {
	return policies.Needs{
		Fields: profilers.IterationTime | profilers.OpNames | profilers.OpRecords | profilers.TensorArgs |
			profilers.MemoryStats | profilers.SwapRecords,
		Events: policies.Set(policies.IterationEnd),
	}
}

// Handle keeps the observation.
func (w *witness) Handle(ev *policies.Event, _ policies.Runtime) {
	if ev.Iteration == w.iteration {
		w.seen = ev.Observation
	}
}

// profile runs a workload up to an iteration without limits on memory and
// without host costs. The iteration's duration is that on the device.
func profile(w workloads.Workload, n *hw.Node, rank, iteration, layers int) (*profilers.Observation, error) {
	var all []*witness
	a := alloc.DefaultOptions()
	a.Backend = "bytes"
	r, err := eager.Run(eager.Config{
		Node: n, Workload: w, Unbounded: true, HostNone: true,
		NewPolicy: func() (policies.Policy, error) {
			all = append(all, &witness{iteration: iteration})
			return all[len(all)-1], nil
		},
		Profiler:  profilers.Spec{Records: (*witness)(nil).Needs().Fields},
		Allocator: a, Pinned: alloc.PinnedOptions{Rounding: alloc.RoundExact, Reuse: alloc.BuffersReuse},
		Executor: swap.DefaultOptions(), Iterations: iteration + 1, Layers: layers,
	})
	if err != nil {
		return nil, err
	}
	obs := all[rank].seen
	obs.Duration = r.Iterations[iteration].Span
	return obs, nil
}

// labels names the tensors of an observation by the storages of the program
// that it was made of.
func labels(p *workloads.Program, obs *profilers.Observation) map[profilers.Tensor]string {
	names := make(map[profilers.Tensor]string)
	op := 0
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if in.Kind != workloads.Op || op >= len(obs.Ops) {
			continue
		}
		for k, t := range obs.Args(&obs.Ops[op]) {
			s := p.Args[int(in.ArgLo)+k].Storage
			if _, known := names[t.Tensor]; !known {
				names[t.Tensor] = fmt.Sprintf("%s #%d", p.Names.String(p.Storages[s].Label), s)
			}
		}
		op++
	}
	return names
}
