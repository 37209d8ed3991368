// Package snapshot reads and writes the memory snapshots of PyTorch and
// torch_npu (torch.cuda.memory._dump_snapshot): the segments and blocks that a
// caching allocator held, and the history of requests that led there.
//
// A snapshot is a Python pickle. Reading one with Python runs whatever code it
// names; this package knows only the opcodes that build plain data (numbers,
// strings, lists, tuples, dictionaries) and refuses every other. What it writes
// holds only what the viewer at pytorch.org/memory_viz understands.
//
// # File
//
//	{"segments": [segment …], "device_traces": [[event …] …],
//	 "allocator_settings": {…}, "external_annotations": […]}
//
//	segment  device address total_size allocated_size active_size requested_size
//	         stream segment_type segment_pool_id is_expandable frames blocks
//	block    address size requested_size state frames
//	event    action addr size stream time_us frames; an "oom" has device_free
//	         in place of addr
//	frame    filename line name
//
// Older files lack addresses of blocks (they follow each other from the start of
// their segment), requested sizes and frames, or have them in a block's
// "history". torch_npu writes no times. Keys that are not listed are skipped.
//
// Sources: pytorch/pytorch torch/csrc/cuda/memory_snapshot.cpp for the fields,
// torch/utils/viz/MemoryViz.js for what the viewer accepts, CPython's
// Lib/pickletools.py for the opcodes.
//
// # Where to start reading
//
//	snapshot.go  Snapshot and its parts
//	read.go      Read: from plain data to a Snapshot
//	pickle.go    the machine that runs a pickle's opcodes
//	write.go     Write
package snapshot
