package native

import (
	"strconv"
	"strings"

	"smartswap/hw"
)

// magic is the first line of every file; it ends in the version.
const magic = "smartswap-trace 1"

// limit bounds each of the things that a file can hold many of: instructions,
// arguments, types and names. It keeps a small packed file from asking for all
// memory: 2^24 instructions are 800 MB.
const limit = 1 << 24

// maxAmount is the largest size in bytes and the longest time in picoseconds of
// one thing: 1 PiB, 18 minutes.
const maxAmount = 1 << 50

// The words of the format, in the order of the constants that they stand for.
// Nothing writes to these tables.
var (
	classWords = []string{"activation", "parameter", "gradient", "optimizer", "logits", "comm-buffer", "input"}
	dtypeWords = []string{"bf16", "fp16", "fp32", "int64", "int32", "uint8"}
	laneWords  = []string{"compute", "comm", "peer"}
	kindWords  = []string{"modelled", "measured", "collective", "transfer"}
	markWords  = []string{
		"iteration-begin", "forward-begin", "forward-end", "backward-begin", "backward-end",
		"optimizer-begin", "optimizer-end", "validation-begin", "validation-end", "iteration-end",
	}
	familyWords     = namesOf(hw.NumFamilies)
	collectiveWords = namesOf(hw.NumCollectives)
)

// namesOf lists what the constants below n call themselves.
func namesOf[T interface {
	~uint8
	String() string
}](n T) []string {
	var words []string
	for i := range n {
		words = append(words, i.String())
	}
	return words
}

// isBare says whether a name can stand unquoted.
func isBare(name string) bool {
	for _, c := range name {
		if c <= ' ' || c == '"' || !strconv.IsPrint(c) {
			return false
		}
	}
	return name != "" && name[0] != '#' && !strings.ContainsRune(name, '\uFFFD')
}

// split cuts a line into items; false if a quoted name does not end.
func split(line string) ([]string, bool) {
	if !strings.Contains(line, `"`) {
		return strings.Fields(line), true
	}
	var items []string
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return items, true
		}
		end := strings.IndexAny(line, " \t")
		if end < 0 {
			end = len(line)
		}
		if line[0] == '"' {
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil || len(quoted) < len(line) && line[len(quoted)] != ' ' && line[len(quoted)] != '\t' {
				return nil, false
			}
			end = len(quoted)
		}
		items = append(items, line[:end])
		line = line[end:]
	}
}
