// Package direct is device memory run by a planner's own runtime, without the
// framework's allocator and without paging: FlashNeuron and G10 over GPUDirect
// Storage as the simulator of G10 has them (MICRO'23, platformxlab/G10;
// described in the README of the published data, section 5). A Memory is a
// stream.Residency.
//
// # Model
//
// A tensor takes one contiguous range of addresses, first fit: globals and
// tensors that the plan does not move from the low end, moved ones, if
// Options.HighEnd, from the high end. Workspaces share a range that is set
// aside. Each tier has one queue out and one in; a queue carries one tensor at
// a time, first come first served, at a fixed rate without latency.
//
// When a kernel comes to the head of the compute stream, first the memory of
// tensors that died is freed; then the plan's hints for it are followed: an
// eviction queues the write of a tensor, whose memory is free when the write
// has ended; a prefetch queues a read as soon as there is room for the tensor
// beside the largest working set of any kernel. With Options.Ahead, instead,
// what was evicted comes back in the order of need. Then the kernel gets its
// operands: new ones take memory, evicted ones are fetched on the spot, and it
// runs when all are there. If memory is short it waits for writes; if none is
// under way, the run has no room, which is an outcome and not an error.
//
// A tensor whose write was asked for and that is needed before the write has
// ended stays: a write that has not begun is withdrawn, one that has goes on
// without freeing the memory. So a read never precedes its write. The origin's
// plans leave this open.
//
// # Beside communication
//
// The origin has one stream. A kernel of another stream, or a collective, gets
// its operands like others, in the order in which kernels begin; until it ends,
// hints do not move them. It takes memory for all it misses or for nothing, and
// none that an earlier kernel is short of; as nothing leaves but by plan and
// death, compute goes on while it waits. A run has no room when nothing happens
// any more and a kernel is short of memory. Hints are followed as the compute
// stream comes to their operators: an eviction waits for communication up to its
// operator that uses the tensor, and so does the end of a tensor's life.
// Communication may be ahead, by an iteration even: an eviction is void for what
// communication behind its operator has begun with, a death for what an iteration
// behind it has made anew. The backward pass begins with the first kernel of the compute stream behind the
// loss. The largest working set is that of one kernel, whatever runs beside it.
//
// # What the origin's description does not say
//
// That workspaces have a range of their own is inferred from its results: with
// workspaces placed like other tensors, Inception-v3 would run where the
// published FlashNeuron gives up and gain up to 16 % where it does not, while
// BERT, which has none, comes out. The order of a kernel's operands, in which
// memory is taken and reads are queued, is by number.
//
// # Iterations
//
// The origin simulates one iteration that starts with all globals on the device
// and nothing else. Here iterations repeat. All locals are dead at the end of
// an iteration, so without moved globals every iteration starts like the first
// and takes the same time (FlashNeuron). Globals that the plan moves come back
// in the iteration after, and only the first one has no reads of them: the
// published single iteration is the first one.
//
// # Where to start reading
//
//	options.go  Options: FlashNeuron, G10GDS
//	memory.go   Memory
//	moves.go    when tensors moved, for those who watch
//	ranges.go   free addresses
//	check.go    what must hold at any time
package direct
