package published

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"smartswap/workloads"
)

func TestVTrain(t *testing.T) {
	in, err := os.Open("testdata/vtrain.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	jobs, err := VTrain(in, "vtrain.csv")
	if err != nil {
		t.Fatal(err)
	}
	want := Job{
		ID: "line 3", Devices: 4, Seq: 32, MicroBatch: 2, GlobalBatch: 8, TP: 2, PP: 2, DP: 1, VPP: 1, ZeRO: 0,
		Framework: "megatron-2021", Attention: "unfused", Recompute: "full", Numbers: []Number{{Metric: StepTime, Value: 12.25}},
		Model: workloads.Model{Name: "gpt-4x128", Style: workloads.GPT, Tied: true, Layers: 4, Hidden: 128, FFN: 512, Heads: 8, KVHeads: 8, HeadDim: 16, Vocab: 51200, Seq: 32},
	}
	if len(jobs) != 2 {
		t.Fatalf("%d jobs, want 2", len(jobs))
	}
	if diff := cmp.Diff(want, jobs[1]); diff != "" {
		t.Error(diff)
	}
}

const vtrainHeader = "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"

func TestVTrainErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "x.csv:1: the file is empty; want a header with the columns # GPUs, global batch"},
		{"no column", strings.Replace(vtrainHeader, "# layers", "layers", 1), `x.csv:1: no column "# layers"; nearest is "layers"`},
		{"short row", vtrainHeader + "2,4,1\n", "x.csv:2: wrong number of fields; want 11 columns"},
		{"no number", vtrainHeader + "2,4,1,64,4,2,32,1,2,1,fast\n", `x.csv:2: column "iteration time (ms)" = "fast": want a number above 0`},
		{"not a time", vtrainHeader + "2,4,1,64,4,2,32,1,2,1,NaN\n", `column "iteration time (ms)" = "NaN"`},
		{"negative", vtrainHeader + "2,4,-1,64,4,2,32,1,2,1,1\n", `x.csv:2: column "micro batch" = "-1": want a whole number from 1 to 1048576`},
		{"devices", vtrainHeader + "2,4,1,64,4,2,32,1,2,1,1\n4,4,1,64,4,2,32,1,2,1,1\n", `x.csv:3: column "# GPUs" = "4": want the product of tensor parallelism, data parallelism and pipeline parallelism, 2`},
		{"heads", vtrainHeader + "2,4,1,64,5,2,32,1,2,1,1\n", `column "attention heads" = "5": want a divisor of the hidden size 64`},
		{"zero heads", vtrainHeader + "2,4,1,64,0,2,32,1,2,1,1\n", `column "attention heads" = "0": want a whole number from 1`},
		{"open quote", vtrainHeader + "\"2,4\n", "x.csv:"},
	} {
		jobs, err := VTrain(strings.NewReader(c.text), "x.csv")
		check(t, c.name, jobs, err, c.want)
	}
}

func check(t *testing.T, name string, jobs []Job, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("%s: %d jobs and no error, want %q", name, len(jobs), want)
	case !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n"):
		t.Errorf("%s: error %q, want %q in one line", name, err, want)
	}
}

const stepsHeader = "id,source,device,node,devices,model,style,layers,hidden,heads,kv_heads,ffn,vocab,seq,micro_batch,global_batch,tp,pp,dp,vpp,zero,sequence_parallel,framework,attention,recompute,metric,value,unit,note\n"

func TestSteps(t *testing.T) {
	text := stepsHeader +
		"A-1,book,box,a100-80-8,2,m,gpt,2,64,4,4,256,100,32,1,4,1,1,2,1,1,no,megatron-core,unfused,full,iteration_time,1.5,s,\n" +
		"B-1,book,box,a100-80-8,2,m,mpt,2,64,4,4,256,100,32,1,4,1,1,2,1,3,no,megatron-core,fused,none,tokens_per_second_per_device,10,tokens/s,said\n" +
		"B-2,book,box,a100-80-8,2,m,llama,2,64,4,2,256,100,32,1,4,2,1,1,1,0,yes,megatron-core,fused,none,MFU,40,%,\n"
	all, err := Steps(strings.NewReader(text), "x.csv", "")
	if err != nil || len(all) != 3 {
		t.Fatalf("%d jobs, %v", len(all), err)
	}
	some, err := Steps(strings.NewReader(text), "x.csv", "B-")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all[1:], some); diff != "" {
		t.Error(diff)
	}
	if got := all[0].Numbers; len(got) != 1 || got[0] != (Number{Metric: StepTime, Value: 1500}) {
		t.Errorf("numbers %v", got)
	}
	if m := all[1].Model; !m.Bare || m.Style != workloads.GPT || !m.Tied || m.HeadDim != 16 {
		t.Errorf("model %+v", m)
	}
	if j := all[2]; j.Model.Style != workloads.Llama || j.ZeRO != 0 || !j.SequenceParallel || j.Model.KVHeads != 2 {
		t.Errorf("job %+v", j)
	}
}

