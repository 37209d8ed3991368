package sim

import (
	"fmt"
	"math"
	"slices"
)

// ResourceID is a shared capacity of one Share; FlowID is a flow in progress,
// reused after it has ended.
type (
	ResourceID int32
	FlowID     int32
)

// Use says that a flow loads a resource with Times times its own rate: more
// than once when one simulated flow stands for several identical ones. 0 is 1.
type Use struct {
	Resource ResourceID
	Times    int32
}

// FlowSpec describes a flow to start.
type FlowSpec struct {
	Path   []Use // copied; uses of one resource add up
	Cap    Rate  // the rate it never exceeds, > 0
	Weight int32 // share relative to others on a bottleneck; 0 = 1
	Work   Work
	Done   HandlerID // called with Arg when the work is done (PrioFinish)
	Arg    uint32
}

// Share divides the capacity of resources (links, memories) among the flows
// that load them, max-min fairly: no flow's rate over weight can be raised
// without lowering that of another which has less. So a flow runs at its cap,
// or it has a bottleneck: a resource on its path that is fully used and on which
// no flow has a higher rate over weight. Progressive filling finds these rates
// ("Data Networks", 2nd edition, section 6.5.2).
//
// # Rounding
//
// Rates are whole bytes per second, rounded down: flows that are alike get the
// same rate, and of a bottleneck less than 1 B/s per flow using it stays
// unused. But no flow gets less than 1 B/s, lest it never end; only where
// capacities are that small is one exceeded, by 1 B/s per flow using it.
//
// What a flow still has to move is kept exactly. Only its end is rounded, up
// to the next picosecond, and computed anew from the exact remainder at each
// change of rate; nothing accumulates.
//
// # Cost
//
// As long as the caps of the flows on each resource of a path add up to no
// more than its capacity, a start or an end costs O(path) and at most one
// event. Otherwise the flows connected through overloaded resources are solved
// again, and those whose end moves get a new event; the old one is ignored
// when it fires. Nothing is allocated once the busiest moment has been seen.
//
// A flow that is not in progress, a path over an unknown resource, a rate that
// is not positive and a handler that is not registered are mistakes in the
// caller: they end the run through Engine.Fail. Weights must be small enough
// for the sum of weight x times on a resource to fit 63 bits.
type Share struct {
	engine    *Engine
	self      HandlerID
	resources []resource
	flows     []flow
	free      []FlowID // ended flows, to be reused

	// The part of the system that a change concerns: scratch, see open.
	epoch   uint64
	members []FlowID
	touched []ResourceID
}

type resource struct {
	name     string
	capacity Rate
	users    []FlowID // in no particular order
	demand   wide     // sum of their caps x times
	weight   int64    // sum of their weights x times
	load     Rate     // sum of their rates x times

	touched uint64 // epoch in which it was last put in Share.touched
	left    Rate   // while filling: capacity not yet given away,
	waiting int64  // and weight of the users not yet served
}

// overloaded reports whether the caps of the resource's flows exceed it. Only
// then can it hold anyone back.
func (r *resource) overloaded() bool { return (wide{0, uint64(r.capacity)}).less(r.demand) }

type flow struct {
	path   []link
	cap    Rate
	weight int64
	done   HandlerID
	arg    uint32

	live  bool
	rate  Rate
	work  Work // left to move at time since
	since Time
	end   Time  // when its event is due
	stamp Stamp // of that event

	member uint64 // epoch in which it was last put in Share.members
	served bool   // while solving: next is final
	next   Rate   // the rate to come
}

// link is a Use and where in the resource's users the flow stands.
type link struct {
	Use
	at int32
}

// NewShare returns a solver without resources, whose flows end on e.
func NewShare(e *Engine) *Share {
	s := &Share{engine: e}
	s.self = e.Register(s)
	return s
}

// Resource adds a resource. Its capacity is positive; the name is for people.
func (s *Share) Resource(name string, capacity Rate) ResourceID {
	s.resources = append(s.resources, resource{name: name, capacity: s.positive("capacity of "+name, capacity)})
	return ResourceID(len(s.resources) - 1)
}

// Name is the name that r was given.
func (s *Share) Name(r ResourceID) string { return s.resources[r].name }

// Capacity is the present capacity of r.
func (s *Share) Capacity(r ResourceID) Rate { return s.resources[r].capacity }

// Load is the part of r's capacity in use now.
func (s *Share) Load(r ResourceID) Rate { return s.resources[r].load }

// Flows counts the flows that use r now.
func (s *Share) Flows(r ResourceID) int { return len(s.resources[r].users) }

// Rate is the present rate of a flow.
func (s *Share) Rate(id FlowID) Rate { return s.flows[id].rate }

// SetCapacity changes a resource from now on.
func (s *Share) SetCapacity(r ResourceID, c Rate) {
	res := &s.resources[r]
	s.open()
	s.touch(r)
	res.capacity = s.positive("capacity of "+res.name, c)
	s.touch(r) // it may have become overloaded, and nobody is included yet
	s.settle()
}

