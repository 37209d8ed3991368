package trace

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"smartswap/formats/native"
	"smartswap/formats/notes"
	"smartswap/internal/paths"
	"smartswap/workloads"
)

// Options help Open where a path does not say everything. The zero value is
// right for files that are complete in themselves or lie in their usual place.
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
	// Member is the file to read of an archive that holds several.
	Member string
	// Kineto is the profiler's trace that belongs to an ExecutionTrace, of the
	// same run; KinetoMember the file of it if it is an archive of several.
	Kineto, KinetoMember string
	// Step chooses one profiled step of a recording of several; "" = all of it,
	// as one iteration.
	Step string
	// NoGaps leaves out the time that the recorded host took: the device then
	// waits for the simulated host alone.
	NoGaps bool
}

// Kind says what a Note is about; see package notes.
type Kind = notes.Kind

// Kinds of notes.
const (
	Skipped  = notes.Skipped
	Repaired = notes.Repaired
	Inferred = notes.Inferred
)

// Note is one thing that a workload has from somewhere else than the file, or
// the reverse.
type Note = notes.Note

// Report tells how a file became a workload.
type Report struct {
	Format string   // native, g10, ascend, dtr, chrome, et, chakra or aceso
	Files  []string // that were read, the main one first
	Notes  []Note
	// Streams are those of the device that computes, where the recording tells
	// when its kernels started: profiles of torch_npu, traces of Kineto and graphs
	// that are paired with one. nil = it does not tell.
	Streams []Stream
	// KindFrom is what the kind of the programs, "train" or "inference", was told
	// by. "" = the format says it, or is of training steps only.
	KindFrom string

	list notes.List // becomes Notes when Open returns
}

// Has says whether anything of a kind was noted: results of a workload with
// Inferred notes are to be labelled so.
func (r *Report) Has(kind Kind) bool {
	return slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Kind == kind })
}

func (r *Report) note(kind Kind, where, format string, args ...any) {
	r.list.Add(kind, where, format, args...)
}

// Open reads the workload at path. The content tells the format (see formats),
// not the name. Files may be packed with gzip, and lie in a tar archive
// (Options.Member chooses among several). An error is one line that says which
// file, and where it can the line, what is wrong and what is allowed.
func Open(path string, opt Options) (workloads.Workload, Report, error) {
	var rep Report
	info, err := os.Stat(path)
	if err != nil {
		return nil, rep, paths.Error(path, err)
	}
	f := folder(path)
	if !info.IsDir() {
		if f, err = sniff(path, opt); err != nil {
			return nil, rep, err
		}
	}
	rep.Format = f.name
	if err := f.takes(opt); err != nil {
		return nil, Report{}, fmt.Errorf("%s: %w", path, err)
	}
	t, err := f.open(&rep, path, opt)
	if err != nil {
		return nil, Report{}, err
	}
	rep.Notes = rep.list.All()
	return t, rep, nil
}

// format is one kind of file that Open knows.
type format struct {
	name, begins string // begins: how to tell it, for messages
	open         func(*Report, string, Options) (*native.Trace, error)
}

// Formats, in the order in which messages list them.
var (
	nativeFormat = format{"native", "begins with \"smartswap-trace\"", openNative}
	g10Format    = format{"g10", "kernel times of G10: begins with a line such as \"0000 2.5 ms\"", openG10}
	ascendFormat = format{"ascend", "a folder with ASCEND_PROFILER_OUTPUT, or a kernel_details.csv", openAscend}
	ascendMemory = format{"ascend", "", openAscendMemory}
	dtrFormat    = format{"dtr", "an operator log of DTR: lines such as {\"INSTRUCTION\": \"CALL\", …}", openDTR}
	chromeFormat = format{"chrome", "a trace of Kineto or trace_view.json: an object with \"traceEvents\", or a list of events", openChrome}
	etFormat     = format{"et", "an ExecutionTrace of PyTorch: an object with \"schema\" and \"nodes\"", openET}
	chakraFormat = format{"chakra", "a graph of Chakra: an object with \"workload_graph\", or a stream of protobuf messages", openChakraJSON}
	acesoFormat  = format{"aceso", "a plan of the Aceso planner: an object with \"num_ops_in_each_stage\"", openAceso}
	chakraProto  = format{"chakra", "", openChakraProto}
)

