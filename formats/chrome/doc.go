// Package chrome reads traces in the Chrome trace-event format as profilers of
// deep-learning frameworks write it: Kineto (the PyTorch profiler) on NVIDIA,
// AMD and other devices, and trace_view.json of torch_npu. It streams: a Reader
// holds one event and the distinct names, whatever the size of the file. And it
// writes such traces, for Perfetto and chrome://tracing.
//
// The dialects differ, an Event does not: instants and durations are integers
// of ns whether the file has microseconds as integers, with decimals, or as
// strings; categories are named one way, whatever the year. If the file states
// a time base, instants are offsets from it.
//
// # Where to start reading
//
//	event.go     Event, Header, Read
//	timeline.go  ReadTimeline: the raw memory timeline of the PyTorch profiler
//	write.go     Writer
package chrome
