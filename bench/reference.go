package bench

// reference is the yardstick: the least that an event loop in Go can be. A
// 4-ary heap of 24-byte values in the order (time, sequence), handlers in a
// table, and no priorities, lanes, limits, checks or errors.
type reference struct {
	queue    []refEvent
	now, seq uint64
	handlers []refHandler
}

type refHandler interface{ handle(arg uint32) }

type refEvent struct {
	time, seq    uint64
	handler, arg uint32
}

func (a *refEvent) before(b *refEvent) bool {
	return a.time < b.time || a.time == b.time && a.seq < b.seq
}

func (r *reference) at(t uint64, handler, arg uint32) {
	r.seq++
	ev := refEvent{t, r.seq, handler, arg}
	r.queue = append(r.queue, ev)
	q := r.queue
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !ev.before(&q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = ev
}

func (r *reference) pop() refEvent {
	top := r.queue[0]
	n := len(r.queue) - 1
	ev := r.queue[n]
	q := r.queue[:n]
	r.queue = q
	if n == 0 {
		return top
	}
	i := 0
	for {
		child := 4*i + 1
		if child >= n {
			break
		}
		first := child
		for c := child + 1; c < min(child+4, n); c++ {
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
	return top
}

func (r *reference) run() {
	for len(r.queue) > 0 {
		ev := r.pop()
		r.now = ev.time
		r.handlers[ev.handler].handle(ev.arg)
	}
}
