package jsons

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"smartswap/formats/notes"
)

// value reads a value of any kind into what encoding/json would make of it,
// numbers as they are written.
func value(r *Reader) (any, error) {
	k, err := r.Kind()
	if err != nil {
		return nil, err
	}
	switch k {
	case End:
		return nil, io.EOF
	case Object:
		m := map[string]any{}
		return m, r.Object(func(key []byte) error {
			name := string(key)
			v, err := value(r)
			m[name] = v
			return err
		})
	case Array:
		a := []any{}
		err := r.Array(func() error {
			v, err := value(r)
			a = append(a, v)
			return err
		})
		return a, err
	}
	text, err := r.Text()
	switch k {
	case Number:
		return json.Number(text), err
	case Bool:
		return string(text) == "true", err
	case Null:
		return nil, err
	}
	return string(text), err
}

func parse(text string) (any, error) { return value(New(strings.NewReader(text), "f", nil)) }

// Against encoding/json, whole and byte by byte.
func TestAgainstLibrary(t *testing.T) {
	var tree func(depth int) *rapid.Generator[any]
	tree = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return strings.ToValidUTF8(s, "?") }),
			rapid.Map(rapid.Int64(), func(i int64) any { return i }),
			rapid.Map(rapid.Float64(), func(f float64) any { return f }),
			rapid.Just[any](nil), rapid.Just[any](true), rapid.Just[any](false),
		)
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf,
			rapid.Map(rapid.SliceOfN(tree(depth-1), 0, 4), func(s []any) any { return s }),
			rapid.Map(rapid.MapOfN(rapid.String(), tree(depth-1), 0, 4), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(tree(3).Draw(t, "value"))
		if err != nil {
			t.Skip(err)
		}
		if rapid.Bool().Draw(t, "indent") {
			var b bytes.Buffer
			json.Indent(&b, text, "", "  ")
			text = b.Bytes()
		}
		var want any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		for _, in := range []io.Reader{bytes.NewReader(text), iotest.OneByteReader(bytes.NewReader(text))} {
			r := New(in, "f", nil)
			got, err := value(r)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q: %#v, %v; want %#v", text, got, err, want)
			}
			if k, err := r.Kind(); k != End || err != nil {
				t.Fatalf("after the value: %v, %v", k, err)
			}
		}
		r := New(bytes.NewReader(text), "f", nil)
		if err := r.Skip(); err != nil {
			t.Fatal(err)
		}
		if k, err := r.Kind(); k != End || err != nil {
			t.Fatalf("after Skip: %v, %v", k, err)
		}
		// Every cut is noticed.
		cut := rapid.IntRange(1, len(text)).Draw(t, "cut")
		if c := text[0]; len(text) > cut && (c == '{' || c == '[' || c == '"') {
			if _, err := parse(string(text[:cut])); !errors.Is(err, ErrTruncated) {
				t.Fatalf("%q: error %v", text[:cut], err)
			}
		}
	})
}

func TestForgiven(t *testing.T) {
	for text, want := range map[string]string{
		"\ufeff[1]":        "byte-order mark",
		"[\"a\tb\"]":       "control character",
		"[NaN, -Infinity]": "number that is none",
		"[1, 2,\n]":        "comma after the last element",
		"{\"a\": 1,}":      "comma after the last element",
	} {
		var list notes.List
		if _, err := value(New(strings.NewReader(text), "f", &list)); err != nil || !strings.Contains(fmt.Sprint(list.All()), want) {
			t.Errorf("%q: %v, %v", text, list.All(), err)
		}
	}
	if v, err := parse(`"\ud83d\ude00 \ud83d \u00e9\/"`); err != nil || v != "😀 \ufffd é/" {
		t.Errorf("%q, %v", v, err)
	}
}

func TestRefused(t *testing.T) {
	long := `"` + strings.Repeat("x", MaxText+1) + `"`
	for text, want := range map[string]string{
		"[1,\n2 3]":                     "f:2: '3' where ',' or ']' is expected (byte 6)",
		"{1: 2}":                        "f:1: '1' where a key",
		`{"a" 2}`:                       "f:1: '2' where ':'",
		"[tru]":                         "\"tru\" where a value",
		"[%]":                           "'%' where a value",
		`["\u12x4"]`:                    "'x' in the escape",
		"[1":                            "f:1: the file ends inside a value",
		"\"abc":                         "the file ends inside a value",
		"tru":                           "the file ends inside a value",
		"-":                             "the file ends inside a value",
		long:                            "a string of more than",
		strings.Repeat("[", MaxDepth+1): "nest deeper than 256",
	} {
		_, err := parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: error %v; want %q", text, err, want)
		}
	}
	r := New(strings.NewReader(long), "f", nil)
	if err := r.Skip(); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken disk")
	if _, err := value(New(iotest.ErrReader(broken), "f", nil)); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if _, err := New(strings.NewReader("[1]"), "f", nil).Text(); err == nil {
		t.Error("a list is no text")
	}
	if err := New(strings.NewReader("1"), "f", nil).Object(nil); err == nil {
		t.Error("a number is no object")
	}
}

func FuzzReader(f *testing.F) {
	for _, s := range []string{`{"a": [1, -2.5e3, "x\n\u0041", true, null]}`, "[[[]]]", `"\`, "NaN", "\ufeff{}", "[1,]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, errA := value(New(bytes.NewReader(text), "f", nil))
		b, errB := value(New(iotest.OneByteReader(bytes.NewReader(text)), "f", nil))
		if (errA == nil) != (errB == nil) || errA == nil && !reflect.DeepEqual(a, b) {
			t.Errorf("whole: %#v, %v; in bytes: %#v, %v", a, errA, b, errB)
		}
		if json.Valid(text) && errA != nil && !strings.Contains(errA.Error(), "nest deeper") {
			t.Errorf("valid, but %v", errA)
		}
	})
}
