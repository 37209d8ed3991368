package eagertest

import (
	"fmt"

	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"

	"pgregory.net/rapid"
)

// Random is a random training job: forward and backward over a few layers,
// gradient accumulation, an optimizer, collectives between ranks, and
// iterations that differ.
type Random struct {
	*Script
	// Kinds counts distinct programs; more than one means that the operator
	// sequence varies.
	Kinds int
}

// shape is what one program of a random job looks like.
type shape struct {
	layers, batches int
	extra           int  // operators inserted into the first forward pass
	skip            bool // the optimizer is skipped
	validate        bool
	sync            bool
	beside          bool // communication that compute does not wait for
	alone           bool // no communication at all
}

// DrawJob draws a job of 1 to maxRanks ranks, with tensors of 1 to 8,192 units.
func DrawJob(t *rapid.T, maxRanks int, unit sim.Bytes) *Random {
	return drawJob(t, maxRanks, unit, false)
}

// DrawAlone draws a job of one rank that does not communicate.
func DrawAlone(t *rapid.T, unit sim.Bytes) *Random { return drawJob(t, 1, unit, true) }

func drawJob(t *rapid.T, maxRanks int, unit sim.Bytes, alone bool) *Random {
	ranks := rapid.IntRange(1, maxRanks).Draw(t, "ranks")
	layers := rapid.IntRange(1, 5).Draw(t, "layers")
	base := shape{layers: layers, batches: rapid.IntRange(1, 3).Draw(t, "micro-batches"), sync: rapid.Bool().Draw(t, "sync"), beside: rapid.Bool().Draw(t, "beside"), alone: alone}
	shapes := []shape{base}
	if rapid.IntRange(0, 2).Draw(t, "varies") > 0 {
		other := base
		switch rapid.IntRange(0, 4).Draw(t, "variation") {
		case 0:
			other.skip = true
		case 1:
			other.validate = true
		case 2:
			other.batches++
		default:
			other.extra = rapid.IntRange(1, 6).Draw(t, "inserted operators")
		}
		shapes = append(shapes, other)
	}
	// Which shape each iteration has; the first two are alike, so that
	// policies have something to learn.
	period := []int{0, 0, 0}
	for range rapid.IntRange(1, 5).Draw(t, "period") {
		kind := 0
		if len(shapes) > 1 && rapid.SampledFrom([]bool{true, false, false}).Draw(t, "other") {
			kind = 1
		}
		period = append(period, kind)
	}
	sizes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sim.Bytes {
		return sim.Bytes(rapid.Int64Range(1, 64).Draw(t, "size")) * unit * rapid.SampledFrom([]sim.Bytes{1, 16, 128}).Draw(t, "scale")
	}), 7, 7).Draw(t, "sizes")
	spans := rapid.SliceOfN(rapid.Int64Range(0, 200), 5, 5).Draw(t, "spans")
	span := func(i int) sim.Time { return sim.Time(spans[i%len(spans)]) * sim.Microsecond }

	j := &Random{Script: &Script{names: workloads.NewNames()}, Kinds: 1}
	for r := range ranks {
		res := residents(layers, sizes)
		j.ranks = append(j.ranks, workloads.Rank{Devices: []int{r}, Stage: r, Residents: res})
		var made []*workloads.Program
		for _, s := range shapes {
			made = append(made, program(t, j.names, res, s, sizes, span, r, ranks))
		}
		var progs []*workloads.Program
		for _, k := range period {
			progs = append(progs, made[k])
			if k > 0 {
				j.Kinds = 2
			}
		}
		j.progs = append(j.progs, progs)
	}
	return j
}

// residents: per layer a parameter, a flat gradient, and an optimizer state.
func residents(layers int, sizes []sim.Bytes) []workloads.Storage {
	var res []workloads.Storage
	for range layers {
		res = append(res,
			workloads.Storage{Bytes: sizes[0], Class: workloads.Parameter, Shape: [4]int32{1}},
			workloads.Storage{Bytes: sizes[1], Class: workloads.Gradient, Flat: true, Shape: [4]int32{2}},
			workloads.Storage{Bytes: sizes[2], Class: workloads.Optimizer, DType: workloads.FP32, Shape: [4]int32{3}})
	}
	return res
}

