// Package paper turns results into what a paper prints: tables for the
// terminal, Markdown, LaTeX and CSV, and figures in SVG, PDF and PNG. It
// knows nothing of experiments: text and numbers come in, bytes go out. Equal
// input gives equal bytes in every format.
//
// # Where to start reading
//
//	table.go   Table and its four forms
//	bars.go    Bars: grouped bars in panels
//	lines.go   Lines: lines in panels
//	memory.go  Memory: memory over time, with copies
//	sheet.go   what figures share: layout, legend, file formats
//	style.go   colours, fonts and sizes of figures
package paper
