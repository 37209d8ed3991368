package hw

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"smartswap/formats/formatstest"
	"smartswap/sim"
)

// profile is the folder of the published Qwen3-0.6B run on which the 910
// family's curves were fitted, below the shared data.
const profile = "ascend-profiler/qwen3-0.6b-pp2-dp2-level2/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT"

// matmul is a 16-bit product of m x k and k x n.
func matmul(m, k, n int32) Work {
	return Work{
		Kind: Modelled, Family: MatMul, Dtype16: true, M: m, K: k, N: n,
		Flops:   2 * int64(m) * int64(k) * int64(n),
		Traffic: 2 * sim.Bytes(int64(m)*int64(k)+int64(k)*int64(n)+int64(m)*int64(n)),
	}
}

// moved is a vector kernel that moves bytes.
func moved(f Family, bytes sim.Bytes) Work { return Work{Kind: Modelled, Family: f, Traffic: bytes} }

// attention is one causal sequence of s tokens, queries of width q and keys
// and values of width kv, in bf16; grad is its backward pass.
func attention(s, q, kv int64, grad bool) Work {
	w := Work{Kind: Modelled, Family: Attention, Dtype16: true, Flops: 2 * s * s * q, Traffic: sim.Bytes(2 * s * (2*q + 2*kv))}
	if grad {
		w.Family, w.Flops, w.Traffic = AttentionGrad, 5*s*s*q, sim.Bytes(2*s*(4*q+4*kv))
	}
	return w
}

func device(t *testing.T, node string) *Device {
	t.Helper()
	n, err := Load(node)
	if err != nil {
		t.Fatal(err)
	}
	return &n.Device
}

// ratio is measured over modelled time.
func ratio(d *Device, w Work, measured float64) float64 {
	return measured / d.Timing(w).Span.Microseconds()
}

func TestAnchors(t *testing.T) {
	d := device(t, "910b-20c-8")
	for _, a := range []struct {
		m, k, n  int32
		measured float64 // us
	}{
		{4096, 1024, 6144, 239},
		{4096, 3072, 1024, 131},
		{4096, 4096, 1024, 178},
	} {
		if r := ratio(d, matmul(a.m, a.k, a.n), a.measured); math.Abs(r-1) > 0.15 {
			t.Errorf("%dx%dx%d: measured/model = %.3f, want within 15 %%", a.m, a.k, a.n, r)
		}
	}
}

