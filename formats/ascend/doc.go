// Package ascend reads and writes the tables that the profiler of torch_npu
// leaves in a folder ASCEND_PROFILER_OUTPUT, and that MindStudio Insight shows:
//
//	kernel_details.csv    one row per device task       ReadKernels
//	operator_memory.csv   one row per tensor            ReadTensors, WriteTensors
//	memory_record.csv     memory totals over time       ReadSamples, WriteSamples
//	step_trace_time.csv   the profiler's split of steps ReadSteps
//
// Columns are found by their names, older names included (op_summary.csv of
// msprof has the same rows as kernel_details.csv). Readers stream: they hold one
// row. Times are integers: instants in ns since the epoch of the host's clock,
// durations in ps. Sizes are bytes; a "KB" or "MB" of the profiler is 2^10 or
// 2^20 bytes. What is repaired or skipped is noted; a table without a header, or
// whose times a spreadsheet has rounded, is refused.
//
// The SQLite form of the same tables is not read.
//
// # Where to start reading
//
//	kernels.go  Kernel, ReadKernels
//	memory.go   Tensor, Sample and their readers
//	write.go    the memory tables, written
//	steps.go    Step, ReadSteps
package ascend
