package workloads_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"smartswap/workloads"
)

var regen = flag.Bool("regen", false, "write the golden files anew")

// listing shows a program as text, an instruction a line.
func listing(p *workloads.Program) string {
	var s strings.Builder
	storage := func(id workloads.StorageID) string {
		return fmt.Sprintf("%s#%d", p.Names.String(p.Storages[id].Label), id)
	}
	lanes := [...]string{"compute", "comm", "peer"}
	marks := [...]string{"iteration {", "forward {", "}", "backward {", "}", "optimizer {", "}", "validation {", "}", "}"}
	for _, in := range p.Instrs {
		switch in.Kind {
		case workloads.Op:
			fmt.Fprintf(&s, "%s on %s:", p.Names.String(in.Name), lanes[in.Lane])
			for _, a := range p.Args[in.ArgLo:in.ArgHi] {
				fmt.Fprintf(&s, " %s%s", [...]string{"", ">", "&"}[a.Mode], storage(a.Storage))
				if a.View > 0 {
					fmt.Fprintf(&s, ".%d", a.View)
				}
			}
			if in.Flags&workloads.Recomputed != 0 {
				s.WriteString(" (again)")
			}
		case workloads.Ref:
			continue // stands before every save
		case workloads.Drop:
			fmt.Fprintf(&s, "drop %s", storage(workloads.StorageID(in.A)))
		case workloads.Save:
			fmt.Fprintf(&s, "save %s", storage(workloads.StorageID(in.A)))
		case workloads.Unpack:
			fmt.Fprintf(&s, "unpack %s", storage(workloads.StorageID(in.A)))
		case workloads.Mark:
			fmt.Fprintf(&s, "%s", marks[in.Mark])
		case workloads.Sync:
			fmt.Fprintf(&s, "host waits for %s", lanes[in.Lane])
		case workloads.Record:
			fmt.Fprintf(&s, "%s records %d", lanes[in.Lane], in.A)
		case workloads.Wait:
			fmt.Fprintf(&s, "%s waits for %d", lanes[in.Lane], in.A)
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// Listings of small jobs. Beside each: every saved storage is unpacked as often
// as it is saved.
func TestListings(t *testing.T) {
	one := func(style workloads.Style) workloads.Model {
		m := tiny(style)
		m.Layers = 1
		return m
	}
	for name, c := range map[string]workloads.Config{
		"llama-eager":  {Model: one(workloads.Llama), SaveRule: workloads.Eager},
		"llama-tp2-sp": {Model: one(workloads.Llama), TP: 2, SequenceParallel: true, Recompute: workloads.Recompute{Kind: workloads.FullUniform}},
		"gpt-unfused":  {Model: one(workloads.GPT), Attention: workloads.Unfused, Recompute: workloads.Recompute{Kind: workloads.Selective}},
		"llama-dp2":    {Model: one(workloads.Llama), DP: 2, Recompute: workloads.Recompute{Kind: workloads.ActivationFunction}},
		"llama-zero3":  {Model: one(workloads.Llama), DP: 2, ZeRO: 3},
		"llama-lora":   {Model: one(workloads.Llama), Processes: []workloads.Process{workloads.LoRA{Rank: 4}}},
		"experts": {Model: func() workloads.Model { m := mixture(); m.Layers, m.Experts = 1, 2; return m }(), SaveRule: workloads.Eager,
			Processes: []workloads.Process{workloads.CheckpointSave{Every: 1, Pause: 1}, workloads.Extras{LogEvery: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := program(t, makeWorkload(t, c), 0, 0)
			balance := make(map[int32]int)
			for _, in := range p.Instrs {
				switch in.Kind {
				case workloads.Save:
					balance[in.A]++
				case workloads.Unpack:
					balance[in.A]--
				}
			}
			for s, n := range balance {
				if n != 0 {
					t.Errorf("storage %d is saved %d times more than it is unpacked", s, n)
				}
			}
			got := listing(p)
			path := filepath.Join("testdata", name+".golden")
			if *regen {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				a, b := strings.Split(got, "\n"), strings.Split(string(want), "\n")
				i := 0
				for i < min(len(a), len(b)) && a[i] == b[i] {
					i++
				}
				t.Errorf("differs from %s in line %d; run the test with -regen if that is meant\ngot  %v\nwant %v", path, i+1,
					slices.Concat(a[i:min(i+1, len(a))]), slices.Concat(b[i:min(i+1, len(b))]))
			}
		})
	}
}
