package alloc

import "smartswap/sim"

// Fitter answers whether a request would be served cheaply. What New returns
// implements it.
type Fitter interface {
	// Fits tells whether Malloc(size, s) would succeed from the cache, or
	// with new memory, without giving cached memory back and without waiting
	// for deferred frees or asking a Drainer. It changes nothing: deferred
	// frees that are over but not yet noticed do not count, and what a garbage
	// collection would give back first is not foreseen. O(log free blocks),
	// or O(free blocks) where pieces have to add up.
	Fits(size sim.Bytes, s Stream) bool
}

// Fits implements Fitter.
func (c *caching) Fits(size sim.Bytes, s Stream) bool {
	if size <= 0 || size > c.capacity {
		return false
	}
	rounded := c.round(size)
	return c.as.fits(poolFor(DefaultPool, rounded), rounded, s)
}

// Fits implements Fitter.
func (c *bytesOnly) Fits(size sim.Bytes, _ Stream) bool {
	return (size > 0 || size == 0 && c.exact) && size <= c.room && c.round(size) <= c.left()
}
