package inspect

import (
	"fmt"

	"smartswap/hw"
	"smartswap/profilers"
	"smartswap/profilers/layered"
	"smartswap/sim"
	"smartswap/workloads"
	"smartswap/workloads/trace"
)

// runLayered writes the iteration of package layered as a native file.
func runLayered(c *call) error {
	cfg := layered.Config{Base: 10 * sim.GiB}
	c.flags.IntVar(&cfg.Layers, "layers", 12, "`number` of layers")
	c.flags.IntVar(&cfg.MicroBatches, "micro-batches", 1, "`number` of micro-batches")
	perOp := c.flags.Duration("op", 1e6, "device `time` of every operator")
	if err := c.parse(1); err != nil {
		return err
	}
	const most = 1000
	for _, f := range []struct {
		flag  string
		value int
	}{{"layers", cfg.Layers}, {"micro-batches", cfg.MicroBatches}} {
		if f.value < 1 || f.value > most {
			return fmt.Errorf("-%s %d: allowed: 1 to %d", f.flag, f.value, most)
		}
	}
	if *perOp < 0 || perOp.Minutes() > 1 {
		return fmt.Errorf("-op %v: allowed: 0 to 1m", *perOp)
	}
	w, err := newLayered(cfg, sim.Time(perOp.Nanoseconds())*sim.Nanosecond)
	if err != nil {
		return err
	}
	if err := trace.Export(c.args[0], w, 1); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "%s: %d operators\n", c.args[0], w.program.Ops)
	return err
}

// layeredJob is the iteration of a layered.Config as a workload of one rank.
type layeredJob struct {
	rank    workloads.Rank
	program *workloads.Program
}

// newLayered writes the program: besides the tensors of the configuration there
// is one buffer of its base size that is never swapped.
func newLayered(cfg layered.Config, perOp sim.Time) (*layeredJob, error) {
	names := workloads.NewNames()
	residents := []workloads.Storage{{Bytes: cfg.Base, Class: workloads.Parameter, Flat: true, Label: names.ID("base"), Shape: [4]int32{1}}}
	b := workloads.NewBuilder(names, residents)
	ops := cfg.Ops()
	last := make(map[profilers.Tensor]int)
	for i, op := range ops {
		for _, t := range op.Args {
			last[t] = i
		}
	}
	kernel := workloads.Kernel{Work: hw.Work{Kind: hw.Measured, Family: hw.MatMul, Time: perOp}}
	storage := make(map[profilers.Tensor]workloads.StorageID)
	b.Mark(workloads.MarkIterationBegin, 0, 0)
	stage := profilers.Stage{Phase: profilers.Init}
	for i, op := range ops {
		if op.Stage != stage {
			end(b, stage)
			stage = op.Stage
			begin(b, stage)
		}
		var args []workloads.Arg
		for _, t := range op.Args {
			if s, ok := storage[t]; ok {
				args = append(args, workloads.In(s))
				continue
			}
			storage[t] = b.New(workloads.Storage{Bytes: cfg.Bytes(t), Label: names.ID(cfg.Label(t)), Shape: [4]int32{1}})
			args = append(args, workloads.Out(storage[t]))
		}
		b.Op(workloads.OpSpec{Name: names.ID(op.Name()), Kernel: kernel}, args...)
		for _, t := range op.Args {
			if last[t] == i && t != layered.Misc {
				b.Drop(storage[t])
				last[t] = -1
			}
		}
	}
	end(b, stage)
	b.Drop(storage[layered.Misc])
	b.Mark(workloads.MarkIterationEnd, 0, 0)
	p, err := b.Program("train")
	return &layeredJob{workloads.Rank{Devices: []int{0}, Residents: residents}, p}, err
}

// begin and end mark the borders of a stage.
func begin(b *workloads.Builder, s profilers.Stage) {
	switch s.Phase {
	case profilers.Forward:
		b.Mark(workloads.MarkForwardBegin, int(s.MicroBatch), 0)
	case profilers.Backward:
		b.Mark(workloads.MarkBackwardBegin, int(s.MicroBatch), 0)
	case profilers.Optim:
		b.Mark(workloads.MarkOptimizerBegin, 0, 0)
	}
}

func end(b *workloads.Builder, s profilers.Stage) {
	switch s.Phase {
	case profilers.Forward:
		b.Mark(workloads.MarkForwardEnd, int(s.MicroBatch), 0)
	case profilers.Backward:
		b.Mark(workloads.MarkBackwardEnd, int(s.MicroBatch), 0)
	case profilers.Optim:
		b.Mark(workloads.MarkOptimizerEnd, 0, 0)
	}
}

// Name is "layered".
func (*layeredJob) Name() string { return "layered" }

// Ranks is the one rank.
func (j *layeredJob) Ranks() []workloads.Rank { return []workloads.Rank{j.rank} }

// Program is the same in every iteration.
func (j *layeredJob) Program(int, int) (*workloads.Program, error) { return j.program, nil }

// Tokens is zero.
func (*layeredJob) Tokens() int64 { return 0 }

// Names are those of the program.
func (j *layeredJob) Names() *workloads.Names { return j.program.Names }
