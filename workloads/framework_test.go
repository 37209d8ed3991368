package workloads_test

import (
	"testing"

	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/workloadstest"
)

// TestFramework2021 counts what the older framework adds to a layer and
// micro-batch: a kernel for each of its twelve gradients, or for all but the four that
// products accumulate, one to make the result
// of attention contiguous, one to put the gradient of the fused projection
// together, and operators without a kernel.
func TestFramework2021(t *testing.T) {
	count := func(f workloads.Framework, layers, batch int) (kernels, views int) {
		m := tiny(workloads.GPT)
		m.Layers, m.KVHeads = layers, m.Heads
		p := program(t, makeWorkload(t, workloads.Config{Model: m, GlobalBatch: batch, Attention: workloads.Unfused, Framework: f}), 0, 0)
		for _, in := range p.Instrs {
			switch {
			case in.Kind != workloads.Op:
			case in.Kernel >= 0:
				kernels++
			default:
				views++
			}
		}
		return kernels, views
	}
	perLayer := func(f workloads.Framework) (kernels, views int) {
		at := [2][2][2]int{}
		for i := range at {
			for j := range at[i] {
				at[i][j][0], at[i][j][1] = count(f, 2+i, 1+j)
			}
		}
		return at[1][1][0] - at[1][0][0] - at[0][1][0] + at[0][0][0], at[1][1][1] - at[1][0][1] - at[0][1][1] + at[0][0][1]
	}
	core, none := perLayer(workloads.MegatronCore)
	old, views := perLayer(workloads.Megatron2021)
	fused, sameViews := perLayer(workloads.Megatron2022)
	if fused != old-4 || sameViews != views {
		t.Errorf("with fused weight gradients %d kernels and %d views, want %d and %d: four products add", fused, sameViews, old-4, views)
	}
	if old != core+12+2 || none != 0 || views != 25+20 {
		t.Errorf("per layer and micro-batch %d kernels and %d views, the older framework %d and %d; want 14 kernels and 45 views more", core, none, old, views)
	}
}

// TestFrameworksShareFlops: the same products are computed.
func TestFrameworksShareFlops(t *testing.T) {
	c := workloads.Config{Model: model(t, "gpt3-1.3b"), Seq: 1024, GlobalBatch: 2, Attention: workloads.Unfused, Recompute: workloads.Recompute{Kind: workloads.FullUniform}}
	once, again := workloadstest.Flops(program(t, makeWorkload(t, c), 0, 0))
	for _, c.Framework = range []workloads.Framework{workloads.Megatron2021, workloads.Megatron2022} {
		if a, b := workloadstest.Flops(program(t, makeWorkload(t, c), 0, 0)); a != once || b != again {
			t.Errorf("%s: %d flops and %d recomputed, want %d and %d", c.Framework, a, b, once, again)
		}
	}
}

// TestExchanges: before Megatron-Core the host waits for transfers and passes once after
// each group of transfers and nowhere else in a step; in Megatron-Core it does not.
func TestExchanges(t *testing.T) {
	for _, f := range []workloads.Framework{workloads.MegatronCore, workloads.Megatron2021, workloads.Megatron2022} {
		for _, vpp := range []int{1, 2} {
			w := makeWorkload(t, workloads.Config{Model: tiny(workloads.GPT), PP: 2, VPP: vpp, GlobalBatch: 4, Framework: f})
			for r := range w.Ranks() {
				groups, open := 0, false
				var waits [workloads.NumLanes]int
				p := program(t, w, r, 0)
				for _, in := range p.Instrs {
					switch {
					case in.Kind == workloads.Mark && in.Mark == workloads.MarkOptimizerBegin:
						goto done
					case in.Kind == workloads.Sync:
						waits[in.Lane]++
						if in.Lane == workloads.CommPeer && !open {
							t.Errorf("%s, vpp %d, stage %d: the host waits where nothing was transferred", f, vpp, r)
						}
						open = false
					case in.Kind == workloads.Op && in.Lane == workloads.CommPeer && !open:
						open = true
						groups++
					case in.Kind == workloads.Mark && f != workloads.MegatronCore && open:
						t.Errorf("%s, vpp %d, stage %d: a pass begins before the host has waited", f, vpp, r)
					}
				}
			done:
				want := [workloads.NumLanes]int{workloads.Compute: groups, workloads.CommPeer: groups}
				if f == workloads.MegatronCore {
					want = [workloads.NumLanes]int{}
				}
				if waits != want {
					t.Errorf("%s, vpp %d, stage %d: the host waits for lanes %d times, want %d", f, vpp, r, waits, want)
				}
			}
		}
	}
}

