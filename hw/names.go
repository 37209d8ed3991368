package hw

// String is the family's name in catalogue keys, such as "device.mem.norm".
func (f Family) String() string {
	return name(int(f), "matmul", "attention", "attention-grad", "norm", "norm-grad", "activation", "activation-grad",
		"rope", "elementwise", "cast", "embedding", "embedding-grad", "softmax", "optimizer", "reduction", "layer-norm", "layer-norm-grad")
}

// String is the collective's name in catalogue keys.
func (c CollectiveKind) String() string {
	return name(int(c), "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast")
}

// String is the direction's name in catalogue keys.
func (d Direction) String() string { return name(int(d), "d2h", "h2d") }

// name is the i-th of names; anything else is "unknown".
func name(i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return "unknown"
	}
	return names[i]
}
