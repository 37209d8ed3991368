package hw

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/sim"
)

// plain is a node of round numbers: 1,000 B/ns of HBM, 10 GB/s links, 1 us of
// set-up, no caps.
func plain() *Node {
	return &Node{
		Name:    "plain",
		Devices: 8,
		Device:  Device{HBM: sim.GiB, Bandwidth: sim.GBps(1000)},
		Host:    Host{NUMA: 1, NUMABandwidth: sim.GBps(1000)},
		Link: Link{
			Rate:     [NumDirections]sim.Rate{sim.GBps(10), sim.GBps(10)},
			Latency:  sim.Microsecond,
			Pageable: sim.GBps(2),
			Remote:   0.5,
		},
	}
}

// bench runs copies and kernels on a machine and notes when each ends.
type bench struct {
	t       rapid.TB
	engine  *sim.Engine
	share   *sim.Share
	machine *Machine
	id      sim.HandlerID
	starts  []func()
	ended   map[string]sim.Time
	names   []string
}

func (b *bench) Handle(arg uint32, _ sim.Stamp) { b.ended[b.names[arg]] = b.engine.Now() }

// starter calls the start functions of a bench at their times.
type starter struct{ b *bench }

func (s starter) Handle(arg uint32, _ sim.Stamp) { s.b.starts[arg]() }

func newBench(t rapid.TB, n *Node, slots ...Slot) *bench {
	b := &bench{t: t, engine: sim.NewEngine(), ended: map[string]sim.Time{}}
	b.share = sim.NewShare(b.engine)
	var err error
	if b.machine, err = NewMachine(b.engine, b.share, n, slots); err != nil {
		t.Fatal(err)
	}
	b.id = b.engine.Register(b)
	return b
}

func (b *bench) name(name string) uint32 {
	b.names = append(b.names, name)
	return uint32(len(b.names) - 1)
}

func (b *bench) at(when sim.Time, start func()) {
	b.starts = append(b.starts, start)
	b.engine.At(when, sim.PrioDevice, b.engine.Register(starter{b}), uint32(len(b.starts)-1))
}

// copies submits c at a time; its end is noted under the name.
func (b *bench) copies(name string, when sim.Time, slot int, c Copy) {
	c.Done, c.Arg = b.id, b.name(name)
	b.at(when, func() { b.machine.Submit(slot, c) })
}

// kernel runs a kernel of the given timing on the slot's HBM.
func (b *bench) kernel(name string, when sim.Time, slot int, k Timing) {
	arg := b.name(name)
	b.at(when, func() {
		b.share.Start(sim.FlowSpec{Path: b.machine.HBM(slot), Cap: k.Demand, Work: sim.SpanWork(k.Span, k.Demand), Done: b.id, Arg: arg})
	})
}

// want runs to the end and compares when everything ended, to the picosecond.
func (b *bench) want(ended map[string]sim.Time) {
	b.t.Helper()
	if err := b.engine.Run(); err != nil {
		b.t.Fatal(err)
	}
	if diff := cmp.Diff(ended, b.ended); diff != "" {
		b.t.Errorf("end times (-want +got):\n%s", diff)
	}
}

const us = sim.Microsecond

// out and in are copies of so many times 10 kB: 1 us each on a plain link.
func out(n sim.Bytes) Copy { return Copy{Direction: D2H, Bytes: n * 10_000} }
func in(n sim.Bytes) Copy  { return Copy{Direction: H2D, Bytes: n * 10_000} }

func one(device int) Slot { return Slot{Devices: []int{device}} }

func TestCopyAlone(t *testing.T) {
	b := newBench(t, plain(), one(0))
	b.copies("a", 5*us, 0, out(10))
	b.want(map[string]sim.Time{"a": 5*us + 1*us + 10*us})
}

func TestCopyOfNothingTakesTheSetUp(t *testing.T) {
	b := newBench(t, plain(), one(0))
	b.copies("a", 0, 0, out(0))
	b.want(map[string]sim.Time{"a": 1 * us})
}

func TestOneEngineServesInSubmissionOrder(t *testing.T) {
	b := newBench(t, plain(), one(0))
	b.copies("first", 0, 0, out(10))
	b.copies("second", 0, 0, out(1)) // same instant, shorter, still second
	b.copies("third", 2*us, 0, out(1))
	b.copies("late", 100*us, 0, out(1))
	b.want(map[string]sim.Time{"first": 11 * us, "second": 13 * us, "third": 15 * us, "late": 102 * us})
}

