package aceso_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"smartswap/formats/aceso"
	"smartswap/sim"
)

const folder = "../../experiments/published/testdata/aceso/"

func TestReadPlan(t *testing.T) {
	in, err := os.Open(folder + "plans/gpt_tiny_2stages_a.json")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p, err := aceso.ReadPlan(in, "plan.json")
	if err != nil {
		t.Fatal(err)
	}
	if p.Stages != 2 || p.GlobalBatch != 8 || len(p.Names()) != 1+2*13+2 || p.Names()[0] != "encoder-embedding" || p.Names()[14] != "enc-1st-layernorm" || p.Names()[28] != "gpt-post-process" {
		t.Errorf("plan %+v with operators %v", p, p.Names())
	}
	if got := p.ProfileName(0, 3) + " " + p.ProfileName(1, 0); got != "gpt_tiny_mbs2_tp1_algo0.csv gpt_tiny_mbs1_tp1_algo1.csv" {
		t.Errorf("profiles %s", got)
	}
}

func TestReadPlanErrors(t *testing.T) {
	text, err := os.ReadFile(folder + "plans/gpt_tiny_2stages_a.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		to   any
		want string
	}{
		{"model_name", "t5", `model_name = "t5": want "gpt"`},
		{"num_layers", 0, "num_layers = 0: want 1 to 4096"},
		{"num_layers", 3, "num_ops_in_each_stage: 29 in all, want 42 of 3 layers"},
		{"num_layers", "two", "plan.json:"},
		{"micro_batch_size", 3, "global_batch_size = 8: want a multiple of micro_batch_size = 3"},
		{"micro_batch_size", 1, "stage 1, operator 0: data parallelism 2: want a divisor of micro_batch_size = 1"},
		{"num_gpus", []int{1}, "num_gpus: 1 entries, want one per stage, 2"},
		{"num_gpus", []int{2, 2}, "stage 0, operator 0: tensor x data parallelism 1 x 1: want 2"},
		{"num_ops_in_each_stage", []int{29, 0}, "stage 1: 0 operators"},
		{"num_stages", 1 << 20, "num_stages = 1048576"},
		{"recompute_ops", [][]int{{2}, {0}}, "recompute_ops: stage 0 has 1 entries, want one per operator, 14"},
		{"algo_of_each_op", [][]int{{0}}, "algo_of_each_op: 1 lists, want one per stage, 2"},
	} {
		tree := map[string]any{}
		if err := json.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}
		tree[c.key] = c.to
		changed, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		_, err = aceso.ReadPlan(strings.NewReader(string(changed)), "plan.json")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "plan.json") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s = %v: error %v, want %q in one line", c.key, c.to, err, c.want)
		}
	}
	if _, err := aceso.ReadPlan(strings.NewReader("{\n\"num_layers\": 1,\n?"), "plan.json"); err == nil || !strings.HasPrefix(err.Error(), "plan.json:3: ") {
		t.Errorf("syntax: %v", err)
	}
}

const header = "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved\n"

func TestReadProfile(t *testing.T) {
	ops, err := aceso.ReadProfile(strings.NewReader(header+"a,1.5,2,0.5,1,0.25,3,0,7\nb,0,0,0,0,0,0,0,0\n"), "p.csv")
	if err != nil {
		t.Fatal(err)
	}
	want := aceso.Op{1500 * sim.Nanosecond, 2 * sim.Microsecond, sim.MiB / 2, sim.MiB, sim.MiB / 4, 3 * sim.MiB, 0, 7 * sim.MiB}
	if len(ops) != 2 || ops["a"] != want || ops["b"] != (aceso.Op{}) {
		t.Errorf("%+v, want a = %+v", ops, want)
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "p.csv:1: the file is empty"},
		{"header", "op,forward\n", `p.csv:1: header "op,forward": want "op_name,forward-compute`},
		{"nothing", header, "p.csv:1: no operator after the header"},
		{"short", header + "a,1\n", "p.csv:2: wrong number of fields; want 9 columns"},
		{"negative", header + "a,1,-2,0,0,0,0,0,0\n", `p.csv:2: column "backward-compute" = "-2": want a number of at least 0`},
		{"text", header + "a,1,2,x,0,0,0,0,0\n", `p.csv:2: column "input_size" = "x"`},
		{"twice", header + "a,1,2,0,0,0,0,0,0\na,1,2,0,0,0,0,0,0\n", `p.csv:3: column "op_name" = "a": stands there twice`},
	} {
		if _, err := aceso.ReadProfile(strings.NewReader(c.text), "p.csv"); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q in one line", c.name, err, c.want)
		}
	}
}

// FuzzRead: no input makes the readers panic, and every error is one line.
func FuzzRead(f *testing.F) {
	plan, err := os.ReadFile(folder + "plans/gpt_tiny_2stages_a.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(plan))
	f.Add(header + "a,1.5,2,0.5,1,0.25,3,0,7\n")
	f.Add("{\"model_name\":\"gpt\",\"num_layers\":-1}")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := aceso.ReadPlan(strings.NewReader(text), "f"); err == nil {
			for s := range p.Stages {
				for k := range p.TP[s] {
					p.ProfileName(s, k)
				}
			}
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %q", err)
		}
		if _, err := aceso.ReadProfile(strings.NewReader(text), "f"); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %q", err)
		}
	})
}
