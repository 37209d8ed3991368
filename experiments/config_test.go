package experiments

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/eager/alloc"
	"smartswap/sim"
)

func TestLocate(t *testing.T) {
	file := `name = "x"           # line 1
"odd key" = 1
a.b = 2
list = [
  1, # a = 9
  "]",
]
text = """
a.c = 9
"""
[table]                # 11
key = { inner = 1 }
[[array]]              # 13
key = 1
[array.sub]
key = 2
[[array]]
key = '#'
sub.key = 3
`
	l := locate(file)
	for path, want := range map[string]int{
		"name": 1, "odd key": 2, "a": 3, "a.b": 3, "list": 4, "text": 8, "table": 11, "table.key": 12,
		"array[0]": 13, "array[0].key": 14, "array[0].sub": 15, "array[0].sub.key": 16,
		"array[1]": 17, "array[1].key": 18, "array[1].sub.key": 19,
		"table.key.inner": 12, // inside a value: its line
		"array[1].none":   17, // absent: the table's
		"none":            0,
	} {
		if got := l.of(path); got != want {
			t.Errorf("%s: line %d, want %d", path, got, want)
		}
	}
	if l.of("a.c") != 3 {
		t.Error("text inside a string is not a key")
	}
}

// Whatever the file, locating does not panic, and lines are in range.
func TestLocateNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		file := rapid.StringOfN(rapid.RuneFrom([]rune("ab.=[]{}\"'#\n \\")), 0, 80, -1).Draw(t, "file")
		for path, n := range locate(file) {
			if n < 1 || n > strings.Count(file, "\n")+1 {
				t.Fatalf("%q is in line %d", path, n)
			}
		}
	})
}

// Base < strategy < column < axis < setting.
func TestPrecedence(t *testing.T) {
	file := `
name = "x"
node.name = "n"
iterations = 10
warmup = 1
[workload]
model = "m"
seq = 4
tokens_per_step = 64
layers = 1
[[strategy]]
name = "s"
layouts = ["tp1pp1dp8"]
set = { iterations = 20, warmup = 2, workload.layers = 2, executor.streams = 1 }
[[strategy]]
name = "plain"
layouts = ["tp1pp1dp8"]
[[column]]
name = "c"
warmup = 3
workload.layers = 3
[axes]
workload.layers = [4, 5]
`
	c, err := Parse("x.toml", file)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) *Point {
		cells, err := c.Cells((&fake{}).Devices)
		if err != nil {
			t.Fatal(err)
		}
		return cells[i].Points[0]
	}
	p := at(0)
	if p.Iterations != 20 || p.Warmup != 3 || p.Workload.Layers != 4 || p.Executor.Streams != 1 {
		t.Errorf("iterations %d, warmup %d, layers %d, streams %d; want 20 (strategy), 3 (column), 4 (axis), 1 (strategy)", p.Iterations, p.Warmup, p.Workload.Layers, p.Executor.Streams)
	}
	if q := at(1); q.Iterations != 10 || q.Executor.Streams != 2 {
		t.Errorf("one strategy's set reaches another: iterations %d, streams %d", q.Iterations, q.Executor.Streams)
	}
	c.Settings = []Setting{{"workload.layers", int64(9), "-set"}}
	if p := at(0); p.Workload.Layers != 9 {
		t.Errorf("layers %d, want 9 (setting)", p.Workload.Layers)
	}
	cells, err := c.Cells((&fake{}).Devices)
	if err != nil || len(cells) != 2 {
		t.Errorf("%d cells, %v: a setting reduces the axis to its value", len(cells), err)
	}
	// A list takes the place of the axis's, and the last setting counts.
	list := []any{int64(7), int64(5), int64(6)}
	for _, settings := range [][]Setting{{{"workload.layers", list, "-set"}}, {{"workload.layers", int64(9), "-set"}, {"workload.layers", list, "-set"}}} {
		c.Settings = settings
		cells, err := c.Cells((&fake{}).Devices)
		if err != nil || len(cells) != 6 {
			t.Fatalf("%v: %d cells, %v", settings, len(cells), err)
		}
		for i, cell := range cells {
			if want := list[i/2]; cell.Points[0].Workload.Layers != want || cell.Axes[0] != show(want) {
				t.Errorf("%v: cell %d has layers %d, axis %v, want %v", settings, i, cell.Points[0].Workload.Layers, cell.Axes, want)
			}
		}
	}
	c.Settings = []Setting{{"workload.layers", list, "-set"}, {"workload.layers", int64(9), "-set"}}
	if cells, err := c.Cells((&fake{}).Devices); err != nil || len(cells) != 2 || cells[0].Points[0].Workload.Layers != 9 {
		t.Errorf("%d cells, %v: the last setting counts", len(cells), err)
	}
	for _, list := range [][]any{{}, {int64(1), int64(1)}, {int64(1), "x"}} {
		c.Settings = []Setting{{"workload.layers", list, "-set"}}
		if _, err := c.Cells((&fake{}).Devices); err == nil || !strings.Contains(err.Error(), "-set: workload.layers = ") {
			t.Errorf("%v: error %v", list, err)
		}
	}
}

