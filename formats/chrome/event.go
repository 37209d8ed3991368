package chrome

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"smartswap/formats/internal/decimal"
	"smartswap/formats/internal/jsons"
	"smartswap/formats/notes"
	"smartswap/sim"
)

// Category sorts events. Spellings of all years fall together.
type Category uint8

// Categories.
const (
	Other       Category = iota
	Kernel               // "kernel", "Kernel"; a task of an NPU
	Memcpy               // "gpu_memcpy", "Memcpy"
	Memset               // "gpu_memset", "Memset"
	Accelerator          // work of devices that profilers call neither: "mtia_ccp_events"
	CPUOp                // "cpu_op", "Operator": an operator on the host
	Runtime              // "cuda_runtime", "cuda_driver", "Runtime", …: a call of the device's library
	Annotation           // "user_annotation": what the program named, such as ProfilerStep#3
	Memory               // the instant events "[memory]"
)

// OnDevice says whether events of c occupy a device.
func (c Category) OnDevice() bool { return c >= Kernel && c <= Accelerator }

func category(cat []byte) Category {
	switch string(cat) {
	case "kernel", "Kernel":
		return Kernel
	case "gpu_memcpy", "Memcpy":
		return Memcpy
	case "gpu_memset", "Memset":
		return Memset
	case "mtia_ccp_events":
		return Accelerator
	case "cpu_op", "Operator":
		return CPUOp
	case "cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "mtia_runtime", "xpu_runtime", "Runtime":
		return Runtime
	case "user_annotation":
		return Annotation
	}
	return Other
}

// task sorts the tasks of an NPU, which have no category. Most types are marks
// of the task scheduler and take no time.
func task(kind string) Category {
	switch kind {
	case "AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "DSA_SQE", "KERNEL_AICORE", "KERNEL_AIVEC", "KERNEL_AICPU", "Other":
		return Kernel
	case "PCIE_DMA_SQE", "SDMA_SQE", "MEMCPY_ASYNC":
		return Memcpy
	}
	return Other
}

// None is the value of a number that an event does not have.
const None int64 = math.MinInt64

// Event is one entry of the trace. It is valid until the next; its strings may
// be kept.
type Event struct {
	Phase    byte // 'X' complete, 'i' instant, 's' 't' 'f' flow, 'C' counter, 'M' metadata, …
	Category Category
	Name     string
	PID, TID string
	Start    int64 // ns; None if the file does not tell
	Duration int64 // ns; None if the file does not tell
	Shapes   bool  // the event lists dimensions of inputs
	Line     int   // of the file

	// Arguments; None if absent.
	Device, Stream   int64
	Correlation      int64 // ties device work to the call that launched it
	ExternalID       int64 // ties both to the operator on the host
	RecordFunctionID int64 // ties an operator to its node in an ExecutionTrace
	Bytes            int64 // of a copy or a collective; of a [memory] event, signed: negative = freed
	Addr             int64 // of a [memory] event
	TotalAllocated   int64
	TotalReserved    int64
	DeviceType       int64 // of a [memory] event: 0 = CPU
	DeviceID         int64
	TaskType         string // of an NPU's task: AI_CORE, …
}

// Device is a device that the header lists.
type Device struct {
	ID     int64
	Name   string
	Memory sim.Bytes // 0 if not told
}

// Header is what a trace says beside its events. Some files say nothing.
type Header struct {
	Devices   []Device
	Base      int64 // ns since the epoch that instants count from; 0 if the file states none
	Rank      int64 // None if the file does not tell
	WorldSize int64 // None if the file does not tell
	Events    int64 // entries of the trace, readable or not
	Truncated bool  // the file ends inside its list of events
}

// maxNames bounds the strings that a Reader remembers in order to share them.
const maxNames = 1 << 16

