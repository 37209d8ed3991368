package snapshot

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"smartswap/sim"
)

// batch is the most items that one opcode appends: what CPython writes. The
// viewer hands the items of a batch to a function as arguments, so that much
// longer ones overflow its stack.
const batch = 1000

// Write writes s as a pickle of protocol 4. Events of action Other, of which
// the name is not known any more, are left out. Equal settings of the same
// prefix ("a.b", "a.c") must follow each other. An error is the writer's, or
// tells of a number that the format does not hold.
func Write(w io.Writer, s *Snapshot) error {
	p := pickler{
		w:     bufio.NewWriterSize(w, 64<<10),
		words: make(map[string]uint32), frames: make(map[Frame]uint32), stacks: make(map[*Frame]stackRef),
	}
	p.op8(opProto, 4)
	p.snapshot(s)
	p.op(opStop)
	if p.err != nil {
		return p.err
	}
	return p.w.Flush()
}

// pickler writes plain data. Strings, frames and call stacks that were written
// before are referred to by their entry in the memo. Writing errors are those of
// Flush.
type pickler struct {
	w      *bufio.Writer
	err    error
	words  map[string]uint32
	frames map[Frame]uint32
	stacks map[*Frame]stackRef // by first frame
	memo   uint32              // entries so far
	buf    [10]byte            // an opcode and its argument
}

// stackRef is a call stack in the memo. Slices with the same first frame may
// differ in length.
type stackRef struct {
	entry  uint32
	length int
}

func (p *pickler) op(op byte) { p.w.WriteByte(op) }

// op8, op32 and op64 write an opcode with an argument.
func (p *pickler) op8(op, arg byte) { p.w.Write(append(p.buf[:0], op, arg)) }
func (p *pickler) op32(op byte, arg uint32) {
	p.w.Write(binary.LittleEndian.AppendUint32(append(p.buf[:0], op), arg))
}
func (p *pickler) op64(op byte, arg uint64) {
	p.w.Write(binary.BigEndian.AppendUint64(append(p.buf[:0], op), arg))
}

// long writes an integer of 8 bytes, or of 9 to keep an address positive.
func (p *pickler) long(v uint64, width byte) {
	p.op8(opLong1, width)
	p.w.Write(append(binary.LittleEndian.AppendUint64(p.buf[:0], v), 0)[:width])
}

func (p *pickler) int(v int64) {
	switch {
	case v >= 0 && v < 1<<8:
		p.op8(opBinInt1, byte(v))
	case v >= 0 && v < 1<<16:
		p.w.Write(binary.LittleEndian.AppendUint16(append(p.buf[:0], opBinInt2), uint16(v)))
	case v >= math.MinInt32 && v <= math.MaxInt32:
		p.op32(opBinInt, uint32(v))
	default:
		p.long(uint64(v), 8)
	}
}

// address writes an unsigned number.
func (p *pickler) address(v uint64) {
	if v <= math.MaxInt64 {
		p.int(int64(v))
		return
	}
	p.long(v, 9)
}

func (p *pickler) size(v sim.Bytes) {
	if v < 0 && p.err == nil {
		p.err = fmt.Errorf("snapshot: %d bytes; allowed: 0 and more", v)
	}
	p.int(int64(v))
}

func (p *pickler) bool(v bool) {
	if v {
		p.op(opNewTrue)
		return
	}
	p.op(opNewFalse)
}

// word writes a string, or refers to it if it was written before.
func (p *pickler) word(s string) {
	if entry, ok := p.words[s]; ok {
		p.get(entry)
		return
	}
	if len(s) > maxString {
		if p.err == nil {
			p.err = fmt.Errorf("snapshot: a string of %d bytes; allowed: up to %d", len(s), maxString)
		}
		return
	}
	text := strings.ToValidUTF8(s, "\uFFFD") // Python's strings are text
	if len(text) < 1<<8 {
		p.op8(opShortBinUnicode, byte(len(text)))
	} else {
		p.op32(opBinUnicode, uint32(len(text)))
	}
	p.w.WriteString(text)
	p.words[s] = p.put()
}

// put stores what was written last in the memo.
func (p *pickler) put() uint32 {
	p.op(opMemoize)
	p.memo++
	return p.memo - 1
}

func (p *pickler) get(entry uint32) {
	if entry < 1<<8 {
		p.op8(opBinGet, byte(entry))
		return
	}
	p.op32(opLongBinGet, entry)
}

// list writes a list of n items in batches.
func (p *pickler) list(n int, item func(i int)) {
	p.op(opEmptyList)
	for i := 0; i < n; {
		p.op(opMark)
		for end := min(i+batch, n); i < end; i++ {
			item(i)
		}
		p.op(opAppends)
	}
}

// dict writes a dictionary, the pairs of which fill writes. It must have some.
func (p *pickler) dict(fill func()) {
	p.op(opEmptyDict)
	p.op(opMark)
	fill()
	p.op(opSetItems)
}

