package sim

import (
	"math"
	"strconv"
	"strings"
)

// Time is an instant or a span of virtual time in integer picoseconds. An
// instant counts from the start of the run. The range is 106 days.
type Time int64

// Common spans.
const (
	Picosecond  Time = 1
	Nanosecond       = 1000 * Picosecond
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond

	// Forever is later than every instant of a run.
	Forever Time = math.MaxInt64
)

// Seconds is t in seconds, for output only: simulation stays in integers.
func (t Time) Seconds() float64 { return float64(t) / float64(Second) }

// Milliseconds is t in milliseconds, for output only.
func (t Time) Milliseconds() float64 { return float64(t) / float64(Millisecond) }

// Microseconds is t in microseconds, for output only.
func (t Time) Microseconds() float64 { return float64(t) / float64(Microsecond) }

// FromSeconds rounds s to the nearest picosecond; NaN and negative values
// give 0, values beyond the range give Forever.
func FromSeconds(s float64) Time {
	ps := math.Round(s * float64(Second))
	switch {
	case !(ps > 0):
		return 0
	case ps >= float64(math.MaxInt64):
		return Forever
	}
	return Time(ps)
}

// String is t to the picosecond in the largest unit that t reaches, such as
// "1.5ms"; Forever is "forever".
func (t Time) String() string {
	switch {
	case t == Forever:
		return "forever"
	case t == 0:
		return "0s"
	case t == math.MinInt64:
		return "-" + Forever.String()
	case t < 0:
		return "-" + (-t).String()
	}
	unit, name := Picosecond, "ps"
	for _, u := range []struct {
		span Time
		name string
	}{{Nanosecond, "ns"}, {Microsecond, "us"}, {Millisecond, "ms"}, {Second, "s"}} {
		if t >= u.span {
			unit, name = u.span, u.name
		}
	}
	s := strconv.FormatInt(int64(t/unit), 10)
	if rest := t % unit; rest > 0 {
		// Adding the unit keeps the zeros that lead the fraction.
		fraction := strconv.FormatInt(int64(unit+rest), 10)[1:]
		s += "." + strings.TrimRight(fraction, "0")
	}
	return s + name
}

// Rate is a bandwidth in bytes per second.
type Rate int64

// GBps makes a rate from decimal gigabytes per second.
func GBps(gb float64) Rate { return Rate(math.Round(gb * 1e9)) }

// String is r to four digits in decimal multiples, such as "25.6GB/s".
func (r Rate) String() string { return scaled(float64(r), 1000, "B/s", "kB/s", "MB/s", "GB/s", "TB/s") }

// Bytes counts bytes.
type Bytes int64

// Binary multiples.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// String is b to four digits in binary multiples, such as "1.5GiB".
func (b Bytes) String() string { return scaled(float64(b), 1024, "B", "KiB", "MiB", "GiB", "TiB") }

// scaled writes x to four digits in the largest of the units, each step times
// the one before, that it reaches after rounding.
func scaled(x, step float64, units ...string) string {
	i := 0
	for ; i < len(units)-1 && math.Abs(x) >= step; i++ {
		x /= step
	}
	if i == 0 {
		return strconv.FormatFloat(x, 'f', -1, 64) + units[0]
	}
	digits := 3
	for y := math.Abs(x); digits > 0 && y >= 10; y /= 10 {
		digits--
	}
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(x, 'f', digits, 64), "0"), ".") + units[i]
}
