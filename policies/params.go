package policies

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"smartswap/internal/nearest"
)

// Params are a policy's options as a configuration file gives them: values
// are bool, int64, float64 or string. A policy reads them strictly:
//
//	o := Options{Chunks: 16} // the defaults
//	r := params.Read()
//	Int(r, "chunks", &o.Chunks, 1, 4096)
//	if err := r.Done(); err != nil { … }
type Params map[string]any

// Read starts reading p.
func (p Params) Read() *Reader { return &Reader{params: p} }

// Reader reads Params key by key. Each call names a key that the policy knows,
// stores its value if it is given, and leaves the default otherwise. The first
// error is kept for Done.
type Reader struct {
	params Params
	known  []string
	err    error
}

// value notes that key is known and returns what was given for it.
func (r *Reader) value(key string) (any, bool) {
	r.known = append(r.known, key)
	v, ok := r.params[key]
	return v, ok
}

// wrong keeps the first error about a value.
func (r *Reader) wrong(key string, value any, allowed string) {
	if r.err == nil {
		r.err = fmt.Errorf("policies: option %s = %v: must be %s", key, show(value), allowed)
	}
}

// show quotes strings and leaves other values as they are.
func show(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(v)
}

// Bool reads true or false.
func (r *Reader) Bool(key string, to *bool) {
	v, ok := r.value(key)
	if !ok {
		return
	}
	if b, ok := v.(bool); ok {
		*to = b
		return
	}
	r.wrong(key, v, "true or false")
}

// Int reads an integer in lo..hi into any integer type.
func Int[T ~int | ~int32 | ~int64](r *Reader, key string, to *T, lo, hi T) {
	v, ok := r.value(key)
	if !ok {
		return
	}
	var n int64
	switch x := v.(type) {
	case int64:
		n = x
	case int:
		n = int64(x)
	default:
		r.wrong(key, v, fmt.Sprintf("an integer from %d to %d", int64(lo), int64(hi)))
		return
	}
	if n < int64(lo) || n > int64(hi) {
		r.wrong(key, v, fmt.Sprintf("an integer from %d to %d", int64(lo), int64(hi)))
		return
	}
	*to = T(n)
}

// Float reads a number in lo..hi; an integer will do.
func (r *Reader) Float(key string, to *float64, lo, hi float64) {
	v, ok := r.value(key)
	if !ok {
		return
	}
	var x float64
	switch n := v.(type) {
	case float64:
		x = n
	case int64:
		x = float64(n)
	case int:
		x = float64(n)
	default:
		r.wrong(key, v, fmt.Sprintf("a number from %g to %g", lo, hi))
		return
	}
	if !(x >= lo && x <= hi) { // false for NaN
		r.wrong(key, v, fmt.Sprintf("a number from %g to %g", lo, hi))
		return
	}
	*to = x
}

// Choice reads one of the allowed strings.
func (r *Reader) Choice(key string, to *string, allowed ...string) {
	v, ok := r.value(key)
	if !ok {
		return
	}
	if s, ok := v.(string); ok && slices.Contains(allowed, s) {
		*to = s
		return
	}
	r.wrong(key, v, "one of "+strings.Join(allowed, ", "))
}

// Done is the first error met: a key that was never asked for (the first in
// alphabetical order, with the nearest known key), or else a wrong value.
func (r *Reader) Done() error {
	for _, key := range slices.Sorted(maps.Keys(r.params)) {
		if slices.Contains(r.known, key) {
			continue
		}
		if len(r.known) == 0 {
			return fmt.Errorf("policies: option %s: this policy has no options", key)
		}
		return fmt.Errorf("policies: no option %s; nearest is %s, valid are %s",
			key, nearest.Name(key, r.known), strings.Join(r.known, ", "))
	}
	return r.err
}
