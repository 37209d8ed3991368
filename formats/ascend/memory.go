package ascend

import (
	"io"

	"smartswap/formats/internal/table"
	"smartswap/formats/notes"
	"smartswap/sim"
)

// Never is the instant of what the file does not tell, and NoBytes the size.
const (
	Never   int64     = -1
	NoBytes sim.Bytes = -1
)

// maxBytes bounds one size: 2^46 bytes, far above every device.
const maxBytes = 1 << 46

// Totals are the allocator's bytes at an instant; NoBytes if unknown.
type Totals struct{ Allocated, Reserved, Active sim.Bytes }

// Tensor is one allocation of the caching allocator. Bytes are what the
// allocator took: padded and rounded.
type Tensor struct {
	Name string // of the operator that allocated
	// Alloc and Release are ns of the host's clock; ActiveRelease is when the
	// last stream let go. Never if the file does not tell: the tensor outlived
	// the recording.
	Alloc, Release, ActiveRelease int64
	Bytes                         sim.Bytes
	AtAlloc, AtRelease            Totals
	Stream, Device                string
	Line                          int // of the file
}

const (
	tName = iota
	tSize
	tAlloc
	tRelease
	tActiveRelease
	tAllocAllocated
	tAllocReserved
	tAllocActive
	tReleaseAllocated
	tReleaseReserved
	tReleaseActive
	tStream
	tDevice
)

var tensorColumns = []table.Column{
	tName:             {Names: []string{"Name"}, Required: true},
	tSize:             {Names: []string{"Size(KB)"}, Required: true},
	tAlloc:            {Names: []string{"Allocation Time(us)"}, Required: true},
	tRelease:          {Names: []string{"Release Time(us)"}, Required: true},
	tActiveRelease:    {Names: []string{"Active Release Time(us)"}},
	tAllocAllocated:   {Names: []string{"Allocation Total Allocated(MB)"}},
	tAllocReserved:    {Names: []string{"Allocation Total Reserved(MB)"}},
	tAllocActive:      {Names: []string{"Allocation Total Active(MB)"}},
	tReleaseAllocated: {Names: []string{"Release Total Allocated(MB)"}},
	tReleaseReserved:  {Names: []string{"Release Total Reserved(MB)"}},
	tReleaseActive:    {Names: []string{"Release Total Active(MB)"}},
	tStream:           {Names: []string{"Stream Ptr"}},
	tDevice:           {Names: []string{"Device Type"}},
}

// cells reads numbers of one row and keeps the first error.
type cells struct {
	t   *table.Reader
	err error
}

func (c *cells) number(column int, unit, absent int64) int64 {
	v, ok, err := c.t.Number(column, unit)
	if c.err == nil {
		c.err = err
	}
	if !ok {
		return absent
	}
	return v
}

func (c *cells) megabytes(column int) sim.Bytes {
	return sim.Bytes(c.number(column, 1<<20, int64(NoBytes)))
}

// ReadTensors reads operator_memory.csv and hands each tensor to each, in file
// order, which need not be that of allocation; the Tensor is reused. Rows of 0
// bytes, without an allocation, or released before they were allocated are
// skipped.
func ReadTensors(r io.Reader, file string, list *notes.List, each func(*Tensor) error) error {
	t, err := table.New(r, file, list, tensorColumns)
	if err != nil {
		return err
	}
	var v Tensor
	for {
		ok, err := t.Next()
		if !ok || err != nil {
			return err
		}
		c := cells{t: t}
		v = Tensor{
			Name: t.Text(tName), Stream: t.Text(tStream), Device: t.Text(tDevice), Line: t.Line(),
			Bytes:         sim.Bytes(c.number(tSize, 1<<10, 0)),
			Alloc:         c.number(tAlloc, nsPerUs, Never),
			Release:       c.number(tRelease, nsPerUs, Never),
			ActiveRelease: c.number(tActiveRelease, nsPerUs, Never),
			AtAlloc:       Totals{c.megabytes(tAllocAllocated), c.megabytes(tAllocReserved), c.megabytes(tAllocActive)},
			AtRelease:     Totals{c.megabytes(tReleaseAllocated), c.megabytes(tReleaseReserved), c.megabytes(tReleaseActive)},
		}
		switch {
		case c.err != nil:
			return c.err
		case v.Bytes <= 0 || v.Bytes > maxBytes || v.Alloc < 0 || v.Alloc > maxInstant || v.Release > maxInstant:
			list.Count(notes.Skipped, file, v.Line, "tensor of no or impossible size, or without an allocation time")
			continue
		case v.Release != Never && v.Release < v.Alloc:
			list.Count(notes.Skipped, file, v.Line, "tensor released before it was allocated")
			continue
		}
		if err := each(&v); err != nil {
			return err
		}
	}
}

// Sample is one line of memory totals.
type Sample struct {
	// Component is whose totals they are: PTA (the framework's allocator), GE
	// (graph engine), PTA+GE, or APP (the process; only Reserved is known).
	Component      string
	Time           int64 // ns
	Totals         Totals
	Stream, Device string
	Line           int // of the file
}

const (
	sComponent = iota
	sTime
	sAllocated
	sReserved
	sActive
	sStream
	sDevice
)

var sampleColumns = []table.Column{
	sComponent: {Names: []string{"Component"}, Required: true},
	sTime:      {Names: []string{"Timestamp(us)"}, Required: true},
	sAllocated: {Names: []string{"Total Allocated(MB)"}},
	sReserved:  {Names: []string{"Total Reserved(MB)"}, Required: true},
	sActive:    {Names: []string{"Total Active(MB)"}},
	sStream:    {Names: []string{"Stream Ptr"}},
	sDevice:    {Names: []string{"Device Type"}},
}

// ReadSamples reads memory_record.csv and hands each sample to each, in file
// order; the Sample is reused. Samples without a time are skipped.
func ReadSamples(r io.Reader, file string, list *notes.List, each func(*Sample) error) error {
	t, err := table.New(r, file, list, sampleColumns)
	if err != nil {
		return err
	}
	var s Sample
	for {
		ok, err := t.Next()
		if !ok || err != nil {
			return err
		}
		c := cells{t: t}
		s = Sample{
			Component: t.Text(sComponent), Stream: t.Text(sStream), Device: t.Text(sDevice), Line: t.Line(),
			Time:   c.number(sTime, nsPerUs, Never),
			Totals: Totals{c.megabytes(sAllocated), c.megabytes(sReserved), c.megabytes(sActive)},
		}
		switch {
		case c.err != nil:
			return c.err
		case s.Time < 0:
			list.Count(notes.Skipped, file, s.Line, "sample without a time")
			continue
		}
		if err := each(&s); err != nil {
			return err
		}
	}
}
