package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"smartswap/formats/g10"
	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// timesIn finds the kernel-time file of Options.Network and Options.Batch in a
// folder laid out as G10's.
func timesIn(dir string, opt Options) (string, error) {
	nets, err := os.ReadDir(filepath.Join(dir, "traces"))
	if err != nil {
		return "", unknownFolder(dir)
	}
	var names []string // ReadDir sorts
	for _, n := range nets {
		names = append(names, n.Name())
	}
	if opt.Network == "" {
		return "", fmt.Errorf("%s: a folder of several networks; choose one as the network, and a batch size (trace -network NAME -batch N, experiment -set workload.network=NAME -set workload.batch=N): %s", dir, strings.Join(names, " "))
	}
	if !slices.Contains(names, opt.Network) {
		return "", fmt.Errorf("%s: network %q; allowed: %s", dir, opt.Network, strings.Join(names, " "))
	}
	files, err := os.ReadDir(filepath.Join(dir, "traces", opt.Network))
	if err != nil {
		return "", err
	}
	var batches []int
	for _, f := range files {
		if b, ok := batchOf(f.Name()); ok {
			batches = append(batches, b)
		}
	}
	slices.Sort(batches)
	if opt.Batch == 0 {
		return "", fmt.Errorf("%s: %s was recorded at several batch sizes; choose one (trace -batch N, experiment -set workload.batch=N): %s", dir, opt.Network, strings.Trim(fmt.Sprint(batches), "[]"))
	}
	if !slices.Contains(batches, opt.Batch) {
		return "", fmt.Errorf("%s: batch size %d of %s; allowed: %s", dir, opt.Batch, opt.Network, strings.Trim(fmt.Sprint(batches), "[]"))
	}
	return filepath.Join(dir, "traces", opt.Network, fmt.Sprintf("cudnn%d.txt", opt.Batch)), nil
}

// batchOf is the batch size in the name of a kernel-time file, "cudnn256.txt".
func batchOf(file string) (int, bool) {
	s, ok := strings.CutPrefix(filepath.Base(file), "cudnn")
	s, ok2 := strings.CutSuffix(strings.TrimSuffix(s, ".gz"), ".txt")
	b, err := strconv.Atoi(s)
	return b, ok && ok2 && err == nil
}

// withFaults is the name of the kernel-time file that one with page faults, such
// as "cudnn256InputPF.txt", belongs to.
func withFaults(file string) (times string, ok bool) {
	base := filepath.Base(file)
	for _, end := range []string{"InputPF.txt", "PF.txt"} {
		if name, ok := strings.CutSuffix(strings.TrimSuffix(base, ".gz"), end); ok {
			return name + ".txt", true
		}
	}
	return "", false
}

// openG10 reads a G10 kernel-time file and what belongs to it. In G10's layout
//
//	nets/NETWORK.txt                     network text
//	traces/NETWORK/cudnnBATCH.txt        the kernel-time file
//	traces/NETWORK/cudnnBATCHInputPF.txt, cudnnBATCHPF.txt
//	traces/NETWORK/cudnnBATCHWorkspace.txt
//	graph/NETWORK-BATCH.kernels.csv.gz, .tensors.csv.gz
//
// everything is found from its path; Options name what lies elsewhere. The
// tables in graph serve networks whose text is not that of a transformer.
//
// path may be a folder in this layout; then Options.Network and Options.Batch
// choose the file.
func openG10(rep *Report, path string, opt Options) (*native.Trace, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		if path, err = timesIn(path, opt); err != nil {
			return nil, err
		}
	}
	var times []sim.Time
	err := readFile(rep, path, opt, func(r io.Reader, _ string) (err error) {
		times, err = g10.ReadTimes(r, path)
		return err
	})
	if err != nil {
		return nil, err
	}
	batch := opt.Batch
	if batch == 0 {
		var ok bool
		if batch, ok = batchOf(path); !ok {
			if times, faults := withFaults(path); faults {
				return nil, fmt.Errorf("%s: kernel times with page faults; open %s beside it, which uses them", path, times)
			}
			return nil, fmt.Errorf("%s: the name does not tell the batch size; allowed: cudnnBATCH.txt, or the option for the batch size", path)
		}
		rep.note(Inferred, path, "batch size %d, from the name", batch)
	}
	files := g10Files{rep: rep, network: filepath.Base(filepath.Dir(path)), batch: batch, opt: opt}
	files.root = filepath.Dir(filepath.Dir(filepath.Dir(path)))
	graph, fromTables, err := files.graph()
	if err != nil {
		return nil, err
	}
	if len(times) != len(graph.Kernels) {
		return nil, fmt.Errorf("%s: %d kernel times, but the network has %d kernels: the file is truncated or belongs to another network", path, len(times), len(graph.Kernels))
	}
	scratch, err := files.scratch(path, fromTables, len(times))
	if err != nil {
		return nil, err
	}
	faulting, err := files.faulting(path, len(times))
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s/b%d", files.network, batch)
	return convertG10(rep, path, name, graph, times, faulting, scratch)
}

