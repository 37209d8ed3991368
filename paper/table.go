package paper

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Column is the head of a table column.
type Column struct {
	Name   string // as printed, with the unit
	Number bool   // right-aligned
}

// Table is a finished table: every cell is text as printed. Rows have one cell
// per column.
type Table struct {
	Title   string
	Columns []Column
	Rows    [][]string
	Notes   []string // one line each, below the table
}

// Terminal writes t with box lines.
func (t *Table) Terminal(w io.Writer) error {
	if t.Title != "" {
		fmt.Fprintln(w, t.Title)
	}
	if err := t.render(w, renderer.NewBlueprint(), func(s string) string { return s }); err != nil {
		return err
	}
	for _, n := range t.Notes {
		fmt.Fprintln(w, n)
	}
	return nil
}

// Markdown writes t as a pipe table under a heading.
func (t *Table) Markdown(w io.Writer) error {
	if t.Title != "" {
		fmt.Fprintf(w, "## %s\n\n", t.Title)
	}
	// The renderer leaves pipes in cells alone, which would end the cell.
	escape := strings.NewReplacer("|", `\|`, "\n", " ").Replace
	if err := t.render(w, renderer.NewMarkdown(), escape); err != nil {
		return err
	}
	for _, n := range t.Notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	return nil
}

func (t *Table) render(w io.Writer, r tw.Renderer, escape func(string) string) error {
	align := make(tw.Alignment, len(t.Columns))
	header := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		align[i] = tw.AlignLeft
		if c.Number {
			align[i] = tw.AlignRight
		}
		header[i] = escape(c.Name)
	}
	table := tablewriter.NewTable(w,
		tablewriter.WithRenderer(r),
		tablewriter.WithHeaderAutoFormat(tw.Off), // it would rewrite names and units
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithAlignment(align),
	)
	table.Header(header)
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, s := range row {
			cells[i] = escape(s)
		}
		if err := table.Append(cells); err != nil {
			return fmt.Errorf("paper: table %q: %w", t.Title, err)
		}
	}
	if err := table.Render(); err != nil {
		return fmt.Errorf("paper: table %q: %w", t.Title, err)
	}
	return nil
}

// LaTeX writes t as a booktabs tabular inside a table float; the document
// needs \usepackage{booktabs}.
func (t *Table) LaTeX(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\\begin{table}\n\\centering\n")
	if t.Title != "" {
		fmt.Fprintf(&b, "\\caption{%s}\n", escapeLaTeX(t.Title))
	}
	b.WriteString("\\begin{tabular}{")
	for _, c := range t.Columns {
		if c.Number {
			b.WriteByte('r')
		} else {
			b.WriteByte('l')
		}
	}
	b.WriteString("}\n\\toprule\n")
	header := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		header[i] = c.Name
	}
	line := func(cells []string) {
		for i, s := range cells {
			if i > 0 {
				b.WriteString(" & ")
			}
			b.WriteString(escapeLaTeX(s))
		}
		b.WriteString(" \\\\\n")
	}
	line(header)
	b.WriteString("\\midrule\n")
	for _, row := range t.Rows {
		line(row)
	}
	b.WriteString("\\bottomrule\n\\end{tabular}\n")
	for _, n := range t.Notes {
		fmt.Fprintf(&b, "\\par\\footnotesize %s\n", escapeLaTeX(n))
	}
	b.WriteString("\\end{table}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// escapeLaTeX makes text safe outside of math mode.
var escapeLaTeX = strings.NewReplacer(
	`\`, `\textbackslash{}`, `{`, `\{`, `}`, `\}`, `$`, `\$`, `&`, `\&`, `#`, `\#`, `%`, `\%`, `_`, `\_`,
	`~`, `\textasciitilde{}`, `^`, `\textasciicircum{}`, `<`, `\textless{}`, `>`, `\textgreater{}`, "\n", " ",
	"|", `\textbar{}`, "±", `$\pm$`, "×", `$\times$`,
).Replace

// CSV writes the header and the rows as printed.
func (t *Table) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	header := make([]string, len(t.Columns))
	for i, col := range t.Columns {
		header[i] = col.Name
	}
	if err := c.Write(header); err != nil {
		return err
	}
	if err := c.WriteAll(t.Rows); err != nil {
		return err
	}
	return c.Error()
}
