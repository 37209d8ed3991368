package workloads

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// SaveRule says which tensors operators keep for their backward pass.
type SaveRule string

// Save rules.
const (
	// Minimal keeps what published formulas count: inputs of norms and
	// projections, what attention reads and writes, one number per row of
	// statistics, dropout masks. Queries and keys are kept rotated only.
	// Gated feed-forward parts compute the activation and the product as two
	// operators, so that gate, up, activation and product are all kept: 12h +
	// 4kv + 8f bytes per token and layer. For GPT it is 34h, and 5as more
	// when attention is unfused (arXiv 2205.05198, tables 2 and 3).
	Minimal SaveRule = "minimal"
	// Eager keeps what the Ascend PyTorch stack was seen to keep in a profile
	// of Qwen3-0.6B. Against Minimal it has more around attention, where
	// views keep the fused projection alive (see splitHeads), queries exist
	// before and after rotation and statistics are 64 bytes per head and
	// token; and less in the feed-forward part, where the fused SwiGLU keeps
	// its input and its result, 6f. Whether it is more in all depends on the
	// model: 38.6h against 37.5h for Llama-2 7B, less with wide feed-forward
	// parts and few key-value heads.
	Eager SaveRule = "eager"
)

// AttentionKind is how core attention is computed.
type AttentionKind string

// Attention kinds.
const (
	Fused   AttentionKind = "fused"   // one flash-attention kernel; scores never reach memory
	Unfused AttentionKind = "unfused" // batched products and a softmax over stored scores
)

// RecomputeKind is what backward computes again instead of having kept it.
type RecomputeKind string

// Recomputation kinds, named as in Megatron-LM and MindSpeed.
const (
	NoRecompute        RecomputeKind = "none"
	Selective          RecomputeKind = "selective"           // core attention
	FullUniform        RecomputeKind = "full-uniform"        // whole layers, in groups of N
	FullBlock          RecomputeKind = "full-block"          // the first N layers of each stage
	ActivationFunction RecomputeKind = "activation-function" // the feed-forward activation
)

// Recompute is a recomputation strategy.
type Recompute struct {
	Kind RecomputeKind
	// N is the group size of full-uniform (0 = 1), the number of layers of
	// full-block (1..layers of a stage); 0 for the other kinds.
	N int
}

// Config describes a training job of a decoder transformer. Zero values mean
// the default that each comment states.
type Config struct {
	Model       Model
	Seq         int // tokens per sequence; 0 = Model.Seq
	MicroBatch  int // sequences per micro-batch; 0 = 1
	GlobalBatch int // sequences per optimizer step over all replicas; 0 = MicroBatch x DP

	// TP, PP, DP are the tensor-, pipeline- and data-parallel degrees; 0 = 1.
	// Devices is their product; 0 = the product, whatever it is.
	TP, PP, DP, Devices int
	// SequenceParallel splits norms and dropout over the tensor-parallel
	// ranks too. It has no effect when TP is 1.
	SequenceParallel bool
	// ZeRO is the degree of state sharding over DP: 1 (the default, also for
	// 0) shards optimizer states as Megatron's distributed optimizer does, 3
	// also shards parameters and gradients, layer by layer, as FSDP does.
	ZeRO int

	SaveRule  SaveRule      // "" = minimal
	Attention AttentionKind // "" = fused
	Recompute Recompute     // Kind "" = none

	// Processes vary the iterations, applied in order.
	Processes []Process
	// Unfold simulates every device as a rank of its own. By default the
	// tensor- and data-parallel members of a stage, which run identical
	// programs, are one Rank.
	Unfold bool
}

// maxMicroLayers bounds micro-batches times layers of a stage: a program of
// about 100 million instructions.
const maxMicroLayers = 1 << 20

// withDefaults fills in what zero values stand for.
func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Seq, c.Model.Seq)
	def(&c.MicroBatch, 1)
	def(&c.TP, 1)
	def(&c.PP, 1)
	def(&c.DP, 1)
	if c.TP > 0 && c.TP <= maxDegree && c.PP > 0 && c.PP <= maxDegree && c.DP > 0 && c.DP <= maxDegree {
		def(&c.Devices, c.TP*c.PP*c.DP)
	}
	if c.MicroBatch > 0 && c.MicroBatch <= maxSize && c.DP > 0 && c.DP <= maxDegree {
		def(&c.GlobalBatch, c.MicroBatch*c.DP)
	}
	def(&c.ZeRO, 1)
	if c.SaveRule == "" {
		c.SaveRule = Minimal
	}
	if c.Attention == "" {
		c.Attention = Fused
	}
	if c.Recompute.Kind == "" {
		c.Recompute.Kind = NoRecompute
	}
	if c.Recompute.Kind == FullUniform {
		def(&c.Recompute.N, 1)
	}
	return c
}

// Limits of single values: far above any machine, low enough that products of
// them stay exact.
const (
	maxDegree = 1 << 14
	maxSize   = 1 << 24
)

// Check tells why no workload can be made of c: the key, its value, and what is
// allowed. A configuration that passes makes valid programs.
func (c Config) Check() error { return c.withDefaults().check() }

