package dtr

// CompareScores compares a/(b x c) with d/(e x f).
func CompareScores(a, b, c, d, e, f int64) int {
	x, y := newScore(a, b, c), newScore(d, e, f)
	return x.compare(&y)
}
