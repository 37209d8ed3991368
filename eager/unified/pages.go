package unified

import "fmt"

// place is where a page is.
type place uint8

const (
	nowhere place = iota // has no memory: never touched, or given back
	device
	host
	ssd
	numPlaces
)

// list says what a page waits for. Pages of a list have an order.
type list uint8

const (
	idle list = iota // in no list: below the device, or nowhere
	aged             // on the device, oldest first: where victims come from

	// The queues, in the order in which a batch serves them.
	evictSSD // on the device, planned to leave
	evictHost
	demandSSD // the running kernel waits for them
	demandHost
	demandNew // no memory yet
	fetchSSD  // asked for ahead of time
	fetchHost
	fetchNew
	numLists
)

// fits is the place of pages in a list.
var fits = [numLists]place{
	aged: device, evictSSD: device, evictHost: device, demandSSD: ssd, demandHost: host, demandNew: nowhere,
	fetchSSD: ssd, fetchHost: host, fetchNew: nowhere,
}

// none is the end of a chain of runs.
const none int32 = -1

// run is neighbouring pages of a storage that are in one place and list: pages
// are never kept one by one.
type run struct {
	storage int32
	lo, hi  int32 // pages of the storage
	place   place
	list    list
	token   uint32 // which content: the storage's version when it was written
	// prev and next are the neighbours in the list, left and right those in
	// the storage. The ends of lists are runs numbered like the list.
	prev, next, left, right int32
}

// storage is an allocation: a range of addresses of its own.
type storage struct {
	pages   int32
	first   int32  // run; none = all pages are nowhere
	version uint32 // of the content, 0 = never written
	live    bool   // referenced
	held    uint8  // by kernels of streams, a bit each: it stays on the device
	needed  int64  // kernel, counted over the run, that it is an operand of; see book.now
	spared  int64  // last kernel, counted likewise, that protects it
}

// choice says which pages of aged may leave.
type choice uint8

const (
	unheld      choice = iota // those that no kernel holds
	unprotected               // of them, those that the current kernel does not protect
	numChoices
)

// chunk is how many runs are made at a time.
const chunk = 1 << 12

// book knows where every page is. All its operations work on runs: their cost
// does not depend on the number of pages.
type book struct {
	storages []storage
	runs     []*[chunk]run // there may be millions, which are never copied
	made     int32         // runs
	spare    []int32       // of them, those that are not used
	// oldest is where victims are looked for: no run of aged before it may
	// leave, of all or of those that are not protected. See book.victim.
	oldest [numChoices]int32
	now    int64 // kernels begun so far: the number of the current one

	used    [numPlaces]int64 // pages
	room    [numPlaces]int64 // capacity; nowhere is unlimited
	queued  [numLists]int64  // pages in lists
	missing int64            // pages of the current kernel that it waits for
}

func newBook(deviceRoom, hostRoom, ssdRoom int64) *book {
	b := &book{oldest: [numChoices]int32{none, none}}
	b.room = [numPlaces]int64{nowhere: 1<<63 - 1, device: deviceRoom, host: hostRoom, ssd: ssdRoom}
	for l := range int32(numLists) {
		b.alloc(run{storage: none, list: list(l), prev: l, next: l, left: none, right: none})
	}
	return b
}

func (r *run) len() int64 { return int64(r.hi - r.lo) }

// head is the first run of l, none if it is empty.
func (b *book) head(l list) int32 { return b.after(int32(l), l) }

// after is the run behind i in l.
func (b *book) after(i int32, l list) int32 {
	if n := b.run(i).next; n != int32(l) {
		return n
	}
	return none
}

// victim is the first run of aged that may leave, none if there is none. It goes
// on from where the last call ended; rewind has it begin anew, and is due when
// storages are held or protected no more.
func (b *book) victim(c choice) int32 {
	v := b.oldest[c]
	for v != none {
		if s := &b.storages[b.run(v).storage]; s.held == 0 && (c == unheld || s.spared != b.now) {
			break
		}
		v = b.after(v, aged)
	}
	b.oldest[c] = v
	return v
}

