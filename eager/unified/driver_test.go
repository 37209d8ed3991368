package unified

import (
	"slices"
	"strings"
	"testing"
	"time"

	"smartswap/eager/stream"
	"smartswap/policies"
	"smartswap/sim"
)

// tiny has pages of 4 KiB, a device of 8, a host of 4, an SSD without limit;
// a batch is 4 pages each way, of them 2 of the SSD, in 4,096 ns, and maps 8.
func tiny() Options {
	o := Defaults()
	o.Device, o.Host, o.Batch = 32*sim.KiB, 16*sim.KiB, 4
	o.Link, o.SSDRate, o.Map = sim.GBps(4), sim.GBps(2), sim.GBps(8)
	return o
}

const tinyBatch = 4_096_000 // ticks

func touching(ids ...int32) *kernel {
	k := &kernel{}
	for _, id := range ids {
		k.operands = append(k.operands, operand{id: id, pages: 4, read: true, write: true})
	}
	return k
}

// at counts the pages of a storage by place.
func at(d *driver, id int32) (n [numPlaces]int64) {
	for i := d.book.storages[id].first; i != none; i = d.book.run(i).right {
		n[d.book.run(i).place] += d.book.run(i).len()
	}
	return n
}

func mustRun(t *testing.T, d *driver, now int64, k *kernel) int64 {
	t.Helper()
	end, err := d.run(now, k)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.book.check(); err != nil {
		t.Fatal(err)
	}
	return end
}

func TestOldestLeavesForHostThenSSD(t *testing.T) {
	d := newDriver(tiny(), policies.Paging{Oldest: true})
	now := int64(0)
	for id := range int32(4) { // 16 pages: 8 on the device, 4 on the host, 4 on the SSD
		now = mustRun(t, d, now, touching(id))
	}
	for id, want := range []place{host, ssd, device, device} {
		if n := at(d, int32(id)); n[want] != 4 {
			t.Errorf("storage %d: %v by place, want 4 in %d", id, n, want)
		}
	}
	// 0 comes back page by page from the full host: the first page that makes
	// room goes to the SSD, and leaves the host room for the next.
	mustRun(t, d, now, touching(0))
	if n := at(d, 2); n[host] != 3 || n[ssd] != 1 {
		t.Errorf("storage 2 left for %v, want 3 on the host, 1 on the SSD", n)
	}
}

func TestLastUseOrArrival(t *testing.T) {
	for _, oldest := range []bool{true, false} {
		d := newDriver(tiny(), policies.Paging{Oldest: oldest})
		now := int64(0)
		for _, id := range []int32{0, 1, 0, 2} {
			now = mustRun(t, d, now, touching(id))
		}
		if gone := at(d, 0)[host] == 4; gone != oldest {
			t.Errorf("oldest %v: storage 0 by place: %v", oldest, at(d, 0))
		}
	}
}

func TestDeadPages(t *testing.T) {
	for _, drop := range []bool{true, false} {
		d := newDriver(tiny(), policies.Paging{Oldest: true, DropDead: drop})
		now := mustRun(t, d, 0, touching(0))
		now = mustRun(t, d, now, touching(1))
		k := touching(2)
		k.dead = []int32{0}
		mustRun(t, d, now, k)
		if moved := d.counts.out[host]; moved != 0 == drop || d.counts.dropped != 0 != drop {
			t.Errorf("drop %v: %d pages moved out, %d dropped", drop, moved, d.counts.dropped)
		}
	}
}

func TestKernelWaitsForBatches(t *testing.T) {
	d := newDriver(tiny(), policies.Paging{Oldest: true})
	d.own(0, 4)
	k := touching(0)
	k.span = 1000
	// Faults cost what the SSD takes for 4 pages, 500 ticks a byte, which is the
	// time of the two batches in which they come.
	if end := mustRun(t, d, 0, k); end != 1000+4*4096*500 {
		t.Errorf("ends at %d, want %d", end, 1000+4*4096*500)
	}
	// With everything there it takes its own time.
	if end := mustRun(t, d, 3*tinyBatch, k); end != 3*tinyBatch+1000 {
		t.Errorf("ends at %d", end)
	}
	// Without a host, each new page makes one leave for the SSD: two a batch. The
	// batch at the kernel's begin has passed; new pages alone would cost half.
	o := tiny()
	o.Host = 0
	d = newDriver(o, policies.Paging{Oldest: true})
	now := mustRun(t, d, 0, touching(0))
	now = mustRun(t, d, now, touching(1))
	now = (now/tinyBatch + 1) * tinyBatch
	if end := mustRun(t, d, now, touching(2)); end != now+2*tinyBatch {
		t.Errorf("takes %d, want two batches of %d", end-now, tinyBatch)
	}
}

