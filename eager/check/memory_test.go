package check

import (
	"fmt"
	"strings"
	"testing"

	"smartswap/eager/alloc"
	"smartswap/eager/stream"
	"smartswap/eager/swap"
	"smartswap/hw"
	"smartswap/sim"

	"pgregory.net/rapid"
)

// TestRegions plays writes and reads against one token per byte.
func TestRegions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r regions
		var naive [40]token
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			lo := rapid.IntRange(0, 38).Draw(t, "lo")
			hi := rapid.IntRange(lo+1, 39).Draw(t, "hi")
			s := span{uint64(lo), uint64(hi)}
			if rapid.Bool().Draw(t, "write") {
				v := token(rapid.Uint64Range(1, 3).Draw(t, "token"))
				r.set(s, v)
				for i := lo; i < hi; i++ {
					naive[i] = v
				}
				continue
			}
			want, same := naive[lo], true
			for i := lo; i < hi; i++ {
				same = same && naive[i] == want
			}
			got, ok := r.get(s)
			if ok != same || ok && got != want {
				t.Fatalf("[%d, %d) holds %v, %v; want %v, %v (%v)", lo, hi, got, ok, want, same, naive)
			}
			for i := 1; i < len(r.list); i++ {
				if r.list[i-1].hi > r.list[i].lo {
					t.Fatalf("regions %v overlap or are out of order", r.list)
				}
			}
		}
	})
}

// rig is a Memory over an allocator, with its reports.
type rig struct {
	*Memory
	mem     alloc.Allocator
	reports []string
}

type idle struct{}

func (idle) Record(alloc.Stream) alloc.Event { return 0 }
func (idle) Done(alloc.Event) bool           { return true }

func newRig(t *testing.T) *rig {
	o := alloc.DefaultOptions()
	o.Backend = "bytes"
	mem, err := alloc.New(o, 0, idle{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{mem: mem}
	r.Memory = NewMemory(0, mem, func() sim.Time { return 0 }, func(format string, args ...any) {
		r.reports = append(r.reports, fmt.Sprintf(format, args...))
	})
	return r
}

func (r *rig) storage(t *testing.T, h int) *swap.Storage {
	b, err := r.mem.Malloc(1024, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &swap.Storage{Handle: 1, Bytes: 1024, Block: b}
	s.Handle = s.Handle<<24 + 1
	for range h {
		s.Handle++
	}
	r.Bound(s, b)
	return s
}

var kernel = stream.Command{Kind: stream.Kernel}

// issue puts a kernel on a stream.
func (r *rig) issue(on stream.ID, reads, writes []*swap.Storage) {
	r.Begin()
	for _, s := range reads {
		r.Reads(s)
	}
	for _, s := range writes {
		r.Writes(s)
	}
	r.Issue(on)
}

func (r *rig) want(t *testing.T, what string) {
	t.Helper()
	switch {
	case what == "" && len(r.reports) > 0:
		t.Errorf("reported %q, want nothing", r.reports)
	case what != "" && (len(r.reports) == 0 || !strings.Contains(r.reports[0], what)):
		t.Errorf("reported %q, want %q", r.reports, what)
	}
}

// TestContent: each broken order is told, the sound one is not.
func TestContent(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, r *rig)
		want string
	}{
		{"write then read", func(t *testing.T, r *rig) {
			s := r.storage(t, 0)
			r.issue(stream.Compute, nil, []*swap.Storage{s})
			r.issue(stream.Compute, []*swap.Storage{s}, nil)
			for range 2 {
				r.Started(stream.Compute, &kernel)
				r.Retired(stream.Compute, &kernel)
			}
			r.Idle()
		}, ""},
		{"read on another stream before the write has ended", func(t *testing.T, r *rig) {
			s := r.storage(t, 0)
			r.issue(stream.Compute, nil, []*swap.Storage{s})
			r.issue(stream.Comm, []*swap.Storage{s}, nil)
			r.Started(stream.Compute, &kernel)
			r.Started(stream.Comm, &kernel)
		}, "half written"},
		{"two writers at once", func(t *testing.T, r *rig) {
			s := r.storage(t, 0)
			r.issue(stream.Compute, nil, []*swap.Storage{s})
			r.issue(stream.Comm, nil, []*swap.Storage{s})
			r.Started(stream.Compute, &kernel)
			r.Started(stream.Comm, &kernel)
			r.Retired(stream.Compute, &kernel)
		}, "what it wrote has become"},
		{"a copy of what another kernel overwrites", func(t *testing.T, r *rig) {
			s, next := r.storage(t, 0), r.storage(t, 1)
			r.Resident(s)
			r.Copied(stream.Out, s, s.Block, &swap.Copy{Buffer: 0}, hw.D2H)
			next.Block = s.Block // the block is reused too early
			r.issue(stream.Compute, nil, []*swap.Storage{next})
			copied := stream.Command{Kind: stream.Copy}
			r.Started(stream.Out, &copied)
			r.Started(stream.Compute, &kernel)
			r.Retired(stream.Out, &copied)
		}, "where it needs storage"},
		{"a stale host copy", func(t *testing.T, r *rig) {
			s := r.storage(t, 0)
			r.Resident(s)
			copied := stream.Command{Kind: stream.Copy}
			r.Copied(stream.Out, s, s.Block, &swap.Copy{Buffer: 0}, hw.D2H)
			r.Started(stream.Out, &copied)
			r.Retired(stream.Out, &copied)
			r.issue(stream.Compute, nil, []*swap.Storage{s})
			r.Started(stream.Compute, &kernel)
			r.Retired(stream.Compute, &kernel)
			r.Copied(stream.In, s, s.Block, &swap.Copy{Buffer: 0}, hw.H2D)
			r.Started(stream.In, &copied)
		}, "where it needs storage"},
		{"overlapping blocks", func(t *testing.T, r *rig) {
			s := r.storage(t, 0)
			r.owned[0].hi += 4096
			delete(r.blocks, s.Block)
			r.Bound(s, s.Block)
		}, "overlaps"},
		{"a block freed twice", func(t *testing.T, r *rig) {
			s := r.storage(t, 0)
			r.Freed(s.Block)
			r.Freed(s.Block)
		}, "never bound"},
		{"a command that nobody announced", func(t *testing.T, r *rig) { r.Started(stream.Compute, &kernel) }, "never announced"},
		{"a command that never runs", func(t *testing.T, r *rig) {
			r.issue(stream.Compute, nil, nil)
			r.Idle()
		}, "never ran"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			c.run(t, r)
			r.want(t, c.want)
		})
	}
}