func (p *pickler) snapshot(s *Snapshot) {
	p.dict(func() {
		p.word("segments")
		p.list(len(s.Segments), func(i int) { p.segment(&s.Segments[i]) })
		p.word("device_traces")
		p.list(len(s.Traces), func(i int) { p.trace(s.Traces[i]) })
		if s.Settings != nil {
			p.word("allocator_settings")
			p.settings(s.Settings)
		}
	})
}

func (p *pickler) segment(s *Segment) {
	var allocated, active, requested sim.Bytes
	for _, b := range s.Blocks {
		switch b.State {
		case Allocated:
			allocated += b.Size
			fallthrough
		case PendingFree:
			active += b.Size
			requested += b.Requested
		}
	}
	p.dict(func() {
		p.word("device")
		p.int(int64(s.Device))
		p.word("address")
		p.address(s.Address)
		p.word("total_size")
		p.size(s.Size)
		p.word("allocated_size")
		p.size(allocated)
		p.word("active_size")
		p.size(active)
		p.word("requested_size")
		p.size(requested)
		p.word("stream")
		p.int(s.Stream)
		p.word("segment_type")
		if s.Large {
			p.word("large")
		} else {
			p.word("small")
		}
		p.word("segment_pool_id")
		p.int(s.Pool[0])
		p.int(s.Pool[1])
		p.op(opTuple2)
		p.word("is_expandable")
		p.bool(s.Expandable)
		p.word("frames")
		p.stack(s.Frames)
		p.word("blocks")
		p.list(len(s.Blocks), func(i int) { p.block(&s.Blocks[i]) })
	})
}

func (p *pickler) block(b *Block) {
	if b.State >= numStates && p.err == nil {
		p.err = fmt.Errorf("snapshot: block at address %d: %v; allowed: %s", b.Address, b.State, strings.Join(stateNames[:], " "))
	}
	p.dict(func() {
		p.word("address")
		p.address(b.Address)
		p.word("size")
		p.size(b.Size)
		p.word("requested_size")
		p.size(b.Requested)
		p.word("state")
		p.word(b.State.String())
		p.word("frames")
		p.stack(b.Frames)
	})
}

func (p *pickler) trace(events []Event) {
	known := make([]int, 0, len(events))
	for i := range events {
		if events[i].Action < Other {
			known = append(known, i)
		}
	}
	p.list(len(known), func(i int) { p.event(&events[known[i]]) })
}

func (p *pickler) event(e *Event) {
	p.dict(func() {
		p.word("action")
		p.word(e.Action.String())
		if e.Action == OOM {
			p.word("device_free")
		} else {
			p.word("addr")
		}
		p.address(e.Addr)
		p.word("size")
		p.size(e.Size)
		p.word("stream")
		p.int(e.Stream)
		if e.TimeUS != 0 {
			p.word("time_us")
			p.int(e.TimeUS)
		}
		p.word("frames")
		p.stack(e.Frames)
	})
}

// stack writes a call stack, or refers to it if the same slice was written
// before.
func (p *pickler) stack(frames []Frame) {
	if len(frames) == 0 {
		p.op(opEmptyList)
		return
	}
	if ref, ok := p.stacks[&frames[0]]; ok && ref.length == len(frames) {
		p.get(ref.entry)
		return
	}
	p.list(len(frames), func(i int) { p.frame(frames[i]) })
	p.stacks[&frames[0]] = stackRef{p.put(), len(frames)}
}

func (p *pickler) frame(f Frame) {
	if entry, ok := p.frames[f]; ok {
		p.get(entry)
		return
	}
	p.dict(func() {
		p.word("name")
		p.word(f.Name)
		p.word("filename")
		p.word(f.File)
		p.word("line")
		p.int(int64(f.Line))
	})
	p.frames[f] = p.put()
}

// settings writes what settings of the reader flattened.
func (p *pickler) settings(list []Setting) {
	if len(list) == 0 {
		p.op(opEmptyDict)
		return
	}
	p.dict(func() {
		for i := 0; i < len(list); {
			group, _, nested := strings.Cut(list[i].Key, ".")
			p.word(group)
			if !nested {
				p.scalar(list[i].Value)
				i++
				continue
			}
			p.dict(func() {
				for ; i < len(list); i++ {
					inner, ok := strings.CutPrefix(list[i].Key, group+".")
					if !ok {
						break
					}
					p.word(inner)
					p.scalar(list[i].Value)
				}
			})
		}
	})
}

// scalar writes a setting's value with the type that its text has.
func (p *pickler) scalar(s string) {
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		p.int(v)
	} else if s == "true" || s == "false" {
		p.bool(s == "true")
	} else if v, err := strconv.ParseFloat(s, 64); err == nil {
		p.op64(opBinFloat, math.Float64bits(v))
	} else {
		p.word(s)
	}
}
