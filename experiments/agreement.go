package experiments

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"smartswap/results"
)

// Agreement is the part of a claim of kind agreement: a whole table of
// published numbers beside the cells that simulate them.
//
// A row of the table belongs to the cell whose strategy StrategyColumn names,
// in the column that [cases] made of the row, where every axis of Match has the
// row's value. Rows without a cell are counted, not compared.
type Agreement struct {
	// PublishedColumn has the number; "" = the column called as Value. A row
	// without one says that the job did not fit.
	PublishedColumn string
	StrategyColumn  string         // names the strategy; "" = all are Of's one
	Match           map[string]any // column of the table -> axis
	// Within and WithinRelative say what agrees: a difference of at most the
	// larger of Within and WithinRelative times the published number. At most
	// Outliers cells may differ by more, or fit where the published one did not,
	// or the other way round. NaN = reported, not asserted.
	Within, WithinRelative float64
	Outliers               int64
	MeanWithin             float64 // of the mean absolute difference; NaN = reported
	// Ranking holds the order of strategies: of each two in the same place whose
	// published numbers differ by more, the simulated ones must differ in the
	// same direction. NaN = not looked at.
	Ranking float64
}

func (a *Agreement) fields() []field {
	return []field{
		{key: "published_column", set: text(&a.PublishedColumn)},
		{key: "strategy_column", set: text(&a.StrategyColumn)},
		{key: "match", free: &a.Match},
		{key: "within", set: number(&a.Within, 0, math.MaxFloat64)},
		{key: "within_relative", set: number(&a.WithinRelative, 0, math.MaxFloat64)},
		{key: "outliers", set: integer(&a.Outliers, 0, maxCells)},
		{key: "mean_within", set: number(&a.MeanWithin, 0, math.MaxFloat64)},
		{key: "ranking", set: number(&a.Ranking, 0, math.MaxFloat64)},
	}
}

func newAgreement() Agreement {
	nan := math.NaN()
	return Agreement{Within: nan, WithinRelative: nan, MeanWithin: nan, Ranking: nan}
}

// checkAgreement checks what the claim says about its table.
func (c *Config) checkAgreement(path string, spec *ClaimSpec) error {
	table, err := results.ReferenceTable(spec.Reference)
	if err != nil {
		return &keyError{path + ".reference", fmt.Sprintf(" = %q: %v", spec.Reference, err)}
	}
	a := &spec.Agreement
	if a.PublishedColumn == "" {
		a.PublishedColumn = spec.Value
	}
	column := func(key, name string) error { return hasColumn(join(path, key), spec.Reference, table, name) }
	if err := column("published_column", a.PublishedColumn); err != nil {
		return err
	}
	if a.StrategyColumn != "" {
		if err := column("strategy_column", a.StrategyColumn); err != nil {
			return err
		}
	} else if len(spec.Of) != 1 {
		return &keyError{path + ".of", fmt.Sprintf(" = %s: want one strategy, or strategy_column", show(anys(spec.Of)))}
	}
	for _, l := range leaves(nil, a.Match) {
		name := strings.Join(l.path, ".")
		if err := column("match", name); err != nil {
			return err
		}
		axis, _ := l.value.(string)
		if !slices.Contains(c.axisKeys(), axis) {
			return &keyError{path + ".match." + name, fmt.Sprintf(" = %s: want one of the axes %s", show(l.value), strings.Join(c.axisKeys(), ", "))}
		}
	}
	for i := range c.Axes {
		if key := c.Axes[i].Key; len(c.Axes[i].Values) > 1 && !a.matches(key) {
			return &keyError{path + ".match", fmt.Sprintf(": missing %s; want the column of %s that has the values of this axis", key, spec.Reference)}
		}
	}
	if c.Cases.Reference != "" && c.Cases.Reference != spec.Reference {
		return &keyError{path + ".reference", fmt.Sprintf(" = %q: want %q, the table of [cases]", spec.Reference, c.Cases.Reference)}
	}
	return nil
}

// matches tells whether a column of the table has the values of the axis.
func (a *Agreement) matches(axis string) bool {
	return slices.ContainsFunc(leaves(nil, a.Match), func(l leaf) bool { return l.value == axis })
}

// agreed is a row of the table and its cell.
type agreed struct {
	claim   results.Claim
	place   string
	outside bool
}

// difference is absolute; NaN if one of both did not fit.
func (a *agreed) difference() float64 { return math.Abs(a.claim.Difference()) }

// agreement compares the table with the cells of the groups.
func (c *Config) agreement(spec *ClaimSpec, chosen [][]*CellResult) ([]results.Claim, error) {
	table, err := results.ReferenceTable(spec.Reference)
	if err != nil {
		return nil, err
	}
	return c.agreementWith(table, spec, chosen), nil
}

func (c *Config) agreementWith(table *results.Frame, spec *ClaimSpec, chosen [][]*CellResult) []results.Claim {
	byPlace := map[string][]*CellResult{}
	for _, group := range chosen {
		parts := []string{group[0].Cell.Column}
		for i, axis := range c.Axes {
			if spec.Agreement.matches(axis.Key) {
				parts = append(parts, group[0].Cell.Axes[i])
			}
		}
		byPlace[strings.Join(parts, ", ")] = group
	}
	var found []agreed
	absent := 0
	for r := range table.Rows {
		place := c.placeOf(&spec.Agreement, table, r)
		strategy := spec.Of[0]
		if col := spec.Agreement.StrategyColumn; col != "" {
			strategy = table.At(r, col).String()
		}
		group := byPlace[place]
		at := slices.IndexFunc(group, func(cell *CellResult) bool { return cell.Cell.Strategy == strategy })
		if at < 0 || !slices.Contains(spec.Of, strategy) {
			absent++
			continue
		}
		found = append(found, spec.held(table, r, group[at], place))
	}
	list := spec.summary(found, absent)
	shown := 0
	for i := range found {
		if found[i].outside && shown < fewCells {
			shown++
			found[i].claim.Detail = false
		}
		list = append(list, found[i].claim)
	}
	return list
}

