// Package nearest finds the name that a mistyped one was probably meant to be,
// for error messages about names that a user wrote.
package nearest

// Name is the entry of have with the smallest edit distance to want, the first
// of them in order of have. It is empty when have is empty. The cost is the
// product of the lengths, per entry.
func Name(want string, have []string) string {
	best, bestDistance := "", -1
	for _, h := range have {
		if d := Distance(want, h); bestDistance < 0 || d < bestDistance {
			best, bestDistance = h, d
		}
	}
	return best
}

// Distance is the least number of single-byte insertions, deletions and
// substitutions that turn a into b (Levenshtein's distance).
func Distance(a, b string) int {
	row := make([]int, len(b)+1) // distance from a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
