// Package history carries histories of caching allocators between this
// simulator and the frameworks that it models. A recorded one can be replayed:
// the same requests go through the model, and whether it asks the driver for the
// same segments and hands out the same blocks is the best test of the model that
// there is. And any allocator of the model can leave a history that the
// framework's own tools show.
//
// What the model's own files tell beyond those of the frameworks is where their
// readers skip it: all options and the device's capacity as a group of
// allocator_settings, and as innermost call-stack frames which events made room
// for a request and which blocks are parts of a stitched one.
//
// # Where to start reading
//
//	record.go    Recorder: from the model to a snapshot
//	start.go     Rebuild: the state before the first event of a record
//	settings.go  Infer: the allocator's options, from what a snapshot tells
//	replay.go    Replay: the requests of a record through the model
package history
