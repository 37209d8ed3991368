package trace

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"smartswap/formats/chakra"
	"smartswap/formats/chrome"
	"smartswap/formats/dtr"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// Lost is something that a program has and a format cannot hold.
type Lost struct {
	Count int
	What  string
}

// String is the loss in one line.
func (l Lost) String() string { return fmt.Sprintf("%d %s", l.Count, l.What) }

// Writers are the formats beside the native one that Write writes: those that
// hold enough for Open to get the operators with device work, their order and
// their times back.
//
//	chrome   kernels and their launches on the host, memory events; not which
//	         operator uses which tensor
//	dtr      operators, the tensors they use and how long these live; one stream
//	chakra   operators on streams and what each waits for; no memory
//
// G10's files are not among them: tensors there live from their first to their
// last use, and operators are the layers of a network.
func Writers() []string { return []string{"chrome", "dtr", "chakra"} }

// Write writes program p of a workload called name in a format of Writers and
// tells what the format cannot hold. Every kernel must be a measured one: none
// of the formats can say how long another takes. Times are ns in chrome and dtr,
// to the ps in chakra. O(p).
func Write(w io.Writer, format, name string, p *workloads.Program) ([]Lost, error) {
	e := exporter{p: p, name: name}
	if err := e.measured(); err != nil {
		return nil, err
	}
	var err error
	switch format {
	case "chrome":
		err = e.chrome(w)
	case "dtr":
		err = e.dtr(w)
	case "chakra":
		err = e.chakra(w)
	default:
		err = fmt.Errorf("format %q; allowed: native, %s", format, strings.Join(Writers(), ", "))
	}
	return e.lost, err
}

type exporter struct {
	p    *workloads.Program
	name string
	lost []Lost
}

// lose notes a loss, if there is one.
func (e *exporter) lose(count int, what string) {
	if count > 0 {
		e.lost = append(e.lost, Lost{count, what})
	}
}

// measured refuses programs with kernels whose time depends on a device, or is
// longer than the formats hold.
func (e *exporter) measured() error {
	modelled, device := 0, 0
	for i := range e.p.Instrs {
		in := &e.p.Instrs[i]
		if in.Kind != workloads.Op || in.Kernel < 0 {
			continue
		}
		device++
		k := &e.p.Kernels[in.Kernel]
		if k.Kind != hw.Measured {
			modelled++
		} else if k.Time > maxKernelTime {
			return fmt.Errorf("operator %q takes %v; other formats hold up to %v", e.p.Names.String(in.Name), k.Time, maxKernelTime)
		}
	}
	if modelled > 0 {
		return fmt.Errorf("%d of %d kernels have no measured time: how long they take depends on the device, which only the native format can say", modelled, device)
	}
	if device == 0 {
		return fmt.Errorf("%d operators, none with device work; other formats hold kernels", e.p.Ops)
	}
	return nil
}

// opName is an operator's name; formats have no empty ones.
func (e *exporter) opName(in *workloads.Instr) string {
	if name := e.p.Names.String(in.Name); name != "" {
		return name
	}
	return "operator"
}

// census counts what none of the formats holds in full.
type census struct {
	hostTimes, hostOnly, noHost, scratch, lanes, orders, fractions int
	faults, replayable, views                                      int
}

func (e *exporter) census() census {
	var c census
	for i := range e.p.Instrs {
		in := &e.p.Instrs[i]
		switch in.Kind {
		case workloads.Op:
			if in.Host > 0 {
				c.hostTimes++
			} else {
				c.noHost++
			}
			if in.Scratch > 0 {
				c.scratch++
			}
			if in.Flags&workloads.Replayable != 0 {
				c.replayable++
			}
			for _, a := range e.p.Args[in.ArgLo:in.ArgHi] {
				if a.View != 0 {
					c.views++
				}
			}
			if in.Kernel < 0 {
				c.hostOnly++
				continue
			}
			if in.Lane != workloads.Compute {
				c.lanes++
			}
			k := &e.p.Kernels[in.Kernel]
			if k.Time%sim.Nanosecond != 0 {
				c.fractions++
			}
			if k.Faulting != [2]sim.Time{} {
				c.faults++
			}
		case workloads.Record, workloads.Wait, workloads.Sync:
			c.orders++
		}
	}
	return c
}

