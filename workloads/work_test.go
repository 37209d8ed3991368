package workloads

import (
	"testing"

	"smartswap/hw"
	"smartswap/sim"
)

// Work by hand, on shapes small enough to count.
func TestWork(t *testing.T) {
	for _, c := range []struct {
		name    string
		work    hw.Work
		flops   int64
		traffic sim.Bytes
	}{
		{"matmul", matmul(2, 3, 5), 2 * 2 * 3 * 5, 2 * (2*5 + 5*3 + 2*3)},
		{"accumulated", matmulAccumulate(2, 3, 5), 2 * 2 * 3 * 5, 2*(2*5+5*3) + 8*2*3},
		{"batched", batched(7, 2, 3, 5), 7 * 60, 7 * 62},
		// Two products of 2 x 8 x 8 x 16 flops per head and sequence, half masked.
		{"attention", flashAttention(3*8, 3*8*8, 4, 2, 16), 3 * 4 * 2 * (2 * 8 * 8 * 16) / 2, 2 * 3 * 8 * (4 + 2 + 2 + 4) * 16},
		{"attention grad", flashAttentionGrad(3*8, 3*8*8, 4, 2, 16), 3 * 4 * 5 * (2 * 8 * 8 * 16) / 2, 2 * 3 * 8 * (4*4 + 4*2) * 16},
		{"moving", moving(hw.Norm, 10, 6), 0, 60},
	} {
		if c.work.Flops != c.flops || c.work.Traffic != c.traffic {
			t.Errorf("%s: %d flops and %d bytes, want %d and %d", c.name, c.work.Flops, c.work.Traffic, c.flops, c.traffic)
		}
	}
}
