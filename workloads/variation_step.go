package workloads

import (
	"fmt"

	"smartswap/sim"
)

// Variation of what happens around forward and backward: the optimizer step,
// and what follows it.

// Frequencies of overflow. Megatron-LM starts at a loss scale of 2^32, the first
// overflow spends the hysteresis of 2 and each further one halves, so that 17
// steps are lost on the way to 2^16; later the scale tries to grow every 1,000
// clean steps, which costs two (megatron/training/arguments.py,
// megatron/core/optimizer/grad_scaler.py). PyTorch starts at 2^16 and grows
// every 2,000 steps (torch.amp.GradScaler).
const (
	MegatronBurst    = 17
	MegatronOverflow = 2.0 / 1000
	PyTorchOverflow  = 1.0 / 2000
)

// OverflowSkip leaves the optimizer step out when the loss scale overflows, as
// 16-bit training with dynamic loss scaling does: in each of the first Burst
// iterations, while the scale comes down from its start value, and later with
// a fixed probability.
type OverflowSkip struct {
	Probability float64 // per iteration after the burst, 0..1
	Burst       int     // iterations at the start that all overflow, >= 0
	Seed        uint64
}

// Apply implements Process.
func (o OverflowSkip) Apply(iteration, _ int, v *Variant) {
	if iteration < o.Burst || sim.NewStream(o.Seed, "overflow").Bernoulli(0, iteration, 0, o.Probability) {
		v.Skip = true
	}
}

// Check implements Process.
func (o OverflowSkip) Check(Config) error {
	if o.Burst < 0 {
		return fmt.Errorf("overflow.burst %d: must not be negative", o.Burst)
	}
	return checkProbability("overflow.probability", o.Probability)
}

// Validation as Megatron-LM's examples do it: 10 batches every 1,000 iterations
// (examples/*, --eval-interval 1000 --eval-iters 10). A simulation may use a
// shorter period to see it at all.
const (
	ValidationEvery   = 1000
	ValidationBatches = 10
)

// Validation runs forward-only micro-batches at the end of every Every-th
// iteration (iterations Every-1, 2*Every-1, …).
type Validation struct {
	Every   int // iterations, >= 1
	Batches int // micro-batches of each replica, 1..MaxValidation
}

// MaxValidation bounds Validation.Batches, so that a program stays small.
const MaxValidation = 4096

// Apply implements Process.
func (p Validation) Apply(iteration, _ int, v *Variant) {
	if due(iteration, p.Every) {
		v.Validation = p.Batches
	}
}

// Check implements Process.
func (p Validation) Check(Config) error {
	if p.Batches < 1 || p.Batches > MaxValidation {
		return fmt.Errorf("validation.batches %d: must be from 1 to %d", p.Batches, MaxValidation)
	}
	return checkEvery("validation.every", p.Every, 1)
}

// Checkpoints of BLOOM were written every 100 to 250 iterations, and published
// logs show pauses of 10 to 60 seconds for one (BigScience,
// train/tr11-176B-ml/README.md and train/tr1-13B-base/chronicles.md).
const (
	SaveEvery = 250
	SavePause = 10 * sim.Second
)

// CheckpointSave writes a checkpoint at the end of every Every-th iteration:
// the host waits for the device and then copies parameters and optimizer states
// out, one blocking operator per tensor, for Pause in all. The operators read
// the states, which must be on the device for it, and take host time in
// proportion to their bytes; no device work is simulated, because storage and
// not the link sets the pace.
type CheckpointSave struct {
	Every int      // iterations, >= 1
	Pause sim.Time // host time of one checkpoint, > 0
}

// Apply implements Process.
func (p CheckpointSave) Apply(iteration, _ int, v *Variant) {
	if due(iteration, p.Every) {
		v.Save = p.Pause
	}
}

// Check implements Process.
func (p CheckpointSave) Check(Config) error {
	if p.Pause <= 0 || p.Pause > sim.Time(24*3600)*sim.Second {
		return fmt.Errorf("save.pause %d ps: must be more than nothing and at most a day", p.Pause)
	}
	return checkEvery("save.every", p.Every, 1)
}

// Intervals of periodic extras. Megatron-LM's default log interval is 100 and
// its examples use 1 to 10 (megatron/training/arguments.py); that of averaging
// is assumed.
const (
	LogEvery     = 10
	AverageEvery = 10
)

// Extras adds periodic operators after the optimizer step: logging counts the
// zeros of every gradient and measures the parameters' norm, which the host
// reads; averaging blends every fp32 parameter into a copy that stays resident
// for the whole run (an exponential moving average).
type Extras struct {
	LogEvery     int // iterations; 0 = never
	AverageEvery int // iterations; 0 = never
}

// Apply implements Process.
func (p Extras) Apply(iteration, _ int, v *Variant) {
	v.Log = v.Log || p.LogEvery > 0 && due(iteration, p.LogEvery)
	v.Average = v.Average || p.AverageEvery > 0 && due(iteration, p.AverageEvery)
}

// Check implements Process.
func (p Extras) Check(Config) error {
	if err := checkEvery("extras.log_every", p.LogEvery, 0); err != nil {
		return err
	}
	return checkEvery("extras.average_every", p.AverageEvery, 0)
}

// RerunProbability is how often an iteration is run twice by default: assumed,
// as published reports only say that it is rare.
const RerunProbability = 1.0 / 1000

// Rerun runs forward and backward of an iteration a second time before the
// optimizer step, as Megatron-LM does to tell a transient fault from a
// persistent one when a loss is not a number
// (megatron/core/rerun_state_machine.py).
type Rerun struct {
	Probability float64 // per iteration, 0..1
	Seed        uint64
}

// Apply implements Process.
func (p Rerun) Apply(iteration, _ int, v *Variant) {
	if sim.NewStream(p.Seed, "rerun").Bernoulli(0, iteration, 0, p.Probability) {
		v.Runs = 2
	}
}

// Check implements Process.
func (p Rerun) Check(Config) error { return checkProbability("rerun.probability", p.Probability) }

// due tells whether something that happens at the end of every every-th
// iteration happens in this one.
func due(iteration, every int) bool { return (iteration+1)%every == 0 }

func checkProbability(key string, p float64) error {
	if !(p >= 0 && p <= 1) { // also not a number
		return fmt.Errorf("%s %v: must be from 0 to 1", key, p)
	}
	return nil
}

func checkEvery(key string, every, least int) error {
	if every < least {
		return fmt.Errorf("%s %d: must be at least %d", key, every, least)
	}
	return nil
}
