package trace_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"smartswap/formats/formatstest"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
	"smartswap/workloads/workloadstest"
)

const smallET = "../../formats/et/testdata/flat.json"

// listing is the operators of a program with their arguments.
func listing(p *workloads.Program) (all []string) {
	for _, in := range p.Instrs {
		switch in.Kind {
		case workloads.Op:
			s := p.Names.String(in.Name)
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				s += fmt.Sprintf(" %c%d", "rwu"[a.Mode], a.Storage)
			}
			all = append(all, s)
		case workloads.Drop:
			all = append(all, fmt.Sprintf("drop %d", in.A))
		case workloads.Mark:
			if in.Mark == workloads.MarkBackwardBegin {
				all = append(all, "backward")
			}
		}
	}
	return all
}

// mm reads what was there before and makes storage 19 with the help of a
// workspace, whose label 17 comes back as another storage; t makes a view; the
// second mm belongs to the backward pass.
func TestSmallET(t *testing.T) {
	w, rep := open(t, smallET, trace.Options{})
	p := program(t, w)
	want := []string{
		"aten::empty w2", "drop 2", "aten::mm r0 r1 w3", "aten::cat r3 r0 w4",
		"backward", "aten::mm r4 r3 w5", "drop 3", "drop 3", "drop 4", "drop 4", "drop 5",
	}
	if got := listing(p); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
	sizes := []sim.Bytes{256, 512, 8, 128, 384, 192}
	for i, s := range p.Storages {
		if s.Bytes != sizes[i] {
			t.Errorf("storage %d: %d bytes", i, s.Bytes)
		}
	}
	if p.Residents != 2 || count(p, workloads.Save) != 2 || count(p, workloads.Unpack) != 2 {
		t.Errorf("%d residents", p.Residents)
	}
	// 64 x 128 x 32 elements: sqrt(2^18) = 512 multiplications.
	if k := p.Kernels[p.Instrs[5].Kernel]; k.Kind != hw.Modelled || k.Flops != 1024 || k.Traffic != 896 || k.Family != hw.MatMul {
		t.Errorf("%+v", k)
	}
	for _, want := range []string{"times: the graph has none", "lower bounds", "2 tensors"} {
		if !strings.Contains(fmt.Sprint(rep.Notes), want) {
			t.Errorf("no note %q in %v", want, rep.Notes)
		}
	}
	workloadstest.Conformance(t, 2, func() workloads.Workload {
		w, _ := open(t, smallET, trace.Options{})
		return w
	})
}

// A trace of the small graph's run: by ids, and by order where they disagree.
func TestSmallPair(t *testing.T) {
	for name, shift := range map[string]int{"ids": 0, "order": 1000} {
		path := filepath.Join(t.TempDir(), "kineto.json")
		var text strings.Builder
		text.WriteString(`{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"aten::before","pid":1,"tid":1,"ts":0,"dur":1,"args":{"External id":1}}`)
		at := 10
		op := func(tid, rf int, name string, dur, kernel int) {
			fmt.Fprintf(&text, `,{"ph":"X","cat":"cpu_op","name":%q,"pid":1,"tid":%d,"ts":%d,"dur":%d,"args":{"External id":%d}}`, name, tid, at, dur, rf+shift)
			if kernel > 0 {
				fmt.Fprintf(&text, `,{"ph":"X","cat":"cuda_runtime","name":"launch","pid":1,"tid":%d,"ts":%d.5,"dur":0.1,"args":{"correlation":%d}}`, tid, at+dur-1, at)
				fmt.Fprintf(&text, `,{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":%d,"args":{"device":0,"stream":7,"correlation":%d}}`, at+5, kernel, at)
			}
			at++
		}
		op(1, 2, "forward", 50, 0)
		op(1, 6, "aten::mm", 5, 100)
		op(1, 7, "aten::empty", 1, 0)
		at += 10
		op(1, 8, "aten::t", 1, 0)
		op(1, 9, "aten::cat", 1, 20)
		op(1, 10, "aten::ones", 1, 0)
		at = 100
		op(2, 11, "autograd::engine::evaluate_function: MmBackward0", 50, 0)
		op(2, 12, "aten::mm", 5, 300)
		text.WriteString("]}")
		write(t, path, text.String())
		w, rep := open(t, smallET, trace.Options{Kineto: path})
		p := program(t, w)
		if got := busy(p); got != 420*sim.Microsecond {
			t.Errorf("%s: busy %d ps", name, got)
		}
		if !strings.Contains(fmt.Sprint(rep.Notes), map[string]string{"ids": "by record-function ids", "order": "by the order of names"}[name]) {
			t.Errorf("%s: %v", name, rep.Notes)
		}
		if got := listing(p); len(got) != 11 {
			t.Errorf("%s: %q", name, got)
		}
	}
	_, _, err := trace.Open(smallET, trace.Options{Kineto: smallKineto})
	if err == nil || !strings.Contains(err.Error(), "7 of 8 nodes have no partner") && !strings.Contains(err.Error(), "8 of 8 nodes have no partner") {
		t.Errorf("error %v", err)
	}
}

