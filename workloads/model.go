package workloads

import (
	"fmt"
	"strings"

	"smartswap/internal/nearest"
)

// Model is the architecture of a decoder transformer: what fixes its tensors'
// shapes. Two lineages differ in Style.
type Model struct {
	Name    string
	Style   Style
	Layers  int
	Hidden  int
	FFN     int // width of the feed-forward part, of each half when gated
	Heads   int
	KVHeads int // key and value heads; divides Heads
	HeadDim int // Heads x HeadDim is usually, but not always, Hidden
	Vocab   int
	Seq     int // tokens of a sequence the model was published with

	// Experts is the number of feed-forward parts of a layer, of width FFN
	// each, of which a router picks TopK for every token; 0 = one part and no
	// router. Llama style only.
	Experts, TopK int

	QKVBias bool // Qwen2.5: a bias on the query, key and value projections only
	QKNorm  bool // Qwen3: queries and keys are normalised per head
	Tied    bool // the output head uses the embedding table
	Bare    bool // MPT: GPT style without biases, dropout and learned positions
}

// Style is the lineage of a model.
type Style uint8

// Styles.
const (
	// Llama: RMS norm, rotary positions, SwiGLU, no biases, no dropout.
	Llama Style = iota
	// GPT: layer norm, learned positions, GELU, biases everywhere, dropout.
	GPT
)

// biased tells whether m has what bare leaves out: biases throughout, dropout and
// learned positions.
func (m Model) biased() bool { return m.Style == GPT && !m.Bare }

// models holds the known models. Sources: Llama from meta-llama/llama and
// torchtune models/{llama2,llama3}/_model_builders.py; Qwen from the config.json
// of each model and torchtune models/{qwen2,qwen2_5}; GPT-3 from table 2.1 of
// arXiv 2005.14165, whose 13B row has 5,140 hidden units but 40 heads of 128. Its
// 1.3B row says 24 heads of 128 for 2,048 hidden units, which would make 1.5 billion
// parameters; 16 heads give the nominal size and are what others built.
// Mixtral from mistralai/mistral-inference and its config.json, with the sequence
// of Megatron-LM examples/mixtral. GPT-3 ties its head to the embedding, as openai/gpt-2 src/model.py does.
// Megatron 22B, 530B and 1T from arXiv 2205.05198 table 3; MPT from the yaml files
// of mosaicml/llm-foundry scripts/train.
var models = []Model{
	{Name: "llama2-7b", Layers: 32, Hidden: 4096, FFN: 11008, Heads: 32, KVHeads: 32, HeadDim: 128, Vocab: 32000, Seq: 4096},
	{Name: "llama2-13b", Layers: 40, Hidden: 5120, FFN: 13824, Heads: 40, KVHeads: 40, HeadDim: 128, Vocab: 32000, Seq: 4096},
	{Name: "llama2-70b", Layers: 80, Hidden: 8192, FFN: 28672, Heads: 64, KVHeads: 8, HeadDim: 128, Vocab: 32000, Seq: 4096},
	{Name: "llama3-8b", Layers: 32, Hidden: 4096, FFN: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256, Seq: 8192},
	{Name: "llama3-70b", Layers: 80, Hidden: 8192, FFN: 28672, Heads: 64, KVHeads: 8, HeadDim: 128, Vocab: 128256, Seq: 8192},
	{Name: "qwen2.5-7b", Layers: 28, Hidden: 3584, FFN: 18944, Heads: 28, KVHeads: 4, HeadDim: 128, Vocab: 152064, Seq: 32768, QKVBias: true},
	{Name: "qwen2.5-14b", Layers: 48, Hidden: 5120, FFN: 13824, Heads: 40, KVHeads: 8, HeadDim: 128, Vocab: 152064, Seq: 32768, QKVBias: true},
	{Name: "qwen2.5-72b", Layers: 80, Hidden: 8192, FFN: 29568, Heads: 64, KVHeads: 8, HeadDim: 128, Vocab: 152064, Seq: 32768, QKVBias: true},
	{Name: "qwen3-0.6b", Layers: 28, Hidden: 1024, FFN: 3072, Heads: 16, KVHeads: 8, HeadDim: 128, Vocab: 151936, Seq: 4096, QKNorm: true, Tied: true},
	{Name: "mixtral-8x7b", Layers: 32, Hidden: 4096, FFN: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 32000, Seq: 4096, Experts: 8, TopK: 2},
	gpt3("gpt3-125m", 12, 768, 12, 64),
	gpt3("gpt3-350m", 24, 1024, 16, 64),
	gpt3("gpt3-760m", 24, 1536, 16, 96),
	gpt3("gpt3-1.3b", 24, 2048, 16, 128),
	gpt3("gpt3-2.7b", 32, 2560, 32, 80),
	gpt3("gpt3-6.7b", 32, 4096, 32, 128),
	gpt3("gpt3-13b", 40, 5140, 40, 128),
	gpt3("gpt3-175b", 96, 12288, 96, 128),
	megatron("megatron-22b", 48, 6144, 64),
	megatron("megatron-530b", 105, 20480, 128),
	megatron("megatron-1t", 128, 25600, 160),
	mpt("mpt-1b", 24, 2048, 16),
	mpt("mpt-3b", 32, 2560, 32),
	mpt("mpt-7b", 32, 4096, 32),
	mpt("mpt-13b", 40, 5120, 40),
	mpt("mpt-30b", 48, 7168, 56),
}