// TestMainGradients: gradients of 16 bits are copied to fp32 tensor by tensor, of which all
// else of the step is done; a step that is skipped ends when the host has read of the
// overflow. Buffers of 32 bits are used as they are.
func TestMainGradients(t *testing.T) {
	for _, f := range []workloads.Framework{workloads.Megatron2021, workloads.Megatron2022} {
		for _, skip := range []bool{false, true} {
			m := tiny(workloads.GPT)
			c := workloads.Config{Model: m, Framework: f}
			if skip {
				c.Processes = []workloads.Process{workloads.OverflowSkip{Burst: 1}}
			}
			w := makeWorkload(t, c)
			p := program(t, w, 0, 0)
			if err := workloadstest.Races(p); err != nil {
				t.Fatal(err)
			}
			copies, norms, steps, waits, inside := sim.Bytes(0), sim.Bytes(0), sim.Bytes(0), 0, false
			tensors := 0
			for _, in := range p.Instrs {
				switch in.Kind {
				case workloads.Mark:
					inside = in.Mark == workloads.MarkOptimizerBegin
				case workloads.Sync:
					if inside {
						waits++
					}
				case workloads.Op:
					if !inside || in.Kernel < 0 {
						continue
					}
					k := p.Kernels[in.Kernel]
					switch p.Names.String(in.Name) {
					case "npu::_npu_dtype_cast":
						copies += k.Traffic
						tensors++
					case "aten::linalg_vector_norm":
						norms += k.Traffic
					case "npu::npu_apply_adam_w":
						steps += k.Traffic
					}
				}
			}
			n := sim.Bytes(m.Params())
			wantCopies, wantTensors, wantWaits := sim.Bytes(0), 0, 1
			if f == workloads.Megatron2021 {
				wantCopies, wantTensors, wantWaits = 6*n, 12*m.Layers+5, 2 // three tables and the last norm's pair
			}
			wantNorms, wantSteps := 4*n, 28*n
			if skip {
				wantSteps = 0
				if f == workloads.Megatron2021 {
					wantNorms, wantWaits = 0, 1
				}
			}
			if copies != wantCopies || tensors != wantTensors || waits != wantWaits || norms != wantNorms || steps != wantSteps {
				t.Errorf("%s, skipped %t: copies of %d tensors move %d bytes, the norm %d, the step %d, the host waits %d times; want %d, %d, %d, %d, %d",
					f, skip, tensors, copies, norms, steps, waits, wantTensors, wantCopies, wantNorms, wantSteps, wantWaits)
			}
		}
	}
}

// TestClassicSoftmax: the fused softmax of older frameworks reads a triangle and writes a
// square; where heads times sequences, or the length, do not suit it, five kernels take its
// place in each direction, and softmax keeps four bytes per score.
func TestClassicSoftmax(t *testing.T) {
	for _, c := range []struct {
		framework   workloads.Framework
		heads, seq  int
		fused       bool
		there, back int64 // bytes per layer that the softmax kernels move
	}{
		{workloads.MegatronCore, 2, 64, true, 2 * 4 * 64 * 64, 2 * 6 * 64 * 64},
		{workloads.Megatron2021, 4, 64, true, 4 * 2 * (64*65/2 + 64*64), 4 * 2 * (64*65 + 64*64)},
		{workloads.Megatron2021, 2, 64, false, 2 * 8 * 64 * 64, 2 * 12 * 64 * 64},
		{workloads.Megatron2021, 4, 16, false, 4 * 8 * 16 * 16, 4 * 12 * 16 * 16},
		{workloads.Megatron2021, 4, 66, false, 4 * 8 * 66 * 66, 4 * 12 * 66 * 66},
		{workloads.Megatron2021, 4, 4096, false, 4 * 8 << 24, 4 * 12 << 24},
		{workloads.Megatron2022, 4, 4096, true, 4 * 2 * (4096*4097/2 + 1<<24), 4 * 2 * (4096*4097 + 1<<24)},
		{workloads.Megatron2022, 4, 4100, false, 4 * 8 * 4100 * 4100, 4 * 12 * 4100 * 4100},
	} {
		m := tiny(workloads.GPT)
		m.Layers, m.Heads, m.KVHeads, m.Hidden, m.Seq = 1, c.heads, c.heads, c.heads*m.HeadDim, c.seq
		p := program(t, makeWorkload(t, workloads.Config{Model: m, Seq: c.seq, GlobalBatch: 1, Attention: workloads.Unfused, Framework: c.framework}), 0, 0)
		there, back, fills := int64(0), int64(0), 0
		for _, in := range p.Instrs {
			if in.Kind != workloads.Op {
				continue
			}
			switch p.Names.String(in.Name) {
			case "npu::npu_scaled_masked_softmax":
				there += int64(p.Kernels[in.Kernel].Traffic)
			case "npu::npu_scaled_masked_softmax_backward":
				back += int64(p.Kernels[in.Kernel].Traffic)
			case "aten::masked_fill_":
				fills++
			}
		}
		if there != c.there || back != c.back || (fills == 0) != c.fused || fills != 0 && fills != 2 {
			t.Errorf("%s, %d heads, %d tokens: softmax moves %d and %d bytes, %d kernels mask; want %d and %d, fused %t", c.framework, c.heads, c.seq, there, back, fills, c.there, c.back, c.fused)
		}
	}
}

