package workloads

import (
	"cmp"
	"slices"
)

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

// step is one entry of a stage's schedule; micro-batches and the chunks of a
// stage count from 0. A transfer names the chunk of this stage, so that the two
// ends of one may name different chunks.
type step struct {
	kind         stepKind
	chunk, micro int
}

// transfers tells whether s is an end of a transfer.
func (s step) transfers() bool { return s.kind != forward && s.kind != backward }

// pass is one forward or backward pass of a chunk, and when it runs in the
// schedule's own time.
type pass struct {
	backward     bool
	chunk, micro int
	start, end   int
}

// duration of a pass in the schedule's own time: backward does twice the work.
func (p pass) duration() int {
	if p.backward {
		return 2
	}
	return 1
}

// forwardOrder lists the forward passes of a stage, the same on every stage:
// micro-batches in groups as large as the pipeline is long, each group through
// one chunk after the other. With one chunk that is just their order.
func forwardOrder(stages, chunks, micros int) []pass {
	list := make([]pass, 0, chunks*micros)
	for lo := 0; lo < micros; lo += stages {
		for chunk := range chunks {
			for micro := lo; micro < min(lo+stages, micros); micro++ {
				list = append(list, pass{chunk: chunk, micro: micro})
			}
		}
	}
	return list
}

// passes is the order of compute of a stage under the 1F1B rule of
// PipeDream-flush, interleaved over chunks (Narayanan et al., arXiv 2104.04473
// section 2.2; Megatron-LM megatron/core/pipeline_parallel/schedules.py): some
// forwards to warm up, then one forward and one backward in turn, then the
// backwards that are left. Backward passes go through the chunks the other way
// round.
//
// With one chunk a stage warms up with stages-1-stage forwards and never holds
// more than stages-stage micro-batches. With more it must reach the last chunk
// first: (chunks-1)*stages forwards more, and twice the distance to the end. It begins
// with warm forwards and ends with as many backwards.
func passes(stage, stages, chunks, micros int) (list []pass, warm int) {
	forwards := forwardOrder(stages, chunks, micros)
	backwards := slices.Clone(forwards)
	for i := range backwards {
		backwards[i].backward = true
		backwards[i].chunk = chunks - 1 - backwards[i].chunk
	}
	warm = stages - 1 - stage
	if chunks > 1 {
		warm = 2*warm + (chunks-1)*stages
	}
	warm = min(warm, len(forwards))
	list = slices.Clone(forwards[:warm])
	for i, f := range forwards[warm:] {
		list = append(list, f, backwards[i])
	}
	return append(list, backwards[len(forwards)-warm:]...), warm
}

// exchange is when stages exchange tensors.
type exchange uint8

const (
	// between two passes, so that memory is taken as late as can be
	between exchange = iota
	// beside: posted a pass earlier in an interleaved pipeline, so that a transfer
	// runs beside that pass (overlap_p2p_comm of Megatron-Core); otherwise between.
	beside
	// inTurns: between two passes, in an interleaved pipeline only after each
	// forward and backward that a stage does in turn (Megatron-LM before
	// Megatron-Core, megatron/schedules.py, send_forward_backward_recv_forward_backward)
	inTurns
)

// transfer is a tensor that one stage sends to another.
type transfer struct {
	time     int // when it takes place
	from, to int // stages
	producer pass
	consumer pass
}

