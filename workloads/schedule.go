package workloads

// stepKind is what a pipeline stage does next with a micro-batch.
type stepKind uint8

const (
	receiveForward stepKind = iota // an activation from the stage before
	forward
	sendForward
	receiveBackward // a gradient from the stage after
	backward
	sendBackward
)

// step is one entry of a stage's schedule; micro counts from 0.
type step struct {
	kind  stepKind
	micro int
}

// oneForwardOneBackward is the schedule of a stage under the 1F1B rule of
// PipeDream-flush (Megatron-LM megatron/core/pipeline_parallel/schedules.py,
// the version without interleaving): stages-1-stage forwards to warm up, then one
// forward and one backward in turn, then the backwards that are left. A stage
// never holds more than stages-stage micro-batches.
//
// Sends and receives of a stage run on one stream in this order, and a transfer
// starts when both ends have reached it, so the order must not let two
// neighbours wait for each other. In the steady state the later stage sends the
// gradient of micro-batch k before it receives the activation that it needs
// next; the earlier one therefore receives that gradient before it sends that
// activation, although it has the activation first. Nothing is lost: the later
// stage cannot use the activation before its gradient is out. (The original
// posts both as one group, which has no order.)
func oneForwardOneBackward(stage, stages, micros int) []step {
	var steps []step
	add := func(kind stepKind, micro int) {
		switch {
		case stage == 0 && (kind == receiveForward || kind == sendBackward):
		case stage == stages-1 && (kind == sendForward || kind == receiveBackward):
		default:
			steps = append(steps, step{kind, micro})
		}
	}
	warm := min(stages-1-stage, micros)
	for i := range warm {
		add(receiveForward, i)
		add(forward, i)
		add(sendForward, i)
	}
	for i := warm; i < micros; i++ {
		add(receiveForward, i)
		add(forward, i)
		add(receiveBackward, i-warm)
		add(sendForward, i)
		add(backward, i-warm)
		add(sendBackward, i-warm)
	}
	for i := micros - warm; i < micros; i++ {
		add(receiveBackward, i)
		add(backward, i)
		add(sendBackward, i)
	}
	return steps
}