// always is lost in all of the formats.
func (e *exporter) always(c *census) {
	e.lose(c.faults, "times of kernels with page faults")
	e.lose(len(e.p.Storages), "storages: class, element type, shape, layer and label")
}

// chakra writes nodes in the order of the program. A node depends on the one
// before on its stream, and on what its stream or the host waited for.
func (e *exporter) chakra(w io.Writer) error {
	c := e.census()
	types := [workloads.NumLanes]chakra.Type{workloads.Compute: chakra.Compute, workloads.Comm: chakra.Collective, workloads.CommPeer: chakra.Send}
	var nodes []chakra.Node
	const none = -1
	var last [workloads.NumLanes]int64 // the node on each lane
	var waits [workloads.NumLanes][]int64
	for lane := range last {
		last[lane] = none
	}
	events := make([]int64, e.p.Events)
	for i := range e.p.Instrs {
		switch in := &e.p.Instrs[i]; in.Kind {
		case workloads.Op:
			n := chakra.Node{ID: int64(len(nodes)), Name: e.opName(in), Type: chakra.Compute, HasTime: true, Time: in.Host, OnHost: true}
			if in.Kernel >= 0 {
				n.Type, n.OnHost, n.Time = types[in.Lane], false, e.p.Kernels[in.Kernel].Time
				if last[in.Lane] != none {
					n.Control = append(n.Control, last[in.Lane])
				}
				n.Data, waits[in.Lane] = waits[in.Lane], nil
				last[in.Lane] = n.ID
			}
			nodes = append(nodes, n)
		case workloads.Record:
			events[in.A] = last[in.Lane]
		case workloads.Wait:
			if events[in.A] != none {
				waits[in.Lane] = append(waits[in.Lane], events[in.A])
			}
		case workloads.Sync:
			for lane := range waits {
				if workloads.Lane(lane) != in.Lane && last[in.Lane] != none {
					waits[lane] = append(waits[lane], last[in.Lane])
				}
			}
		}
	}
	for i := range nodes {
		if len(nodes[i].Data) > 1<<16 {
			return fmt.Errorf("operator %q waits for %d others; allowed: %d", nodes[i].Name, len(nodes[i].Data), 1<<16)
		}
	}
	e.lose(len(e.p.Storages), "storages, and which operators use them: the workload uses no memory")
	e.lose(c.hostTimes, "times that the host took: they are in nodes on the host, which nothing waits for")
	e.lose(c.faults, "times of kernels with page faults")
	return chakra.WriteJSON(w, e.name, nodes)
}

