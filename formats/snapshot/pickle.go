package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Opcodes that build plain data, by their names in pickletools.py.
const (
	opProto           = 0x80
	opFrame           = 0x95
	opStop            = '.'
	opMark            = '('
	opNone            = 'N'
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opLong1           = 0x8a
	opBinFloat        = 'G'
	opBinUnicode      = 'X'
	opShortBinUnicode = 0x8c
	opEmptyList       = ']'
	opList            = 'l'
	opAppend          = 'a'
	opAppends         = 'e'
	opEmptyTuple      = ')'
	opTuple           = 't'
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opEmptyDict       = '}'
	opDict            = 'd'
	opSetItem         = 's'
	opSetItems        = 'u'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opMemoize         = 0x94
)

// limits bound what a file can make a reader hold. An opcode of one byte costs
// up to some 60 bytes of memory, so the number of things is bounded, not only
// the length of the file.
type limits struct {
	stack int // values on the stack at once
	memo  int // values to refer to
	held  int // values in all containers together
	text  int // bytes of all strings together
}

// usual is room for some two million events.
func usual() limits { return limits{stack: 1 << 22, memo: 1 << 23, held: 1 << 25, text: 1 << 28} }

// maxString is the longest string, in bytes.
const maxString = 1 << 20

// kind is the type of a value.
type kind uint8

const (
	kindNone kind = iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindList
	kindTuple
	kindDict
	kindMark // on the stack only
)

// String is the type's name in messages.
func (k kind) String() string {
	return [...]string{"None", "bool", "int", "float", "str", "list", "tuple", "dict", "mark"}[k]
}

// value is plain data. Strings and containers are shared by all who refer to
// them, as in Python.
type value struct {
	kind kind
	bits int64 // bool (0 or 1), int, or the bits of a float
	obj  *object
}

// object is a string or container.
type object struct {
	at    int64 // offset in the file of the opcode that made it
	text  string
	items []value // of a dictionary: key, value, key, value, …
}

// get is the value of a dictionary's key; the last one set counts.
func (o *object) get(key string) (value, bool) {
	for i := len(o.items) - 2; i >= 0; i -= 2 {
		if k := o.items[i]; k.kind == kindString && k.obj.text == key {
			return o.items[i+1], true
		}
	}
	return value{}, false
}

// unpickler runs the opcodes of one pickle.
type unpickler struct {
	limits limits
	in     *bufio.Reader
	file   string
	offset int64 // of the opcode in hand
	read   int64 // bytes read
	stack  []value
	marks  []int // indices of marks on the stack
	memo   []value
	held   int // values in all containers
	text   int // bytes in all strings
	buf    [maxLong]byte

	scratch []byte // for strings
}

// maxLong is the length of the longest LONG1: 64 bits and a sign byte, for
// unsigned handles.
const maxLong = 9

// unpickle reads one pickle of protocol 2 to 5. Errors are one line that begins
// with the file and the offset.
func unpickle(r io.Reader, file string, l limits) (value, error) {
	u := &unpickler{limits: l, in: bufio.NewReaderSize(r, 64<<10), file: file}
	v, err := u.run()
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the file ends inside the pickle")
		}
		return value{}, u.errorAt(u.offset, "%w", err)
	}
	return v, nil
}

func (u *unpickler) errorAt(offset int64, format string, args ...any) error {
	return fmt.Errorf("%s: byte %d: %w", u.file, offset, fmt.Errorf(format, args...))
}

func (u *unpickler) run() (value, error) {
	op, err := u.byte()
	if err != nil {
		return value{}, err
	}
	if op != opProto {
		return value{}, fmt.Errorf("the file begins with 0x%02x; allowed: 0x80, the begin of a pickle of protocol 2 to 5", op)
	}
	version, err := u.byte()
	if err != nil {
		return value{}, err
	}
	if version < 2 || version > 5 {
		return value{}, fmt.Errorf("pickle protocol %d; allowed: 2 to 5", version)
	}
	for {
		u.offset = u.read
		if op, err = u.byte(); err != nil {
			return value{}, err
		}
		if op == opStop {
			break
		}
		if err = u.step(op); err != nil {
			return value{}, err
		}
	}
	if len(u.stack) != 1 || len(u.marks) != 0 {
		return value{}, fmt.Errorf("the pickle ends with %d values on its stack; allowed: 1", len(u.stack))
	}
	return u.stack[0], nil
}

