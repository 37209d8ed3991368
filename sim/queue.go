package sim

// An event's key is its priority above its sequence number: comparing keys
// compares both. 56 bits of sequence last for a million events per second over
// two thousand years.
const (
	seqBits = 56
	seqMask = 1<<seqBits - 1
)

// event is 24 bytes and holds no pointer: queues of events move by copying and
// the garbage collector never looks into them.
type event struct {
	time    Time
	key     uint64
	handler uint32
	arg     uint32
}

// before is the total order of events; keys are unique.
func (a *event) before(b *event) bool {
	return a.time < b.time || a.time == b.time && a.key < b.key
}

// heap is a 4-ary min-heap: no child (4i+1 to 4i+4) of node i is before it, so
// the first event is h[0]. Four children make it half as deep as two, and they
// lie next to each other in memory.
type heap []event

const arity = 4

// push adds ev, in O(log n).
func (h *heap) push(ev event) {
	*h = append(*h, ev)
	q := *h
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / arity
		if !ev.before(&q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = ev
}

// pop removes h[0] from a heap that is not empty, in O(log n).
func (h *heap) pop() {
	last := len(*h) - 1
	ev := (*h)[last]
	q := (*h)[:last]
	*h = q
	if last == 0 {
		return
	}
	// Sink ev from the root: move the first of the children up until ev
	// is before all of them.
	i := 0
	for {
		child := arity*i + 1
		if child >= last {
			break
		}
		first := child
		for c := child + 1; c < min(child+arity, last); c++ {
			if q[c].before(&q[first]) {
				first = c
			}
		}
		if !q[first].before(&ev) {
			break
		}
		q[i] = q[first]
		i = first
	}
	q[i] = ev
}

// fifo is a first-in-first-out ring. Its length is a power of two; head and
// tail count events ever taken and ever put, and wrap by masking.
type fifo struct {
	ring       []event
	head, tail uint
}

func (f *fifo) len() int { return int(f.tail - f.head) }

// front is the oldest event of a ring that is not empty.
func (f *fifo) front() *event { return &f.ring[f.head&uint(len(f.ring)-1)] }

func (f *fifo) push(ev event) {
	if f.len() == len(f.ring) {
		f.grow()
	}
	f.ring[f.tail&uint(len(f.ring)-1)] = ev
	f.tail++
}

func (f *fifo) pop() { f.head++ }

// grow doubles the ring, oldest event first.
func (f *fifo) grow() {
	ring := make([]event, max(8, 2*len(f.ring)))
	n := 0
	for ; f.len() > 0; n++ {
		ring[n] = *f.front()
		f.pop()
	}
	f.ring, f.head, f.tail = ring, 0, uint(n)
}
