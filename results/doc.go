// Package results is what an experiment leaves behind: rows, what their
// columns mean, claims, and a manifest that says how they were made.
//
// A Frame holds long-form rows, one per simulated or skipped point, under
// columns whose names end in their unit (_ms, _bytes, _per_s). Files that are
// compared hold no wall-clock time and nothing that depends on the machine or
// on the order in which workers finished. Every file is written whole or not
// at all.
//
// # Where to start reading
//
//	frame.go      Column, Value, Frame: rows and their CSV form
//	claim.go      Claim: a published number beside a simulated one
//	reference.go  published measurements that claims refer to
//	manifest.go   Manifest: provenance of a result set
//	golden.go     comparison with committed results
//	file.go       atomic writes
//	timeline/     what happened in a run, for the viewers of real jobs
package results
