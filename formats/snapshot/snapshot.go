package snapshot

import (
	"fmt"

	"smartswap/sim"
)

// Snapshot is what one process knew of its devices' memory.
type Snapshot struct {
	// Segments, of all devices, as they were at the end of the history.
	Segments []Segment
	// Traces is the history by device, oldest event first. Its beginning may
	// be lost: the framework keeps it in a ring buffer.
	Traces [][]Event
	// Settings is the allocator's configuration, in file order; nil in files
	// that do not tell it.
	Settings []Setting
}

// Segment is one region from the driver, or one contiguous mapped range of an
// expandable segment.
type Segment struct {
	Device     int
	Address    uint64
	Size       sim.Bytes
	Stream     int64 // the framework's handle; 0 is the default stream
	Large      bool  // of the pool for requests over 1 MiB
	Expandable bool
	Pool       [2]int64 // (0, 0) is the default pool, others are those of graphs
	Frames     []Frame
	Blocks     []Block // by address; they tile the segment
}

// Block is a slice of a segment.
type Block struct {
	Address uint64
	Size    sim.Bytes
	// Requested is what the program asked for; of an inactive block, what its
	// last user did, or 0.
	Requested sim.Bytes
	State     State
	Frames    []Frame
}

// State of a block.
type State uint8

// States.
const (
	Inactive    State = iota // free for its stream
	Allocated                // in use
	PendingFree              // freed, waits for other streams
	numStates
)

var stateNames = [numStates]string{"inactive", "active_allocated", "active_pending_free"}

// String is the name in the file.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Action is what an event tells.
type Action uint8

// Actions, with what Event.Size means.
const (
	Alloc         Action = iota // requested bytes
	FreeRequested               // requested bytes; the program gave the block up
	FreeCompleted               // requested bytes; from here on the block is reusable
	SegmentAlloc                // bytes from the driver
	SegmentFree                 // bytes to the driver
	SegmentMap                  // bytes that an expandable segment grows by
	SegmentUnmap                // bytes that it shrinks by
	OOM                         // rounded bytes; the address is the device's free bytes
	Dump                        // a snapshot was taken; active bytes
	Other                       // an action without meaning for memory
	numActions
)

var actionNames = [numActions]string{
	"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
	"segment_map", "segment_unmap", "oom", "snapshot", "other",
}

// String is the name in the file; "other" stands for all names not listed.
func (a Action) String() string {
	if a < numActions {
		return actionNames[a]
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Event is one entry of the history.
type Event struct {
	Action Action
	Addr   uint64 // of an OOM: free bytes of the device
	Size   sim.Bytes
	Stream int64
	TimeUS int64 // microseconds since 1970; 0 = not told
	Frames []Frame
}

// Frame is one line of a call stack, innermost first. Events of one place in the
// program share one slice.
type Frame struct {
	Name, File string
	Line       int
}

// Setting is one entry of the allocator's settings. Nested ones are flattened:
// the key of roundup_power2_divisions for 4 MiB is "roundup_power2_divisions.4".
type Setting struct {
	Key   string
	Value string // numbers in decimal, booleans as "true" and "false"
}
