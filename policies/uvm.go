package policies

// UVM registers unified memory without a plan: a kernel that touches pages
// which are elsewhere stops until they have come, and what has been on the
// device longest makes room. The driver does not see accesses to pages that are
// there, so that age counts from the arrival; "used" is the idealised order by
// last use. It does not see either that a tensor is dead, and moves its pages
// like any other; dead = "dropped" is a framework that returns memory to the
// driver with each tensor, so that its pages make room at no cost.
//
// This is the baseline that MICRO'23 G10 calls lru (platformxlab/G10,
// src/simulator): its timelines are met with "arrived" and "moved".
func UVM() Registration {
	return Registration{
		Name:  "uvm",
		About: "unified memory, paged on demand; what came first makes room",
		New: func(p Params) (Policy, error) {
			victim, dead := "arrived", "moved"
			r := p.Read()
			r.Choice("victim", &victim, "arrived", "used")
			r.Choice("dead", &dead, "moved", "dropped")
			return &uvm{Paging{Oldest: victim == "arrived", DropDead: dead == "dropped"}}, r.Done()
		},
	}
}

// uvm is a policy that is all in how the driver works.
type uvm struct{ paging Paging }

func (*uvm) Needs() Needs           { return Needs{Memory: Unified} }
func (u *uvm) Paging() Paging       { return u.paging }
func (*uvm) Handle(*Event, Runtime) {}
