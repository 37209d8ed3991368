package smartswap

import (
	"fmt"
	"slices"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// Target modes: what an iteration without evictions is planned for.
const (
	Reduction = "reduction" // the peak less Options.Reduction
	Absolute  = "absolute"  // Options.TargetBytes
	Fit       = "fit"       // nothing: what fits needs no swapping
)

// Optimizer modes: when optimizer states leave the device between their uses.
// Whatever the mode, they stay if the plan has nothing to reduce.
const (
	OptimizerPlan   = "plan"   // state by state, when the planner's score says so
	OptimizerWhole  = "whole"  // all states, back before the optimizer phase begins
	OptimizerChunks = "chunks" // all states, moving through the optimizer phase in Chunks pieces
	OptimizerAuto   = "auto"   // the search tries whole and chunks by turns
	OptimizerOff    = "off"    // never
)

// Planners: how tensors are chosen once it is known how much has to go.
const (
	PlanStages    = "stages"    // shipped until 2025: copies must fit stages, see selector
	PlanAttention = "attention" // shipped since: everything inside a layer, see planAttention
	PlanLinks     = "links"     // ours: copies are booked on the link, see linkPlanner
)

// Detectors of a changed operator sequence.
const (
	DetectLength = "length"        // operator count
	DetectCosine = "length+cosine" // and the angle between the name vectors
	DetectHash   = "hash"          // rolling hash of every pass: any difference
	DetectOff    = "off"
)

// Options are the constants and switches of the policy. Each switch names what
// the shipped code does and what the fix does; the presets set them together.
// Constants come from MindSpeed's swap_policy_config.py unless said otherwise.
type Options struct {
	// WarmUp iterations run under the full profiler before the first plan;
	// StableStep is the iteration count at which the search may end.
	WarmUp, StableStep int

	// Bandwidth is what the planner believes the host link moves each way,
	// in MiB/s: a constant in the shipped code, never measured. With
	// MeasureLink it is only used until copies have shown what they achieve.
	Bandwidth   int64
	MeasureLink bool

	MinTensor     sim.Bytes // smaller tensors stay
	Redundant     sim.Bytes // margin below the measured peak after evictions
	RedundantStep sim.Bytes // added to it by each further iteration with evictions
	Target        string    // Reduction, Absolute or Fit
	Reduction     sim.Bytes
	TargetBytes   sim.Bytes

	SizeWeight     float64 // weight of size against coverage in the score
	WeightStep     float64 // added to it by each iteration without evictions
	DurationFactor float64 // on the measured iteration time

	// FreeDelay and InFreeDelay are how many stages after its simulated end
	// a copy's memory is released, out and in.
	FreeDelay, InFreeDelay int

	// Layers replaces the profile's model layer count; 0 keeps it.
	// UnknownLayers stands in when neither is known; 0 makes every operator a
	// layer of its own, as shipped.
	Layers, UnknownLayers int

	Planner string // PlanStages, PlanAttention or PlanLinks
	InAhead int    // PlanLinks: stages by which a way back begins early

	// PlanAttention: attention operators per layer, and the bytes that may
	// leave in each forward stage; negative = no limit. Its FreeDelay and
	// InFreeDelay count from the stages of the copies, its MinTensor is
	// exclusive.
	AttentionPerStage int
	Bucket            sim.Bytes
	// ExactBounds: PlanAttention's boundaries are the last operators of
	// layers. Shipped: how many operators layers have together, so that the
	// first operator of each layer but the first runs as part of the layer
	// before, and what was used last by it is not recognised.
	ExactBounds bool

	// Window is how many pending swaps a tensor is compared with, 0 = all;
	// Sized makes size and shape part of its history. Shipped until December
	// 2025: 5 and true.
	Window int
	Sized  bool
	// NarrowTags puts the set of names in a history through a 32-bit integer,
	// as shipped, which forgets half of them; see policies.Vocabulary.
	NarrowTags bool

	Optimizer string // OptimizerPlan, -Whole, -Chunks, -Auto or -Off
	Chunks    int

	Detect    string // DetectLength, -Cosine, -Hash or -Off
	MaxLength float64
	MinCosine float64

	// Recheck: a candidate is tested against budgets that include what the
	// same round has chosen already. Shipped: the budgets before the round,
	// so that one round can book a stage several times over.
	Recheck bool
	// RejectUseless: a swap whose device block would be released at or after
	// its swap-in, so that it frees nothing, is planned around; if the target
	// cannot be reached without, its block is released one stage before.
	// Shipped: kept as it is.
	RejectUseless bool
	// CountAllOps: a stage of k operators has the time of k. Shipped: of
	// k-1, since a stage starts at the end of its first operator.
	CountAllOps bool
	// WholeHistory: the feature of a tensor that was evicted while being
	// profiled is made from all its uses. Shipped: only from those under its
	// first id, which no later iteration repeats.
	WholeHistory bool
	// SingleUseStates: an optimizer state used by one fused operator is a
	// candidate. Shipped: two operators must use it.
	SingleUseStates bool

	// SteadyWarmUp: warm-up counts consecutive similar iterations. Shipped:
	// there is no reference yet, so any iteration counts.
	SteadyWarmUp bool
	// Watch: in the stable state the lightweight profiler stays on. A changed
	// sequence or evictions lead back to warm-up. Shipped: the profiler is off
	// and the state is final.
	Watch bool
	// Resume: evictions in the stable state do not lead back to warm-up; only
	// more than twice as many as the plan was accepted with continue the
	// search, unless that has come to its limit.
	Resume bool
	// Remember is how many sequences are kept with what is known of them,
	// plans included; one that returns goes on where it was. Shipped, and with
	// 0: a changed sequence starts over.
	Remember int
	// Predict: what is armed is the plan of the sequence that has mostly
	// followed the one just seen. Else, of the one just seen, as if every
	// change were to stay. Needs Remember.
	Predict bool
	// Patch: a new sequence starts with the plan of the one expected, fitted to
	// it by aligning the two, see patch. Needs Remember.
	Patch bool
	// Borders: the planner uses the device times of stage borders where the
	// profiler has recorded them. Shipped: all operators take equally long.
	Borders bool
	// KeepBest: the search goes on while there are evictions, up to
	// SearchLimit plans, and ends with the plan of the fastest iteration.
	// Shipped: it ends at StableStep with the last plan.
	KeepBest    bool
	SearchLimit int
	// Refine: the search also goes on while an iteration is clearly faster
	// than its plan was made for, since a planner that believes in more time
	// than there is hides less than it thinks. Shipped: the first plan, made
	// for iterations full of evictions, is the last one.
	Refine bool
	// SeedGuard: the out-of-memory guard knows the optimizer states from the
	// start and keeps its order when a plan is armed. Shipped: it knows what
	// operators used since the last plan was armed.
	SeedGuard bool
}

// FaithfulV1 is what the shipped code of December 2024 to December 2025 does,
// traps included (last sound revision a86ca5b5~1): the goal-driven planner, ten
// iterations until the stable state, tensors compared with five pending swaps.
func FaithfulV1() Options {
	return Options{
		WarmUp: 2, StableStep: 10,
		Bandwidth: 25600, // 64/2.5*1000
		MinTensor: 20 * sim.MiB,
		Redundant: 2 * sim.GiB, RedundantStep: 300 * sim.MiB,
		Target: Reduction, Reduction: 3 * sim.GiB, TargetBytes: 40 * sim.GiB,
		SizeWeight: 2, DurationFactor: 1,
		FreeDelay: 4, InFreeDelay: 2,
		Planner: PlanStages, InAhead: 1, AttentionPerStage: 1, Bucket: -1,
		Window: 5, Sized: true, NarrowTags: true,
		Optimizer: OptimizerPlan, Chunks: 16,
		Detect: DetectLength, MaxLength: 0.05, MinCosine: 0.95,
		SearchLimit: 8,
	}
}

// FaithfulV2 is what the shipped code does since December 2025: swap everything
// inside layers, once and for all. Optimizer states stay, which it calls
// better performance; optimizer = "plan" is its better memory saving.
func FaithfulV2() Options {
	o := FaithfulV1()
	o.StableStep = 3
	o.Planner = PlanAttention
	o.FreeDelay, o.InFreeDelay = 2, 2
	o.Window, o.Sized = 0, false
	o.Optimizer = OptimizerOff
	return o
}

// Paper is the policy as the paper describes it, as far as that is known: the
// goal-driven planner under a machine that watches the sequence in every state
// and starts over when it changes or when there are evictions. What the paper
// leaves open is as in the shipped code.
func Paper() Options {
	o := FaithfulV1()
	o.StableStep = 3
	o.Window, o.Sized, o.NarrowTags = 0, false, false
	o.Detect = DetectCosine
	o.SteadyWarmUp = true
	o.Watch = true
	return o
}

// Default is the best we know: traps mended, and our own steps beyond the paper.
func Default() Options {
	o := Paper()
	o.Target = Fit
	o.Planner = PlanLinks
	// A state that leaves relieves all micro-batches for one trip, which the
	// score, made of coverage and size alone, does not see.
	o.Optimizer = OptimizerAuto
	o.UnknownLayers = 32 // assumed: the layer count of a 7B model
	o.Detect = DetectHash
	o.ExactBounds = true
	o.Recheck = true
	o.RejectUseless = true
	o.CountAllOps = true
	o.WholeHistory = true
	o.SingleUseStates = true
	o.Resume = true
	o.Remember = 16 // assumed: more kinds of iterations than a recipe has
	o.Predict = true
	o.Patch = true
	o.Borders = true
	o.KeepBest = true
	o.Refine = true
	o.MeasureLink = true
	o.SeedGuard = true
	return o
}

// Preset is a named set of options.
type Preset struct {
	Name    string
	Options func() Options
}

// Presets lists the presets, the default first.
func Presets() []Preset {
	return []Preset{{"default", Default}, {"paper", Paper}, {"faithful-v2", FaithfulV2}, {"faithful-v1", FaithfulV1}}
}

// ReadOptions reads a policy's parameters: the key "preset" chooses what all
// other keys start from.
func ReadOptions(p policies.Params) (Options, error) {
	r := p.Read()
	var names []string
	for _, preset := range Presets() {
		names = append(names, preset.Name)
	}
	name := names[0]
	r.Choice("preset", &name, names...)
	o := Presets()[slices.Index(names, name)].Options()
	const most = 1 << 50 // bytes: more than any device or host has
	policies.Int(r, "warm_up", &o.WarmUp, 1, 1000)
	policies.Int(r, "stable_step", &o.StableStep, 2, 1000)
	policies.Int(r, "bandwidth_mib_per_s", &o.Bandwidth, 100, 1<<30)
	r.Bool("measure_link", &o.MeasureLink)
	policies.Int(r, "min_tensor_bytes", &o.MinTensor, 1, most)
	policies.Int(r, "redundant_bytes", &o.Redundant, 0, most)
	policies.Int(r, "redundant_step_bytes", &o.RedundantStep, 0, most)
	r.Choice("target", &o.Target, Reduction, Absolute, Fit)
	policies.Int(r, "reduction_bytes", &o.Reduction, 0, most)
	policies.Int(r, "target_bytes", &o.TargetBytes, 0, most)
	r.Float("size_weight", &o.SizeWeight, 0, 1000)
	r.Float("weight_step", &o.WeightStep, 0, 1000)
	r.Float("duration_factor", &o.DurationFactor, 0.001, 1000)
	policies.Int(r, "free_delay", &o.FreeDelay, 0, 1000)
	policies.Int(r, "in_free_delay", &o.InFreeDelay, 0, 1000)
	policies.Int(r, "layers", &o.Layers, 0, 10000)
	policies.Int(r, "unknown_layers", &o.UnknownLayers, 0, 10000)
	r.Choice("planner", &o.Planner, PlanStages, PlanAttention, PlanLinks)
	policies.Int(r, "in_ahead", &o.InAhead, 0, 1000)
	policies.Int(r, "attention_per_stage", &o.AttentionPerStage, 1, 1000)
	policies.Int(r, "bucket_bytes", &o.Bucket, -1, most)
	r.Bool("exact_bounds", &o.ExactBounds)
	policies.Int(r, "window", &o.Window, 0, 1<<20)
	r.Bool("sized", &o.Sized)
	r.Bool("narrow_tags", &o.NarrowTags)
	r.Choice("optimizer", &o.Optimizer, OptimizerPlan, OptimizerWhole, OptimizerChunks, OptimizerAuto, OptimizerOff)
	policies.Int(r, "chunks", &o.Chunks, 1, 4096)
	r.Choice("detect", &o.Detect, DetectLength, DetectCosine, DetectHash, DetectOff)
	r.Float("max_length", &o.MaxLength, 0, 10)
	r.Float("min_cosine", &o.MinCosine, 0, 1)
	r.Bool("recheck", &o.Recheck)
	r.Bool("reject_useless", &o.RejectUseless)
	r.Bool("count_all_ops", &o.CountAllOps)
	r.Bool("whole_history", &o.WholeHistory)
	r.Bool("single_use_states", &o.SingleUseStates)
	r.Bool("steady_warm_up", &o.SteadyWarmUp)
	r.Bool("watch", &o.Watch)
	r.Bool("resume", &o.Resume)
	policies.Int(r, "remember", &o.Remember, 0, 1000)
	r.Bool("predict", &o.Predict)
	r.Bool("patch", &o.Patch)
	r.Bool("borders", &o.Borders)
	r.Bool("keep_best", &o.KeepBest)
	r.Bool("refine", &o.Refine)
	policies.Int(r, "search_limit", &o.SearchLimit, 1, 1000)
	r.Bool("seed_guard", &o.SeedGuard)
	if err := r.Done(); err != nil {
		return Options{}, err
	}
	if o.StableStep <= o.WarmUp {
		return Options{}, fmt.Errorf("policies: option stable_step = %d: must be greater than warm_up = %d", o.StableStep, o.WarmUp)
	}
	return o, nil
}

// detector is the change detector that o asks for.
func (o *Options) detector() profilers.Detector {
	switch o.Detect {
	case DetectLength:
		return profilers.Detector{MaxLength: o.MaxLength}
	case DetectCosine:
		return profilers.Detector{MaxLength: o.MaxLength, MinCosine: o.MinCosine, Align: profilers.ZeroPad}
	}
	return profilers.Detector{Hashes: o.Detect == DetectHash}
}
