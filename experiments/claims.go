package experiments

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"smartswap/internal/nearest"
	"smartswap/paper"
	"smartswap/results"
)

// Kinds of claims:
//
//	gain       best of the strategies Of over best of the strategies Over, in
//	           percent: minimum, median and maximum over the cells in which
//	           both fit, every cell that loses, every cell that only one fits
//	change     the same for one strategy Of and one Over and any column: a
//	           published cost is reached by what is at most as high, a published
//	           gain by what is at least as high
//	reference  the best of the strategies Of beside published measurements of
//	           the same model and sequence length: one line per measurement
//	agreement  a table of published numbers beside the cells that simulate
//	           them, with tolerances and the order of strategies: see Agreement
//	value      the best of the strategies Of beside one published number
//
// The best is the largest value: gains and references compare rates and
// fractions, which are better when larger. Kinds that take any column name single
// strategies.
var claimKinds = []string{"gain", "change", "reference", "agreement", "value"}

// checkClaim checks the parts of a claim that refer to other parts of the
// file.
func (c *Config) checkClaim(path string, claim *ClaimSpec) error {
	if claim.Name == "" {
		return &keyError{path + ".name", ": missing; want what is claimed"}
	}
	if claim.Kind == "" {
		return &keyError{path + ".kind", ": missing; allowed: " + strings.Join(claimKinds, ", ")}
	}
	if claim.Kind == "reference" {
		if _, err := results.Reference(claim.Reference); err != nil {
			return &keyError{path + ".reference", fmt.Sprintf(" = %q: %v", claim.Reference, err)}
		}
	} else if err := c.checkColumn(path+".value", claim.Value); err != nil {
		return err
	}
	if claim.Kind == "gain" && !strings.Contains(claim.Value, "_per_s") && !strings.HasPrefix(claim.Value, "fraction") {
		return &keyError{path + ".value", fmt.Sprintf(" = %q: want a column that is better when larger, such as tokens_per_s_per_device", claim.Value)}
	}
	if claim.Of == nil {
		return &keyError{path + ".of", ": missing; want an array of strategy names"}
	}
	compares := claim.Kind == "gain" || claim.Kind == "change"
	if compares != (claim.Over != nil) {
		return &keyError{path + ".over", ": want an array of strategy names for kinds gain and change, and only there"}
	}
	if (claim.Kind == "value" || claim.Kind == "change") && (len(claim.Of) > 1 || len(claim.Over) > 1) {
		return &keyError{path + ".of", fmt.Sprintf(" = %s: want one strategy for kind = %q", show(anys(claim.Of)), claim.Kind)}
	}
	if claim.Kind == "agreement" {
		if err := c.checkAgreement(path, claim); err != nil {
			return err
		}
	}
	names := c.strategyNames()
	for _, list := range []struct {
		key   string
		names []string
	}{{"of", claim.Of}, {"over", claim.Over}} {
		for _, n := range list.names {
			if !slices.Contains(names, n) {
				return &keyError{join(path, list.key), fmt.Sprintf(": no strategy %q; nearest is %q", n, nearest.Name(n, names))}
			}
		}
	}
	return c.checkWhere(path, claim.Where)
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// claims evaluates all claims of the file. All cells are finished.
func (c *Config) claims(cells []*CellResult) ([]results.Claim, error) {
	var list []results.Claim
	for i := range c.Claims {
		spec := &c.Claims[i]
		var chosen [][]*CellResult
		for _, group := range groups(cells) {
			if c.matches(spec.Where, group[0].Cell) {
				chosen = append(chosen, group)
			}
		}
		switch spec.Kind {
		case "gain", "change":
			list = append(list, gain(spec, chosen)...)
		case "reference":
			lines, err := reference(spec, chosen)
			if err != nil {
				return nil, err
			}
			list = append(list, lines...)
		case "agreement":
			lines, err := c.agreement(spec, chosen)
			if err != nil {
				return nil, err
			}
			list = append(list, lines...)
		case "value":
			list = append(list, value(spec, chosen)...)
		}
	}
	return list, nil
}

// bestOf is the largest value that one of the named strategies reaches in a
// group, and the cell; NaN and nil if none fits.
func bestOf(group []*CellResult, names []string, column string) (float64, *CellResult) {
	best, at := math.NaN(), (*CellResult)(nil)
	for _, cell := range group {
		if !slices.Contains(names, cell.Cell.Strategy) || cell.Best < 0 {
			continue
		}
		if v, ok := valueOf(cell, column); ok && (at == nil || v.Number() > best) {
			best, at = v.Number(), cell
		}
	}
	return best, at
}

// place is where a group stands: column and axis values.
func place(group []*CellResult) []string {
	return append([]string{group[0].Cell.Column}, group[0].Cell.Axes...)
}

func placeName(group []*CellResult) string { return strings.Join(place(group), ", ") }

func newClaim(spec *ClaimSpec, statistic, where, unit string, simulated float64) results.Claim {
	return results.Claim{Name: spec.Name, Statistic: statistic, Where: where, Unit: unit,
		Published: math.NaN(), Simulated: simulated, Verdict: results.Reported}
}

// assert applies the bounds of ours, if the file sets any.
func (spec *ClaimSpec) assert(c *results.Claim) {
	if !math.IsNaN(spec.AtLeast) || !math.IsNaN(spec.AtMost) {
		c.Assert(spec.AtLeast, spec.AtMost)
	}
}

// gainUnit is the unit of gains. A difference of less than tie is none: a policy
// that never acts still costs the host a few events.
const (
	gainUnit = "%"
	tie      = 0.01
)

// compared is what a claim of kind gain or change sees in one group.
type compared struct {
	percent float64     // NaN if there is nothing to compare
	of      *CellResult // whose value it is
	note    string
}

// compare holds the strategies Of against Over in a group.
func (spec *ClaimSpec) compare(group []*CellResult) compared {
	of, winner := bestOf(group, spec.Of, spec.Value)
	over, baseline := bestOf(group, spec.Over, spec.Value)
	nothing := func(note string) compared { return compared{percent: math.NaN(), note: note} }
	switch {
	case winner == nil && baseline == nil:
		return nothing("nothing fits")
	case winner == nil:
		return nothing("only " + baseline.Cell.Strategy + " fits")
	case baseline == nil:
		return nothing("only " + winner.Cell.Strategy + " fits")
	case over == 0:
		return nothing(baseline.Cell.Strategy + " has 0")
	}
	return compared{100 * (of/over - 1), winner,
		fmt.Sprintf("%s %s over %s %s", winner.Cell.Strategy, describe(winner), baseline.Cell.Strategy, describe(baseline))}
}

func gain(spec *ClaimSpec, chosen [][]*CellResult) []results.Claim {
	var cells, alone []results.Claim
	for _, group := range chosen {
		c := spec.compare(group)
		line := newClaim(spec, "cell", placeName(group), gainUnit, c.percent)
		line.Note = c.note
		if c.of == nil {
			alone = append(alone, line)
			continue
		}
		cells = append(cells, line)
	}
	publish := func(line *results.Claim) {
		line.Published, line.Source = spec.Published, spec.Source
		spec.assert(line)
	}
	if spec.Kind == "change" && len(cells) == 1 && alone == nil { // its own minimum, median and maximum
		publish(&cells[0])
		return cells
	}
	gains := slices.Clone(cells)
	sort.SliceStable(gains, func(i, j int) bool { return gains[i].Simulated < gains[j].Simulated })
	var list []results.Claim
	statistic := func(name, where string, v float64) {
		line := newClaim(spec, name, where, gainUnit, v)
		if name == spec.Statistic {
			publish(&line)
		}
		list = append(list, line)
	}
	if n := len(gains); n > 0 {
		median, where := gains[n/2].Simulated, gains[n/2].Where
		if n%2 == 0 {
			median = (gains[n/2-1].Simulated + median) / 2
			where = gains[n/2-1].Where + " and " + where
		}
		statistic("min", gains[0].Where, gains[0].Simulated)
		statistic("median", where, median)
		statistic("max", gains[n-1].Where, gains[n-1].Simulated)
	} else {
		statistic(spec.Statistic, "", math.NaN())
	}
	if unit, counts := spec.counted(); counts != nil {
		n := 0
		for i := range gains {
			if counts(gains[i].Simulated) {
				n++
			}
		}
		list = append(list, newClaim(spec, "count", fmt.Sprintf("of %d cells in which both fit", len(gains)), unit, float64(n)))
	}
	return append(append(list, cells...), alone...)
}

// counted is what a claim counts cells by: losses of a gain, and of a change
// those in which the published number is reached.
func (spec *ClaimSpec) counted() (unit string, counts func(percent float64) bool) {
	switch {
	case spec.Kind == "gain":
		return fmt.Sprintf("cells that lose more than %g %%", tie), func(v float64) bool { return v < -tie }
	case math.IsNaN(spec.Published):
		return "", nil
	case spec.Published < 0:
		return "cells that reach the published number", func(v float64) bool { return v <= spec.Published+tie }
	}
	return "cells that reach the published number", func(v float64) bool { return v >= spec.Published-tie }
}

// describe is the winning point of a cell.
func describe(c *CellResult) string { return "(" + c.Results[c.Best].Point.String() + ")" }

func reference(spec *ClaimSpec, chosen [][]*CellResult) ([]results.Claim, error) {
	measurements, err := results.Reference(spec.Reference)
	if err != nil {
		return nil, err
	}
	var list []results.Claim
	for _, m := range measurements {
		for _, group := range chosen {
			w := &group[0].Cell.Points[0].Workload
			if w.Kind != "decoder" || w.Model != m.Model || w.Seq != m.Seq {
				continue
			}
			v, cell := bestOf(group, spec.Of, m.Metric)
			line := newClaim(spec, "cell", placeName(group), m.Unit, v)
			line.Published, line.Source = m.Value, m.ID+": "+m.Source
			line.Note = m.Note
			if cell != nil {
				line.Note = "simulated " + describe(cell) + "; " + m.Note
			}
			spec.assert(&line)
			list = append(list, line)
		}
	}
	return list, nil
}

func value(spec *ClaimSpec, chosen [][]*CellResult) []results.Claim {
	var list []results.Claim
	for _, group := range chosen {
		v, cell := bestOf(group, spec.Of, spec.Value)
		line := newClaim(spec, "cell", placeName(group), unitOf(spec.Value), v)
		line.Published, line.Source = spec.Published, spec.Source
		if cell == nil {
			line.Note = "nothing fits"
		}
		spec.assert(&line)
		list = append(list, line)
	}
	return list
}

// unitOf reads the unit off a column's name.
func unitOf(column string) string {
	for _, u := range []struct{ suffix, unit string }{
		{"_per_s_per_device", "tokens/s per device"}, {"_ms", "ms"}, {"_ps", "ps"}, {"_bytes", "bytes"},
	} {
		if strings.HasSuffix(column, u.suffix) {
			return u.unit
		}
	}
	return ""
}

// fewCells is how many losing or disagreeing cells of a claim a terminal shows;
// more are left to claims.csv.
const fewCells = 6

// gainCell tells a gain's line about one cell from all other lines.
func gainCell(c *results.Claim) bool { return c.Statistic == "cell" && c.Unit == gainUnit }

// claimTable shows claims on a terminal. Of the cells behind a summary it shows
// those that cannot be compared, and those that lose if they are few.
func claimTable(claims []results.Claim) *paper.Table {
	t := &paper.Table{Title: "Claims", Columns: []paper.Column{
		{Name: "claim"}, {Name: "statistic"}, {Name: "published", Number: true}, {Name: "simulated", Number: true},
		{Name: "ratio", Number: true}, {Name: "unit"}, {Name: "where"}, {Name: "verdict"},
	}}
	number := func(v float64) string {
		if math.IsNaN(v) {
			return ""
		}
		if math.Abs(v) < 1 && v != 0 {
			return fmt.Sprintf("%.4f", v) // a fraction
		}
		return fmt.Sprintf("%.2f", v)
	}
	summed := map[string]bool{} // claims whose cells are summed up
	for i := range claims {
		if claims[i].Statistic != "cell" {
			summed[claims[i].Name] = true
		}
	}
	losing := map[string]int{} // by claim
	for i := range claims {
		if c := &claims[i]; gainCell(c) && c.Simulated < -tie {
			losing[c.Name]++
		}
	}
	for i := range claims {
		c := &claims[i]
		if c.Detail {
			continue
		}
		where := c.Where
		if gainCell(c) && summed[c.Name] {
			switch {
			case math.IsNaN(c.Simulated):
				where += ": " + c.Note
			case c.Simulated >= -tie || losing[c.Name] > fewCells:
				continue
			}
		}
		t.Rows = append(t.Rows, []string{c.Name, c.Statistic, number(c.Published), number(c.Simulated), number(c.Ratio()), c.Unit, where, string(c.Verdict)})
	}
	return t
}
