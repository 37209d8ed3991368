package g10

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"smartswap/policies"
	"smartswap/sim"
)

// stub is a runtime that carries out nothing, and notes what it was asked.
type stub struct {
	policies.Runtime
	nominal *policies.Nominal
	answer  func(policies.Action) policies.Outcome
	did     []string
	armed   *policies.Plan
	charged sim.Time
}

func (s *stub) Nominal() *policies.Nominal         { return s.nominal }
func (s *stub) Capacity() sim.Bytes                { return 3 * kb }
func (s *stub) Charge(c sim.Time)                  { s.charged += c }
func (s *stub) Arm(p *policies.Plan) error         { s.armed = p; return nil }
func (s *stub) OptimizerStates() []policies.Handle { return nil }
func (s *stub) Tensor(policies.Handle) (policies.TensorInfo, bool) {
	return policies.TensorInfo{Block: kb, Evictable: true}, true
}

func (s *stub) Do(a policies.Action) policies.Outcome {
	what := fmt.Sprintf("handle %d", a.What.Handle)
	if a.What.Kind == policies.ByStatic {
		what = fmt.Sprintf("tensor %d", a.What.Static)
	}
	s.did = append(s.did, fmt.Sprintf("%s %s wait %v", [...]string{"evict", "prefetch"}[a.Kind], what, a.Wait))
	if s.answer != nil {
		return s.answer(a)
	}
	return policies.Done
}

// play tells a policy of the operators of n iterations of p.
func play(pol policies.Policy, s *stub, n int) []string {
	var log []string
	index := int64(100) // the run did something else before
	for i := range n {
		for k := range s.nominal.Kernels {
			s.did = nil
			ev := policies.Event{Kind: policies.BeforeOp, Iteration: i, Op: policies.OpView{Index: index}}
			pol.Handle(&ev, s)
			for _, d := range s.did {
				log = append(log, fmt.Sprintf("%d.%d %s", i, k, d))
			}
			index++
		}
	}
	return log
}

func TestFrameworkMemory(t *testing.T) {
	pol, err := Registration().New(policies.Params{"link_gbps": 0.002, "gigabyte": "decimal", "system_latency_us": 0.0, "alloc_us_per_mib": 0.0})
	if err != nil {
		t.Fatal(err)
	}
	// The estimate is 3.1 kb in all kernels but the last. Tensor 1 (2 kb, in no
	// use in kernels 1 to 6) leaves in kernel 1 and comes back in kernel 6; the
	// global (1 kb, from kernel 6 to kernel 2 of the next iteration) leaves in kernel 6
	// and comes back in kernel 1. What is in kernels 1 and 6 cannot be helped.
	s := &stub{nominal: chain()}
	want := []string{
		"0.1 evict tensor 1 wait false", "0.1 prefetch tensor 0 wait false", "0.6 evict tensor 0 wait false", "0.6 prefetch tensor 1 wait false",
		"1.1 evict tensor 1 wait false", "1.1 prefetch tensor 0 wait false", "1.6 evict tensor 0 wait false", "1.6 prefetch tensor 1 wait false",
	}
	if got := play(pol, s, 2); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.armed != nil {
		t.Error("armed a plan for the framework's memory")
	}
	if want := planFixed + 9*planPerKernel + 3*planPerPeriod; s.charged != want {
		t.Errorf("charged %v, want %v once", s.charged, want)
	}
	if n := pol.(policies.Reporter).Notes(); len(n) != 1 || n[0].Event != "planned" || n[0].Swaps != 2 || n[0].Bytes != 3*kb || n[0].Error == "" {
		t.Errorf("notes %+v", n)
	}

	// A prefetch without room is tried again until it is done; one that was refused is not.
	pol, _ = Registration().New(policies.Params{"link_gbps": 0.002, "gigabyte": "decimal", "system_latency_us": 0.0, "alloc_us_per_mib": 0.0})
	tries := 0
	s.answer = func(a policies.Action) policies.Outcome {
		if a.Kind == policies.Prefetch {
			if tries++; tries < 3 {
				return policies.NoRoom
			}
			return policies.Refused
		}
		return policies.NoRoom // an eviction is not tried again
	}
	got := play(pol, s, 1)
	var prefetches, evictions int
	for _, l := range got {
		if strings.Contains(l, "prefetch") {
			prefetches++
		} else {
			evictions++
		}
	}
	// Tensor 0 in kernels 1, 2 and 3, tensor 1 in kernel 6.
	if prefetches != 4 || evictions != 2 {
		t.Errorf("%d prefetches and %d evictions, want 4 and 2: %q", prefetches, evictions, got)
	}

	// Pressure evicts what was used longest ago.
	s.answer, s.did = nil, nil
	pol.Handle(&policies.Event{Kind: policies.AfterOp, Op: policies.OpView{Args: []policies.Handle{7, 8}}}, s)
	pol.Handle(&policies.Event{Kind: policies.Pressure, Need: kb}, s)
	if want := []string{"evict handle 7 wait true"}; !slices.Equal(s.did, want) {
		t.Errorf("under pressure %q, want %q", s.did, want)
	}
}

