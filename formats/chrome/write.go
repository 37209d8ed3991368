package chrome

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Writer writes a trace as a stream of events, times in microseconds with three
// decimals. Processes are the groups that viewers show, threads the lanes in
// them. The first error is kept and returned by Close. It serves one goroutine.
type Writer struct {
	out   *bufio.Writer
	comma bool
}

// NewWriter starts a trace on w.
func NewWriter(w io.Writer) *Writer {
	out := bufio.NewWriter(w)
	out.WriteString("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [")
	return &Writer{out: out}
}

// Close ends the trace. It does not close what it was made on.
func (w *Writer) Close() error {
	w.out.WriteString("\n]}\n")
	return w.out.Flush()
}

// Field is a named value of an event: a string, an integer or a float.
type Field struct {
	Name  string
	Value any
}

// Process and Thread name a group and a lane of it.
func (w *Writer) Process(pid int, name string) {
	w.event('M', "", "process_name", pid, 0, 0)
	w.args([]Field{{"name", name}})
}

// Thread names a lane.
func (w *Writer) Thread(pid, tid int, name string) {
	w.event('M', "", "thread_name", pid, tid, 0)
	w.args([]Field{{"name", name}})
}

// Slice writes work from start that lasts dur ns.
func (w *Writer) Slice(pid, tid int, category, name string, start, dur int64, fields ...Field) {
	w.event('X', category, name, pid, tid, start)
	w.out.WriteString(", \"dur\": ")
	w.microseconds(dur)
	w.args(fields)
}

// Instant marks an instant.
func (w *Writer) Instant(pid, tid int, category, name string, at int64, fields ...Field) {
	w.event('i', category, name, pid, tid, at)
	w.out.WriteString(", \"s\": \"t\"")
	w.args(fields)
}

// Counter writes the values of a counter from at on; each field is a line of its
// graph.
func (w *Writer) Counter(pid int, name string, at int64, fields ...Field) {
	w.event('C', "", name, pid, 0, at)
	w.args(fields)
}

// FlowBegin and FlowEnd draw an arrow between the slices around two instants.
// The pair has one category, name and id.
func (w *Writer) FlowBegin(pid, tid int, category, name string, id, at int64) {
	w.event('s', category, name, pid, tid, at)
	fmt.Fprintf(w.out, ", \"id\": %d", id)
	w.args(nil)
}

// FlowEnd is the head of an arrow; see FlowBegin.
func (w *Writer) FlowEnd(pid, tid int, category, name string, id, at int64) {
	w.event('f', category, name, pid, tid, at)
	fmt.Fprintf(w.out, ", \"bp\": \"e\", \"id\": %d", id)
	w.args(nil)
}

// event writes what all events have and leaves the object open.
func (w *Writer) event(phase byte, category, name string, pid, tid int, at int64) {
	if w.comma {
		w.out.WriteByte(',')
	}
	w.comma = true
	fmt.Fprintf(w.out, "\n{\"ph\": \"%c\"", phase)
	if category != "" {
		w.out.WriteString(", \"cat\": ")
		w.value(category)
	}
	w.out.WriteString(", \"name\": ")
	w.value(name)
	fmt.Fprintf(w.out, ", \"pid\": %d, \"tid\": %d, \"ts\": ", pid, tid)
	w.microseconds(at)
}

func (w *Writer) args(fields []Field) {
	if len(fields) > 0 {
		w.out.WriteString(", \"args\": {")
		for i, f := range fields {
			if i > 0 {
				w.out.WriteString(", ")
			}
			w.value(f.Name)
			w.out.WriteString(": ")
			w.value(f.Value)
		}
		w.out.WriteByte('}')
	}
	w.out.WriteByte('}')
}

// value writes v as JSON, and what JSON cannot hold as the text of it.
func (w *Writer) value(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		text = strconv.AppendQuote(nil, fmt.Sprint(v))
	}
	w.out.Write(text)
}

func (w *Writer) microseconds(ns int64) {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	fmt.Fprintf(w.out, "%s%d.%03d", sign, ns/1000, ns%1000)
}
