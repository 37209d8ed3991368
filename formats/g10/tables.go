package g10

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"smartswap/formats/internal/lines"
	"smartswap/sim"
)

// Headers of the derived tables.
const (
	kernelsHeader = "kernel,type,ideal_cycles,inputs,outputs"
	tensorsHeader = "tensor,global,bytes,birth_kernel,death_kernel"
)

// ReadTables reads a graph from its two derived tables, as CSV text. They are
// the only way to the CNNs, whose network text this package does not read.
// kernelsFile and tensorsFile are the names that errors use.
//
// Kernels: number, type, cycles (ignored: times come from ReadTimes), input and
// output tensors separated by ";". Tensors: number, 1 if global, bytes, first
// kernel, first kernel after its life (-1: lives in its first kernel only; both
// empty for globals). The lives must agree with the kernels.
func ReadTables(kernels io.Reader, kernelsFile string, tensors io.Reader, tensorsFile string) (*Graph, error) {
	g := &Graph{}
	var lives [][2]string // as written
	in := lines.New(tensors, tensorsFile)
	err := readTable(in, tensorsHeader, func(f []string) error {
		bytes, err := strconv.ParseInt(f[2], 10, 64)
		switch {
		case err != nil || bytes < 1 || bytes > int64(maxBytes) || sim.Bytes(bytes)%PageBytes != 0:
			return in.Errorf("bytes %q; allowed: a multiple of %d up to 2^44", f[2], PageBytes)
		case f[1] != "0" && f[1] != "1":
			return in.Errorf("global %q; allowed: 0, 1", f[1])
		}
		g.Tensors = append(g.Tensors, Tensor{Bytes: sim.Bytes(bytes), Global: f[1] == "1"})
		lives = append(lives, [2]string{f[3], f[4]})
		return nil
	})
	if err != nil {
		return nil, err
	}
	in = lines.New(kernels, kernelsFile)
	err = readTable(in, kernelsHeader, func(f []string) error {
		k := Kernel{Type: f[1]}
		var ok [2]bool
		k.In, ok[0] = tensorList(f[3], len(g.Tensors))
		k.Out, ok[1] = tensorList(f[4], len(g.Tensors))
		switch {
		case k.Type == "" || len(k.Type) > 100:
			return in.Errorf("type %q; allowed: a name of 1 to 100 bytes", f[1])
		case !ok[0] || !ok[1]:
			return in.Errorf("tensors %q, %q; allowed: ascending numbers below %d separated by \";\"", f[3], f[4], len(g.Tensors))
		}
		g.Kernels = append(g.Kernels, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := g.setLives(); err != nil {
		return nil, fmt.Errorf("%s: %w", kernelsFile, err)
	}
	for i, t := range g.Tensors {
		want := [2]string{strconv.Itoa(int(t.Birth)), strconv.Itoa(int(t.Death))}
		switch {
		case t.Global:
			want = [2]string{}
		case t.Death == t.Birth+1 && !g.Kernels[t.Birth].Reads(int32(i)): // nobody reads it
			want[1] = "-1"
		}
		if lives[i] != want {
			return nil, fmt.Errorf("%s:%d: tensor %d lives from %q to %q, but the kernels say %q to %q", tensorsFile, i+2, i, lives[i][0], lives[i][1], want[0], want[1])
		}
	}
	return g, nil
}

// readTable reads a header and rows that are numbered from 0.
func readTable(in *lines.Reader, header string, row func(fields []string) error) error {
	if line, ok := in.Next(); !ok || line != header {
		if err := in.Err(); err != nil {
			return err
		}
		return in.ErrorAt(1, "the table starts with %q; expected: %q", line, header)
	}
	n := 0
	for line, ok := in.Next(); ok; line, ok = in.Next() {
		f := strings.Split(line, ",")
		switch {
		case len(f) != 5:
			return in.Errorf("%d columns; allowed: 5 (%s)", len(f), header)
		case f[0] != strconv.Itoa(n):
			return in.Errorf("row number %q, but row %d comes here", f[0], n)
		case n == maxKernels:
			return in.Errorf("more than %d rows", maxKernels)
		}
		if err := row(f); err != nil {
			return err
		}
		n++
	}
	if err := in.Err(); err != nil {
		return err
	}
	if n == 0 {
		return in.ErrorAt(2, "the table has no rows")
	}
	return nil
}

// tensorList reads ascending tensor numbers below n, separated by ";".
func tensorList(s string, n int) ([]int32, bool) {
	if s == "" {
		return nil, true
	}
	var list []int32
	last := -1
	for field := range strings.SplitSeq(s, ";") {
		t, err := strconv.Atoi(field)
		if err != nil || t <= last || t >= n {
			return nil, false
		}
		list = append(list, int32(t))
		last = t
	}
	return list, true
}
