package policies_test

import (
	"fmt"

	"smartswap/policies"
)

// Options are strict: a mistyped key names the nearest one.
func ExampleParams_Read() {
	chunks := 16
	mode := "plan"
	r := policies.Params{"chunk": int64(4)}.Read()
	policies.Int(r, "chunks", &chunks, 1, 4096)
	r.Choice("optimizer", &mode, "plan", "whole", "off")
	fmt.Println(r.Done())
	// Output:
	// policies: no option chunk; nearest is chunks, valid are chunks, optimizer
}
