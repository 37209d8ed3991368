package alloc

import (
	"strings"
	"testing"

	"smartswap/sim"

	"pgregory.net/rapid"
)

// TestExact: sizes count as they are asked for, nothing at all among them.
func TestExact(t *testing.T) {
	o := options(backendBytes, func(o *Options) { o.Exact = true })
	if _, err := New(options(func(o *Options) { o.Exact = true }), 0, noEvents{}); err == nil || !strings.Contains(err.Error(), `only "bytes" has that option`) {
		t.Errorf("exact sizes of the caching allocator: %v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 1000
		c, err := New(o, capacity, noEvents{})
		if err != nil {
			t.Fatal(err)
		}
		live := map[Block]int64{}
		used, peak := int64(0), int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(t, "free") {
				var b Block = -1
				for x := range live {
					b = max(b, x)
				}
				c.Free(b)
				used -= live[b]
				delete(live, b)
			} else {
				size := rapid.SampledFrom([]int64{0, 1, 7, 511, 513}).Draw(t, "size")
				fits := c.(Fitter).Fits(sim.Bytes(size), 0)
				b, err := c.Malloc(sim.Bytes(size), 0)
				if (err == nil) != (used+size <= capacity) || fits != (err == nil) {
					t.Fatalf("%d bytes beside %d of %d: %v, fits %v", size, used, capacity, err, fits)
				}
				if err == nil {
					if _, again := live[b]; again {
						t.Fatalf("block %d is handed out twice", b)
					}
					live[b] = size
					used += size
					peak = max(peak, used)
				}
			}
			if s := c.Stats(); s.Allocated.Current != used || s.Allocated.Peak != peak || s.Requested.Current != used {
				t.Fatalf("%d allocated, peak %d, %d requested; want %d, %d", s.Allocated.Current, s.Allocated.Peak, s.Requested.Current, used, peak)
			}
		}
	})
}
