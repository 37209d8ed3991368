package experiments

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"smartswap/internal/nearest"
)

// TableSpec asks for a table. Show lists columns of rows.csv: one line per
// cell. Value is one such column: one line per column and axis values, the
// strategies side by side. Claim is the name of a claim: one line per column and
// axis values, those of the axis Across side by side.
type TableSpec struct {
	Name, Title string
	Show        []string
	Value       string
	Claim       string
	Across      string
	Where       map[string]any
	Terminal    bool // print it at the end of a run
	// BestFirst ranks the strategies of a Show table in each place: the fastest
	// one that fits first, of equals the one that the file names first.
	BestFirst bool
}

// FigureSpec asks for a figure of Value, a column of rows.csv, or of what a
// Claim compares.
//
// Without X it is grouped bars: groups are columns, bars are strategies, or the
// other way round if Bars is "column"; panels are the combinations of axis
// values. With X it is lines over an axis, over a
// column of rows.csv, or over "iteration" (then Value is a column of
// iterations.csv); what Lines names, "strategy", "column" or an axis, tells the
// lines of a panel apart, and everything else the panels.
type FigureSpec struct {
	Name, Title string
	Value       string
	Claim       string
	Bars        string
	X           string
	LogX        bool
	Lines       string
	Where       map[string]any
}

// ClaimSpec asks for a comparison; see claims.go for the kinds.
type ClaimSpec struct {
	Name  string
	Kind  string // see claimKinds
	Value string // column of rows.csv
	// Of and Over name strategies: the best of each is compared.
	Of, Over  []string
	Reference string // table of published measurements
	Statistic string // that Published is about: "min", "median", "max"
	Published float64
	Source    string
	// Where restricts the cells: axis key -> value, "column" -> name.
	Where map[string]any
	// AtLeast and AtMost make the claim an assertion.
	AtLeast, AtMost float64
	Agreement
}

func (t *TableSpec) fields() []field {
	return []field{
		{key: "name", set: fileName(&t.Name)},
		{key: "title", set: text(&t.Title)},
		{key: "show", set: texts(&t.Show)},
		{key: "value", set: text(&t.Value)},
		{key: "claim", set: text(&t.Claim)},
		{key: "across", set: text(&t.Across)},
		{key: "where", free: &t.Where},
		{key: "terminal", set: flag(&t.Terminal)},
		{key: "best_first", set: flag(&t.BestFirst)},
	}
}

func (f *FigureSpec) fields() []field {
	return []field{
		{key: "name", set: fileName(&f.Name)},
		{key: "title", set: text(&f.Title)},
		{key: "value", set: text(&f.Value)},
		{key: "claim", set: text(&f.Claim)},
		{key: "bars", set: choice(&f.Bars, "strategy", "column")},
		{key: "x", set: text(&f.X)},
		{key: "log_x", set: flag(&f.LogX)},
		{key: "lines", set: text(&f.Lines)},
		{key: "where", free: &f.Where},
	}
}

func (c *ClaimSpec) fields() []field {
	return append(c.Agreement.fields(), []field{
		{key: "name", set: text(&c.Name)},
		{key: "kind", set: choice(&c.Kind, claimKinds...)},
		{key: "value", set: text(&c.Value)},
		{key: "of", set: texts(&c.Of)},
		{key: "over", set: texts(&c.Over)},
		{key: "reference", set: text(&c.Reference)},
		{key: "statistic", set: choice(&c.Statistic, "min", "median", "max")},
		{key: "published", set: number(&c.Published, -math.MaxFloat64, math.MaxFloat64)},
		{key: "source", set: text(&c.Source)},
		{key: "where", free: &c.Where},
		{key: "at_least", set: number(&c.AtLeast, -math.MaxFloat64, math.MaxFloat64)},
		{key: "at_most", set: number(&c.AtMost, -math.MaxFloat64, math.MaxFloat64)},
	}...)
}

