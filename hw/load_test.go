package hw

import "testing"

func TestX(t *testing.T) {
	for _, n := range Nodes() {
		if _, err := Load(n); err != nil { t.Error(err) }
	}
	t.Log(Devices())
}
