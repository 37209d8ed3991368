package trace_test

import (
	"path/filepath"
	"strings"
	"testing"

	"smartswap/formats/formatstest"
	"smartswap/workloads/trace"
)

// A recording without a backward pass and without an optimizer is one of
// inference, whatever else is in the names; the report says what told.
func TestKind(t *testing.T) {
	event := func(cat, name, rest string) string {
		return `{"ph": "X", "cat": "` + cat + `", "name": "` + name + `", "pid": 0, "tid": 7, "ts": 5, "dur": 3` + rest + `}`
	}
	kernel := func(name string) string {
		return event("kernel", name, `, "args": {"device": 0, "stream": 7}`)
	}
	long := strings.Repeat("x", 100)
	for _, c := range []struct{ events, kind, from string }{
		{kernel("gemm"), "inference", "nothing recorded is named after a backward pass or an optimizer"},
		{kernel("multi_tensor_apply_kernel<Copy>"), "inference", "nothing"},
		{kernel("gemm") + "," + event("user_annotation", "torch.no_grad", ""), "inference", "nothing"},
		{kernel("gemm") + "," + event("cpu_op", "requires_grad_", ""), "inference", "nothing"},
		{kernel("gemm_backward"), "train", `"gemm_backward" is part of a training step`},
		{kernel("gemm") + "," + event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", ""), "train", "MmBackward0"},
		{kernel("gemm") + "," + event("user_annotation", "Optimizer.step#SGD.step", ""), "train", "Optimizer.step#SGD.step"},
		{kernel("fused_adagrad"), "train", "fused_adagrad"},
		{kernel(long + "tanh_backward" + long), "train", "x…"},
	} {
		path := filepath.Join(t.TempDir(), "kind.json")
		write(t, path, `{"traceEvents": [`+c.events+`]}`)
		w, rep := open(t, path, trace.Options{})
		if p := program(t, w); p.Kind != c.kind || !strings.Contains(rep.KindFrom, c.from) || len(rep.KindFrom) > 150 {
			t.Errorf("%s: kind %s, from %s; want %s, %s", c.events, p.Kind, rep.KindFrom, c.kind, c.from)
		}
		if strings.Contains(c.events, "tanh") && !strings.Contains(rep.KindFrom, "tanh_backward") {
			t.Errorf("%s does not show what told", rep.KindFrom)
		}
	}
	for path, want := range map[string]string{smallKineto: "train", smallDTR: "train", smallChakra: "inference", small: "train"} {
		if w, _ := open(t, path, trace.Options{}); program(t, w).Kind != want {
			t.Errorf("%s is of kind %s", path, program(t, w).Kind)
		}
	}
}

// The published recordings of single forward passes, and of training steps.
func TestKindShared(t *testing.T) {
	for path, want := range map[string]string{
		"kineto/tracelens/h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz":       "inference",
		"kineto/tracelens/h100_gaunernst_bert-small-uncased__1016001.json.gz": "inference",
		"kineto/tracelens/sglang_Qwen3-8B_decode.json.gz":                     "inference",
		"kineto/tracelens/vllm_decode_graph_execution.json.gz":                "inference",
		"kineto/hta/trace_diff__control__control.json.gz":                     "train",
		"kineto/hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz":    "train",
		"execution-trace/param/linear_et.json.gz":                             "train",
		"execution-trace/hta/benchmark_simple_add_et.json.gz":                 "inference",
		"dtr/logs/unet.log.gz":                                                "train",
		"ascend-profiler/qwen3-0.6b-pp2-dp2-level2/rank_0_ascend_pt":          "train",
		"ascend-profiler/alexnet-2npu/text/level1/rank0_ascend_pt":            "train",
	} {
		w, rep := open(t, formatstest.Shared(t, path), trace.Options{})
		if p := program(t, w); p.Kind != want || rep.KindFrom == "" {
			t.Errorf("%s: %s, from %q", path, p.Kind, rep.KindFrom)
		}
	}
}

// Idle time of recorded devices, from the starts and lengths of their kernels:
// 810.02236 ms from the first to the last, of which 231.2901 ms are work.
func TestStreamsShared(t *testing.T) {
	_, rep := open(t, formatstest.Shared(t, "ascend-profiler", "qwen3-0.6b-pp2-dp2-level2", "rank_0_ascend_pt"), trace.Options{})
	if len(rep.Streams) != 1 || rep.Streams[0].Kernels != 2448 || rep.Streams[0].Idle() != 578_732_260_000 || rep.Streams[0].Busy != 231_290_100_000 {
		t.Errorf("%d streams, %+v", len(rep.Streams), rep.Streams)
	}
	_, rep = open(t, formatstest.Shared(t, "execution-trace", "param", "linear_et.json.gz"), trace.Options{})
	if rep.Streams != nil {
		t.Errorf("a graph alone tells no starts: %+v", rep.Streams)
	}
	_, rep = open(t, formatstest.Shared(t, "execution-trace", "param", "linear_et.json.gz"), trace.Options{Kineto: formatstest.Shared(t, "execution-trace", "param", "linear_kineto.json.gz")})
	if len(rep.Streams) != 1 || rep.Streams[0].Busy == 0 || rep.Streams[0].Gaps == 0 {
		t.Errorf("%+v", rep.Streams)
	}
}
