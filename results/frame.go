package results

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Kind is the kind of a column's values.
type Kind uint8

// Kinds of values.
const (
	Text    Kind = iota
	Integer      // exact: bytes, counts
	Real         // shortest decimal that reads back to the same float64
)

// Column names and explains one column. The name ends in the unit.
type Column struct {
	Name  string
	Kind  Kind
	About string // glossary entry: one sentence
}

// Value is one cell. The zero Value is absent, an empty field in CSV.
type Value struct {
	kind  Kind
	set   bool
	text  string
	whole int64
	real  float64
}

// TextValue makes a text cell.
func TextValue(s string) Value { return Value{kind: Text, set: true, text: s} }

// IntegerValue makes an exact cell.
func IntegerValue(i int64) Value { return Value{kind: Integer, set: true, whole: i} }

// RealValue makes a cell from f; NaN and infinities are absent.
func RealValue(f float64) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return Value{}
	}
	return Value{kind: Real, set: true, real: f}
}

// Present tells whether v holds anything.
func (v Value) Present() bool { return v.set }

// Number is v as a float64; NaN when v is absent or text.
func (v Value) Number() float64 {
	switch {
	case !v.set || v.kind == Text:
		return math.NaN()
	case v.kind == Integer:
		return float64(v.whole)
	}
	return v.real
}

// String is the CSV form; "" when absent.
func (v Value) String() string {
	switch {
	case !v.set:
		return ""
	case v.kind == Integer:
		return strconv.FormatInt(v.whole, 10)
	case v.kind == Real:
		return strconv.FormatFloat(v.real, 'f', -1, 64)
	}
	return v.text
}

// Frame is a table of long-form rows. Each row has one Value per column.
type Frame struct {
	Columns []Column
	Rows    [][]Value
}

// Index is the position of the column called name; -1 if there is none.
func (f *Frame) Index(name string) int {
	for i, c := range f.Columns {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// At is the value of row r under the column called name; absent if there is
// no such column.
func (f *Frame) At(r int, name string) Value {
	if i := f.Index(name); i >= 0 {
		return f.Rows[r][i]
	}
	return Value{}
}

// WriteCSV writes a header and the rows.
func (f *Frame) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	record := make([]string, len(f.Columns))
	for i, col := range f.Columns {
		record[i] = col.Name
	}
	if err := c.Write(record); err != nil {
		return err
	}
	for _, row := range f.Rows {
		for i, v := range row {
			record[i] = v.String()
		}
		if err := c.Write(record); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// ReadCSV reads what WriteCSV wrote. The file knows no kinds: a field that is
// an integer becomes one, then a real, else text. Ragged or empty input is an
// error with its line.
func ReadCSV(r io.Reader) (*Frame, error) {
	c := csv.NewReader(r)
	header, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("results: no header line: %w", err)
	}
	f := &Frame{}
	for _, name := range header {
		f.Columns = append(f.Columns, Column{Name: name})
	}
	for {
		record, err := c.Read()
		if err == io.EOF {
			return f, nil
		}
		if err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		row := make([]Value, len(record))
		for i, s := range record {
			row[i] = parse(s)
		}
		f.Rows = append(f.Rows, row)
	}
}

func parse(s string) Value {
	if s == "" {
		return Value{}
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(i, 10) == s {
		return IntegerValue(i)
	}
	if v, err := strconv.ParseFloat(s, 64); err == nil && RealValue(v).String() == s {
		return RealValue(v)
	}
	return TextValue(s)
}
