package dtr

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"smartswap/sim"
)

// Writer writes a log that Read reads back; times are cut to whole ns. The first
// error is kept and returned by Close.
type Writer struct {
	out *bufio.Writer
	err error
}

// NewWriter starts a log on w.
func NewWriter(w io.Writer) *Writer {
	out := &Writer{out: bufio.NewWriter(w)}
	out.line("ANNOTATE", field{"ANNOTATION", "START"})
	return out
}

// Close ends the log. It does not close what it was made on.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}

// Write writes an instruction; Line means nothing.
func (w *Writer) Write(i *Instr) {
	ns := fmt.Sprint(int64(i.Time / sim.Nanosecond))
	args := append([]string{}, i.Args...)
	switch i.Kind {
	case Constant:
		w.line("CONSTANT", field{"NAME", i.Name})
		w.line("MEMORY", field{"NAME", i.Name}, field{"MEMORY", fmt.Sprint(int64(i.Bytes))})
	case Call:
		w.line("CALL", field{"NAME", i.Name}, field{"ARGS", args}, field{"RESULT", append([]string{}, resultNames(i)...)}, field{"TIME", ns})
		for _, r := range i.Results {
			w.line("MEMORY", field{"NAME", r.Name}, field{"MEMORY", fmt.Sprint(int64(r.Bytes))})
			w.line("ALIAS", field{"NAME", r.Name}, field{"ALIAS", fmt.Sprint(r.Alias)})
		}
	case Mutate:
		w.line("MUTATE", field{"NAME", i.Name}, field{"ARGS", args}, field{"MUTATE", append([]int{}, i.Mutated...)}, field{"TIME", ns})
	case Copy:
		w.line("COPY", field{"DST", i.Dst}, field{"SRC", i.Src})
	case CopyFrom:
		w.line("COPY_FROM", field{"DST", i.Dst}, field{"SRC", i.Src})
	case Release:
		w.line("RELEASE", field{"NAME", i.Name})
	case Backward:
		w.line("ANNOTATE", field{"ANNOTATION", "BACKWARD"})
	}
}

type field struct {
	key   string
	value any
}

// line writes one object.
func (w *Writer) line(kind string, fields ...field) {
	fmt.Fprintf(w.out, `{"INSTRUCTION": %q`, kind)
	for _, f := range fields {
		text, err := json.Marshal(f.value)
		if err != nil && w.err == nil {
			w.err = err
		}
		fmt.Fprintf(w.out, `, %q: %s`, f.key, text)
	}
	w.out.WriteString("}\n")
}
