// Package notes lists what a reader did to a file beside reading it: what it
// skipped, repaired, or inferred. A note that comes up again and again is kept
// once, with its first place and a count, so that a report stays short however
// damaged a file is.
package notes

import "fmt"

// Kind says what a Note is about.
type Kind uint8

// Kinds of notes.
const (
	Skipped  Kind = iota // in the file, but not in what was read from it
	Repaired             // was wrong in the file, and safe to put right
	Inferred             // not in the file, but needed
)

// String is the kind as tables show it.
func (k Kind) String() string {
	switch k {
	case Skipped:
		return "skipped"
	case Repaired:
		return "repaired"
	case Inferred:
		return "inferred"
	}
	return "unknown"
}

// Note is one thing that a reader has from somewhere else than the file, or the
// reverse.
type Note struct {
	Kind  Kind
	Where string // file, or file:line
	What  string
	Count int // how often; Where is the first place. 0 means once
}

// String is the note in one line.
func (n Note) String() string {
	s := n.Where + ": " + n.Kind.String() + ": " + n.What
	if n.Count > 1 {
		s += fmt.Sprintf(" (%d times, here first)", n.Count)
	}
	return s
}

// List collects notes in the order of their first place. The zero List is
// empty and ready; a nil *List drops what it is told.
type List struct {
	notes []Note
	index map[key]int
}

type key struct {
	kind       Kind
	file, what string
}

// Add notes something that happens once.
func (l *List) Add(kind Kind, where, format string, args ...any) {
	if l != nil {
		l.notes = append(l.notes, Note{Kind: kind, Where: where, What: fmt.Sprintf(format, args...)})
	}
}

// Count notes something that may happen on many lines of a file. what is
// constant text: notes of equal kind, file and text are one note.
func (l *List) Count(kind Kind, file string, line int, what string) {
	if l == nil {
		return
	}
	k := key{kind, file, what}
	if i, ok := l.index[k]; ok {
		l.notes[i].Count++
		return
	}
	if l.index == nil {
		l.index = make(map[key]int)
	}
	l.index[k] = len(l.notes)
	l.notes = append(l.notes, Note{Kind: kind, Where: fmt.Sprintf("%s:%d", file, line), What: what, Count: 1})
}

// All is what was noted, first places in order.
func (l *List) All() []Note {
	if l == nil {
		return nil
	}
	return l.notes
}
