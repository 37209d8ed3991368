package unified

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"smartswap/eager/stream"
	"smartswap/policies"
	"smartswap/sim"
)

// naive is the driver page by page, written from the description of what a
// batch does rather than from driver.go: every page is an object, every batch
// is run, and nothing is ever done for two pages at once.
type naive struct {
	opt    Options
	limits limits
	paging policies.Paging
	pages  map[int32][]*page
	live   map[int32]bool
	needed map[int32]bool // by the kernel that waits
	held   map[int32]int  // how many kernels hold it
	spared map[int32]bool
	lists  [numLists][]*page
	tick   int64
	full   bool // a page that is older than the run has no place
	left   limits
	forced bool
	in     [numPlaces]int64
	out    [numPlaces]int64
}

type page struct {
	storage int32
	n       int
	place   place
	list    list
}

func (m *naive) put(p *page, at place, l list) {
	if p.list != idle {
		m.lists[p.list] = slices.DeleteFunc(m.lists[p.list], func(q *page) bool { return q == p })
	}
	p.place, p.list = at, l
	if l != idle {
		m.lists[l] = append(m.lists[l], p)
	}
}

func (m *naive) used(at place) (n int64) {
	for _, pages := range m.pages {
		for _, p := range pages {
			if p.place == at {
				n++
			}
		}
	}
	return n
}

func (m *naive) room(at place) int64 {
	bytes := map[place]sim.Bytes{device: m.opt.Device, host: m.opt.Host, ssd: m.opt.SSD}[at]
	if bytes < 0 {
		return 1 << 40
	}
	return int64(bytes/m.opt.Page) - m.used(at)
}

// leave evicts p; false if there is nowhere to go in this batch.
func (m *naive) leave(p *page, choice bool) bool {
	if m.left.out == 0 {
		return false
	}
	to := ssd
	if choice && m.room(host) > 0 {
		to = host
	} else if m.left.outSSD == 0 || m.room(ssd) == 0 {
		return false
	}
	m.left.out--
	if to == ssd {
		m.left.outSSD--
	}
	m.out[to]++
	l := idle
	if m.needed[p.storage] {
		l = map[place]list{host: demandHost, ssd: demandSSD}[to]
	}
	m.put(p, to, l)
	return true
}

// makeRoom frees a page for p, which waits in list l.
func (m *naive) makeRoom(p *page, l list) bool {
	if m.room(device) > 0 {
		return true
	}
	for _, v := range m.lists[aged] {
		if m.held[v.storage] > 0 {
			continue
		}
		if l >= fetchSSD && m.paging.Spare && m.spared[v.storage] && !m.needed[p.storage] && m.held[p.storage] == 0 && !m.forced {
			continue
		}
		if m.paging.DropDead && !m.live[v.storage] {
			m.put(v, nowhere, idle)
			return true
		}
		return m.leave(v, true)
	}
	return false
}

// batch runs one batch and tells whether a page moved.
func (m *naive) batch() (moved bool) {
	m.left = m.limits
	for _, l := range []list{evictSSD, evictHost} {
		for len(m.lists[l]) > 0 && m.leave(m.lists[l][0], l == evictHost) {
			moved = true
		}
	}
	for l := demandSSD; l < numLists; l++ {
		for len(m.lists[l]) > 0 {
			p := m.lists[l][0]
			from := p.place
			if from == nowhere && m.left.new <= 0 || from != nowhere && m.left.in == 0 || from == ssd && m.left.inSSD == 0 || !m.makeRoom(p, l) {
				break
			}
			m.left.new--
			if from != nowhere {
				m.left.in--
				m.in[from]++
			}
			if from == ssd {
				m.left.inSSD--
			}
			m.put(p, device, aged)
			moved = true
		}
	}
	m.tick += m.limits.ticks
	return moved
}

func (m *naive) ask(id int32, by map[place]list) {
	for _, p := range m.pages[id] {
		if l := by[p.place]; l != idle && (p.list == idle || p.list == aged) {
			m.put(p, p.place, l)
		}
	}
}

// make gives a storage its pages.
func (m *naive) make(id, pages int32) {
	for i := len(m.pages[id]); i < int(pages); i++ {
		m.pages[id] = append(m.pages[id], &page{storage: id, n: i})
	}
}

