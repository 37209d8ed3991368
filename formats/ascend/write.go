package ascend

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"smartswap/sim"
)

// WriteTensors writes operator_memory.csv with the columns and the order of the
// present profiler. What is Never or NoBytes becomes an empty cell.
func WriteTensors(w io.Writer, tensors []Tensor) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"+
		"Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),"+
		"Release Total Allocated(MB),Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type")
	c := csv.NewWriter(out)
	for i := range tensors {
		t := &tensors[i]
		row := []string{
			t.Name, binary(t.Bytes, 10), us(t.Alloc), us(t.Release), us(t.ActiveRelease), us(since(t.Alloc, t.Release)), us(since(t.Alloc, t.ActiveRelease)),
			binary(t.AtAlloc.Allocated, 20), binary(t.AtAlloc.Reserved, 20), binary(t.AtAlloc.Active, 20),
			binary(t.AtRelease.Allocated, 20), binary(t.AtRelease.Reserved, 20), binary(t.AtRelease.Active, 20), t.Stream, t.Device,
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return err
	}
	return out.Flush()
}

// WriteSamples writes memory_record.csv.
func WriteSamples(w io.Writer, samples []Sample) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type")
	c := csv.NewWriter(out)
	for i := range samples {
		s := &samples[i]
		row := []string{
			s.Component, us(s.Time), binary(s.Totals.Allocated, 20), binary(s.Totals.Reserved, 20), binary(s.Totals.Active, 20), s.Stream, s.Device,
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return err
	}
	return out.Flush()
}

func since(from, to int64) int64 {
	if from == Never || to == Never {
		return Never
	}
	return to - from
}

// us prints ns as microseconds and, as the profiler does, a tab that keeps
// spreadsheets from reading a number.
func us(ns int64) string {
	if ns == Never {
		return ""
	}
	return fmt.Sprintf("%d.%03d\t", ns/nsPerUs, ns%nsPerUs)
}

// binary prints bytes in units of 2^shift, exactly.
func binary(b sim.Bytes, shift int) string {
	if b == NoBytes {
		return ""
	}
	whole, rest := int64(b)>>shift, int64(b)&(1<<shift-1)
	// 20 binary digits are at most 20 decimal digits: five per turn stay in an int64.
	frac := ""
	for rest != 0 {
		rest *= 100_000
		frac += fmt.Sprintf("%05d", rest>>shift)
		rest &= 1<<shift - 1
	}
	for len(frac) > 1 && frac[len(frac)-1] == '0' {
		frac = frac[:len(frac)-1]
	}
	if frac == "" {
		frac = "0"
	}
	return strconv.FormatInt(whole, 10) + "." + frac
}
