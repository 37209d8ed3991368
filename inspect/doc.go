// Package inspect is what cmd/trace does with files: it tells what is in a
// recorded workload, converts it to the native format, makes a swap plan for it,
// and replays an allocator's history.
//
// # Where to start reading
//
//	main.go      Main and the table of subcommands
//	flags.go     flags that several subcommands share
//	info.go      trace info
//	lives.go     when the storages of a program live and are used
//	convert.go   trace convert, to native files and from them
//	plan.go      trace plan
//	layered.go   trace layered
//	snapshot.go  trace snapshot
package inspect