// Read reads a trace and hands each event to each, in file order. An entry that
// is no event, or has a time that is none, is skipped with a note. A file that
// ends inside its list of events, because the profiler was killed, is kept up to
// there; any other damage is an error of one line. A file that is no trace is
// refused, also if it is valid JSON. An error of each ends the reading.
func Read(r io.Reader, file string, list *notes.List, each func(*Event) error) (Header, error) {
	in := jsons.New(r, file, list)
	p := parser{in: in, file: file, list: list, each: each, names: make(map[string]string)}
	p.head.Rank, p.head.WorldSize = None, None
	k, err := in.Kind()
	switch {
	case err != nil:
		return p.head, err
	case k == jsons.End:
		return p.head, fmt.Errorf("%s:1: the file is empty; a trace in JSON is expected", file)
	case k == jsons.Array:
		err = p.events()
		p.found = true
	case k == jsons.Object:
		err = in.Object(p.top)
	default:
		err = in.Errorf("a plain value; a trace in JSON is expected")
	}
	if p.head.Truncated {
		return p.head, nil
	}
	if err == nil {
		if k, after := in.Kind(); after != nil || k != jsons.End {
			list.Add(notes.Skipped, fmt.Sprintf("%s:%d", file, in.Line()), "what follows the end of the trace")
		}
	}
	if err == nil && !p.found {
		err = fmt.Errorf("%s: no \"traceEvents\" in the file; it is no trace", file)
	}
	return p.head, err
}

type parser struct {
	in    *jsons.Reader
	file  string
	list  *notes.List
	each  func(*Event) error
	names map[string]string
	head  Header
	found bool
	ev    Event
	fine  bool // numbers finer than a ns were noted
	bad   bool // the present entry has a time that is none
}

// top takes the value of a key beside traceEvents.
func (p *parser) top(key []byte) error {
	switch string(key) {
	case "traceEvents":
		p.found = true
		return p.events()
	case "deviceProperties":
		return p.listOf(func() error { return p.object(p.device) })
	case "distributedInfo":
		return p.object(func(key []byte) error {
			switch string(key) {
			case "rank":
				return p.integer(&p.head.Rank)
			case "world_size":
				return p.integer(&p.head.WorldSize)
			}
			return p.in.Skip()
		})
	case "baseTimeNanoseconds":
		base := int64(0)
		err := p.integer(&base)
		p.head.Base = max(0, base)
		return err
	}
	return p.in.Skip()
}

// listOf and object take a value of their kind, and skip one of another.
func (p *parser) listOf(each func() error) error {
	if k, err := p.in.Kind(); err != nil || k != jsons.Array {
		return errors.Join(err, p.skipUnless(err))
	}
	return p.in.Array(each)
}

func (p *parser) object(each func([]byte) error) error {
	if k, err := p.in.Kind(); err != nil || k != jsons.Object {
		return errors.Join(err, p.skipUnless(err))
	}
	return p.in.Object(each)
}

func (p *parser) skipUnless(err error) error {
	if err != nil {
		return nil
	}
	return p.in.Skip()
}

// maxTime bounds instants and durations, in ns, so that their sums fit: 2^61 ns
// are 73 years.
const maxTime = int64(1) << 61

// maxDevices bounds the list of devices.
const maxDevices = 1 << 12

func (p *parser) device(key []byte) error {
	switch string(key) {
	case "id":
		if len(p.head.Devices) == maxDevices {
			return p.in.Errorf("more than %d devices", maxDevices)
		}
		p.head.Devices = append(p.head.Devices, Device{})
		return p.integer(&p.last().ID)
	case "name":
		return p.text(&p.last().Name)
	case "totalGlobalMem":
		v := int64(0)
		err := p.integer(&v)
		p.last().Memory = sim.Bytes(max(0, v))
		return err
	}
	return p.in.Skip()
}

// last is the device that the header describes at present; its id comes first.
func (p *parser) last() *Device {
	if len(p.head.Devices) == 0 {
		p.head.Devices = append(p.head.Devices, Device{})
	}
	return &p.head.Devices[len(p.head.Devices)-1]
}

// errList says that an entry of the list is a list.
var errList = errors.New("a list of lists is no trace; is it a memory timeline?")

// errStop carries an error of the caller's through the readers.
type errStop struct{ error }

func (p *parser) events() error {
	err := p.in.Array(func() error {
		k, err := p.in.Kind()
		if err != nil {
			return err
		}
		p.head.Events++
		if k != jsons.Object {
			if k == jsons.Array && p.head.Events == 1 {
				return p.in.Errorf("%w", errList)
			}
			p.list.Count(notes.Skipped, p.file, p.in.Line(), "entry that is no event")
			return p.in.Skip()
		}
		return p.event()
	})
	var stop errStop
	switch {
	case errors.As(err, &stop):
		return stop.error
	case errors.Is(err, jsons.ErrTruncated) && p.head.Events > 0:
		p.head.Truncated = true
		p.list.Add(notes.Repaired, fmt.Sprintf("%s:%d", p.file, p.in.Line()), "the file ends inside the list of events; %d complete events are kept", p.head.Events-1)
	}
	return err
}

