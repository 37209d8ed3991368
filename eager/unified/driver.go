package unified

import (
	"fmt"

	"smartswap/eager/stream"
	"smartswap/policies"
)

// operand is a storage of a kernel.
type operand struct {
	id          int32
	pages       int32
	read, write bool
}

// kernel is what the driver is told when one begins.
type kernel struct {
	operands []operand // each storage once
	dead     []int32   // storages that nobody references any more
	hints    []hint    // in order
	ahead    []int32   // storages to fetch ahead of time
	spare    []int32   // storages that no page fetched ahead of time may displace
	span     int64     // ticks, with everything on the device
	times    Profiled
}

// hint is a planned movement of a storage.
type hint struct {
	id    int32
	pages int32 // of the storage, which may not have been touched yet
	kind  hintKind
	to    place // leave: host or ssd
}

type hintKind uint8

const (
	leave  hintKind = iota
	arrive          // or be mapped, if its pages are nowhere
	vanish          // at once, without a copy
)

// counts are running sums.
type counts struct {
	in, out [numPlaces]int64 // pages moved to and from the device, by the other place
	mapped  int64            // pages that got memory on the device without content
	dropped int64            // pages of dead storages that were forgotten to make room
	faults  [numPlaces]int64 // pages that a kernel missed when it began, by where they were
	waited  int64            // pages that were on their way already
	faulted int64            // kernels that missed any
	batches int64            // that moved anything
	longest int64            // most pages a batch has moved one way: tests hold it against the budget
	peak    [numPlaces]int64
	stalled int64 // ticks that kernels took beyond their span
}

// driver moves pages. Its time is in ticks and advances by batches; see
// Options. It is a plain state machine. Where only one stream runs kernels, run
// tells it of a kernel and when that begins, and is told when it ends. Where
// several do, turn tells of the hints of a kernel; hold of its operands, which
// batches then bring in the order of hold, and which stay until release.
type driver struct {
	opt    Options
	limits limits
	paging policies.Paging
	book   *book
	counts counts
	moves  mover
	tick   int64 // of the next batch

	left     limits // what the batch under way may still do
	waiting  bool   // a kernel waits for its pages
	pressed  bool   // it would wait for ever if protected pages stayed
	homeless bool   // a storage that is older than the run has no place
	stale    int32  // a storage that a kernel has read without its content, none if there is none

	holds   [stream.Count]hold
	holding int64 // pages of held storages
}

// hold is a kernel of a stream from when its operands are held until it ends.
type hold struct {
	missing int64 // pages of it that have not come yet
	arrived int64 // tick of the batch with the last one
}

func newDriver(opt Options, paging policies.Paging) *driver {
	room := func(bytes int64) int64 { return bytes / int64(opt.Page) }
	far := room(int64(opt.SSD))
	if opt.SSD < 0 {
		far = 1 << 62
	}
	return &driver{
		stale: none, opt: opt, limits: opt.limits(), paging: paging,
		book: newBook(room(int64(opt.Device)), room(int64(opt.Host)), far),
	}
}

// stuckError is a kernel whose pages can never all be on the device.
type stuckError struct {
	pages, room int64 // of its operands; of the device
	full        bool  // nothing can leave: the memories below are full
}

func (e *stuckError) Error() string {
	if e.full {
		return "nothing can leave the device: host and SSD are full"
	}
	return fmt.Sprintf("the operands of one kernel have %d pages, the device has room for %d", e.pages, e.room)
}

// run begins kernel k at tick now, not before the last one ended, and returns
// when it ends. Everything up to then that the kernel waits for has happened
// when run returns; what goes on beside the kernel happens in later calls.
//
// O(runs that move + batches that take from more than one queue).
func (d *driver) run(now int64, k *kernel) (end int64, err error) {
	if d.homeless {
		return 0, &stuckError{full: true}
	}
	d.turn(now, k)
	missing, err := d.demand(k)
	if err != nil {
		return 0, err
	}
	end = now + k.span
	if d.book.missing > 0 {
		fault := d.opt.faultTicks(k.times, missing[0], missing[1])
		arrived, err := d.wait()
		if err != nil {
			return 0, err
		}
		end = max(end+fault, arrived)
	}
	d.counts.stalled += end - now - k.span
	d.use(k)
	return end, nil
}

