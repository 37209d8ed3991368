package alloc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"smartswap/sim"
)

// noEvents is a device without side streams.
type noEvents struct{}

func (noEvents) Record(Stream) Event { return 0 }
func (noEvents) Done(Event) bool     { return true }

// A steady pair of Malloc and Free beside free other inactive blocks of the
// same pool and stream: whole uses a block of the exact size, split cuts one
// and merges it again.
func BenchmarkPair(b *testing.B) {
	for _, free := range []int{1, 100, 10_000} {
		for _, c := range []struct {
			name string
			size sim.Bytes
		}{{"whole", 2 * sim.MiB}, {"split", 3 * sim.MiB}} {
			b.Run(fmt.Sprintf("caching/free=%d/%s", free, c.name), func(b *testing.B) {
				a := mustNew(b, options(), 0, noEvents{})
				prepare(b, a, free)
				pairs(b, a, c.size)
			})
		}
	}
	for _, c := range []struct {
		name    string
		options Options
	}{{"torch_npu", options(npu)}, {"expandable", options(expandable)}, {"stitching", options(stitched)}} {
		b.Run(c.name+"/free=100/split", func(b *testing.B) {
			a := mustNew(b, c.options, 0, noEvents{})
			prepare(b, a, 100)
			pairs(b, a, 3*sim.MiB)
		})
	}
	b.Run("stitching/exact", func(b *testing.B) {
		a := mustNew(b, options(stitched), 0, noEvents{})
		x, y := mustMalloc(b, a, 64*sim.MiB, 0), mustMalloc(b, a, 64*sim.MiB, 0)
		a.Free(x)
		a.Free(y)
		pairs(b, a, 128*sim.MiB)
	})
	b.Run("bytes", func(b *testing.B) {
		pairs(b, mustNew(b, options(backendBytes), 0, noEvents{}), 2*sim.MiB)
	})
}

// prepare leaves holes of 2 MiB, each between live blocks, and one of more.
func prepare(b *testing.B, a Allocator, holes int) {
	var list []Block
	for range holes {
		list = append(list, mustMalloc(b, a, 2*sim.MiB, 0))
		mustMalloc(b, a, 2*sim.MiB, 0)
	}
	big := mustMalloc(b, a, 18*sim.MiB, 0)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, x := range append(list, big) {
		a.Free(x)
	}
}

func pairs(b *testing.B, a Allocator, size sim.Bytes) {
	a.Free(mustMalloc(b, a, size, 0))
	b.ReportAllocs()
	for b.Loop() {
		x, err := a.Malloc(size, 0)
		if err != nil {
			b.Fatal(err)
		}
		a.Free(x)
	}
}

// The blocks of a transformer layer in the order of a training step: what
// forward keeps, freed backwards, between workspaces. Reported per pair.
func BenchmarkTransformerStep(b *testing.B) {
	for _, c := range []struct {
		name    string
		options Options
	}{{"pytorch", options()}, {"torch_npu", options(npu)}, {"expandable", options(expandable)}, {"stitching", options(stitched)}, {"bytes", options(backendBytes)}} {
		b.Run(c.name, func(b *testing.B) {
			const layers = 32
			kept := []sim.Bytes{32, 96, 32, 64, 128, 128, 32, 1}
			a := mustNew(b, c.options, 0, noEvents{})
			var live [layers][8]Block
			pairs := 0
			get := func(size sim.Bytes) Block {
				x, err := a.Malloc(size, 0)
				if err != nil {
					b.Fatal(err)
				}
				pairs++
				return x
			}
			step := func() {
				for l := range live {
					for i, mb := range kept {
						work := get(mb * 300_000)
						live[l][i] = get(mb * sim.MiB)
						a.Free(work)
					}
				}
				for l := range live {
					for i, mb := range kept {
						grad := get(mb * sim.MiB)
						a.Free(live[layers-1-l][i])
						a.Free(grad)
					}
				}
			}
			for range 200 { // stitching takes long to find the blocks it needs
				step()
			}
			b.ReportAllocs()
			b.ResetTimer()
			pairs = 0
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(pairs), "ns/pair")
		})
	}
}

// A pair with a deferred free that the next Malloc completes.
func BenchmarkDeferredPair(b *testing.B) {
	a := mustNew(b, options(), 0, noEvents{})
	a.Free(mustMalloc(b, a, 2*sim.MiB, 0))
	b.ReportAllocs()
	for b.Loop() {
		x, err := a.Malloc(2*sim.MiB, 0)
		if err != nil {
			b.Fatal(err)
		}
		a.RecordStream(x, 1)
		a.Free(x)
	}
}

// What steady allocation costs the Go heap: nothing.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, o := range []Options{options(), options(npu, lazy), options(expandable), options(stitched), options(backendBytes)} {
		a := mustNew(t, o, 0, noEvents{})
		round := func() {
			var live [16]Block
			for i := range live {
				b, err := a.Malloc(sim.Bytes(i+1)*3_000_000, Stream(i%2))
				if err != nil {
					t.Fatal(err)
				}
				a.RecordStream(b, Stream((i+1)%2))
				live[i] = b
			}
			for i := range live {
				a.Free(live[i*7%len(live)])
			}
		}
		round()
		round()
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%s %s: %v Go allocations per round of 16, want 0", o.Backend, o.Dialect, n)
		}
	}
}