func (b *book) rewind() {
	for c := range b.oldest {
		b.oldest[c] = b.head(aged)
	}
}

// at is storage id, one without pages if nothing was known of it.
func (b *book) at(id int32) *storage {
	for int(id) >= len(b.storages) {
		b.storages = append(b.storages, storage{first: none, needed: -1, spared: -1})
	}
	return &b.storages[id]
}

// resize makes id a storage of n pages; one that had another size before lies
// at other addresses now, and the old pages are gone.
func (b *book) resize(id int32, pages int32) *storage {
	s := b.at(id)
	if s.pages != pages {
		b.discard(id)
		*s = storage{pages: pages, first: none, needed: s.needed, spared: s.spared, version: s.version, held: s.held}
	}
	return s
}

// lay makes the storage's pages one run at a place, with its present content.
func (b *book) lay(id int32, at place) {
	s := &b.storages[id]
	if s.pages == 0 {
		return
	}
	i := b.alloc(run{storage: id, hi: s.pages, place: at, left: none, right: none})
	if at != nowhere {
		b.run(i).token = s.version
	}
	s.first = i
	b.used[at] += int64(s.pages)
	if at == device {
		b.link(i, aged)
	}
}

// run is a run by its number. Where it is stays the same as long as it is in use.
func (b *book) run(i int32) *run { return &b.runs[uint32(i)/chunk][uint32(i)%chunk] }

// alloc gives a run a number.
func (b *book) alloc(r run) int32 {
	if n := len(b.spare); n > 0 {
		i := b.spare[n-1]
		b.spare = b.spare[:n-1]
		*b.run(i) = r
		return i
	}
	i := b.made
	if i%chunk == 0 {
		b.runs = append(b.runs, new([chunk]run))
	}
	b.made++
	*b.run(i) = r
	return i
}

// link puts a run that is in no list at the end of l.
func (b *book) link(i int32, l list) {
	r := b.run(i)
	r.list = l
	if l == idle {
		return
	}
	b.queued[l] += r.len()
	p := b.run(int32(l)).prev
	r.prev, r.next = p, int32(l)
	b.run(p).next, b.run(int32(l)).prev = i, i
	if l != aged {
		return
	}
	for c := range b.oldest {
		if b.oldest[c] == none {
			b.oldest[c] = i
		}
	}
}

// unlink takes a run out of its list.
func (b *book) unlink(i int32) {
	r := b.run(i)
	if r.list == idle {
		return
	}
	for c := range b.oldest {
		if b.oldest[c] == i {
			b.oldest[c] = b.after(i, aged)
		}
	}
	b.queued[r.list] -= r.len()
	b.run(r.prev).next, b.run(r.next).prev = r.next, r.prev
	r.list = idle
}

// count changes the number of pages in a list.
func (b *book) count(l list, n int64) {
	if l != idle {
		b.queued[l] += n
	}
}

// forget removes a run of no pages from its storage.
func (b *book) forget(i int32) {
	r := b.run(i)
	if r.left == none {
		b.storages[r.storage].first = r.right
	} else {
		b.run(r.left).right = r.right
	}
	if r.right != none {
		b.run(r.right).left = r.left
	}
	b.spare = append(b.spare, i)
}

