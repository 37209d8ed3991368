// Package flashneuron is FlashNeuron (FAST'21) as the simulator of G10 has it
// (MICRO'23, platformxlab/G10, src/analysis.cc): tensors that the forward pass
// leaves to the backward pass are written to the SSD, from the front of the
// forward pass on, until those that stay fit. The published system also
// compresses tensors, and weighs the time of the writes against the forward
// pass; G10's version does neither, and nor does this one.
//
// The policy only chooses, at the first operator, from the nominal program. The
// device memory (policies.Direct; package eager/direct) writes the chosen
// tensors, lets the backward pass wait for the writes, and fetches ahead.
//
// # Where to start reading
//
//	select.go  Select: budget, candidates, choice
//	policy.go  the policy
package flashneuron