// Divisions have more forms than a text: as -set gives them, as a file does.
func TestDivisionsSetting(t *testing.T) {
	file := func(line string) string {
		return "name = \"x\"\nnode.name = \"n\"\nallocator.roundup_power2_divisions = " + line + `
[workload]
model = "m"
seq = 4
tokens_per_step = 64
[[strategy]]
name = "s"
layouts = ["tp1pp1dp8"]
`
	}
	divisions := func(c *Config) alloc.Divisions {
		t.Helper()
		cells, err := c.Cells((&fake{}).Devices)
		if err != nil {
			t.Fatal(err)
		}
		return cells[0].Points[0].Allocator.RoundupPower2Divisions
	}
	for value, want := range map[string]alloc.Divisions{"4": "4", "0": "0", "": "", "[256:1,512:2,>:4]": "[256:1,512:2,>:4]", `"64:8"`: "64:8", "64:8,>:1": "64:8,>:1"} {
		c, err := Parse("x.toml", file(`"2"`))
		if err != nil {
			t.Fatal(err)
		}
		c.Settings = []Setting{{"allocator.roundup_power2_divisions", parseValue(value), "-set"}}
		if got := divisions(c); got != want {
			t.Errorf("-set %q: %q", value, got)
		}
	}
	for line, want := range map[string]alloc.Divisions{"8": "8", `""`: "", `"[64:8,>:1]"`: "[64:8,>:1]"} {
		c, err := Parse("x.toml", file(line))
		if err != nil {
			t.Fatal(err)
		}
		if got := divisions(c); got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// Axes vary in the order of the file, the last fastest, strategies fastest of
// all.
func TestCellOrder(t *testing.T) {
	c, err := Parse("x.toml", `
name = "x"
node.name = "n"
[workload]
model = "m"
seq = 4
tokens_per_step = 64
[axes]
workload.save = ["minimal", "eager"]
"iterations" = [8, 9]
[[strategy]]
name = "a"
layouts = ["tp1pp1dp8"]
[[strategy]]
name = "b"
layouts = ["tp1pp1dp8"]
`)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := c.Cells((&fake{}).Devices)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, cell := range cells {
		got = append(got, cell.String())
	}
	want := []string{
		"x, minimal, 8, a", "x, minimal, 8, b", "x, minimal, 9, a", "x, minimal, 9, b",
		"x, eager, 8, a", "x, eager, 8, b", "x, eager, 9, a", "x, eager, 9, b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// soundFile is read by the real Runner; bad input below is made from it.
const soundFile = `name = "sound"
title = "Sound"
node.name = "910b2-8"
iterations = 4
warmup = 2
[workload]
model = "llama2-7b"
seq = 4_096
tokens_per_step = 262_144
[[strategy]]
name = "baseline"
layouts = ["tp8pp1dp1"]
recompute = ["none"]
[[strategy]]
name = "swap"
policy = "smartswap"
profiler = "detailed"
layouts = "all"
options = { chunks = 16 }
[[table]]
show = ["tokens_per_s_per_device"]
[[claim]]
name = "gain"
kind = "gain"
value = "tokens_per_s_per_device"
of = ["swap"]
over = ["baseline"]
`

// numbers lists 1 to n.
func numbers(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "%d,", i+1)
	}
	return s.String()
}

// Bad input: one line on stderr that names file, line, key, value and what is
// allowed; exit code 2; nothing written.
func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new string   // replaced in soundFile
		args     []string // more arguments
		want     []string // in the message
	}{
		{name: "syntax", old: `name = "sound"`, new: `name = `, want: []string{".toml:1: "}},
		{name: "key twice", old: "warmup = 2", new: "iterations = 5", want: []string{".toml:5: ", "iterations"}},
		{name: "unknown key", old: "warmup", new: "warmpu", want: []string{".toml:5: warmpu", "nearest is warmup"}},
		{name: "unknown key in a table", old: "seq =", new: "sqe =", want: []string{".toml:8: workload.sqe", "nearest is seq"}},
		{name: "unknown key in a strategy", old: "recompute =", new: "recompile =", want: []string{".toml:13: strategy[0].recompile", "nearest is recompute"}},
		{name: "unknown table", old: "[[table]]", new: "[[tabel]]", want: []string{".toml:20: tabel", "nearest is table"}},
		{name: "table for array of tables", old: "[[table]]", new: "[table]", want: []string{".toml:20: table", "[[table]]"}},
		{name: "key below a value", old: "iterations = 4", new: "iterations.x = 4", want: []string{".toml:4: iterations", "want an integer"}},
		{name: "string for integer", old: "4_096", new: `"4k"`, want: []string{`.toml:8: workload.seq = "4k"`, "integer from 1 to"}},
		{name: "float for integer", old: "4_096", new: "4096.0", want: []string{".toml:8: workload.seq = 4096", "integer"}},
		{name: "NaN", old: "4_096", new: "nan", want: []string{".toml:8: workload.seq = NaN", "integer"}},
		{name: "negative", old: "4_096", new: "-4096", want: []string{".toml:8: workload.seq = -4096", "from 1 to"}},
		{name: "zero", old: "4_096", new: "0", want: []string{".toml:8: workload.seq = 0", "from 1 to"}},
		{name: "absurd", old: "4_096", new: "9_000_000_000_000_000_000", want: []string{".toml:8: workload.seq = 9000000000000000000", "from 1 to"}},
		{name: "NaN threshold", old: "[workload]", new: "[allocator]\nper_process_memory_fraction = nan\n[workload]", want: []string{".toml:7: allocator.per_process_memory_fraction = NaN", "from 0 to 1"}},
		{name: "infinite slow-down", old: "[workload]", new: "[search]\nmax_slowdown = inf\n[workload]", want: []string{".toml:7: search.max_slowdown = +Inf", "from 0 to"}},
		{name: "negative seed", old: "warmup = 2", new: "seed = -1", want: []string{".toml:5: seed = -1", "from 0 to"}},
		{name: "integer for bool", old: `layouts = "all"`, new: "layouts = \"all\"\nideal = 1", want: []string{".toml:19: strategy[1].ideal = 1", "true or false"}},
		{name: "scalar for array", old: `["none"]`, new: `"none"`, want: []string{`.toml:13: strategy[0].recompute = "none"`, "array"}},
		{name: "empty array", old: `["none"]`, new: `[]`, want: []string{".toml:13: strategy[0].recompute = []", "not empty"}},
		{name: "scalar for table", old: "[workload]\nmodel = \"llama2-7b\"", new: "workload = 1\n[node.x]", want: []string{".toml:6: workload = 1", "want a table"}},
		{name: "choice", old: "seq = 4_096", new: "seq = 4_096\nsave = \"eagre\"", want: []string{`.toml:9: workload.save = "eagre"`, "nearest is eager"}},
		{name: "missing name", old: `name = "sound"`, new: "", want: []string{"name: missing"}},
		{name: "name that is a path", old: `name = "sound"`, new: `name = "../sound"`, want: []string{`.toml:1: name = "../sound"`}},
		{name: "no strategy", old: soundFile, new: `name = "x"`, want: []string{"strategy: missing"}},
		{name: "strategy without name", old: `name = "baseline"`, new: "", want: []string{".toml:10: strategy[0].name: missing"}},
		{name: "strategy twice", old: `name = "swap"`, new: `name = "baseline"`, want: []string{`.toml:15: strategy[1].name = "baseline"`}},
		{name: "ideal with a policy", old: `layouts = "all"`, new: "layouts = \"all\"\nideal = true", want: []string{".toml:19: strategy.ideal = true", "policy"}},
		{name: "missing model", old: `model = "llama2-7b"`, new: "", want: []string{"workload.model: missing"}},
		{name: "unknown model", old: "llama2-7b", new: "llama-7b", want: []string{`.toml:7: workload.model = "llama-7b"`, "llama2-7b"}},
		{name: "missing node", old: `node.name = "910b2-8"`, new: "", want: []string{"node.name: missing"}},
		{name: "unknown node", old: "910b2-8", new: "910b2", want: []string{`.toml:3: node.name: unknown node "910b2"`, "910b2-8"}},
		{name: "unknown node key", old: `node.name = "910b2-8"`, new: "node.name = \"910b2-8\"\nnode.link.rat = \"1GB/s\"", want: []string{".toml:4: node.link.rat", "link.rate"}},
		{name: "node value without a unit", old: `node.name = "910b2-8"`, new: "node.name = \"910b2-8\"\nnode.link.rate = 5", want: []string{".toml:4: node.link.rate = 5"}},
		{name: "negative bandwidth", old: `node.name = "910b2-8"`, new: "node.name = \"910b2-8\"\nnode.link.rate = \"-5GB/s\"", want: []string{`.toml:4: node.link.rate = "-5GB/s"`}},
		{name: "unknown policy", old: `"smartswap"`, new: `"smartwsap"`, want: []string{`.toml:16: strategy.policy = "smartwsap"`, "smartswap"}},
		{name: "unknown policy option", old: "chunks = 16", new: "chunk = 16", want: []string{".toml:19: strategy.options", "chunk", "chunks"}},
		{name: "policy option out of range", old: "chunks = 16", new: "chunks = -1", want: []string{".toml:19: strategy.options", "chunks", "-1"}},
		{name: "unknown profiler", old: `"detailed"`, new: `"detial"`, want: []string{`.toml:17: strategy.profiler = "detial"`, "detailed"}},
		{name: "needs not met", old: `"detailed"`, new: `"none"`, want: []string{`.toml:17: strategy.profiler = "none"`, "needs"}},
		{name: "layout form", old: "tp8pp1dp1", new: "tp8", want: []string{".toml:12: strategy[0].layouts", "tp2pp1dp4"}},
		{name: "layout of no devices", old: "tp8pp1dp1", new: "tp0pp1dp1", want: []string{".toml:12: strategy[0].layouts", "from 1 to"}},
		{name: "layout of other size", old: "tp8pp1dp1", new: "tp3pp1dp1", want: []string{".toml:12: strategy.layouts", "tp3pp1dp1", "8"}},
		{name: "missing layouts", old: `layouts = ["tp8pp1dp1"]`, new: "", want: []string{"strategy.layouts: missing"}},
		{name: "unknown recomputation", old: `["none"]`, new: `["nothing"]`, want: []string{`strategy.recompute = "nothing"`, "block-"}},
		{name: "tokens not a multiple", old: "262_144", new: "262_145", want: []string{".toml:9: workload.tokens_per_step = 262145", "4096"}},
		{name: "warmup too long", old: "warmup = 2", new: "warmup = 4", want: []string{".toml:5: warmup = 4", "iterations = 4"}},
		{name: "axis without values", old: "[[strategy]]\nname = \"swap\"", new: "[axes]\nworkload.save = []\n[[strategy]]\nname = \"swap\"", want: []string{".toml:15: axes.workload.save = []"}},
		{name: "axis value", old: "[[strategy]]\nname = \"swap\"", new: "[axes]\nworkload.seq = [1, -1]\n[[strategy]]\nname = \"swap\"", want: []string{".toml:15: axes.workload.seq = -1"}},
		{name: "axis value twice", old: "[[strategy]]\nname = \"swap\"", new: "[axes]\nworkload.seq = [1, 1]\n[[strategy]]\nname = \"swap\"", want: []string{".toml:15: axes.workload.seq", "twice"}},
		{name: "axis of nothing", old: "[[strategy]]\nname = \"swap\"", new: "[axes]\nworkload.size = [1]\n[[strategy]]\nname = \"swap\"", want: []string{".toml:15: axes.workload.size", "unknown key"}},
		{name: "column key", old: "[[table]]", new: "[[column]]\nname = \"c\"\nworkload = { sequence = 1 }\n[[table]]", want: []string{".toml:22: column[0].workload.sequence", "nearest is seq"}},
		{name: "column without name", old: "[[table]]", new: "[[column]]\nworkload.seq = 1\n[[table]]", want: []string{".toml:20: column[0].name"}},
		{name: "column of a result", old: `show = ["tokens_per_s_per_device"]`, new: `show = ["tokens_per_s"]`, want: []string{".toml:21: table[0].show", "no such column; nearest is "}},
		{name: "claim of a strategy", old: `of = ["swap"]`, new: `of = ["swop"]`, want: []string{".toml:26: claim[0].of", `nearest is "swap"`}},
		{name: "claim of cost", old: `value = "tokens_per_s_per_device"`, new: `value = "iteration_time_ms"`, want: []string{".toml:25: claim[0].value", "larger"}},
		{name: "claim kind", old: `kind = "gain"`, new: `kind = "grain"`, want: []string{".toml:24: claim[0].kind", "nearest is gain"}},
		{name: "claim where", old: `over = ["baseline"]`, new: "over = [\"baseline\"]\nwhere = { save = \"eager\" }", want: []string{".toml:28: claim[0].where", "save"}},
		{name: "claim reference", old: `kind = "gain"`, new: "kind = \"reference\"\nreference = \"ascend\"", want: []string{".toml:25: claim[0].reference", "ascend-910b"}},
		{name: "trace missing", old: "model = \"llama2-7b\"\nseq = 4_096\ntokens_per_step = 262_144", new: "kind = \"trace\"\ntrace = \"none.txt\"", want: []string{".toml:8: workload.trace", "none.txt", "no such file"}},
		{name: "trace without path", old: "model = \"llama2-7b\"\nseq = 4_096\ntokens_per_step = 262_144", new: `kind = "trace"`, want: []string{"workload.trace: missing"}},
		{name: "trace truncated", old: "model = \"llama2-7b\"\nseq = 4_096\ntokens_per_step = 262_144", new: "kind = \"trace\"\ntrace = \"cut.txt\"", want: []string{".toml:8: workload.trace", "cut.txt"}},
		{name: "decoder's key of a trace", old: `model = "llama2-7b"`, new: "kind = \"trace\"\ntrace = \"none.txt\"", want: []string{".toml:9: workload.seq: a key of workload.kind = \"decoder\", but here it is \"trace\"; allowed: kind, trace, network, "}},
		{name: "trace's key of a decoder", old: `model = "llama2-7b"`, new: "model = \"llama2-7b\"\ngaps = false", want: []string{".toml:8: workload.gaps: a key of workload.kind = \"trace\", but here it is \"decoder\"; allowed: kind, model, layers, "}},
		{name: "trace's key in a column", old: "[[table]]", new: "[[column]]\nname = \"c\"\nworkload = { jitter = 0.1 }\n[[table]]", want: []string{".toml:22: workload.jitter: a key of"}},
		{name: "trace's key in a table of an axis", old: "[[strategy]]\nname = \"swap\"", new: "[axes]\nworkload = [{ step = 1 }]\n[[strategy]]\nname = \"swap\"", want: []string{".toml:", "workload.step: a key of"}},
		{name: "trace's key as a setting", args: []string{"-set", "workload.batch=2"}, want: []string{"experiment: -set: workload.batch: a key of"}},
		{name: "trace's key in a search", old: "[workload]", new: "[search]\nkey = \"workload.batch\"\nfrom = 1\nto = 2\nstep = 1\nmax_slowdown = 0.1\n[workload]", want: []string{".toml:7: search.key = \"workload.batch\": a key of"}},
		{name: "allocator option", old: "[workload]", new: "[allocator]\nbackend = \"cashing\"\n[workload]", want: []string{":6: allocator", "cashing"}},
		{name: "allocator divisions", old: "[workload]", new: "[allocator]\nroundup_power2_divisions = 1.5\n[workload]", want: []string{":7: allocator.roundup_power2_divisions = 1.5", "want an integer, or a string"}},
		{name: "allocator page", old: "[workload]", new: "[allocator]\npage_size = \"2g\"\n[workload]", want: []string{":7: allocator.page_size = \"2g\"", "1g"}},
		{name: "allocator fraction by another name", old: "[workload]", new: "[allocator]\nmemory_fraction = 0.5\n[workload]", want: []string{":7: allocator.memory_fraction", "unknown key", "per_process_memory_fraction"}},
		{name: "allocator contradiction", old: "[workload]", new: "[allocator]\ngarbage_collection_threshold = 0.5\n[workload]", want: []string{":6: allocator", "per_process_memory_fraction"}},
		{name: "executor option", old: "[workload]", new: "[executor]\nrelease = \"mine\"\n[workload]", want: []string{":6: executor", "mine", "custom"}},
		{name: "too many cells", old: "[[strategy]]\nname = \"swap\"", new: "[axes]\nworkload.seq = [" + numbers(400) + "]\nworkload.batch = [" + numbers(400) + "]\n[[strategy]]\nname = \"swap\"", want: []string{"at most 100000 cells"}},
		{name: "too many points", old: `["none"]`, new: "[\"none\"]\nmicro_batch = [" + numbers(100_001) + "]", want: []string{".toml:10: strategy", "100001 micro-batch sizes", "at most 100000 points"}},
		{name: "variation without name", old: "[workload]", new: "[[variation]]\nburst = 1\n[workload]", want: []string{".toml:6: variation", "name = <nil>"}},
		{name: "variation that is none", old: "[workload]", new: "variation = 1\n[workload]", want: []string{".toml:6: variation = 1", "[[variation]]"}},
		{name: "unknown process", old: "[workload]", new: "[[variation]]\nname = \"overflw\"\n[workload]", want: []string{".toml:6: variation[0]", "overflow"}},
		{name: "process option", old: "[workload]", new: "[[variation]]\nname = \"overflow\"\nbust = 1\n[workload]", want: []string{".toml:6: variation[0]", "bust", "burst"}},
		{name: "process option out of range", old: "[workload]", new: "[[variation]]\nname = \"overflow\"\nprobability = 2.0\n[workload]", want: []string{".toml:6: variation[0]", "probability", "from 0 to 1"}},
		{name: "profiler to price", old: "[workload]", new: "[profilers]\ndetail.per_op = \"1us\"\n[workload]", want: []string{".toml:7: profilers.detail.per_op", "nearest profiler is detailed"}},
		{name: "unknown price", old: "[workload]", new: "[profilers]\ndetailed.per_opp = \"1us\"\n[workload]", want: []string{".toml:7: profilers.detailed.per_opp", "nearest is per_op"}},
		{name: "price without unit", old: "[workload]", new: "[profilers]\ndetailed.per_op = 1\n[workload]", want: []string{".toml:7: profilers.detailed.per_op = 1", "us"}},
		{name: "absurd price", old: "[workload]", new: "[profilers]\npytorch.per_op = \"10s\"\n[workload]", want: []string{".toml:7: profilers.pytorch.per_op", "from 0s to 1s"}},
		{name: "like nothing", old: `name = "swap"`, new: "name = \"swap\"\nlike = \"base\"", want: []string{`.toml:16: strategy[1].like = "base"`, "above"}},
		{name: "compare with nothing", old: `title = "Sound"`, new: `compare_with = "basline"`, want: []string{`.toml:2: compare_with = "basline"`, `nearest is "baseline"`}},
		{name: "strategy compares with nothing", old: `name = "swap"`, new: "name = \"swap\"\ncompare_with = \"swop\"", want: []string{`.toml:16: strategy[1].compare_with = "swop"`, `nearest is "swap"`}},
		{name: "hidden size", old: "seq = 4_096", new: "seq = 4_096\nhidden = 100", want: []string{".toml:9: workload.hidden = 100", "128"}},
		{name: "two batch sizes", old: "seq = 4_096", new: "seq = 4_096\nmicro_batches = 2", want: []string{"workload.tokens_per_step", "either"}},
		{name: "search range", old: "[workload]", new: "[search]\nkey = \"workload.seq\"\nfrom = 2\nto = 1\nstep = 1\n[workload]", want: []string{".toml:9: search.to = 1", "search.from = 2"}},
		{name: "search key", old: "[workload]", new: "[search]\nkey = \"workload.sqe\"\nfrom = 1\nto = 1\nstep = 1\n[workload]", want: []string{".toml:6: search.workload.sqe", "nearest is seq"}},
		{name: "search of text", old: "[workload]", new: "[search]\nkey = \"workload.save\"\nfrom = 1\nto = 1\nstep = 1\n[workload]", want: []string{".toml:6: search.workload.save = 1"}},
		{name: "table of two kinds", old: `show = ["tokens_per_s_per_device"]`, new: "show = [\"layout\"]\nvalue = \"layout\"", want: []string{".toml:20: table[0]", "one of show"}},
		{name: "table of no claim", old: `show = ["tokens_per_s_per_device"]`, new: `claim = "gains"`, want: []string{".toml:21: table[0].claim", "gain"}},
		{name: "table across nothing", old: `show = ["tokens_per_s_per_device"]`, new: "claim = \"gain\"\nacross = \"workload.seq\"", want: []string{".toml:22: table[0].across", "axes"}},
		{name: "table where", old: `show = ["tokens_per_s_per_device"]`, new: "show = [\"layout\"]\nwhere = { seq = 1 }", want: []string{".toml:22: table[0].where", "column"}},
		{name: "figure of nothing", old: "[[table]]", new: "[[figure]]\nx = \"layout\"\n[[table]]", want: []string{".toml:20: figure[0]", "value"}},
		{name: "figure over iterations not kept", old: "[[table]]", new: "[[figure]]\nvalue = \"span_ms\"\nx = \"iteration\"\n[[table]]", want: []string{".toml:22: figure[0].x", "series = true"}},
		{name: "figure of an iteration's text", old: "[[table]]", new: "[[figure]]\nvalue = \"kind\"\nx = \"iteration\"\n[[table]]", want: []string{".toml:21: figure[0].value", "iterations.csv"}},
		{name: "figure over words", old: "[[table]]", new: "[axes]\nworkload.save = [\"eager\"]\n[[figure]]\nvalue = \"busy_ms\"\nx = \"workload.save\"\n[[table]]", want: []string{".toml:24: figure[0].x", `"eager"`, "no number"}},
		{name: "lines of nothing", old: "[[table]]", new: "[[figure]]\nvalue = \"busy_ms\"\nx = \"busy_ms\"\nlines = \"layout\"\n[[table]]", want: []string{".toml:23: figure[0].lines", "strategy"}},
		{name: "bars with an x", old: "[[table]]", new: "[[figure]]\nvalue = \"busy_ms\"\nx = \"busy_ms\"\nbars = \"column\"\n[[table]]", want: []string{".toml:23: figure[0].bars", "lines"}},
		{name: "change of several", old: "kind = \"gain\"\nvalue = \"tokens_per_s_per_device\"\nof = [\"swap\"]", new: "kind = \"change\"\nvalue = \"busy_ms\"\nof = [\"swap\", \"baseline\"]", want: []string{".toml:26: claim[0].of", "one strategy"}},
		{name: "no quick form", args: []string{"-quick"}, want: []string{"-quick", "[quick]"}},
		{name: "unknown flag", args: []string{"-fast"}, want: []string{"-fast"}},
		{name: "no workers", args: []string{"-parallel", "0"}, want: []string{"-parallel 0"}},
		{name: "shard beyond", args: []string{"-shard", "2/2"}, want: []string{"-shard 2/2"}},
		{name: "shard of words", args: []string{"-shard", "a/b"}, want: []string{"-shard a/b"}},
		{name: "set without value", args: []string{"-set", "seq"}, want: []string{"-set seq", "key=value"}},
		{name: "set unknown key", args: []string{"-set", "workload.sqe=1"}, want: []string{"-set: workload.sqe", "nearest is seq"}},
		{name: "set bad value", args: []string{"-set", "workload.seq=long"}, want: []string{`-set: workload.seq = "long"`}},
		{name: "set bad node value", args: []string{"-set", "node.link.rate=fast"}, want: []string{`-set: node.link.rate = "fast"`}},
		{name: "set what names a strategy", args: []string{"-set", "strategy.name=other"}, want: []string{"-set: strategy.name", "edit the file"}},
		{name: "set a policy on an ideal strategy", old: `layouts = ["tp8pp1dp1"]`, new: "layouts = [\"tp8pp1dp1\"]\nideal = true", args: []string{"-set", "strategy.policy=lru"}, want: []string{"strategy.ideal = true", "policy"}},
		{name: "layouts of a trace", args: []string{"-set", "trace=../configs/example.trace"}, want: []string{"strategy.layouts: a trace"}},
		{name: "search beyond a key's range", old: "[workload]", new: "[search]\nkey = \"workload.seq\"\nfrom = 1\nto = 1_000_000_000_000\nstep = 1\n[workload]", want: []string{".toml:6: search.workload.seq = 1000000000000", "from 1 to"}},
		{name: "two files", args: []string{"other.toml"}, want: []string{"2 experiment files"}},
		{name: "negative seed flag", args: []string{"-seed", "-5"}, want: []string{`"-5" for flag -seed`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "bad.toml")
			if c.old != "" && !strings.Contains(soundFile, c.old) {
				t.Fatalf("%q is not in the sound file", c.old)
			}
			content := strings.Replace(soundFile, c.old, c.new, 1)
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, "cut.txt"), []byte("0000 1.5 ms\n0001 2"), 0o644); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(folder, "out")
			var stdout, stderr strings.Builder
			code := Main(background, append([]string{path, "-out", out}, c.args...), &stdout, &stderr)
			message := stderr.String()
			if code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if strings.Count(message, "\n") != 1 || !strings.HasSuffix(message, "\n") {
				t.Errorf("want one line, got %q", message)
			}
			for _, want := range c.want {
				if !strings.Contains(message, want) {
					t.Errorf("%q does not say %q", message, want)
				}
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout: %q", stdout.String())
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("something was written")
			}
		})
	}
}

