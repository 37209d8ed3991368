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
// Measured times of the log are the kernels' times; without host costs and
// without evictions a step takes their sum.
func openDTR(rep *Report, path string, opt Options) (*native.Trace, error) {
	c := dtrConverter{names: make(map[string]*dtrTensor)}
	err := readFile(rep, path, opt, func(r io.Reader, name string) error {
		c.file = name
		return dtr.Read(r, name, &rep.list, c.take)
	})
	if err != nil {
		return nil, err
	}
	p, names, err := c.write()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	if c.unknown > 0 {
		rep.note(Skipped, c.file, "%d releases of names that nothing has", c.unknown)
	}
	if c.empty > 0 {
		rep.note(Repaired, c.file, "%d tensors of 0 bytes take 1", c.empty)
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

// dtrStorage is memory; refs counts the names of all its views.
type dtrStorage struct {
	bytes    sim.Bytes
	constant bool
	refs     int
	views    int
	label    string
	forward  bool // made before BACKWARD
	saved    bool // … and used after it
	unpacked bool
	id       workloads.StorageID
}

// dtrTensor is a view of a storage: what names stand for.
type dtrTensor struct {
	storage *dtrStorage
	view    int
}

// dtrArg is an argument before storages have their numbers.
type dtrArg struct {
	dtrTensor
	mode workloads.Access
}

// dtrStep is an instruction of the program to be.
type dtrStep struct {
	kind workloads.InstrKind // Op, Ref, Drop; Mark = the backward pass begins
	name string
	time sim.Time
	args []dtrArg
	at   *dtrStorage
	last bool // Drop: the last reference
}

// dtrConverter resolves names first, then writes: residents come before all
// other storages.
type dtrConverter struct {
	file     string
	names    map[string]*dtrTensor
	order    []string // names in the order in which they were first given
	storages []*dtrStorage
	steps    []dtrStep
	backward bool

	unknown, empty, rebound, saved int
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
		c.bind(i.Name, &dtrTensor{storage: s})
	case dtr.Call, dtr.Mutate:
		return c.operator(i)
	case dtr.Copy, dtr.CopyFrom:
		t, err := c.tensor(i, i.Src)
		if err != nil {
			return err
		}
		c.bind(i.Dst, t)
		c.ref(t.storage)
	case dtr.Release:
		if !c.unbind(i.Name) {
			c.unknown++
		}
	case dtr.Backward:
		if !c.backward {
			c.steps = append(c.steps, dtrStep{kind: workloads.Mark})
		}
		c.backward = true
	}
	return nil
}

func (c *dtrConverter) storage(bytes sim.Bytes, label string) *dtrStorage {
	if bytes == 0 {
		c.empty++
		bytes = 1
	}
	s := &dtrStorage{bytes: bytes, label: label, refs: 1, forward: !c.backward}
	c.storages = append(c.storages, s)
	return s
}

func (c *dtrConverter) tensor(i *dtr.Instr, name string) (*dtrTensor, error) {
	if t := c.names[name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%s:%d: %s uses %q, which is not the name of a tensor here", c.file, i.Line, i.Name, name)
}

// bind makes name stand for t and gives up what it stood for.
func (c *dtrConverter) bind(name string, t *dtrTensor) {
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

func (c *dtrConverter) ref(s *dtrStorage) {
	s.refs++
	if !s.constant {
		c.steps = append(c.steps, dtrStep{kind: workloads.Ref, at: s})
	}
}

// drop gives a reference back. Residents stay whatever happens to their names.
func (c *dtrConverter) drop(s *dtrStorage) {
	s.refs--
	if !s.constant {
		c.steps = append(c.steps, dtrStep{kind: workloads.Drop, at: s, last: s.refs == 0})
	}
}

// operator resolves a CALL or MUTATE.
func (c *dtrConverter) operator(i *dtr.Instr) error {
	step := dtrStep{kind: workloads.Op, name: i.Name, time: i.Time}
	var args []*dtrTensor
	for _, name := range i.Args {
		t, err := c.tensor(i, name)
		if err != nil {
			return err
		}
		args = append(args, t)
		step.args = append(step.args, dtrArg{*t, workloads.Read})
		if c.backward && t.storage.forward && !t.storage.constant {
			t.storage.saved = true
		}
	}
	type result struct {
		name string
		t    *dtrTensor
	}
	var made []result
	var shared []*dtrStorage
	for _, r := range i.Results {
		if r.Alias == dtr.Own {
			made = append(made, result{r.Name, &dtrTensor{storage: c.storage(r.Bytes, "output of "+i.Name)}})
			continue
		}
		s := args[r.Alias].storage
		s.views++
		made = append(made, result{r.Name, &dtrTensor{s, s.views}})
		shared = append(shared, s)
	}
	for _, m := range i.Mutated {
		made = append(made, result{i.Args[m], &dtrTensor{storage: c.storage(args[m].storage.bytes, "output of "+i.Name)}})
	}
	for _, r := range made {
		mode := workloads.Write
		if r.t.view > 0 {
			mode = workloads.Read
		}
		step.args = append(step.args, dtrArg{*r.t, mode})
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

// write makes the program.
func (c *dtrConverter) write() (*workloads.Program, *workloads.Names, error) {
	names := workloads.NewNames()
	var residents []workloads.Storage
	for _, s := range c.storages {
		if s.constant {
			s.id = workloads.StorageID(len(residents))
			residents = append(residents, workloads.Storage{Bytes: s.bytes, DType: workloads.FP32, Class: workloads.Parameter, Label: names.ID(s.label)})
		}
	}
	b := workloads.NewBuilder(names, residents)
	for _, s := range c.storages {
		if !s.constant {
			s.id = b.New(workloads.Storage{Bytes: s.bytes, DType: workloads.FP32, Label: names.ID(s.label)})
		}
	}
	c.outputs()
	b.Grow(len(c.steps))
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	b.Mark(workloads.MarkForwardBegin, 1, 0)
	end := workloads.MarkForwardEnd
	for i := range c.steps {
		switch s := &c.steps[i]; s.kind {
		case workloads.Op:
			if end == workloads.MarkBackwardEnd {
				unpack(b, s)
			}
			c.op(b, names, s)
		case workloads.Ref:
			b.Ref(s.at.id)
		case workloads.Drop:
			b.Drop(s.at.id)
			if s.last && s.at.saved {
				b.Drop(s.at.id)
			}
		case workloads.Mark:
			b.Mark(workloads.MarkForwardEnd, 1, 0)
			b.Mark(workloads.MarkBackwardBegin, 1, 0)
			end = workloads.MarkBackwardEnd
		}
	}
	b.Mark(end, 1, 0)
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	p, err := b.Program("train")
	return p, names, err
}

// outputs reads what still has a name, then takes the names away.
func (c *dtrConverter) outputs() {
	step := dtrStep{kind: workloads.Op, name: "outputs", time: -1}
	for _, name := range c.order {
		if t := c.names[name]; t != nil && !t.storage.constant {
			step.args = append(step.args, dtrArg{*t, workloads.Read})
		}
	}
	if len(step.args) > 0 {
		c.steps = append(c.steps, step)
	}
	for _, name := range c.order {
		c.unbind(name)
	}
}

// unpack tells of the saved tensors that an operator of the backward pass is the
// first to use.
func unpack(b *workloads.Builder, s *dtrStep) {
	for _, a := range s.args {
		if a.storage.saved && !a.storage.unpacked {
			a.storage.unpacked = true
			b.Unpack(a.storage.id)
		}
	}
}

// op writes an operator and tells of the tensors that autograd keeps.
func (c *dtrConverter) op(b *workloads.Builder, names *workloads.Names, s *dtrStep) {
	args := make([]workloads.Arg, len(s.args))
	for k, a := range s.args {
		args[k] = workloads.Arg{Storage: a.storage.id, View: workloads.ViewID(a.view), Mode: a.mode}
	}
	spec := workloads.OpSpec{Name: names.ID(s.name), HostOnly: s.time < 0}
	if !spec.HostOnly {
		spec.Flags = workloads.Replayable
		spec.Kernel = workloads.Kernel{Work: hw.Work{Kind: hw.Measured, Family: familyByName(s.name), Time: s.time}}
	}
	b.Op(spec, args...)
	for _, a := range s.args {
		if a.mode == workloads.Write && a.storage.saved {
			c.saved++
			b.Save(a.storage.id)
		}
	}
}
