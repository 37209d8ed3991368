package g10

import (
	"io"
	"strconv"
	"strings"

	"smartswap/formats/internal/lines"
)

// batchDim is the dimension that stands for the batch size in a network text.
const batchDim = 99

// maxRecords bounds a network text; the published one has 513 records.
const maxRecords = 1 << 15

// Net is the text of a transformer network: its operators in forward order.
// The ids are those of the text, not those of a Graph.
type Net struct {
	Records []Record
	file    string // for errors
}

// Record is one operator of a network text.
type Record struct {
	Line int    // where it starts, from 1
	Op   string // GatherV2, Add, Dot, …: see frontend.go for those that are known
	Out  int    // id of the output
	In   []Operand
}

// Operand is one input of a Record: a tensor seen in a shape.
type Operand struct {
	ID   int
	Dims []int // one to four, each > 0; 99 stands for the batch
}

// ReadNet reads the network text of a transformer. Records are separated by a
// line of dashes; a record has one item per line: output id, operator, number
// of inputs n, n input ids, then for each input the number of its dimensions
// and the dimensions. file is the name that errors use.
func ReadNet(r io.Reader, file string) (*Net, error) {
	p := netParser{in: lines.New(r, file)}
	net := &Net{file: file}
	for p.next() {
		rec := p.record()
		if p.err != nil {
			break
		}
		if len(net.Records) == maxRecords {
			return nil, p.in.Errorf("more than %d records", maxRecords)
		}
		net.Records = append(net.Records, rec)
	}
	if p.err == nil {
		p.err = p.in.Err()
	}
	if p.err != nil {
		return nil, p.err
	}
	if len(net.Records) == 0 {
		return nil, p.in.ErrorAt(1, "the file has no records; a network text is expected")
	}
	return net, nil
}

// netParser walks over the items of a network text. The first error stays.
type netParser struct {
	in   *lines.Reader
	item string // the current line, trimmed
	err  error
}

// next moves to the next line that holds something; false at the end.
func (p *netParser) next() bool {
	for p.err == nil {
		line, ok := p.in.Next()
		if !ok {
			return false
		}
		if p.item = strings.TrimSpace(line); p.item != "" {
			return true
		}
	}
	return false
}

// record reads the record that starts with the current item, and the line of
// dashes after it.
func (p *netParser) record() Record {
	rec := Record{Line: p.in.Line()}
	rec.Out = p.number("output id", 0, 1<<30)
	rec.Op = p.word("operator")
	rec.In = make([]Operand, p.count("number of inputs", 1, 64))
	for i := range rec.In {
		rec.In[i].ID = p.count("input id", 0, 1<<30)
	}
	for i := range rec.In {
		dims := make([]int, p.count("number of dimensions", 1, 4))
		for j := range dims {
			dims[j] = p.count("dimension", 1, 1<<30)
		}
		rec.In[i].Dims = dims
	}
	if p.err == nil && p.next() && strings.Trim(p.item, "-") != "" {
		p.err = p.in.Errorf("%q after the record of line %d; a line of dashes is expected", p.item, rec.Line)
	}
	return rec
}

// word moves on and returns the item, which must be there.
func (p *netParser) word(what string) string {
	if !p.next() {
		if p.err == nil {
			p.err = p.in.Err()
		}
		if p.err == nil {
			p.err = p.in.Errorf("the file ends inside a record; %s is expected", what)
		}
		return ""
	}
	return p.item
}

// count moves on and reads a number.
func (p *netParser) count(what string, lo, hi int) int {
	if p.word(what); p.err != nil {
		return 0
	}
	return p.number(what, lo, hi)
}

// number reads the current item as a number in [lo, hi].
func (p *netParser) number(what string, lo, hi int) int {
	n, err := strconv.Atoi(p.item)
	if err != nil || n < lo || n > hi {
		p.err = p.in.Errorf("%s %q; allowed: a whole number from %d to %d", what, p.item, lo, hi)
		return 0
	}
	return n
}
