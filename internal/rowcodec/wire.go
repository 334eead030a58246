package rowcodec

import (
	"database/sql/driver"
	"encoding/binary"
	"math"
	"math/bits"
	"time"
	"unsafe"
)

// The format, version 1:
//
//	version   byte
//	head      length and bytes: the columns, see appendHead
//	rows      uvarint
//	counts    six uvarints: how many values need a box of which kind, and
//	          the bytes of text and of blob
//	stream    the values, row by row: a tag, then what the tag says
//	text      the bytes of all strings, in order
//	blob      the bytes of all []byte, in order
//
// A row without columns is one zero byte in the stream, so that the number of
// rows, like every other count, is bounded by the number of bytes. Strings and
// []byte lie apart from the stream so that one copy of each makes them all. The
// counts let a decoder allocate everything at its exact size before the first value.
//
// There is no checksum; who stores the bytes adds one.
const version = 1

// Tags of values. They are part of the format.
const (
	tagNull    = 0x00
	tagFalse   = 0x01
	tagTrue    = 0x02
	tagInt64   = 0x03 // varint, never 0…63
	tagFloat64 = 0x04 // 8 bytes, little endian
	tagString  = 0x05 // length
	tagBytes   = 0x06 // length
	tagNoBytes = 0x07 // a []byte that is nil, and not NULL
	tagTime    = 0x08 // zone number, [zone], seconds varint, nanoseconds uvarint
	tagInt     = 0x09 // varint
	tagInt8    = 0x0a
	tagInt16   = 0x0b
	tagInt32   = 0x0c
	tagUint    = 0x0d // uvarint
	tagUint8   = 0x0e
	tagUint16  = 0x0f
	tagUint32  = 0x10
	tagUint64  = 0x11
	tagFloat32 = 0x12 // 4 bytes, little endian

	// With a small number n, below small, in the tag.
	tagStringN = 0x40 // a string of n bytes
	tagBytesN  = 0x80 // a []byte of n bytes
	tagInt64N  = 0xc0 // the int64 n

	small = 0x40
)

// counts are the sizes of the allocations of a result.
type counts struct {
	words   int // fixed-size values, of up to 8 bytes, that are not in their tag
	strings int
	bytes   int // []byte, also nil ones
	times   int
	text    int // bytes of the strings
	blob    int // bytes of the []byte
}

// heap returns about how many bytes of heap a result with n values takes,
// without its columns.
func (c *counts) heap(n int) int64 {
	return heapBlock(int64(unsafe.Sizeof(Result{}))) +
		heapBlock(int64(n)*int64(unsafe.Sizeof(any(nil)))) +
		heapBlock(int64(c.words)*wordSize) +
		heapBlock(int64(c.strings)*int64(unsafe.Sizeof(""))) +
		heapBlock(int64(c.bytes)*int64(unsafe.Sizeof([]byte(nil)))) +
		heapBlock(int64(c.times)*int64(unsafe.Sizeof(time.Time{}))) +
		heapBlock(int64(c.text)) + heapBlock(int64(c.blob))
}

// heapBlock returns about how large a block Go's allocator takes for n bytes: its
// size classes are an eighth of a power of two apart, large blocks are whole pages.
func heapBlock(n int64) int64 {
	step := int64(8)
	switch {
	case n > 32<<10:
		step = 8 << 10
	case n > 64:
		step = 1 << (bits.Len64(uint64(n-1)) - 4)
	}
	return (n + step - 1) &^ (step - 1)
}

// An encoder appends values to a stream.
type encoder struct {
	stream []byte
	zones  zoneTable
	counts counts

	// The payloads, kept only when keep is set: whoever encodes a Result has
	// them already.
	keep bool
	text []byte
	blob []byte
}

