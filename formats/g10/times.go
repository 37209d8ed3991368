package g10

import (
	"io"
	"math"
	"strconv"
	"strings"

	"smartswap/formats/internal/lines"
	"smartswap/sim"
)

// Bounds on input: far above every published network, and low enough that no
// sum of sizes or times leaves an int64.
const (
	maxKernels = 1 << 18
	maxBytes   = sim.Bytes(1) << 44 // of one tensor or scratch area: 16 TiB
	maxTime    = 30 * sim.Second    // of one kernel; maxKernels of them stay below sim.Forever
)

// ReadTimes reads a kernel-time file: one line per kernel in execution order,
// "0007 2.528256 ms". The times are exact: the decimal number of milliseconds
// becomes integer picoseconds without passing through a float. file is the
// name that errors use.
func ReadTimes(r io.Reader, file string) ([]sim.Time, error) {
	return readColumn(r, file, "ms", func(s string) (sim.Time, string) {
		// A millisecond is 10^9 ps: nine digits after the point.
		ps, ok := fixedPoint(s, 9)
		switch {
		case !ok:
			return 0, "a decimal number of milliseconds with at most 9 digits after the point"
		case sim.Time(ps) > maxTime:
			return 0, "at most 30000 ms"
		}
		return sim.Time(ps), ""
	})
}

// ReadScratch reads a workspace file: the same lines with whole bytes,
// "0007 4096 B".
func ReadScratch(r io.Reader, file string) ([]sim.Bytes, error) {
	return readColumn(r, file, "B", func(s string) (sim.Bytes, string) {
		b, ok := fixedPoint(s, 0)
		if !ok || sim.Bytes(b) > maxBytes {
			return 0, "a whole number of bytes up to 2^44"
		}
		return sim.Bytes(b), ""
	})
}

// readColumn reads "number value unit" lines whose numbers count from 0. parse
// turns a value, or says what is allowed.
func readColumn[T any](r io.Reader, file, unit string, parse func(string) (T, string)) ([]T, error) {
	in := lines.New(r, file)
	var out []T
	for line, ok := in.Next(); ok; line, ok = in.Next() {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, in.Errorf("%q is not a line of the form \"0007 2.5 %s\"", line, unit)
		}
		if n, err := strconv.Atoi(f[0]); err != nil || n != len(out) {
			return nil, in.Errorf("kernel number %q, but kernel %d comes here", f[0], len(out))
		}
		if f[2] != unit {
			return nil, in.Errorf("unit %q of kernel %d; allowed: %s", f[2], len(out), unit)
		}
		if len(out) == maxKernels {
			return nil, in.Errorf("more than %d kernels", maxKernels)
		}
		v, allowed := parse(f[1])
		if allowed != "" {
			return nil, in.Errorf("value %q of kernel %d; allowed: %s", f[1], len(out), allowed)
		}
		out = append(out, v)
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, in.ErrorAt(1, "the file is empty; one line per kernel is expected")
	}
	return out, nil
}

// fixedPoint reads an unsigned decimal number as a multiple of 10^-digits.
// false: not such a number, finer than that, or too large for an int64.
func fixedPoint(s string, digits int) (int64, bool) {
	whole, frac, point := strings.Cut(s, ".")
	if whole == "" || point && (frac == "" || digits == 0) {
		return 0, false
	}
	if frac = strings.TrimRight(frac, "0"); len(frac) > digits {
		return 0, false
	}
	var v int64
	for _, c := range whole + frac + strings.Repeat("0", digits-len(frac)) {
		if c < '0' || c > '9' || v > (math.MaxInt64-9)/10 {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, true
}