// g10Files finds the files that belong to a kernel-time file.
type g10Files struct {
	rep           *Report
	root, network string
	batch         int
	opt           Options
}

// graph makes the graph of the network text, or reads the derived tables if the
// text is not that of a transformer.
func (f *g10Files) graph() (g *g10.Graph, fromTables bool, err error) {
	path := f.opt.Net
	if path == "" {
		path = filepath.Join(f.root, "nets", f.network+".txt")
		f.rep.note(Inferred, path, "the network, from the place of the kernel times")
	}
	globals := f.opt.Globals
	if globals == 0 {
		globals = g10.BERTGlobals
	}
	var net *g10.Net
	err = readFile(f.rep, path, f.opt, func(r io.Reader, _ string) (err error) {
		text := bufio.NewReader(r)
		if start, _ := text.Peek(1); len(start) == 1 && (start[0] < '0' || start[0] > '9') {
			return nil // a printed module: net stays nil
		}
		net, err = g10.ReadNet(text, path)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if net != nil {
		g, err = net.Graph(f.batch, globals)
		return g, false, err
	}
	f.rep.note(Skipped, path, "not the text of a transformer; the derived tables are read instead")
	prefix := filepath.Join(f.root, "graph", fmt.Sprintf("%s-%d", f.network, f.batch))
	kernels, tensors := prefix+".kernels.csv.gz", prefix+".tensors.csv.gz"
	for _, table := range []string{kernels, tensors} {
		if _, err := os.Stat(table); err != nil {
			return nil, false, fmt.Errorf("%s: no such file, which batch size %d of %s needs: the network's text is not that of a transformer", table, f.batch, f.network)
		}
	}
	err = readFile(f.rep, kernels, f.opt, func(k io.Reader, _ string) error {
		return readFile(f.rep, tensors, f.opt, func(t io.Reader, _ string) (err error) {
			g, err = g10.ReadTables(k, kernels, t, tensors)
			return err
		})
	})
	return g, true, err
}

// faulting reads the times of n kernels in unified memory, with faulting inputs
// and with faulting inputs and outputs; what there is no file for is 0.
func (f *g10Files) faulting(times string, n int) ([][2]sim.Time, error) {
	all := make([][2]sim.Time, n)
	base := strings.TrimSuffix(strings.TrimSuffix(times, ".gz"), ".txt")
	for i, suffix := range []string{"InputPF.txt", "PF.txt"} {
		path := base + suffix
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue // only unified memory asks for it
		}
		var list []sim.Time
		err := readFile(f.rep, path, f.opt, func(r io.Reader, _ string) (err error) {
			list, err = g10.ReadTimes(r, path)
			return err
		})
		if err == nil && len(list) != n {
			err = fmt.Errorf("%s: %d kernel times, but the network has %d kernels", path, len(list), n)
		}
		if err != nil {
			return nil, err
		}
		for k := range list {
			all[k][i] = list[k]
		}
	}
	return all, nil
}

// scratch reads the workspaces of n kernels; nil if there are none.
func (f *g10Files) scratch(times string, fromTables bool, n int) ([]sim.Bytes, error) {
	path := f.opt.Scratch
	if path == "" {
		if fromTables {
			f.rep.note(Inferred, times, "no workspaces but those that the tables list as tensors")
			return nil, nil
		}
		path = strings.TrimSuffix(strings.TrimSuffix(times, ".gz"), ".txt") + "Workspace.txt"
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			f.rep.note(Inferred, path, "no such file; no kernel has a workspace")
			return nil, nil
		}
	}
	var scratch []sim.Bytes
	err := readFile(f.rep, path, f.opt, func(r io.Reader, _ string) (err error) {
		scratch, err = g10.ReadScratch(r, path)
		return err
	})
	if err == nil && len(scratch) != n {
		err = fmt.Errorf("%s: %d workspaces, but the network has %d kernels", path, len(scratch), n)
	}
	return scratch, err
}

