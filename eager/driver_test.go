package eager_test

import (
	"testing"

	"smartswap/eager"
	"smartswap/eager/alloc"
	"smartswap/eager/eagertest"
	"smartswap/hw"
	"smartswap/policies"
	"smartswap/sim"
	"smartswap/workloads"
)

// Driver time is what segments, mappings and page-locking cost, each call once,
// and nothing where the host is left out.
func TestDriverTime(t *testing.T) {
	// x leaves for a host buffer and comes back; y needs the memory that the
	// cache holds in a segment of another size.
	w, err := eagertest.NewScript(make([][]workloads.Storage, 1), func(_ int, b *workloads.Builder, n *workloads.Names) {
		x := b.New(tensor(40 << 20))
		b.Op(eagertest.Kernel(n, "a", 7*us), workloads.Out(x))
		b.Op(eagertest.Kernel(n, "b", 7*us), workloads.InPlace(x))
		b.Drop(x)
		y := b.New(tensor(70 << 20))
		b.Op(eagertest.Kernel(n, "c", 7*us), workloads.Out(y))
		b.Drop(y)
	})
	if err != nil {
		t.Fatal(err)
	}
	const alloced, freed, pin, perMiB, mapped = 100 * us, 50 * us, 20 * us, 3 * us, 30 * us
	run := func(change func(*eager.Config)) *eager.RankReport {
		node := eagertest.Node(1)
		node.Host.DriverAlloc, node.Host.DriverFree, node.Host.PinFixed, node.Host.PinPerMiB = alloced, freed, pin, perMiB
		cfg := eagertest.Config(node, w)
		cfg.Allocator = alloc.DefaultOptions()
		cfg.HBM = 100 * sim.MiB
		cfg.NewPolicy = func() (policies.Policy, error) {
			return &scriptPolicy{act: map[int64]func([]policies.Handle, policies.Runtime){
				0: func(args []policies.Handle, rt policies.Runtime) {
					do(t, rt, policies.Evict, args[0], true, policies.Done)
				},
			}}, nil
		}
		change(&cfg)
		r, err := eager.Run(cfg)
		if err != nil || r.OOM != nil || len(r.Violations) > 0 {
			t.Fatal(err, r)
		}
		return &r.Ranks[0]
	}
	const pinning = pin + 40*perMiB
	for _, c := range []struct {
		name   string
		change func(*eager.Config)
		want   sim.Time
	}{
		// 40 MiB come, and go when 70 MiB do not fit beside them.
		{"segments", func(*eager.Config) {}, 2*alloced + freed + pinning},
		// Two pages of 20 MiB, then two more.
		{"pages", func(c *eager.Config) { c.Allocator.ExpandableSegments = true }, 4*mapped + pinning},
		// 21 chunks of 2 MiB (the request has 32 bytes more), then, stitched to
		// them, the 15 that are short, and 36 for both in one range.
		{"chunks", func(c *eager.Config) { c.Allocator = alloc.SmartSwapOptions() }, (21+15+36)*mapped + pinning},
		{"no segments", func(c *eager.Config) { c.Allocator.Backend = alloc.BackendBytes }, pinning},
		{"no host", func(c *eager.Config) { c.HostNone = true }, 0},
	} {
		if got := run(c.change).Driver; got != c.want {
			t.Errorf("%s: %v in the driver, want %v", c.name, got, c.want)
		}
	}
	costs := alloc.Costs{DriverAllocs: 2, DriverFrees: 3, Maps: 5, Unmaps: 7, Polls: 100}
	if got, want := eager.DriverTime(&costs, &hw.Host{DriverAlloc: alloced, DriverFree: freed, EventQuery: us}), 2*alloced+3*freed+12*mapped; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
