package workloads

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"smartswap/sim"
)

// Variation of what the model computes: which layers and experts, what trains,
// what is computed again.

// Routing spreads the tokens of a micro-batch over experts: each expert of each
// layer has a popularity, drawn anew for every micro-batch, whose logarithm has
// the standard deviation Skew. The zero value spreads evenly.
type Routing struct {
	Skew      float64
	Seed      uint64
	Iteration int
	Replica   int
}

// split is how many of the tokens x topK rows each expert gets; a token goes to
// topK different experts, so that no expert gets more than all tokens. There
// is no capacity: no row is dropped.
func (r Routing) split(tokens, topK, micro, layer, experts int) []int {
	weights := make([]float64, experts)
	stream := sim.NewStream(r.Seed, "routing")
	for e := range weights {
		weights[e] = 1
		if r.Skew > 0 {
			key := (int64(micro)<<16|int64(layer))<<16 | int64(e)
			weights[e] = math.Exp(r.Skew * stream.Normal(r.Replica, r.Iteration, key))
		}
	}
	// The most popular first: what is over all tokens goes to the others.
	order := make([]int, experts)
	for e := range order {
		order[e] = e
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	sum := 0.0
	for _, e := range order {
		sum += weights[e]
	}
	rows := make([]int, experts)
	left := tokens * topK
	for i, e := range order {
		n := int(math.Round(float64(left) * weights[e] / sum))
		others := (experts - i - 1) * tokens // room that is left after this one
		rows[e] = min(max(n, left-others), tokens, left)
		left -= rows[e]
		sum -= weights[e]
	}
	return rows
}

// Imbalance of experts: it is large at first and settles as training goes on
// (arXiv 2404.16914). The figures are assumed: a popularity of e^0.8, or 2.2
// times, the usual one is within one standard deviation at first, e^0.2 in the
// end.
const (
	ImbalanceStart = 0.8
	ImbalanceEnd   = 0.2
	ImbalanceTau   = 1000
)

// ExpertImbalance sends different numbers of tokens to the experts of a
// mixture-of-experts model in every micro-batch and layer, so that their tensors
// change size and operators of an expert without tokens vanish. The skew falls
// exponentially from Start to End.
type ExpertImbalance struct {
	Start, End float64 // standard deviation of the logarithm of popularity, 0..4
	Tau        int     // iterations in which the difference falls to 1/e, >= 1
	Seed       uint64
}

// Apply implements Process.
func (p ExpertImbalance) Apply(iteration, replica int, v *Variant) {
	if skew := p.End + (p.Start-p.End)*math.Exp(-float64(iteration)/float64(p.Tau)); skew > 0 {
		v.Routing = Routing{Skew: skew, Seed: p.Seed, Iteration: iteration, Replica: replica}
	}
}

// Check implements Process.
func (p ExpertImbalance) Check(c Config) error {
	for _, skew := range []float64{p.Start, p.End} {
		if !(skew >= 0 && skew <= 4) {
			return fmt.Errorf("experts.start %v, experts.end %v: must be from 0 to 4", p.Start, p.End)
		}
	}
	if c.Model.Experts == 0 {
		return fmt.Errorf("experts: %s has no experts", c.Model.Name)
	}
	return checkEvery("experts.tau", p.Tau, 1)
}

// LayerDrop is the share of layers that LayerDrop leaves out (arXiv 1909.11556
// section 4: 0.2).
const LayerDrop = 0.2

// StochasticDepth leaves layers out, drawn for each micro-batch: the last one
// with the given probability, earlier ones in proportion to their depth (Huang
// et al., arXiv 1603.09382 section 3). The micro-batch passes them unchanged.
type StochasticDepth struct {
	Probability float64 // of the last layer, 0..1
	Seed        uint64
}

// Apply implements Process.
func (p StochasticDepth) Apply(iteration, _ int, v *Variant) {
	s := sim.NewStream(p.Seed, "depth")
	for i := range v.Micros {
		for l := 1; l <= v.Layers; l++ {
			if s.Bernoulli(0, iteration, int64(i)<<16|int64(l), p.Probability*float64(l)/float64(v.Layers)) {
				v.Micros[i].Without = v.Micros[i].Without.Add(l)
			}
		}
	}
}

// Check implements Process.
func (p StochasticDepth) Check(Config) error {
	return checkProbability("depth.probability", p.Probability)
}

// ExitProbability is how often a micro-batch leaves early by default: assumed.
const ExitProbability = 0.25

// EarlyExit lets a micro-batch, with a probability, leave the model after layer
// After: the branch to the head is taken there and the layers behind it do not
// run. Under pipeline parallelism the later stages only pass it on.
type EarlyExit struct {
	After       int     // 0..the model's layers; 0 = after half of them
	Probability float64 // per micro-batch, 0..1
	Seed        uint64
}

// Apply implements Process.
func (p EarlyExit) Apply(iteration, _ int, v *Variant) {
	after := p.After
	if after == 0 {
		after = v.Layers / 2
	}
	s := sim.NewStream(p.Seed, "exit")
	for i := range v.Micros {
		if !s.Bernoulli(0, iteration, int64(i), p.Probability) {
			continue
		}
		for l := after + 1; l <= v.Layers; l++ {
			v.Micros[i].Without = v.Micros[i].Without.Add(l)
		}
	}
}

// Check implements Process.
func (p EarlyExit) Check(c Config) error {
	if p.After < 0 || p.After > c.Model.Layers {
		return fmt.Errorf("exit.after %d: must be from 1 to the %d layers of %s, or 0 for half of them", p.After, c.Model.Layers, c.Model.Name)
	}
	return checkProbability("exit.probability", p.Probability)
}

// LoRARank is a usual rank of adapters (Hu et al., arXiv 2106.09685 section 7.2:
// 4 to 64, 8 being enough).
const LoRARank = 8

// maxRank bounds the rank of adapters.
const maxRank = 1024

// LoRA switches between training everything and training low-rank adapters on
// both projections of attention while the rest is frozen (Hu et al., arXiv
// 2106.09685): adapters train from iteration At to iteration Until. Frozen
// parameters have no weight gradients and no optimizer step, and what only their
// gradients would need is not kept. Gradient buffers and optimizer states of
// both stages are resident all the time. Not with ZeRO-3.
type LoRA struct {
	Rank      int // 1..1,024
	At, Until int // iterations, 0 <= At; Until 0 = the end of the run
}

// Apply implements Process.
func (p LoRA) Apply(iteration, _ int, v *Variant) {
	v.Adapters = iteration >= p.At && (p.Until == 0 || iteration < p.Until)
}

// Check implements Process.
func (p LoRA) Check(c Config) error {
	others := 0
	for _, q := range c.Processes {
		if _, ok := q.(LoRA); ok {
			others++
		}
	}
	switch {
	case p.Rank < 1 || p.Rank > maxRank:
		return fmt.Errorf("lora.rank %d: must be from 1 to %d", p.Rank, maxRank)
	case p.Until != 0 && p.Until <= p.At:
		return fmt.Errorf("lora.until %d: must be after lora.at %d, or 0 for never", p.Until, p.At)
	case c.ZeRO == 3:
		return fmt.Errorf("zero 3: must be 1 with lora")
	case others > 1:
		return fmt.Errorf("lora: given %d times, must be once", others)
	}
	return checkEvery("lora.at", p.At, 0)
}

// RecomputeToggle uses another recomputation strategy before iteration At, as a
// run does that measures first and then decides what to keep (MindSpeed
// adaptive recomputation profiles until step 10).
type RecomputeToggle struct {
	At     int // iteration, >= 0
	Before Recompute
}

// RecomputeAt is when MindSpeed's adaptive recomputation decides.
const RecomputeAt = 10

// Apply implements Process.
func (p RecomputeToggle) Apply(iteration, _ int, v *Variant) {
	if iteration < p.At {
		v.Recompute = p.Before.withDefaults()
	}
}

// Check implements Process.
func (p RecomputeToggle) Check(c Config) error {
	if err := c.checkRecompute(p.Before.withDefaults()); err != nil {
		return err
	}
	return checkEvery("recompute.at", p.At, 0)
}
