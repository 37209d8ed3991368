package workloads

import (
	"slices"
	"strings"
	"testing"
)

func TestOneForwardOneBackward(t *testing.T) {
	letters := map[stepKind]string{receiveForward: "<f", forward: "F", sendForward: ">f", receiveBackward: "<b", backward: "B", sendBackward: ">b"}
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
		var got []string
		for _, s := range oneForwardOneBackward(c.stage, c.stages, c.micros) {
			got = append(got, letters[s.kind]+string(rune('0'+s.micro)))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("stage %d of %d, %d micro-batches: %s, want %s", c.stage, c.stages, c.micros, s, c.want)
		}
	}
}

// Two neighbours list the transfers between them in the same order, whatever
// the numbers: on lanes that run in order they cannot wait for each other.
func TestNeighboursAgree(t *testing.T) {
	between := func(steps []step, forwardKind, backwardKind stepKind) (list []step) {
		for _, s := range steps {
			switch s.kind {
			case forwardKind:
				list = append(list, step{sendForward, s.micro})
			case backwardKind:
				list = append(list, step{sendBackward, s.micro})
			}
		}
		return list
	}
	for stages := 2; stages <= 9; stages++ {
		for micros := 1; micros <= 20; micros++ {
			for s := range stages - 1 {
				up := between(oneForwardOneBackward(s, stages, micros), sendForward, receiveBackward)
				down := between(oneForwardOneBackward(s+1, stages, micros), receiveForward, sendBackward)
				if !slices.Equal(up, down) || len(up) != 2*micros {
					t.Errorf("%d stages, %d micro-batches: stages %d and %d disagree: %v, %v", stages, micros, s, s+1, up, down)
				}
			}
		}
	}
}
