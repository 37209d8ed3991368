package workloads

import (
	"slices"
	"strings"
	"testing"
)

// text writes steps as F0 (forward of micro-batch 0), >f0 and <f0 (its transfers),
// B0, >b0, <b0; of chunk 1 as F0'.
func text(steps []step) string {
	letters := map[stepKind]string{receiveForward: "<f", forward: "F", sendForward: ">f", receiveBackward: "<b", backward: "B", sendBackward: ">b"}
	var list []string
	for _, s := range steps {
		list = append(list, letters[s.kind]+string(rune('0'+s.micro))+strings.Repeat("'", s.chunk))
	}
	return strings.Join(list, " ")
}

func TestOneForwardOneBackward(t *testing.T) {
	for _, c := range []struct {
		stage, stages, micros int
		want                  string
	}{
		{0, 1, 2, "F0 B0 F1 B1"},
		{0, 2, 2, "F0 >f0 F1 <b0 >f1 B0 <b1 B1"},
		{1, 2, 2, "<f0 F0 B0 >b0 <f1 F1 B1 >b1"},
		{0, 4, 1, "F0 >f0 <b0 B0"},
		{1, 4, 3, "<f0 F0 >f0 <f1 F1 >f1 <f2 F2 <b0 >f2 B0 >b0 <b1 B1 >b1 <b2 B2 >b2"},
	} {
		if s := text(schedule(c.stages, 1, c.micros, false, between)[c.stage]); s != c.want {
			t.Errorf("stage %d of %d, %d micro-batches: %s, want %s", c.stage, c.stages, c.micros, s, c.want)
		}
	}
}

// Two stages of two chunks: by hand, from the order of Megatron-LM (forwards
// 0 1 0' 1' 2 3 2' 3', backwards 0' 1' 0 1 2' 3' 2 3) and the clock.
func TestInterleaved(t *testing.T) {
	compute := func(steps []step) string {
		return text(slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return s.kind != forward && s.kind != backward }))
	}
	s := schedule(2, 2, 4, false, beside)
	for stage, want := range []string{
		"F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3",
		"F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3",
	} {
		if got := compute(s[stage]); got != want {
			t.Errorf("stage %d: %s, want %s", stage, got, want)
		}
	}
	if got, want := text(schedule(2, 2, 2, true, beside)[0]), "F0 >f0 F1 <f0' >f1 F0' >f0' <f1' F1' >f1'"; got != want {
		t.Errorf("forward only: %s, want %s", got, want)
	}
	if schedule(5, 2, 7, false, beside) != nil {
		t.Error("seven micro-batches on five interleaved stages can be laid out")
	}
}

// All stages' transfers follow one order: whichever lanes and passes come first,
// running every stage's steps as soon as both ends of a transfer have come to it
// gets everything done.
func TestScheduleRuns(t *testing.T) {
	for stages := 1; stages <= 9; stages++ {
		for chunks := 1; chunks <= 4 && (chunks == 1 || stages > 1); chunks++ {
			for micros := 1; micros <= 20; micros++ {
				if chunks > 1 && micros%stages != 0 {
					continue
				}
				for _, forwardOnly := range []bool{false, true} {
					for _, when := range []exchange{between, beside, inTurns} {
						steps := schedule(stages, chunks, micros, forwardOnly, when)
						if steps == nil {
							t.Fatalf("%d stages, %d chunks, %d micro-batches, forward only %t, exchange %d: no schedule", stages, chunks, micros, forwardOnly, when)
						}
						if left := rendezvous(steps); left > 0 {
							t.Errorf("%d stages, %d chunks, %d micro-batches, forward only %t, exchange %d: %d steps are left", stages, chunks, micros, forwardOnly, when, left)
						}
					}
				}
			}
		}
	}
}

// rendezvous runs steps in order, a transfer when its two ends are next, and
// returns how many cannot run.
func rendezvous(steps [][]step) (left int) {
	stages := len(steps)
	meets := func(s, to int, a, b step) bool {
		chunk := a.chunk
		switch {
		case a.kind == sendForward && b.kind == receiveForward && to == (s+1)%stages:
			if s == stages-1 {
				chunk++
			}
		case a.kind == sendBackward && b.kind == receiveBackward && to == (s+stages-1)%stages:
			if s == 0 {
				chunk--
			}
		default:
			return false
		}
		return a.micro == b.micro && b.chunk == chunk
	}
	for progress := true; progress; {
		progress = false
		for s := range steps {
			for len(steps[s]) > 0 {
				head := steps[s][0]
				if head.kind == forward || head.kind == backward {
					steps[s] = steps[s][1:]
					progress = true
					continue
				}
				to := -1
				for r := range steps {
					if len(steps[r]) > 0 && r != s && meets(s, r, head, steps[r][0]) {
						to = r
					}
				}
				if to < 0 {
					break
				}
				steps[s], steps[to] = steps[s][1:], steps[to][1:]
				progress = true
			}
		}
	}
	for s := range steps {
		left += len(steps[s])
	}
	return left
}

// TestInTurns: before Megatron-Core an interleaved stage does a forward and a backward
// between two exchanges once it has warmed up, and the transfers of an exchange are not
// one after the other around the ring: all in all a stage waits for a few at each.
func TestInTurns(t *testing.T) {
	const stages, chunks, micros = 9, 3, 27
	all := schedule(stages, chunks, micros, false, inTurns)
	for s, steps := range all {
		warm := min(2*(stages-1-s)+(chunks-1)*stages, chunks*micros)
		done := 0
		for i, x := range steps {
			if x.transfers() {
				continue
			}
			if turn := done - warm; turn >= 0 && turn < 2*(chunks*micros-warm) && turn%2 == 1 && (x.kind != backward || steps[i-1].kind != forward) {
				t.Errorf("stage %d: pass %d is %s after %s", s, done, text(steps[i:i+1]), text(steps[i-1:i]))
			}
			done++
		}
	}
	const f, b, transfer = 100, 200, 1
	ideal := (f + b) * (chunks*micros + stages - 1)
	passes := 2 * chunks * micros
	took := blocking(all, f, b, transfer)
	if most := ideal + 4*transfer*passes; took > most {
		t.Errorf("takes %d, want at most %d: %d and four transfers for each pass", took, most, ideal)
	}
}

// blocking is how long steps take if both stages wait for every transfer.
func blocking(steps [][]step, f, b, transfer int) (end int) {
	stages := len(steps)
	now, next := make([]int, stages), make([]int, stages)
	for progress := true; progress; {
		progress = false
		for s := range steps {
			for next[s] < len(steps[s]) {
				x := steps[s][next[s]]
				to := s
				switch x.kind {
				case forward:
					now[s] += f
				case backward:
					now[s] += b
				case sendForward:
					to = (s + 1) % stages
				case sendBackward:
					to = (s + stages - 1) % stages
				default:
					to = -1 // the sender does it
				}
				if to >= 0 && to != s {
					if next[to] == len(steps[to]) {
						break
					}
					y := steps[to][next[to]]
					if y.micro != x.micro || y.kind != receiveForward && y.kind != receiveBackward || (y.kind == receiveForward) != (x.kind == sendForward) {
						break
					}
					now[s] = max(now[s], now[to]) + transfer
					now[to] = now[s]
					next[to]++
				} else if to < 0 {
					break
				}
				next[s]++
				progress = true
			}
		}
	}
	for s := range steps {
		if next[s] < len(steps[s]) {
			return -1
		}
		end = max(end, now[s])
	}
	return end
}
