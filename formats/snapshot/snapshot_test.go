package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"smartswap/sim"
)

func read(t testing.TB, file string) *Snapshot {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Read(f, file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The numbers are those of testdata/generate.py, which Python's pickler wrote.
const base = 0x7f0000000000

var forward = []Frame{{"matmul", "model.py", 12}, {"forward", "model.py", 30}}

func classic() *Snapshot {
	const a, s, b = base, base + 0x10000000, base + 0x20000000
	const us = 1_700_000_000_000_000
	return &Snapshot{
		Segments: []Segment{
			{Address: a, Size: 12 * sim.MiB, Large: true, Blocks: []Block{
				{Address: a, Size: 12 * sim.MiB, Requested: 11 * sim.MiB, State: Allocated},
			}},
			{Address: b, Size: 20 * sim.MiB, Stream: 7, Large: true, Blocks: []Block{
				{Address: b, Size: 5 * sim.MiB, Requested: 5 * sim.MiB, State: PendingFree},
				{Address: b + 5<<20, Size: 15 * sim.MiB},
			}},
			{Address: s, Size: 2 * sim.MiB, Blocks: []Block{
				{Address: s, Size: 512, Requested: 100, State: Allocated},
				{Address: s + 512, Size: 2*sim.MiB - 512},
			}},
		},
		Traces: [][]Event{{
			{SegmentAlloc, a, 12 * sim.MiB, 0, us + 1, nil},
			{Alloc, a, 11 * sim.MiB, 0, us + 1, forward},
			{FreeRequested, a, 11 * sim.MiB, 0, us + 2, nil},
			{FreeCompleted, a, 11 * sim.MiB, 0, us + 2, nil},
			{Alloc, a, 11 * sim.MiB, 0, us + 3, forward},
			{SegmentAlloc, s, 2 * sim.MiB, 0, us + 4, nil},
			{Alloc, s, 100, 0, us + 4, forward},
			{SegmentAlloc, b, 20 * sim.MiB, 7, us + 5, nil},
			{Alloc, b, 5 * sim.MiB, 7, us + 5, forward},
			{Dump, 0, 17*sim.MiB + 512, 0, us + 6, nil},
			{FreeRequested, b, 5 * sim.MiB, 7, us + 7, nil},
			{OOM, 3 << 20, 80 * sim.MiB, 0, us + 8, nil},
		}, {}},
		Settings: []Setting{
			{"PYTORCH_CUDA_ALLOC_CONF", ""}, {"max_split_size", "-1"}, {"garbage_collection_threshold", "0"},
			{"expandable_segments", "false"}, {"roundup_power2_divisions.1", "0"}, {"roundup_power2_divisions.2", "0"},
		},
	}
}

func TestReadProtocols(t *testing.T) {
	for protocol := 2; protocol <= 5; protocol++ {
		got := read(t, fmt.Sprintf("classic.p%d.pickle", protocol))
		if diff := cmp.Diff(classic(), got); diff != "" {
			t.Errorf("protocol %d (-want +got):\n%s", protocol, diff)
		}
	}
}

// Files of the first versions: addresses follow from sizes, the request is in
// the block's history.
func TestReadOld(t *testing.T) {
	want := &Snapshot{Segments: []Segment{{Device: 1, Address: base, Size: 2 * sim.MiB, Blocks: []Block{
		{Address: base, Size: 1024, Requested: 900, State: PendingFree, Frames: forward},
		{Address: base + 1024, Size: 2*sim.MiB - 1024},
	}}}}
	if diff := cmp.Diff(want, read(t, "old.pickle")); diff != "" {
		t.Error(diff)
	}
}

func TestReadExpandable(t *testing.T) {
	s := read(t, "expandable.pickle")
	if g := s.Segments[0]; !g.Expandable || g.Stream != 1534455456 || s.Traces[0][0].Action != SegmentMap || s.Traces[0][0].TimeUS != 0 {
		t.Errorf("got %+v", s)
	}
}

// Events of one place share their call stack, so that a long history of a small
// program is small.
func TestReadSharesStacks(t *testing.T) {
	trace := read(t, "classic.p4.pickle").Traces[0]
	if &trace[1].Frames[0] != &trace[4].Frames[0] {
		t.Error("two events of one place have call stacks of their own")
	}
}

// The whitelist: every other opcode is refused, where it stands.
func TestOpcodes(t *testing.T) {
	const allowed = "\x80\x95.(N\x88\x89JKM\x8aGX\x8c]lae)t\x85\x86\x87}dsuhjqr\x94"
	for op := range 256 {
		file := []byte{opProto, 4, byte(op)}
		_, err := Read(bytes.NewReader(file), "f")
		if err == nil {
			t.Fatalf("opcode 0x%02x alone is a snapshot", op)
		}
		refused := strings.HasPrefix(err.Error(), fmt.Sprintf("f: byte 2: opcode 0x%02x; allowed", op))
		// A protocol is only allowed at the begin.
		if want := strings.IndexByte(allowed, byte(op)) < 0 || op == opProto; refused != want {
			t.Errorf("opcode 0x%02x: refused %t, want %t: %v", op, refused, want, err)
		}
	}
}

// program is a pickle of protocol 4 by hand.
func program(parts ...string) string { return "\x80\x04" + strings.Join(parts, "") }

// word is a short string opcode.
func word(s string) string { return "\x8c" + string(rune(len(s))) + s }

func TestErrors(t *testing.T) {
	dict := func(pairs ...string) string { return "}(" + strings.Join(pairs, "") + "u" }
	file := func(pairs ...string) string { return program(dict(pairs...), ".") }
	segments := func(s string) string { return file(word("segments"), s) }
	segment := func(blocks string, more ...string) string {
		return segments("](" + dict(append([]string{word("address"), "K\x00", word("total_size"), "M\x00\x02", word("blocks"), blocks}, more...)...) + "e")
	}
	for _, c := range []struct{ name, file, want string }{
		{"empty", "", "f: byte 0: the file ends inside the pickle"},
		{"text", "hello", "f: byte 0: the file begins with 0x68; allowed: 0x80, the begin of a pickle of protocol 2 to 5"},
		{"protocol 1", "\x80\x01", "f: byte 0: pickle protocol 1; allowed: 2 to 5"},
		{"protocol 6", "\x80\x06", "f: byte 0: pickle protocol 6; allowed: 2 to 5"},
		{"runs code", program("cos\nsystem\n", word("true"), "\x85R."), "f: byte 2: opcode 0x63; allowed are only those that build plain data: numbers, strings, lists, tuples and dictionaries"},
		{"no end", program("N"), "f: byte 3: the file ends inside the pickle"},
		{"cut number", program("J\x01"), "f: byte 2: the file ends inside the pickle"},
		{"cut string", program("\x8c\x05ab"), "f: byte 2: the file ends inside the pickle"},
		{"empty stack", program("."), "f: byte 2: the pickle ends with 0 values on its stack; allowed: 1"},
		{"two values", program("NN."), "f: byte 4: the pickle ends with 2 values on its stack; allowed: 1"},
		{"open mark", program("(."), "f: byte 3: the pickle ends with 1 values on its stack; allowed: 1"},
		{"no mark", program("]e"), "f: byte 3: no mark on the stack"},
		{"no list", program("(Ne"), "f: byte 4: items for a list that is not on the stack"},
		{"dict as list", program("}Na"), "f: byte 4: items for a list that is not on the stack"},
		{"mark as item", program("](a"), "f: byte 4: the stack holds too few values"},
		{"tuple of nothing", program("\x85"), "f: byte 2: the stack holds too few values"},
		{"key without value", program("}(Nu"), "f: byte 5: a dictionary key without a value"},
		{"list as key", program("}]Ns"), "f: byte 5: a dictionary key of type list"},
		{"memo of nothing", program("\x94"), "f: byte 2: nothing on the stack to store in the memo"},
		{"memo of a mark", program("(\x94"), "f: byte 3: nothing on the stack to store in the memo"},
		{"memo not there", program("h\x00"), "f: byte 2: memo entry 0, but there are 0"},
		{"memo with a gap", program("Nq\x05"), "f: byte 3: memo entry 5 is stored before entry 0"},
		{"long string", program("X\xff\xff\xff\xff"), "f: byte 2: a string of 4294967295 bytes; allowed: up to 1048576"},
		{"long integer", program("\x8a\x0a"), "f: byte 2: an integer of 10 bytes; allowed: up to 9"},
		{"65 bits", program("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01"), "f: byte 2: an integer of more than 64 bits"},

		{"not a dict", program("N."), "f: byte 0: the snapshot is of type None; allowed: dict"},
		{"no segments", program("}."), "f: byte 2: the key \"segments\" is missing"},
		{"segments no list", segments("N"), "f: byte 2: \"segments\" is of type None; allowed: list"},
		{"segment no dict", segments("](Ne"), "f: byte 14: a segment is of type None; allowed: dict"},
		{"no address", segments("](" + dict(word("device"), "K\x00") + "e"), "f: byte 16: the key \"address\" is missing"},
		{"address is text", segments("](" + dict(word("address"), word("x")) + "e"), "f: byte 16: \"address\" is of type str; allowed: int"},
		{"device", segments("](" + dict(word("device"), "J\xff\xff\xff\xff") + "e"), "f: byte 16: device -1; allowed: 0 to 65535"},
		{"negative size", segments("](" + dict(word("address"), "K\x00", word("total_size"), "J\xff\xff\xff\xff") + "e"), "f: byte 16: \"total_size\" = -1 bytes; allowed: 0 to 1125899906842624"},
		{"pool name", segment("]", word("segment_type"), word("medium")), "f: byte 16: \"segment_type\" = \"medium\"; allowed: small large"},
		{"pool id", segment("]", word("segment_pool_id"), "K\x00\x85"), "f: byte 16: \"segment_pool_id\" must be two integers"},
		{"no blocks", segment("N"), "f: byte 16: \"blocks\" is of type None; allowed: list"},
		{"holes", segment("]"), "f: byte 52: the blocks sum to 0 bytes; the segment at address 0 has 512"},
		{"state", segment("](" + dict(word("size"), "M\x00\x02", word("state"), word("lost")) + "e"), "f: byte 54: \"state\" = \"lost\"; allowed: inactive active_allocated active_pending_free"},
		{"block elsewhere", segment("](" + dict(word("address"), "K\x01", word("size"), "M\x00\x02", word("state"), word("inactive")) + "e"), "f: byte 54: a block at address 1; the blocks of a segment follow each other, expected: 0"},
		{"trace no list", file(word("segments"), "]", word("device_traces"), "](Ne"), "f: byte 30: a device's trace is of type None; allowed: list"},
		{"event without size", file(word("segments"), "]", word("device_traces"), "](]("+dict(word("action"), word("alloc"), word("addr"), "K\x00")+"ee"), "f: byte 34: the key \"size\" is missing"},
	} {
		_, err := Read(strings.NewReader(c.file), "f")
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
	}
}

// Every file that is cut off is refused, with the offset of the opcode that it
// lacks, or of part of it.
func TestTruncated(t *testing.T) {
	whole, err := os.ReadFile("testdata/classic.p4.pickle")
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		_, err := Read(bytes.NewReader(whole[:n]), "f")
		if err == nil || !strings.HasPrefix(err.Error(), "f: byte ") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// What follows the pickle is not looked at, as in Python.
func TestTrailingBytes(t *testing.T) {
	if _, err := Read(strings.NewReader(program("}(", word("segments"), "]u.rest")), "f"); err != nil {
		t.Error(err)
	}
}

// A file that names one list any number of times, or itself, must not grow.
func TestHostile(t *testing.T) {
	held := func(file string, ok bool) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, err := Read(strings.NewReader(file), "f")
		runtime.ReadMemStats(&after)
		if (err == nil) != ok {
			t.Fatalf("error %v, want none: %t", err, ok)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 200*uint64(len(file))+10<<20 {
			t.Errorf("%d bytes of file made %d bytes of memory", len(file), grown)
		}
		runtime.KeepAlive(s)
	}
	const n = 2000
	blocks := "](" + strings.Repeat("}("+word("size")+"K\x00"+word("state")+word("inactive")+"u", n) + "e\x94"
	one := "}(" + word("address") + "K\x00" + word("total_size") + "K\x00" + word("blocks") + blocks + "u\x94"
	held(program("}(", word("segments"), "](", one, strings.Repeat("h\x01", n), "eu."), true)

	trace := "](" + strings.Repeat("}("+word("action")+word("x")+"u", n) + "e\x94"
	held(program("}(", word("segments"), "]", word("device_traces"), "](", trace, strings.Repeat("h\x00", n), "eu."), true)

	held(program("]\x94h\x00a."), false)                                           // a list that holds itself, as snapshot
	held(program("}(", word("segments"), "]\x94h\x00au."), false)                  // and as segments
	held(program(strings.Repeat("]", 1<<20), strings.Repeat("a", 1<<20-1)), false) // deep
	held(program(strings.Repeat("(", 1<<20)), false)                               // marks
	held(program(strings.Repeat("X\x00\x00\x10\x00abc", 1)), false)                // a string that is not there
	held(program("N", strings.Repeat("\x94", 1<<20)), false)                       // memo
	held(program("]", strings.Repeat("(NNNNNNNNNNNNNNNe", 1<<16)), false)          // a list that grows
}

// Each limit stops a file that goes beyond it by one, and no other.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		limit limits
		body  func(n int) string
		want  string
	}{
		{limits{stack: 9, memo: 99, held: 99, text: 99}, func(n int) string { return strings.Repeat("N", n) + strings.Repeat("\x86", n-1) }, "more than 9 values on the stack"},
		{limits{stack: 99, memo: 9, held: 99, text: 99}, func(n int) string { return "N" + strings.Repeat("\x94", n) }, "more than 9 memo entries"},
		{limits{stack: 99, memo: 99, held: 9, text: 99}, func(n int) string { return "](" + strings.Repeat("N", n-1) + "e" }, "more than 9 values in lists, tuples and dictionaries"},
		{limits{stack: 99, memo: 99, held: 99, text: 9}, func(n int) string { return word(strings.Repeat("x", n-1)) + word("x") + "\x86" }, "more than 9 bytes in all strings together"},
	} {
		if _, err := unpickle(strings.NewReader(program(c.body(9), ".")), "f", c.limit); err != nil {
			t.Errorf("at the limit: %v", err)
		}
		_, err := unpickle(strings.NewReader(program(c.body(10), ".")), "f", c.limit)
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("beyond it: %v, want %s", err, c.want)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, s := range map[string]*Snapshot{
		"snapshot: -1 bytes; allowed: 0 and more":                                                       {Segments: []Segment{{Size: -1}}},
		"snapshot: block at address 0: state 9; allowed: inactive active_allocated active_pending_free": {Segments: []Segment{{Blocks: []Block{{State: 9}}}}},
		"snapshot: a string of 1048577 bytes; allowed: up to 1048576":                                   {Traces: [][]Event{{{Frames: []Frame{{Name: strings.Repeat("x", maxString+1)}}}}}},
	} {
		if err := Write(io.Discard, s); err == nil || err.Error() != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	if err := Write(fullDisk{}, classic()); err == nil {
		t.Error("a failed write is no error")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// An action without a name cannot be written.
func TestWriteLeavesOtherOut(t *testing.T) {
	s := &Snapshot{Segments: []Segment{}, Traces: [][]Event{{{Action: Other}, {Action: Alloc, Addr: 1, Size: 2}}}}
	got := rewrite(t, s)
	s.Traces[0] = s.Traces[0][1:]
	if diff := cmp.Diff(s, got); diff != "" {
		t.Error(diff)
	}
}

// rewrite writes s and reads it again.
func rewrite(t interface {
	Helper()
	Fatal(...any)
}, s *Snapshot) *Snapshot {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	if err := viewable(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b, "written")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// drawSnapshot makes any snapshot that the format holds.
func drawSnapshot(t *rapid.T) *Snapshot {
	size := rapid.Map(rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, 1<<40)), func(n int64) sim.Bytes { return sim.Bytes(n) })
	stacks := [][]Frame{nil}
	for range rapid.IntRange(0, 4).Draw(t, "stacks") {
		var f []Frame
		for range rapid.IntRange(1, 3).Draw(t, "frames") {
			f = append(f, Frame{rapid.SampledFrom([]string{"", "f", "g", strings.Repeat("long", 100)}).Draw(t, "name"), "a.py", rapid.IntRange(-1, 70000).Draw(t, "line")})
		}
		stacks = append(stacks, f)
	}
	stack := rapid.SampledFrom(stacks)
	s := &Snapshot{Segments: []Segment{}}
	for range rapid.IntRange(0, 3).Draw(t, "segments") {
		g := Segment{
			Device: rapid.IntRange(0, 7).Draw(t, "device"), Address: rapid.Uint64().Draw(t, "address"),
			Stream: rapid.Int64().Draw(t, "stream"), Large: rapid.Bool().Draw(t, "large"), Expandable: rapid.Bool().Draw(t, "expandable"),
			Pool: [2]int64{rapid.Int64().Draw(t, "pool"), 1}, Frames: stack.Draw(t, "stack"), Blocks: []Block{},
		}
		for range rapid.IntRange(0, 3).Draw(t, "blocks") {
			b := Block{g.Address + uint64(g.Size), size.Draw(t, "size"), size.Draw(t, "requested"), State(rapid.IntRange(0, 2).Draw(t, "state")), stack.Draw(t, "stack")}
			g.Blocks = append(g.Blocks, b)
			g.Size += b.Size
		}
		s.Segments = append(s.Segments, g)
	}
	for range rapid.IntRange(0, 2).Draw(t, "devices") {
		trace := []Event{}
		for range rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(900, 2100)).Draw(t, "events") {
			e := Event{Action: Alloc, Addr: 1 << 40, Size: 3}
			if len(trace) < 5 {
				e = Event{Action(rapid.IntRange(0, int(Dump)).Draw(t, "action")), rapid.Uint64().Draw(t, "addr"), size.Draw(t, "size"), rapid.Int64().Draw(t, "stream"), rapid.Int64().Draw(t, "time"), stack.Draw(t, "stack")}
				if e.Action == Dump {
					e.Addr = 0
				}
			}
			trace = append(trace, e)
		}
		s.Traces = append(s.Traces, trace)
	}
	if rapid.Bool().Draw(t, "settings") {
		s.Settings = []Setting{{"a", "1"}, {"b.1", "0.5"}, {"b.2", "true"}, {"c", "x"}, {"d", "-9223372036854775808"}}
	}
	return s
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		if got := rewrite(t, s); !reflect.DeepEqual(s, got) {
			t.Fatal(cmp.Diff(s, got))
		}
	})
}

// viewable checks a pickle against what the viewer takes (MemoryViz.js): the
// opcodes, and lists in batches that fit into a call. It is an independent walk
// over the opcodes, not the reader.
func viewable(b []byte) error {
	// Lengths of the arguments; -1: one byte of length comes first, -4: four.
	viewer := map[byte]int{
		0x80: 1, 0x95: 8, '.': 0, '(': 0, // PROTO FRAME STOP MARK
		'}': 0, 'd': 0, 's': 0, 'u': 0, ']': 0, 'l': 0, 'a': 0, 'e': 0, ')': 0, 't': 0, 0x85: 0, 0x86: 0, 0x87: 0,
		'N': 0, 0x88: 0, 0x89: 0, 'J': 4, 'K': 1, 'M': 2, 0x8a: -1, 'G': 8, 'X': -4, 0x8c: -1,
		'h': 1, 'j': 4, 'q': 1, 'r': 4, 0x94: 0,
	}
	depth := []int{0} // values since each open mark
	for at := 0; at < len(b); {
		op := b[at]
		n, ok := viewer[op]
		if !ok {
			return fmt.Errorf("byte %d: opcode 0x%02x", at, op)
		}
		at++
		switch n {
		case -1:
			n = 1 + int(b[at])
		case -4:
			n = 4 + int(binary.LittleEndian.Uint32(b[at:]))
		}
		at += n
		top := len(depth) - 1
		switch op {
		case '(':
			depth = append(depth, 0)
		case 'e', 'u':
			if depth[top] > 2*1000 || op == 'e' && depth[top] > 1000 {
				return fmt.Errorf("byte %d: a batch of %d items", at, depth[top])
			}
			depth = depth[:top]
		case 0x86:
			depth[top]--
		case 0x80, 0x94, '.':
		default:
			depth[top]++
		}
	}
	if len(depth) != 1 || depth[0] != 1 {
		return fmt.Errorf("stack %v at the end", depth)
	}
	if b[1] < 2 || b[1] > 4 {
		return fmt.Errorf("protocol %d", b[1])
	}
	return nil
}

// The check above finds what it is for.
func TestViewableBites(t *testing.T) {
	for _, bad := range []string{"\x80\x05N.", "\x80\x04I5\n.", "\x80\x04](" + strings.Repeat("N", 1001) + "e.", "\x80\x04NN."} {
		if viewable([]byte(bad)) == nil {
			t.Errorf("%.20q passes", bad)
		}
	}
}

// The keys that the viewer looks at are all there.
func TestWrittenKeys(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, classic()); err != nil {
		t.Fatal(err)
	}
	root, err := unpickle(&b, "written", usual())
	if err != nil {
		t.Fatal(err)
	}
	keys := func(v value, want string) {
		t.Helper()
		for _, key := range strings.Fields(want) {
			if _, ok := v.obj.get(key); !ok {
				t.Errorf("the key %q is missing", key)
			}
		}
	}
	child := func(v value, key string, i int) value {
		list, _ := v.obj.get(key)
		return list.obj.items[i]
	}
	keys(root, "segments device_traces allocator_settings")
	segment := child(root, "segments", 0)
	keys(segment, "device address total_size allocated_size active_size requested_size stream segment_type segment_pool_id is_expandable frames blocks")
	keys(child(segment, "blocks", 0), "address size requested_size state frames")
	traces, _ := root.obj.get("device_traces")
	keys(traces.obj.items[0].obj.items[1], "action addr size stream time_us frames")
	keys(traces.obj.items[0].obj.items[11], "action device_free size stream time_us frames")
	keys(child(traces.obj.items[0].obj.items[1], "frames", 0), "name filename line")
	pending := child(root, "segments", 1)
	for key, want := range map[string]int64{"allocated_size": 0, "active_size": 5 << 20, "requested_size": 5 << 20} {
		if v, _ := pending.obj.get(key); v.bits != want {
			t.Errorf("%s = %d, want %d", key, v.bits, want)
		}
	}
}

