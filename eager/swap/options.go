package swap

import (
	"fmt"
	"strings"
)

// Options are the switches of the executor. Each names what the shipped code
// does and what else is possible.
type Options struct {
	// Streams for copies: 1 is one stream for both directions, so that a
	// swap-in queues behind the swap-outs before it (shipped); 2 separates
	// the directions.
	Streams int
	// Release of device memory after a swap-out: "custom" has the compute
	// stream wait at the planned stage (shipped), "stock" leaves it to the
	// allocator's record_stream.
	Release string
	// Clean keeps host copies after a swap-in until the storage is written
	// or dies, so that it can leave again for free; otherwise the buffer is
	// given back when the copy has ended (shipped).
	Clean bool
	// Prefetch says what a planned swap-in does when there is no memory:
	// "guard" evicts for it like any allocation (shipped), "defer" leaves
	// it to the operators that follow and finally to a demand fault.
	Prefetch string
	// Pageable has swap-outs for which the pinned pool has no room go to
	// pageable memory, slowly and with the host waiting; otherwise they are
	// refused (shipped: nothing is foreseen).
	Pageable bool
	// Drain says how much of the memory held for swap-outs under way an
	// allocation that does not fit gives back, the compute stream waiting:
	// "all"; "enough", the oldest first until it fits; or "first" (shipped),
	// once per request, all of the first group that has any: the queue
	// without stages, in which host buffers of past swap-ins are, too, what
	// is held for stages, storages that swap-ins keep alive. What remains of
	// a request that then does not fit is an eviction.
	Drain string
	// Features live as long as the storage ("storage") or are reset when a
	// swap moves it ("pointer", shipped).
	Features string
	// Match says how a planned swap finds its tensor: by its history
	// ("feature", shipped); or, for comparison, by the operator of the
	// iteration and the argument position of its last use ("position"), as
	// systems do that take the sequence for granted; or by what it is
	// ("truth"), as nobody can outside of a simulation.
	Match string
	// Settle takes a swap-in that has ended for what it is. Otherwise a storage
	// that came back and is not used, as the optimizer states of a skipped
	// step, can neither leave again nor be evicted until an operator uses it
	// (shipped).
	Settle bool
	// Priority is the weight of swap-ins against swap-outs where both share
	// bandwidth; 1 = equal (shipped).
	Priority int
}

// How a planned swap finds its tensor.
const (
	MatchFeature  = "feature"
	MatchPosition = "position"
	MatchTruth    = "truth"
)

// MaxPriority bounds Options.Priority.
const MaxPriority = 64

// DefaultOptions are the best known settings for a job as such; a job may do
// better with another switch, see configs/fig9.toml.
func DefaultOptions() Options {
	return Options{Streams: 2, Release: "custom", Clean: true, Prefetch: "defer", Drain: "enough", Features: "storage", Match: MatchFeature, Settle: true, Priority: 4}
}

// ShippedOptions are those of the shipped executor.
func ShippedOptions() Options {
	return Options{Streams: 1, Release: "custom", Clean: false, Prefetch: "guard", Drain: "first", Features: "pointer", Match: MatchFeature, Priority: 1}
}

// Preset is DefaultOptions ("default") or ShippedOptions ("shipped").
func Preset(name string) (Options, error) {
	switch name {
	case "default":
		return DefaultOptions(), nil
	case "shipped":
		return ShippedOptions(), nil
	}
	return Options{}, fmt.Errorf("allowed are default and shipped")
}

// Validate checks every field; the error names the key, its value and what is
// allowed.
func (o Options) Validate() error {
	if o.Streams != 1 && o.Streams != 2 {
		return fmt.Errorf("executor.streams = %d: allowed are 1 and 2", o.Streams)
	}
	if o.Priority < 1 || o.Priority > MaxPriority {
		return fmt.Errorf("executor.priority = %d: allowed are 1 to %d", o.Priority, MaxPriority)
	}
	for _, f := range []struct {
		key, value string
		allowed    []string
	}{
		{"release", o.Release, []string{"custom", "stock"}},
		{"prefetch", o.Prefetch, []string{"guard", "defer"}},
		{"drain", o.Drain, []string{"enough", "all", "first"}},
		{"features", o.Features, []string{"storage", "pointer"}},
		{"match", o.Match, []string{MatchFeature, MatchPosition, MatchTruth}},
	} {
		ok := false
		for _, a := range f.allowed {
			ok = ok || f.value == a
		}
		if !ok {
			return fmt.Errorf("executor.%s = %q: allowed are %s", f.key, f.value, strings.Join(f.allowed, ", "))
		}
	}
	return nil
}
