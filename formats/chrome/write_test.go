package chrome

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is written is JSON, whatever the names and values, and means the same
// to a decoder of somebody else's.
func TestWriterIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"a\"b\\c\n\x00\x1f\x7f", "\xff\xfe", "日本 \u2028"})).Draw(t, "name")
		at := rapid.Int64().Draw(t, "at")
		number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(-1), math.MaxFloat64, 5e-324})).Draw(t, "number")
		var text bytes.Buffer
		w := NewWriter(&text)
		w.Sort(1, 2, 3)
		w.Slice(1, 2, "c", name, at, 0, Field{"f", number}, Field{"i", at}, Field{name, name})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Events []struct {
				Name string      `json:"name"`
				TS   json.Number `json:"ts"`
				Args map[string]any
			} `json:"traceEvents"`
		}
		if err := json.Unmarshal(text.Bytes(), &got); err != nil {
			t.Fatalf("%v\n%s", err, text.String())
		}
		want, e := strings.ToValidUTF8(name, ""), got.Events[1]
		if strings.ReplaceAll(e.Name, "\uFFFD", "") != strings.ReplaceAll(want, "\uFFFD", "") {
			t.Errorf("name %q; want %q", e.Name, want)
		}
		if f, ok := e.Args["f"].(float64); ok && f != number {
			t.Errorf("number %v; want %v", f, number)
		}
		var sum, digits int64
		for _, c := range e.TS.String() {
			if c >= '0' && c <= '9' {
				sum = sum*10 - int64(c-'0') // below zero the range is larger
				digits++
			}
		}
		if at >= 0 {
			sum = -sum
		}
		if sum != at || digits < 4 {
			t.Errorf("time %s; want %d ns", e.TS, at)
		}
	})
}

// A file that cannot be written is told once, at the end.
func TestWriterFails(t *testing.T) {
	w := NewWriter(broken{})
	for range 10_000 {
		w.Instant(1, 1, "", "x", 0)
	}
	if err := w.Close(); err == nil || err.Error() != "no room" {
		t.Errorf("error %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no room") }

// lost counts what is written to it.
type lost int64

func (n *lost) Write(p []byte) (int, error) { *n += lost(len(p)); return len(p), nil }

func BenchmarkWriter(b *testing.B) {
	var n lost
	b.ReportAllocs()
	w := NewWriter(&n)
	i := int64(0)
	for b.Loop() {
		i++
		w.Slice(1, 2, "kernel", "npu::npu_fusion_attention", i*1000, 900, Field{"stream", 7})
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(n) / i)
}
