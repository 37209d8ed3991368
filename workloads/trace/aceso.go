package trace

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"smartswap/formats/aceso"
	"smartswap/formats/native"
	"smartswap/sim"
	"smartswap/workloads"
)

// openAceso reads a plan of the Aceso planner together with the profiles of its
// operators, which lie in the folder "profile" beside that of the plan. The
// workload is the whole pipeline, one rank per stage: the members of a stage's
// tensor and data parallelism are identical. Kernel times are the measured ones,
// with the collectives of tensor parallelism inside; operators that are computed
// again are taken to be so in groups that do not cross layers.
func openAceso(rep *Report, path string, opt Options) (*native.Trace, error) {
	var p *aceso.Plan
	err := readFile(rep, path, opt, func(r io.Reader, name string) (err error) {
		p, err = aceso.ReadPlan(r, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	profiles := map[string]map[string]aceso.Op{}
	folder := filepath.Join(filepath.Dir(path), "..", "profile")
	var stages []workloads.ProfiledStage
	next, device := 0, 0
	for s := range p.Stages {
		var st workloads.ProfiledStage
		for range p.Devices[s] {
			st.Devices = append(st.Devices, device)
			device++
		}
		for k := range p.TP[s] {
			name := p.ProfileName(s, k)
			ops, ok := profiles[name]
			if !ok {
				err := readFile(rep, filepath.Join(folder, name), Options{}, func(r io.Reader, file string) (err error) {
					ops, err = aceso.ReadProfile(r, file)
					return err
				})
				if err != nil {
					return nil, fmt.Errorf("%s: stage %d, operator %d: %w", path, s, k, err)
				}
				profiles[name] = ops
			}
			op, ok := ops[p.Names()[next]]
			if !ok {
				return nil, fmt.Errorf("%s: no operator %q, which stage %d of %s runs", filepath.Join(folder, name), p.Names()[next], s, path)
			}
			x := workloads.ProfiledOp{
				Name: p.Names()[next], Forward: op.Forward, Backward: op.Backward, Weights: op.Weights, Input: op.Input,
				Recompute: p.Recompute[s][k] == 1, Group: (next + 12) / 13, Replicas: p.DP[s][k],
			}
			leave(&x, op.Kept)
			st.Ops = append(st.Ops, x)
			st.Output = max(op.Output, 1)
			next++
		}
		stages = append(stages, st)
	}
	names, ranks, programs, err := workloads.NewProfiled(stages, p.GlobalBatch/p.MicroBatch)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	rep.note(Inferred, path, "optimizer, transfers between stages and all-reduces over replicas are modelled; the plan's profiles have only passes")
	byRank := make([][]*workloads.Program, len(programs))
	for i, program := range programs {
		byRank[i] = []*workloads.Program{program}
	}
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gz"), ".json")
	return native.NewTrace(name, int64(p.GlobalBatch)*int64(p.Seq), names, ranks, byRank), nil
}

// leave says which of the activations of a profile the next operator reads, and which
// are for backward passes. The profile has one number for an operator by itself: all
// that its forward leaves. What the backward passes of a GPT's operators read is known
// from Megatron-LM 2.5:
//
//   - softmax keeps its result (megatron/fused_kernels);
//   - dropout, alone or with bias and addition, keeps a mask of a byte per element
//     beside its 16-bit result;
//   - head and loss keep logits, which nobody reads after them;
//   - the embedding keeps token ids;
//   - matrix products, norms and GELU keep what they read.
func leave(op *workloads.ProfiledOp, kept sim.Bytes) {
	op.Result = kept
	switch name := op.Name; {
	case name == "encoder-embedding":
	case strings.HasSuffix(name, "-softmax"):
		op.ReadsResult = true
	case strings.HasSuffix(name, "-dropout"):
		op.Aside = kept / 3
		op.Result = kept - op.Aside
	case name == "gpt-post-process":
		op.Result, op.Aside, op.ReadsInput = 0, kept, true
	default:
		op.ReadsInput = true
	}
}
