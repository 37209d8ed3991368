package workloadstest

import (
	"strings"
	"testing"

	"smartswap/hw"
	"smartswap/workloads"
)

// script is a workload of one program per rank.
type script struct {
	workloads.Workload
	programs []*workloads.Program
}

func (s script) Ranks() []workloads.Rank { return make([]workloads.Rank, len(s.programs)) }

func (s script) Program(r, _ int) (*workloads.Program, error) { return s.programs[r], nil }

func build(t *testing.T, write func(b *workloads.Builder)) *workloads.Program {
	t.Helper()
	names := workloads.NewNames()
	names.ID("op")
	b := workloads.NewBuilder(names, []workloads.Storage{{Bytes: 1}})
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	write(b)
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	p, err := b.Program("script")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func meeting(tag int32, size int) workloads.OpSpec {
	return workloads.OpSpec{Lane: workloads.CommPeer, Kernel: workloads.Kernel{
		Work: hw.Work{Kind: hw.Transfer, Size: 1 << size}, Group: []int32{0, 1}, Tag: tag}}
}

func unit(*workloads.Kernel) int64 { return 1 }

func TestPlay(t *testing.T) {
	send := func(tags ...int32) *workloads.Program {
		return build(t, func(b *workloads.Builder) {
			b.Op(workloads.OpSpec{}, workloads.In(0)) // one unit before the first transfer
			b.Order(workloads.Compute, workloads.CommPeer)
			for _, tag := range tags {
				b.Op(meeting(tag, 0), workloads.In(0))
			}
			b.Sync(workloads.CommPeer)
			b.Op(workloads.OpSpec{}, workloads.In(0))
		})
	}
	end, err := Play(script{programs: []*workloads.Program{send(1, 2), send(1, 2)}}, 0, unit)
	if err != nil {
		t.Fatal(err)
	}
	if end != 3 { // a unit of computing, then two transfers
		t.Errorf("ends at %d, want 3", end)
	}
	if _, err := Play(script{programs: []*workloads.Program{send(1, 2), send(2, 1)}}, 0, unit); err == nil || !strings.Contains(err.Error(), "stands still") {
		t.Errorf("crossed transfers end with %v", err)
	}
	if _, err := Play(script{programs: []*workloads.Program{send(1), send(1, 2)}}, 0, unit); err == nil {
		t.Error("a transfer that the other rank lacks goes through")
	}
	bigger := build(t, func(b *workloads.Builder) { b.Op(meeting(1, 3), workloads.In(0)) })
	if _, err := Play(script{programs: []*workloads.Program{send(1), bigger}}, 0, unit); err == nil {
		t.Error("transfers of different sizes meet")
	}
}

func TestRaces(t *testing.T) {
	comm := workloads.OpSpec{Lane: workloads.Comm}
	for _, c := range []struct {
		name  string
		write func(b *workloads.Builder)
		want  string // "" = no race
	}{
		{"reads side by side", func(b *workloads.Builder) {
			b.Op(workloads.OpSpec{}, workloads.In(0))
			b.Op(comm, workloads.In(0))
		}, ""},
		{"read after write", func(b *workloads.Builder) {
			b.Op(workloads.OpSpec{}, workloads.InPlace(0))
			b.Op(comm, workloads.In(0))
		}, "beside another lane"},
		{"read after write, ordered", func(b *workloads.Builder) {
			b.Op(workloads.OpSpec{}, workloads.InPlace(0))
			b.Order(workloads.Compute, workloads.Comm)
			b.Op(comm, workloads.In(0))
		}, ""},
		{"write after read", func(b *workloads.Builder) {
			b.Op(workloads.OpSpec{}, workloads.In(0))
			b.Op(comm, workloads.InPlace(0))
		}, "beside another lane"},
		{"event too early", func(b *workloads.Builder) {
			e := b.Record(workloads.Compute)
			b.Op(workloads.OpSpec{}, workloads.InPlace(0))
			b.Wait(workloads.Comm, e)
			b.Op(comm, workloads.In(0))
		}, "beside another lane"},
		{"ordered over a third lane", func(b *workloads.Builder) {
			b.Op(workloads.OpSpec{}, workloads.InPlace(0))
			b.Order(workloads.Compute, workloads.CommPeer)
			b.Order(workloads.CommPeer, workloads.Comm)
			b.Op(comm, workloads.In(0))
		}, ""},
		{"ordered by the host", func(b *workloads.Builder) {
			b.Op(workloads.OpSpec{}, workloads.InPlace(0))
			b.Sync(workloads.Compute)
			b.Op(comm, workloads.In(0))
		}, ""},
		{"new memory", func(b *workloads.Builder) {
			b.Op(workloads.OpSpec{}, workloads.In(0))
			s := b.New(workloads.Storage{Bytes: 1})
			b.Op(comm, workloads.Out(s))
			b.Order(workloads.Comm, workloads.Compute)
			b.Drop(s)
		}, "takes new memory"},
		{"freed too early", func(b *workloads.Builder) {
			s := b.New(workloads.Storage{Bytes: 1})
			b.Op(comm, workloads.Out(s))
			b.Drop(s)
		}, "frees storage"},
	} {
		err := Races(build(t, c.write))
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}