func TestDirectionsAreIndependent(t *testing.T) {
	b := newBench(t, plain(), one(0))
	b.copies("out", 0, 0, out(10))
	b.copies("in", 0, 0, in(10))
	b.want(map[string]sim.Time{"out": 11 * us, "in": 11 * us})
}

func TestPairCap(t *testing.T) {
	n := plain()
	n.Link.Both = sim.GBps(12) // 6 each while both move
	b := newBench(t, n, one(0))
	b.copies("out", 0, 0, out(6))
	b.copies("in", 0, 0, in(12))
	// Out: 60 kB at 6. In: 60 kB at 6, the other 60 kB at 10.
	b.want(map[string]sim.Time{"out": 11 * us, "in": 17 * us})
}

func TestRateBoth(t *testing.T) {
	n := plain()
	n.Link.RateBoth = [NumDirections]sim.Rate{D2H: 0, H2D: sim.GBps(5)}
	b := newBench(t, n, one(0))
	b.copies("out", 0, 0, out(10))
	b.copies("in", 0, 0, in(10))
	// Until 11 us in gets 5 and moves 50 kB; the other 50 kB at 10. The
	// other direction has no reduced rate.
	b.want(map[string]sim.Time{"out": 11 * us, "in": 16 * us})
}

func TestRateBothSetUpDoesNotMove(t *testing.T) {
	n := plain()
	n.Link.RateBoth = [NumDirections]sim.Rate{D2H: sim.GBps(5), H2D: sim.GBps(5)}
	b := newBench(t, n, one(0))
	b.copies("out", 0, 0, out(10))
	b.copies("in", 10*us, 0, in(10)) // in set-up until 11 us, when out has ended
	b.want(map[string]sim.Time{"out": 11 * us, "in": 21 * us})
}

func TestPageableAndRemote(t *testing.T) {
	b := newBench(t, plain(), one(0), one(1), one(2))
	slow, far, both := out(10), out(10), out(10)
	slow.Pageable = true
	far.Remote = true
	both.Pageable, both.Remote = true, true
	b.copies("pageable", 0, 0, slow)
	b.copies("remote", 0, 1, far)
	b.copies("both", 0, 2, both)
	b.want(map[string]sim.Time{"pageable": 51 * us, "remote": 21 * us, "both": 101 * us})
}

func TestEfficiencyBySize(t *testing.T) {
	n := plain()
	n.Link.Efficiency = Curve{[]Point{{0, 0.5}, {10, 0.5}, {20, 1}}}
	if got := n.Link.CopyRate(1024, D2H, false); got != sim.GBps(5) {
		t.Errorf("rate of 1 KiB = %v", got)
	}
	if got := n.Link.CopyRate(1<<20, D2H, true); got != sim.GBps(2) {
		t.Errorf("pageable rate of 1 MiB = %v", got)
	}
	b := newBench(t, n, one(0))
	b.copies("a", 0, 0, Copy{Bytes: 1000})
	b.want(map[string]sim.Time{"a": us + 200*sim.Nanosecond})
}

func TestUplinkSharedByDevices(t *testing.T) {
	n := plain()
	n.Link.Uplink, n.Link.UplinkDevices = sim.GBps(12), 4
	b := newBench(t, n, one(0), one(1), one(2), one(3), one(4))
	for slot, name := range []string{"a", "b", "c", "d"} {
		b.copies(name, 0, slot, out(3)) // 3 each of 12
	}
	b.copies("other direction", 0, 0, in(10))
	b.copies("other uplink", 0, 4, out(10))
	b.want(map[string]sim.Time{
		"a": 11 * us, "b": 11 * us, "c": 11 * us, "d": 11 * us, "other direction": 11 * us, "other uplink": 11 * us,
	})
}

func TestNUMANodeIsSharedByBothDirections(t *testing.T) {
	n := plain()
	n.Host.NUMA, n.Host.NUMABandwidth = 2, sim.GBps(15) // devices 0-3 and 4-7
	b := newBench(t, n, one(0), one(3), one(4))
	b.copies("a", 0, 0, out(5))
	b.copies("b", 0, 1, out(5))
	b.copies("c", 0, 1, in(5))
	b.copies("other node", 0, 2, in(10))
	b.want(map[string]sim.Time{"a": 11 * us, "b": 11 * us, "c": 11 * us, "other node": 11 * us})
}

