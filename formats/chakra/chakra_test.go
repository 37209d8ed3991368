package chakra

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"smartswap/formats/et"
	"smartswap/formats/formatstest"
	"smartswap/formats/notes"
	"smartswap/sim"
)

func small(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/small.json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSmall(t *testing.T) {
	var list notes.List
	g, err := ReadJSON(bytes.NewReader(small(t)), "f", &list)
	if err != nil {
		t.Fatal(err)
	}
	us := sim.Microsecond
	want := []Node{
		{ID: 5, Name: "aten::mm(0)", Type: Compute, Time: 20 * us, HasTime: true, OnHost: true, Line: 2},
		{ID: 6, Name: "gemm", Type: Compute, Data: []int64{5}, Time: 300 * us, HasTime: true, Line: 3},
		{ID: 7, Name: "ncclAllReduce", Type: Collective, Control: []int64{5}, Data: []int64{6}, Time: 50500 * sim.Nanosecond, HasTime: true, CommSize: 4096, Line: 4},
		{ID: 8, Name: "add", Type: Compute, Data: []int64{7}, Time: 10 * us, HasTime: true, Line: 5},
		{ID: 4, Name: "aten::add(0)", Type: Compute, Data: []int64{7}, Line: 6},
	}
	if d := cmp.Diff(want, g.Nodes, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	if fmt.Sprint(g.Order()) != "[0 1 2 4 3]" { // 4 before 8: the smaller id
		t.Error(g.Order())
	}
	if n := fmt.Sprint(list.All()); n != "[f: skipped: 1 dependencies on nodes that are not in the file, such as 3]" {
		t.Error(n)
	}
}

// encode writes nodes in the protobuf form, plainly.
func encode(nodes []Node) []byte {
	var out []byte
	number := func(m []byte, field, v uint64) []byte {
		return binary.AppendUvarint(binary.AppendUvarint(m, field<<3|wireVarint), v)
	}
	text := func(m []byte, field uint64, s []byte) []byte {
		m = binary.AppendUvarint(binary.AppendUvarint(m, field<<3|wireBytes), uint64(len(s)))
		return append(m, s...)
	}
	message := func(m []byte) { out = append(binary.AppendUvarint(out, uint64(len(m))), m...) }
	message(text(nil, 2, text(text(nil, 1, []byte("schema")), 29, []byte("1.0.1"))))
	for _, n := range nodes {
		m := number(nil, 1, uint64(n.ID))
		m = text(m, 2, []byte(n.Name))
		m = number(m, 3, uint64(n.Type))
		for i, ids := range [][]int64{n.Control, n.Data} {
			var packed []byte
			for _, id := range ids {
				packed = binary.AppendUvarint(packed, uint64(id))
			}
			if len(packed) > 0 {
				m = text(m, uint64(4+i), packed)
			}
		}
		if n.HasTime {
			m = number(m, 7, uint64(n.Time/sim.Microsecond))
		}
		if n.OnHost {
			m = text(m, 10, number(text(nil, 1, []byte("is_cpu_op")), 27, 1))
		}
		// A field that nobody knows.
		m = append(binary.AppendUvarint(m, 50<<3|wire32), 1, 2, 3, 4)
		message(m)
	}
	return out
}

// What is encoded comes back, and the order respects every dependency.
func TestProto(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 12).Draw(t, "count")
		ids := rapid.Permutation([]int64{1, 2, 3, 4, 5, 60, 70, 800, 9000, 10, 11, 12}).Draw(t, "ids")
		nodes := make([]Node, count)
		for i := range nodes {
			n := &nodes[i]
			*n = Node{ID: ids[i], Name: rapid.SampledFrom([]string{"", "aten::mm"}).Draw(t, "name"), Type: Type(rapid.IntRange(0, int(numTypes)-1).Draw(t, "type")), Line: i + 2}
			n.OnHost = rapid.Bool().Draw(t, "host")
			if n.HasTime = rapid.Bool().Draw(t, "timed"); n.HasTime {
				n.Time = sim.Time(rapid.Int64Range(0, maxTime).Draw(t, "time")) * sim.Microsecond
			}
			for j := range i {
				switch rapid.IntRange(0, 3).Draw(t, "edge") {
				case 0:
					n.Control = append(n.Control, ids[j])
				case 1:
					n.Data = append(n.Data, ids[j])
				}
			}
		}
		g, err := ReadProto(bytes.NewReader(encode(nodes)), "f", nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(nodes, g.Nodes, cmpopts.EquateEmpty()); d != "" || g.Schema != "1.0.1" {
			t.Fatal(d)
		}
		place := map[int64]int{}
		for at, i := range g.Order() {
			place[g.Nodes[i].ID] = at
		}
		for _, n := range g.Nodes {
			for _, dep := range slices.Concat(n.Control, n.Data) {
				if place[dep] >= place[n.ID] {
					t.Fatalf("%d comes before %d", n.ID, dep)
				}
			}
		}
	})
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "f:1: the file ends inside a value",
		"{}":                       "no nodes under \"workload_graph\"",
		`{"workload_graph": [{}]}`: "a node without an id",
		`{"workload_graph": [{"Id": 1}, {"Id": 2},` + "\n" + `{"Id": 1}]}`:                                            "f:2: node 1 is also at 1",
		`{"workload_graph": [{"Id": 1, "data_deps": [2]}, {"Id": 2, "data_deps": [3]}, {"Id": 3, "data_deps": [1]}]}`: "f: nodes depend on each other in a cycle: 1 2 3",
		`{"workload_graph": [{"Id": 1, "data_deps": [1]}]}`:                                                           "in a cycle: 1",
		`{"workload_graph": [{"Id": -1}]}`:                                                                            "value \"-1\"",
		`{"workload_graph": [{"Id": 1, "NodeType": 8}]}`:                                                              "value \"8\"; allowed: a whole number from 0 to 7",
		`{"workload_graph": [{"Id": 1, "runtime": "x"}]}`:                                                             "run time \"x\"",
	} {
		_, err := ReadJSON(strings.NewReader(text), "f", nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v; want %q", text, err, want)
		}
	}
	whole := encode([]Node{{ID: 1, Name: "aten::mm", Type: Compute}})
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"empty":       {nil, "f: message 1: the file ends"},
		"no nodes":    {encode(nil), "f: no nodes after the metadata"},
		"cut":         {whole[:len(whole)-3], "f: message 2: the file ends inside it"},
		"huge":        {[]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, "f: message 1: 4294967295 bytes"},
		"no tag":      {[]byte{1, 0}, "f: message 1: damaged field"},
		"wire type":   {[]byte{1, 1<<3 | 3}, "field 1: wire type 3"},
		"length":      {[]byte{2, 1<<3 | 2, 5}, "field 1: 5 bytes, but 0 are left"},
		"no id":       {append(encode(nil), 0), "message 2: a node without an id"},
		"type":        {encode([]Node{{ID: 1, Type: 99}}), "message 2: type 99"},
		"cycle":       {encode([]Node{{ID: 1, Data: []int64{2}}, {ID: 2, Data: []int64{1}}}), "in a cycle: 1 2"},
		"many cycles": {encode([]Node{{ID: 1, Data: []int64{2}}, {ID: 2, Data: []int64{3}}, {ID: 3, Data: []int64{2}}}), "in a cycle: 2 3"},
	} {
		_, err := ReadProto(bytes.NewReader(c.text), "f", nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
}

// Control dependencies that go against data dependencies are given up.
func TestContradiction(t *testing.T) {
	var list notes.List
	g, err := ReadJSON(strings.NewReader(`{"workload_graph": [{"Id": 1, "ctrl_deps": [2]}, {"Id": 2, "data_deps": [1]}]}`), "f", &list)
	if err != nil || fmt.Sprint(g.Order()) != "[0 1]" || !strings.Contains(fmt.Sprint(list.All()), "contradict data dependencies, as of nodes 1 2;") {
		t.Errorf("%v, %v", list.All(), err)
	}
}

// member opens a file in a shared archive.
func member(t *testing.T, archive, name string) io.Reader {
	t.Helper()
	f, err := os.Open(formatstest.Shared(t, "chakra", archive))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(z)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("no ", name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == name {
			return files
		}
	}
}

// Both forms of the published graph: the same nodes, without a cycle.
func TestReal(t *testing.T) {
	proto, err := ReadProto(member(t, "feeder_tests_trace.tar.gz", "tests/data/chakra.0.et"), "p", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := ReadJSON(member(t, "json_trace.tar.gz", "jsonData/chakra.0.json"), "j", nil)
	if err != nil {
		t.Fatal(err)
	}
	types := map[Type]int{}
	for i := range proto.Nodes {
		types[proto.Nodes[i].Type]++
	}
	if d := cmp.Diff(map[Type]int{Compute: 3643, Collective: 21}, types); d != "" || proto.Schema != "1.0.1" || len(proto.Nodes) != 3664 {
		t.Errorf("schema %s, %d nodes: %s", proto.Schema, len(proto.Nodes), d)
	}
	if len(proto.Order()) != 3664 || len(text.Order()) != 3664 {
		t.Error("an order without some nodes")
	}
	byID := map[int64]*Node{}
	for i := range text.Nodes {
		byID[text.Nodes[i].ID] = &text.Nodes[i]
	}
	for i := range proto.Nodes {
		a, b := &proto.Nodes[i], byID[proto.Nodes[i].ID]
		// The converter of the JSON file replaced "id" by "Id" inside names too.
		if b == nil || !strings.EqualFold(a.Name, b.Name) || a.Type != b.Type || a.Time != b.Time || a.OnHost != b.OnHost {
			t.Fatalf("%+v; JSON: %+v", a, b)
		}
	}
	small, err := ReadJSON(member(t, "json_trace.tar.gz", "jsonData/small_chakra.0.json"), "s", nil)
	if err != nil || len(small.Nodes) != 7 {
		t.Errorf("%+v, %v", small, err)
	}
	g, err := et.Read(member(t, "1.0.2-chakra.0.0.4.tgz", "1.0.2-chakra.0.0.4.json"), "e", nil)
	if err != nil {
		t.Fatal(err)
	}
	tensors, storages := map[int64]bool{}, map[int64]bool{}
	for _, n := range g.Nodes {
		for _, v := range slices.Concat(n.Inputs, n.Outputs) {
			tensors[v.ID], storages[v.Storage] = true, true
		}
	}
	if len(g.Nodes) != 263 || len(tensors) != 18 || len(storages) != 15 {
		t.Errorf("%d nodes, %d tensors, %d storages", len(g.Nodes), len(tensors), len(storages))
	}
}

func FuzzRead(f *testing.F) {
	f.Add(small(f))
	f.Add(encode([]Node{{ID: 1, Name: "a", Type: Compute}, {ID: 2, Data: []int64{1}, Control: []int64{1, 9}}}))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, read := range []func(io.Reader, string, *notes.List) (*Graph, error){ReadJSON, ReadProto} {
			g, err := read(bytes.NewReader(text), "f", nil)
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error of more than one line: %q", err)
			}
			if err == nil && len(g.Order()) != len(g.Nodes) {
				t.Errorf("%d of %d nodes in the order", len(g.Order()), len(g.Nodes))
			}
		}
	})
}

