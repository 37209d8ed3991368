package workloads

import (
	"fmt"
	"slices"
	"strings"

	"smartswap/sim"
)

// Variant is what one iteration of one replica runs. It starts as the
// configuration says, and processes change it. Equal variants are the same
// program; whatever an iteration runs is a function of its variant.
type Variant struct {
	// Layers of the model and tokens of a sequence as configured, for
	// processes to know.
	Layers, Seq int
	// Micros are the training micro-batches, in order; at least one. With
	// interleaved pipelines their number is a multiple of the stages.
	Micros []MicroBatch
	// Runs is how often forward and backward run before the optimizer; >= 1.
	Runs int
	// Recompute is the recomputation strategy.
	Recompute Recompute
	// Routing spreads tokens over experts; the zero value spreads evenly.
	Routing Routing
	// Adapters: low-rank adapters train and everything else is frozen. Only
	// with a LoRA process, which brings the adapters.
	Adapters bool

	// Skip: gradients overflowed; the optimizer step is left out.
	Skip bool
	// Log: gradients and parameters are counted and measured after a step.
	// Average: averaged parameters are updated after a step; only with an
	// Extras process, which brings them.
	Log, Average bool
	// Validation is the number of forward-only micro-batches of each replica
	// that follow, of the configured shape.
	Validation int
	// Save is the time for which the host stands still to write a
	// checkpoint; 0 = none is written.
	Save sim.Time
}

// MicroBatch is the shape of one training micro-batch of a replica.
type MicroBatch struct {
	// Sequences of Seq tokens each, both >= 1; together at most as many
	// tokens as the configured micro-batch. With sequence parallelism Seq is
	// padded to a multiple of the tensor-parallel degree.
	Sequences, Seq int
	// Pairs is the sum of the squared lengths of what attends to itself: the
	// documents packed into the sequences. 0 = the sequences, whole.
	Pairs int64
	// Without are the layers that do not run, 1..Variant.Layers; others are
	// ignored.
	Without LayerSet
}

// Tokens is the number of tokens in the micro-batch, padding included.
func (m MicroBatch) Tokens() int { return m.Sequences * m.Seq }

func (m MicroBatch) pairs() int64 {
	if m.Pairs > 0 {
		return m.Pairs
	}
	return int64(m.Sequences) * int64(m.Seq) * int64(m.Seq)
}

// LayerSet is a set of layers, counted from 1. The nil set is empty.
type LayerSet []uint64

// Has tells whether layer l is in the set.
func (s LayerSet) Has(l int) bool { return l >= 0 && l/64 < len(s) && s[l/64]>>(l%64)&1 == 1 }

// Add is the set with layer l in it; s is left as it is. A negative l is no
// layer and adds nothing.
func (s LayerSet) Add(l int) LayerSet {
	if l < 0 {
		return s
	}
	t := make(LayerSet, max(len(s), l/64+1))
	copy(t, s)
	t[l/64] |= 1 << (l % 64)
	return t
}

// Process is one source of variation. Processes compose: each is asked, in the
// order of the configuration, to change the variant of an iteration.
//
// Replicas agree on everything that decides which operators run; otherwise
// their collectives would not meet. What only changes sizes (lengths, pairs,
// routing) may differ between them. Folded replicas are all replica 0.
type Process interface {
	// Apply changes v for an iteration and a replica, counted from 0. It is a
	// function of its arguments alone and safe for concurrent use.
	Apply(iteration, replica int, v *Variant)
	// Check tells what is wrong with the process's settings in a job of c,
	// whose defaults are filled in.
	Check(c Config) error
}

// nominal is the variant without variation.
func (c *Config) nominal() Variant {
	v := Variant{Layers: c.Model.Layers, Seq: c.Seq, Micros: make([]MicroBatch, c.micros()), Runs: 1, Recompute: c.Recompute}
	for i := range v.Micros {
		v.Micros[i] = MicroBatch{Sequences: c.MicroBatch, Seq: c.Seq}
	}
	return v
}