// Every published graph becomes a valid workload, and the pairs that belong
// together take the time of their kernels.
func TestRealET(t *testing.T) {
	for _, c := range []struct {
		path, member, kineto, kinetoMember string
		least                              float64 // of the kernels' time in the trace
	}{
		{path: "param/linear_et.json.gz"},
		{path: "param/resnet_et.json.gz"},
		{path: "param/1.0.3-chakra.0.0.4__resnet_1gpu_et.json.gz"},
		{path: "param/1.1.0-chakra.0.0.4__resnet_2gpu_et.json.gz"},
		{path: "param/resnet_1gpu_et.json.tar.gz"},
		{path: "param/pt2_et.json.tar.gz"},
		{path: "param/dlrm_pytorch_et.tar.gz", member: "dlrm_pytorch_et/dlrm_eg_0.json"},
		{path: "hta/benchmark_simple_add_et.json.gz"},
		{path: "hta/benchmark_simple_add_et.json.gz", kineto: "hta/benchmark_simple_add_trace.json.gz", least: 0.999},
		{path: "param/linear_et.json.gz", kineto: "param/linear_kineto.json.gz", least: 1.0 / 60},
		{path: "param/dlrm_pytorch_et.tar.gz", member: "dlrm_pytorch_et/dlrm_eg_0.json", kineto: "param/dlrm_kineto.tar.gz",
			kinetoMember: "dlrm_kineto/worker0_step_12.1694128201545.pt.trace.json", least: 0.9},
	} {
		opt := trace.Options{Member: c.member, KinetoMember: c.kinetoMember}
		if c.kineto != "" {
			opt.Kineto = formatstest.Shared(t, "execution-trace", c.kineto)
		}
		w, rep, err := trace.Open(formatstest.Shared(t, "execution-trace", c.path), opt)
		if err != nil {
			t.Error(err)
			continue
		}
		p := program(t, w)
		if err := workloadstest.Races(p); err != nil {
			t.Errorf("%s: %v", c.path, err)
		}
		if c.kineto == "" {
			if busy(p) != 0 || !strings.Contains(fmt.Sprint(rep.Notes), "times: the graph has none") {
				t.Errorf("%s: times from nowhere", c.path)
			}
			continue
		}
		alone, _ := open(t, opt.Kineto, trace.Options{Member: c.kinetoMember})
		ratio := float64(busy(p)) / float64(busy(program(t, alone)))
		if ratio < c.least || ratio > 1 {
			t.Errorf("%s: %g of the time of the trace", c.path, ratio)
		}
		t.Logf("%s: %d operators, %d storages, peak %d, busy %v: %.4f of the trace", c.path, p.Ops, len(p.Storages), workloads.PeakLive(p, 1), busy(p), ratio)
	}
	// This graph is of a distributed run, its trace of another on one device:
	// operators of one are absent from the other.
	resnet := trace.Options{Kineto: formatstest.Shared(t, "execution-trace", "param/resnet_kineto.json.gz")}
	_, _, err := trace.Open(formatstest.Shared(t, "execution-trace", "param/resnet_et.json.gz"), resnet)
	if err == nil || !strings.Contains(err.Error(), "nodes have no partner in") || !strings.Contains(err.Error(), "such as 3 4 5") {
		t.Errorf("error %v", err)
	}
	w, _ := open(t, formatstest.Shared(t, "execution-trace", "param/resnet_et.json.gz"), trace.Options{Step: "7"})
	if p := program(t, w); p.Ops < 1000 || p.Ops > 2000 {
		t.Errorf("one of three steps has %d operators", p.Ops)
	}
}
