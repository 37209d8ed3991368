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
//	reference  the best of the strategies Of beside published measurements of
//	           the same model and sequence length: one line per measurement
//	value      the best of the strategies Of beside one published number
//
// The best is the largest value, since both kinds of columns that make sense
// here, rates and fractions, are better when larger; claims of kind value take
// any column and name a single strategy.

// checkClaim checks the parts of a claim that refer to other parts of the
// file.
func (c *Config) checkClaim(path string, claim *ClaimSpec) error {
	if claim.Name == "" {
		return &keyError{path + ".name", ": missing; want what is claimed"}
	}
	if claim.Kind == "" {
		return &keyError{path + ".kind", ": missing; allowed: gain, reference, value"}
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
	if claim.Kind == "value" && len(claim.Of) > 1 {
		return &keyError{path + ".of", fmt.Sprintf(" = %s: want one strategy for kind = \"value\"", show(anys(claim.Of)))}
	}
	if (claim.Kind == "gain") != (claim.Over != nil) {
		return &keyError{path + ".over", ": want an array of strategy names for kind = \"gain\", and only there"}
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
	keys := []string{"column"}
	for _, a := range c.Axes {
		keys = append(keys, a.Key)
	}
	for _, l := range leaves(nil, claim.Where) {
		key := strings.Join(l.path, ".")
		if !slices.Contains(keys, key) {
			return &keyError{path + ".where", fmt.Sprintf(": no axis %q; nearest is %s, allowed: %s", key, nearest.Name(key, keys), strings.Join(keys, ", "))}
		}
	}
	return nil
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
			if c.matches(spec, group[0].Cell) {
				chosen = append(chosen, group)
			}
		}
		switch spec.Kind {
		case "gain":
			list = append(list, gain(spec, chosen)...)
		case "reference":
			lines, err := reference(spec, chosen)
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

// matches tells whether a claim's Where admits the cell.
func (c *Config) matches(spec *ClaimSpec, cell *Cell) bool {
	for _, l := range leaves(nil, spec.Where) {
		key, want := strings.Join(l.path, "."), plain(l.value)
		if key == "column" && cell.Column != want {
			return false
		}
		for i, a := range c.Axes {
			if a.Key == key && cell.Axes[i] != want {
				return false
			}
		}
	}
	return true
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

// place names a group: column and axis values.
func place(group []*CellResult) string {
	return strings.Join(append([]string{group[0].Cell.Column}, group[0].Cell.Axes...), ", ")
}

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

// gainUnit is the unit of gains. A loss of less than tie is none: a policy that
// never acts still costs the host a few events.
const (
	gainUnit = "%"
	tie      = 0.01
)

func gain(spec *ClaimSpec, chosen [][]*CellResult) []results.Claim {
	type one struct {
		percent float64
		where   string
	}
	var gains []one
	var cells, alone []results.Claim
	for _, group := range chosen {
		of, winner := bestOf(group, spec.Of, spec.Value)
		over, baseline := bestOf(group, spec.Over, spec.Value)
		line := newClaim(spec, "cell", place(group), gainUnit, math.NaN())
		switch {
		case winner == nil && baseline == nil:
			line.Note = "nothing fits"
			alone = append(alone, line)
			continue
		case winner == nil:
			line.Note = "only " + baseline.Cell.Strategy + " fits"
			alone = append(alone, line)
			continue
		case baseline == nil:
			line.Note = "only " + winner.Cell.Strategy + " fits"
			alone = append(alone, line)
			continue
		}
		line.Simulated = 100 * (of/over - 1)
		line.Note = fmt.Sprintf("%s %s over %s %s", winner.Cell.Strategy, describe(winner), baseline.Cell.Strategy, describe(baseline))
		cells = append(cells, line)
		gains = append(gains, one{line.Simulated, line.Where})
	}
	sort.SliceStable(gains, func(i, j int) bool { return gains[i].percent < gains[j].percent })
	var list []results.Claim
	statistic := func(name, where string, v float64) {
		line := newClaim(spec, name, where, gainUnit, v)
		if name == spec.Statistic {
			line.Published, line.Source = spec.Published, spec.Source
			spec.assert(&line)
		}
		list = append(list, line)
	}
	if n := len(gains); n > 0 {
		median, where := gains[n/2].percent, gains[n/2].where
		if n%2 == 0 {
			median = (gains[n/2-1].percent + median) / 2
			where = gains[n/2-1].where + " and " + where
		}
		statistic("min", gains[0].where, gains[0].percent)
		statistic("median", where, median)
		statistic("max", gains[n-1].where, gains[n-1].percent)
	} else {
		statistic(spec.Statistic, "", math.NaN())
	}
	loses := 0
	for _, g := range gains {
		if g.percent < -tie {
			loses++
		}
	}
	count := newClaim(spec, "count", fmt.Sprintf("of %d cells in which both fit", len(gains)), fmt.Sprintf("cells that lose more than %g %%", tie), float64(loses))
	return append(append(append(list, count), cells...), alone...)
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
			line := newClaim(spec, "cell", place(group), m.Unit, v)
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
		line := newClaim(spec, "cell", place(group), unitOf(spec.Value), v)
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

// fewCells is how many losing cells of a claim a terminal shows; more are left
// to claims.csv.
const fewCells = 6

// gainCell tells a gain's line about one cell from all other lines.
func gainCell(c *results.Claim) bool { return c.Statistic == "cell" && c.Unit == gainUnit }

// claimTable shows claims on a terminal. Of the cells behind a gain it shows
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
		return fmt.Sprintf("%.2f", v)
	}
	losing := map[string]int{} // by claim
	for i := range claims {
		if c := &claims[i]; gainCell(c) && c.Simulated < -tie {
			losing[c.Name]++
		}
	}
	for i := range claims {
		c := &claims[i]
		where := c.Where
		if gainCell(c) {
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