// TestCalibration compares the model with the medians of the profile's
// kernels: those that curves were fitted to, and others that were held out.
func TestCalibration(t *testing.T) {
	const mi = 1 << 20
	d := device(t, "910b-20c-8")
	medians := kernelMedians(t)
	var worst float64
	var worstName string
	for _, k := range []struct {
		kind, inputs string // as in kernel_details.csv, the inputs up to a prefix
		fitted       bool
		work         Work
	}{
		{"MatMulV3", "4096,1024;6144,1024", true, matmul(4096, 1024, 6144)},
		{"MatMulV3", "4096,3072;1024,3072", true, matmul(4096, 3072, 1024)},
		{"MatMulV3", "4096,1024;4096,1024", true, matmul(4096, 1024, 4096)},
		{"MatMulV3", "4096,2048;1024,2048", true, matmul(4096, 2048, 1024)},
		{"MatMulV2", "4096,4096;4096,1024", false, matmul(4096, 4096, 1024)},
		{"MatMulV3", "4096,6144;4096,1024", false, matmul(6144, 4096, 1024)},
		{"MatMulV3", "4096,6144;6144,1024", false, matmul(4096, 6144, 1024)},
		{"MatMulV3", "4096,1024;4096,3072", false, matmul(1024, 4096, 3072)},
		{"MatMulV3", "4096,1024;1024,3072", false, matmul(4096, 1024, 3072)},
		{"MatMulV3", "4096,1024;4096,2048", false, matmul(1024, 4096, 2048)},
		{"MatMulV3", "4096,1024;1024,2048", false, matmul(4096, 1024, 2048)},

		{"FlashAttentionScore", "4096,1,2048;4096,1,1024", true, attention(4096, 2048, 1024, false)},
		{"FlashAttentionScoreGrad", "4096,1,2048;4096,1,1024", true, attention(4096, 2048, 1024, true)},

		{"RmsNorm", "4096,1,1024", true, moved(Norm, 2*4096*1024*2)},
		{"RmsNorm", "4096,1,16,128", true, moved(Norm, 2*4096*2048*2)},
		{"RmsNorm", "4096,1,8,128", true, moved(Norm, 2*4096*1024*2)},
		{"RmsNormGrad", "4096,1,1024", true, moved(NormGrad, 3*4096*1024*2)},
		{"RmsNormGrad", "4096,1,16,128", true, moved(NormGrad, 3*4096*2048*2)},
		{"RmsNormGrad", "4096,1,8,128", true, moved(NormGrad, 3*4096*1024*2)},

		{"SwiGlu", "4096,6144", true, moved(ActivationFn, 4096*(6144+3072)*2)},
		{"SwiGluGrad", "4096,3072;4096,6144", true, moved(ActivationGrad, 4096*(3072+6144+6144)*2)},
		{"RotaryPositionEmbedding", "4096,1,16,128", true, moved(Rope, 2*4096*(2048+2048+128+128))},
		{"RotaryPositionEmbedding", "4096,1,8,128", true, moved(Rope, 2*4096*(1024+1024+128+128))},
		{"RotaryPositionEmbeddingGrad", "4096,1,16,128", false, moved(Rope, 2*4096*(2048+2048+128+128))},
		{"RotaryPositionEmbeddingGrad", "4096,1,8,128", false, moved(Rope, 2*4096*(1024+1024+128+128))},

		{"Add", "4096,1,1024;4096,1,1024", true, moved(Elementwise, 3*4096*1024*2)},
		{"Add", "151936,1024;151936,1024", true, moved(Elementwise, 10*151936*1024)},
		{"Add", "6144,1024;6144,1024", false, moved(Elementwise, 10*6144*1024)},
		{"Add", "4096,1024;4096,1024", false, moved(Elementwise, 10*4096*1024)},
		{"Add", "1024,3072;1024,3072", false, moved(Elementwise, 10*1024*3072)},
		{"Mul", "77791232;", true, moved(Elementwise, 8*77791232)},
		{"Mul", "220233216;", false, moved(Elementwise, 8*220233216)},
		{"Mul", "6291456;", false, moved(Elementwise, 8*6*mi)},
		{"Mul", "2097152;", false, moved(Elementwise, 8*2*mi)},

		{"Cast", "151936,1024", true, moved(Cast, 6*151936*1024)},
		{"Cast", "77791232", true, moved(Cast, 6*77791232)},
		{"Cast", "6291456", true, moved(Cast, 6*6*mi)},
		{"Cast", "2097152", true, moved(Cast, 6*2*mi)},
		{"ApplyAdamWV2", "77791232;", true, moved(OptimizerStep, 28*77791232)},
		{"ApplyAdamWV2", "6291456;", true, moved(OptimizerStep, 28*6*mi)},
		{"ApplyAdamWV2", "2097152;", true, moved(OptimizerStep, 28*2*mi)},
		{"LpNormV2", "220233216", true, moved(Reduction, 4*220233216)},
		{"LpNormV2", "6291456", true, moved(Reduction, 4*6*mi)},
		{"LpNormV2", "2097152", true, moved(Reduction, 4*2*mi)},
		{"GatherV2", "151936,1024", true, moved(Embedding, 2*4096*1024*2)},
		{"EmbeddingDenseGradV2", "1,4096,1024", true, moved(EmbeddingGrad, 2*4096*1024*4)},
	} {
		measured, ok := medians(k.kind, k.inputs)
		if !ok {
			t.Errorf("%s %s: not in the profile", k.kind, k.inputs)
			continue
		}
		r := ratio(d, k.work, measured)
		group := "held out"
		bound := 0.45
		if k.fitted {
			group, bound = "fitted", 0.15
		} else if off := math.Abs(math.Log(r)); off > worst {
			worst, worstName = off, k.kind+" "+k.inputs
		}
		t.Logf("%-8s %-28s %-26s measured %8.1f us, measured/model %.3f", group, k.kind, k.inputs, measured, r)
		if r > 1+bound || r < 1/(1+bound) {
			t.Errorf("%s %s (%s): measured/model = %.3f, beyond %.0f %%", k.kind, k.inputs, group, r, 100*bound)
		}
	}
	t.Logf("worst held out: %s, factor %.3f", worstName, math.Exp(worst))
}

