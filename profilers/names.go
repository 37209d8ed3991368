package profilers

// Names numbers operator names from 0 in the order in which a run first meets
// them. These run-wide ids are the only operator names that policies see.
//
// The runtime tells names apart by small keys of its own, so that no string is
// hashed on the way.
type Names struct {
	list  []string
	byKey []int32 // id + 1; 0 = not met yet
}

// ID is the id of the name with the given key (>= 0, the same name for the
// whole run). It is amortised O(1) and allocates only at a first meeting.
func (n *Names) ID(key int32, name string) int32 {
	if int(key) >= len(n.byKey) {
		n.byKey = append(n.byKey, make([]int32, int(key)+1-len(n.byKey))...)
	}
	if n.byKey[key] == 0 {
		n.list = append(n.list, name)
		n.byKey[key] = int32(len(n.list))
	}
	return n.byKey[key] - 1
}

// List is the names met so far, by id. It must not be changed; it stays valid
// while more names are met.
func (n *Names) List() []string { return n.list[:len(n.list):len(n.list)] }
