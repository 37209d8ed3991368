package decimal

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text      string
		unit      int64
		want      int64
		exact, ok bool
	}{
		{"1764246877073569.640", 1000, 1764246877073569640, true, true},
		{"10282.7490234375", 1 << 20, 10782243840, true, true},
		{"0.5", 1, 1, false, true},
		{"0.49999999999999999999999", 1, 0, false, true},
		{"-0.5", 1, -1, false, true},
		{"1.69512E+15", 1, 1695120000000000, true, true},
		{"1e-3", 1000, 1, true, true},
		{"1e-18", 1, 0, false, true},
		{".5", 2, 1, true, true},
		{"5.", 2, 10, true, true},
		{"0e18", 1, 0, true, true},
		{"9223372036854775807", 1, math.MaxInt64, true, true},
		{"9223372036854775808", 1, 0, false, false},
		{"99999999999999999999", 1, 0, false, false},
		{"9223372036854775807", 1000, 0, false, false},
		{"1e19", 1, 0, false, false},
		{"", 1, 0, false, false},
		{".", 1, 0, false, false},
		{"-", 1, 0, false, false},
		{"1.2.3", 1, 0, false, false},
		{"1e", 1, 0, false, false},
		{"1e+", 1, 0, false, false},
		{"0x10", 1, 0, false, false},
		{"N/A", 1, 0, false, false},
		{"NaN", 1, 0, false, false},
		{"1 ", 1, 0, false, false},
	} {
		v, exact, ok := Parse(c.text, c.unit)
		if ok != c.ok || ok && (v != c.want || exact != c.exact) {
			t.Errorf("Parse(%q, %d) = %d, %v, %v; want %d, %v, %v", c.text, c.unit, v, exact, ok, c.want, c.exact, c.ok)
		}
	}
}

// Against rational numbers of any length.
func TestParseIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := fmt.Sprintf("%d.%0*d", rapid.Int64Range(0, 1e15).Draw(t, "whole"), rapid.IntRange(1, 6).Draw(t, "width"), rapid.Int64Range(0, 9).Draw(t, "part"))
		unit := rapid.SampledFrom([]int64{1, 1000, 1024}).Draw(t, "unit")
		r, _ := new(big.Rat).SetString(text)
		r.Mul(r, new(big.Rat).SetInt64(unit))
		exactWant := r.IsInt()
		r.Add(r, big.NewRat(1, 2))
		want := new(big.Int).Quo(r.Num(), r.Denom()).Int64()
		if v, exact, ok := Parse([]byte(text), unit); !ok || v != want || exact != exactWant {
			t.Fatalf("Parse(%q, %d) = %d, %v, %v; want %d, %v", text, unit, v, exact, ok, want, exactWant)
		}
	})
}
