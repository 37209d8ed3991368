package experiments

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"

	"smartswap/sim"
)

// fake is a Runner whose outcomes are a hash of what the point is: any file can
// be run in no time, and two points rarely agree.
type fake struct {
	runs atomic.Int64
	// before is called at the start of each run, if set.
	before func(p *Point)
	// fits decides whether a point fits; nil = by hash.
	fits func(p *Point) bool
}

const fakeDevices = 8

func (f *fake) Devices(map[string]any) (int, error) { return fakeDevices, nil }
func (f *fake) Check(*Point) error                  { return nil }

func (f *fake) Key(p *Point) (string, error) {
	return strings.NewReplacer("/", "_", " ", "_").Replace(fmt.Sprintf("%s-%v-%s-%v-%v-%d-%v",
		p.Workload.Model, p.Workload.Seq, p.Workload.Save, p, p.Strategy.Policy, p.Seed, p.Strategy.Ideal)), nil
}

func (f *fake) hash(p *Point) uint64 {
	key, _ := f.Key(p)
	h := fnv.New64a()
	h.Write([]byte(key))
	return h.Sum64()
}

func (f *fake) Bound(p *Point) (Bounds, error) {
	if p.Layout.TP == 5 {
		return Bounds{}, &Impossible{"five"}
	}
	o := f.outcome(p)
	b := Bounds{Time: o.Time - sim.Time(f.hash(p)%7)*sim.Millisecond, Capacity: 100}
	if o.OOM != nil && f.hash(p)%2 == 0 {
		b.Memory = 101 + sim.Bytes(f.hash(p)%1000) // a proof
	}
	if p.Strategy.Ideal {
		b.Capacity = 0
	}
	return b, nil
}

func (f *fake) outcome(p *Point) *Outcome {
	h := f.hash(p)
	fits := h%3 != 0
	if f.fits != nil {
		fits = f.fits(p)
	}
	o := &Outcome{
		Time: sim.Time(500+h%500) * sim.Millisecond, Tokens: 1 << 18, Devices: fakeDevices, Grade: "observed",
		PeakAllocated: sim.Bytes(h % (1 << 36)), Events: h % 1000, Fingerprint: h, Ops: 10,
	}
	if !fits && !p.Strategy.Ideal {
		o.OOM = &OOM{Operator: "aten::mm", Requested: sim.GiB, Free: sim.GiB / 2, Capacity: 62 * sim.GiB}
		o.Time = 0
	}
	return o
}

func (f *fake) Run(p *Point) (*Outcome, error) {
	f.runs.Add(1)
	if f.before != nil {
		f.before(p)
	}
	return f.outcome(p), nil
}

// fakeFile is a sound file of 2 x 2 x 3 cells.
const fakeFile = `
name  = "fake"
title = "A fake experiment"
node.name = "none"
iterations = 4
warmup = 2

[workload]
tokens_per_step = 262_144

[axes]
workload.save = ["minimal", "eager"]

[[column]]
name = "7B"
workload = { model = "llama2-7b", seq = 4_096 }

[[column]]
name = "13B"
workload = { model = "llama2-13b", seq = 4_096 }

[[strategy]]
name = "baseline"
layouts = "all"
recompute = ["none", "full"]

[[strategy]]
name = "swap"
policy = "lru"
layouts = "all"

[[strategy]]
name = "ideal"
ideal = true
layouts = ["tp1pp1dp8"]

[[table]]
show = ["tokens_per_s_per_device", "layout", "stalls_ms", "fraction_of_ideal"]

[[table]]
name = "pivot"
value = "iteration_time_ms"

[[figure]]
value = "tokens_per_s_per_device"

[[claim]]
name = "gain"
kind = "gain"
value = "tokens_per_s_per_device"
of = ["swap"]
over = ["baseline"]
published = 38.94

[[claim]]
name = "published"
kind = "reference"
reference = "ascend-910b"
of = ["baseline"]

[quick]
columns = ["7B"]
axes.workload.save = ["eager"]
`

// background is a context that never ends.
var background = context.Background()
