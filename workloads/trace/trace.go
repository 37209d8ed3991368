package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"smartswap/formats/native"
	"smartswap/workloads"
)

// Options help Open where a path does not say everything. The zero value is
// right for native files and for G10 kernel-time files in their usual place.
type Options struct {
	// Network and Batch choose a workload when the path is a folder that is
	// laid out as G10's; see openG10. Batch alone overrides the batch size that
	// the name of a kernel-time file tells.
	Network string
	Batch   int
	// Net is the network text that belongs to a G10 kernel-time file, Scratch
	// the file with its kernels' workspaces.
	Net, Scratch string
	// Globals is the border of the ids in the network text below which tensors
	// outlive an iteration; 0 = that of the published BERT text.
	Globals int
}

// Kind says what a Note is about.
type Kind uint8

// Kinds of notes.
const (
	Skipped  Kind = iota // in the file, but not in the workload
	Repaired             // was wrong in the file, and safe to put right
	Inferred             // not in the file, but needed
)

// String is the kind as tables show it.
func (k Kind) String() string {
	switch k {
	case Skipped:
		return "skipped"
	case Repaired:
		return "repaired"
	case Inferred:
		return "inferred"
	}
	return "unknown"
}

// Note is one thing that a workload has from somewhere else than the file, or
// the reverse.
type Note struct {
	Kind  Kind
	Where string // file, or file:line
	What  string
}

// String is the note in one line.
func (n Note) String() string { return n.Where + ": " + n.Kind.String() + ": " + n.What }

// Report tells how a file became a workload.
type Report struct {
	Format string   // "native", "g10"
	Files  []string // that were read, the main one first
	Notes  []Note
}

func (r *Report) note(kind Kind, where, format string, args ...any) {
	r.Notes = append(r.Notes, Note{Kind: kind, Where: where, What: fmt.Sprintf(format, args...)})
}

// Open reads the workload at path: a native file, a G10 kernel-time file
// (".../traces/BERT_Base/cudnn256.txt"), or a folder laid out as G10's together
// with Options.Network and Options.Batch. Files may be packed with gzip,
// whatever their name. An error is one line that says which file, and where it
// can the line, what is wrong and what is allowed.
func Open(path string, opt Options) (workloads.Workload, Report, error) {
	var rep Report
	info, err := os.Stat(path)
	if err != nil {
		return nil, rep, err
	}
	if info.IsDir() {
		if path, err = timesIn(path, opt); err != nil {
			return nil, rep, err
		}
	}
	format := ""
	err = readFile(&rep, path, func(r io.Reader) error {
		start, err := bufio.NewReader(r).Peek(64)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", path, err)
		}
		format = sniff(start)
		return nil
	})
	if err != nil {
		return nil, rep, err
	}
	rep = Report{Format: format} // files were only sniffed at
	var w workloads.Workload
	switch format {
	case "native":
		err = readFile(&rep, path, func(r io.Reader) (err error) {
			w, err = native.Read(r, path)
			return err
		})
	case "g10":
		w, err = openG10(&rep, path, opt)
	default:
		err = fmt.Errorf("%s:1: unknown format; allowed: a native trace (begins with \"smartswap-trace\"), kernel times of G10 (begins with a line such as \"0000 2.5 ms\")", path)
	}
	if err != nil {
		return nil, rep, err
	}
	return w, rep, nil
}

// sniff tells a format by the first bytes of a file; "" if it is unknown.
func sniff(start []byte) string {
	line, _, _ := bytes.Cut(start, []byte("\n"))
	if bytes.HasPrefix(line, []byte("smartswap-trace ")) {
		return "native"
	}
	var number int
	var value, unit string
	if n, _ := fmt.Sscanf(string(line), "%d %s %s", &number, &value, &unit); n == 3 && number == 0 && unit == "ms" {
		return "g10"
	}
	return ""
}

// readFile opens a file, unpacks it if it is packed, and hands it to read.
func readFile(rep *Report, path string, read func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	rep.Files = append(rep.Files, path)
	in := bufio.NewReader(f)
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return read(in)
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return read(z)
}

// Export writes the first n iterations of a workload as a native file, packed
// if the path ends in ".gz". The file appears whole or not at all.
func Export(path string, w workloads.Workload, n int) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	var out io.Writer = f
	var z *gzip.Writer
	if strings.HasSuffix(path, ".gz") {
		z = gzip.NewWriter(f)
		out = z
	}
	if err := native.Write(out, w, n); err != nil {
		return err
	}
	if z != nil {
		if err := z.Close(); err != nil {
			return err
		}
	}
	if err := f.Chmod(0o644); err != nil { // CreateTemp's files are private
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
