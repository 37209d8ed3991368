package trace

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"smartswap/formats/dtr"
	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// openDTR makes the workload of one device that repeats the step of a DTR log.
//
// The log tells everything: a name is a reference, COPY one more, RELEASE one
// less. Constants are residents. A result that shares the memory of an argument
// is another view of its storage, numbered from 1, and appears as the last
// arguments of the operator that makes it, read. An operator that changes
// arguments in place makes new storages, as DTR treats it, so that every
// operator can run again: all are replayable. What still has a name at the end
// is the step's output; a last host-only operator named "outputs" reads it.
//
// A tensor of 0 bytes stays one. Measured times of the log are the kernels' times; without host costs and
// without evictions a step takes their sum.
func openDTR(rep *Report, path string, opt Options) (*native.Trace, error) {
	c := dtrConverter{names: make(map[string]*cellView)}
	err := readFile(rep, path, opt, func(r io.Reader, name string) error {
		c.file = name
		return dtr.Read(r, name, &rep.list, c.take)
	})
	if err != nil {
		return nil, err
	}
	c.outputs()
	p, names, err := c.write(kindOf(rep, c.sign()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	if c.unknown > 0 {
		rep.note(Skipped, c.file, "%d releases of names that nothing has", c.unknown)
	}
	if c.rebound > 0 {
		rep.note(Repaired, c.file, "%d names that were given again without a release", c.rebound)
	}
	rep.note(Inferred, c.file, "%d tensors that are made before BACKWARD and used after it count as saved by autograd", c.saved)
	rep.note(Inferred, c.file, "kernel families, from the names of the operators")
	base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gz"), ".log")
	rank := workloads.Rank{Devices: []int{0}, Residents: p.Storages[:p.Residents:p.Residents]}
	return native.NewTrace(base, 0, names, []workloads.Rank{rank}, [][]*workloads.Program{{p}}), nil
}

// sign is what shows that the log is of a training step; "" = nothing.
func (c *dtrConverter) sign() string {
	if c.backward {
		return "ANNOTATION BACKWARD"
	}
	for i := range c.steps {
		if trainsAt(c.steps[i].name) >= 0 {
			return c.steps[i].name
		}
	}
	return ""
}

// dtrConverter resolves names first, then writes: residents come before all
// other storages.
type dtrConverter struct {
	file  string
	names map[string]*cellView
	order []string // names in the order in which they were first given
	script
	backward bool

	unknown, rebound int
}

// take resolves one instruction.
func (c *dtrConverter) take(i *dtr.Instr) error {
	if len(c.steps) > maxRecords || len(c.order) > maxRecords {
		return fmt.Errorf("%s:%d: more than %d instructions", c.file, i.Line, maxRecords)
	}
	switch i.Kind {
	case dtr.Constant:
		s := c.storage(i.Bytes, "constant")
		s.constant = true
		c.bind(i.Name, &cellView{storage: s})
	case dtr.Call, dtr.Mutate:
		return c.operator(i)
	case dtr.Copy, dtr.CopyFrom:
		t, err := c.tensor(i, i.Src)
		if err != nil {
			return err
		}
		c.ref(t.storage) // first: Dst may be the last name of it
		c.bind(i.Dst, t)
	case dtr.Release:
		if !c.unbind(i.Name) {
			c.unknown++
		}
	case dtr.Backward:
		if !c.backward {
			c.steps = append(c.steps, scriptStep{kind: workloads.Mark, phase: workloads.MarkBackwardBegin})
		}
		c.backward = true
	}
	return nil
}

// storage makes a storage that has one name.
func (c *dtrConverter) storage(bytes sim.Bytes, label string) *cell {
	s := &cell{bytes: bytes, label: label, refs: 1, forward: !c.backward}
	c.cells = append(c.cells, s)
	return s
}

func (c *dtrConverter) tensor(i *dtr.Instr, name string) (*cellView, error) {
	if t := c.names[name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%s:%d: %s uses %q, which is not the name of a tensor here", c.file, i.Line, i.Name, name)
}

// bind makes name stand for t and gives up what it stood for.
func (c *dtrConverter) bind(name string, t *cellView) {
	if old, ok := c.names[name]; !ok {
		c.order = append(c.order, name)
	} else if old != nil {
		defer c.drop(old.storage)
		c.rebound++
	}
	c.names[name] = t
}

func (c *dtrConverter) unbind(name string) bool {
	t := c.names[name]
	if t == nil {
		return false
	}
	c.names[name] = nil
	c.drop(t.storage)
	return true
}

func (c *dtrConverter) ref(s *cell) {
	s.refs++
	if !s.constant {
		c.steps = append(c.steps, scriptStep{kind: workloads.Ref, at: s})
	}
}

// drop gives a reference back. Residents stay whatever happens to their names.
func (c *dtrConverter) drop(s *cell) {
	s.refs--
	if !s.constant {
		c.steps = append(c.steps, scriptStep{kind: workloads.Drop, at: s, last: s.refs == 0})
	}
}

// operator resolves a CALL or MUTATE.
func (c *dtrConverter) operator(i *dtr.Instr) error {
	step := scriptStep{kind: workloads.Op, name: i.Name, flags: workloads.Replayable}
	step.work = hw.Work{Kind: hw.Measured, Family: familyByName(i.Name), Time: i.Time}
	var args []*cellView
	for _, name := range i.Args {
		t, err := c.tensor(i, name)
		if err != nil {
			return err
		}
		args = append(args, t)
		step.args = append(step.args, scriptArg{*t, workloads.Read})
		if c.backward && t.storage.forward && !t.storage.constant {
			t.storage.saved = true
		}
	}
	type result struct {
		name string
		t    *cellView
	}
	var made []result
	var shared []*cell
	for _, r := range i.Results {
		if r.Alias == dtr.Own {
			made = append(made, result{r.Name, &cellView{storage: c.storage(r.Bytes, "output of "+i.Name)}})
			continue
		}
		s := args[r.Alias].storage
		s.views++
		made = append(made, result{r.Name, &cellView{s, s.views}})
		shared = append(shared, s)
	}
	for _, m := range i.Mutated {
		made = append(made, result{i.Args[m], &cellView{storage: c.storage(args[m].storage.bytes, "output of "+i.Name)}})
	}
	for _, r := range made {
		mode := workloads.Write
		if r.t.view > 0 {
			mode = workloads.Read
			step.flags |= workloads.Views
		}
		step.args = append(step.args, scriptArg{*r.t, mode})
	}
	c.steps = append(c.steps, step)
	for _, s := range shared {
		c.ref(s)
	}
	for k, r := range made {
		c.bind(r.name, r.t)
		if k >= len(i.Results) {
			c.rebound-- // that is what MUTATE means
		}
	}
	return nil
}

// outputs reads what still has a name, then takes the names away.
func (c *dtrConverter) outputs() {
	step := scriptStep{kind: workloads.Op, name: "outputs", hostOnly: true}
	for _, name := range c.order {
		if t := c.names[name]; t != nil && !t.storage.constant {
			step.args = append(step.args, scriptArg{*t, workloads.Read})
		}
	}
	if len(step.args) > 0 {
		c.steps = append(c.steps, step)
	}
	for _, name := range c.order {
		c.unbind(name)
	}
}