// turn is driver.turn.
func (m *naive) turn(now int64, k *kernel) {
	m.advance(now)
	for _, id := range k.dead {
		m.live[id] = false
	}
	m.spared = map[int32]bool{}
	for _, id := range k.spare {
		m.spared[id] = true
	}
	fetch := map[place]list{nowhere: fetchNew, host: fetchHost, ssd: fetchSSD}
	for _, h := range k.hints {
		if h.kind != leave {
			m.make(h.id, h.pages)
		}
		switch h.kind {
		case arrive:
			m.ask(h.id, fetch)
		case vanish:
			for _, p := range m.pages[h.id] {
				m.put(p, nowhere, idle)
			}
		case leave:
			m.ask(h.id, map[place]list{device: map[place]list{host: evictHost, ssd: evictSSD}[h.to]})
		}
	}
	for _, id := range k.ahead {
		m.ask(id, fetch)
	}
}

// advance is driver.advance.
func (m *naive) advance(now int64) {
	for m.tick <= now {
		if !m.batch() && m.hungry() {
			m.tick -= m.limits.ticks
			m.forced = true
			m.batch()
			m.forced = false
		}
	}
}

// hungry tells whether a page of what is held is not there.
func (m *naive) hungry() bool {
	for id, n := range m.held {
		for _, p := range m.pages[id] {
			if n > 0 && p.list != aged {
				return true
			}
		}
	}
	return false
}

// run is driver.run; ok is false when the kernel can never run.
func (m *naive) run(now int64, k *kernel) (end int64, ok bool) {
	if m.full {
		return 0, false
	}
	m.turn(now, k)
	sides := m.demand(k)
	total := int64(0)
	for _, o := range k.operands {
		total += int64(o.pages)
	}
	missing := func() int { return m.missing(k) }
	if total > int64(m.opt.Device/m.opt.Page) {
		return 0, false
	}
	end = now + k.span
	if missing() == 0 {
		return end, true
	}
	end += m.opt.faultTicks(k.times, sides[0], sides[1])
	m.needed = map[int32]bool{}
	for _, o := range k.operands {
		m.needed[o.id] = true
	}
	for missing() > 0 {
		if !m.batch() {
			m.tick -= m.limits.ticks
			m.forced = true
			moved := m.batch()
			m.forced = false
			if !moved {
				return 0, false
			}
		}
	}
	m.needed = nil
	return max(end, m.tick-m.limits.ticks), true
}

// demand asks for what a kernel misses, inputs first.
func (m *naive) demand(k *kernel) (sides [2]side) {
	var order []operand
	for _, o := range k.operands {
		if o.read {
			order = append(order, o)
		}
	}
	for _, o := range slices.Backward(k.operands) {
		if !o.read {
			order = append(order, o)
		}
	}
	for _, o := range order {
		m.make(o.id, o.pages)
		m.live[o.id] = true
		s := &sides[0]
		if !o.read {
			s = &sides[1]
		}
		s.bytes += int64(o.pages) * int64(m.opt.Page)
		for _, p := range m.pages[o.id] {
			switch {
			case p.list != idle:
			case p.place == ssd:
				s.far += int64(m.opt.Page)
			default:
				s.near += int64(m.opt.Page)
			}
		}
		m.ask(o.id, map[place]list{nowhere: demandNew, host: demandHost, ssd: demandSSD})
		if !m.paging.Oldest {
			for _, p := range m.pages[o.id] {
				if p.list == aged {
					m.put(p, device, aged)
				}
			}
		}
	}
	return sides
}

// missing is how many pages of a kernel are not there.
func (m *naive) missing(k *kernel) (n int) {
	for _, o := range k.operands {
		for _, p := range m.pages[o.id] {
			if p.list != aged {
				n++
			}
		}
	}
	return n
}

// own is driver.own.
func (m *naive) own(id, pages int32) {
	m.make(id, pages)
	m.live[id] = true
	for _, q := range m.pages[id] {
		switch {
		case m.room(ssd) > 0:
			m.put(q, ssd, idle)
		case m.room(host) > 0:
			m.put(q, host, idle)
		case m.room(device) > 0:
			m.put(q, device, aged)
		default:
			m.full = true
		}
	}
}

