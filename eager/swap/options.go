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
	// Drain says how much of the memory held for swap-outs under way an
	// allocation that does not fit gives back, the compute stream waiting:
	// "all" (shipped), or "enough", the oldest first until it fits.
	Drain string
	// Features live as long as the storage ("storage") or are reset when a
	// swap moves it ("pointer", shipped).
	Features string
}

// DefaultOptions are the best known settings.
func DefaultOptions() Options {
	return Options{Streams: 2, Release: "custom", Clean: true, Prefetch: "defer", Drain: "enough", Features: "storage"}
}

// ShippedOptions are those of the shipped executor.
func ShippedOptions() Options {
	return Options{Streams: 1, Release: "custom", Clean: false, Prefetch: "guard", Drain: "all", Features: "pointer"}
}

// Validate checks every field; the error names the key, its value and what is
// allowed.
func (o Options) Validate() error {
	if o.Streams != 1 && o.Streams != 2 {
		return fmt.Errorf("executor.streams = %d: allowed are 1 and 2", o.Streams)
	}
	for _, f := range []struct {
		key, value string
		allowed    []string
	}{
		{"release", o.Release, []string{"custom", "stock"}},
		{"prefetch", o.Prefetch, []string{"guard", "defer"}},
		{"drain", o.Drain, []string{"enough", "all"}},
		{"features", o.Features, []string{"storage", "pointer"}},
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
