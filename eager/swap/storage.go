// Package swap holds the storages of a rank and moves them: swap-out, swap-in,
// demand faults, the memory held for copies under way, and the execution of an
// armed plan.
//
// # A storage is where its copies are
//
// A Storage has at most one device copy and a set of copies elsewhere. Every
// write makes a new version; a copy is current when it carries the storage's
// version. A storage with a current host copy can leave the device without
// moving a byte.
//
// # Memory outlives its owner
//
// A device block that a swap-out still reads, and a host buffer that a copy
// still uses, are held until the copy has ended. Who waits for that end is the
// release rule: the compute stream at a stage of the program (custom release),
// the allocator's polling (stock record_stream), the host (synchronous
// eviction), or whoever runs out of memory first.
//
// # Where to start reading
//
//	storage.go   Storage and its copies
//	options.go   Options: every switch of the executor
//	executor.go  Executor: swap-out, swap-in, holds
//	plan.go      an armed plan: matching, stage tasks, chunks of states
package swap

import (
	"smartswap/eager/alloc"
	"smartswap/eager/stream"
	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// Copy is one copy of a storage outside device memory.
type Copy struct {
	Tier    policies.TierID
	Part    policies.Range // the zero Range: all of it
	Version uint32         // version of the content
	Buffer  alloc.Buffer   // where it is
	Ready   stream.Event   // complete when the content has arrived
	Busy    stream.Event   // latest copy that reads or writes the buffer
}

// Storage is a live storage of a rank.
type Storage struct {
	Handle policies.Handle
	Bytes  sim.Bytes
	Shape  [4]int32
	DType  uint8
	Type   profilers.TensorType
	Name   int32 // label, for reports
	Refs   int32
	// Version counts writes in program order.
	Version uint32

	// Block is the device copy, alloc.NoBlock when there is none. Its
	// content is complete at Arrives; the compute stream has not waited for
	// that yet while Pending.
	Block   alloc.Block
	Arrives stream.Event
	Pending bool
	// Since is the command of the compute stream behind which other streams may
	// touch the device copy, beyond what the program orders: the wait for a
	// swap-in, or the latest operator that ran again and touched it.
	Since stream.Event
	// Uses are the latest commands on streams other than compute that touch
	// the device copy: collectives, transfers between stages.
	Uses [2]stream.Event
	// Elsewhere are the other copies.
	Elsewhere []Copy

	// Tensor is the allocation instance as profilers see it.
	Tensor profilers.Tensor
	// Locks counts the arguments of operators being dispatched that the storage
	// is.
	Locks int32
	// Node is the storage's number in the lineage; 0 = none.
	Node int32
	// Guard counts holds that keep the storage alive though no reference
	// is left.
	Guard int32

	// Identity is what the storage is in the program; set only for matching by
	// truth.
	Identity Identity

	feature   policies.Feature
	featureIn int64 // iteration that feature belongs to, +1
	fault     bool  // the pending arrival is a demand fault
}

// Identity names a storage across iterations by what the program is, not by
// what can be observed: the n-th of its label and layer that a pass creates.
type Identity struct {
	Pass            profilers.Stage
	Label, Layer, N int32
}

// UsedOn tells that a command on stream s, not compute, touches the storage
// until e.
func (s *Storage) UsedOn(e stream.Event) {
	if e.Stream() == stream.Comm {
		s.Uses[0] = e
	} else {
		s.Uses[1] = e
	}
}

// InUse tells whether an operator that is being dispatched uses the storage.
func (s *Storage) InUse() bool { return s.Locks > 0 }

// OnDevice tells whether the storage has a device copy, complete or arriving.
func (s *Storage) OnDevice() bool { return s.Block != alloc.NoBlock }

// Current returns the current copy elsewhere, nil if there is none.
func (s *Storage) Current() *Copy {
	for i := range s.Elsewhere {
		if c := &s.Elsewhere[i]; c.Version == s.Version {
			return c
		}
	}
	return nil
}