// fits is driver.fits.
func (m *naive) fits(k *kernel) bool {
	n := 0
	for id, by := range m.held {
		if by > 0 {
			n += len(m.pages[id])
		}
	}
	for _, o := range k.operands {
		if m.held[o.id] == 0 {
			n += int(o.pages)
		}
	}
	return n <= int(m.opt.Device/m.opt.Page)
}

// hold is driver.hold.
func (m *naive) hold(k *kernel) {
	for _, o := range k.operands {
		m.make(o.id, o.pages)
		m.held[o.id]++
		for _, p := range m.pages[o.id] {
			if p.list == evictSSD || p.list == evictHost {
				m.put(p, device, aged)
			}
		}
	}
	m.demand(k)
}

// TestHoldsAgainstPages holds the driver against the same model where kernels of
// three streams come and go: the same pages in the same places and orders at any
// time, and kernels that wait for the same. What is held never leaves.
func TestHoldsAgainstPages(t *testing.T) {
	var cases, together, waits, evicted, kept int
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		d := newDriver(p.opt, p.paging)
		m := &naive{opt: p.opt, limits: p.opt.limits(), paging: p.paging, pages: map[int32][]*page{}, live: map[int32]bool{}, held: map[int32]int{}}
		for id := range int32(p.global) {
			d.own(id, p.sizes[id])
			m.own(id, p.sizes[id])
		}
		if d.homeless {
			return
		}
		cases++
		var running [3]*kernel // by stream
		now, next := int64(0), 0
		was := false // two kernels waited at once
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 0, 1, d.limits.ticks / 2, d.limits.ticks, 3 * d.limits.ticks, 40 * d.limits.ticks}).Draw(t, "time")
			s := stream.ID(rapid.IntRange(0, 2).Draw(t, "stream"))
			d.advance(now)
			m.advance(now)
			if k := running[s]; k != nil {
				if d.holds[s].missing == 0 && rapid.Bool().Draw(t, "ends") {
					for _, o := range k.operands {
						m.held[o.id]--
					}
					d.release(s, k)
					running[s] = nil
				}
			} else {
				k := p.kernels[next%len(p.kernels)]
				next++
				if s == stream.Compute { // what is put off while somebody has it
					held := func(id int32) bool { return m.held[id] > 0 }
					k.dead = slices.DeleteFunc(slices.Clone(k.dead), held)
					k.hints = slices.DeleteFunc(slices.Clone(k.hints), func(h hint) bool { return h.kind != arrive && held(h.id) })
					d.turn(now, &k)
					m.turn(now, &k)
				}
				if fits := d.fits(&k); fits != m.fits(&k) {
					t.Fatalf("fits %v, page by page %v", fits, !fits)
				} else if fits {
					for _, o := range k.operands {
						if b := d.book; int(o.id) < len(b.storages) {
							for i := b.storages[o.id].first; i != none; i = b.run(i).right {
								if l := b.run(i).list; l == evictSSD || l == evictHost {
									kept++
								}
							}
						}
					}
					d.hold(s, &k)
					m.hold(&k)
					running[s] = &k
				}
			}
			if err := d.book.check(); err != nil {
				t.Fatal(err)
			}
			if err := d.check(); err != nil {
				t.Fatal(err)
			}
			if got, want := dump(d), m.dump(); got != want {
				t.Fatalf("%s\npage by page:\n%s", got, want)
			}
			if d.counts.in != m.in || d.counts.out != m.out {
				t.Fatalf("moved %v in, %v out; page by page %v, %v", d.counts.in, d.counts.out, m.in, m.out)
			}
			hungry := 0
			for s, k := range running {
				if k == nil {
					continue
				}
				if want := int64(m.missing(k)); d.holds[s].missing != want {
					t.Fatalf("stream %d waits for %d pages, page by page for %d", s, d.holds[s].missing, want)
				} else if want > 0 {
					hungry++
				}
			}
			was = was || hungry > 1
		}
		if was {
			together++
		}
		if d.counts.waited > 0 {
			waits++
		}
		if d.counts.out[host]+d.counts.out[ssd] > 0 {
			evicted++
		}
	})
	t.Logf("%d cases: in %d several wait at once, in %d for what is on its way, %d evict; %d runs of pages were kept from leaving", cases, together, waits, evicted, kept)
	if cases >= 100 && (100*together < 10*cases || 100*evicted < 10*cases || kept == 0) {
		t.Error("the cases do not bite")
	}
}

