// Command trace looks into recorded workloads and allocator histories:
//
//	go run ./cmd/trace info bert.trace
//	go run ./cmd/trace plan -policy smartswap -preset faithful-v1 bert.trace
//	go run ./cmd/trace snapshot snapshot.pickle
//
// Without arguments it lists what it can do. The exit code is 0 when all is
// done, 1 when what was asked turned out negative, 2 when the input cannot be
// used.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"smartswap/inspect"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	return inspect.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
