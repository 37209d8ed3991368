// Package native is the project's own file format for workloads: everything
// that a run needs and nothing else, one instruction per line, made to be read
// and compared by people. Writing a workload and reading it back gives the same
// programs, so that a replay takes the same time and the same memory.
//
// # Example
//
//	smartswap-trace 1
//	workload demo/b8
//	tokens 512
//	name aten::mm
//	name weight
//	name hidden
//
//	rank devices=0 stage=0
//	type 0 33554432 parameter bf16 4096x4096 weight layer=1
//	resident 0
//
//	program train
//	mark iteration-begin
//	mark forward-begin 1 0
//	kernel 0 modelled family=matmul flops=268435456 traffic=33685504 mnk=8x4096x4096 16bit
//	type 1 65536 activation bf16 8x4096 hidden layer=1
//	op aten::mm k0 r0 w1:1 replayable
//	mark forward-end 1 0
//	drop 1
//	mark iteration-end
//	iterations 0 0 0
//
//	end
//
// # Text
//
// A line is a keyword and items, separated by spaces. Empty lines and lines
// whose first item begins with # mean nothing. A name is written as it is, or
// quoted like a Go string if it is empty or holds spaces, quotes or control
// characters. Times are in picoseconds, sizes in bytes, all numbers are decimal
// integers. Options (key=value, or a word alone) follow the positional items,
// each at most once; those that are left out are 0. No line is longer than
// 1 MiB, no size is above 2^50 bytes, no time above 2^50 picoseconds, and a file
// holds at most 2^24 instructions, arguments and other things.
//
// # File
//
// The first line is the format and its version. Then:
//
//	workload NAME    label for tables; once
//	tokens N         per training iteration, over all devices; once
//	name NAME        an operator or label; the order gives the ids
//	rank devices=I,… stage=I
//	                 begins a rank; I… are the devices that it stands for, of
//	                 which no other rank has any
//	resident T …     in its rank: the next residents, which are storages 0, 1, …
//	program NAME     in its rank: begins a program; NAME is its kind
//	iterations P …   in its rank, after all programs: the program (0 = the
//	                 rank's first) of each next iteration
//	end              the last line, so that a file that was cut off is noticed
//
// All names come before the first rank, the residents of a rank before its first
// program. All ranks list the same number of iterations; what comes after the
// last repeats it.
//
// Two tables grow where they are needed. Types are shared by the whole file,
// kernels belong to their program; both are numbered from 0 in file order.
//
//	type T BYTES CLASS DTYPE SHAPE LABEL [layer=N] [flat]
//	    CLASS  activation parameter gradient optimizer logits comm-buffer input
//	    DTYPE  bf16 fp16 fp32 int64 int32 uint8
//	    SHAPE  up to four dimensions such as 8x4096; - if unknown
//	kernel K KIND [family=F] [flops=N] [traffic=N] [mnk=MxNxK] [16bit] [time=N]
//	        [collective=C] [size=N] [members=N] [stride=N] [group=R,…] [tag=N]
//	        [inputs_fault=N] [all_fault=N]
//	    KIND   modelled measured collective transfer
//	    F, C   the names of hw.Family and hw.CollectiveKind
//	    R      numbers of ranks, from 0 in file order
//	    inputs_fault, all_fault  time as measured with page faults, see hw.Work
//
// Instructions are those of workloads.Instr:
//
//	op NAME KERNEL [ARG …] [@LANE] [host=N] [scratch=N] [replayable] [recomputed] [views]
//	    KERNEL  k0, k1, …; - for an operator without device work
//	    ARG     r5 reads storage 5, w5 writes it, u5 updates it in place; r5.2
//	            uses its view 2 (w5.2 only where the operator is the first to
//	            write it: see workloads.Access). w5:3 is its first mention: it has type 3.
//	    LANE    compute (if left out) comm peer
//	ref S …  drop S …  save S …  unpack S …
//	    one instruction for each storage, in this order
//	mark MARK [A B]
//	    MARK    iteration-begin forward-begin forward-end backward-begin
//	            backward-end optimizer-begin optimizer-end validation-begin
//	            validation-end iteration-end; A and B both or neither (0 0)
//	sync LANE
//	record E LANE      events are numbered from 0 in the order of recording
//	wait E LANE
//
// Every program must be well formed in the sense of workloads.Program.Validate.
//
// # Where to start reading
//
//	trace.go   Trace: a recorded workload in memory
//	write.go   Write: any workload, for a number of iterations
//	read.go    Read: header, ranks and tables
//	program.go the instructions of a program
//	words.go   the fixed words of the format
package native
