package lines

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func read(text string) (lines []string, r *Reader) {
	r = New(strings.NewReader(text), "f.txt")
	for s, ok := r.Next(); ok; s, ok = r.Next() {
		lines = append(lines, s)
	}
	return lines, r
}

func TestLineEnds(t *testing.T) {
	for text, want := range map[string]string{
		"":           "",
		"a":          "a",
		"a\n":        "a",
		"a\r\nb\r\n": "a|b",
		"\n\na":      "||a",
	} {
		got, r := read(text)
		if s := strings.Join(got, "|"); s != want || r.Err() != nil {
			t.Errorf("%q: lines %q, error %v; want %q", text, s, r.Err(), want)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	_, r := read("a\nb\n")
	if got := r.Errorf("bad %d", 7).Error(); got != "f.txt:2: bad 7" {
		t.Error(got)
	}
	if got := r.ErrorAt(1, "bad").Error(); got != "f.txt:1: bad" {
		t.Error(got)
	}
}

func TestLongLine(t *testing.T) {
	got, r := read("a\n" + strings.Repeat("x", MaxLine+1) + "\n")
	if len(got) != 1 || r.Err() == nil || !strings.HasPrefix(r.Err().Error(), "f.txt:2: ") {
		t.Errorf("%d lines, error %v", len(got), r.Err())
	}
}

// Half a line before a read error is not a line.
func TestReadError(t *testing.T) {
	broken := errors.New("broken")
	r := New(io.MultiReader(strings.NewReader("hal"), iotest.ErrReader(broken)), "f.txt")
	if s, ok := r.Next(); ok || !errors.Is(r.Err(), broken) || r.Err().Error() != "f.txt:1: broken" {
		t.Errorf("line %q, ok %v, error %v", s, ok, r.Err())
	}
}
