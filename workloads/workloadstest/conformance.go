// Package workloadstest checks what every Workload promises, whatever made it.
package workloadstest

import (
	"reflect"
	"slices"
	"sync"
	"testing"

	"smartswap/workloads"
)

// Conformance runs the checks on the first iterations of w:
//
//   - ranks have devices, and no device belongs to two;
//   - every program is well formed and begins with its rank's residents;
//   - asking twice gives the same program, and programs that are equal are one;
//   - programs may be asked for by several goroutines at once;
//   - all ranks' programs can be executed together: collectives and transfers
//     pair up and nothing waits for ever (Play);
//   - lanes do not race (Races).
//
// It asks for iterations 0..iterations-1 and calls fresh for a new equal
// workload where it needs one that nobody has asked yet.
func Conformance(t *testing.T, iterations int, fresh func() workloads.Workload) {
	t.Helper()
	w := fresh()
	if w.Name() == "" {
		t.Error("the workload has no name")
	}
	if w.Tokens() < 0 {
		t.Errorf("Tokens() = %d, must not be negative", w.Tokens())
	}
	checkRanks(t, w.Ranks())
	for r := range w.Ranks() {
		checkPrograms(t, w, r, iterations)
	}
	for i := range iterations {
		if _, err := Play(w, i, func(*workloads.Kernel) int64 { return 1 }); err != nil {
			t.Errorf("iteration %d: %v", i, err)
		}
	}
	checkConcurrency(t, fresh(), iterations)
}

func checkRanks(t *testing.T, ranks []workloads.Rank) {
	t.Helper()
	if len(ranks) == 0 {
		t.Fatal("the workload has no ranks")
	}
	owner := make(map[int]int)
	for r, rank := range ranks {
		if len(rank.Devices) == 0 {
			t.Errorf("rank %d has no devices", r)
		}
		for _, d := range rank.Devices {
			if o, taken := owner[d]; taken {
				t.Errorf("device %d belongs to ranks %d and %d", d, o, r)
			}
			owner[d] = r
		}
	}
}

func checkPrograms(t *testing.T, w workloads.Workload, r, iterations int) {
	t.Helper()
	residents := w.Ranks()[r].Residents
	var distinct []*workloads.Program
	for i := range iterations {
		p, err := w.Program(r, i)
		if err != nil {
			t.Fatalf("rank %d, iteration %d: %v", r, i, err)
		}
		if again, _ := w.Program(r, i); again != p {
			t.Errorf("rank %d, iteration %d: two calls give two programs", r, i)
		}
		if slices.Contains(distinct, p) {
			continue
		}
		for _, q := range distinct {
			if reflect.DeepEqual(p, q) {
				t.Errorf("rank %d, iteration %d: equal to an earlier program, but another pointer", r, i)
			}
		}
		distinct = append(distinct, p)
		if err := p.Validate(); err != nil {
			t.Errorf("rank %d, iteration %d: %v", r, i, err)
		}
		if int(p.Residents) != len(residents) || !slices.Equal(p.Storages[:p.Residents], residents) {
			t.Errorf("rank %d, iteration %d: the first storages are not the rank's residents", r, i)
		}
		if p.Names != w.Names() {
			t.Errorf("rank %d, iteration %d: names are not the workload's", r, i)
		}
		if err := Races(p); err != nil {
			t.Errorf("rank %d, iteration %d: %v", r, i, err)
		}
	}
	if _, err := w.Program(r, -1); err == nil {
		t.Error("iteration -1 gives no error")
	}
	if _, err := w.Program(len(w.Ranks()), 0); err == nil {
		t.Error("a rank that does not exist gives no error")
	}
}

func checkConcurrency(t *testing.T, w workloads.Workload, iterations int) {
	t.Helper()
	const workers = 3
	var got [workers][]*workloads.Program
	var wait sync.WaitGroup
	for worker := range workers {
		wait.Go(func() {
			for i := range iterations {
				for r := range w.Ranks() {
					p, err := w.Program(r, i)
					if err != nil {
						t.Error(err)
						return
					}
					got[worker] = append(got[worker], p)
				}
			}
		})
	}
	wait.Wait()
	for worker := 1; worker < workers; worker++ {
		if !slices.Equal(got[0], got[worker]) {
			t.Error("goroutines asking at once get different programs")
		}
	}
}
