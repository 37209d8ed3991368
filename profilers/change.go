package profilers

import "math"

// Align says how sequences of unequal length are compared operator by
// operator. The paper leaves it open.
type Align uint8

// Alignments.
const (
	ZeroPad  Align = iota // what the shorter one lacks is zero
	Truncate              // what the longer one has beyond is ignored
)

// Detector decides whether an operator sequence has changed. A zero threshold
// switches its test off, so the zero Detector never reports a change.
type Detector struct {
	// MaxLength is the relative difference in length from which on a
	// sequence counts as changed.
	MaxLength float64
	// MinCosine is the cosine similarity below which it does.
	MinCosine float64
	Align     Align
	// Hashes compares the rolling hashes of passes: any difference counts,
	// an inserted logging operator like a skipped optimizer.
	Hashes bool
}

// LengthOnly is the detector of the shipped code, which compares operator
// counts and nothing else (MindSpeed, swap_policy_config.py: 5 %).
func LengthOnly() Detector { return Detector{MaxLength: 0.05} }

// LengthAndCosine is the detector that a review of the paper describes: 5 % in
// length, 95 % in cosine. The padding is assumed.
func LengthAndCosine() Detector { return Detector{MaxLength: 0.05, MinCosine: 0.95, Align: ZeroPad} }

// ByHashes is our own detector: exact, and O(passes) instead of O(operators).
func ByHashes() Detector { return Detector{Hashes: true} }

// Change is what a Detector found.
type Change struct {
	Length  float64 // see RelativeLength
	Cosine  float64 // see Cosine; 1 if the test is off
	Passes  int     // that differ, see DifferentPasses; 0 if the test is off
	Changed bool
}

// Between holds o against reference; nothing has changed when either is nil.
func (d Detector) Between(reference, o *Observation) Change {
	if reference == nil || o == nil {
		return Change{Cosine: 1}
	}
	c := d.Compare(reference.Sequence, o.Sequence)
	if d.Hashes {
		c.Passes = DifferentPasses(reference, o)
		c.Changed = c.Changed || c.Passes > 0
	}
	return c
}

// DifferentPasses counts the passes of either observation that the other has
// not, or has with other operators. One that differs in its operators alone
// counts once. O(passes).
func DifferentPasses(a, b *Observation) int {
	type content struct {
		length int32
		hash   uint64
	}
	in := make(map[Stage]content, len(a.Passes))
	for i, p := range a.Passes {
		in[p.Stage] = content{a.PassLength(i), p.Hash}
	}
	different := len(a.Passes)
	for i, p := range b.Passes {
		c, ok := in[p.Stage]
		switch {
		case !ok:
			different++
		case c == content{b.PassLength(i), p.Hash}:
			different--
		}
	}
	return different
}

// Compare holds sequence against reference, by length and cosine, in O(n).
func (d Detector) Compare(reference, sequence []int32) Change {
	c := Change{Length: RelativeLength(len(reference), len(sequence)), Cosine: 1}
	if d.MaxLength > 0 && c.Length >= d.MaxLength {
		c.Changed = true
	}
	if d.MinCosine > 0 {
		c.Cosine = Cosine(reference, sequence, d.Align)
		c.Changed = c.Changed || c.Cosine < d.MinCosine
	}
	return c
}

// RelativeLength is |n - reference| / reference: 0 for two empty sequences,
// infinite if only the reference is empty.
func RelativeLength(reference, n int) float64 {
	switch {
	case n == reference:
		return 0
	case reference == 0:
		return math.Inf(1)
	}
	return math.Abs(float64(n-reference)) / float64(reference)
}

// Cosine is the cosine of the angle between two sequences of name ids read as
// vectors. Ids count from 1 here, so that the first name is not lost; two
// empty sequences have cosine 1, an empty and a full one 0.
//
// It is a weak test: large ids dominate it, and exchanging operators with
// similar ids hardly moves it. A test pins this down.
//
// Every partial sum is an integer below 2^53 for sequences that fit into
// memory with ids below 10,000, so the result does not depend on the machine.
func Cosine(a, b []int32, align Align) float64 {
	common := min(len(a), len(b))
	if align == Truncate && common > 0 {
		a, b = a[:common], b[:common]
	}
	dot, aa, bb := 0.0, 0.0, 0.0
	for i := range common {
		dot += float64(float64(a[i]+1) * float64(b[i]+1))
	}
	for _, x := range a {
		aa += float64(float64(x+1) * float64(x+1))
	}
	for _, x := range b {
		bb += float64(float64(x+1) * float64(x+1))
	}
	switch {
	case len(a) == 0 && len(b) == 0:
		return 1
	case aa == 0 || bb == 0:
		return 0
	}
	return dot / (math.Sqrt(aa) * math.Sqrt(bb))
}
