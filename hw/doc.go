// Package hw describes the machine: what a kernel, a copy or a collective
// takes, which resources it shares, and how much memory there is.
//
// A Node is data: devices, host, links and fabric, read from the embedded
// catalogue (or a file of the same form), every number with its source. A
// Machine is a Node inside one run: its shared resources are registered with
// the bandwidth solver, and each device has its DMA engines. What a planner
// believes about bandwidth is none of this package's business.
//
// # Where to start reading
//
//	work.go      Work: what a kernel asks for, by family
//	node.go      Node: Device, Host, Link, Fabric
//	catalog.go   Load: the catalogue, and files of its form
//	settings.go  every number's key and range: Set, Validate
//	compute.go   Device.Timing: efficiency curves, roofline
//	fabric.go    Fabric.Time: collectives and transfers
//	machine.go   Machine: shared resources, DMA engines, the path of a copy
//
// # How good the numbers are
//
// Where kernels were measured, the curves were fitted to them and frozen: on a
// 910B of 20 cores (device 910b-20c), which the other 910s extend with their own
// peaks, and on an A100. Fitted kernels are met within 15 %, others of the same
// run within 45 %; the calibration tests list them. Everything else is taken
// from a named source or says that it is assumed, number by number.
package hw
