package profilers

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// sequence repeats the ids 0..names-1 up to length n.
func sequence(n, names int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = int32(i % names)
	}
	return s
}

func TestLengthThreshold(t *testing.T) {
	reference := sequence(100, 10)
	for n, changed := range map[int]bool{100: false, 104: false, 105: true, 96: false, 95: true, 0: true} {
		if got := LengthOnly().Compare(reference, sequence(n, 10)); got.Changed != changed {
			t.Errorf("%d operators instead of 100: %+v, want changed %v", n, got, changed)
		}
	}
	if c := LengthOnly().Compare(nil, nil); c.Changed {
		t.Errorf("nothing differs from nothing: %+v", c)
	}
	if c := LengthOnly().Compare(nil, sequence(1, 1)); !c.Changed || !math.IsInf(c.Length, 1) {
		t.Errorf("something is nothing: %+v", c)
	}
}

func TestCosine(t *testing.T) {
	for _, c := range []struct {
		a, b  []int32
		align Align
		want  float64
	}{
		{nil, nil, ZeroPad, 1},
		{nil, []int32{0}, ZeroPad, 0},
		{nil, []int32{0}, Truncate, 0},
		{[]int32{0}, []int32{0}, ZeroPad, 1},
		{[]int32{2, 3}, []int32{3, 2}, ZeroPad, 24.0 / 25}, // (3,4).(4,3)
		{[]int32{2, 3}, []int32{2}, ZeroPad, 3.0 / 5},      // (3,4).(3,0)
		{[]int32{2, 3}, []int32{2}, Truncate, 1},
	} {
		if got := Cosine(c.a, c.b, c.align); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("Cosine(%v, %v, %d) = %v, want %v", c.a, c.b, c.align, got, c.want)
		}
	}
}

func TestCosineProperties(t *testing.T) {
	ids := rapid.SliceOfN(rapid.Int32Range(0, 300), 1, 50)
	rapid.Check(t, func(t *rapid.T) {
		a, b := ids.Draw(t, "a"), ids.Draw(t, "b")
		for _, align := range []Align{ZeroPad, Truncate} {
			x, y := Cosine(a, b, align), Cosine(b, a, align)
			if x != y || x < 0 || x > 1+1e-12 {
				t.Fatalf("cosine %v one way, %v the other", x, y)
			}
			if one := Cosine(a, a, align); math.Abs(one-1) > 1e-12 {
				t.Fatalf("cosine %v with itself", one)
			}
		}
	})
}

// TestCosineIsWeak pins down what the cosine of ids does not see: exchanging
// operators with neighbouring ids, even all of them. An inserted operator,
// which shifts all others against the reference, it does see.
func TestCosineIsWeak(t *testing.T) {
	reference := sequence(1000, 40)
	swapped := slices.Clone(reference)
	for i := 0; i+1 < len(swapped); i += 2 {
		swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
	}
	if c := LengthAndCosine().Compare(reference, swapped); c.Changed {
		t.Errorf("now it notices 500 exchanges: %+v; tell the documentation", c)
	}
	inserted := slices.Insert(slices.Clone(reference), 0, sequence(40, 1)...)
	if c := LengthAndCosine().Compare(reference, inserted[:1000]); c.Changed {
		t.Errorf("a shift by a whole period is an exact copy but for its ends: %+v", c)
	}
	half := slices.Insert(slices.Clone(reference), 0, sequence(20, 1)...)
	if c := LengthAndCosine().Compare(reference, half); !c.Changed || c.Length >= 0.05 {
		t.Errorf("a shift by half a period goes unnoticed: %+v", c)
	}
}

func TestTheZeroDetectorIsOff(t *testing.T) {
	if c := (Detector{}).Compare(sequence(1, 1), sequence(1000, 7)); c.Changed {
		t.Errorf("%+v", c)
	}
}

// observed is an observation of passes given as runs of operator names.
func observed(passes ...[]int32) *Observation {
	var names Names
	for i := range int32(10) {
		names.ID(i, string('a'+i))
	}
	r := NewRecorder(&names, 0)
	r.Begin(0, Spec{Records: OpNames})
	for i, ops := range passes {
		for _, name := range ops {
			r.Op(OpRec{Name: name, Stage: Stage{Phase: Forward, MicroBatch: int32(i + 1), Layer: 7}}, nil)
		}
	}
	return r.End(1, false)
}

// TestHashesSeeEverything that the cosine does not.
func TestHashesSeeEverything(t *testing.T) {
	reference := observed([]int32{1, 2, 3}, []int32{4, 5})
	for name, c := range map[string]struct {
		o    *Observation
		want int
	}{
		"the same":        {observed([]int32{1, 2, 3}, []int32{4, 5}), 0},
		"an exchange":     {observed([]int32{2, 1, 3}, []int32{4, 5}), 1},
		"an insertion":    {observed([]int32{1, 2, 3}, []int32{4, 9, 5}), 1},
		"another border":  {observed([]int32{1, 2}, []int32{3, 4, 5}), 2},
		"a pass more":     {observed([]int32{1, 2, 3}, []int32{4, 5}, []int32{6}), 1},
		"a pass less":     {observed([]int32{1, 2, 3}), 1},
		"nothing is left": {observed(), 2},
	} {
		got := ByHashes().Between(reference, c.o)
		if got.Passes != c.want || got.Changed != (c.want > 0) {
			t.Errorf("%s: %+v, want %d passes", name, got, c.want)
		}
		if same := reference.Fingerprint() == c.o.Fingerprint(); same != (c.want == 0) {
			t.Errorf("%s: equal fingerprints: %v", name, same)
		}
	}
	if c := ByHashes().Between(nil, reference); c.Changed {
		t.Errorf("there is no reference: %+v", c)
	}
}
