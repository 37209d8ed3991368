package published

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"smartswap/internal/nearest"
)

// maxRows bounds a list: beyond it is another kind of file.
const maxRows = 100_000

// sheet is a table whose rows all have the columns of its header.
type sheet struct {
	file   string
	header []string
	rows   [][]string
	lines  []int // where each row begins
}

// readSheet reads a whole table with the named columns, which may stand in any
// order among others.
func readSheet(in io.Reader, file string, columns []string) (*sheet, error) {
	r := csv.NewReader(in)
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:1: the file is empty; want a header with the columns %s", file, strings.Join(columns, ", "))
	}
	s := &sheet{file: file, header: header}
	for err == nil {
		var row []string
		if row, err = r.Read(); err != nil {
			break
		}
		line, _ := r.FieldPos(0)
		if len(s.rows) == maxRows {
			return nil, fmt.Errorf("%s:%d: want at most %d rows", file, line, maxRows)
		}
		s.rows, s.lines = append(s.rows, row), append(s.lines, line)
	}
	if !errors.Is(err, io.EOF) {
		var bad *csv.ParseError
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("%s:%d: %w; want %d columns", file, bad.Line, bad.Err, len(header))
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s.header[0] = strings.TrimPrefix(s.header[0], "\ufeff")
	for _, c := range columns {
		if !slices.Contains(s.header, c) {
			return nil, fmt.Errorf("%s:1: no column %q; nearest is %q", file, c, nearest.Name(c, s.header))
		}
	}
	return s, nil
}

// row reads the cells of one row; the first bad one stays as its error.
type row struct {
	*sheet
	i   int
	err error
}

func (r *row) fail(column, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s:%d: column %q = %q: want %s", r.file, r.lines[r.i], column, r.text(column), fmt.Sprintf(format, args...))
	}
}

func (r *row) text(column string) string {
	return strings.TrimSpace(r.rows[r.i][slices.Index(r.header, column)])
}

// whole is an integer from low to high.
func (r *row) whole(column string, low, high int64) int64 {
	v, err := strconv.ParseInt(r.text(column), 10, 64)
	if err != nil || v < low || v > high {
		r.fail(column, "a whole number from %d to %d", low, high)
		return low
	}
	return v
}

// positive is a number above 0.
func (r *row) positive(column string) float64 {
	v, err := strconv.ParseFloat(r.text(column), 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		r.fail(column, "a number above 0")
	}
	return v
}

// choice is one of the allowed texts.
func (r *row) choice(column string, allowed ...string) string {
	v := r.text(column)
	if !slices.Contains(allowed, v) {
		r.fail(column, "one of %s", strings.Join(allowed, ", "))
	}
	return v
}

// Ranges of a job's sizes: those that experiment files allow.
const (
	maxDegree = 1 << 12
	maxBatch  = 1 << 20
	maxSeq    = 1 << 24
	maxWidth  = 1 << 20
)
