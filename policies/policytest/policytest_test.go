package policytest

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/policies"
	"smartswap/profilers"
	"smartswap/sim"
)

// caught is a rapid.TB that notes the first failure and stops the goroutine's
// work by a panic of its own.
type caught struct {
	rapid.TB
	message string
}

func (c *caught) Fatalf(format string, args ...any) {
	c.message = fmt.Sprintf(format, args...)
	panic(c)
}

// complaint plays scripts under p until the Fake complains.
func complaint(script Script, p policies.Policy) (message string) {
	c := &caught{}
	defer func() {
		if r := recover(); r != nil && r != any(c) {
			panic(r)
		}
		message = c.message
	}()
	Play(c, script, p, true)
	return ""
}

// short is a script that runs out of memory in its second layer.
var short = Script{
	Capacity: 100 * sim.MiB, Host: 1 << 40,
	States: []sim.Bytes{10 * sim.MiB},
	Iterations: []Iteration{{MicroBatches: 1, Layers: [][]sim.Bytes{
		{30 * sim.MiB, 30 * sim.MiB}, {40 * sim.MiB}, {40 * sim.MiB}}}},
}

// bad is a policy that does one wrong thing on Pressure.
type bad struct {
	needs policies.Events
	on    policies.EventKind
	do    func(*policies.Event, policies.Runtime)
	seen  []policies.Handle
}

func (b *bad) Needs() policies.Needs { return policies.Needs{Events: b.needs} }
func (b *bad) Handle(ev *policies.Event, rt policies.Runtime) {
	if ev.Kind == policies.AfterOp {
		b.seen = append(b.seen, ev.Op.Args...)
	}
	if ev.Kind == b.on {
		b.do(ev, rt)
	}
}

func TestTheSuiteCatches(t *testing.T) {
	evict := func(h policies.Handle, rt policies.Runtime) {
		rt.Do(policies.Action{What: policies.Selector{Handle: h}})
	}
	pressure := policies.Set(policies.Pressure, policies.AfterOp)
	bound := policies.Swap{
		Out: policies.Action{Kind: policies.Evict, What: policies.Selector{Handle: 99},
			Start: policies.Trigger{Kind: policies.AtStage, Stage: profilers.Stage{Phase: profilers.Forward, MicroBatch: 1, Layer: 1}}},
		In: policies.Action{Kind: policies.Prefetch,
			Start: policies.Trigger{Kind: policies.AtStage, Stage: profilers.Stage{Phase: profilers.Optim}}},
		Bytes: 1, Optimizer: true,
	}
	for name, c := range map[string]struct {
		policy bad
		want   string
	}{
		"in use": {bad{needs: pressure, on: policies.AfterOp, do: func(ev *policies.Event, rt policies.Runtime) {
			for _, h := range ev.Op.Args {
				evict(h, rt)
			}
		}}, "cannot be evicted"},
		"dead":    {bad{needs: pressure, on: policies.Pressure, do: func(_ *policies.Event, rt policies.Runtime) { evict(12345, rt) }}, "not alive"},
		"unasked": {bad{on: policies.MarkEvent, do: func(_ *policies.Event, rt policies.Runtime) { rt.Observe(policies.Full) }}, "did not ask for"},
		"endless": {bad{needs: pressure, on: policies.Pressure, do: func(_ *policies.Event, rt policies.Runtime) {
			_ = rt.Arm(nil)
			for {
				_ = rt.Arm(nil)
			}
		}}, "will it end"},
		"bad plan": {bad{needs: pressure, on: policies.Pressure, do: func(_ *policies.Event, rt policies.Runtime) { _ = rt.Arm(&policies.Plan{Chunks: -1}) }}, "not valid"},
		"unbound": {bad{needs: pressure, on: policies.Pressure, do: func(_ *policies.Event, rt policies.Runtime) {
			_ = rt.Arm(&policies.Plan{Swaps: []policies.Swap{bound}})
		}}, "not an optimizer state"},
		"time back": {bad{needs: pressure, on: policies.Pressure, do: func(_ *policies.Event, rt policies.Runtime) { rt.Charge(-1) }}, "a charge of -1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := complaint(short, &c.policy); !strings.Contains(got, c.want) {
				t.Errorf("the complaint is %q, want %q", got, c.want)
			}
		})
	}
}

// TestTheScriptsBite makes sure that the random scripts put policies to work.
func TestTheScriptsBite(t *testing.T) {
	const n = 400
	evicts, dies := 0, 0
	scripts := rapid.Custom(Draw)
	for seed := range n {
		s := scripts.Example(seed)
		lru, err := policies.LRU().New(nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(Play(&caught{}, s, lru, false)) > 0 {
			evicts++
		}
		if ends := len(Play(&caught{}, s, idle{}, false)); ends < len(s.Iterations) {
			dies++
		}
	}
	if evicts*10 < 3*n || dies*10 < n || dies == n {
		t.Errorf("of %d scripts %d evict and %d die without a policy", n, evicts, dies)
	}
}

// idle leaves an entry in the log for each iteration that ends.
type idle struct{}

func (idle) Needs() policies.Needs {
	return policies.Needs{Events: policies.Set(policies.IterationEnd)}
}
func (idle) Handle(_ *policies.Event, rt policies.Runtime) { rt.Observe(policies.Off) }

// remaker discards what an operator has made, asks for half of it again, and
// counts what runs again.
type remaker struct {
	seen         []policies.Handle
	again, asked int
}

func (*remaker) Needs() policies.Needs {
	return policies.Needs{Events: policies.Set(policies.AfterOp), Lineage: policies.Lineage{Keep: true}}
}

func (r *remaker) Handle(ev *policies.Event, rt policies.Runtime) {
	if ev.Op.Again {
		r.again++
		return
	}
	for _, h := range r.seen {
		t, ok := rt.Tensor(h)
		if !ok || !t.Discardable {
			continue
		}
		rt.Do(policies.Action{Kind: policies.Discard, What: policies.Selector{Handle: h}})
		if h%2 == 0 && rt.Do(policies.Action{Kind: policies.Rematerialize, What: policies.Selector{Handle: h}}) == policies.Done {
			r.asked++
		}
	}
	for i, h := range ev.Op.Args {
		if ev.Op.Roles[i] == policies.Output {
			r.seen = append(r.seen, h)
		}
	}
}

// TestFakeMakesAgain: what is discarded is made again, asked for or not, and the
// run goes on.
func TestFakeMakesAgain(t *testing.T) {
	s := Script{Capacity: 1 << 30, Host: 1 << 30, Iterations: []Iteration{{MicroBatches: 1, Layers: [][]sim.Bytes{{512, 512}, {512}, {512}}}}}
	r := &remaker{}
	Play(t, s, r, false)
	if r.asked == 0 || r.again <= r.asked {
		t.Errorf("%d operators ran again, %d were asked for", r.again, r.asked)
	}
}
