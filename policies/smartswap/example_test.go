package smartswap_test

import (
	"fmt"
	"os"

	"smartswap/policies/smartswap"
	"smartswap/profilers/layered"
	"smartswap/sim"
)

// A profiled iteration of twelve layers is to use half a GiB less.
func ExampleGenerate() {
	iteration := layered.Config{Layers: 12, MicroBatches: 1, Duration: 123 * sim.Millisecond, Base: 10 * sim.GiB}
	o := smartswap.FaithfulV1()
	o.Reduction = sim.GiB / 2
	s, err := smartswap.Generate(smartswap.Input{
		Profile:  iteration.Observation(),
		Duration: iteration.Duration,
		Weight:   o.SizeWeight,
	}, &o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("peak %d MiB, target %d MiB, reached %v\n", s.Peak/sim.MiB, s.Target/sim.MiB, s.Reached)
	for _, c := range s.Swaps {
		fmt.Printf("%s %d MiB: out after operator %d in %v, back in %v for operator %d\n",
			iteration.Label(c.Tensor), c.Bytes/sim.MiB, c.OutOp, c.OutStage, c.InAt, c.InOp)
	}
	// Output:
	// peak 14201 MiB, target 13689 MiB, reached true
	// qkv1 97 MiB: out after operator 3 in F1.1, back in B1.11 for operator 118
	// qkv2 98 MiB: out after operator 8 in F1.2, back in B1.10 for operator 113
	// qkv3 99 MiB: out after operator 13 in F1.3, back in B1.9 for operator 108
	// qkv4 100 MiB: out after operator 18 in F1.4, back in B1.8 for operator 103
	// qkv5 101 MiB: out after operator 23 in F1.5, back in B1.7 for operator 98
	// qkv6 102 MiB: out after operator 28 in F1.6, back in B1.6 for operator 93
}

// What the planner shipped since December 2025 makes of four layers.
func ExampleSchedule_Table() {
	iteration := layered.Config{Layers: 4, MicroBatches: 1, Duration: 43 * sim.Millisecond, Base: 10 * sim.GiB}
	o := smartswap.FaithfulV2()
	o.Bucket = 150 * sim.MiB
	s, err := smartswap.Explain(iteration.Observation(), o)
	if err == nil {
		err = s.Table(os.Stdout, iteration.Label)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// peak 11497 MiB, target 11497 MiB (reached), 0 operators above it; 6 swaps of 396 MiB together in 0 rounds
	// tensor  bytes      out op  out   in op  in at  free  in free  score     delayed
	// nrm1    34603008   2       F1.1  39     B1.3   F1.3  O0.0     0.000000  no
	// qkv1    101711872  3       F1.1  38     B1.3   F1.3  O0.0     0.000000  no
	// nrm2    35651584   7       F1.2  34     B1.2   F1.4  B1.4     0.000000  no
	// qkv2    102760448  8       F1.2  33     B1.2   F1.4  B1.4     0.000000  no
	// nrm3    36700160   12      F1.3  29     B1.1   B1.1  B1.3     0.000000  no
	// qkv3    103809024  13      F1.3  28     B1.1   B1.1  B1.3     0.000000  no
}