// value appends v. It returns false, and may have appended something, when v's
// type cannot be kept exactly.
func (e *encoder) value(v any) bool {
	switch v := v.(type) {
	case nil:
		e.stream = append(e.stream, tagNull)
	case int64:
		if 0 <= v && v < small {
			e.stream = append(e.stream, tagInt64N|byte(v))
		} else {
			e.signed(tagInt64, v)
		}
	case string:
		e.counts.strings++
		e.counts.text += len(v)
		e.length(tagString, tagStringN, len(v))
		if e.keep {
			e.text = append(e.text, v...)
		}
	case float64:
		e.counts.words++
		e.stream = binary.LittleEndian.AppendUint64(append(e.stream, tagFloat64), math.Float64bits(v))
	case bool:
		if v {
			e.stream = append(e.stream, tagTrue)
		} else {
			e.stream = append(e.stream, tagFalse)
		}
	case []byte:
		e.counts.bytes++
		if v == nil {
			e.stream = append(e.stream, tagNoBytes)
			break
		}
		e.counts.blob += len(v)
		e.length(tagBytes, tagBytesN, len(v))
		if e.keep {
			e.blob = append(e.blob, v...)
		}
	case time.Time:
		e.counts.times++
		n, isNew, ok := e.zones.of(v)
		if !ok {
			return false
		}
		e.stream = binary.AppendUvarint(append(e.stream, tagTime), uint64(n))
		if isNew {
			e.stream = e.zones.zones[n-zoneFirst].id.append(e.stream)
		}
		e.stream = binary.AppendVarint(e.stream, v.Unix())
		e.stream = binary.AppendUvarint(e.stream, uint64(v.Nanosecond()))
	case int:
		e.signed(tagInt, int64(v))
	case int8:
		e.signed(tagInt8, int64(v))
	case int16:
		e.signed(tagInt16, int64(v))
	case int32:
		e.signed(tagInt32, int64(v))
	case uint:
		e.unsigned(tagUint, uint64(v))
	case uint8:
		e.unsigned(tagUint8, uint64(v))
	case uint16:
		e.unsigned(tagUint16, uint64(v))
	case uint32:
		e.unsigned(tagUint32, uint64(v))
	case uint64:
		e.unsigned(tagUint64, v)
	case float32:
		e.counts.words++
		e.stream = binary.LittleEndian.AppendUint32(append(e.stream, tagFloat32), math.Float32bits(v))
	default:
		return false
	}
	return true
}

func (e *encoder) signed(tag byte, v int64) {
	e.counts.words++
	e.stream = binary.AppendVarint(append(e.stream, tag), v)
}

func (e *encoder) unsigned(tag byte, v uint64) {
	e.counts.words++
	e.stream = binary.AppendUvarint(append(e.stream, tag), v)
}

func (e *encoder) length(tag, tagN byte, n int) {
	if n < small {
		e.stream = append(e.stream, tagN|byte(n))
	} else {
		e.stream = binary.AppendUvarint(append(e.stream, tag), uint64(n))
	}
}

// Append appends the encoding of r to dst and returns the extended slice. On an
// error, an [UnknownTypeError] for a scan type that has no unambiguous name, it
// returns dst as it was.
func Append(dst []byte, r *Result) ([]byte, error) {
	if r.set.err != nil {
		return dst, r.set.err
	}
	c := &r.counts
	if need := len(r.set.head) + 64 + 6*len(r.vals) + c.text + c.blob; cap(dst)-len(dst) < need {
		dst = append(make([]byte, 0, len(dst)+need), dst...)
	}
	e := encoder{stream: append(dst, version)}
	e.stream = appendText(e.stream, r.set.head)
	for _, n := range [...]int{r.rows, c.words, c.strings, c.bytes, c.times, c.text, c.blob} {
		e.stream = binary.AppendUvarint(e.stream, uint64(n))
	}
	if len(r.set.cols) == 0 {
		e.stream = append(e.stream, make([]byte, r.rows)...)
	}
	for _, v := range r.vals {
		if !e.value(v) {
			panic("bug: a result holds a value that cannot be encoded")
		}
	}
	if e.counts != *c {
		panic("bug: a result was written to")
	}
	return append(append(e.stream, r.text...), r.blob...), nil
}

// Decode returns the result that b encodes. It keeps no part of b. Any b is
// safe: the error is [ErrCorrupt], or an [UnknownTypeError] for a scan type that
// this process has not met, and what is allocated is in proportion to len(b): at
// most some forty times as much, for a result of nothing but empty values.
// [DecodeLimit] sets a limit of its own.
func Decode(b []byte) (*Result, error) { return DecodeLimit(b, math.MaxInt64) }