// Start begins a flow now, even within the handler of another's end. With an
// empty path it runs at its cap.
func (s *Share) Start(spec FlowSpec) FlowID {
	if int(spec.Done) >= len(s.engine.handlers) {
		s.engine.Fail(fmt.Errorf("sim: flow for handler %d, which is not registered (there are %d)", spec.Done, len(s.engine.handlers)))
	}
	id := s.slot()
	f := &s.flows[id]
	path := f.path[:0] // keep the memory
	*f = flow{
		cap:    s.positive("cap of a flow", spec.Cap),
		weight: int64(max(1, spec.Weight)),
		done:   spec.Done,
		arg:    spec.Arg,
		live:   true,
		work:   spec.Work,
		since:  s.engine.Now(),
		end:    -1, // before every instant: no event yet
	}
	f.path = s.route(path, spec.Path)
	s.open()
	s.include(id)
	s.attach(id)
	s.settle()
	return id
}

// SetCap changes the highest rate of a flow from now on.
func (s *Share) SetCap(id FlowID, cap Rate) {
	if !s.alive(id) {
		return
	}
	s.open()
	s.include(id)
	s.detach(id)
	s.flows[id].cap = s.positive("cap of a flow", cap)
	s.attach(id)
	s.settle()
}

// SetPath changes what a flow uses from now on.
func (s *Share) SetPath(id FlowID, path []Use) {
	if !s.alive(id) {
		return
	}
	s.open()
	s.include(id)
	s.detach(id)
	f := &s.flows[id]
	f.path = s.route(f.path[:0], path)
	s.attach(id)
	s.settle()
}

// Cancel ends a flow now, without a call to its handler.
func (s *Share) Cancel(id FlowID) {
	if s.alive(id) {
		s.remove(id)
	}
}

// Handle ends the flow named by arg, if this is its latest event: first it
// leaves, and the others get what it held; then its handler is called.
func (s *Share) Handle(arg uint32, stamp Stamp) {
	f := &s.flows[arg]
	if f.stamp != stamp || !f.live {
		return
	}
	done, darg := f.done, f.arg
	s.remove(FlowID(arg))
	s.engine.handlers[done].Handle(darg, stamp)
}

// slot finds room for a flow.
func (s *Share) slot() FlowID {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	s.flows = append(s.flows, flow{})
	return FlowID(len(s.flows) - 1)
}

func (s *Share) remove(id FlowID) {
	s.open()
	s.detach(id)
	s.flows[id].live = false
	s.settle()
	s.free = append(s.free, id)
}

// route appends the uses to path, one link per resource.
func (s *Share) route(path []link, uses []Use) []link {
next:
	for _, u := range uses {
		if u.Resource < 0 || int(u.Resource) >= len(s.resources) {
			s.engine.Fail(fmt.Errorf("sim: flow over resource %d, want 0 to %d", u.Resource, len(s.resources)-1))
			continue
		}
		u.Times = max(1, u.Times)
		for i := range path {
			if path[i].Resource == u.Resource {
				path[i].Times += u.Times
				continue next
			}
		}
		path = append(path, link{Use: u})
	}
	return path
}

// attach enters a flow, at rate 0, in the books of the resources on its path.
func (s *Share) attach(id FlowID) {
	f := &s.flows[id]
	for i := range f.path {
		u := &f.path[i]
		r := &s.resources[u.Resource]
		u.at = int32(len(r.users))
		r.users = append(r.users, id)
		r.demand = r.demand.plus(product(int64(f.cap), int64(u.Times)))
		r.weight += f.weight * int64(u.Times)
	}
}

// detach takes a flow out of the books. It touches what is overloaded as long
// as the flow is there.
func (s *Share) detach(id FlowID) {
	s.setRate(id, 0)
	f := &s.flows[id]
	for _, u := range f.path {
		r := &s.resources[u.Resource]
		last := len(r.users) - 1
		moved := r.users[last]
		r.users[u.at] = moved
		r.users = r.users[:last]
		s.linkTo(moved, u.Resource).at = u.at
		s.touch(u.Resource)
		r.demand = r.demand.minus(product(int64(f.cap), int64(u.Times)))
		r.weight -= f.weight * int64(u.Times)
	}
}

// linkTo is the link of a flow to a resource on its path.
func (s *Share) linkTo(id FlowID, r ResourceID) *link {
	path := s.flows[id].path
	i := 0
	for path[i].Resource != r {
		i++
	}
	return &path[i]
}

// A change of the system happens between open and settle. It concerns the
// flows included, the flows of resources that are overloaded before it (which
// is when touch is called) or after it, and so on through overloaded resources
// (which settle sees to). Other resources couple nobody: their flows' caps fit.
func (s *Share) open() {
	s.epoch++
	s.members = s.members[:0]
	s.touched = s.touched[:0]
}

func (s *Share) include(id FlowID) {
	if f := &s.flows[id]; f.member != s.epoch {
		f.member = s.epoch
		s.members = append(s.members, id)
	}
}

