package results

import (
	"fmt"
	"math"
)

// Tolerance is how far two reals of equal runs may lie apart, relative to the
// larger: the last bits of a float depend on the processor (fused
// multiply-add), integers do not.
const Tolerance = 1e-9

// Compare holds got against want, cell by cell: integers and text exactly,
// reals within Tolerance. It returns one line per difference, at most limit.
func Compare(got, want *Frame, limit int) []string {
	var diffs []string
	report := func(format string, args ...any) {
		if len(diffs) < limit {
			diffs = append(diffs, fmt.Sprintf(format, args...))
		}
	}
	if len(got.Columns) != len(want.Columns) {
		report("%d columns, want %d", len(got.Columns), len(want.Columns))
		return diffs
	}
	for i, c := range want.Columns {
		if got.Columns[i].Name != c.Name {
			report("column %d is %s, want %s", i+1, got.Columns[i].Name, c.Name)
			return diffs
		}
	}
	if len(got.Rows) != len(want.Rows) {
		report("%d rows, want %d", len(got.Rows), len(want.Rows))
	}
	for r := range min(len(got.Rows), len(want.Rows)) {
		for i, c := range want.Columns {
			if g, w := got.Rows[r][i], want.Rows[r][i]; !same(g, w) {
				report("row %d, %s: %s, want %s", r+1, c.Name, g, w)
			}
		}
	}
	return diffs
}

// same compares two values by their CSV form, so that a column of reals that
// happen to be whole agrees with what was read back.
func same(a, b Value) bool {
	if a.String() == b.String() {
		return true
	}
	if a.kind != Real && b.kind != Real {
		return false
	}
	x, y := a.Number(), b.Number()
	return math.Abs(x-y) <= Tolerance*max(math.Abs(x), math.Abs(y))
}