// takes refuses options that say nothing about files of the format.
func (f format) takes(opt Options) error {
	for _, o := range []struct {
		name, value string
		formats     []string
	}{
		{"step", opt.Step, []string{"ascend", "chrome", "et"}},
		{"kineto", opt.Kineto, []string{"et"}}, {"kineto member", opt.KinetoMember, []string{"et"}},
		{"network", opt.Network, []string{"g10"}}, {"net", opt.Net, []string{"g10"}}, {"scratch", opt.Scratch, []string{"g10"}},
		{"batch", given(opt.Batch), []string{"g10"}}, {"globals", given(opt.Globals), []string{"g10"}},
	} {
		if o.value != "" && !slices.Contains(o.formats, f.name) {
			return fmt.Errorf("%s = %s: not for a file of format %s; allowed for %s", o.name, o.value, f.name, strings.Join(o.formats, ", "))
		}
	}
	return nil
}

// given is n for messages; "" = 0, not given.
func given(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// allowed lists the formats for messages.
func allowed() string {
	var list []string
	for _, f := range []format{nativeFormat, g10Format, ascendFormat, dtrFormat, chromeFormat, etFormat, chakraFormat, acesoFormat} {
		list = append(list, f.name+" ("+f.begins+")")
	}
	return strings.Join(list, ", ")
}

// folder is the format of a folder.
func folder(path string) format {
	_, tables := ascendTables(path)
	_, output := os.Stat(filepath.Join(path, ascendOutput))
	if tables == nil || output == nil || filepath.Base(path) == ascendOutput {
		return ascendFormat
	}
	return g10Format
}

// sniff tells the format of a file by its first bytes.
func sniff(path string, opt Options) (f format, err error) {
	known := false
	var rep Report // of the files that are only sniffed at
	err = readFile(&rep, path, opt, func(r io.Reader, name string) error {
		in := bufio.NewReaderSize(r, sniffed)
		start, err := in.Peek(64)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", path, err)
		}
		if len(start) == 0 {
			return fmt.Errorf("%s:1: the file is empty", path)
		}
		if start, err = in.Peek(sniffed); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", path, err)
		}
		if what := Recognise(start); what != "" {
			return fmt.Errorf("%s: is no workload: %s", name, what)
		}
		f, known = sniffBytes(start)
		return nil
	})
	if err == nil && !known {
		if where := beside(path); where != "" {
			return f, fmt.Errorf("%s: is no workload by itself: %s", path, where)
		}
		err = fmt.Errorf("%s:1: unknown format; allowed: %s", path, allowed())
	}
	return f, err
}

// sniffed is how much of a file its format is told by.
const sniffed = 64 << 10

func sniffBytes(start []byte) (format, bool) {
	start = bytes.TrimPrefix(start, []byte("\ufeff"))
	line, _, _ := bytes.Cut(start, []byte("\n"))
	var number int
	var value, unit string
	switch n, _ := fmt.Sscanf(string(line[:min(len(line), 64)]), "%d %s %s", &number, &value, &unit); {
	case bytes.HasPrefix(line, []byte("smartswap-trace ")):
		return nativeFormat, true
	case n == 3 && number == 0 && unit == "ms":
		return g10Format, true
	case bytes.Contains(line, []byte("Start Time(us)")) && bytes.Contains(line, []byte("Duration(us)")):
		return ascendFormat, true
	case bytes.HasPrefix(line, []byte("Component,Timestamp(us)")), bytes.Contains(line, []byte("Size(KB),Allocation Time(us)")):
		return ascendMemory, true
	case bytes.Contains(line, []byte(`"INSTRUCTION"`)):
		return dtrFormat, true
	}
	// A message of metadata: its length, then an attribute or the version.
	if size, n := binary.Uvarint(start); n > 0 && size < 1<<16 && n < len(start) && (start[n] == 0x0a || start[n] == 0x12) && !looksJSON(start) {
		return chakraProto, true
	}
	return sniffJSON(start)
}