// TestPartedTransfers: in older frameworks each member of a tensor-parallel group sends
// its part of what the next stage gets, which gathers it; with sequence parallelism, and in
// Megatron-Core, there is nothing to gather.
func TestPartedTransfers(t *testing.T) {
	for _, c := range []struct {
		framework      workloads.Framework
		tp             int
		sequence       bool
		transfer, more int // part of the tensor that is sent; all-gathers per transfer
	}{
		{workloads.Megatron2021, 4, false, 4, 1},
		{workloads.Megatron2021, 1, false, 1, 0},
		{workloads.MegatronCore, 4, false, 1, 0},
		{workloads.MegatronCore, 4, true, 4, 0},
		{workloads.Megatron2022, 4, false, 4, 1},
		{workloads.Megatron2022, 4, true, 4, 0},
	} {
		const seq, micros = 64, 3
		config := workloads.Config{Model: tiny(workloads.GPT), Seq: seq, TP: c.tp, PP: 2, GlobalBatch: micros, Framework: c.framework, SequenceParallel: c.sequence}
		w := makeWorkload(t, config)
		hidden := sim.Bytes(2 * seq * config.Model.Hidden)
		for r := range w.Ranks() {
			p := program(t, w, r, 0)
			if err := workloadstest.Races(p); err != nil {
				t.Fatal(err)
			}
			transfers, gathers := 0, 0
			for _, in := range p.Instrs {
				if in.Kind != workloads.Op || in.Kernel < 0 {
					continue
				}
				switch k := p.Kernels[in.Kernel]; {
				case k.Kind == hw.Transfer:
					transfers++
					if k.Size != hidden/sim.Bytes(c.transfer) {
						t.Errorf("%+v: a transfer of %d bytes of %d", c, k.Size, hidden)
					}
				case k.Kind == hw.Collective && k.Collective == hw.AllGather && k.Size == hidden && !c.sequence:
					gathers++
					if k.Members != int32(c.tp) {
						t.Errorf("%+v: all-gather of %d", c, k.Members)
					}
				}
			}
			if transfers != 2*micros || gathers != micros*c.more {
				t.Errorf("%+v, stage %d: %d transfers, of which %d are gathered here; want %d and %d", c, r, transfers, gathers, 2*micros, micros*c.more)
			}
		}
	}
}

// TestReplicated: every replica keeps all states, and the gradients are all-reduced
// once; their elements have four bytes, or two in the oldest framework.
func TestReplicated(t *testing.T) {
	m := tiny(workloads.GPT)
	for f, size := range map[workloads.Framework]int64{workloads.MegatronCore: 4, workloads.Megatron2021: 2, workloads.Megatron2022: 4} {
		w := makeWorkload(t, workloads.Config{Model: m, DP: 4, Replicated: true, Framework: f})
		states := workloads.Totals(w.Ranks()[0].Residents)
		if got, want := states[workloads.Optimizer], sim.Bytes(12*m.Params()); got != want {
			t.Errorf("%s: %d bytes of optimizer states, want %d", f, got, want)
		}
		if got, want := states[workloads.Gradient], sim.Bytes(size*m.Params()); got != want {
			t.Errorf("%s: %d bytes of gradients, want %d", f, got, want)
		}
		reduced := sim.Bytes(0)
		for _, k := range program(t, w, 0, 0).Kernels {
			if k.Kind == hw.Collective && k.Size > 4 { // the norm is 4
				if k.Collective != hw.AllReduce || k.Members != 4 {
					t.Errorf("%s: collective %v of %d", f, k.Collective, k.Members)
				}
				reduced += k.Size
			}
		}
		if want := sim.Bytes(size * m.Params()); reduced != want {
			t.Errorf("%s: %d bytes are reduced, want %d", f, reduced, want)
		}
	}
}

// TestBare: MPT has no vectors but the norms' weights, and no dropout.
func TestBare(t *testing.T) {
	full := model(t, "gpt3-6.7b")
	bare := full
	bare.Bare = true
	h := int64(full.Hidden)
	perLayer := h + h + 3*h + h + 4*h + h // two norms, qkv, projection, up, down
	if got, want := full.Params()-bare.Params(), int64(full.Seq)*h+h+int64(full.Layers)*perLayer; got != want {
		t.Errorf("%d parameters less, want %d", got, want)
	}
	m := tiny(workloads.GPT)
	m.Bare = true
	p := program(t, makeWorkload(t, workloads.Config{Model: m, Seq: 64, Attention: workloads.Unfused}), 0, 0)
	for _, in := range p.Instrs {
		if name := p.Names.String(in.Name); in.Kind == workloads.Op && (name == "npu::_npu_dropout" || name == "bias_dropout_add") {
			t.Fatalf("operator %s", name)
		}
	}
}