// program writes one iteration.
func program(t *rapid.T, names *workloads.Names, res []workloads.Storage, s shape, sizes []sim.Bytes, span func(int) sim.Time, rank, ranks int) *workloads.Program {
	b := workloads.NewBuilder(names, res)
	group := make([]int32, ranks)
	for i := range group {
		group[i] = int32(i)
	}
	act := func(i int) workloads.StorageID {
		return b.New(workloads.Storage{Bytes: sizes[3+i%4], Shape: [4]int32{int32(4 + i%4)}})
	}
	reduce := func(x workloads.StorageID) {
		if s.alone {
			return
		}
		b.Order(workloads.Compute, workloads.Comm)
		b.Op(workloads.OpSpec{Name: names.ID("all_reduce"), Lane: workloads.Comm, Kernel: workloads.Kernel{
			Work:  hw.Work{Kind: hw.Collective, Collective: hw.AllReduce, Size: sizes[3], Members: int32(max(2, ranks))},
			Group: group}}, workloads.InPlace(x))
		b.Order(workloads.Comm, workloads.Compute)
	}
	// gather has communication read x into what only the end of the iteration
	// takes, while compute goes on; x may be let go of or moved meanwhile.
	var gathered []workloads.StorageID
	gather := func(x workloads.StorageID) {
		b.Order(workloads.Compute, workloads.Comm)
		z := act(len(gathered))
		b.Op(workloads.OpSpec{Name: names.ID("all_gather"), Lane: workloads.Comm, Scratch: sizes[6], Kernel: workloads.Kernel{
			Work:  hw.Work{Kind: hw.Collective, Collective: hw.AllGather, Size: sizes[4], Members: int32(max(2, ranks))},
			Group: group}}, workloads.In(x), workloads.Out(z))
		gathered = append(gathered, z)
	}
	forward := func(batch int, save bool) []workloads.StorageID {
		var kept []workloads.StorageID
		x := act(0)
		b.Op(Replayable(Kernel(names, "embed", span(0))), workloads.Out(x))
		for l := range s.layers {
			y := act(l)
			k := Kernel(names, fmt.Sprint("layer", l%3), span(l+rank))
			k.Kernel.Traffic = sizes[3]
			if l%2 == 0 {
				k.Scratch = sizes[4]
			}
			b.Op(Replayable(k), workloads.In(x), workloads.In(workloads.StorageID(3*l)), workloads.Out(y))
			if batch == 1 && l == 0 {
				for i := range s.extra {
					b.Op(Kernel(names, fmt.Sprint("extra", i%2), span(i)), workloads.InPlace(y))
				}
			}
			if l%2 == 1 {
				reduce(y)
			}
			if s.beside && !s.alone && l%3 == 0 {
				gather(y)
			}
			if save {
				b.Save(x)
				kept = append(kept, x)
			}
			b.Drop(x)
			x = y
		}
		if save {
			return append(kept, x)
		}
		b.Drop(x)
		return nil
	}
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	for m := 1; m <= s.batches; m++ {
		b.Mark(workloads.MarkForwardBegin, m, 0)
		kept := forward(m, true)
		b.Mark(workloads.MarkForwardEnd, m, 0)
		b.Mark(workloads.MarkBackwardBegin, m, 0)
		g := kept[len(kept)-1]
		for l := s.layers - 1; l >= 0; l-- {
			x := kept[l]
			b.Unpack(x)
			d := act(l + 1)
			b.Op(Replayable(Kernel(names, fmt.Sprint("grad", l%3), span(l+1))), workloads.In(g), workloads.In(x), workloads.In(workloads.StorageID(3*l)), workloads.Out(d))
			b.Op(Kernel(names, "wgrad", span(l+2)), workloads.In(g), workloads.In(x), workloads.InPlace(workloads.StorageID(3*l+1)))
			b.Drop(x)
			b.Drop(g)
			g = d
		}
		b.Drop(g)
		b.Mark(workloads.MarkBackwardEnd, m, 0)
	}
	if s.validate {
		b.Mark(workloads.MarkValidationBegin, 1, 0)
		forward(0, false)
		b.Mark(workloads.MarkValidationEnd, 1, 0)
	}
	if s.sync {
		b.Sync(workloads.Compute)
	}
	if !s.skip {
		b.Mark(workloads.MarkOptimizerBegin, 0, 0)
		for l := range s.layers {
			g := workloads.StorageID(3*l + 1)
			if ranks > 1 {
				reduce(g)
			}
			b.Op(Kernel(names, "adamw", span(l)), workloads.In(g), workloads.InPlace(workloads.StorageID(3*l+2)), workloads.InPlace(workloads.StorageID(3*l)))
		}
		b.Mark(workloads.MarkOptimizerEnd, 0, 0)
	}
	if len(gathered) > 0 {
		b.Order(workloads.Comm, workloads.Compute)
	}
	for _, z := range gathered {
		b.Op(Kernel(names, "take", span(3)), workloads.In(z))
		b.Drop(z)
	}
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	p, err := b.Program(fmt.Sprintf("%+v", s))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// DrawNode draws a node of n devices.
func DrawNode(t *rapid.T, n int) *hw.Node {
	node := Node(n)
	pick := func(name string, values ...sim.Time) sim.Time { return rapid.SampledFrom(values).Draw(t, name) }
	us := sim.Microsecond
	h := &node.Host
	h.Dispatch, h.Launch = pick("dispatch", 0, 3*us, 20*us), pick("launch", 0, 1*us, 5*us)
	h.TaskQueue = rapid.SampledFrom([]int{0, 0, 3, 64}).Draw(t, "task queue")
	h.LaunchQueue = rapid.SampledFrom([]int{0, 2, 16, 1024}).Draw(t, "launch queue")
	h.Malloc, h.Free = pick("malloc", 0, us), pick("free", 0, us/2)
	h.DriverAlloc, h.DriverFree = pick("driver", 0, 100*us), pick("driver free", 0, 50*us)
	h.EventRecord, h.EventQuery, h.StreamWait, h.CopyLaunch = pick("record", 0, us), pick("query", 0, 2*us), pick("wait", 0, us), pick("copy launch", 0, 4*us)
	h.PinFixed = pick("pin", 0, 100*us)
	if rapid.IntRange(0, 9).Draw(t, "little host memory") == 0 {
		h.Pinned = sim.Bytes(n) * rapid.SampledFrom([]sim.Bytes{sim.MiB, 8 * sim.MiB}).Draw(t, "pinned")
	}
	l := &node.Link
	rates := []sim.Rate{sim.GBps(1), sim.GBps(10), sim.GBps(100)}
	l.Rate[hw.D2H], l.Rate[hw.H2D] = rapid.SampledFrom(rates).Draw(t, "d2h"), rapid.SampledFrom(rates).Draw(t, "h2d")
	if rapid.Bool().Draw(t, "pair cap") {
		l.Both = l.Rate[hw.D2H]
	}
	if rapid.Bool().Draw(t, "uplinks") {
		l.Uplink, l.UplinkDevices = l.Rate[hw.D2H], 2
	}
	l.Latency = pick("latency", 0, 5*us)
	if rapid.Bool().Draw(t, "scarce HBM bandwidth") {
		node.Device.Bandwidth = sim.GBps(20)
	}
	if rapid.Bool().Draw(t, "slow beside collectives") {
		node.Device.Beside[hw.MatMul] = 2
	}
	return node
}

// Floor is what no policy can do without on any rank: the flat buffers, and
// what the largest operator touches beside them, in blocks of 512 bytes.
func (j *Random) Floor() sim.Bytes {
	block := func(b sim.Bytes) sim.Bytes { return (b + 511) &^ 511 }
	var floor sim.Bytes
	for _, progs := range j.progs {
		for _, p := range progs {
			var flat, most sim.Bytes
			for _, s := range p.Storages[:p.Residents] {
				if s.Flat {
					flat += block(s.Bytes)
				}
			}
			for i := range p.Instrs {
				in := &p.Instrs[i]
				if in.Kind != workloads.Op {
					continue
				}
				touched := block(in.Scratch)
				for _, a := range p.Args[in.ArgLo:in.ArgHi] {
					if s := p.Storages[a.Storage]; !s.Flat {
						touched += block(s.Bytes)
					}
				}
				most = max(most, touched)
			}
			floor = max(floor, flat+most)
		}
	}
	return floor
}
