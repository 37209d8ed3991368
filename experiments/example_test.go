package experiments_test

import (
	"fmt"
	"log"

	"smartswap/experiments"
)

// A file becomes cells; each holds the points among which its best is found.
func ExampleConfig_Cells() {
	config, err := experiments.Parse("example.toml", `
name      = "example"
node.name = "910b2-8"

[workload]
model           = "llama2-7b"
seq             = 4_096
tokens_per_step = 262_144

[axes]
workload.save = ["minimal", "eager"]

[[strategy]]
name      = "recompute"
layouts   = "all"
recompute = ["none", "block-1/2", "full"]

[[strategy]]
name     = "smartswap"
policy   = "smartswap"
profiler = "detailed"
layouts  = ["tp1pp1dp8"]
`)
	if err != nil {
		log.Fatal(err)
	}
	cells, err := config.Cells(experiments.NewSimulator().Devices)
	if err != nil {
		log.Fatal(err)
	}
	for _, cell := range cells {
		fmt.Printf("%v: %d points, the first %v\n", cell, len(cell.Points), cell.Points[0])
	}
	// Output:
	// example, minimal, recompute: 30 points, the first tp1pp1dp8 none mb1
	// example, minimal, smartswap: 1 points, the first tp1pp1dp8 none mb1
	// example, eager, recompute: 30 points, the first tp1pp1dp8 none mb1
	// example, eager, smartswap: 1 points, the first tp1pp1dp8 none mb1
}
