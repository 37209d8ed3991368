// Package policies has the memory policies and the only interface through
// which they act. A policy is a file: one type, one registration line.
//
// A policy sees events, observations of its profiler, and live handles; it
// never sees the workload, the hardware or the event kernel (a test checks the
// imports). It acts through Runtime: actions on live handles take effect at
// once, a Plan is armed for the iterations that follow. Everything it does
// costs host time by a deterministic model.
//
// # Where to start reading
//
//	policy.go   Policy, Needs, Event, Runtime
//	action.go   Action, Selector, Trigger, Plan: the vocabulary
//	feature.go  how a tensor is recognised without stable ids
//	lru.go      the smallest complete policy
//	smartswap/  the system this project reproduces
package policies
