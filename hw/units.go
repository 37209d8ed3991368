package hw

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"smartswap/sim"
)

// unit is a suffix of a quantity's text and what one of it is worth.
type unit struct {
	suffix string
	worth  float64
}

func byteUnits() []unit {
	return []unit{
		{"B", 1},
		{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	}
}

func timeUnits() []unit {
	return []unit{
		{"ps", float64(sim.Picosecond)}, {"ns", float64(sim.Nanosecond)}, {"us", float64(sim.Microsecond)},
		{"ms", float64(sim.Millisecond)}, {"s", float64(sim.Second)},
	}
}

func flopUnits() []unit {
	return []unit{{"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}}
}

// ParseBytes reads a size such as "64GiB" or "1.5MB": a number that is not
// negative and one of the units B, kB, MB, GB, TB (decimal), KiB, MiB, GiB,
// TiB (binary). Zero needs no unit. The nearest byte is taken.
func ParseBytes(text string) (sim.Bytes, error) {
	v, err := parseQuantity(text, byteUnits())
	return sim.Bytes(v), err
}

// ParseRate reads a bandwidth such as "25.6GB/s": what ParseBytes accepts,
// followed by "/s".
func ParseRate(text string) (sim.Rate, error) {
	per := byteUnits()
	for i := range per {
		per[i].suffix += "/s"
	}
	v, err := parseQuantity(text, per)
	return sim.Rate(v), err
}

// ParseTime reads a span of time such as "12us": a number that is not negative
// and one of the units ps, ns, us, ms, s. Zero needs no unit.
func ParseTime(text string) (sim.Time, error) {
	v, err := parseQuantity(text, timeUnits())
	return sim.Time(v), err
}

// parseQuantity reads a number with a unit and rounds it to a whole number of
// base units.
func parseQuantity(text string, units []unit) (int64, error) {
	v, err := parseFloat(text, units)
	if err != nil {
		return 0, err
	}
	v = math.Round(v)
	if v >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return int64(v), nil
}

// parseFloat reads a finite number that is not negative, times its unit.
func parseFloat(text string, units []unit) (float64, error) {
	digits := strings.TrimRightFunc(text, func(r rune) bool { return r == '/' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' })
	suffix := text[len(digits):]
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, fmt.Errorf("%q is not a number >= 0 with a unit, one of %s", text, suffixes(units))
	}
	if v == 0 && suffix == "" {
		return 0, nil
	}
	for _, u := range units {
		if u.suffix == suffix {
			return v * u.worth, nil
		}
	}
	return 0, fmt.Errorf("%q has no known unit, want one of %s", text, suffixes(units))
}

func suffixes(units []unit) string {
	var names []string
	for _, u := range units {
		names = append(names, u.suffix)
	}
	return strings.Join(names, ", ")
}
