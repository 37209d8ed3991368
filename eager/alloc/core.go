package alloc

import (
	"fmt"
	"slices"

	"smartswap/sim"
)

// core is what every allocator shares: the table of blocks, frees that wait
// for events, counters and costs.
type core struct {
	rules
	table
	env     Env
	waiter  Waiter  // env, if it is one
	drainer Drainer // env, if it is one
	stats   Stats
	byPool  [2]Stats // small, large
	costs   Costs
	trace   func(Trace) // nil: nobody looks
	making  bool        // room for a request
	waiting bool        // for what holds frees back

	// complete ends the free of a block that nothing holds back any more.
	complete func(Block)
	// queues hold deferred frees in the order of their records: by the stream
	// that used the block, or, to wait at reuse, by the block's own.
	queues      []queue
	outstanding int // events in all queues
}

func newCore(r rules, env Env) core {
	c := core{rules: r, env: env, table: table{vacant: NoBlock}}
	c.waiter, _ = env.(Waiter)
	c.drainer, _ = env.(Drainer)
	return c
}

// deferred is a block that waits for an event of a stream that used it.
type deferred struct {
	event Event
	block Block
	used  Stream
}

// queue is first in, first out; its slice is reused.
type queue struct {
	items []deferred
	head  int
}

func (q *queue) empty() bool { return q.head == len(q.items) }

func (q *queue) push(d deferred) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, d)
}

func (q *queue) pop() deferred {
	d := q.items[q.head]
	if q.head++; q.empty() {
		q.items, q.head = q.items[:0], 0
	}
	return d
}

// queue of the stream s.
func (c *core) queue(s Stream) *queue {
	for int(s) >= len(c.queues) {
		c.queues = append(c.queues, queue{})
	}
	return &c.queues[s]
}

// tallies are the counters that an event of pool p belongs to.
func (c *core) tallies(p PoolID) [2]*Stats { return [2]*Stats{&c.stats, &c.byPool[p&1]} }

// counted is what Allocated counts of an allocated block: all of it, or, in
// SmartSwap's allocator, what it had to be, even if it is larger.
func (c *core) counted(n *block) sim.Bytes {
	if c.chunked {
		return c.round(n.requested)
	}
	return n.size
}

// Free implements Allocator. It costs one record per stream that used b and
// is not the block's own, else nothing but time; O(log free blocks).
func (c *core) Free(b Block) {
	n := c.allocated(b)
	counted, oversize := int64(c.counted(n)), n.size >= c.maxSplit
	c.stats.release(counted, oversize)
	c.byPool[n.pool&1].release(counted, oversize)
	c.note(FreeRequested, n.addr, n.requested, n.stream)
	if len(n.uses) == 0 {
		c.complete(b)
		return
	}
	// An event covers everything enqueued on its stream by now, not only
	// the last use of b: a host that runs ahead frees late.
	n.state = Pending
	c.stats.Pending.rise(int64(n.size))
	c.byPool[n.pool&1].Pending.rise(int64(n.size))
	for _, s := range n.uses {
		c.queue(c.lane(n, s)).push(deferred{c.env.Record(s), b, s})
		c.costs.Records++
	}
	c.outstanding += len(n.uses)
	n.events = int32(len(n.uses))
	n.uses = n.uses[:0]
}

// lane is the stream in whose queue n waits for used.
func (c *core) lane(n *block, used Stream) Stream {
	if c.waits {
		return n.stream
	}
	return used
}

// RecordStream implements Allocator. PyTorch ignores the block's own stream,
// torch_npu does not.
func (c *core) RecordStream(b Block, s Stream) {
	n := c.allocated(b)
	if s == n.stream && !c.ownStream {
		return
	}
	if i, found := slices.BinarySearch(n.uses, s); !found {
		n.uses = slices.Insert(n.uses, i, s)
	}
}

// EraseStream implements Reclaimer.
func (c *core) EraseStream(b Block, used, waiting Stream) {
	if b < 0 || int(b) >= len(c.blocks) || c.blocks[b].stream != waiting {
		return
	}
	n := &c.blocks[b]
	switch n.state {
	case Allocated:
		if i, found := slices.BinarySearch(n.uses, used); found {
			n.uses = slices.Delete(n.uses, i, i+1)
		}
	case Pending:
		q := c.queue(c.lane(n, used))
		i := slices.IndexFunc(q.items[q.head:], func(d deferred) bool { return d.block == b && d.used == used })
		if i >= 0 {
			q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
			c.settle(b)
		}
	}
}

// allocated is block b, which the caller must own: anything else is a mistake
// in the caller that would corrupt the tables, so it ends here.
func (c *core) allocated(b Block) *block {
	if b < 0 || int(b) >= len(c.blocks) || c.blocks[b].state != Allocated {
		panic(fmt.Sprintf("alloc: block %d is not allocated", b))
	}
	return &c.blocks[b]
}