func (c Config) check() error {
	m := c.Model
	if err := m.check(); err != nil {
		return err
	}
	for _, v := range []struct {
		key        string
		value, max int
	}{
		{"seq", c.Seq, maxSize}, {"micro_batch", c.MicroBatch, maxSize}, {"global_batch", c.GlobalBatch, maxSize},
		{"tp", c.TP, maxDegree}, {"pp", c.PP, maxDegree}, {"dp", c.DP, maxDegree},
	} {
		if v.value < 1 || v.value > v.max {
			return fmt.Errorf("%s %d: must be from 1 to %d", v.key, v.value, v.max)
		}
	}
	micros := c.GlobalBatch / (c.MicroBatch * c.DP)
	layers := m.Layers / c.PP
	switch {
	case c.TP*c.PP*c.DP != c.Devices:
		return fmt.Errorf("tp %d x pp %d x dp %d: the product must be the number of devices, %d", c.TP, c.PP, c.DP, c.Devices)
	case m.KVHeads%c.TP != 0:
		return fmt.Errorf("tp %d: must divide the %d key-value heads of %s", c.TP, m.KVHeads, m.Name)
	case m.FFN%c.TP != 0:
		return fmt.Errorf("tp %d: must divide the feed-forward width %d of %s", c.TP, m.FFN, m.Name)
	case c.SequenceParallel && c.Seq%c.TP != 0:
		return fmt.Errorf("tp %d: with sequence parallelism it must divide seq %d", c.TP, c.Seq)
	case m.Layers%c.PP != 0:
		return fmt.Errorf("pp %d: must divide the %d layers of %s", c.PP, m.Layers, m.Name)
	case m.Style == GPT && c.Seq > m.Seq:
		return fmt.Errorf("seq %d: %s has %d learned positions", c.Seq, m.Name, m.Seq)
	case c.GlobalBatch%(c.MicroBatch*c.DP) != 0:
		return fmt.Errorf("global_batch %d: must be a multiple of micro_batch x dp = %d", c.GlobalBatch, c.MicroBatch*c.DP)
	case micros > maxMicroLayers/layers:
		return fmt.Errorf("global_batch %d: gives %d micro-batches of %d layers, more than %d together", c.GlobalBatch, micros, layers, maxMicroLayers)
	case int64(c.Seq)*int64(c.MicroBatch) > math.MaxInt32/int64(max(m.Heads, 16)):
		return fmt.Errorf("seq %d x micro_batch %d: too many tokens in one micro-batch", c.Seq, c.MicroBatch)
	case c.ZeRO != 1 && c.ZeRO != 3:
		return fmt.Errorf("zero %d: must be 1 or 3", c.ZeRO)
	case c.ZeRO == 3 && c.PP > 1:
		return fmt.Errorf("pp %d: must be 1 with zero 3", c.PP)
	case c.ZeRO == 3 && c.DP == 1:
		return fmt.Errorf("dp 1: must be at least 2 with zero 3")
	}
	if err := oneOf("save_rule", c.SaveRule, Minimal, Eager); err != nil {
		return err
	}
	if err := oneOf("attention", c.Attention, Fused, Unfused); err != nil {
		return err
	}
	if err := oneOf("recompute", c.Recompute.Kind, NoRecompute, Selective, FullUniform, FullBlock, ActivationFunction); err != nil {
		return err
	}
	switch n := c.Recompute.N; c.Recompute.Kind {
	case FullUniform, FullBlock:
		if n < 1 || n > layers {
			return fmt.Errorf("recompute %s, n %d: must be from 1 to the %d layers of a stage", c.Recompute.Kind, n, layers)
		}
	default:
		if n != 0 {
			return fmt.Errorf("recompute %s, n %d: must be 0", c.Recompute.Kind, n)
		}
	}
	for _, p := range c.Processes {
		if err := p.Check(); err != nil {
			return err
		}
	}
	return nil
}

// check guards models that a user describes; the built-in ones pass.
func (m Model) check() error {
	for _, v := range []struct {
		key        string
		value, max int
	}{
		{"layers", m.Layers, 1 << 12}, {"hidden", m.Hidden, 1 << 17}, {"ffn", m.FFN, 1 << 19}, {"heads", m.Heads, 1 << 12},
		{"kv_heads", m.KVHeads, 1 << 12}, {"head_dim", m.HeadDim, 1 << 12}, {"vocab", m.Vocab, 1 << 22}, {"seq", m.Seq, maxSize},
	} {
		if v.value < 1 || v.value > v.max {
			return fmt.Errorf("model %q: %s %d: must be from 1 to %d", m.Name, v.key, v.value, v.max)
		}
	}
	switch {
	case m.Heads%m.KVHeads != 0:
		return fmt.Errorf("model %q: kv_heads %d: must divide heads %d", m.Name, m.KVHeads, m.Heads)
	case m.Style > GPT:
		return fmt.Errorf("model %q: style %d: must be %d (Llama) or %d (GPT)", m.Name, m.Style, Llama, GPT)
	case m.Style == GPT && (m.QKVBias || m.QKNorm):
		return fmt.Errorf("model %q: qkv_bias and qk_norm are for Llama-style models", m.Name)
	}
	return nil
}

func oneOf[T ~string](key string, value T, allowed ...T) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return fmt.Errorf("%s %q: must be one of %s", key, value, strings.Join(names, ", "))
}
