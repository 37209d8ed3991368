package alloc

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"smartswap/sim"
)

func TestPinnedRounding(t *testing.T) {
	for _, c := range []struct {
		rounding   string
		size, want sim.Bytes
	}{
		{RoundExact, 1, 1}, {RoundExact, 1000, 1000},
		{RoundPow2, 1, 1}, {RoundPow2, 2, 2}, {RoundPow2, 3, 4}, {RoundPow2, 1024, 1024}, {RoundPow2, 1025, 2048},
		{RoundPow2, 97 * sim.MiB, 128 * sim.MiB},
	} {
		p, err := NewPinned(PinnedOptions{Rounding: c.rounding, Reuse: BuffersReuse}, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, pinned, err := p.Alloc(c.size)
		if err != nil || pinned != c.want || p.Size(b) != c.want {
			t.Errorf("%s %d: buffer of %d, %d page-locked, %v; want %d", c.rounding, c.size, p.Size(b), pinned, err, c.want)
		}
	}
}

func TestPinnedReuse(t *testing.T) {
	for _, c := range []struct {
		reuse        string
		second       sim.Bytes // page-locked by the second buffer
		idle         int64
		pins, reuse2 int64
	}{{BuffersReuse, 0, 100, 1, 1}, {BuffersFresh, 100, 0, 2, 0}} {
		p, _ := NewPinned(PinnedOptions{Rounding: RoundExact, Reuse: c.reuse}, 100)
		b, first, err := p.Alloc(100)
		if err != nil || first != 100 {
			t.Fatal(first, err)
		}
		p.Free(b)
		if got := p.Stats().Pinned.Current; got != c.idle {
			t.Errorf("%s: %d bytes page-locked while idle, want %d", c.reuse, got, c.idle)
		}
		_, second, err := p.Alloc(100)
		if s := p.Stats(); err != nil || second != c.second || s.Pins != c.pins || s.Reuses != c.reuse2 || s.Pinned.Peak != 100 {
			t.Errorf("%s: second buffer page-locks %d (%v), stats %+v", c.reuse, second, err, s)
		}
	}
}

func TestPinnedCapacity(t *testing.T) {
	p, _ := NewPinned(PinnedOptions{Rounding: RoundExact, Reuse: BuffersReuse}, 100)
	a, _, err := p.Alloc(60)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Alloc(40); err != nil {
		t.Errorf("the last byte of the pool: %v", err)
	}
	before := p.Stats()
	_, _, err = p.Alloc(1)
	var full *PinnedExhausted
	if !errors.As(err, &full) || *full != (PinnedExhausted{1, 1, 100, 100}) || !strings.Contains(err.Error(), "capacity 100") {
		t.Errorf("full pool: %v", err)
	}
	if p.Stats() != before {
		t.Error("a failed request changed the pool")
	}
	p.Free(a)
	// 60 idle bytes make room for another size.
	if _, pinned, err := p.Alloc(50); err != nil || pinned != 50 || p.Stats().Unpins != 1 || p.Stats().Pinned.Current != 90 {
		t.Errorf("%d page-locked, %v, %+v", pinned, err, p.Stats())
	}

	p, _ = NewPinned(DefaultPinnedOptions(), 100)
	if _, _, err := p.Alloc(65); !errors.As(err, &full) || full.Rounded != 128 {
		t.Errorf("65 bytes round beyond the pool: %v", err)
	}
	for _, size := range []sim.Bytes{0, -1, 1<<63 - 1} {
		if _, _, err := p.Alloc(size); err == nil {
			t.Errorf("accepted a request of %d bytes", size)
		}
	}
	for _, o := range []PinnedOptions{
		{}, {Rounding: RoundExact, Reuse: "never"}, {Rounding: "page", Reuse: BuffersFresh},
		{Rounding: RoundPow2, Reuse: BuffersReuse, MaxRoundThresholdMB: -1},
		{Rounding: RoundPow2, Reuse: BuffersReuse, MaxCachedSizeMB: maxMB + 1},
	} {
		if _, err := NewPinned(o, 1); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// The pool against a list of buffers in the order of their frees.
func TestPinnedAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := PinnedOptions{
			Rounding: rapid.SampledFrom([]string{RoundExact, RoundPow2}).Draw(t, "rounding"),
			Reuse:    rapid.SampledFrom([]string{BuffersReuse, BuffersFresh}).Draw(t, "reuse"),
		}
		const capacity = 64
		p, err := NewPinned(o, capacity)
		if err != nil {
			t.Fatal(err)
		}
		type lent struct{ b Buffer }
		var live []lent
		var idle []sim.Bytes
		used := sim.Bytes(0)
		sum := func() (n sim.Bytes) {
			for _, x := range idle {
				n += x
			}
			return n
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				n := p.Size(live[i].b)
				p.Free(live[i].b)
				live = slices.Delete(live, i, i+1)
				used -= n
				if o.Reuse == BuffersReuse {
					idle = append(idle, n)
				}
			} else {
				size := sim.Bytes(rapid.IntRange(1, 40).Draw(t, "size"))
				rounded := size
				if o.Rounding == RoundPow2 {
					for rounded = 1; rounded < size; rounded *= 2 {
					}
				}
				b, pinned, err := p.Alloc(size)
				i := slices.Index(idle, rounded)
				switch {
				case i >= 0:
					if err != nil || pinned != 0 {
						t.Fatalf("%d of an idle buffer: %d page-locked, %v", size, pinned, err)
					}
					idle = slices.Delete(idle, i, i+1)
				case used+rounded > capacity:
					if err == nil {
						t.Fatalf("%d bytes beyond the capacity", size)
					}
					continue
				default:
					for used+rounded+sum() > capacity {
						idle = idle[1:]
					}
					if err != nil || pinned != rounded {
						t.Fatalf("new buffer of %d: %d page-locked, %v", size, pinned, err)
					}
				}
				if slices.Contains(live, lent{b}) {
					t.Fatalf("buffer %d handed out twice", b)
				}
				live = append(live, lent{b})
				used += rounded
			}
			if s := p.Stats(); s.Used.Current != int64(used) || s.Pinned.Current != int64(used+sum()) || s.Pinned.Peak > capacity || s.Requested.Current > s.Used.Current {
				t.Fatalf("stats %+v, want %d used, %d idle", s, used, sum())
			}
		}
	})
}