// placeOf is where the cell stands that row r of the table belongs to: its
// column and its values of the matched axes.
func (c *Config) placeOf(a *Agreement, table *results.Frame, r int) string {
	column := c.Columns[0].Name
	if c.Cases.Reference != "" {
		column = c.Cases.name(table, r)
	}
	parts := []string{column}
	match := leaves(nil, a.Match)
	for _, axis := range c.Axes {
		for _, l := range match {
			if l.value == axis.Key {
				parts = append(parts, table.At(r, strings.Join(l.path, ".")).String())
			}
		}
	}
	return strings.Join(parts, ", ")
}

// held holds row r against its cell.
func (spec *ClaimSpec) held(table *results.Frame, r int, cell *CellResult, place string) agreed {
	a := &spec.Agreement
	simulated := math.NaN()
	if cell.Best >= 0 {
		if v, ok := valueOf(cell, spec.Value); ok {
			simulated = v.Number()
		}
	}
	row := agreed{claim: newClaim(spec, "cell", cell.Cell.String(), unitOf(spec.Value), simulated), place: place}
	line := &row.claim
	line.Detail = true
	line.Published = table.At(r, a.PublishedColumn).Number()
	line.Source = table.At(r, "id").String() + ": " + table.At(r, "source").String()
	line.Note = table.At(r, "note").String()
	fits, did := !math.IsNaN(simulated), !math.IsNaN(line.Published)
	why := ""
	switch {
	case fits && did:
		if d := row.difference(); d > a.tolerance(line.Published) {
			why = fmt.Sprintf("differs by %.4g", d)
		}
	case fits:
		why = "fits, the published one did not"
	case did:
		why = "does not fit, the published one did"
	}
	if why != "" {
		row.outside = true
		line.Note = strings.TrimPrefix(line.Note+"; "+why, "; ")
	}
	return row
}

// tolerance is how far a simulated number may be from the published one.
func (a *Agreement) tolerance(published float64) float64 {
	t := math.Inf(1)
	if !math.IsNaN(a.Within) {
		t = a.Within
	}
	if !math.IsNaN(a.WithinRelative) {
		relative := a.WithinRelative * math.Abs(published)
		if math.IsInf(t, 1) {
			return relative
		}
		t = max(t, relative)
	}
	return t
}

// summary are the lines above the cells.
func (spec *ClaimSpec) summary(found []agreed, absent int) []results.Claim {
	a := &spec.Agreement
	line := func(statistic, where, unit string, v float64) results.Claim {
		l := newClaim(spec, statistic, where, unit, v)
		l.Source = spec.Source
		return l
	}
	compared := fmt.Sprintf("of %d rows of %s", len(found), spec.Reference)
	if absent > 0 {
		compared += fmt.Sprintf(", %d without a cell here", absent)
	}
	outside, both, sum, worst := 0, 0, 0.0, -1
	for i := range found {
		if found[i].outside {
			outside++
		}
		if d := found[i].difference(); !math.IsNaN(d) {
			both++
			sum += d
			if worst < 0 || d > found[worst].difference() {
				worst = i
			}
		}
	}
	count := line("count", compared, "rows that disagree", float64(outside))
	if len(found) == 0 {
		count.Simulated = math.NaN()
	}
	if !math.IsNaN(a.Within) || !math.IsNaN(a.WithinRelative) {
		count.Assert(math.NaN(), float64(a.Outliers))
	}
	list := []results.Claim{count}
	if both > 0 {
		unit := unitOf(spec.Value)
		mean := line("mean", fmt.Sprintf("absolute difference, %d cells", both), unit, sum/float64(both))
		if !math.IsNaN(a.MeanWithin) {
			mean.Assert(math.NaN(), a.MeanWithin)
		}
		list = append(list, mean, line("max", "absolute difference, "+found[worst].claim.Where, unit, found[worst].difference()))
	}
	if !math.IsNaN(a.Ranking) {
		pairs, swapped, first := ranked(found, a.Ranking)
		l := line("count", fmt.Sprintf("of %d pairs of strategies that differ by more than %g", pairs, a.Ranking), "pairs in another order", float64(swapped))
		l.Assert(math.NaN(), 0)
		if swapped > 0 {
			l.Note = "first: " + first
		}
		list = append(list, l)
	}
	return list
}

// ranked counts the pairs of rows in one place whose published numbers differ
// by more than tie, and those whose simulated numbers do not differ in the same
// direction; first names one of them.
func ranked(found []agreed, tie float64) (pairs, swapped int, first string) {
	places := map[string][]int{}
	for i := range found {
		for _, j := range places[found[i].place] {
			a, b := &found[j].claim, &found[i].claim
			published, simulated := a.Published-b.Published, a.Simulated-b.Simulated
			if math.IsNaN(published) || math.IsNaN(simulated) || math.Abs(published) <= tie {
				continue
			}
			pairs++
			if (published > 0) != (simulated > 0) {
				if swapped++; swapped == 1 {
					first = a.Where + " and " + b.Where
				}
			}
		}
		places[found[i].place] = append(places[found[i].place], i)
	}
	return pairs, swapped, first
}
