package paper_test

import (
	"os"

	"smartswap/paper"
)

func ExampleTable_Markdown() {
	t := &paper.Table{
		Columns: []paper.Column{{Name: "strategy"}, {Name: "tokens/s", Number: true}},
		Rows:    [][]string{{"recompute", "3492"}, {"smartswap", "4100"}},
	}
	t.Markdown(os.Stdout)
	// Output:
	// | strategy  | tokens/s |
	// |:----------|---------:|
	// | recompute |     3492 |
	// | smartswap |     4100 |
}
