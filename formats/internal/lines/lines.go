// Package lines reads untrusted text line by line and makes errors that say
// where: every format of package formats reports "file:line: what, and what is
// allowed" in one line.
package lines

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line that is read, in bytes. It bounds the memory
// that a damaged or hostile file can ask for at once.
const MaxLine = 1 << 20

// Reader yields the lines of one file. It serves one goroutine.
type Reader struct {
	scan *bufio.Scanner
	file string
	line int
}

// New reads from r; file is the name that errors use.
func New(r io.Reader, file string) *Reader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 16<<10), MaxLine)
	return &Reader{scan: s, file: file}
}

// Next yields the next line without its end ("\n" or "\r\n"); false at the end
// of the file or on an error, which Err then returns. A last line without a
// line end counts.
func (r *Reader) Next() (string, bool) {
	// What a failed read leaves behind is half a line and would be misread.
	if !r.scan.Scan() || r.scan.Err() != nil {
		return "", false
	}
	r.line++
	return r.scan.Text(), true
}

// Err is the error that stopped Next; nil at an orderly end of the file.
func (r *Reader) Err() error {
	err := r.scan.Err()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%s:%d: the line is longer than %d bytes", r.file, r.line+1, MaxLine)
	}
	return fmt.Errorf("%s:%d: %w", r.file, r.line+1, err)
}

// Line is the number of the line that Next returned last, from 1; 0 before the
// first.
func (r *Reader) Line() int { return r.line }

// Errorf makes an error about the line that Next returned last.
func (r *Reader) Errorf(format string, args ...any) error { return r.ErrorAt(r.line, format, args...) }

// ErrorAt makes an error about a line seen earlier.
func (r *Reader) ErrorAt(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", r.file, line, fmt.Sprintf(format, args...))
}
