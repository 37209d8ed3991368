package policies

import "smartswap/sim"

// Feature is the short history by which a storage is recognised in another
// iteration: how often it was used, by which operators, with which of the last
// eight uses in which argument position. It is independent of operator ids and
// addresses.
type Feature struct {
	Uses  int32
	DType uint8
	Tags  uint64 // one bit per vocabulary name that ever used it
	Calls uint64 // last eight names, 8 bits each, newest lowest
	Args  uint64 // their argument positions, 8 bits each

	// Only where the vocabulary says Sized.
	Bytes sim.Bytes
	Shape [4]int32
}

// Vocabulary gives the most frequent operator names an index from 1 and a tag
// bit; other names have neither.
type Vocabulary struct {
	Index []uint8 // by run-wide name id; 0 = not in the vocabulary
	// Narrow puts the tag bits through a signed 32-bit integer, as the shipped
	// code does: the 32nd name sets all upper bits, later ones none.
	Narrow bool
	// Sized makes size and shape part of the feature, as the shipped code did
	// until December 2025: a batch of another length is then not recognised.
	Sized bool
}

// Begin is the feature of a storage before its first use.
func (v Vocabulary) Begin(dtype uint8, bytes sim.Bytes, shape [4]int32) Feature {
	if !v.Sized {
		return Feature{DType: dtype}
	}
	return Feature{DType: dtype, Bytes: bytes, Shape: shape}
}

// tag is the bit of the name with index idx > 0.
func (v Vocabulary) tag(idx uint8) uint64 {
	if v.Narrow {
		return uint64(int64(int32(uint32(1) << (idx - 1))))
	}
	return 1 << (idx - 1)
}

// VocabularySize is the number of names that get an index.
const VocabularySize = 64

// Use updates f for a use by operator name in argument position arg.
func (f *Feature) Use(v Vocabulary, name int32, arg int) {
	var idx uint8
	if int(name) < len(v.Index) {
		idx = v.Index[name]
	}
	f.Uses++
	if idx > 0 {
		f.Tags |= v.tag(idx)
	}
	f.Calls = f.Calls<<8 + uint64(idx)
	f.Args = f.Args<<8 + uint64(uint8(arg))
}
