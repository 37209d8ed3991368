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
//	work.go     Work: what a kernel asks for, by family
//	node.go     Node, Device, Host, Link, Fabric, and the catalogue
//	compute.go  how Work becomes a time: efficiency curves, roofline
//	machine.go  Machine: resources, DMA engines, copy paths
package hw
