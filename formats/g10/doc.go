// Package g10 reads the inputs of the G10 simulator (MICRO'23, repository
// platformxlab/G10): the printed network of a transformer, one file with the
// measured time of every kernel and one with its scratch memory; and the
// kernel and tensor tables that its front end derives from a network.
//
// A training iteration of such a network is a fixed sequence of kernels over
// tensors in 32-bit floats. Net.Graph repeats the origin's front end on the
// network text: it numbers tensors and orders kernels as the origin does, so
// that a graph can be held against its tables and timelines line by line.
//
// Tensors are rounded up to whole pages. Kernel times are kept as they are
// written, in integer picoseconds; the origin rounds them down to cycles of
// 1.2 GHz. Not every kernel time was measured: the origin fills BERT batches
// 384, 640 and 1024, Inception-v3 768, 1152, 1408, 1536, 1664 and 1792, and
// ResNet-152 768, 1280, 1536 and 1792 with the straight line through two
// neighbouring batches. They compare simulators, but are no evidence about
// hardware.
//
// Input is untrusted: a damaged file gives a one-line error with file and line,
// and sizes are bounded.
//
// # Where to start reading
//
//	graph.go     Graph: kernels, tensors and their lives
//	frontend.go  Net.Graph: from a network and a batch size to a Graph
//	net.go       ReadNet: the network text of transformers
//	times.go     ReadTimes, ReadScratch: one value per kernel
//	tables.go    ReadTables: a Graph from the derived tables (CNNs too)
package g10