// move takes the first n pages of run i to a place and list, with their
// content, which nowhere has none.
// It tells whether anything of the run is left. Books about the current kernel
// are the caller's.
func (b *book) move(i int32, n int64, to place, l list) (left bool) {
	r := b.run(i)
	token := r.token
	if to == nowhere {
		token = 0
	}
	b.used[r.place] -= n
	b.used[to] += n
	if j := r.left; j != none {
		p := b.run(j)
		if p.place == to && p.list == l && p.token == token && (l == idle || b.run(int32(l)).prev == j) {
			b.count(r.list, -n)
			b.count(l, n)
			p.hi += int32(n)
			r.lo += int32(n)
			if r.lo < r.hi {
				return true
			}
			b.unlink(i)
			b.forget(i)
			b.heal(j)
			return false
		}
	}
	if n == r.len() {
		b.unlink(i)
		r.place, r.token = to, token
		b.link(i, l)
		b.heal(i)
		return false
	}
	part := *r
	part.hi = part.lo + int32(n)
	part.place, part.token, part.right = to, token, i
	b.count(r.list, -n)
	r.lo += int32(n)
	j := b.alloc(part)
	if part.left == none {
		b.storages[part.storage].first = j
	} else {
		b.run(part.left).right = j
	}
	r.left = j
	b.link(j, l)
	return true
}

// heal joins an idle run with the one to its right if nothing tells them apart.
func (b *book) heal(i int32) {
	r := b.run(i)
	if r.list != idle || r.right == none {
		return
	}
	n := b.run(r.right)
	if n.list != idle || n.place != r.place || n.token != r.token {
		return
	}
	r.hi = n.hi
	n.lo = n.hi
	b.forget(r.right)
}

// discard gives all pages of a storage back, whatever they wait for.
func (b *book) discard(id int32) {
	s := &b.storages[id]
	for i := s.first; i != none; {
		r := b.run(i)
		next := r.right
		b.used[r.place] -= r.len()
		b.unlink(i)
		b.spare = append(b.spare, i)
		i = next
	}
	s.first = none
}

// touch makes the pages of a storage the ones used last, in their order.
func (b *book) touch(id int32) {
	for i := b.storages[id].first; i != none; i = b.run(i).right {
		if b.run(i).list == aged {
			b.unlink(i)
			b.link(i, aged)
		}
	}
}

// holds tells whether all pages of a storage are on the device, wait for
// nothing, and have its current content.
func (b *book) holds(id int32) bool {
	s := &b.storages[id]
	for i := s.first; i != none; i = b.run(i).right {
		if r := b.run(i); r.list != aged || r.token != s.version {
			return false
		}
	}
	return s.first != none || s.pages == 0
}

// check compares the books with the runs; the error names the first that is
// wrong. O(runs).
func (b *book) check() error {
	var used [numPlaces]int64
	var queued [numLists]int64
	for id := range b.storages {
		s := &b.storages[id]
		at, left := int32(0), none
		for i := s.first; i != none; i = b.run(i).right {
			r := b.run(i)
			if r.storage != int32(id) || r.lo != at || r.hi <= r.lo || r.left != left {
				return fmt.Errorf("storage %d: run of pages %d to %d where page %d is due", id, r.lo, r.hi, at)
			}
			if r.list != idle && fits[r.list] != r.place || r.list == idle && r.place == device {
				return fmt.Errorf("storage %d: pages %d to %d are in place %d but wait in list %d", id, r.lo, r.hi, r.place, r.list)
			}
			used[r.place] += r.len()
			queued[r.list] += r.len()
			at, left = r.hi, i
		}
		if s.first != none && at != s.pages {
			return fmt.Errorf("storage %d: %d of %d pages accounted for", id, at, s.pages)
		}
	}
	if used != b.used {
		return fmt.Errorf("pages by place: the books say %v, the runs %v", b.used, used)
	}
	for l := range numLists {
		n := int64(0)
		for i := b.head(l); l != idle && i != none; i = b.after(i, l) {
			n += b.run(i).len()
		}
		if l != idle && (n != queued[l] || n != b.queued[l]) {
			return fmt.Errorf("list %d: the books say %d pages, its runs %d, the storages %d", l, b.queued[l], n, queued[l])
		}
	}
	for p := device; p < numPlaces; p++ {
		if used[p] > b.room[p] {
			return fmt.Errorf("place %d: %d pages, room for %d", p, used[p], b.room[p])
		}
	}
	return nil
}
