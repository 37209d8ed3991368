package eager

import (
	"smartswap/eager/stream"
	"smartswap/sim"
)

// item is an issued command on its way to the device.
type item struct {
	s stream.ID
	c stream.Command
}

// queue is a ring of items.
type queue struct {
	ring       []item
	head, tail int64
}

func (q *queue) len() int { return int(q.tail - q.head) }

func (q *queue) front() *item { return &q.ring[q.head&int64(len(q.ring)-1)] }

func (q *queue) pop() { q.head++ }

func (q *queue) push(it item) {
	if q.len() == len(q.ring) {
		grown := make([]item, max(64, 2*len(q.ring)))
		for i := q.head; i < q.tail; i++ {
			grown[i&int64(len(grown)-1)] = q.ring[i&int64(len(q.ring)-1)]
		}
		q.ring = grown
	}
	q.ring[q.tail&int64(len(q.ring)-1)] = it
	q.tail++
}

// Push issues a command: it gets its event now and reaches the device when the
// step's host time has been paid.
func (r *rank) Push(s stream.ID, c stream.Command) stream.Event {
	if r.obs != nil {
		r.obs.pushed(s, &c)
	}
	r.step.push(item{s, c})
	return r.dev.Issue(s)
}

// flush hands the commands of the step over. It returns false when the thread
// has to wait for room; it is called again then.
func (r *rank) flush() bool {
	if r.slots == 0 { // this thread launches itself
		for r.step.len() > 0 {
			it := r.step.front()
			if r.full(it.s) {
				r.waitHost(QueueFull)
				r.dev.AwaitSlot(it.s, r.self, hostWake)
				return false
			}
			r.dev.Enqueue(it.s, it.c)
			r.step.pop()
		}
		return true
	}
	for r.step.len() > 0 {
		if r.tasks.len() >= r.slots-1 { // one slot of the ring stays empty
			r.waitHost(QueueFull)
			r.tasksFull = true
			return false
		}
		r.tasks.push(*r.step.front())
		r.step.pop()
		if !r.launching {
			r.launchNext()
		}
	}
	return true
}

// full tells whether a stream's launch queue has no room.
func (r *rank) full(s stream.ID) bool {
	return r.depth > 0 && r.dev.Outstanding(s) >= r.depth
}

// launchNext starts the launching thread on the head of the task queue.
func (r *rank) launchNext() {
	r.launching = r.tasks.len() > 0
	if !r.launching {
		return
	}
	cost := r.costs.Launch
	if k := r.tasks.front().c.Kind; k == stream.WaitFor || k == stream.Marker {
		cost = r.costs.EventRecord
	}
	if r.obs != nil {
		r.obs.launching(cost)
	}
	r.eng.After(cost, sim.PrioLaunch, r.self, launchStep)
}

// launch hands the head of the task queue to the device.
func (r *rank) launch() {
	it := r.tasks.front()
	if r.full(it.s) {
		r.dev.AwaitSlot(it.s, r.self, launchStep)
		return
	}
	if r.obs != nil {
		r.obs.launched(it.s, &it.c)
	}
	r.dev.Enqueue(it.s, it.c)
	r.tasks.pop()
	if r.tasksFull {
		r.tasksFull = false
		r.eng.At(r.eng.Now(), sim.PrioHost, r.self, hostWake)
	}
	r.launchNext()
}