// Nodes that were written are read back, to the picosecond.
func TestWriteJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []Node
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			n := Node{ID: int64(3 * i), Name: rapid.String().Draw(t, "name"), Type: Type(rapid.IntRange(0, int(numTypes)-1).Draw(t, "type")), OnHost: rapid.Bool().Draw(t, "host"), Line: i + 2}
			if n.HasTime = rapid.Bool().Draw(t, "timed"); n.HasTime {
				n.Time = sim.Time(rapid.Int64Range(0, 5_000_000).Draw(t, "time"))
			}
			n.CommSize = rapid.Int64Range(0, 9).Draw(t, "size")
			for j := range i {
				if rapid.Bool().Draw(t, "control") {
					n.Control = append(n.Control, int64(3*j))
				}
				if rapid.Bool().Draw(t, "data") {
					n.Data = append(n.Data, int64(3*j))
				}
			}
			nodes = append(nodes, n)
		}
		var out bytes.Buffer
		if err := WriteJSON(&out, "a \"name\"", nodes); err != nil {
			t.Fatal(err)
		}
		var list notes.List
		g, err := ReadJSON(bytes.NewReader(out.Bytes()), "f", &list)
		if err != nil || len(list.All()) != 0 {
			t.Fatal(err, list.All(), out.String())
		}
		if d := cmp.Diff(nodes, g.Nodes, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}