// drawProgram draws storages and the kernels of one iteration over them.
type program struct {
	opt     Options
	paging  policies.Paging
	sizes   []int32 // pages, by storage
	global  int     // storages below it live across iterations
	kernels []kernel
}

func drawProgram(t *rapid.T) *program {
	p := &program{opt: Defaults()}
	p.opt.Page = 4096
	n := rapid.IntRange(3, 9).Draw(t, "storages")
	p.global = rapid.IntRange(0, 3).Draw(t, "globals")
	all := int32(0)
	for range n {
		s := rapid.Int32Range(1, 12).Draw(t, "pages")
		p.sizes = append(p.sizes, s)
		all += s
	}
	pages := func(what string, lo, hi int32) sim.Bytes {
		return sim.Bytes(rapid.Int32Range(lo, max(lo, hi)).Draw(t, what)) * p.opt.Page
	}
	p.opt.Device = pages("device", 12, all+4)
	p.opt.Host = pages("host", 0, all)
	switch rapid.IntRange(0, 3).Draw(t, "ssd") {
	case 0:
		p.opt.SSD, p.opt.SSDRate = 0, 0
		p.opt.Host += pages("more host", 0, 2*all)
	case 1:
		p.opt.SSD = pages("ssd size", all/2, 2*all)
	}
	p.opt.Link = sim.GBps(4)
	if p.opt.SSDRate > 0 {
		p.opt.SSDRate = sim.Rate(rapid.Int64Range(1_000_000_000, 4_500_000_000).Draw(t, "ssd rate"))
	}
	p.opt.Batch = rapid.Int64Range(4, 9).Draw(t, "batch")
	p.opt.Map = sim.Rate(rapid.SampledFrom([]int64{2, 4, 40}).Draw(t, "map") * 1_000_000_000)
	p.opt.Times = rapid.SampledFrom([]FaultTimes{FaultsMeasured, FaultsAsBuilt}).Draw(t, "times")
	p.paging = policies.Paging{Spare: rapid.Bool().Draw(t, "spare"), Oldest: rapid.Bool().Draw(t, "oldest"), DropDead: rapid.SampledFrom([]bool{true, true, false}).Draw(t, "drop dead")}
	storage := func(what string) int32 { return rapid.Int32Range(0, int32(n-1)).Draw(t, what) }
	list := func(what string, most int) (ids []int32) {
		for range rapid.IntRange(0, most).Draw(t, what) {
			ids = append(ids, storage(what))
		}
		return ids
	}
	for range rapid.IntRange(1, 8).Draw(t, "kernels") {
		k := kernel{span: rapid.Int64Range(0, 20_000_000).Draw(t, "span"), dead: list("dead", 4), ahead: list("ahead", 2), spare: list("spare", 3)}
		if rapid.Bool().Draw(t, "profiled") {
			k.times = Profiled{sim.Time(k.span), sim.Time(k.span) + 3*sim.Second/2, sim.Time(k.span) + 4*sim.Second}
		}
		seen := map[int32]bool{}
		for range rapid.IntRange(1, 3).Draw(t, "operands") {
			id := storage("operand")
			if seen[id] {
				continue
			}
			seen[id] = true
			mode := rapid.IntRange(0, 2).Draw(t, "mode")
			k.operands = append(k.operands, operand{id: id, pages: p.sizes[id], read: mode != 1, write: mode != 0})
		}
		k.dead = slices.DeleteFunc(k.dead, func(id int32) bool { return int(id) < p.global })
		for range rapid.IntRange(0, 3).Draw(t, "hints") {
			h := hint{id: storage("hint"), kind: hintKind(rapid.IntRange(0, 2).Draw(t, "kind")), to: host}
			h.pages = p.sizes[h.id]
			if h.kind == vanish && int(h.id) < p.global {
				h.kind = arrive
			}
			if p.opt.SSDRate > 0 && rapid.Bool().Draw(t, "to ssd") {
				h.to = ssd
			}
			k.hints = append(k.hints, h)
		}
		p.kernels = append(p.kernels, k)
	}
	return p
}