// step runs one opcode.
func (u *unpickler) step(op byte) error {
	switch op {
	case opFrame:
		_, err := u.next(8) // how much to buffer: of no use here
		return err
	case opMark:
		u.marks = append(u.marks, len(u.stack))
		return u.push(value{kind: kindMark})
	case opNone:
		return u.push(value{})
	case opNewTrue:
		return u.push(value{kind: kindBool, bits: 1})
	case opNewFalse:
		return u.push(value{kind: kindBool})
	case opBinInt, opBinInt1, opBinInt2, opLong1, opBinFloat:
		return u.number(op)
	case opBinUnicode, opShortBinUnicode:
		return u.string(op)
	case opEmptyList:
		return u.push(u.container(kindList, nil))
	case opEmptyTuple:
		return u.push(u.container(kindTuple, nil))
	case opEmptyDict:
		return u.push(u.container(kindDict, nil))
	case opList, opTuple, opDict:
		return u.collect(op)
	case opTuple1, opTuple2, opTuple3:
		items, err := u.pop(int(op-opTuple1) + 1)
		if err != nil {
			return err
		}
		return u.make(kindTuple, items)
	case opAppend:
		return u.extend(1, kindList)
	case opSetItem:
		return u.extend(2, kindDict)
	case opAppends:
		return u.extend(-1, kindList)
	case opSetItems:
		return u.extend(-1, kindDict)
	case opBinGet, opLongBinGet, opBinPut, opLongBinPut, opMemoize:
		return u.remember(op)
	}
	return fmt.Errorf("opcode 0x%02x; allowed are only those that build plain data: numbers, strings, lists, tuples and dictionaries", op)
}

// byte reads one byte.
func (u *unpickler) byte() (byte, error) {
	b, err := u.in.ReadByte()
	if err == nil {
		u.read++
	}
	return b, err
}

// next reads the next n <= maxLong bytes; they are valid until the next call.
func (u *unpickler) next(n int) ([]byte, error) {
	k, err := io.ReadFull(u.in, u.buf[:n])
	u.read += int64(k)
	return u.buf[:n], err
}

func (u *unpickler) push(v value) error {
	if len(u.stack) >= u.limits.stack {
		return fmt.Errorf("more than %d values on the stack", u.limits.stack)
	}
	u.stack = append(u.stack, v)
	return nil
}

// pop takes the n topmost values, none of which may be a mark; they are valid
// until the next push.
func (u *unpickler) pop(n int) ([]value, error) {
	floor := 0
	if len(u.marks) > 0 {
		floor = u.marks[len(u.marks)-1] + 1
	}
	top := len(u.stack) - n
	if top < floor {
		return nil, errors.New("the stack holds too few values")
	}
	items := u.stack[top:]
	u.stack = u.stack[:top]
	return items, nil
}

// popMark takes everything above the topmost mark, and the mark.
func (u *unpickler) popMark() ([]value, error) {
	if len(u.marks) == 0 {
		return nil, errors.New("no mark on the stack")
	}
	mark := u.marks[len(u.marks)-1]
	u.marks = u.marks[:len(u.marks)-1]
	items := u.stack[mark+1:]
	u.stack = u.stack[:mark]
	return items, nil
}

func (u *unpickler) number(op byte) error {
	width := fixedWidth(op)
	if op == opLong1 {
		n, err := u.byte()
		if err != nil {
			return err
		}
		if n > maxLong {
			return fmt.Errorf("an integer of %d bytes; allowed: up to %d", n, maxLong)
		}
		width = int(n)
	}
	b, err := u.next(width)
	if err != nil {
		return err
	}
	v := value{kind: kindInt}
	switch op {
	case opBinInt:
		v.bits = int64(int32(binary.LittleEndian.Uint32(b)))
	case opBinInt1:
		v.bits = int64(b[0])
	case opBinInt2:
		v.bits = int64(binary.LittleEndian.Uint16(b))
	case opBinFloat:
		v.kind, v.bits = kindFloat, int64(binary.BigEndian.Uint64(b))
	case opLong1:
		if v.bits, err = long(b); err != nil {
			return err
		}
	}
	return u.push(v)
}

// fixedWidth is the width of an opcode's fixed argument.
func fixedWidth(op byte) int {
	switch op {
	case opBinInt1:
		return 1
	case opBinInt2:
		return 2
	case opBinInt:
		return 4
	}
	return 8 // BINFLOAT
}

