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
//	policy.go       Policy, Needs, Event, Runtime
//	action.go       Action, Selector, Trigger, Plan: the vocabulary
//	lru.go          the smallest complete policy
//	nominal.go      what compile-time planners see; kinds of device memory
//	uvm.go          policies that are all in how unified memory works
//	feature.go      how a tensor is recognised without stable ids
//	note.go         what a policy can tell about itself
//	validate.go     what makes a plan well formed
//	params.go       options from a configuration file, read strictly
//	registration.go what a registry line says
//	registry/       the table of all policies
//	policytest/     what every policy must do
//	smartswap/      the system this project reproduces
//	dtr/            rematerialization: discard, and run operators again
//
// # Adding a policy
//
// Say that a policy called "biggest" should evict the largest tensor when an
// allocation fails. Its file, policies/biggest.go, has three parts.
//
// The registration gives it a name, a line of description, and a constructor
// that reads its options; an option that it does not read is an error:
//
//	func Biggest() Registration {
//		return Registration{
//			Name:  "biggest",
//			About: "reactive: evict the largest tensor",
//			New: func(p Params) (Policy, error) {
//				b := &biggest{atLeast: sim.MiB}
//				r := p.Read()
//				Int(r, "at_least_bytes", &b.atLeast, 1, 1<<40)
//				return b, r.Done()
//			},
//		}
//	}
//
// Needs names the events to be delivered, and the profile fields if it wants
// observations. Both cost host time, so ask for what you use. A run whose
// profiler does not record the fields is refused before it starts:
//
//	func (*biggest) Needs() Needs { return Needs{Events: Set(AfterOp, Pressure)} }
//
// Handle decides. Events come on the dispatching thread in program order.
// Tensors are known by their handles; a handle whose tensor has died is simply
// not found any more. On Pressure, returning without having made room gives
// up, and the run ends with an out-of-memory report:
//
//	func (b *biggest) Handle(ev *Event, rt Runtime) {
//		switch ev.Kind {
//		case AfterOp:
//			for _, h := range ev.Op.Args { // remember what there is
//				b.seen.Touch(h)
//			}
//		case Pressure:
//			if h, ok := b.largest(rt); ok {
//				rt.Do(Action{Kind: Evict, What: Selector{Handle: h}, Wait: true})
//			}
//		}
//	}
//
// Last, add Biggest() to the table in registry/registry.go. From then on the
// conformance suite runs it through random iterations, and every experiment
// can name it:
//
//	[[strategy]]
//	policy = "biggest"
//	options = { at_least_bytes = 4194304 }
//
// A policy that plans ahead asks for IterationEnd and profile fields, makes a
// Plan from Event.Observation, and arms it with Runtime.Arm; the runtime then
// recognises the tensors and moves them. Package smartswap is the example.
package policies
