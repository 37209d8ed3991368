// Package dtr reads the operator logs of DTR ("Dynamic Tensor
// Rematerialization", ICLR 2021): what a patched PyTorch dispatched in one
// training step, one JSON object a line.
//
//	{"INSTRUCTION": "CONSTANT", "NAME": "x1"}
//	{"INSTRUCTION": "MEMORY", "NAME": "x1", "MEMORY": "4096"}
//	{"INSTRUCTION": "CALL", "NAME": "relu", "ARGS": ["x1"], "RESULT": ["x2"], "TIME": "20000"}
//	{"INSTRUCTION": "MEMORY", "NAME": "x2", "MEMORY": "4096"}
//	{"INSTRUCTION": "ALIAS", "NAME": "x2", "ALIAS": "-1"}
//	{"INSTRUCTION": "RELEASE", "NAME": "x1"}
//
// Names stand for tensors; several names may stand for one (COPY). The MEMORY
// and ALIAS lines that follow a CONSTANT or CALL are part of it here.
package dtr

import (
	"fmt"
	"io"
	"slices"

	"smartswap/formats/internal/decimal"
	"smartswap/formats/internal/jsons"
	"smartswap/formats/notes"
	"smartswap/sim"
)

// Kind is the kind of an instruction.
type Kind uint8

// Kinds of instructions.
const (
	// Constant: Name is a tensor that exists from the start, of Bytes.
	Constant Kind = iota
	// Call: the operator Name takes Time, reads Args and makes Results.
	Call
	// Mutate: the operator Name takes Time, reads Args and changes those at the
	// positions Mutated in place.
	Mutate
	// Copy: Dst becomes one more name for the tensor of Src.
	Copy
	// CopyFrom: Dst gives its tensor up and becomes a name for that of Src.
	CopyFrom
	// Release: Name is a name no more.
	Release
	// Backward: the second half of the step begins.
	Backward
)

// Own is the Alias of a result with memory of its own.
const Own = -1

// Result is what a call makes.
type Result struct {
	Name  string
	Bytes sim.Bytes // 0 for an alias
	Alias int       // argument whose memory it shares, or Own
}

// Instr is one instruction; its Kind says which fields mean something.
type Instr struct {
	Kind     Kind
	Name     string
	Time     sim.Time
	Args     []string
	Results  []Result
	Mutated  []int
	Bytes    sim.Bytes
	Dst, Src string
	Line     int // of the file
}

// Bounds on input, far above the published logs.
const (
	maxBytes = 1 << 50
	maxTime  = 30_000_000_000 // ns
	maxList  = 1 << 16        // arguments, results
)

// Read reads a log and hands each instruction to each, in file order; each may
// keep it. An error is one line with the line of the file. What stands before
// the annotation START is not part of the step and skipped. A log without any
// operator is refused.
func Read(r io.Reader, file string, list *notes.List, each func(*Instr) error) error {
	in := jsons.New(r, file, list)
	p := parser{in: in, file: file, list: list, each: each}
	calls, started := 0, false
	for {
		k, err := in.Kind()
		if err != nil {
			return err
		}
		if k == jsons.End {
			break
		}
		var l line
		at := in.Line()
		if err := in.Object(func(key []byte) error { return l.field(in, key) }); err != nil {
			return err
		}
		if l.kind == "ANNOTATE" && l.annotation == "START" {
			started = true
		}
		if !started {
			list.Count(notes.Skipped, file, at, "instruction before START")
			continue
		}
		if l.kind == "CALL" || l.kind == "MUTATE" {
			calls++
		}
		if err := p.take(&l, at); err != nil {
			return err
		}
	}
	if err := p.flush(); err != nil {
		return err
	}
	if calls == 0 {
		return fmt.Errorf("%s: no operator in the file; a CALL or MUTATE is expected after the annotation START", file)
	}
	return nil
}

// line is one object of the file as it stands.
type line struct {
	kind, name, dst, src, annotation string
	args, results                    []string
	mutated                          []int
	memory, time, alias              int64
	hasMemory, hasTime, hasAlias     bool
}

func (l *line) field(in *jsons.Reader, key []byte) error {
	text := func(to *string) error {
		s, err := in.Text()
		*to = string(s)
		return err
	}
	number := func(to *int64, limit int64, has *bool) error {
		s, err := in.Text() // a number, mostly as a string
		if err != nil {
			return err
		}
		v, exact, ok := decimal.Parse(s, 1)
		if !ok || !exact || v < -1 || v > limit {
			return in.Errorf("value %q; allowed: a whole number up to %d", s, limit)
		}
		*to, *has = v, true
		return nil
	}
	names := func(to *[]string) error {
		return in.Array(func() error {
			s, err := in.Text()
			if len(*to) == maxList {
				return in.Errorf("more than %d names in a list", maxList)
			}
			*to = append(*to, string(s))
			return err
		})
	}
	switch string(key) {
	case "INSTRUCTION":
		return text(&l.kind)
	case "NAME":
		return text(&l.name)
	case "DST":
		return text(&l.dst)
	case "SRC":
		return text(&l.src)
	case "ANNOTATION":
		return text(&l.annotation)
	case "ARGS":
		return names(&l.args)
	case "RESULT":
		return names(&l.results)
	case "MEMORY":
		return number(&l.memory, maxBytes, &l.hasMemory)
	case "TIME":
		return number(&l.time, maxTime, &l.hasTime)
	case "ALIAS":
		return number(&l.alias, maxList, &l.hasAlias)
	case "MUTATE":
		return in.Array(func() error {
			var v int64
			var has bool
			err := number(&v, maxList, &has)
			l.mutated = append(l.mutated, int(v))
			return err
		})
	}
	return in.Skip()
}

