// Package experiments turns a TOML file into a table of a paper.
//
// An experiment is columns (such as a model and a sequence length) x axes
// (such as a link rate) x strategies. One combination is a cell. A strategy
// may range over layouts, recomputation and micro-batch sizes: each choice is
// a point, and the cell reports the best feasible one. The search is exact
// branch and bound: a point is left out only if a bound proves that it does
// not fit or cannot win, and its row says so.
//
// Equal inputs give equal bytes: cells run in parallel, but each is searched in
// a fixed order, rows stand in the order of the file, and no decision depends
// on which worker was first.
//
// # Where to start reading
//
//	config.go    Config: what a file may say;  spec.go of tables, figures, claims
//	point.go     Point and Cell: the file, resolved
//	search.go    the best point of a cell
//	bisect.go    the largest value of a key that trains
//	runner.go    Runner: what simulates a point, and its Outcome
//	simulate.go  the Runner behind the command: node, workload, policy, run
//	variation.go what makes iterations differ;  profile.go prices of profilers
//	timeline.go  what a cell's answer looks like over time
//	times.go     lists of jobs with measured times, in place of columns, axes and strategies
//	series.go    iterations kept, and what changes of the sequence cost
//	run.go       workers, progress, interruption
//	rows.go      columns of rows.csv and their meaning
//	report.go    tables;  figure.go figures;  claims.go claims
//	main.go      the command: flags, files, exit codes
//	decode.go    strict tables;  locate.go lines of keys, for messages
package experiments
