// Package smartswap is the policy of the paper that this project reproduces
// (SmartSwap, also Chameleon, arXiv 2509.11076; shipped in Ascend MindSpeed as
// --smart-swap): swapping for operator sequences that change.
//
// It profiles an iteration in detail, plans which tensors leave the device
// after their last forward use and when they come back, lets the runtime
// recognise those tensors by their history in later iterations, and starts over
// when the sequence changes. A guard evicts when an allocation fails all the
// same.
//
// The planner knows no operator times. Its clock is a grid of stages: runs of
// operators, each with the time of its share of the iteration, or with the time
// that a few device events at stage borders have shown. The algorithms follow
// the shipped code; Options names every constant and every place where we mend
// or extend it, and presets put them together:
//
//	faithful-v1  shipped December 2024 to December 2025: goal-driven
//	faithful-v2  shipped since: everything inside a layer, once and for all
//	paper        faithful-v1 that watches the sequence and starts over
//	default      the best we know
//
// # Where to start reading
//
//	machine.go     Policy: warm-up, search, stable, and back
//	sequence.go    what it knows of each operator sequence, and which comes next
//	patch.go       fitting a plan to another sequence
//	plan.go        Generate: the pipeline, Input to Schedule to policies.Plan
//	layers.go      operators -> logical layers -> stages
//	curve.go       theoretical memory, target, operators above it
//	candidates.go  tensors that may go, their coverage and score
//	stagetime.go   the time model
//	select.go      the choice; needs.go and stab.go keep it O(n log n)
//	release.go     when memory held for copies is given back
//	links.go       our own planner in place of the last two
//	attention.go   the planner of December 2025; repeats.go finds its layers
//	edit.go        the user's hook
//	feature.go     the histories by which tensors are recognised
//	states.go      optimizer states in the order of their use
//	oomguard.go    what happens when an allocation fails
//	options.go     constants, switches, presets
//	explain.go     a plan as a table
//
// Another planner is another function from Input and Options to Schedule.
package smartswap