func gpt3(name string, layers, hidden, heads, headDim int) Model {
	return Model{Name: name, Style: GPT, Layers: layers, Hidden: hidden, FFN: 4 * hidden, Heads: heads, KVHeads: heads,
		HeadDim: headDim, Vocab: 50257, Seq: 2048, Tied: true}
}

func megatron(name string, layers, hidden, heads int) Model {
	m := gpt3(name, layers, hidden, heads, hidden/heads)
	m.Vocab = 51200
	return m
}

func mpt(name string, layers, hidden, heads int) Model {
	m := gpt3(name, layers, hidden, heads, hidden/heads)
	m.Vocab, m.Bare = 50368, true
	return m
}

// Models lists the names that LookupModel knows, in the order of the table.
func Models() []string {
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Name
	}
	return names
}

// LookupModel finds a model by name. The error of an unknown name says the
// nearest one and all of them.
func LookupModel(name string) (Model, error) {
	for _, m := range models {
		if m.Name == name {
			return m, nil
		}
	}
	names := Models()
	return Model{}, fmt.Errorf("model %q: unknown, did you mean %q? known: %s", name, nearest.Name(name, names), strings.Join(names, ", "))
}

// Params is the exact number of parameters, tensor by tensor.
func (m Model) Params() int64 {
	n := int64(0)
	for l := 0; l <= m.Layers+1; l++ {
		for _, t := range m.tensors(l, 1, 0) {
			n += t.elements()
		}
	}
	if m.Tied {
		n -= int64(m.Vocab) * int64(m.Hidden) // tensors lists the shared table twice
	}
	return n
}

// queryWidth and kvWidth are the widths of all query heads and of all key (or
// value) heads.
func (m Model) queryWidth() int { return m.Heads * m.HeadDim }
func (m Model) kvWidth() int    { return m.KVHeads * m.HeadDim }

// upWidth is the width of the feed-forward part's first projection: gate and up
// side by side in one matrix when gated.
func (m Model) upWidth() int {
	if m.Style == Llama {
		return 2 * m.FFN
	}
	return m.FFN
}

// tensor is one parameter tensor as one tensor-parallel rank holds it.
type tensor struct {
	name       NameID // one of the parameter names
	expert     int    // whose it is, if it is an expert's
	rows, cols int    // cols is 1 for a vector
}

func (t tensor) elements() int64 { return int64(t.rows) * int64(t.cols) }

// tensors lists the parameter tensors of part l with tensor parallelism tp:
// part 0 is the embedding, 1..Layers are the layers, Layers+1 is the final norm
// and the head. Matrices are split by tp, and so are the biases of
// column-parallel projections; norms and the other biases are whole on every
// rank. The vocabulary is padded to a multiple of tp. Adapters of the given rank
// (0 = none) are split where they meet the split side of their projection.
func (m Model) tensors(l, tp, adapter int) []tensor {
	var list []tensor
	add := func(present bool, name NameID, rows, cols int) {
		if present {
			list = append(list, tensor{name: name, rows: rows, cols: cols})
		}
	}
	h, gpt := m.Hidden, m.biased()
	vocab := (m.Vocab + tp - 1) / tp
	switch l {
	case 0:
		add(true, pEmbedding, vocab, h)
		add(gpt, pPositions, m.Seq, h)
		return list
	case m.Layers + 1:
		add(true, pFinalNorm, h, 1)
		add(gpt, pFinalNormBias, h, 1)
		add(true, pHead, vocab, h)
		return list
	}
	qkv := (m.queryWidth() + 2*m.kvWidth()) / tp
	up := m.upWidth() / tp
	add(true, pNorm1, h, 1)
	add(gpt, pNorm1Bias, h, 1)
	add(true, pQKV, qkv, h)
	add(gpt || m.QKVBias, pQKVBias, qkv, 1)
	add(m.QKNorm, pQueryNorm, m.HeadDim, 1)
	add(m.QKNorm, pKeyNorm, m.HeadDim, 1)
	add(true, pProj, h, m.queryWidth()/tp)
	add(gpt, pProjBias, h, 1)
	add(true, pNorm2, h, 1)
	add(gpt, pNorm2Bias, h, 1)
	add(m.Experts == 0, pUp, up, h)
	add(gpt, pUpBias, up, 1)
	add(m.Experts == 0, pDown, h, m.FFN/tp)
	add(gpt, pDownBias, h, 1)
	add(m.Experts > 0, pRouter, m.Experts, h)
	for e := range m.Experts {
		list = append(list, tensor{pExpertUp, e, up, h}, tensor{pExpertDown, e, h, m.FFN / tp})
	}
	add(adapter > 0, pQKVAdapterDown, adapter, h)
	add(adapter > 0, pQKVAdapterUp, qkv, adapter)
	add(adapter > 0, pProjAdapterDown, adapter, m.queryWidth()/tp)
	add(adapter > 0, pProjAdapterUp, h, adapter)
	return list
}
