// Package dtr is dynamic tensor rematerialization: an allocation that fails
// discards the tensors that are cheapest to make again for the memory they hold
// and the time they have not been used; operators run again when their results
// are needed. It sees a job as it goes, plans nothing and profiles nothing but
// the time of each operator, so that it is at home where programs change from
// iteration to iteration.
//
//	Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021
//	(arXiv 2006.09616); heuristics: section 4.1 and appendix, MSPS after Peng
//	et al., "Capuchin", ASPLOS 2020. Order of the pool and ties: the
//	simulator published with it (uwsampl/dtr-prototype, simrd), as described
//	with the reference runs that the test of this package reads.
//
// # Heuristics
//
// c is what a storage cost: the time of the operators that made it and the views
// of it, m its size, s its staleness: the device time of all operators since an
// operator last took it as an argument. The smallest score leaves.
//
//	dtr      (c + cost of the evicted neighbourhood) / (m s)
//	eqclass  the same with neighbourhoods kept as union-find classes, from
//	         which a storage's cost is subtracted when it comes back; classes
//	         are never split
//	local    c / (m s)
//	lru      1 / s, as the time of the last use
//	size     1 / m
//	msps     (c + cost of evicted ancestors) / m
//
// The evicted neighbourhood of a storage is what is not in memory and is reached
// from it through storages that are not in memory, towards what was computed from
// them, and, apart, towards what they were computed from.
//
// # Beyond the original
//
// A job of several devices: with replay_communication collectives run again, as
// they do where frameworks recompute whole layers, and gathered buffers are as
// good as any other tensor. Without, as by default, what is computed from them
// stays. What a collective changes in place stays in any case.
//
// The search: sample_tensors and ignore_small_tensors are the prototype's.
//
// # Where to start reading
//
//	options.go  Registration, Options
//	policy.go   what happens on each event
//	graph.go    storages, their neighbours, sums and classes
//	pool.go     the list of candidates and the search for the smallest score
package dtr
