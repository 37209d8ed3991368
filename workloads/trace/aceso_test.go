package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/workloadstest"
)

const acesoPlan = "../../experiments/published/testdata/aceso/plans/gpt_tiny_2stages_a.json"

// TestAceso: a plan is a pipeline of its profiled operators. Every micro-batch runs
// all of them, those to be computed again twice, and what stays is 14 bytes per
// parameter.
func TestAceso(t *testing.T) {
	w, rep, err := Open(acesoPlan, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Format != "aceso" || !rep.Has(Inferred) || len(rep.Files) != 3 {
		t.Errorf("report %+v", rep)
	}
	ranks := w.Ranks()
	if len(ranks) != 2 || len(ranks[0].Devices) != 1 || len(ranks[1].Devices) != 2 || w.Tokens() != 8*128 {
		t.Fatalf("ranks %+v, %d tokens", ranks, w.Tokens())
	}
	for r := range ranks {
		p, err := w.Program(r, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := workloadstest.Races(p); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		forwards, again := 0, 0
		for _, in := range p.Instrs {
			if in.Kind == workloads.Op && strings.HasPrefix(p.Names.String(in.Name), "enc-attention-s") && !strings.HasSuffix(p.Names.String(in.Name), "backward") {
				forwards++
				if in.Flags&workloads.Recomputed != 0 {
					again++
				}
			}
		}
		// Scores and softmax of a layer, four micro-batches; stage 0 computes both again.
		if want := [2][2]int{{16, 8}, {8, 0}}[r]; forwards != want[0] || again != want[1] {
			t.Errorf("rank %d: scores and softmax run %d times, %d of them again; want %v", r, forwards, again, want)
		}
		totals := workloads.Totals(ranks[r].Residents)
		if totals[workloads.Gradient] != 0 || totals[workloads.Optimizer] != 6*totals[workloads.Parameter] || totals[workloads.Parameter] != 5*sim.MiB/2 {
			t.Errorf("rank %d: residents %v", r, totals)
		}
	}
	if _, err := workloadstest.Play(w, 0, func(k *workloads.Kernel) int64 { return 1 + int64(k.Time) }); err != nil {
		t.Error(err)
	}
}

func TestAcesoErrors(t *testing.T) {
	plan, err := os.ReadFile(acesoPlan)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, d := range []string{"plans", "profile"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "plans", "p.json")
	if err := os.WriteFile(path, plan, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "p.json: stage 0, operator 0: ") || !strings.HasSuffix(err.Error(), "gpt_tiny_mbs2_tp1_algo0.csv: no such file or directory") {
		t.Errorf("no profile: %v", err)
	}
	text := "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved\nencoder-embedding,1,1,1,1,1,1,1,1\n"
	if err := os.WriteFile(filepath.Join(dir, "profile", "gpt_tiny_mbs2_tp1_algo0.csv"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), `no operator "enc-1st-layernorm", which stage 0 of `) {
		t.Errorf("no operator: %v", err)
	}
}

// TestAcesoKeeps: what a layer keeps is sbh(34 + 5as/h) bytes (Korthikanti et al., arXiv
// 2205.05198, equation 1), of which profiles of single operators count 2sbh twice
// more, for results that no backward pass reads, and the scores before softmax.
func TestAcesoKeeps(t *testing.T) {
	const sbh, assb = 1 << 20, 5 << 20
	forward := func(layers int) (profiled, kept sim.Bytes) {
		ops := []workloads.ProfiledOp{{Name: "encoder-embedding"}}
		activations := []sim.Bytes{2 * sbh}
		for range layers {
			for _, op := range []struct {
				name string
				kept sim.Bytes
			}{
				{"1st-layernorm", 2 * sbh}, {"attention-qkv", 6 * sbh}, {"attention-score", 2 * assb}, {"attention-softmax", 2 * assb},
				{"attention-dropout", 3 * assb}, {"attention-context", 2 * sbh}, {"attention-dense", 2 * sbh}, {"post-attention-dropout", 3 * sbh},
				{"2nd-layernorm", 2 * sbh}, {"MLP-GEMM-1", 8 * sbh}, {"MLP-gelu", 8 * sbh}, {"MLP-GEMM-2", 2 * sbh}, {"post-MLP-dropout", 3 * sbh},
			} {
				ops = append(ops, workloads.ProfiledOp{Name: "enc-" + op.name})
				activations = append(activations, op.kept)
			}
		}
		ops = append(ops, workloads.ProfiledOp{Name: "final-layernorm"}, workloads.ProfiledOp{Name: "gpt-post-process"})
		activations = append(activations, 2*sbh, 4096)
		for i := range ops {
			leave(&ops[i], activations[i])
			ops[i].Replicas = 1
			profiled += activations[i]
		}
		_, _, programs, err := workloads.NewProfiled([]workloads.ProfiledStage{{Devices: []int{0}, Output: 1, Ops: ops}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		p, live, refs := programs[0], sim.Bytes(0), map[int32]int{}
		for _, in := range p.Instrs {
			switch in.Kind {
			case workloads.Mark:
				if in.Mark == workloads.MarkForwardEnd {
					return profiled, live
				}
			case workloads.Op:
				for _, a := range p.Args[in.ArgLo:in.ArgHi] {
					if a.Mode == workloads.Write {
						refs[int32(a.Storage)] = 1
						live += p.Storages[a.Storage].Bytes
					}
				}
			case workloads.Ref:
				refs[in.A]++
			case workloads.Drop:
				if refs[in.A]--; refs[in.A] == 0 {
					live -= p.Storages[in.A].Bytes
				}
			}
		}
		return profiled, -1
	}
	profiled1, kept1 := forward(1)
	profiled2, kept2 := forward(2)
	if want := sim.Bytes(34*sbh + 5*assb); kept2-kept1 != want {
		t.Errorf("a layer keeps %d bytes, want %d", kept2-kept1, want)
	}
	if want := sim.Bytes(38*sbh + 7*assb); profiled2-profiled1 != want {
		t.Errorf("a layer's profiles have %d bytes, want %d", profiled2-profiled1, want)
	}
}
