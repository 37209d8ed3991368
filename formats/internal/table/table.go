// Package table reads CSV files of profilers by column name: the set of columns
// changes with the version and the level of a profiler, their meaning does not.
package table

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"smartswap/formats/internal/decimal"
	"smartswap/formats/notes"
)

// MaxRow is the longest row that is read, in bytes: what a quote that is never
// closed can make the reader hold.
const MaxRow = 1 << 20

// Column is a column under its names, the newest first. Required columns must be
// in the header.
type Column struct {
	Names    []string
	Required bool
}

// Reader yields the rows of one file.
type Reader struct {
	csv    *csv.Reader
	budget *budget
	file   string
	list   *notes.List
	at     []int // field of each column; -1 = absent
	needed int   // the last required field
	row    []string
	end    int // fields of row from here on are empty
	width  int
}

// budget ends a row that is too long.
type budget struct {
	r    io.Reader
	left int
}

var errLong = fmt.Errorf("a row is longer than %d bytes; is a quote not closed?", MaxRow)

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLong
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}

// New reads the header. A file without one, or without a required column, is
// refused. file is the name that errors use.
func New(in io.Reader, file string, list *notes.List, columns []Column) (*Reader, error) {
	b := &budget{r: in, left: MaxRow}
	c := csv.NewReader(b)
	c.FieldsPerRecord = -1
	c.ReuseRecord = true
	c.LazyQuotes = true
	r := &Reader{csv: c, budget: b, file: file, list: list}
	header, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:1: the file is empty; a header with %q is expected", file, columns[0].Names[0])
	}
	if err != nil {
		return nil, r.wrap(err)
	}
	if bare, ok := strings.CutPrefix(header[0], "\ufeff"); ok {
		header[0] = strings.Trim(bare, "\"")
		list.Count(notes.Repaired, file, 1, "byte-order mark before the header")
	}
	r.width = len(header)
	r.at = make([]int, len(columns))
	for i, col := range columns {
		r.at[i] = find(header, col.Names)
		if r.at[i] < 0 && col.Required {
			return nil, fmt.Errorf("%s:1: no column %s", file, strings.Join(quoted(col.Names), " or "))
		}
		if col.Required {
			r.needed = max(r.needed, r.at[i])
		}
	}
	return r, nil
}

func find(header, names []string) int {
	for _, name := range names {
		for i, h := range header {
			if strings.TrimSpace(h) == name {
				return i
			}
		}
	}
	return -1
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return out
}

// Next goes to the next row; false at the end. The last cell of a row with fewer
// fields than the header may be cut inside a number and counts as empty; a row
// that then lacks a required column is skipped. Of a longer row the rest is
// ignored. All of it is noted.
func (r *Reader) Next() (bool, error) {
	for {
		r.budget.left = MaxRow
		row, err := r.csv.Read()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, r.wrap(err)
		}
		r.row = row
		r.end = len(row)
		if len(row) < r.width {
			if r.end--; r.end <= r.needed {
				r.list.Count(notes.Skipped, r.file, r.Line(), "row with fewer fields than the header")
				continue
			}
			r.list.Count(notes.Repaired, r.file, r.Line(), "row with fewer fields than the header, those at its end empty")
		}
		if len(row) > r.width {
			r.list.Count(notes.Repaired, r.file, r.Line(), "row with more fields than the header, the rest ignored")
		}
		return true, nil
	}
}

func (r *Reader) wrap(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return fmt.Errorf("%s:%d: %w", r.file, p.Line, p.Err)
	}
	return fmt.Errorf("%s: %w", r.file, err)
}

// Line is where the current row begins, from 1.
func (r *Reader) Line() int {
	line, _ := r.csv.FieldPos(0)
	return line
}

// Has says whether the file has the column.
func (r *Reader) Has(column int) bool { return r.at[column] >= 0 }

// Text is the cell of a column without the space around it; "" if the column
// is absent or the cell says that there is nothing ("N/A").
func (r *Reader) Text(column int) string {
	if r.at[column] < 0 || r.at[column] >= r.end {
		return ""
	}
	s := strings.TrimSpace(r.row[r.at[column]]) // a tab follows some times
	if s == "N/A" {
		return ""
	}
	return s
}

// Number is the cell of a column as an integer of 1/unit; ok is false if the
// cell says that there is nothing. Digits below the unit are rounded off, with a
// note. A number in exponent form was damaged by a spreadsheet and is an error.
func (r *Reader) Number(column int, unit int64) (v int64, ok bool, err error) {
	s := r.Text(column)
	if s == "" {
		return 0, false, nil
	}
	v, exact, ok := decimal.Parse(s, unit)
	switch {
	case ok && strings.ContainsAny(s, "eE"):
		return 0, false, r.Errorf(column, "value %q has lost digits, as if saved in a spreadsheet; take the file as the profiler wrote it", s)
	case !ok:
		return 0, false, r.Errorf(column, "value %q; allowed: a decimal number", s)
	case !exact:
		r.list.Count(notes.Repaired, r.file, r.Line(), "numbers finer than the unit they are kept in, rounded")
	}
	return v, true, nil
}

// Errorf makes an error about a cell of the current row.
func (r *Reader) Errorf(column int, format string, args ...any) error {
	name := "?"
	if r.at[column] >= 0 && r.at[column] < len(r.row) {
		line, _ := r.csv.FieldPos(r.at[column])
		name = fmt.Sprintf("%s:%d: column %d", r.file, line, r.at[column]+1)
	}
	return fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...))
}
