//go:build !sqlherd_purego

package rowcodec

import (
	"database/sql/driver"
	"time"
	"unsafe"
)

// Putting an int64 into an interface allocates eight bytes for it: a result of
// 100 rows and five columns is some 400 objects for the allocator to make and
// for the garbage collector to visit as long as the result is cached. Here the
// values lie in a few slices, and the interfaces are made to point into those.
//
// This relies on the layout of an empty interface, a type word and a pointer to
// the value, which has been the same since Go 1.4; TestABoxIsWhatGoMakes would
// notice a change. No pointer is ever an integer: data points into a slice and
// keeps it alive. Nobody writes to an element once an interface points to it, as
// nobody writes to the value in an interface. The price is that one value keeps
// the others of its slice alive. Build with -tags sqlherd_purego to do without
// (box_purego.go).

// wordSize is the heap that a word takes.
const wordSize = 8

// eface is an interface as the runtime lays it out.
type eface struct {
	typ  unsafe.Pointer
	data unsafe.Pointer
}

// The type words of the types that have a slice of their own.
var (
	stringType = typeWord("")
	bytesType  = typeWord([]byte(nil))
	timeType   = typeWord(time.Time{})
)

func typeWord(v any) unsafe.Pointer { return (*eface)(unsafe.Pointer(&v)).typ }

// boxes are the places for the values of one result. The methods take one place
// each and set *v to an interface that points to it; the caller sees to it that
// there is one left.
type boxes struct {
	words   []uint64
	strings []string
	slices  [][]byte
	times   []time.Time
}

func (b *boxes) make(c *counts) {
	if c.words > 0 {
		b.words = make([]uint64, c.words)
	}
	if c.strings > 0 {
		b.strings = make([]string, c.strings)
	}
	if c.bytes > 0 {
		b.slices = make([][]byte, c.bytes)
	}
	if c.times > 0 {
		b.times = make([]time.Time, c.times)
	}
}

// A word is a type that fits into eight bytes and holds no pointer.
type word interface {
	int | int8 | int16 | int32 | int64 | uint | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

// box puts x at the beginning of a word, whatever its size and the machine's
// byte order.
func box[T word](b *boxes, v *driver.Value, x T) {
	p := unsafe.Pointer(&b.words[0])
	b.words = b.words[1:]
	*(*T)(p) = x
	var zero T
	*v = zero // for the type word; Go has a box for zero
	(*eface)(unsafe.Pointer(v)).data = p
}

func (b *boxes) string(v *driver.Value, x string) {
	p := &b.strings[0]
	b.strings = b.strings[1:]
	*p = x
	*(*eface)(unsafe.Pointer(v)) = eface{stringType, unsafe.Pointer(p)}
}

func (b *boxes) bytes(v *driver.Value, x []byte) {
	p := &b.slices[0]
	b.slices = b.slices[1:]
	*p = x
	*(*eface)(unsafe.Pointer(v)) = eface{bytesType, unsafe.Pointer(p)}
}

func (b *boxes) time(v *driver.Value, x time.Time) {
	p := &b.times[0]
	b.times = b.times[1:]
	*p = x
	*(*eface)(unsafe.Pointer(v)) = eface{timeType, unsafe.Pointer(p)}
}
