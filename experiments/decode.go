package experiments

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"smartswap/internal/nearest"
)

// field is one key of a table and how its value reaches a struct. Exactly one
// of set, sub and free is there.
type field struct {
	key  string
	set  func(v any) error // a value; the error says what is allowed
	sub  []field           // a table with known keys
	free *map[string]any   // a table whose keys another package checks
}

// keyError is a value that a table does not take, or a key that it does not
// have. Where it was written is added by whoever knows.
type keyError struct {
	path string // dotted key
	text string
}

func (e *keyError) Error() string { return e.path + e.text }

// assign gives value to the key at path below the table that fields describe.
// A table is assigned key by key, in the order of fields: a preset comes before
// what departs from it.
func assign(fields []field, prefix string, path []string, value any) error {
	if len(path) == 0 {
		tree, ok := value.(map[string]any)
		if !ok {
			return &keyError{prefix, fmt.Sprintf(" = %s: want a table; its keys: %s", show(value), strings.Join(keysOf(fields), ", "))}
		}
		keys, known := sortedKeys(tree), keysOf(fields)
		slices.SortStableFunc(keys, func(a, b string) int {
			return slices.Index(known, a) - slices.Index(known, b)
		})
		for _, key := range keys {
			if err := assign(fields, prefix, []string{key}, tree[key]); err != nil {
				return err
			}
		}
		return nil
	}
	full := join(prefix, path[0])
	i := slices.IndexFunc(fields, func(f field) bool { return f.key == path[0] })
	if i < 0 {
		keys := keysOf(fields)
		return &keyError{full, fmt.Sprintf(": unknown key; nearest is %s, allowed: %s", nearest.Name(path[0], keys), strings.Join(keys, ", "))}
	}
	f := fields[i]
	switch {
	case f.sub != nil:
		return assign(f.sub, full, path[1:], value)
	case f.free != nil:
		return assignFree(f.free, full, path[1:], value)
	case len(path) > 1:
		return &keyError{join(full, path[1]), fmt.Sprintf(": unknown key; %s is not a table", full)}
	}
	if err := f.set(value); err != nil {
		return &keyError{full, fmt.Sprintf(" = %s: %v", show(value), err)}
	}
	return nil
}

// assignFree replaces the table, or one value inside it. The table is copied:
// overlays share their base.
func assignFree(table *map[string]any, prefix string, path []string, value any) error {
	if len(path) == 0 {
		tree, ok := value.(map[string]any)
		if !ok {
			return &keyError{prefix, fmt.Sprintf(" = %s: want a table", show(value))}
		}
		*table = tree
		return nil
	}
	tree := make(map[string]any, len(*table)+1)
	for k, v := range *table {
		tree[k] = v
	}
	if len(path) > 1 {
		inner, _ := tree[path[0]].(map[string]any)
		if err := assignFree(&inner, join(prefix, path[0]), path[1:], value); err != nil {
			return err
		}
		value = inner
	}
	tree[path[0]] = value
	*table = tree
	return nil
}

// leaf is one value of a tree and its dotted path.
type leaf struct {
	path  []string
	value any
}

// leaves flattens a tree, keys sorted.
func leaves(prefix []string, tree map[string]any) []leaf {
	var list []leaf
	for _, key := range sortedKeys(tree) {
		path := append(slices.Clone(prefix), splitKey(key)...)
		if inner, ok := tree[key].(map[string]any); ok {
			list = append(list, leaves(path, inner)...)
			continue
		}
		list = append(list, leaf{path, tree[key]})
	}
	return list
}

// splitKey splits a dotted key such as "node.link.rate".
func splitKey(key string) []string { return strings.Split(key, ".") }

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

func sortedKeys(tree map[string]any) []string {
	keys := make([]string, 0, len(tree))
	for k := range tree {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// show prints a value as it would stand in the file, shortened.
func show(v any) string {
	var s string
	switch v := v.(type) {
	case string:
		s = fmt.Sprintf("%q", v)
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "an array of tables"
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = show(e)
		}
		s = "[" + strings.Join(parts, ", ") + "]"
	default:
		s = fmt.Sprint(v)
	}
	if len(s) > 60 {
		s = s[:57] + "..."
	}
	return s
}

// Setters. Each says in its error what is allowed.

// integer takes a whole number in [low, high]. Fields are signed on purpose: a
// negative number must be seen to be refused.
func integer(p *int64, low, high int64) func(any) error {
	return func(v any) error {
		i, ok := v.(int64)
		if !ok || i < low || i > high {
			return fmt.Errorf("want an integer from %d to %d", low, high)
		}
		*p = i
		return nil
	}
}

// whole is integer for a field of type int.
func whole(p *int, low, high int64) func(any) error {
	return func(v any) error {
		var i int64
		err := integer(&i, low, high)(v)
		if err == nil {
			*p = int(i)
		}
		return err
	}
}

// number takes a finite number in [low, high], whole or not.
func number(p *float64, low, high float64) func(any) error {
	return func(v any) error {
		f, ok := v.(float64)
		if i, whole := v.(int64); whole {
			f, ok = float64(i), true
		}
		if !ok || math.IsNaN(f) || f < low || f > high {
			return fmt.Errorf("want a number from %g to %g", low, high)
		}
		*p = f
		return nil
	}
}

// text takes a string that is not empty.
func text(p *string) func(any) error {
	return func(v any) error {
		s, ok := v.(string)
		if !ok || s == "" {
			return fmt.Errorf("want a string that is not empty")
		}
		*p = s
		return nil
	}
}

// choice takes one of the allowed strings.
func choice(p *string, allowed ...string) func(any) error {
	return func(v any) error {
		s, ok := v.(string)
		if !ok {
			return fmt.Errorf("want one of %s", strings.Join(allowed, ", "))
		}
		if !slices.Contains(allowed, s) {
			return fmt.Errorf("nearest is %s, allowed: %s", nearest.Name(s, allowed), strings.Join(allowed, ", "))
		}
		*p = s
		return nil
	}
}

// flag takes true or false.
func flag(p *bool) func(any) error {
	return func(v any) error {
		b, ok := v.(bool)
		if !ok {
			return fmt.Errorf("want true or false")
		}
		*p = b
		return nil
	}
}

// listOf takes an array that is not empty, each element by the setter that one
// makes for it; an element's complaint is the array's.
func listOf[T any](p *[]T, one func(*T) func(any) error) func(any) error {
	return func(v any) error {
		array, ok := v.([]any)
		if !ok || len(array) == 0 {
			var zero T
			return fmt.Errorf("want an array that is not empty; of its elements: %v", one(&zero)(nil))
		}
		list := make([]T, len(array))
		for i, e := range array {
			if err := one(&list[i])(e); err != nil {
				return fmt.Errorf("element %s: %v", show(e), err)
			}
		}
		*p = list
		return nil
	}
}

func integers(p *[]int64, low, high int64) func(any) error {
	return listOf(p, func(e *int64) func(any) error { return integer(e, low, high) })
}

func texts(p *[]string) func(any) error {
	return listOf(p, func(e *string) func(any) error { return text(e) })
}
