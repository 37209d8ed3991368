// Package registry has the table of all policies. To add one, write its file
// and put its line into All.
package registry

import (
	"smartswap/policies"
	"smartswap/policies/dtr"
	"smartswap/policies/flashneuron"
	"smartswap/policies/g10"
	"smartswap/policies/smartswap"
)

// All lists the registered policies.
func All() []policies.Registration {
	return []policies.Registration{
		policies.None(),
		policies.LRU(),
		policies.UVM(),
		policies.DeepUM(),
		smartswap.Registration(),
		flashneuron.Registration(),
		g10.Registration(),
		dtr.Registration(),
	}
}

// Names lists the names of All in its order.
func Names() []string {
	var names []string
	for _, r := range All() {
		names = append(names, r.Name)
	}
	return names
}

// Lookup finds a policy by name. The error names the nearest and all valid
// names.
func Lookup(name string) (policies.Registration, error) {
	return policies.Find(All(), name)
}