// parser puts lines together.
type parser struct {
	in      *jsons.Reader
	file    string
	list    *notes.List
	each    func(*Instr) error
	pending *Instr // a constant or call that still waits for its lines
	known   []bool // of the pending: which results have their MEMORY
}

func (p *parser) errorf(at int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.file, at, fmt.Sprintf(format, args...))
}

// flush hands the pending instruction over, once all about it is known.
func (p *parser) flush() error {
	i := p.pending
	if i == nil {
		return nil
	}
	p.pending = nil
	if k := slices.Index(p.known, false); k >= 0 {
		return p.errorf(i.Line, "%s: no MEMORY line follows for %q", i.Name, append(resultNames(i), i.Name)[k])
	}
	return p.each(i)
}

func resultNames(i *Instr) (names []string) {
	for _, r := range i.Results {
		names = append(names, r.Name)
	}
	return names
}

// take handles one line.
func (p *parser) take(l *line, at int) error {
	if l.kind == "MEMORY" || l.kind == "ALIAS" {
		return p.detail(l, at)
	}
	if err := p.flush(); err != nil {
		return err
	}
	i := &Instr{Name: l.name, Line: at}
	needed := []string{l.name}
	switch l.kind {
	case "ANNOTATE":
		switch l.annotation {
		case "START":
		case "BACKWARD":
			i.Kind = Backward
			return p.each(i)
		default:
			p.list.Count(notes.Skipped, p.file, at, "annotation other than START and BACKWARD")
		}
		return nil
	case "CONSTANT":
		i.Kind = Constant
		p.known = []bool{false}
	case "CALL":
		i.Kind, i.Args, i.Time = Call, l.args, sim.Time(l.time)*sim.Nanosecond
		p.known = make([]bool, len(l.results))
		for _, name := range l.results {
			i.Results = append(i.Results, Result{Name: name, Alias: Own})
		}
	case "MUTATE":
		i.Kind, i.Args, i.Time, i.Mutated = Mutate, l.args, sim.Time(l.time)*sim.Nanosecond, l.mutated
		for _, m := range l.mutated {
			if m < 0 || m >= len(l.args) {
				return p.errorf(at, "%s changes argument %d; allowed: below %d", l.name, m, len(l.args))
			}
		}
	case "COPY", "COPY_FROM":
		i.Kind, i.Dst, i.Src = Copy, l.dst, l.src
		if l.kind == "COPY_FROM" {
			i.Kind = CopyFrom
		}
		needed = []string{l.dst, l.src}
	case "RELEASE":
		i.Kind = Release
	default:
		return p.errorf(at, "instruction %q; allowed: ANNOTATE, CONSTANT, MEMORY, ALIAS, CALL, MUTATE, COPY, COPY_FROM, RELEASE", l.kind)
	}
	if slices.Contains(needed, "") {
		return p.errorf(at, "%s without a name", l.kind)
	}
	if (i.Kind == Call || i.Kind == Mutate) && (!l.hasTime || l.time < 0) {
		return p.errorf(at, "%s %s without a TIME of at least 0", l.kind, l.name)
	}
	if i.Kind == Constant || i.Kind == Call {
		p.pending = i
		return nil
	}
	return p.each(i)
}

// detail is a MEMORY or ALIAS line: about the pending instruction, or about
// nothing.
func (p *parser) detail(l *line, at int) error {
	i := p.pending
	switch {
	case l.kind == "MEMORY" && (!l.hasMemory || l.memory < 0):
		return p.errorf(at, "MEMORY of %q without a number of at least 0", l.name)
	case l.kind == "ALIAS" && !l.hasAlias:
		return p.errorf(at, "ALIAS of %q without a number", l.name)
	case i != nil && i.Kind == Constant && i.Name == l.name:
		if l.kind == "MEMORY" {
			i.Bytes = sim.Bytes(l.memory)
			p.known[0] = true
		}
		return nil
	case i != nil && i.Kind == Call:
		for k := range i.Results {
			r := &i.Results[k]
			if r.Name != l.name {
				continue
			}
			if l.kind == "MEMORY" {
				r.Bytes = sim.Bytes(l.memory)
				p.known[k] = true
				return nil
			}
			if l.alias >= int64(len(i.Args)) {
				return p.errorf(at, "%q shares the memory of argument %d of %s; allowed: below %d, or %d", l.name, l.alias, i.Name, len(i.Args), Own)
			}
			if r.Alias = int(l.alias); r.Alias != Own {
				r.Bytes = 0
			}
			return nil
		}
	}
	p.list.Count(notes.Skipped, p.file, at, "MEMORY or ALIAS of a name that was not just made")
	return nil
}