// TestFabricHeldOut compares the tables with the data-parallel collectives of
// the same run, on two devices. The tables come from elsewhere.
func TestFabricHeldOut(t *testing.T) {
	n, err := Load("910b-20c-8")
	if err != nil {
		t.Fatal(err)
	}
	elapsed := collectives(t)
	for _, c := range []struct {
		name string
		kind CollectiveKind
		size sim.Bytes // full tensor, from the transit sizes of communication.json
	}{
		{"reduceScatter__097_4", ReduceScatter, 2 * 440466432},
		{"reduceScatter__097_5", ReduceScatter, 2 * 311164928},
		{"allGather__097_6", AllGather, 2 * 220233216},
		{"allGather__097_7", AllGather, 2 * 155582464},
		{"allReduce__170_1", AllReduce, 622329856},
	} {
		measured, ok := elapsed[c.name]
		if !ok {
			t.Errorf("%s: not in the profile", c.name)
			continue
		}
		model := n.Fabric.Time(Work{Kind: Collective, Collective: c.kind, Size: c.size, Members: 2}).Milliseconds()
		r := measured / model
		t.Logf("%-22s measured %6.2f ms, measured/model %.3f", c.name, measured, r)
		if math.Abs(r-1) > 0.20 {
			t.Errorf("%s: measured/model = %.3f, beyond 20 %%", c.name, r)
		}
	}
}

// kernelMedians gives the median duration in us of the profile's kernels of a
// type and input shapes.
func kernelMedians(t *testing.T) func(kind, inputs string) (float64, bool) {
	t.Helper()
	file, err := os.Open(filepath.Join(formatstest.Shared(t, profile), "kernel_details.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	kind, inputs, took := slices.Index(rows[0], "Type"), slices.Index(rows[0], "Input Shapes"), slices.Index(rows[0], "Duration(us)")
	return func(wantKind, wantInputs string) (float64, bool) {
		var all []float64
		for _, row := range rows[1:] {
			shapes := strings.Trim(row[inputs], `"`)
			rest, ok := strings.CutPrefix(shapes, wantInputs)
			if row[kind] != wantKind || !ok || rest != "" && rest[0] != ';' && !strings.HasSuffix(wantInputs, ";") {
				continue
			}
			us, err := strconv.ParseFloat(strings.TrimSpace(row[took]), 64)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, us)
		}
		if len(all) == 0 {
			return 0, false
		}
		slices.Sort(all)
		return (all[(len(all)-1)/2] + all[len(all)/2]) / 2, true
	}
}

// collectives gives the elapsed ms of the profile's collectives by the middle
// of their names.
func collectives(t *testing.T) map[string]float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(formatstest.Shared(t, profile), "communication.json"))
	if err != nil {
		t.Fatal(err)
	}
	var steps map[string]map[string]map[string]struct {
		Time struct {
			Elapse float64 `json:"Elapse Time(ms)"`
		} `json:"Communication Time Info"`
	}
	if err := json.Unmarshal(text, &steps); err != nil {
		t.Fatal(err)
	}
	elapsed := map[string]float64{}
	for _, kinds := range steps {
		for name, c := range kinds["collective"] {
			name = strings.TrimPrefix(name, "hcom_")
			if at := strings.Index(name, "_1@"); at >= 0 {
				elapsed[name[:at]] = c.Time.Elapse
			}
		}
	}
	return elapsed
}

// TestA100 compares the A100's products with the projections of Llama-2 7B and
// 70B at 128 to 4,096 tokens and every tensor parallelism, and its all-reduces
// with those of a DGX A100, which the tables were not fitted to.
func TestA100(t *testing.T) {
	n, err := Load("a100-80-8")
	if err != nil {
		t.Fatal(err)
	}
	var off []float64 // |log(measured/model)|
	for _, model := range []string{"Llama-2-7b-hf", "Llama-2-70b-hf"} {
		for _, row := range gzipRows(t, "op-profiles/vidur-a100/"+model+"_mlp.csv.gz") {
			h, ffn, tokens, tp := row.count("n_embd"), row.count("n_expanded_embd"), row.count("num_tokens"), row.count("num_tensor_parallel_workers")
			kv := h / row.count("n_head") * row.count("n_kv_head")
			for name, w := range map[string]Work{
				"attn_pre_proj":  matmul(tokens, h, (h+2*kv)/tp),
				"attn_post_proj": matmul(tokens, h/tp, h),
				"mlp_up_proj":    matmul(tokens, h, 2*ffn/tp),
				"mlp_down_proj":  matmul(tokens, ffn/tp, h),
			} {
				ms := row.number("time_stats." + name + ".median")
				if tokens < 128 || ms < 0.05 { // shorter times are launch noise
					continue
				}
				off = append(off, math.Abs(math.Log(ratio(&n.Device, w, 1000*ms))))
			}
		}
	}
	slices.Sort(off)
	median, high := off[len(off)/2], off[len(off)*95/100]
	t.Logf("%d products: off by a factor of %.3f in the median, %.3f at the 95th percentile", len(off), math.Exp(median), math.Exp(high))
	if math.Exp(median) > 1.10 || math.Exp(high) > 1.30 {
		t.Error("more than 1.10 or 1.30")
	}

	off = nil
	for _, row := range gzipRows(t, "op-profiles/vidur-a100/a100_dgx_all_reduce.csv.gz") {
		if row.count("devices_per_node") != row.count("num_workers") || row.count("size") < 4<<20 {
			continue // between servers, or mostly latency
		}
		w := Work{Kind: Collective, Collective: AllReduce, Size: sim.Bytes(row.count("size")), Members: row.count("num_workers")}
		off = append(off, math.Abs(math.Log(row.number("time_stats.all_reduce.median")/n.Fabric.Time(w).Milliseconds())))
	}
	slices.Sort(off)
	median, high = off[len(off)/2], off[len(off)*95/100]
	t.Logf("%d all-reduces: off by a factor of %.3f in the median, %.3f at the 95th percentile", len(off), math.Exp(median), math.Exp(high))
	if math.Exp(median) > 1.15 || math.Exp(high) > 1.40 {
		t.Error("more than 1.15 or 1.40")
	}
}