// convertG10 makes the workload of one device that repeats the iteration.
//
// Global tensors are residents. A local tensor is an output of the kernel that
// first touches it and is dropped after the last kernel that reads it, in host
// order, so that live bytes are the origin's; an input of the network is
// written by the kernel that first reads it. A local that the forward pass
// makes and the backward pass reads is held the way autograd holds it: saved
// when it is made, dropped by its maker after the last forward reader, unpacked
// before its first backward reader.
//
// The forward pass ends with makeLoss. The kernels that apply gradients stand
// among the backward kernels in the file and so belong to the backward pass:
// there is no optimizer phase.
//
// Every kernel takes its measured time and nothing else is done on the device:
// no copies, no synchronisation. Without host costs an iteration that needs no
// swapping takes the sum of the kernel times.
func convertG10(rep *Report, file, name string, g *g10.Graph, times []sim.Time, faulting [][2]sim.Time, scratch []sim.Bytes) (*native.Trace, error) {
	loss := slices.IndexFunc(g.Kernels, func(k g10.Kernel) bool { return k.Type == "makeLoss" })
	if loss < 0 {
		return nil, fmt.Errorf("%s: the network has no kernel makeLoss, which ends the forward pass", file)
	}
	c := g10Converter{g: g, loss: loss, storage: make([]workloads.StorageID, len(g.Tensors)), names: workloads.NewNames()}
	c.lives()
	b := workloads.NewBuilder(c.names, c.residents())
	c.b = b
	c.declareLocals()

	b.Grow(len(g.Kernels))
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	b.Mark(workloads.MarkForwardBegin, 1, 0)
	for i := range g.Kernels {
		op := workloads.OpSpec{
			Name:   c.names.ID(g.Kernels[i].Type),
			Kernel: workloads.Kernel{Work: hw.Work{Kind: hw.Measured, Family: family(g.Kernels[i].Type), Time: times[i], Faulting: faulting[i]}},
		}
		if scratch != nil {
			op.Scratch = scratch[i]
		}
		c.kernel(i, op)
		if i == loss {
			b.Mark(workloads.MarkForwardEnd, 1, 0)
			b.Mark(workloads.MarkBackwardBegin, 1, 0)
		}
	}
	b.Mark(workloads.MarkBackwardEnd, 1, 0)
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	p, err := b.Program(kindTrain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	rep.note(Inferred, file, "%d tensors that the forward pass leaves to the backward pass count as saved by autograd", c.saved)
	rep.note(Inferred, file, "kernel families, from the names of the kernels")
	rank := workloads.Rank{Devices: []int{0}, Residents: p.Storages[:p.Residents:p.Residents]}
	return native.NewTrace(name, 0, c.names, []workloads.Rank{rank}, [][]*workloads.Program{{p}}), nil
}

// g10Converter writes the program of a graph.
type g10Converter struct {
	g       *g10.Graph
	loss    int // the kernel that ends the forward pass
	names   *workloads.Names
	b       *workloads.Builder
	storage []workloads.StorageID // of each tensor
	saved   int                   // tensors held for the backward pass

	// lastForward, firstBackward and last are, for each tensor, the kernels
	// that touch it last in the forward pass, first in the backward pass, and
	// last of all; -1 = none.
	lastForward, firstBackward, last []int
}

// lives fills lastForward, firstBackward and last.
func (c *g10Converter) lives() {
	c.lastForward = slices.Repeat([]int{-1}, len(c.g.Tensors))
	c.firstBackward = slices.Clone(c.lastForward)
	c.last = slices.Clone(c.lastForward)
	for i, k := range c.g.Kernels {
		for _, t := range slices.Concat(k.In, k.Out) {
			c.last[t] = i
			switch {
			case i <= c.loss:
				c.lastForward[t] = i
			case c.firstBackward[t] < 0:
				c.firstBackward[t] = i
			}
		}
	}
}

// residents makes storages of the global tensors and numbers them.
func (c *g10Converter) residents() []workloads.Storage {
	var list []workloads.Storage
	for i, t := range c.g.Tensors {
		if t.Global {
			c.storage[i] = workloads.StorageID(len(list))
			list = append(list, workloads.Storage{
				Bytes: t.Bytes, Shape: t.Shape, DType: workloads.FP32,
				Class: workloads.Parameter, Label: c.names.ID("global"),
			})
		}
	}
	return list
}

// declareLocals makes storages of the local tensors, in their order.
func (c *g10Converter) declareLocals() {
	for i, t := range c.g.Tensors {
		if t.Global {
			continue
		}
		s := workloads.Storage{Bytes: t.Bytes, Shape: t.Shape, DType: workloads.FP32}
		if maker := c.g.Kernels[t.Birth]; maker.Writes(int32(i)) {
			s.Label = c.names.ID("output of " + maker.Type)
		} else {
			s.Class = workloads.Input
			s.Label = c.names.ID("input")
		}
		c.storage[i] = c.b.New(s)
	}
}

// kernel writes kernel i with what happens to its tensors before and after.
func (c *g10Converter) kernel(i int, op workloads.OpSpec) {
	k := &c.g.Kernels[i]
	touched := slices.Clone(k.In)
	for _, t := range k.Out {
		if !k.Reads(t) {
			touched = append(touched, t)
		}
	}
	var args []workloads.Arg
	for _, t := range touched {
		switch s := c.storage[t]; {
		case c.isBorn(t, i):
			args = append(args, workloads.Out(s))
		case k.Reads(t) && k.Writes(t):
			args = append(args, workloads.InPlace(s))
		case k.Reads(t):
			args = append(args, workloads.In(s))
		default:
			args = append(args, workloads.Out(s))
		}
		if c.isSaved(t) && i == c.firstBackward[t] {
			c.b.Unpack(c.storage[t])
		}
	}
	c.b.Op(op, args...)
	for _, t := range touched {
		if c.g.Tensors[t].Global {
			continue
		}
		if c.isSaved(t) {
			if c.isBorn(t, i) {
				c.saved++
				c.b.Save(c.storage[t])
			}
			if i == c.lastForward[t] {
				c.b.Drop(c.storage[t])
			}
		}
		if i == c.last[t] {
			c.b.Drop(c.storage[t])
		}
	}
}

// isBorn says whether kernel i is the first to touch local tensor t.
func (c *g10Converter) isBorn(t int32, i int) bool {
	ten := &c.g.Tensors[t]
	return !ten.Global && int(ten.Birth) == i
}

// isSaved says whether the forward pass makes local tensor t and the backward
// pass touches it. What makeLoss makes is a gradient, not a saved tensor.
func (c *g10Converter) isSaved(t int32) bool {
	ten := &c.g.Tensors[t]
	return !ten.Global && int(ten.Birth) < c.loss && c.firstBackward[t] >= 0
}

// family sorts a kernel by its name. Measured times stand whatever the family;
// it matters for the slow-down beside collectives only.
func family(kernel string) hw.Family {
	op, pass, _ := strings.Cut(kernel, "_")
	backward := strings.HasPrefix(pass, "Backward")
	switch {
	case strings.Contains(kernel, "Apply_Grad"):
		return hw.OptimizerStep
	case op == "Linear" || op == "BatchMatMul" || strings.HasPrefix(op, "Conv"):
		return hw.MatMul
	case op == "SoftmaxBasic" || op == "makeLoss":
		return hw.Softmax
	case op == "Sum":
		return hw.Reduction
	case op == "GatherV2" && backward:
		return hw.EmbeddingGrad
	case op == "GatherV2":
		return hw.Embedding
	case (op == "ReLU" || op == "Tanh") && backward:
		return hw.ActivationGrad
	case op == "ReLU" || op == "Tanh":
		return hw.ActivationFn
	case strings.HasPrefix(op, "BatchNorm") && backward:
		return hw.NormGrad
	case strings.HasPrefix(op, "BatchNorm"):
		return hw.Norm
	}
	return hw.Elementwise
}