// dtr writes a log. A storage is a result of the operator that writes it first,
// and released where its last reference goes.
func (e *exporter) dtr(w io.Writer) error {
	c := e.census()
	out := dtr.NewWriter(w)
	name := func(s workloads.StorageID) string { return "s" + strconv.Itoa(int(s)) }
	refs := make([]int32, len(e.p.Storages))
	made := make([]int, len(e.p.Storages)) // after which instruction; 0 = not yet
	for s := range e.p.Residents {
		refs[s] = 1
		out.Write(&dtr.Instr{Kind: dtr.Constant, Name: name(workloads.StorageID(s)), Bytes: e.p.Storages[s].Bytes})
	}
	inPlace, again := 0, 0
	backward := false
	for i := range e.p.Instrs {
		switch in := &e.p.Instrs[i]; in.Kind {
		case workloads.Op:
			call := dtr.Instr{Kind: dtr.Call, Name: e.opName(in)}
			if in.Kernel >= 0 {
				call.Time = e.p.Kernels[in.Kernel].Time
			}
			for _, a := range e.p.Args[in.ArgLo:in.ArgHi] {
				if a.Mode == workloads.Write && refs[a.Storage] == 0 {
					refs[a.Storage], made[a.Storage] = 1, i+1
					call.Results = append(call.Results, dtr.Result{Name: name(a.Storage), Bytes: e.p.Storages[a.Storage].Bytes, Alias: dtr.Own})
					continue
				}
				if made[a.Storage] == i+1 {
					continue // one more use by the operator that makes it
				}
				switch a.Mode {
				case workloads.Update:
					inPlace++
				case workloads.Write:
					again++
				}
				call.Args = append(call.Args, name(a.Storage))
			}
			if n := max(len(call.Args), len(call.Results)); n > 1<<16 {
				return fmt.Errorf("operator %q has %d arguments; allowed: %d", call.Name, n, 1<<16)
			}
			out.Write(&call)
		case workloads.Ref:
			refs[in.A]++
		case workloads.Drop:
			if refs[in.A]--; refs[in.A] == 0 {
				out.Write(&dtr.Instr{Kind: dtr.Release, Name: name(workloads.StorageID(in.A))})
			}
		case workloads.Mark:
			if in.Mark == workloads.MarkBackwardBegin && !backward {
				backward = true
				out.Write(&dtr.Instr{Kind: dtr.Backward})
			}
		}
	}
	e.lose(c.hostTimes, "times that the host took")
	e.lose(c.hostOnly, "operators of the host: they become kernels that take no time")
	e.lose(c.lanes, "operators on streams of communication: they run on the compute stream")
	e.lose(c.orders, "waits between streams and of the host")
	e.lose(c.scratch, "workspaces")
	e.lose(c.fractions, "times with parts of a nanosecond")
	e.lose(inPlace, "changes in place: they become reads")
	e.lose(again, "later writes to a storage: they become reads")
	e.lose(c.views, "arguments that are views: they become the whole storage")
	e.always(&c)
	return out.Close()
}

// Lanes and processes of a Chrome trace, numbered as Kineto does.
const (
	chromeDevice, chromeHost = 0, 1
	chromeThread             = 1
)

// chrome writes a timeline: that of a host that takes the recorded times, or a
// nanosecond, and of streams that run each kernel as soon as it is launched, the
// stream is free, and what it waits for has ended. Every event of the host has
// an instant of its own, so that their order comes back.
func (e *exporter) chrome(w io.Writer) error {
	c := e.census()
	x := chromeExporter{exporter: e, out: chrome.NewWriter(w), born: make([]bool, len(e.p.Storages))}
	x.out.Process(chromeHost, "host")
	x.out.Thread(chromeHost, chromeThread, "dispatch")
	x.out.Process(chromeDevice, "device")
	for lane := range workloads.NumLanes {
		x.out.Thread(chromeDevice, laneStream(lane), []string{"compute", "communication", "transfers"}[lane])
	}
	for s := range e.p.Residents {
		x.live += e.p.Storages[s].Bytes
		x.born[s] = true
	}
	events := make([]int64, e.p.Events)
	refs := make([]int32, len(e.p.Storages))
	for i := range e.p.Instrs {
		switch in := &e.p.Instrs[i]; in.Kind {
		case workloads.Op:
			if err := x.op(in, refs); err != nil {
				return err
			}
		case workloads.Ref:
			refs[in.A]++
		case workloads.Drop:
			if refs[in.A]--; refs[in.A] == 0 && in.A >= e.p.Residents {
				x.memory(int64(in.A), -e.p.Storages[in.A].Bytes)
			}
		case workloads.Record:
			events[in.A] = x.ends[in.Lane]
		case workloads.Wait:
			x.ends[in.Lane] = max(x.ends[in.Lane], events[in.A])
		case workloads.Sync:
			x.host++
			wait := max(0, x.ends[in.Lane]-x.host)
			x.out.Slice(chromeHost, chromeThread, "cuda_runtime", "cudaStreamSynchronize", x.host, wait)
			x.host += wait
		}
	}
	e.lose(c.noHost, "operators without a host time, which is the simulated host's: they take a nanosecond")
	e.lose(x.silent, "operators of the host that allocate nothing")
	e.lose(x.empty, "storages of 0 bytes")
	if x.allocations == 0 {
		e.lose(int(e.p.Residents), "residents: nothing is allocated, so that no event tells of memory")
	}
	e.lose(c.scratch, "workspaces: they become tensors")
	e.lose(c.fractions, "times with parts of a nanosecond")
	e.lose(c.orders, "waits of the host and between streams: the order that they made is in the times")
	e.lose(len(e.p.Args), "uses of storages: the first and the last are inferred")
	e.always(&c)
	return x.out.Close()
}