// turn queues what a kernel brings about beside what it needs itself.
func (d *driver) turn(now int64, k *kernel) {
	b := d.book
	d.advance(now)
	b.now++
	for _, id := range k.dead {
		d.die(id)
	}
	for _, id := range k.spare {
		b.at(id).spared = b.now
	}
	b.rewind()
	for i := range k.hints {
		d.hint(&k.hints[i])
	}
	for _, id := range k.ahead {
		d.fetch(id)
	}
}

// use has a kernel read and write its operands, all of which are there.
func (d *driver) use(k *kernel) {
	for i := range k.operands {
		o := &k.operands[i]
		if o.read && !d.book.holds(o.id) {
			d.stale = o.id
		}
		if o.write {
			d.written(o.id)
		}
	}
}

// fits tells whether the operands of k have room beside all that is held.
func (d *driver) fits(k *kernel) bool {
	n := d.holding
	for i := range k.operands {
		if o := &k.operands[i]; d.book.at(o.id).held == 0 {
			n += int64(o.pages)
		}
	}
	return n <= d.book.room[device]
}

// hold asks for what a kernel of stream s misses, and keeps its operands on the
// device until release: those that were to leave stay. It returns the time that
// faults add to the kernel. The operands must fit.
func (d *driver) hold(s stream.ID, k *kernel) (fault int64) {
	b := d.book
	for i := range k.operands {
		o := &k.operands[i]
		x := b.resize(o.id, o.pages)
		if x.held == 0 {
			d.holding += int64(o.pages)
		}
		x.held |= 1 << s
		d.keep(o.id)
	}
	missing, _ := d.demand(k) // an error is about a kernel that does not fit
	d.holds[s] = hold{missing: b.missing}
	b.missing = 0
	return d.opt.faultTicks(k.times, missing[0], missing[1])
}

// release ends hold.
func (d *driver) release(s stream.ID, k *kernel) {
	b := d.book
	for i := range k.operands {
		o := &k.operands[i]
		x := b.at(o.id)
		if x.held &^= 1 << s; x.held == 0 {
			d.holding -= int64(o.pages)
		}
	}
	b.rewind()
}

// check looks at what is held: together it fits, and all of it is on the device
// for good that its kernels do not wait for. O(runs of what is held).
func (d *driver) check() error {
	var pages int64
	var away [stream.Count]int64
	for id := range d.book.storages {
		x := &d.book.storages[id]
		if x.held == 0 {
			continue
		}
		pages += int64(x.pages)
		for i := x.first; i != none; i = d.book.run(i).right {
			r := d.book.run(i)
			if r.list == evictSSD || r.list == evictHost {
				return fmt.Errorf("storage %d, held, is to leave", id)
			}
			for s := range away {
				if x.held>>s&1 == 1 && r.place != device {
					away[s] += r.len()
				}
			}
		}
	}
	if pages != d.holding || pages > d.book.room[device] {
		return fmt.Errorf("%d pages are held, the books say %d, there is room for %d", pages, d.holding, d.book.room[device])
	}
	for s := range away {
		if away[s] != d.holds[s].missing {
			return fmt.Errorf("%d pages of the kernel on %s are not there; it waits for %d", away[s], stream.ID(s).Name(), d.holds[s].missing)
		}
	}
	return nil
}

// hungry tells whether a kernel waits for pages.
func (d *driver) hungry() bool {
	for s := range d.holds {
		if d.holds[s].missing > 0 {
			return true
		}
	}
	return false
}