// TestA100AllReduce compares the A100's all-reduces with two other tables that they were
// not fitted to: of 2, 4 and 8 devices of one server, 4 MiB to 1 GiB. The tables are of
// different servers and lie on both sides of the model.
func TestA100AllReduce(t *testing.T) {
	n, err := Load("a100-80-8")
	if err != nil {
		t.Fatal(err)
	}
	model := func(members int32, size sim.Bytes) float64 {
		return n.Fabric.Time(Work{Kind: Collective, Collective: AllReduce, Size: size, Members: members}).Milliseconds()
	}
	text, err := os.ReadFile(formatstest.Shared(t, "op-profiles/galvatron-a100/sp_time_1nodes_8gpus_per_node.json"))
	if err != nil {
		t.Fatal(err)
	}
	var times map[string]float64 // ms
	if err := json.Unmarshal(text, &times); err != nil {
		t.Fatal(err)
	}
	for _, members := range []int32{2, 4, 8} {
		var off []float64
		for mib := sim.Bytes(4); mib <= 1024; mib *= 2 {
			key := fmt.Sprintf("allreduce_size_%d_%dMB_time", members, mib)
			measured, ok := times[key]
			if !ok {
				t.Fatalf("no %s", key)
			}
			off = append(off, measured/model(members, mib<<20))
		}
		slices.Sort(off)
		median, low, high := off[len(off)/2], off[0], off[len(off)-1]
		t.Logf("Galvatron, %d devices: measured/model %.3f in the median, %.3f to %.3f", members, median, low, high)
		if median < 1/1.2 || median > 1.2 || low < 1/1.25 || high > 1.45 { // the least sizes are the slowest
			t.Errorf("Galvatron, %d devices: more than 1.2 in the median, or beyond 0.8 to 1.45", members)
		}
	}
	for _, members := range []int32{2, 4, 8} {
		var off []float64
		for _, row := range gzipRows(t, fmt.Sprintf("vtrain/allreduce/a100_AR_GPU%d_1M_1024M_LUT.gz", members)) {
			size := row.number("size(B)")
			if size < 4<<20 {
				continue // mostly latency
			}
			off = append(off, row.number("time(ns)")/1e6/model(members, sim.Bytes(size)))
		}
		slices.Sort(off)
		median, low, high := off[len(off)/2], off[len(off)/20], off[len(off)*19/20]
		t.Logf("%d devices: measured/model %.3f in the median, %.3f to %.3f for nine in ten of %d", members, median, low, high, len(off))
		if median < 1/1.2 || median > 1.2 || low < 1/1.25 || high > 1.25 {
			t.Errorf("%d devices: more than 1.2 in the median, or 1.25", members)
		}
	}
}

// record is a row of a CSV file by column name.
type record struct {
	t      *testing.T
	header []string
	cells  []string
}

func (r record) number(column string) float64 {
	v, err := strconv.ParseFloat(r.cells[slices.Index(r.header, column)], 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

func (r record) count(column string) int32 { return int32(r.number(column)) }

func gzipRows(t *testing.T, name string) []record {
	t.Helper()
	plain := formatstest.Open(t, name)
	rows, err := csv.NewReader(plain).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var records []record
	for _, cells := range rows[1:] {
		records = append(records, record{t, rows[0], cells})
	}
	return records
}
