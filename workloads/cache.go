package workloads

import (
	"sync"
	"unsafe"
	"weak"

	"smartswap/internal/recency"
)

// cacheBytes is the memory of the programs that a workload keeps although nobody
// uses them.
const cacheBytes = 64 << 20

// cache keeps programs, so that equal iterations get the same pointer. Those
// used last are kept, up to cacheBytes and at least one; of the others it only
// remembers where they are as long as someone still holds them, so that a job in
// which no two iterations are equal takes bounded memory and yet nobody ever
// sees two pointers to one program. The zero cache is empty; it is safe for
// concurrent use.
type cache struct {
	mu      sync.Mutex
	entries map[programKey]*cacheEntry
	recent  recency.List[programKey] // the entries that are kept
	bytes   int64                    // of them
	sweepAt int                      // entries at which the dead are swept out
}

type cacheEntry struct {
	mu    sync.Mutex // held while the program is made
	users int        // goroutines between get's begin and end; under cache.mu

	kept   *Program              // under cache.mu
	living weak.Pointer[Program] // under mu
}

// get is the program of key, made by build unless it is there. Different keys
// are built side by side.
func (c *cache) get(key programKey, build func() (*Program, error)) (*Program, error) {
	e := c.enter(key)
	e.mu.Lock()
	p := e.living.Value()
	var err error
	if p == nil {
		if p, err = build(); err == nil {
			e.living = weak.Make(p)
		}
	}
	e.mu.Unlock()
	c.leave(key, e, p)
	return p, err
}

func (c *cache) enter(key programKey) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		c.sweep()
		e = &cacheEntry{}
		c.entries[key] = e
	}
	e.users++
	return e
}

// leave keeps p, if there is one, and lets go of the programs used longest ago.
func (c *cache) leave(key programKey, e *cacheEntry, p *Program) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.users--
	if p == nil {
		return
	}
	if e.kept == nil {
		e.kept = p
		c.bytes += p.size()
	}
	c.recent.Touch(key)
	for old := range c.recent.Oldest() {
		if c.bytes <= cacheBytes || old == key {
			return
		}
		o := c.entries[old]
		c.bytes -= o.kept.size()
		o.kept = nil
		c.recent.Remove(old)
	}
}

// sweep forgets the keys of dead programs now and then: whenever there are twice
// as many entries as after the last time.
func (c *cache) sweep() {
	if c.entries == nil {
		c.entries, c.sweepAt = make(map[programKey]*cacheEntry), 64
	}
	if len(c.entries) < c.sweepAt {
		return
	}
	for key, e := range c.entries {
		if e.users == 0 && e.kept == nil && e.living.Value() == nil {
			delete(c.entries, key)
		}
	}
	c.sweepAt = max(64, 2*len(c.entries))
}

// size is the memory of p's slices.
func (p *Program) size() int64 {
	return int64(cap(p.Instrs))*int64(unsafe.Sizeof(Instr{})) + int64(cap(p.Args))*int64(unsafe.Sizeof(Arg{})) +
		int64(cap(p.Storages))*int64(unsafe.Sizeof(Storage{})) + int64(cap(p.Kernels))*int64(unsafe.Sizeof(Kernel{}))
}
