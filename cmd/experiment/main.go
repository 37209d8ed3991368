// Command experiment regenerates a table or figure from its TOML file:
//
//	go run ./cmd/experiment configs/fig7.toml
//
// Run it with -help for flags; package experiments says what a file may hold.
// The exit code is 0 when all is done, 1 when a run or an asserted claim
// failed, 2 when the input cannot be used.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"smartswap/experiments"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	done := context.AfterFunc(ctx, func() {
		stop() // a second signal ends the program at once
		fmt.Fprintln(os.Stderr, "\ninterrupted: finishing what is under way; a second ctrl-C ends at once")
	})
	defer done() // before stop, which ends ctx too
	return experiments.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