func TestHints(t *testing.T) {
	d := newDriver(tiny(), policies.Paging{Oldest: true})
	now := mustRun(t, d, 0, touching(0))
	k := touching(1)
	k.span = 10 * tinyBatch
	k.hints = []hint{{id: 0, pages: 4, kind: leave, to: ssd}, {id: 2, pages: 2, kind: arrive}}
	now = mustRun(t, d, now, k)
	now = mustRun(t, d, now, touching(1)) // what went on beside the kernel has happened
	if at(d, 0)[ssd] != 4 || at(d, 2)[device] != 2 {
		t.Errorf("after the hints: %v, %v", at(d, 0), at(d, 2))
	}
	k = touching(1)
	k.hints = []hint{{id: 0, pages: 4, kind: arrive}, {id: 2, pages: 2, kind: vanish}, {id: 9, pages: 1, kind: vanish}}
	k.span = 10 * tinyBatch
	now = mustRun(t, d, now, k)
	mustRun(t, d, now, touching(1))
	if at(d, 0)[device] != 4 || at(d, 2) != [numPlaces]int64{} {
		t.Errorf("after the hints: %v, %v", at(d, 0), at(d, 2))
	}
	if d.stale != none {
		t.Errorf("storage %d is stale", d.stale)
	}
	k = touching(0)
	k.hints = []hint{{id: 0, pages: 4, kind: vanish}}
	mustRun(t, d, now+100*tinyBatch, k)
	if d.stale != 0 {
		t.Error("a kernel reads what a plan has thrown away, and nobody notices")
	}
}

func TestProtectedPages(t *testing.T) {
	// The device is full of 0 and 1; 2 is asked for ahead of time.
	for _, c := range []struct {
		spare []int32
		left  [2]int64 // of storages 0 and 1 on the device
	}{{nil, [2]int64{0, 4}}, {[]int32{0}, [2]int64{4, 0}}, {[]int32{0, 1}, [2]int64{4, 4}}} {
		d := newDriver(tiny(), policies.Paging{Oldest: true, Spare: true})
		now := mustRun(t, d, 0, touching(0))
		now = mustRun(t, d, now, touching(1))
		d.book.resize(2, 4)
		k := &kernel{span: 20 * tinyBatch, ahead: []int32{2}, spare: c.spare}
		now = mustRun(t, d, now, k)
		d.advance(now)
		if got := [2]int64{at(d, 0)[device], at(d, 1)[device]}; got != c.left {
			t.Errorf("with %v protected %v pages are left, want %v", c.spare, got, c.left)
		}
		// When a kernel waits for it, protection gives way.
		k = touching(2)
		k.spare = c.spare
		mustRun(t, d, now, k)
		if at(d, 2)[device] != 4 {
			t.Errorf("with %v protected the kernel ran on %v", c.spare, at(d, 2))
		}
	}
}

// TestBatchesAtOnce: batches that do all the same run at once, and leave what they
// leave one by one; also where the host fills up on the way, or where the SSD is as
// fast as the link.
func TestBatchesAtOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		hints []hint
		host  sim.Bytes
		ssd   sim.Rate
	}{
		{"to the SSD", []hint{{id: 0, pages: 40, kind: leave, to: ssd}}, 64 * 4 * sim.KiB, sim.GBps(1)},
		{"to the host", []hint{{id: 0, pages: 40, kind: leave, to: host}}, 64 * 4 * sim.KiB, sim.GBps(1)},
		{"to both", []hint{{id: 0, pages: 40, kind: leave, to: host}, {id: 1, pages: 24, kind: leave, to: ssd}}, 64 * 4 * sim.KiB, sim.GBps(1)},
		{"to both, the host fills up", []hint{{id: 0, pages: 40, kind: leave, to: host}, {id: 1, pages: 24, kind: leave, to: ssd}}, 20 * 4 * sim.KiB, sim.GBps(1)},
		{"to both, the host is full", []hint{{id: 0, pages: 40, kind: leave, to: host}, {id: 1, pages: 24, kind: leave, to: ssd}}, 0, sim.GBps(1)},
		{"to both, a fast SSD", []hint{{id: 0, pages: 40, kind: leave, to: host}, {id: 1, pages: 24, kind: leave, to: ssd}}, 64 * 4 * sim.KiB, sim.GBps(4)},
	} {
		o := tiny()
		o.Device, o.Host, o.SSDRate = 64*4*sim.KiB, c.host, c.ssd
		var ds [2]*driver
		for i := range ds {
			ds[i] = newDriver(o, policies.Paging{Oldest: true})
			now := mustRun(t, ds[i], 0, &kernel{operands: []operand{{id: 0, pages: 40, write: true}, {id: 1, pages: 24, write: true}}})
			ds[i].turn(now, &kernel{hints: c.hints})
		}
		steps := 0
		for range 60 {
			before := ds[0].tick
			if done := ds[0].batches(1 << 20); done > 0 {
				ds[0].tick += done * tinyBatch
			}
			for ds[1].tick < ds[0].tick {
				if ds[1].batch() == 0 {
					t.Fatalf("%s: a batch that moves nothing", c.name)
				}
				ds[1].note(0, ds[1].limits.out-ds[1].left.out, 1)
				ds[1].tick += tinyBatch
			}
			if ds[0].tick > before+tinyBatch {
				steps++
			}
			for id := range int32(2) {
				if a, b := at(ds[0], id), at(ds[1], id); a != b {
					t.Fatalf("%s: storage %d by place %v, one by one %v", c.name, id, a, b)
				}
			}
			if ds[0].counts != ds[1].counts {
				t.Fatalf("%s: %+v, one by one %+v", c.name, ds[0].counts, ds[1].counts)
			}
		}
		if ds[0].book.used[device] > 24 {
			t.Errorf("%s: %d pages are still there", c.name, ds[0].book.used[device])
		}
		if steps == 0 {
			t.Errorf("%s: all batches run one by one", c.name)
		}
	}
}

