package workloads

import (
	"fmt"
	"strings"

	"smartswap/sim"
)

// Variant is what makes an iteration differ from the ordinary one. Equal
// variants are the same program.
type Variant struct {
	// Skip: gradients overflowed; the optimizer step is left out.
	Skip bool
	// Validation is the number of forward-only micro-batches of each replica
	// that precede the end of the iteration.
	Validation int
}

// Kind names the variant in results: "train", "skip", "validate",
// "skip+validate".
func (v Variant) Kind() string {
	var parts []string
	if v.Skip {
		parts = append(parts, "skip")
	}
	if v.Validation > 0 {
		parts = append(parts, "validate")
	}
	if parts == nil {
		return "train"
	}
	return strings.Join(parts, "+")
}

// Process is one source of variation. Processes compose: each is asked, in the
// order of the configuration, to change the variant of an iteration.
type Process interface {
	// Apply changes v for the iteration, counted from 0. It is a function of
	// the iteration alone and safe for concurrent use.
	Apply(iteration int, v *Variant)
	// Check tells what is wrong with the process's own settings.
	Check() error
}

// OverflowSkip leaves the optimizer step out when the loss scale overflows, as
// 16-bit training with dynamic loss scaling does: in each of the first Burst
// iterations, while the scale comes down from its start value, and later with
// a fixed probability. Megatron-LM's defaults give a burst of 17 (from 2^32 to
// 2^16, one overflow being spent on hysteresis) and about 2 in 1,000 steps after
// it (megatron/core/optimizer/grad_scaler.py).
type OverflowSkip struct {
	Probability float64 // per iteration after the burst, 0..1
	Burst       int     // iterations at the start that all overflow, >= 0
	Seed        uint64
}

// Apply implements Process.
func (o OverflowSkip) Apply(iteration int, v *Variant) {
	if iteration < o.Burst || sim.NewStream(o.Seed, "overflow").Bernoulli(0, iteration, 0, o.Probability) {
		v.Skip = true
	}
}

// Check implements Process.
func (o OverflowSkip) Check() error {
	switch {
	case !(o.Probability >= 0 && o.Probability <= 1):
		return fmt.Errorf("overflow.probability %v: must be from 0 to 1", o.Probability)
	case o.Burst < 0:
		return fmt.Errorf("overflow.burst %d: must not be negative", o.Burst)
	}
	return nil
}

// Validation runs forward-only micro-batches at the end of every Every-th
// iteration (iterations Every-1, 2*Every-1, …). Published recipes validate
// every 1,000 steps or so; a simulation uses a shorter period to see it at all.
type Validation struct {
	Every   int // iterations, >= 1
	Batches int // micro-batches of each replica, 1..MaxValidation
}

// MaxValidation bounds Validation.Batches, so that a program stays small.
const MaxValidation = 4096

// Apply implements Process.
func (p Validation) Apply(iteration int, v *Variant) {
	if (iteration+1)%p.Every == 0 {
		v.Validation = p.Batches
	}
}

// Check implements Process.
func (p Validation) Check() error {
	switch {
	case p.Every < 1:
		return fmt.Errorf("validation.every %d: must be at least 1", p.Every)
	case p.Batches < 1 || p.Batches > MaxValidation:
		return fmt.Errorf("validation.batches %d: must be from 1 to %d", p.Batches, MaxValidation)
	}
	return nil
}