// TestAgainstPages holds the driver against the model that keeps every page:
// the same ends of kernels, places and orders of pages, and traffic.
func TestAgainstPages(t *testing.T) {
	var cases, evicted, dropped, stuck, demandedAgain int
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		if err := p.opt.Validate(); err != nil {
			t.Fatal(err)
		}
		d := newDriver(p.opt, p.paging)
		m := &naive{opt: p.opt, limits: p.opt.limits(), paging: p.paging, pages: map[int32][]*page{}, live: map[int32]bool{}}
		for id := range int32(p.global) {
			d.own(id, p.sizes[id])
			m.own(id, p.sizes[id])
		}
		cases++
		now := int64(0)
		for i := range 3 * len(p.kernels) {
			k := p.kernels[i%len(p.kernels)]
			want, ok := m.run(now, &k)
			end, err := d.run(now, &k)
			if (err == nil) != ok {
				t.Fatalf("kernel %d: %v, page by page %v", i, err, ok)
			}
			if !ok {
				stuck++
				break
			}
			if end != want {
				t.Fatalf("kernel %d ends at %d, page by page at %d", i, end, want)
			}
			if err := d.book.check(); err != nil {
				t.Fatalf("kernel %d: %v", i, err)
			}
			if got, want := dump(d), m.dump(); got != want {
				t.Fatalf("kernel %d:\n%s\npage by page:\n%s", i, got, want)
			}
			if d.counts.in != m.in || d.counts.out != m.out {
				t.Fatalf("kernel %d: moved %v in, %v out; page by page %v, %v", i, d.counts.in, d.counts.out, m.in, m.out)
			}
			if d.counts.longest > d.limits.in {
				t.Fatalf("kernel %d: %d pages in a batch of %d", i, d.counts.longest, d.limits.in)
			}
			now = end + int64(i%3)*100_000
		}
		if d.counts.out[host]+d.counts.out[ssd] > 0 {
			evicted++
		}
		if d.counts.dropped > 0 {
			dropped++
		}
		if d.counts.in[host]+d.counts.in[ssd] > d.counts.faults[host]+d.counts.faults[ssd] {
			demandedAgain++
		}
	})
	t.Logf("%d cases: %d evict, %d drop, %d cannot go on, %d fetch what no kernel missed at its begin", cases, evicted, dropped, stuck, demandedAgain)
	if cases >= 100 && (100*evicted < 25*cases || 100*dropped < 3*cases || 100*stuck < 10*cases) {
		t.Errorf("of %d cases only %d evict, %d drop, %d cannot go on", cases, evicted, dropped, stuck)
	}
}

// dump is where all pages are, and the order of lists.
func dump(d *driver) string {
	b := d.book
	var s string
	for id := range b.storages {
		for i := b.storages[id].first; i != none; i = b.run(i).right {
			for n := b.run(i).lo; n < b.run(i).hi; n++ {
				if r := b.run(i); r.place != nowhere || r.list != idle {
					s += fmt.Sprintf("%d.%d:%d/%d ", id, n, r.place, r.list)
				}
			}
		}
	}
	for l := aged; l < numLists; l++ {
		s += fmt.Sprintf("\n%d:", l)
		for i := b.head(l); i != none; i = b.after(i, l) {
			for n := b.run(i).lo; n < b.run(i).hi; n++ {
				s += fmt.Sprintf(" %d.%d", b.run(i).storage, n)
			}
		}
	}
	return s
}

func (m *naive) dump() string {
	var ids []int32
	for id := range m.pages {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var s string
	for _, id := range ids {
		for _, p := range m.pages[id] {
			if p.place != nowhere || p.list != idle {
				s += fmt.Sprintf("%d.%d:%d/%d ", id, p.n, p.place, p.list)
			}
		}
	}
	for l := aged; l < numLists; l++ {
		s += fmt.Sprintf("\n%d:", l)
		for _, p := range m.lists[l] {
			s += fmt.Sprintf(" %d.%d", p.storage, p.n)
		}
	}
	return s
}