func TestHBMSharedByKernelAndCopy(t *testing.T) {
	n := plain()
	n.Device.Bandwidth = sim.GBps(20)
	b := newBench(t, n, one(0))
	// Alone the kernel would take 19 us and leave 2 GB/s; together each is
	// entitled to 10, which is all that the copy can use.
	b.kernel("kernel", 0, 0, Timing{Span: 19 * us, Demand: sim.GBps(18)})
	b.copies("copy", 0, 0, out(10))
	// To 1 us 18 GB/s: 18 kB; to 11 us 10 GB/s: 100 kB; the other 224 kB at 18.
	rest := sim.Time(224_000) * sim.Second / sim.Time(sim.GBps(18))
	if 224_000*int64(sim.Second)%int64(sim.GBps(18)) != 0 {
		rest++
	}
	b.want(map[string]sim.Time{"copy": 11 * us, "kernel": 11*us + rest})
}

func TestKernelBesideSmallCopyIsUndisturbed(t *testing.T) {
	b := newBench(t, plain(), one(0))
	b.kernel("kernel", 0, 0, Timing{Span: 7 * us, Demand: sim.GBps(990)})
	b.copies("copy", 0, 0, in(10))
	b.want(map[string]sim.Time{"kernel": 7 * us, "copy": 11 * us})
}

func TestFoldedSlotLoadsSharedResourcesForAll(t *testing.T) {
	n := plain()
	n.Link.Uplink, n.Link.UplinkDevices = sim.GBps(12), 4
	b := newBench(t, n, Slot{Devices: []int{0, 1, 2, 3, 4, 5, 6, 7}})
	b.copies("a", 0, 0, out(3))
	b.want(map[string]sim.Time{"a": 11 * us})
}

func TestFoldedAcrossUplinks(t *testing.T) {
	n := plain()
	n.Link.Uplink, n.Link.UplinkDevices = sim.GBps(12), 2
	// Each uplink carries one device of each slot, but the simulated devices
	// 0 and 3 are not neighbours: they meet all the same.
	b := newBench(t, n, Slot{Devices: []int{0, 2}}, Slot{Devices: []int{3, 1}})
	b.copies("a", 0, 0, out(6))
	b.copies("b", 0, 1, out(6))
	b.want(map[string]sim.Time{"a": 11 * us, "b": 11 * us})
}

