package workloads

import (
	"fmt"
	"math"
	"strings"

	"smartswap/internal/nearest"
	"smartswap/internal/params"
	"smartswap/sim"
)

// processes is the table of processes by the name that configuration files give
// them. Each entry starts from the evidence-based defaults and reads what is
// given; ranges that depend on the job are left to Check.
var processes = []struct {
	name string
	read func(r *params.Reader, seed uint64) Process
}{
	{"overflow", func(r *params.Reader, seed uint64) Process {
		p := OverflowSkip{Probability: MegatronOverflow, Burst: MegatronBurst, Seed: seed}
		params.Float(r, "probability", &p.Probability, 0, 1)
		params.Int(r, "burst", &p.Burst, 0, maxIterations)
		return p
	}},
	{"validation", func(r *params.Reader, _ uint64) Process {
		p := Validation{Every: ValidationEvery, Batches: ValidationBatches}
		params.Int(r, "every", &p.Every, 1, maxIterations)
		params.Int(r, "batches", &p.Batches, 1, MaxValidation)
		return p
	}},
	{"save", func(r *params.Reader, _ uint64) Process {
		p := CheckpointSave{Every: SaveEvery}
		seconds := float64(SavePause) / float64(sim.Second)
		params.Int(r, "every", &p.Every, 1, maxIterations)
		params.Float(r, "pause_s", &seconds, 1e-6, 24*3600)
		p.Pause = sim.Time(math.Round(seconds * float64(sim.Second)))
		return p
	}},
	{"extras", func(r *params.Reader, _ uint64) Process {
		p := Extras{LogEvery: LogEvery, AverageEvery: AverageEvery}
		params.Int(r, "log_every", &p.LogEvery, 0, maxIterations)
		params.Int(r, "average_every", &p.AverageEvery, 0, maxIterations)
		return p
	}},
	{"rerun", func(r *params.Reader, seed uint64) Process {
		p := Rerun{Probability: RerunProbability, Seed: seed}
		params.Float(r, "probability", &p.Probability, 0, 1)
		return p
	}},
	{"ramp", func(r *params.Reader, _ uint64) Process {
		p := BatchRamp{From: 1, Step: 1, Every: RampEvery}
		params.Int(r, "from", &p.From, 1, maxSize)
		params.Int(r, "step", &p.Step, 1, maxSize)
		params.Int(r, "every", &p.Every, 1, maxIterations)
		return p
	}},
	{"tail", func(r *params.Reader, _ uint64) Process {
		p := UnevenTail{Sequences: 1, Every: 1}
		params.Int(r, "sequences", &p.Sequences, 1, maxSize)
		params.Int(r, "every", &p.Every, 1, maxIterations)
		return p
	}},
	{"lengths", func(r *params.Reader, seed uint64) Process { return VariableLength{readLengths(r, seed)} }},
	{"padding", func(r *params.Reader, seed uint64) Process {
		p := DynamicPadding{Lengths: readLengths(r, seed), Multiple: PadMultiple}
		params.Int(r, "multiple", &p.Multiple, 1, maxSize)
		return p
	}},
	{"packing", func(r *params.Reader, seed uint64) Process { return PackedSegments{readLengths(r, seed)} }},
	{"context", func(r *params.Reader, _ uint64) Process {
		p := ContextSwitch{At: SwitchAt, Before: ContextBefore}
		params.Int(r, "at", &p.At, 0, maxIterations)
		params.Int(r, "before", &p.Before, 1, maxSize)
		return p
	}},
	{"experts", func(r *params.Reader, seed uint64) Process {
		p := ExpertImbalance{Start: ImbalanceStart, End: ImbalanceEnd, Tau: ImbalanceTau, Seed: seed}
		params.Float(r, "start", &p.Start, 0, 4)
		params.Float(r, "end", &p.End, 0, 4)
		params.Int(r, "tau", &p.Tau, 1, maxIterations)
		return p
	}},
	{"depth", func(r *params.Reader, seed uint64) Process {
		p := StochasticDepth{Probability: LayerDrop, Seed: seed}
		params.Float(r, "probability", &p.Probability, 0, 1)
		return p
	}},
	{"exit", func(r *params.Reader, seed uint64) Process {
		p := EarlyExit{Probability: ExitProbability, Seed: seed}
		params.Int(r, "after", &p.After, 0, maxSize)
		params.Float(r, "probability", &p.Probability, 0, 1)
		return p
	}},
	{"lora", func(r *params.Reader, _ uint64) Process {
		p := LoRA{Rank: LoRARank, At: SwitchAt}
		params.Int(r, "rank", &p.Rank, 1, maxRank)
		params.Int(r, "at", &p.At, 0, maxIterations)
		params.Int(r, "until", &p.Until, 0, maxIterations)
		return p
	}},
	{"recompute", func(r *params.Reader, _ uint64) Process {
		p := RecomputeToggle{At: RecomputeAt, Before: Recompute{Kind: FullUniform}}
		params.Int(r, "at", &p.At, 0, maxIterations)
		params.Choice(r, "before", &p.Before.Kind, NoRecompute, Selective, FullUniform, FullBlock, ActivationFunction)
		params.Int(r, "n", &p.Before.N, 0, maxSize)
		return p
	}},
}

// maxIterations bounds iteration numbers in options.
const maxIterations = 1 << 30

// readLengths reads a distribution of lengths.
func readLengths(r *params.Reader, seed uint64) Lengths {
	l := Lengths{Sigma: LengthSigma, Seed: seed}
	params.Int(r, "median", &l.Median, 0, maxSize)
	params.Float(r, "sigma", &l.Sigma, 0, 4)
	return l
}

// ProcessByName makes a process from its name and options as a configuration
// file gives them: values are bool, int, int64, float64 or string, keys in
// snake_case. Options that are not given have the defaults that the constants of
// this package name. Every process takes a seed, 0 if not given, whether it
// draws at random or not, so that a caller can give all of them one. The error
// names an unknown process or option with the nearest known one, or a value with
// what is allowed; what depends on the job is checked by New.
func ProcessByName(name string, options map[string]any) (Process, error) {
	for _, p := range processes {
		if p.name != name {
			continue
		}
		r := params.Read(options)
		seed := uint64(0)
		params.Int(r, "seed", &seed, 0, math.MaxInt64)
		process := p.read(r, seed)
		if err := r.Done(); err != nil {
			return nil, fmt.Errorf("variation %q: %w", name, err)
		}
		return process, nil
	}
	names := ProcessNames()
	return nil, fmt.Errorf("variation %q: unknown, did you mean %q? known: %s", name, nearest.Name(name, names), strings.Join(names, ", "))
}

// ProcessNames lists the names that ProcessByName knows, in the order of the
// table.
func ProcessNames() []string {
	names := make([]string, len(processes))
	for i, p := range processes {
		names[i] = p.name
	}
	return names
}
