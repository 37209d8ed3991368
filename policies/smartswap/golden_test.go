package smartswap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"smartswap/profilers"
	"smartswap/profilers/layered"
	"smartswap/sim"
)

// The golden vectors are results of the shipped planner, revision
// a86ca5b5~1, on the iteration of package layered with 12 layers: 123 operators
// of 1 ms each, 10 GiB of other memory.
var twelve = layered.Config{Layers: 12, MicroBatches: 1, Duration: 123 * sim.Millisecond, Base: 10 * sim.GiB}

// generate plans twelve with a goal of that much below the peak.
func generate(t *testing.T, o Options, reduction sim.Bytes) *Schedule {
	t.Helper()
	o.Reduction = reduction
	s, err := Generate(Input{
		Profile: twelve.Observation(), Duration: twelve.Duration, Redundant: o.Redundant, Weight: o.SizeWeight,
	}, &o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// row prints a candidate like the golden tables.
func row(c *Candidate) string {
	return fmt.Sprintf("%s %d %v %d %v %v %v", twelve.Label(c.Tensor), c.OutOp, c.OutStage, c.InOp, c.InAt, c.Free, c.InFree)
}

func mib(b sim.Bytes) float64 { return float64(b) / float64(sim.MiB) }

func TestGoldenOneRound(t *testing.T) {
	s := generate(t, FaithfulV1(), 512*sim.MiB)
	if mib(s.Target) != 13689 || s.Reductions != 16 || s.Rounds != 1 || !s.Reached || mib(s.Bytes()) != 597 {
		t.Errorf("target %v MiB, %d reductions, %d rounds, reached %v, %v MiB", mib(s.Target), s.Reductions, s.Rounds, s.Reached, mib(s.Bytes()))
	}
	want := []string{
		"qkv1 3 F1.1 118 B1.11 F1.5 O0.0 2.397677",
		"qkv2 8 F1.2 113 B1.10 F1.6 B1.12 2.413532",
		"qkv3 13 F1.3 108 B1.9 F1.7 B1.11 2.429279",
		"qkv4 18 F1.4 103 B1.8 F1.8 B1.10 2.444920",
		"qkv5 23 F1.5 98 B1.7 F1.9 B1.9 2.460458",
		"qkv6 28 F1.6 93 B1.6 F1.10 B1.8 2.475893",
	}
	var got []string
	for i := range s.Swaps {
		got = append(got, fmt.Sprintf("%s %.6f", row(&s.Swaps[i]), s.Swaps[i].Score))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestGoldenThreeRounds(t *testing.T) {
	s := generate(t, FaithfulV1(), 1536*sim.MiB)
	if mib(s.Target) != 12665 || s.Reductions != 46 || s.Rounds != 3 || !s.Reached || mib(s.Bytes()) != 1743 || len(s.Swaps) != 29 {
		t.Errorf("target %v MiB, %d reductions, %d rounds, reached %v, %v MiB in %d swaps",
			mib(s.Target), s.Reductions, s.Rounds, s.Reached, mib(s.Bytes()), len(s.Swaps))
	}
	chosen := strings.Fields(`qkv6 qkv5 qkv4 qkv3 qkv2 qkv1 att7 att6 att5 att4 att3 att8 att2 att1 att9
		nrm7 nrm6 nrm5 att10 nrm4 nrm8 nrm3 nrm2 nrm1 att11 nrm9 nrm10 nrm11 mlp6`)
	rows := map[string]string{
		"qkv1":  "qkv1 3 F1.1 118 B1.11 F1.6 B1.12",
		"att5":  "att5 25 F1.5 99 B1.7 B1.1 B1.8",
		"nrm6":  "nrm6 27 F1.6 94 B1.6 B1.1 O0.0",
		"mlp6":  "mlp6 30 F1.6 91 B1.5 B1.3 B1.11",
		"att11": "att11 55 F1.11 69 B1.1 B1.8 B1.7",
	}
	var got []string
	for i := range s.Swaps {
		c := &s.Swaps[i]
		got = append(got, twelve.Label(c.Tensor))
		if want, ok := rows[twelve.Label(c.Tensor)]; ok && !strings.HasPrefix(dropOps(row(c)), dropOps(want)) {
			t.Errorf("got  %s\nwant %s", row(c), want)
		}
		if c.Delayed != (twelve.Label(c.Tensor) == "mlp6") {
			t.Errorf("%s delayed: %v", twelve.Label(c.Tensor), c.Delayed)
		}
	}
	slices.Sort(got)
	slices.Sort(chosen)
	if diff := cmp.Diff(chosen, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// dropOps leaves out what the golden rows do not give.
func dropOps(row string) string {
	f := strings.Fields(row)
	return strings.Join([]string{f[0], f[1], f[4], f[5], f[6]}, " ")
}

// evicted is the profile of an iteration with three evictions: one tensor
// never comes back.
func evicted() *profilers.Observation {
	obs := twelve.Observation()
	const host = 10000
	trips := []struct{ layer, out, in int }{{1, 50, 0}, {2, 52, 113}, {3, 54, 108}}
	for _, trip := range trips {
		tensor := twelve.Tensor(1, trip.layer, layered.Norm)
		bytes := twelve.Bytes(tensor)
		obs.Swaps = append(obs.Swaps, profilers.SwapRec{
			OpID: int64(trip.out), Out: true, Bytes: bytes, OOM: true, Src: tensor, Dst: host + tensor})
		end := 120 // the last use of layer 1's norm
		if trip.in > 0 {
			end = trip.in - 1
		}
		for i := trip.out; i <= end; i++ {
			obs.Ops[i].Active -= bytes
		}
	}
	for _, trip := range []struct{ layer, in int }{{3, 108}, {2, 113}} {
		tensor := twelve.Tensor(1, trip.layer, layered.Norm)
		obs.Swaps = append(obs.Swaps, profilers.SwapRec{
			OpID: int64(trip.in), Bytes: twelve.Bytes(tensor), OOM: true, Src: host + tensor, Dst: 2*host + tensor})
	}
	obs.OOM = true
	return obs
}

func TestGoldenCurve(t *testing.T) {
	obs := evicted()
	g, err := newGrid(obs, 12)
	if err != nil {
		t.Fatal(err)
	}
	var measured, theoretical sim.Bytes
	for i, b := range g.curve(obs) {
		measured, theoretical = max(measured, obs.Ops[i].Active), max(theoretical, b)
		want := 0.0
		switch {
		case i < 50:
		case i < 52:
			want = 33
		case i < 54:
			want = 67
		case i < 108:
			want = 102
		case i < 113:
			want = 67
		case i < 121:
			want = 33
		}
		if got := mib(b - obs.Ops[i].Active); got != want {
			t.Errorf("operator %d: theoretical - measured = %v MiB, want %v", i, got, want)
		}
	}
	if mib(measured) != 14099 || mib(theoretical) != 14201 {
		t.Errorf("peaks %v measured, %v theoretical", mib(measured), mib(theoretical))
	}
	o := FaithfulV1()
	for _, c := range []struct {
		redundant sim.Bytes
		target    float64
		n         int
	}{{o.Redundant, 12051, 62}, {o.Redundant + o.RedundantStep, 11751, 72}} {
		m := g.measure(obs, &o, true, c.redundant)
		if mib(m.target) != c.target || len(m.ops) != c.n {
			t.Errorf("target %v MiB with %d reductions, want %v with %d", mib(m.target), len(m.ops), c.target, c.n)
		}
		if c.n == 62 && (m.ops[0] != 30 || m.ops[61] != 91) {
			t.Errorf("reductions from %d to %d, want 30 to 91", m.ops[0], m.ops[61])
		}
	}
}

func TestTransfer(t *testing.T) {
	if got, want := transfer(97*sim.MiB, 25600), sim.Time(3_789_062_500); got != want {
		t.Errorf("97 MiB take %d ps, want %d (3.7890625 ms)", got, want)
	}
	if got := transfer(1, 25600); got != 38 { // 37.25 ps, rounded up
		t.Errorf("one byte takes %d ps, want 38", got)
	}
	if got := transfer(1<<62, 1); got != sim.Forever {
		t.Errorf("a copy that never ends takes %d ps", got)
	}
}