// keep takes a storage out of the queues of what is to leave.
func (d *driver) keep(id int32) {
	b := d.book
	for i := b.at(id).first; i != none; {
		r := b.run(i)
		next := r.right
		if r.list == evictSSD || r.list == evictHost {
			b.move(i, r.len(), device, aged)
		}
		i = next
	}
}

// die tells that nobody references a storage any more. Its pages stay where
// they are: a driver that is told takes them first when it needs room, and
// forgets what they held.
func (d *driver) die(id int32) {
	d.book.at(id).live = false
}

// hint queues what a plan asks for. A page that is under way already stays so.
// What the program refers to is not the storage that the hint is about if it has
// another size, as in a program that is not the nominal one.
func (d *driver) hint(h *hint) {
	if s := d.book.at(h.id); s.live && s.pages != h.pages {
		return
	}
	switch h.kind {
	case arrive:
		d.book.resize(h.id, h.pages)
		d.fetch(h.id)
	case vanish:
		d.book.resize(h.id, h.pages)
		d.book.discard(h.id)
	case leave:
		to := evictHost
		if h.to == ssd {
			to = evictSSD
		}
		d.queue(h.id, [numPlaces]list{device: to})
	}
}

// fetch asks for a storage ahead of time.
func (d *driver) fetch(id int32) {
	if d.book.at(id).first == none {
		d.book.lay(id, nowhere)
	}
	d.queue(id, [numPlaces]list{nowhere: fetchNew, host: fetchHost, ssd: fetchSSD})
}

// queue puts the pages of a storage that wait for nothing into the list for
// their place; idle leaves them.
func (d *driver) queue(id int32, by [numPlaces]list) {
	b := d.book
	for i := b.at(id).first; i != none; {
		r := b.run(i)
		next := r.right
		if l := by[r.place]; l != idle && (r.list == idle || r.list == aged) {
			b.move(i, r.len(), r.place, l)
		}
		i = next
	}
}

// demand queues what the kernel misses and tells how much that is, for inputs
// and outputs. It asks for inputs first; for outputs in reverse order, which is
// as good as any and how the timelines of G10 have it.
func (d *driver) demand(k *kernel) (missing [2]side, err error) {
	d.book.missing = 0
	var all, faults int64
	for i := range k.operands {
		all += int64(k.operands[i].pages)
		if o := &k.operands[i]; o.read {
			faults += d.ask(o, &missing[0])
		}
	}
	for i := len(k.operands) - 1; i >= 0; i-- {
		if o := &k.operands[i]; !o.read {
			faults += d.ask(o, &missing[1])
		}
	}
	if faults > 0 {
		d.counts.faulted++
	}
	if all > d.book.room[device] {
		return missing, &stuckError{pages: all, room: d.book.room[device]}
	}
	return missing, nil
}

// ask queues what is missing of an operand of the current kernel, adds it to m,
// and returns how many pages nobody had asked for.
func (d *driver) ask(o *operand, m *side) (faults int64) {
	b := d.book
	s := b.resize(o.id, o.pages)
	if s.first == none {
		b.lay(o.id, nowhere)
	}
	s.live, s.needed = true, b.now
	m.bytes += int64(o.pages) * int64(d.opt.Page)
	for i := s.first; i != none; i = b.run(i).right {
		r := b.run(i)
		n := r.len()
		if r.list == aged {
			continue
		}
		b.missing += n
		if r.list != idle {
			d.counts.waited += n
			continue
		}
		d.counts.faults[r.place] += n
		faults += n
		if r.place == ssd {
			m.far += n * int64(d.opt.Page)
		} else {
			m.near += n * int64(d.opt.Page)
		}
	}
	d.queue(o.id, [numPlaces]list{nowhere: demandNew, host: demandHost, ssd: demandSSD})
	if !d.paging.Oldest {
		b.touch(o.id)
	}
	return faults
}

