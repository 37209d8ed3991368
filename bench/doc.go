// Package bench compares the event engine with others on the same models. It
// is a module of its own, so that the engines it compares with are nobody
// else's dependencies.
//
// # Where to start reading
//
//	reference.go    the yardstick: a plain 4-ary heap and nothing around it
//	models.go       what is simulated: hold, chain, ties
//	contenders.go   one constructor per engine
//	engine_test.go  BenchmarkEngine, and TestRatios, which asserts the targets
//
// What measures another layer gets files named after it.
package bench
