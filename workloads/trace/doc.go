// Package trace turns files that other programs wrote into workloads. Open
// tells the format by the content and converts it to the native form
// (formats/native), so that whatever can be opened can be run, exported and
// replayed. What had to be skipped, repaired or inferred on the way is in the
// Report: a reader never guesses in silence.
//
// # Where to start reading
//
//	trace.go   Open, Options, Report; Export
//	g10.go     kernel times and networks of the G10 simulator
package trace
