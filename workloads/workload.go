package workloads

import "smartswap/sim"

// Rank is one simulated rank. Ranks of a job that are proven identical (the
// members of a tensor-parallel group, data-parallel replicas) are folded into
// one Rank that stands for all its Devices.
type Rank struct {
	// Devices are the node's device indices this rank stands for; the first
	// is the one simulated. All of them load shared links.
	Devices []int
	// Stage is the pipeline stage, 0-based.
	Stage int
	// Residents live from before the first iteration to the end of the run:
	// parameters, gradient buffers, optimizer state, communication buffers.
	// They are storages 0..len-1 of every Program of the rank, allocated in
	// this order before iteration 0.
	Residents []Storage
}

// Workload is a whole job: what every rank runs in every iteration. It is
// immutable and may serve many runs at once.
type Workload interface {
	// Name is a short label for tables, such as "llama2-7b/s4096/tp2pp1dp4".
	Name() string
	// Ranks lists the simulated ranks.
	Ranks() []Rank
	// Program is what rank r runs in iteration i. Equal iterations return
	// the same pointer, so that a run can recognise a repetition. It is a
	// function of its arguments only.
	Program(r, i int) (*Program, error)
	// Tokens is the number of tokens that one training iteration of the
	// whole job consumes, over all devices; 0 = not a token workload. Where
	// it varies, it is that of an iteration without variation.
	Tokens() int64
	// Names is the table that all programs share.
	Names() *Names
}

// TokenCounter is a Workload whose iterations may consume different numbers of
// tokens.
type TokenCounter interface {
	Workload
	// TokensIn is the number of tokens that training iteration i of the whole
	// job consumes, padding included.
	TokensIn(i int) (int64, error)
}

// Totals sums storage bytes by class; for memory tables and tests.
func Totals(storages []Storage) [NumClasses]sim.Bytes {
	var t [NumClasses]sim.Bytes
	for _, s := range storages {
		t[s.Class] += s.Bytes
	}
	return t
}