// DecodeLimit is [Decode] for a result whose Size is at most max; of others it
// returns [ErrTooLarge] before it allocates anything for the values.
func DecodeLimit(b []byte, max int64) (*Result, error) {
	r := reader{b: b}
	if r.byte() != version {
		return nil, ErrCorrupt
	}
	head := r.text()
	if r.bad {
		return nil, ErrCorrupt
	}
	set, err := internedColumns(head)
	if err != nil {
		return nil, err
	}
	res := &Result{set: set}
	c := &res.counts
	for _, p := range [...]*int{&res.rows, &c.words, &c.strings, &c.bytes, &c.times, &c.text, &c.blob} {
		*p = r.count(1)
	}
	if r.bad || c.text > r.left() || c.blob > r.left()-c.text {
		return nil, ErrCorrupt
	}
	// Every count is at most len(b) here, and there are at most maxColumns columns.
	stream := r.left() - c.text - c.blob
	values := uint64(res.rows) * uint64(len(set.cols))
	boxed := uint64(c.words) + uint64(c.strings) + uint64(c.bytes) + uint64(c.times)
	if values > uint64(stream) || boxed > values || c.words > stream/2 || c.times > stream/4 {
		return nil, ErrCorrupt
	}
	if res.size = c.heap(int(values)) + set.size; res.size > max {
		return nil, ErrTooLarge
	}
	body := r.b[r.pos:]
	text, blob := body[stream:stream+c.text], body[stream+c.text:]
	if err := res.fill(body[:stream], string(text), append([]byte(nil), blob...), nil); err != nil {
		return nil, err
	}
	return res, nil
}

// fill decodes the values of a result whose set, rows and counts are known.
// Zones are taken from known where that is not nil.
func (res *Result) fill(stream []byte, text string, blob []byte, known []*zone) error {
	n := res.rows * len(res.set.cols)
	res.text, res.blob = text, blob
	if len(res.set.cols) == 0 {
		if len(stream) != res.rows || res.counts != (counts{}) {
			return ErrCorrupt
		}
		for _, b := range stream {
			if b != 0 {
				return ErrCorrupt
			}
		}
		return nil
	}
	if n > 0 {
		res.vals = make([]driver.Value, n)
	}
	d := decoder{reader: reader{b: stream}, left: res.counts, text: text, blob: blob, known: known}
	d.boxes.make(&res.counts)
	for i := range res.vals {
		if !d.value(&res.vals[i]) {
			return ErrCorrupt
		}
	}
	if d.left != (counts{}) || d.reader.left() != 0 {
		return ErrCorrupt
	}
	return nil
}

// A decoder reads the values of a stream.
type decoder struct {
	reader
	boxes boxes
	left  counts // what may still be used of each allocation
	text  string // the strings that are still to come
	blob  []byte // the same of []byte

	zones []*zone
	known []*zone // not nil: the zones of the stream, in order
	loads int     // locations looked for in the system's files
}

// value reads one value into v. It returns false for anything but what an
// encoder writes: also for a value that an encoder would have written in a
// shorter way, where it would then count differently.
func (d *decoder) value(v *driver.Value) bool {
	if d.pos >= len(d.b) {
		return false
	}
	tag := d.b[d.pos]
	d.pos++
	switch {
	case tag >= tagInt64N:
		*v = int64(tag &^ tagInt64N) // Go has boxes for these
		return true
	case tag >= tagBytesN:
		return d.bytesValue(v, int(tag&^tagBytesN))
	case tag >= tagStringN:
		return d.stringValue(v, int(tag&^tagStringN))
	}
	switch tag {
	case tagNull:
		return true
	case tagFalse:
		*v = false
		return true
	case tagTrue:
		*v = true
		return true
	case tagString:
		return d.stringValue(v, d.length())
	case tagBytes:
		return d.bytesValue(v, d.length())
	case tagNoBytes:
		if d.left.bytes == 0 {
			return false
		}
		d.left.bytes--
		d.boxes.bytes(v, nil)
		return true
	case tagTime:
		return d.timeValue(v)
	}

	// All others need a word.
	if d.left.words == 0 {
		return false
	}
	d.left.words--
	switch tag {
	case tagInt64:
		n := d.varint()
		if uint64(n) < small {
			return false
		}
		box(&d.boxes, v, n)
	case tagFloat64:
		if d.reader.left() < 8 {
			return false
		}
		box(&d.boxes, v, math.Float64frombits(binary.LittleEndian.Uint64(d.b[d.pos:])))
		d.pos += 8
	case tagFloat32:
		if d.reader.left() < 4 {
			return false
		}
		box(&d.boxes, v, math.Float32frombits(binary.LittleEndian.Uint32(d.b[d.pos:])))
		d.pos += 4
	case tagInt:
		return signedValue[int](d, v)
	case tagInt8:
		return signedValue[int8](d, v)
	case tagInt16:
		return signedValue[int16](d, v)
	case tagInt32:
		return signedValue[int32](d, v)
	case tagUint:
		return unsignedValue[uint](d, v)
	case tagUint8:
		return unsignedValue[uint8](d, v)
	case tagUint16:
		return unsignedValue[uint16](d, v)
	case tagUint32:
		return unsignedValue[uint32](d, v)
	case tagUint64:
		return unsignedValue[uint64](d, v)
	default:
		return false
	}
	return !d.bad
}