// The two thresholds of torch_npu: beyond the first sizes stay as they are,
// beyond the second a freed buffer goes back to the host.
func TestPinnedThresholds(t *testing.T) {
	p, err := NewPinned(PinnedOptions{Rounding: RoundPow2, Reuse: BuffersReuse, MaxRoundThresholdMB: 3, MaxCachedSizeMB: 4}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		size, want sim.Bytes
		kept       bool
	}{
		{3 * sim.MiB, 4 * sim.MiB, true}, {3*sim.MiB + 1, 3*sim.MiB + 1, true}, {4 * sim.MiB, 4 * sim.MiB, true},
		{4*sim.MiB + 1, 4*sim.MiB + 1, false},
	} {
		before := p.Stats()
		b, _, err := p.Alloc(c.size)
		if err != nil || p.Size(b) != c.want {
			t.Errorf("%d: buffer of %d (%v), want %d", c.size, p.Size(b), err, c.want)
		}
		p.Free(b)
		if kept := p.Stats().Unpins == before.Unpins; kept != c.kept {
			t.Errorf("%d: kept %v, want %v", c.size, kept, c.kept)
		}
	}
	for o, want := range map[PinnedOptions]string{
		{Rounding: RoundExact, Reuse: BuffersReuse, MaxRoundThresholdMB: 1}: "pinned_max_round_threshold_mb",
		{Rounding: RoundPow2, Reuse: BuffersFresh, MaxCachedSizeMB: 1}:      "pinned_max_cached_size_mb",
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "contradict") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A full pool does not hinder pageable buffers, which it only counts.
func TestPageableBuffers(t *testing.T) {
	p, _ := NewPinned(PinnedOptions{Rounding: RoundPow2, Reuse: BuffersReuse}, 64)
	a, _, err := p.Alloc(64)
	if err != nil || p.Pageable(a) {
		t.Fatal(err)
	}
	b := p.AllocPageable(100)
	if s := p.Stats(); !p.Pageable(b) || p.Size(b) != 100 || s.Pageable.Current != 100 || s.Pinned.Current != 64 || s.Used.Current != 64 {
		t.Errorf("buffer of %d, %+v", p.Size(b), s)
	}
	p.Free(b)
	p.Free(a)
	c, pinned, err := p.Alloc(64)
	if s := p.Stats(); err != nil || pinned != 0 || p.Pageable(c) || s.Pageable.Current != 0 || s.Pageable.Peak != 100 {
		t.Errorf("%d page-locked, %v, %+v", pinned, err, s)
	}
}
