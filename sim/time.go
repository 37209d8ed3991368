package sim

import "math"

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

// Rate is a bandwidth in bytes per second.
type Rate int64

// GBps makes a rate from decimal gigabytes per second.
func GBps(gb float64) Rate { return Rate(math.Round(gb * 1e9)) }

// Bytes counts bytes.
type Bytes int64

// Binary multiples.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)
