package workloads_test

import (
	"testing"

	"smartswap/workloads"
)

// A repeated job is the iteration's, for ever, with its tokens.
func TestRepeat(t *testing.T) {
	base := fitting("ramp")
	ramp := workloads.BatchRamp{From: 1, Step: 1, Every: 2}
	w := with(t, base, ramp)
	at := func(w workloads.Workload, i int) *workloads.Program {
		p, err := w.Program(0, i)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	r := workloads.Repeat(w, 0)
	if at(r, 5) != at(w, 0) || at(w, 5) == at(w, 0) {
		t.Error("not the program of iteration 0 in iteration 5")
	}
	if got, want := tokensIn(t, r, 5), tokensIn(t, w, 0); got != want || got == tokensIn(t, w, 5) {
		t.Errorf("%d tokens, want %d", got, want)
	}
	if at(w, 0).Hash() == at(w, 5).Hash() {
		t.Error("two jobs have one hash")
	}
	again := with(t, base, ramp)
	if at(again, 5).Hash() != at(w, 5).Hash() {
		t.Error("one job has two hashes")
	}
}
