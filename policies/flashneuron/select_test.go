package flashneuron

import (
	"reflect"
	"slices"
	"testing"

	"smartswap/policies"
	"smartswap/sim"
)

func kernel(in, out []int32) policies.NominalKernel {
	return policies.NominalKernel{Span: sim.Millisecond, In: in, Out: out}
}

func ids(n ...int32) []int32 { return n }

// net is a global of 5 bytes (tensor 0), a loss in kernel 4 and locals
//
//	1  10 bytes, kernels 0, 1, 8: leaves at 2
//	2  20 bytes, kernels 1, 3, 7: leaves at 4
//	3  30 bytes, kernels 2, 3, 4, 5: used without a gap, cannot leave
//	4  40 bytes, kernels 2, 4, 6: one period ends at the loss, the next begins behind it; leaves at 3
//	5   7 bytes, kernels 0, 3: dead before the loss
//	6   9 bytes, kernels 4, 8: begins with the loss
func net() *policies.Nominal {
	p := &policies.Nominal{Loss: 4, Kernels: []policies.NominalKernel{
		kernel(ids(0), ids(1, 5)), kernel(ids(1), ids(2)), kernel(nil, ids(3, 4)), kernel(ids(2, 3, 5), nil), kernel(ids(3, 4), ids(6)),
		kernel(ids(3), nil), kernel(ids(4), nil), kernel(ids(2), nil), kernel(ids(1, 6), nil),
	}}
	p.Tensors = []policies.NominalTensor{
		{Bytes: 5, Global: true}, {Bytes: 10, Death: 9}, {Bytes: 20, Birth: 1, Death: 8}, {Bytes: 30, Birth: 2, Death: 6},
		{Bytes: 40, Birth: 2, Death: 7}, {Bytes: 7, Death: 4}, {Bytes: 9, Birth: 4, Death: 9},
	}
	return p
}

func TestSelect(t *testing.T) {
	// The largest working set is kernel 4 with 79 bytes, the globals have 5.
	for _, c := range []struct {
		name string
		gpu  sim.Bytes
		out  []Leave
		left sim.Bytes
		fits bool
	}{
		{"everything stays", 184, nil, 100, true},
		{"one byte short", 183, []Leave{{1, 2}}, 90, true},
		{"two must go", 173, []Leave{{1, 2}, {2, 4}}, 70, true},
		{"one that cannot leave is passed over", 153, []Leave{{1, 2}, {2, 4}, {4, 3}}, 30, true},
		{"it does not fit", 113, []Leave{{1, 2}, {2, 4}, {4, 3}}, 30, false},
		{"not even a working set fits", 80, []Leave{{1, 2}, {2, 4}, {4, 3}}, 30, false},
	} {
		got := Select(net(), c.gpu)
		if got.Budget != c.gpu-84 || !slices.Equal(got.Candidates, ids(1, 2, 3, 4)) || !reflect.DeepEqual(got.Offloaded, c.out) || got.Left != c.left || got.Fits != c.fits {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	p := net()
	p.Loss = -1
	if got := Select(p, 100); len(got.Candidates) != 0 {
		t.Errorf("without a loss: candidates %v", got.Candidates)
	}
}

// TestDuplicates: a tensor that a kernel updates in place counts once.
func TestDuplicates(t *testing.T) {
	p := &policies.Nominal{Loss: 0, Kernels: []policies.NominalKernel{kernel(ids(0, 2), ids(1, 2))}, Tensors: []policies.NominalTensor{{Bytes: 1, Death: 1}, {Bytes: 2, Death: 1}, {Bytes: 4, Death: 1}}}
	if got := Select(p, 10); got.Budget != 3 {
		t.Errorf("budget %d, want 10 - 7", got.Budget)
	}
}

type stub struct {
	policies.Runtime
	nominal *policies.Nominal
	gpu     sim.Bytes
	armed   []*policies.Plan
	charged sim.Time
}

func (s *stub) Nominal() *policies.Nominal { return s.nominal }
func (s *stub) Capacity() sim.Bytes        { return s.gpu }
func (s *stub) Charge(c sim.Time)          { s.charged += c }
func (s *stub) Arm(p *policies.Plan) error { s.armed = append(s.armed, p); return nil }

func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		name   string
		s      stub
		params policies.Params
		event  string
		hints  []policies.Action
	}{
		{"by capacity", stub{nominal: net(), gpu: 183}, nil, "planned", (&Choice{Offloaded: []Leave{{1, 2}}}).Hints()},
		{"by option", stub{nominal: net(), gpu: 1000}, policies.Params{"gpu_bytes": int64(183)}, "planned", (&Choice{Offloaded: []Leave{{1, 2}}}).Hints()},
		{"does not fit", stub{nominal: net(), gpu: 90}, nil, "no plan", nil},
		{"no program", stub{}, nil, "no plan", nil},
	} {
		p, err := Registration().New(c.params)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			p.Handle(&policies.Event{Kind: policies.BeforeOp}, &c.s)
		}
		notes := p.(policies.Reporter).Notes()
		if len(notes) != 1 || notes[0].Event != c.event || (notes[0].Error == "") != (c.event == "planned") {
			t.Errorf("%s: notes %+v", c.name, notes)
		}
		switch {
		case c.hints == nil && len(c.s.armed) != 0:
			t.Errorf("%s: armed %+v", c.name, c.s.armed[0])
		case c.hints != nil && (len(c.s.armed) != 1 || !slices.Equal(c.s.armed[0].Hints, c.hints)):
			t.Errorf("%s: armed %+v", c.name, c.s.armed)
		case c.hints != nil && c.s.charged != chooseFixed+9*choosePerKernel+7*choosePerTensor:
			t.Errorf("%s: charged %v", c.name, c.s.charged)
		}
	}
	h := (&Choice{Offloaded: []Leave{{1, 2}}}).Hints()[0]
	if h.Kind != policies.Evict || h.To != policies.SSDTier || h.What.Kind != policies.ByStatic || h.What.Static != 1 || h.Start.Kind != policies.AtOp || h.Start.N != 2 {
		t.Errorf("hint %+v", h)
	}
}
