package chrome

import (
	"io"

	"smartswap/formats/internal/decimal"
	"smartswap/formats/internal/jsons"
	"smartswap/sim"
)

// Action is what a record of a memory timeline tells.
type Action uint8

// Actions, numbered as in the files.
const (
	Existed Action = iota + 1 // before the trace
	Created
	Recategorised // a pair of records: out of one category, into another
	Destroyed
)

// Record is an entry of a raw memory timeline.
type Record struct {
	Time     int64 // ns; -1 = before the trace
	Action   Action
	Bytes    sim.Bytes // signed: negative = less of it
	Category int64
}

// ReadTimeline reads a raw memory timeline, a list of lists [time, action,
// bytes, category] that the PyTorch profiler exports beside its traces, and
// hands each record to each, in file order. The running sum of Bytes is the
// memory in use.
func ReadTimeline(r io.Reader, file string, each func(Record) error) error {
	in := jsons.New(r, file, nil)
	return in.Array(func() error {
		var v [4]int64
		n := 0
		err := in.Array(func() error {
			s, err := in.Text()
			if err != nil {
				return err
			}
			x, exact, ok := decimal.Parse(s, 1)
			if !ok || !exact || n == len(v) {
				return in.Errorf("value %q; allowed: four whole numbers, time, action, bytes, category", s)
			}
			v[n] = x
			n++
			return nil
		})
		switch {
		case err != nil:
			return err
		case n != len(v):
			return in.Errorf("%d numbers; allowed: four, time, action, bytes, category", n)
		case v[1] < int64(Existed) || v[1] > int64(Destroyed):
			return in.Errorf("action %d; allowed: 1 to 4", v[1])
		}
		return each(Record{Time: v[0], Action: Action(v[1]), Bytes: sim.Bytes(v[2]), Category: v[3]})
	})
}