// Python reads what Write wrote, where there is one.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	file := filepath.Join(t.TempDir(), "s.pickle")
	s := classic()
	for range 2500 {
		s.Traces[1] = append(s.Traces[1], Event{Alloc, math.MaxUint64, 1 << 40, -5, 0, forward})
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(f, s); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "-c", `
import pickle, pickletools, sys
raw = open(sys.argv[1], "rb").read()
d = pickle.loads(raw)
e = d["device_traces"][1][2499]
print(len(d["segments"]), d["segments"][1]["segment_pool_id"], len(d["device_traces"][1]), e["addr"], e["size"], e["stream"],
      e["frames"][1]["name"], d["allocator_settings"]["roundup_power2_divisions"]["2"], d["allocator_settings"]["expandable_segments"])
`, file).CombinedOutput()
	if want := "3 (0, 0) 2500 18446744073709551615 1099511627776 -5 forward 0 False\n"; err != nil || string(out) != want {
		t.Errorf("%v: got %swant %s", err, out, want)
	}
}

// FuzzRead: no input makes the reader panic, and what it accepts survives
// writing and reading again.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.pickle")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Read(bytes.NewReader(b), "f")
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("the error has two lines: %v", err)
			}
			return
		}
		var once, twice bytes.Buffer
		if err := Write(&once, s); err != nil {
			t.Fatal(err)
		}
		again, err := Read(bytes.NewReader(once.Bytes()), "written")
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(&twice, again); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Fatal("writing what was read gives other bytes")
		}
	})
}

// longHistory is one of 150,000 events, about 10 MB of pickle.
func longHistory() *Snapshot {
	s := classic()
	stacks := make([][]Frame, 500)
	for i := range stacks {
		for j := range 20 {
			stacks[i] = append(stacks[i], Frame{fmt.Sprintf("layer%d.f%d", i, j), "/usr/lib/python3/site-packages/model/layers.py", i*20 + j})
		}
	}
	for i := range 150_000 {
		s.Traces[1] = append(s.Traces[1], Event{Action(i % 3), base + uint64(i)*512, sim.Bytes(i), 0, 1_700_000_000_000_000 + int64(i), stacks[i%500]})
	}
	return s
}

func BenchmarkRead(b *testing.B) {
	var file bytes.Buffer
	if err := Write(&file, longHistory()); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(file.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(bytes.NewReader(file.Bytes()), "f"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	s := longHistory()
	b.ReportAllocs()
	for b.Loop() {
		if err := Write(io.Discard, s); err != nil {
			b.Fatal(err)
		}
	}
}
