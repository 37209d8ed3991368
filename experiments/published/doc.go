// Package published reads lists of training jobs with the numbers that others
// measured for them.
//
// A list is a table of jobs, not a cross product: each row has its own model,
// layout and batch. One small reader per source turns rows into Jobs, which an
// experiment file names under [[times]].
//
// # Where to start reading
//
//	job.go     Job, Number, and the way from a number to a step time
//	sheet.go   strict tables: errors with file, line, column and what is allowed
//	vtrain.go  the measured iteration times of vTrain
//	steps.go   our own table of published step times
//	aceso.go   plans and measurements of the Aceso planner
package published
