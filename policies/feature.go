package policies

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
}

// Vocabulary gives the most frequent operator names an index from 1 and a tag
// bit; other names have neither.
type Vocabulary struct {
	Index []uint8 // by run-wide name id; 0 = not in the vocabulary
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
		f.Tags |= 1 << (idx - 1)
	}
	f.Calls = f.Calls<<8 + uint64(idx)
	f.Args = f.Args<<8 + uint64(uint8(arg))
}
