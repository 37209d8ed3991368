package chakra

import (
	"fmt"
	"io"
	"strings"

	"smartswap/formats/internal/decimal"
	"smartswap/formats/internal/jsons"
	"smartswap/formats/notes"
	"smartswap/sim"
)

// ReadJSON reads the JSON form. Keys are told by their letters alone: files
// spell ctrlDeps and data_deps side by side. Run times are microseconds.
func ReadJSON(r io.Reader, file string, list *notes.List) (*Graph, error) {
	in := jsons.New(r, file, list)
	g := &Graph{}
	found := false
	err := in.Object(func(key []byte) error {
		switch plainKey(key) {
		case "workloadgraph":
			found = true
			return in.Array(func() error {
				if len(g.Nodes) == maxNodes {
					return in.Errorf("more than %d nodes", maxNodes)
				}
				n, err := readNode(in)
				g.Nodes = append(g.Nodes, n)
				return err
			})
		case "schema":
			s, err := in.Text()
			g.Schema = string(s)
			return err
		}
		return in.Skip()
	})
	if err != nil {
		return nil, err
	}
	if !found || len(g.Nodes) == 0 {
		return nil, fmt.Errorf("%s: no nodes under \"workload_graph\"; it is no Chakra trace", file)
	}
	return g, g.link(file, list)
}

// plainKey is a key without case and underlines.
func plainKey(key []byte) string { return strings.ReplaceAll(strings.ToLower(string(key)), "_", "") }

func readNode(in *jsons.Reader) (Node, error) {
	n := Node{ID: -1, Line: in.Line()}
	whole := func(limit int64) (int64, error) {
		s, err := in.Text()
		if err != nil {
			return 0, err
		}
		v, exact, ok := decimal.Parse(s, 1)
		if !ok || !exact || v < 0 || v > limit {
			return 0, in.Errorf("value %q; allowed: a whole number from 0 to %d", s, limit)
		}
		return v, nil
	}
	ids := func(to *[]int64) error {
		return in.Array(func() error {
			if len(*to) == maxDeps {
				return in.Errorf("more than %d dependencies of a node", maxDeps)
			}
			v, err := whole(1 << 62)
			*to = append(*to, v)
			return err
		})
	}
	err := in.Object(func(key []byte) (err error) {
		switch plainKey(key) {
		case "id":
			n.ID, err = whole(1 << 62)
		case "name":
			var s []byte
			s, err = in.Text()
			n.Name = string(s)
		case "nodetype", "type":
			var v int64
			v, err = whole(int64(numTypes) - 1)
			n.Type = Type(v)
		case "ctrldeps":
			err = ids(&n.Control)
		case "datadeps":
			err = ids(&n.Data)
		case "runtime", "durationmicros":
			var s []byte
			if s, err = in.Text(); err == nil {
				v, _, ok := decimal.Parse(s, psPerUs)
				if !ok || v < 0 || v > maxTime*psPerUs {
					return in.Errorf("run time %q; allowed: microseconds from 0 to %d", s, int64(maxTime))
				}
				n.Time, n.HasTime = sim.Time(v), true
			}
		case "iscpuop":
			var s []byte
			s, err = in.Text()
			n.OnHost = string(s) == "true" || string(s) == "1"
		case "commsize":
			n.CommSize, err = whole(1 << 50)
		default:
			err = in.Skip()
		}
		return err
	})
	if err == nil && n.ID < 0 {
		err = in.Errorf("a node without an id")
	}
	return n, err
}
