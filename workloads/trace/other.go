package trace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// other is a kind of file that is no workload but known by sight: what it is and
// what to do with it.
type other struct {
	what string
	is   func(start []byte) bool
}

// contains says that one of signs stands at the start of a file.
func contains(signs ...string) func([]byte) bool {
	return func(start []byte) bool {
		for _, s := range signs {
			if bytes.Contains(start, []byte(s)) {
				return true
			}
		}
		return false
	}
}

// begins says that a file begins with one of signs, white space aside.
func begins(signs ...string) func([]byte) bool {
	return func(start []byte) bool {
		start = bytes.TrimLeft(start, " \t\r\n")
		for _, s := range signs {
			if len(start) >= len(s) && strings.EqualFold(string(start[:len(s)]), s) {
				return true
			}
		}
		return false
	}
}

// hasLine says that one of lines is a line at the start of a file.
func hasLine(lines ...string) func([]byte) bool {
	return func(start []byte) bool {
		for line := range bytes.Lines(start) {
			for _, l := range lines {
				if string(bytes.TrimSpace(line)) == l {
					return true
				}
			}
		}
		return false
	}
}

// graphOf says what a planner's graph is.
func graphOf(planner string) string {
	return "a planner's graph (" + planner + "): layers with times and sizes, but no order of execution and no memory over time"
}

// others in the order in which they are tried.
var others = []other{
	{"a memory snapshot (a pickle): it tells of an allocator, not of operators; trace snapshot replays it", isPickle},
	{"a page of a memory viewer; export the snapshot itself, torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") or torch_npu's, and give that to trace snapshot", begins("<!DOCTYPE html", "<html", "<head", "<body", "<script")},
	{"an SQLite database, which is not read; export the profile as text (torch_npu: export_type text)", begins("SQLite format 3")},
	{"an experiment; cmd/experiment runs it", hasLine("[workload]", "[[strategy]]", "[axes]", "[[times]]")},
	{"results of cmd/experiment, not its input; its experiment file names the trace", begins("column,strategy,layout,", "column,strategy,workload,")},
	{graphOf("piper"), contains(`"TMPCs"`)},
	{graphOf("dnn-partitioning"), contains(`"fpgaLatency"`)},
	{graphOf("pipedream"), contains("forward_compute_time=")},
	{"operator times of the Aceso planner; open a plan that uses them, in the folder plans beside theirs", begins("op_name,forward-compute,")},
	{"workspaces of G10's kernels; open the kernel times beside it, cudnnBATCH.txt, which uses them", isWorkspace},
}

// isPickle knows a pickle of protocol 2 to 5.
func isPickle(start []byte) bool {
	return len(start) > 2 && start[0] == 0x80 && start[1] >= 2 && start[1] <= 5
}

func isWorkspace(start []byte) bool {
	line, _, _ := bytes.Cut(start, []byte("\n"))
	f := bytes.Fields(line)
	return len(f) == 3 && bytes.HasPrefix(f[0], []byte("00")) && string(f[2]) == "B"
}

// Recognise says what a file is that is no workload but known by sight, and what
// to do with it; "" if it is not known. start is how it begins.
func Recognise(start []byte) string {
	for i := range others {
		if others[i].is(start) {
			return others[i].what
		}
	}
	return ""
}

// Sniff names the format of a workload by how its file begins; "" = none, or a
// list in JSON, which may be anything. The reader may refuse what follows.
func Sniff(start []byte) string {
	if f, ok := sniffBytes(start); ok && Recognise(start) == "" && !begins("[")(start) {
		return f.name
	}
	return ""
}

// beside says what a file of unknown content is by where it lies: part of a
// profile. "" = nowhere that is known.
func beside(path string) string {
	dir := filepath.Dir(path)
	for _, d := range []string{dir, filepath.Join(dir, ascendOutput)} {
		if _, err := ascendTables(d); err == nil {
			return fmt.Sprintf("belongs to the profile of torch_npu in %s; open that folder", dir)
		}
	}
	return ""
}

// unknownFolder is the error about a folder that is none of a workload, with
// what it looks like.
func unknownFolder(dir string) error {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	if ranks, err := filepath.Glob(filepath.Join(dir, "*_ascend_pt")); err == nil && len(ranks) > 0 {
		const most = 16
		names := make([]string, 0, most)
		for _, r := range ranks[:min(len(ranks), most)] {
			names = append(names, filepath.Base(r))
		}
		return fmt.Errorf("%s: profiles of %d ranks of the Ascend profiler; open one of them: %s", dir, len(ranks), strings.Join(names, " "))
	}
	switch {
	case has("rows.csv"):
		return fmt.Errorf("%s: results of cmd/experiment, not its input; its experiment file names the trace", dir)
	case has("trace.json"):
		return fmt.Errorf("%s: a timeline of cmd/experiment; its file trace.json opens", dir)
	}
	return fmt.Errorf("%s: a folder of no known layout; allowed: a file, one rank's folder of the Ascend profiler (with %s or kernel_details.csv), or G10's (with traces/NETWORK/cudnnBATCH.txt)", dir, ascendOutput)
}
