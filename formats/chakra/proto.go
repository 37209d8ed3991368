package chakra

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"smartswap/formats/notes"
	"smartswap/sim"
)

// maxMessage is the longest message that is read, in bytes.
const maxMessage = 16 << 20

// ReadProto reads the protobuf form. Unknown fields are skipped.
func ReadProto(r io.Reader, file string, list *notes.List) (*Graph, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	g := &Graph{}
	var message []byte
	for number := 1; ; number++ {
		size, err := binary.ReadUvarint(in)
		switch {
		case errors.Is(err, io.EOF) && number > 1:
			if len(g.Nodes) == 0 {
				return nil, fmt.Errorf("%s: no nodes after the metadata", file)
			}
			return g, g.link(file, list)
		case err != nil:
			return nil, fmt.Errorf("%s: message %d: the file ends before it or its length is none: %w", file, number, err)
		case size > maxMessage:
			return nil, fmt.Errorf("%s: message %d: %d bytes; allowed: up to %d", file, number, size, maxMessage)
		case len(g.Nodes) == maxNodes:
			return nil, fmt.Errorf("%s: message %d: more than %d nodes", file, number, maxNodes)
		}
		if uint64(cap(message)) < size {
			message = make([]byte, size)
		}
		message = message[:size]
		if _, err := io.ReadFull(in, message); err != nil {
			return nil, fmt.Errorf("%s: message %d: the file ends inside it: %w", file, number, err)
		}
		if number == 1 {
			err = g.metadata(message)
		} else {
			n := Node{Line: number}
			err = n.decode(message)
			g.Nodes = append(g.Nodes, n)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: message %d: %w", file, number, err)
		}
	}
}

// Wire types of protobuf.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

// field is one field of a message: v of a varint, b of bytes.
type field struct {
	number uint64
	wire   uint64
	v      uint64
	b      []byte
}

// next takes the first field of m and returns the rest.
func next(m []byte) (f field, rest []byte, err error) {
	tag, n := binary.Uvarint(m)
	if n <= 0 || tag>>3 == 0 {
		return f, nil, errors.New("damaged field: no tag")
	}
	f.number, f.wire = tag>>3, tag&7
	m = m[n:]
	size := uint64(0)
	switch f.wire {
	case wireVarint:
		if f.v, n = binary.Uvarint(m); n <= 0 {
			return f, nil, fmt.Errorf("field %d: damaged number", f.number)
		}
		return f, m[n:], nil
	case wireBytes:
		if size, n = binary.Uvarint(m); n <= 0 {
			return f, nil, fmt.Errorf("field %d: damaged length", f.number)
		}
		m = m[n:]
	case wire64:
		size = 8
	case wire32:
		size = 4
	default:
		return f, nil, fmt.Errorf("field %d: wire type %d; allowed: 0, 1, 2, 5", f.number, f.wire)
	}
	if size > uint64(len(m)) {
		return f, nil, fmt.Errorf("field %d: %d bytes, but %d are left", f.number, size, len(m))
	}
	f.b = m[:size]
	return f, m[size:], nil
}

// each calls do for every field of m.
func each(m []byte, do func(field) error) error {
	for len(m) > 0 {
		f, rest, err := next(m)
		if err != nil {
			return err
		}
		if err := do(f); err != nil {
			return err
		}
		m = rest
	}
	return nil
}

// metadata takes the first message: attributes, of which the schema is one.
func (g *Graph) metadata(m []byte) error {
	return each(m, func(f field) error {
		if f.wire != wireBytes {
			return nil
		}
		name, text := "", ""
		err := each(f.b, func(a field) error {
			if a.wire == wireBytes && a.number == 1 {
				name = string(a.b)
			} else if a.wire == wireBytes {
				text = string(a.b)
			}
			return nil
		})
		if name == "schema" {
			g.Schema = text
		}
		return err
	})
}

// decode takes a node. Field numbers are those of et_def.proto.
func (n *Node) decode(m []byte) error {
	hasID := false
	err := each(m, func(f field) error {
		switch f.number {
		case 1:
			n.ID, hasID = int64(f.v), true
		case 2:
			n.Name = string(f.b)
		case 3:
			if f.v >= uint64(numTypes) {
				return fmt.Errorf("type %d; allowed: below %d", f.v, numTypes)
			}
			n.Type = Type(f.v)
		case 4:
			return ids(&n.Control, f)
		case 5:
			return ids(&n.Data, f)
		case 7:
			if f.v > maxTime {
				return fmt.Errorf("run time %d us; allowed: up to %d", f.v, int64(maxTime))
			}
			n.Time, n.HasTime = sim.Time(f.v)*sim.Microsecond, true
		case 10:
			return n.attribute(f.b)
		}
		return nil
	})
	if err == nil && (!hasID || n.ID < 0) {
		err = errors.New("a node without an id")
	}
	return err
}

// ids takes a repeated number, packed or one by one.
func ids(to *[]int64, f field) error {
	if f.wire == wireVarint {
		*to = append(*to, int64(f.v))
	}
	for b := f.b; len(b) > 0; {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return fmt.Errorf("field %d: damaged number", f.number)
		}
		if len(*to) == maxDeps {
			return fmt.Errorf("more than %d dependencies", maxDeps)
		}
		*to = append(*to, int64(v))
		b = b[n:]
	}
	return nil
}

// attribute takes a named value.
func (n *Node) attribute(m []byte) error {
	name := ""
	var value uint64
	err := each(m, func(f field) error {
		if f.number == 1 {
			name = string(f.b)
		} else {
			value = f.v
		}
		return nil
	})
	switch name {
	case "is_cpu_op":
		n.OnHost = value != 0
	case "comm_size":
		n.CommSize = int64(value & (1<<50 - 1))
	}
	return err
}
