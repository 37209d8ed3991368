// Package profilers is what can be learned about a running job, and what
// learning it costs the host.
//
// A Profiler names the fields it records and prices them in host time; a
// Recorder, driven by the runtime, turns an iteration into an Observation
// with exactly those fields. A policy sees Observations and nothing else of
// the workload, so this package defines the vocabulary of an observed run:
// stages, operator and tensor records, swap records.
//
// # Where to start reading
//
//	observation.go  Stage, OpRec, TensorRec, SwapRec, Observation
//	profiler.go     Fields, Costs, Profiler
//	registry.go     the profilers that there are, and their prices
//	recorder.go     Recorder; names.go numbers operator names for it
//	change.go       change detection between operator sequences
//	detection.go    how well changes were noticed
package profilers
