package hw

// Point is one knot of a Curve.
type Point struct{ X, Y float64 }

// Curve is a monotone-cubic interpolation through knots in increasing X,
// constant beyond both ends. The zero Curve is 1 everywhere.
type Curve struct{ Points []Point }
