package policies

// None registers the policy that does nothing: an allocation that fails
// ends the run.
func None() Registration {
	return Registration{
		Name:  "none",
		About: "no swapping: out of memory is out of memory",
		New:   func(p Params) (Policy, error) { return none{}, p.Read().Done() },
	}
}

type none struct{}

func (none) Needs() Needs           { return Needs{} }
func (none) Handle(*Event, Runtime) {}
