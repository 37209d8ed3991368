package alloc

import "smartswap/sim"

// block is a slice of a segment, or a vacant slot of the table.
type block struct {
	// What free trees look at comes first: searches touch little else.
	addr        uint64
	size        sim.Bytes
	left, right Block  // while inactive, a node of its free tree
	priority    uint32 // in it

	state      State
	prev, next Block // neighbours in the segment
	stream     Stream
	pool       PoolID // even: small requests, odd: large ones
	requested  sim.Bytes
	region     int32    // expandable segment + 1; 0: a plain one
	stitched   int32    // stitched blocks that lie over it
	events     int32    // outstanding events that hold it back
	born       int64    // searches of its pool when it became inactive
	uses       []Stream // other streams that used it, ascending
	id         Block

	_ [20]byte // two cache lines in all: searches then read one of them
}

// large tells whether b is of a pool for large requests.
func (b *block) large() bool { return b.pool&1 == 1 }

// split tells whether b is only a part of its segment.
func (b *block) split() bool { return b.prev != NoBlock || b.next != NoBlock }

// less is the order of the free lists: (size, address). Ids decide between
// segments that the replay of a damaged history has put over one another.
func (b *block) less(o *block) bool {
	return b.size < o.size || b.size == o.size && (b.addr < o.addr || b.addr == o.addr && b.id < o.id)
}

// table holds blocks by id; ids of dropped blocks are used again, last first.
type table struct {
	blocks []block
	vacant Block // first vacant slot, linked by next
}

// take makes a block without neighbours. It may move all blocks: pointers
// into the table are invalid after it.
func (t *table) take() Block {
	b := t.vacant
	if b == NoBlock {
		b = Block(len(t.blocks))
		t.blocks = append(t.blocks, block{})
	} else {
		t.vacant = t.blocks[b].next
	}
	n := &t.blocks[b]
	*n = block{id: b, prev: NoBlock, next: NoBlock, uses: n.uses[:0]}
	return b
}

// drop makes b's id vacant.
func (t *table) drop(b Block) {
	t.blocks[b].state = vacant
	t.blocks[b].next = t.vacant
	t.vacant = b
}

// tree holds inactive blocks in (size, address) order. It is a treap (Seidel
// and Aragon 1996): a binary search tree by that order and a heap by priority, a
// hash of the address, so its shape does not depend on the order of insertions
// and its expected depth is logarithmic. The links are in the blocks: no
// operation allocates. In an empty one, root and least are NoBlock.
type tree struct {
	root  Block
	least Block // the first in the order: what is mostly taken next
}

// insert adds b in O(log n).
func (t *tree) insert(at []block, b Block) {
	n := &at[b]
	n.priority = mix(n.addr)
	if t.least == NoBlock || n.less(&at[t.least]) {
		t.least = b
	}
	link := &t.root
	for *link != NoBlock && at[*link].priority >= n.priority {
		link = descend(at, *link, n)
	}
	// b takes the place of the subtree at link, which it splits in two.
	rest, left, right := *link, &n.left, &n.right
	*link = b
	for rest != NoBlock {
		if c := &at[rest]; c.less(n) {
			*left, left, rest = rest, &c.right, c.right
		} else {
			*right, right, rest = rest, &c.left, c.left
		}
	}
	*left, *right = NoBlock, NoBlock
}

// remove takes b, which is in the tree, out in O(log n).
func (t *tree) remove(at []block, b Block) {
	n := &at[b]
	link := &t.root
	if b == t.least {
		// Nothing is left of it, all above is to its right.
		t.least = NoBlock
		for *link != b {
			t.least, link = *link, &at[*link].left
		}
		for c := n.right; c != NoBlock; c = at[c].left {
			t.least = c
		}
		*link = n.right
		return
	}
	for *link != b {
		link = descend(at, *link, n)
	}
	// The two subtrees of b, merged, take its place.
	left, right := n.left, n.right
	for left != NoBlock && right != NoBlock {
		if l, r := &at[left], &at[right]; l.priority >= r.priority {
			*link, link, left = left, &l.right, l.right
		} else {
			*link, link, right = right, &r.left, r.left
		}
	}
	if left == NoBlock {
		left = right
	}
	*link = left
}

// descend is the link to follow from node b on the way to n.
func descend(at []block, b Block, n *block) *Block {
	c := &at[b]
	if c.less(n) {
		return &c.right
	}
	return &c.left
}

// atLeast is the first block of size or more: best fit, lowest address.
func (t *tree) atLeast(at []block, size sim.Bytes) Block {
	if t.least != NoBlock && at[t.least].size >= size {
		return t.least
	}
	found := NoBlock
	for b := t.root; b != NoBlock; {
		if n := &at[b]; n.size >= size {
			found, b = b, n.left
		} else {
			b = n.right
		}
	}
	return found
}

// after is the block that follows b in the order.
func (t *tree) after(at []block, b Block) Block {
	found := NoBlock
	for c, n := t.root, &at[b]; c != NoBlock; {
		if n.less(&at[c]) {
			found, c = c, at[c].left
		} else {
			c = at[c].right
		}
	}
	return found
}

// before is the block that b follows in the order.
func (t *tree) before(at []block, b Block) Block {
	found := NoBlock
	for c, n := t.root, &at[b]; c != NoBlock; {
		if at[c].less(n) {
			found, c = c, at[c].right
		} else {
			c = at[c].left
		}
	}
	return found
}

// last is the largest block.
func (t *tree) last(at []block) Block {
	found := NoBlock
	for b := t.root; b != NoBlock; b = at[b].right {
		found = b
	}
	return found
}

// mix spreads an address over 32 bits: the multiplier is 2^64 over the golden
// ratio (Fibonacci hashing, Knuth volume 3, 6.4); the fold before it brings
// the high bits of large strides down.
func mix(addr uint64) uint32 {
	addr ^= addr >> 32
	addr *= 0x9e3779b97f4a7c15
	addr ^= addr >> 29
	addr *= 0x9e3779b97f4a7c15
	return uint32(addr >> 32)
}
