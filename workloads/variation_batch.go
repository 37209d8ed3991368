package workloads

import (
	"fmt"
	"math"
	"slices"

	"smartswap/sim"
)

// Variation of what an iteration trains on: how many micro-batches, how long
// their sequences, what is packed into them.

// RampEvery is how many iterations lay between two steps of BLOOM's batch ramp
// at its start: about 440, as 192 grew by 16 sequences every 84,000 samples
// (BigScience, train/tr11-176B-ml/README.md).
const RampEvery = 440

// BatchRamp grows the batch, which changes how many micro-batches accumulate:
// From at first, Step more every Every iterations, until the configured number
// is reached. All numbers are micro-batches of a replica.
type BatchRamp struct {
	From  int // 1..the configured number
	Step  int // >= 1
	Every int // iterations, >= 1
}

// Apply implements Process.
func (p BatchRamp) Apply(iteration, _ int, v *Variant) {
	full := len(v.Micros)
	if steps := iteration / p.Every; steps < (full-p.From+p.Step-1)/p.Step {
		v.Micros = v.Micros[:min(full, p.From+steps*p.Step)]
	}
}

// Check implements Process.
func (p BatchRamp) Check(c Config) error {
	switch {
	case p.From < 1 || p.From > c.micros():
		return fmt.Errorf("ramp.from %d: must be from 1 to the %d micro-batches of a replica", p.From, c.micros())
	case p.Step < 1:
		return fmt.Errorf("ramp.step %d: must be at least 1", p.Step)
	case c.VPP > 1 && (p.From%c.PP != 0 || p.Step%c.PP != 0):
		return fmt.Errorf("ramp.from %d, ramp.step %d: must be multiples of pp %d with vpp %d", p.From, p.Step, c.PP, c.VPP)
	}
	return checkEvery("ramp.every", p.Every, 1)
}

// UnevenTail gives the last micro-batch of every Every-th iteration fewer
// sequences than the others: 48 rows in micro-batches of 11 leave 4 (the example
// of llm-foundry, where Every is 1), and so does the end of an epoch. Such an
// iteration trains on that much less.
type UnevenTail struct {
	Sequences int // of the last micro-batch, 1..the configured number - 1
	Every     int // iterations, >= 1
}

// Apply implements Process.
func (p UnevenTail) Apply(iteration, _ int, v *Variant) {
	if m := &v.Micros[len(v.Micros)-1]; due(iteration, p.Every) && m.Sequences > p.Sequences {
		m.Sequences, m.Pairs = p.Sequences, 0
	}
}

// Check implements Process.
func (p UnevenTail) Check(c Config) error {
	if p.Sequences < 1 || p.Sequences >= c.MicroBatch {
		return fmt.Errorf("tail.sequences %d: must be at least 1 and less than micro_batch %d", p.Sequences, c.MicroBatch)
	}
	return checkEvery("tail.every", p.Every, 1)
}

// LengthSigma spreads lengths so that one in a hundred sequences is eight times
// as long as the median: ln 8 over 2.326, the 99th percentile of the normal
// distribution. The ratio is assumed; that lengths are long-tailed is shown in
// arXiv 2412.07894, 2502.21231 and 2505.19609.
const LengthSigma = 0.894

// Lengths is a long-tailed distribution of lengths: log-normal, cut off at the
// configured sequence.
type Lengths struct {
	Median int     // tokens; 0 = an eighth of the configured sequence
	Sigma  float64 // standard deviation of the logarithm, 0..4
	Seed   uint64
}

// draw is the length of sequence k of a micro-batch, 1..limit tokens.
func (l Lengths) draw(s sim.Stream, iteration, replica, micro, k, limit int) int {
	median := float64(l.Median)
	if l.Median == 0 {
		median = float64(limit) / 8
	}
	n := math.Round(median * math.Exp(l.Sigma*s.Normal(replica, iteration, int64(micro)<<32|int64(k))))
	return int(min(max(n, 1), float64(limit)))
}

func (l Lengths) check(process string, c Config) error {
	switch {
	case l.Median < 0 || l.Median > c.Seq:
		return fmt.Errorf("%s.median %d: must be from 1 to seq %d, or 0 for an eighth of it", process, l.Median, c.Seq)
	case !(l.Sigma >= 0 && l.Sigma <= 4):
		return fmt.Errorf("%s.sigma %v: must be from 0 to 4", process, l.Sigma)
	}
	return nil
}

