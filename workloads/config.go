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
	// full-block (1..layers of a stage, counted through its chunks); 0 for
	// the other kinds. Groups do not cross chunks.
	N int
	// Activation, with full-block, computes the feed-forward activation of
	// the other layers again too, as activation-function does.
	Activation bool
}

func (r Recompute) withDefaults() Recompute {
	if r.Kind == "" {
		r.Kind = NoRecompute
	}
	if r.Kind == FullUniform && r.N == 0 {
		r.N = 1
	}
	return r
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
	// VPP is the number of model chunks of a pipeline stage (virtual pipeline
	// size); 0 = 1. Stage s of PP has layers of chunk c that lie where stage
	// c x PP + s of a pipeline VPP times as long would have them, which
	// shortens the bubble by VPP and costs memory on the first stages
	// (arXiv 2104.04473 section 2.2).
	VPP int
	// SequenceParallel splits norms and dropout over the tensor-parallel
	// ranks too. It has no effect when TP is 1.
	SequenceParallel bool
	// ZeRO is the degree of state sharding over DP: 1 (the default, also for
	// 0) shards optimizer states as Megatron's distributed optimizer does, 3
	// also shards parameters and gradients, layer by layer, as FSDP does.
	ZeRO int

	// Replicated keeps whole optimizer states on every replica and all-reduces
	// gradients, in place of ZeRO.
	Replicated bool

	Framework Framework     // "" = megatron-core
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
// about 12 million instructions.
const maxMicroLayers = 1 << 17

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
	def(&c.VPP, 1)
	if c.TP > 0 && c.TP <= maxDegree && c.PP > 0 && c.PP <= maxDegree && c.DP > 0 && c.DP <= maxDegree {
		def(&c.Devices, c.TP*c.PP*c.DP)
	}
	if c.MicroBatch > 0 && c.MicroBatch <= maxSize && c.DP > 0 && c.DP <= maxDegree {
		def(&c.GlobalBatch, c.MicroBatch*c.DP)
	}
	def(&c.ZeRO, 1)
	if c.Framework == "" {
		c.Framework = MegatronCore
	}
	if c.SaveRule == "" {
		c.SaveRule = Minimal
	}
	if c.Attention == "" {
		c.Attention = Fused
	}
	c.Recompute = c.Recompute.withDefaults()
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
		{"tp", c.TP, maxDegree}, {"pp", c.PP, maxDegree}, {"dp", c.DP, maxDegree}, {"vpp", c.VPP, maxDegree},
	} {
		if v.value < 1 || v.value > v.max {
			return fmt.Errorf("%s %d: must be from 1 to %d", v.key, v.value, v.max)
		}
	}
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
	case m.biased() && c.Seq > m.Seq:
		return fmt.Errorf("seq %d: %s has %d learned positions", c.Seq, m.Name, m.Seq)
	case c.GlobalBatch%(c.MicroBatch*c.DP) != 0:
		return fmt.Errorf("global_batch %d: must be a multiple of micro_batch x dp = %d", c.GlobalBatch, c.MicroBatch*c.DP)
	case c.VPP > 1 && c.PP == 1:
		return fmt.Errorf("vpp %d: must be 1 with pp 1", c.VPP)
	case m.Layers%(c.PP*c.VPP) != 0:
		return fmt.Errorf("pp %d x vpp %d: must divide the %d layers of %s", c.PP, c.VPP, m.Layers, m.Name)
	case c.VPP > 1 && c.micros()%c.PP != 0:
		return fmt.Errorf("global_batch %d: gives %d micro-batches, with vpp %d they must be a multiple of pp %d", c.GlobalBatch, c.micros(), c.VPP, c.PP)
	case int64(c.Seq)*int64(c.MicroBatch) > math.MaxInt32/int64(max(m.Heads, 16, m.Experts)):
		return fmt.Errorf("seq %d x micro_batch %d: too many tokens in one micro-batch", c.Seq, c.MicroBatch)
	case c.ZeRO != 1 && c.ZeRO != 3:
		return fmt.Errorf("zero %d: must be 1 or 3", c.ZeRO)
	case c.ZeRO == 3 && c.PP > 1:
		return fmt.Errorf("pp %d: must be 1 with zero 3", c.PP)
	case c.ZeRO == 3 && c.DP == 1:
		return fmt.Errorf("dp 1: must be at least 2 with zero 3")
	}
	if err := c.checkFramework(); err != nil {
		return err
	}
	if err := c.checkMicros(fmt.Sprintf("global_batch %d", c.GlobalBatch), c.micros()); err != nil {
		return err
	}
	if err := oneOf("save_rule", c.SaveRule, Minimal, Eager); err != nil {
		return err
	}
	if err := oneOf("attention", c.Attention, Fused, Unfused); err != nil {
		return err
	}
	if err := c.checkRecompute(c.Recompute); err != nil {
		return err
	}
	for _, p := range c.Processes {
		if err := p.Check(c); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkFramework() error {
	if err := oneOf("framework", c.Framework, MegatronCore, Megatron2021, Megatron2022); err != nil {
		return err
	}
	if c.Replicated && c.ZeRO == 3 {
		return fmt.Errorf("zero 3: must be 1 where states are replicated")
	}
	if c.Framework == MegatronCore {
		return nil
	}
	switch {
	case !c.Model.biased():
		return fmt.Errorf("framework %s: must be %s for %s, which is not a GPT with biases", c.Framework, MegatronCore, c.Model.Name)
	case c.SequenceParallel && c.Framework == Megatron2021:
		return fmt.Errorf("framework %s: must be %s or %s with sequence parallelism", c.Framework, Megatron2022, MegatronCore)
	case c.ZeRO == 3:
		return fmt.Errorf("framework %s: must be %s with zero 3", c.Framework, MegatronCore)
	case c.adapterRank() > 0:
		return fmt.Errorf("framework %s: must be %s with adapters", c.Framework, MegatronCore)
	}
	return nil
}

// micros is the number of micro-batches of a replica.
func (c *Config) micros() int { return c.GlobalBatch / (c.MicroBatch * c.DP) }

// checkMicros tells whether so many micro-batches, as key asks for, are too many
// for one program.
func (c *Config) checkMicros(key string, micros int) error {
	if layers := c.Model.Layers / c.PP; micros < 1 || micros > maxMicroLayers/layers {
		return fmt.Errorf("%s: gives %d micro-batches of %d layers: must be at least one and at most %d together", key, micros, layers, maxMicroLayers)
	}
	return nil
}

func (c *Config) checkRecompute(r Recompute) error {
	if err := oneOf("recompute", r.Kind, NoRecompute, Selective, FullUniform, FullBlock, ActivationFunction); err != nil {
		return err
	}
	least, most := 0, 0
	switch r.Kind {
	case FullUniform:
		least, most = 1, c.Model.Layers/(c.PP*c.VPP)
	case FullBlock:
		least, most = 1, c.Model.Layers/c.PP
	}
	switch {
	case r.Activation && r.Kind != FullBlock:
		return fmt.Errorf("recompute %s with activation: only full-block can have it", r.Kind)
	case most == 0 && r.N != 0:
		return fmt.Errorf("recompute %s, n %d: must be 0", r.Kind, r.N)
	case r.N < least || r.N > most:
		return fmt.Errorf("recompute %s, n %d: must be from 1 to the %d layers of a stage", r.Kind, r.N, most)
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
	case m.Experts < 0 || m.Experts > 1<<10 || m.Experts > 0 && (m.TopK < 1 || m.TopK > m.Experts) || m.Experts == 0 && m.TopK != 0:
		return fmt.Errorf("model %q: experts %d, top_k %d: experts must be from 0 to %d, top_k from 1 to experts", m.Name, m.Experts, m.TopK, 1<<10)
	case m.Style == GPT && m.Experts > 0:
		return fmt.Errorf("model %q: experts are for Llama-style models", m.Name)
	case m.Style != GPT && m.Bare:
		return fmt.Errorf("model %q: bare is for GPT-style models", m.Name)
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
