package ascend

import (
	"io"
	"strings"

	"smartswap/formats/internal/table"
	"smartswap/formats/notes"
	"smartswap/sim"
)

// nsPerUs and psPerUs are the units in which microseconds are kept.
const (
	nsPerUs = 1_000
	psPerUs = 1_000_000
)

// maxInstant bounds instants, in ns, so that sums with durations fit: 2^61 ns are
// 73 years.
const maxInstant = int64(1) << 61

// maxDuration bounds one task: a longer one is damage. 2^18 tasks of it stay
// below the largest sim.Time.
const maxDuration = 30 * sim.Second

// Kernel is one device task.
type Kernel struct {
	Step       string // number of the profiled step; "" if unknown
	Device     string // "" if the file is of one device
	Stream     string
	Name, Type string // of the task; Type may be ""
	// Core is what the task ran on: AI_CORE, AI_VECTOR_CORE, MIX_AIC, MIX_AIV,
	// AI_CPU, …; COMMUNICATION or HCCL for a collective; "" at low levels.
	Core     string
	Start    int64    // ns
	Duration sim.Time // ps
	// Inputs and Outputs are shapes as the profiler prints them, "1,4096;1024";
	// InTypes and OutTypes their element types, "DT_BF16;INT64".
	Inputs, InTypes, Outputs, OutTypes string
	Line                               int // of the file
}

// Communicates says whether k is a collective or a transfer between devices. Its
// duration holds the wait for the other members and must not be added to the
// device's computing time.
func (k *Kernel) Communicates() bool {
	return k.Core == "COMMUNICATION" || k.Core == "HCCL" || strings.HasPrefix(k.Name, "hcom_")
}

// Columns of kernel_details.csv; the second names are those of op_summary.csv.
const (
	kName = iota
	kType
	kCore
	kStart
	kDuration
	kStep
	kDevice
	kStream
	kInputs
	kInTypes
	kOutputs
	kOutTypes
)

var kernelColumns = []table.Column{
	kName:     {Names: []string{"Name", "Op Name"}, Required: true},
	kType:     {Names: []string{"Type", "OP Type"}},
	kCore:     {Names: []string{"Accelerator Core", "Task Type"}},
	kStart:    {Names: []string{"Start Time(us)", "Task Start Time(us)"}, Required: true},
	kDuration: {Names: []string{"Duration(us)", "Task Duration(us)"}, Required: true},
	kStep:     {Names: []string{"Step Id"}},
	kDevice:   {Names: []string{"Device_id"}},
	kStream:   {Names: []string{"Stream ID"}},
	kInputs:   {Names: []string{"Input Shapes"}},
	kInTypes:  {Names: []string{"Input Data Types"}},
	kOutputs:  {Names: []string{"Output Shapes"}},
	kOutTypes: {Names: []string{"Output Data Types"}},
}

// ReadKernels reads kernel_details.csv or op_summary.csv and hands each task to
// each, in file order; the Kernel is reused. Tasks without a start or with an
// impossible duration are skipped. An error of each ends the reading.
func ReadKernels(r io.Reader, file string, list *notes.List, each func(*Kernel) error) error {
	t, err := table.New(r, file, list, kernelColumns)
	if err != nil {
		return err
	}
	var k Kernel
	for {
		ok, err := t.Next()
		if !ok || err != nil {
			return err
		}
		start, hasStart, err := t.Number(kStart, nsPerUs)
		if err != nil {
			return err
		}
		duration, hasDuration, err := t.Number(kDuration, psPerUs)
		if err != nil {
			return err
		}
		k = Kernel{
			Step: t.Text(kStep), Device: t.Text(kDevice), Stream: t.Text(kStream),
			Name: t.Text(kName), Type: t.Text(kType), Core: t.Text(kCore),
			Start: start, Duration: sim.Time(duration), Line: t.Line(),
			Inputs: shapes(t.Text(kInputs)), InTypes: t.Text(kInTypes),
			Outputs: shapes(t.Text(kOutputs)), OutTypes: t.Text(kOutTypes),
		}
		switch {
		case !hasStart || start < 0 || start > maxInstant || !hasDuration:
			list.Count(notes.Skipped, file, k.Line, "task without a start or a duration")
			continue
		case k.Duration < 0 || k.Duration > maxDuration:
			list.Count(notes.Skipped, file, k.Line, "task of less than 0 or more than 30 s")
			continue
		}
		if err := each(&k); err != nil {
			return err
		}
	}
}

// shapes takes the quotes off that stand inside the quotes of the cell.
func shapes(s string) string { return strings.Trim(s, `"`) }