// variant is what replica runs in an iteration.
func (c *Config) variant(iteration, replica int) (Variant, error) {
	v := c.nominal()
	for _, p := range c.Processes {
		p.Apply(iteration, replica, &v)
	}
	if c.SequenceParallel {
		for i := range v.Micros {
			m := &v.Micros[i]
			m.Seq = (m.Seq + c.TP - 1) / c.TP * c.TP
		}
	}
	if err := v.check(c); err != nil {
		return Variant{}, fmt.Errorf("iteration %d: %w", iteration, err)
	}
	return v, nil
}

// check holds v against what processes must keep.
func (v *Variant) check(c *Config) error {
	for i, m := range v.Micros {
		if m.Sequences < 1 || m.Seq < 1 || m.Sequences > c.MicroBatch*c.Seq/m.Seq || m.Pairs < 0 {
			return fmt.Errorf("micro-batch %d of %d x %d tokens, %d pairs: the configured one has %d x %d",
				i+1, m.Sequences, m.Seq, m.Pairs, c.MicroBatch, c.Seq)
		}
	}
	switch {
	case v.Runs < 1 || v.Validation < 0 || v.Save < 0:
		return fmt.Errorf("%d runs, %d micro-batches of validation, %d ps for a checkpoint: at least one run, nothing negative", v.Runs, v.Validation, v.Save)
	case v.Adapters && c.adapterRank() == 0:
		return fmt.Errorf("adapters train, but no lora process brings them")
	case v.Average && !c.averages():
		return fmt.Errorf("averages are updated, but no extras process brings them")
	}
	if err := c.checkMicros("variation", len(v.Micros)*v.Runs+v.Validation); err != nil {
		return err
	}
	if c.VPP > 1 && len(v.Micros)%c.PP != 0 {
		return fmt.Errorf("%d micro-batches: must be a multiple of pp %d with vpp %d", len(v.Micros), c.PP, c.VPP)
	}
	return c.checkRecompute(v.Recompute)
}

// key is equal for equal variants only.
func (v *Variant) key() string { return fmt.Sprint(*v) }

// kind names v in results by what makes it differ from the nominal variant:
// "train" if nothing does, otherwise the differences joined by "+".
func (v *Variant) kind(nominal Variant) string {
	shapes, depth := false, false
	for _, m := range v.Micros {
		depth = depth || m.Without != nil
		m.Without = nil
		shapes = shapes || m.Sequences != nominal.Micros[0].Sequences || m.Seq != nominal.Micros[0].Seq || m.Pairs != 0
	}
	var parts []string
	for _, d := range []struct {
		differs bool
		name    string
	}{
		{len(v.Micros) != len(nominal.Micros), "batch"},
		{shapes, "shapes"},
		{depth, "depth"},
		{v.Routing != nominal.Routing, "routing"},
		{v.Recompute != nominal.Recompute, "recompute"},
		{v.Adapters, "adapters"},
		{v.Runs > 1, "rerun"},
		{v.Skip, "skip"},
		{v.Log, "log"},
		{v.Average, "average"},
		{v.Validation > 0, "validate"},
		{v.Save > 0, "save"},
	} {
		if d.differs {
			parts = append(parts, d.name)
		}
	}
	if parts == nil {
		return "train"
	}
	return strings.Join(parts, "+")
}

// adapterRank is the rank of the adapters that a LoRA process brings; 0 = none.
func (c *Config) adapterRank() int {
	for _, p := range c.Processes {
		if l, ok := p.(LoRA); ok {
			return l.Rank
		}
	}
	return 0
}

// averages tells whether an Extras process brings averaged parameters.
func (c *Config) averages() bool {
	return slices.ContainsFunc(c.Processes, func(p Process) bool {
		e, ok := p.(Extras)
		return ok && e.AverageEvery > 0
	})
}
