package experiments

import (
	"fmt"
	"strings"
)

// lines maps dotted paths of a TOML file to line numbers, for messages: the
// decoder does not tell positions. Elements of arrays of tables are written
// table[0], table[1]. It reads well-formed TOML (the decoder has been there
// before); what it does not understand it leaves out, and a message then names
// the line of the nearest enclosing key.
type lines map[string]int

// locate scans a file.
func locate(file string) lines {
	found := lines{}
	count := map[string]int{} // elements of arrays of tables so far, by path
	prefix := ""
	depth := 0  // of brackets inside a value that goes on
	multi := "" // the delimiter of an open multi-line string
	for n, line := range strings.Split(file, "\n") {
		s := strings.TrimSpace(line)
		if multi != "" || depth > 0 {
			depth, multi = scanValue(s, depth, multi)
			continue
		}
		switch {
		case s == "" || s[0] == '#':
		case strings.HasPrefix(s, "[["):
			name, _, _ := strings.Cut(s[2:], "]]")
			path := resolve(count, splitQuoted(name))
			prefix = fmt.Sprintf("%s[%d]", path, count[path])
			count[path]++
			found.add(prefix, n+1)
		case s[0] == '[':
			name, _, _ := strings.Cut(s[1:], "]")
			prefix = resolve(count, splitQuoted(name))
			found.add(prefix, n+1)
		default:
			key, value, ok := cutKey(s)
			if !ok {
				continue
			}
			path := prefix
			for _, part := range splitQuoted(key) {
				path = join(path, part)
				found.add(path, n+1)
			}
			depth, multi = scanValue(value, 0, "")
		}
	}
	return found
}

func (l lines) add(path string, line int) {
	if _, ok := l[path]; !ok {
		l[path] = line
	}
}

// of is the line of path, or of the nearest key around it; 0 if there is none.
func (l lines) of(path string) int {
	for {
		if n, ok := l[path]; ok {
			return n
		}
		if n, ok := l[path+"[0]"]; ok {
			return n
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return 0
		}
		path = path[:i]
	}
}

// resolve names a table's path: components that are arrays of tables stand for
// their latest element.
func resolve(count map[string]int, parts []string) string {
	path := ""
	for i, part := range parts {
		path = join(path, part)
		if n := count[path]; n > 0 && i < len(parts)-1 {
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
	}
	return path
}

// cutKey splits "key = value" at the first = outside quotes.
func cutKey(s string) (key, value string, ok bool) {
	var quote byte
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '=':
			return strings.TrimSpace(s[:i]), strings.TrimSpace(s[i+1:]), true
		}
	}
	return "", "", false
}

// splitQuoted splits a dotted key whose parts may be quoted.
func splitQuoted(key string) []string {
	var parts []string
	var part strings.Builder
	var quote byte
	for i := range len(key) {
		switch c := key[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '.':
			parts = append(parts, strings.TrimSpace(part.String()))
			part.Reset()
		default:
			part.WriteByte(c)
		}
	}
	return append(parts, strings.TrimSpace(part.String()))
}

// scanValue follows one line of a value: how many brackets and which
// multi-line string are open after it.
func scanValue(s string, depth int, multi string) (int, string) {
	for s != "" {
		if multi != "" {
			i := strings.Index(s, multi)
			if i < 0 {
				return depth, multi
			}
			s, multi = s[i+len(multi):], ""
			continue
		}
		switch {
		case strings.HasPrefix(s, `"""`), strings.HasPrefix(s, "'''"):
			s, multi = s[3:], s[:3]
			continue
		case s[0] == '#':
			return depth, ""
		case s[0] == '[' || s[0] == '{':
			depth++
		case s[0] == ']' || s[0] == '}':
			depth--
		case s[0] == '"' || s[0] == '\'':
			s = afterString(s)
			continue
		}
		s = s[1:]
	}
	return depth, multi
}

// afterString is what follows the one-line string at the start of s.
func afterString(s string) string {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		if s[i] == '\\' && quote == '"' {
			i++
			continue
		}
		if s[i] == quote {
			return s[i+1:]
		}
	}
	return ""
}