// own declares a storage that is older than the run: its pages lie in the lowest
// tier that has room. If none has, no kernel will ever run.
func (d *driver) own(id, pages int32) {
	b := d.book
	s := b.resize(id, pages)
	s.live = true
	b.lay(id, nowhere)
	left := int64(pages)
	for _, at := range []place{ssd, host, device} {
		n := min(left, b.room[at]-b.used[at])
		if n <= 0 {
			continue
		}
		l := idle
		if at == device {
			l = aged
		}
		last := s.first
		for b.run(last).right != none {
			last = b.run(last).right
		}
		b.move(last, n, at, l)
		left -= n
	}
	d.homeless = d.homeless || left > 0
	d.written(id)
}

// written gives a storage new content.
func (d *driver) written(id int32) {
	s := &d.book.storages[id]
	s.version++
	for i := s.first; i != none; i = d.book.run(i).right {
		d.book.run(i).token = s.version
	}
}

// advance runs the batches up to and including tick now.
func (d *driver) advance(now int64) {
	d.book.missing = 0
	for d.tick <= now {
		n := (now-d.tick)/d.limits.ticks + 1 // batches left
		done := d.batches(n)
		if done == 0 { // nothing can change before the next kernel
			done = n
		}
		d.tick += done * d.limits.ticks
	}
}

// wait runs batches until the current kernel misses nothing, and returns the
// tick of the last one.
func (d *driver) wait() (int64, error) {
	d.waiting = true
	defer func() { d.waiting = false }()
	for d.book.missing > 0 {
		done := d.batches(1 << 40)
		if done == 0 {
			return 0, &stuckError{full: true}
		}
		d.tick += done * d.limits.ticks
	}
	return d.tick - d.limits.ticks, nil
}

// batches runs one batch, or several equal ones at once, at most n. It returns
// how many, 0 if a batch moves nothing; then further ones would not either.
func (d *driver) batches(n int64) int64 {
	if done := d.repeat(n); done > 0 {
		return done
	}
	moved := d.batch()
	if moved == 0 && (d.waiting || d.hungry()) { // protection may be all that is in the way
		d.pressed = true
		moved = d.batch()
		d.pressed = false
	}
	if moved == 0 {
		return 0
	}
	d.note(d.limits.in-d.left.in, d.limits.out-d.left.out, 1)
	return 1
}

// batch runs one batch and returns how many pages it has moved.
func (d *driver) batch() (moved int64) {
	d.left = d.limits
	moved = d.expel(evictSSD) + d.expel(evictHost)
	for q := demandSSD; q < numLists; q++ {
		moved += d.bring(q)
	}
	return moved
}

func (d *driver) note(in, out, n int64) {
	d.counts.batches += n
	d.counts.longest = max(d.counts.longest, in, out)
	d.moves.note(d, n)
	for p := device; p < numPlaces; p++ {
		d.counts.peak[p] = max(d.counts.peak[p], d.book.used[p])
	}
}

// active is the first and the last queue that is not empty, idle if there is none.
func (d *driver) active() (first, last list) {
	for q := evictSSD; q < numLists; q++ {
		if d.book.queued[q] == 0 {
			continue
		}
		if first == idle {
			first = q
		}
		last = q
	}
	return first, last
}

// expel carries out planned evictions of a queue as far as the batch allows,
// and returns how many pages left.
func (d *driver) expel(q list) (moved int64) {
	for d.book.queued[q] > 0 {
		i := d.book.head(q)
		to, n := d.below(q == evictHost, none)
		if n = min(n, d.book.run(i).len()); n == 0 {
			break
		}
		d.spend(to, n)
		d.leave(i, n, to)
		moved += n
	}
	return moved
}

// below is where pages leave to, and how many can go there one after the
// other. Given the choice they go to the host; when that is full, to the SSD.
// With for_, a run of the host that comes in their place page by page, the host
// does not fill up; when it is full, the first that leaves makes the room for
// the second.
func (d *driver) below(choice bool, for_ int32) (to place, n int64) {
	b := d.book
	swap := for_ != none && b.run(for_).place == host
	if room := b.room[host] - b.used[host]; choice && room > 0 {
		if swap {
			return host, d.left.out
		}
		return host, min(d.left.out, room)
	}
	n = max(0, min(d.left.out, d.left.outSSD, b.room[ssd]-b.used[ssd]))
	if swap {
		n = min(n, 1)
	}
	return ssd, n
}