// checkReports checks what tables, figures and claims refer to.
func (c *Config) checkReports() error {
	if err := c.checkStrategy("compare_with", c.CompareWith); err != nil {
		return err
	}
	for i := range c.Strategies {
		if err := c.checkStrategy(fmt.Sprintf("strategy[%d].compare_with", i), c.Strategies[i].CompareWith); err != nil {
			return err
		}
	}
	names := map[string]string{} // file name -> who writes it
	own := func(path, name string) error {
		if owner := names[name]; owner != "" {
			return &keyError{path + ".name", fmt.Sprintf(" = %q: %s has this name", name, owner)}
		}
		names[name] = path
		return nil
	}
	for i := range c.Claims {
		if err := c.checkClaim(fmt.Sprintf("claim[%d]", i), &c.Claims[i]); err != nil {
			return err
		}
	}
	for i := range c.Tables {
		path := fmt.Sprintf("table[%d]", i)
		if err := c.checkTable(path, &c.Tables[i]); err != nil {
			return err
		}
		if err := own(path, c.Tables[i].Name); err != nil {
			return err
		}
	}
	for i := range c.Figures {
		path := fmt.Sprintf("figure[%d]", i)
		if err := c.checkFigure(path, &c.Figures[i]); err != nil {
			return err
		}
		if err := own(path, c.Figures[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// checkStrategy refuses a name that no strategy has; "" names none.
func (c *Config) checkStrategy(path, name string) error {
	if names := c.strategyNames(); name != "" && !slices.Contains(names, name) {
		return &keyError{path, fmt.Sprintf(" = %q: no such strategy; nearest is %q", name, nearest.Name(name, names))}
	}
	return nil
}

func (c *Config) checkTable(path string, t *TableSpec) error {
	given := 0
	for _, is := range []bool{t.Show != nil, t.Value != "", t.Claim != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return &keyError{path, ": want one of show, a list of columns, value, one column per strategy, or claim"}
	}
	for _, column := range t.Show {
		if err := c.checkColumn(path+".show", column); err != nil {
			return err
		}
	}
	if t.BestFirst && t.Show == nil {
		return &keyError{path + ".best_first", " = true: want a table with show"}
	}
	if t.Value != "" {
		if err := c.checkColumn(path+".value", t.Value); err != nil {
			return err
		}
	}
	if t.Claim != "" {
		if err := c.checkComparison(path+".claim", t.Claim); err != nil {
			return err
		}
	}
	if (t.Claim != "") != (t.Across != "") {
		return &keyError{path + ".across", fmt.Sprintf(" = %q: want an axis for a table of a claim, and only there", t.Across)}
	}
	if t.Across != "" && !slices.Contains(c.axisKeys(), t.Across) {
		return &keyError{path + ".across", fmt.Sprintf(" = %q: want one of the axes %s", t.Across, strings.Join(c.axisKeys(), ", "))}
	}
	return c.checkWhere(path, t.Where)
}

func (c *Config) checkFigure(path string, f *FigureSpec) error {
	switch {
	case (f.Value == "") == (f.Claim == ""):
		return &keyError{path, ": want either value, a column, or claim"}
	case f.Claim != "":
		if err := c.checkComparison(path+".claim", f.Claim); err != nil {
			return err
		}
	case f.X == iterationAxis:
		if err := c.checkIterationColumn(path+".value", f.Value); err != nil {
			return err
		}
	default:
		if err := c.checkColumn(path+".value", f.Value); err != nil {
			return err
		}
	}
	if f.X == "" {
		if f.Claim != "" || f.Lines != "" || f.LogX {
			return &keyError{path + ".x", ": missing; want what the lines run over"}
		}
		return c.checkWhere(path, f.Where)
	}
	if f.Bars != "" {
		return &keyError{path + ".bars", fmt.Sprintf(" = %q: this figure has lines, since x is set", f.Bars)}
	}
	axes := c.axisKeys()
	switch i := slices.Index(axes, f.X); {
	case i >= 0:
		for _, v := range c.Axes[i].Values {
			if x, _, ok := numeric(v); !ok || f.LogX && x <= 0 {
				return &keyError{path + ".x", fmt.Sprintf(" = %q: the value %s of this axis is no number that the figure can show", f.X, show(v))}
			}
		}
	case f.X == iterationAxis:
		if !c.base.Series || f.Claim != "" {
			return &keyError{path + ".x", fmt.Sprintf(" = %q: want series = true in the file, and a value", f.X)}
		}
	default:
		if err := c.checkColumn(path+".x", f.X); err != nil {
			return err
		}
	}
	dims := append([]string{"column"}, axes...)
	if f.Claim == "" {
		dims = append(dims, "strategy")
	}
	if f.Lines == "" {
		f.Lines = dims[len(dims)-1]
	}
	if !slices.Contains(dims, f.Lines) || f.Lines == f.X {
		return &keyError{path + ".lines", fmt.Sprintf(" = %q: want what tells lines apart, one of %s other than x", f.Lines, strings.Join(dims, ", "))}
	}
	return c.checkWhere(path, f.Where)
}

// checkComparison refuses a name that is not that of a claim with one number
// per column and axis values.
func (c *Config) checkComparison(path, name string) error {
	var have []string
	for i := range c.Claims {
		if k := c.Claims[i].Kind; k == "gain" || k == "change" {
			have = append(have, c.Claims[i].Name)
		}
	}
	if !slices.Contains(have, name) {
		return &keyError{path, fmt.Sprintf(" = %q: want the name of a claim of kind gain or change: %s", name, strings.Join(have, ", "))}
	}
	return nil
}

// checkWhere refuses keys that are not axes or "column".
func (c *Config) checkWhere(path string, where map[string]any) error {
	keys := append([]string{"column"}, c.axisKeys()...)
	for _, l := range leaves(nil, where) {
		key := strings.Join(l.path, ".")
		if !slices.Contains(keys, key) {
			return &keyError{path + ".where", fmt.Sprintf(": no axis %q; nearest is %s, allowed: %s", key, nearest.Name(key, keys), strings.Join(keys, ", "))}
		}
	}
	return nil
}

// matches tells whether where admits the cell.
func (c *Config) matches(where map[string]any, cell *Cell) bool {
	for _, l := range leaves(nil, where) {
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

// axisKeys are the keys of the axes in the order of the file.
func (c *Config) axisKeys() []string {
	keys := make([]string, len(c.Axes))
	for i, a := range c.Axes {
		keys[i] = a.Key
	}
	return keys
}

// checkColumn refuses a name that neither rows.csv nor tables have.
func (c *Config) checkColumn(path, name string) error {
	var have []string
	for _, col := range tableColumns() {
		have = append(have, col.Name)
	}
	for _, col := range newFrame(c.Axes).Columns {
		have = append(have, col.Name)
	}
	if slices.Contains(have, name) {
		return nil
	}
	return &keyError{path, fmt.Sprintf(" = %q: no such column; nearest is %s", name, nearest.Name(name, have))}
}
