package timeline

import (
	"smartswap/eager"
	"smartswap/eager/stream"
	"smartswap/hw"
	"smartswap/sim"
)

// Level is the counters from a time on.
type Level struct {
	At sim.Time
	eager.Counters
}

// Interval is a time during which a copy was under way.
type Interval struct{ Start, End sim.Time }

// Curve is memory over time on one rank.
type Curve struct {
	From, To sim.Time
	Levels   []Level
	// Copies by direction: in order, those that follow each other closely as
	// one.
	Copies [hw.NumDirections][]Interval
}

// Curve is drawn from at most about 4*points levels: of each of that many equal
// stretches of time the first and the last ones stay, and for each counter those
// with its lowest and highest value.
func (r *Recorder) Curve(rank, points int) Curve {
	k := r.ranks[rank]
	c := Curve{From: k.from(), To: k.from() + 1}
	levels := k.since()
	if n := len(levels); n > 0 {
		c.To = max(c.To, levels[n-1].at)
	}
	for _, w := range k.device.all() {
		if !k.old(w.iteration) {
			c.To = max(c.To, w.end)
		}
	}
	width := max(1, (c.To-c.From)/sim.Time(max(1, points)))
	for lo := 0; lo < len(levels); {
		hi := lo + 1
		for hi < len(levels) && (levels[hi].at-c.From)/width == (levels[lo].at-c.From)/width {
			hi++
		}
		c.thin(levels[lo:hi])
		lo = hi
	}
	for _, w := range k.device.all() {
		if w.kind == stream.Copy && !k.old(w.iteration) {
			c.copy(w.dir, w.start, w.end, width)
		}
	}
	return c
}

// thin keeps the levels of one stretch of time that can be seen.
func (c *Curve) thin(levels []level) {
	keep := map[int]bool{0: true, len(levels) - 1: true}
	for _, of := range [...]func(*level) sim.Bytes{
		func(l *level) sim.Bytes { return l.Allocated }, func(l *level) sim.Bytes { return l.Reserved }, func(l *level) sim.Bytes { return l.Host },
		func(l *level) sim.Bytes { return l.SSD },
	} {
		low, high := 0, 0
		for i := range levels {
			if of(&levels[i]) < of(&levels[low]) {
				low = i
			}
			if of(&levels[i]) > of(&levels[high]) {
				high = i
			}
		}
		keep[low], keep[high] = true, true
	}
	for i, l := range levels {
		if keep[i] {
			c.Levels = append(c.Levels, Level{l.at, l.Counters})
		}
	}
}

// copy adds a copy; one that begins less than gap after the last joins it.
func (c *Curve) copy(dir hw.Direction, start, end, gap sim.Time) {
	list := c.Copies[dir]
	if n := len(list); n > 0 && start-list[n-1].End < gap {
		list[n-1].End = max(list[n-1].End, end)
		return
	}
	c.Copies[dir] = append(list, Interval{start, end})
}
