package chrome

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// Writer writes a trace as a stream of events, times in microseconds with three
// decimals. Processes are the groups that viewers show, threads the lanes in
// them. The first error is kept and returned by Close. It serves one goroutine.
//
// Viewers want the slices of a lane to nest or not to overlap; seeing to that
// is the caller's business.
type Writer struct {
	to   io.Writer
	buf  []byte
	err  error
	some bool // an event has been written
}

// writeSize is how much is gathered for one write.
const writeSize = 64 << 10

// NewWriter starts a trace on w.
func NewWriter(w io.Writer) *Writer {
	return &Writer{to: w, buf: append(make([]byte, 0, writeSize+4096), `{"displayTimeUnit": "ms", "traceEvents": [`...)}
}

// Close ends the trace. It does not close what it was made on.
func (w *Writer) Close() error {
	w.buf = append(w.buf, "\n]}\n"...)
	w.flush()
	return w.err
}

func (w *Writer) flush() {
	if w.err == nil {
		_, w.err = w.to.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// Field is a named value of an event: a string, an integer or a float. What
// JSON cannot hold is written as its text.
type Field struct {
	Name  string
	Value any
}

// Process names a group.
func (w *Writer) Process(pid int, name string) { w.name("process_name", pid, 0, name) }

// Thread names a lane.
func (w *Writer) Thread(pid, tid int, name string) { w.name("thread_name", pid, tid, name) }

func (w *Writer) name(what string, pid, tid int, name string) {
	w.event('M', "", what, pid, tid, 0)
	w.end([]Field{{"name", name}})
}

// Sort puts a lane at a place among those of its group: lower ones first.
func (w *Writer) Sort(pid, tid, place int) {
	w.event('M', "", "thread_sort_index", pid, tid, 0)
	w.end([]Field{{"sort_index", place}})
}

// Slice writes work from start that lasts dur ns.
func (w *Writer) Slice(pid, tid int, category, name string, start, dur int64, fields ...Field) {
	w.event('X', category, name, pid, tid, start)
	w.buf = append(w.buf, `, "dur": `...)
	w.microseconds(dur)
	w.end(fields)
}

// Instant marks an instant.
func (w *Writer) Instant(pid, tid int, category, name string, at int64, fields ...Field) {
	w.event('i', category, name, pid, tid, at)
	w.buf = append(w.buf, `, "s": "t"`...)
	w.end(fields)
}

// Counter writes the values of a counter from at on; each field is a line of its
// graph.
func (w *Writer) Counter(pid int, name string, at int64, fields ...Field) {
	w.event('C', "", name, pid, 0, at)
	w.end(fields)
}

// FlowBegin and FlowEnd draw an arrow between the slices around two instants.
// The pair has one category, name and id.
func (w *Writer) FlowBegin(pid, tid int, category, name string, id, at int64) {
	w.event('s', category, name, pid, tid, at)
	w.buf = append(w.buf, `, "id": `...)
	w.buf = strconv.AppendInt(w.buf, id, 10)
	w.end(nil)
}

// FlowEnd is the head of an arrow; see FlowBegin.
func (w *Writer) FlowEnd(pid, tid int, category, name string, id, at int64) {
	w.event('f', category, name, pid, tid, at)
	w.buf = append(w.buf, `, "bp": "e", "id": `...)
	w.buf = strconv.AppendInt(w.buf, id, 10)
	w.end(nil)
}

// event writes what all events have and leaves the object open.
func (w *Writer) event(phase byte, category, name string, pid, tid int, at int64) {
	if w.some {
		w.buf = append(w.buf, ',')
	}
	w.some = true
	w.buf = append(w.buf, "\n{\"ph\": \""...)
	w.buf = append(w.buf, phase, '"')
	if category != "" {
		w.buf = append(w.buf, `, "cat": `...)
		w.text(category)
	}
	w.buf = append(w.buf, `, "name": `...)
	w.text(name)
	w.buf = append(w.buf, `, "pid": `...)
	w.buf = strconv.AppendInt(w.buf, int64(pid), 10)
	w.buf = append(w.buf, `, "tid": `...)
	w.buf = strconv.AppendInt(w.buf, int64(tid), 10)
	w.buf = append(w.buf, `, "ts": `...)
	w.microseconds(at)
}

// end writes the fields and closes the object.
func (w *Writer) end(fields []Field) {
	if len(fields) > 0 {
		w.buf = append(w.buf, `, "args": {`...)
		for i := range fields {
			if i > 0 {
				w.buf = append(w.buf, ", "...)
			}
			w.text(fields[i].Name)
			w.buf = append(w.buf, ": "...)
			w.value(fields[i].Value)
		}
		w.buf = append(w.buf, '}')
	}
	w.buf = append(w.buf, '}')
	if len(w.buf) >= writeSize {
		w.flush()
	}
}

func (w *Writer) value(v any) {
	switch v := v.(type) {
	case string:
		w.text(v)
	case int:
		w.buf = strconv.AppendInt(w.buf, int64(v), 10)
	case int64:
		w.buf = strconv.AppendInt(w.buf, v, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			w.text(fmt.Sprint(v))
			return
		}
		w.buf = strconv.AppendFloat(w.buf, v, 'g', -1, 64)
	default:
		w.text(fmt.Sprint(v))
	}
}

// text writes s in quotes. Bytes that are no UTF-8 become replacement
// characters.
func (w *Writer) text(s string) {
	const hex = "0123456789abcdef"
	w.buf = append(w.buf, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			w.buf = append(w.buf, '\\', c)
		case c < ' ':
			w.buf = append(w.buf, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xF])
		case c < utf8.RuneSelf:
			w.buf = append(w.buf, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			w.buf = utf8.AppendRune(w.buf, r)
			i += size
			continue
		}
		i++
	}
	w.buf = append(w.buf, '"')
}

func (w *Writer) microseconds(ns int64) {
	u := uint64(ns)
	if ns < 0 {
		w.buf = append(w.buf, '-')
		u = -u
	}
	w.buf = strconv.AppendUint(w.buf, u/1000, 10)
	rest := u % 1000
	w.buf = append(w.buf, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}