// long reads a little-endian number in two's complement of 0 to 9 bytes that
// fits in 64 bits. Unsigned 64-bit handles and addresses keep their bits.
func long(b []byte) (int64, error) {
	if len(b) == maxLong {
		if b[8] != 0 {
			return 0, errors.New("an integer of more than 64 bits")
		}
		b = b[:8]
	}
	var wide [8]byte
	if n := len(b); n > 0 && b[n-1] >= 0x80 && n < 8 {
		wide = [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	copy(wide[:], b)
	return int64(binary.LittleEndian.Uint64(wide[:])), nil
}

func (u *unpickler) string(op byte) error {
	var n int
	if op == opShortBinUnicode {
		b, err := u.byte()
		if err != nil {
			return err
		}
		n = int(b)
	} else {
		b, err := u.next(4)
		if err != nil {
			return err
		}
		if size := binary.LittleEndian.Uint32(b); size > maxString {
			return fmt.Errorf("a string of %d bytes; allowed: up to %d", size, maxString)
		}
		n = int(binary.LittleEndian.Uint32(b))
	}
	if u.text += n; u.text > u.limits.text {
		return fmt.Errorf("more than %d bytes in all strings together", u.limits.text)
	}
	if n > len(u.scratch) {
		u.scratch = make([]byte, max(n, 256))
	}
	k, err := io.ReadFull(u.in, u.scratch[:n])
	u.read += int64(k)
	if err != nil {
		return err
	}
	return u.push(value{kind: kindString, obj: &object{at: u.offset, text: string(u.scratch[:n])}})
}

func (u *unpickler) container(k kind, items []value) value {
	return value{kind: k, obj: &object{at: u.offset, items: items}}
}

// make pushes a container with a copy of items.
func (u *unpickler) make(k kind, items []value) error {
	if err := u.hold(len(items)); err != nil {
		return err
	}
	return u.push(u.container(k, append([]value(nil), items...)))
}

// hold counts n more values in containers, and the container.
func (u *unpickler) hold(n int) error {
	if u.held += n + 1; u.held > u.limits.held {
		return fmt.Errorf("more than %d values in lists, tuples and dictionaries", u.limits.held)
	}
	return nil
}

// collect makes a container of what is above the topmost mark.
func (u *unpickler) collect(op byte) error {
	items, err := u.popMark()
	if err != nil {
		return err
	}
	switch op {
	case opList:
		return u.make(kindList, items)
	case opTuple:
		return u.make(kindTuple, items)
	}
	if err := checkPairs(items); err != nil {
		return err
	}
	return u.make(kindDict, items)
}

// extend adds the n topmost values, or all above the topmost mark (n = -1), to
// the list or dictionary below them, which stays on the stack.
func (u *unpickler) extend(n int, k kind) error {
	var items []value
	var err error
	if n < 0 {
		items, err = u.popMark()
	} else {
		items, err = u.pop(n)
	}
	if err != nil {
		return err
	}
	if len(u.stack) == 0 || u.stack[len(u.stack)-1].kind != k {
		return fmt.Errorf("items for a %v that is not on the stack", k)
	}
	if k == kindDict {
		if err := checkPairs(items); err != nil {
			return err
		}
	}
	if err := u.hold(len(items)); err != nil {
		return err
	}
	o := u.stack[len(u.stack)-1].obj
	if o.items == nil { // the usual case: all items at once
		o.items = make([]value, 0, len(items))
	}
	o.items = append(o.items, items...)
	return nil
}

// checkPairs refuses what Python would: keys without a value, or keys that can
// change.
func checkPairs(items []value) error {
	if len(items)%2 != 0 {
		return errors.New("a dictionary key without a value")
	}
	for i := 0; i < len(items); i += 2 {
		if k := items[i].kind; k == kindList || k == kindDict {
			return fmt.Errorf("a dictionary key of type %v", k)
		}
	}
	return nil
}

// remember stores the topmost value in the memo or gets one from there. Every
// pickler numbers the memo in order of storing, so it can be a list.
func (u *unpickler) remember(op byte) error {
	index := int64(len(u.memo))
	switch op {
	case opBinGet, opBinPut:
		b, err := u.byte()
		if err != nil {
			return err
		}
		index = int64(b)
	case opLongBinGet, opLongBinPut:
		b, err := u.next(4)
		if err != nil {
			return err
		}
		index = int64(binary.LittleEndian.Uint32(b))
	}
	if op == opBinGet || op == opLongBinGet {
		if index >= int64(len(u.memo)) {
			return fmt.Errorf("memo entry %d, but there are %d", index, len(u.memo))
		}
		return u.push(u.memo[index])
	}
	switch {
	case len(u.stack) == 0 || u.stack[len(u.stack)-1].kind == kindMark:
		return errors.New("nothing on the stack to store in the memo")
	case index > int64(len(u.memo)):
		return fmt.Errorf("memo entry %d is stored before entry %d", index, len(u.memo))
	case index >= int64(u.limits.memo):
		return fmt.Errorf("more than %d memo entries", u.limits.memo)
	}
	top := u.stack[len(u.stack)-1]
	if index == int64(len(u.memo)) {
		u.memo = append(u.memo, top)
	} else {
		u.memo[index] = top
	}
	return nil
}