// spend takes n pages that leave for a place out of the batch.
func (d *driver) spend(to place, n int64) {
	d.left.out -= n
	if to == ssd {
		d.left.outSSD -= n
	}
}

// bring carries out arrivals of a queue as far as the batch allows, and returns
// how many pages came.
func (d *driver) bring(q list) (moved int64) {
	b := d.book
	for b.queued[q] > 0 {
		i := b.head(q)
		r := b.run(i)
		from := r.place
		n := min(r.len(), d.arrivals(from))
		if n == 0 {
			break
		}
		if free := b.room[device] - b.used[device]; free > 0 {
			n = min(n, free)
		} else {
			v := d.victim(i)
			if v == none {
				break
			}
			n = min(n, b.run(v).len())
			if d.dead(v) {
				d.drop(v, n)
			} else {
				to, m := d.below(true, i)
				if n = min(n, m); n == 0 {
					break
				}
				d.spend(to, n)
				d.leave(v, n, to)
			}
		}
		d.left.new -= n
		if from != nowhere {
			d.left.in -= n
		}
		if from == ssd {
			d.left.inSSD -= n
		}
		d.land(i, n)
		moved += n
	}
	return moved
}

// arrivals is how many more pages may come from a place in this batch. Pages
// that are moved are not held up by mapping, but use up time for it.
func (d *driver) arrivals(from place) int64 {
	switch from {
	case nowhere:
		return max(0, d.left.new)
	case ssd:
		return min(d.left.in, d.left.inSSD)
	}
	return d.left.in
}

// victim is the run that makes room for pages of run i: the first of those on
// the device that wait for nothing and are not held. Pages fetched ahead of time
// may not take the place of protected ones, unless a kernel has come to wait for
// them.
func (d *driver) victim(i int32) int32 {
	b := d.book
	if b.run(i).list < fetchSSD || !d.paging.Spare || d.pressed || d.needed(i) {
		return b.victim(unheld)
	}
	return b.victim(unprotected)
}

// needed tells whether a kernel needs the storage of run i: one that holds it,
// or the current one. Between kernels none does.
func (d *driver) needed(i int32) bool {
	s := &d.book.storages[d.book.run(i).storage]
	return s.held != 0 || d.waiting && s.needed == d.book.now
}

// dead tells whether the pages of a run may be forgotten.
func (d *driver) dead(i int32) bool {
	return d.paging.DropDead && !d.book.storages[d.book.run(i).storage].live
}

// leave moves the first n pages of a run on the device to a place below. Those
// that the current kernel needs are asked for again.
func (d *driver) leave(i int32, n int64, to place) {
	l := idle
	if d.needed(i) {
		if d.book.run(i).list == aged { // else it is missed already
			d.book.missing += n
		}
		l = demandHost
		if to == ssd {
			l = demandSSD
		}
	}
	d.counts.out[to] += n
	d.book.move(i, n, to, l)
}

// drop forgets the first n pages of a run.
func (d *driver) drop(i int32, n int64) {
	d.counts.dropped += n
	d.book.move(i, n, nowhere, idle)
}

// land brings the first n pages of a run to the device.
func (d *driver) land(i int32, n int64) {
	if by := d.book.storages[d.book.run(i).storage].held; by != 0 {
		d.arrived(by, n)
	} else if d.needed(i) {
		d.book.missing -= n
	}
	if from := d.book.run(i).place; from == nowhere {
		d.counts.mapped += n
	} else {
		d.counts.in[from] += n
	}
	d.book.move(i, n, device, aged)
}

