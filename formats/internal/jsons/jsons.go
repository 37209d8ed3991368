// Package jsons reads JSON as a stream: a trace of gigabytes passes through a
// window of 64 KiB. It is made for files of profilers, and so forgives what
// they get wrong and nobody can misread (control characters inside strings, a
// byte-order mark, NaN), each with a note, and bounds what it holds.
package jsons

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"smartswap/formats/notes"
)

// MaxText is the longest string that Text holds, in bytes; longer ones can be
// skipped. MaxDepth is how deep values may nest.
const (
	MaxText  = 1 << 20
	MaxDepth = 256
)

const window = 64 << 10

// Kind is the kind of a value.
type Kind uint8

// Kinds.
const (
	End Kind = iota // no value follows in the file
	Null
	Bool
	Number
	String
	Array
	Object
)

// ErrTruncated is wrapped by errors about a file that ends inside a value.
var ErrTruncated = errors.New("the file ends inside a value")

// Reader reads the values of one file, one after the other. It serves one
// goroutine. After an error every call returns it.
type Reader struct {
	in       io.Reader
	file     string
	list     *notes.List
	buf      []byte
	pos, end int // unread bytes are buf[pos:end]
	passed   int64
	line     int
	depth    int
	text     []byte // long or escaped strings
	key      []byte
	started  bool
	err      error // that ended the reading; io.EOF included
}

// New reads from in; file is the name that errors and notes use.
func New(in io.Reader, file string, list *notes.List) *Reader {
	return &Reader{in: in, file: file, list: list, buf: make([]byte, window), line: 1}
}

// Line is the line the reader is at, from 1.
func (r *Reader) Line() int { return r.line }

// Errorf makes an error about the present place.
func (r *Reader) Errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", r.file, r.line, fmt.Errorf(format, args...))
}

// fill reads more; false if there is none.
func (r *Reader) fill() bool {
	if r.err != nil {
		return false
	}
	r.passed += int64(r.pos)
	copy(r.buf, r.buf[r.pos:r.end])
	r.end -= r.pos
	r.pos = 0
	for {
		n, err := r.in.Read(r.buf[r.end:])
		r.end += n
		if err != nil {
			r.err = err
		}
		if n > 0 || err != nil {
			return n > 0
		}
	}
}

// ended is the error of a file that ends where it should not.
func (r *Reader) ended() error {
	if r.err != nil && !errors.Is(r.err, io.EOF) {
		return r.Errorf("%w", r.err)
	}
	return r.Errorf("%w", ErrTruncated)
}

// next skips space and returns the next byte without taking it.
func (r *Reader) next() (byte, bool) {
	if !r.started {
		r.started = true
		for r.end-r.pos < 3 && r.fill() {
		}
		if bytes.HasPrefix(r.buf[r.pos:r.end], []byte("\ufeff")) {
			r.pos += 3
			r.list.Count(notes.Repaired, r.file, 1, "byte-order mark at the start")
		}
	}
	for {
		for r.pos < r.end {
			switch c := r.buf[r.pos]; c {
			case '\n':
				r.line++
				r.pos++
			case ' ', '\t', '\r':
				r.pos++
			default:
				return c, true
			}
		}
		if !r.fill() {
			return 0, false
		}
	}
}

// Kind is the kind of the next value, which is not taken. At an orderly end of
// the file it is End.
func (r *Reader) Kind() (Kind, error) {
	c, ok := r.next()
	switch {
	case !ok && r.depth == 0 && errors.Is(r.err, io.EOF):
		return End, nil
	case !ok:
		return End, r.ended()
	case c == '{':
		return Object, nil
	case c == '[':
		return Array, nil
	case c == '"':
		return String, nil
	case c == 't' || c == 'f':
		return Bool, nil
	case c == 'n':
		return Null, nil
	case c == '-' || c >= '0' && c <= '9' || c == 'N' || c == 'I':
		return Number, nil
	}
	return End, r.Errorf("%q where a value is expected (byte %d)", c, r.passed+int64(r.pos))
}

// Text takes a scalar: a string without its quotes and escapes, any other as it
// is written. The bytes are valid until the next call. An array or object is an
// error.
func (r *Reader) Text() ([]byte, error) {
	k, err := r.Kind()
	switch {
	case err != nil:
		return nil, err
	case k == End:
		return nil, r.ended()
	case k == String:
		r.pos++
		return r.str(true)
	case k == Array || k == Object:
		return nil, r.Errorf("a list or an object where a plain value is expected")
	}
	return r.word()
}

// word takes a number or one of true, false, null, NaN, Infinity.
func (r *Reader) word() ([]byte, error) {
	i := 0
	for {
		if r.pos+i == r.end {
			if i < 64 && r.fill() {
				continue
			}
			if i < 64 && !errors.Is(r.err, io.EOF) {
				return nil, r.ended()
			}
			break
		}
		c := r.buf[r.pos+i]
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.') || i == 64 {
			break
		}
		i++
	}
	word := r.buf[r.pos : r.pos+i]
	switch c := word[0]; {
	case c >= '0' && c <= '9' || len(word) > 1 && c == '-' && word[1] >= '0' && word[1] <= '9':
	default:
		switch string(word) {
		case "true", "false", "null":
		case "NaN", "Infinity", "-Infinity":
			r.list.Count(notes.Repaired, r.file, r.line, "number that is none, such as NaN")
		default:
			if r.pos+i == r.end {
				return nil, r.ended()
			}
			return nil, r.Errorf("%q where a value is expected (byte %d)", word, r.passed+int64(r.pos))
		}
	}
	r.pos += i
	return word, nil
}