func TestStepsErrors(t *testing.T) {
	good := strings.Split("A-1,book,box,a100-80-8,2,m,gpt,2,64,4,4,256,100,32,1,4,1,1,2,1,1,no,megatron-core,unfused,full,iteration_time,1.5,s,", ",")
	for _, c := range []struct {
		column int
		value  string
		want   string
	}{
		{0, "", `x.csv:2: column "id" = "": want a name`},
		{6, "bert", `x.csv:2: column "style" = "bert": want one of gpt, mpt, llama`},
		{9, "5", `column "heads" = "5": want a divisor of hidden, 64`},
		{20, "2", `column "zero" = "2": want 0, 1 or 3`},
		{4, "8", `column "devices" = "8": want the product of tp, pp and dp, 2`},
		{21, "maybe", `column "sequence_parallel" = "maybe": want one of yes, no`},
		{25, "peak_memory", `column "metric" = "peak_memory": want one of iteration_time`},
		{26, "0", `column "value" = "0": want a number above 0`},
		{27, "h", `column "unit" = "h": want one of ms, s`},
	} {
		row := append([]string(nil), good...)
		row[c.column] = c.value
		jobs, err := Steps(strings.NewReader(stepsHeader+strings.Join(row, ",")+"\n"), "x.csv", "")
		check(t, c.want, jobs, err, c.want)
	}
}

// TestModelFlops holds the formula against the published utilisation of the 1T model
// (arXiv 2205.05198 table 5: 71.49 s on 512 A100 are 56.3 %).
func TestModelFlops(t *testing.T) {
	j := Job{Devices: 512, GlobalBatch: 512, Seq: 2048, Model: workloads.Model{Layers: 128, Hidden: 25600, Vocab: 51200}}
	if got := j.Simulated(ModelShare, 71490, 312e12); got < 56.25 || got > 56.35 {
		t.Errorf("model flops utilisation %.2f %%, want 56.3", got)
	}
	if got := j.Simulated(TokenRate, 2000, 0); got != 1024 {
		t.Errorf("%g tokens/s per device, want 1024", got)
	}
	if got := j.Simulated(StepTime, 7, 0); got != 7 {
		t.Errorf("%g ms", got)
	}
}

func TestAceso(t *testing.T) {
	jobs, err := Aceso("testdata/aceso")
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs) != 1 || jobs[0].ID != "gpt_tiny_2stages_a" || filepath.Base(jobs[0].Trace) != "gpt_tiny_2stages_a.json" || jobs[0].Model.Name != "gpt_tiny" {
		t.Fatalf("jobs %+v", jobs)
	}
	want := []Number{
		{Forward, 0, "stage 0 rank 0", 12.5}, {Backward, 0, "stage 0 rank 0", 27}, {Allocated, 0, "stage 0 rank 0", 90.25 * mib}, {Metric: StepTime, Value: 20.5},
		{Forward, 1, "stage 1 rank 1", 7.5}, {Backward, 1, "stage 1 rank 1", 14}, {Allocated, 1, "stage 1 rank 1", 80 * mib},
		{Forward, 1, "stage 1 rank 2", 7.6}, {Backward, 1, "stage 1 rank 2", 14.1}, {Allocated, 1, "stage 1 rank 2", 80.5 * mib},
	}
	if diff := cmp.Diff(want, jobs[0].Numbers); diff != "" {
		t.Error(diff)
	}
	if _, err := Aceso(t.TempDir()); !os.IsNotExist(err) {
		t.Errorf("an absent folder gives %v", err)
	}
}

func TestAcesoErrors(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"name", "a.csv", "", "want names such as PLAN_stage0_rank0.csv"},
		{"no plan", "a_stage0_rank0.csv", "", "a.json"},
		{"two lines", "p_stage0_rank0.csv", "time,forward-compute,backward-compute,max_allocated\n1,1,1,1\n1,1,1,1\n", "2 lines after the header: want one"},
		{"no number", "p_stage0_rank0.csv", "time,forward-compute,backward-compute,max_allocated\n1,x,1,1\n", `p_stage0_rank0.csv:2: column "forward-compute" = "x": want a number above 0`},
	} {
		dir := t.TempDir()
		for _, d := range []string{"measured", "plans"} {
			if err := os.Mkdir(filepath.Join(dir, d), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range map[string]string{filepath.Join("plans", "p.json"): "{}", filepath.Join("measured", c.file): c.text} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		jobs, err := Aceso(dir)
		check(t, c.name, jobs, err, c.want)
	}
}

// FuzzTables: no input makes the readers panic, and every error is one line.
func FuzzTables(f *testing.F) {
	f.Add(vtrainHeader + "2,4,1,64,4,2,32,1,2,1,1.5\n")
	f.Add(stepsHeader + "A-1,b,c,n,2,m,gpt,2,64,4,4,256,100,32,1,4,1,1,2,1,1,no,megatron-core,unfused,full,iteration_time,1.5,s,\n")
	f.Add("\ufeff\"# GPUs\n\"")
	f.Fuzz(func(t *testing.T, text string) {
		_, one := VTrain(strings.NewReader(text), "f")
		_, two := Steps(strings.NewReader(text), "f", "")
		for _, err := range []error{one, two} {
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
		}
	})
}
