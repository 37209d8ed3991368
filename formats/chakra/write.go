package chakra

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// WriteJSON writes nodes in the JSON form, which ReadJSON reads back: times to
// the picosecond. Ids must be distinct and not negative.
func WriteJSON(w io.Writer, name string, nodes []Node) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "{\"workload_name\": %s, \"workload_graph\": [", quoted(name))
	for i := range nodes {
		n := &nodes[i]
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(out, "\n{\"Id\": %d, \"Name\": %s, \"NodeType\": %d, \"ctrl_deps\": %s, \"data_deps\": %s", n.ID, quoted(n.Name), n.Type, list(n.Control), list(n.Data))
		if n.HasTime {
			fmt.Fprintf(out, ", \"runtime\": %d.%06d", int64(n.Time)/psPerUs, int64(n.Time)%psPerUs)
		}
		fmt.Fprintf(out, ", \"is_cpu_op\": %t", n.OnHost)
		if n.CommSize > 0 {
			fmt.Fprintf(out, ", \"comm_size\": %d", n.CommSize)
		}
		out.WriteByte('}')
	}
	out.WriteString("\n]}\n")
	return out.Flush()
}

// quoted is s as JSON; bytes that are no UTF-8 become replacement characters.
func quoted(s string) []byte {
	text, _ := json.Marshal(s) // a string always can be
	return text
}

// list is ids as JSON.
func list(ids []int64) []byte {
	text := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = strconv.AppendInt(text, id, 10)
	}
	return append(text, ']')
}
