package experiments

import (
	"fmt"
	"slices"
	"strings"

	"smartswap/internal/nearest"
	"smartswap/results"
)

// Cases makes columns of a published table, results/reference/NAME.csv: one for
// each distinct combination of what Set takes from it, in the order of the
// table. A comparison with a list of published numbers then simulates exactly
// the jobs of the list, which need not be a product of axes.
//
//	[cases]
//	reference = "g10"
//	set.network = "workload.network"
//	set.log     = { key = "workload.trace", as = "logs/{}.log.gz" }
//	where.batch = [128, 256]
type Cases struct {
	Reference string
	// Set says which key a column of the table goes to: the key, or a table
	// of key and as, a text in which {} stands for the value. Rows without a
	// value in one of them make no column. The value may go to a policy option
	// too, named by option, of the strategies of and those that are like them.
	Set map[string]any
	// Where keeps the rows in which columns have one of the given values.
	Where map[string]any
	// StrategyColumn is the column that says which strategy a row is about. A
	// strategy that it names anywhere, and those that are like one, then run
	// only in columns of rows that name it; "" = all run everywhere.
	StrategyColumn string
	// Beside keeps strategies that no row names, and which thus have nothing to
	// be compared with, to columns of rows with one of the given values.
	Beside map[string]any

	set           []caseKey // in the order of the table
	where, beside []caseFilter
	named         map[string]map[string]bool // by strategy of the table: its columns
	aside         map[string]bool            // columns that Beside leaves out
}

// skips tells whether a strategy does not run in a column.
func (s *Cases) skips(column string, strategy *Strategy) bool {
	if s.named[strategy.Name] == nil && s.aside[column] {
		return true
	}
	for _, name := range append([]string{strategy.Name}, strategy.like...) {
		if columns, ok := s.named[name]; ok {
			return !columns[column]
		}
	}
	return false
}

// caseKey is where a column of the table goes.
type caseKey struct {
	column, key, as, option string
	of                      []string // strategies with the option
}

// columnOption is a policy option that a column sets for some strategies.
type columnOption struct {
	of   []string
	leaf leaf
}

// concerns tells whether a strategy, or one that it is like, is in the list.
func (o *columnOption) concerns(s *Strategy) bool {
	return slices.ContainsFunc(append([]string{s.Name}, s.like...), func(name string) bool { return slices.Contains(o.of, name) })
}

// caseFilter is what a column of the table must be.
type caseFilter struct {
	column string
	values []string
}

func (s *Cases) fields() []field {
	return []field{
		{key: "reference", set: text(&s.Reference)},
		{key: "set", free: &s.Set},
		{key: "where", free: &s.Where},
		{key: "strategy_column", set: text(&s.StrategyColumn)},
		{key: "beside", free: &s.Beside},
	}
}

// caseHole stands for the value in Cases.Set's as.
const caseHole = "{}"

// addCases makes the columns. Errors name keys below "cases".
func (c *Config) addCases() error {
	s := &c.Cases
	table, err := results.ReferenceTable(s.Reference)
	if err != nil {
		return &keyError{"cases.reference", fmt.Sprintf(" = %q: %v", s.Reference, err)}
	}
	if err := s.check(table); err != nil {
		return err
	}
	c.Columns = nil
	seen := map[string]bool{}
	for r := range table.Rows {
		if !takes(s.where, table, r) {
			continue
		}
		col := Column{Name: s.name(table, r)}
		if s.StrategyColumn != "" && col.Name != "" {
			strategy := table.At(r, s.StrategyColumn).String()
			if s.named[strategy] == nil {
				s.named[strategy] = map[string]bool{}
			}
			s.named[strategy][col.Name] = true
		}
		if col.Name == "" || seen[col.Name] {
			continue
		}
		seen[col.Name] = true
		s.aside[col.Name] = !takes(s.beside, table, r)
		trial := c.base
		for _, k := range s.set {
			l := leaf{splitKey(k.key), k.value(table.At(r, k.column))}
			if err := assign(trial.fields(), "", l.path, l.value); err != nil {
				return within("cases.set."+k.column, err)
			}
			col.leaves = append(col.leaves, l)
			if k.option != "" {
				o := leaf{[]string{"strategy", "options", k.option}, parseValue(table.At(r, k.column).String())}
				col.options = append(col.options, columnOption{k.of, o})
			}
		}
		c.Columns = append(c.Columns, col)
	}
	if len(c.Columns) == 0 {
		return &keyError{"cases.where", fmt.Sprintf(": no row of %s has these values", s.Reference)}
	}
	return nil
}

