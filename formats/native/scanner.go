package native

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"smartswap/formats/internal/lines"
)

// scanner takes lines apart. Its first error stays, and whatever is asked of it
// afterwards yields zeros: callers check err once per line.
type scanner struct {
	in    *lines.Reader
	items []string // of the current line, those not yet taken
	err   error
}

// fail notes an error about the current line.
func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = s.in.Errorf(format, args...)
	}
}

// line moves to the next line that means something and takes its keyword;
// false at the end of the file or after an error.
func (s *scanner) line() (keyword string, ok bool) {
	for s.err == nil {
		text, ok := s.in.Next()
		if !ok {
			s.err = s.in.Err()
			return "", false
		}
		items, ok := split(text)
		if !ok {
			s.fail("a quoted name does not end")
		} else if len(items) > 0 && items[0][0] != '#' {
			s.items = items[1:]
			return items[0], true
		}
	}
	return "", false
}

// item takes the next item; what is the name that an error uses.
func (s *scanner) item(what string) string {
	if len(s.items) == 0 {
		s.fail("the line ends; %s is missing", what)
		return ""
	}
	item := s.items[0]
	s.items = s.items[1:]
	return item
}

// done checks that the line has been taken whole.
func (s *scanner) done() {
	if len(s.items) > 0 {
		s.fail("%.40q at the end of the line; nothing is allowed there", s.items[0])
	}
}

// number takes a number in [lo, hi].
func (s *scanner) number(what string, lo, hi int64) int64 {
	return s.parse(what, s.item(what), lo, hi)
}

// parse reads an item as a number in [lo, hi].
func (s *scanner) parse(what, item string, lo, hi int64) int64 {
	v, err := strconv.ParseInt(item, 10, 64)
	if err != nil || v < lo || v > hi {
		s.fail("%s %.40q; allowed: a whole number from %d to %d", what, item, lo, hi)
		return 0
	}
	return v
}

// value reads the value of an option in [0, hi]; 0 if it was left out.
func (s *scanner) value(what, item string, hi int64) int64 {
	if item == "" {
		return 0
	}
	return s.parse(what, item, 0, hi)
}

// list reads numbers with commas between them, at least one.
func (s *scanner) list(what, item string) []int32 {
	var list []int32
	for field := range strings.SplitSeq(item, ",") {
		list = append(list, int32(s.parse(what, field, 0, math.MaxInt32)))
		if s.err != nil {
			return nil
		}
	}
	return list
}

// word takes one of words and returns its index.
func (s *scanner) word(what string, words []string) int {
	return s.oneOf(what, s.item(what), words)
}

// oneOf is the index of an item among words.
func (s *scanner) oneOf(what, item string, words []string) int {
	i := slices.Index(words, item)
	if i < 0 {
		s.fail("%s %.40q; allowed: %s", what, item, strings.Join(words, " "))
		return 0
	}
	return i
}

// nameItem takes a name, quoted or not.
func (s *scanner) nameItem(what string) string {
	item := s.item(what)
	if s.err != nil || isBare(item) {
		return item
	}
	name, err := strconv.Unquote(item)
	if err != nil || item[0] != '"' {
		s.fail("%s %.40q; allowed: a word, or a string in double quotes", what, item)
	}
	return name
}

// maxOptions is the largest number of options that a keyword has.
const maxOptions = 14

// options takes the rest of the line as options. allowed lists them: "key="
// for one with a value, "word" for one without. The result holds, at the place
// of each, its value or itself; "" if it was left out.
func (s *scanner) options(allowed ...string) (values [maxOptions]string) {
	for len(s.items) > 0 && s.err == nil {
		item := s.item("option")
		key, value, hasValue := strings.Cut(item, "=")
		if hasValue {
			key += "="
		} else {
			value = key
		}
		switch i := slices.Index(allowed, key); {
		case i < 0:
			s.fail("option %.40q; allowed: %s", item, strings.Join(allowed, " "))
		case values[i] != "":
			s.fail("option %.40q appears twice", key)
		case value == "":
			s.fail("option %.40q has no value", key)
		default:
			values[i] = value
		}
	}
	return values
}
