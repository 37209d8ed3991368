package alloc

import "smartswap/sim"

// PoolID names a pair of pools, small and large, by the small one.
type PoolID int32

// DefaultPool is the one that Malloc uses.
const DefaultPool PoolID = 0

// PrivatePools keep the memory of a part of a program apart ("MemPool"): its
// blocks serve no other requests, and stay when the cache is emptied. The
// caching and the stitching allocator implement it.
type PrivatePools interface {
	// NewPool makes a pool. With whole ("no_split") a request gets a segment
	// of its own, of which nothing is cut off.
	NewPool(whole bool) PoolID
	// MallocIn is Malloc from a pool of NewPool.
	MallocIn(p PoolID, size sim.Bytes, s Stream) (Block, error)
	// ClosePool tells that nothing more will be allocated from p, so its
	// cached memory may go back to the driver when the cache is emptied.
	ClosePool(p PoolID)
}

var _ PrivatePools = (*caching)(nil)

// NewPool implements PrivatePools.
func (c *caching) NewPool(whole bool) PoolID {
	id := PoolID(len(c.pools))
	p := pool{private: true, whole: whole}
	c.pools = append(c.pools, p, p)
	return id
}

// ClosePool implements PrivatePools.
func (c *caching) ClosePool(p PoolID) {
	c.pools[p].closed, c.pools[p|1].closed = true, true
}
