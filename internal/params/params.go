// Package params reads the options of something that a configuration file names:
// a table of keys and values, of which every key must be known and every value
// be of the right type and in range.
//
//	p := Process{Every: 100} // the defaults
//	r := params.Read(options)
//	params.Int(r, "every", &p.Every, 1, 1<<20)
//	if err := r.Done(); err != nil { … }
package params

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"smartswap/internal/nearest"
)

// Reader reads options key by key. Each call names a key that is known, stores
// its value if it is given and leaves the default otherwise. The first wrong
// value is kept for Done. A Reader serves one goroutine.
type Reader struct {
	options map[string]any
	known   []string
	err     error
}

// Read starts reading options, whose values are bool, int, int64, float64 or
// string.
func Read(options map[string]any) *Reader { return &Reader{options: options} }

// value notes that key is known and returns what was given for it.
func (r *Reader) value(key string) (any, bool) {
	r.known = append(r.known, key)
	v, ok := r.options[key]
	return v, ok
}

// refuse keeps the first error about a value.
func (r *Reader) refuse(key string, value any, allowed string) {
	if r.err != nil {
		return
	}
	if s, ok := value.(string); ok {
		value = fmt.Sprintf("%q", s)
	}
	r.err = fmt.Errorf("option %s = %v: must be %s", key, value, allowed)
}

// Int reads an integer from lo to hi into any integer type.
func Int[T ~int | ~int64 | ~uint64](r *Reader, key string, to *T, lo, hi T) {
	v, ok := r.value(key)
	if !ok {
		return
	}
	var n int64
	switch x := v.(type) {
	case int:
		n = int64(x)
	case int64:
		n = x
	default:
		r.refuse(key, v, fmt.Sprintf("an integer from %d to %d", lo, hi))
		return
	}
	if n < 0 && T(0)-1 > 0 || T(n) < lo || T(n) > hi { // a negative number in an unsigned type
		r.refuse(key, v, fmt.Sprintf("an integer from %d to %d", lo, hi))
		return
	}
	*to = T(n)
}

// Float reads a number from lo to hi; an integer will do.
func Float(r *Reader, key string, to *float64, lo, hi float64) {
	v, ok := r.value(key)
	if !ok {
		return
	}
	x := hi + 1
	switch n := v.(type) {
	case float64:
		x = n
	case int:
		x = float64(n)
	case int64:
		x = float64(n)
	}
	if !(x >= lo && x <= hi) { // also not a number
		r.refuse(key, v, fmt.Sprintf("a number from %g to %g", lo, hi))
		return
	}
	*to = x
}

// Choice reads one of the allowed strings into any string type.
func Choice[T ~string](r *Reader, key string, to *T, allowed ...T) {
	v, ok := r.value(key)
	if !ok {
		return
	}
	if s, ok := v.(string); ok && slices.Contains(allowed, T(s)) {
		*to = T(s)
		return
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	r.refuse(key, v, "one of "+strings.Join(names, ", "))
}

// Done is the first error: an option that no call named (the first in
// alphabetical order, with the nearest known one), or else a wrong value.
func (r *Reader) Done() error {
	for _, key := range slices.Sorted(maps.Keys(r.options)) {
		switch {
		case slices.Contains(r.known, key):
		case len(r.known) == 0:
			return fmt.Errorf("option %s: there are no options", key)
		default:
			return fmt.Errorf("no option %s; nearest is %s, valid are %s", key, nearest.Name(key, r.known), strings.Join(r.known, ", "))
		}
	}
	return r.err
}