func (s *Share) touch(id ResourceID) {
	r := &s.resources[id]
	if r.touched == s.epoch || !r.overloaded() {
		return
	}
	r.touched = s.epoch
	s.touched = append(s.touched, id)
	for _, user := range r.users {
		s.include(user)
	}
}

// settle gives every flow concerned its new rate, in the order of flow numbers
// so that the events it schedules do not depend on how the flows were found.
func (s *Share) settle() {
	for i := 0; i < len(s.members); i++ { // grows on the way
		for _, u := range s.flows[s.members[i]].path {
			s.touch(u.Resource)
		}
	}
	slices.Sort(s.members)
	slices.Sort(s.touched)
	s.fill()
	for _, id := range s.members {
		s.setRate(id, s.flows[id].next)
		s.schedule(id)
	}
}

// fill sets next of all members by progressive filling. The level, a rate per
// weight, rises from 0 for all flows alike until a flow meets its cap or a
// resource is used up; whoever met a limit is served, and the level rises on
// for the rest. There is at most one round per member and touched resource,
// and a round is O(members + touched).
func (s *Share) fill() {
	for _, id := range s.touched {
		r := &s.resources[id]
		r.left, r.waiting = r.capacity, r.weight
	}
	for _, id := range s.members {
		s.flows[id].served = false
	}
	for waiting := len(s.members); waiting > 0; {
		full, top := s.firstFull()
		// Caps first: a flow that meets its cap at or below this level
		// leaves more to the others.
		capped := 0
		for _, id := range s.members {
			f := &s.flows[id]
			if !f.served && !top.below(f.cap, f.weight) {
				s.serve(f, f.cap)
				capped++
			}
		}
		waiting -= capped
		if capped > 0 {
			continue
		}
		for _, id := range full.users {
			if f := &s.flows[id]; !f.served {
				s.serve(f, max(1, top.rate(f.weight)))
				waiting--
			}
		}
	}
}

// firstFull is the touched resource that the rising level uses up first, the
// one of lowest number among equals, and the level at which it does. If all
// flows of all touched resources are served, the level has no bound.
func (s *Share) firstFull() (full *resource, top level) {
	top = level{math.MaxInt64, 0}
	for _, id := range s.touched {
		r := &s.resources[id]
		if r.waiting > 0 && top.above(r.left, r.waiting) {
			full, top = r, level{r.left, r.waiting}
		}
	}
	return full, top
}

// serve fixes a flow's next rate and takes it from what its resources have.
func (s *Share) serve(f *flow, rate Rate) {
	f.next, f.served = rate, true
	for _, u := range f.path {
		r := &s.resources[u.Resource]
		r.left = max(0, r.left-rate*Rate(u.Times))
		r.waiting -= f.weight * int64(u.Times)
	}
}

// level is a fraction: a rate over a weight. Weight 0 makes it infinite.
type level struct {
	num Rate
	den int64
}

// below reports whether l < num/den, and above whether l > num/den.
func (l level) below(num Rate, den int64) bool {
	return product(int64(l.num), den).less(product(int64(num), l.den))
}

func (l level) above(num Rate, den int64) bool {
	return product(int64(num), l.den).less(product(int64(l.num), den))
}

// rate is what a flow of that weight gets at the level, rounded down.
func (l level) rate(weight int64) Rate {
	return Rate(product(int64(l.num), weight).over(l.den))
}

// setRate changes a flow's rate from now on; what it moved until now is done.
func (s *Share) setRate(id FlowID, rate Rate) {
	f := &s.flows[id]
	if rate == f.rate {
		return
	}
	now := s.engine.Now()
	f.work.todo = f.work.todo.minus(product(int64(f.rate), int64(now-f.since)))
	f.since = now
	for _, u := range f.path {
		s.resources[u.Resource].load += (rate - f.rate) * Rate(u.Times)
	}
	f.rate = rate
}

// schedule makes sure that there is an event for the end of a flow. A flow
// whose end does not move keeps the event it has.
func (s *Share) schedule(id FlowID) {
	f := &s.flows[id]
	end := f.since + Time(f.work.todo.overUp(int64(f.rate)))
	if end < f.since {
		end = Forever
	}
	if end != f.end {
		f.end = end
		f.stamp = s.engine.At(end, PrioFinish, s.self, uint32(id))
	}
}

// positive returns x, or ends the run and returns 1 if it is not positive.
func (s *Share) positive(what string, x Rate) Rate {
	if x <= 0 {
		s.engine.Fail(fmt.Errorf("sim: %s is %d B/s, want more than 0", what, x))
		return 1
	}
	return x
}

// alive reports whether id is a flow in progress, and ends the run if not.
func (s *Share) alive(id FlowID) bool {
	if id < 0 || int(id) >= len(s.flows) || !s.flows[id].live {
		s.engine.Fail(fmt.Errorf("sim: flow %d is not in progress", id))
		return false
	}
	return true
}
