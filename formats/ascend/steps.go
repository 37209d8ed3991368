package ascend

import (
	"io"

	"smartswap/formats/internal/table"
	"smartswap/sim"
)

// Step is the profiler's own split of a step, in ps. Length is what the file
// calls "Stage": the step's length, not a pipeline stage. Exposed is
// communication that no computing hides.
type Step struct {
	// Step and Device are the numbers in the file; "" if it does not tell. Index
	// is the rank or stage of a table over a cluster.
	Step, Device, Index                  string
	Computing, Exposed, Overlapped       sim.Time
	Communication, Free, Length, Prepare sim.Time
}

const (
	pComputing = iota
	pExposed
	pOverlapped
	pCommunication
	pFree
	pLength
	pPrepare
	pStep
	pDevice
	pIndex
)

var stepColumns = []table.Column{
	pComputing:     {Names: []string{"Computing"}, Required: true},
	pExposed:       {Names: []string{"Communication(Not Overlapped)"}, Required: true},
	pOverlapped:    {Names: []string{"Overlapped"}},
	pCommunication: {Names: []string{"Communication"}},
	pFree:          {Names: []string{"Free"}, Required: true},
	pLength:        {Names: []string{"Stage"}},
	pPrepare:       {Names: []string{"Preparing"}},
	pStep:          {Names: []string{"Step"}},
	pDevice:        {Names: []string{"Device_id"}},
	pIndex:         {Names: []string{"Index"}},
}

// ReadSteps reads step_trace_time.csv or the table over a cluster. The sums in
// it were added as floats: what they left behind the twelfth digit is rounded
// off.
func ReadSteps(r io.Reader, file string) ([]Step, error) {
	t, err := table.New(r, file, nil, stepColumns)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for {
		ok, err := t.Next()
		if !ok || err != nil {
			return steps, err
		}
		c := cells{t: t}
		ps := func(column int) sim.Time { return sim.Time(c.number(column, psPerUs, 0)) }
		steps = append(steps, Step{
			Step: t.Text(pStep), Device: t.Text(pDevice), Index: t.Text(pIndex),
			Computing: ps(pComputing), Exposed: ps(pExposed), Overlapped: ps(pOverlapped),
			Communication: ps(pCommunication), Free: ps(pFree), Length: ps(pLength), Prepare: ps(pPrepare),
		})
		if c.err != nil {
			return nil, c.err
		}
		if len(steps) > maxSteps {
			return nil, t.Errorf(pComputing, "more than %d steps", maxSteps)
		}
	}
}

// maxSteps bounds what ReadSteps holds.
const maxSteps = 1 << 20