func (d *decoder) stringValue(v *driver.Value, n int) bool {
	if n > len(d.text) || d.left.strings == 0 {
		return false
	}
	d.left.strings--
	d.left.text -= n
	d.boxes.string(v, d.text[:n])
	d.text = d.text[n:]
	return !d.bad
}

func (d *decoder) bytesValue(v *driver.Value, n int) bool {
	if n > len(d.blob) || d.left.bytes == 0 {
		return false
	}
	d.left.bytes--
	d.left.blob -= n
	b := d.blob[:n:n] // an append to it must not run into its neighbour
	if b == nil {
		b = []byte{}
	}
	d.boxes.bytes(v, b)
	d.blob = d.blob[n:]
	return !d.bad
}

func (d *decoder) timeValue(v *driver.Value) bool {
	if d.left.times == 0 {
		return false
	}
	d.left.times--
	n := d.uvarint()
	if n == uint64(zoneFirst+len(d.zones)) && !d.define() {
		return false
	}
	sec, nsec := d.varint(), d.uvarint()
	if d.bad || nsec >= 1e9 || n >= uint64(zoneFirst+len(d.zones)) {
		return false
	}
	var t time.Time
	switch n {
	case zoneUTC:
		t = time.Unix(sec, int64(nsec)).UTC()
	case zoneLocal:
		t = time.Unix(sec, int64(nsec))
	default:
		t = d.zones[n-zoneFirst].at(sec, int64(nsec))
	}
	d.boxes.time(v, t)
	return true
}

// define reads the definition of the next zone.
func (d *decoder) define() bool {
	raw := d.skipZone()
	if d.bad || len(d.zones) == zonesMax {
		return false
	}
	if d.known != nil {
		d.zones = d.known[:len(d.zones)+1]
		return true
	}
	z := cachedZone(raw)
	if z == nil {
		id, ok := parseZone(raw)
		if !ok {
			return false
		}
		load := false
		if loadableZone(id.name) && d.loads < zoneLoadsMax {
			d.loads++
			load = true
		}
		if z, ok = newZone(id, load); !ok {
			return false
		}
		if load || !loadableZone(id.name) {
			cacheZone(raw, z)
		}
	}
	d.zones = append(d.zones, z)
	return true
}

func signedValue[T int | int8 | int16 | int32](d *decoder, v *driver.Value) bool {
	n := d.varint()
	if int64(T(n)) != n {
		return false // also an int of a 64-bit process in a 32-bit one
	}
	box(&d.boxes, v, T(n))
	return !d.bad
}

func unsignedValue[T uint | uint8 | uint16 | uint32 | uint64](d *decoder, v *driver.Value) bool {
	n := d.uvarint()
	if uint64(T(n)) != n {
		return false
	}
	box(&d.boxes, v, T(n))
	return !d.bad
}

// A reader reads from untrusted bytes. After the first thing that is not there,
// bad is set, and what it returns means nothing but is safe: zero or empty.
type reader struct {
	b   []byte
	pos int
	bad bool
}

func (r *reader) left() int { return len(r.b) - r.pos }

func (r *reader) fail() {
	r.bad = true
	r.pos = len(r.b)
}

func (r *reader) byte() byte {
	if r.pos >= len(r.b) {
		r.bad = true
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

func (r *reader) uvarint() uint64 {
	if r.pos < len(r.b) && r.b[r.pos] < 0x80 {
		r.pos++
		return uint64(r.b[r.pos-1])
	}
	return r.longUvarint()
}

func (r *reader) longUvarint() uint64 {
	u, n := binary.Uvarint(r.b[r.pos:])
	if n <= 0 {
		r.fail()
		return 0
	}
	r.pos += n
	return u
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// count reads the number of things that take at least size bytes each. It fails
// when the rest of the bytes could not hold as many.
func (r *reader) count(size int) int {
	u := r.uvarint()
	if u > uint64(r.left()/size) {
		r.fail()
		return 0
	}
	return int(u)
}

// length reads a length in other bytes than the reader's. Who uses it compares
// it with what there is.
func (r *reader) length() int {
	u := r.uvarint()
	if u > math.MaxInt {
		r.fail()
		return 0
	}
	return int(u)
}

// text reads a length and as many bytes. They are part of the reader's.
func (r *reader) text() []byte {
	n := r.count(1)
	r.pos += n
	return r.b[r.pos-n : r.pos]
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
