// Package recency keeps keys in the order of their last use.
package recency

import "iter"

// List orders keys by last use. The zero List is empty. Touch and Remove are
// O(1) and do not allocate once the list has been as long before.
type List[K comparable] struct {
	at    map[K]int32
	nodes []node[K] // nodes[0] closes the ring: next is the oldest key, prev the newest
	free  []int32
}

type node[K comparable] struct {
	key        K
	prev, next int32
}

// Touch makes k the most recently used key.
func (l *List[K]) Touch(k K) {
	if l.at == nil {
		l.at = make(map[K]int32)
		l.nodes = append(l.nodes, node[K]{})
	}
	i, ok := l.at[k]
	switch n := len(l.free); {
	case ok:
		l.unlink(i)
	case n > 0:
		i, l.free = l.free[n-1], l.free[:n-1]
		l.at[k] = i
	default:
		i = int32(len(l.nodes))
		l.nodes = append(l.nodes, node[K]{})
		l.at[k] = i
	}
	last := l.nodes[0].prev
	l.nodes[i] = node[K]{key: k, prev: last, next: 0}
	l.nodes[last].next, l.nodes[0].prev = i, i
}

// Remove takes k out; it does nothing if k is not in.
func (l *List[K]) Remove(k K) {
	if i, ok := l.at[k]; ok {
		l.unlink(i)
		l.free = append(l.free, i)
		delete(l.at, k)
	}
}

func (l *List[K]) unlink(i int32) {
	n := l.nodes[i]
	l.nodes[n.prev].next, l.nodes[n.next].prev = n.next, n.prev
}

// Oldest yields the keys, least recently used first. The key just yielded may
// be removed inside the loop.
func (l *List[K]) Oldest() iter.Seq[K] {
	return func(yield func(K) bool) {
		if l.at == nil {
			return
		}
		for i := l.nodes[0].next; i != 0; {
			next := l.nodes[i].next
			if !yield(l.nodes[i].key) {
				return
			}
			i = next
		}
	}
}

// Len is the number of keys.
func (l *List[K]) Len() int { return len(l.at) }

// Clear empties the list.
func (l *List[K]) Clear() {
	clear(l.at)
	l.free = l.free[:0]
	if l.at != nil {
		l.nodes = l.nodes[:1]
		l.nodes[0] = node[K]{}
	}
}
