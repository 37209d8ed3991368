package workloads

import (
	"fmt"
	"strings"
)

// New makes the training job that c describes; the error is c.Check's. The
// workload generates a program when it is asked for one and keeps the latest; all
// its methods may be called by several goroutines. It is a TokenCounter.
//
// Ranks are numbered in Megatron-LM's order: tensor-parallel members first, then
// replicas, then stages. Folded ranks (see Config.Unfold) are the stages.
func New(c Config) (Workload, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	d := &decoder{c: c, names: newDecoderNames()}
	for s := range c.PP {
		d.stages = append(d.stages, newStage(c, s))
	}
	peers := c.TP * c.DP // devices of one stage
	for s := range c.PP {
		devices := make([]int, peers)
		for i := range devices {
			devices[i] = s*peers + i
		}
		if !c.Unfold {
			d.ranks = append(d.ranks, Rank{Devices: devices, Stage: s, Residents: d.stages[s].residents})
			continue
		}
		for i := range devices {
			d.ranks = append(d.ranks, Rank{Devices: devices[i : i+1 : i+1], Stage: s, Residents: d.stages[s].residents})
		}
	}
	return d, nil
}

// decoder is the Workload of a decoder transformer.
type decoder struct {
	c      Config
	names  *Names
	ranks  []Rank
	stages []*stage

	programs cache
}

type programKey struct {
	rank    int
	variant string
}

func (d *decoder) Names() *Names { return d.names }
func (d *decoder) Ranks() []Rank { return d.ranks }
func (d *decoder) Tokens() int64 { return int64(d.c.GlobalBatch) * int64(d.c.Seq) }

// Name tells everything that shapes the programs, for example
// "llama2-7b/s4096/b1g8/tp2pp1dp4/minimal/fused/full-block8".
func (d *decoder) Name() string {
	c := d.c
	var s strings.Builder
	fmt.Fprintf(&s, "%s/s%d/b%dg%d/tp%dpp%ddp%d", c.Model.Name, c.Seq, c.MicroBatch, c.GlobalBatch, c.TP, c.PP, c.DP)
	if c.VPP > 1 {
		fmt.Fprintf(&s, "v%d", c.VPP)
	}
	if c.SequenceParallel && c.TP > 1 {
		s.WriteString("sp")
	}
	if c.ZeRO == 3 {
		s.WriteString("/zero3")
	}
	fmt.Fprintf(&s, "/%s/%s", c.SaveRule, c.Attention)
	if r := c.Recompute; r.Kind != NoRecompute {
		fmt.Fprintf(&s, "/%s", r.Kind)
		if r.N > 0 {
			fmt.Fprintf(&s, "%d", r.N)
		}
		if r.Activation {
			s.WriteString("+activation")
		}
	}
	if c.Replicated && c.DP > 1 {
		s.WriteString("/replicated")
	}
	if c.Framework != MegatronCore {
		fmt.Fprintf(&s, "/%s", c.Framework)
	}
	if c.Unfold {
		s.WriteString("/unfolded")
	}
	return s.String()
}

func (d *decoder) Program(r, i int) (*Program, error) {
	if r < 0 || r >= len(d.ranks) || i < 0 {
		return nil, fmt.Errorf("rank %d, iteration %d: ranks are 0..%d, iterations from 0", r, i, len(d.ranks)-1)
	}
	v, err := d.c.variant(i, d.replica(r))
	if err != nil {
		return nil, err
	}
	d.project(r, &v)
	return d.programs.get(programKey{r, v.key()}, func() (*Program, error) { return generate(d, r, v) })
}

// project leaves out of v what makes no difference to rank r, so that iterations
// that are equal for it are one program.
func (d *decoder) project(r int, v *Variant) {
	if v.Skip { // extras follow a step
		v.Log, v.Average = false, false
	}
	st := d.stages[d.ranks[r].Stage]
	for i := range v.Micros {
		m := &v.Micros[i]
		if d.c.Attention == Unfused {
			m.Pairs = 0
		}
		without := m.Without
		m.Without = nil
		for _, u := range st.units {
			if u.layer >= 1 && u.layer <= v.Layers && without.Has(u.layer) {
				m.Without = m.Without.Add(u.layer)
			}
		}
	}
}

// replica is the data-parallel replica that rank r belongs to.
func (d *decoder) replica(r int) int {
	if !d.c.Unfold {
		return 0
	}
	return r / d.c.TP % d.c.DP
}

// TokensIn implements TokenCounter.
func (d *decoder) TokensIn(i int) (int64, error) {
	replicas, weight := d.c.DP, int64(1)
	if !d.c.Unfold {
		replicas, weight = 1, int64(d.c.DP)
	}
	total := int64(0)
	for r := range replicas {
		v, err := d.c.variant(i, r)
		if err != nil {
			return 0, err
		}
		for _, m := range v.Micros {
			total += weight * int64(m.Tokens())
		}
	}
	return total, nil
}