// schedule is what each stage does, in order; forwardOnly leaves the backward
// passes out, as validation does.
//
// Sends and receives of a stage run on one stream in this order, and a transfer
// starts when both ends have reached it, so the order must not let stages wait
// for each other. All stages are therefore laid out on one clock, on which a
// forward takes 1 and a backward 2 and transfers nothing. A transfer takes place
// once the tensor exists and the receiver has posted for it, see exchange. Every stage
// does its passes and transfers in the order of that clock (passes by their ends),
// ties broken the same way everywhere: whatever real times are, nothing can wait in a
// circle. On the clock nothing waits for a transfer, so its order costs no bubble. (The
// original posts the transfers of a step as one group, which has no order. Where stages
// wait for it, inTurns, those of even stages come first, so that not one waits for the
// other all around the ring.)
//
// The result is nil if the passes themselves cannot be laid out: with more than
// one chunk, when micros is not a multiple of stages.
func schedule(stages, chunks, micros int, forwardOnly bool, when exchange) [][]step {
	grid := make([][]pass, stages)
	turns := make([]span, stages) // passes that a stage does between two exchanges, if more than one
	for s := range grid {
		if forwardOnly {
			grid[s] = forwardOrder(stages, chunks, micros)
		} else {
			var warm int
			grid[s], warm = passes(s, stages, chunks, micros)
			if when == inTurns && chunks > 1 {
				turns[s] = span{warm, len(grid[s]) - warm}
			}
		}
	}
	transfers, ok := layOut(grid, turns, chunks, micros, when == beside && chunks > 1)
	if !ok {
		return nil
	}
	slices.SortFunc(transfers, func(a, b transfer) int {
		back := func(t transfer) int { // gradients first: they free memory
			if t.producer.backward {
				return 0
			}
			return 1
		}
		odd := func(t transfer) int {
			if when == inTurns {
				return t.from & 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(back(a), back(b)), cmp.Compare(odd(a), odd(b)),
			cmp.Compare(a.producer.micro, b.producer.micro), cmp.Compare(a.producer.chunk, b.producer.chunk), cmp.Compare(a.from, b.from))
	})
	steps := make([][]step, stages)
	next := make([]int, stages) // pass of each stage
	upTo := func(s, time int) { // the passes of s that are over by then
		for ; next[s] < len(grid[s]) && grid[s][next[s]].end <= time; next[s]++ {
			p := grid[s][next[s]]
			kind := forward
			if p.backward {
				kind = backward
			}
			steps[s] = append(steps[s], step{kind, p.chunk, p.micro})
		}
	}
	for _, t := range transfers {
		send, receive := sendForward, receiveForward
		if t.producer.backward {
			send, receive = sendBackward, receiveBackward
		}
		upTo(t.from, t.time)
		upTo(t.to, t.time)
		steps[t.from] = append(steps[t.from], step{send, t.producer.chunk, t.producer.micro})
		steps[t.to] = append(steps[t.to], step{receive, t.consumer.chunk, t.consumer.micro})
	}
	for s := range steps {
		upTo(s, 1<<62)
	}
	return steps
}

// layOut gives every pass its times and lists the transfers between stages; ok
// is false if the passes wait for each other in a circle. A stage exchanges tensors
// after each pass, and after each second one of its turns. It posts for a pass at the
// exchange before it, or a pass earlier.
func layOut(grid [][]pass, turns []span, chunks, micros int, early bool) (transfers []transfer, ok bool) {
	stages := len(grid)
	at := func(s int, p pass) int {
		i := (s*chunks+p.chunk)*micros + p.micro
		if p.backward {
			i += stages * chunks * micros
		}
		return i
	}
	type result struct {
		pass
		given int // when it can be sent
	}
	done := make([]*result, 2*stages*chunks*micros)
	next := make([]int, stages)
	for progress := true; progress; {
		progress = false
		for s := range grid {
			for next[s] < len(grid[s]) {
				turn := grid[s][next[s] : next[s]+1]
				if next[s] >= turns[s].lo && next[s] < turns[s].hi {
					turn = grid[s][next[s] : next[s]+2]
				}
				free, posted := 0, 0 // when the stage is free, and when it posts
				if i := next[s]; i > 0 {
					free, posted = grid[s][i-1].end, grid[s][i-1].end
					if early {
						posted = grid[s][i-1].start
					}
				}
				var come []transfer
				ready := true
				start := free
				for _, p := range turn {
					from, need, needs := before(s, p, stages, chunks)
					if !needs || from == s && slices.Contains(turn, need) {
						continue
					}
					producer := done[at(from, need)]
					if producer == nil {
						ready = false
						break
					}
					start = max(start, producer.given)
					if from != s {
						come = append(come, transfer{max(posted, producer.given), from, s, producer.pass, p})
					}
				}
				if !ready {
					break
				}
				end := start
				for i := range turn {
					turn[i].start, turn[i].end = end, end+turn[i].duration()
					end = turn[i].end
				}
				for _, p := range turn {
					done[at(s, p)] = &result{p, end}
				}
				transfers = append(transfers, come...)
				next[s] += len(turn)
				progress = true
			}
		}
	}
	for s := range grid {
		if next[s] < len(grid[s]) {
			return nil, false
		}
	}
	return transfers, true
}

// before is the pass, and its stage, whose result p of stage s needs. The last
// chunk's forward of the last stage yields the gradient that backward starts
// from.
func before(s int, p pass, stages, chunks int) (stage int, need pass, needs bool) {
	need = p
	switch {
	case !p.backward && s > 0:
		return s - 1, need, true
	case !p.backward && p.chunk > 0:
		need.chunk--
		return stages - 1, need, true
	case !p.backward:
		return 0, pass{}, false
	case s < stages-1:
		return s + 1, need, true
	case p.chunk < chunks-1:
		need.chunk++
		return 0, need, true
	}
	need.backward = false
	return s, need, true
}