// TestVictimsBehindMuchThatIsHeld: what cannot leave is passed once, not by every
// batch. The device is full of pages that are runs of their own, first those that
// a kernel holds; as many come in as many batches. By the clock that is 0.1 s;
// passing all that is held each time takes some minutes.
func TestVictimsBehindMuchThatIsHeld(t *testing.T) {
	const n = 100_000
	opt := tiny()
	opt.Device, opt.Host, opt.Batch = 2*n*opt.Page, n*opt.Page, 2
	d := newDriver(opt, policies.Paging{Oldest: true})
	var k kernel
	for id := range int32(2 * n) {
		k.operands = append(k.operands, operand{id: id, pages: 1, write: true})
	}
	mustRun(t, d, 0, &k)
	slices.Reverse(k.operands) // they were asked for from the last on
	held := kernel{operands: k.operands[:n]}
	d.hold(stream.Compute, &held)
	big := kernel{operands: []operand{{id: 2 * n, pages: n, write: true}}}
	d.hold(stream.Comm, &big)
	before, start := d.counts.batches, time.Now()
	for d.hungry() {
		done := d.batches(1)
		if done == 0 {
			t.Fatal("the pages do not come")
		}
		d.tick += done * d.limits.ticks
		if time.Since(start) > 20*time.Second {
			t.Fatalf("%d of %d pages after 20 s", at(d, 2*n)[device], n)
		}
	}
	if err := d.check(); err != nil {
		t.Error(err)
	}
	if done := d.counts.batches - before; done != n/2 || at(d, 2*n)[device] != n || d.book.used[host] != n {
		t.Errorf("%d batches, %d pages came, %d left; want %d batches for %d pages", done, at(d, 2*n)[device], d.book.used[host], n/2, n)
	}
}

func TestCannotRun(t *testing.T) {
	d := newDriver(tiny(), policies.Paging{Oldest: true})
	if _, err := d.run(0, touching(0, 1, 2)); err == nil || !strings.Contains(err.Error(), "12 pages, the device has room for 8") {
		t.Errorf("a kernel larger than the device: %v", err)
	}
	o := tiny()
	o.SSD, o.SSDRate = 0, 0
	d = newDriver(o, policies.Paging{Oldest: true})
	now := int64(0)
	for id := range int32(3) {
		now = mustRun(t, d, now, touching(id))
	}
	if _, err := d.run(now, touching(3)); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("16 pages in memories of 12: %v", err)
	}
}

func TestAnotherSizeIsAnotherPlace(t *testing.T) {
	d := newDriver(tiny(), policies.Paging{Oldest: true})
	now := mustRun(t, d, 0, touching(0))
	k := touching(0)
	k.operands[0].pages = 6
	k.operands[0].read = false
	mustRun(t, d, now, k)
	if n := at(d, 0); n[device] != 6 || d.book.used[device] != 6 {
		t.Errorf("%v pages, %d in use", n, d.book.used[device])
	}
}

func TestBatchOfG10(t *testing.T) {
	o := originOptions()
	if l := o.limits(); l != (limits{ticks: 15599, in: 50, out: 50, inSSD: 10, outSSD: 10, new: 3899}) {
		t.Errorf("a batch of G10 is %+v", l)
	}
}

