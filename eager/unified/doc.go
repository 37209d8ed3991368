// Package unified is unified memory: pages that lie on the device, in host
// memory or on an SSD, and a driver that moves them when a kernel touches them.
//
// # Model
//
// Allocation always succeeds and takes no memory; a page gets memory when it is
// first touched. When a kernel begins, what it misses is queued: demand. It
// ends when all that has come and its own time has passed, stretched by the
// time that faults cost (fault.go). What a plan asks for when a kernel begins,
// or what the driver expects from the iteration before, is queued too, behind
// demand.
//
// Pages move in transfer batches of a fixed length, each with a budget of pages
// in, out, of them from and to the SSD, and newly mapped. A page that finds the
// device full makes another one leave: the oldest, or the one used least
// recently. It goes to the host, and to the SSD when the host is full.
//
// This follows the simulator of G10 (MICRO'23, platformxlab/G10,
// src/simulator); timeline_test.go holds it against the published timelines of
// every kernel, in that program's own clock. Where orders are not specified
// there, such as that of the tensors which one kernel asks for, the two differ.
//
// # Beside communication
//
// The origin knows one stream. With communication, kernels of several streams
// run at once on the same pages, channels and batches (claim.go). A kernel that
// comes to the head of its stream, or whose meeting is complete, gets in line. It
// gets its room if all its operands fit beside those of the kernels that have
// theirs: then they are held, none of their pages leaves until it has ended, a
// planned eviction that has not begun is taken back, and what it misses is
// queued. Otherwise it waits, and all behind it, for the end of one that has its
// room. Only operands that do not fit alone are out of memory.
//
// That ends: what has its room ends by itself, or is a meeting of which all
// members are in line; of the meetings that have not ended the one complete
// first has before it, in each line, only kernels that end by themselves, and
// meetings complete before any other are before it in all lines.
//
// A kernel of the compute stream runs while its pages come, as in the origin;
// communication starts when they are there. Kernels of the compute stream are
// held, too: where there is no communication, and the origin's rule is in force,
// what they touch may leave again while they run.
//
// Hints are followed as the compute stream comes to their operators, and that
// stream tells what has died. Communication may be ahead of it, by an iteration
// even: a hint is void for what communication behind its operator has begun with,
// a death for what an iteration behind it has made anew. A planned eviction and a
// death wait for communication before them that has not ended.
//
// The batches go on up to the next event of the simulation, so that kernels that
// begin at different times find the pages as they are then.
//
// # Runs of pages
//
// A tensor of a gigabyte has a quarter of a million pages, and an iteration
// moves tens of millions. Pages are therefore kept in runs: neighbours in one
// place, waiting for the same. Batches that do all the same are done at once.
// The work grows with the number of runs, not of pages or batches.
//
// # Where to start reading
//
//	options.go  Options: the constants, and what a batch may do
//	driver.go   driver: kernels, queues, batches, victims
//	pages.go    book: where every page is
//	moves.go    when pages moved, for those who watch
//	fault.go    what faults cost beyond the transfer
//	memory.go   Memory: the driver as the memory of a simulated device
//	claim.go    several kernels at once
package unified
