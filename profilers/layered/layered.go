// Package layered makes observations of a small synthetic training iteration:
// a stack of equal layers, each with five forward and five backward operators
// and four saved tensors. Everything about it is known in closed form, so it
// serves as input for tests of planners and as an example of a trace.
package layered

import (
	"fmt"

	"smartswap/profilers"
	"smartswap/sim"
)

// Config describes an iteration. Every tensor of layer l (from 1) is l MiB
// larger than its base size: norm 32, attention 48, qkv 96, mlp 128.
type Config struct {
	Layers       int
	MicroBatches int       // forward and backward pass each, one after the other
	Duration     sim.Time  // of the iteration
	Base         sim.Bytes // active memory besides the tensors below
}

// Operator names, in the order in which their ids count up.
const (
	opInit = iota
	opNorm
	opQKV
	opAttention
	opProj
	opSwiGLU
	opSwiGLUGrad
	opProjGrad
	opAttentionGrad
	opQKVGrad
	opNormGrad
	opAdam
)

var names = [...]string{"init", "rms_norm", "matmul_qkv", "npu_fusion_attention", "matmul_proj", "swiglu",
	"swiglu_grad", "matmul_proj_grad", "npu_fusion_attention_grad", "matmul_qkv_grad", "rms_norm_grad", "adamw"}

// Tensors that every iteration has besides those of the layers.
const (
	Misc  profilers.Tensor = 1 // touched by the first operator, never freed
	Misc2 profilers.Tensor = 2 // touched by the optimizer
)

// Kinds of a layer's tensors, for Tensor.
const (
	Norm = iota
	Attention
	QKV
	MLP
	kinds
)

var kindNames = [kinds]string{"nrm", "att", "qkv", "mlp"}

var baseMiB = [kinds]sim.Bytes{32, 48, 96, 128}

// Tensor is the id of a layer's tensor; micro-batches and layers count from 1.
func (c Config) Tensor(microBatch, layer, kind int) profilers.Tensor {
	return Misc2 + 1 + profilers.Tensor(((microBatch-1)*c.Layers+layer-1)*kinds+kind)
}

// Label names a tensor, such as "qkv7" (of the first micro-batch) or "2/mlp1".
func (c Config) Label(t profilers.Tensor) string {
	switch t {
	case Misc:
		return "misc"
	case Misc2:
		return "misc2"
	}
	i := int(t - Misc2 - 1)
	layer, kind := i/kinds%c.Layers+1, kindNames[i%kinds]
	if mb := i/kinds/c.Layers + 1; mb > 1 {
		return fmt.Sprintf("%d/%s%d", mb, kind, layer)
	}
	return fmt.Sprintf("%s%d", kind, layer)
}

// Bytes is the size of a tensor.
func (c Config) Bytes(t profilers.Tensor) sim.Bytes {
	if t == Misc || t == Misc2 {
		return sim.MiB
	}
	i := int(t - Misc2 - 1)
	return (baseMiB[i%kinds] + sim.Bytes(i/kinds%c.Layers+1)) * sim.MiB
}

// Observation is the iteration as the detailed profiler records it while no
// plan runs: all operators of a phase are in layer 1. Operator ids count from
// 0. A tensor is active from its first operator to its last, both included.
func (c Config) Observation() *profilers.Observation {
	var n profilers.Names
	for key, name := range names {
		n.ID(int32(key), name)
	}
	r := profilers.NewRecorder(&n, c.Layers)
	r.Begin(0, profilers.Spec{Records: profilers.IterationTime | profilers.OpNames | profilers.OpRecords |
		profilers.TensorArgs | profilers.MemoryStats | profilers.SwapRecords})
	ops := c.Ops()
	last := make(map[profilers.Tensor]int)
	for i, s := range ops {
		for _, t := range s.Args {
			last[t] = i
		}
	}
	active := c.Base
	live := make(map[profilers.Tensor]bool)
	for i, s := range ops {
		var args []profilers.TensorRec
		for _, t := range s.Args {
			args = append(args, profilers.TensorRec{Tensor: t, Bytes: c.Bytes(t)})
			if !live[t] {
				live[t] = true
				active += c.Bytes(t)
			}
		}
		r.Op(profilers.OpRec{
			ID: int64(i), Name: s.name, Stage: s.Stage,
			Allocated: active, Reserved: active, Active: active,
		}, args)
		for _, t := range s.Args {
			if last[t] == i && live[t] && t != Misc {
				live[t] = false
				active -= c.Bytes(t)
			}
		}
	}
	return r.End(c.Duration, false)
}

// Op is an operator: its stage, all layers of a phase being layer 1, and its
// arguments, inputs first. A tensor is written by the first operator that has
// it.
type Op struct {
	Stage profilers.Stage
	Args  []profilers.Tensor
	name  int32
}

// Name of the operator.
func (o Op) Name() string { return names[o.name] }

// Ops lists the iteration's operators.
func (c Config) Ops() []Op {
	var all []Op
	var stage profilers.Stage
	do := func(name int32, args ...profilers.Tensor) { all = append(all, Op{stage, args, name}) }
	stage = profilers.Stage{Phase: profilers.Init}
	do(opInit, Misc)
	for m := 1; m <= c.MicroBatches; m++ {
		tensors := func(l int) (nrm, att, qkv, mlp profilers.Tensor) {
			return c.Tensor(m, l, Norm), c.Tensor(m, l, Attention), c.Tensor(m, l, QKV), c.Tensor(m, l, MLP)
		}
		stage = profilers.Stage{Phase: profilers.Forward, MicroBatch: int32(m), Layer: 1}
		for l := 1; l <= c.Layers; l++ {
			nrm, att, qkv, mlp := tensors(l)
			do(opNorm, nrm)
			do(opQKV, nrm, qkv)
			do(opAttention, qkv, att)
			do(opProj, att)
			do(opSwiGLU, att, mlp)
		}
		stage = profilers.Stage{Phase: profilers.Backward, MicroBatch: int32(m), Layer: 1}
		for l := c.Layers; l >= 1; l-- {
			nrm, att, qkv, mlp := tensors(l)
			do(opSwiGLUGrad, mlp)
			do(opProjGrad, att)
			do(opAttentionGrad, qkv, att)
			do(opQKVGrad, qkv, nrm)
			do(opNormGrad, nrm)
		}
	}
	stage = profilers.Stage{Phase: profilers.Optim}
	do(opAdam, Misc2)
	do(opAdam, Misc2)
	return all
}