func (p *parser) event() error {
	p.ev = Event{
		Line: p.in.Line(), Start: None, Duration: None, Device: None, Stream: None, Correlation: None, ExternalID: None,
		RecordFunctionID: None, Bytes: None, Addr: None, TotalAllocated: None, TotalReserved: None, DeviceType: None, DeviceID: None,
	}
	p.bad = false
	if err := p.in.Object(p.field); err != nil {
		return err
	}
	ev := &p.ev
	switch {
	case p.bad:
		p.list.Count(notes.Skipped, p.file, ev.Line, "event with a time that is no number or out of range")
		return nil
	case ev.Phase == 0:
		p.list.Count(notes.Skipped, p.file, ev.Line, "event without a phase")
		return nil
	case ev.Name == "[memory]":
		ev.Category = Memory
	case ev.Category == Other && ev.TaskType != "":
		ev.Category = task(ev.TaskType)
	}
	if err := p.each(ev); err != nil {
		return errStop{err}
	}
	return nil
}

func (p *parser) field(key []byte) error {
	ev := &p.ev
	switch string(key) {
	case "ph":
		s, err := p.in.Plain()
		if len(s) > 0 {
			ev.Phase = s[0]
		}
		return err
	case "cat":
		s, err := p.in.Plain()
		ev.Category = category(s)
		return err
	case "name":
		return p.text(&ev.Name)
	case "pid":
		return p.text(&ev.PID)
	case "tid":
		return p.text(&ev.TID)
	case "ts":
		return p.microseconds(&ev.Start)
	case "dur":
		return p.microseconds(&ev.Duration)
	case "args":
		return p.object(p.arg)
	}
	return p.in.Skip()
}

func (p *parser) arg(key []byte) error {
	ev := &p.ev
	switch string(key) {
	case "device":
		return p.integer(&ev.Device)
	case "stream", "Stream Id", "Physic Stream Id":
		return p.integer(&ev.Stream)
	case "correlation":
		return p.integer(&ev.Correlation)
	case "External id", "external id":
		return p.integer(&ev.ExternalID)
	case "Record function id":
		return p.integer(&ev.RecordFunctionID)
	case "Bytes", "bytes":
		return p.integer(&ev.Bytes)
	case "Addr":
		return p.integer(&ev.Addr)
	case "Total Allocated":
		return p.integer(&ev.TotalAllocated)
	case "Total Reserved":
		return p.integer(&ev.TotalReserved)
	case "Device Type":
		return p.integer(&ev.DeviceType)
	case "Device Id":
		return p.integer(&ev.DeviceID)
	case "Task Type":
		return p.text(&ev.TaskType)
	case "Input Dims", "Input dims":
		ev.Shapes = true
	}
	return p.in.Skip()
}

// text takes a plain value as a string that is shared with its equals.
func (p *parser) text(to *string) error {
	s, err := p.in.Plain()
	if err != nil {
		return err
	}
	shared, ok := p.names[string(s)]
	if !ok {
		shared = string(s)
		if len(p.names) == maxNames {
			clear(p.names)
		}
		p.names[shared] = shared
	}
	*to = shared
	return nil
}

// integer takes a number, as such or as a string; what is no whole number is
// left alone.
func (p *parser) integer(to *int64) error {
	s, err := p.in.Plain()
	if err != nil {
		return err
	}
	if v, _, ok := decimal.Parse(s, 1); ok {
		*to = v
	}
	return nil
}

// microseconds takes a time, as a number or a string, as ns.
func (p *parser) microseconds(to *int64) error {
	s, err := p.in.Plain()
	if err != nil {
		return err
	}
	v, exact, ok := decimal.Parse(bytes.TrimSpace(s), 1000)
	if !ok || v > maxTime || v < -maxTime {
		p.bad = true
		return nil
	}
	if !exact && !p.fine {
		p.fine = true
		p.list.Add(notes.Repaired, fmt.Sprintf("%s:%d", p.file, p.in.Line()), "times finer than a ns, here first, are rounded")
	}
	*to = v
	return nil
}
