package workloads

import (
	"errors"
	"reflect"
	"runtime"
	"sync"
	"testing"
)

func TestCache(t *testing.T) {
	var c cache
	built := 0
	make1 := func(instrs int) func() (*Program, error) {
		return func() (*Program, error) {
			built++
			return &Program{Instrs: make([]Instr, instrs)}, nil
		}
	}
	get := func(rank, instrs int) *Program {
		p, err := c.get(programKey{rank: rank}, make1(instrs))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const big = cacheBytes / 48 / 4 // a quarter of what is kept
	a := get(0, big)
	if get(0, big) != a || built != 1 {
		t.Error("asked twice, a program is built twice")
	}
	for i := range 10 {
		get(i, big)
	}
	if c.bytes > cacheBytes {
		t.Errorf("%d bytes are kept, at most %d allowed", c.bytes, cacheBytes)
	}
	if get(0, big) != a {
		t.Error("a program that someone holds is built again")
	}
	runtime.KeepAlive(a)
	if p := get(99, 8*big); get(99, 8*big) != p || c.recent.Len() != 1 {
		t.Error("a program larger than all that is kept is not kept, or not alone")
	}
	built = 0
	failure := errors.New("no")
	if _, err := c.get(programKey{rank: -1}, func() (*Program, error) { return nil, failure }); err != failure {
		t.Errorf("error %v", err)
	}
	if get(-1, 1); built != 1 {
		t.Error("a failure is kept")
	}
}

// Programs that nobody holds leave neither memory nor keys behind.
func TestCacheForgets(t *testing.T) {
	var c cache
	for i := range 3000 {
		if _, err := c.get(programKey{rank: i}, func() (*Program, error) {
			return &Program{Instrs: make([]Instr, 1000)}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if i%500 == 0 {
			runtime.GC()
		}
	}
	if most := cacheBytes / 48000; c.recent.Len() > most+1 || len(c.entries) > 2*(most+600) {
		t.Errorf("%d programs and %d keys are kept", c.recent.Len(), len(c.entries))
	}
}

// Different programs are made side by side, one program once.
func TestCacheConcurrent(t *testing.T) {
	var c cache
	var wait sync.WaitGroup
	got := make([][]*Program, 8)
	for worker := range got {
		wait.Go(func() {
			for i := range 200 {
				p, err := c.get(programKey{rank: i % 20}, func() (*Program, error) { return &Program{Ops: int32(i % 20)}, nil })
				if err != nil || p.Ops != int32(i%20) {
					t.Errorf("program %d is %v, %v", i%20, p, err)
				}
				got[worker] = append(got[worker], p)
			}
		})
	}
	wait.Wait()
	for worker := range got {
		if !reflect.DeepEqual(got[worker], got[0]) {
			t.Errorf("worker %d got other programs", worker)
		}
		for i, p := range got[worker] {
			if p != got[0][i] {
				t.Errorf("worker %d got another pointer to program %d", worker, i%20)
			}
		}
	}
}

// A job in which no two iterations are equal takes bounded memory, and an
// iteration that is asked for again after its program was forgotten is the same.
func TestVariedMemory(t *testing.T) {
	m, err := LookupModel("llama2-7b")
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{Model: m, GlobalBatch: 4, Processes: []Process{VariableLength{Lengths{Sigma: LengthSigma}}}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := w.Program(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	ops, kernels := first.Ops, len(first.Kernels)
	first = nil
	for i := range 100 {
		if _, err := w.Program(0, i); err != nil {
			t.Fatal(err)
		}
	}
	d := w.(*decoder)
	if d.programs.bytes > cacheBytes || d.programs.recent.Len() < 2 || d.programs.recent.Len() > 90 {
		t.Errorf("%d programs of %d bytes are kept of 100", d.programs.recent.Len(), d.programs.bytes)
	}
	again, err := w.Program(0, 0)
	if err != nil || again.Ops != ops || len(again.Kernels) != kernels {
		t.Errorf("iteration 0 is another program later: %v", err)
	}
}
