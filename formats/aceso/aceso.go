// Package aceso reads plans and operator profiles of the Aceso planner (EuroSys
// 2024; microsoft/SuperScaler branch aceso), as Dazz993/Mist publishes them under
// benchmark/superscaler/results-ref. A plan is a JSON object that says for every
// operator of a GPT how it is parallelised; a profile is a table of times and
// sizes of its operators, one file per micro-batch size, tensor parallelism and
// kernel choice.
package aceso

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"smartswap/formats/internal/decimal"
	"smartswap/sim"
)

// Bounds on input, far above every published plan.
const (
	maxPlan   = 16 << 20 // bytes
	maxLayers = 4096
	maxStages = 1024
	maxDegree = 4096
	maxBatch  = 1 << 20
	maxRows   = 10_000
)

// Plan is a training job cut into pipeline stages. Slices by stage have an entry
// per stage; those of operators inside have one per operator, in order.
type Plan struct {
	Model       string  `json:"model_name"`
	Size        string  `json:"model_size"` // such as "2_6B"
	Layers      int     `json:"num_layers"`
	Seq         int     `json:"seq_length"`
	GlobalBatch int     `json:"global_batch_size"`
	MicroBatch  int     `json:"micro_batch_size"`
	Stages      int     `json:"num_stages"`
	Devices     []int   `json:"num_gpus"`
	Operators   []int   `json:"num_ops_in_each_stage"`
	TP          [][]int `json:"model_parallel_size_of_each_op"`
	DP          [][]int `json:"data_parallel_size_of_each_op"`
	Recompute   [][]int `json:"recompute_ops"` // 1 = computed again in backward
	Choice      [][]int `json:"algo_of_each_op"`
	names       []string
}

// Names are the operators of the whole model, in order: the embedding, thirteen
// for each layer, the last norm, and head with loss.
func (p *Plan) Names() []string { return p.names }

// layer are the operators of a layer.
var layer = []string{
	"enc-1st-layernorm", "enc-attention-qkv", "enc-attention-score", "enc-attention-softmax", "enc-attention-dropout",
	"enc-attention-context", "enc-attention-dense", "enc-post-attention-dropout", "enc-2nd-layernorm", "enc-MLP-GEMM-1",
	"enc-MLP-gelu", "enc-MLP-GEMM-2", "enc-post-MLP-dropout",
}