// The file that all bad ones come from is sound, and so are files at the edges
// of what is allowed.
func TestSoundInput(t *testing.T) {
	for i, file := range []string{soundFile, strings.Replace(soundFile, "warmup = 2", "warmup = 3", 1)} {
		path := filepath.Join(t.TempDir(), "sound.toml")
		if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr strings.Builder
		if code := Main(background, []string{"-check", path, "-golden", t.TempDir()}, &stdout, &stderr); code != 0 {
			t.Errorf("file %d: exit code %d: %s", i, code, &stderr)
		}
		if want := fmt.Sprintf("%s: sound, 2 cells", path); !strings.HasPrefix(stdout.String(), want) {
			t.Errorf("stdout %q, want %q", &stdout, want)
		}
	}
}

// The page about files names every key that a file may have.
func TestEveryKeyIsDescribed(t *testing.T) {
	page, err := os.ReadFile("../configs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(fields []field)
	walk = func(fields []field) {
		for _, f := range fields {
			if !strings.Contains(string(page), "`"+f.key+"`") && !strings.Contains(string(page), "["+f.key+"]") {
				t.Errorf("configs/README.md does not describe %s", f.key)
			}
			walk(f.sub)
		}
	}
	walk(new(Setup).fields())
	walk(new(TableSpec).fields())
	walk(new(FigureSpec).fields())
	walk(new(ClaimSpec).fields())
	walk(new(Cases).fields())
}

// A column of another kind of workload has no use for the keys of the file's own
// [workload], which are there for the other columns.
func TestColumnOfAnotherKind(t *testing.T) {
	file := strings.Replace(soundFile, "[[table]]", "[[column]]\nname = \"decoder\"\n[[column]]\nname = \"trace\"\nworkload = { kind = \"trace\", trace = \"a\" }\n[[table]]", 1)
	c, err := Parse("x.toml", file)
	if err != nil {
		t.Fatal(err)
	}
	if cells, err := c.Cells((&fake{}).Devices); err != nil || len(cells) != 4 {
		t.Errorf("%d cells, %v", len(cells), err)
	}
}

// A strategy that is like another extends its tables and leaves it alone.
func TestLike(t *testing.T) {
	c, err := Parse("x.toml", soundFile+`
[[strategy]]
name = "third"
like = "swap"
options = { warm_up = 1 }
set = { executor.streams = 1 }
[[strategy]]
name = "fourth"
like = "third"
options = { chunks = 8 }
set = { executor.clean = false }
`)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[string]any{1: {"chunks": int64(16)}, 2: {"chunks": int64(16), "warm_up": int64(1)}, 3: {"chunks": int64(8), "warm_up": int64(1)}} {
		if diff := cmp.Diff(want, c.Strategies[i].Options); i > 0 && diff != "" {
			t.Errorf("strategy %d: %s", i, diff)
		}
	}
	cells, err := c.Cells((&fake{}).Devices)
	if err != nil {
		t.Fatal(err)
	}
	if s := cells[3].Points[0].Setup; s.Executor.Streams != 1 || s.Executor.Clean || s.Strategy.Policy != "smartswap" {
		t.Errorf("the last: %+v", s.Executor)
	}
	if s := cells[2].Points[0].Setup; !s.Executor.Clean {
		t.Error("the third took the fourth's setting")
	}
}

// Costs in [profilers] reach the profiler that they name, and only it.
func TestProfilerCosts(t *testing.T) {
	p := job(1, 1024*8, Layout{1, 1, 8}, "none")
	p.Strategy.Profiler = "detailed"
	plain, err := p.profiler()
	if err != nil {
		t.Fatal(err)
	}
	p.Profilers = map[string]any{"detailed": map[string]any{"per_op": "7us"}, "pytorch": map[string]any{"per_tensor": "9us"}}
	priced, err := p.profiler()
	if err != nil {
		t.Fatal(err)
	}
	want := plain.Costs()
	want.PerOp = 7 * sim.Microsecond
	if diff := cmp.Diff(want, priced.Costs()); diff != "" || priced.Fields() != plain.Fields() {
		t.Error(diff)
	}
}

// A setting of the device memory takes the place of an axis that says it the
// other way; one of another kind is refused, and so are both at once.
func TestMemorySettings(t *testing.T) {
	byPercent := strings.Replace(fakeFile, `[axes]`, "[axes]\nhbm_percent = [75, 110]", 1)
	bySize := strings.Replace(fakeFile, `[axes]`, "[axes]\nnode.device.hbm = [\"1GiB\", \"2GiB\"]", 1)
	values := func(cells string) string {
		var seen []string
		for line := range strings.Lines(cells) {
			if v := strings.TrimSpace(strings.Split(line, ",")[1]); !slices.Contains(seen, v) {
				seen = append(seen, v)
			}
		}
		return strings.Join(seen, " ")
	}
	for _, c := range []struct{ file, sets, want string }{
		{byPercent, ``, "75 110"},
		{byPercent, `node.device.hbm=["32GiB","40GiB"]`, "32GiB 40GiB"},
		{byPercent, `node.device.hbm=32GiB`, "32GiB"},
		{byPercent, `hbm_percent=[80,90]`, "80 90"},
		{bySize, `hbm_percent=[80,90]`, "80 90"},
		{bySize, `hbm_percent=80`, "80"},
	} {
		var args []string
		if c.sets != "" {
			args = []string{"-set", c.sets}
		}
		code, stdout, stderr := runFile(t, background, c.file, &fake{}, append(args, "-list")...)
		if code != 0 || values(stdout) != c.want {
			t.Errorf("-set %s: exit code %d, values %q, want %q: %s", c.sets, code, values(stdout), c.want, stderr)
		}
	}
	claims := strings.Replace(byPercent, "[[claim]]", "[[claim]]\nwhere.hbm_percent = 75", 1)
	for _, c := range []struct{ file, set, want string }{
		{byPercent, "hbm_percent=75", "want one of them"},
		{claims, "seed=1", `claim[0].where: no axis "hbm_percent"`},
	} {
		code, _, stderr := runFile(t, background, c.file, &fake{}, "-set", "node.device.hbm=32GiB", "-set", c.set, "-list")
		if code != 2 || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("exit code %d, %q does not say %q", code, stderr, c.want)
		}
	}
}
