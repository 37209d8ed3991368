package dtr

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"smartswap/formats/formatstest"
	"smartswap/formats/notes"
	"smartswap/sim"
)

func read(r io.Reader, list *notes.List) (all []*Instr, err error) {
	err = Read(r, "log", list, func(i *Instr) error { all = append(all, i); return nil })
	return all, err
}

func small(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/small.log")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSmall(t *testing.T) {
	var list notes.List
	got, err := read(bytes.NewReader(small(t)), &list)
	if err != nil || len(list.All()) != 0 {
		t.Fatal(err, list.All())
	}
	us := sim.Microsecond
	want := []*Instr{
		{Kind: Constant, Name: "w", Bytes: 4096, Line: 2},
		{Kind: Constant, Name: "in", Bytes: 1024, Line: 4},
		{Kind: Call, Name: "mm", Time: 2 * us, Args: []string{"in", "w"}, Results: []Result{{"a", 8192, Own}}, Line: 6},
		{Kind: Copy, Dst: "saved", Src: "a", Line: 9},
		{Kind: Call, Name: "t", Args: []string{"a"}, Results: []Result{{"v", 0, 0}}, Line: 10},
		{Kind: Release, Name: "a", Line: 13},
		{Kind: Mutate, Name: "relu_", Time: us / 2, Args: []string{"v"}, Mutated: []int{0}, Line: 14},
		{Kind: Call, Name: "max", Time: 700 * sim.Nanosecond, Args: []string{"v", "v"}, Results: []Result{{"m", 512, Own}, {"unused", 256, Own}}, Line: 15},
		{Kind: Backward, Line: 20},
		{Kind: Call, Name: "mm_backward", Time: 4 * us, Args: []string{"m", "saved"}, Results: []Result{{"g", 4096, Own}}, Line: 21},
		{Kind: Release, Name: "nobody", Line: 24},
		{Kind: CopyFrom, Dst: "m", Src: "g", Line: 25},
		{Kind: Release, Name: "saved", Line: 26},
		{Kind: Release, Name: "v", Line: 27},
		{Kind: Release, Name: "unused", Line: 28},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBefore(t *testing.T) {
	var list notes.List
	got, err := read(strings.NewReader(`{"INSTRUCTION":"RELEASE","NAME":"x"}`+"\n"+string(small(t))), &list)
	if err != nil || got[0].Name != "w" || !strings.Contains(fmt.Sprint(list.All()), "log:1: skipped: instruction before START") {
		t.Errorf("%+v, %v, %v", got[0], err, list.All())
	}
}

func TestRefused(t *testing.T) {
	call := `{"INSTRUCTION":"CALL","NAME":"f","ARGS":["a"],"RESULT":["b"],"TIME":"1"}` + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":         {"", "log: no operator"},
		"no operator":   {`{"INSTRUCTION":"RELEASE","NAME":"x"}`, "log: no operator"},
		"unknown":       {"\n" + `{"INSTRUCTION":"JUMP"}`, `log:2: instruction "JUMP"; allowed: ANNOTATE`},
		"no memory":     {call, `log:1: f: no MEMORY line follows for "b"`},
		"no memory 2":   {call + call, `log:1: f: no MEMORY line follows for "b"`},
		"constant":      {`{"INSTRUCTION":"CONSTANT","NAME":"c"}`, `no MEMORY line follows for "c"`},
		"alias":         {call + `{"INSTRUCTION":"ALIAS","NAME":"b","ALIAS":"1"}`, `log:2: "b" shares the memory of argument 1 of f; allowed: below 1`},
		"negative":      {call + `{"INSTRUCTION":"MEMORY","NAME":"b","MEMORY":"-1"}`, "log:2: MEMORY of \"b\" without"},
		"huge":          {call + `{"INSTRUCTION":"MEMORY","NAME":"b","MEMORY":"9e17"}`, "log:2: value \"9e17\"; allowed"},
		"time":          {`{"INSTRUCTION":"CALL","NAME":"f","ARGS":[],"RESULT":[],"TIME":"1.5"}`, `value "1.5"`},
		"no time":       {`{"INSTRUCTION":"CALL","NAME":"f","ARGS":[],"RESULT":[]}`, "without a TIME"},
		"mutated":       {`{"INSTRUCTION":"MUTATE","NAME":"f","ARGS":["a"],"MUTATE":[1],"TIME":"1"}`, "changes argument 1; allowed: below 1"},
		"no name":       {`{"INSTRUCTION":"COPY","DST":"a"}`, "COPY without a name"},
		"cut":           {call + `{"INSTRUCTION":"MEM`, "log:2: the file ends inside a value"},
		"other content": {"[1]", "log:1: '[' where an object"},
	} {
		_, err := read(strings.NewReader(`{"INSTRUCTION": "ANNOTATE", "ANNOTATION": "START"} `+c.text), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
}

// The published logs against their README.
func TestRealLogs(t *testing.T) {
	for name, want := range map[string]struct {
		calls, mutates, constants, aliases, several int
		time                                        sim.Time // ns
		bytes                                       sim.Bytes
	}{
		"inceptionv4":    {1109, 149, 1049, 88, 452, 636_429_561, 239_640_948},
		"lstm":           {7798, 128, 137, 2943, 128, 769_458_833, 194_424_928},
		"resnet32":       {286, 0, 223, 16, 94, 291_905_487, 35_584_920},
		"tv_densenet121": {1951, 121, 853, 611, 364, 355_299_140, 82_830_040},
		"unet":           {210, 37, 152, 46, 59, 435_278_292, 93_386_276},
	} {
		var list notes.List
		got := want
		got.calls, got.mutates, got.constants, got.aliases, got.several, got.time, got.bytes = 0, 0, 0, 0, 0, 0, 0
		err := Read(formatstest.Open(t, "dtr", "logs", name+".log.gz"), name, &list, func(i *Instr) error {
			got.time += i.Time / sim.Nanosecond
			switch i.Kind {
			case Call:
				got.calls++
				if len(i.Results) > 1 {
					got.several++
				}
				for _, r := range i.Results {
					if r.Alias != Own {
						got.aliases++
					}
				}
			case Mutate:
				got.mutates++
			case Constant:
				got.constants++
				got.bytes += i.Bytes
			}
			return nil
		})
		if err != nil || got != want || len(list.All()) > 0 {
			t.Errorf("%s: %+v; want %+v; %v, %v", name, got, want, err, list.All())
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(small(f))
	f.Add([]byte(`{"INSTRUCTION":"CALL","NAME":"f","ARGS":["a","a"],"RESULT":["b","b"],"TIME":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_ = Read(bytes.NewReader(text), "log", nil, func(i *Instr) error {
			for _, r := range i.Results {
				if r.Bytes < 0 || r.Alias < Own || r.Alias >= len(i.Args) {
					t.Errorf("%+v", i)
				}
			}
			for _, m := range i.Mutated {
				if m < 0 || m >= len(i.Args) {
					t.Errorf("%+v", i)
				}
			}
			if i.Time < 0 || i.Bytes < 0 {
				t.Errorf("%+v", i)
			}
			return nil
		})
	})
}

// What was read is written and read again.
func TestWriter(t *testing.T) {
	var list notes.List
	want, err := read(bytes.NewReader(small(t)), &list)
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, &Instr{Kind: Call, Name: "a \"b\" <c>", Args: []string{"g"}})
	var out bytes.Buffer
	w := NewWriter(&out)
	for _, i := range want {
		w.Write(i)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := read(bytes.NewReader(out.Bytes()), &list)
	if err != nil || len(list.All()) != 0 {
		t.Fatal(err, list.All(), out.String())
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Instr{}, "Line"), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}
