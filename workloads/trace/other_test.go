package trace_test

import (
	"path/filepath"
	"strings"
	"testing"

	"smartswap/formats/formatstest"
	"smartswap/workloads/trace"
)

// Files that are no workload but known get a line that says what they are and
// what to do with them.
func TestOtherFiles(t *testing.T) {
	for content, want := range map[string]string{
		"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}.":              "a memory snapshot (a pickle): it tells of an allocator, not of operators; trace snapshot replays it",
		"\n\n<!DOCTYPE html>\n<html>":                                 "a page of a memory viewer; export the snapshot itself, torch.cuda.memory._dump_snapshot",
		"<HTML><body>":                                                "a page of a memory viewer",
		"SQLite format 3\x00":                                         "an SQLite database, which is not read; export the profile as text",
		"# ours\nname = \"x\"\n\n[workload]\nkind = \"trace\"\n":      "an experiment; cmd/experiment runs it",
		"column,strategy,layout,recompute\n":                          "results of cmd/experiment",
		`{"maxDevices": 1, "nodes": [{"id": 0, "TMPCs": {"1": []}}]}`: "a planner's graph (piper)",
		`{"maxFPGAs": 6, "nodes": [{"id": 1, "fpgaLatency": 0.0}]}`:   "a planner's graph (dnn-partitioning)",
		"node1 -- Input0 -- forward_compute_time=0.000, backward":     "a planner's graph (pipedream)",
		"op_name,forward-compute,backward-compute\n":                  "operator times of the Aceso planner; open a plan",
		"0000 0 B\n0001 4096 B\n":                                     "workspaces of G10's kernels",
	} {
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, content)
		_, _, err := trace.Open(path, trace.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), path+": is no workload: "+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", content, err)
		}
		if got := trace.Sniff([]byte(content)); got != "" {
			t.Errorf("%q: sniffed as %s", content, got)
		}
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"profile/ASCEND_PROFILER_OUTPUT/kernel_details.csv": "", "profile/ASCEND_PROFILER_OUTPUT/l2_cache.csv": "Device_id,Stream Id\n", "profile/profiler_info_0.json": "{}",
		"job/rank0_ascend_pt/x": "", "job/rank1_ascend_pt/x": "", "result/rows.csv": "x", "line/trace.json": "[]",
		"nets/traces/A/cudnn1.txt": "0000 1 ms\n", "nets/traces/A/cudnn1PF.txt": "0000 1 ms\n", "nets/traces/A/cudnn1InputPF.txt": "0000 1 ms\n",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	for path, want := range map[string]string{
		"profile/ASCEND_PROFILER_OUTPUT/l2_cache.csv": "is no workload by itself: belongs to the profile of torch_npu in ",
		"profile/profiler_info_0.json":                "is no workload by itself: belongs to the profile of torch_npu in ",
		"job":                                         "profiles of 2 ranks of the Ascend profiler; open one of them: rank0_ascend_pt rank1_ascend_pt",
		"result":                                      "results of cmd/experiment, not its input",
		"line":                                        "a timeline of cmd/experiment; its file trace.json opens",
		"nets":                                        "a folder of several networks; choose one as the network, and a batch size (trace -network NAME -batch N, experiment -set workload.network=NAME -set workload.batch=N): A",
		"nets/traces/A/cudnn1PF.txt":                  "kernel times with page faults; open cudnn1.txt beside it",
		"nets/traces/A/cudnn1InputPF.txt":             "kernel times with page faults; open cudnn1.txt beside it",
	} {
		_, _, err := trace.Open(filepath.Join(dir, path), trace.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, _, err := trace.Open(filepath.Join(dir, "nets"), trace.Options{Network: "A"})
	if err == nil || !strings.Contains(err.Error(), "A was recorded at several batch sizes; choose one (trace -batch N, experiment -set workload.batch=N): 1") {
		t.Error(err)
	}
}

// Workloads are told apart from all of that.
func TestSniffShared(t *testing.T) {
	for _, path := range []string{"dtr/logs/unet.log.gz", "g10/traces/BERT_Base/cudnn256.txt", "kineto/hta/trace_compare__base__base.json.gz", "execution-trace/param/linear_et.json.gz"} {
		if _, _, err := trace.Open(formatstest.Shared(t, path), trace.Options{}); err != nil {
			t.Error(err)
		}
	}
	for path, want := range map[string]string{
		"memory-snapshot/html/zdevito_trace.html.gz":                     "a page of a memory viewer",
		"memory-snapshot/html/selectn_linear_stack_a.html.gz":            "a page of a memory viewer",
		"memory-snapshot/wedsonlin/medium_128_inference.pickle":          "a memory snapshot",
		"memory-snapshot/msinsight/snapshot_expandable.pkl":              "a memory snapshot",
		"op-profiles/planner-graphs/dnnpart_layer_gnmt_training.json.gz": "(dnn-partitioning)",
		"op-profiles/planner-graphs/piper_resnet.json.gz":                "(piper)",
		"op-profiles/planner-graphs/pipedream_vgg16.txt.gz":              "(pipedream)",
		"ascend-profiler/qwen3-0.6b-pp2-dp2-level2":                      "profiles of 2 ranks",
	} {
		if _, _, err := trace.Open(formatstest.Shared(t, path), trace.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestOptionsOfOtherFormats: an option that a format has no use for is refused, so
// that none is ignored.
func TestOptionsOfOtherFormats(t *testing.T) {
	for _, c := range []struct {
		path, want string
		opt        trace.Options
	}{
		{"testdata/small.trace", "step = 7: not for a file of format native; allowed for ascend, chrome, et", trace.Options{Step: "7"}},
		{smallChakra, "kineto = k.json: not for a file of format chakra; allowed for et", trace.Options{Kineto: "k.json"}},
		{smallDTR, "batch = 8: not for a file of format dtr; allowed for g10", trace.Options{Batch: 8}},
		{smallKineto, "network = BERT: not for a file of format chrome; allowed for g10", trace.Options{Network: "BERT"}},
		{smallChakra, "member = a: not for a file that is no archive (tar)", trace.Options{Member: "a"}},
		{smallChakra, "", trace.Options{NoGaps: true}},
	} {
		_, rep, err := trace.Open(c.path, c.opt)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.path, err)
		case c.want != "" && (err == nil || err.Error() != c.path+": "+c.want || rep.Format != ""):
			t.Errorf("%s: %v, want %s", c.path, err, c.want)
		}
	}
}