// arrived tells that n pages have come in this batch that kernels of some streams
// hold.
func (d *driver) arrived(by uint8, n int64) {
	for s := range d.holds {
		if by>>s&1 == 0 {
			continue
		}
		if h := &d.holds[s]; h.missing > 0 {
			if h.missing -= n; h.missing == 0 {
				h.arrived = d.tick
			}
		}
	}
}

// repeat runs batches that do all the same at once, at most most of them: those
// that serve one queue alone, or both of what leaves, each from one run, at the
// cost of at most one run. It returns how many, 0 if it is not worth it.
func (d *driver) repeat(most int64) int64 {
	d.left = d.limits
	switch first, last := d.active(); {
	case first == idle:
		return 0
	case first == evictSSD && last == evictHost:
		return d.repeatBoth(most)
	case first != last:
		return 0
	case first <= evictHost:
		return d.repeatOut(first, most)
	default:
		return d.repeatIn(first, most)
	}
}

// leaving is how many batches can take from a queue of what leaves, and how many
// pages each, to where.
func (d *driver) leaving(q list, most int64) (to place, each, n int64) {
	i := d.book.head(q)
	to, each = d.below(q == evictHost, none)
	total := min(d.book.run(i).len(), d.book.room[to]-d.book.used[to])
	if d.needed(i) {
		return to, each, 0
	}
	return to, each, times(total, each, most)
}

// repeatOut is repeat for one queue of what leaves.
func (d *driver) repeatOut(q list, most int64) int64 {
	to, each, n := d.leaving(q, most)
	if n <= 1 {
		return 0
	}
	d.leave(d.book.head(q), n*each, to)
	d.note(0, each, n)
	return n
}

// repeatBoth is repeat for both of them. When the host is full nothing can: the
// SSD's share of a batch is spent.
func (d *driver) repeatBoth(most int64) int64 {
	_, far, n := d.leaving(evictSSD, most)
	d.spend(ssd, far)
	to, near, m := d.leaving(evictHost, most)
	if n = min(n, m); n <= 1 {
		return 0
	}
	d.leave(d.book.head(evictSSD), n*far, ssd)
	d.leave(d.book.head(evictHost), n*near, to)
	d.note(0, far+near, n)
	return n
}

// repeatIn is repeat for one queue of what arrives.
func (d *driver) repeatIn(q list, most int64) int64 {
	b := d.book
	i := b.head(q)
	total := b.run(i).len() // pages of all batches
	from := b.run(i).place
	each := d.arrivals(from) // pages of one batch
	free := b.room[device] - b.used[device]
	if free > 0 {
		n := times(min(total, free), each, most)
		if n > 1 {
			d.land(i, n*each)
			d.note(inward(from, each), 0, n)
			return n
		}
		return 0
	}
	v := d.victim(i)
	if v == none || d.needed(v) {
		return 0
	}
	total = min(total, b.run(v).len())
	if d.dead(v) {
		n := times(total, each, most)
		if n > 1 {
			d.drop(v, n*each)
			d.land(i, n*each)
			d.note(inward(from, each), 0, n)
			return n
		}
		return 0
	}
	to, m := d.below(true, i)
	each = min(each, m)
	switch {
	case to == ssd && from == host:
		return 0 // the host has room for the next page
	case to == ssd:
		total = min(total, b.room[ssd]-b.used[ssd])
	case from != host:
		total = min(total, b.room[host]-b.used[host])
	}
	n := times(total, each, most)
	if n > 1 {
		d.leave(v, n*each, to)
		d.land(i, n*each)
		d.note(inward(from, each), each, n)
		return n
	}
	return 0
}

// times is how often each goes into total so that something is left, at most
// most: the batch in which a run or a room is used up may go on with what comes
// next.
func times(total, each, most int64) int64 {
	if each <= 0 || total <= 0 {
		return 0
	}
	return min((total-1)/each, most)
}

// inward is what n pages count in the way in.
func inward(from place, n int64) int64 {
	if from == nowhere {
		return 0
	}
	return n
}