// special marks the bytes at which str stops: the quote, the escape and control
// characters.
var special = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// str takes the rest of a string after its opening quote; without keep it
// returns nothing.
func (r *Reader) str(keep bool) ([]byte, error) {
	r.text = r.text[:0]
	whole := true // nothing is in text yet
	for {
		i := r.pos
		for i < r.end && !special[r.buf[i]] {
			i++
		}
		part := r.buf[r.pos:i]
		if i < r.end && r.buf[i] == '"' && whole {
			r.pos = i + 1
			return part, nil
		}
		whole = false
		if keep {
			if len(r.text)+len(part) > MaxText {
				return nil, r.Errorf("a string of more than %d bytes", MaxText)
			}
			r.text = append(r.text, part...)
		}
		r.pos = i
		if i == r.end {
			if !r.fill() {
				return nil, r.ended()
			}
			continue
		}
		c := r.buf[i]
		r.pos++
		switch c {
		case '"':
			return r.text, nil
		case '\\':
			if err := r.escape(); err != nil {
				return nil, err
			}
		default:
			r.list.Count(notes.Repaired, r.file, r.line, "control character in a string")
			if c == '\n' {
				r.line++
			}
			r.text = append(r.text, c)
		}
		if !keep {
			r.text = r.text[:0]
		}
	}
}

// escape takes what follows a backslash.
func (r *Reader) escape() error {
	c, err := r.byte()
	if err != nil {
		return err
	}
	switch c {
	case 'n':
		c = '\n'
	case 't':
		c = '\t'
	case 'r':
		c = '\r'
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'u':
		u, err := r.hex()
		if err != nil {
			return err
		}
		if utf16.IsSurrogate(u) {
			low := rune(utf8.RuneError)
			for r.end-r.pos < 6 && r.fill() {
			}
			if bytes.HasPrefix(r.buf[r.pos:r.end], []byte(`\u`)) {
				r.pos += 2
				if low, err = r.hex(); err != nil {
					return err
				}
			}
			u = utf16.DecodeRune(u, low)
		}
		r.text = utf8.AppendRune(r.text, u)
		return nil
	}
	r.text = append(r.text, c)
	return nil
}

func (r *Reader) byte() (byte, error) {
	if r.pos == r.end && !r.fill() {
		return 0, r.ended()
	}
	r.pos++
	return r.buf[r.pos-1], nil
}

func (r *Reader) hex() (rune, error) {
	v := rune(0)
	for range 4 {
		c, err := r.byte()
		if err != nil {
			return 0, err
		}
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			v = v<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, r.Errorf("%q in the escape of a character", c)
		}
	}
	return v, nil
}

// open takes the bracket of a list or object.
func (r *Reader) open(bracket byte, what string) error {
	c, ok := r.next()
	if !ok {
		return r.ended()
	}
	if c != bracket {
		return r.Errorf("%q where %s is expected (byte %d)", c, what, r.passed+int64(r.pos))
	}
	if r.depth == MaxDepth {
		return r.Errorf("values nest deeper than %d", MaxDepth)
	}
	r.depth++
	r.pos++
	return nil
}

// more takes a comma, or the closing bracket and returns false. A comma before
// the bracket is forgiven.
func (r *Reader) more(bracket byte, first bool) (bool, error) {
	c, ok := r.next()
	if !ok {
		return false, r.ended()
	}
	if !first && c == ',' {
		r.pos++
		if c, ok = r.next(); !ok {
			return false, r.ended()
		}
		if c == bracket {
			r.list.Count(notes.Repaired, r.file, r.line, "comma after the last element")
		}
	} else if !first && c != bracket {
		return false, r.Errorf("%q where %q or %q is expected (byte %d)", c, ',', bracket, r.passed+int64(r.pos))
	}
	if c == bracket {
		r.depth--
		r.pos++
		return false, nil
	}
	return true, nil
}

// Object takes an object and calls each for every key; each must take exactly
// one value. The key is valid until then. An error of each ends the reading.
func (r *Reader) Object(each func(key []byte) error) error {
	if err := r.open('{', "an object"); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := r.more('}', first)
		if !more || err != nil {
			return err
		}
		if err := r.name(); err != nil {
			return err
		}
		if err := each(r.key); err != nil {
			return err
		}
	}
}

// name takes a key and its colon.
func (r *Reader) name() error {
	c, ok := r.next()
	if !ok {
		return r.ended()
	}
	if c != '"' {
		return r.Errorf("%q where a key is expected (byte %d)", c, r.passed+int64(r.pos))
	}
	r.pos++
	key, err := r.str(true)
	if err != nil {
		return err
	}
	r.key = append(r.key[:0], key...)
	if c, ok = r.next(); !ok {
		return r.ended()
	}
	if c != ':' {
		return r.Errorf("%q where ':' is expected (byte %d)", c, r.passed+int64(r.pos))
	}
	r.pos++
	return nil
}

// Array takes a list and calls each before every element; each must take
// exactly one value. An error of each ends the reading.
func (r *Reader) Array(each func() error) error {
	if err := r.open('[', "a list"); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := r.more(']', first)
		if !more || err != nil {
			return err
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// Skip takes a value of any kind and size.
func (r *Reader) Skip() error {
	k, err := r.Kind()
	switch {
	case err != nil:
		return err
	case k == End:
		return r.ended()
	case k == Object:
		return r.Object(func([]byte) error { return r.Skip() })
	case k == Array:
		return r.Array(r.Skip)
	case k == String:
		r.pos++
		_, err := r.str(false)
		return err
	}
	_, err = r.word()
	return err
}

// Plain takes a plain value as Text does; a list or object is skipped and empty.
func (r *Reader) Plain() ([]byte, error) {
	k, err := r.Kind()
	switch {
	case err != nil:
		return nil, err
	case k == Array || k == Object:
		return nil, r.Skip()
	}
	return r.Text()
}
