// Package sim is the discrete-event kernel: integer time, an event queue with
// a total order, bandwidth sharing, and keyed random numbers. It knows nothing
// of devices, memory or training, and imports nothing else of this project.
//
// # Invariants
//
// The clock never goes back. Events fire in the order (time, priority,
// sequence): two runs that schedule the same events in the same order see the
// same history. No event is allocated on the Go heap.
//
// # Where to start reading
//
//	time.go    Time in integer picoseconds, rates in integer bytes per second
//	engine.go  Engine: schedule an event, run until nothing is left
//	queue.go   the heap and the rings that the engine keeps events in
//	share.go   Share: everything that shares bandwidth, max-min fairly
//	work.go    what a flow has to move, exactly
//	random.go  values that depend on what they are for, not on when they are drawn
//
// A process is not a goroutine: it is a Handler whose methods are called at
// the times it asked for. Parallelism belongs across runs, never inside one;
// an Engine is for one goroutine.
package sim
