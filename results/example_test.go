package results_test

import (
	"os"

	"smartswap/results"
)

func ExampleFrame_WriteCSV() {
	f := &results.Frame{Columns: []results.Column{
		{Name: "strategy", Kind: results.Text, About: "name of the strategy"},
		{Name: "peak_bytes", Kind: results.Integer, About: "peak of allocated memory"},
		{Name: "iteration_time_ms", Kind: results.Real, About: "mean steady iteration time"},
	}}
	f.Rows = append(f.Rows,
		[]results.Value{results.TextValue("smartswap"), results.IntegerValue(1 << 36), results.RealValue(812.5)},
		[]results.Value{results.TextValue("none"), results.IntegerValue(1 << 37), {}}, // it did not fit
	)
	f.WriteCSV(os.Stdout)
	// Output:
	// strategy,peak_bytes,iteration_time_ms
	// smartswap,68719476736,812.5
	// none,137438953472,
}
