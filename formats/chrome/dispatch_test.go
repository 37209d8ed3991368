package chrome

import (
	"cmp"
	"slices"
	"testing"

	"smartswap/formats/formatstest"
	"smartswap/formats/notes"
)

// The host time of an eager operator on A100, as the hardware catalogue cites it
// (hw/catalog/node/a100-80-8.toml, host.dispatch): over outermost operators that
// launch one kernel, the time inside less the launch, and the time to the next
// operator less the launch.
func TestDispatchOfA100(t *testing.T) {
	for _, c := range []struct {
		file         string
		inside, next int64 // medians, us
	}{
		{"negative_queue_length_values_check__rank0.json.gz", 16, 20},
		{"trace_diff__control__control.json.gz", 15, 22},
	} {
		type call struct {
			start, span int64
			op, launch  bool
		}
		threads := map[string][]call{}
		var list notes.List
		_, err := Read(formatstest.Open(t, "kineto", "hta", c.file), c.file, &list, func(e *Event) error {
			launch := e.Category == Runtime && (e.Name == "cudaLaunchKernel" || e.Name == "cudaLaunchKernelExC")
			if e.Phase == 'X' && (e.Category == CPUOp || launch) {
				key := e.PID + "/" + e.TID
				threads[key] = append(threads[key], call{e.Start, e.Duration, e.Category == CPUOp, launch})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		const us = 1000
		var inside, next []int64
		for _, calls := range threads {
			slices.SortStableFunc(calls, func(a, b call) int {
				return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.span, a.span))
			})
			type outer struct {
				call
				launches int
				launch   int64
			}
			var tops []outer
			for _, k := range calls {
				last := len(tops) - 1
				within := last >= 0 && k.start < tops[last].start+tops[last].span
				switch {
				case k.launch && within:
					tops[last].launches++
					tops[last].launch += k.span
				case k.op && !within:
					tops = append(tops, outer{call: k})
				}
			}
			for i := range len(tops) - 1 {
				if tops[i].launches != 1 {
					continue
				}
				inside = append(inside, tops[i].span-tops[i].launch)
				if gap := tops[i+1].start - tops[i].start; gap < 200*us { // not a wait between steps
					next = append(next, gap-tops[i].launch)
				}
			}
		}
		median := func(v []int64) int64 {
			slices.Sort(v)
			return (v[len(v)/2] + us/2) / us
		}
		if len(inside) < 1000 || median(inside) != c.inside || median(next) != c.next {
			t.Errorf("%s: of %d operators %d us inside and %d us to the next; want %d and %d", c.file, len(inside), median(inside), median(next), c.inside, c.next)
		}
	}
}