// columnNames lists the columns of a table.
func columnNames(table *results.Frame) []string {
	names := make([]string, len(table.Columns))
	for i := range table.Columns {
		names[i] = table.Columns[i].Name
	}
	return names
}

// hasColumn is nil if a published table has a column, and otherwise the error
// about the key that names it.
func hasColumn(key, reference string, table *results.Frame, column string) error {
	have := columnNames(table)
	if slices.Contains(have, column) {
		return nil
	}
	return &keyError{key, fmt.Sprintf(": %s has no column %q; nearest is %s, allowed: %s", reference, column, nearest.Name(column, have), strings.Join(have, ", "))}
}

// check reads Set, Where and Beside against the table's columns.
func (s *Cases) check(table *results.Frame) error {
	have := columnNames(table)
	known := func(key, column string) error { return hasColumn(key, s.Reference, table, column) }
	s.set, s.named, s.aside = nil, map[string]map[string]bool{}, map[string]bool{}
	if s.StrategyColumn != "" {
		if err := known("cases.strategy_column", s.StrategyColumn); err != nil {
			return err
		}
	}
	for _, column := range sortedKeys(s.Set) {
		path := "cases.set." + column
		if err := known(path, column); err != nil {
			return err
		}
		k := caseKey{column: column}
		switch v := s.Set[column].(type) {
		case string:
			k.key = v
		case map[string]any:
			if err := assign([]field{{key: "key", set: text(&k.key)}, {key: "as", set: text(&k.as)}, {key: "option", set: text(&k.option)}, {key: "of", set: texts(&k.of)}}, path, nil, v); err != nil {
				return err
			}
			if (k.option == "") != (k.of == nil) {
				return &keyError{path, ": want both option and of, or neither"}
			}
			if (k.as != "" || k.option == "") && !strings.Contains(k.as, caseHole) {
				return &keyError{path + ".as", fmt.Sprintf(" = %q: want a text with %s in the place of the value", k.as, caseHole)}
			}
		}
		if k.key == "" || strings.HasPrefix(k.key, "strategy.") {
			return &keyError{path, fmt.Sprintf(" = %s: want a key such as \"workload.batch\", not one of a strategy, or a table of key and as", show(s.Set[column]))}
		}
		s.set = append(s.set, k)
	}
	if len(s.set) == 0 {
		return &keyError{"cases.set", ": missing; want at least one column = key"}
	}
	slices.SortFunc(s.set, func(a, b caseKey) int {
		return slices.Index(have, a.column) - slices.Index(have, b.column)
	})
	var err error
	if s.where, err = s.filters("where", s.Where, table); err != nil {
		return err
	}
	s.beside, err = s.filters("beside", s.Beside, table)
	return err
}

// filters reads Where or Beside, whichever the key is.
func (s *Cases) filters(key string, by map[string]any, table *results.Frame) (list []caseFilter, err error) {
	for _, l := range leaves(nil, by) {
		column := strings.Join(l.path, ".")
		if err := hasColumn("cases."+key+"."+column, s.Reference, table, column); err != nil {
			return nil, err
		}
		values, ok := l.value.([]any)
		if !ok {
			values = []any{l.value}
		}
		f := caseFilter{column: column}
		for _, v := range values {
			f.values = append(f.values, plain(v))
		}
		list = append(list, f)
	}
	return list, nil
}

// takes tells whether filters keep row r.
func takes(filters []caseFilter, table *results.Frame, r int) bool {
	for _, f := range filters {
		if !slices.Contains(f.values, table.At(r, f.column).String()) {
			return false
		}
	}
	return true
}

// name is the column that row r belongs to, "" if it lacks a value.
func (s *Cases) name(table *results.Frame, r int) string {
	var parts []string
	for _, k := range s.set {
		v := table.At(r, k.column)
		if !v.Present() {
			return ""
		}
		parts = append(parts, v.String())
	}
	return strings.Join(parts, ", ")
}

// value is what the key gets: a number stays one.
func (k caseKey) value(v results.Value) any {
	if k.as != "" {
		return strings.ReplaceAll(k.as, caseHole, v.String())
	}
	return parseValue(v.String())
}