func TestFaultTicks(t *testing.T) {
	const mb = 1_000_000
	o := tiny() // 4 GB/s link, 2 GB/s SSD: 250 and 500 ticks per byte
	p := Profiled{Span: sim.Millisecond, Inputs: 3 * sim.Millisecond, All: 4 * sim.Millisecond}
	slow := Profiled{Span: sim.Second, Inputs: 2 * sim.Second, All: 4 * sim.Second}
	for name, c := range map[string]struct {
		times   FaultTimes
		p       Profiled
		in, out side
		want    int64
	}{
		"nothing missing":            {FaultsMeasured, p, side{bytes: mb}, side{bytes: mb}, 0},
		"not profiled":               {FaultsMeasured, Profiled{Span: 1}, side{mb, mb, 0}, side{}, mb * 250},
		"inputs at their rate":       {FaultsMeasured, p, side{mb, mb, 0}, side{}, int64(2 * sim.Millisecond)},
		"half the inputs":            {FaultsMeasured, p, side{2 * mb, mb, 0}, side{}, int64(sim.Millisecond)},
		"outputs at theirs":          {FaultsMeasured, p, side{}, side{mb, mb, 0}, int64(sim.Millisecond)},
		"both":                       {FaultsMeasured, p, side{mb, mb, 0}, side{mb, mb, 0}, int64(3 * sim.Millisecond)},
		"no faster than the link":    {FaultsMeasured, p, side{100 * mb, 100 * mb, 0}, side{}, 100 * mb * 250},
		"the SSD":                    {FaultsMeasured, Profiled{Span: 1}, side{mb, 0, mb}, side{}, mb * 500},
		"SSD and host share":         {FaultsMeasured, Profiled{Span: 1}, side{2 * mb, 3 * mb, mb}, side{}, 4 * mb * 250},
		"a fault on the SSD":         {FaultsMeasured, p, side{mb, 0, mb}, side{}, int64(2*sim.Millisecond) * 65 / 45},
		"as built, short kernels":    {FaultsAsBuilt, p, side{mb, mb, 0}, side{}, mb * 250},
		"as built, link less SSD":    {FaultsAsBuilt, p, side{2 * mb, mb, 10}, side{}, mb * 500},
		"as built, long, swapped":    {FaultsAsBuilt, slow, side{mb, mb, 0}, side{}, int64(2 * sim.Second)},
		"as built, outputs, swapped": {FaultsAsBuilt, slow, side{}, side{mb, mb, 0}, int64(sim.Second)},
	} {
		o.Times = c.times
		if got := o.faultTicks(c.p, c.in, c.out); got < c.want-c.want/1_000_000-1 || got > c.want+c.want/1_000_000+1 {
			t.Errorf("%s: %d ticks, want %d", name, got, c.want)
		}
	}
	// As built, with nothing of the link left beside the SSD: without pages of it
	// all is as usual, with it nothing comes from dividing by zero.
	o.SSDRate, o.Times = o.Link, FaultsAsBuilt
	for _, c := range []struct {
		in, out side
		want    int64
	}{
		{side{mb, mb, 0}, side{mb, mb, 0}, 2 * mb * 250},
		{side{mb, 0, mb}, side{}, mb * 250},
		{side{2 * mb, mb, mb}, side{}, mb * 250},
		{side{mb, 0, mb}, side{mb, mb, 0}, mb * 250},
		{side{2 * mb, mb, mb}, side{mb, mb, 0}, 0},
	} {
		if got := o.faultTicks(Profiled{}, c.in, c.out); got != c.want {
			t.Errorf("as built, nothing of the link left, %+v and %+v: %d ticks, want %d", c.in, c.out, got, c.want)
		}
	}
}

func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"page = 1000":        func(o *Options) { o.Page = 1000 },
		"batch = 0":          func(o *Options) { o.Batch = 0 },
		"device memory":      func(o *Options) { o.Device = 1 },
		"host = -1":          func(o *Options) { o.Host = -1 },
		"link = 0":           func(o *Options) { o.Link = 0 },
		"ssd rate = -1":      func(o *Options) { o.SSDRate = -1 },
		"want ssd = 0 too":   func(o *Options) { o.SSDRate = 0 },
		"is below one page":  func(o *Options) { o.SSDRate = 1 },
		"map = 0":            func(o *Options) { o.Map = 0 },
		"want none below 0":  func(o *Options) { o.Fault = -1 },
		"5 ticks per second": func(o *Options) { o.TicksPerSecond = 5 },
	} {
		o := tiny()
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
