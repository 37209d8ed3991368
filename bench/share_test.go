package bench

import (
	"fmt"
	"testing"

	"smartswap/sim"
)

// restart is the handler of a flow's end that starts the flow again.
type restart struct {
	share *sim.Share
	flows []sim.FlowSpec
	left  int
}

func (r *restart) Handle(arg uint32, _ sim.Stamp) {
	if r.left--; r.left >= 0 {
		r.share.Start(r.flows[arg])
	}
}

// BenchmarkShare reports the time and the allocations per flow, from its start
// to its end: on links wide enough for all caps ("fits"), and on one that all
// flows contend for, where each start and end re-times all of them.
func BenchmarkShare(b *testing.B) {
	for _, contended := range []bool{false, true} {
		for _, flows := range []int{1, 2, 8, 64} {
			name := map[bool]string{false: "fits", true: "contended"}[contended]
			b.Run(fmt.Sprintf("%s/%d", name, flows), func(b *testing.B) {
				const each = 1e9
				engine := sim.NewEngine()
				r := &restart{share: sim.NewShare(engine)}
				done := engine.Register(r)
				capacity := sim.Rate(flows * each)
				if contended {
					capacity = capacity/2 + 1
				}
				memory, link := r.share.Resource("memory", capacity), r.share.Resource("link", 2*capacity)
				for i := range flows {
					r.flows = append(r.flows, sim.FlowSpec{
						Path: []sim.Use{{Resource: memory}, {Resource: link}},
						Cap:  each,
						Work: sim.BytesWork(sim.Bytes(1000 + 37*i)),
						Done: done,
						Arg:  uint32(i),
					})
				}
				run := func(n int) {
					r.left = n - flows
					for _, f := range r.flows {
						r.share.Start(f)
					}
					if err := engine.Run(); err != nil {
						b.Fatal(err)
					}
				}
				const n = 1 << 14
				run(n) // warm up
				allocs := testing.AllocsPerRun(1, func() { run(n) })
				for b.Loop() {
					run(n)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/flow")
				b.ReportMetric(allocs/n, "allocs/flow")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