func TestObserverBusyAndQueued(t *testing.T) {
	b := newBench(t, plain(), one(0))
	type seen struct {
		Slot       int
		Bytes      sim.Bytes
		Start, End sim.Time
	}
	var got []seen
	b.machine.OnCopy(func(slot int, c Copy, start, end sim.Time) {
		got = append(got, seen{slot, c.Bytes, start, end})
	})
	b.copies("a", 0, 0, out(10))
	b.copies("b", 2*us, 0, out(1))
	b.at(5*us, func() {
		if busy, queued := b.machine.Busy(0, D2H), b.machine.Queued(0, D2H); busy != 5*us || queued != 110_000 {
			t.Errorf("at 5 us: busy %v, queued %v", busy, queued)
		}
	})
	b.at(40*us, func() { b.copies("c", 50*us, 0, out(1)) })
	b.want(map[string]sim.Time{"a": 11 * us, "b": 13 * us, "c": 52 * us})
	want := []seen{{0, 100_000, 0, 11 * us}, {0, 10_000, 11 * us, 13 * us}, {0, 10_000, 50 * us, 52 * us}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
	if busy, queued := b.machine.Busy(0, D2H), b.machine.Queued(0, D2H); busy != 15*us || queued != 0 {
		t.Errorf("at the end: busy %v, queued %v", busy, queued)
	}
	if busy := b.machine.Busy(0, H2D); busy != 0 {
		t.Errorf("the other direction was busy for %v", busy)
	}
}

func TestNewMachineErrors(t *testing.T) {
	n := plain()
	n.Link.Uplink, n.Link.UplinkDevices = sim.GBps(12), 2
	n.Host.NUMA = 2
	for _, c := range []struct {
		name  string
		slots []Slot
		want  string
	}{
		{"empty", []Slot{one(0), {}}, "slot 1: has no device"},
		{"negative", []Slot{one(-1)}, "slot 0: device -1: node plain has devices 0 to 7"},
		{"too large", []Slot{one(8)}, "slot 0: device 8: node plain has devices 0 to 7"},
		{"twice", []Slot{one(3), {Devices: []int{2, 3}}}, "slot 1: device 3: already in slot 0"},
		{"unequal uplinks", []Slot{{Devices: []int{0, 1, 2}}}, "slot 0 cannot be folded: its device 0 shares uplink 0"},
		{"unequal neighbours", []Slot{{Devices: []int{0, 2}}, one(1)}, "slot 0 cannot be folded: its device 0 shares uplink 0"},
		{"unequal NUMA nodes", []Slot{{Devices: []int{0, 2, 4}}}, "slot 0 cannot be folded: its device 0 shares NUMA node 0"},
	} {
		e := sim.NewEngine()
		_, err := NewMachine(e, sim.NewShare(e), n, c.slots)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// TestFoldingIsExact compares folded slots with all their devices simulated
// one by one under the same copies.
func TestFoldingIsExact(t *testing.T) {
	shapes := [][]Slot{
		{{Devices: []int{0, 1, 2, 3, 4, 5, 6, 7}}},
		{{Devices: []int{0, 1, 2, 3}}, {Devices: []int{4, 5, 6, 7}}},
		{{Devices: []int{0, 2, 4, 6}}, {Devices: []int{1, 3, 5, 7}}},
		{{Devices: []int{6, 0, 2, 4}}, {Devices: []int{3, 1, 7, 5}}},
		{{Devices: []int{0, 4}}, {Devices: []int{1, 5}}, {Devices: []int{2, 6, 3, 7}}},
	}
	folded := 0
	rapid.Check(t, func(t *rapid.T) {
		n := plain()
		n.Host.NUMA = rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "numa")
		n.Host.NUMABandwidth = sim.Rate(rapid.Int64Range(5e9, 60e9).Draw(t, "numa bandwidth"))
		n.Link.UplinkDevices = rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "uplink devices")
		n.Link.Uplink = sim.Rate(rapid.Int64Range(2e9, 80e9).Draw(t, "uplink"))
		n.Link.Both = sim.Rate(rapid.SampledFrom([]int64{0, 13e9}).Draw(t, "both"))
		n.Link.RateBoth[H2D] = sim.Rate(rapid.SampledFrom([]int64{0, 4e9}).Draw(t, "rate both"))
		slots := rapid.SampledFrom(shapes).Draw(t, "slots")

		e := sim.NewEngine()
		if _, err := NewMachine(e, sim.NewShare(e), n, slots); err != nil {
			return // uneven: refused
		}
		var explicit []Slot
		var members [][]int // by folded slot: indices of explicit slots
		for _, s := range slots {
			var m []int
			for _, device := range s.Devices {
				m = append(m, len(explicit))
				explicit = append(explicit, one(device))
			}
			members = append(members, m)
		}
		few, many := newBench(t, n, slots...), newBench(t, n, explicit...)
		want := map[string]sim.Time{}
		for i := range rapid.IntRange(1, 12).Draw(t, "copies") {
			name := string(rune('a' + i))
			slot := rapid.IntRange(0, len(slots)-1).Draw(t, "slot")
			when := sim.Time(rapid.Int64Range(0, 20).Draw(t, "when")) * us
			c := Copy{
				Direction: Direction(rapid.IntRange(0, 1).Draw(t, "direction")),
				Bytes:     sim.Bytes(rapid.Int64Range(1, 200_000).Draw(t, "bytes")),
			}
			few.copies(name, when, slot, c)
			for k, m := range members[slot] {
				if k == 0 {
					many.copies(name, when, m, c)
				} else {
					many.copies(name+" twin", when, m, c)
				}
			}
		}
		if err := many.engine.Run(); err != nil {
			t.Fatal(err)
		}
		for name, end := range many.ended {
			if first, twin := strings.CutSuffix(name, " twin"); twin {
				if end != many.ended[first] {
					t.Fatalf("twins of %s end at %v and %v", first, many.ended[first], end)
				}
				continue
			}
			want[name] = end
		}
		few.want(want)
		folded++
	})
	if folded < 20 {
		t.Errorf("only %d cases were folded", folded)
	}
}

func TestCopiesDoNotAllocate(t *testing.T) {
	b := newBench(t, plain(), one(0))
	done := b.engine.Register(starter{&bench{starts: []func(){func() {}}}})
	round := func() {
		for range 10 {
			b.machine.Submit(0, Copy{Direction: D2H, Bytes: 1000, Done: done})
			b.machine.Submit(0, Copy{Direction: H2D, Bytes: 1000, Done: done})
		}
		if err := b.engine.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations per 20 copies", n)
	}
}