// reap completes the deferred frees whose events are done, asking for the head
// of each queue until one is not ("process_events"). A pending head holds back
// all behind it in its stream, but no other stream.
func (c *core) reap() {
	if c.outstanding == 0 || c.waits {
		return
	}
	for s := range c.queues {
		for q := &c.queues[s]; !q.empty(); {
			c.costs.Polls++
			if !c.env.Done(q.items[q.head].event) {
				break
			}
			c.settle(q.pop().block)
		}
	}
}

// synchronize completes every deferred free; the host lane charges the wait
// ("synchronize_and_free_events").
func (c *core) synchronize() {
	c.stats.Syncs++
	c.costs.Sync = c.costs.Sync || c.outstanding > 0
	c.waiting = true
	for s := range c.queues {
		for q := &c.queues[s]; !q.empty(); {
			c.settle(q.pop().block)
		}
	}
	c.waiting = false
}

// settle counts one event of b as done and tells whether it was the last.
func (c *core) settle(b Block) bool {
	c.outstanding--
	if c.blocks[b].events--; c.blocks[b].events > 0 {
		return false
	}
	c.complete(b)
	return true
}

// overtake ends the oldest deferred free of a block of s, which is made to wait
// on the device for what used it. It tells whether there was one.
func (c *core) overtake(s Stream) bool {
	if !c.waits || int(s) >= len(c.queues) {
		return false
	}
	for q := &c.queues[s]; !q.empty(); {
		d := q.pop()
		c.waiter.Wait(s, d.event)
		c.costs.Waits++
		if c.settle(d.block) {
			return true
		}
	}
	return false
}

// drain asks for held memory and tells whether some was freed.
func (c *core) drain() bool { return c.drainer != nil && c.drainer.Drain() }

// hand marks b as allocated for a request.
func (c *core) hand(b Block, requested sim.Bytes) Block {
	n := &c.blocks[b]
	n.state, n.requested = Allocated, requested
	counted, oversize := int64(c.counted(n)), n.size >= c.maxSplit
	c.stats.hand(counted, int64(n.size), int64(requested), oversize)
	c.byPool[n.pool&1].hand(counted, int64(n.size), int64(requested), oversize)
	c.note(Alloc, n.addr, requested, n.stream)
	return b
}

// deactivate is the common part of completing the free of n.
func (c *core) deactivate(n *block) {
	c.note(FreeCompleted, n.addr, n.requested, n.stream)
	c.stats.retire(int64(n.size), int64(n.requested))
	c.byPool[n.pool&1].retire(int64(n.size), int64(n.requested))
	if n.state == Pending {
		c.stats.Pending.fall(int64(n.size))
		c.byPool[n.pool&1].Pending.fall(int64(n.size))
	}
	n.state, n.requested = Inactive, 0
}

// admit refuses what cannot be a request, before anything else happens.
func (c *core) admit(size sim.Bytes) error {
	switch {
	case size <= 0 && !(size == 0 && c.exact):
		return fmt.Errorf("allocator: request of %d bytes: must be > 0", size)
	case size > maxRequest:
		return c.report(size, size, size, 0)
	}
	return nil
}

// fail counts and reports an allocation that nothing could serve.
func (c *core) fail(size, rounded, segment, largest sim.Bytes, s Stream) *OOM {
	c.stats.OOMs++
	e := c.report(size, rounded, segment, largest)
	c.note(OutOfMemory, uint64(e.Free()), rounded, s)
	return e
}

func (c *core) report(size, rounded, segment, largest sim.Bytes) *OOM {
	return &OOM{
		Requested: size, Rounded: rounded, Segment: segment,
		Allocated:   sim.Bytes(c.stats.Allocated.Current),
		Active:      sim.Bytes(c.stats.Active.Current),
		Reserved:    sim.Bytes(c.stats.Reserved.Current),
		Capacity:    c.capacity,
		Limit:       c.limit,
		LargestFree: largest,
		Retries:     c.stats.Retries,
	}
}

// Range implements Allocator.
func (c *core) Range(b Block) (addr uint64, size sim.Bytes) {
	n := c.allocated(b)
	return n.addr, n.size
}

// Stats implements Allocator.
func (c *core) Stats() Stats { return c.stats }

// PoolStats implements Inspector.
func (c *core) PoolStats(large bool) Stats {
	if large {
		return c.byPool[1]
	}
	return c.byPool[0]
}

// ResetPeaks implements Allocator.
func (c *core) ResetPeaks() {
	c.stats.resetPeaks()
	c.byPool[0].resetPeaks()
	c.byPool[1].resetPeaks()
}

// TakeCosts implements Allocator.
func (c *core) TakeCosts() Costs {
	t := c.costs
	c.costs = Costs{}
	return t
}
