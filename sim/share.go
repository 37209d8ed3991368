package sim

// ResourceID is a shared capacity of one Share; FlowID is a flow in progress,
// reused after it has ended.
type (
	ResourceID int32
	FlowID     int32
)

// Use says that a flow loads a resource with Times times its own rate: more
// than once when one simulated flow stands for several identical ones.
type Use struct {
	Resource ResourceID
	Times    int32
}

// Work is what a flow has to move, as rate x time in 128 bits, so that
// re-timing loses nothing.
type Work struct{ hi, lo uint64 }

// FlowSpec describes a flow to start.
type FlowSpec struct {
	Path   []Use
	Cap    Rate  // the rate it never exceeds, > 0
	Weight int32 // share relative to others on a bottleneck; 0 = 1
	Work   Work
	Done   HandlerID // called with Arg when the work is done (PrioFinish)
	Arg    uint32
}
