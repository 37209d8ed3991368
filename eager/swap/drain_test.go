package swap

import (
	"fmt"
	"strings"
	"testing"

	"smartswap/eager/alloc"
	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/sim"
)

// bench is an executor whose host and allocator write down what happens.
type bench struct {
	alloc.Allocator
	x   *Executor
	dev *stream.Device
	of  map[stream.Event]string // copies by their end
	log []string
}

func (b *bench) Push(s stream.ID, c stream.Command) stream.Event {
	b.log = append(b.log, "wait for "+b.of[c.Wait])
	return b.dev.Issue(s)
}
func (b *bench) Charge(sim.Time) {}
func (b *bench) Gone(s *Storage) { b.log = append(b.log, fmt.Sprintf("gone %d", s.Handle)) }

func (b *bench) Free(x alloc.Block) {
	b.log = append(b.log, fmt.Sprintf("free %d", x))
	b.Allocator.Free(x)
}

type always struct{}

func (always) Record(alloc.Stream) alloc.Event { return 0 }
func (always) Done(alloc.Event) bool           { return true }

// held has blocks 0 and 1 in the queue without stages, the host buffer of a
// swap-in, blocks 2 and 3 held for stages 1 and 0, and storage 7, which nothing
// but a guard of stage 0 keeps alive, with block 4. All copies are under way.
func held(t *testing.T, drain string, loose bool) *bench {
	t.Helper()
	b := &bench{of: map[stream.Event]string{}}
	var err error
	o := alloc.DefaultOptions()
	o.Backend = alloc.BackendBytes
	if b.Allocator, err = alloc.New(o, 0, always{}); err != nil {
		t.Fatal(err)
	}
	pool, err := alloc.NewPinned(alloc.DefaultPinnedOptions(), 0)
	if err != nil {
		t.Fatal(err)
	}
	eng := sim.NewEngine()
	b.dev = stream.New(eng, sim.NewShare(eng), nil, stream.NewFabric(eng), [hw.NumFamilies]float64{}, 0, 0, nil)
	opts := ShippedOptions()
	opts.Drain = drain
	x := New(opts, &hw.Host{}, b.dev, b, pool, b, nil, nil)
	x.armed = &armed{holds: make([][]hold, 2), guards: make([][]guard, 2)}
	copied := func(s stream.ID, what string) stream.Event {
		e := b.dev.Issue(s)
		b.of[e] = what
		return e
	}
	put := func(stage int32) {
		block, err := b.Malloc(1000, 0)
		if err != nil {
			t.Fatal(err)
		}
		x.hold(stage, hold{ends: copied(stream.Out, fmt.Sprint(block)), block: block, buffer: alloc.NoBuffer})
	}
	for _, stage := range []int32{-1, -1, 1, 0} {
		if loose || stage >= 0 {
			put(stage)
		}
	}
	buffer, _, err := pool.Alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	x.giveBack(buffer, copied(stream.In, "the buffer"))
	s := &Storage{Handle: 7, Guard: 1}
	if s.Block, err = b.Malloc(1000, 0); err != nil {
		t.Fatal(err)
	}
	s.Arrives, s.Pending = copied(stream.In, "7"), true
	x.armed.guards[0] = append(x.armed.guards[0], guard{s, s.Arrives})
	b.x = x
	return b
}

// drained is what a request has drained, call by call.
func (b *bench) drained() string {
	var calls []string
	b.x.Request()
	for {
		b.log = nil
		if !b.x.Drain() {
			return strings.Join(append(calls, b.log...), "; ")
		}
		calls = append(calls, strings.Join(b.log, ", ")+fmt.Sprintf(" (%d buffers left)", len(b.x.buffers)))
	}
}

// The order of the groups, what counts as one, and when a request has had its
// share.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		drain    string
		loose    bool
		requests []string
	}{
		// A wait covers all that the stream did before.
		{"all", true, []string{"wait for 0, free 0, wait for 1, free 1, wait for 3, free 3, free 2, wait for 7, free 4, gone 7 (1 buffers left)", ""}},
		{"enough", true, []string{"wait for 0, free 0 (1 buffers left); wait for 1, free 1 (1 buffers left); wait for 2, free 2 (1 buffers left); wait for 3, free 3 (1 buffers left)", ""}},
		{"first", true, []string{
			"wait for 0, free 0, wait for 1, free 1, wait for the buffer (0 buffers left)",
			"wait for 3, free 3, free 2 (0 buffers left)",
			"wait for 7, free 4, gone 7 (0 buffers left)",
			"",
		}},
		// A host buffer alone is a group: the request gets no device memory.
		{"first", false, []string{"wait for the buffer (0 buffers left)", "wait for 1, free 1, free 0 (0 buffers left)"}},
	} {
		b := held(t, c.drain, c.loose)
		for i, want := range c.requests {
			if got := b.drained(); got != want {
				t.Errorf("%s, request %d: %q, want %q", c.drain, i+1, got, want)
			}
		}
	}
}
