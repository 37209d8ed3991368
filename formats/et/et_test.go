package et

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"smartswap/formats/formatstest"
)

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSchemas(t *testing.T) {
	g, err := Read(bytes.NewReader(testdata(t, "flat.json")), "f", nil)
	if err != nil || g.Schema != "1.0.1" || g.Start != 69838573 || g.Finish != 69838999 || len(g.Nodes) != 10 {
		t.Fatalf("%+v, %v", g, err)
	}
	i, ok := g.Find(15)
	want := Node{
		ID: 15, Parent: 3, Name: "aten::cat", RF: 9, Thread: 1, Sequence: 6, Line: 8,
		Inputs:  []Tensor{{20, 19, 0, 32, 4, "cuda:0"}, {5, 6, 0, 64, 4, "cuda:0"}},
		Outputs: []Tensor{{21, 22, 0, 96, 4, "cuda:0"}},
	}
	if d := cmp.Diff(want, g.Nodes[i]); d != "" || !ok {
		t.Error(d)
	}
	g, err = Read(bytes.NewReader(testdata(t, "chakra.json")), "f", nil)
	wantGraph := &Graph{Schema: "1.1.1-chakra.0.0.4", Start: 387251586, Nodes: []Node{
		{ID: 1, Name: "root", Line: 9},
		{ID: 2, Parent: 1, Name: "aten::relu", RF: 3, Thread: 1, Sequence: -1, Backend: "triton", Line: 4,
			Inputs: []Tensor{{5, 6, 2, 64, 4, "cuda:0"}}, Outputs: []Tensor{{7, 8, 0, 64, 4, "cuda:0"}}},
	}}
	if d := cmp.Diff(wantGraph, g, cmpopts.IgnoreUnexported(Graph{})); d != "" || err != nil {
		t.Error(d, err)
	}
	if reach := g.Nodes[1].Inputs[0].Reach(); reach != 264 {
		t.Errorf("reach %d", reach)
	}
}

func TestRefused(t *testing.T) {
	nodes := func(list string) string { return `{"schema": "1.0.1", "nodes": [` + list + "]}" }
	node := func(id, parent int) string { return fmt.Sprintf(`{"id": %d, "name": "n", "parent": %d}`, id, parent) }
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "f:1: the file ends inside a value"},
		"no nodes":    {`{"schema": "1.0.1"}`, "f: no \"nodes\" in the file"},
		"none":        {nodes(""), "f: no \"nodes\" in the file"},
		"no name":     {nodes(`{"id": 3}`), "f:1: a node without an id"},
		"no id":       {nodes(`{"name": "n"}`), "f:1: a node without an id"},
		"twice":       {nodes(node(1, 1) + "," + node(2, 1) + ",\n" + node(2, 1)), "f:2: node 2 is also on line 1"},
		"half-linked": {nodes(node(1, 1) + "," + node(2, 1) + "," + node(3, 0) + ",\n" + node(4, 7)), "f:2: node 4 has the parent 7, which does not exist (the root is 3)"},
		"cycle":       {nodes(node(1, 1) + "," + node(2, 3) + "," + node(3, 4) + "," + node(4, 2)), "f:1: node 2 is among its own parents, by way of node 3"},
		"cut":         {nodes(node(1, 1))[:50], "f:1: the file ends inside a value"},
		"a list":      {"[1]", "f:1: '[' where an object"},
	} {
		_, err := Read(strings.NewReader(c.text), "f", nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
}

// real opens a shared graph; of an archive, the file whose name has member in it.
func real(t *testing.T, path, member string) io.Reader {
	t.Helper()
	in := formatstest.Open(t, "execution-trace", path)
	if !strings.Contains(path, ".tar.") {
		return in
	}
	files := tar.NewReader(in)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("no ", member)
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(h.Name, member) {
			return files
		}
	}
}

// Every published graph: nodes, labels of tensors and storages, and the sums of
// the storages' lower bounds by device.
func TestRealGraphs(t *testing.T) {
	type sums map[string]int64
	for _, c := range []struct {
		path, member, schema     string
		nodes, tensors, storages int
		bytes                    sums
	}{
		{"param/linear_et.json.gz", "", "1.0.1", 931, 141, 116, sums{"cuda:0": 254_980_108}},
		{"param/resnet_et.json.gz", "", "1.1.0-chakra.0.0.4", 14392, 1251, 1218, sums{"cuda:0": 3_709_922_016, "cpu": 2760}},
		{"param/1.0.3-chakra.0.0.4__resnet_1gpu_et.json.gz", "", "1.0.3-chakra.0.0.4", 14391, 1256, 1224, sums{"cuda:0": 3_700_484_832, "cpu": 2800}},
		{"param/1.1.0-chakra.0.0.4__resnet_2gpu_et.json.gz", "", "1.1.0-chakra.0.0.4", 14392, 1248, 1227, sums{"cuda:1": 3_709_922_016, "cpu": 2832}},
		{"param/resnet_1gpu_et.json.tar.gz", "resnet_1gpu_et.json", "1.1.1-chakra.0.0.4", 14392, 1250, 1314, sums{"cuda:0": 3_709_922_016, "cpu": 3528}},
		{"param/pt2_et.json.tar.gz", "pt2_et.json", "1.1.1-chakra.0.0.4", 20, 11, 9, sums{"cuda:0": 576}},
		{"param/dlrm_pytorch_et.tar.gz", "eg_0.json", "1.0.1", 1675, 283, 293, sums{"cuda:0": 5_134_421_742, "cpu": 72_124}},
		{"hta/benchmark_simple_add_et.json.gz", "", "1.0.1", 38, 11, 10, sums{"cuda:0": 1_048_576, "cpu": 83_886_104}},
	} {
		g, err := Read(real(t, c.path, c.member), c.path, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		tensors := map[int64]bool{}
		type place struct {
			device  string
			storage int64
		}
		reach := map[place]int64{}
		for i := range g.Nodes {
			for _, list := range [][]Tensor{g.Nodes[i].Inputs, g.Nodes[i].Outputs} {
				for _, v := range list {
					tensors[v.ID] = true
					at := place{v.Device, v.Storage}
					reach[at] = max(reach[at], v.Reach())
				}
			}
		}
		got := sums{}
		for at, n := range reach {
			if n > 0 {
				got[at.device] += n
			}
		}
		if len(g.Nodes) != c.nodes || len(tensors) != c.tensors || len(reach) != c.storages || g.Schema != c.schema {
			t.Errorf("%s: schema %s, %d nodes, %d tensors, %d storages", c.path, g.Schema, len(g.Nodes), len(tensors), len(reach))
		}
		if d := cmp.Diff(c.bytes, got); d != "" {
			t.Errorf("%s: %s", c.path, d)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(testdata(f, "flat.json"))
	f.Add(testdata(f, "chakra.json"))
	f.Add([]byte(`{"nodes": [{"id": 1, "name": "a", "parent": 2}, {"id": 2, "name": "b", "parent": 1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		g, err := Read(bytes.NewReader(text), "f", nil)
		if err != nil {
			return
		}
		for i := range g.Nodes { // every node leads to a root
			at, steps := i, 0
			for {
				up, ok := g.Find(g.Nodes[at].Parent)
				if !ok || up == at {
					break
				}
				if at = up; steps > len(g.Nodes) {
					t.Fatal("a cycle")
				}
				steps++
			}
		}
	})
}