// VariableLength draws a length for every sequence and puts the sequences of a
// micro-batch one after the other, without padding, as fine-tuning and
// multimodal training do; attention stays inside each. Nearly every tensor has
// another size in every micro-batch, so that no two iterations are equal.
// Unfused attention masks the whole row instead.
type VariableLength struct{ Lengths }

// Apply implements Process.
func (p VariableLength) Apply(iteration, replica int, v *Variant) {
	s := sim.NewStream(p.Seed, "lengths")
	for i := range v.Micros {
		m := &v.Micros[i]
		tokens, pairs := 0, int64(0)
		for k := range m.Sequences {
			n := p.draw(s, iteration, replica, i, k, m.Seq)
			tokens += n
			pairs += int64(n) * int64(n)
		}
		m.Sequences, m.Seq, m.Pairs = 1, tokens, pairs
	}
}

// Check implements Process.
func (p VariableLength) Check(c Config) error { return p.check("lengths", c) }

// PadMultiple is what dynamic padding pads to by default: the multiple that
// tensor cores want (Hugging Face DataCollatorWithPadding, pad_to_multiple_of).
const PadMultiple = 8

// DynamicPadding draws a length for every sequence and pads the sequences of a
// micro-batch to the longest of them, rounded up to a multiple.
type DynamicPadding struct {
	Lengths
	Multiple int // tokens, 1..the configured sequence
}

// Apply implements Process.
func (p DynamicPadding) Apply(iteration, replica int, v *Variant) {
	s := sim.NewStream(p.Seed, "lengths")
	for i := range v.Micros {
		m := &v.Micros[i]
		longest := 0
		for k := range m.Sequences {
			longest = max(longest, p.draw(s, iteration, replica, i, k, m.Seq))
		}
		m.Seq = min((longest+p.Multiple-1)/p.Multiple*p.Multiple, m.Seq)
		m.Pairs = 0
	}
}

// Check implements Process.
func (p DynamicPadding) Check(c Config) error {
	if p.Multiple < 1 || p.Multiple > c.Seq {
		return fmt.Errorf("padding.multiple %d: must be from 1 to seq %d", p.Multiple, c.Seq)
	}
	return p.check("padding", c)
}

// PackedSegments fills every sequence with documents of drawn lengths, the last
// one cut short, between which attention is masked: shapes stay, the work of
// fused attention varies (Megatron-LM --reset-attention-mask).
type PackedSegments struct{ Lengths }

// Apply implements Process.
func (p PackedSegments) Apply(iteration, replica int, v *Variant) {
	s := sim.NewStream(p.Seed, "segments")
	for i := range v.Micros {
		m := &v.Micros[i]
		pairs, k := int64(0), 0
		for range m.Sequences {
			for left := m.Seq; left > 0; k++ {
				n := min(p.draw(s, iteration, replica, i, k, m.Seq), left)
				left -= n
				pairs += int64(n) * int64(n)
			}
		}
		m.Pairs = pairs
	}
}

// Check implements Process.
func (p PackedSegments) Check(c Config) error { return p.check("packing", c) }

// ContextBefore is the shorter context that Llama-3 was trained with before its
// last stage (arXiv 2407.21783 section 3.4.2: from 8K to 128K tokens).
const ContextBefore = 8192

// SwitchAt is the iteration at which a run changes its stage by default: assumed,
// half of the 200 iterations of an experiment. Real stages last many thousands.
const SwitchAt = 100

// ContextSwitch trains with shorter sequences before iteration At: sequences of
// Before tokens, and as many more micro-batches as keep the tokens of a step.
type ContextSwitch struct {
	At     int // iteration, >= 0
	Before int // tokens; divides the configured sequence
}

// Apply implements Process.
func (p ContextSwitch) Apply(iteration, _ int, v *Variant) {
	if iteration >= p.At {
		return
	}
	for i := range v.Micros {
		if m := &v.Micros[i]; m.Seq > p.Before {
			m.Seq, m.Pairs = p.Before, 0
		}
	}
	v.Micros = slices.Repeat(v.Micros, v.Seq/p.Before)
}

// Check implements Process.
func (p ContextSwitch) Check(c Config) error {
	if p.Before < 1 || c.Seq%p.Before != 0 {
		return fmt.Errorf("context.before %d: must divide seq %d", p.Before, c.Seq)
	}
	if err := c.checkMicros(fmt.Sprintf("context.before %d", p.Before), c.micros()*(c.Seq/p.Before)); err != nil {
		return err
	}
	return checkEvery("context.at", p.At, 0)
}