// ReadPlan reads a plan. Errors are one line with file, key and what is allowed.
func ReadPlan(in io.Reader, file string) (*Plan, error) {
	p := &Plan{}
	text, err := io.ReadAll(io.LimitReader(in, maxPlan+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(text) > maxPlan {
		return nil, fmt.Errorf("%s: want a plan of at most %d bytes", file, maxPlan)
	}
	if err := json.Unmarshal(text, p); err != nil {
		line := 1
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			line += strings.Count(string(text[:min(int(syntax.Offset), len(text))]), "\n")
		case errors.As(err, &kind):
			line += strings.Count(string(text[:min(int(kind.Offset), len(text))]), "\n")
		}
		return nil, fmt.Errorf("%s:%d: %s", file, line, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

func (p *Plan) check() error {
	if p.Model != "gpt" {
		return fmt.Errorf("model_name = %q: want \"gpt\"", p.Model)
	}
	for _, v := range []struct {
		key        string
		value, max int
	}{
		{"num_layers", p.Layers, maxLayers}, {"seq_length", p.Seq, 1 << 24}, {"global_batch_size", p.GlobalBatch, maxBatch},
		{"micro_batch_size", p.MicroBatch, maxBatch}, {"num_stages", p.Stages, maxStages},
	} {
		if v.value < 1 || v.value > v.max {
			return fmt.Errorf("%s = %d: want 1 to %d", v.key, v.value, v.max)
		}
	}
	if p.GlobalBatch%p.MicroBatch != 0 {
		return fmt.Errorf("global_batch_size = %d: want a multiple of micro_batch_size = %d", p.GlobalBatch, p.MicroBatch)
	}
	p.names = append(p.names, "encoder-embedding")
	for range p.Layers {
		p.names = append(p.names, layer...)
	}
	p.names = append(p.names, "final-layernorm", "gpt-post-process")
	if len(p.Devices) != p.Stages {
		return fmt.Errorf("num_gpus: %d entries, want one per stage, %d", len(p.Devices), p.Stages)
	}
	if len(p.Operators) != p.Stages {
		return fmt.Errorf("num_ops_in_each_stage: %d entries, want one per stage, %d", len(p.Operators), p.Stages)
	}
	total := 0
	for s, n := range p.Operators {
		if n < 1 || p.Devices[s] < 1 || p.Devices[s] > maxDegree {
			return fmt.Errorf("stage %d: %d operators on %d devices: want at least one of each, and at most %d devices", s, n, p.Devices[s], maxDegree)
		}
		total += n
	}
	if total != len(p.names) {
		return fmt.Errorf("num_ops_in_each_stage: %d in all, want %d of %d layers", total, len(p.names), p.Layers)
	}
	for _, list := range []struct {
		key    string
		values [][]int
		low    int
		high   int
	}{
		{"model_parallel_size_of_each_op", p.TP, 1, maxDegree}, {"data_parallel_size_of_each_op", p.DP, 1, maxDegree},
		{"recompute_ops", p.Recompute, 0, 1}, {"algo_of_each_op", p.Choice, 0, 15},
	} {
		if len(list.values) != p.Stages {
			return fmt.Errorf("%s: %d lists, want one per stage, %d", list.key, len(list.values), p.Stages)
		}
		for s, values := range list.values {
			if len(values) != p.Operators[s] {
				return fmt.Errorf("%s: stage %d has %d entries, want one per operator, %d", list.key, s, len(values), p.Operators[s])
			}
			for _, v := range values {
				if v < list.low || v > list.high {
					return fmt.Errorf("%s: stage %d has %d: want %d to %d", list.key, s, v, list.low, list.high)
				}
			}
		}
	}
	for s := range p.Stages {
		for k := range p.TP[s] {
			if p.TP[s][k]*p.DP[s][k] != p.Devices[s] {
				return fmt.Errorf("stage %d, operator %d: tensor x data parallelism %d x %d: want %d, the devices of the stage", s, k, p.TP[s][k], p.DP[s][k], p.Devices[s])
			}
			if p.MicroBatch%p.DP[s][k] != 0 {
				return fmt.Errorf("stage %d, operator %d: data parallelism %d: want a divisor of micro_batch_size = %d", s, k, p.DP[s][k], p.MicroBatch)
			}
		}
	}
	return nil
}

// ProfileName is the file of the profile that operator k of stage s was planned
// with, below the folder of profiles.
func (p *Plan) ProfileName(s, k int) string {
	return fmt.Sprintf("%s_%s_mbs%d_tp%d_algo%d.csv", p.Model, p.Size, p.MicroBatch/p.DP[s][k], p.TP[s][k], p.Choice[s][k])
}

// Op is the profile of an operator for one micro-batch on one device.
type Op struct {
	Forward, Backward sim.Time // with the collectives of tensor parallelism
	Input, Output     sim.Bytes
	Weights           sim.Bytes // 16-bit
	Kept              sim.Bytes // activations for the backward pass
	// What the allocator reserved on top while the operator ran.
	ReservedForward, ReservedBackward sim.Bytes
}

// columns of a profile: times in us, sizes in MB of 2^20 bytes.
var columns = []string{"op_name", "forward-compute", "backward-compute", "input_size", "output_size", "weights", "activations", "fwd_reserved", "bwd_reserved"}

// ReadProfile reads a profile: operators by name. Errors are one line with file,
// line, column and what is allowed.
func ReadProfile(in io.Reader, file string) (map[string]Op, error) {
	r := csv.NewReader(in)
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:1: the file is empty; want a header with %s", file, strings.Join(columns, ","))
	}
	if err == nil && !slices.Equal(header, columns) {
		return nil, fmt.Errorf("%s:1: header %q: want %q", file, strings.Join(header, ","), strings.Join(columns, ","))
	}
	ops := map[string]Op{}
	for err == nil {
		var row []string
		if row, err = r.Read(); err != nil {
			break
		}
		line, _ := r.FieldPos(0)
		if len(ops) == maxRows {
			return nil, fmt.Errorf("%s:%d: want at most %d operators", file, line, maxRows)
		}
		var v [9]int64
		for i := 1; i < len(columns); i++ {
			unit := int64(sim.Microsecond)
			if i > 2 {
				unit = int64(sim.MiB)
			}
			n, _, ok := decimal.Parse(row[i], unit)
			if !ok || n < 0 {
				return nil, fmt.Errorf("%s:%d: column %q = %q: want a number of at least 0", file, line, columns[i], row[i])
			}
			v[i] = n
		}
		if _, twice := ops[row[0]]; twice {
			return nil, fmt.Errorf("%s:%d: column \"op_name\" = %q: stands there twice", file, line, row[0])
		}
		ops[row[0]] = Op{sim.Time(v[1]), sim.Time(v[2]), sim.Bytes(v[3]), sim.Bytes(v[4]), sim.Bytes(v[5]), sim.Bytes(v[6]), sim.Bytes(v[7]), sim.Bytes(v[8])}
	}
	if !errors.Is(err, io.EOF) {
		var bad *csv.ParseError
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("%s:%d: %w; want %d columns", file, bad.Line, bad.Err, len(columns))
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(ops) == 0 {
		return nil, fmt.Errorf("%s:1: no operator after the header", file)
	}
	return ops, nil
}
