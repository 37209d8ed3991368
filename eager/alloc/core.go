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
	env   Env
	stats Stats
	costs Costs
	trace func(Trace) // nil: nobody looks

	// complete ends the free of a block that nothing holds back any more.
	complete func(Block)
	// queues hold deferred frees per stream, in the order of their records.
	queues      []queue
	outstanding int // events in all queues
}

func newCore(r rules, env Env) core {
	return core{rules: r, env: env, table: table{vacant: NoBlock}}
}

// deferred is a block that waits for an event.
type deferred struct {
	event Event
	block Block
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

func (q *queue) pop() Block {
	b := q.items[q.head].block
	if q.head++; q.empty() {
		q.items, q.head = q.items[:0], 0
	}
	return b
}

// Free implements Allocator. It costs one record per stream that used b and
// is not the block's own, else nothing but time; O(log free blocks).
func (c *core) Free(b Block) {
	n := c.allocated(b)
	c.stats.Allocated.add(-int64(n.size))
	c.stats.Allocations.add(-1)
	if n.size >= c.maxSplit {
		c.stats.OversizeAllocations.add(-1)
	}
	c.note(FreeRequested, n.addr, n.requested, n.stream)
	if len(n.uses) == 0 {
		c.complete(b)
		return
	}
	// An event covers everything enqueued on its stream by now, not only
	// the last use of b: a host that runs ahead frees late.
	n.state = Pending
	for _, s := range n.uses {
		for int(s) >= len(c.queues) {
			c.queues = append(c.queues, queue{})
		}
		c.queues[s].push(deferred{c.env.Record(s), b})
		c.costs.Records++
	}
	c.outstanding += len(n.uses)
	n.events = int32(len(n.uses))
	n.uses = n.uses[:0]
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
	n := c.allocated(b)
	if waiting != n.stream {
		return
	}
	if i, found := slices.BinarySearch(n.uses, used); found {
		n.uses = slices.Delete(n.uses, i, i+1)
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
	if c.outstanding == 0 {
		return
	}
	for s := range c.queues {
		for q := &c.queues[s]; !q.empty(); {
			c.costs.Polls++
			if !c.env.Done(q.items[q.head].event) {
				break
			}
			c.settle(q.pop())
		}
	}
}

// synchronize completes every deferred free; the host lane charges the wait
// ("synchronize_and_free_events").
func (c *core) synchronize() {
	c.stats.Syncs++
	c.costs.Sync = c.costs.Sync || c.outstanding > 0
	for s := range c.queues {
		for q := &c.queues[s]; !q.empty(); {
			c.settle(q.pop())
		}
	}
}

// settle counts one event of b as done.
func (c *core) settle(b Block) {
	c.outstanding--
	if c.blocks[b].events--; c.blocks[b].events == 0 {
		c.complete(b)
	}
}

// hand marks b as allocated for a request.
func (c *core) hand(b Block, requested sim.Bytes) Block {
	n := &c.blocks[b]
	n.state, n.requested = Allocated, requested
	c.stats.Allocated.add(int64(n.size))
	c.stats.Allocations.add(1)
	c.stats.Active.add(int64(n.size))
	c.stats.ActiveBlocks.add(1)
	c.stats.Requested.add(int64(requested))
	if n.size >= c.maxSplit {
		c.stats.OversizeAllocations.add(1)
	}
	c.note(Alloc, n.addr, requested, n.stream)
	return b
}

// deactivate is the common part of completing the free of n.
func (c *core) deactivate(n *block) {
	c.note(FreeCompleted, n.addr, n.requested, n.stream)
	c.stats.Active.add(-int64(n.size))
	c.stats.ActiveBlocks.add(-1)
	c.stats.Requested.add(-int64(n.requested))
	n.state, n.requested = Inactive, 0
}

// admit refuses what cannot be a request, before anything else happens.
func (c *core) admit(size sim.Bytes) error {
	switch {
	case size <= 0:
		return fmt.Errorf("allocator: request of %d bytes: must be > 0", size)
	case size > maxRequest:
		return c.report(size, size, size, 0)
	}
	return nil
}

// fail counts and reports an allocation that nothing could serve.
func (c *core) fail(size, rounded, segment, largest sim.Bytes, s Stream) error {
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

// ResetPeaks implements Allocator.
func (c *core) ResetPeaks() { c.stats.resetPeaks() }

// TakeCosts implements Allocator.
func (c *core) TakeCosts() Costs {
	t := c.costs
	c.costs = Costs{}
	return t
}
