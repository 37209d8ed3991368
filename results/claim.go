package results

import (
	"fmt"
	"math"
)

// Verdict says what a claim is and what came of it.
type Verdict string

// Verdicts.
const (
	Reported Verdict = "reported" // published and simulated side by side
	Passed   Verdict = "passed"   // asserted, within the bounds we set
	Failed   Verdict = "failed"   // asserted, outside: the run fails
)

// Claim is one line of claims.csv. Numbers that are not stated are NaN.
type Claim struct {
	Name      string
	Statistic string // min, median, max, count, or cell for one cell's figure
	Where     string // the cell or cells it was seen in
	Unit      string
	Published float64
	Simulated float64
	Verdict   Verdict
	Source    string // of the published number
	Note      string
	// Detail is a line behind a summary: claims.csv has it, a terminal not.
	Detail bool
}

// Difference is simulated minus published; NaN if either is missing.
func (c *Claim) Difference() float64 { return c.Simulated - c.Published }

// Ratio is simulated over published; NaN if either is missing or published
// is 0.
func (c *Claim) Ratio() float64 {
	if c.Published == 0 {
		return math.NaN()
	}
	return c.Simulated / c.Published
}

// Assert turns c into an asserted claim: it passes when Simulated lies in
// [low, high]; NaN bounds are open. A claim without a simulated value fails.
func (c *Claim) Assert(low, high float64) {
	c.Verdict = Passed
	switch {
	case math.IsNaN(c.Simulated):
		c.Verdict, c.Note = Failed, "nothing was simulated to hold against the bound"
	case c.Simulated < low:
		c.Verdict, c.Note = Failed, fmt.Sprintf("below the asserted %g", low)
	case c.Simulated > high:
		c.Verdict, c.Note = Failed, fmt.Sprintf("above the asserted %g", high)
	}
}

// ClaimFrame lays claims out as claims.csv.
func ClaimFrame(claims []Claim) *Frame {
	f := &Frame{Columns: []Column{
		{"claim", Text, "what is claimed"},
		{"statistic", Text, "min, median, max or count over cells; cell: one cell's figure"},
		{"where", Text, "the cell in which it was seen"},
		{"published", Real, "the published number"},
		{"simulated", Real, "the simulated number"},
		{"difference", Real, "simulated minus published"},
		{"ratio", Real, "simulated over published"},
		{"unit", Text, "of published, simulated and difference"},
		{"verdict", Text, "reported: for the reader to judge; passed or failed: against bounds of our own"},
		{"source", Text, "where the published number stands"},
		{"note", Text, "what else must be known"},
	}}
	for i := range claims {
		c := &claims[i]
		f.Rows = append(f.Rows, []Value{
			TextValue(c.Name), TextValue(c.Statistic), TextValue(c.Where),
			RealValue(c.Published), RealValue(c.Simulated),
			RealValue(c.Difference()), RealValue(c.Ratio()),
			TextValue(c.Unit), TextValue(string(c.Verdict)), TextValue(c.Source), TextValue(c.Note),
		})
	}
	return f
}