// looksJSON tells a JSON value, or white space alone, from a protobuf message:
// "[" and a line break are the length and the first field of one, too.
func looksJSON(start []byte) bool {
	const white = " \t\r\n"
	text := bytes.TrimLeft(start, white)
	if len(text) == 0 {
		return true
	}
	inside := bytes.TrimLeft(text[1:], white)
	switch text[0] {
	case '{':
		return len(inside) == 0 || inside[0] == '"' || inside[0] == '}'
	case '[':
		return len(inside) == 0 || bytes.IndexByte([]byte(`{["]`), inside[0]) >= 0
	}
	return false
}

// sniffJSON tells a JSON format by the keys of the outermost object.
func sniffJSON(start []byte) (format, bool) {
	text := bytes.TrimLeft(start, " \t\r\n")
	if bytes.HasPrefix(text, []byte("[")) {
		return chromeFormat, true // or a list that its reader refuses
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return format{}, false
	}
	// A key that only one format has, anywhere at the start of the file.
	for _, sign := range []struct {
		key string
		f   format
	}{{`"traceEvents"`, chromeFormat}, {`"schemaVersion"`, chromeFormat}, {`"deviceProperties"`, chromeFormat}, {`"distributedInfo"`, chromeFormat},
		{`"workload_graph"`, chakraFormat}, {`"num_ops_in_each_stage"`, acesoFormat}, {`"nodes"`, etFormat}} {
		if bytes.Contains(text, []byte(sign.key)) {
			return sign.f, true
		}
	}
	// Traces may begin with pages of metadata; their reader finds out.
	return chromeFormat, len(start) >= sniffed-len("\ufeff")
}

func openNative(rep *Report, path string, opt Options) (t *native.Trace, err error) {
	err = readFile(rep, path, opt, func(r io.Reader, name string) error {
		t, err = native.Read(r, name)
		return err
	})
	return t, err
}

// readFile opens a file, unpacks it if it is packed, and hands it to read with
// the name to call it by.
func readFile(rep *Report, path string, opt Options, read func(r io.Reader, name string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return paths.Error(path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%s: is a folder; allowed: a file", path)
	}
	rep.Files = append(rep.Files, path)
	in := bufio.NewReaderSize(f, 64<<10)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		in = bufio.NewReaderSize(z, 64<<10)
	}
	if start, _ := in.Peek(512); len(start) == 512 && bytes.Equal(start[257:262], []byte("ustar")) {
		return readArchive(rep, path, in, opt.Member, read)
	}
	if opt.Member != "" {
		return fmt.Errorf("%s: member = %s: not for a file that is no archive (tar)", path, opt.Member)
	}
	return read(in, path)
}

// readArchive hands a file of a tar archive to read: the named one, or the only
// one. Folders, the side files of macOS ("._name") and programs are no traces.
func readArchive(rep *Report, path string, in io.Reader, member string, read func(io.Reader, string) error) error {
	files := tar.NewReader(in)
	var first string
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		base := filepath.Base(h.Name)
		if h.Typeflag != tar.TypeReg || strings.HasPrefix(base, "._") || strings.HasSuffix(base, ".py") {
			continue
		}
		switch {
		case member == "" && first == "":
			first = h.Name
		case member == "":
			return fmt.Errorf("%s: an archive of several files; choose one as the member (trace -member NAME, experiment -set workload.member=NAME), such as %q or %q", path, first, h.Name)
		}
		if member == h.Name {
			return read(files, path+"/"+h.Name)
		}
	}
	switch {
	case member != "":
		return fmt.Errorf("%s: no file %q in the archive", path, member)
	case first == "":
		return fmt.Errorf("%s: no file in the archive", path)
	}
	again := Report{} // the archive is in the report already
	return readFile(&again, path, Options{Member: first}, read)
}

// Export writes the first n iterations of a workload as a native file, packed
// if the path ends in ".gz". The file appears whole or not at all.
func Export(path string, w workloads.Workload, n int) error {
	return Create(path, func(out io.Writer) error { return native.Write(out, w, n) })
}

// Create makes a file of what write writes, packed if the path ends in ".gz". It
// appears whole or not at all.
func Create(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return paths.Error(path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = paths.Error(path, err)
		}
	}()
	var out io.Writer = f
	var z *gzip.Writer
	if strings.HasSuffix(path, ".gz") {
		z = gzip.NewWriter(f)
		out = z
	}
	if err := write(out); err != nil {
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