func TestArmedMemory(t *testing.T) {
	for _, memory := range []policies.MemoryKind{policies.Unified, policies.Direct} {
		pol, err := Registration().New(policies.Params{"memory": memory.String(), "gpu_bytes": int64(3000)})
		if err != nil {
			t.Fatal(err)
		}
		if n := pol.Needs(); n.Memory != memory || n.Grade != policies.Static || n.Events.Has(policies.Pressure) {
			t.Errorf("%v: needs %+v", memory, n)
		}
		s := &stub{nominal: chain()}
		if got := play(pol, s, 2); len(got) != 0 {
			t.Errorf("%v: acted itself: %q", memory, got)
		}
		m := A100()
		m.GPU, m.KeepFirst = 3000, false
		plan, err := Plan(chain(), m)
		if err != nil {
			t.Fatal(err)
		}
		if s.armed == nil || !slices.Equal(s.armed.Hints, plan.Hints()) || len(s.armed.Hints) == 0 {
			t.Errorf("%v: armed %+v", memory, s.armed)
		}
	}
	pol, _ := Registration().New(nil)
	s := &stub{}
	pol.Handle(&policies.Event{Kind: policies.BeforeOp}, s)
	if n := pol.(policies.Reporter).Notes(); len(n) != 1 || n[0].Event != "no plan" || n[0].Error == "" {
		t.Errorf("without a nominal program: %+v", n)
	}
}

func TestOptions(t *testing.T) {
	o, err := ReadOptions(policies.Params{"memory": "unified"})
	want := A100()
	want.GPU, want.KeepFirst = 0, false
	if err != nil || o.Machine.Host != want.Host || o.Machine != want {
		t.Errorf("defaults %+v, %v\nwant %+v", o.Machine, err, want)
	}
	factor := 1.394
	o, err = ReadOptions(policies.Params{"memory": "direct", "tiers": "ssd", "gigabyte": "decimal", "ssd_gbps": 3.2, "compat_line_factor": factor, "compat_first_tensor": true})
	if err != nil || o.Machine.Host != 0 || o.Machine.SSD != 3_200_000_000 || o.Machine.Line != want.Line*factor || !o.Machine.KeepFirst {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = ReadOptions(nil); err != nil || o.Memory != policies.Framework || o.Machine.SSD != 0 {
		t.Errorf("%+v, %v: framework memory has no SSD", o, err)
	}
	for _, c := range []struct {
		p   policies.Params
		say string
	}{
		{policies.Params{"memory": "virtual"}, "memory"},
		{policies.Params{"tiers": "ssd"}, "tiers"},
		{policies.Params{"host_gib": 0.0}, "at least one tier"},
		{policies.Params{"compat_last_pass": 0.9}, "LastPass"},
		{policies.Params{"link_gbps": 0.0}, "link_gbps"},
		{policies.Params{"gigabyte": "gib"}, "gigabyte"},
		{policies.Params{"line": 11.0}, "line"},
	} {
		if _, err := ReadOptions(c.p); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%v: %v, want an error about %q", c.p, err, c.say)
		}
	}
}
