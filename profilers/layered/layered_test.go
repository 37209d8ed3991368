package layered

import (
	"testing"

	"smartswap/profilers"
	"smartswap/sim"
)

// TestClosedForm holds the observation against what is known about 12 layers.
func TestClosedForm(t *testing.T) {
	c := Config{Layers: 12, MicroBatches: 1, Duration: 123 * sim.Millisecond, Base: 10 * sim.GiB}
	o := c.Observation()
	if len(o.Ops) != 1+60+60+2 || len(o.Sequence) != len(o.Ops) {
		t.Fatalf("%d operators, %d in the sequence, want 123", len(o.Ops), len(o.Sequence))
	}
	// 304 MiB + 4 l MiB per layer and 1 MiB besides.
	peak := 10*sim.GiB + (1+12*304+4*78)*sim.MiB
	for i, op := range o.Ops {
		if (op.Active == peak) != (i == 60 || i == 61) || op.Active > peak {
			t.Errorf("operator %d: active %d, peak %d is at 60 and 61", i, op.Active, peak)
		}
	}
	if got := o.Names[o.Ops[118].Name]; got != "npu_fusion_attention_grad" {
		t.Errorf("operator 118 is %s", got)
	}
	if a := o.Args(&o.Ops[118]); a[0].Tensor != c.Tensor(1, 1, QKV) || c.Label(a[0].Tensor) != "qkv1" || a[0].Bytes != 97*sim.MiB {
		t.Errorf("its first argument is %+v", a[0])
	}
}

func TestMicroBatchesShareNothing(t *testing.T) {
	c := Config{Layers: 3, MicroBatches: 2, Base: 0}
	o := c.Observation()
	home := map[profilers.Tensor]int32{}
	for i := range o.Ops {
		op := &o.Ops[i]
		for _, a := range o.Args(op) {
			if a.Tensor <= Misc2 {
				continue
			}
			if m, ok := home[a.Tensor]; ok && m != op.Stage.MicroBatch {
				t.Errorf("%s is in micro-batches %d and %d", c.Label(a.Tensor), m, op.Stage.MicroBatch)
			}
			home[a.Tensor] = op.Stage.MicroBatch
		}
	}
	if len(home) != 2*3*4 {
		t.Errorf("%d tensors, want 24", len(home))
	}
}
