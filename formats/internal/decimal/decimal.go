// Package decimal reads decimal numbers as integers of a smaller unit. Profilers
// print times of 16 digits with three more behind the point: more than a binary
// float holds, so the way from text to integer must not pass through one.
package decimal

import (
	"math"
	"math/bits"
)

// maxExponent bounds the exponents that are read: 10^18 is the largest power
// of ten whose product with any digit stays in an int64.
const maxExponent = 18

// Parse reads text, such as "1764246877073569.640" or "-1.5e3", as a multiple of
// 1/unit: Parse(t, 1000) reads microseconds as nanoseconds. Half a unit is
// rounded away from zero. exact is false if digits were lost by that; ok is
// false if text is no decimal number or its value leaves an int64. unit is
// positive. No allocation.
func Parse[T string | []byte](text T, unit int64) (v int64, exact, ok bool) {
	i, negative := 0, false
	if i < len(text) && (text[i] == '-' || text[i] == '+') {
		negative = text[i] == '-'
		i++
	}
	var mantissa uint64
	exact = true
	scale, digits, point := 0, 0, false
	for ; i < len(text); i++ {
		c := text[i]
		if c == '.' && !point {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		digits++
		if mantissa > (math.MaxUint64-9)/10 || scale == maxExponent {
			if !point {
				return 0, false, false
			}
			exact = exact && c == '0' // finer than any unit in use
			continue
		}
		mantissa = mantissa*10 + uint64(c-'0')
		if point {
			scale++
		}
	}
	if digits == 0 {
		return 0, false, false
	}
	if i < len(text) {
		e, fine := exponent(text[i:])
		if !fine {
			return 0, false, false
		}
		scale -= e
	}
	for ; scale < 0 && mantissa != 0; scale++ {
		hi, lo := bits.Mul64(mantissa, 10)
		if hi != 0 {
			return 0, false, false
		}
		mantissa = lo
	}
	divisor := uint64(1)
	for ; scale > 0; scale-- {
		if divisor > math.MaxUint64/10 { // far below any unit
			return 0, exact && mantissa == 0, true
		}
		divisor *= 10
	}
	hi, lo := bits.Mul64(mantissa, uint64(unit))
	if hi >= divisor {
		return 0, false, false
	}
	q, rest := bits.Div64(hi, lo, divisor)
	if rest != 0 {
		exact = false
		if rest >= divisor-rest {
			q++
		}
	}
	if q > math.MaxInt64 {
		return 0, false, false
	}
	v = int64(q)
	if negative {
		v = -v
	}
	return v, exact, true
}

// exponent reads "e+3" and its kind.
func exponent[T string | []byte](text T) (e int, ok bool) {
	if len(text) < 2 || text[0] != 'e' && text[0] != 'E' {
		return 0, false
	}
	i, negative := 1, false
	if text[1] == '+' || text[1] == '-' {
		negative = text[1] == '-'
		i++
	}
	if i == len(text) {
		return 0, false
	}
	for ; i < len(text); i++ {
		c := text[i]
		if c < '0' || c > '9' || e > maxExponent {
			return 0, false
		}
		e = e*10 + int(c-'0')
	}
	if negative {
		e = -e
	}
	return e, true
}
