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
// operators, each with the time of its share of the iteration. The algorithm
// follows the shipped code; Options names every constant and every place where
// the default mends what the shipped code does.
//
// # Where to start reading
//
//	machine.go     Policy: warm-up, search, stable, and back
//	plan.go        Generate: the pipeline, Input to Schedule to policies.Plan
//	layers.go      operators -> logical layers -> stages
//	curve.go       theoretical memory, target, operators above it
//	candidates.go  tensors that may go, their coverage and score
//	stagetime.go   the time model
//	select.go      the choice; needs.go and stab.go keep it O(n log n)
//	release.go     when memory held for copies is given back
//	feature.go     the histories by which tensors are recognised
//	oomguard.go    what happens when an allocation fails
//	options.go     constants, switches, presets
//
// Another planner is another function from Input and Options to Schedule.
package smartswap
