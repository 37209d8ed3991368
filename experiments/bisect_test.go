package experiments

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/sim"
)

// border is a Runner whose jobs fit up to a sequence length, and from some
// length on are slower than their ideal.
type border struct {
	fake
	fits, fast int64
	tried      []int64
}

func (b *border) Bound(p *Point) (Bounds, error) {
	if p.Workload.Seq == 13 {
		return Bounds{}, &Impossible{"thirteen"}
	}
	return Bounds{Capacity: 100}, nil
}

func (b *border) Run(p *Point) (*Outcome, error) {
	o := &Outcome{Time: 100 * sim.Millisecond, Devices: 1, Tokens: 1}
	if p.Strategy.Ideal {
		return o, nil
	}
	b.tried = append(b.tried, p.Workload.Seq)
	if p.Workload.Seq > b.fits {
		o.OOM = &OOM{}
	}
	if p.Workload.Seq > b.fast {
		o.Time += 10 * sim.Millisecond
	}
	return o, nil
}

const searchFile = `
name = "x"
node.name = "n"
[workload]
model = "m"
seq = 7
micro_batches = 1
[search]
key = "workload.seq"
from = %d
to = %d
step = %d
max_slowdown = %g
[[strategy]]
name = "s"
policy = "lru"
layouts = ["tp1pp1dp8"]
`

func searchCells(t interface{ Fatal(...any) }, from, to, step int64, slowdown float64) *Cell {
	c, err := Parse("x.toml", fmt.Sprintf(searchFile, from, to, step, slowdown))
	if err != nil {
		t.Fatal(err)
	}
	cells, err := c.Cells((&fake{}).Devices)
	if err != nil {
		t.Fatal(err)
	}
	return cells[0]
}

// The value found is that of a walk through all of them, and few are tried.
func TestLargestIsTheLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := int64(rapid.IntRange(14, 40).Draw(t, "from"))
		to := from + int64(rapid.IntRange(0, 3000).Draw(t, "range"))
		step := int64(rapid.IntRange(1, 50).Draw(t, "step"))
		b := &border{fits: int64(rapid.IntRange(0, 3100).Draw(t, "fits")), fast: int64(rapid.IntRange(0, 3100).Draw(t, "fast"))}
		slowdown := rapid.SampledFrom([]float64{0.05, 0.2}).Draw(t, "slowdown")
		want := int64(-1)
		for v := from; v <= to && v <= b.fits && (v <= b.fast || slowdown > 0.1); v += step {
			want = v
		}
		found, err := searchCell(background, searchCells(t, from, to, step, slowdown), b)
		if err != nil {
			t.Fatal(err)
		}
		got := int64(-1)
		if found.Best >= 0 {
			got = found.Results[found.Best].Tried
		}
		if got != want {
			t.Errorf("found %d, want %d", got, want)
		}
		if len(b.tried) > 2*12+2 {
			t.Errorf("%d values tried of %d", len(b.tried), (to-from)/step+1)
		}
		best := 0
		for i := range found.Results {
			if found.Results[i].Best {
				best++
			}
		}
		if best > 1 || (best == 1) != (want >= 0) {
			t.Errorf("%d rows are the best", best)
		}
	})
}

// A value for which no job exists is an error that names it.
func TestLargestNamesTheValue(t *testing.T) {
	_, err := searchCell(background, searchCells(t, 13, 20, 1, 1), &border{fits: 20})
	if err == nil || !strings.Contains(err.Error(), "workload.seq = 13") {
		t.Errorf("error %v", err)
	}
}

// A list of choices becomes the searched value alone.
func TestSearchOfAList(t *testing.T) {
	file := strings.Replace(fmt.Sprintf(searchFile, 1, 9, 1, 1.0), "workload.seq", "strategy.micro_batch", 1)
	c, err := Parse("x.toml", file)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := c.Cells((&fake{}).Devices)
	if err != nil {
		t.Fatal(err)
	}
	points, err := cells[0].at(5)
	if err != nil || len(points) != 1 || points[0].MicroBatch != 5 || points[0].sequences() != 5*8 {
		t.Errorf("%d points, %v, %v", len(points), points, err)
	}
}