// laneStream is the stream of a lane.
func laneStream(lane workloads.Lane) int { return 7 + int(lane) }

type chromeExporter struct {
	*exporter
	out  *chrome.Writer
	host int64 // ns
	ends [workloads.NumLanes]int64
	live sim.Bytes
	born []bool
	id   int64 // of the operator and its launch, from 1
	// silent operators and empty storages leave nothing in the file.
	silent, empty, allocations int
}

// memory writes an allocation or a release at an instant of its own.
func (x *chromeExporter) memory(id int64, bytes sim.Bytes) {
	if bytes == 0 {
		return
	}
	if bytes > 0 {
		x.allocations++
	}
	x.host++
	x.live += bytes
	x.out.Instant(chromeHost, chromeThread, "cpu_instant_event", "[memory]", x.host,
		chrome.Field{Name: "Total Allocated", Value: int64(x.live)}, chrome.Field{Name: "Bytes", Value: int64(bytes)},
		chrome.Field{Name: "Addr", Value: (id + 1) << 9}, chrome.Field{Name: "Device Id", Value: 0}, chrome.Field{Name: "Device Type", Value: 1})
}

// op writes an operator: a slice on the host with its allocations and its launch,
// and its kernel.
func (x *chromeExporter) op(in *workloads.Instr, refs []int32) error {
	name := x.opName(in)
	x.host += max(1, int64(in.Host/sim.Nanosecond))
	start := x.host
	x.id++
	made := false
	for _, a := range x.p.Args[in.ArgLo:in.ArgHi] {
		if x.born[a.Storage] {
			continue
		}
		x.born[a.Storage] = true
		refs[a.Storage] = 1
		bytes := x.p.Storages[a.Storage].Bytes
		if bytes > maxBytes {
			return fmt.Errorf("operator %q makes a storage of %v; allowed: %v", name, bytes, maxBytes)
		}
		if bytes == 0 {
			x.empty++
		}
		made = made || bytes > 0
		x.memory(int64(a.Storage), bytes)
	}
	scratch := int64(len(x.p.Storages)) // an id that no storage has
	if in.Scratch > 0 {
		made = true
		x.memory(scratch, in.Scratch)
	}
	id := chrome.Field{Name: "External id", Value: x.id}
	if in.Kernel >= 0 {
		x.host++
		correlation := chrome.Field{Name: "correlation", Value: x.id}
		x.out.Slice(chromeHost, chromeThread, "cuda_runtime", "cudaLaunchKernel", x.host, 0, id, correlation)
		at := max(x.host, x.ends[in.Lane])
		time := int64(x.p.Kernels[in.Kernel].Time / sim.Nanosecond)
		x.out.Slice(chromeDevice, laneStream(in.Lane), "kernel", kernelName(name, in.Lane), at, time,
			id, correlation, chrome.Field{Name: "device", Value: 0}, chrome.Field{Name: "stream", Value: laneStream(in.Lane)})
		x.ends[in.Lane] = at + time
	} else if !made {
		x.silent++
	}
	if in.Scratch > 0 {
		x.memory(scratch, -in.Scratch)
	}
	x.out.Slice(chromeHost, chromeThread, "cpu_op", name, start, x.host-start, id)
	return nil
}

// kernelName is the name of an operator's kernel: the operator's, unless that
// would put it on another lane.
func kernelName(name string, lane workloads.Lane) string {
	if laneByName(name) == lane {
		return name
	}
	return []string{"kernel", "nccl kernel", "nccl send kernel"}[lane]
}
